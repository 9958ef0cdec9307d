"""Let a server compute the LAPACK and BLAS calls of NumPy and SciPy that pay.

import farcall.offload
farcall.offload.enable("farcall://host:3717")
import numpy as np

x = np.linalg.solve(a, b)  # at the server, if it ends sooner there

`farcall offload -- python3 script.py` does the same for a script that stays as it is.
"""

import ctypes
import importlib.metadata
import os
import pathlib
import sys
from collections.abc import Iterable

from ._errors import Error

__all__ = ["enable"]

_LIBRARY = "libfarcall_lapack.so"
_enabled: ctypes.CDLL | None = None


def enable(
    server: str | None = None,
    *,
    only: str | Iterable[str] | None = None,
    always: bool = False,
    verify: bool = False,
    stats: bool = False,
) -> None:
    """From now on, calls of NumPy and SciPy go to a server if they end sooner there.

    Call it before anything imports NumPy, because NumPy chooses its LAPACK when it is imported.
    Calls that do not pay, or fail, are computed here as ever.

    server: its address; by default the one that the environment names.
    only: the routines or modules that may go, such as "dgesv,dsyevd" or ["lapack"].
    always: send every call that the server can compute, of any size.
    verify: compute each remote call here, too, and compare the results in the statistics.
    stats: print what happened to the calls on standard error when the program ends.
    """
    global _enabled  # noqa: PLW0603
    if _enabled is not None:
        raise Error("farcall.offload.enable: it is enabled already")
    if "numpy" in sys.modules:
        raise Error(
            "farcall.offload.enable: NumPy is imported and has chosen its LAPACK; call this "
            "first, or start the script with `farcall offload -- python3`"
        )
    if not sys.platform.startswith("linux"):
        raise Error("farcall.offload.enable: this works on Linux only")
    names = only if only is None or isinstance(only, str) else ",".join(only)
    settings = {
        "FARCALL_OFFLOAD": "always" if always else "auto",
        "FARCALL_OFFLOAD_ONLY": names or "",
        "FARCALL_OFFLOAD_VERIFY": str(int(verify)),
        "FARCALL_OFFLOAD_STATS": str(int(stats)),
    }
    if server is not None:
        settings["FARCALL_SERVER"] = server
    library = _library()
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        _enabled = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError as error:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        raise Error(f"farcall.offload.enable: {error}") from error


def _library() -> pathlib.Path:
    """The drop-in library: the one that the environment names, or that of this package."""
    named = os.environ.get("FARCALL_OFFLOAD_DROPIN")
    if named:
        return pathlib.Path(named)
    try:
        files = importlib.metadata.files("farcall") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == _LIBRARY:
            return pathlib.Path(str(file.locate())).resolve()
    raise Error(
        f"farcall.offload.enable: this installation has no {_LIBRARY}; make one with `farcall "
        "offload build` and name it in FARCALL_OFFLOAD_DROPIN"
    )
