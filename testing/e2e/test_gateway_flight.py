"""`farcall gateway flight`: functions as exchanges, and a Flight service as functions."""

import json
import math
import os
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest
from gateways import Gateway, callers, gateway
from pyarrow import flight
from servers import FARCALL, LIBRARIES, ROOT, add_tokens, wait_until

WORK = """\
Module work;
Define twice(IN int n, INOUT double x[n]) "Doubles x"
{
    int i;
    for (i = 0; i < n; i++) x[i] *= 2;
}
Define ramp(IN int n, IN double step, OUT double x[n])
{
    int i;
    for (i = 0; i < n; i++) x[i] = i * step;
}
Define phase(IN int n, INOUT dcomplex z[n], IN string s, INOUT string[8] t[2])
{
    int i;
    for (i = 0; i < n; i++) z[i] *= 2;
    t[0][0] = s[0];
}
Define lines(IN filename table, OUT int *n) { *n = 0; }
"""


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work.idl"
    path.write_text(WORK)
    return path


def command(name, **arguments):
    text = json.dumps({"function": name, "arguments": arguments}) if arguments else name
    return flight.FlightDescriptor.for_command(text)


def exchange(client, what, *batches, options=None):
    """Sends batches, and returns the batches that come back."""
    writer, reader = client.do_exchange(what, options)
    with writer:
        writer.begin(batches[0].schema)
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        return [chunk.data for chunk in reader]


def plain(**columns):
    return pa.record_batch([pa.array(column) for column in columns.values()], names=list(columns))


def tensor(array):
    """An array in one row."""
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(array.dtype), array.shape)
    storage = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.size)
    return pa.ExtensionArray.from_storage(kind, storage)


def as_user(token):
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


def test_columns_and_tensors_are_arguments_and_results(start, work):
    server = start(work, LIBRARIES / "lapack.idl", options=["--allow-code"])
    with gateway("flight", server.address) as gate, flight.connect(gate.url) as client:
        x = np.arange(1e5)
        # Each batch is a call.
        halves = [plain(x=x), plain(x=-x)]
        answers = exchange(client, command("work/twice", n=len(x)), *halves)
        assert [answer.column(0).to_numpy().tolist() for answer in answers] == [
            (2 * x).tolist(),
            (-2 * x).tolist(),
        ]
        a, b = np.array([[4.0, 1, 2], [0, 3, 0], [2, 0, 5]]), np.array([[1.0], [2], [3]])
        # A list has the elements by rows.
        for given in [
            pa.record_batch([tensor(a), tensor(b)], names=["a", "b"]),
            pa.record_batch([pa.array([a.ravel()]), pa.array([b.ravel()])], names=["a", "b"]),
        ]:
            what = command("lapack/dgesv", n=3, nrhs=1, lda=3, ldb=3)
            [answer] = exchange(client, what, given)
            found = dict(zip(answer.schema.names, answer.columns, strict=True))
            solved = found["b"].to_numpy_ndarray()[0]
            assert np.allclose(solved, np.linalg.solve(a, b))
            assert found["info"].to_numpy_ndarray().tolist() == [[0]]
        upper = np.array([[2.0, 1], [0, 4]])
        columns = [upper.ravel(), np.array([1, 2], np.int32), np.array([4.0, 8])]
        given = pa.record_batch([pa.array([one]) for one in columns], names=["a", "ipiv", "b"])
        what = command("lapack/dgetrs", trans="N", n=2, nrhs=1, lda=2, ldb=2)
        [answer] = exchange(client, what, given)
        assert answer.column("b").to_numpy_ndarray().ravel().tolist() == [1, 2]
        z = np.array([1 + 2j, -3])
        pairs = pa.FixedSizeListArray.from_arrays(pa.array(z.view(float)), 2)
        given = pa.record_batch([pairs, pa.array(["a", "bc"])], names=["z", "t"])
        [answer] = exchange(client, command("phase", n=2, s="up"), given)
        assert answer.column(0).to_numpy_ndarray()[0].view(complex)[:, 0].tolist() == [2 + 4j, -6]
        assert answer.column(1).to_pylist() == [["u", "bc"]]
        # A text that names a number is one where a number is taken, and a text elsewhere.
        [answer] = exchange(client, command("phase", n=2, s="NaN"), given)
        assert answer.column(1).to_pylist() == [["N", "bc"]]
        ticket = flight.Ticket(command("ramp", n=2, step="Infinity").command)
        assert client.do_get(ticket).read_all().to_pydict()["x"][1] == math.inf
        ticket = flight.Ticket(command("ramp", n=4, step=0.5).command)
        assert client.do_get(ticket).read_all().to_pydict() == {"x": [0.0, 0.5, 1.0, 1.5]}


