"""`farcall.scipy` beside SciPy itself."""

import farcall
import numpy as np
import pytest
import scipy.fft
import scipy.linalg
from farcall.scipy import fft, linalg

TYPES = [np.float32, np.float64, np.complex64, np.complex128, np.int64]


@pytest.fixture(autouse=True)
def served(library_server):
    with linalg.using(library_server.connect()):
        yield


def matrix(kind, *shape, seed=1):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.issubdtype(kind, np.complexfloating):
        values = values + 1j * rng.standard_normal(shape)
    if np.issubdtype(kind, np.integer):
        values = values * 10
    return values.astype(kind)


def positive(kind, n):
    a = matrix(kind, n, n)
    return a @ a.conj().T + n * np.eye(n, dtype=kind)


def same(ours, theirs, *, dtype=True):
    """The same numbers, in arrays of the same type, within the precision of the type."""
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other, dtype=dtype)
        return
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape
    if dtype:
        assert ours.dtype == theirs.dtype
    single = theirs.dtype.char in "fF"
    np.testing.assert_allclose(
        ours, theirs, rtol=2e-3 if single else 1e-8, atol=1e-4 if single else 1e-9
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("columns", [None, 1, 3])
def test_solve(kind, columns):
    a = matrix(kind, 5, 5)
    b = matrix(kind, *([5] if columns is None else [5, columns]), seed=2)
    same(linalg.solve(a, b), scipy.linalg.solve(a, b))
    spd = positive(kind, 5)
    for options in (
        {"assume_a": "pos"},
        {"assume_a": "pos", "lower": True},
        {"assume_a": "sym"},
        {"assume_a": "her", "lower": True},
        {"assume_a": "upper triangular"},
    ):
        same(linalg.solve(spd, b, **options), scipy.linalg.solve(spd, b, **options))
    if not np.issubdtype(kind, np.complexfloating):
        same(linalg.solve(a, b, transposed=True), scipy.linalg.solve(a, b, transposed=True))


@pytest.mark.parametrize("kind", TYPES)
def test_factors_and_solutions_with_them(kind):
    a, b = matrix(kind, 6, 6), matrix(kind, 6, 2, seed=2)
    same(linalg.inv(a), scipy.linalg.inv(a))
    assert linalg.det(a) == pytest.approx(scipy.linalg.det(a), rel=1e-5)
    spd = positive(kind, 6)
    for lower in (False, True):
        same(linalg.cholesky(spd, lower), scipy.linalg.cholesky(spd, lower))
        ours = linalg.cho_factor(spd, lower)
        same(linalg.cho_solve(ours, b), scipy.linalg.cho_solve((ours[0], lower), b))
    ours, theirs = linalg.lu_factor(a), scipy.linalg.lu_factor(a)
    same(ours[0], theirs[0])
    np.testing.assert_array_equal(ours[1], theirs[1])
    for trans in (0, 1, 2):
        same(linalg.lu_solve(ours, b, trans), scipy.linalg.lu_solve(theirs, b, trans))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7)])
def test_decompositions(kind, shape):
    a = matrix(kind, *shape)
    same(linalg.lu(a), scipy.linalg.lu(a), dtype=False)
    same(linalg.lu(a, permute_l=True), scipy.linalg.lu(a, permute_l=True))
    same(linalg.lu(a, p_indices=True), scipy.linalg.lu(a, p_indices=True), dtype=False)
    for mode in ("full", "economic", "r"):
        same(linalg.qr(a, mode=mode), scipy.linalg.qr(a, mode=mode))
    same(linalg.svdvals(a), scipy.linalg.svdvals(a))
    for full in (True, False):
        u, s, vh = linalg.svd(a, full_matrices=full)
        same(s, scipy.linalg.svd(a, full_matrices=full)[1])
        least = len(s)
        same((u[:, :least] * s) @ vh[:least], a.astype(u.dtype))
    same(linalg.pinv(a), scipy.linalg.pinv(a))
    b = matrix(kind, shape[0], 2, seed=3)
    x, residues, rank, s = scipy.linalg.lstsq(a, b)
    ours = linalg.lstsq(a, b)
    same((ours[0], ours[1], ours[3]), (x, residues, s))
    assert ours[2] == rank


