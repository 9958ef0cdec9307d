"""Arguments for every routine of libraries/, and the results of the same shared library for them.

    for case in cases("lapack"):
        arguments = case.arguments()          # by name, in IDL order, without work space
        call(case.qualified_name, arguments)  # fills OUT and INOUT arrays in place
        expected = case.reference()           # the arrays that travel back, by ctypes
        case.compare(arguments, expected)     # bit for bit

Run as a program it makes every reference call. Set OPENBLAS_NUM_THREADS=1 before the library is
loaded where bits must agree.
"""

import ctypes
import dataclasses
import functools
import os
import pathlib
import re
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
LIBRARIES = HERE.parent.parent / "libraries"
sys.path[:0] = [str(HERE), str(LIBRARIES)]

from expressions import evaluate  # noqa: E402
from routines import blas, fft, lapack  # noqa: E402

MODULES = {"blas": blas, "lapack": lapack, "fft": fft}
TYPES = {
    "char": np.int8,
    "int": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": np.float64,
    "scomplex": np.complex64,
    "dcomplex": np.complex128,
}
# Matrices that are factored or inverted.
DIAGONAL = ("a", "b", "af", "t")
# The same in packed storage and with bands.
PACKED, BANDS = ("a", "ap", "afp", "bp", "arf"), ("ab", "bb", "afb")
# The value of unused rows of a matrix, which must not change.
UNUSED = 7.5
PARAM = re.compile(r"(IN|OUT|INOUT|WORK) (\w+) (\*?)(\w+)((?:\[.*\])?)$")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter as the IDL has it."""

    mode: str
    type: str
    name: str
    dims: tuple  # of (size, end or None), as text

    @classmethod
    @functools.cache
    def parse(cls, text):
        mode, kind, star, name, brackets = PARAM.match(text).groups()
        dims = [("1", None)] if star else []
        dims += [split_range(dim) for dim in split_brackets(brackets)]
        return cls(mode, kind, name, tuple(dims))


def split_brackets(text):
    """`[n][lda:n]` is `n` and `lda:n`."""
    return text[1:-1].split("][") if text else []


def split_range(dim):
    """Size and end of a dimension; a `:` that belongs to a `?` does not count."""
    depth = 0
    for at, character in enumerate(dim):
        depth += {"?": 1, ":": -1}.get(character, 0)
        if depth < 0:
            return dim[:at], dim[at + 1 :]
    return dim, None


class Case:
    """One call of one routine."""

    def __init__(self, library, routine, scalars):
        self.library = library
        self.routine = routine
        self.name = routine.name
        self.qualified_name = f"{library}/{routine.name}"
        self.scalars = scalars
        self.params = [Parameter.parse(param) for param in routine.params]
        self.fortran = routine.convention == "FORTRAN"

    def __repr__(self):
        return f"{self.qualified_name}({self.scalars})"

    def arguments(self):
        """Fresh arguments by name, in IDL order; the same at every call."""
        random = np.random.default_rng(1)
        return {
            param.name: self.array(param, random) if param.dims else self.scalar(param)
            for param in self.params
            if param.mode != "WORK"
        }

    def returned(self):
        """Names of the arrays that travel back."""
        return [param.name for param in self.params if param.mode in ("OUT", "INOUT")]

    def scalar(self, param):
        value = self.scalars[param.name]
        return complex(*value) if isinstance(value, list) else value

    def shape(self, param):
        """Shape of the caller's array: column-major under FORTRAN, as declared under C."""
        sizes = [evaluate(size, self.scalars) for size, _ in param.dims]
        return tuple(reversed(sizes)) if self.fortran else tuple(sizes)

    def section(self, param):
        """The part of the caller's array that travels, as an index."""
        ends = [evaluate(end, self.scalars) if end else 0 for _, end in param.dims]
        index = [slice(end or None) for end in ends]
        return tuple(reversed(index)) if self.fortran else tuple(index)

    def array(self, param, random):
        kind = TYPES[param.type]
        shape = self.shape(param)
        unused = 0 if kind == np.int32 else UNUSED
        array = spacious(shape, unused, kind, "F" if self.fortran else "C")
        part = array[self.section(param)]
        if param.mode == "OUT":
            part[...] = 0
        elif kind == np.int8:
            part[...] = ord("N")
        elif kind == np.int32:
            part[...] = np.arange(1, part.size + 1).reshape(part.shape)
        else:
            part[...] = random.uniform(-1, 1, part.shape)
            # The triangle of a pair has a real diagonal.
            if np.iscomplexobj(array) and param.name != "p":
                part.imag = random.uniform(-1, 1, part.shape)
            if param.name in BANDS:
                # The diagonal of a triangular band matrix is its first or its last row.
                part[-1 if self.scalars.get("uplo") == "U" else 0] += 20
            elif param.name in ("d", "df") and part.ndim == 1:
                part += 20
            elif param.name in DIAGONAL and part.ndim == 2:
                # Heavy enough for every solver, positive definite seen from either triangle.
                diagonal = np.arange(min(part.shape))
                part[diagonal, diagonal] += 20
            elif param.name in PACKED and part.ndim == 1 and "uplo" in self.scalars:
                part[packed_diagonal(part.size, self.scalars)] += 20
        # A case may say how an array, or its first column, begins.
        if param.name in self.scalars and part.size:
            first = self.scalars[param.name][: len(part)]
            part[(slice(len(first)), *[0] * (part.ndim - 1))] = first
        return array

    def reference(self):
        """The arrays that travel back after a call into the shared library by ctypes."""
        arguments = self.arguments()
        words, lengths, keep = [], [], []
        params = {param.name: param for param in self.params}
        for name in self.routine.passed():
            if name == "NULL":
                words.append(None)
                continue
            if name not in params:
                words.append(ctypes.c_char_p(name.strip("'").encode()))
                lengths.append(ctypes.c_size_t(1))
                continue
            param = params[name]
            if param.mode == "WORK":
                arguments[param.name] = spacious(self.shape(param), 0, TYPES[param.type], "C")
            value = arguments[param.name]
            if param.dims:
                word = value.ctypes.data_as(ctypes.c_void_p)
                if param.type == "char":
                    lengths.append(ctypes.c_size_t(1))
            elif param.type == "char":
                word = ctypes.c_char_p(value.encode())
                lengths.append(ctypes.c_size_t(1))
            elif self.fortran:
                keep.append(np.array([value], TYPES[param.type]))
                word = keep[-1].ctypes.data_as(ctypes.c_void_p)
            else:
                word = ctypes.c_long(value) if param.type == "long" else ctypes.c_int(value)
            words.append(word)
        results = {name: arguments[name] for name in self.returned()}
        parts = [name for name in results if any(end for _, end in params[name].dims)]
        # What does not travel stays as it is.
        results |= {name: arguments[name].copy() for name in parts}
        self.call(words + lengths, arguments)
        for name in parts:
            part = self.section(params[name])
            results[name][part] = arguments[name][part]
        return results

    def call(self, words, arguments):
        function = getattr(shared(self.library), self.name + ("_" if self.fortran else ""))
        function.restype = None
        if self.routine.value is None:
            function(*words)
            return
        target = arguments[self.routine.value]
        function.restype = RESULTS[target.dtype.type]
        result = function(*words)
        target[0] = complex(result.re, result.im) if np.iscomplexobj(target) else result

    def compare(self, arguments, expected):
        """Raises where an array differs from the expected one in any bit."""
        for name, array in expected.items():
            # LAPACK leaves anything behind the eigenvalues that it has found.
            is_open = "range" in self.scalars and name == "w"
            count = expected["m"][0] if is_open else None
            pair = [np.ascontiguousarray(one[:count]) for one in (arguments[name], array)]
            if pair[0].tobytes() != pair[1].tobytes():
                raise AssertionError(f"{self}: {name} differs")


