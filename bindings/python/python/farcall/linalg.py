"""`numpy.linalg`, computed on a server.

from farcall import linalg
linalg.use("farcall://host:3717")  # without this: the server of the environment
x = linalg.solve(a, b)

Signatures, results, types and errors are those of NumPy 2: the computation uses double precision
for integers and every precision, and rounds the result to the precision of the input. The matrices
of a stack are calls that overlap. `norm`, `matrix_power`, `multi_dot` and similar functions, which
take less time than a call or are only products, are NumPy's own and run on this machine.

The server must serve LAPACK with the interface file `libraries/lapack.idl`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.linalg import LinAlgError, matrix_power, multi_dot, norm

from ._compute import calls, use, using

__all__ = [
    "EigResult",
    "EighResult",
    "LinAlgError",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matrix_power",
    "multi_dot",
    "norm",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "use",
    "using",
]

# Other functions of `numpy.linalg`, which run here; old versions of NumPy lack some of them.
_HERE = frozenset(
    ("cross", "diagonal", "matmul", "matrix_norm", "matrix_transpose")
    + ("outer", "tensordot", "trace", "vecdot", "vector_norm")
)

_Array = npt.NDArray[Any]

_EIGENVALUES = "Eigenvalues did not converge"


class EigResult(NamedTuple):
    """The result of `eig`."""

    eigenvalues: _Array
    eigenvectors: _Array


class EighResult(NamedTuple):
    """The result of `eigh`."""

    eigenvalues: _Array
    eigenvectors: _Array


class QRResult(NamedTuple):
    """The result of `qr` with Q."""

    Q: _Array
    R: _Array


class SlogdetResult(NamedTuple):
    """The result of `slogdet`."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """The result of `svd` with vectors."""

    U: _Array
    S: _Array
    Vh: _Array


class _Precision:
    """The types of a computation: of its result, and of LAPACK's routines."""

    def __init__(self, *arrays: _Array) -> None:
        """Chooses the types as NumPy does."""
        single = True
        self.is_complex = False
        for array in arrays:
            kind = array.dtype
            if kind.char in "FD":
                self.is_complex = True
            elif kind.char not in "fd" and kind.kind not in "biu":
                raise TypeError(f"array type {kind.name} is unsupported in linalg")
            single = single and kind.char in "fF"
        self.real = np.dtype(np.float32 if single else np.float64)
        self.complex = np.dtype(np.complex64 if single else np.complex128)
        self.result = self.complex if self.is_complex else self.real
        self.work = np.dtype(np.complex128 if self.is_complex else np.float64)

    def routine(self, real: str, other: str | None = None) -> str:
        """The name at the server: `gesv`, or `syevd` and `heevd`."""
        return f"lapack/z{other or real}" if self.is_complex else f"lapack/d{real}"

    def copy(self, array: _Array) -> _Array:
        """A copy of the array, which LAPACK overwrites."""
        return np.array(array, self.work, order="F")


