"""Programs and interpreters as Debian has them under `farcall offload`: their output is that of the
plain program, and their calls are remote.

The programs are in `offload/`. `scripts/setup offload` installs what they need.
"""

import os
import pathlib
import re
import shutil
import subprocess

import pytest
from programs import dropin
from servers import FARCALL, ROOT

FOLDER = pathlib.Path(__file__).resolve().parent / "offload"
# The routines that must be remote, by program.
PROGRAMS = {
    "linear.f90": ["dgesv", "dsyev"],
    "eigen.cpp": ["dgetrf", "dpotrf", "dsyev"],
    "armadillo.cpp": ["dgesv|dgesvx|dposv|dpotrf", "dsyevd", "dgesdd"],
    "script.R": ["dgesv", "dgesdd", "dsyevr", "dgeev", "dpotrf"],
    "script.m": ["dgetrf|dpotrf", "dgesvd|dgesdd", "dsyev", "dgeevx", "dgeqp3", "dgeesx"],
    "script.py": ["dgesv", "dgesdd", "dsyevd", "dgeev", "dpotrf", "dgelsd"],
}
COMPILERS = {
    ".f90": (["gfortran", "-O1"], ["-l:libopenblas.so.0"]),
    ".cpp": (["g++", "-O1", "-I/usr/include/eigen3"], []),
}
LIBRARIES = {
    "eigen.cpp": ["-llapacke", "-l:libopenblas.so.0"],
    "armadillo.cpp": ["-larmadillo"],
}
INTERPRETERS = {
    ".R": ["R", "--vanilla", "--no-echo", "-f"],
    ".m": ["octave-cli", "--norc"],
    # Debian's, and not that of the tests.
    ".py": ["/usr/bin/python3"],
}


@pytest.fixture(scope="module", autouse=True)
def installed():
    """What `scripts/setup offload` installs."""
    setup = subprocess.run(
        [ROOT / "scripts" / "setup", "offload"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if setup.returncode != 0:
        pytest.skip(f"`scripts/setup offload` cannot install the programs: {setup.stderr[-300:]}")


def command(source, folder):
    """The command that runs a source file."""
    if source.suffix in INTERPRETERS:
        words = INTERPRETERS[source.suffix]
        assert shutil.which(words[0]), f"{words[0]} is not installed"
        return [*words, source]
    compiler, libraries = COMPILERS[source.suffix]
    program = folder / source.stem
    words = [*compiler, source, *libraries, *LIBRARIES.get(source.name, []), "-o", program]
    subprocess.run(words, check=True, timeout=280)
    return [program]


def output(words):
    # The environment of the tests must not reach Debian's Python.
    environment = {name: value for name, value in os.environ.items() if "PYTHON" not in name}
    ran = subprocess.run(
        words, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout, ran.stderr


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROGRAMS)
def test_output_is_that_of_the_plain_program(library_server, tmp_path, name):
    words = command(FOLDER / name, tmp_path)
    plain, _ = output(words)
    before = [FARCALL, "offload", "--always", "--stats", "--library", dropin()]
    offloaded, statistics = output([*before, "--server", library_server.address, "--", *words])
    assert offloaded == plain
    rows = [line.split() for line in statistics.splitlines()]
    rows = {row[0]: int(row[2]) for row in rows if len(row) == 9 and row[1].isdigit()}
    for routine in PROGRAMS[name]:
        remote = [count for one, count in rows.items() if re.fullmatch(routine, one)]
        assert sum(remote) > 0, f"{routine} is not remote:\n{statistics}"
