"""The server of `farcall.linalg` and `farcall.fft`, and calls that overlap."""

import collections
import contextlib
import contextvars
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ._errors import ConnectionError  # noqa: A004
from ._native import Future, Server, connect

# Enough calls to hide the round trip, few enough for the memory of both ends.
_OUTSTANDING = 16


_lock = threading.Lock()
_for_all: Server | None = None
_for_block: contextvars.ContextVar[Server | None] = contextvars.ContextVar(
    "farcall_compute", default=None
)


def use(server: Server | str | None) -> None:
    """Chooses the server that computes for `farcall.linalg` and `farcall.fft`, for all threads.

    `server` is a connection or an address. With None, the next call connects to the server that
    the environment names, as `farcall.connect()` does.
    """
    global _for_all  # noqa: PLW0603
    connection = connect(server) if isinstance(server, str) else server
    with _lock:
        _for_all = connection


@contextlib.contextmanager
def using(server: Server | str) -> Iterator[Server]:
    """Sends the computations of a `with` block to this server, in this thread or task only."""
    connection = connect(server) if isinstance(server, str) else server
    token = _for_block.set(connection)
    try:
        yield connection
    finally:
        _for_block.reset(token)


def current_server() -> Server:
    """The server of the block, or of all threads, or of the environment."""
    global _for_all  # noqa: PLW0603
    server = _for_block.get() or _for_all
    if server is not None:
        return server
    with _lock:
        if _for_all is None:
            try:
                _for_all = connect()
            except ConnectionError as error:
                raise ConnectionError(
                    f"{error}; or name the server of farcall.linalg and farcall.fft: "
                    "farcall.linalg.use(server)"
                ) from error
        return _for_all


def call(name: str, **arguments: Any) -> Any:
    """The result of one call."""
    return current_server().function(name)(**arguments)


def calls(name: str, jobs: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """The results of calls in the order of the arguments, several under way at a time."""
    function = current_server().function(name)
    waiting: collections.deque[Future] = collections.deque()
    for job in jobs:
        if len(waiting) == _OUTSTANDING:
            yield waiting.popleft().result()
        waiting.append(function.call_async(**job))
    while waiting:
        yield waiting.popleft().result()
