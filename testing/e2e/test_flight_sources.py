"""Flights of a real Arrow Flight service as arrays, which the server of a call reads."""

import base64
import socket
import subprocess
import threading

import farcall
import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from servers import FARCALL
from sources import refused, serving

TABLE = pa.table(
    {
        "time": pa.array(range(1000), pa.int32()),
        "wind": pa.array(np.arange(1000) / 2),
        "name": ["x"] * 1000,
        "gap": pa.array([None, *range(999)], pa.int64()),
    }
)


class Flights(fl.FlightServerBase):
    """A service with one table, in parts, and with flights that go wrong."""

    def __init__(self, tls=None, **options):
        if tls is None:
            location = "grpc+tcp://127.0.0.1:0"
        else:
            location = "grpc+tls://127.0.0.1:0"
            chain = (tls / "server.pem").read_bytes(), (tls / "server.key").read_bytes()
            options["tls_certificates"] = [chain]
        super().__init__(location, **options)
        self.address = f"flight://127.0.0.1:{self.port}"
        self.asked = []
        self.ends = threading.Event()

    def get_flight_info(self, _context, descriptor):
        path = b"/".join(descriptor.path).decode()
        self.asked.append(path)
        if path not in (
            "data/table",
            "data/slow",
            "data/large",
            "data/many",
            "data/away",
            "data/broken",
        ):
            raise KeyError(f"no flight {path}")
        places = ["grpc+tcp://10.0.0.1:1"] if path == "data/away" else []
        parts = [fl.FlightEndpoint(f"{path} {part}", places) for part in range(2)]
        return fl.FlightInfo(TABLE.schema, descriptor, parts, -1, -1)

    def do_get(self, _context, ticket):
        self.asked.append(ticket.ticket.decode())
        path, _, part = ticket.ticket.decode().partition(" ")
        table = TABLE.slice(500 * int(part or 0), 500)
        if path == "data/large":
            return fl.RecordBatchStream(pa.table({"x": np.zeros(10**6)}))
        if path == "data/many":
            # More than is allowed, a little at a time.
            piece = pa.table({"x": np.zeros(10**4)}).to_batches()[0]
            return fl.GeneratorStream(piece.schema, (piece for _ in range(100)))
        if path in ("data/slow", "data/broken"):

            def batches():
                yield table.to_batches()[0]
                if path == "data/broken":
                    raise fl.FlightInternalError("the disk is broken")
                self.ends.wait(30)

            return fl.GeneratorStream(TABLE.schema, batches())
        if path != "data/table":
            raise KeyError("no such ticket")
        return fl.RecordBatchStream(table)


