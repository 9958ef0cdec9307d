"""Callbacks, while the function runs."""

import asyncio
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import time

import farcall
import numpy as np
import pytest
from programs import command, run
from servers import FARCALL, ServerProcess, wait_until

IDL = pathlib.Path(__file__).with_name("callbacks.idl")


@pytest.fixture(scope="module")
def process():
    process = ServerProcess(IDL, options=["--allow-code", "--workers", "2"])
    yield process
    process.stop()


@pytest.fixture(params=["tcp", "same host"])
def server(process, request):
    return process.connect(timeout=30, same_host=request.param != "tcp")


def test_progress_is_told_on_the_waiting_thread(server):
    seen, threads = [], set()

    def report(step, steps):
        seen.append((step, steps))
        threads.add(threading.get_ident())

    assert server.call("progress", 20, np.empty(1, np.int32), report).seen == 20
    assert seen == [(step, 20) for step in range(1, 21)]
    assert threads == {threading.get_ident()}


def test_a_monitor_sees_the_iterate_and_may_say_stop(server):
    seen = []

    def monitor(k, residual, n, x, stop):
        assert (x == k + np.arange(n)).all()
        assert not x.flags.writeable
        seen.append((residual, x))
        stop[0] = residual < 0.1

    result = server.function("iterate")(n=3, monitor=monitor)
    assert result.done == 5
    assert [residual for residual, _ in seen] == [1, 0.5, 0.25, 0.125, 0.0625]
    assert (seen[0][1] == [1, 2, 3]).all(), "what a callback was given may be kept"


def test_every_type_travels(server):
    def everything(c, s, whole, f, z, text, n, x, total):
        assert (c, s, whole, f, z, text, n) == ("A", -2, 1 << 40, 0.5, 1 + 2j, "text", 2)
        assert x.shape == (2, 3)
        assert x.dtype == np.float32
        assert (x[:, :2] == [[0, 1], [3, 4]]).all()
        assert (x[:, 2] == 0).all(), "what does not travel is zero"
        x[:] = 10
        total[0] = 0.25

    # The last of three columns does not change: 2 and 5.
    assert server.function("types")(n=2, all=everything).sum == 0.25 + 4 * 10 + 2 + 5


def test_an_error_handler_reads_fortran_text(server):
    said = []
    server.call("faulty", 7, lambda name, info: said.append((name, info)))
    assert said == [("DGETRF", 7)]


def test_who_only_asks_answers_what_has_come(server):
    threads = set()

    def square(x, y):
        threads.add(threading.get_ident())
        y[0] = x * x
        with pytest.raises(RuntimeError, match="a callback cannot ask its own call"):
            future.done()

    future = server.function("evaluate").call_async(n=4, f=square)
    wait_until(future.done, what="the end of the call")
    assert (future.result(timeout=1).values == [0, 1, 4, 9]).all()
    assert threads == {threading.get_ident()}


def test_an_exception_ends_the_call_and_is_chained(server):
    def broken(x, y):
        if x == 2:
            raise ZeroDivisionError("not here")
        y[0] = x

    evaluate = server.function("evaluate")
    with pytest.raises(farcall.CallbackError, match="callback `f` failed") as error:
        evaluate(n=5, f=broken)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert error.value.fault == "caller"
    with pytest.raises(KeyboardInterrupt):
        evaluate(n=5, f=interrupt)
    future = evaluate.call_async(n=5, f=broken)
    with pytest.raises(farcall.CallbackError):
        future.result(timeout=10)
    assert server.call("plain", 4, np.empty(1, np.int32)).twice == 8, "the connection goes on"


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_exception_in_a_transaction_is_chained_too(server):
    def broken(*_):
        raise ZeroDivisionError("not here")

    evaluate = server.function("evaluate")
    with (
        pytest.raises(farcall.CallbackError, match=r"call 1 .*callback `f` failed") as error,
        server.transaction(),
    ):
        evaluate(n=5, f=broken)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert error.value.fault == "caller"
    with pytest.raises(KeyboardInterrupt), server.transaction():
        evaluate(n=5, f=interrupt)


