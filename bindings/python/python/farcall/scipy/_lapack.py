"""The compiled functions under `scipy.linalg`, computed by a server.

`lapack_functions` gives what SciPy's `get_lapack_funcs` gives: routines that are called as SciPy's
wrappers are, with the same results, in the same precision. With `overwrite_a`, an array in column
order with the type of the routine is changed in place. What no server computes is SciPy's own:
other routines, queries of work space, and arrays without elements.
"""

import math
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from .._compute import call
from .._stacks import Kernel, send

_Array = npt.NDArray[Any]
_Results = tuple[Any, ...]


class _Routine:
    """A routine of one precision."""

    def __init__(self, local: Any, compute: Callable[..., _Results]) -> None:
        """`local` is SciPy's wrapper of it."""
        self._local, self._compute = local, compute
        self.is_complex = local.typecode in "cz"

    def __getattr__(self, name: str) -> Any:
        """`typecode`, `dtype` and more, of SciPy's wrapper."""
        return getattr(self._local, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """As SciPy's wrapper; a query of work space, and no elements, are its own."""
        arrays = [a for a in (*arguments, *options.values()) if isinstance(a, np.ndarray)]
        if options.get("lwork") == -1 or not all(array.size for array in arrays):
            return self._local(*arguments, **options)
        results = self._compute(self, *arguments, **options)
        return self._local(*arguments, **options) if results is NotImplemented else results

    def work(self, a: Any, overwrite: Any) -> _Array:
        """The array if it may be overwritten, or a copy in column order."""
        array = np.asarray(a)
        flags = array.flags
        if overwrite and array.dtype == self.dtype and flags.f_contiguous and flags.writeable:
            return array
        return np.array(array, self.dtype, order="F")

    def call(self, name: str, **arguments: Any) -> Any:
        """Calls the routine of this name in this precision."""
        return call(f"lapack/{self.typecode}{name}", **arguments)


def _stored(work: _Array, result: _Array) -> _Array:
    """The result of an INOUT array, in that array."""
    if result is not work:
        work[...] = result.reshape(work.shape, order="F")
    return work


def _getrf(self: _Routine, a: Any, overwrite_a: Any = 0) -> _Results:
    lu = self.work(a, overwrite_a)
    m, n = lu.shape
    done = self.call("getrf", m=m, n=n, a=lu, lda=m)
    return _stored(lu, done.a), np.asarray(done.ipiv) - np.int32(1), done.info


def _getrs(
    self: _Routine, lu: Any, piv: Any, b: Any, trans: int = 0, overwrite_b: Any = 0
) -> _Results:
    x, n = self.work(b, overwrite_b), len(lu)
    pivots = np.asarray(piv, np.int32) + np.int32(1)
    if x.shape[0] != n or pivots.shape != (n,) or trans not in (0, 1, 2):
        return NotImplemented  # type: ignore[no-any-return]
    columns = x.reshape(n, -1, order="F")
    sizes = {"n": n, "nrhs": columns.shape[1], "lda": n, "ldb": n}
    done = self.call(
        "getrs", trans="NTC"[trans], a=self.work(lu, False), ipiv=pivots, b=columns, **sizes
    )
    return _stored(x, done.b), done.info


def _potrf(
    self: _Routine, a: Any, lower: Any = 0, clean: Any = 1, overwrite_a: Any = 0
) -> _Results:
    c = self.work(a, overwrite_a)
    n = len(c)
    done = self.call("potrf", uplo="L" if lower else "U", n=n, a=c, lda=n)
    c = _stored(c, done.a)
    if clean:
        c[np.triu_indices(n, 1) if lower else np.tril_indices(n, -1)] = 0
    return c, done.info


def _potrs(self: _Routine, c: Any, b: Any, lower: Any = 0, overwrite_b: Any = 0) -> _Results:
    x, n = self.work(b, overwrite_b), len(c)
    if x.shape[0] != n:
        return NotImplemented  # type: ignore[no-any-return]
    columns = x.reshape(n, -1, order="F")
    sizes = {"n": n, "nrhs": columns.shape[1], "lda": n, "ldb": n}
    uplo = "L" if np.ravel(lower)[0] else "U"  # SciPy's wrapper accepts an array
    done = self.call("potrs", uplo=uplo, a=self.work(c, False), b=columns, **sizes)
    return _stored(x, done.b), done.info


def _geqrf(self: _Routine, a: Any, lwork: Any = None, overwrite_a: Any = 0) -> _Results:
    qr = self.work(a, overwrite_a)
    m, n = qr.shape
    done = self.call("geqrf", m=m, n=n, a=qr, lda=m, lwork=int(lwork or 64 * n))
    return _stored(qr, done.a), done.tau, np.empty(1, self.dtype), done.info


def _orgqr(self: _Routine, a: Any, tau: Any, lwork: Any = None, overwrite_a: Any = 0) -> _Results:
    q = self.work(a, overwrite_a)
    m, n = q.shape
    sizes = {"m": m, "n": n, "k": len(tau), "lda": m, "lwork": int(lwork or 64 * n)}
    done = self.call(
        "ungqr" if self.is_complex else "orgqr", a=q, tau=np.asarray(tau, self.dtype), **sizes
    )
    return _stored(q, done.a), np.empty(1, self.dtype), done.info


def _gesdd(
    self: _Routine,
    a: Any,
    compute_uv: Any = 1,
    full_matrices: Any = 1,
    lwork: Any = None,
    overwrite_a: Any = 0,
) -> _Results:
    matrix = self.work(a, overwrite_a)
    (m, n), jobz = matrix.shape, ("A" if full_matrices else "S") if compute_uv else "N"
    least, most = min(m, n), max(m, n)
    sizes = {"m": m, "n": n, "lda": m, "ldu": m, "ldvt": least if jobz == "S" else n}
    enough = int(lwork or 4 * least**2 + 7 * least + most + 64 * (m + n))
    done = self.call("gesdd", jobz=jobz, a=matrix, lwork=enough, **sizes)
    none = np.empty((1, 1), self.dtype)
    return (done.u, done.s, done.vt, done.info) if compute_uv else (none, done.s, none, done.info)


def _geev(
    self: _Routine,
    a: Any,
    compute_vl: Any = 1,
    compute_vr: Any = 1,
    lwork: Any = None,
    overwrite_a: Any = 0,
) -> _Results:
    matrix = self.work(a, overwrite_a)
    n = len(matrix)
    jobs = {"jobvl": "V" if compute_vl else "N", "jobvr": "V" if compute_vr else "N"}
    sizes = {"n": n, "lda": n, "ldvl": n, "ldvr": n, "lwork": int(lwork or 66 * n)}
    done = self.call("geev", a=matrix, **jobs, **sizes)
    values = (done.w,) if self.is_complex else (done.wr, done.wi)
    return (*values, done.vl, done.vr, done.info)


def _eigh(self: _Routine, a: Any, compute_v: Any, lower: Any, overwrite_a: Any) -> _Results:
    """All eigenvalues by divide and conquer: w, v and info."""
    matrix = self.work(a, overwrite_a)
    n = len(matrix)
    reals, sizes = 1 + 6 * n + 2 * n * n, {"liwork": 3 + 5 * n}
    if self.is_complex:
        sizes |= {"lwork": 2 * n + n * n + 64 * n, "lrwork": reals}
    else:
        sizes["lwork"] = reals + 64 * n
    job = {"jobz": "V" if compute_v else "N", "uplo": "L" if lower else "U"}
    done = self.call("heevd" if self.is_complex else "syevd", n=n, a=matrix, lda=n, **job, **sizes)
    return done.w, _stored(matrix, done.a), done.info


def _syevd(
    self: _Routine, a: Any, compute_v: Any = 1, lower: Any = 0, overwrite_a: Any = 0, **_: Any
) -> _Results:
    return _eigh(self, a, compute_v, lower, overwrite_a)


def _syevr(
    self: _Routine,
    a: Any,
    compute_v: Any = 1,
    range: Any = "A",  # noqa: A002
    lower: Any = 0,
    overwrite_a: Any = 0,
    vl: float = 0.0,
    vu: float = 1.0,
    il: int = 1,
    iu: int | None = None,
    **_: Any,
) -> _Results:
    """A subset is chosen from all eigenvalues: the first `count` results are it."""
    w, v, info = _eigh(self, a, compute_v, lower, overwrite_a)
    chosen: Any = slice(None)
    if range == "I":
        chosen = slice(il - 1, iu)
    elif range == "V":
        chosen = (w > vl) & (w <= vu)
    some = w[chosen]
    return some, v[:, chosen], len(some), np.empty(0, np.int32), info


def _gelsd(self: _Routine, a: Any, b: Any, *arguments: Any, cond: Any = -1.0) -> _Results:
    lwork, *_, cond, overwrite_a, overwrite_b = arguments
    matrix, x = self.work(a, overwrite_a), self.work(b, overwrite_b)
    m, n = matrix.shape
    columns = x.reshape(len(x), -1, order="F")
    width, most = columns.shape[1], max(m, n)
    if len(x) != most:
        return NotImplemented  # type: ignore[no-any-return]
    levels = max(0, int(np.log2(min(m, n) / 26)) + 1)
    enough = min(m, n) * (62 + 8 * levels + width) + 676 + most + 64 * (m + n + width)
    sizes = {"m": m, "n": n, "nrhs": width, "lda": m, "ldb": most, "lwork": max(lwork, enough)}
    done = self.call("gelsd", a=matrix, b=columns, rcond=float(cond), **sizes)
    return _stored(x, done.b), done.s, int(done.rank), done.info


_ROUTINES: dict[str, Callable[..., _Results]] = {
    "getrf": _getrf,
    "getrs": _getrs,
    "potrf": _potrf,
    "potrs": _potrs,
    "geqrf": _geqrf,
    "orgqr": _orgqr,
    "gesdd": _gesdd,
    "geev": _geev,
    "syevd": _syevd,
    "heevd": _syevd,
    "syevr": _syevr,
    "heevr": _syevr,
    "gelsd": _gelsd,
}


def lapack_functions(local: Callable[..., Any]) -> Callable[..., Any]:
    """`get_lapack_funcs`, with routines of the server."""

    def get(names: str | Iterable[str], *arguments: Any, **options: Any) -> Any:
        found = local(names, *arguments, **options)
        if isinstance(names, str):
            return _remote(names, found)
        return [_remote(name, one) for name, one in zip(names, found, strict=True)]

    return get


def _remote(name: str, local: Any) -> Any:
    return _Routine(local, _ROUTINES[name]) if name in _ROUTINES else local


def whole_stack(*_: range) -> list[tuple[()]]:
    """In place of `itertools.product` over the matrices of a stack: one index for all of them."""
    return [()]


def determinants(a: _Array) -> Any:
    """`find_det_from_lu` that leaves a as it is, also for a stack."""
    kernel = Kernel("det", "a", "det", {"m": "m"}, {})
    kind = np.result_type(a, np.float64)
    det = np.empty(a.shape[:-2], kind)
    send(kernel, det.size, [np.ascontiguousarray(a, kind)], [det], {"m": a.shape[-1]})
    return det[()]


def determinants_by_factors(a: _Array) -> Any:
    """`find_det_from_lu`, by which a becomes its factors."""
    f, pivots = _factored(a)
    a[...] = f
    swaps = np.count_nonzero(pivots != np.arange(1, a.shape[-1] + 1), axis=-1)
    return np.prod(np.diagonal(f, axis1=-2, axis2=-1), axis=-1) * (1 - 2 * (swaps % 2))


def _factored(a: _Array) -> tuple[_Array, _Array]:
    """The factors of a stack, and LAPACK's pivots."""
    kernel = Kernel("getrf", "a", "f ipiv", {"m": "m", "n": "n"}, {})
    *stack, m, n = a.shape
    work = np.ascontiguousarray(a, np.result_type(a, np.float64))
    f, pivots = np.empty_like(work), np.empty((*stack, min(m, n)), np.int32)
    send(kernel, math.prod(stack), [work], [f, pivots], {"m": m, "n": n})
    return f, pivots


def factors(a: _Array, u: _Array, p: _Array, permute_l: bool) -> None:
    """`lu_dispatcher`, also for a stack: a becomes L or U, whichever is not square, u the other.

    Row i of a is row p[i] of L U, or with `permute_l` of U times a changed L.
    """
    *stack, m, n = a.shape
    least = min(m, n)
    f, pivots = _factored(a)
    lower = np.tril(f[..., :, :least], -1)
    lower[..., np.arange(least), np.arange(least)] = 1
    upper = np.triu(f[..., :least, :])
    rows = np.broadcast_to(np.arange(m), (*stack, m)).reshape(-1, m).copy()
    each = np.arange(len(rows))
    for step, other in enumerate(pivots.reshape(-1, least).T - 1):
        rows[each, step], rows[each, other] = rows[each, other], rows[each, step].copy()
    p[...] = np.argsort(rows, axis=-1).reshape(p.shape)
    if permute_l:
        lower = np.take_along_axis(lower, p[..., np.newaxis], axis=-2)
    a[...], u[...] = (lower, upper) if m > n else (upper, lower)


class Batched:
    """What is called as SciPy's `_batched_linalg` is: `solve` and `inv` of stacks."""

    # The codes that the server knows: unknown, general, positive, symmetric and hermitian.
    _STRUCTURES = (-1, 0, 101, 201, 211)

    def __init__(self, local: Any) -> None:
        """`local` is SciPy's module, which computes with the other structures."""
        self._local = local

    def __getattr__(self, name: str) -> Any:
        """SciPy's own function."""
        return getattr(self._local, name)

    def _solve(
        self,
        a: _Array,
        b: _Array,
        structure: int,
        lower: bool,
        transposed: bool,
        overwrite_a: bool,
        overwrite_b: bool,
    ) -> tuple[_Array, list[dict[str, Any]]]:
        if structure not in self._STRUCTURES:
            rest = structure, lower, transposed, overwrite_a, overwrite_b
            return self._local._solve(a, b, *rest)  # type: ignore[no-any-return]
        m, n = b.shape[-2:]
        trans = {"trans": "T" if transposed else "N", "keep": int(overwrite_a)}
        sizes, names = {"m": m, "n": n}, "x f rcond"
        options = _options(structure, lower) | trans
        kernel = Kernel("solve", "a b", names, {"m": "m", "n": "n"}, options)
        x, f, problems = _solved(kernel, [a, b], b.shape, sizes)
        if overwrite_a:
            _into(a, True, f.reshape(a.shape).T)
        # SciPy reports a singular matrix, and leaves b as it is.
        is_singular = any(problem["is_singular"] for problem in problems)
        return _into(b, overwrite_b and not is_singular, x), problems

    def _inv(
        self, a: _Array, structure: int, overwrite_a: bool, lower: bool
    ) -> tuple[_Array, list[dict[str, Any]]]:
        if structure not in self._STRUCTURES:
            return self._local._inv(a, structure, overwrite_a, lower)  # type: ignore[no-any-return]
        kernel = Kernel("inv", "a", "x rcond", {"m": "m"}, _options(structure, lower))
        x, _, problems = _solved(kernel, [a], a.shape, {"m": a.shape[-1]})
        return _into(a, overwrite_a, x), problems


def _options(structure: int, lower: bool) -> dict[str, Any]:
    return {"structure": structure, "uplo": "L" if lower else "U", "check": 1}


def _solved(
    kernel: Kernel, arrays: list[_Array], shape: tuple[int, ...], sizes: dict[str, int]
) -> tuple[_Array, _Array, list[dict[str, Any]]]:
    """The solutions, the factors of a matrix if they are kept, and the problems.

    A problem is what SciPy's function says of a matrix; the first singular one is the last.
    """
    kind = np.result_type(arrays[0], np.float64)
    stack = shape[:-2]
    x, rcond = np.empty(shape, kind), np.empty(stack)
    f = np.empty(arrays[0].shape if kernel.options.get("keep") else (rcond.size, 0), kind)
    results = [x, f, rcond] if "keep" in kernel.options else [x, rcond]
    given = [np.ascontiguousarray(array, kind) for array in arrays]
    info = send(kernel, rcond.size, given, results, sizes)
    singular = info != 0
    doubtful = ~(rcond.reshape(-1) >= np.finfo(arrays[0].dtype).eps)
    problems = []
    for number in np.flatnonzero(singular | doubtful):
        problems.append(
            {
                "num": int(number),
                "structure": kernel.options["structure"],
                "is_singular": int(singular[number]),
                "is_ill_conditioned": int(not singular[number]),
                "rcond": float(rcond.flat[number]),
                "lapack_info": int(info[number]),
            }
        )
        if singular[number]:
            break
    return x.astype(arrays[0].dtype, copy=False), f, problems


def _into(array: _Array, overwrite: bool, result: _Array) -> _Array:
    """The result, in the array if it may be overwritten."""
    place = _writable(array) if overwrite else None
    if place is None:
        return result
    place[...] = result
    return place


def _writable(array: _Array) -> _Array | None:
    """The array, or None if its memory is read-only.

    SciPy passes a view that NumPy made read-only, of memory that it overwrites.
    """
    if array.flags.writeable:
        return array
    if not isinstance(array.base, np.ndarray) or not array.base.flags.writeable:
        return None
    # The view can begin anywhere in the memory of its base.
    start = array.__array_interface__["data"][0]
    interface = {**array.__array_interface__, "data": (start, False)}
    return np.asarray(types.SimpleNamespace(__array_interface__=interface, base=array))