def test_empty_and_surplus_tensors_do_no_harm(start, work):
    """pyarrow divides by the number of elements of a tensor."""
    server = start(work, options=["--allow-code"])
    with gateway("flight", server.address) as gate, flight.connect(gate.url) as client:
        for size, rows in [(0, [[]]), (3, [[1.0, 2, 3], [4, 5, 6]])]:
            kind = pa.fixed_shape_tensor(pa.float64(), [size])
            column = pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))
            given = pa.record_batch([column], names=["x"])
            what = command("twice", n=size)
            if len(rows) == 1:
                [answer] = exchange(client, what, given)
                assert answer.num_rows == 0
                continue
            with pytest.raises(flight.FlightServerError, match="expected one tensor, given 2"):
                exchange(client, what, given)
        [answer] = exchange(client, command("twice", n=1), plain(x=np.ones(1)))
        assert answer.column(0).to_pylist() == [2]


def test_memory_is_used_again_and_shows_nothing_of_other_callers(start, tmp_path):
    path = tmp_path / "work.idl"
    path.write_text("""Module work;
Define fill(IN int n, IN int m, IN double value, OUT double x[n])
{
    int i;
    for (i = 0; i < m; i++) x[i] = value;
}
""")
    server = start(path, options=["--allow-code"])
    with gateway("flight", server.address, "--own-identity") as gate:
        for value in [1.0, 2.0, 3.0]:
            # Two callers without a token, who both write a part of the array.
            with flight.connect(gate.url) as client:
                for m in [100_000, 10]:
                    what = command("fill", n=100_000, m=m, value=value)
                    x = client.do_get(flight.Ticket(what.command)).read_all().column(0).to_numpy()
                    assert (x[:m] == value).all()
                    assert not x[m:].any()


def test_a_client_finds_the_functions(start, work):
    server = start(work, options=["--allow-code"])
    with gateway("flight", server.address) as gate, flight.connect(gate.url) as client:
        found = {one.descriptor.command: one for one in client.list_flights()}
        assert set(found) == {b"work/phase", b"work/ramp", b"work/twice"}
        assert [one.descriptor.command for one in client.list_flights(b"work/t")] == [b"work/twice"]
        one = client.get_flight_info(command("twice"))
        assert one.schema.field("x").type == pa.float64()
        assert one.schema.field("x").metadata == {b"shape": b"n"}
        told = json.loads(one.app_metadata)
        assert told == {
            "name": "work/twice",
            "interface": "twice(IN int n, INOUT double x[n])",
        }
        assert [action.type for action in client.list_actions()] == ["describe"]
        [described] = client.do_action(flight.Action("describe", b"twice"))
        assert "Doubles x" in described.body.to_pybytes().decode()


