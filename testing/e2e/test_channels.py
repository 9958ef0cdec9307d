"""Channels from C, in jobs of a real daemon."""

import os
import subprocess

import pytest
from programs import compile_c
from servers import FARCALL, ROOT


@pytest.fixture
def control():
    """The control socket of a daemon that ends with the test."""
    name = f"@farcall-e2e-{os.getpid()}"
    daemon = subprocess.Popen(
        [FARCALL, "gang", "daemon", "--listen", "127.0.0.1:0", "--control", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert daemon.stdout.readline().startswith("listening on ")
        yield name
    finally:
        daemon.terminate()
        daemon.wait(10)
        daemon.stdout.close()


def job(control, elements, program):
    """Runs a job to its end."""
    command = [FARCALL, "gang", "run", "--control", control, "--quiet", "-n", str(elements)]
    return subprocess.run(
        [*command, "--", program], check=False, capture_output=True, text=True, timeout=60
    )


def test_every_function(control, tmp_path):
    program = compile_c(ROOT / "testing" / "e2e" / "channels.c", tmp_path / "channels")
    ran = job(control, 3, program)
    assert (ran.returncode, ran.stdout) == (0, "all is well\n"), ran.stderr


def test_the_ring_of_the_examples(control, tmp_path):
    program = compile_c(ROOT / "examples" / "channels" / "ring.c", tmp_path / "ring")
    ran = job(control, 3, program)
    assert (ran.returncode, ran.stdout) == (0, "ring 3, sum 3\n"), ran.stderr


def test_without_a_daemon_there_is_no_channel(tmp_path):
    program = compile_c(ROOT / "examples" / "channels" / "ring.c", tmp_path / "ring")
    ran = subprocess.run([program], check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "gang run" in ran.stderr
