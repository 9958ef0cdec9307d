"""Servers behind `ssh://`, by a real sshd in a network namespace."""

import contextlib
import os
import pathlib
import pty
import re
import signal
import subprocess
import threading

import farcall
import numpy as np
import pytest
from servers import FARCALL, NAP, stop, wait_until
from ssh_hosts import Site

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """The two hosts."""
    made = Site(tmp_path_factory.mktemp("ssh"))
    try:
        yield made.build()
    finally:
        made.remove()


@pytest.fixture
def site(hosts, monkeypatch):
    """The hosts, with the environment that finds ssh."""
    monkeypatch.setenv("FARCALL_SSH", hosts.ssh)
    return hosts


AT = f"ssh://far?farcall={FARCALL}"


def test_a_server_is_started_where_none_runs_and_shared(site):
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    answers = []

    def solve():
        client = farcall.connect(f"{AT}&serve=lapack")
        answers.append(client.call("dgesv", 2, 1, a.T.copy(), 2, np.zeros(2, "i4"), np.ones(2), 2))

    threads = [threading.Thread(target=solve) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [np.allclose(answer.b, [0.4, 0.2]) for answer in answers] == [True] * 3
    # A process that is about to run its own program looks like its server for a moment.
    wait_until(lambda: len(site.servers()) == 1)


@pytest.mark.usefixtures("site")
def test_large_arrays_travel():
    client = farcall.connect(f"{AT}&serve=bench")
    data = np.random.default_rng(7).random(4 << 20)
    assert np.array_equal(client.call("echo", data.size, data).y, data)


@pytest.fixture
def napping(site, tmp_path):
    """A server that runs on the far host at the usual socket."""
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    words = ["ip", "netns", "exec", site.far, FARCALL, "serve", idl, "--log", "warn"]
    own = {"XDG_RUNTIME_DIR": str(site.runtime), "XDG_STATE_HOME": str(tmp_path)}
    environment = os.environ | own
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
    assert "listening on" in process.stdout.readline()
    assert (site.runtime / "farcall.sock").is_socket()
    yield process
    stop(process)


@pytest.mark.usefixtures("napping")
def test_a_running_server_is_found(site):
    client = farcall.connect(f"{AT}&serve=lapack")
    assert client.call("nap", 1).slept == 1
    with pytest.raises(farcall.UnknownFunction):
        client.function("dgesv")
    named = farcall.connect(f"{AT}&unix={site.runtime}/farcall.sock")
    assert named.call("nap", 1).slept == 1
    words = [FARCALL, "ls", "--server", AT]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "test/nap" in told.stdout


@pytest.mark.usefixtures("site")
def test_the_peer_is_the_user_without_a_token(napping):
    """The server's own user may do what operators may."""
    words = [FARCALL, "server", "drain", AT]
    subprocess.run(words, check=True, capture_output=True, timeout=30)
    assert napping.wait(30) == 0


@pytest.mark.usefixtures("napping")
def test_a_lost_tunnel_is_an_error_that_names_ssh(site):
    client = farcall.connect(AT)
    call = client.function("nap").call_async(60_000)
    wait_until(lambda: call.status().phase == "running")
    for pid in tunnels(site):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(farcall.ConnectionError, match="ssh://far"):
        call.result()
    # The next call logs in again.
    assert client.call("nap", 1).slept == 1


def tunnels(site):
    """The processes of ssh on the near host."""
    told = subprocess.run(
        ["ip", "netns", "pids", site.near], capture_output=True, text=True, check=True
    )
    return [int(pid) for pid in told.stdout.split()]


@pytest.mark.usefixtures("napping")
def test_nothing_of_ssh_remains(site):
    client = farcall.connect(AT)
    assert client.call("nap", 1).slept == 1
    assert tunnels(site)
    del client
    wait_until(lambda: not tunnels(site), what="the end of ssh")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (
            "ssh://far?farcall=/no/such/farcall",
            r"/no/such/farcall.*not installed on far.*\?farcall=",
        ),
        ("ssh://far:1", r"Connection refused.*try `ssh far`"),
        (f"{AT}&unix=/no/such.sock", r"cannot connect to /no/such\.sock.*this came from far"),
        (f"{AT}&serve=lapak", r"did you mean `lapack`"),
        ("ssh://-oProxyCommand=x", "a character that is not allowed"),
        ("ssh://far?x=1", "serve=NAME"),
    ],
)
@pytest.mark.usefixtures("site")
def test_what_is_wrong_is_said(address, text):
    with pytest.raises(farcall.Error, match=text):
        farcall.connect(address)


