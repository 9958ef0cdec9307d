"""`numpy.linalg`, computed on a server.

from farcall import linalg
linalg.use("farcall://host:3717")  # without this: the server of the environment
x = linalg.solve(a, b)

The functions are NumPy's own, with a server in place of LAPACK: signatures, checks, types, results
and errors are those of the installed NumPy. The computation uses double precision for integers and
every precision, and rounds the result to the precision of the input. A stack of matrices is one
call. `norm`, `matrix_power`, `multi_dot` and similar functions, which take less time than a call or
are only products, run on this machine.

The server must serve the interface file `libraries/linalg.idl`.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from ._compute import use, using
from ._layer import copied
from ._stacks import Stacks

if TYPE_CHECKING:
    from numpy.linalg import (
        LinAlgError,
        cholesky,
        cond,
        det,
        eig,
        eigh,
        eigvals,
        eigvalsh,
        inv,
        lstsq,
        matrix_power,
        matrix_rank,
        multi_dot,
        norm,
        pinv,
        qr,
        slogdet,
        solve,
        svd,
        svdvals,
        tensorinv,
        tensorsolve,
    )
    from numpy.linalg._linalg import EighResult, EigResult, QRResult, SlogdetResult, SVDResult

__all__ = [
    "EigResult",
    "EighResult",
    "LinAlgError",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "cond",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "use",
    "using",
]

# These are NumPy's own; old versions of NumPy lack some of them.
_HERE = frozenset(
    ("LinAlgError", "cross", "diagonal", "matmul", "matrix_norm", "matrix_power")
    + ("matrix_transpose", "multi_dot", "norm", "outer", "tensordot", "trace", "vecdot")
    + ("vector_norm",)
)

_numpys: Any = getattr(np.linalg, "_linalg", None) or np.linalg.linalg  # type: ignore[attr-defined]
_copied = copied(_numpys, {"_umath_linalg": Stacks(_numpys._umath_linalg)}, __name__)


def _svdvals(x: Any, /) -> Any:
    """The function that NumPy 1 lacks: singular values, descending."""
    return _copied.svd(x, compute_uv=False)


vars(_copied).setdefault("svdvals", _svdvals)


def __dir__() -> list[str]:
    """The functions and those of NumPy, for those who complete a name."""
    here = (name for name in _HERE if hasattr(np.linalg, name))
    return sorted({*__all__, *here})


def __getattr__(name: str) -> Any:
    """The function with a server under it, or NumPy's own."""
    if name in _HERE:
        return getattr(np.linalg, name)
    if name in __all__ and hasattr(_copied, name):
        return getattr(_copied, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
