"""Random functions, called with random arrays on each way, against a model of what they do.

The body of each function sums the bytes of every argument that it reads, and changes every byte
that it writes. The model does the same with NumPy. A failure names its seed.
"""

import random

import farcall
import numpy as np
import pytest
from servers import ServerProcess

DTYPES = {
    **{"char": "S1", "int8_t": "i1", "uint8_t": "u1", "short": "i2", "int": "i4"},
    **{"unsigned int": "u4", "long": "i8", "uint64_t": "u8", "float": "f4", "double": "f8"},
    **{"scomplex": "c8", "dcomplex": "c16"},
}
C_NAMES = {"scomplex": "float _Complex", "dcomplex": "double _Complex"}
FUNCTIONS, CALLS = 24, 12
WAYS = ("tcp", "host", "async", "map", "handles", "durable", "transaction")
GLOBALS = """\
Module random;
Globals {
#include <complex.h>
#include <stdint.h>
#include <string.h>
static uint64_t weight(uint64_t i) {
    uint64_t w = (i + 1) * 0x9e3779b97f4a7c15u;
    return (w ^ w >> 29) * 0xbf58476d1ce4e5b9u;
}
static uint64_t sum(const void *bytes, int64_t length) {
    uint64_t s = length;
    for (int64_t i = 0; i < length; i++) s += ((const unsigned char *)bytes)[i] * weight(i);
    return s;
}
static void change(void *bytes, int64_t length, int keep) {
    unsigned char *b = bytes;
    for (int64_t i = 0; i < length; i++) b[i] = (keep ? b[i] : 0) ^ (weight(i) >> 56);
}
static int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
"""