def test_what_fails_has_the_words_of_farcall(start, work, nap_idl):
    server = start(work, nap_idl, options=["--allow-code"])
    options = ["--max-bytes", "1MB", "--time-limit", "3"]
    with gateway("flight", server.address, *options) as gate, flight.connect(gate.url) as client:
        x = plain(x=np.ones(2))
        for what, batch, kind, said in [
            (command("work/thrice"), x, "UnknownFunction", "did you mean `twice`"),
            (command("work/twice"), x, "ArgumentError", "`n`"),
            (command("work/twice", n=3), x, "ArgumentError", r"\(3\)|\[3\]|\(3,\)"),
            (command("work/twice", n="x"), x, "ArgumentError", "`n`"),
            (command("work/twice", n=2, x=[1]), x, "ArgumentError", "given twice"),
            (command("work/twice", n=2), plain(y=np.ones(2)), "ArgumentError", "`y`"),
            (command("work/twice", n=10**6), x, "ArgumentError", "this gateway allows 1000000"),
            (command("work/lines"), x, "ArgumentError", "takes files"),
            (command("{"), x, "ArgumentError", "the command is not a name"),
            (command("test/nap", ms=60_000), plain(), flight.FlightTimedOutError, "3 s"),
            (command("test/segfault", n=1), plain(), "LibraryError", "SIGSEGV"),
            (
                command("work/twice", n=1),
                pa.record_batch([pa.array([None], pa.float64())], names=["x"]),
                "ArgumentError",
                "nulls",
            ),
        ]:
            is_class = isinstance(kind, type)
            failed = pytest.raises(kind if is_class else flight.FlightServerError, match=said)
            with failed as failure:
                exchange(client, what, batch)
            assert "Traceback" not in str(failure.value)
            if not is_class:
                assert json.loads(failure.value.extra_info) == {"kind": kind}
        [answer] = exchange(client, command("work/twice", n=2), x)
        assert answer.column(0).to_pylist() == [2, 2]
        server.stop()
        with pytest.raises(flight.FlightUnavailableError):
            exchange(client, command("work/twice", n=2), x)


def test_a_call_runs_as_the_user_of_its_token(start, work, tmp_path):
    tokens, audit = tmp_path / "tokens", tmp_path / "audit"
    alice, bob = add_tokens(tokens, "alice", "bob")
    options = ["--allow-code", "--tokens", tokens, "--audit", audit, "--unix", tmp_path / "socket"]
    server = start(work, options=list(map(str, options)))
    x, what = plain(x=np.ones(1)), command("twice", n=1)
    environment = {"FARCALL_TOKEN": bob}
    with (
        gateway("flight", server.address, environment=environment) as gate,
        flight.connect(gate.url) as client,
    ):
        exchange(client, what, x, options=as_user(alice))
        pair = client.authenticate_basic_token("anybody", alice)
        exchange(client, what, x, options=flight.FlightCallOptions(headers=[pair]))
        assert callers(audit, "work/twice", 2) == ["alice", "alice"]
    with (
        gateway("flight", server.address, "--own-identity", environment=environment) as gate,
        flight.connect(gate.url) as client,
    ):
        exchange(client, what, x)
        assert callers(audit, "work/twice", 3)[2:] == ["bob"]
    with (
        gateway("flight", server.address, environment=environment) as gate,
        flight.connect(gate.url) as client,
    ):
        for ask in [
            lambda options: exchange(client, what, x, options=options),
            lambda options: list(client.list_flights(options=options)),
            lambda options: client.get_flight_info(command("twice"), options),
        ]:
            for refused in [None, as_user("guess")]:
                with pytest.raises(flight.FlightUnauthenticatedError):
                    ask(refused)
        exchange(client, what, x, options=as_user(alice))
        assert callers(audit, "work/twice", 4)[3:] == ["alice"]
    # Without tokens, a server cannot say whose a token is.
    server = start(work, options=["--allow-code"])
    with gateway("flight", server.address) as gate, flight.connect(gate.url) as client:
        exchange(client, what, x)
        with pytest.raises(flight.FlightUnauthenticatedError, match="send no token"):
            exchange(client, what, x, options=as_user("any"))
    with pytest.raises(RuntimeError, match="would take callers without a token for the user"):
        Gateway("flight", f"unix://{tmp_path / 'socket'}")
    with pytest.raises(RuntimeError, match="without TLS; add --tls FOLDER, or --plain"):
        Gateway("flight", server.address, "--listen", "0.0.0.0:0")


