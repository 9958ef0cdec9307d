"""The C library against servers that die, stall, send garbage or speak another version: an error
that says so, and never a hang past the time-out."""

import contextlib
import re
import socket
import threading
import time

import pytest
from programs import compile_c, run
from servers import ROOT, ServerProcess

PATIENCE = 0.5
#: Every step of the program may use up its time-out.
BOUND = 10 * PATIENCE + 5
CONNECTION, TIMEOUT = 3, 4
LANGUAGES = ROOT / "testing" / "conformance" / "languages.idl"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return compile_c(ROOT / "testing" / "e2e" / "hostile.c", folder / "hostile")


@pytest.fixture(scope="module")
def languages():
    server = ServerProcess(LANGUAGES, options=["--workers", "2"])
    yield server
    server.stop()


class Peer:
    """A server on a free port whose every connection is handled by `serve(socket)`."""

    def __init__(self, serve):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"farcall://127.0.0.1:{self.listener.getsockname()[1]}"
        self.sockets = []
        self.serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(connection)
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection):
        with contextlib.suppress(OSError):
            self.serve(connection)

    def close(self):
        for each in [self.listener, *self.sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.fixture
def peer():
    peers = []

    def peer(serve):
        peers.append(Peer(serve))
        return peers[-1].address

    yield peer
    for each in peers:
        each.close()


def through(languages, after, then):
    """Passes bytes to a real server and back. After a number of answers it does something else."""

    def serve(connection):
        host, port = languages.address.removeprefix("farcall://").rsplit(":", 1)
        # From another address, so that the server does not offer its local socket.
        server = socket.create_connection((host, int(port)), source_address=("127.0.0.2", 0))
        threading.Thread(target=pump, args=(connection, server), daemon=True).start()
        left = after
        while left > 0 and (data := server.recv(min(left, 1 << 16))):
            connection.sendall(data)
            left -= len(data)
        then(connection)

    return serve


def pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)


def statuses(program, address, patience=PATIENCE):
    """The status of each step of the program, which must end in time."""
    begin = time.monotonic()
    ran = run(program, address, patience, timeout=BOUND + 20)
    assert time.monotonic() - begin < BOUND, ran.stdout
    assert ran.returncode == 0, ran.stderr
    lines = re.findall(r"^([a-z ]+): (\d+) (.*)$", ran.stdout, re.MULTILINE)
    assert all(text for _, status, text in lines if status != "0"), ran.stdout
    return {step: int(status) for step, status, _ in lines}, ran.stdout


def die(connection):
    connection.shutdown(socket.SHUT_RDWR)


def stall(_):
    time.sleep(BOUND)


def babble(connection):
    connection.sendall(bytes(range(256)) * 300)
    die(connection)


def test_a_right_server_is_served(program, languages):
    steps, text = statuses(program, languages.address, patience=BOUND / 2)
    assert set(steps.values()) == {0} and len(steps) == 7, text


@pytest.mark.parametrize("after", [0, 10, 100, 1000, 300_000, 900_000])
def test_a_server_that_dies(program, languages, peer, after):
    # Nobody waits for a server that dies, but for the first answer on a busy machine.
    steps, text = statuses(program, peer(through(languages, after, die)), patience=BOUND / 2)
    assert CONNECTION in steps.values(), text
    assert set(steps.values()) <= {0, CONNECTION}, text


@pytest.mark.parametrize("after", [0, 10, 100, 1000, 300_000, 900_000])
def test_a_server_that_stalls(program, languages, peer, after):
    steps, text = statuses(program, peer(through(languages, after, stall)))
    assert TIMEOUT in steps.values(), text
    assert set(steps.values()) <= {0, TIMEOUT}, text


@pytest.mark.parametrize("after", [0, 10, 100, 1000, 300_000, 900_000])
def test_a_server_that_sends_garbage(program, languages, peer, after):
    steps, text = statuses(program, peer(through(languages, after, babble)))
    assert any(status != 0 for status in steps.values()), text
    assert set(steps.values()) <= {0, CONNECTION, TIMEOUT}, text


def test_a_server_of_another_version(program, peer):
    magic = b"\x67farcall"
    hello = bytes([0x85]) + magic + bytes([9, 9, 0]) + b"\x66future"
    frame = len(hello).to_bytes(4, "little") + bytes([1, 0, 0, 0]) + bytes(8) + hello

    def serve(connection):
        connection.sendall(frame)
        stall(connection)

    steps, text = statuses(program, peer(serve), patience=BOUND / 2)
    assert steps == {"connect": CONNECTION}, text
    assert "version" in text


@pytest.mark.parametrize(
    ("after", "error"),
    [
        (20, "GRPC_SERVER_NOT_FOUND"),
        (100, "GRPC_COMMUNICATION_FAILED"),
        (1000, "GRPC_COMMUNICATION_FAILED"),
    ],
)
@pytest.mark.parametrize("then", [die, babble])
def test_gridrpc_names_the_fault(program, languages, peer, then, after, error):
    ran = run(program, peer(through(languages, after, then)), 0, timeout=BOUND)
    assert error in ran.stdout, ran.stdout
