"""Netlib's testers of LAPACK under `farcall offload`: every result and error exit as without it.

The testers are Debian's package liblapack-test. Here the matrices are small; `make soak` runs the
inputs as they are.
"""

import os
import pathlib
import re
import subprocess

import pytest
from programs import dropin
from servers import FARCALL, ROOT

TESTERS = pathlib.Path("/usr/lib/x86_64-linux-gnu/lapack")


@pytest.fixture(scope="module")
def testers():
    """The folder of the testers, which `scripts/setup lapack` installs."""
    setup = ROOT / "scripts" / "setup"
    if not TESTERS.exists():
        subprocess.run([setup, "lapack"], check=False, timeout=300)
    if not TESTERS.exists():
        pytest.skip("the testers are missing: `scripts/setup lapack` installs them")
    return TESTERS


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
        words, input=text, capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, ran.stderr


def told(text):
    """What a tester prints, without its times."""
    return [line for line in text.splitlines() if "Total time" not in line]


@pytest.mark.parametrize("precision", ["s", "d", "c", "z"])
@pytest.mark.parametrize("what", ["linear", "eigen"])
def test_a_tester_prints_the_same(library_server, testers, precision, what):
    if what == "linear":
        program, source = f"xlintst{precision}", f"{precision}test.in"
    else:
        program, source = f"xeigtst{precision}", "sep.in"
    text = (testers / source).read_text()
    if what == "linear" and "FARCALL_SOAK_LAPACK" not in os.environ:
        text = smaller(text)
    plain, _ = output([testers / program], text)
    words = [FARCALL, "offload", "--always", "--stats", "--only", "lapack", "--library", dropin()]
    words += ["--server", library_server.address, "--", testers / program]
    offloaded, statistics = output(words, text)
    assert told(offloaded) == told(plain)
    rows = [line.split() for line in statistics.splitlines()]
    rows = {
        row[0]: [int(word) for word in row[1:5]]
        for row in rows
        if row[1:2] and len(row) == 9 and row[1].isdigit()
    }
    remote = sum(counts[1] for counts in rows.values())
    # Illegal arguments and matrices that cannot be factored are reported by the local routine.
    failed = sum(counts[3] for counts in rows.values())
    assert remote > 2000
    assert failed < remote / 50
