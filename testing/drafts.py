"""Runs `farcall idl draft`, checks what it wrote, and builds libraries of the drafted sources."""

import json
import subprocess
import sys

from servers import FARCALL


def draft(folder, *arguments):
    """Runs the command in a folder, and returns its answer."""
    ran = subprocess.run(
        [FARCALL, "idl", "draft", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"FARCALL_PYTHON": sys.executable, "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def check(folder, name):
    """The draft is accepted, and says what its functions are."""
    environment = {"FARCALL_PYTHON": sys.executable, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    words = [FARCALL, "idl", "check", name]
    ran = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout
    words = [FARCALL, "idl", "show", "--json", name]
    shown = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=True, env=environment
    )
    return {one["name"].split("/")[-1] for one in json.loads(shown.stdout)["functions"]}


def build(folder, library, compiler, *files):
    """A shared library of sources."""
    words = [compiler, "-shared", "-fPIC", "-O1", "-o", folder / library, *files]
    subprocess.run(words, cwd=folder, check=True)


def drafted(folder, name, source, output="drafted.idl"):
    """The draft of a source, in one line."""
    (folder / name).write_text(source)
    draft(folder, name, "-o", output)
    text = (folder / output).read_text()
    check(folder, output)
    return " ".join(text.split())
