import contextlib
import decimal
import gc
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import farcall
import numpy as np
import pytest
from servers import LIBRARIES, descriptors, resident_bytes, wait_until

N = 5


def good():
    return {
        "n": N,
        "nrhs": 1,
        "a": np.eye(N, order="F"),
        "lda": N,
        "ipiv": np.zeros(N, np.int32),
        "b": np.ones((N, 1), order="F"),
        "ldb": N,
        "info": np.zeros(1, np.int32),
    }


def read_only(array):
    array.flags.writeable = False
    return array


# What is wrong: the argument, its value, and words of the message.
WRONG = [
    ("n", "5", ["`n`", "an integer", "str '5'"]),
    ("n", 5.0, ["`n`", "an integer", "float 5.0"]),
    ("n", None, ["`n`", "an integer", "nothing"]),
    ("n", [5], ["`n`", "an integer", "list [5]"]),
    ("n", 5j, ["`n`", "an integer", "complex 5j"]),
    ("n", np.ones(2), ["`n`", "an integer", "float64 array of shape (2,)"]),
    ("n", 2**31, ["`n`", "2147483648"]),
    ("n", 2**70, ["`n`", f"given {2**70}"]),
    ("n", -1, ["`a`", "`n`", "-1"]),
    ("n", 2**31 - 1, ["`a`"]),
    ("nrhs", object(), ["`nrhs`", "an integer", "object"]),
    ("nrhs", -7, ["`b`", "`nrhs`", "-7"]),
    ("lda", N - 1, ["argument `lda` is 4, expected at least 5", "`a`"]),
    ("N", N, ["`N`", "did you mean `n`?"]),
    ("lda", 2**40, ["`lda`", str(2**40)]),
    ("a", None, ["`a`", "an array of float64", "nothing"]),
    ("a", 1.0, ["`a`", "float64", "float 1.0"]),
    ("a", "matrix", ["`a`", "float64", "str 'matrix'"]),
    ("a", [[1.0]], ["`a`", "float64", "list"]),
    ("a", np.eye(N, dtype=np.float32), ["`a`", "float64", "float32 array of shape (5, 5)"]),
    ("a", np.eye(N, dtype=np.int64), ["`a`", "float64", "int64"]),
    ("a", np.eye(N, dtype=np.complex128), ["`a`", "float64", "complex128"]),
    ("a", np.eye(N, dtype=">f8"), ["`a`", "float64", ">f8"]),
    ("a", np.full((N, N), object()), ["`a`", "float64", "object"]),
    ("a", np.eye(N - 1), ["`a`", "(5, 5)", "(4, 4)"]),
    ("a", np.ones((N, N + 1)), ["`a`", "(5, 5)", "(5, 6)"]),
    ("a", np.ones(N * N), ["`a`", "(5, 5)", "(25,)"]),
    ("a", np.ones((1, N, N)), ["`a`", "(5, 5)", "(1, 5, 5)"]),
    ("a", np.ones(()), ["`a`", "(5, 5)", "()"]),
    ("a", np.ones((0, 0)), ["`a`", "(5, 5)", "(0, 0)"]),
    ("a", read_only(np.eye(N)), ["`a`", "writable", "read-only"]),
    ("a", np.broadcast_to(np.ones(N), (N, N)), ["`a`", "writable", "read-only"]),
    ("ipiv", np.zeros(N), ["`ipiv`", "int32", "float64"]),
    ("ipiv", np.zeros(N, np.int64), ["`ipiv`", "int32", "int64"]),
    ("ipiv", np.zeros(N + 1, np.int32), ["`ipiv`", "(5,)", "(6,)"]),
    ("ipiv", [0] * N, ["`ipiv`", "int32", "list"]),
    ("b", np.ones(N + 1), ["`b`", "(5, 1)", "(6,)"]),
    ("b", np.ones((1, N)), ["`b`", "(5, 1)", "(1, 5)"]),
    ("b", np.ones((N, 2)), ["`b`", "(5, 1)", "(5, 2)"]),
    ("b", bytearray(8 * N), ["`b`", "float64", "bytearray"]),
    ("info", 0, ["`info`", "int32", "int 0"]),
    ("info", np.zeros(2, np.int32), ["`info`", "(1,)", "(2,)"]),
    ("info", np.zeros(1, np.uint32), ["`info`", "int32", "uint32"]),
]


