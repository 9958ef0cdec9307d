"""`farcall doctor`."""

import json
import os
import re
import subprocess
import sys

from servers import FARCALL


def doctor(*arguments, **environment):
    return subprocess.run(
        [FARCALL, "doctor", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={"FARCALL_PYTHON": sys.executable} | os.environ | environment,
    )


def test_a_server_that_answers(library_server):
    ran = doctor("--json", library_server.address)
    assert ran.returncode == 0, ran.stderr
    findings = {finding["what"]: finding for finding in json.loads(ran.stdout)["findings"]}
    assert all(finding["state"] != "bad" for finding in findings.values())
    assert findings["path"]["text"] == "on this host, arrays in shared memory"
    assert "OpenBLAS" in findings["LAPACK"]["text"]
    assert findings["Python"]["state"] == "ok", findings["Python"]
    assert int(findings["functions"]["text"]) > 50


def test_a_server_that_is_not_there_and_what_is_missing(tmp_path):
    ran = doctor("127.0.0.1:1", CC="no-such-compiler", FARCALL_PYTHON=str(tmp_path / "none"))
    assert ran.returncode == 1
    lines = {line.split()[1]: line for line in ran.stdout.splitlines()}
    assert lines["server"].startswith("!!") and "farcall serve" in lines["server"]
    assert lines["C"].startswith("--") and "no-such-compiler" in lines["C"]
    assert lines["Python"].startswith("--") and "pip install farcall" in lines["Python"]


def commands(words=()):
    """Every command, with its subcommands."""
    ran = subprocess.run(
        [FARCALL, *words, "--help"], capture_output=True, text=True, timeout=30, check=True
    )
    if words:
        yield words, ran.stdout
    if words:
        _, _, below = ran.stdout.partition("Commands:\n")
        below = below.partition("\n\n")[0]
    else:  # in groups
        below = ran.stdout.partition("\nOptions:")[0]
    for name in re.findall(r"^  ([a-z-]+)", below, re.MULTILINE):
        if name != "help":
            yield from commands((*words, name))


def test_every_command_has_help_with_an_example():
    told = dict(commands())
    assert len(told) > 40
    without = [" ".join(words) for words, text in told.items() if "Example" not in text]
    assert without == []
