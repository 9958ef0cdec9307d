"""`python -m farcall`."""

import runpy
import shutil
import subprocess
import sys

import pytest


def test_the_module_is_the_command():
    run = [sys.executable, "-m", "farcall"]
    told = subprocess.run([*run, "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("farcall ")
    wrong = subprocess.run([*run, "no-such"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, "no-such" in wrong.stderr) == (2, True)


def test_a_missing_command_is_told(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="pip install farcall"):
        runpy.run_module("farcall", run_name="__main__")
