"""Plans: saved from Python, run by Python and by the command."""

import json
import os
import re
import subprocess
import sys

import farcall
import numpy as np
import pytest
from servers import FARCALL, LIBRARIES, ROOT, ServerProcess

STEPS = """\
Module test;
Library "libc.so.6";
Define copy(OUT char out[n], IN char in[n], IN long n) Repeatable "yes"
    Calls "C" memcpy(out, in, n);
Define fill(INOUT char x[n], IN int value, IN long n) Repeatable "yes"
    Calls "C" memset(x, value, n);
Define made(OUT filename file, IN int mode) Calls "C" creat(file, mode);
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two servers with BLAS and functions that move bytes."""
    idl = tmp_path_factory.mktemp("idl") / "steps.idl"
    idl.write_text(STEPS)
    servers = [ServerProcess(LIBRARIES / "blas.idl", idl, options=("--pes", "1")) for _ in "ab"]
    yield servers
    for server in servers:
        server.stop()


def command(servers, *words, check=True, cwd=None):
    also = [word for server in servers[1:] for word in ("--also", server.address)]
    where = ["--server", servers[0].address, *also]
    done = subprocess.run(
        [FARCALL, "transaction", *map(str, words), *where],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={"FARCALL_PYTHON": sys.executable} | os.environ,
    )
    assert not check or done.returncode == 0, done.stderr
    return done


def products(servers, folder, run):
    """e = (a b) d, f = a d. Intermediate arrays stay at servers. Returns the expected results."""
    rng = np.random.default_rng(5)
    n = 60
    a, b, d = (np.asfortranarray(rng.random((n, n))) for _ in range(3))
    e, f = (np.zeros((n, n), order="F") for _ in range(2))
    dgemm = servers[0].function("blas/dgemm")
    with farcall.transaction(servers) as t:
        middle = dgemm(
            transa="N", transb="N", m=n, n=n, k=n, alpha=1.0, a=a, lda=n, b=b, ldb=n,
            beta=0.0, c=np.zeros((n, n), order="F"), ldc=n,
        ).c  # fmt: skip
        dgemm("N", "N", n, n, n, 1.0, middle, n, d, n, 0.0, e, n)
        dgemm("N", "N", n, n, n, 1.0, a, n, d, n, 0.0, f, n)
        t.save(folder / "plan.toml", {"a": a, "d": d, "e": e, "f": f}, run=run)
    return (a, b, d), (e, f), (a @ b @ d, a @ d)


@pytest.mark.parametrize("run", [True, False])
def test_a_saved_transaction_runs_again(two, tmp_path, run):
    servers = [server.connect() for server in two]
    (_, _, d), filled, expected = products(servers, tmp_path, run)
    for given, wanted in zip(filled, expected, strict=True):
        assert np.allclose(given, wanted) == run
    plan = farcall.load_plan(tmp_path / "plan.toml")
    assert plan.calls == ["blas/dgemm"] * 3
    assert {"a", "d", "e", "f"} <= set(plan.inputs)
    assert plan.outputs == {"e": "e-out.npy", "f": "f-out.npy"}
    again = plan.run(servers)
    assert np.allclose(again["e"], expected[0]) and np.allclose(again["f"], expected[1])
    assert np.allclose(plan.run(servers[0])["f"], expected[1]), "one server needs no list"
    assert not (tmp_path / "e-out.npy").exists()
    # Another array replaces an input, with another order and type.
    other = plan.run(servers, {"d": np.ascontiguousarray(2 * np.round(d)).astype(np.int32)})
    assert np.allclose(other["f"], np.load(tmp_path / "a.npy") @ (2 * np.round(d)))
    with pytest.raises(ValueError, match="has no input"):
        plan.run(servers, {"q": d})
    with pytest.raises(ValueError, match="expected shape"):
        plan.run(servers, {"d": d[:3]})
    # As in a call, nothing of an input is lost.
    with pytest.raises(ValueError, match="`d`: a masked array: its mask would be lost"):
        plan.run(servers, {"d": np.ma.masked_less(d, 0.5)})
    with pytest.raises(ValueError, match=r"`d`: expected float64: Cannot cast .*complex128"):
        plan.run(servers, {"d": d + 0j})
    with pytest.raises(ValueError, match="`d`: the integer 9007199254740993, which float64"):
        plan.run(servers, {"d": np.full(d.shape, 2**53 + 1)})
    # The command writes files.
    done = command(two, tmp_path / "plan.toml", "--json", "--svg", tmp_path / "graph.svg")
    told = json.loads(done.stdout)
    assert told["calls"] == 3 and told["outputs"]["e"].endswith("e-out.npy")
    assert np.allclose(np.load(tmp_path / "e-out.npy"), expected[0])
    assert np.allclose(np.load(tmp_path / "f-out.npy"), expected[1])
    assert "<svg" in (tmp_path / "graph.svg").read_text()


