"""The loop of the connector: one request after the other, until the server closes the pipe."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import struct
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import addresses, databases, destinations, files, formats, http, parts
from .errors import RefusedError, SourceError, UnfitError

_MOST_MESSAGE = 16 << 20
_IDLE_S = 300.0
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_MOST_OF_FOLDER = 16 << 30
"""Most bytes of a file of the data folder."""
_COPIES = 4
_OWN_BYTES = 1 << 30
"""Memory of a connector: so many copies of the largest array, and its own."""


class _Pipe:
    """Messages of the server: a length of four bytes and JSON."""

    def __init__(self) -> None:
        """Takes the pipes; what a library prints goes to the log."""
        self._input = 0
        self._output = os.dup(1)
        os.dup2(2, 1)

    def read(self, *, waits: float | None = None) -> dict[str, Any] | None:
        """The next message; nothing after the last one, or if none comes for a while."""
        if waits is not None and not select.select([self._input], [], [], waits)[0]:
            return None
        head = self._exactly(4)
        if head is None:
            return None
        [length] = struct.unpack(">I", head)
        text = self._exactly(length) if length <= _MOST_MESSAGE else None
        return None if text is None else json.loads(text)

    def _exactly(self, length: int) -> bytes | None:
        pieces = bytearray()
        while len(pieces) < length:
            piece = os.read(self._input, length - len(pieces))
            if not piece:
                return None
            pieces += piece
        return bytes(pieces)

    def say(self, message: object) -> None:
        """Sends a message."""
        text = json.dumps(message).encode()
        self.write(memoryview(struct.pack(">I", len(text)) + text))

    def fill(self, rest: memoryview) -> None:
        """Reads bytes until this memory is full."""
        while rest:
            count = os.readv(self._input, [rest])
            if not count:
                os._exit(0)
            rest = rest[count:]

    def write(self, rest: memoryview) -> None:
        """Sends bytes."""
        while rest:
            rest = rest[os.write(self._output, rest) :]


class _Connector:
    """What the connector may read."""

    def __init__(self, allowed: dict[str, Any]) -> None:
        """Reads the addresses that the operator allows."""
        told = allowed["sources"]
        self.folder: str | None = allowed["folder"]
        self.problem: SourceError | None = None
        self.entries: list[addresses.Entry] = []
        for name, one in told.items():
            try:
                self.entries.append(addresses.Entry.read(name, one))
            except SourceError as error:
                self.problem = error

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Adds to a refusal that an entry is wrong: it may be the one that was meant."""
        try:
            yield
        except RefusedError as error:
            if self.problem is None:
                raise
            raise RefusedError(f"{error}. An entry cannot be used: {self.problem}") from None

    def array(self, asked: dict[str, Any]) -> tuple[tuple[formats.Array, str], str | None] | None:
        """The array of a request, and the version of its source; nothing if it has not changed."""
        address = addresses.parse(asked["address"])
        is_data = address.scheme == "folder"
        entry = _folder() if is_data else addresses.find(self.entries, address)
        if address.scheme in ("flight", "postgresql", "sqlite"):
            if asked["sha256"] is not None:
                raise UnfitError(f"the source `{address}` has no bytes with a checksum")
            formats.check_to_read(address.scheme, asked, str(address))
            array = formats.picked(_columns(address, entry, asked), asked, str(address))
            return formats.fitted(array, asked, str(address), entry), None
        if asked["query"] is not None:
            raise UnfitError(f"the source `{address}` is no database: it takes no query")
        source: http.Web | files.File
        if address.scheme in ("http", "https"):
            source = http.Web(address, self.entries)
        elif address.scheme == "s3":
            from . import s3  # noqa: PLC0415

            source = s3.Bucket(address, self.entries)
        else:
            source = files.File(address, entry, self.folder)
        kind = formats.format_of(address.path, asked, str(address))
        formats.check_to_read(kind, asked, str(address))
        found = source.read(asked["version"], parts.Part.of(kind, asked, str(address)))
        if found is None:
            return None
        content, version = found
        if asked["sha256"] is not None:
            content.check("sha256", bytes.fromhex(asked["sha256"]))
        if content.part is not None:
            array = content.part.array(content)
        else:
            array = formats.read(content, kind, asked, entry)
            array = formats.picked(array, asked, str(address))
        return formats.fitted(array, asked, str(address), entry), version

    def destination(self, asked: dict[str, Any]) -> destinations.Destination:
        """Where the array of a request will be written."""
        address = addresses.parse(asked["address"])
        return destinations.Destination(address, self.entries, self.folder, asked)


