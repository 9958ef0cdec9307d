"""A metaserver from Python: one handle, all servers."""

import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import farcall
import numpy as np
import pytest
from servers import FARCALL, freeze, metaserver, up_local, wait_until

IDL = """\
Module work;
Globals {
    #include <time.h>
}
Define again(IN int n, IN double seconds, INOUT double x[n])
    CalcOrder n
    Repeatable "yes"
{
    struct timespec time = {(long)seconds, (long)((seconds - (long)seconds) * 1e9)};
    int i;
    nanosleep(&time, 0);
    for (i = 0; i < n; i++) x[i] = 2 * x[i] + 1;
}
"""


@pytest.fixture
def cluster(tmp_path: pathlib.Path):
    """Three servers of one processor element each, behind a metaserver; its address."""
    (tmp_path / "work.idl").write_text(IDL)
    with up_local(tmp_path / "work.idl") as address:
        yield address


def test_calls_run_on_all_servers(cluster, monkeypatch):
    monkeypatch.delenv("FARCALL_SERVER", raising=False)
    monkeypatch.setenv("FARCALL_METASERVER", cluster)
    server = farcall.connect()
    wait_until(lambda: serving(cluster) == 3, what="that the servers have joined")
    again = server.function("again")
    arrays = [np.full(5000, float(index)) for index in range(9)]
    futures = [again.call_async(5000, 0.3, array) for array in arrays]
    for future in futures:
        future.result(timeout=30)
    servers = [status(each["address"]) for each in status(cluster)["servers"]]
    done = [sum(function["done"] for function in each["functions"]) for each in servers]
    assert sum(done) == 9 and min(done) >= 1, done
    for index, array in enumerate(arrays):
        assert (array == 2 * index + 1).all()
    again(3, 0.0, np.zeros(3))
    assert again.times.exec >= 0


def status(address):
    """The output of `farcall status --json`."""
    words = [FARCALL, "status", "--json", "--server", address]
    return json.loads(subprocess.check_output(words, timeout=30))


def serving(address):
    """The number of servers whose functions a metaserver knows."""
    return sum(each["functions"] > 0 for each in status(address)["servers"])


def test_a_reservation_is_at_one_of_the_servers(cluster):
    server = farcall.connect(cluster)
    wait_until(lambda: serving(cluster) == 3, what="that all have joined")
    again = server.function("again")
    with pytest.raises(farcall.ServerError, match=r"function\.reserve"):
        server.reserve(seconds=60)
    with again.reserve(seconds=60) as first, again.reserve(seconds=60) as second:
        assert first.server != second.server
        known = {(one.id, one.server) for one in again.reservations()}
        assert known == {(one.id, one.server) for one in (first, second)}
        for reservation in first, second:
            array = np.zeros(3)
            again.with_reservation(reservation)(3, 0.0, array)
            again.with_reservation(f"{reservation.id}@{reservation.server}")(3, 0.0, array)
            # Twice, from 0: 1, then 3.
            assert (array == 3).all()
            (function,) = status(reservation.server)["functions"]
            assert function["done"] == 2
        # Each of a sweep's calls goes to the one server.
        calls = [{"x": np.full(1, float(index))} for index in range(4)]
        for _ in again.with_reservation(first).map(calls, n=1, seconds=0.0):
            pass
        assert [call["x"][0] for call in calls] == [1, 3, 5, 7]
        (function,) = status(first.server)["functions"]
        assert function["done"] == 6
    assert farcall.connect(first.server).reservations() == []
    with pytest.raises(farcall.ArgumentError, match="with_reservation"):
        again.with_reservation("3@@")


def test_what_stays_is_at_one_server(cluster):
    server = farcall.connect(cluster)
    wait_until(server.ls, what="that a server has joined")
    with pytest.raises(farcall.Error, match="metaserver"):
        server.put(np.zeros(3))
    with pytest.raises(farcall.UnknownFunction, match="farcall ls"):
        server.function("missing")
    with pytest.raises(farcall.UnknownFunction, match="did you mean `again`"):
        server.function("agan")


def test_the_command_asks_the_metaserver_of_the_environment(cluster):
    environment = os.environ | {"FARCALL_METASERVER": cluster}
    environment.pop("FARCALL_SERVER", None)

    def run(*words):
        command = [FARCALL, *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=30, check=False
        )

    wait_until(lambda: "again" in run("ls").stdout, what="that a server has joined")
    assert "[3.000000, 5.000000]" in run("call", "again", "n=2", "seconds=0", "x=1,2").stdout
    for wrong, reason in ("1,b", "numbers with commas"), (f"@{__file__}", "`numpy.save` writes"):
        refused = run("call", "again", "n=2", "seconds=0", f"x={wrong}").stderr
        assert refused.startswith("error: `x`: ") and reason in refused
    assert "drain its servers, which `farcall status` lists, one by one" in run("drain").stderr
    plan = run("describe", "again", "--plan", "n=2", "seconds=0").stdout
    assert "total s" in plan and "127.0.0.1" in plan