def weights(length):
    w = np.arange(1, length + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (w ^ w >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)


def summed(data):
    data = np.frombuffer(data, np.uint8).astype(np.uint64)
    return (int((data * weights(len(data))).sum(dtype=np.uint64)) + len(data)) % 2**64


class Array:
    """An array parameter. Its expressions mean the same in an interface, in C and in Python."""

    def __init__(self, rng, name, sizes):
        self.name, self.type = name, rng.choice(list(DTYPES))
        self.mode = rng.choice(["IN", "INOUT", "OUT"])
        a, b = rng.choice(sizes), rng.choice(sizes)
        forms = [a, b, f"{a} + {b}", f"{a} * 2", f"max(0, {a} - {b})", f"min({a}, {b})", "1", "3"]
        self.dims = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            size = rng.choice(forms)
            start, end = f"min(1, {size})", f"max(min(1, {size}), {size} - 1)"
            ranges = [None, None, None, (end,), (start, end), (start, end, "2")]
            self.dims.append((size, rng.choice(ranges)))
        self.dtype = np.dtype(DTYPES[self.type])

    def declared(self):
        ranges = (size + (f" : {', '.join(of)}" if of else "") for size, of in self.dims)
        return f"{self.mode} {self.type} {self.name}{''.join(f'[{each}]' for each in ranges)}"

    def layout(self, sizes):
        """The declared shape, and the part of it that travels."""

        def value(expression):
            return eval(expression, {"min": min, "max": max}, sizes)

        shape, section = [], []
        for size, of in self.dims:
            start, end, step = 0, value(size), 1
            shape.append(end)
            if of is not None:
                values = [value(each) for each in of]
                start, step = (values[0] if len(of) > 1 else 0), (values[2] if len(of) > 2 else 1)
                end = values[min(1, len(of) - 1)] or end
            section.append(slice(start, end, step))
        return tuple(shape), tuple(section)


class Function:
    """A random function, its text and its model."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.name, self.is_fortran = f"f{seed}", rng.random() < 0.5
        self.arrays = [Array(rng, f"x{index}", "nm") for index in range(rng.randint(1, 4))]
        self.scalar = rng.choice([ty for ty in DTYPES if ty != "char"])

    def text(self):
        """The C function, and its interface."""
        star = "*" if self.is_fortran else ""
        s = self.scalar
        c = [f"int {star}of_n", f"int {star}of_m", f"{C_NAMES.get(s, s)} {star}of_s"]
        body = [f"int64_t n = {star}of_n, m = {star}of_m; {C_NAMES.get(s, s)} s = {star}of_s;"]
        body.append("sums[0] = sum(&s, sizeof s);")
        lengths = []
        for index, array in enumerate(self.arrays, 1):
            c.append(f"{C_NAMES.get(array.type, array.type)} *{array.name}")
            if self.is_fortran and array.type == "char":
                lengths.append(f"size_t length{index}")
            bytes_ = f"sizeof *{array.name}{''.join(f' * ({size})' for size, _ in array.dims)}"
            is_read, is_written = array.mode != "OUT", array.mode != "IN"
            body.append(f"sums[{index}] = {f'sum({array.name}, {bytes_})' if is_read else 0};")
            if is_written:
                body.append(f"change({array.name}, {bytes_}, {int(is_read)});")
        names = ["n", "m", "s", *(array.name for array in self.arrays), "sums"]
        declared = ["IN int n", "IN int m", f"IN {s} s", *(a.declared() for a in self.arrays)]
        declared.append(f"OUT uint64_t sums[{len(self.arrays) + 1}]")
        symbol = self.name + ("_" if self.is_fortran else "")
        arguments = ", ".join([*c, "uint64_t *sums", *lengths])
        language = "FORTRAN" if self.is_fortran else "C"
        return (
            f"void {symbol}({arguments}) {{ {' '.join(body)} }}\n",
            f"Define {self.name}({', '.join(declared)})\n"
            f'    Repeatable "yes" Calls "{language}" {self.name}({", ".join(names)});\n',
        )


class Case:
    """One call: arguments, and what the model expects."""

    def __init__(self, function, seed, is_stored):
        rng = np.random.default_rng(seed)
        self.function = function
        sizes = {"n": int(rng.integers(0, 5)), "m": int(rng.integers(1, 4))}
        s = np.array(rng.integers(0, 100)).astype(DTYPES[function.scalar])
        if s.dtype.kind == "c":
            s += s.dtype.type(1j)
        self.arguments = sizes | {"s": s[()] if rng.random() < 0.5 else s.item()}
        self.sums, self.results, self.stored = [summed(s.tobytes())], {}, {}
        for array in function.arrays:
            shape, section = array.layout(sizes)
            shown = shape[::-1] if function.is_fortran else shape
            given = self.given(rng, array, shown)
            whole = np.array(given).astype(array.dtype)
            if function.is_fortran:
                whole = whole.T
            seen = np.zeros(shape, array.dtype)
            seen[section] = whole[section]
            data = np.frombuffer(seen.tobytes(), np.uint8)
            self.sums.append(0 if array.mode == "OUT" else summed(data.tobytes()))
            if array.mode != "IN":
                new = (weights(len(data)) >> np.uint64(56)).astype(np.uint8)
                new ^= data if array.mode == "INOUT" else np.uint8(0)
                whole[section] = new.view(array.dtype).reshape(shape)[section]
                self.results[array.name] = whole.T if function.is_fortran else whole
            is_whole = whole[section].shape == shape
            if is_stored and is_whole and given.flags.writeable and given.dtype == array.dtype:
                self.stored[array.name] = given
            self.arguments[array.name] = given

    def given(self, rng, array, shape):
        """An array of the caller: with steps, read-only, of another order, byte order or type."""
        data = rng.integers(0, 256, int(np.prod(shape)) * array.dtype.itemsize, dtype=np.uint8)
        given = data.view(array.dtype).reshape(shape)
        kind = rng.integers(7)
        if kind == 0:
            return np.asfortranarray(given)
        if kind in (1, 2):
            step = 2 if kind == 1 else -1
            whole = np.zeros([2 * length for length in shape], array.dtype)
            view = whole[tuple(slice(None, None, step) for _ in shape)]
            view = view[tuple(slice(0, length) for length in shape)]
            view[...] = given
            return view
        if array.mode == "IN" and kind == 3:
            given.flags.writeable = False
        elif array.mode == "IN" and kind == 4 and array.dtype.kind != "S":
            return given.astype(array.dtype.newbyteorder(">"))
        elif array.mode == "IN" and kind == 5 and array.dtype.kind in "fc":
            return rng.integers(-99, 99, shape, dtype=np.int8)
        return given

    def check(self, result, call):
        assert result.sums.tolist() == self.sums, call
        for name, expected in self.results.items():
            got = getattr(result, name)
            got = got.get() if isinstance(got, (farcall.Handle, farcall.RemoteArray)) else got
            assert (got.shape, got.tobytes()) == (expected.shape, expected.tobytes()), (name, call)


def run(way, server, function, cases):
    """The results of the calls."""
    calls = [case.arguments for case in cases]
    order = "F" if cases[0].function.is_fortran else "C"
    written = [a.name for a in cases[0].function.arrays if a.mode != "IN"]
    if way == "map":
        return function.map(calls).wait()
    if way == "transaction":
        # It does not fill arrays in another order than that of the function.
        own = [{k: np.array(c[k], order=order) for k in written} for c in calls]
        calls = [call | arrays for call, arrays in zip(calls, own, strict=True)]
        with server.transaction():
            results = [function(**call) for call in calls]
        return [one._replace(sums=np.asarray(one.sums)) for one in results]
    if way == "durable":
        out = {a.name for a in cases[0].function.arrays if a.mode == "OUT"}
        jobs = [function.submit(**{k: v for k, v in c.items() if k not in out}) for c in calls]
        return [job.fetch(timeout=60) for job in jobs]
    if way == "handles":
        put = [{k: server.put(v, order=order) for k, v in c.stored.items()} for c in cases]
        return [function(**(call | own)) for call, own in zip(calls, put, strict=True)]
    if way == "async":
        return [future.result() for future in [function.call_async(**call) for call in calls]]
    return [function(**call) for call in calls]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    functions = [Function(seed) for seed in range(FUNCTIONS)]
    texts = [function.text() for function in functions]
    path = folder / "random.idl"
    code, interfaces = ("".join(part) for part in zip(*texts, strict=True))
    path.write_text(f"{GLOBALS}{code}}}\n{interfaces}")
    server = ServerProcess(path, options=["--allow-code", "--state", str(folder / "state")])
    yield server, functions
    server.stop()


@pytest.mark.parametrize("way", WAYS)
def test_random_functions_do_what_their_model_does(served, way):
    process, functions = served
    server = process.connect(same_host=way != "tcp")
    for index, function in enumerate(functions):
        seed = 1000 * index
        cases = [Case(function, seed + call, way == "handles") for call in range(CALLS)]
        # A durable call has arrays of its own, which have zeros outside of a section.
        if way == "durable":
            full = [a.name for a in function.arrays if not any(of for _, of in a.dims)]
            for case in cases:
                case.results = {k: v for k, v in case.results.items() if k in full}
        called = server.function(f"random/{function.name}")
        for case, result in zip(cases, run(way, server, called, cases), strict=True):
            case.check(result, f"{way}, seed {seed}: {case.arguments}")
