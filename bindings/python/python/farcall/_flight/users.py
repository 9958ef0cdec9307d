"""The callers of a gateway: for each of them one connection to the server, as that user.

The server says whether a token is right. A connection takes calls for a few minutes at most, so
that a withdrawn token ends soon.
"""

import base64
import binascii
import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyarrow import flight

import farcall

from .._native import Server, connect_for
from .memory import Memory

# What a server says if it refuses all new clients of a host, or all clients, for a while.
_FOR_A_WHILE = ("connections", "too many wrong tokens")
# Seconds without calls after which a connection ends, and its greatest age.
_IDLE = 60.0
_AGE = 300.0


@dataclasses.dataclass
class _User:
    server: Server
    memory: Memory
    since: float
    used: float
    calls: int = 0


class Users:
    """All callers, with bounds on their number and their calls."""

    def __init__(
        self, connect: Callable[[str | None], Server], *, users: int, calls: int, user_calls: int
    ) -> None:
        """Without callers."""
        self._connect = connect
        self._most = (users, calls, user_calls)
        self._calls = 0
        self._known: dict[str | None, _User] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def enter(self, token: str | None) -> Iterator[tuple[Server, Memory]]:
        """The connection of a caller, with a place for a call."""
        user = self._user(token)
        _, most, of_one = self._most
        with self._lock:
            if user.calls >= of_one:
                raise flight.FlightUnavailableError(
                    f"{of_one} calls of this user are running, as many as may; try again"
                )
            if self._calls >= most:
                raise flight.FlightUnavailableError(
                    f"{most} calls are running, as many as may; try again"
                )
            user.calls += 1
            self._calls += 1
        try:
            yield user.server, user.memory
        finally:
            with self._lock:
                user.calls -= 1
                self._calls -= 1
                user.used = time.monotonic()

    def _user(self, token: str | None) -> _User:
        now = time.monotonic()
        with self._lock:
            user = self._known.get(token)
            if user is not None and now - user.since < _AGE:
                user.used = now
                return user
        try:
            server = self._connect(token)
        except farcall.Error as error:
            later = any(words in str(error) for words in _FOR_A_WHILE)
            if error.fault == "caller" and not later:
                raise flight.FlightUnauthenticatedError(_over_flight(str(error))) from None
            raise flight.FlightUnavailableError(str(error)) from None
        # All callers without a token share a connection.
        memory = Memory(server, clears=token is None)
        with self._lock:
            before = self._known.get(token)
            if before is None and len(self._known) >= self._most[0]:
                idle = [known for known, user in self._known.items() if not user.calls]
                if not idle:
                    text = "too many users call at the same time; try again"
                    raise flight.FlightUnavailableError(text)
                del self._known[min(idle, key=lambda known: self._known[known].used)]
            # The calls of an older connection of the caller still count.
            if before is None:
                before = self._known[token] = _User(server, memory, now, now)
            else:
                before.server, before.memory = server, memory
                before.since = before.used = now
            return before

    def tidy(self) -> None:
        """Forgets callers who have no calls, and their tokens."""
        now = time.monotonic()
        with self._lock:
            for token, user in list(self._known.items()):
                if not user.calls and (now - user.used > _IDLE or now - user.since > _AGE):
                    del self._known[token]


def _over_flight(message: str) -> str:
    """What a caller over Flight does about its token, in place of what a client does."""
    message = message.replace("unset FARCALL_TOKEN", "send no token")
    return message.replace(
        "set FARCALL_TOKEN", "send it in the header `Authorization: Bearer TOKEN`"
    )


def connector(address: str, *, own_identity: bool) -> Callable[[str | None], Server]:
    """How a gateway connects for a caller. It shows nothing of its own unless the operator says."""

    def connect(token: str | None) -> Server:
        if token is None and own_identity:
            return farcall.connect(address)
        return connect_for(address, token)

    return connect


def token_of(headers: Mapping[str, Sequence[Any]]) -> str | None:
    """The token of a request: the bearer's, or the password of basic authentication."""
    values = [value for name, value in headers.items() if name.lower() == "authorization"]
    if not values:
        return None
    value = values[0][0]
    value = value.decode() if isinstance(value, bytes) else value
    scheme, _, rest = value.partition(" ")
    token = rest.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            token = base64.b64decode(token, validate=True).decode().partition(":")[2]
    elif scheme.lower() != "bearer":
        token = ""
    if not token:
        text = "the header Authorization has no token of the server; send `Bearer TOKEN`"
        raise flight.FlightUnauthenticatedError(text)
    return token


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """Who makes one request."""

    def __init__(self, token: str | None) -> None:
        """Somebody with this token, or without one."""
        self.token = token

    def sending_headers(self) -> dict[str, str]:
        """The token, which a client keeps that has sent it as a password."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}


class Callers(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads who makes each request."""

    def start_call(self, _info: Any, headers: Mapping[str, Sequence[Any]]) -> Caller:
        """The caller of a request."""
        return Caller(token_of(headers))


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets every handshake pass: each request shows its token again."""

    def authenticate(self, _outgoing: Any, _incoming: Any) -> None:
        """The server of the calls decides."""

    def is_valid(self, _token: Any) -> bytes:
        """No name."""
        return b""
