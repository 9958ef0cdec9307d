"""Arrays born in memory that is shared with a server."""

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt

from ._native import Server
from ._offload import current_server


def empty(
    shape: SupportsIndex | Sequence[SupportsIndex],
    dtype: npt.DTypeLike = float,
    order: Literal["C", "F"] = "C",
    *,
    server: Server | None = None,
) -> npt.NDArray[Any]:
    """An array like `numpy.empty`, in memory shared with a server on the same host.

    As an argument of calls to that server it is not copied at all: the library works on it in
    place. Where the server is on another host, or has no memory to give, it is an ordinary array.
    While a call is under way its arrays belong to it; after a call that was given up their
    contents stay undefined until the server has ended it.

    `server` is that of `farcall.linalg` unless it is given. C-ordered arrays are what functions
    in C take as they are, Fortran-ordered ones what those in Fortran do.
    """
    server = server or current_server()
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"farcall.empty: {dtype} has objects in it, which no library can read")
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