def _columns(
    address: addresses.Address, entry: addresses.Entry, asked: dict[str, Any]
) -> formats.Array:
    """The columns of a query to a database, or of a flight."""
    if address.scheme == "flight":
        return formats.read_flight(address, entry, asked)
    if address.scheme == "sqlite":
        return databases.read_sqlite(address, entry, asked)
    from . import postgresql  # noqa: PLC0415

    return postgresql.read(address, entry, asked)


def _folder() -> addresses.Entry:
    """The entry of the data folder, whose files all users may read."""
    address = addresses.Address("folder", "", 0, "")
    most = _MOST_OF_FOLDER
    none = (None, None, None, None, None)
    return addresses.Entry("folder", address, *none, None, (), False, most, 60.0)


def _serve(pipe: _Pipe, connector: _Connector) -> None:
    """Answers requests."""
    while (asked := pipe.read(waits=_IDLE_S)) is not None:
        try:
            if asked["writes"] is None:
                with connector.told():
                    found = connector.array(asked)
            else:
                _write(pipe, connector, asked)
                continue
        except SourceError as error:
            pipe.say({"failure": {"kind": error.kind, "message": str(error)}})
            continue
        except MemoryError:
            text = f"the source `{asked['address']}` does not fit into the memory of the server"
            pipe.say({"failure": {"kind": "large", "message": text}})
            continue
        except Exception as error:
            # One that nobody has thought of: the log has more.
            traceback.print_exc()
            text = f"the source `{asked['address']}` cannot be used: {error!r}"
            pipe.say({"failure": {"kind": "internal", "message": text}})
            continue
        if not _send(pipe, found, by_columns=bool(asked["column_major"])):
            return


def _write(pipe: _Pipe, connector: _Connector, asked: dict[str, Any]) -> None:
    """Writes an array to an address."""
    with connector.told():
        destination = connector.destination(asked)
    array = destination.array()
    pipe.say("ready")
    rows = array.T if asked["column_major"] else array
    pipe.fill(rows.reshape(-1).view(np.uint8).data)
    pipe.say({"written": destination.write(array)})


def _send(
    pipe: _Pipe, found: tuple[tuple[formats.Array, str], str | None] | None, *, by_columns: bool
) -> bool:
    """Sends what was found, if the server wants it. Returns whether the server is still there."""
    if found is None:
        pipe.say("unchanged")
        return True
    (array, element), version = found
    told = {"element": element, "shape": array.shape, "column_major": by_columns}
    pipe.say({"array": told | {"version": version}})
    go = pipe.read()
    if go is None:
        return False
    if go["go"]:
        rows = array.T if by_columns else array
        flat = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        pipe.write(flat.data)
        pipe.say("done")
    return True


def _end_with_the_server() -> None:
    """Ends the process when the server has closed the pipe, also while a source is read."""
    closed = select.poll()
    closed.register(0, 0)
    closed.poll()
    os._exit(0)


def _load_packages(allowed: dict[str, Any]) -> None:
    """Loads packages that sources may need: the user of functions might not reach them."""
    with contextlib.suppress(ImportError):
        from . import arrow  # noqa: F401, PLC0415
    for one in allowed["sources"].values():
        if one["address"].startswith("postgresql:"):
            from . import postgresql  # noqa: F401, PLC0415
        if one["address"].startswith("flight:"):
            from . import flight  # noqa: F401, PLC0415
        if one["address"].startswith("s3:"):
            from . import s3  # noqa: F401, PLC0415


def _give_up_rights(allowed: dict[str, Any]) -> None:
    """Becomes the user of the server's functions, if the server is root, and bounds its memory."""
    user: list[int] | None = allowed["user"]
    if user is not None:
        os.setgroups([])
        os.setresgid(user[1], user[1], user[1])
        os.setresuid(user[0], user[0], user[0])
    # Other processes of this user cannot look into this one, which has credentials.
    no_new_rights = ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    hidden = ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if hidden != 0 or no_new_rights != 0:
        sys.exit("farcall: the memory of the connector cannot be protected")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # A file that says less than it has, when it is unpacked, must not take the machine's memory.
    most = max([one["max_bytes"] for one in allowed["sources"].values()], default=0)
    most = max(most, 0 if allowed["folder"] is None else _MOST_OF_FOLDER)
    bound = min(_COPIES * most + _OWN_BYTES, np.iinfo(np.int64).max)
    resource.setrlimit(resource.RLIMIT_DATA, (int(bound), int(bound)))


def main() -> None:
    """Runs until the server ends, or has asked for nothing for a while."""
    pipe = _Pipe()
    allowed = pipe.read()
    if allowed is None:
        return
    if allowed["user"] is not None:
        _load_packages(allowed)
    _give_up_rights(allowed)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    # The server has ended, or has given this process up.
    with contextlib.suppress(BrokenPipeError):
        _serve(pipe, _Connector(allowed))


if __name__ == "__main__":
    main()
