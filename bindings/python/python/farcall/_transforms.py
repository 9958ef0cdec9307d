"""The compiled functions under `numpy.fft` and `scipy.fft`, computed by libraries/fft.idl.

`Transforms` is called as NumPy's ufuncs are, `Pocketfft` as SciPy's module. What no server computes
is computed here: extended precision, arrays without elements, and arguments that are errors.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._compute import call
from ._errors import LibraryError

_Array = npt.NDArray[Any]


def complex_rows(x: _Array, sign: int) -> _Array:
    """The transforms of complex rows, not scaled; `sign` is -1 forward and 1 backward."""
    y = np.empty_like(x)
    name = "cfft" if x.dtype == np.complex64 else "zfft"
    _checked(name, n=x.shape[1], howmany=x.shape[0], sign=sign, x=x, y=y)
    return y


def whole_rows(x: _Array, sign: int) -> _Array:
    """All coefficients of complex or real rows; of real ones, half travels back."""
    if x.dtype.kind == "c":
        return complex_rows(x, sign)
    half = real_rows(x)
    if sign > 0:
        np.conjugate(half, out=half)
    mirrored = half[:, (x.shape[1] - 1) // 2 : 0 : -1].conj()
    return np.concatenate([half, mirrored], axis=1)


def real_rows(x: _Array) -> _Array:
    """The first halves of the forward transforms of real rows."""
    y = np.empty((x.shape[0], x.shape[1] // 2 + 1), np.result_type(x, 1j))
    name = "sfft" if x.dtype == np.float32 else "dfft"
    _checked(name, n=x.shape[1], howmany=x.shape[0], x=x, y=y)
    return y


def to_real_rows(x: _Array, length: int) -> _Array:
    """The backward transforms to real rows, not scaled; the rows of x are changed."""
    # For a real result: the imaginary parts that these coefficients cannot have are left out.
    x.imag[:, 0] = 0
    if length % 2 == 0:
        x.imag[:, -1] = 0
    y = np.empty((x.shape[0], length), x.real.dtype)
    name = "sifft" if x.dtype == np.complex64 else "difft"
    _checked(name, n=length, howmany=x.shape[0], x=x, y=y)
    return y


def _checked(name: str, **arguments: Any) -> None:
    info = call(f"fft/{name}", **arguments).info
    if info != 0:
        raise LibraryError(f"fft/{name} failed: info is {info}")


def rows_of(array: _Array, axis: int, length: int, kind: Any) -> _Array:
    """A new matrix whose rows are the array along the axis, cropped or padded with zeros."""
    moved = np.moveaxis(array, axis, -1)
    taken = min(length, moved.shape[-1])
    rows = np.zeros(moved.shape[:-1] + (length,), kind)
    rows[..., :taken] = moved[..., :taken]
    return rows.reshape(math.prod(moved.shape[:-1]), length)


def back(rows: _Array, array: _Array, axis: int) -> _Array:
    """The rows in the place of this axis of the array."""
    shape = np.moveaxis(array, axis, -1).shape[:-1] + rows.shape[1:]
    return np.moveaxis(rows.reshape(shape), -1, axis)


def precision(array: _Array) -> np.dtype[Any] | None:
    """The real type of the computation: single for half and single; None without one here."""
    if array.dtype.kind not in "biufc" or array.dtype.char in "gG":
        return None
    return np.promote_types(np.result_type(array.real.dtype, 1.0), np.float32)


class Transforms:
    """What is called as NumPy's `_pocketfft_umath` is, and as `_pocketfft_internal` of NumPy 1."""

    def __init__(self, local: Any) -> None:
        """`local` is NumPy's module, which computes the rest."""
        self._local = local

    def __getattr__(self, name: str) -> Any:
        """NumPy's own function."""
        return getattr(self._local, name)

    def fft(self, a: _Array, factor: Any, axes: Any, out: _Array) -> Any:
        """The forward transform of complex or real numbers."""
        return self._complex(self._local.fft, -1, a, factor, axes, out)

    def ifft(self, a: _Array, factor: Any, axes: Any, out: _Array) -> Any:
        """The backward transform of complex or real numbers."""
        return self._complex(self._local.ifft, 1, a, factor, axes, out)

    def rfft_n_even(self, a: _Array, factor: Any, axes: Any, out: _Array) -> Any:
        """The first half of the transform of an even number of real numbers."""
        return self._forward(self._local.rfft_n_even, 0, a, factor, axes, out)

    def rfft_n_odd(self, a: _Array, factor: Any, axes: Any, out: _Array) -> Any:
        """The first half of the transform of an odd number of real numbers."""
        return self._forward(self._local.rfft_n_odd, 1, a, factor, axes, out)

    def irfft(self, a: _Array, factor: Any, axes: Any, out: _Array) -> Any:
        """The backward transform to real numbers."""
        axis, real = axes[0][0], _precision(a, out)
        if real is None or not _some(a, axis) or not _fits(out, real):
            return self._local.irfft(a, factor, axes=axes, out=out)
        length = out.shape[axis]
        rows = rows_of(a, axis, length // 2 + 1, np.result_type(real, 1j))
        return _put(to_real_rows(rows, length), factor, a, axis, out)

    def execute(self, a: _Array, is_real: bool, is_forward: bool, factor: Any) -> Any:
        """The function of NumPy 1: rows of double precision, of their whole length."""
        if not a.size:
            return self._local.execute(a, is_real, is_forward, factor)
        length = a.shape[-1]
        if not is_real:
            rows = complex_rows(rows_of(a, -1, length, complex), -1 if is_forward else 1)
        elif is_forward:
            rows = real_rows(rows_of(a, -1, length, float))
        else:
            rows = to_real_rows(rows_of(a, -1, length // 2 + 1, complex), length)
        return back(_scaled(rows, factor), a, -1)

    def _complex(
        self, local: Any, sign: int, a: _Array, factor: Any, axes: Any, out: _Array
    ) -> Any:
        axis, real = axes[0][0], _precision(a, out)
        if real is None or not _some(a, axis) or not _fits(out, np.result_type(real, 1j)):
            return local(a, factor, axes=axes, out=out)
        length = out.shape[axis]
        kind = np.result_type(real, a.dtype) if a.dtype.kind == "c" else real
        rows = whole_rows(rows_of(a, axis, length, kind), sign)
        return _put(rows, factor, a, axis, out)

    def _forward(self, local: Any, odd: int, a: _Array, factor: Any, axes: Any, out: _Array) -> Any:
        axis, real = axes[0][0], _precision(a, out)
        if (
            real is None
            or a.dtype.kind == "c"
            or not _some(a, axis)
            or not _fits(out, np.result_type(real, 1j))
        ):
            return local(a, factor, axes=axes, out=out)
        length = 2 * (out.shape[axis] - 1) + odd
        return _put(real_rows(rows_of(a, axis, length, real)), factor, a, axis, out)


def _precision(a: _Array, out: Any) -> np.dtype[Any] | None:
    """That of `precision`, or that of a result with more bits."""
    real = precision(a)
    if real is None or not isinstance(out, np.ndarray) or out.dtype.kind not in "fc":
        return real
    wide = np.promote_types(real, out.real.dtype)
    return None if wide.char == "g" else wide


def _some(a: _Array, axis: int) -> bool:
    """Whether there are rows; a row itself can be all padding."""
    return math.prod(np.moveaxis(a, axis, -1).shape[:-1]) > 0


def _fits(out: Any, kind: Any) -> bool:
    """Whether results go into `out`; if not, NumPy says why."""
    return isinstance(out, np.ndarray) and np.can_cast(kind, out.dtype, "same_kind")


def _put(rows: _Array, factor: Any, a: _Array, axis: int, out: _Array) -> _Array:
    np.copyto(out, back(_scaled(rows, factor), a, axis), casting="same_kind")
    return out


def _scaled(result: _Array, factor: Any) -> _Array:
    """The numbers of a new array times a real one, each part for itself.

    As complex numbers, infinity times it would have NaN as its imaginary part.
    """
    if factor == 1:
        return result
    parts = np.ascontiguousarray(result).view(result.real.dtype)
    parts *= factor
    return parts.view(result.dtype)


class Pocketfft:
    """What is called as SciPy's `pypocketfft` is."""

    def __init__(self, local: Any) -> None:
        """`local` is SciPy's module, which computes the rest."""
        self._local = local

    def __getattr__(self, name: str) -> Any:
        """SciPy's own function."""
        return getattr(self._local, name)

    def c2c(self, a: _Array, axes: Any, forward: bool, norm: int, out: Any, workers: int) -> Any:
        """Complex transforms of complex or real numbers."""
        real = precision(a)
        if real is None or not _axes_fit(a, axes):
            return self._local.c2c(a, axes, forward, norm, out, workers)
        result, sign = a, -1 if forward else 1
        for axis in axes:
            kind = np.result_type(real, 1j) if result.dtype.kind == "c" else real
            rows = rows_of(result, axis, a.shape[axis], kind)
            result = back(whole_rows(rows, sign), result, axis)
        return _finished(result, _factor([a.shape[axis] for axis in axes], norm), out)

    def r2c(self, a: _Array, axes: Any, forward: bool, norm: int, out: Any, workers: int) -> Any:
        """The first half, along the last of the axes, of transforms of real numbers."""
        real = precision(a)
        if real is None or a.dtype.kind == "c" or not _axes_fit(a, axes):
            return self._local.r2c(a, axes, forward, norm, out, workers)
        *others, last = axes
        result = back(real_rows(rows_of(a, last, a.shape[last], real)), a, last)
        if not forward:
            result = result.conj()
        for axis in others:
            rows = rows_of(result, axis, a.shape[axis], result.dtype)
            result = back(complex_rows(rows, -1 if forward else 1), result, axis)
        return _finished(result, _factor([a.shape[axis] for axis in axes], norm), out)

    def c2r(
        self, a: _Array, axes: Any, length: int, forward: bool, norm: int, out: Any, workers: int
    ) -> Any:
        """Real results, `length` of them along the last of the axes, of half of a transform."""
        real = precision(a)
        fits = length > 0 and _axes_fit(a, axes) and a.shape[axes[-1]] == length // 2 + 1
        if real is None or a.dtype.kind != "c" or not fits:
            return self._local.c2r(a, axes, length, forward, norm, out, workers)
        *others, last = axes
        result, kind = a, np.result_type(real, 1j)
        for axis in others:
            rows = rows_of(result, axis, a.shape[axis], kind)
            result = back(complex_rows(rows, -1 if forward else 1), result, axis)
        rows = rows_of(result, last, length // 2 + 1, kind)
        if forward:
            np.conjugate(rows, out=rows)
        result = back(to_real_rows(rows, length), result, last)
        lengths = [a.shape[axis] for axis in others] + [length]
        return _finished(result, _factor(lengths, norm), out)


def _axes_fit(a: _Array, axes: Sequence[int]) -> bool:
    """Whether there are numbers and each axis is one of the array."""
    return a.size > 0 and len(axes) > 0 and all(-a.ndim <= axis < a.ndim for axis in axes)


def _factor(lengths: Sequence[int], norm: int) -> float:
    """SciPy's code for a scale: 0 is none, 1 is the root and 2 the whole number of elements."""
    number = math.prod(lengths)
    return (1.0, 1 / math.sqrt(number), 1 / number)[norm]


def _finished(result: _Array, factor: float, out: Any) -> Any:
    result = _scaled(result, factor)
    if out is None:
        return np.ascontiguousarray(result)
    np.copyto(out, result)
    return out
