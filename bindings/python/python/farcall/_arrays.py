"""Arrays of other libraries, as NumPy sees them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import ArgumentError


def from_other(value: Any, is_written: bool) -> npt.NDArray[Any] | None:
    """The array of another library, or None for other values.

    An array with DLPack is used in place, or copied from the memory of a device. A sparse matrix
    becomes dense, and cannot be written to.
    """
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, is_written)
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        if is_written:
            raise ValueError("a sparse matrix, which cannot be filled: pass its toarray()")
        dense: npt.NDArray[Any] = value.toarray()
        return dense
    return None


# Elements of large arrays that are compared at once.
_PIECE = 1 << 20

# Memory that the host can read, by the numbers of DLPack: its own, and pinned or managed memory.
_OF_HOST = (1, 3, 11, 13)


def _from_dlpack(value: Any, is_written: bool) -> npt.NDArray[Any]:
    device = int(value.__dlpack_device__()[0])
    if is_written and device not in _OF_HOST:
        raise ValueError(
            f"an array in the memory of device {device}, which a call cannot fill; pass an array "
            "in the memory of this host"
        )
    try:
        if device in _OF_HOST:
            array = np.from_dlpack(value)
        else:
            array = np.from_dlpack(value, device="cpu", copy=True)
    except (BufferError, RuntimeError, TypeError) as error:
        raise ValueError(
            f"an array that NumPy cannot use in place ({error}); move it to the memory of this "
            "host first"
        ) from error
    # Old versions of NumPy treat every array from DLPack as read-only.
    if not array.flags.writeable and hasattr(value, "__array__"):
        other = np.asarray(value)
        if other.flags.writeable and np.may_share_memory(array, other):
            return other
    return array


# How to pass a masked array.
UNMASKED = "its mask would be lost; pass its filled(value), or its data"


def refuse_mask(data: Any) -> None:
    """Refuses an array with a mask, which nobody else would see."""
    if isinstance(data, np.ma.MaskedArray):
        raise ArgumentError(f"a masked array: {UNMASKED}")


def overflowing(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> str | None:
    """The first number that becomes infinite in a type of fewer bits, as a text."""
    with np.errstate(over="ignore", invalid="ignore"):
        infinite = np.isinf(array.astype(dtype)) & ~np.isinf(array)
    return str(array[infinite][0]) if infinite.any() else None


def inexact(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> str | None:
    """A whole number of an array that another type does not hold exactly, as a text."""
    if array.dtype.kind not in "iu" or array.size == 0:
        return None
    to = np.dtype(dtype)
    least, most = int(array.min()), int(array.max())
    if to.kind in "iu":
        low, high = int(np.iinfo(to).min), int(np.iinfo(to).max)
        outside = least if least < low else most
        return None if low <= least and most <= high else str(outside)
    if to.kind not in "fc":
        return None
    real = np.finfo(to)
    digits = 1 << real.nmant + 1
    if -digits <= least and most <= digits:
        return None
    # Where the integer type ends, a conversion back is undefined.
    end = 2.0 ** (8 * array.dtype.itemsize - (array.dtype.kind == "i"))
    for piece in np.nditer(array, ["external_loop", "buffered"], buffersize=_PIECE):
        whole = np.asarray(piece)
        near = whole.astype(real.dtype)
        inside = near < end
        same = inside & (np.where(inside, near, 0).astype(array.dtype) == whole)
        if not same.all():
            return str(whole[~same][0])
    return None


def rounded(value: Any, array: npt.NDArray[Any], dtype: npt.DTypeLike) -> str | None:
    """An integer beside other numbers in a sequence that the type does not hold exactly."""
    # An array of floats has none, and a copy of it as objects would take many times its memory.
    own = str(getattr(value, "dtype", "")).lower()
    if "float" in own or "complex" in own:
        return None
    real = np.finfo(np.dtype(dtype))
    if array.dtype.kind not in "fc" or not (np.abs(array) >= 1 << real.nmant + 1).any():
        return None
    numbers = (_scalar(number) for number in np.asarray(value, dtype=object).flat)
    # A NumPy integer is no `int`.
    large = (int(number) for number in numbers if isinstance(number, int | np.integer))
    lost = (number for number in large if int(real.dtype.type(number)) != number)
    return next(map(str, lost), None)


def _scalar(number: Any) -> Any:
    """The number of an array without dimensions; any other value as it is."""
    return number[()] if isinstance(number, np.ndarray) and number.ndim == 0 else number


def whole_lines(view: Any, axis: int, others: Sequence[Any]) -> npt.NDArray[Any] | None:
    """The rows, or the columns in Fortran order, of which a matrix is the first part of each.

    `axis` is the one along which elements follow each other. The result is in the memory of the
    view. None if the view has no such lines, or if another argument has a part of them.
    """
    if not isinstance(view, np.ndarray) or view.ndim != 2 or view.size == 0:
        return None
    size, lead = view.itemsize, view.strides[1 - axis]
    if view.strides[axis] != size or lead % size != 0 or lead <= view.shape[axis] * size:
        return None
    owner = view
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    start = owner.__array_interface__["data"][0]
    end = view.__array_interface__["data"][0] + lead * view.shape[1 - axis]
    if not owner.flags.forc or end > start + owner.nbytes:
        return None
    shape = (lead // size, view.shape[1]) if axis == 0 else (view.shape[0], lead // size)
    writeable = bool(view.flags.writeable)
    whole = np.lib.stride_tricks.as_strided(view, shape, view.strides, writeable=writeable)
    arrays = (other for other in others if isinstance(other, np.ndarray) and other is not view)
    return None if any(np.may_share_memory(whole, other) for other in arrays) else whole
