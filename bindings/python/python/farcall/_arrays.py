"""Arrays of other libraries, as NumPy sees them."""

from typing import Any

import numpy as np
import numpy.typing as npt


def from_other(value: Any, is_written: bool) -> npt.NDArray[Any] | None:
    """The array of another library, or None for other values.

    An array with DLPack is used in place. A sparse matrix becomes dense, and cannot be written to.
    """
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value)
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        if is_written:
            raise ValueError("a sparse matrix, which cannot be filled: pass its toarray()")
        dense: npt.NDArray[Any] = value.toarray()
        return dense
    return None


def _from_dlpack(value: Any) -> npt.NDArray[Any]:
    try:
        array = np.from_dlpack(value)
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
