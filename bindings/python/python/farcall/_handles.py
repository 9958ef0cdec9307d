"""What pickle makes anew in another process: servers, functions and results."""

import collections
import os
from collections.abc import Iterable
from typing import Any

from ._native import Function, Handle, Job, Object, Server, connect

# Handles that arrive one after the other share a connection; a forked child makes its own.
_servers: dict[tuple[Any, ...], Server] = {}
_MOST_SERVERS = 16

_result_classes: dict[tuple[str, tuple[str, ...]], Any] = {}


def server(address: str, timeout: float | None, connect_timeout: float, same_host: bool) -> Server:
    """The server of a pickled handle."""
    key = (os.getpid(), address, timeout, connect_timeout, same_host)
    known = _servers.get(key)
    if known is None:
        known = connect(
            address, timeout=timeout, connect_timeout=connect_timeout, same_host=same_host
        )
        if len(_servers) >= _MOST_SERVERS:
            _servers.clear()
        _servers[key] = known
    return known


def function(
    name: str, address: str, timeout: float | None, connect_timeout: float, same_host: bool
) -> Function:
    """The function of a pickled handle."""
    return server(address, timeout, connect_timeout, same_host).function(name)


def job(
    id: str,  # noqa: A002
    address: str,
    timeout: float | None,
    connect_timeout: float,
    same_host: bool,
) -> Job:
    """The submitted call of a pickled handle."""
    return server(address, timeout, connect_timeout, same_host).job(id)


def handle(
    id: str,  # noqa: A002
    address: str,
    timeout: float | None,
    connect_timeout: float,
    same_host: bool,
) -> Handle:
    """The array of a pickled handle."""
    return server(address, timeout, connect_timeout, same_host).handle(id)


def object(  # noqa: A001
    id: str,  # noqa: A002
    address: str,
    timeout: float | None,
    connect_timeout: float,
    same_host: bool,
) -> Object:
    """The object of a pickled handle, which stays at its server."""
    return server(address, timeout, connect_timeout, same_host).object(id)


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
