"""Functions of Farcall as exchanges of Arrow Flight.

The command of an exchange is the name of a function, or a JSON object with `function` and
`arguments`, its scalars. Each record batch of the caller is one call, and its results come back as
one record batch. `DoGet` calls a function that takes no arrays.
"""

import contextlib
import json
import math
import os
import pathlib
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyarrow import flight

import farcall

from .._group import in_python
from .._native import Function, Interface, Parameter, Server
from . import arrays
from .memory import Memory
from .users import Callers, Handshake, Users, connector

# Seconds between looks whether the caller of a call has gone.
_LOOK = 0.1
# Seconds between looks at idle users.
_TIDY = 30.0
# Seconds for calls that are under way when the gateway ends.
_END = 2.0
# Most bytes of a command.
_MOST_COMMAND = 1 << 20


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """The errors of Farcall as those of Flight, with the same words.

    pyarrow would send the traceback of any other exception.
    """
    try:
        yield
    except flight.FlightError:
        raise
    except farcall.PermissionError as error:
        raise flight.FlightUnauthorizedError(str(error)) from None
    except farcall.TimeoutError as error:
        raise flight.FlightTimedOutError(str(error)) from None
    except farcall.ConnectionError as error:
        raise flight.FlightUnavailableError(str(error)) from None
    except farcall.Error as error:
        raise _failed(error, type(error).__name__) from None
    except (TypeError, ValueError, pa.ArrowInvalid) as error:
        raise _failed(error, "ArgumentError") from None
    except Exception:
        traceback.print_exc()
        text = "the gateway failed; please report this with its log"
        raise flight.FlightInternalError(text) from None


def _failed(error: Exception, kind: str) -> Exception:
    """An error whose kind programs can read."""
    told: Exception = flight.FlightServerError(str(error), json.dumps({"kind": kind}).encode())
    return told


def declaration(interface: Interface) -> str:
    """The interface of a function in the interface language, with shapes as in Python."""

    def declared(parameter: Parameter) -> str:
        sizes = "".join(f"[{size}]" for size in parameter.shape)
        length = f"[{parameter.length}]" if parameter.length else ""
        return f"{parameter.mode} {parameter.type}{length} {parameter.name}{sizes}"

    passed = [one for one in interface.parameters if one.mode != "WORK"]
    return f"{interface.name}({', '.join(map(declared, passed))})"


def carried(interface: Interface) -> bool:
    """Whether a record batch can have all that the function takes."""
    kinds = {parameter.type for parameter in interface.parameters}
    return not interface.callbacks and not kinds & {"filename", "filepointer"}


def _described(server: Server, names: Sequence[str]) -> list[tuple[str, Interface]]:
    """Functions and their interfaces.

    A function that vanishes meanwhile is left out. So are those of a server that cannot be reached,
    if there are others: with the rest of their module, so that the caller waits for it once.
    """
    found: list[tuple[str, Interface]] = []
    away: set[str] = set()
    first: farcall.Error | None = None
    for name in names:
        module = name.partition("/")[0]
        if module in away:
            continue
        try:
            found.append((name, server.function(name).interface))
        except farcall.Error as error:
            first = first or error
            if not isinstance(error, farcall.UnknownFunction):
                away.add(module)
    if first is not None and not found:
        raise first
    return found


def info(name: str, interface: Interface) -> Any:
    """What a client learns about a function: a schema of its results, and its interface."""
    returned = [one for one in interface.parameters if one.mode in ("OUT", "INOUT")]
    schema = pa.schema([_field(one) for one in returned], {"title": interface.description or ""})
    told = json.dumps({"name": name, "interface": declaration(interface)}).encode()
    what = flight.FlightDescriptor.for_command(name)
    return flight.FlightInfo(schema, what, [], -1, -1, app_metadata=told)


def _field(parameter: Parameter) -> Any:
    dtype = None if parameter.dtype is None else np.dtype(parameter.dtype)
    if dtype is None:
        kind = pa.string()
    elif dtype.kind == "c":
        kind = pa.list_(pa.float32() if dtype == np.complex64 else pa.float64(), 2)
    else:
        kind = pa.int8() if dtype.kind == "S" else pa.from_numpy_dtype(dtype)
    return pa.field(parameter.name, kind, metadata={"shape": ", ".join(parameter.shape)})