def shared():
    a = np.ones((N, N), order="F")
    return good() | {"a": a, "b": a[:, :1]}


def wrong_calls(server):
    """Calls that are wrong in other ways than by one argument."""
    function = server.function("lapack/dgesv")
    return [
        lambda: function(1, 2, 3, 4, 5, 6, 7, 8, 9),
        lambda: function(n=1, m=2),
        lambda: function(1, n=1),
        function,
        lambda: function(**shared()),
        lambda: server.call("no/such"),
        lambda: server.call(""),
        lambda: farcall.connect("farcall://127.0.0.1:1"),
        lambda: farcall.connect("nonsense://x"),
        lambda: farcall.connect("127.0.0.1:1", timeout=-1),
    ]


@pytest.mark.parametrize(("argument", "value", "words"), WRONG)
def test_a_wrong_argument_is_named(server, argument, value, words):
    with pytest.raises(farcall.ArgumentError) as raised:
        server.function("lapack/dgesv")(**(good() | {argument: value}))
    text = str(raised.value)
    for word in ["lapack/dgesv", *words]:
        assert word in text, text


def test_arrays_that_are_written_may_not_share_memory(server):
    with pytest.raises(farcall.ArgumentError, match="`a` and `b` are written and share memory"):
        server.function("dgesv")(**shared())


def test_arrays_with_steps_that_are_written_may_not_share_memory(server):
    """Copies of them travel, and the one that came back last would win."""
    swap = server.function("blas/dswap")
    base = np.arange(12.0)
    even, third = base[::2], base[::3][:4]
    with pytest.raises(farcall.ArgumentError, match="`x` and `y` are written and share memory"):
        swap(n=4, x=even[:4], incx=1, y=third, incy=1)
    swap(n=6, x=base[::2], incx=1, y=base[1::2], incy=1)
    np.testing.assert_array_equal(base.reshape(6, 2)[:, 0], np.arange(1.0, 12, 2))


@pytest.mark.parametrize("kind", ["windows", "repeated", "interleaved"])
def test_an_array_that_is_written_may_not_overlap_itself(server, kind):
    base = np.arange(40.0)
    windows = np.lib.stride_tricks.sliding_window_view(base, 4, writeable=True)
    views = {
        "windows": windows[:6],
        "repeated": np.lib.stride_tricks.as_strided(base, (6, 4), (8, 0)),
        "interleaved": np.lib.stride_tricks.as_strided(base, (6, 4), (24, 32)),
    }
    with pytest.raises(farcall.ArgumentError, match=r"`c`.*do not share memory"):
        rank_one(server, views[kind])
    # Strides that look like overlap, but are none.
    apart = np.lib.stride_tricks.as_strided(base, (3, 2), (16, 24))
    expected = apart + 1
    rank_one(server, apart)
    np.testing.assert_array_equal(apart, expected)
    # What is only read may overlap.
    one, rows = np.ones((4, 1)), windows[:6]
    c = np.zeros((6, 1), order="F")
    sizes = {"m": 6, "n": 1, "k": 4, "lda": 6, "ldb": 4, "ldc": 6}
    gemm = server.function("blas/dgemm")
    gemm(transa="N", transb="N", alpha=1.0, a=rows, b=one, beta=0.0, c=c, **sizes)
    np.testing.assert_array_equal(c, rows @ one)


def rank_one(server, c):
    """Adds 1 to each element."""
    m, n = c.shape
    one = {"a": np.ones((m, 1), order="F"), "b": np.ones((1, n), order="F")}
    sizes = {"m": m, "n": n, "k": 1, "lda": m, "ldb": 1, "ldc": m}
    server.function("blas/dgemm")(transa="N", transb="N", alpha=1.0, beta=1.0, c=c, **one, **sizes)


