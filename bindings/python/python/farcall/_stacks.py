"""The compiled functions under `numpy.linalg`, computed by the functions of libraries/linalg.idl.

Each is called as the one of NumPy, a `gufunc`, is: with arrays that may be stacks, and a signature
that names the types. A stack travels as one call. What no server computes, NumPy computes here:
arrays without elements, types other than double precision, and arguments that are errors.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._compute import call
from ._errors import LibraryError

_Array = npt.NDArray[Any]

# A stack with more bytes is several calls, for the memory of the server.
_BYTES_OF_A_CALL = 1 << 28
# The info of a matrix that the server's memory or LAPACK's integers cannot hold.
_TOO_LARGE = -1000


class Kernel(NamedTuple):
    """A function of the server: its name, its arrays in the order of the gufunc, and scalars.

    `sizes` are the scalars that are dimensions in the signature of the gufunc.
    """

    name: str
    inputs: str
    outputs: str
    sizes: dict[str, str]
    options: dict[str, Any]


_M, _MN = {"m": "m"}, {"m": "m", "n": "n"}
_GENERAL = {"structure": 0, "uplo": "L", "check": 0}
_SYSTEM = {**_GENERAL, "trans": "N", "keep": 0}

_KERNELS: dict[str, Kernel] = {
    "slogdet": Kernel("slogdet", "a", "sign logdet", _M, {}),
    "solve": Kernel("solve", "a b", "x", _MN, _SYSTEM),
    "solve1": Kernel("solve", "a b", "x", _M, {**_SYSTEM, "n": 1}),
    "inv": Kernel("inv", "a", "x", _M, _GENERAL),
    "cholesky_lo": Kernel("cholesky", "a", "x", _M, {"uplo": "L"}),
    "cholesky_up": Kernel("cholesky", "a", "x", _M, {"uplo": "U"}),
    "eigh_lo": Kernel("eigh", "a", "w v", _M, {"jobz": "V", "uplo": "L"}),
    "eigh_up": Kernel("eigh", "a", "w v", _M, {"jobz": "V", "uplo": "U"}),
    "eigvalsh_lo": Kernel("eigh", "a", "w", _M, {"jobz": "N", "uplo": "L"}),
    "eigvalsh_up": Kernel("eigh", "a", "w", _M, {"jobz": "N", "uplo": "U"}),
    "eig": Kernel("eig", "a", "w v", _M, {"jobz": "V"}),
    "eigvals": Kernel("eig", "a", "w", _M, {"jobz": "N"}),
    "svd": Kernel("svd", "a", "s", _MN, {"jobz": "N"}),
    "svd_s": Kernel("svd", "a", "u s vt", _MN, {"jobz": "S"}),
    "svd_f": Kernel("svd", "a", "u s vt", _MN, {"jobz": "A"}),
    "geqrf": Kernel("geqrf", "a", "f tau", _MN, {}),
    "qr_reduced": Kernel("orgqr", "f tau", "q", {**_MN, "k": "k"}, {}),
    "qr_complete": Kernel("orgqr", "f tau", "q", {**_MN, "k": "m"}, {}),
    "lstsq": Kernel("lstsq", "a b rcond", "x resids rank s", {**_MN, "nrhs": "nrhs"}, {}),
}

_INFINITY = np.array([np.inf])


class Stacks:
    """What is called as NumPy's `_umath_linalg` is."""

    def __init__(self, local: Any) -> None:
        """`local` is NumPy's module, which computes the rest."""
        self._local = local

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The function; NumPy 1 has some twice, for tall and for wide matrices."""
        local = getattr(self._local, name)
        plain = name.replace("_m_", "_").replace("_n_", "_").removesuffix("_m").removesuffix("_n")
        if plain == "det":
            found = _determinant(self.__getattr__(name.replace("det", "slogdet")))
        elif plain == "qr_r_raw":
            found = _reflectors(local)
        elif plain in _KERNELS:
            found = _remote(_KERNELS[plain], local, local.signature)
        else:
            found = local
        setattr(self, name, found)
        return found


def _remote(kernel: Kernel, local: Any, signature: str) -> Callable[..., Any]:
    """A function that sends a whole stack."""
    takes, gives = _cores(signature)

    def compute(*arrays: Any, signature: str, extobj: Any = None) -> Any:
        inputs, _, outputs = signature.partition("->")
        plan = _plan(takes, gives, arrays, inputs)
        if plan is None:
            extra = {} if extobj is None else {"extobj": extobj}
            return local(*arrays, signature=signature, **extra)
        stack, sizes = plan
        given = [
            np.broadcast_to(array, stack + _shape(core, sizes)).astype(kind, "C", copy=False)
            for array, core, kind in zip(map(np.asarray, arrays), takes, inputs, strict=True)
        ]
        results = [
            np.empty(stack + _shape(core, sizes), kind)
            for core, kind in zip(gives, outputs, strict=True)
        ]
        info = send(kernel, math.prod(stack), given, results, sizes)
        if kernel.name != "slogdet" and info.any():
            _fail(extobj)
        values = tuple(result[()] for result in results)
        return values[0] if len(values) == 1 else values

    return compute


def send(
    kernel: Kernel, count: int, given: list[_Array], results: list[_Array], sizes: dict[str, int]
) -> _Array:
    """Computes a stack of `count` matrices into `results`; the value is LAPACK's info of each.

    All arrays are in C order and have the stack in front.
    """
    prefix = "z" if given[0].dtype.kind == "c" else "d"
    scalars = {name: sizes[size] for name, size in kernel.sizes.items()} | kernel.options
    names = kernel.inputs.split() + kernel.outputs.split()
    flat = [array.reshape(count, -1) for array in given + results]
    info = np.empty(count, np.int32)
    each = sum(array.shape[1] * array.itemsize for array in flat)
    step = max(1, _BYTES_OF_A_CALL // each)
    for first in range(0, count, step):
        part = slice(first, min(first + step, count))
        arrays = {name: array[part].reshape(-1) for name, array in zip(names, flat, strict=True)}
        number = part.stop - first
        call(f"linalg/{prefix}{kernel.name}", count=number, info=info[part], **scalars, **arrays)
    if count and info.min() <= _TOO_LARGE:
        raise LibraryError(
            f"linalg/{prefix}{kernel.name}: a matrix is too large for the memory of the server or "
            "for LAPACK's 32-bit integers: compute it locally, or in parts"
        )
    return info


def _cores(signature: str) -> tuple[list[list[str]], list[list[str]]]:
    """The dimensions of the arrays: `(m,n),()->(p)` is `[[m, n], []]` and `[[p]]`."""
    inputs, _, outputs = signature.replace(" ", "").partition("->")

    def split(text: str) -> list[list[str]]:
        parts = text[1:-1].split("),(")
        return [[name for name in part.split(",") if name] for part in parts]

    return split(inputs), split(outputs)


def _shape(core: list[str], sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[name] for name in core)


def _plan(
    takes: list[list[str]], gives: list[list[str]], arrays: tuple[Any, ...], kinds: str
) -> tuple[tuple[int, ...], dict[str, int]] | None:
    """The shape of the stack, and the sizes; None for what is computed here."""
    sizes: dict[str, int] = {}
    stacks = []
    for array, core, kind in zip(map(np.asarray, arrays), takes, kinds, strict=True):
        depth = array.ndim - len(core)
        if kind not in "dD" or depth < 0 or not np.can_cast(array.dtype, kind, "same_kind"):
            return None
        for name, size in zip(core, array.shape[depth:], strict=True):
            if sizes.setdefault(name, size) != size:
                return None
        stacks.append(array.shape[:depth])
    if "p" not in sizes and "n" in sizes:
        sizes["p"] = min(sizes["m"], sizes["n"])
    try:
        stack = np.broadcast_shapes(*stacks)
    except ValueError:
        return None
    some = math.prod(stack) and all(sizes[name] for core in takes + gives for name in core)
    return (stack, sizes) if some else None


def _fail(extobj: Any) -> None:
    """Reports as the gufunc does: by an invalid operation, whose handler NumPy has set."""
    if extobj is not None:  # NumPy 1
        extobj[2]("invalid value", 8)
    np.subtract(_INFINITY, _INFINITY)


def _determinant(slogdet: Callable[..., Any]) -> Callable[..., Any]:
    def compute(a: Any, signature: str, extobj: Any = None) -> Any:
        kind = signature[-1]
        real = kind.lower()
        sign, logdet = slogdet(a, signature=f"{kind}->{kind}{real}", extobj=extobj)
        return sign * np.exp(logdet).astype(kind)

    return compute


def _reflectors(local: Any) -> Callable[..., Any]:
    """Factors a stack in place, as NumPy's function does, and returns tau."""
    takes, gives = _cores(local.signature)
    names = ",".join(takes[0])
    both = f"({names})->({names}),({gives[0][0]})"

    def here(a: Any, signature: str, **options: Any) -> Any:
        tau = local(a, signature=f"{signature[0]}->{signature[0]}", **options)
        return a, tau

    remote = _remote(_KERNELS["geqrf"], here, both)

    def compute(a: _Array, signature: str, extobj: Any = None) -> Any:
        kind = signature[0]
        factors, tau = remote(a, signature=f"{kind}->{kind}{kind}", extobj=extobj)
        if factors is not a:
            a[...] = factors
        return tau

    return compute