class Gateway(flight.FlightServerBase):  # type: ignore[misc]
    """A Flight server whose exchanges are calls."""

    def __init__(self, location: str, users: Users, limits: Mapping[str, Any], **tls: Any) -> None:
        """Listens."""
        super().__init__(location, Handshake(), middleware={"caller": Callers()}, **tls)
        self._users = users
        self._most = limits["max_bytes"]
        self._seconds = limits["time_limit"]
        self.ends = threading.Event()

    @contextlib.contextmanager
    def _caller(self, context: Any) -> Iterator[tuple[Server, Memory]]:
        with self._users.enter(context.get_middleware("caller").token) as user, _told():
            yield user

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        """The functions whose names begin with the criteria."""
        with self._caller(context) as (server, _):
            names = [one.name for one in server.ls() if one.name.startswith(criteria.decode())]
            # Methods have a class in their names.
            described = _described(server, [name for name in names if "." not in name])
            return iter([info(*one) for one in described if carried(one[1])])

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        """One function."""
        with self._caller(context) as (server, _):
            name, _ = _command(descriptor.command)
            function = server.function(name)
            return info(function.name, function.interface)

    def list_actions(self, _context: Any) -> list[tuple[str, str]]:
        """What else can be asked."""
        return [("describe", "The interface of a function, as text. The body is its name.")]

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """The interface of a function."""
        if action.type != "describe":
            text = f"there is no action `{action.type}`; there is `describe`"
            raise flight.FlightServerError(text)
        with self._caller(context) as (server, _):
            name, _ = _command(action.body.to_pybytes())
            return [server.describe(name).encode()]

    def do_get(self, context: Any, ticket: Any) -> Any:
        """The results of a call that needs no arrays."""
        with self._caller(context) as (server, memory):
            name, scalars = _command(ticket.ticket)
            batch = self._call(context, memory, self._function(server, name), scalars, None)
            return flight.RecordBatchStream(pa.Table.from_batches([batch]))

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """A call for each record batch."""
        with self._caller(context) as (server, memory):
            name, scalars = _command(descriptor.command)
            function = self._function(server, name)
            schema = None
            for chunk in _chunks(reader):
                batch = self._call(context, memory, function, scalars, chunk)
                if schema is None:
                    schema = batch.schema
                    writer.begin(schema)
                if batch.schema != schema:
                    raise ValueError("results of another shape need an exchange of their own")
                writer.write_batch(batch)

    def _function(self, server: Server, name: str) -> Function:
        function = server.function(name)
        if not carried(function.interface):
            raise ValueError(
                f"{function.name} takes files or calls functions of its caller, which record "
                "batches do not carry; use a client of Farcall"
            )
        return function

    def _call(
        self, context: Any, memory: Memory, function: Function, scalars: Any, batch: Any
    ) -> Any:
        arguments = self._arguments(memory, function, scalars, batch)
        future = function.call_async(**_named(arguments))
        try:
            results = self._results(context, function, future)
        except BaseException:
            # A call that was given up may write to its arrays until the server has ended it.
            for array in arguments.values():
                memory.leave(array)
            raise
        returned = [one.name for one in function.interface.parameters if one.mode in _RETURNED]
        return arrays.batch({name: getattr(results, in_python(name)) for name in returned})

    def _results(self, context: Any, function: Function, future: Any) -> Any:
        """Waits for a call, which is given up if nobody waits for it any more."""
        end = time.monotonic() + self._seconds
        while True:
            wait = min(_LOOK, end - time.monotonic())
            with contextlib.suppress(farcall.TimeoutError):
                return future.result(timeout=max(wait, 1e-3))
            if future.done():
                # The call itself may have failed by a time limit.
                return future.result()
            if context.is_cancelled():
                future.cancel()
                raise flight.FlightCancelledError("the caller has gone; the call was given up")
            if self.ends.is_set():
                future.cancel()
                raise flight.FlightUnavailableError("the gateway ends; the call was given up")
            if time.monotonic() >= end:
                future.cancel()
                raise flight.FlightTimedOutError(
                    f"{function.name} took longer than {self._seconds:g} s, the time limit of the "
                    "gateway"
                )

    def _arguments(
        self, memory: Memory, function: Function, scalars: Mapping[str, Any], batch: Any
    ) -> dict[str, Any]:
        """The arguments of a call. OUT and INOUT arrays are in memory that the server shares."""
        params = {one.name: one for one in function.interface.parameters}
        arguments = {name: _number(value, params.get(name)) for name, value in scalars.items()}
        for name, column in _columns(batch):
            if name not in params or name in arguments:
                what = "is given twice" if name in arguments else "is not one of the function"
                raise ValueError(f"argument `{name}` {what}: {', '.join(params)}")
            arguments[name] = arrays.array(name, column, params[name].dtype)
        # No array is written here, and only whole numbers decide sizes.
        read = {
            name: np.array(value) if params[name].mode == "INOUT" else value
            for name, value in arguments.items()
            if name not in params
            or params[name].mode == "IN"
            or np.asarray(value).dtype.kind in "iu"
        }
        shapes = function._shapes(**_named(read))
        forms = {
            name: (np.dtype(one.dtype), shapes[name])
            for name, one in params.items()
            if one.dtype and name in shapes and one.mode != "WORK"
        }
        sizes = {name: dtype.itemsize * math.prod(shape) for name, (dtype, shape) in forms.items()}
        if sum(sizes.values()) > self._most:
            raise ValueError(
                f"the arrays of the call have {sum(sizes.values())} bytes, and this gateway allows "
                f"{self._most}; use a client of Farcall"
            )
        order: Literal["C", "F"] = "F" if function.interface.convention == "FORTRAN" else "C"
        for name, (dtype, shape) in forms.items():
            given = arguments.get(name)
            if given is not None and params[name].mode == "IN":
                arguments[name] = arrays.by_rows(given, shape)
            if params[name].mode == "IN" or (params[name].mode == "INOUT" and given is None):
                continue
            arguments[name] = memory.empty(shape, dtype, order)
            if params[name].mode == "INOUT":
                arrays.fill(name, arguments[name], np.asarray(given))
        return arguments


