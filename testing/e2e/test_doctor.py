"""`farcall doctor`."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading

from servers import FARCALL, LIBRARIES


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


def test_a_forwarded_socket_is_no_shared_memory(start, tmp_path):
    direct, forwarded = tmp_path / "direct.sock", tmp_path / "forwarded.sock"
    start(LIBRARIES / "bench.idl", options=["--unix", str(direct)], listen=None)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(forwarded))
        listener.listen()
        threading.Thread(target=forward, args=(listener, direct), daemon=True).start()
        for address, told in [(direct, "on this host, arrays in shared"), (forwarded, "forwarded")]:
            ran = doctor("--json", f"unix://{address}")
            assert ran.returncode == 0, ran.stderr
            findings = {each["what"]: each["text"] for each in json.loads(ran.stdout)["findings"]}
            assert told in findings["path"]


def forward(listener, target):
    """Forwards the bytes of connections, and no descriptors, as ssh does."""
    with contextlib.suppress(OSError):
        while True:
            here, _ = listener.accept()
            there = socket.socket(socket.AF_UNIX)
            there.connect(str(target))
            for pair in ((here, there), (there, here)):
                threading.Thread(target=pump, args=pair, daemon=True).start()


def pump(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_a_server_that_is_not_there_and_what_is_missing(tmp_path):
    ran = doctor("127.0.0.1:1", CC="no-such-compiler", FARCALL_PYTHON=str(tmp_path / "none"))
    assert ran.returncode == 1
    lines = {line.split()[1]: line for line in ran.stdout.splitlines()}
    assert lines["server"].startswith("!!") and "farcall serve" in lines["server"]
    assert lines["C"].startswith("--") and "no-such-compiler" in lines["C"]
    assert lines["Python"].startswith("--") and "none` cannot be run" in lines["Python"]
    without = doctor("127.0.0.1:1", FARCALL_PYTHON="/bin/false").stdout
    assert "`/bin/false -m pip install farcall`" in without


def test_a_wrong_address_and_a_file_that_cannot_be_read_are_told(tmp_path):
    ran = doctor("gopher://host", "--bundle", tmp_path / "b.json", "--config", tmp_path / "none")
    (line,) = (line for line in ran.stdout.splitlines() if line.split()[1] == "server")
    assert "the scheme is unknown" in line and "farcall serve" not in line
    assert re.search(r"warning: cannot read .*/none: .*without this file", ran.stderr)


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
