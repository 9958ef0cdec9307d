"""Let a server compute the LAPACK and BLAS calls of NumPy and SciPy that pay.

import farcall.offload
farcall.offload.enable("farcall://host:3717")
import numpy as np

x = np.linalg.solve(a, b)  # at the server, if it ends sooner there

`farcall offload -- python3 script.py` does the same for a script that stays as it is.

threadpoolctl reports the server beside the libraries of the process, after `enable`, or after this
module is imported in a program that `farcall offload` started.
"""

import ctypes
import difflib
import importlib.metadata
import json
import os
import pathlib
import re
import sys
from collections.abc import Iterable
from typing import Any

from ._errors import ArgumentError, Error
from ._native import connect

__all__ = ["enable"]

_LIBRARY = "libfarcall_lapack.so"
# What the drop-in library loads.
_CLIENT = "libfarcall.so.1"
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
    if server is not None:
        _check(server)
    names = _names(only)
    settings = {
        "FARCALL_OFFLOAD": "always" if always else "auto",
        "FARCALL_OFFLOAD_ONLY": names,
        "FARCALL_OFFLOAD_VERIFY": str(int(verify)),
        "FARCALL_OFFLOAD_STATS": str(int(stats)),
    }
    if server is not None:
        settings["FARCALL_SERVER"] = server
    library = _library()
    _check_names(names, library)
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        if library.is_file():
            _load_client(library)
        _enabled = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    except OSError as error:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        raise Error(f"farcall.offload.enable: {error}") from error
    _register()


def _names(only: str | Iterable[str] | None) -> str:
    """The routines and modules that may go, with commas between them; empty if all may go."""
    if only is None or isinstance(only, str):
        return only or ""
    names = ",".join(only)
    if not names:
        raise ArgumentError(
            "farcall.offload.enable: only: the list is empty, so that no call may go; leave `only` "
            "out, and all may go"
        )
    return names


def _check(servers: str) -> None:
    """Refuses what is no address. The program would go on without a word, and without a server."""
    for server in servers.split(","):
        if server.startswith("ssh:"):
            continue
        try:
            connect(server, connect_timeout=0.01)
        except ArgumentError:
            raise
        except Error:
            pass  # It may come later.


def _check_names(only: str, library: pathlib.Path) -> None:
    """Refuses what the drop-in library does not have: nothing would go, without a word."""
    wanted = {name.strip().lower() for name in only.split(",")} - {""}
    if not wanted or not library.is_file():
        return
    # The texts of its interfaces.
    pattern = rb'Calls "[^"]{1,32}" (\w{1,64})\(|Module (\w{1,64});'
    found = re.findall(pattern, library.read_bytes())
    known = {name.decode().lower() for pair in found for name in pair}
    for name in sorted(wanted - known):
        close = difflib.get_close_matches(name, sorted(known), 1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        raise ArgumentError(
            f"farcall.offload.enable: only: the drop-in library has no routine or module "
            f"`{name}`{hint}"
        )


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


def _load_client(library: pathlib.Path) -> None:
    """Loads the client library from where the drop-in library looks for it."""
    near = [folder / _CLIENT for folder in (library.parent, library.parent.parent)]
    found = next((str(file) for file in near if file.is_file()), _CLIENT)
    try:
        ctypes.CDLL(found)
    except OSError as error:
        remedy = f"put {_CLIENT} beside {library} or into the folder above"
        raise OSError(f"{error}; {remedy}") from error


def _register() -> None:
    """Tells threadpoolctl, if it is installed, how to ask the library about its server."""
    try:
        import threadpoolctl  # noqa: PLC0415
    except ImportError:
        return

    class Controller(threadpoolctl.LibController):  # type: ignore[misc]
        """The server that computes the calls of this process."""

        user_api = "blas"
        internal_api = "farcall"
        filename_prefixes = ("libfarcall.",)
        check_symbols = ("farcall_offload_status",)

        def set_additional_attributes(self) -> None:
            self.server = os.environ.get("FARCALL_SERVER")

        def get_num_threads(self) -> int | None:
            """The processor elements of the server, or of all servers behind a metaserver."""
            status = self._status()
            servers = status.get("servers", [status])
            elements = [server.get("pes") for server in servers]
            return sum(filter(None, elements)) or None

        def set_num_threads(self, num_threads: int) -> None:
            """The server decides how many processor elements a call gets."""

        def get_version(self) -> str | None:
            try:
                return importlib.metadata.version("farcall")
            except importlib.metadata.PackageNotFoundError:
                return None

        def _status(self) -> dict[str, Any]:
            text = ctypes.create_string_buffer(1 << 20)
            ask = self.dynlib.farcall_offload_status
            ask.argtypes, ask.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_size_t
            length = ask(text, len(text))
            return dict(json.loads(text.raw[:length])) if length else {}

    threadpoolctl.register(Controller)


if "libfarcall_" in os.environ.get("LD_PRELOAD", ""):
    _register()
