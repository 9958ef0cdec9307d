"""Arrays in memory that is shared with a server."""

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex

from ._compute import current_server
from ._native import Server

if TYPE_CHECKING:
    import numpy.typing as npt


def empty(
    shape: SupportsIndex | Sequence[SupportsIndex],
    dtype: "npt.DTypeLike" = float,
    order: Literal["C", "F"] = "C",
    *,
    server: Server | None = None,
) -> "npt.NDArray[Any]":
    """An array like `numpy.empty`, in memory shared with a server on the same host.

    Calls to that server do not copy the array: the library uses it in place. If the server is on
    another host, or has no memory to share, this makes an ordinary array. Do not use the arrays of
    a call while it is under way. After a call that was given up, their contents are undefined
    until the server has ended the call.

    The default `server` is that of `farcall.linalg`. Functions in C use C-ordered arrays in place,
    and functions in Fortran use Fortran-ordered arrays in place.
    """
    # NumPy binds its LAPACK when it is imported, which must not be before `farcall.offload.enable`.
    import numpy as np  # noqa: PLC0415

    server = server or current_server()
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"farcall.empty: {dtype} has Python objects, which no library can read")
    lengths: tuple[int, ...]
    try:
        lengths = (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        lengths = tuple(map(operator.index, shape))  # type: ignore[arg-type]
    if any(length < 0 for length in lengths):
        raise ValueError(f"farcall.empty: the shape {lengths} has a negative length")
    size = dtype.itemsize * math.prod(lengths)
    memory = server._share(size) if size else None
    if memory is None:
        return np.empty(lengths, dtype, order)
    return np.asarray(memory)[:size].view(dtype).reshape(lengths, order=order)
