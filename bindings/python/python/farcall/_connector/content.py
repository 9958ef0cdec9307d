"""The bytes at an address, in a file without a name that goes when it is closed."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import tempfile
from typing import TYPE_CHECKING

from .errors import TooLargeError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from .addresses import Entry
    from .parts import Part


class Content:
    """Bytes of a source, as they come."""

    def __init__(self, source: str, entry: Entry) -> None:
        """No bytes yet."""
        self.source = source
        self._entry = entry
        self.file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115
        self.length = 0
        self.part: Part | None = None
        """The part of the source whose bytes these are, if they are not all bytes."""
        self._sums = {
            "sha256": hashlib.sha256(),
            "md5": hashlib.md5(usedforsecurity=False),
        }

    def expect(self, length: int) -> None:
        """Refuses a source that says that it is too long."""
        most = self._entry.max_bytes
        if length > most:
            raise TooLargeError(
                f"the source `{self.source}` has {length} bytes or more, and {most} are allowed "
                f"(max_bytes of [sources.{self._entry.name}] in the server's configuration)"
            )

    def add(self, piece: bytes) -> None:
        """Adds a piece."""
        self.expect(self.length + len(piece))
        with self._stored():
            self.file.write(piece)
        self.length += len(piece)
        for known in self._sums.values():
            known.update(piece)

    def write(self, piece: bytes) -> int:
        """Adds a piece, as a file would."""
        self.add(bytes(piece))
        return len(piece)

    def start(self) -> BinaryIO:
        """The file, at its beginning."""
        with self._stored():
            self.file.flush()
        self.file.seek(0)
        return self.file

    @contextlib.contextmanager
    def _stored(self) -> Iterator[None]:
        """Says that the server has no room, and not that the source cannot be read."""
        try:
            yield
        except OSError as error:
            raise TooLargeError(
                f"the server has no room for the source `{self.source}` in "
                f"{tempfile.gettempdir()}: {error.strerror or error}"
            ) from None

    def digest(self, algorithm: str) -> bytes:
        """The checksum of all bytes."""
        return self._sums[algorithm].digest()

    def check(self, algorithm: str, digest: bytes) -> None:
        """Compares the checksum of all bytes."""
        found = self.digest(algorithm)
        if found != digest:
            raise UnreachableError(
                f"the source `{self.source}` has the {algorithm} checksum {found.hex()}, and "
                f"{digest.hex()} was expected: it has changed, or it was damaged on its way"
            )

    def view(self) -> memoryview:
        """All bytes."""
        if self.length == 0:
            return memoryview(b"")
        self.start()
        return memoryview(mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ))