def running(server):
    """How many calls compute at the server."""
    words = [FARCALL, "status", "--json", server.address]
    run = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    return sum(user["running"] for user in json.loads(run.stdout)["users"])


def test_calls_are_bounded_and_end_with_their_caller(start, nap_idl):
    server = start(nap_idl)
    what, nothing = command("nap", ms=600_000), plain()
    with gateway("flight", server.address, "--user-calls", "1") as gate:
        client = flight.connect(gate.url)
        writer, reader = client.do_exchange(what)
        writer.begin(nothing.schema)
        writer.write_batch(nothing)
        wait_until(lambda: running(server) == 1, what="the call")
        with (
            flight.connect(gate.url) as other,
            pytest.raises(flight.FlightUnavailableError, match="as many as may"),
        ):
            exchange(other, command("nap", ms=1), nothing)
        reader.cancel()
        wait_until(lambda: running(server) == 0, what="the end of the call")
        del writer, reader
        client.close()


def test_a_gateway_ends_within_its_time(start, nap_idl):
    server = start(nap_idl)
    gate = Gateway("flight", server.address)
    errors = []

    def call():
        try:
            with flight.connect(gate.url) as client:
                exchange(client, command("nap", ms=600_000), plain())
        except flight.FlightError as error:
            errors.append(error)

    waiting = threading.Thread(target=call)
    waiting.start()
    wait_until(lambda: running(server) == 1, what="the call")
    assert gate.stop() == 0
    waiting.join(10)
    assert len(errors) == 1
    wait_until(lambda: running(server) == 0, what="the end of the call")


class Service(flight.FlightServerBase):
    """A Flight service that knows nothing of Farcall."""

    def __init__(self, token):
        super().__init__("grpc://127.0.0.1:0", middleware={"caller": Tokens(token)})
        self.table = pa.table({"t": np.arange(5) / 2, "count": np.arange(5)})
        self.failing = False

    def list_flights(self, _context, _criteria):
        for name, size in [("weather/today", 5), ("endless", -1)]:
            what = flight.FlightDescriptor.for_path(*name.split("/"))
            ends = [flight.FlightEndpoint(name.encode(), [])]
            yield flight.FlightInfo(self.table.schema, what, ends, size, -1)

    def get_flight_info(self, _context, descriptor):
        ends = [flight.FlightEndpoint(b"/".join(descriptor.path), [])]
        return flight.FlightInfo(self.table.schema, descriptor, ends, 5, -1)

    def do_get(self, _context, ticket):
        assert ticket.ticket == b"weather/today"
        return flight.RecordBatchStream(self.table)

    def do_exchange(self, _context, descriptor, reader, writer):
        asked = json.loads(descriptor.command)
        batch = reader.read_chunk().data
        if self.failing:
            raise flight.FlightServerError("the roof is on fire")
        factor = asked["arguments"]["factor"]
        y = pa.array(batch.column("x").to_numpy() * factor)
        total = pa.array(np.full(len(y), y.to_numpy().sum()))
        batch = pa.record_batch([y, total], names=["x", "total"])
        writer.begin(batch.schema)
        writer.write_batch(batch)


class Tokens(flight.ServerMiddlewareFactory):
    def __init__(self, token):
        self.token = token

    def start_call(self, _info, headers):
        if headers.get("authorization") != [f"Bearer {self.token}"]:
            raise flight.FlightUnauthenticatedError("who are you?")


def module(path, *words, environment=None):
    """Writes the functions of a service as a module."""
    run = subprocess.run(
        [FARCALL, "gateway", "flight", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"FARCALL_PYTHON": sys.executable} | os.environ | (environment or {}),
        cwd=ROOT,
    )
    path.write_text(run.stdout)
    return run


