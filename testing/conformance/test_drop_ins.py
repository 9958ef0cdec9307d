"""The tests that NumPy and SciPy ship pass with Farcall's functions in place of theirs.

The suites are those of the installed versions, without the tests that they mark as slow. A test
that fails must also fail without Farcall.
"""

import os
import re
import subprocess
import sys

import pytest
from servers import LIBRARIES, ROOT, ServerProcess

LINALG = [f"scipy.linalg.tests.test_{name}" for name in ("basic", "decomp", "decomp_cholesky")]
LINALG += ["scipy.linalg.tests.test_decomp_lu", "scipy.linalg.tests.test_batch"]
# The fewest tests and calls of the server: a suite that tests something else is no proof.
SUITES = {
    "farcall.linalg": (["--noconftest", "numpy.linalg"], 400, 5000),
    "farcall.fft": (["--noconftest", "numpy.fft"], 120, 1000),
    "farcall.scipy.linalg": (LINALG, 3000, 3000),
    "farcall.scipy.fft": (["scipy.fft"], 1000, 1000),
}
OPTIONS = ["-q", "-rfE", "-p", "no:cacheprovider", "-c", os.devnull, "-W", "ignore"]
OPTIONS += ["-m", "not slow"]


@pytest.fixture(scope="module")
def server():
    files = (LIBRARIES / f"{name}.idl" for name in ("linalg", "lapack", "fft"))
    process = ServerProcess(*files)
    yield process
    process.stop()


def suite(arguments, plugin, environment):
    """What pytest prints."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *plugin, "--pyargs", *arguments]
    paths = os.pathsep.join(
        [str(ROOT / "testing" / "conformance"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    )
    environment = os.environ | environment | {"PYTHONPATH": paths}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return run.stdout + run.stderr


def failed(output):
    """The tests that failed, by their names in a command."""
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("module", SUITES)
def test_no_failure_that_the_local_library_does_not_have(module, server):
    arguments, fewest_tests, fewest_calls = SUITES[module]
    environment = {"FARCALL_DROP_IN": module, "FARCALL_SERVER": server.address}
    output = suite(arguments, ["-p", "drop_ins"], environment)
    ours = failed(output)
    if ours:
        local = failed(suite(sorted(ours), [], {}))
        assert ours <= local, f"fail only with {module}:\n" + "\n".join(sorted(ours - local))
    passed, calls = re.search(r"(\d+) passed", output), re.search(r"of the server: (\d+)", output)
    assert passed and calls, output[-3000:]
    assert int(passed[1]) >= fewest_tests
    assert int(calls[1]) >= fewest_calls
    print(f"{module}: {passed[1]} passed, {len(ours)} fail here and locally, {calls[1]} calls")
