"""Connections to the hosts of sources, each to an IP address that was checked."""

from __future__ import annotations

import encodings.idna  # noqa: F401  # The look-up of a host uses it.
import ipaddress
import socket
import time
from typing import TYPE_CHECKING

from .errors import RefusedError, UnreachableError

if TYPE_CHECKING:
    from .addresses import Address, Entry


class Deadline:
    """The time within which a source must be read."""

    def __init__(self, source: str, seconds: float) -> None:
        """The time begins now."""
        self.source = source
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.missed()
        return left

    def missed(self) -> UnreachableError:
        """The error of a source that is too slow."""
        return UnreachableError(
            f"the source `{self.source}` is too slow: it was not read within {self._seconds:g} s "
            f"(time_limit_s of its entry in [sources])"
        )


def resolve(address: Address, entry: Entry, source: str) -> list[str]:
    """The IP addresses of the host of a source. One that is not allowed refuses all."""
    host = address.host.strip("[]")
    try:
        # The operator has named this very address.
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        pass
    try:
        known = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        text = f"the source `{source}` cannot be reached: {host} has no address ({error})"
        raise UnreachableError(text) from None
    found = list(dict.fromkeys(str(one[4][0]) for one in known))
    for ip in found:
        if not entry.lets(ip):
            raise RefusedError(
                f"the source `{source}` is not allowed: {host} has the address {ip}, which is "
                f"not public; the server's operator can allow its network (networks of "
                f"[sources.{entry.name}])"
            )
    return found


def connect(address: Address, entry: Entry, deadline: Deadline) -> socket.socket:
    """A connection to one of the checked addresses of a host."""
    last: OSError | None = None
    for ip in resolve(address, entry, deadline.source):
        try:
            return socket.create_connection((ip, address.port), timeout=deadline.left())
        except TimeoutError:
            raise deadline.missed() from None
        except OSError as error:
            last = error
    raise UnreachableError(f"the source `{deadline.source}` cannot be reached: {last}") from None


def answering(address: Address, entry: Entry, deadline: Deadline) -> str:
    """The first of the checked IP addresses of a host that takes a connection."""
    known = resolve(address, entry, deadline.source)
    if len(known) == 1:
        return known[0]
    with connect(address, entry, deadline) as found:
        return str(found.getpeername()[0])
