"""Makes pickled objects again in another process: servers, functions and results."""

import collections
import os
from collections.abc import Iterable
from typing import Any

from ._native import DurableCall, Function, Handle, Object, Server, connect

# Handles of the same server share a connection. A forked child makes its own.
_servers: dict[tuple[Any, ...], Server] = {}
_MOST_SERVERS = 16

_result_classes: dict[tuple[str, tuple[str, ...]], Any] = {}


def server(
    address: str,
    timeout: float | None,
    connect_timeout: float,
    same_host: bool,
    authorities: str | None = None,
    certificate: tuple[str, str] | None = None,
) -> Server:
    """The server of a pickled handle."""
    key = (os.getpid(), address, timeout, connect_timeout, same_host, authorities, certificate)
    known = _servers.get(key)
    if known is None:
        known = connect(
            address,
            timeout=timeout,
            connect_timeout=connect_timeout,
            same_host=same_host,
            authorities=authorities,
            certificate=certificate,
        )
        if len(_servers) >= _MOST_SERVERS:
            _servers.clear()
        _servers[key] = known
    return known


# Each takes the arguments of `server` after the name or the id.


def function(name: str, *origin: Any) -> Function:
    """A pickled function."""
    return server(*origin).function(name)


def function_with(own: dict[str, Any], origin: tuple[Any, ...]) -> Function:
    """A pickled function with settings of its own; `origin` has the arguments of `function`."""
    made = function(*origin)
    if "reservation" in own:
        made = made.with_reservation(own["reservation"])
    if "hours" in own:
        made = made.with_retention(own["hours"])
    if "output" in own:
        made = made.with_output(own["output"])
    return made


def job(id: str, *origin: Any) -> DurableCall:  # noqa: A002
    """A pickled durable call."""
    return server(*origin).job(id)


def handle(id: str, *origin: Any) -> Handle:  # noqa: A002
    """A pickled handle of a stored array."""
    return server(*origin).handle(id)


def object(id: str, *origin: Any) -> Object:  # noqa: A001, A002
    """A pickled persistent object."""
    return server(*origin).object(id)


def result_class(name: str, fields: tuple[str, ...]) -> Any:
    """The class of a function's results: a named tuple that can be pickled."""
    if (name, fields) not in _result_classes:

        def reduce(self: tuple[Any, ...]) -> Any:
            return _result, (name, fields, tuple(self))

        named_tuple: Any = collections.namedtuple
        made = named_tuple(name, fields, rename=True, module="farcall")
        made.__reduce__ = reduce
        _result_classes[name, fields] = made
    return _result_classes[name, fields]


def _result(name: str, fields: tuple[str, ...], values: Iterable[Any]) -> Any:
    return result_class(name, fields)._make(values)