def _named(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by their names in Python, which has keywords of its own."""
    return {in_python(name): value for name, value in arguments.items()}


def _columns(batch: Any) -> Iterator[tuple[str, Any]]:
    """The columns that a caller has sent."""
    if batch is None:
        return iter(())
    # What pyarrow has read is as the caller sent it, lengths and offsets too.
    batch.validate(full=True)
    return zip(batch.schema.names, batch.columns, strict=True)


_RETURNED = ("OUT", "INOUT")
_NO_JSON = ("NaN", "Infinity", "-Infinity")


def _chunks(reader: Any) -> Iterator[Any]:
    with contextlib.suppress(StopIteration):
        while True:
            chunk = reader.read_chunk().data
            if chunk is not None:
                yield chunk


class _CommandError(ValueError):
    """A command says something that is no call, and the text says what."""


def _real(text: str) -> float:
    """A number of JSON with a fraction or an exponent."""
    value = float(text)
    if math.isinf(value):
        raise _CommandError(f'{text} is too large for a number; infinity is "Infinity"')
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, which names each member once."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        [twice, *_] = [name for name in members if names.count(name) > 1]
        raise _CommandError(f"`{twice}` is given twice")
    return members


def _command(command: bytes | None) -> tuple[str, dict[str, Any]]:
    """The name of a function and its scalars."""
    if command is None:
        raise ValueError(
            "the descriptor has a path, and functions have none: make it with "
            "FlightDescriptor.for_command(NAME)"
        )
    if len(command) > _MOST_COMMAND:
        raise ValueError("the command is longer than 1 MiB")
    try:
        text = command.decode()
        read: Any = {"function": text}
        if text.startswith("{"):
            read = json.loads(text, parse_float=_real, object_pairs_hook=_once)
        name, scalars = read.pop("function"), read.pop("arguments", {})
        if read or not isinstance(name, str) or not isinstance(scalars, dict):
            raise ValueError
    except _CommandError:
        raise
    except (ValueError, KeyError, RecursionError):
        text = 'the command is not a name or {"function": NAME, "arguments": {...}}'
        raise ValueError(text) from None
    return name, {name: _scalar(value) for name, value in scalars.items()}


def _scalar(value: Any) -> Any:
    """A scalar: complex numbers are pairs."""
    match value:
        case [int() | float() as real, int() | float() as imaginary]:
            return complex(_part(real), _part(imaginary))
        case int() | float() | str() | [*_] if not isinstance(value, bool):
            return value
    raise ValueError("a scalar is a number, a text, [real, imaginary], or a list of texts")


def _part(value: float) -> float:
    """A part of a complex number, which holds a whole number exactly or not at all."""
    if isinstance(value, int) and not (abs(value) < 1 << 1023 and int(float(value)) == value):
        shown = str(value) if abs(value) < 1 << 128 else "a larger one"
        raise ValueError(f"a part of a complex number cannot hold the whole number {shown}")
    return float(value)


def _number(value: Any, parameter: Parameter | None) -> Any:
    """A scalar for a parameter: texts name the numbers that JSON lacks, where numbers are taken."""
    is_number = parameter is not None and parameter.dtype not in (None, "S1")
    return float(value) if is_number and value in _NO_JSON else value


def serve(options: Mapping[str, Any]) -> int:
    """Runs a gateway until SIGINT or SIGTERM."""
    ends = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    connect = connector(options["to"], own_identity=options["own_identity"])
    bounds = {name: options[name] for name in ("users", "calls", "user_calls")}
    users = Users(connect, **bounds)
    tls, scheme = {}, "grpc"
    if options["tls"]:
        folder = pathlib.Path(options["tls"])
        pair = (folder / "server.pem").read_bytes(), (folder / "server.key").read_bytes()
        tls, scheme = {"tls_certificates": [pair]}, "grpc+tls"
    try:
        gateway = Gateway(f"{scheme}://{options['listen']}", users, options, **tls)
    except (pa.ArrowException, OSError) as error:
        sys.stderr.write(f"error: cannot listen on {options['listen']}: {error}\n")
        return 1
    host = options["listen"].rpartition(":")[0]
    print(f"listening on {scheme}://{host}:{gateway.port}", flush=True)
    while signal.sigtimedwait(ends, _TIDY) is None:
        users.tidy()
    gateway.ends.set()
    done: queue.Queue[None] = queue.Queue()
    threading.Thread(target=lambda: done.put(gateway.shutdown()), daemon=True).start()
    with contextlib.suppress(queue.Empty):
        done.get(timeout=_END)
    # Threads of gRPC may still run.
    os._exit(0)