def test_a_dry_run_runs_nothing(two, tmp_path):
    servers = [server.connect() for server in two]
    products(servers, tmp_path, run=False)
    shown = command(two, tmp_path / "plan.toml", "--dry-run").stdout
    assert shown.count("blas/dgemm") == 3 and two[1].address in shown
    assert not (tmp_path / "e-out.npy").exists()


HAND = """\
schema = 1

[inputs]
x = "x.npy"

[outputs]
z = "z.npy"

[[calls]]
function = "copy"
arguments = { in = "x", out = "y", n = 8 }

[[calls]]
function = "fill"
arguments = { x = "y", value = 7, n = 8 }

[[calls]]
function = "test/copy"
arguments = { in = "y", out = "z", n = 8 }
"""


def test_a_plan_written_by_hand(two, tmp_path):
    path = tmp_path / "plan.toml"
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.int8))
    path.write_text(HAND)
    command(two, path)
    assert (np.load(tmp_path / "z.npy") == 7).all()
    assert (np.load(tmp_path / "x.npy") == np.arange(8)).all()
    for change, wanted in [
        (('z = "z.npy"', 'z = "x.npy"'), "named twice"),
        (('z = "z.npy"', 'z = "./x.npy"'), "is an input file"),
        (('z = "z.npy"', 'y = "z.npy"\nz = "./z.npy"'), "name one file for each"),
        (('z = "z.npy"', 'w = "w.npy"'), "no call writes the output `w`"),
        (('in = "x"', 'in = "q"'), "`q` is read, but it is not an input"),
        (('"fill"', '"missing"'), "call 2, missing"),
        (("value = 7, ", ""), "`value` is missing"),
        (("value = 7", "value = 7.5"), "value"),
        (("value = 7", "other = 7"), "no argument `other`"),
        (("n = 8", "n = 9"), "shape"),
        (('x = "x.npy"', 'x = "none.npy"'), "none.npy"),
        (("schema = 1", "schema = 9"), "update farcall"),
    ]:
        path.write_text(HAND.replace(*change, 1))
        done = command(two, path, check=False)
        assert done.returncode in (1, 2) and wanted in done.stderr, (change, done.stderr)


def test_a_plan_of_somebody_else_writes_below_its_folder(two, tmp_path):
    folder = tmp_path / "plan"
    folder.mkdir()
    path, elsewhere = folder / "plan.toml", tmp_path / "z.npy"
    np.save(folder / "x.npy", np.arange(8, dtype=np.int8))
    (folder / "out").symlink_to("..")
    (folder / "link.npy").symlink_to(elsewhere)
    for file in ("../z.npy", str(elsewhere), "./../z.npy", "out/z.npy", "link.npy"):
        path.write_text(HAND.replace('"z.npy"', json.dumps(file)))
        done = command(two, path, check=False)
        assert done.returncode == 2 and "-o z=FILE" in done.stderr, done.stderr
        assert not elsewhere.exists()
    command(two, path, "-o", f"z={elsewhere}")
    assert (np.load(elsewhere) == 7).all()
    made = tmp_path / "made"
    for file in (made, "out/made"):
        step = f'[[calls]]\nfunction = "made"\narguments = {{ file = "{file}", mode = 420 }}\n'
        path.write_text(f"schema = 1\n{step}")
        done = command(two, path, check=False, cwd=folder)
        assert done.returncode == 1 and "a plan writes files below" in done.stderr, done.stderr
        assert not made.exists()


def test_an_output_that_cannot_be_written_costs_no_other_output(two, tmp_path):
    path = tmp_path / "plan.toml"
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.int8))
    path.write_text(HAND.replace("[outputs]", '[outputs]\ny = "y.npy"'))
    done = command(two, path, "-o", "y=/dev/full", check=False)
    assert done.returncode == 1
    assert "cannot write /dev/full: No space left" in done.stderr
    assert (np.load(tmp_path / "z.npy") == 7).all()


def test_a_picture_or_an_output_replaces_neither_the_plan_nor_an_input(two, tmp_path):
    path, x = tmp_path / "plan.svg", tmp_path / "x.npy"
    np.save(x, np.arange(8, dtype=np.int8))
    path.write_text(HAND)
    for words, wanted in [
        (["--svg", x], "must end in .svg"),
        (["--svg", path], "is the plan"),
        (["--svg", path, "--dry-run"], "is the plan"),
        (["--output", f"z={path}"], "is the plan"),
        (["--output", f"z={tmp_path}/z.svg", "--svg", tmp_path / "z.svg"], "one file for each"),
        (["--svg", tmp_path / "none" / "z.svg"], "no such folder"),
    ]:
        done = command(two, path, *words, check=False)
        assert done.returncode == 2 and wanted in done.stderr, (words, done.stderr)
    assert path.read_text() == HAND
    assert (np.load(x) == np.arange(8)).all()


