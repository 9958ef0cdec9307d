"""Columns of record batches as arrays, and arrays as columns, without a copy of their elements.

A vector is a plain column. Any other array is a column of one row: a tensor (the extension type
`arrow.fixed_shape_tensor`) or a list. The elements of complex numbers are pairs.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .._arrays import inexact, overflowing

Array = npt.NDArray[Any]


def array(name: str, column: Any, dtype: str | None) -> Any:
    """The array in a column; a list of texts for a parameter without a `dtype`."""
    kind = column.type
    _refuse_nulls(name, column)
    if dtype is None:
        return _elements(name, column).to_pylist()
    if isinstance(kind, pa.FixedShapeTensorType):
        if len(column) != 1:
            raise ValueError(f"argument `{name}`: expected one tensor, given {len(column)}")
        # pyarrow reads what is in memory at the place of a null.
        _refuse_nulls(name, column.storage.flatten())
        # pyarrow divides by the number of elements.
        shape = [kind.shape[axis] for axis in kind.permutation or range(len(kind.shape))]
        found = column.to_numpy_ndarray()[0] if math.prod(shape) else np.empty(shape)
    else:
        try:
            found = _elements(name, column).to_numpy(zero_copy_only=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise ValueError(f"argument `{name}`: {kind} is not a type of numbers") from None
    wanted = np.dtype(dtype)
    if wanted.kind != "c" or found.dtype.kind == "c":
        return found
    return _complex(name, found, wanted)


def _refuse_nulls(name: str, column: Any) -> None:
    if column.null_count:
        raise ValueError(f"argument `{name}`: a column with nulls is not an array")


def _elements(name: str, column: Any) -> Any:
    """The elements of a plain column, or of a list in one row."""
    kind = column.type
    _refuse_nulls(name, column)
    if pa.types.is_fixed_size_list(kind) and kind.list_size == 2 and len(column) != 1:
        return _elements(name, column.flatten())  # complex numbers
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        if len(column) != 1:
            raise ValueError(f"argument `{name}`: expected one list, given {len(column)}")
        return _elements(name, column.flatten())
    return column


def _complex(name: str, parts: Array, wanted: np.dtype[Any]) -> Array:
    """Complex numbers from pairs of reals."""
    if not (parts.ndim and parts.shape[-1] % 2 == 0 and parts.flags.c_contiguous):
        raise ValueError(
            f"argument `{name}`: complex numbers are pairs, with the last axis fastest"
        )
    real = np.dtype(np.float32 if wanted == np.complex64 else np.float64)
    narrower = parts.dtype.kind == "f" and real.itemsize < parts.itemsize
    lost = inexact(parts, real) or (overflowing(parts, real) if narrower else None)
    if lost:
        raise ValueError(f"argument `{name}`: {wanted} cannot hold {lost}")
    found = parts.astype(real, copy=False).view(wanted)
    return found[..., 0] if parts.ndim > 1 and parts.shape[-1] == 2 else found


def fill(name: str, target: Array, given: Array) -> None:
    """Copies an array into one that must hold its numbers. A vector can have all elements."""
    target = _numbers(target)
    if given.ndim == 1:
        fits = given.size == target.size
    else:
        fits = np.squeeze(given).shape == np.squeeze(target).shape
    if not (fits and np.can_cast(given.dtype, target.dtype, "safe")):
        raise ValueError(
            f"argument `{name}`: expected an array of {target.dtype} and shape {target.shape}, "
            f"given {given.dtype} array of shape {given.shape}"
        )
    if inexact(given, target.dtype):
        raise ValueError(f"argument `{name}`: {target.dtype} cannot hold all of its numbers")
    target[...] = given.reshape(target.shape)


def by_rows(given: Any, shape: Sequence[int]) -> Any:
    """A vector that has all elements of an array of this shape as that array; or what is given."""
    is_vector = isinstance(given, np.ndarray) and given.ndim == 1
    return given.reshape(shape) if is_vector and given.size == math.prod(shape) else given


def batch(results: Mapping[str, Any]) -> Any:
    """Results as a record batch: plain columns if they are vectors of one length, or else a row."""
    values = {name: _reals(value) for name, value in results.items()}
    lengths = {len(value) for value in values.values() if _is_vector(value)}
    plain = len(lengths) == 1 and all(_is_vector(value) for value in values.values())
    columns = [_column(value, plain=plain) for value in values.values()]
    return pa.record_batch(columns, names=list(values))


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) or value.ndim == 1


def _numbers(value: Array) -> Array:
    """Characters as the small integers that they are in C; Arrow would end them at a NUL."""
    return value.view(np.int8) if value.dtype == np.dtype("S1") else value


def _reals(value: Any) -> Any:
    """Complex numbers as pairs of reals, characters as integers, and a text alone as a list."""
    if isinstance(value, (list, str)):
        return [value] if isinstance(value, str) else value
    if value.dtype.kind != "c":
        return _numbers(value)
    value = np.ascontiguousarray(value)
    real = np.float32 if value.dtype == np.complex64 else np.float64
    return value.view(real).reshape(*value.shape, 2)


def _column(value: Any, *, plain: bool) -> Any:
    if isinstance(value, list):
        return pa.array(value, pa.string()) if plain else pa.array([value], pa.list_(pa.string()))
    if plain:
        return pa.array(value)
    return tensor(value)


def tensor(value: Array) -> Any:
    """A column of one row with the array, in the order in which it is in memory."""
    if not (value.flags.c_contiguous or value.flags.f_contiguous):
        value = np.ascontiguousarray(value)
    shape: Sequence[int] = value.shape
    order = None
    if not value.flags.c_contiguous:
        shape, order = shape[::-1], list(range(value.ndim))[::-1]
    elements = pa.array(value.ravel(order="K"))
    kind = pa.fixed_shape_tensor(elements.type, list(shape), permutation=order)
    if len(elements):
        storage = pa.FixedSizeListArray.from_arrays(elements, type=kind.storage_type)
    else:
        storage = pa.array([[]], kind.storage_type)
    return pa.ExtensionArray.from_storage(kind, storage)
