"""`numpy.fft`, computed on a server.

from farcall import fft
fft.use("farcall://host:3717")  # without this: the server of the environment
y = fft.rfft(x)

The functions are NumPy's own, with a server in place of its compiled transforms: signatures,
checks, types, results and errors are those of the installed NumPy. All transforms of an array along
an axis are one call. Real input travels as real numbers, and only half of the coefficients comes
back, for every function. `fftfreq`, `fftshift` and similar functions, and extended precision, are
computed on this machine.

The server must serve FFTW with the interface file `libraries/fft.idl`.
"""

from typing import TYPE_CHECKING, Any

import numpy.fft._pocketfft as _numpys
from numpy.fft import fftfreq, fftshift, ifftshift, rfftfreq

from ._compute import use, using
from ._layer import copied
from ._transforms import Transforms

if TYPE_CHECKING:
    from numpy.fft import (
        fft,
        fft2,
        fftn,
        hfft,
        ifft,
        ifft2,
        ifftn,
        ihfft,
        irfft,
        irfft2,
        irfftn,
        rfft,
        rfft2,
        rfftn,
    )

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
    "use",
    "using",
]

# The name of the compiled functions in NumPy 2, and in NumPy 1.
_compiled = "pfu" if hasattr(_numpys, "pfu") else "pfi"
_copied = copied(_numpys, {_compiled: Transforms(getattr(_numpys, _compiled))}, __name__)


def __dir__() -> list[str]:
    """The functions, for those who complete a name."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """The function with a server under it."""
    if name in __all__:
        return getattr(_copied, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
