"""Sections, Shrink, strings, work space and sizes that depend on array elements, end to end."""

import json
import pathlib
import subprocess

import farcall
import numpy as np
import pytest
from servers import FARCALL, ServerProcess

IDL = pathlib.Path(__file__).with_name("travel.idl")


@pytest.fixture(scope="module", params=["tcp", "unix"])
def travel(request, tmp_path_factory):
    """A server of travel.idl, for each transport."""
    if request.param == "tcp":
        process = ServerProcess(IDL, options=["--allow-code"])
    else:
        path = tmp_path_factory.mktemp("unix") / "s.sock"
        process = ServerProcess(IDL, options=["--allow-code", "--unix", str(path)], listen=None)
    yield farcall.connect(process.address, same_host=False)
    process.stop()


def test_only_the_section_travels(travel):
    n, lda = 3, 5
    a = np.arange(15.0).reshape(n, lda)
    before = a.copy()
    seen = travel.call("sections", n, lda, a, np.empty((n, lda)))
    seen = travel.function("sections")(n=n, lda=lda, a=before.copy()).seen
    assert (seen[:, :n] == before[:, :n]).all()
    assert (seen[:, n:] == 0).all(), "what does not travel is zero at the server"
    assert (a[:, :n] == 2 * before[:, :n]).all()
    assert (a[:, n:] == before[:, n:]).all(), "what does not travel is left alone at the caller"


def test_shrink_keeps_the_section_in_its_place(travel):
    n, lda = 3, 5
    a = np.full((n, lda), 7.0)
    for _ in range(2):  # the second call uses memory that the first one wrote
        before = a.copy()
        assert travel.function("shrunk")(n=n, lda=lda, a=a).outside == 0
        index = np.arange(n * lda).reshape(n, lda)
        assert (a[:, :n] == (before + index)[:, :n]).all()
        assert (a[:, n:] == 7).all(), "what does not travel is left alone"


@pytest.mark.parametrize(
    ("size", "start", "end", "step"),
    [(30, 0, 0, 3), (30, 1, 29, 3), (30, 0, 30, 1), (8, 3, 4, 1), (8, 3, 3, 1), (0, 0, 0, 0)],
)
def test_shrink_with_start_end_and_step(travel, size, start, end, step):
    x = np.arange(1.0, size + 1)
    y = np.full(size, -1.0)
    part = slice(start, end or size, step or 1)
    expected = y.copy()
    expected[part] = 2 * x[part]
    for _ in range(2):
        outside = travel.function("doubled")(
            size=size, start=start, end=end, step=step, x=x, y=y
        ).outside
        assert outside == 0
        np.testing.assert_array_equal(y, expected)


def test_shrink_in_three_dimensions(travel):
    a = np.full((5, 2, 4), -1.0)
    travel.call("box", 5, 2, 4, a)
    expected = np.full((5, 2, 4), -1.0)
    expected[1::2, :, 1:3] = np.arange(40.0).reshape(5, 2, 4)[1::2, :, 1:3]
    np.testing.assert_array_equal(a, expected)


def test_shrink_with_a_callback(travel):
    def each(_n, x, y):
        y[:] = 2 * x

    result = travel.function("called")(n=5, each=each)
    np.testing.assert_array_equal(result.y, [0, 0, 4, 0, 8])


def test_a_shrunk_section_is_no_stored_array(travel):
    n, lda = 3, 5
    with pytest.raises(farcall.ArgumentError, match="`a`"):
        travel.call("shrunk", n, lda, travel.put(np.ones((n, lda))), np.empty(1))
    a = travel.put(np.ones((n, n)))
    assert travel.function("shrunk")(n=n, lda=n, a=a).outside == 0
    np.testing.assert_array_equal(a.get(), 1 + np.arange(9.0).reshape(3, 3))


@pytest.mark.parametrize("n", [0, 1, 100, 8176, 8175, 1 << 17])
def test_a_library_may_read_past_the_end_of_an_array(travel, n):
    result = travel.function("beyond")(n=n, x=np.ones(n))
    assert result.sum == n


def test_an_empty_array_has_memory(travel):
    """Some functions set the first element of their work space, whatever its size."""
    result = travel.function("touches")(n=0, x=np.empty(0))
    np.testing.assert_array_equal(result.count, [1, 2, 3])


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_a_step_skips_elements(travel, n):
    x = np.random.default_rng(n).random(n)
    expected = 0.0
    for value in x[1::2]:
        expected += value
    assert travel.function("strided")(n=n, x=x).sum == expected


def test_strings_are_copied(travel):
    result = travel.function("text")(s="far", t="càll", most=64)
    assert result.length == 3 + len("càll".encode())
    assert bytes(result.both[: int(result.length)]).decode() == "farcàll"


def test_a_size_may_depend_on_an_element(travel):
    start = np.array([0, 2, 2, 5], dtype=np.int32)
    value = np.arange(1.0, 6.0)
    assert (travel.function("rows")(n=3, start=start, value=value).sum == [3, 0, 12]).all()
    with pytest.raises(farcall.ArgumentError, match="value"):
        travel.call("rows", 3, start, value[:4], np.empty(3))


def test_work_space_is_not_passed(travel):
    x = np.arange(5.0)
    y = np.empty(5)
    travel.call("work", 5, x, y)
    assert (y == x[::-1]).all()


def test_code_needs_the_operators_word():
    command = [FARCALL, "serve", IDL, "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "--allow-code" in done.stderr


def call_json(server, *words):
    """What `farcall call --json` prints."""
    command = [FARCALL, "call", "--json", *words, "--server", server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"]


def test_json_carries_all_values_at_full_precision(travel, tmp_path):
    third = 1 / 3
    results = call_json(travel, "work", "n=12", f"x={third},nan,inf,-inf,1e-300,0,1,2,3,4,5,6")
    values = results["y"]["values"]
    assert values[:7] == [6, 5, 4, 3, 2, 1, 0]
    assert values[7:] == [1e-300, "-Infinity", "Infinity", "NaN", third]
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    doubled = call_json(travel, "sections", "n=2", "lda=3", f"a=@{tmp_path}/a.npy")
    assert doubled["a"]["values"] == [[0, 2, 2], [6, 8, 5]]
    assert doubled["seen"]["values"] == [[0, 1, 0], [3, 4, 0]]


def test_integers_of_the_command_lose_nothing(travel):
    large = 2**53 + 1
    assert call_json(travel, "longs", "n=2", f"x={large},-1")["y"]["values"] == [large, -1]
    command = [FARCALL, "call", "work", "n=1", f"x={large}", "--server", travel.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert "do not fit double" in done.stderr
