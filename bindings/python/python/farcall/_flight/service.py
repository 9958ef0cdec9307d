"""Calls a Flight service from functions that `farcall serve` serves.

`write` prints a module with a function for each flight of a service, which `farcall serve` takes as
any other Python module. Its functions call the service by `Service.get` and `Service.exchange`.
"""

import contextlib
import json
import keyword
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import flight

from . import arrays

# Most functions of a module.
_MOST = 1000
# What a module has beside its functions.
_OWN = ("farcall", "service", "Service")
# The types of the interface language, by those of Arrow.
_TYPES = {
    pa.int8(): "char",
    pa.uint8(): "unsigned char",
    pa.int16(): "short",
    pa.uint16(): "unsigned short",
    pa.int32(): "int",
    pa.uint32(): "unsigned int",
    pa.int64(): "long",
    pa.uint64(): "unsigned long",
    pa.float32(): "float",
    pa.float64(): "double",
}
# The types of results that differ from those of their columns, and the type that stands for others.
_RESULTS = {"string": None, "scomplex": "complex64", "dcomplex": "complex128"}
_REAL = "float64"


class Service:
    """A Flight service. A process connects at its first call."""

    def __init__(self, address: str) -> None:
        """At `grpc://HOST:PORT`. `FLIGHT_TOKEN` in the environment is the token of a user."""
        self.address = address
        self._client: Any = None

    def _options(self) -> Any:
        if self._client is None:
            self._client = flight.connect(self.address)
        token = os.environ.get("FLIGHT_TOKEN")
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        return flight.FlightCallOptions(headers=headers)

    def get(self, descriptor: bytes, names: Sequence[str]) -> Any:
        """The columns of a flight, in the order of `names`."""
        options = self._options()
        what = flight.FlightDescriptor.deserialize(descriptor)
        found = self._client.get_flight_info(what, options)
        if not found.endpoints:
            raise ValueError("the flight has no data")
        parts = [self._part(endpoint, options) for endpoint in found.endpoints]
        table = pa.concat_tables(parts)
        columns = [table.column(name) for name in names]
        for name, column in zip(names, columns, strict=True):
            # What pyarrow has read is as the service sent it, lengths too.
            column.validate(full=True)
            if column.null_count:
                raise ValueError(f"column `{name}` of the flight has {column.null_count} nulls")
        return _results([column.to_numpy() for column in columns])

    def _part(self, endpoint: Any, options: Any) -> Any:
        if not endpoint.locations:
            return self._client.do_get(endpoint.ticket, options).read_all()
        # The service chooses this address: it is used without the token.
        location = endpoint.locations[0]
        if location.uri.decode().startswith("arrow-flight-reuse-connection:"):
            return self._client.do_get(endpoint.ticket, options).read_all()
        with flight.connect(location) as client:
            return client.do_get(endpoint.ticket).read_all()

    def exchange(
        self,
        name: str,
        scalars: Mapping[str, Any],
        given: Mapping[str, Any],
        changed: Mapping[str, Any],
        returned: Sequence[str] | Mapping[str, str | None],
    ) -> Any:
        """Exchanges a record batch: `given` arrays for `changed` and `returned` ones.

        With scalars, the command is a JSON object with `function` and `arguments`; without, it is
        the name. If complex numbers or texts are returned, each name has its type, and texts None.
        """
        options = self._options()
        command = name.encode()
        if scalars:
            told = {"function": name, "arguments": scalars}
            command = json.dumps(told, default=_pair).encode()
        what = flight.FlightDescriptor.for_command(command)
        batch = arrays.batch(given)
        writer, reader = self._client.do_exchange(what, options)
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            writer.done_writing()
            answer = _only(reader)
        answer.validate(full=True)
        for one, array in changed.items():
            if isinstance(array, list):  # of texts
                array[:] = _named(answer, one, None)
            else:
                arrays.fill(one, array, _named(answer, one, array.dtype.str))
        types = returned if isinstance(returned, Mapping) else dict.fromkeys(returned, _REAL)
        return _results([_named(answer, one, dtype) for one, dtype in types.items()])


def _only(reader: Any) -> Any:
    """The record batch of an answer."""
    found = None
    with contextlib.suppress(StopIteration):
        while True:
            batch = reader.read_chunk().data
            if found is None:
                found = batch
            elif batch is not None and batch.num_rows:
                raise ValueError("the service returned several record batches instead of one")
    if found is None:
        raise ValueError("the service ended the exchange without a record batch")
    return found


def _pair(value: complex) -> list[float]:
    """A complex number in a command."""
    return [value.real, value.imag]


def _named(batch: Any, name: str, dtype: str | None) -> Any:
    if name not in batch.schema.names:
        raise ValueError(f"the service returned no `{name}`: {', '.join(batch.schema.names)}")
    column = batch.column(batch.schema.names.index(name))
    return arrays.array(name, column, dtype)


def _results(values: Sequence[Any]) -> Any:
    """What a served function returns."""
    match values:
        case []:
            return None
        case [value]:
            return value
    return tuple(values)


