"""The worked examples, as their README files show them."""

import math
import subprocess
import sys

import pytest
from programs import command, run
from servers import LIBRARIES, ROOT

EXAMPLES = ROOT / "examples"
RESULT = "200 points: info 0, largest error 2.036e-05\n"


@pytest.mark.parametrize("source", ["rod.c", "rod.cpp", "rod.f90", "Rod.java", "rod.py"])
def test_the_rod_in_every_language(library_server, tmp_path, source):
    program = command(EXAMPLES / "rod" / source, tmp_path)
    ran = run(*program, library_server.address)
    # Fortran writes a capital E.
    assert (ran.returncode, ran.stdout.lower()) == (0, RESULT), ran.stderr
    ran = run(*program, FARCALL_SERVER=library_server.address)
    assert (ran.returncode, ran.stdout.lower()) == (0, RESULT), ran.stderr


def test_the_rod_with_the_names_of_ninf(library_server, tmp_path):
    host, port = library_server.address.removeprefix("farcall://").rsplit(":", 1)
    program = command(EXAMPLES / "rod" / "rod_ninf.c", tmp_path)
    ran = run(*program, "-server", host, "-port", port)
    assert (ran.returncode, ran.stdout) == (0, RESULT), ran.stderr


def test_the_readme_shows_what_is_printed():
    assert RESULT.strip() in (EXAMPLES / "rod" / "README.md").read_text()


def test_the_sweep_over_two_servers(library_server, start, tmp_path):
    other = start(LIBRARIES / "lapack.idl")
    program = command(EXAMPLES / "sweep" / "sweep.c", tmp_path)
    ran = run(*program, library_server.address, other.address)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert len(lines) == 16
    # All springs alike: 2 sin(pi / (2 (n + 1))).
    uniform = 2 * math.sin(math.pi / (2 * 65))
    assert lines[3] == f"stiffness 1.00: lowest frequency {uniform:.6f}"


def test_the_ported_program_prints_what_it_printed_before(start):
    folder = EXAMPLES / "porting"
    subprocess.run(["make", "-C", folder], check=True, timeout=60)
    server = start(folder / "response.idl", LIBRARIES / "lapack.idl")
    before = run(sys.executable, folder / "before.py", 60, 12)
    assert before.returncode == 0, before.stderr
    for step in ("each", "loop", "parts"):
        after = run(sys.executable, folder / "after.py", 60, 12, step, server.address)
        assert (after.returncode, after.stdout) == (0, before.stdout), after.stderr