def test_the_command_says_which_server_has_a_submitted_call(start, nap_idl, tmp_path):
    def run(*words):
        command = [FARCALL, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)

    with metaserver() as listening:
        address = listening.replace("farcall://", "meta://")
        server = start(nap_idl, options=["--metaserver", address, "--state", tmp_path / "state"])
        wait_until(lambda: serving(address) == 1, what="that the server has joined")
        said = run("submit", "nap", "ms=1", "--json", "--server", address)
        made = json.loads(said.stdout)
        assert made["server"] == server.address
        assert f"farcall fetch {made['id']} --server {server.address}" in said.stderr
        assert "slept" in run("fetch", made["id"], "--server", made["server"]).stdout


def test_a_call_that_moves_to_another_server_has_one_time_out(start, tmp_path):
    idl = tmp_path / "work.idl"
    idl.write_text(IDL)
    with metaserver() as listening:
        address = listening.replace("farcall://", "meta://")
        options = ["--allow-code", "--metaserver", address]
        servers = [start(idl, options=options) for _ in range(2)]
        wait_until(lambda: serving(address) == 2, what="that both have joined")
        words = ["again", "n=1", "seconds=60", "x=0", "--timeout", "15", "--server", address]
        began = time.monotonic()
        with subprocess.Popen([FARCALL, "call", *words], stderr=subprocess.PIPE, text=True) as ran:
            wait_until(lambda: time.monotonic() - began > 9, what="most of the time-out")
            [lost] = [server for server in servers if server.napping()]
            lost.process.kill()
            assert "within 15 s" in ran.communicate(timeout=30)[1]
        assert time.monotonic() - began < 22


def test_servers_that_come_and_go_leave_no_descriptors(start, nap_idl):
    with metaserver() as listening:
        address = listening.replace("farcall://", "meta://")
        client = farcall.connect(address)
        sockets = []
        for _ in range(4):
            server = start(nap_idl, options=["--metaserver", address])
            wait_until(lambda: serving(address) == 1, what="that the server has joined")
            assert client.function("nap")(1).slept == 1
            files = pathlib.Path("/proc/self/fd").iterdir()
            sockets.append(sum(file.is_socket() for file in files))
            server.stop()
            wait_until(lambda: serving(address) == 0, what="that the server has left")
        assert min(sockets[2:]) <= max(sockets[:2]), sockets


@pytest.mark.parametrize("are_known", [False, True])
def test_servers_that_say_nothing_hold_up_a_client_once(start, nap_idl, monkeypatch, are_known):
    # A server that is connected is lost after a third more.
    monkeypatch.setenv("FARCALL_LOST_AFTER", "2")
    with metaserver() as listening:
        address = listening.replace("farcall://", "meta://")
        servers = [start(nap_idl, options=["--metaserver", address]) for _ in range(5)]
        wait_until(lambda: serving(address) == 5, what="that all have joined")
        client = farcall.connect(address, connect_timeout=3)
        if are_known:
            assert len(client.function("segfault")._everywhere()) == 5
        nap = client.function("nap")
        for server in servers[1:]:
            freeze(server.process)
        try:
            began = time.monotonic()
            found = {server.address for server, _ in nap._everywhere()}
            # One of them may have described the function before.
            assert servers[0].address in found and len(found) < 3
            assert time.monotonic() - began < 11
        finally:
            for server in servers[1:]:
                server.process.send_signal(signal.SIGCONT)


def test_ctrl_c_ends_the_wait_for_servers_that_say_nothing(start, nap_idl):
    with metaserver() as listening:
        address = listening.replace("farcall://", "meta://")
        server = start(nap_idl, options=["--metaserver", address])
        wait_until(lambda: serving(address) == 1, what="that it has joined")
        client = farcall.connect(address, connect_timeout=60)
        nap = client.function("nap")
        other = start(nap_idl, options=["--metaserver", address])
        wait_until(lambda: serving(address) == 2, what="that the other one has joined")
        freeze(other.process)
        try:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            began = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                nap._everywhere()
            assert time.monotonic() - began < 10
            assert server.process.poll() is None
        finally:
            other.process.send_signal(signal.SIGCONT)