# Numbers of which a conversion would lose something.
INEXACT = [
    ("alpha", 2**60 + 1, str(2**60 + 1)),
    ("alpha", np.int64(2**60 + 1), str(2**60 + 1)),
    ("alpha", np.array(2**60 + 1), str(2**60 + 1)),
    ("alpha", 10**400, "hold"),
    ("alpha", decimal.Decimal("1e400"), "1E+400'), which float64 cannot hold"),
    ("alpha", np.complex64(1 + 2j), "complex64"),
    ("alpha", np.complex128(1 + 2j), "complex128"),
    ("x", [1, 2**60 + 1], str(2**60 + 1)),
    ("x", np.array([1, -(2**53) - 1]), str(-(2**53) - 1)),
    ("x", np.array([1, 2**64 - 1], np.uint64), str(2**64 - 1)),
    ("x", np.ma.masked_array([1.0, 2.0], [False, True]), "mask"),
    ("y", np.ma.masked_array([1.0, 2.0], [False, True]), "mask"),
    ("alpha", np.ma.masked, "masked"),
    ("n", np.ma.masked_array(2, True), "masked"),
]


@pytest.mark.parametrize(("argument", "value", "words"), INEXACT)
def test_nothing_is_lost_on_the_way_to_a_function(server, argument, value, words):
    arguments = {"n": 2, "alpha": 1.0, "x": np.ones(2), "y": np.ones(2)} | {argument: value}
    with pytest.raises(farcall.ArgumentError) as raised:
        server.function("blas/daxpy")(incx=1, incy=1, **arguments)
    assert f"`{argument}`" in str(raised.value)
    assert words in str(raised.value)


def test_a_list_does_not_lose_the_masks_of_its_arrays(server):
    row = np.ma.masked_array([1.0, 2.0], [False, True])
    sizes = {"transa": "N", "transb": "N", "alpha": 1.0, "beta": 0.0, "k": 2, "lda": 2, "ldb": 2}
    for a in ([row, row], (np.ones(2), row)):
        with pytest.raises(farcall.ArgumentError, match=r"`a`.*mask would be lost"):
            server.function("blas/dgemm")(m=2, n=2, ldc=2, a=a, b=np.eye(2), **sizes)
        with pytest.raises(farcall.ArgumentError, match="mask would be lost"):
            server.put(a)
    array = np.ma.masked_array([row, row])
    with pytest.raises(farcall.ArgumentError, match="mask"):
        server.put([array, array])


def test_a_stored_list_is_not_rounded(server):
    with pytest.raises(farcall.ArgumentError, match="9007199254740993, which float64 cannot hold"):
        server.put([2**53 + 1, 0.5])
    assert server.put([2**53 + 1]).get().tolist() == [2**53 + 1]
    assert server.put([2**53, 0.5]).get().tolist() == [2**53, 0.5]


class Lazy:
    """An array that fails when it is needed."""

    def __init__(self, error):
        self.error = error

    def __array__(self, dtype=None, copy=None):
        raise self.error


def test_an_error_of_the_callers_own_object_reaches_the_caller(server, start, tmp_path):
    for error in (KeyboardInterrupt(), MemoryError(), OSError("the disk is gone")):
        with pytest.raises(type(error)) as raised:
            server.call("blas/ddot", 2, Lazy(error), 1, np.ones(2), 1)
        assert raised.value is error
    interface = tmp_path / "texts.idl"
    interface.write_text(
        'Module texts; Library "libc.so.6";\n'
        'Define least(IN int n, IN string s[n], OUT int *d) Calls "C" d = abs(n);'
    )
    least = start(interface).connect().function("least")

    def names():
        yield "a"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        least(2, names())
    assert least(2, (name for name in "ab")).d == 2