@pytest.fixture
def flights():
    with Flights() as service:
        yield service
        service.ends.set()


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with these sources."""
    return serving(start, tmp_path)


def test_columns_of_a_flight(serve, flights):
    server = serve(f'[sources.lab]\naddress = "{flights.address}/"').connect()
    total = server.function("total")
    time = farcall.url(f"{flights.address}/data/table", columns=["time"])
    assert total(1000, farcall.url(f"{flights.address}/data/table", columns=["wind"])).sum == 249750
    assert total(1000, time).sum == 499500
    both = server.put(farcall.url(f"{flights.address}/data/table", columns=["wind", "time"]))
    assert (both.shape, both.dtype) == ((1000, 2), np.dtype("float64"))
    assert np.array_equal(both.get()[[0, 999]], [[0, 0], [499.5, 999]])
    # A ticket is one part.
    half = farcall.url(f"{flights.address}/", query="data/table 1", columns=["time"])
    assert server.put(half).get().tolist() == list(range(500, 1000))
    single = farcall.url(f"{flights.address}/data/table", columns=["wind"], dtype="float32")
    assert server.put(single).dtype == np.float32
    # A flight says no version, so that nothing is kept.
    assert server.list_data() == []


def test_errors_name_the_flight(serve, flights):
    server = serve(
        f'[sources.lab]\naddress = "{flights.address}/"\nmax_bytes = 400000\ntime_limit_s = 6.0\n'
    ).connect()
    for path, options, match in [
        ("none", {}, "does not exist .*no flight none"),
        ("my%20runs/100%25", {}, "does not exist .*no flight my runs/100%"),
        ("data/table", {}, "column `name` of type string"),
        ("data/table", {"columns": ["gap"]}, "1 missing values in column `gap`"),
        ("data/table", {"columns": ["snow"]}, "no column `snow`, or several; it has time, wind"),
        ("data/table", {"columns": ["wind"], "dtype": "int32"}, "float64, no int32"),
        ("data/table", {"columns": ["wind"], "sha256": "0" * 64}, "no bytes with a checksum"),
        ("data/large", {}, "400000 bytes that are allowed|400000 are allowed"),
        ("data/many", {}, "[0-9]+ bytes in the columns, and 400000 are allowed"),
        ("data/slow", {"columns": ["time"]}, "is too slow: it was not read within 6 s"),
        ("data/broken", {"columns": ["time"]}, "the disk is broken"),
        ("data/away", {"columns": ["time"]}, "sends the server to `grpc.tcp://10.0.0.1:1`"),
    ]:
        error = refused(server, farcall.url(f"{flights.address}/{path}", **options), match)
        assert f"`{flights.address}/{path}`" in str(error)
    flights.ends.set()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    server = serve(f'[sources.lab]\naddress = "flight://127.0.0.1:{port}/"').connect()
    refused(server, farcall.url(f"flight://127.0.0.1:{port}/a"), "cannot be reached")


def test_only_the_named_flights_are_asked_for(serve, flights):
    server = serve(f'[sources.lab]\naddress = "{flights.address}/data/"').connect()
    port = flights.port
    for address, options in [
        (f"{flights.address}/other", {}),
        (f"{flights.address}/data/../other", {}),
        (f"{flights.address}/data", {}),
        (f"{flights.address}/data/table", {"query": "data/table 1"}),
        (f"flight://localhost:{port}/data/table", {}),
        (f"flight://127.0.0.1:{port + 1}/data/table", {}),
        (f"flight://a:b@127.0.0.1:{port}/data/table", {}),
        (f"grpc://127.0.0.1:{port}/data/table", {}),
    ]:
        source = farcall.url(address, **options)
        refused(server, source, "is not an address|not allowed|dots|takes no ticket")
    assert flights.asked == []
    server = serve(f'[sources.lab]\naddress = "flight://localhost:{port}/"').connect()
    refused(server, farcall.url(f"flight://localhost:{port}/data/table"), "which is not public")
    assert flights.asked == []


class _Checks(fl.ServerMiddlewareFactory):
    """Lets one user in, and one token."""

    def start_call(self, _info, headers):
        [word] = headers.get("authorization") or [""]
        basic = base64.b64encode(b"alice:s3cret").decode()
        if word not in (f"Basic {basic}", "Bearer t0ken"):
            raise fl.FlightUnauthenticatedError("who are you?")
        return _Welcome()


class _Welcome(fl.ServerMiddleware):
    def sending_headers(self):
        return {"authorization": "Bearer t0ken"}


class _Open(fl.ServerAuthHandler):
    def authenticate(self, outgoing, incoming):
        pass

    def is_valid(self, _token):
        return ""


def test_credentials_and_certificates(serve, tmp_path):
    tls = tmp_path / "tls"
    words = ["access", "certificate", "server", tls, "localhost"]
    subprocess.run([FARCALL, *words], check=True, capture_output=True, timeout=30)
    for name, text in [("token", "t0ken"), ("password", "s3cret"), ("wrong", "no")]:
        (tmp_path / name).write_text(f"{text}\n")
    networks = 'networks = ["127.0.0.0/8", "::1/128"]\n'
    authority = f'certificates = "{tls}/authority.pem"\n{networks}'
    token = f'token_file = "{tmp_path}/token"\n'
    user = f'user = "alice"\npassword_file = "{tmp_path}/password"\n'
    wrong = f'token_file = "{tmp_path}/wrong"\n'
    with Flights(tls, middleware={"checks": _Checks()}, auth_handler=_Open()) as service:
        port = service.port
        for host, more, match in [
            ("localhost", token + authority, None),
            ("localhost", user + authority, None),
            ("localhost", wrong + authority, "does not let this server in"),
            ("localhost", authority, "does not let this server in"),
            # The certificate is for the name, and without one there is no TLS.
            ("127.0.0.1", token + authority, "cannot be reached"),
            ("localhost", token + networks, "cannot be reached|answers"),
        ]:
            address = f"flight://{host}:{port}/"
            server = serve(f'[sources.lab]\naddress = "{address}"\n{more}').connect()
            source = farcall.url(f"{address}data/table", columns=["time"])
            if match is None:
                assert server.function("total")(1000, source).sum == 499500
            else:
                refused(server, source, match)