def write(settings: Mapping[str, Any]) -> int:
    """Prints a module that calls the service."""
    service = Service(settings["from"])
    try:
        written = [_exchange(text) for text in settings["exchange"]]
        if not written:
            options = service._options()
            names = set()
            for found in service._client.list_flights(options=options):
                function = _flight(found)
                name = _name(function)
                if function is None or name in names:
                    shown = found.descriptor.command or found.descriptor.path
                    why = "its size or a type is not known"
                    if function is not None:
                        why = f"another flight is the function {name}"
                    sys.stderr.write(f"left out {shown!r}: {why}\n")
                    continue
                names.add(name)
                written.append(function)
                if len(names) == _MOST:
                    break
    except (pa.ArrowException, flight.FlightError, ValueError) as error:
        sys.stderr.write(f"error: {settings['from']}: {error}\n")
        return 1
    if not written:
        sys.stderr.write(
            f"error: {settings['from']}: no flight has a known size; name functions with "
            "--exchange\n"
        )
        return 1
    print(f'"""Functions of the Flight service {settings["from"]}."""\n')
    print("import farcall\nfrom farcall._flight.service import Service\n")
    print(f"service = Service({settings['from']!r})")
    for function in written:
        print(f"\n\n{function}", end="")
    print()
    return 0


def _flight(found: Any) -> str | None:
    """A function for a flight: an exchange of a gateway of Farcall, or data of a known size."""
    if found.app_metadata:
        try:
            told = json.loads(found.app_metadata)
            return _exchange(told["interface"], told["name"])
        except (ValueError, TypeError, KeyError):
            pass
    if found.total_records < 0:
        return None
    columns = {field.name: _TYPES.get(field.type) for field in found.schema}
    if not columns or None in columns.values():
        return None
    path = [part.decode(errors="replace") for part in found.descriptor.path or []]
    name = _identifier("_".join(path) or found.descriptor.command.decode(errors="replace"))
    params = [
        f"OUT {kind} {column}[{found.total_records}]"
        for column, kind in zip(_distinct(columns), columns.values(), strict=True)
    ]
    return _function(
        f"{name}({', '.join(params)})",
        name,
        [],
        f"service.get({found.descriptor.serialize()!r}, {list(columns)!r})",
    )


def _exchange(text: str, name: str | None = None) -> str:
    """A function for an exchange, from its interface: `smooth(IN int n, INOUT double x[n])`."""
    whole = re.fullmatch(r"\s*(?:\w+/)?(\w+)\s*\((.*)\)\s*", text, re.DOTALL)
    if whole is None:
        raise ValueError(f"`{text}` is not an interface: write name(IN int n, INOUT double x[n])")
    plain, inside = whole.groups()
    params = [_parameter(one) for one in re.split(r",(?![^\[]*\])", inside) if one.strip()]
    taken = [one for mode, _, one, _ in params if mode != "OUT"]
    scalars = [one for mode, _, one, is_array in params if mode == "IN" and not is_array]
    given = [one for mode, _, one, is_array in params if mode != "OUT" and is_array]
    changed = [one for mode, _, one, _ in params if mode == "INOUT"]
    types = {one: _RESULTS.get(kind, _REAL) for mode, kind, one, _ in params if mode == "OUT"}
    returned = list(types) if set(types.values()) <= {_REAL} else types

    def shown(names: Sequence[str]) -> str:
        return "{" + ", ".join(f"{one!r}: {one}" for one in names) + "}"

    words = [repr(name or plain), shown(scalars), shown(given), shown(changed), repr(returned)]
    interface = f"{plain}({' '.join(inside.split())})"
    return _function(interface, plain, taken, f"service.exchange({', '.join(words)})")


def _parameter(text: str) -> tuple[str, str, str, bool]:
    """Mode, type, name, and whether it is an array."""
    form = r"\s*(IN|OUT|INOUT)\s+([\w\s]+?)(?:\[[^]]*\])?\s+(\w+)\s*(\[.*\])?\s*"
    found = re.fullmatch(form, text)
    # Another mode in the type: a comma is missing.
    if found is None or {"IN", "OUT", "INOUT"} & set(found[2].split()):
        raise ValueError(f"`{text.strip()}` is not a parameter: write MODE TYPE NAME[SIZE]")
    mode, kind, name, sizes = found.groups()
    return mode, kind, name, bool(sizes)


def _identifier(text: str) -> str:
    name = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_") or "data"
    return f"_{name}" if name[0].isdigit() or _is_taken(name) else name


def _distinct(texts: Iterable[str]) -> list[str]:
    """Identifiers that differ."""
    names: list[str] = []
    for text in texts:
        name = _identifier(text)
        while name in names:
            name += "_"
        names.append(name)
    return names


def _is_taken(name: str) -> bool:
    """Whether Python or the module has a word of this name."""
    return keyword.iskeyword(name) or name in _OWN


def _is_name(text: str) -> bool:
    """Whether Python and the interface language take this name."""
    return text.isascii() and text.isidentifier()


def _name(function: str | None) -> str:
    """The name of a function that is written."""
    return "" if function is None else re.findall(r"^def (\w+)", function, re.MULTILINE)[0]


def _function(interface: str, name: str, taken: Sequence[str], call: str) -> str:
    if len(set(taken)) < len(taken) or not all(map(_is_name, (name, *taken))):
        raise ValueError(f"`{interface}`: names differ, and have letters, digits and _ of ASCII")
    if any(map(_is_taken, (name, *taken))):
        raise ValueError(f"`{interface}`: Python, or the module itself, has a word of this name")
    return f"@farcall.library({interface!r})\ndef {name}({', '.join(taken)}):\n    return {call}\n"