def test_a_flight_service_is_callable_as_functions(start, tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text('[workers]\nnetwork = true\nenvironment = ["FLIGHT_TOKEN"]\n')
    token = {"FLIGHT_TOKEN": "open sesame"}
    options = ["--config", str(config)]
    with Service(token["FLIGHT_TOKEN"]) as service:
        address = f"grpc://127.0.0.1:{service.port}"
        run = module(tmp_path / "flights.py", "--from", address)
        assert run.returncode == 1
        assert "who are you?" in run.stderr
        run = module(tmp_path / "flights.py", "--from", address, environment=token)
        assert run.returncode == 0, run.stderr
        assert "left out" in run.stderr
        assert "endless" in run.stderr
        interface = "scale(IN double factor, IN int n, INOUT double x[n], OUT double total[n])"
        words = ["--from", address, "--exchange", interface]
        run = module(tmp_path / "exchanges.py", *words, environment=token)
        assert run.returncode == 0, run.stderr
        words[-1] = "scale(IN int n INOUT double x[n])"
        run = module(tmp_path / "lacks_a_comma.py", *words, environment=token)
        assert "is not a parameter" in run.stderr, run.stderr
        modules = [tmp_path / "flights.py", tmp_path / "exchanges.py"]
        server = start(*modules, options=options, environment=token).connect()
        today = server.function("flights/weather_today")()
        assert today.t.tolist() == [0, 0.5, 1, 1.5, 2]
        assert today.count.tolist() == [0, 1, 2, 3, 4]
        x = np.arange(1000.0)
        results = server.function("exchanges/scale")(3, len(x), x.copy())
        assert (results.x == 3 * x).all()
        assert (results.total == 3 * x.sum()).all()
        service.failing = True
        with pytest.raises(Exception, match="the roof is on fire"):
            server.function("exchanges/scale")(3, len(x), x.copy())


def test_a_gateway_makes_functions_of_another_server_callable(start, work, tmp_path):
    """From Farcall over Flight to Farcall."""
    config = tmp_path / "farcall.toml"
    config.write_text("[workers]\nnetwork = true\n")
    far = start(work, LIBRARIES / "blas.idl", options=["--allow-code"])
    with gateway("flight", far.address) as gate:
        run = module(tmp_path / "far.py", "--from", gate.url)
        assert run.returncode == 0, run.stderr
        server = start(tmp_path / "far.py", options=["--config", str(config)]).connect()
        assert server.function("far/twice")(3, np.arange(3.0)).x.tolist() == [0, 2, 4]
        x = np.arange(4.0)
        assert server.function("far/ddot")(4, x, 1, x, 1).r == 14


def test_functions_of_another_server_pass_complex_numbers_and_texts(start, tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text("[workers]\nnetwork = true\n")
    path = tmp_path / "work.idl"
    path.write_text("""Module work;
Define twice(IN int n, IN dcomplex a, IN dcomplex z[n], OUT dcomplex w[n], OUT scomplex m[n][2])
{
    int i;
    for (i = 0; i < n; i++) { w[i] = a * z[i]; m[2 * i] = z[i]; m[2 * i + 1] = i; }
}
Define say(IN string s, INOUT string[8] t[2], OUT string[8] u[1])
{
    t[0][0] = s[0];
    strcpy(u[0], s);
}
""")
    far = start(path, options=["--allow-code"])
    with gateway("flight", far.address) as gate:
        assert module(tmp_path / "far.py", "--from", gate.url).returncode == 0
        server = start(tmp_path / "far.py", options=["--config", str(config)]).connect()
        z = np.array([1 + 2j, 3])
        for count in (1, 2):
            found = server.function("far/twice")(n=count, a=1j, z=z[:count])
            assert found.w.tolist() == (1j * z[:count]).tolist()
            assert found.m.tolist() == [[1 + 2j, 0], [3, 1]][:count]
        found = server.function("far/say")(s="up", t=["ab", "cd"])
        assert (found.t, found.u) == (["ub", "cd"], "up")
