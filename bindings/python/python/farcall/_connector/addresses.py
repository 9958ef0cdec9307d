"""Addresses, and those of them that the operator allows.

An address has one spelling here. A text with parts that programs read in different ways is no
address: users and passwords, escaped slashes, dots that leave a folder, fragments, backslashes.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from .errors import RefusedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable

PORTS = {"flight": 8815, "http": 80, "https": 443, "postgresql": 5432, "s3": 0}
"""Schemes with a host, and their usual ports. The host of `s3` is a bucket."""

LOCAL = ("file", "folder", "sqlite")
"""Schemes of files of the server's machine."""

_WITHOUT_OPTIONS = ("flight", "postgresql")
_REMOTE = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(?:\?(?P<query>[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*))?"
)
_PASSWORD = re.compile(r"(`[^`:]*:(?://)?)[^`]*@")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_MOST_ESCAPES = 4
_ESCAPE = re.compile(r"%(?=[0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Address:
    """An address in its one spelling."""

    scheme: str
    host: str
    port: int
    path: str
    query: str | None = None

    def __str__(self) -> str:
        """The address as users write it."""
        if self.scheme == "file":
            return f"file://{_ESCAPE.sub('%25', self.path)}"
        if self.scheme in LOCAL:
            return f"{self.scheme}:{self.path}"
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        query = "" if self.query is None else f"?{self.query}"
        return f"{self.scheme}://{self.host}{port}{self.path}{query}"


@dataclass(frozen=True)
class Entry:
    """An address that the operator allows, its credentials and its bounds."""

    name: str
    address: Address
    user: str | None
    password: str | None = field(repr=False)
    token: str | None = field(repr=False)
    certificates: str | None
    endpoint: Address | None
    region: str | None
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    write: bool
    max_bytes: int
    time_limit_s: float
    unreadable: bool = False

    @classmethod
    def read(cls, name: str, told: dict[str, Any]) -> Entry:
        """The entry that the server has told."""
        networks = tuple(ipaddress.ip_network(network) for network in told.pop("networks"))
        try:
            address = parse(told.pop("address"))
            endpoint = _endpoint(address, told.pop("endpoint"), told["region"])
        except RefusedError as error:
            # Users read this text, and a password in an address is the operator's.
            shown = _PASSWORD.sub(r"\1...@", str(error))
            raise RefusedError(
                f"{shown} ([sources.{name}] in the server's configuration)"
            ) from None
        return cls(name=name, address=address, endpoint=endpoint, networks=networks, **told)

    def permits(self, address: Address) -> bool:
        """Whether an address is this one, or begins with it if it is a folder."""
        own = self.address
        if (own.scheme, own.host, own.port) != (address.scheme, address.host, address.port):
            return False
        if own.path.endswith("/"):
            return address.path.startswith(own.path)
        return (own.path, own.query) == (address.path, address.query)

    def lets(self, found: str) -> bool:
        """Whether the host may have this IP address: one that is public, or that is allowed."""
        ip = ipaddress.ip_address(found.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address):
            ip = ip.ipv4_mapped or ip
        if any(ip.version == network.version and ip in network for network in self.networks):
            return True
        return ip.is_global and not ip.is_multicast and not _carries_another(ip)


_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def _carries_another(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address has another one in it, to which packets may go."""
    return isinstance(ip, ipaddress.IPv6Address) and bool(ip.sixtofour or ip.teredo or ip in _NAT64)


def _endpoint(address: Address, told: str | None, region: str | None) -> Address | None:
    """Where the requests about a bucket go: to the given service, or to that of Amazon."""
    if address.scheme != "s3":
        if told is not None or region is not None:
            raise RefusedError(f"`{address}` is no bucket: it takes no `endpoint` and no `region`")
        return None
    endpoint = parse(told or f"https://s3.{region or 'us-east-1'}.amazonaws.com/")
    if endpoint.scheme not in ("http", "https") or endpoint.path != "/" or endpoint.query:
        raise RefusedError(f"the endpoint `{told}` is not https://HOST or http://HOST")
    return endpoint


def parse(text: str) -> Address:
    """Reads an address."""
    scheme, colon, rest = text.partition(":")
    scheme = scheme.lower()
    if colon and scheme in LOCAL:
        return Address(scheme, "", 0, _local_path(scheme, rest, text))
    remote = rest.removeprefix("//")
    authority = re.split(r"[/?]", remote, maxsplit=1)[0]
    found = _REMOTE.fullmatch(f"{scheme}://{authority.lower()}{remote[len(authority) :]}")
    if not colon or not rest.startswith("//") or scheme not in PORTS or found is None:
        raise RefusedError(
            f"`{text}` is not an address that a server reads: it reads "
            f"{', '.join(sorted([*PORTS, *LOCAL]))}, without a user, a fragment and special "
            f"characters in the address; on a web server a blank is `%20`"
        )
    if scheme == "s3":
        return _object(found, text)
    if scheme in _WITHOUT_OPTIONS and found["query"] is not None:
        raise RefusedError(
            f"`{text.partition('?')[0]}` is not an address with options: {scheme} takes nothing "
            f"after a `?`; the operator's settings are in [sources]"
        )
    port = int(found["port"] or PORTS[scheme])
    if not 0 < port < 65536:
        raise RefusedError(f"`{text}` has no port that there is")
    path = found["path"] or "/"
    _check_path(path, text)
    return Address(scheme, found["host"], port, path, found["query"])


def _object(found: re.Match[str], text: str) -> Address:
    """The address of an object in a bucket."""
    if not _BUCKET.fullmatch(found["host"]) or found["port"] or found["query"] is not None:
        raise RefusedError(f"`{text}` is not an address of an object: write s3://BUCKET/KEY")
    path = found["path"] or "/"
    _check_path(path, text)
    return Address("s3", found["host"], 0, path)


def _local_path(scheme: str, rest: str, text: str) -> str:
    path = rest if scheme == "folder" else rest.removeprefix("//")
    if scheme == "file":
        path = _decoded_file(path, text)
    words = path.removeprefix("/").removesuffix("/").split("/")
    absolute = path.startswith("/") == (scheme != "folder")
    if not absolute or not path.isprintable() or any(word in ("", ".", "..") for word in words):
        form = "folder:NAME" if scheme == "folder" else f"{scheme}:/PATH"
        raise RefusedError(
            f"`{text}` is not an address of a file: write {form}, without `.` and `..`"
        )
    if scheme == "folder" and any(word.startswith(".") for word in words):
        raise RefusedError(
            f"`{text}` begins with a dot: such files of the data folder are not read"
        )
    return path


def _decoded_file(path: str, text: str) -> str:
    """The path that the address of a file stands for (RFC 8089)."""
    decoded = _unescaped(path, text)
    if decoded.count("/") != path.count("/"):
        raise RefusedError(f"`{text}` has an escape that stands for a slash; write the slash")
    return decoded


def _unescaped(path: str, text: str) -> str:
    try:
        return unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise RefusedError(
            f"`{text}` has escapes in its path that are not UTF-8; write the bytes of UTF-8"
        ) from None


def _check_path(path: str, text: str) -> None:
    """Refuses a path that leaves its folder after some program has decoded it."""
    for _ in range(_MOST_ESCAPES):
        words = [word.split(";")[0] for word in path.split("/")]
        decoded = _unescaped(path, text) if path.isascii() else path
        if (
            any(word in (".", "..") for word in words)
            or "\\" in path
            or not path.isprintable()
            or decoded.count("/") != path.count("/")
        ):
            raise RefusedError(
                f"`{text}` has dots or escapes in its path that could leave its folder"
            )
        if decoded == path:
            return
        path = decoded
    raise RefusedError(f"`{text}` has too many escapes in its path")


def find(entries: Iterable[Entry], address: Address) -> Entry:
    """The entry that allows an address, the most special one."""
    fit = [entry for entry in entries if entry.permits(address)]
    if not fit:
        raise RefusedError(
            f"the source `{address}` is not allowed: no entry of [sources] in the server's "
            f"configuration names it; ask the server's operator"
        )
    found = max(fit, key=lambda entry: len(entry.address.path))
    if found.unreadable:
        raise UnreachableError(
            f"the source `{address}` cannot be used: the server cannot read the credentials of "
            f"[sources.{found.name}] in its configuration; ask its operator, whose log says why"
        )
    return found
