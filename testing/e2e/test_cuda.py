"""The functions of libraries/cuda.idl against NumPy, on a machine with a GPU."""

import doctest
import pathlib
import re

import farcall
import numpy as np
import pytest
from farcall import cuda
from servers import ROOT, ServerProcess

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/dev/nvidia0").exists(), reason="this machine has no GPU of NVIDIA"
)
TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}


@pytest.fixture(scope="module")
def server():
    process = ServerProcess("cuda", options=["--gpus", "1"])
    try:
        yield process.connect()
    finally:
        process.stop()


def matrix(p, *shape):
    """A matrix of random numbers, always the same."""
    random = np.random.default_rng(len(shape) + sum(shape))
    real = random.standard_normal(shape)
    values = real + 1j * random.standard_normal(shape) if p in "cz" else real
    return values.astype(TYPES[p])


def hermitian(p, n):
    a = matrix(p, n, n)
    return a @ a.conj().T + n * np.eye(n, dtype=TYPES[p])


def check(found, expected, p):
    """Equal as far as the precision allows."""
    bound = 2e-4 if p in "sc" else 1e-11
    scale = max(1, np.abs(expected).max(initial=0))
    assert found.dtype == expected.dtype
    assert np.abs(found - expected).max(initial=0) <= bound * scale


def test_the_examples_of_the_page(server):
    _, _, text = (ROOT / "docs" / "libraries.md").read_text().partition("## CUDA")
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))
    names = {"server": server, "np": np}
    page = doctest.DocTestParser().get_doctest(examples, names, "libraries.md", None, 0)
    runner = doctest.DocTestRunner()
    assert runner.run(page).failed == 0
    assert runner.summarize().attempted == 4


OPERATIONS = {"N": lambda a: a, "T": lambda a: a.T, "C": lambda a: a.conj().T}


@pytest.mark.parametrize("p", TYPES)
@pytest.mark.parametrize("transa", "NTC")
@pytest.mark.parametrize("transb", "NTC")
def test_gemm(server, p, transa, transb):
    m, n, k = 5, 7, 4
    a = matrix(p, *((m, k) if transa == "N" else (k, m)))
    b = matrix(p, *((k, n) if transb == "N" else (n, k)))
    c = matrix(p, m, n)
    product = OPERATIONS[transa](a) @ OPERATIONS[transb](b)
    alpha, beta = (2 - 1j, 0.5j) if p in "cz" else (2.0, 0.5)
    expected = (alpha * product + beta * c).astype(TYPES[p])
    server.call(f"cuda/{p}gemm", transa, transb, m, n, k, alpha, a, b, beta, c)
    check(c, expected, p)


@pytest.mark.parametrize("p", TYPES)
@pytest.mark.parametrize("name", ["gesv", "posv"])
def test_systems(server, p, name):
    n, nrhs = 33, 3
    a = hermitian(p, n) if name == "posv" else matrix(p, n, n)
    x = matrix(p, nrhs, n)
    b = np.ascontiguousarray((a @ x.T).T)
    found = server.call(f"cuda/{p}{name}", n, nrhs, a, b)
    assert found.info == 0
    check(found.x, x, p if p in "sc" else "d")
    wrong = -np.eye(n, dtype=TYPES[p]) if name == "posv" else np.zeros((n, n), TYPES[p])
    assert server.call(f"cuda/{p}{name}", n, nrhs, wrong, b).info == 1


@pytest.mark.parametrize("p", TYPES)
def test_eigenvalues(server, p):
    n = 21
    a = hermitian(p, n)
    found = server.call(f"cuda/{p}{'heevd' if p in 'cz' else 'syevd'}", n, a)
    assert found.info == 0
    check(found.w, np.linalg.eigvalsh(a), p)
    check(found.v * found.w @ found.v.conj().T, a, p)


@pytest.mark.parametrize("p", TYPES)
@pytest.mark.parametrize("shape", [(9, 5), (5, 9), (6, 6)])
def test_singular_values(server, p, shape):
    a = matrix(p, *shape)
    found = server.call(f"cuda/{p}gesvd", *shape, a)
    assert found.info == 0
    check(found.s, np.linalg.svd(a, compute_uv=False), p)
    check((found.u * found.s @ found.vt).astype(TYPES[p]), a, p)
    check(found.u.conj().T @ found.u, np.eye(min(shape), dtype=TYPES[p]), p)


