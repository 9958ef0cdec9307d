"""Parts of arrays: which bytes of a `.npy` or raw file have some rows, and the array of these."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import UnfitError
from .formats import as_stated, bounds, check_shape, head_of, raw_shape

if TYPE_CHECKING:
    from .content import Content
    from .formats import Array

HEAD = 1 << 16
"""So many bytes have the head of a `.npy` file."""

_MOST_RANGES = 1 << 16


class Part:
    """The wanted rows of one file."""

    @classmethod
    def of(cls, kind: str, asked: dict[str, Any], source: str) -> Part | None:
        """The part, if only some bytes are wanted. A checksum is that of all bytes."""
        if asked["rows"] is None or kind not in ("npy", "raw") or asked["sha256"] is not None:
            return None
        return cls(kind, asked, source)

    def __init__(self, kind: str, asked: dict[str, Any], source: str) -> None:
        """Nothing is known of the file yet."""
        self._kind = kind
        self._asked = asked
        self._source = source
        self._dtype: np.dtype[Any] = np.dtype("u1")
        self._shape: tuple[int, ...] = ()
        self._by_columns = False

    def ranges(self, head: bytes, length: int) -> list[tuple[int, int]]:
        """Which bytes have the rows: offsets and lengths. The file has so many bytes."""
        source, offset = self._source, 0
        if self._kind == "npy":
            file = io.BytesIO(head)
            shape, self._by_columns, self._dtype = head_of(file, source)
            offset = file.tell()
        else:
            dtype, shape = raw_shape(self._asked, length, source)
            self._dtype, self._by_columns = dtype, bool(self._asked["by_columns"])
        size = self._dtype.itemsize
        if offset + math.prod(shape) * size != length:
            raise UnfitError(
                f"the source `{source}` has {length - offset} bytes of numbers, and its shape "
                f"{shape} has {math.prod(shape) * size}"
            )
        check_shape(shape, self._asked, source)
        begin, end = bounds(shape, self._asked, source)
        self._shape = (end - begin, *shape[1:])
        others = math.prod(shape[1:])
        if not self._by_columns or others == 1:
            return [(offset + begin * others * size, (end - begin) * others * size)]
        if others > _MOST_RANGES:
            raise UnfitError(
                f"the source `{source}` has its numbers in {others} columns, too many to read a "
                f"part of each; read it whole"
            )
        step = shape[0] * size
        return [
            (offset + column * step + begin * size, (end - begin) * size)
            for column in range(others)
        ]

    def array(self, content: Content) -> Array:
        """The rows, whose bytes are the content."""
        count = math.prod(self._shape)
        flat = np.frombuffer(content.view(), self._dtype, count) if count else np.empty(0)
        flat = flat.astype(self._dtype, copy=False)
        array = flat.reshape(self._shape, order="F" if self._by_columns else "C")
        return as_stated(array, self._asked, self._source) if self._kind == "npy" else array
