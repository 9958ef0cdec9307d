import multiprocessing
import pickle
import threading
import time

import farcall
import numpy as np
import pytest
from servers import LIBRARIES, add_tokens


def system(n, order="F", seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n)) + n * np.eye(n)
    b = rng.standard_normal((n, 1))
    return np.array(a, order=order), np.array(b, order=order)


def test_positional_call_fills_arrays_in_place(server):
    n = 50
    a, b = system(n)
    expected = np.linalg.solve(a, b)
    ipiv, info = np.zeros(n, np.int32), np.full(1, 9, np.int32)
    server.call("dgesv", n, 1, a, n, ipiv, b, n, info)
    np.testing.assert_allclose(b, expected, rtol=1e-10)
    assert info[0] == 0
    assert ipiv.min() >= 1


def test_keyword_call_makes_what_is_left_out(server):
    n = 20
    a, b = system(n)
    expected = np.linalg.solve(a, b)
    result = server.function("lapack/dgesv")(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n)
    assert result._fields == ("a", "ipiv", "b", "info")
    assert result.a is a
    assert result.b is b
    assert result.ipiv.dtype == np.int32
    assert result.ipiv.shape == (n,)
    assert type(result.info) is int
    assert result.info == 0
    np.testing.assert_allclose(result.b, expected, rtol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_is_never_transposed(server, order):
    n = 30
    a, b = system(n, order)
    a0, expected = a.copy(), np.linalg.solve(a, b)
    result = server.function("dgesv")(n, 1, a, n, None, b, n)
    np.testing.assert_allclose(b, expected, rtol=1e-10)
    lower, upper = np.tril(a, -1) + np.eye(n), np.triu(a)
    for row, pivot in enumerate(result.ipiv - 1):
        a0[[row, pivot]] = a0[[pivot, row]]
    np.testing.assert_allclose(lower @ upper, a0, atol=1e-12 * n)


def test_a_view_is_filled_and_its_surroundings_are_left_alone(server):
    n = 10
    a, b = system(n)
    large = np.full((2 * n, 3 * n), 7.0)
    view = large[::2, ::3][:n, :n]
    view[:] = a
    expected = np.linalg.solve(a, b)
    server.call("dgesv", n, 1, view, n, None, b, n)
    np.testing.assert_allclose(b, expected, rtol=1e-10)
    assert (large[1::2] == 7.0).all()


def test_leading_dimension(server):
    n, lda = 6, 9
    a, b = system(n)
    tall = np.asfortranarray(np.vstack([a, np.full((lda - n, n), 3.0)]))
    expected = np.linalg.solve(a, b)
    server.call("dgesv", n, 1, tall, lda, None, b, n)
    np.testing.assert_allclose(b, expected, rtol=1e-10)
    assert (tall[n:] == 3.0).all()


def test_a_vector_stands_for_a_matrix_of_one_column(server):
    n = 8
    a, b = system(n)
    vector = b[:, 0].copy()
    result = server.function("dgesv")(n, 1, a.copy(), n, None, vector, n)
    assert result.b is vector
    np.testing.assert_allclose(vector, np.linalg.solve(a, b)[:, 0], rtol=1e-10)


def test_in_is_converted_where_nothing_is_lost(server):
    ddot = server.function("blas/ddot")
    assert ddot(3, [1, 2, 3], 1, (4, 5, 6), 1)[0] == 32.0
    assert ddot(3, np.arange(3, dtype=np.int16), 1, np.arange(3, dtype=">f8"), 1)[0] == 5.0
    assert ddot(3, np.float32([1, 2, 3]), 1, np.arange(6.0)[::2], 1)[0] == 16.0
    assert ddot(np.int64(1), [2], 1, [4], 1)[0] == 8.0


def test_an_in_array_may_be_read_only(server):
    x = np.arange(4.0)
    x.flags.writeable = False
    assert server.function("ddot")(4, x, 1, x, 1)[0] == 14.0


def test_an_in_array_may_share_memory_with_an_out_array(server):
    x = np.arange(10.0)
    server.call("bench/echo", 5, x[:5], x[3:8])
    np.testing.assert_array_equal(x, [0, 1, 2, 0, 1, 2, 3, 4, 8, 9])


def test_empty_arrays(server):
    x = np.arange(4.0)
    server.call("bench/echo", 0, x[2:2], x[1:1])
    assert server.function("dgesv")(0, 1, x[:0].reshape(0, 0), 0, None, x[:0], 0).info <= 0
    np.testing.assert_array_equal(x, np.arange(4.0))


def test_complex(server):
    n = 12
    rng = np.random.default_rng(3)
    a = rng.standard_normal((n, n)) + 1j * rng.standard_normal((n, n))
    b = rng.standard_normal((n, 2)) + 0j
    expected = np.linalg.solve(a, b)
    server.call("zgesv", n, 2, a, n, None, b, n)
    np.testing.assert_allclose(b, expected, rtol=1e-8)


def test_info_is_a_result_and_no_exception(server):
    result = server.function("dgesv")(2, 1, np.zeros((2, 2)), 2, None, np.ones(2), 2)
    assert result.info == 1


def test_large_arrays(server):
    n = 3_000_000
    x = np.random.default_rng(5).random(n)
    y = np.zeros(n)
    server.call("bench/echo", n, x, y)
    assert (x == y).all()


def test_a_function_without_results_returns_none(server):
    assert server.call("bench/null", 1) is None


def test_times(server):
    dgesv = server.function("dgesv")
    a, b = system(200)
    dgesv(200, 1, a, 200, None, b, 200)
    times = dgesv.times
    parts = times.send + times.exec + times.recv + times.other
    assert times.total == pytest.approx(parts)
    assert times.exec > 0
    server.call("bench/null", 1)
    assert server.times.total > 0


def test_interface_and_help(server):
    dgesv = server.function("dgesv")
    assert dgesv.name == "lapack/dgesv"
    parameters = {parameter.name: parameter for parameter in dgesv.interface.parameters}
    assert parameters["a"].mode == "INOUT"
    assert parameters["a"].shape == ["lda", "n"]
    assert parameters["a"].dtype == "float64"
    assert parameters["n"].shape == []
    assert "Solve A X = B" in dgesv.__doc__
    assert "a     INOUT  float64 array of shape (lda, n)" in dgesv.__doc__
    assert str(dgesv.interface).strip() == server.describe("dgesv").strip()
    assert "Define dgesv" in str(dgesv.interface)


def test_ls(server):
    functions = {function.name: function.title for function in server.ls()}
    assert "Solve A X = B" in functions["lapack/dgesv"]
    assert "blas/ddot" in functions
    assert len(functions) > 100


def test_handles_are_cached(server):
    assert server.function("dgesv") is server.function("dgesv")


def test_threads_call_at_the_same_time(server):
    differences = {}

    def work(seed):
        a, b = system(60, seed=seed)
        expected = np.linalg.solve(a, b)
        server.call("dgesv", 60, 1, a, 60, None, b, 60)
        differences[seed] = np.abs(b - expected).max()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(differences) == 24
    assert max(differences.values()) < 1e-10


def test_other_threads_run_during_a_call(server):
    times, done = [], threading.Event()

    def run():
        while not done.wait(0.01):
            times.append(time.monotonic())

    thread = threading.Thread(target=run)
    thread.start()
    begin = time.monotonic()
    try:
        server.call("bench/nap", 1, 2_000_000)
        end = time.monotonic()
    finally:
        done.set()
        thread.join()
    # Other threads run before and after the call in any case.
    assert end - begin > 1.9
    assert any(begin + 0.5 < at < end - 0.5 for at in times)


def test_a_server_goes_to_another_process_by_pickle(server):
    again = pickle.loads(pickle.dumps(server))
    assert again.address == server.address
    assert again.call("bench/null", 1) is None


def test_a_pickled_server_says_that_it_loses_its_token(start, tmp_path, monkeypatch):
    tokens = str(tmp_path / "tokens")
    (token,) = add_tokens(tokens, "alice")
    process = start(LIBRARIES / "bench.idl", options=["--tokens", tokens])
    with pytest.warns(UserWarning, match="the token of .* takes its token from FARCALL_TOKEN"):
        pickle.dumps(process.connect(token=token))
    monkeypatch.setenv("FARCALL_TOKEN", token)
    known = process.connect(token=token)
    assert pickle.loads(pickle.dumps(known)).call("bench/null", 1) is None
    assert token.encode() not in pickle.dumps(known)


def test_a_server_without_tokens_is_not_trusted_with_one(server):
    with pytest.raises(farcall.Error, match="did not prove that it knows the token"):
        farcall.connect(server.address, token="a secret")


def test_a_pickled_server_keeps_the_files_of_its_credentials(server, tmp_path):
    files = {name: tmp_path / name for name in ("authority.pem", "alice.pem", "alice.key")}
    pair = (files["alice.pem"], files["alice.key"])
    known = farcall.connect(server.address, authorities=files["authority.pem"], certificate=pair)
    _, arguments = known.__reduce__()
    assert arguments[-2:] == (files["authority.pem"], pair)
    assert pickle.loads(pickle.dumps(known)).call("bench/null", 1) is None


def _call_in_child(server, answers):
    try:
        server.call("bench/null", 1)
        answers.put("no error")
    except farcall.ConnectionError as error:
        answers.put(str(error))


def test_a_forked_child_must_connect_again(server):
    server.call("bench/null", 1)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_call_in_child, args=(server, answers))
    child.start()
    assert "connect again" in answers.get(timeout=30)
    child.join()
    assert server.call("bench/null", 1) is None


