"""Netlib's testers of LAPACK under `farcall offload`: every result and error exit as without it.

The testers are Debian's package liblapack-test. Here the matrices are small; `make soak` runs the
inputs as they are. The drop-in library of these tests also has the routines that never pay, so that
the testers judge the interface of every routine.
"""

import os
import pathlib
import re
import subprocess

import pytest
from servers import FARCALL, LIBRARIES, ROOT

SOAK = "FARCALL_SOAK_LAPACK" in os.environ
# Inputs of the eigenvalue testers; {p} is the precision.
EIGEN = ["sep", "nep", "{p}ed", "{p}sg", "{p}gg", "gqr", "{p}sb", "{p}bb", "gsv"]
if SOAK:
    EIGEN += ["svd", "se2", "{p}gd", "{p}bal", "{p}bak", "{p}gbal", "{p}gbak"]
    EIGEN += ["{p}ec", "glm", "lse", "csd"]
# Inputs with calls that stay here: the blocks of an orthogonal matrix share its memory.
STAYS = {"csd"}


@pytest.fixture(scope="module")
def testers():
    """The folder of the testers, which `scripts/setup lapack` installs."""
    folder = installed()
    if folder is None:
        subprocess.run([ROOT / "scripts" / "setup", "lapack"], check=False, timeout=300)
        folder = installed()
    if folder is None:
        pytest.skip("the testers are missing: `scripts/setup lapack` installs them")
    return folder


def installed():
    """The folder of the testers, if they are there. The library alone has this folder, too."""
    inputs = pathlib.Path("/usr/lib").glob("*-linux-gnu/lapack/dtest.in")
    return next((path.parent for path in inputs), None)


@pytest.fixture(scope="module")
def dropin(tmp_path_factory):
    """A drop-in library with every routine of lapack.idl."""
    folder = tmp_path_factory.mktemp("dropin")
    words = [FARCALL, "offload", "build", "--all", LIBRARIES / "lapack.idl", "-o", folder]
    subprocess.run(words, check=True, timeout=280)
    return folder / "libfarcall_lapack.so"


def smaller(text):
    """An input with four sizes of matrices."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\d+ +Number of values of [MN]\b", line):
            lines[number] = "4 Number of values"
            lines[number + 1] = "0 1 5 20 Values"
    return "\n".join(lines) + "\n"


def output(words, text):
    ran = subprocess.run(
        words,
        input=text,
        capture_output=True,
        text=True,
        timeout=3400 if SOAK else 280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


def told(text):
    """What a tester prints, without its times."""
    return [line for line in text.splitlines() if "Total time" not in line]


def without_figures(text):
    """The same without the figures of tests that fail."""
    return [re.sub(r"(result +\d+ is|test\( *\d+\)=) +\S+$", r"\1", line) for line in told(text)]


def failures(text):
    """The tests that a tester says have failed."""
    return {
        line
        for line in without_figures(text)
        if re.search(r"(result +\d+ is|test\( *\d+\)=)$", line)
    }


def same(library_server, dropin, program, text):
    """Compares what the tester prints, and returns the calls of all routines and those that failed.

    The plain program fails some tests. Some of them compare two calls to the last bit. OpenBLAS's
    bits depend on the processor and on the alignment of arrays, and the server aligns them.
    """
    plain, _ = output([program], text)
    words = [FARCALL, "offload", "--always", "--stats", "--only", "lapack", "--library", dropin]
    words += ["--server", library_server.address, "--", program]
    offloaded, statistics = output(words, text)
    if not failures(plain):
        assert told(offloaded) == told(plain)
    elif failures(offloaded) == failures(plain):
        assert without_figures(offloaded) == without_figures(plain)
    else:
        assert failures(offloaded) < failures(plain)
    rows = [line.split() for line in statistics.splitlines()]
    rows = {
        row[0]: [int(word) for word in row[1:5]]
        for row in rows
        if row[1:2] and len(row) == 9 and row[1].isdigit()
    }
    remote = sum(counts[1] for counts in rows.values())
    failed = sum(counts[3] for counts in rows.values())
    print(f"{remote} remote calls of {len(rows)} routines, {failed} failed")
    return remote, failed


@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.parametrize("precision", ["s", "d", "c", "z"])
def test_the_tester_of_linear_systems_prints_the_same(library_server, testers, dropin, precision):
    text = (testers / f"{precision}test.in").read_text()
    text = text if SOAK else smaller(text)
    remote, failed = same(library_server, dropin, testers / f"xlintst{precision}", text)
    assert remote > 5000
    # Illegal arguments and matrices that cannot be factored are reported by the local routine, and
    # the tests of tpqrt pass arrays that share memory.
    assert failed < remote / 25


@pytest.mark.skipif(not SOAK, reason="only in make soak")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("tester", "source"),
    [(f"xlintstrf{p}", f"{p}test_rfp") for p in "sdcz"]
    + [("xlintstds", "dstest"), ("xlintstzc", "zctest")],
)
def test_the_testers_of_packed_and_mixed_forms_print_the_same(
    library_server, testers, dropin, tester, source
):
    text = (testers / f"{source}.in").read_text()
    same(library_server, dropin, testers / tester, text)


@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.parametrize("precision", ["s", "d", "c", "z"])
@pytest.mark.parametrize("source", EIGEN)
def test_the_tester_of_eigenvalues_prints_the_same(
    library_server, testers, dropin, precision, source
):
    text = (testers / f"{source.format(p=precision)}.in").read_text()
    program = testers / f"xeigtst{precision}"
    remote, failed = same(library_server, dropin, program, text)
    assert remote > (2000 if source == "sep" else -1 if source in STAYS else 5)
    assert source in STAYS or failed <= (remote / 50 if source == "sep" else max(1, remote / 20))
