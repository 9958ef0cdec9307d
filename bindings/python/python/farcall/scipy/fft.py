"""`scipy.fft`, computed on a server.

The functions are SciPy's own, with a server in place of its compiled transforms: signatures,
checks, results and errors are those of the installed SciPy. Extended precision and all other
functions of `scipy.fft` are computed on this machine. The server ignores `workers`.
"""

import functools
import importlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._compute import use, using
from .._layer import copied
from .._transforms import Pocketfft

if TYPE_CHECKING:
    from scipy.fft import (
        fft,
        fft2,
        fftfreq,
        fftn,
        fftshift,
        hfft,
        hfft2,
        hfftn,
        ifft,
        ifft2,
        ifftn,
        ifftshift,
        ihfft,
        ihfft2,
        ihfftn,
        irfft,
        irfft2,
        irfftn,
        rfft,
        rfft2,
        rfftfreq,
        rfftn,
    )

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "hfft2",
    "hfftn",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "ihfft2",
    "ihfftn",
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


def _functions() -> dict[str, Any]:
    """SciPy's functions, from the compiled ones up to those that accept arrays of any library."""
    compiled = importlib.import_module("scipy.fft._pocketfft.basic")
    basic = copied(compiled, {"pfft": Pocketfft(compiled.pfft)}, __name__)
    package = vars(importlib.import_module("scipy.fft._pocketfft"))
    pocketfft = types.SimpleNamespace(
        **{name: getattr(basic, name, value) for name, value in package.items()}
    )
    try:
        backend = importlib.import_module("scipy.fft._basic_backend")
    except ImportError:  # SciPy before 1.12, which accepts arrays of NumPy only
        functions = vars(pocketfft)
    else:
        functions = vars(copied(backend, {"_pocketfft": pocketfft}, __name__))
    return {name: _after_backends(name, functions[name]) for name in __all__ if name in functions}


def _after_backends(name: str, ours: Callable[..., Any]) -> Callable[..., Any]:
    """The function, unless a backend of the program (`scipy.fft.set_backend`) takes the call."""
    module: Any = importlib.import_module("scipy.fft")
    theirs, skip_backend = getattr(module, name), module.skip_backend
    none_wants_it = importlib.import_module("scipy._lib.uarray").BackendNotImplementedError

    @functools.wraps(ours)
    def function(*arguments: Any, **options: Any) -> Any:
        try:
            with skip_backend("scipy"):
                return theirs(*arguments, **options)
        except none_wants_it:
            return ours(*arguments, **options)

    function.__module__, function.__qualname__ = __name__, name
    function.__doc__ = theirs.__doc__
    return function


_copied = _functions()


def __dir__() -> list[str]:
    """The functions and those of SciPy, for those who complete a name."""
    return sorted({*__all__, *importlib.import_module("scipy.fft").__all__})


def __getattr__(name: str) -> Any:
    """The function with a server under it, or SciPy's own."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _copied:
        return _copied[name]
    return getattr(importlib.import_module("scipy.fft"), name)
