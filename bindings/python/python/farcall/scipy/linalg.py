"""`scipy.linalg`, computed on a server.

Signatures and results are those of SciPy. As in `farcall.linalg`, every computation uses double
precision. `overwrite_a` and `overwrite_b` may have no effect, and nothing checks whether a matrix
is ill-conditioned. Pivoted `qr`, generalised eigenvalue problems, other LAPACK drivers than the
default and all other functions of `scipy.linalg` are SciPy's own and run on this machine.
"""

import importlib
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from numpy.linalg import LinAlgError

from .. import linalg as _np
from .._compute import calls, use, using

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

_Array = npt.NDArray[Any]

_GENERAL = (None, "gen", "general", "banded")
_SYMMETRIC = ("sym", "symmetric")
_HERMITIAN = ("her", "hermitian")
_POSITIVE = ("pos", "positive definite")


def __getattr__(name: str) -> Any:
    """SciPy's own function."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("scipy.linalg"), name)


def _checked(a: npt.ArrayLike, check_finite: bool) -> _Array:
    array = np.asarray(a)
    if array.dtype.kind == "O":
        raise ValueError("object arrays are not supported")
    if array.dtype.kind in "SU":
        array = array.astype(float)  # or the error that says why not
    if check_finite and array.dtype.kind in "fc" and not np.isfinite(array).all():
        raise ValueError("array must not contain infs or NaNs")
    return array


def _square(a: _Array) -> int:
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"expected a square matrix, got shape {a.shape}")
    return int(a.shape[-1])


def _matrix(a: _Array) -> tuple[int, int]:
    if a.ndim != 2:
        raise ValueError(f"expected a matrix, got shape {a.shape}")
    return a.shape[0], a.shape[1]


def _here(function: str) -> Any:
    """SciPy's own function, for options that no server computes."""
    return getattr(importlib.import_module("scipy.linalg"), function)


def _structured(a: _Array, assume_a: str | None, lower: bool) -> _Array:
    """The whole matrix of which SciPy reads a part."""
    if assume_a in _GENERAL:
        return a
    if assume_a in _SYMMETRIC or assume_a in _HERMITIAN or assume_a in _POSITIVE:
        half = np.tril(a) if lower else np.triu(a)
        other = np.swapaxes(np.tril(a, -1) if lower else np.triu(a, 1), -1, -2)
        return half + (other if assume_a in _SYMMETRIC else other.conj())
    match assume_a:
        case "upper triangular":
            return np.asarray(np.triu(a))
        case "lower triangular":
            return np.asarray(np.tril(a))
        case "diagonal":
            return np.asarray(np.triu(np.tril(a)))
        case "tridiagonal":
            return np.asarray(np.triu(np.tril(a, 1), -1))
    raise ValueError(f"{assume_a} is not a recognized matrix structure")