def __getattr__(name: str) -> Any:
    """NumPy's own function, if it runs on this machine."""
    if name in _HERE:
        return getattr(np.linalg, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _square(array: _Array) -> int:
    _two_dimensional(array)
    if array.shape[-1] != array.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return int(array.shape[-1])


def _two_dimensional(array: _Array) -> None:
    if array.ndim < 2:
        raise LinAlgError(
            f"{array.ndim}-dimensional array given. Array must be at least two-dimensional"
        )


def _finite(array: _Array) -> None:
    if not np.isfinite(array).all():
        raise LinAlgError("Array must not contain infs or NaNs")


def _each(
    name: str, stack: tuple[int, ...], arguments: Any, error: str | None = None
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """The place and the result of each matrix of a stack.

    If info is not 0 for any matrix, `error` is raised after the last one, as in NumPy.
    """
    failed = False
    jobs: Iterator[Mapping[str, Any]] = (arguments(place) for place in np.ndindex(stack))
    for place, result in zip(np.ndindex(stack), calls(name, jobs), strict=True):
        failed = failed or result.info != 0
        yield place, result
    if failed and error is not None:
        raise LinAlgError(error)


def solve(a: npt.ArrayLike, b: npt.ArrayLike) -> _Array:
    """The solution X of A X = B; `b` is a stack of matrices unless it has one dimension."""
    a, b = np.asarray(a), np.asarray(b)
    n, precision = _square(a), _Precision(a, b)
    if b.ndim == 0:
        raise ValueError("solve: b must have at least one dimension, but it has none")
    right = b[:, np.newaxis] if b.ndim == 1 else b
    rows, columns = right.shape[-2:]
    if rows != n:
        raise ValueError(f"solve: b has {rows} rows, but a has {n}")
    stack = np.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    a = np.broadcast_to(a, stack + (n, n))
    right = np.broadcast_to(right, stack + (n, columns))
    x = np.empty(right.shape, precision.result)
    if x.size:
        _gesv(precision, a, right, x)
    return x[..., 0] if b.ndim == 1 else x


def _gesv(precision: _Precision, a: _Array, b: _Array, x: _Array) -> None:
    """Solves a stack into x."""
    n, columns = b.shape[-2:]

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        left, right = precision.copy(a[place]), precision.copy(b[place])
        return {"n": n, "nrhs": columns, "a": left, "lda": n, "b": right, "ldb": n}

    name = precision.routine("gesv")
    for place, result in _each(name, a.shape[:-2], arguments, "Singular matrix"):
        x[place] = result.b


def inv(a: npt.ArrayLike) -> _Array:
    """The inverse of a square matrix."""
    a = np.asarray(a)
    n, precision = _square(a), _Precision(a)
    x = np.empty(a.shape, precision.result)
    if x.size:
        _gesv(precision, a, np.broadcast_to(np.eye(n), a.shape), x)
    return x


def cholesky(a: npt.ArrayLike, /, *, upper: bool = False) -> _Array:
    """The lower factor L of A = L L*, or the upper one; only that triangle of A is read."""
    a = np.asarray(a)
    n, precision = _square(a), _Precision(a)
    factor = np.zeros(a.shape, precision.result)
    if not a.size:
        return factor
    triangle, uplo = (np.triu, "U") if upper else (np.tril, "L")

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        return {"uplo": uplo, "n": n, "a": precision.copy(a[place]), "lda": n}

    error = "Matrix is not positive definite"
    for place, result in _each(precision.routine("potrf"), a.shape[:-2], arguments, error):
        factor[place] = triangle(result.a)
    return factor


def qr(
    a: npt.ArrayLike, mode: Literal["reduced", "complete", "r", "raw"] = "reduced"
) -> QRResult | _Array | tuple[_Array, _Array]:
    """The factors Q and R of a matrix; with "r" R alone, with "raw" LAPACK's reflectors and tau."""
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f"Unrecognized mode '{mode}'")
    a = np.asarray(a)
    _two_dimensional(a)
    precision = _Precision(a)
    m, n = a.shape[-2:]
    least = min(m, n)
    factors = np.array(a, precision.work)
    tau = np.zeros(a.shape[:-2] + (least,), precision.work)
    if a.size:
        _geqrf(precision, factors, tau)
    if mode == "raw":
        raw = np.swapaxes(factors, -1, -2).astype(precision.result, copy=False)
        return raw, tau.astype(precision.result, copy=False)
    columns = m if mode == "complete" else least
    r = np.triu(factors[..., :columns, :]).astype(precision.result, copy=False)
    if mode == "r":
        return r
    q = np.zeros(a.shape[:-2] + (m, columns), precision.result)
    if a.size:
        _orgqr(precision, factors, tau, q)
    else:
        q[...] = np.eye(m, columns)
    return QRResult(q, r)


def _geqrf(precision: _Precision, factors: _Array, tau: _Array) -> None:
    """Factors a stack in place."""
    m, n = factors.shape[-2:]

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        return {"m": m, "n": n, "a": precision.copy(factors[place]), "lda": m, "lwork": 64 * n}

    error = "Incorrect argument found while performing QR factorization"
    for place, result in _each(precision.routine("geqrf"), tau.shape[:-1], arguments, error):
        factors[place], tau[place] = result.a, result.tau


def _orgqr(precision: _Precision, factors: _Array, tau: _Array, q: _Array) -> None:
    """Computes q from the reflectors in the columns of `factors`."""
    (m, columns), least = q.shape[-2:], tau.shape[-1]
    sizes = {"m": m, "n": columns, "k": least, "lda": m, "lwork": 64 * columns}

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        a = np.zeros((m, columns), precision.work, order="F")
        a[:, :least] = factors[place][:, :least]
        return sizes | {"a": a, "tau": tau[place].copy()}

    error = "Incorrect argument found while performing QR factorization"
    name = precision.routine("orgqr", "ungqr")
    for place, result in _each(name, tau.shape[:-1], arguments, error):
        q[place] = result.a


def svd(
    a: npt.ArrayLike, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> SVDResult | _Array:
    """Singular values, descending, and vectors: A = U S Vh."""
    a = np.asarray(a)
    if hermitian:
        return _hermitian_svd(a, compute_uv)
    _two_dimensional(a)
    precision = _Precision(a)
    m, n = a.shape[-2:]
    least = min(m, n)
    stack = a.shape[:-2]
    s = np.empty(stack + (least,), precision.real)
    if not compute_uv:
        if a.size:
            for place, result in _gesdd(precision, a, "N"):
                s[place] = result.s
        return s
    rows, columns = (m, n) if full_matrices else (least, least)
    u = np.empty(stack + (m, rows), precision.result)
    vh = np.empty(stack + (columns, n), precision.result)
    if not a.size:
        u[...], vh[...] = np.eye(m, rows), np.eye(columns, n)
        return SVDResult(u, s, vh)
    for place, result in _gesdd(precision, a, "A" if full_matrices else "S"):
        u[place], s[place], vh[place] = result.u, result.s, result.vt
    return SVDResult(u, s, vh)


def _gesdd(precision: _Precision, a: _Array, jobz: str) -> Iterator[tuple[tuple[int, ...], Any]]:
    m, n = a.shape[-2:]
    least = min(m, n)
    rows = least if jobz == "S" else n
    squares = 2 * least**2 + 3 * least if precision.is_complex else 4 * least**2 + 7 * least
    lwork = squares + max(m, n) + 64 * (m + n)
    sizes = {"m": m, "n": n, "lda": m, "ldu": m, "ldvt": rows, "lwork": lwork}

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        return sizes | {"jobz": jobz, "a": precision.copy(a[place])}

    return _each(precision.routine("gesdd"), a.shape[:-2], arguments, "SVD did not converge")


def _hermitian_svd(a: _Array, compute_uv: bool) -> SVDResult | _Array:
    """Singular values and vectors from the eigenvalues and vectors."""
    if not compute_uv:
        return np.asarray(np.sort(np.abs(eigvalsh(a)))[..., ::-1])
    w, v = eigh(a)
    order = np.argsort(np.abs(w))[..., ::-1]
    w = np.take_along_axis(w, order, axis=-1)
    v = np.take_along_axis(v, order[..., np.newaxis, :], axis=-1)
    signs = np.copysign(w.dtype.type(1), w)[..., np.newaxis, :]
    return SVDResult(v, np.abs(w), np.swapaxes(v * signs, -1, -2).conj())


def svdvals(x: npt.ArrayLike, /) -> _Array:
    """Singular values, descending."""
    values = svd(x, compute_uv=False)
    assert isinstance(values, np.ndarray)
    return values


def eigh(a: npt.ArrayLike, UPLO: str = "L") -> EighResult:  # noqa: N803
    """Eigenvalues, ascending, and vectors of a symmetric or hermitian matrix."""
    a = np.asarray(a)
    precision = _hermitian_precision(a, UPLO)
    w, v = np.empty(a.shape[:-1], precision.real), np.empty(a.shape, precision.result)
    for place, result in _syevd(precision, a, "V", UPLO):
        w[place], v[place] = result.w, result.a
    return EighResult(w, v)


def eigvalsh(a: npt.ArrayLike, UPLO: str = "L") -> _Array:  # noqa: N803
    """Eigenvalues, ascending, of a symmetric or hermitian matrix."""
    a = np.asarray(a)
    precision = _hermitian_precision(a, UPLO)
    w = np.empty(a.shape[:-1], precision.real)
    for place, result in _syevd(precision, a, "N", UPLO):
        w[place] = result.w
    return w


def _hermitian_precision(a: _Array, uplo: str) -> _Precision:
    if uplo.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    _square(a)
    return _Precision(a)


def _syevd(
    precision: _Precision, a: _Array, jobz: str, uplo: str
) -> Iterator[tuple[tuple[int, ...], Any]]:
    n = a.shape[-1]
    if not a.size:
        return iter(())
    reals, integers = 1 + 6 * n + 2 * n * n, 3 + 5 * n
    sizes = {"lwork": reals + 64 * n, "liwork": integers}
    if precision.is_complex:
        sizes = {"lwork": 2 * n + n * n + 64 * n, "lrwork": reals, "liwork": integers}

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        matrix = precision.copy(a[place])
        return dict(jobz=jobz, uplo=uplo.upper(), n=n, a=matrix, lda=n, **sizes)

    return _each(precision.routine("syevd", "heevd"), a.shape[:-2], arguments, _EIGENVALUES)


def eig(a: npt.ArrayLike) -> EigResult:
    """Eigenvalues and right vectors of a square matrix; real if all eigenvalues are real."""
    a = np.asarray(a)
    _square(a)
    _finite(a)
    precision = _Precision(a)
    w, v = np.empty(a.shape[:-1], np.complex128), np.empty(a.shape, np.complex128)
    for place, result in _geev(precision, a, "V"):
        if precision.is_complex:
            w[place], v[place] = result.w, result.vr
        else:
            w[place] = result.wr + 1j * result.wi
            v[place] = _paired(result.wi, result.vr)
    if not precision.is_complex and not w.imag.any():
        return EigResult(w.real.astype(precision.real), v.real.astype(precision.real))
    return EigResult(
        w.astype(precision.complex, copy=False), v.astype(precision.complex, copy=False)
    )


def eigvals(a: npt.ArrayLike) -> _Array:
    """Eigenvalues of a square matrix; real if all of them are real."""
    a = np.asarray(a)
    _square(a)
    _finite(a)
    precision = _Precision(a)
    w = np.empty(a.shape[:-1], np.complex128)
    for place, result in _geev(precision, a, "N"):
        w[place] = result.w if precision.is_complex else result.wr + 1j * result.wi
    if not precision.is_complex and not w.imag.any():
        return w.real.astype(precision.real)
    return w.astype(precision.complex, copy=False)


def _geev(precision: _Precision, a: _Array, vectors: str) -> Iterator[tuple[tuple[int, ...], Any]]:
    n = a.shape[-1]
    if not a.size:
        return iter(())

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        matrix = precision.copy(a[place])
        jobs = {"jobvl": "N", "jobvr": vectors}
        return dict(n=n, a=matrix, lda=n, ldvl=1, ldvr=n, lwork=66 * n, **jobs)

    return _each(precision.routine("geev"), a.shape[:-2], arguments, _EIGENVALUES)


def _paired(imaginary: _Array, vectors: _Array) -> _Array:
    """Complex vectors from LAPACK's, whose columns j and j + 1 are the real and imaginary parts."""
    result = vectors.astype(np.complex128)
    first = np.flatnonzero(imaginary > 0)
    result[:, first] = vectors[:, first] + 1j * vectors[:, first + 1]
    result[:, first + 1] = result[:, first].conj()
    return result


def det(a: npt.ArrayLike) -> Any:
    """The determinant of a square matrix."""
    a = np.asarray(a)
    _square(a)
    precision = _Precision(a)
    sign, logarithm = _determinant(precision, a)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        value = sign * np.exp(logarithm)
        return value.astype(precision.result)[()]


def slogdet(a: npt.ArrayLike) -> SlogdetResult:
    """Sign and logarithm of the absolute value of the determinant."""
    a = np.asarray(a)
    _square(a)
    precision = _Precision(a)
    sign, logarithm = _determinant(precision, a)
    return SlogdetResult(sign.astype(precision.result)[()], logarithm.astype(precision.real)[()])


def _determinant(precision: _Precision, a: _Array) -> tuple[_Array, _Array]:
    """Signs and logarithms from the diagonals of the factors."""
    n, stack = a.shape[-1], a.shape[:-2]
    sign, logarithm = np.ones(stack, precision.work), np.zeros(stack)
    if not a.size:
        return sign, logarithm

    def arguments(place: tuple[int, ...]) -> dict[str, Any]:
        return {"m": n, "n": n, "a": precision.copy(a[place]), "lda": n}

    for place, result in _each(precision.routine("getrf"), stack, arguments):
        if result.info > 0:
            sign[place], logarithm[place] = 0, -np.inf
            continue
        diagonal = np.diagonal(result.a)
        size = np.abs(diagonal)
        swaps = np.count_nonzero(np.asarray(result.ipiv) != np.arange(1, n + 1))
        sign[place] = np.prod(diagonal / size) * (-1) ** (swaps % 2)
        logarithm[place] = np.log(size).sum()
    return sign, logarithm


def lstsq(
    a: npt.ArrayLike, b: npt.ArrayLike, rcond: float | None = None
) -> tuple[_Array, _Array, Any, _Array]:
    """Least squares: the solution of least norm, residues, rank of A and its singular values.

    Singular values below `rcond` times the largest count as zero.
    """
    a, b = np.asarray(a), np.asarray(b)
    right = b[:, np.newaxis] if b.ndim == 1 else b
    for array in a, right:
        if array.ndim != 2:
            raise LinAlgError(
                f"{array.ndim}-dimensional array given. Array must be two-dimensional"
            )
    (m, n), columns = a.shape, right.shape[1]
    if m != right.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    precision = _Precision(a, b)
    if rcond is None:
        rcond = float(np.finfo(np.float64).eps) * max(m, n)
    if min(m, n):
        x, residues, rank, s = _gelsd(precision, a, right, rcond)
    else:
        x, rank = np.zeros((n, columns), precision.work), np.int32(0)
        residues, s = np.sum(np.abs(right) ** 2, axis=0), np.empty(0)
    if rank != n or m <= n:
        residues = np.empty(0)
    x = x[:, 0] if b.ndim == 1 else x
    real = precision.real
    return (
        np.array(x, precision.result, order="C"),
        residues.astype(real, copy=False),
        rank,
        s.astype(real, copy=False),
    )


def _gelsd(
    precision: _Precision, a: _Array, b: _Array, rcond: float
) -> tuple[_Array, _Array, Any, _Array]:
    (m, n), columns = a.shape, b.shape[1]
    least, most, width = min(m, n), max(m, n), max(1, columns)
    right = np.zeros((most, width), precision.work, order="F")
    right[:m, :columns] = b
    levels = max(0, int(np.log2(least / 26)) + 1)
    lwork = least * (62 + 8 * levels + width) + 676 + most + 64 * (m + n + width)
    name = precision.routine("gelsd")
    sizes = {"m": m, "n": n, "nrhs": width, "lda": m, "ldb": most, "lwork": lwork}
    jobs = [sizes | {"a": precision.copy(a), "b": right, "rcond": rcond}]
    (result,) = calls(name, jobs)
    if result.info != 0:
        raise LinAlgError("SVD did not converge in Linear Least Squares")
    tail = result.b[n:, :columns]
    residues = np.sum(tail.real**2 + tail.imag**2, axis=0)
    return result.b[:n, :columns], residues, np.int32(result.rank), result.s
