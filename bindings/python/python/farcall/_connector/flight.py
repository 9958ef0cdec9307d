"""Sources of Arrow Flight: the batches of a flight, or of a ticket."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.flight as fl

from . import arrow
from .errors import MissingError, RefusedError, SourceError, TooLargeError, UnreachableError
from .network import Deadline, answering

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .addresses import Address, Entry
    from .formats import Array

_MOST_PARTS = 1000
_OF_MESSAGE = 1 << 20
_SCHEMES = ("grpc://", "grpc+tcp://", "grpc+tls://")
_HERE = "arrow-flight-reuse-connection:"


def read(address: Address, entry: Entry, asked: dict[str, Any]) -> Array:
    """The columns of a flight, or of a ticket if the request has one."""
    if asked["query"] is not None and entry.address.path != "/":
        raise RefusedError(
            f"the source `{address}` takes no ticket: [sources.{entry.name}] does not name the "
            f"whole service"
        )
    deadline = Deadline(str(address), entry.time_limit_s)
    try:
        return _Service(address, entry, deadline).columns(asked)
    except SourceError:
        raise
    except fl.FlightTimedOutError:
        raise deadline.missed() from None
    except (fl.FlightUnauthenticatedError, fl.FlightUnauthorizedError) as error:
        raise RefusedError(
            f"the source `{address}` does not let this server in ({_first_line(error)}); its "
            f"operator can check the credentials of [sources.{entry.name}]"
        ) from None
    except fl.FlightUnavailableError as error:
        raise UnreachableError(
            f"the source `{address}` cannot be reached, or has gone away: {_first_line(error)}"
        ) from None
    except KeyError as error:
        raise MissingError(
            f"the source `{address}` does not exist ({_first_line(error)}); check the address"
        ) from None
    except fl.FlightCancelledError:
        # This is how a message beyond `grpc.max_receive_message_length` ends.
        raise TooLargeError(
            f"the source `{address}` broke off, or a message of it has more than the "
            f"{entry.max_bytes} bytes that are allowed (max_bytes of [sources.{entry.name}] in "
            f"the server's configuration)"
        ) from None
    except (fl.FlightError, pa.ArrowException, OSError) as error:
        raise UnreachableError(f"the source `{address}` answers: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


class _Service:
    """A Flight service, at an address that was checked."""

    def __init__(self, address: Address, entry: Entry, deadline: Deadline) -> None:
        self._address = address
        self._entry = entry
        self._deadline = deadline
        host = answering(address, entry, deadline)
        has_tls = entry.certificates is not None
        most = min(entry.max_bytes + _OF_MESSAGE, (1 << 31) - 1)
        name = address.host.strip("[]")
        self._client = fl.FlightClient(
            f"grpc+{'tls' if has_tls else 'tcp'}://{f'[{host}]' if ':' in host else host}"
            f":{address.port}",
            tls_root_certs=None if entry.certificates is None else entry.certificates.encode(),
            override_hostname=name if has_tls and not _is_ip(name) else None,
            generic_options=[("grpc.max_receive_message_length", most)],
        )
        self._headers = self._credentials()

    def _credentials(self) -> list[tuple[bytes, bytes]]:
        entry = self._entry
        if entry.token is not None:
            return [(b"authorization", f"Bearer {entry.token}".encode())]
        if entry.user is not None:
            user, password = entry.user, entry.password or ""
            return [self._client.authenticate_basic_token(user, password, self._options())]
        return []

    def _options(self, headers: list[tuple[bytes, bytes]] | None = None) -> Any:
        return fl.FlightCallOptions(timeout=self._deadline.left(), headers=headers or [])

    def columns(self, asked: dict[str, Any]) -> Array:
        """The wanted columns of all parts."""
        with self._client:
            tickets = self._tickets(asked["query"])
            first = self._client.do_get(tickets[0], self._options(self._headers))
            batches = self._batches(first, tickets[1:])
            return arrow.gathered(
                first.schema, batches, asked["columns"], str(self._address), self._entry
            )

    def _batches(self, reader: Any, tickets: list[Any]) -> Iterator[Any]:
        schema = reader.schema
        while True:
            try:
                for chunk in reader:
                    if chunk.data is not None:
                        yield chunk.data
            finally:
                reader.cancel()
            if not tickets:
                return
            reader = self._client.do_get(tickets.pop(0), self._options(self._headers))
            if reader.schema != schema:
                raise UnreachableError(f"the parts of `{self._address}` have different columns")

    def _tickets(self, ticket: str | None) -> list[Any]:
        """The tickets of all parts of a flight, which this service itself must have."""
        if ticket is not None:
            return [fl.Ticket(ticket.encode())]
        path = self._address.path.removeprefix("/").removesuffix("/").split("/")
        descriptor = fl.FlightDescriptor.for_path(*map(unquote, path))
        info = self._client.get_flight_info(descriptor, self._options(self._headers))
        parts = info.endpoints
        for part in parts:
            places = [location.uri.decode() for location in part.locations]
            if places and not any(map(self._is_here, places)):
                raise RefusedError(
                    f"the source `{self._address}` sends the server to `{places[0][:200]}`, and "
                    f"parts of a flight are read at one address only"
                )
        if not 0 < len(parts) <= _MOST_PARTS:
            raise UnreachableError(
                f"the source `{self._address}` has {len(parts)} parts, and 1 to {_MOST_PARTS} can "
                f"be read"
            )
        return [part.ticket for part in parts]

    def _is_here(self, place: str) -> bool:
        own = f"{self._address.host}:{self._address.port}"
        return place.startswith(_HERE) or place in [f"{scheme}{own}" for scheme in _SCHEMES]


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