@pytest.mark.parametrize("p", "cz")
@pytest.mark.parametrize("dims", [(16,), (15, 6), (4, 5, 6)])
def test_transforms(server, p, dims):
    howmany, total = 3, int(np.prod(dims))
    x = matrix(p, howmany, total)
    axes = tuple(range(1, len(dims) + 1))
    stacked = x.reshape(howmany, *dims)
    for sign, transform, scale in ((-1, np.fft.fftn, 1), (1, np.fft.ifftn, total)):
        found = server.call(
            f"cuda/{p}fft", len(dims), np.array(dims, np.int32), howmany, total, sign, x
        )
        expected = (transform(stacked, axes=axes) * scale).reshape(howmany, total)
        check(found.y, expected.astype(TYPES[p]), p)


@pytest.mark.parametrize("p", TYPES)
def test_arrays_stay_on_the_device(server, p):
    a, b = hermitian(p, 12), matrix(p, 4, 12)
    with cuda.Device(server) as device:
        on_a, on_b = device.put(a), device.put(b)
        check((on_a @ on_a).get(), a @ a, p)
        check(device.gemm(on_a, on_b, alpha=2, transb="C").get(), 2 * a @ b.conj().T, p)
        out = device.put(a)
        assert device.gemm(on_a, on_a, beta=-1, out=out) is out
        check(np.asarray(out), a @ a - a, p)
        before = out.get()
        device.gemm(on_a, out, out=out)
        check(out.get(), a @ before, p)
        expected = np.linalg.solve(a, b.T).T
        check(device.solve(on_a, on_b).get(), expected, p)
        check(device.solve(on_a, on_b, positive=True).get(), expected, p)
        w, v = device.eigh(on_a)
        check(v.get() * w.get() @ v.get().conj().T, a, p)
        u, s, vt = device.svd(on_b)
        check((u.get() * s.get() @ vt.get()).astype(TYPES[p]), b, p)
        check(on_a.get(), a, p)
        if p in "cz":
            x = device.put(b.reshape(4, 3, 4))
            check(device.fft(x, 2).get(), np.fft.fft2(x.get()).astype(TYPES[p]), p)
            check(device.ifft(device.fft(x)).get() / 4, b.reshape(4, 3, 4), p)
        with pytest.raises(np.linalg.LinAlgError, match="singular"):
            device.solve(device.put(np.zeros_like(a)), on_b)


def test_memory_is_released_with_its_arrays(server):
    with cuda.Device(server) as device:
        device.put(np.zeros(1)).get()
        before, _ = device.memory()
        array = device.put(np.zeros(50_000_000))
        assert device.memory()[0] <= before - 400_000_000
        del array
        assert device.memory()[0] >= before - 10_000_000


def test_errors_say_what_to_do(server):
    with cuda.Device(server) as device:
        a, b = device.put(np.zeros((2, 3))), device.put(np.zeros((4, 5)))
        with pytest.raises(farcall.Error, match=r"op\(a\) is 2 x 3 and op\(b\) is 4 x 5"):
            a @ b
        with pytest.raises(farcall.Error, match="2 x 3, and must be square"):
            device.solve(a, b)
        with pytest.raises(farcall.Error, match="different types"):
            a @ device.put(np.zeros((3, 2), np.complex64))
        with pytest.raises(farcall.Error, match="must be complex"):
            device.fft(a)
        with pytest.raises(farcall.Error, match=r"arrays are real, and alpha is 0\+1i"):
            device.gemm(a, a, alpha=1j, transb="T")
        device._unused.append(a._number)
        with pytest.raises(farcall.Error, match=r"no array .* was dropped"):
            a.get()
        vector = device.put(np.zeros((1, 600_000)))
        with pytest.raises(farcall.Error, match=r"full: 2880000\.0 MB are needed, .* are free"):
            device.gemm(vector, vector, transa="T")
        check(b.get(), np.zeros((4, 5)), "d")
        dims = np.array([4], np.int32)
        with pytest.raises(farcall.Error, match="total is 6, and the product of dims is 4"):
            server.call("cuda/zfft", 1, dims, 2, 6, -1, np.zeros((2, 6), complex))
        with pytest.raises(TypeError, match="int64; convert it to float32"):
            device.put(np.arange(3))
