"""Runs `farcall idl draft`, checks what it wrote, and builds libraries of the drafted sources."""

import json
import subprocess
import sys

from servers import FARCALL


def idl(folder, *words):
    """Runs a command of `farcall idl` in a folder."""
    return subprocess.run(
        [FARCALL, "idl", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"FARCALL_PYTHON": sys.executable, "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )


def draft(folder, *arguments):
    """Drafts in a folder, and returns what the command answered."""
    ran = idl(folder, "draft", *arguments)
    assert ran.returncode == 0, ran.stderr
    return ran


def check(folder, name):
    """The draft is accepted, and says what its functions are."""
    ran = idl(folder, "check", name)
    assert ran.returncode == 0, ran.stdout
    shown = idl(folder, "show", "--json", name)
    assert shown.returncode == 0, shown.stderr
    return {one["name"].split("/")[-1] for one in json.loads(shown.stdout)["functions"]}


def build(folder, library, compiler, *files):
    """A shared library of sources."""
    words = [compiler, "-shared", "-fPIC", "-O1", "-o", folder / library, *files]
    subprocess.run(words, cwd=folder, check=True)


def drafted(folder, name, source, output="drafted.idl"):
    """The draft of a source, in one line."""
    (folder / name).write_text(source)
    (folder / output).unlink(missing_ok=True)
    (folder / output).with_name(f"{(folder / output).stem}_shim.f90").unlink(missing_ok=True)
    draft(folder, name, "-o", output)
    text = (folder / output).read_text()
    check(folder, output)
    return " ".join(text.split())