def test_the_plan_of_the_guide(two, tmp_path):
    guide = (ROOT / "docs" / "transactions.md").read_text()
    (plan,) = re.findall(r"^```toml\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    (tmp_path / "plan.toml").write_text(plan)
    a, b = np.random.default_rng(2).random((2, 9, 9))
    for name, array in ("a", a), ("b", b), ("c", np.zeros((9, 9))):
        np.save(tmp_path / f"{name}.npy", array)
    command(two, tmp_path / "plan.toml")
    assert np.allclose(np.load(tmp_path / "product.npy"), a @ b)


def test_a_plan_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.toml"):
        farcall.load_plan(tmp_path / "nothing.toml")


def test_named_data_go_in_and_out(two, tmp_path):
    path = tmp_path / "plan.toml"
    server = two[0].connect()
    server.put(np.arange(8, dtype=np.int8), name="plan/x")
    hand = HAND.replace('"x.npy"', '"data:plan/x"').replace("value = 7", "value = 5")
    path.write_text(hand.replace('"z.npy"', '"data:plan/z"'))
    assert "-> data:plan/z" in command(two, path).stdout
    assert (server.handle(name="plan/z").get().view(np.int8) == 5).all()
    path.write_text(hand.replace('"z.npy"', '"data:plan/x"'))
    command(two, path)
    assert server.handle(name="plan/x").version == 2
    results = farcall.load_plan(path).run([server])
    assert (results["z"].view(np.int8) == 5).all()
    path.write_text(hand.replace("data:plan/x", "data:missing"))
    assert "no data named" in command(two, path, check=False).stderr


def test_arrays_with_similar_names_have_files_of_their_own(two, tmp_path):
    servers = [server.connect() for server in two]
    copy = servers[0].function("copy")
    first, second = np.arange(4, dtype=np.int8), np.arange(4, 8, dtype=np.int8)
    results = [np.zeros(4, dtype=np.int8) for _ in "ab"]
    with farcall.transaction(servers) as t:
        copy(results[0], first, 4)
        copy(results[1], second, 4)
        names = {"x/1": first, "x-1": second, "y/1": results[0], "Y-1": results[1]}
        t.save(tmp_path / "plan.toml", names, run=False)
    found = farcall.load_plan(tmp_path / "plan.toml").run(servers)
    np.testing.assert_array_equal(found["y/1"].view(np.int8), first)
    np.testing.assert_array_equal(found["Y-1"].view(np.int8), second)


def test_what_cannot_be_written_down_is_said(two, tmp_path):
    servers = [server.connect() for server in two]
    fill = servers[0].function("fill")
    x = np.zeros(16, dtype=np.int8)
    with farcall.transaction(servers) as t:
        fill(x[:12], 1, 12)
        fill(x[4:], 2, 12)
        with pytest.raises(farcall.Error, match="overlap"):
            t.save(tmp_path / "plan.toml", {"x": x[4:]})
    assert (x == [1] * 4 + [2] * 12).all()
    with farcall.transaction(servers) as t:
        fill(x, 3, 16)
        with pytest.raises(farcall.Error, match="has a name"):
            t.save(tmp_path / "plan.toml", {})
        with pytest.raises(farcall.Error, match="name"):
            t.save(tmp_path / "plan.toml", {"a b": x})


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_does_what_its_calls_do(two, tmp_path, seed):
    servers = [server.connect() for server in two]
    copy, fill = servers[0].function("copy"), servers[0].function("fill")
    rng = np.random.default_rng(seed)
    arrays = {f"a{i}": rng.integers(0, 100, 6000).astype(np.int8) for i in range(5)}
    expected = {name: array.copy() for name, array in arrays.items()}
    with farcall.transaction(servers) as t:
        for _ in range(20):
            one, other = rng.choice(5, 2, replace=False)
            one, other = f"a{one}", f"a{other}"
            if rng.random() < 0.7:
                copy(arrays[one], arrays[other], 6000)
                expected[one] = expected[other].copy()
            else:
                value = int(rng.integers(0, 100))
                fill(arrays[one], value, 6000)
                expected[one][:] = value
        t.save(tmp_path / "plan.toml", arrays, run=False)
    results = farcall.load_plan(tmp_path / "plan.toml").run(servers)
    assert results
    for name, array in results.items():
        assert np.array_equal(array.view(np.int8), expected[name]), name
