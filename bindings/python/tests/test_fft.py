"""`farcall.fft` and `numpy.fft` agree."""

import numpy as np
import pytest
from farcall import fft

DTYPES = "?bifdFDe"
SHAPES = [(1,), (2,), (8,), (9,), (3, 5), (4, 1, 6), (0, 4)]
NORMS = [None, "backward", "ortho", "forward"]


@pytest.fixture(autouse=True)
def offload(server):
    with fft.using(server):
        yield


def values(shape, dtype, order="C"):
    rng = np.random.default_rng(0)
    array = rng.uniform(-4, 4, shape)
    if dtype in "FD":
        array = array + 1j * rng.uniform(-4, 4, shape)
    return np.array(array.astype(dtype), order=order)


def same(got, expected, dtype=None):
    """Equal but for rounding; NumPy rounds the scale of half precision to half precision."""
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    tolerance = {"e": 1e-3, "f": 1e-5, "F": 1e-5}.get(got.dtype.char, 1e-12)
    tolerance = 1e-3 if dtype == "e" else tolerance
    scale = np.abs(expected).max(initial=1)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


@pytest.fixture(params=list(DTYPES))
def dtype(request):
    return request.param


def names(dtype):
    return ["fft", "ifft", "irfft"] + ([] if dtype in "FD" else ["rfft"])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_one_axis(dtype, shape, norm):
    array = values(shape, dtype)
    for name in names(dtype):
        ours, numpys = getattr(fft, name), getattr(np.fft, name)
        for axis in range(-len(shape), len(shape)):
            for n in None, 1, 2, 5, 6, 11:
                if n is None and shape[axis] <= (name == "irfft"):
                    continue
                if name == "irfft" and shape[axis] == 0:
                    assert not ours(array, n, axis, norm).any()  # NumPy's is uninitialised
                    continue
                same(ours(array, n, axis, norm), numpys(array, n, axis, norm), dtype)


@pytest.mark.parametrize("order", ["C", "F"])
def test_orders_and_views(order):
    array = values((6, 8), "D", order)
    for view in array, array[::2, ::-1], array.T:
        before = view.copy()
        same(fft.fft(view, axis=0), np.fft.fft(view, axis=0))
        same(fft.irfft(view), np.fft.irfft(view))
        assert (view == before).all()
    same(fft.fft([1, 2, 3]), np.fft.fft([1, 2, 3]))


@pytest.mark.parametrize("norm", NORMS)
def test_several_axes(dtype, norm):
    array = values((3, 4, 5), dtype)
    for name in "fft2", "ifft2", "fftn", "ifftn":
        ours, numpys = getattr(fft, name), getattr(np.fft, name)
        same(ours(array, norm=norm), numpys(array, norm=norm), dtype)
        for s, axes in ((6, 2), (0, 2)), ((-1, 7), (-1, 0)), (None, (1,)), (None, (1, 1)):
            same(ours(array, s, axes, norm), numpys(array, s, axes, norm), dtype)


def test_there_and_back():
    array = values((100, 1000), "d")
    assert np.allclose(fft.irfft(fft.rfft(array)), array)
    assert np.allclose(fft.ifft2(fft.fft2(array)), array)


def test_out():
    array, out = values((3, 4), "d"), np.empty((3, 4), np.complex128)
    for function in fft.fft, fft.ifft, fft.fft2:
        assert function(array, out=out) is out
        same(out, getattr(np.fft, function.__name__)(array))
    for module in np.fft, fft:
        with pytest.raises(ValueError, match="output array has wrong shape"):
            module.fft(array, out=np.empty((3, 5), np.complex128))


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.fft([]),
        lambda m: m.fft([1.0], n=0),
        lambda m: m.fft([1.0], n=-1),
        lambda m: m.fft(3.0),
        lambda m: m.fft([1.0], axis=2),
        lambda m: m.fft([1.0], n=3, axis=2),
        lambda m: m.fft([1.0], n=2.5),
        lambda m: m.irfft([1.0]),
        lambda m: m.rfft([1j]),
        lambda m: m.fft(["a"]),
        lambda m: m.fft([1.0], norm="else"),
        lambda m: m.ifft([1.0], norm="else"),
        lambda m: m.fft2([1.0, 2.0]),
        lambda m: m.fft2(np.ones((2, 2)), s=(3,)),
    ],
)
def test_errors_are_of_numpys_kinds(call):
    kinds = []
    for module in np.fft, fft:
        with pytest.raises((ValueError, IndexError, TypeError)) as caught:
            call(module)
        kinds.append(
            next(k for k in (ValueError, IndexError, TypeError) if isinstance(caught.value, k))
        )
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_a_result_with_more_bits_is_computed_with_them(name):
    x = np.arange(8, dtype=np.float32) ** 0.5
    exact = getattr(np.fft, name)(x.astype(float), 8)
    out = np.zeros_like(exact)
    assert getattr(fft, name)(x, 8, out=out) is out
    assert abs(out - exact).max() < 1e-14


def test_infinity_times_a_scale_is_infinity():
    x = np.array([1.0, np.inf])
    with np.errstate(invalid="raise"):
        for name in ("ifft", "ihfft"):
            assert (getattr(fft, name)(x) == getattr(np.fft, name)(x)).all()
        assert fft.fft(x, norm="ortho").real.tolist() == [np.inf, -np.inf]


def test_what_stays_here_is_numpys():
    assert fft.fftfreq is np.fft.fftfreq
    assert fft.fftshift is np.fft.fftshift