@pytest.mark.usefixtures("site")
def test_without_ssh_the_program_is_named(monkeypatch):
    monkeypatch.setenv("FARCALL_SSH", "no-such-ssh")
    words = "no-such-ssh.*install OpenSSH, or name a program in FARCALL_SSH"
    with pytest.raises(farcall.ConnectionError, match=words):
        farcall.connect("ssh://far")


def test_login_scripts_that_print_without_end_are_named(monkeypatch, tmp_path):
    (tmp_path / "ssh").write_text("#!/bin/sh\nyes\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("FARCALL_SSH", str(tmp_path / "ssh"))
    words = [FARCALL, "ls", "--server", "ssh://host"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert ran.returncode == 1
    assert "the login scripts of host print more than 65536 bytes" in ran.stderr


def test_an_idle_server_ends(start, tmp_path):
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    server = start(idl, options=["--idle", "0.3"])
    with contextlib.suppress(farcall.Error):
        client = server.connect()
        call = client.function("nap").call_async(1_000)
        assert call.result().slept == 1_000
        # Longer than the limit, but in use.
        assert server.process.poll() is None
        del client, call
    assert server.process.wait(30) == 0


def test_a_cluster_of_hosts(site):
    """All of it on the near host, whose loopback the metaserver has."""
    folder = pathlib.Path("/tmp")
    sockets = lambda: set(folder.glob("farcall-up-*"))  # noqa: E731
    # A cluster that was killed once has left its own.
    before = sockets()
    inside = ["ip", "netns", "exec", site.near, "env", f"FARCALL_SSH=ssh -F {site.config}", FARCALL]
    hosts = f"far?farcall={FARCALL},root@far?farcall={FARCALL}"
    words = [*inside, "up", "--ssh", hosts, "lapack", "--listen", "127.0.0.1:0", "--log", "error"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            metaserver, *servers = (process.stdout.readline().split()[-1] for _ in range(3))
            assert all(re.match(r"ssh://(root@)?far\?", server) for server in servers), servers
            at = ["--server", metaserver.replace("farcall://", "meta://")]

            def told(*words):
                ran = subprocess.run(
                    [*inside, *words, *at], capture_output=True, text=True, check=False, timeout=60
                )
                return ran.stdout + ran.stderr

            wait_until(lambda: all(one in told("status") for one in servers), what="both servers")
            system = ["n=1", "nrhs=1", "a=4", "lda=1", "b=1", "ldb=1"]
            assert "0.25" in told("call", "dgesv", *system)
        finally:
            assert stop(process, 15) == 0
    wait_until(lambda: not tunnels(site), what="the end of ssh")
    wait_until(lambda: sockets() <= before, what="the end of the sockets")


def test_the_ssh_of_a_cluster_can_ask_on_the_terminal(tmp_path):
    """As for a password: it fails with the word that was typed."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nread -r word < /dev/tty\necho "typed: $word" >&2\nexit 255\n')
    ssh.chmod(0o755)
    ours, theirs = pty.openpty()
    os.write(ours, b"secret\n")
    words = ["up", "--ssh", "host", "lapack", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        ["setsid", "--ctty", FARCALL, *words],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"FARCALL_SSH": str(ssh)},
    ) as process:
        try:
            assert "typed: secret" in process.communicate(timeout=30)[1]
            assert process.returncode == 1
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