def test_a_callback_cannot_use_the_transaction_of_its_own_call(server):
    asked = []

    def ask(x, y):
        uses = (
            t.dot,
            t.__enter__,
            lambda: t.discard(np.empty(1)),
            lambda: t.save("plan.toml", {}),
        )
        for use in uses:
            with pytest.raises(RuntimeError, match="the transaction of its own call"):
                use()
        asked.append(x)
        y[0] = x

    with server.transaction() as t:
        server.function("evaluate")(n=2, f=ask)
    assert asked == [0, 1]
    assert "evaluate" in t.dot()


def test_a_callback_that_is_no_function_is_refused(server):
    evaluate = server.function("evaluate")
    for wrong in ({}, {"f": 3}, {"f": None}):
        with pytest.raises(farcall.ArgumentError, match="argument `f`: expected a callable"):
            evaluate(n=1, **wrong)
    # In the place of the array before it.
    with pytest.raises(
        farcall.ArgumentError, match=r"`values`: expected .* array .*given function"
    ):
        evaluate(1, lambda x: x)
    assert "f       callable (x, y)" in evaluate.__doc__


def test_a_callback_may_call_the_same_server(server):
    plain = server.function("plain")

    def nested(x, y):
        y[0] = plain(n=int(x)).twice

    # As many calls at once as there are workers: none waits for another for ever.
    futures = [server.function("evaluate").call_async(n=4, f=nested) for _ in range(2)]
    results = [future.result(timeout=20).values for future in futures]
    assert (np.array(results) == [[0, 2, 4, 6]] * 2).all()


def test_nesting_has_a_bound(server):
    evaluate = server.function("evaluate")
    depth = 0

    def deeper(*_):
        nonlocal depth
        depth += 1
        evaluate(n=1, f=deeper)

    with pytest.raises(farcall.CallbackError) as error:
        evaluate(n=1, f=deeper)
    cause = error.value
    while cause.__cause__ is not None:
        cause = cause.__cause__
    assert "8 deep" in str(cause)
    assert depth == 8


def test_futures_call_back_where_they_are_waited_for(server):
    ticks = []
    work = server.function("work")
    futures = [work.call_async(n=3, ms=1, tick=ticks.append) for _ in range(3)]
    for future in futures:
        assert (future.result(timeout=20).x == [0, 1, 2]).all()
    assert sorted(ticks) == sorted(3 * list(range(10)))

    async def both():
        return await asyncio.gather(
            *(work.call_async(n=2, ms=1, tick=ticks.append) for _ in range(2))
        )

    ticks.clear()
    assert [list(result.x) for result in asyncio.run(both())] == [[0, 1]] * 2
    assert len(ticks) == 20


def test_a_callback_cannot_wait_for_its_own_call(server):
    def ask(_):
        future.result()

    future = server.function("work").call_async(n=1, ms=0, tick=ask)
    with pytest.raises(farcall.CallbackError) as error:
        future.result(timeout=20)
    assert "cannot ask its own call" in str(error.value.__cause__)


def test_a_callback_overtakes_bulk_data(process):
    server = process.connect(same_host=False, timeout=60)
    big = server.function("work").call_async(n=1 << 25, ms=0, tick=lambda _: None)
    seen = []
    waiting = threading.Thread(target=lambda: big.result(timeout=60))
    waiting.start()
    server.call("progress", 5, np.empty(1, np.int32), lambda step, _: seen.append(step))
    waiting.join(60)
    assert seen == [1, 2, 3, 4, 5]


def test_an_array_that_is_too_large_is_a_clear_error(server):
    with pytest.raises(farcall.LibraryError, match=r"callback `each`.*1000000"):
        server.call("huge", 1 << 50, lambda *_: None)


def test_a_cancel_while_a_callback_is_under_way(process):
    server = process.connect(timeout=30)
    entered, leave = threading.Event(), threading.Event()

    def hold(_):
        entered.set()
        leave.wait(20)
        raise RuntimeError("enough")

    future = server.function("work").call_async(n=1, ms=0, tick=hold)
    raised = []
    thread = threading.Thread(target=lambda: raised.append(failure_of(future)))
    thread.start()
    assert entered.wait(20)
    plain = server.function("plain")
    assert plain(n=1).twice == 2, "others go on"
    workers = set(process.workers())
    leave.set()
    thread.join(20)
    assert isinstance(raised[0], farcall.CallbackError)
    wait_until(lambda: not workers <= set(process.workers()), what="the end of the worker")
    assert plain(n=2).twice == 4


