"""What pickle makes anew in another process: servers, functions and results."""

import collections
import functools
import os
from collections.abc import Iterable
from typing import Any

from ._native import Function, Server, connect


def server(address: str, timeout: float | None, connect_timeout: float, same_host: bool) -> Server:
    """The server of a pickled handle."""
    return _server(os.getpid(), address, timeout, connect_timeout, same_host)


# Handles that arrive one after the other share a connection; a forked child makes its own.
@functools.lru_cache(maxsize=16)
def _server(
    _process: int, address: str, timeout: float | None, connect_timeout: float, same_host: bool
) -> Server:
    return connect(address, timeout=timeout, connect_timeout=connect_timeout, same_host=same_host)


def function(
    name: str, address: str, timeout: float | None, connect_timeout: float, same_host: bool
) -> Function:
    """The function of a pickled handle."""
    return server(address, timeout, connect_timeout, same_host).function(name)


@functools.lru_cache(maxsize=1024)
def result_class(name: str, fields: tuple[str, ...]) -> Any:
    """The class of a function's results: a named tuple that can be pickled."""

    def reduce(self: tuple[Any, ...]) -> Any:
        return _result, (name, fields, tuple(self))

    named_tuple: Any = collections.namedtuple
    made = named_tuple(name, fields, rename=True, module="farcall")
    made.__reduce__ = reduce
    return made


def _result(name: str, fields: tuple[str, ...], values: Iterable[Any]) -> Any:
    return result_class(name, fields)._make(values)
