"""Arrays of other libraries as arguments."""

import types

import farcall
import numpy as np
import pytest
import scipy.sparse
from farcall import _arrays, cuda


class Tensor:
    """What a library with DLPack hands over: memory of its own, by the older protocol."""

    def __init__(self, array, device=(1, 0)):
        self._array, self._device = array, device

    def __dlpack__(self, **_options):
        if self._device[0] != 1:
            raise BufferError("memory of device 2")
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._device

    def __array__(self, dtype=None, copy=None):
        return self._array


class Sparse:
    """A sparse matrix as SciPy's look."""

    def __init__(self, dense):
        self._dense = dense
        self.nnz = np.count_nonzero(dense)

    def toarray(self):
        return self._dense.copy()


def test_tensors_are_read_and_filled_in_place(server):
    x, y = np.arange(5.0), np.arange(5.0)
    tensor = Tensor(y)
    result = server.call("daxpy", 5, 2.0, Tensor(x), 1, tensor, 1)
    assert result.y is tensor
    np.testing.assert_array_equal(y, 3 * x)


def test_tensors_in_the_other_order_are_filled_too(server):
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    tensor = Tensor(a)
    right = np.array([4.0, 7.0])
    result = server.call("dgesv", n=2, nrhs=1, a=tensor, lda=2, b=right, ldb=2)
    np.testing.assert_allclose(result.b, [1, 2])
    assert result.a is tensor
    assert a[0, 0] == 2.0 and a[1, 1] == 2.5


def test_a_tensor_on_a_device_is_refused_with_a_remedy(server):
    with pytest.raises(farcall.ArgumentError, match=r"`x`.*device 2.*memory of this\s+host"):
        server.call("dnrm2", 3, Tensor(np.ones(3), (2, 0)), 1)


class OnDevice(Tensor):
    """An array of a device that copies itself to the host on request, by the newer protocol."""

    def __init__(self, array):
        super().__init__(array, (2, 0))

    def __dlpack__(self, *, dl_device=None, copy=None, **_options):
        if dl_device != (1, 0) or not copy:
            raise BufferError("memory of device 2")
        return self._array.copy().__dlpack__()


def test_a_tensor_on_a_device_is_copied_to_the_host(server):
    assert server.call("dnrm2", 3, OnDevice(np.array([2.0, 3.0, 6.0])), 1).r == 7


def test_a_tensor_on_a_device_is_not_filled(server):
    with pytest.raises(farcall.ArgumentError, match=r"`x`.*device 2, which a call cannot fill"):
        server.call("dscal", 3, 2.0, OnDevice(np.ones(3)), 1)


def test_a_sparse_matrix_is_made_dense(server):
    dense = np.diag([2.0, 4.0])
    result = server.call("dgemv", "N", 2, 2, 1.0, Sparse(dense), 2, [1, 2], 1, 0.0, np.zeros(2), 1)
    np.testing.assert_array_equal(result.y, [2, 8])
    with pytest.raises(farcall.ArgumentError, match="writable array"):
        server.call("dscal", 2, 2.0, object(), 1)


def test_a_matrix_of_scipy(server):
    matrix = scipy.sparse.csr_array(np.diag([2.0, 4.0]))
    result = server.call("dgemv", "N", 2, 2, 1.0, matrix, 2, [1, 2], 1, 0.0, np.zeros(2), 1)
    np.testing.assert_array_equal(result.y, [2, 8])


def test_a_sparse_matrix_is_not_filled(server):
    right = scipy.sparse.csr_array(np.ones((2, 1)))
    with pytest.raises(farcall.ArgumentError, match=r"`b`.*sparse matrix.*toarray"):
        server.call("dgesv", n=2, nrhs=1, a=np.eye(2), lda=2, b=right, ldb=2)


def test_a_device_does_not_lose_the_mask_of_an_array():
    device = cuda.Device(types.SimpleNamespace(new=lambda _name: None))
    with pytest.raises(farcall.ArgumentError, match="its mask would be lost"):
        device.put(np.ma.masked_array([1.0, 2.0], mask=[0, 1]))


def test_an_array_of_floats_becomes_no_objects():
    class Floats:
        dtype = "torch.float64"

        def __array__(self, dtype=None, copy=None):
            raise AssertionError("it is not looked for integers")

    assert _arrays.rounded(Floats(), np.array([1e300]), np.float64) is None
    mixed = [2**53 + 1, 0.5]
    assert _arrays.rounded(mixed, np.array(mixed), np.float64) == "9007199254740993"


def test_a_device_takes_arrays_whose_bytes_are_in_the_other_order():
    made = types.SimpleNamespace(id=7)
    methods = types.SimpleNamespace(method=lambda _name: lambda *_: made)
    device = cuda.Device(types.SimpleNamespace(new=lambda _name: methods))
    assert device.put(np.arange(3, dtype=">f8")).dtype == np.float64
    with pytest.raises(TypeError, match="convert it to float32"):
        device.put(np.arange(3, dtype=">i8"))


def test_two_threads_may_release_the_arrays_of_a_device():
    class Taken(list):
        """Numbers that another thread takes as soon as this one has counted them."""

        def __len__(self):
            count = super().__len__()
            self.clear()
            return count

    called = []
    methods = types.SimpleNamespace(method=lambda name: lambda *_: called.append(name))
    device = cuda.Device(types.SimpleNamespace(new=lambda _name: methods))
    device._unused = Taken([1, 2])
    device._call("memory")
    assert called[-1] == "memory"


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (farcall.data("atoms"), r"server\.get\(farcall\.data\("),
        (farcall.url("folder:atoms.npy"), r"server\.put\(farcall\.url\("),
    ],
)
def test_numpy_makes_no_array_of_a_name_or_an_address(given, remedy):
    with pytest.raises(TypeError, match=f"not an array here.*{remedy}"):
        np.asarray(given)
    with pytest.raises(TypeError, match=remedy):
        np.array(given, dtype=np.float64, copy=True)