@pytest.mark.parametrize("kind", TYPES)
def test_eigenvalues(kind):
    a = matrix(kind, 5, 5)
    w, vl, vr = linalg.eig(a, left=True)
    theirs, *_ = scipy.linalg.eig(a, left=True)
    order, other = np.argsort(w), np.argsort(theirs)
    same(w[order], theirs[other])
    same(np.sort(linalg.eigvals(a)), np.sort(scipy.linalg.eigvals(a)))
    precise = a.astype(vr.dtype)
    same(precise @ vr, vr * w, dtype=False)
    same(precise.conj().T @ vl, vl * w.conj(), dtype=False)
    assert linalg.eig(a, right=False).shape == (5,)
    assert linalg.eigvals(a, homogeneous_eigvals=True).shape == (2, 5)
    hermitian = positive(kind, 6)
    for lower in (True, False):
        w, v = linalg.eigh(hermitian, lower=lower)
        same(w, scipy.linalg.eigh(hermitian, lower=lower)[0])
        same(hermitian.astype(v.dtype) @ v, v * w)
    for subset in ({"subset_by_index": (1, 3)}, {"subset_by_value": (0, float(w[2] + w[3]) / 2)}):
        ours = linalg.eigvalsh(hermitian, **subset)
        same(ours, scipy.linalg.eigvalsh(hermitian, **subset))
        assert linalg.eigh(hermitian, **subset)[1].shape == (6, len(ours))


def test_symmetric_eigenvectors_of_real_and_defective_ones():
    a = np.array([[2.0, 1.0], [0.0, 3.0]])
    same(linalg.eig(a), scipy.linalg.eig(a))
    empty = linalg.eig(np.empty((0, 0)))
    assert empty[0].shape == (0,)


@pytest.mark.parametrize(
    "call",
    [
        lambda module: module.solve(np.zeros((2, 2)), [1, 2]),
        lambda module: module.cholesky(-np.eye(2)),
        lambda module: module.inv(np.zeros((2, 2))),
        lambda module: module.solve([[np.nan, 1], [1, 2]], [1, 2]),
        lambda module: module.solve(np.ones((2, 3)), [1, 2]),
        lambda module: module.solve(np.eye(2), np.ones((2, 2)), assume_a="nonsense"),
        lambda module: module.svd(np.ones(3)),
        lambda module: module.eigh(np.ones((2, 3))),
        lambda module: module.eigh(np.eye(2), subset_by_index=(0, 5)),
        lambda module: module.qr(np.eye(2), mode="nonsense"),
        lambda module: module.lstsq(np.eye(2), np.ones(3)),
    ],
)
def test_errors_are_of_the_same_kind(call):
    with pytest.raises((ValueError, np.linalg.LinAlgError)) as theirs:
        call(scipy.linalg)
    with pytest.raises(theirs.type):
        call(linalg)


@pytest.mark.parametrize("name", ["solve", "inv"])
def test_an_overwritten_array_can_be_a_part_of_another(name):
    a = np.asfortranarray(matrix(np.float64, 4, 4))
    changed = []
    for module in (linalg, scipy.linalg):
        whole, right = np.zeros((4, 12), order="F"), np.arange(12.0)
        whole[:, 4:8] = a
        if name == "solve":
            result = module.solve(a, right[4:8], overwrite_b=True)
            module.solve(whole[:, 4:8], [1, 2, 3, 4.0], overwrite_a=True)
        else:
            result = module.inv(whole[:, 4:8], overwrite_a=True)
        changed.append((result, right))
        assert not whole[:, :4].any() and not whole[:, 8:].any()
    same(*changed)


