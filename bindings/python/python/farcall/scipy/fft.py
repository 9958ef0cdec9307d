"""`scipy.fft`, computed on a server.

Signatures and results are those of SciPy, for single and double precision. `overwrite_x` may have
no effect, and the server ignores `workers`. All other functions of `scipy.fft` are SciPy's own and
run on this machine.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.fft import fftfreq, fftshift, ifftshift, rfftfreq

from .. import fft as _fft
from .._compute import use, using

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


def __getattr__(name: str) -> Any:
    """SciPy's own function."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("scipy.fft"), name)


def _without_plan(plan: Any) -> None:
    if plan is not None:
        raise ValueError("a plan cannot be passed to a server; leave it out")


def fft(
    x: npt.ArrayLike,
    n: int | None = None,
    axis: int = -1,
    norm: Any = None,
    overwrite_x: bool = False,  # noqa: ARG001
    workers: int | None = None,  # noqa: ARG001
    *,
    plan: Any = None,
) -> _Array:
    """The Fourier transform along an axis, of length `n`."""
    _without_plan(plan)
    return _fft.fft(x, n, axis, norm)


def ifft(
    x: npt.ArrayLike,
    n: int | None = None,
    axis: int = -1,
    norm: Any = None,
    overwrite_x: bool = False,  # noqa: ARG001
    workers: int | None = None,  # noqa: ARG001
    *,
    plan: Any = None,
) -> _Array:
    """The inverse of `fft`."""
    _without_plan(plan)
    return _fft.ifft(x, n, axis, norm)


def rfft(
    x: npt.ArrayLike,
    n: int | None = None,
    axis: int = -1,
    norm: Any = None,
    overwrite_x: bool = False,  # noqa: ARG001
    workers: int | None = None,  # noqa: ARG001
    *,
    plan: Any = None,
) -> _Array:
    """The first half of the coefficients, which determines the rest for real input."""
    _without_plan(plan)
    if np.iscomplexobj(x):
        raise TypeError("x must be a real sequence")
    return _fft.rfft(x, n, axis, norm)


def irfft(
    x: npt.ArrayLike,
    n: int | None = None,
    axis: int = -1,
    norm: Any = None,
    overwrite_x: bool = False,  # noqa: ARG001
    workers: int | None = None,  # noqa: ARG001
    *,
    plan: Any = None,
) -> _Array:
    """The inverse of `rfft`."""
    _without_plan(plan)
    return _fft.irfft(x, n, axis, norm)


def fft2(
    x: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: Any = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    plan: Any = None,
) -> _Array:
    """The Fourier transform along two axes."""
    return fftn(x, s, axes, norm, overwrite_x, workers, plan=plan)


def ifft2(
    x: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: Any = None,
    overwrite_x: bool = False,
    workers: int | None = None,
    *,
    plan: Any = None,
) -> _Array:
    """The inverse of `fft2`."""
    return ifftn(x, s, axes, norm, overwrite_x, workers, plan=plan)


def fftn(
    x: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Any = None,
    overwrite_x: bool = False,  # noqa: ARG001
    workers: int | None = None,  # noqa: ARG001
    *,
    plan: Any = None,
) -> _Array:
    """The Fourier transform along several axes, all if none are named."""
    _without_plan(plan)
    x = np.asarray(x)
    return _fft.fftn(x, s, _axes(x, s, axes), norm)


def ifftn(
    x: npt.ArrayLike,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: Any = None,
    overwrite_x: bool = False,  # noqa: ARG001
    workers: int | None = None,  # noqa: ARG001
    *,
    plan: Any = None,
) -> _Array:
    """The inverse of `fftn`."""
    _without_plan(plan)
    x = np.asarray(x)
    return _fft.ifftn(x, s, _axes(x, s, axes), norm)


def _axes(x: _Array, s: Sequence[int] | None, axes: Sequence[int] | None) -> Sequence[int] | None:
    """The axes: SciPy uses the last ones if lengths are given and axes are not."""
    if axes is None and s is not None:
        return list(range(x.ndim - len(s), x.ndim))
    return axes