def test_sizes_that_are_left_out_come_from_arrays_and_strides(server):
    dgesv = server.function("lapack/dgesv")
    n, lda = 6, 9
    a, b = system(n)
    expected = np.linalg.solve(a, b)
    large = np.full((lda, n), 7.0, order="F")
    large[:n] = a
    result = dgesv(nrhs=1, a=large[:n], b=b.copy())
    np.testing.assert_allclose(result.b, expected, rtol=1e-10)
    assert result.a.shape == (n, n)
    assert (large[n:] == 7.0).all()
    assert not np.array_equal(large[:n], a)
    # Also if `lda` is given, and if another argument has the rest of the columns.
    large[:n] = a
    result = dgesv(nrhs=1, a=large[:n], lda=lda, b=b.copy())
    np.testing.assert_allclose(result.b, expected, rtol=1e-10)
    both = np.array(np.vstack([a, np.full((n, n), 7.0)]), order="F")
    both[n:, :1] = b
    result = dgesv(nrhs=1, a=both[:n], b=both[n:, :1])
    np.testing.assert_allclose(both[n:, :1], expected, rtol=1e-10)
    # The last column ends before the memory of the lines does.
    result = dgesv(nrhs=1, a=np.array(np.vstack([b.T * 0, a]), order="F")[1:], b=b.copy())
    np.testing.assert_allclose(result.b, expected, rtol=1e-10)


