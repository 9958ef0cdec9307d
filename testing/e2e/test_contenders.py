"""The contenders of `farcall bench call`: they end together with what they have started."""

import pathlib
import subprocess
import sys

from servers import ROOT, children, wait_until


def test_a_contender_that_is_killed_takes_its_server_along():
    command = [sys.executable, ROOT / "benches" / "contenders.py", "Arrow Flight"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as contender:
        assert contender.stdout.readline() == "ready\n"
        started = [pathlib.Path(f"/proc/{child}") for child in children(contender.pid)]
        assert started
        contender.terminate()
        assert contender.wait(timeout=20) == 1
    wait_until(lambda: not any(map(pathlib.Path.exists, started)), what="the end of its server")