def test_a_list_does_not_become_infinite(server):
    for value in ([1.0, 1e300], [1.0, -1e39]):
        with pytest.raises(farcall.ArgumentError, match=r"`x`.*which float32 cannot hold"):
            server.call("blas/saxpy", 2, 1.0, value, 1, np.zeros(2, np.float32), 1)
    y = np.zeros(2, np.float32)
    server.call("blas/saxpy", 2, 1.0, [np.inf, 1e38], 1, y, 1)
    np.testing.assert_array_equal(y, np.float32([np.inf, 1e38]))


def test_an_infinite_number_stays_infinite(server):
    every = [np.inf, np.float32("inf"), np.longdouble("inf"), np.array(np.inf)]
    for value in [*every, decimal.Decimal("Infinity")]:
        y = np.zeros(1)
        server.call("blas/daxpy", 1, value, np.ones(1), 1, y, 1)
        assert y[0] == np.inf


@pytest.mark.parametrize("value", [np.complex64(1 - 2j), np.array(1 - 2j), 1 - 2j])
def test_complex_numbers_of_numpy_keep_both_parts(server, value):
    y = np.zeros(1, np.complex64)
    server.call("blas/caxpy", 1, value, np.ones(1, np.complex64), 1, y, 1)
    assert y[0] == 1 - 2j


def test_a_text_that_utf8_cannot_hold_is_refused(start, tmp_path):
    interface = tmp_path / "text.idl"
    interface.write_text(
        'Module text; Library "libc.so.6";\n'
        'Define length(IN string text, OUT long *n) Calls "C" n = strlen(text);'
    )
    length = start(interface).connect().function("length")
    assert length("\u20ac").n == 3
    with pytest.raises(farcall.ArgumentError, match=r"`text`.*without lone surrogates"):
        length("\ud800")


def test_a_truth_value_of_numpy_is_an_integer(server):
    assert server.call("blas/ddot", np.True_, [2.0], 1, [3.0], 1)[0] == 6.0


def test_integers_that_a_double_holds_are_taken(server):
    y = np.zeros(3)
    x = np.array([2**60, -(2**53), 2**63 - 2**11])
    server.call("blas/daxpy", 3, 2**70, x, 1, y, 1)
    assert [int(each) for each in y] == [int(each) * 2**70 for each in x]


def test_a_masked_array_is_not_stored(server):
    with pytest.raises(farcall.ArgumentError, match="mask"):
        server.put(np.ma.masked_array([1.0, 2.0], [False, True]))


def test_a_thousand_wrong_calls_leave_nothing_behind(library_server):
    server = library_server.connect()
    function = server.function("lapack/dgesv")

    def wrong_argument(argument, value):
        return lambda: function(**(good() | {argument: value}))

    calls = [wrong_argument(argument, value) for argument, value, _ in WRONG]
    calls += wrong_calls(server)

    def errors_of(count):
        errors = 0
        for index in range(count):
            try:
                calls[index % len(calls)]()
            except farcall.Error as error:
                assert len(str(error)) > 10
                assert error.fault in ("caller", "peer")
                errors += 1
        gc.collect()
        return errors

    assert errors_of(500) == 500
    before = [resident_bytes(), library_server.resident_bytes()]
    files = [descriptors(), library_server.descriptors()]
    assert errors_of(1000) == 1000
    after = [resident_bytes(), library_server.resident_bytes()]
    assert max(b - a for a, b in zip(before, after, strict=True)) < 4 << 20
    assert descriptors() == files[0]
    assert library_server.descriptors() <= files[1]
    arguments = good()
    function(**arguments)
    assert (arguments["b"] == 1).all()


def test_connections_are_closed_with_their_server(library_server):
    def connect():
        library_server.connect().call("bench/null", 1)
        gc.collect()

    connect()
    before = descriptors()
    for _ in range(20):
        connect()
    assert descriptors() == before


