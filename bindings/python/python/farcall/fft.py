"""`numpy.fft`, computed on a server.

from farcall import fft
fft.use("farcall://host:3717")  # without this: the server of the environment
y = fft.rfft(x)

Signatures, results, types and errors are those of NumPy. All transforms of an array along an axis
are one call. Real input travels as real numbers, and only half of the coefficients comes back, for
every function. `fftfreq`, `fftshift` and similar functions are NumPy's own and run on this machine.
There is no extended precision.

The server must serve FFTW with the interface file `libraries/fft.idl`.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.fft import fftfreq, fftshift, ifftshift, rfftfreq

from ._compute import call, use, using

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "irfft",
    "rfft",
    "rfftfreq",
    "use",
    "using",
]

_Array = npt.NDArray[Any]
_Norm: TypeAlias = Literal["backward", "ortho", "forward"] | None

_SCALED_DIRECTION = {None: 1, "backward": 1, "ortho": 0, "forward": -1}


def fft(
    a: npt.ArrayLike,
    n: SupportsIndex | None = None,
    axis: int = -1,
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The Fourier transform along an axis, of length `n`: input is cropped, or padded with 0."""
    return _complex(np.asarray(a), n, axis, norm, out, sign=-1)


def ifft(
    a: npt.ArrayLike,
    n: SupportsIndex | None = None,
    axis: int = -1,
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The inverse of `fft`."""
    return _complex(np.asarray(a), n, axis, norm, out, sign=1)


def rfft(
    a: npt.ArrayLike,
    n: SupportsIndex | None = None,
    axis: int = -1,
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The n / 2 + 1 first coefficients of the transform of real input."""
    array = np.asarray(a)
    length = array.shape[axis] if n is None else operator.index(n)
    scale = _scale(length, norm, -1)
    _check(array)
    if array.dtype.kind == "c":
        raise TypeError(f"rfft: the input must be real, but it is {array.dtype.name}")
    rows = _rows(array, axis, length, _real(array))
    return _finish(_forward(rows), scale, array, axis, np.result_type(array, 1j), out)


def irfft(
    a: npt.ArrayLike,
    n: SupportsIndex | None = None,
    axis: int = -1,
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The inverse of `rfft`: `n` real values, by default 2 (m - 1) for m coefficients."""
    array = np.asarray(a)
    length = 2 * (array.shape[axis] - 1) if n is None else operator.index(n)
    scale = _scale(length, norm, 1)
    _check(array)
    real = _real(array)
    rows = _rows(array, axis, length // 2 + 1, np.result_type(real, 1j))
    # For a real result: the imaginary parts that these coefficients cannot have are left out.
    rows.imag[:, 0] = 0
    if length % 2 == 0:
        rows.imag[:, -1] = 0
    result = np.empty((len(rows), length), real)
    if result.size:
        _call("ifft", real, n=length, howmany=len(rows), x=rows, y=result)
    return _finish(result, scale, array, axis, np.result_type(array.real.dtype, 1.0), out)


def fft2(
    a: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The transform along two axes, of the lengths `s`; -1 stands for a whole axis."""
    return _several(fft, np.asarray(a), s, axes, norm, out)


def ifft2(
    a: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The inverse of `fft2`."""
    return _several(ifft, np.asarray(a), s, axes, norm, out)


def fftn(
    a: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The transform along several axes, by default all."""
    return _several(fft, np.asarray(a), s, axes, norm, out)


def ifftn(
    a: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: _Norm = None,
    out: _Array | None = None,
) -> _Array:
    """The inverse of `fftn`."""
    return _several(ifft, np.asarray(a), s, axes, norm, out)


def _complex(
    array: _Array,
    n: SupportsIndex | None,
    axis: int,
    norm: _Norm,
    out: _Array | None,
    sign: int,
) -> _Array:
    """All coefficients along an axis."""
    length = array.shape[axis] if n is None else operator.index(n)
    scale = _scale(length, norm, sign)
    _check(array)
    real = _real(array)
    if array.dtype.kind == "c":
        rows = _rows(array, axis, length, np.result_type(real, 1j))
        result = np.empty_like(rows)
        if rows.size:
            _call("cfft", real, n=length, howmany=len(rows), sign=sign, x=rows, y=result)
    else:
        half = _forward(_rows(array, axis, length, real))
        if sign > 0:
            np.conjugate(half, out=half)
        mirrored = half[:, (length - 1) // 2 : 0 : -1].conj()
        result = np.concatenate([half, mirrored], axis=1)
    return _finish(result, scale, array, axis, np.result_type(array, 1j), out)


def _forward(rows: _Array) -> _Array:
    """The first coefficients of real rows."""
    howmany, length = rows.shape
    result = np.empty((howmany, length // 2 + 1), np.result_type(rows, 1j))
    if howmany:
        _call("fft", rows.dtype, n=length, howmany=howmany, x=rows, y=result)
    return result


def _call(name: str, real: np.dtype[Any], **arguments: Any) -> None:
    """Calls `fft` of reals, `ifft` to reals or the complex `cfft` in the precision of `real`."""
    single = real == np.float32
    complex_name = "cfft" if single else "zfft"
    name = complex_name if name == "cfft" else ("s" if single else "d") + name
    info = call(f"fft/{name}", **arguments).info
    if info != 0:
        raise RuntimeError(f"fft/{name} failed: info is {info}")


def _scale(length: int, norm: _Norm, sign: int) -> float:
    """The factor of the result; `sign` is -1 forward and 1 backward."""
    if length < 1:
        raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
    if norm not in _SCALED_DIRECTION:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    direction = _SCALED_DIRECTION[norm]
    if direction == 0:
        return float(1 / np.sqrt(length))
    return 1 / length if direction == sign else 1.0


def _check(array: _Array) -> None:
    if array.dtype.kind not in "biufc" or array.dtype.char in "gG":
        raise TypeError(f"array type {array.dtype.name} is unsupported in fft")


def _real(array: _Array) -> np.dtype[Any]:
    """The real type of the computation: single precision for half and single."""
    return np.promote_types(np.result_type(array.real.dtype, 1.0), np.float32)


def _rows(array: _Array, axis: int, length: int, kind: np.dtype[Any]) -> _Array:
    """A new matrix whose rows are the array along the axis, cropped or padded."""
    moved = np.moveaxis(array, axis, -1)
    taken = min(length, moved.shape[-1])
    rows = np.zeros(moved.shape[:-1] + (length,), kind)
    rows[..., :taken] = moved[..., :taken]
    return rows.reshape(int(np.prod(moved.shape[:-1])), length)


def _finish(
    rows: _Array,
    scale: float,
    array: _Array,
    axis: int,
    kind: np.dtype[Any],
    out: _Array | None,
) -> _Array:
    """Scaled rows in the shape of the array, or in `out` if it is given."""
    if scale != 1:
        rows *= scale
    shape = np.moveaxis(array, axis, -1).shape[:-1] + rows.shape[1:]
    result = np.moveaxis(rows.reshape(shape), -1, axis)
    if out is None:
        return np.asarray(result, kind, order="C")
    if out.shape != result.shape:
        raise ValueError("output array has wrong shape.")
    np.copyto(out, result, casting="same_kind")
    return out


def _several(
    transform: Callable[..., _Array],
    array: _Array,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: _Norm,
    out: _Array | None,
) -> _Array:
    """One axis after the other, the last first, as NumPy does."""
    if axes is None:
        axes = range(-array.ndim if s is None else -len(s), 0)
    lengths = [-1] * len(axes) if s is None else list(s)
    if len(lengths) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    lengths = [
        array.shape[axis] if length == -1 else length
        for length, axis in zip(lengths, axes, strict=True)
    ]
    for length, axis in reversed(list(zip(lengths, axes, strict=True))):
        array = transform(array, n=length, axis=axis, norm=norm)
    if out is None:
        return array
    if out.shape != array.shape:
        raise ValueError("output array has wrong shape.")
    np.copyto(out, array, casting="same_kind")
    return out
