"""The server of `farcall.linalg` and `farcall.fft`, and their calls of it."""

import contextlib
import contextvars
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ._errors import ArgumentError, ConnectionError, UnknownFunction  # noqa: A004
from ._native import Server, connect, is_recording

_lock = threading.Lock()
_for_all: Server | None = None
# The address of the server for all, if `use` was given one.
_address: str | None = None
# Whether the program made the connection: a child process cannot make it again.
_is_given = False
_for_block: contextvars.ContextVar[Server | None] = contextvars.ContextVar(
    "farcall_compute", default=None
)


def use(server: Server | str | None) -> None:
    """Chooses the server that computes for `farcall.linalg` and `farcall.fft`, for all threads.

    `server` is a connection or an address. With None, the next call connects to the server that
    the environment names, as `farcall.connect()` does.
    """
    global _for_all, _address, _is_given  # noqa: PLW0603
    connection = server if server is None or isinstance(server, Server) else connect(server)
    with _lock:
        _for_all = connection
        _address = server if isinstance(server, str) else None
        _is_given = isinstance(server, Server)


def _after_fork() -> None:
    """A child process connects anew."""
    global _for_all, _lock  # noqa: PLW0603
    _lock = threading.Lock()
    if not _is_given:
        _for_all = None


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def using(server: Server | str) -> Iterator[Server]:
    """Sends the computations of a `with` block to this server, in this thread or task only."""
    connection = server if isinstance(server, Server) else connect(server)
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
                _for_all = connect(_address) if _address else connect()
            except ConnectionError as error:
                raise ConnectionError(
                    f"{error}; or name the server of farcall.linalg and farcall.fft: "
                    "farcall.linalg.use(server)"
                ) from error
        return _for_all


def call(name: str, **arguments: Any) -> Any:
    """The result of one call."""
    if is_recording():
        raise ArgumentError(
            f"{name}: farcall.linalg, farcall.fft and farcall.scipy need their results at once: "
            "use them before or after the transaction, whose calls run at its end"
        )
    try:
        function = current_server().function(name)
    except UnknownFunction as error:
        module = name.partition("/")[0]
        raise UnknownFunction(f"{error}; the server must serve libraries/{module}.idl") from error
    return function(**arguments)