def failure_of(future):
    with pytest.raises(farcall.Error) as error:
        future.result(timeout=20)
    return error.value


def test_a_client_that_never_answers_loses_its_call(tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text("[limits]\ncallback_s = 0.3\n")
    process = ServerProcess(IDL, options=["--allow-code", "--config", str(config)])
    try:
        server = process.connect(timeout=30)
        workers = process.workers()
        slept = threading.Event()

        def sleeps(_):
            slept.wait(1.5)

        with pytest.raises(farcall.CallbackError, match=r"within 0\.3 s.*callback_s"):
            server.call("work", 1, 0, np.empty(1), sleeps)
        wait_until(lambda: process.workers() and process.workers() != workers)
        assert server.call("plain", 1, np.empty(1, np.int32)).twice == 2
    finally:
        process.stop()


def test_a_client_that_dies_in_a_callback_has_its_worker_ended(process):
    script = (
        "import farcall, os, numpy as np\n"
        f"server = farcall.connect({process.address!r})\n"
        "server.call('work', 1, 0, np.empty(1), lambda k: os._exit(3))\n"
    )
    server = process.connect(timeout=30)
    workers = set(process.workers())
    done = subprocess.run([sys.executable, "-c", script], timeout=60, check=False)
    assert done.returncode == 3
    wait_until(lambda: not workers <= set(process.workers()), what="the end of the worker")
    assert server.call("plain", 1, np.empty(1, np.int32)).twice == 2


def test_the_time_limit_does_not_count_the_client(tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text("[workers]\ntime_limit_s = 2.5\n")
    process = ServerProcess(IDL, options=["--allow-code", "--config", str(config)])
    try:
        work = process.connect(timeout=30).function("work")
        work(n=1, ms=0, tick=lambda _: time.sleep(0.4))
        assert work.times.exec < 2.0
        with pytest.raises(farcall.LibraryError, match="time limit"):
            work(n=1, ms=400, tick=lambda _: None)
    finally:
        process.stop()


def test_the_command_shows_what_is_called_back(process):
    call = [FARCALL, "call", "progress", "steps=2", "--server", process.address]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "seen [1] = [2]\n"
    assert done.stderr == "report step=1 steps=2\nreport step=2 steps=2\n"
    call = [FARCALL, "call", "evaluate", "n=2", "--server", process.address]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "results of its callback `f`" in done.stderr


@pytest.mark.parametrize("suffix", ["c", "cpp", "f90"])
def test_other_languages_pass_their_functions(process, tmp_path, suffix):
    source = pathlib.Path(__file__).with_name(f"callbacks.{suffix}")
    ran = run(*command(source, tmp_path), process.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if suffix == "cpp":
        assert "argument `f`: expected a function" in ran.stdout


def test_a_client_that_is_too_old_is_told(process):
    host, port = process.address.removeprefix("farcall://").split(":")

    def frame(kind, request, payload):
        return struct.pack("<IBBHQ", len(payload), kind, 0, 0, request) + payload

    with socket.create_connection((host, int(port)), timeout=20) as stream:
        answers = stream.makefile("rb")

        def answer():
            length, kind, *_ = struct.unpack("<IBBHQ", answers.read(16))
            return kind, answers.read(length)

        # A greeting without features, and the questions of a client of that time.
        stream.sendall(frame(1, 0, b"\x85\x67farcall\x01\x01\x00\x63old"))
        stream.sendall(frame(4, 1, b"\x81\x68progress"))
        assert answer()[0] == 1
        kind, interface = answer()
        assert kind == 5
        number = interface[1:10]
        stream.sendall(frame(6, 2, b"\x84" + number + b"\x82\x02\xf6\x80\x00"))
        kind, failure = answer()
        assert (kind, failure[:2]) == (10, b"\x82\x03")
        assert b"which this client does not support; update" in failure
        stream.sendall(frame(4, 3, b"\x81\x65plain"))
        assert answer()[0] == 5, "the connection goes on"


def test_a_callback_may_return_its_values(server):
    evaluate = server.function("evaluate")
    expected = [0, 1, 4]
    by_form = {
        "returned": lambda x: x * x,
        "filled": lambda x, y: y.fill(x * x),
        "returned, though it could fill": lambda x, _y: x * x,
        "the array itself": lambda x, y: np.multiply(x, x, out=y),
        "a list": lambda x: [x * x],
        "an integer": lambda x: int(x * x),
        "of NumPy": lambda x: np.float32(x * x),
        "an array": lambda x: np.array([x * x]),
        "any arguments": lambda *given: given[0] ** 2,
        "a default value": lambda x, power=2: x**power,
    }
    for form, f in by_form.items():
        np.testing.assert_array_equal(evaluate(n=3, f=f).values, expected, form)
    result = server.function("several")(n=2, f=lambda n, x: (x[::-1], n, b"z", 1j))
    assert result.text.tobytes() == b"z100+1j"


# What a callback of `several` may not return, and words of the error.
X = np.arange(2.0)
WRONG = [
    (None, ["None", "`y` and `k` and `c` and `z`", "y[...] = value"]),
    (X, ["a tuple", "`k`"]),
    ((X, 1), ["a tuple", "`k`"]),
    ((X, 1.7, b"z", 1j), ["float 1.7", "`k`", "int32"]),
    ((X, None, b"z", 1j), ["None", "`k`", "int32"]),
    ((X, 2**31, b"z", 1j), [str(2**31), "`k`", "int32"]),
    ((X * 1j, 1, b"z", 1j), ["complex128", "`y`", "float64"]),
    ((X[:1], 1, b"z", 1j), ["(1,)", "`y`", "(2,)"]),
    (([1, 2**60 + 1], 1, b"z", 1j), ["list", "`y`", "float64"]),
    (([1, None], 1, b"z", 1j), ["None", "`y`", "float64"]),
    (("12", 1, b"z", 1j), ["str '12'", "`y`", "float64"]),
    ((X, 1, True, 1j), ["bool True", "`c`", "S1"]),
    ((X, 1, X[0] > 0, 1j), ["bool", "`c`", "S1"]),
    ((X, 1, b"zz", 1j), ["b'zz'", "`c`", "(1,)"]),
    ((np.ma.masked_array(X, X < 1), 1, b"z", 1j), ["masked", "`y`"]),
]


@pytest.mark.parametrize(("returned", "words"), WRONG)
def test_a_callback_returns_what_the_interface_says(server, returned, words):
    def short(_n, _x):
        return returned

    def full(_n, _x, _y, _k, _c, _z):
        return returned

    for f in (short, full):
        with pytest.raises(farcall.CallbackError) as raised:
            server.function("several")(n=2, f=f)
        assert isinstance(raised.value.__cause__, TypeError)
        for word in words:
            assert word in str(raised.value), str(raised.value)


def test_a_function_with_callbacks_is_no_durable_call(server):
    text = "callbacks/evaluate has callbacks, so it cannot be a durable call"
    with pytest.raises(farcall.ArgumentError, match=text):
        server.function("evaluate").submit(n=3, f=lambda x: x)


def test_a_callback_fills_or_returns(server):
    def both(x, y):
        y[0] = 3.0
        return x

    def forgets(x, y):
        y = x * x  # noqa: F841

    evaluate = server.function("evaluate")
    with pytest.raises(farcall.CallbackError, match="filled `y` and returned float"):
        evaluate(n=2, f=both)
    with pytest.raises(farcall.CallbackError, match=r"did not fill `y`.*y\[\.\.\.\] = value"):
        evaluate(n=2, f=forgets)
    with pytest.raises(farcall.CallbackError, match="returned int 3, but it has no OUT argument"):
        server.call("progress", 2, np.empty(1, np.int32), lambda *_: 3)

    def zero(_x, y):
        y[0] = 0

    assert (evaluate(n=2, f=zero).values == 0).all(), "zero may be what it fills"