def solve(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,  # noqa: ARG001
    overwrite_b: bool = False,  # noqa: ARG001
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> _Array:
    """The solution x of a x = b; of the transpose of a with `transposed`."""
    a, b = _checked(a, check_finite), _checked(b, check_finite)
    n = _square(a)
    if b.ndim == 0 or b.shape[-1 if b.ndim == 1 else -2] != n:
        raise ValueError(f"incompatible shapes: a is {a.shape}, b is {b.shape}")
    if transposed and np.iscomplexobj(a):
        return np.asarray(_here("solve")(a, b, lower, assume_a=assume_a, transposed=True))
    if assume_a in _POSITIVE and a.ndim == 2 and b.ndim <= 2 and b.size and n:
        return _posv(a, b, lower)
    whole = _structured(a, assume_a, lower)
    return _np.solve(np.swapaxes(whole, -1, -2) if transposed else whole, b)


def _posv(a: _Array, b: _Array, lower: bool) -> _Array:
    n, precision = a.shape[0], _np._Precision(a, b)
    right = precision.copy(b.reshape(n, -1))
    (result,) = calls(
        precision.routine("posv"),
        [
            {
                "uplo": "L" if lower else "U",
                "n": n,
                "nrhs": right.shape[1],
                "a": precision.copy(a),
                "lda": n,
                "b": right,
                "ldb": n,
            }
        ],
    )
    _positive(result.info)
    return np.ascontiguousarray(result.b.reshape(b.shape), precision.result)


def _positive(info: int) -> None:
    if info > 0:
        raise LinAlgError(f"{info}-th leading minor of the array is not positive definite")


def inv(
    a: npt.ArrayLike,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
    *,
    assume_a: str | None = None,
    lower: bool = False,
) -> _Array:
    """The inverse of a square matrix."""
    a = _checked(a, check_finite)
    _square(a)
    return _np.inv(_structured(a, assume_a, lower))


def det(
    a: npt.ArrayLike,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
) -> Any:
    """The determinant of a square matrix, in double precision."""
    a = _checked(a, check_finite)
    _square(a)
    return _np.det(a.astype(np.complex128 if np.iscomplexobj(a) else np.float64))


def cholesky(
    a: npt.ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
) -> _Array:
    """The upper factor U of a = U* U, or the lower one; only that triangle of a is read."""
    a = _checked(a, check_finite)
    _square(a)
    if a.ndim > 2:
        return _np.cholesky(a, upper=not lower)
    factor, _ = cho_factor(a, lower, check_finite=False)
    return np.ascontiguousarray(np.tril(factor) if lower else np.triu(factor))


def cho_factor(
    a: npt.ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
) -> tuple[_Array, bool]:
    """The factor for `cho_solve`; the contents of the other triangle have no meaning."""
    a = _checked(a, check_finite)
    n = _square(a)
    _matrix(a)
    precision = _np._Precision(a)
    if n == 0:
        return np.empty(a.shape, precision.result), lower
    job = {"uplo": "L" if lower else "U", "n": n, "a": precision.copy(a), "lda": n}
    (result,) = calls(precision.routine("potrf"), [job])
    _positive(result.info)
    return result.a.astype(precision.result, copy=False), lower


def cho_solve(
    c_and_lower: tuple[npt.ArrayLike, bool],
    b: npt.ArrayLike,
    overwrite_b: bool = False,  # noqa: ARG001
    check_finite: bool = True,
) -> _Array:
    """The solution x of a x = b, from the factor of a."""
    factor, lower = _checked(c_and_lower[0], check_finite), c_and_lower[1]
    b = _checked(b, check_finite)
    n = _square(factor)
    _matrix(factor)
    return _with_factor("potrs", n, factor, b, {"uplo": "L" if lower else "U"})


def _with_factor(
    routine: str, n: int, factor: _Array, b: _Array, options: dict[str, Any]
) -> _Array:
    if b.ndim not in (1, 2) or b.shape[0] != n:
        raise ValueError(f"incompatible shapes: the factor is {factor.shape}, b is {b.shape}")
    precision = _np._Precision(factor, b)
    if not b.size:
        return np.empty(b.shape, precision.result)
    right = precision.copy(b.reshape(n, -1))
    sizes = {"n": n, "nrhs": right.shape[1], "lda": n, "ldb": n}
    job = options | sizes | {"a": precision.copy(factor), "b": right}
    (result,) = calls(precision.routine(routine), [job])
    return np.ascontiguousarray(result.b.reshape(b.shape), precision.result)


def lu_factor(
    a: npt.ArrayLike,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
) -> tuple[_Array, _Array]:
    """The factors L and U in one matrix, and the pivots, for `lu_solve`."""
    a = _checked(a, check_finite)
    m, n = _matrix(a)
    precision = _np._Precision(a)
    if not a.size:
        return np.empty(a.shape, precision.result), np.arange(0, dtype=np.int32)
    job = {"m": m, "n": n, "a": precision.copy(a), "lda": m}
    (result,) = calls(precision.routine("getrf"), [job])
    return result.a.astype(precision.result, copy=False), np.asarray(result.ipiv) - np.int32(1)


def lu_solve(
    lu_and_piv: tuple[npt.ArrayLike, npt.ArrayLike],
    b: npt.ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,  # noqa: ARG001
    check_finite: bool = True,
) -> _Array:
    """The solution x of a x = b from the factors of a; of its transpose with `trans` 1, of the
    conjugate one with 2.
    """
    factors = _checked(lu_and_piv[0], check_finite)
    pivots = np.asarray(lu_and_piv[1], np.int32) + np.int32(1)
    b = _checked(b, check_finite)
    n = _square(factors)
    _matrix(factors)
    return _with_factor("getrs", n, factors, b, {"trans": "NTC"[trans], "ipiv": pivots})


def lu(
    a: npt.ArrayLike,
    permute_l: bool = False,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
    p_indices: bool = False,
) -> tuple[_Array, ...]:
    """P, L and U of a = P L U; P L and U with `permute_l`, P as indices with `p_indices`."""
    a = _checked(a, check_finite)
    m, n = _matrix(a)
    least = min(m, n)
    factors, pivots = lu_factor(a, check_finite=False)
    rows = np.arange(m)
    for row, other in enumerate(pivots):
        rows[[row, other]] = rows[[other, row]]
    lower = np.tril(factors[:, :least], -1) + np.eye(m, least, dtype=factors.dtype)
    upper = np.ascontiguousarray(np.triu(factors[:least]))
    # Row i of L belongs to row rows[i] of a.
    back = np.argsort(rows)
    if permute_l:
        return lower[back], upper
    if p_indices:
        return back, np.ascontiguousarray(lower), upper
    real = factors.real.dtype
    return np.eye(m, dtype=real)[:, back].T.copy(), np.ascontiguousarray(lower), upper


def qr(
    a: npt.ArrayLike,
    overwrite_a: bool = False,  # noqa: ARG001
    lwork: int | None = None,  # noqa: ARG001
    mode: Literal["full", "r", "economic", "raw"] = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """The factors Q and R of a matrix; with "r" R alone, as a tuple of one."""
    if mode not in ("full", "r", "economic", "raw"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic', 'raw']")
    if pivoting or mode == "raw":
        return _here("qr")(a, mode=mode, pivoting=pivoting, check_finite=check_finite)
    a = _checked(a, check_finite)
    if a.ndim < 2:
        raise ValueError(f"expected a matrix, got shape {a.shape}")
    if mode == "r":
        r = _np.qr(a, "complete")[1]
        return (np.asarray(r),)
    q, r = _np.qr(a, "complete" if mode == "full" else "reduced")
    return q, r


def svd(
    a: npt.ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
    lapack_driver: Literal["gesdd", "gesvd"] = "gesdd",
) -> Any:
    """U, the singular values in descending order, and Vh; the values alone without `compute_uv`."""
    if lapack_driver not in ("gesdd", "gesvd"):
        raise ValueError(f'lapack_driver must be "gesdd" or "gesvd", not "{lapack_driver}"')
    if lapack_driver == "gesvd":
        return _here("svd")(
            a, full_matrices, compute_uv, check_finite=check_finite, lapack_driver=lapack_driver
        )
    a = _checked(a, check_finite)
    if a.ndim < 2:
        raise ValueError(f"expected a matrix, got shape {a.shape}")
    result = _np.svd(a, full_matrices, compute_uv)
    return tuple(result) if compute_uv else result


def svdvals(
    a: npt.ArrayLike,
    overwrite_a: bool = False,  # noqa: ARG001
    check_finite: bool = True,
) -> _Array:
    """The singular values in descending order."""
    return np.asarray(svd(a, compute_uv=False, check_finite=check_finite))


def pinv(
    a: npt.ArrayLike,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    return_rank: bool = False,
    check_finite: bool = True,
) -> Any:
    """The pseudo-inverse; singular values up to atol + rtol times the largest count as zero."""
    a = _checked(a, check_finite)
    m, n = _matrix(a)
    u, s, vh = svd(a, full_matrices=False, check_finite=False)
    largest = s.max(initial=0.0)
    absolute = 0.0 if atol is None else atol
    relative = max(m, n) * np.finfo(u.dtype).eps if rtol is None else rtol
    if absolute < 0 or relative < 0:
        raise ValueError("atol and rtol must not be negative")
    rank = int(np.count_nonzero(s > absolute + largest * relative))
    inverse = ((u[:, :rank] / s[:rank]) @ vh[:rank]).conj().T
    return (inverse, rank) if return_rank else inverse


def eig(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    left: bool = False,
    right: bool = True,
    overwrite_a: bool = False,  # noqa: ARG001
    overwrite_b: bool = False,  # noqa: ARG001
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> Any:
    """Eigenvalues, always complex, and the right or left vectors of a square matrix."""
    if b is not None:
        options = {"check_finite": check_finite, "homogeneous_eigvals": homogeneous_eigvals}
        return _here("eig")(a, b, left, right, **options)
    a = _checked(a, check_finite)
    _matrix(a)
    n = _square(a)
    precision = _np._Precision(a)
    if n == 0:
        nothing = np.empty(0, precision.complex)
        values, lefts, rights = nothing, a.astype(precision.result), a.astype(precision.result)
    else:
        values, lefts, rights = _geev(precision, a, left, right)
    if homogeneous_eigvals:
        values = np.vstack([values, np.ones_like(values)])
    vectors = [found for found, wanted in ((lefts, left), (rights, right)) if wanted]
    return (values, *vectors) if vectors else values


def _geev(precision: Any, a: _Array, left: bool, right: bool) -> tuple[_Array, _Array, _Array]:
    n = a.shape[0]
    jobs = {"jobvl": "V" if left else "N", "jobvr": "V" if right else "N"}
    sizes = {"n": n, "lda": n, "ldvl": n, "ldvr": n, "lwork": 66 * n}
    name = precision.routine("geev")
    (result,) = calls(name, [jobs | sizes | {"a": precision.copy(a)}])
    if result.info != 0:
        raise LinAlgError("eig algorithm (geev) did not converge")
    if precision.is_complex:
        values, lefts, rights = result.w, result.vl, result.vr
    else:
        values = result.wr + 1j * result.wi
        lefts, rights = result.vl, result.vr
        if result.wi.any():
            lefts = _np._paired(result.wi, lefts) if left else lefts
            rights = _np._paired(result.wi, rights) if right else rights
    to = precision.complex if np.iscomplexobj(rights) or np.iscomplexobj(lefts) else precision.real
    values = values.astype(precision.complex, copy=False)
    return values, lefts.astype(to, copy=False), rights.astype(to, copy=False)


def eigvals(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    overwrite_a: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> _Array:
    """Eigenvalues of a square matrix, always complex."""
    options = {"check_finite": check_finite, "homogeneous_eigvals": homogeneous_eigvals}
    return np.asarray(eig(a, b, False, False, overwrite_a, **options))


def eigh(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,  # noqa: ARG001
    overwrite_b: bool = False,  # noqa: ARG001
    type: int = 1,  # noqa: A002
    check_finite: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> Any:
    """Eigenvalues, ascending, and vectors of a symmetric or hermitian matrix.

    The server computes all of them; the function returns the subset that was asked for.
    """
    if b is not None:
        return _here("eigh")(
            a,
            b,
            lower=lower,
            eigvals_only=eigvals_only,
            type=type,
            check_finite=check_finite,
            subset_by_index=subset_by_index,
            subset_by_value=subset_by_value,
            driver=driver,
        )
    if subset_by_index is not None and subset_by_value is not None:
        raise ValueError("either index or value subset can be requested")
    a = _checked(a, check_finite)
    _matrix(a)
    n = _square(a)
    uplo = "L" if lower else "U"
    if eigvals_only:
        values, vectors = _np.eigvalsh(a, uplo), None
    else:
        values, vectors = _np.eigh(a, uplo)
    if subset_by_index is not None:
        first, last = subset_by_index
        if not 0 <= first <= last < n:
            raise ValueError(f"Requested eigenvalue indices are not valid for {n} eigenvalues")
        chosen: Any = slice(first, last + 1)
    elif subset_by_value is not None:
        lowest, highest = subset_by_value
        if not lowest < highest:
            raise ValueError("Requested eigenvalue bounds are not valid")
        chosen = (values > lowest) & (values <= highest)
    else:
        chosen = slice(None)
    return values[chosen] if vectors is None else (values[chosen], vectors[:, chosen])


def eigvalsh(
    a: npt.ArrayLike,
    b: npt.ArrayLike | None = None,
    *,
    lower: bool = True,
    overwrite_a: bool = False,  # noqa: ARG001
    overwrite_b: bool = False,  # noqa: ARG001
    type: int = 1,  # noqa: A002
    check_finite: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    subset_by_value: tuple[float, float] | None = None,
    driver: str | None = None,
) -> _Array:
    """Eigenvalues, ascending, of a symmetric or hermitian matrix."""
    values = eigh(
        a,
        b,
        lower=lower,
        eigvals_only=True,
        type=type,
        check_finite=check_finite,
        subset_by_index=subset_by_index,
        subset_by_value=subset_by_value,
        driver=driver,
    )
    return np.asarray(values)


def lstsq(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    cond: float | None = None,
    overwrite_a: bool = False,  # noqa: ARG001
    overwrite_b: bool = False,  # noqa: ARG001
    check_finite: bool = True,
    lapack_driver: str | None = None,
) -> tuple[_Array, Any, Any, _Array | None]:
    """Least squares: the solution of least norm, residues, rank and singular values of a."""
    if lapack_driver == "gelsy":
        found = _here("lstsq")(a, b, cond, check_finite=check_finite, lapack_driver="gelsy")
        return tuple(found)
    if lapack_driver not in (None, "gelsd", "gelss"):
        raise ValueError(f'LAPACK driver "{lapack_driver}" is not found')
    a, b = _checked(a, check_finite), _checked(b, check_finite)
    m, _ = _matrix(a)
    if b.shape[0] != m:
        raise ValueError(f"incompatible shapes: a is {a.shape}, b is {b.shape}")
    if cond is None:
        real: Any = _np._Precision(a, b).real
        cond = float(np.finfo(real).eps)
    x, residues, rank, s = _np.lstsq(a, b, cond)
    if not residues.size:
        return x, np.empty(0, x.dtype), int(rank), s
    return x, residues[0] if b.ndim == 1 else residues, int(rank), s
