"""The server behind `farcall.linalg` and `farcall.fft`, and calls of it that overlap."""

import collections
import contextlib
import contextvars
import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ._errors import ConnectionError  # noqa: A004
from ._native import Function, Future, Server, connect

# Enough to hide the way there and back, few enough for the memory of both ends.
_OUTSTANDING = 16


@dataclasses.dataclass
class _Backend:
    """A server and the functions asked of it."""

    server: Server
    functions: dict[str, Function] = dataclasses.field(default_factory=dict)

    def function(self, name: str) -> Function:
        """The function; it is asked for once."""
        if name not in self.functions:
            self.functions[name] = self.server.function(name)
        return self.functions[name]


_lock = threading.Lock()
_for_all: _Backend | None = None
_for_block: contextvars.ContextVar[_Backend | None] = contextvars.ContextVar(
    "farcall_offload", default=None
)


def use(server: Server | str | None) -> None:
    """Sends what `farcall.linalg` and `farcall.fft` compute to this server, from every thread.

    `server` is a connection or an address. None forgets the server: the next call connects to the
    one of the environment, as `farcall.connect()` does.
    """
    global _for_all  # noqa: PLW0603
    backend = None if server is None else _backend(server)
    with _lock:
        _for_all = backend


@contextlib.contextmanager
def using(server: Server | str) -> Iterator[Server]:
    """Sends the computations of a `with` block to this server, in this thread or task only."""
    backend = _backend(server)
    token = _for_block.set(backend)
    try:
        yield backend.server
    finally:
        _for_block.reset(token)


def _backend(server: Server | str) -> _Backend:
    return _Backend(connect(server) if isinstance(server, str) else server)


def _current() -> _Backend:
    """The backend of the block, of all threads, or of the environment."""
    global _for_all  # noqa: PLW0603
    backend = _for_block.get() or _for_all
    if backend is not None:
        return backend
    with _lock:
        if _for_all is None:
            try:
                _for_all = _Backend(connect())
            except ConnectionError as error:
                raise ConnectionError(
                    f"{error}; or name the server of farcall.linalg and farcall.fft: "
                    "farcall.linalg.use(server)"
                ) from error
        return _for_all


def call(name: str, **arguments: Any) -> Any:
    """The result of one call."""
    return _current().function(name)(**arguments)


def calls(name: str, jobs: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    """The results of calls in the order of the arguments, several under way at a time."""
    function = _current().function(name)
    waiting: collections.deque[Future] = collections.deque()
    for job in jobs:
        if len(waiting) == _OUTSTANDING:
            yield waiting.popleft().result()
        waiting.append(function.call_async(**job))
    while waiting:
        yield waiting.popleft().result()