def test_the_exceptions_are_pythons_own_too(server):
    with pytest.raises(TypeError):
        server.call("dgesv", "x")
    with pytest.raises(ValueError, match="`n`"):
        server.call("dgesv", "x")
    with pytest.raises(LookupError, match="no function `nothing`"):
        server.call("nothing")
    with pytest.raises(ConnectionError, match="is `farcall serve` running there"):
        farcall.connect("farcall://127.0.0.1:1")


def test_without_an_address_the_environment_is_asked(library_server, monkeypatch):
    names = ("FARCALL_SERVER", "NINF_SERVER", "NINF_SERVER_PORT", "FARCALL_METASERVER")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    try:  # a server may listen there, one of somebody else
        assert farcall.connect().address == "farcall://localhost:3717"
    except farcall.ConnectionError as error:
        assert "farcall://localhost:3717" in str(error)
        assert "FARCALL_SERVER" in str(error)
    host, port = library_server.address.removeprefix("farcall://").rsplit(":", 1)
    monkeypatch.setenv("NINF_SERVER", host)
    monkeypatch.setenv("NINF_SERVER_PORT", port)
    assert farcall.connect().address == library_server.address
    monkeypatch.setenv("FARCALL_SERVER", library_server.address)
    monkeypatch.setenv("NINF_SERVER_PORT", "1")
    assert farcall.connect().address == library_server.address


@pytest.mark.parametrize("name", [None, 5, b"dgesv"])
def test_a_name_that_is_none_says_what_was_expected(server, name):
    for wants in (server.function, server.call, server.describe, server.new):
        with pytest.raises(TypeError, match=r"expected a name, such as .*given .*farcall ls"):
            wants(name)


def test_what_is_no_server_and_no_address_says_what_was_expected(server):
    with pytest.raises(TypeError, match=r"expected an address, such as .*given int 3717"):
        farcall.connect(3717)
    for given in (server.address, [server, server.address], 3717, None):
        with pytest.raises(TypeError, match=r"expected a server or a list of .*given .*connect"):
            farcall.transaction(given)
    assert len(farcall.transaction(server)) == 0, "one server needs no list"


def test_a_limit_names_the_function_and_its_largest_array(start, tmp_path):
    config = tmp_path / "farcall.toml"
    for limit in ("memory = 8388608", "memory_per_user = 8388608"):
        config.write_text(f"[limits]\n{limit}\n")
        server = start(LIBRARIES / "bench.idl", options=["--config", str(config)])
        echo = server.connect(same_host=False).function("echo")
        with pytest.raises(farcall.ServerError) as raised:
            echo(n=1 << 21, x=np.ones(1 << 21))
        text = str(raised.value)
        for word in ["bench/echo", "`y`", str(8 << 21), "8388608", "limits.memory"]:
            assert word in text, text


def test_a_call_may_have_a_time_limit_of_its_own(start, nap_idl):
    server = start(nap_idl).connect()
    nap = server.function("nap")
    for slow in (
        lambda: nap(30_000, timeout=0.2),
        lambda: server.call("nap", 30_000, timeout=0.2),
        lambda: nap.call_async(30_000, timeout=0.2).result(),
        lambda: nap.call_async(30_000, timeout=0.2).result(timeout=20),
    ):
        begun = time.monotonic()
        with pytest.raises(farcall.TimeoutError, match=r"0\.2 s"):
            slow()
        assert time.monotonic() - begun < 15
    future = nap.call_async(30_000, timeout=20)
    with pytest.raises(farcall.TimeoutError):
        future.result(timeout=0.1)
    assert not future.done(), "the wait has ended, not the call"
    future.cancel()
    future = nap.call_async(30_000, timeout=0.2)
    wait_until(future.done, what="the end of its time")
    with pytest.raises(farcall.TimeoutError, match=r"0\.2 s"):
        future.result()
    assert nap(0, timeout=None) == nap(0, timeout=30)
    with pytest.raises(farcall.ArgumentError, match="`timeout`: expected a number of seconds"):
        nap(0, timeout="soon")


