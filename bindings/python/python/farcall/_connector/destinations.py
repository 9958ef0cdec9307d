"""Addresses to which the server writes arrays: files, objects of buckets and pages of the web.

An array is written whole or not at all. To write it again is to write the same thing again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from . import files, formats, http
from .addresses import Address, Entry, find
from .content import Content
from .errors import RefusedError, TooLargeError, UnfitError

if TYPE_CHECKING:
    from collections.abc import Sequence

_READING = ("query", "rows", "sha256", "shape")


class Destination:
    """An address to which an array may be written."""

    def __init__(
        self,
        address: Address,
        entries: Sequence[Entry],
        folder: str | None,
        asked: dict[str, Any],
    ) -> None:
        """Refuses an address that the operator has not named for writing."""
        self._address = address
        self._asked = asked
        self._folder = folder
        self._entry = find(entries, address)
        self._web: http.Web | None = None
        if not self._entry.write:
            raise RefusedError(
                f"the address `{address}` is only read: the server's operator can allow to write "
                f"there (write of [sources.{self._entry.name}])"
            )
        for name in _READING:
            if asked[name] is not None:
                raise UnfitError(f"the address `{address}` is written to, and takes no {name}")
        if address.scheme in ("http", "https"):
            self._web = http.Web(address, entries)
        elif address.scheme == "s3":
            from . import s3  # noqa: PLC0415

            self._web = s3.Bucket(address, entries)
        elif address.scheme not in ("file", "folder"):
            raise UnfitError(
                f"the address `{address}` is only read: arrays are written to files, to objects of "
                f"buckets and to pages of the web"
            )
        self._kind = formats.format_of(address.path, asked, str(address))
        formats.check_to_write(self._kind, asked, str(address))

    def array(self) -> formats.Array:
        """Memory for the array."""
        dtype = np.dtype(formats.ELEMENTS[self._asked["wanted"]])
        shape = tuple(self._asked["writes"])
        size = math.prod(shape) * dtype.itemsize
        if size > self._entry.max_bytes:
            raise TooLargeError(
                f"the array for `{self._address}` has {size} bytes, and {self._entry.max_bytes} "
                f"are allowed (max_bytes of [sources.{self._entry.name}] in the server's "
                f"configuration)"
            )
        return np.empty(shape, dtype, order="F" if self._asked["column_major"] else "C")

    def write(self, array: formats.Array) -> dict[str, Any]:
        """Writes the array. Returns what lies at the address then."""
        content = Content(str(self._address), self._entry)
        formats.write(content, self._kind, array, self._asked)
        if self._web is not None:
            version = self._web.write(content)
        else:
            version = files.write(self._address, self._entry, self._folder, content)
        sha256 = content.digest("sha256").hex()
        return {"bytes": content.length, "sha256": sha256, "version": version}
