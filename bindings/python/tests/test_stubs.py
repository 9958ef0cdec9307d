"""Modules of types, made from the interfaces of a server."""

import importlib
import inspect
import subprocess
import sys
import textwrap

import farcall
import numpy as np
import pytest
from farcall import stubs
from servers import ROOT

RIGHT = """
import farcall
import numpy as np
from lapack import dgesv

def solve(server: farcall.Server, a: np.ndarray, b: np.ndarray) -> int:
    n = len(b)
    result = dgesv(server)(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n)
    future = dgesv(server).call_async(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n)
    pivots = np.zeros(n, np.int32)
    dgesv(server)(n, 1, a, n, pivots, b, n, np.zeros(1, np.int32))
    dgesv(server)(n, 1, a, n, None, b)
    stored = server.put(a)
    dgesv(server).with_output()(a=stored, b=b, timeout=30.0)
    likely = dgesv(server).estimate(n=n, nrhs=1, lda=n, ldb=n).total
    job: str = dgesv(server).submit(a=a, b=b).id
    sweep = dgesv(server).map([{"a": a, "b": b}], nrhs=1, group=1)
    first = sum(int(each.info) for each in sweep) + sweep.wanted
    return int(result.info) + int(future.result().ipiv[0]) + first + len(job) + int(likely or 0)
"""
WRONG = {
    'dgesv(server)(n="many", nrhs=1, a=a, lda=n, b=b, ldb=n)': "No overload variant",
    "dgesv(server)(n=n, nrhs=1, a=a, lda=n, ldb=n)": "No overload variant",
    "dgesv(server).submit(a=a, b=b, ipiv=i)": "No overload variant",
    "dgesv(server).estimate(m=n)": "Unexpected keyword argument",
    "next(iter(dgesv(server).map([]))).x": 'has no attribute "x"',
    "dgesv(server)(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n).x": 'has no attribute "x"',
    "dgesv(server)(n=n, nrhs=1, a=i, lda=n, b=b, ldb=n)": "incompatible type",
}


@pytest.fixture
def folder(server, tmp_path):
    for module in ("lapack", "blas", "bench"):
        (tmp_path / f"{module}.py").write_text(stubs.generate(server, module))
    return tmp_path


def mypy(folder, *files):
    """What mypy says of them."""
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "/dev/null"]
        + ["--cache-dir", folder / "cache", "--allow-any-generics", *files],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    return ran.stdout + ran.stderr


def test_they_compute_and_name_their_results(server, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    lapack = importlib.import_module("lapack")
    a, b = np.asfortranarray(np.diag([2.0, 4.0])), np.array([2.0, 8.0])
    solved = lapack.dgesv(server)(nrhs=1, a=a, b=b, ldb=2)
    assert solved.info == 0 and b.tolist() == [1, 2]
    assert solved._fields == lapack.dgesv_result._fields
    assert lapack.dgesv_function.__doc__.startswith("Solve A X = B")


def test_a_checker_takes_what_is_right_and_refuses_what_is_wrong(folder):
    (folder / "right.py").write_text(RIGHT)
    head, start = "\n".join(RIGHT.splitlines()[:4]), "    n = 2\n    "
    signature = (
        "def wrong(server: farcall.Server, a: npt.NDArray[np.float64], b: np.ndarray,"
        " i: npt.NDArray[np.int32]) -> None:\n"
    )
    for index, line in enumerate(WRONG):
        text = f"{head}\nimport numpy.typing as npt\n\n{signature}{start}{line}\n"
        (folder / f"wrong{index}.py").write_text(textwrap.dedent(text))
    names = ["lapack.py", "blas.py", "bench.py", "right.py"]
    said = mypy(folder, *names, *(f"wrong{index}.py" for index in range(len(WRONG))))
    for name in names:
        assert f"{name}:" not in said, said
    for index, complaint in enumerate(WRONG.values()):
        mine = [line for line in said.splitlines() if line.startswith(f"wrong{index}.py")]
        assert any(complaint in line for line in mine), (complaint, said)


def test_the_command(library_server):
    command = [sys.executable, "-m", "farcall.stubs"]

    def run(*arguments):
        return subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=ROOT,
        )

    made = run(library_server.address, "bench")
    assert made.returncode == 0 and "def echo(server" in made.stdout, made.stderr
    unknown = run(library_server.address, "nothing")
    assert unknown.returncode == 1 and "the server has: bench, blas" in unknown.stderr
    wrong = run()
    assert wrong.returncode == 1 and "usage:" in wrong.stderr


def test_names_that_python_has_for_itself_and_methods_do_no_harm(start, tmp_path, monkeypatch):
    path = tmp_path / "names.idl"
    path.write_text("""Module names;
Define plain(IN int self, OUT int *found) { *found = self; }
Define hidden(IN int n, OUT int *_found) { *_found = n; }
DefClass Counter {
    DefState { static int count; }
    DefMethod plain(IN int n) { count += n; }
}
""")
    server = start(path, options=["--allow-code"]).connect()
    (tmp_path / "names.py").write_text(stubs.generate(server, "names"))
    monkeypatch.syspath_prepend(tmp_path)
    names = importlib.import_module("names")
    assert names.plain(server)(3).found == 3
    assert names.hidden(server)(n=4)[0] == 4


def test_an_unknown_module_is_an_error(server):
    with pytest.raises(farcall.UnknownFunction, match="no module `nothing`"):
        stubs.generate(server, "nothing")


def test_a_function_has_a_signature_for_notebooks(server):
    dgesv = server.function("lapack/dgesv")
    signature = inspect.signature(dgesv)
    names = ["n", "nrhs", "a", "lda", "ipiv", "b", "ldb", "info"]
    assert list(signature.parameters) == names
    assert signature.parameters["ipiv"].annotation == "OUT int32 array of shape (n,)"
    assert signature.parameters["n"].annotation == "IN int"