def test_a_right_side_that_may_be_overwritten_outlives_a_singular_matrix():
    b = np.arange(2.0)
    with pytest.raises(scipy.linalg.LinAlgError):
        linalg.solve(np.zeros((2, 2)), b, overwrite_b=True)
    assert b.tolist() == [0, 1]


def test_an_array_that_cannot_be_overwritten_stays_as_it_is():
    a, b = np.asfortranarray(matrix(np.float64, 4, 4)), np.arange(4.0)
    kept = a.copy(), b.copy()
    a.flags.writeable = b.flags.writeable = False
    same(linalg.solve(a, b, overwrite_a=True, overwrite_b=True), scipy.linalg.solve(*kept))
    same(linalg.inv(a, overwrite_a=True), scipy.linalg.inv(kept[0]))
    same((a, b), kept)


def test_what_no_server_computes_runs_here():
    a, b = matrix(np.float64, 5, 5), positive(np.float64, 5)
    symmetric = a + a.T
    same(linalg.qr(a, pivoting=True), scipy.linalg.qr(a, pivoting=True))
    same(linalg.qr(a, mode="raw")[1], scipy.linalg.qr(a, mode="raw")[1])
    same(linalg.eigh(symmetric, b), scipy.linalg.eigh(symmetric, b))
    same(linalg.eigvals(a, b), scipy.linalg.eigvals(a, b))
    same(linalg.svd(a, lapack_driver="gesvd"), scipy.linalg.svd(a, lapack_driver="gesvd"))
    ours, theirs = (
        module.lstsq(a, b[:, 0], lapack_driver="gelsy") for module in (linalg, scipy.linalg)
    )
    same(ours[0], theirs[0])
    with pytest.raises(NotImplementedError):
        linalg.solve(a + 1j, b, transposed=True)


def test_the_rest_of_scipy_runs_here():
    same(linalg.expm(np.zeros((2, 2))), np.eye(2))
    assert linalg.block_diag is scipy.linalg.block_diag
    assert fft.dct is scipy.fft.dct
    with pytest.raises(AttributeError):
        linalg.no_such_function  # noqa: B018


def test_help_is_scipys():
    assert fft.rfft.__doc__ == scipy.fft.rfft.__doc__
    assert linalg.solve.__doc__ == scipy.linalg.solve.__doc__


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_transforms(kind, norm):
    x = matrix(kind, 4, 6)
    for name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn"):
        ours = getattr(fft, name)(x, norm=norm)
        same(ours, getattr(scipy.fft, name)(x, norm=norm))
    same(fft.fft(x, 8, axis=0), scipy.fft.fft(x, 8, axis=0))
    same(fft.fftn(x, s=[5]), scipy.fft.fftn(x, s=[5]))
    if np.issubdtype(kind, np.complexfloating):
        with pytest.raises(TypeError):
            fft.rfft(x)
        same(fft.irfft(x, norm=norm), scipy.fft.irfft(x, norm=norm))
    else:
        same(fft.rfft(x, norm=norm), scipy.fft.rfft(x, norm=norm))


def test_it_is_computed_at_the_server(start, tmp_path):
    path = tmp_path / "nothing.idl"
    path.write_text('Module m;\nLibrary "libm.so.6";\nDefine f(IN int n) Calls "C" cos(n);\n')
    with linalg.using(start(path).connect()):
        for call in (lambda: linalg.solve(np.eye(2), [1, 2]), lambda: fft.fft([1.0, 2.0])):
            with pytest.raises(farcall.UnknownFunction):
                call()


@pytest.mark.parametrize("name", ["inv", "svd", "eigh", "eig", "solve"])
def test_what_has_no_numbers_is_refused_as_scipy_does(name):
    for a in (np.array([[1, 2], [3, 4]], object), np.array([["a", "b"], ["c", "d"]])):
        arguments = (a, np.ones(2)) if name == "solve" else (a,)
        with pytest.raises(ValueError) as theirs:
            getattr(scipy.linalg, name)(*arguments)
        with pytest.raises(ValueError) as ours:
            getattr(linalg, name)(*arguments)
        assert str(ours.value) == str(theirs.value)
