"""`farcall.linalg` and `numpy.linalg` agree."""

import asyncio
import multiprocessing
import pickle
import threading

import farcall
import numpy as np
import pytest
from farcall import _stacks, linalg
from servers import LIBRARIES

DTYPES = [np.float32, np.float64, np.complex64, np.complex128, np.int32, np.bool_]
STACKS = [(), (3,), (2, 3), (0,), (40,)]
SIZES = [0, 1, 2, 7]


@pytest.fixture(autouse=True)
def offload(server):
    with linalg.using(server):
        yield


def matrix(*shape, dtype=np.float64, order="C", seed=0):
    rng = np.random.default_rng(seed)
    values = rng.uniform(-4, 4, shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.uniform(-4, 4, shape)
    if dtype is np.bool_:
        values = values > 0
    return np.array(values.astype(dtype), order=order)


def regular(*stack, n, dtype, order="C"):
    """Well-conditioned square matrices."""
    a = matrix(*stack, n, n, dtype=dtype, order=order)
    return a if dtype is np.bool_ else a + (9 * n * np.eye(n)).astype(dtype)


def hermitian(*stack, n, dtype):
    a = matrix(*stack, n, n, dtype=dtype)
    return a | np.swapaxes(a, -1, -2) if dtype is np.bool_ else a + np.swapaxes(a, -1, -2).conj()


def positive(*stack, n, dtype):
    return hermitian(*stack, n=n, dtype=dtype) + (20 * n * np.eye(n)).astype(dtype)


def same(got, expected, tolerance=None):
    """The same type, shape and, but for rounding, values."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if tolerance is None:
        tolerance = 2e-5 if got.dtype.char in "fF" else 1e-11
    scale = np.abs(expected).max(initial=1, where=np.isfinite(expected))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale)


def alike(got, expected):
    """The same type and shape. Few different numbers make matrices without full rank, and then
    rounding, which depends on the processor, says which factors come."""
    same(np.zeros_like(got), np.zeros_like(expected))


@pytest.fixture(params=DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def dtype(request):
    return request.param


@pytest.fixture(params=STACKS, ids=str)
def stack(request):
    return request.param


def test_a_transaction_takes_no_result_that_is_needed_at_once(server):
    a, b = regular(n=3, dtype=np.float64), matrix(3)
    with (
        pytest.raises(farcall.ArgumentError, match="before or after the transaction"),
        server.transaction(),
    ):
        linalg.solve(a, b)
    same(linalg.solve(a, b), np.linalg.solve(a, b))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_inv_and_solve(dtype, stack, n, order):
    if dtype is np.bool_:
        a = np.zeros(stack + (n, n), dtype) | np.eye(n, dtype=dtype)
    else:
        a = regular(*stack, n=n, dtype=dtype, order=order)
    before = a.copy()
    same(linalg.inv(a), np.linalg.inv(a))
    for columns in 0, 1, 3:
        b = matrix(*stack, n, columns, dtype=dtype, order=order, seed=1)
        same(linalg.solve(a, b), np.linalg.solve(a, b))
    b = matrix(n, dtype=dtype)
    same(linalg.solve(a, b), np.linalg.solve(a, b))
    assert (a == before).all()


def test_solve_broadcasts_and_mixes_types():
    a = regular(2, 1, n=4, dtype=np.float32)
    same(linalg.solve(a, matrix(3, 4, 2)), np.linalg.solve(a, matrix(3, 4, 2)))
    b = matrix(4, 2, dtype=np.complex64)
    same(linalg.solve(a, b), np.linalg.solve(a, b))
    same(linalg.solve(a.tolist(), [1, 2, 3, 4]), np.linalg.solve(a.tolist(), [1, 2, 3, 4]))


@pytest.mark.parametrize("n", SIZES)
def test_cholesky(dtype, stack, n):
    if dtype is np.bool_:
        pytest.skip("no such sums of truth values")
    a = positive(*stack, n=n, dtype=dtype)
    same(linalg.cholesky(a), np.linalg.cholesky(a))
    same(linalg.cholesky(a, upper=True), np.linalg.cholesky(a, upper=True))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 1), (0, 3), (3, 0), (0, 0)], ids=str)
def test_qr(dtype, stack, shape):
    a = matrix(*stack, *shape, dtype=dtype)
    compare = same if np.dtype(dtype).kind in "fc" else alike
    compare(linalg.qr(a, "r"), np.linalg.qr(a, "r"))
    for got, expected in zip(linalg.qr(a, "raw"), np.linalg.qr(a, "raw"), strict=True):
        compare(got, expected)
    for mode in "reduced", "complete":
        result, expected = linalg.qr(a, mode), np.linalg.qr(a, mode)
        compare(result.Q, expected.Q)
        compare(result.R, expected.R)
        assert np.allclose(result.Q @ result.R, a, atol=1e-4)
        square = np.swapaxes(result.Q, -1, -2).conj() @ result.Q
        assert np.allclose(square, np.eye(result.Q.shape[-1]), atol=1e-4)
        assert np.allclose(result.R, np.triu(result.R))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 1), (0, 3), (3, 0), (0, 0)], ids=str)
def test_svd(dtype, stack, shape):
    a = matrix(*stack, *shape, dtype=dtype)
    expected = np.linalg.svd(a, compute_uv=False)
    same(linalg.svd(a, compute_uv=False), expected)
    same(linalg.svdvals(a), expected)
    for full in True, False:
        result, numpys = linalg.svd(a, full), np.linalg.svd(a, full)
        same(result.S, expected)
        for got, other in zip(result, numpys, strict=True):
            assert (got.shape, got.dtype) == (other.shape, other.dtype)
        k = min(shape)
        product = result.U[..., :k] * result.S[..., np.newaxis, :] @ result.Vh[..., :k, :]
        assert np.allclose(product, a, atol=1e-4)


@pytest.mark.parametrize("n", SIZES)
def test_hermitian_matrices(dtype, stack, n):
    a = hermitian(*stack, n=n, dtype=dtype)
    for uplo in "L", "U", "l":
        same(linalg.eigvalsh(a, uplo), np.linalg.eigvalsh(a, uplo), 1e-4)
        result, expected = linalg.eigh(a, UPLO=uplo), np.linalg.eigh(a, uplo)
        same(result.eigenvalues, expected.eigenvalues, 1e-4)
        v = result.eigenvectors
        assert v.dtype == expected.eigenvectors.dtype
        scaled = v * result.eigenvalues[..., np.newaxis, :]
        assert np.allclose(np.asarray(a, v.dtype) @ v, scaled, atol=1e-3)
    u, s, vh = linalg.svd(a, hermitian=True)
    same(s, np.linalg.svd(a, hermitian=True).S, 1e-4)
    same(linalg.svd(a, compute_uv=False, hermitian=True), s, 1e-4)
    assert np.allclose(u * s[..., np.newaxis, :] @ vh, a, atol=1e-4)


def test_only_one_triangle_is_read():
    a = matrix(6, 6)
    for uplo in "LU":
        same(linalg.eigvalsh(a, uplo), np.linalg.eigvalsh(a, uplo))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("real", [True, False])
def test_eig(dtype, stack, n, real):
    a = hermitian(*stack, n=n, dtype=dtype) if real else matrix(*stack, n, n, dtype=dtype)
    result, expected = linalg.eig(a), np.linalg.eig(a)
    if np.dtype(dtype).kind in "fc":
        same(result.eigenvalues, expected.eigenvalues, 1e-4)
        same(linalg.eigvals(a), np.linalg.eigvals(a), 1e-4)
        assert result.eigenvectors.dtype == expected.eigenvectors.dtype
    elif real:
        # Rounding may make a complex pair out of two equal eigenvalues.
        same(np.sort(result.eigenvalues.real), np.sort(expected.eigenvalues.real), 1e-4)
    v = result.eigenvectors
    assert v.shape == expected.eigenvectors.shape
    scaled = v * result.eigenvalues[..., np.newaxis, :]
    assert np.allclose(np.asarray(a, np.complex128) @ v, scaled, atol=1e-3)


@pytest.mark.parametrize("n", SIZES)
def test_determinants(dtype, stack, n):
    a = matrix(*stack, n, n, dtype=dtype)
    if n > 1 and stack and stack[0] > 1:
        a[1] = 1  # singular
    same(linalg.det(a), np.linalg.det(a), 1e-4)
    result, expected = linalg.slogdet(a), np.linalg.slogdet(a)
    same(result.sign, expected.sign, 1e-4)
    same(result.logabsdet, expected.logabsdet, 1e-4)


def test_a_determinant_is_a_number():
    assert isinstance(linalg.det(matrix(3, 3)), np.float64)
    assert isinstance(linalg.slogdet(matrix(3, 3)).sign, np.float64)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4), (1, 1), (0, 3), (3, 0)], ids=str)
@pytest.mark.parametrize("columns", [None, 0, 1, 3])
def test_lstsq(dtype, shape, columns):
    a = matrix(*shape, dtype=dtype)
    b = matrix(shape[0], *(() if columns is None else (columns,)), dtype=dtype, seed=1)
    result, expected = linalg.lstsq(a, b), np.linalg.lstsq(a, b)
    assert result[2] == expected[2]
    for index in 0, 1, 3:
        same(result[index], expected[index], 1e-4)


def test_lstsq_of_lower_rank():
    a = matrix(8, 2) @ matrix(2, 5)
    b = matrix(8, 2)
    for rcond in None, 1e-8, 0.9:
        result, expected = linalg.lstsq(a, b, rcond), np.linalg.lstsq(a, b, rcond)
        assert result[2] == expected[2]
        same(result[0], expected[0], 1e-8)
        same(result[1], expected[1])


def test_larger_matrices():
    a, b = matrix(150, 150), matrix(150, 4)
    same(linalg.solve(a, b), np.linalg.solve(a, b), 1e-8)
    same(linalg.svdvals(matrix(300, 20)), np.linalg.svdvals(matrix(300, 20)))
    for dtype in np.float64, np.complex128:
        tall = matrix(400, 40, dtype=dtype)
        for a in tall, tall.T:
            u, s, vh = linalg.svd(a)
            k = s.size
            assert np.allclose(u[:, :k] * s @ vh[:k], a)
            q, r = linalg.qr(a, "complete")
            assert np.allclose(q @ r, a)
            same(linalg.lstsq(a, a)[0], np.linalg.lstsq(a, a)[0], 1e-9)


SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
GOOD = np.eye(2)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.inv(SINGULAR),
        lambda m: m.solve(SINGULAR, [1, 2]),
        lambda m: m.inv(np.stack([GOOD, SINGULAR])),
        lambda m: m.inv(np.zeros((2, 2), np.float32)),
        lambda m: m.cholesky(-GOOD),
        lambda m: m.cholesky(np.stack([GOOD, SINGULAR - GOOD])),
        lambda m: m.cholesky(-1j * np.eye(2)),
        lambda m: m.svd([[np.nan, 1], [1, 1]]),
        lambda m: m.svd(np.full((3, 2), np.nan), compute_uv=False),
        lambda m: m.eigh(np.full((2, 2), np.nan)),
        lambda m: m.eig([[np.nan, 1], [1, 1]]),
        lambda m: m.eigvals([[np.inf, 1], [1, 1]]),
        lambda m: m.lstsq([[np.nan, 1], [1, 1]], [1, 2]),
        lambda m: m.lstsq(np.ones((3, 2)), np.ones(2)),
        lambda m: m.lstsq(np.ones((3, 2, 2)), np.ones(2)),
        lambda m: m.lstsq(np.ones((3, 2)), 1.0),
        lambda m: m.inv(np.ones((2, 3))),
        lambda m: m.inv(np.ones(3)),
        lambda m: m.inv(3.0),
        lambda m: m.det(np.ones((2, 3))),
        lambda m: m.svd(np.ones(3)),
        lambda m: m.qr(np.ones(3)),
        lambda m: m.eigh(np.ones((2, 3))),
        lambda m: m.inv(np.ones((2, 2), np.float16)),
        lambda m: m.inv(np.ones((2, 2), np.longdouble)),
    ],
)
def test_errors_are_numpys(call):
    outcomes = []
    for module in np.linalg, linalg:
        try:
            call(module)
            outcomes.append(None)
        except Exception as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda m: m.solve(np.eye(3), np.ones((2, 1))), ValueError),
        (lambda m: m.solve(np.ones((2, 2, 2)), np.ones((3, 2, 1))), ValueError),
        (lambda m: m.solve(np.eye(3), 1.0), ValueError),
        (lambda m: m.inv([["a"]]), TypeError),
        (lambda m: m.qr(np.eye(2), "else"), ValueError),
        (lambda m: m.eigh(np.eye(2), "X"), ValueError),
    ],
)
def test_kinds_of_errors_are_numpys(call, kind):
    for module in np.linalg, linalg:
        with pytest.raises(kind):
            call(module)


def test_the_next_call_is_good_after_an_error():
    stack = np.tile(np.eye(6), (100, 1, 1))
    stack[3] = 0
    for _ in range(10):
        with pytest.raises(linalg.LinAlgError):
            linalg.inv(stack)
        assert (linalg.inv(stack[:2]) == stack[:2]).all()


def test_what_stays_here_is_numpys():
    assert linalg.norm is np.linalg.norm
    assert linalg.vector_norm is np.linalg.vector_norm
    assert not hasattr(linalg, "lapack_lite")
    assert set(np.linalg.__all__) <= set(dir(linalg))
    assert linalg.LinAlgError is np.linalg.LinAlgError


def test_the_server_of_the_environment(library_server, monkeypatch):
    def work():
        return linalg.solve(GOOD, [1.0, 2.0]).tolist()

    monkeypatch.setenv("FARCALL_SERVER", library_server.address)
    linalg.use(None)
    try:
        assert in_thread(work) == [1, 2]
    finally:
        linalg.use(None)


@pytest.mark.parametrize("named", [True, False])
def test_a_child_process_connects_anew(library_server, monkeypatch, named):
    monkeypatch.setenv("FARCALL_SERVER", library_server.address)
    linalg.use(library_server.address if named else None)

    def work():
        assert linalg.inv(2 * GOOD)[0, 0] == 0.5
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return pool.map(linalg.det, [2 * GOOD])

    try:
        assert in_thread(work) == [pytest.approx(4)]
    finally:
        linalg.use(None)


def test_without_a_server_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setenv("FARCALL_SERVER", "farcall://127.0.0.1:1")
    linalg.use(None)

    def work():
        with pytest.raises(farcall.ConnectionError, match=r"linalg\.use"):
            linalg.inv(GOOD)

    in_thread(work)


def test_what_is_no_server_is_refused_at_once():
    with pytest.raises(TypeError, match="given int 3"):
        linalg.use(3)
    with pytest.raises(TypeError, match="given int 3"), linalg.using(3):
        pass


def test_a_server_without_lapack(start, nap_idl):
    unknown = pytest.raises(farcall.UnknownFunction, match=r"must serve libraries/linalg\.idl")
    with linalg.using(start(nap_idl).address), unknown:
        linalg.inv(GOOD)


def test_blocks_nest_and_belong_to_a_task(server, start, nap_idl):
    other = start(nap_idl).connect()

    async def inside(which, expected):
        with linalg.using(which) as used:
            assert used is which
            await asyncio.sleep(0.01)
            if expected is None:
                assert (linalg.inv(GOOD) == GOOD).all()
            else:
                with pytest.raises(expected):
                    linalg.inv(GOOD)

    async def main():
        unknown = farcall.UnknownFunction
        await asyncio.gather(*(inside(server, None), inside(other, unknown)))

    with linalg.using(other):
        asyncio.run(main())
    assert (linalg.inv(GOOD) == GOOD).all()


def test_threads_share_a_server(server):
    linalg.use(server)
    wrong = []

    def work(seed):
        a = matrix(20, 5, 5, seed=seed)
        if not np.allclose(linalg.inv(a), np.linalg.inv(a)):
            wrong.append(seed)

    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not wrong
    finally:
        linalg.use(None)


def in_thread(work):
    """What `work` returns in a thread, where no block names a server."""
    results = []

    def run():
        try:
            results.append((work(), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    value, error = results[0]
    if error is not None:
        raise error
    return value


def test_names_beside_the_decompositions(dtype):
    a = regular(2, n=4, dtype=dtype)
    for name in "pinv", "cond", "matrix_rank":
        same(getattr(linalg, name)(a), getattr(np.linalg, name)(a), 1e-3)
    square = regular(n=6, dtype=dtype)
    if dtype is not np.bool_:
        cube = square.reshape(2, 3, 6)
        same(linalg.tensorinv(cube, 2), np.linalg.tensorinv(cube, 2), 1e-3)
        b = matrix(2, 3, dtype=dtype)
        same(linalg.tensorsolve(cube, b), np.linalg.tensorsolve(cube, b), 1e-3)


def test_a_stack_is_one_call(monkeypatch):
    sent, call = [], _stacks.call

    def counted(name, **arguments):
        sent.append((name, arguments["count"]))
        return call(name, **arguments)

    monkeypatch.setattr(_stacks, "call", counted)
    stack = regular(3000, n=3, dtype=np.float64)
    same(linalg.det(stack), np.linalg.det(stack))
    same(linalg.solve(stack, stack), np.linalg.solve(stack, stack))
    assert sent == [("linalg/dslogdet", 3000), ("linalg/dsolve", 3000)]
    # A stack that is too large for the memory of a server is sent in parts.
    monkeypatch.setattr(_stacks, "_BYTES_OF_A_CALL", 100_000)
    same(linalg.inv(stack), np.linalg.inv(stack))
    assert len(sent) == 2 + 5
    assert sum(count for _, count in sent[2:]) == 3000


def test_a_stack_with_threads_is_the_stack_without(start):
    results = []
    for pes in "1", "4":
        process = start(LIBRARIES / "linalg.idl", options=["--pes", pes])
        with linalg.using(process.connect()):
            a = regular(500, n=40, dtype=np.complex128)
            results.append((linalg.inv(a), linalg.eigh(a + np.swapaxes(a, 1, 2).conj())[0]))
    for one, four in zip(*results, strict=True):
        assert (one == four).all()


@pytest.mark.parametrize("n", [6, 300])
def test_letters_of_the_functions_may_be_small_and_wrong_ones_are_told(server, n):
    a = positive(n=n, dtype=np.float64)
    one = {"m": n, "count": 1, "a": a.ravel()}
    for jobz in "nsa":
        small = server.call("linalg/dsvd", jobz=jobz, n=n, **one)
        large = server.call("linalg/dsvd", jobz=jobz.upper(), n=n, **one)
        for mine, other in zip(small, large, strict=True):
            np.testing.assert_array_equal(mine, other)
    for jobz in "OX":
        found = server.call("linalg/dsvd", jobz=jobz, n=n, **one)
        assert found.info[0] == -1 and np.isnan(found.s).all()
    assert server.call("linalg/deigh", jobz="v", uplo="u", **one).v.size == n * n
    assert server.call("linalg/deig", jobz="v", **one).v.size == n * n
    upper = server.call("linalg/dcholesky", uplo="u", **one).x.reshape(n, n)
    same(upper, np.linalg.cholesky(a).T)
    assert server.call("linalg/dcholesky", uplo="X", **one).info[0] == -1
    found = server.call("linalg/dinv", structure=7, uplo="U", check=1, **one)
    assert found.info[0] == -1 and np.isnan(found.x).all()
    for structure in 0, 101, 201, 211, -1:
        options = {"structure": structure, "uplo": "U", "trans": "X", "check": 1, "keep": 0}
        found = server.call("linalg/dsolve", b=np.ones(n), n=1, **options, **one)
        assert found.info[0] == -1 and np.isnan(found.x).all()


@pytest.mark.parametrize("trans", ["N", "T", "C", "t", "c"])
def test_transposes_of_complex_matrices_of_a_structure(server, trans):
    n, b = 6, matrix(6, 2, dtype=np.complex128, seed=1)
    any_a = regular(n=n, dtype=np.complex128)
    hermitian_a = hermitian(n=n, dtype=np.complex128)
    given = [(any_a, [0, -1]), (any_a + any_a.T, [201, -1]), (hermitian_a, [211, -1])]
    given += [(positive(n=n, dtype=np.complex128), [101, -1])]
    for a, structures in given:
        transposed = {"N": a, "T": a.T, "C": a.conj().T}[trans.upper()]
        for structure in structures:
            options = {"structure": structure, "uplo": "L", "trans": trans, "check": 1, "keep": 0}
            sizes = {"m": n, "n": 2, "count": 1}
            found = server.call("linalg/zsolve", a=a.ravel(), b=b.ravel(), **options, **sizes)
            assert found.info[0] == 0
            same(found.x.reshape(n, 2), np.linalg.solve(transposed, b), 1e-8)


def test_fewer_columns_of_q_than_reflectors(server):
    a, sizes = matrix(6, 4), {"m": 6, "n": 4, "count": 1}
    factors = server.call("linalg/dgeqrf", a=a.ravel(), **sizes)
    given = {"f": factors.f, "tau": factors.tau, **sizes}
    for k in 1, 2, 4, 6:
        found = server.call("linalg/dorgqr", k=k, **given)
        assert found.info[0] == 0
        same(found.q.reshape(6, k), np.linalg.qr(a, "complete")[0][:, :k])
    found = server.call("linalg/dorgqr", k=7, **given)
    assert found.info[0] == -2 and np.isnan(found.q).all()


def test_subclasses_and_pickles():
    class Mine(np.ndarray):
        pass

    assert type(linalg.inv(GOOD.view(Mine))) is Mine
    assert pickle.loads(pickle.dumps(linalg.solve)) is linalg.solve


def test_a_broadcast_vector_for_a_stack():
    a, b = regular(5, n=3, dtype=np.float64), np.arange(3.0)
    same(linalg.solve(a, b), np.linalg.solve(a, b))
    same(linalg.solve(a[0], np.ones((4, 3, 2))), np.linalg.solve(a[0], np.ones((4, 3, 2))))
