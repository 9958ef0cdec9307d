"""The module that `farcall gateway flight --from` prints (`farcall._flight.service`)."""

import re
import types

import farcall
import numpy as np
import pyarrow as pa
import pytest
from farcall._flight import service, users
from pyarrow import flight


def info(path, *columns):
    """A flight of three rows."""
    schema = pa.schema([pa.field(column, pa.float64()) for column in columns])
    return flight.FlightInfo(schema, flight.FlightDescriptor.for_path(*path), [], 3, -1)


def written(monkeypatch, capsys, *flights, exchange=()):
    """The module for a service with these flights, and what was said beside it."""

    def options(self):
        self._client = types.SimpleNamespace(list_flights=lambda **_: iter(flights))

    monkeypatch.setattr(service.Service, "_options", options)
    status = service.write({"from": "grpc://node7:8815", "exchange": exchange})
    said = capsys.readouterr()
    return status, said.out, said.err


def test_names_of_flights_do_not_hide_each_other(monkeypatch, capsys):
    flights = [
        info(["a", "b"], "x"),
        info(["a_b"], "x"),
        info(["service"], "x"),
        info(["farcall"], "x y", "x_y"),
    ]
    status, module, said = written(monkeypatch, capsys, *flights)
    assert status == 0
    assert said == "left out [b'a_b']: another flight is the function a_b\n"
    defined = {}
    library = types.SimpleNamespace(library=lambda interface: lambda _: interface)
    head, mark, functions = module.partition("service = Service")
    assert "import farcall" in head
    exec(mark + functions, {"farcall": library, "Service": service.Service}, defined)
    assert isinstance(defined.pop("service"), service.Service)
    assert defined == {
        "a_b": "a_b(OUT double x[3])",
        "_service": "_service(OUT double x[3])",
        "_farcall": "_farcall(OUT double x_y[3], OUT double x_y_[3])",
    }


@pytest.mark.parametrize("interface", ["f(IN int service)", "farcall(IN int n)", "f(IN int if)"])
def test_an_exchange_whose_names_are_taken_is_an_error(monkeypatch, capsys, interface):
    status, _, said = written(monkeypatch, capsys, exchange=[interface])
    assert status == 1
    assert f"`{interface}`: Python, or the module itself, has a word of this name" in said


@pytest.mark.parametrize(
    "interface", ["1f(IN int n)", "f(IN int 2n)", "größe(IN int n)", "f(IN int n, IN int n)"]
)
def test_an_exchange_has_names_that_are_some(monkeypatch, capsys, interface):
    status, _, said = written(monkeypatch, capsys, exchange=[interface])
    assert (status, f"`{interface}`: names differ, and have letters" in said) == (1, True)


class Answers(flight.FlightServerBase):
    """Answers with as many record batches as the command says; `note` is an answer without one."""

    def do_exchange(self, _context, descriptor, reader, writer):
        [batch] = [chunk.data for chunk in reader]
        command = descriptor.command.decode()
        if command == "nothing":
            return
        writer.begin(batch.schema)
        if command == "note":
            writer.write_metadata(b"note")
            return
        for _ in range(int(command)):
            writer.write_batch(batch)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("nothing", "ended the exchange without a record batch"),
        ("note", "ended the exchange without a record batch"),
        ("0", "ended the exchange without a record batch"),
        ("2", "several record batches"),
    ],
)
def test_an_exchange_that_ends_early_says_so(command, said):
    x = np.arange(3.0)
    with Answers("grpc://127.0.0.1:0") as server:
        far = service.Service(f"grpc://127.0.0.1:{server.port}")
        with pytest.raises(ValueError, match=said):
            far.exchange(command, {}, {"x": x}, {"x": x}, [])
        far.exchange("1", {}, {"x": x}, {"x": x}, [])
        far._client.close()


def test_a_flight_that_ends_before_its_rows_is_refused(monkeypatch):
    buffer = pa.allocate_buffer(80, resizable=True)
    table = pa.table({"x": pa.Array.from_buffers(pa.float64(), 10, [None, buffer])})
    # It was valid when it was made. A service says what it likes, and pyarrow reads it unchecked.
    buffer.resize(8)
    far = service.Service("grpc://node7:8815")
    found = types.SimpleNamespace(endpoints=["only"])
    far._client = types.SimpleNamespace(get_flight_info=lambda *_: found)
    monkeypatch.setattr(far, "_part", lambda *_: table)
    descriptor = flight.FlightDescriptor.for_path("a").serialize()
    with pytest.raises(pa.ArrowInvalid, match="too small"):
        far.get(descriptor, ["x"])


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("the token is unknown to this server", flight.FlightUnauthenticatedError),
        ("the server is full (1 connections)", flight.FlightUnavailableError),
        (
            "too many wrong tokens came from this host; try again in 4 s",
            flight.FlightUnavailableError,
        ),
    ],
)
def test_who_can_try_again_is_not_told_that_the_token_is_wrong(reason, kind):
    def connect(_token):
        error = farcall.ConnectionError(reason)
        error.fault = "caller"
        raise error

    known = users.Users(connect, users=1, calls=1, user_calls=1)
    with pytest.raises(kind, match=re.escape(reason)), known.enter("token"):
        pass
