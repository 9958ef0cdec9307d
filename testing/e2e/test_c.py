"""The C library from C and from C++."""

import subprocess

import pytest
from servers import ROOT


@pytest.mark.parametrize(
    ("compiler", "library"),
    [
        (["cc", "-std=c99", "-pedantic"], ["-lfarcall"]),
        (["c++", "-x", "c++"], ["-lfarcall"]),
        (["cc", "-std=c11"], ["-l:libfarcall.a", "-lpthread", "-ldl"]),
    ],
    ids=["c", "c++", "static"],
)
def test_dgesv(library_server, tmp_path, compiler, library):
    built = ROOT / "target" / "release"
    program = tmp_path / "dgesv"
    source = ROOT / "testing" / "e2e" / "dgesv.c"
    subprocess.run(
        [*compiler, "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/bindings/c/include", source]
        + ["-x", "none", f"-L{built}", f"-Wl,-rpath,{built}", *library, "-lm", "-o", program],
        check=True,
    )
    run = subprocess.run(
        [program, library_server.address], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("solved") == 3
    assert "argument `a`: expected an array of double, given NULL" in run.stdout
    assert "no function `lapack/nothing`" in run.stdout
