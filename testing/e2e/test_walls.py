"""What a function cannot reach: credentials of the server, and peers that a client chooses."""

import contextlib
import socket
import struct
import subprocess
import threading
import time

import farcall
import numpy as np
import pytest
from servers import FARCALL, ServerProcess, add_tokens

SECRET = "a-token-of-the-server"

# Functions that look at their environment and at files.
LOOK = """\
Module look;
Globals {
    extern char *getenv(const char *);
    extern int open(const char *, int, ...), close(int);
    extern int *__errno_location(void);
}
Define variable(IN string name, OUT int *is_set) { *is_set = getenv(name) != 0; }
Define read_file(IN string path, OUT int *error_number) {
    int file = open(path, 0);
    *error_number = file < 0 ? *__errno_location() : 0;
    if (file >= 0) close(file);
}
"""


@pytest.fixture
def serve(tmp_path):
    """Starts servers of the functions above, with these variables and in an open folder."""
    tmp_path.chmod(0o755)
    idl = tmp_path / "look.idl"
    idl.write_text(LOOK)
    with contextlib.ExitStack() as stack:

        def serve(*options, environment=None):
            server = ServerProcess(
                idl,
                options=["--allow-code", *map(str, options)],
                environment=environment or {},
            )
            stack.callback(server.stop)
            return server

        yield serve


def test_a_function_sees_no_secret_variable(serve):
    secrets = {
        "FARCALL_TOKEN": SECRET,
        "FARCALL_KEY": "/keys/own.key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    others = {"OMP_SCHEDULE": "static", "LC_TIME": "C"}
    server = serve(environment=secrets | others)
    variable = server.connect(token=None).function("variable")

    def is_set(name):
        return variable(name).is_set

    assert {name: is_set(name) for name in secrets} == dict.fromkeys(secrets, 0)
    assert {name: is_set(name) for name in others} == dict.fromkeys(others, 1)
    assert is_set("PATH") == 1


def test_an_operator_names_further_variables(serve, tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text('[workers]\nenvironment = ["LICENSE_SERVER"]\n')
    environment = {"LICENSE_SERVER": "host", "LICENSE_KEY": SECRET}
    variable = serve("--config", config, environment=environment).connect().function("variable")
    assert (variable("LICENSE_SERVER").is_set, variable("LICENSE_KEY").is_set) == (1, 0)


def certificates(folder):
    subprocess.run(
        [FARCALL, "access", "certificate", "server", folder, "127.0.0.1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )


def test_no_certificate_and_no_key_can_be_read(serve, tmp_path):
    tls, own = tmp_path / "tls", tmp_path / "own.key"
    certificates(tls)
    own.write_text(SECRET)
    server = serve("--tls", tls, environment={"FARCALL_KEY": str(own)})
    read = server.connect(authorities=tls / "authority.pem").function("read_file")
    assert read("/etc/passwd").error_number == 0
    hidden = [*tls.iterdir(), *(tmp_path / "tls-authority").iterdir(), own]
    assert [path.name for path in hidden if read(str(path)).error_number == 0] == []
    assert (tmp_path / "tls-authority" / "authority.key").exists()
    assert "sign certificates" not in server.log()


def test_the_key_of_an_authority_beside_the_servers_key_is_hidden_and_reported(serve, tmp_path):
    tls = tmp_path / "tls"
    certificates(tls)
    (tmp_path / "tls-authority" / "authority.key").rename(tls / "authority.key")
    made = subprocess.run(
        [FARCALL, "access", "certificate", "client", tls, "alice"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert "move it to" in made.stderr
    server = serve("--tls", tls)
    read = server.connect(authorities=tls / "authority.pem").function("read_file")
    assert read(str(tls / "authority.key")).error_number != 0
    assert "can sign certificates for every user" in server.log()


def frame(kind, request, payload):
    return struct.pack("<IB3xQ", len(payload), kind, request) + payload


def text(value):
    data = value.encode()
    assert len(data) < 256
    return bytes([0x78, len(data)]) + data


def receive(stream):
    header = stream.recv(16, socket.MSG_WAITALL)
    length, kind = struct.unpack("<IB11x", header)
    return kind, stream.recv(length, socket.MSG_WAITALL)


def pull(server, address):
    """Asks a server to read an array from an address. The failure's text, and how long it took."""
    host, port = server.address.removeprefix("farcall://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as stream:
        hello = b"\x85" + text("farcall") + b"\x01\x01\x19\x22\x00"
        stream.sendall(frame(1, 0, hello + text("test")))
        assert receive(stream)[0] == 1
        form = b"\x83" + text("double") + b"\x81\x02\xf4"
        message = b"\x84" + text(address) + b"\x50" + bytes(range(16)) + form + b"\xf4"
        start = time.monotonic()
        stream.sendall(frame(58, 1, message))
        kind, payload = receive(stream)
        assert kind == 10, (kind, payload)
        return payload[2:].decode(errors="replace"), time.monotonic() - start


def test_a_server_shows_its_credentials_to_no_address_that_a_client_chooses(serve):
    server = serve(environment={"FARCALL_TOKEN": SECRET})
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def listen():
            with contextlib.suppress(OSError):
                while True:
                    stream, _ = listener.accept()
                    stream.settimeout(1)
                    with stream, contextlib.suppress(TimeoutError):
                        heard.append(stream.recv(4096))

        threading.Thread(target=listen, daemon=True).start()
        of_open, open_s = pull(server, f"farcall://127.0.0.1:{port}")
    of_closed, closed_s = pull(server, f"farcall://127.0.0.1:{port}")
    assert heard and SECRET.encode() not in b"".join(heard)
    assert of_open == of_closed
    # Both answers come when the same time is over.
    assert abs(open_s - closed_s) < 1.0, (open_s, closed_s)


def test_an_array_travels_between_servers_by_its_loan_alone(serve, tmp_path):
    tokens = tmp_path / "tokens"
    (alice,) = add_tokens(tokens, "alice")
    without = {"FARCALL_TOKEN": ""}
    here, there = (serve("--tokens", tokens, environment=without) for _ in range(2))
    array = np.arange(1000.0)
    ours, theirs = (server.connect(token=alice) for server in (here, there))
    copy = ours.put(array).copy_to(theirs)
    assert (copy.get() == array).all()
    with pytest.raises(farcall.Error, match="asks for a token"):
        here.connect()


def test_a_loan_opens_nothing_but_its_array(serve, tmp_path):
    tokens = tmp_path / "tokens"
    add_tokens(tokens, "alice")
    server = serve("--tokens", tokens)
    host, port = server.address.removeprefix("farcall://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as stream:
        # No array is lent under this name.
        hello = b"\x8a" + text("farcall") + b"\x01\x01\x19\x22\x00" + text("test")
        stream.sendall(frame(1, 0, hello + b"\xf6" * 4 + b"\x50" + bytes(16)))
        kind, payload = receive(stream)
        assert kind == 12 and b"no array is lent under this name" in payload