def test_no_part_of_the_lines_beyond_a_view_travels(server):
    """A matrix with lines of 9, of which the view has 6, and sizes that say 6 or more."""
    dgetrf = server.function("lapack/dgetrf")
    large = np.full((9, 6), 7.0, order="F")
    large[:6] = system(6)[0]
    before, view = large.copy(), large[:6]
    for wrong in ({"m": 9}, {"m": 7, "lda": 9}):
        with pytest.raises(
            farcall.ArgumentError, match=r"`a`.*given float64 array of shape \(6, 6"
        ):
            dgetrf(a=view, n=6, **wrong)
        np.testing.assert_array_equal(large, before)
    # The length of its own lines is right too: the call copies them.
    own = dgetrf(m=6, n=6, a=view, lda=6)
    assert own.info == 0 and own.a is view
    np.testing.assert_array_equal(large[6:], before[6:])
    factors = before[:6].copy(order="F")
    dgetrf(a=factors, m=6, n=6)
    np.testing.assert_array_equal(view, factors)


def test_a_size_that_is_left_out_comes_from_bytes_and_texts(start, tmp_path):
    interface = tmp_path / "sizes.idl"
    interface.write_text(
        'Module sizes; Library "libc.so.6";\n'
        "Define copy(OUT char out[n], IN char in[n], IN long n)"
        ' Calls "C" memcpy(out, in, n);\n'
        "Define bytes(OUT unsigned char out[n], IN unsigned char in[n], IN long n)"
        ' Calls "C" memcpy(out, in, n);'
    )
    connection = start(interface).connect()
    copy, of_bytes = map(connection.function, ("copy", "bytes"))
    assert copy(in_=b"abc\0").out.tobytes() == b"abc\0"
    assert copy(in_="\u00e4b").out.tobytes() == "\u00e4b".encode()
    for given in (b"abc\0", bytearray(b"abc\0"), memoryview(b"abc\0")):
        assert of_bytes(in_=given).out.tobytes() == b"abc\0"
    with pytest.raises(farcall.ArgumentError, match="uint8, given str"):
        of_bytes(in_="ab")


def test_a_size_that_a_vector_does_not_have_is_asked_for_with_the_reason(server):
    dgesv, a, b = server.function("lapack/dgesv"), np.eye(3, order="F"), np.ones(3)
    text = "`nrhs`.*taken from `b` only if that is a NumPy array with 2 dimensions, given nothing"
    with pytest.raises(farcall.ArgumentError, match=text):
        dgesv(a=a, b=b)
    assert dgesv(a=a, b=b[:, np.newaxis]).info == 0


def test_help_says_which_sizes_are_inferred(server):
    text = server.function("lapack/dgesv").__doc__
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["n"].endswith("int; taken from a or ipiv if left out")
    assert lines["lda"].endswith("int; taken from a if left out")
    assert lines["nrhs"].endswith("int; taken from b if left out")
    assert "left out" not in lines["a"]
