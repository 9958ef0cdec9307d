"""The tests of linear algebra that NumPy and SciPy ship, under `farcall offload --always`: no test
fails that does not also fail without Farcall.

`make soak` runs the whole of SciPy's; here it is the part that calls most routines.
"""

import os
import re
import subprocess
import sys

import pytest
from programs import dropin
from servers import FARCALL

SOAK = "FARCALL_SOAK_LAPACK" in os.environ
PARTS = ["decomp_cholesky", "decomp_lu", "decomp_ldl", "lapack"]
# The tests, and the fewest that pass and the fewest remote calls: a suite that tests something else
# is no proof.
SUITES = {
    "numpy.linalg": (["--noconftest", "numpy.linalg"], 400, 2000),
    "scipy.linalg": (
        ["scipy.linalg"] if SOAK else [f"scipy.linalg.tests.test_{part}" for part in PARTS],
        8000 if SOAK else 1000,
        10000 if SOAK else 1000,
    ),
}
OPTIONS = ["-q", "-rfE", "-p", "no:cacheprovider", "-c", os.devnull, "-W", "ignore"]
OPTIONS += ["-m", "not slow"]


def suite(before, arguments):
    """What pytest prints: on standard output, and what the statistics say."""
    command = [*before, sys.executable, "-m", "pytest", *OPTIONS, "--pyargs", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=3000)


def failed(ran):
    """The tests that failed, by their names in a command."""
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE))


@pytest.mark.timeout(3600 if SOAK else 300)
@pytest.mark.parametrize("name", SUITES)
def test_no_failure_that_plain_does_not_have(name, library_server):
    if name.startswith("scipy"):
        pytest.importorskip("scipy")
    arguments, fewest_tests, fewest_calls = SUITES[name]
    before = [FARCALL, "offload", "--always", "--stats", "--library", dropin()]
    before += ["--server", library_server.address, "--"]
    ran = suite(before, arguments)
    ours = failed(ran)
    if ours:
        local = failed(suite([], sorted(ours)))
        assert ours <= local, "fail only when offloaded:\n" + "\n".join(sorted(ours - local))
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed, ran.stdout[-3000:] + ran.stderr[-3000:]
    rows = [line.split() for line in ran.stderr.splitlines()]
    remote = sum(int(row[2]) for row in rows if len(row) == 9 and row[1].isdigit())
    assert int(passed[1]) >= fewest_tests
    assert remote >= fewest_calls
    print(f"{name}: {passed[1]} passed, {len(ours)} fail here and plain, {remote} remote calls")
