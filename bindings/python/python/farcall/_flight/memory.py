"""Memory that a server shares, used again by later calls of the same caller.

A worker takes longer to touch new memory than to compute with it. An array keeps its memory until
nothing refers to it, also not a record batch that is on its way.
"""

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .._native import Server, SharedMemory

# Bytes from which an array is made in shared memory.
_SHARED = 64 << 10
# Most bytes that are kept for later calls of a caller.
_MOST_KEPT = 512 << 20


class Memory:
    """The shared memory of one connection."""

    def __init__(self, server: Server, *, clears: bool) -> None:
        """Without memory. `clears` is for a connection of several callers."""
        self._server = server
        self._clears = clears
        # A collection of garbage can give memory back while this thread takes some.
        self._lock = threading.RLock()
        self._free: dict[int, list[SharedMemory]] = {}
        self._kept = 0
        # What gives memory back, by the arrays that all views of it refer to.
        self._ends: dict[int, Any] = {}

    def empty(
        self, shape: Sequence[int], dtype: np.dtype[Any], order: Literal["C", "F"]
    ) -> npt.NDArray[Any]:
        """An array whose contents are undefined, or zeros if the memory was somebody else's."""
        size = dtype.itemsize * math.prod(shape)
        memory = self._take(size) if size >= _SHARED else None
        if memory is None:
            make = np.zeros if self._clears else np.empty
            return make(shape, dtype, order)
        # All views of the array refer to this one.
        root = np.asarray(memory)
        self._ends[id(root)] = weakref.finalize(root, self._give, id(root), size, memory)
        return root[:size].view(dtype).reshape(shape, order=order)

    def _take(self, size: int) -> SharedMemory | None:
        with self._lock:
            free = self._free.get(size)
            if free:
                self._kept -= size
                memory = free.pop()
                if not free:
                    del self._free[size]
            else:
                memory = None
        if memory is None:
            return self._server._share(size)
        if self._clears:
            np.asarray(memory)[:size] = 0
        return memory

    def leave(self, array: Any) -> None:
        """Keeps the memory of an array of a call for no later one."""
        while isinstance(array, np.ndarray) and isinstance(array.base, np.ndarray):
            array = array.base
        end = self._ends.pop(id(array), None)
        if end is not None:
            end.detach()

    def _give(self, root: int, size: int, memory: SharedMemory) -> None:
        with self._lock:
            self._ends.pop(root, None)
            if self._kept + size <= _MOST_KEPT:
                self._kept += size
                self._free.setdefault(size, []).append(memory)
