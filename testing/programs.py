"""Programs of the tests, compiled with this tree's C library."""

import os
import subprocess

from servers import ROOT

BUILT = ROOT / "target" / "release"
INCLUDE = ROOT / "bindings" / "c" / "include"
LINK = [f"-L{BUILT}", f"-Wl,-rpath,{BUILT}", "-lfarcall", "-lpthread", "-lm"]


def compile_c(source, program, *, compiler=("cc", "-std=gnu11"), link=LINK):
    """Compiles with all warnings, which are errors."""
    subprocess.run(
        [*compiler, "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", source]
        + ["-x", "none", *link, "-o", program],
        check=True,
        timeout=120,
    )
    return program


def run(*command, timeout=60, **environment):
    """Runs a program with a clean choice of servers, and returns how it ended."""
    names = ("FARCALL_SERVER", "NINF_SERVER", "NINF_SERVER_PORT", "FARCALL_CONFIG")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=kept | environment,
    )