def packed_diagonal(size, scalars):
    """Where the diagonal of a matrix is in packed storage or, if there is a TRANSR, in rectangular
    full packed form, of which rows are columns unless TRANSR is N.
    """
    n = int((2 * size) ** 0.5)
    upper = scalars["uplo"] == "U"
    if "transr" not in scalars:
        return [j * (j + 3) // 2 if upper else j * n - j * (j - 1) // 2 for j in range(n)]
    odd, half = n % 2, n // 2
    # Two triangles share the rectangle.
    order = half if upper else n - half
    first, second, column = (half + 1, half, 0) if upper else (1 - odd, 0, odd)
    places = [(first + k, k) for k in range(order)]
    places += [(second + k, column + k) for k in range(n - order)]
    rows = n + 1 - odd
    plain = scalars["transr"] == "N"
    return [row + column * rows if plain else column + row * ((n + 1) // 2)
            for row, column in places]


def spacious(shape, value, kind, order):
    """An array that is aligned like those of a call, with room behind it: the library reads past
    the end of arrays, and past none of the interpreter's.
    """
    count, slack = int(np.prod(shape)), 4096
    room = np.zeros(count * np.dtype(kind).itemsize + slack, np.uint8)
    start = -room.ctypes.data % 64
    flat = room[start:][: count * np.dtype(kind).itemsize].view(kind)
    flat[:] = value
    return flat.reshape(shape, order=order)


class SComplex(ctypes.Structure):
    _fields_ = [("re", ctypes.c_float), ("im", ctypes.c_float)]


class DComplex(ctypes.Structure):
    _fields_ = [("re", ctypes.c_double), ("im", ctypes.c_double)]


RESULTS = {
    np.int32: ctypes.c_int,
    np.float32: ctypes.c_float,
    np.float64: ctypes.c_double,
    np.complex64: SComplex,
    np.complex128: DComplex,
}
_shared = {}


def shared(library):
    """The shared library, loaded once; OSError if it is not installed."""
    if library not in _shared:
        name = re.search(r'Library "(.*)";', MODULES[library].HEADER).group(1)
        beside = LIBRARIES / name
        _shared[library] = ctypes.CDLL(str(beside) if beside.exists() else name)
    return _shared[library]


def cases(*libraries):
    """Every case of these libraries, or of all libraries."""
    for library in libraries or MODULES:
        for routine in MODULES[library].routines():
            for scalars in routine.cases:
                yield Case(library, routine, scalars)


def main():
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    count = 0
    for case in cases():
        results = case.reference()
        case.compare(results, case.reference())
        assert results.get("info", np.zeros(1))[0] == 0, f"{case}: info is {results['info'][0]}"
        count += 1
    print(f"{count} calls")


if __name__ == "__main__":
    main()
