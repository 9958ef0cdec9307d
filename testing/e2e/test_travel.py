"""Sections, Shrink, strings, work space and sizes that depend on array elements, end to end."""

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


def test_shrink_packs_the_section(travel):
    n, lda = 3, 5
    a = np.zeros((n, lda))
    travel.call("packed", n, lda, a)
    assert (a[:, :n].ravel() == np.arange(9.0)).all()
    assert (a[:, n:] == 0).all()


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
