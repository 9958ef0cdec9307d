"""`scipy.linalg`, computed on a server.

The functions are SciPy's own, with a server in place of LAPACK: signatures, checks, warnings,
results and errors are those of the installed SciPy. `solve`, `inv`, `det` and `lu` of a stack are
one call. `solve` and `inv` of matrices that are banded, triangular or diagonal, pivoted `qr`,
generalised eigenvalue problems, other LAPACK drivers than the default and all other functions of
`scipy.linalg` run on this machine.

The server must serve the interface files `libraries/linalg.idl` and `libraries/lapack.idl`.
"""

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._compute import use, using
from .._layer import copied
from ._lapack import (
    Batched,
    determinants,
    determinants_by_factors,
    factors,
    lapack_functions,
    whole_stack,
)

if TYPE_CHECKING:
    from scipy.linalg import (
        LinAlgError,
        cho_factor,
        cho_solve,
        cholesky,
        det,
        eig,
        eigh,
        eigvals,
        eigvalsh,
        inv,
        lstsq,
        lu,
        lu_factor,
        lu_solve,
        pinv,
        qr,
        solve,
        svd,
        svdvals,
    )

__all__ = [
    "LinAlgError",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_solve",
    "pinv",
    "qr",
    "solve",
    "svd",
    "svdvals",
    "use",
    "using",
]


_MODULES = ("_decomp", "_decomp_svd", "_decomp_cholesky", "_decomp_lu", "_decomp_qr", "_basic")

_COMPILED: dict[str, Callable[[Any], Any]] = {
    "get_lapack_funcs": lapack_functions,
    "find_det_from_lu": lambda _: determinants,
    "lu_dispatcher": lambda _: factors,
    "_batched_linalg": Batched,
    "product": lambda _: whole_stack,
}


def _functions() -> dict[str, Any]:
    """SciPy's functions with a server under them."""
    layers: dict[str, Any] = {}
    for name in _MODULES:
        module = importlib.import_module(f"scipy.linalg.{name}")
        replaced = {
            key: make(getattr(module, key))
            for key, make in _COMPILED.items()
            if hasattr(module, key)
        }
        replaced |= {key: layer for key, layer in layers.items() if hasattr(module, key)}
        layers[name] = copied(module, replaced, __name__)
    found = {name: value for layer in layers.values() for name, value in vars(layer).items()}
    found["det"] = _either_det(
        found["det"],
        copied(module, replaced | {"find_det_from_lu": determinants_by_factors}, __name__).det,
    )
    return {name: found[name] for name in __all__ if name in found}


def _either_det(det: Callable[..., Any], in_place: Callable[..., Any]) -> Callable[..., Any]:
    """Without `overwrite_a`, the factors need not come back."""

    @functools.wraps(det)
    def either(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
        return (in_place if overwrite_a else det)(a, overwrite_a, check_finite)

    return either


_copied = _functions()


def __dir__() -> list[str]:
    """The functions and those of SciPy, for those who complete a name."""
    return sorted({*__all__, *importlib.import_module("scipy.linalg").__all__})


def __getattr__(name: str) -> Any:
    """The function with a server under it, or SciPy's own."""
    if name in _copied:
        return _copied[name]
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("scipy.linalg"), name)
