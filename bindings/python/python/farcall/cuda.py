"""Arrays in the memory of a server's GPU, and functions that use them there.

from farcall import cuda
with cuda.Device(server) as device:
    a, b = device.put(A), device.put(B)
    x = device.solve(a, a @ b).get()

Only `put` and `get` move elements. The server must serve `libraries/cuda.idl`, as `farcall serve
cuda` does. A device is an object at the server (docs/objects.md), so its arrays live as long as it.
"""

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import from_other, refuse_mask
from ._compute import current_server
from ._native import Server

if TYPE_CHECKING:
    import numpy.typing as npt

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_REAL = {"s": "s", "d": "d", "c": "s", "z": "d"}
_TYPES = {letter: np.dtype(name) for name, letter in _LETTERS.items()}


class Array:
    """An array of a device. It is released when nothing refers to it."""

    def __init__(self, device: "Device", number: int, shape: tuple[int, ...], letter: str) -> None:
        """An array of the device that has this number there."""
        self._device, self._number, self._letter = device, number, letter
        self.shape, self.dtype = shape, _TYPES[letter]

    def __repr__(self) -> str:
        """The shape and the type."""
        return f"<farcall.cuda.Array of {self.shape}, {self.dtype}>"

    def __del__(self) -> None:
        """Lets the next call of the device release it: this one may be made at any moment."""
        self._device._unused.append(self._number)

    def get(self) -> "npt.NDArray[Any]":
        """A copy in the memory of this host."""
        rows, columns = _matrix(self.shape)
        result = self._device._call(f"{self._letter}get", self._number, rows, columns)
        array: npt.NDArray[Any] = result.a
        return array.reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "npt.NDArray[Any]":
        """The same as `get`, for NumPy."""
        if copy is False:
            raise ValueError("an array of a device cannot be used without a copy: use its get()")
        array = self.get()
        return array if dtype is None else array.astype(dtype)

    def __matmul__(self, other: "Array") -> "Array":
        """The product of two matrices."""
        return self._device.gemm(self, other)


class Device:
    """A GPU of a server, with arrays in its memory.

    Each function returns new arrays of the device. The default server is that of `farcall.linalg`.
    """

    def __init__(self, server: Server | None = None) -> None:
        """Makes an object at the server, which gets a GPU."""
        self._unused: list[int] = []
        self._object = (server or current_server()).new("cuda/Device")

    def __enter__(self) -> "Device":
        """Closes the device at the end of a `with` block."""
        return self

    def __exit__(self, *_exception: object) -> None:
        """Closes the device."""
        self.close()

    def close(self) -> None:
        """Releases the arrays and the GPU."""
        self._object.close()

    def put(self, value: "npt.ArrayLike") -> Array:
        """Copies a vector or an array of float or complex numbers to the device."""
        refuse_mask(value)
        other = None if isinstance(value, np.ndarray) else from_other(value, False)
        array = np.ascontiguousarray(value if other is None else other)
        letter = _LETTERS.get(array.dtype.name)
        if letter is None:
            raise TypeError(
                f"cuda: the array has the type {array.dtype}; convert it to {', '.join(_LETTERS)}"
            )
        rows, columns = _matrix(array.shape)
        made = self._call(f"{letter}put", rows, columns, array.reshape(rows, columns))
        return Array(self, made.id, array.shape, letter)

    def gemm(
        self,
        a: Array,
        b: Array,
        alpha: complex = 1,
        beta: complex = 0,
        out: Array | None = None,
        transa: str = "N",
        transb: str = "N",
    ) -> Array:
        """alpha op(A) op(B) + beta out, in `out` if it is given; op is N, T or C."""
        numbers = (self._of(a), self._of(b), beta, self._of(out) if out is not None else 0)
        made = self._call("gemm", transa, transb, alpha, *numbers)
        if out is not None:
            return out
        rows = a.shape[-1] if transa in "TtCc" else _matrix(a.shape)[0]
        columns = _matrix(b.shape)[0] if transb in "TtCc" else b.shape[-1]
        return Array(self, made.product, (rows, columns), a._letter)

    def solve(self, a: Array, b: Array, *, positive: bool = False) -> Array:
        """Solutions of A X = B; each row of `b` and of the result is one.

        With `positive`, A is symmetric or hermitian and positive definite.
        """
        made = self._call("posv" if positive else "gesv", self._of(a), self._of(b))
        x = Array(self, made.x, b.shape, b._letter)
        _check(made.info, "is not positive definite" if positive else "is singular")
        return x

    def eigh(self, a: Array) -> tuple[Array, Array]:
        """Eigenvalues of a symmetric or hermitian matrix, and the vectors in columns."""
        made = self._call("syevd", self._of(a))
        w = Array(self, made.w, a.shape[:1], _REAL[a._letter])
        v = Array(self, made.v, a.shape, a._letter)
        _check(made.info, "has eigenvalues that did not converge")
        return w, v

    def svd(self, a: Array) -> tuple[Array, Array, Array]:
        """U, S and Vh with the first min(m, n) vectors."""
        made = self._call("gesvd", self._of(a))
        m, n = _matrix(a.shape)
        least = min(m, n)
        u = Array(self, made.u, (m, least), a._letter)
        s = Array(self, made.s, (least,), _REAL[a._letter])
        vt = Array(self, made.vt, (least, n), a._letter)
        _check(made.info, "has singular values that did not converge")
        return u, s, vt

    def fft(self, x: Array, rank: int = 1) -> Array:
        """Transforms of a complex array in its last `rank` dimensions, at most 3."""
        return self._transform(x, rank, -1)

    def ifft(self, x: Array, rank: int = 1) -> Array:
        """The backward transforms. Unlike NumPy's, they are not divided by the size."""
        return self._transform(x, rank, 1)

    def _transform(self, x: Array, rank: int, sign: int) -> Array:
        if not 1 <= rank <= len(x.shape):
            raise ValueError(f"cuda: the array has {len(x.shape)} dimensions, not {rank}")
        dims = np.array(x.shape[-rank:], np.int32)
        made = self._call("fft", len(dims), dims, sign, self._of(x))
        return Array(self, made.y, x.shape, x._letter)

    def memory(self) -> tuple[int, int]:
        """Bytes of the GPU's memory that are free, and all."""
        made = self._call("memory")
        return made.free, made.all

    def _of(self, array: Array) -> int:
        """The number of an array of this device; each device counts its own."""
        if array._device is not self:
            raise ValueError("cuda: an array is on another device: put(array.get()) copies it")
        return array._number

    def _call(self, method: str, *arguments: Any) -> Any:
        unused: list[int] = []
        # The garbage collector may add more meanwhile, and another thread may take some.
        with contextlib.suppress(IndexError):
            while True:
                unused.append(self._unused.pop())
        if unused:
            self._object.method("drop")(len(unused), np.array(unused, np.int64))
        return self._object.method(method)(*arguments)


def _matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of an array: the last dimension, and all others."""
    return math.prod(shape[:-1]), shape[-1] if shape else 1


def _check(info: int, problem: str) -> None:
    if info:
        raise np.linalg.LinAlgError(f"cuda: the matrix {problem} (info = {info})")