def test_the_time_limit_of_the_connection_holds_for_calls_without_their_own(start, nap_idl):
    nap = start(nap_idl).connect(timeout=1).function("nap")
    begun = time.monotonic()
    with pytest.raises(farcall.TimeoutError, match="within 1 s"):
        nap.call_async(30_000).result(timeout=20)
    assert time.monotonic() - begun < 15
    # A call may take longer than others.
    nap(1500, timeout=60)
    nap.call_async(1500, timeout=60).result()
    future = nap.call_async(30_000)
    begun = time.monotonic()
    wait_until(future.done, what="the end of its time")
    assert time.monotonic() - begun < 15
    with pytest.raises(farcall.TimeoutError, match="within 1 s"):
        future.result()


@pytest.mark.parametrize("beside", [0.5, -1, float("nan")])
def test_integers_beside_other_numbers_are_not_rounded(server, beside):
    echo = server.function("bench/echo")
    large = 2**53 + 1 if isinstance(beside, float) else 2**63 + 1
    with pytest.raises(farcall.ArgumentError, match=f"the integer {large}, which float64 cannot"):
        echo(2, [large, beside])
    assert echo(2, [2**53, 0.5]).y.tolist() == [2**53, 0.5]


@pytest.mark.parametrize("large", [np.int64(2**53 + 1), np.uint64(2**63 + 1), np.array(2**53 + 1)])
def test_integers_of_numpy_beside_other_numbers_are_not_rounded(server, large):
    echo = server.function("bench/echo")
    with pytest.raises(farcall.ArgumentError, match=f"the integer {large}, which float64 cannot"):
        echo(2, [large, 0.5])
    assert echo(2, [np.int64(2**53), 0.5]).y.tolist() == [2**53, 0.5]


CONNECTS = """
import sys
import farcall
farcall.connect(sys.argv[1])
"""


def interrupted(address, waits, **environment):
    """What a program says that Ctrl-C ends while it connects."""
    words = [sys.executable, "-c", CONNECTS, address]
    environment = os.environ | environment
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            wait_until(lambda: waits(process), what="the wait for a connection")
            process.send_signal(signal.SIGINT)
            return process.communicate(timeout=5)[1]
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (np.ones(4, np.float32), r"given float32 array of shape \(4,\): store another array"),
        ("a.npy", "given str 'a.npy'"),
    ],
)
def test_a_stored_array_is_written_to_an_address(server, given, told):
    stored = server.put(np.ones((2, 3)))
    with pytest.raises(farcall.ArgumentError, match=rf"float64 array of shape \(2, 3\), {told}"):
        stored.write(given)


def test_ctrl_c_ends_a_wait_for_a_connection(tmp_path):
    def waits(process):
        return "poll" in pathlib.Path(f"/proc/{process.pid}/wchan").read_text()

    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        for address in ("127.0.0.1:{}", "127.0.0.1:{0},127.0.0.1:{0}"):
            told = interrupted(address.format(full.getsockname()[1]), waits)
            assert told.rstrip().endswith("KeyboardInterrupt"), told
    began, ssh = tmp_path / "began", tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\ntouch {began}\nexec sleep 60\n")
    ssh.chmod(0o755)
    told = interrupted("ssh://nowhere", lambda _: began.exists(), FARCALL_SSH=str(ssh))
    assert told.rstrip().endswith("KeyboardInterrupt"), told


LOOKS = """
import signal, sys
import farcall
import numpy as np
echo = farcall.connect(sys.argv[1]).function("bench/echo")
n = 1 << 22
signal.signal(signal.SIGALRM, lambda *_: (repr(call), call.done()))
for _ in range(3):
    y = np.empty(2 * n)[::2]
    call = echo.call_async(n, np.ones(n), y)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    call.result()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert y.all()
"""


def test_a_signal_handler_may_look_at_a_call_that_ends(library_server):
    words = [sys.executable, "-c", LOOKS, library_server.address]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
