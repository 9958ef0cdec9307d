"""Futures: many calls under way on one connection."""

import asyncio
import concurrent.futures
import gc
import threading
import time

import farcall
import numpy as np
import pytest
from servers import FAULTS, ServerProcess, descriptors, wait_until


def test_results_come_in_any_order(server):
    echo = server.function("bench/echo")
    sources = [np.full(1 + 997 * index, float(index)) for index in range(50)]
    futures = [echo.call_async(source.size, source) for source in sources]
    for source, future in reversed(list(zip(sources, futures, strict=True))):
        assert (np.asarray(future.result()) == source).all()
        assert future.done()
        assert future.times.total > 0


def test_arrays_are_filled_in_place(server):
    n = 50
    a = np.asfortranarray(np.random.default_rng(1).random((n, n)))
    matrix, b = a.copy(), np.ones(n)
    dgesv = server.function("lapack/dgesv")
    future = dgesv.call_async(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n)
    assert future.result(timeout=30).info == 0
    assert np.allclose(matrix @ b, 1)


def test_the_arrays_of_a_call_are_held(server):
    echo = server.function("bench/echo")
    futures = [echo.call_async(1000, np.full(1000, float(index))) for index in range(20)]
    gc.collect()
    for index, future in enumerate(futures):
        assert (future.result().y == index).all()


def test_small_calls_overtake_a_large_one(server):
    echo, null = server.function("bench/echo"), server.function("bench/null")
    source = np.ones(32 << 17)
    large = echo.call_async(source.size, source)
    for _ in range(10):
        assert null(1) is None
    assert (large.result().y == 1).all()


def test_an_error_comes_with_its_own_future(start, nap_idl):
    server = start(nap_idl).connect()
    crash = server.function("segfault").call_async(1)
    nap = server.function("nap").call_async(10)
    with pytest.raises(farcall.LibraryError):
        crash.result(30)
    assert nap.result(30).slept == 10


def test_a_future_times_out_and_goes_on(start, nap_idl):
    future = start(nap_idl).connect().function("nap").call_async(3000)
    with pytest.raises(farcall.TimeoutError, match=r"within 0\.01 s"):
        future.result(timeout=0.01)
    assert not future.done()
    assert future.result().slept == 3000


def test_a_future_shows_its_state(start, nap_idl):
    nap = start(nap_idl).connect().function("nap")
    future = nap.call_async(60000)
    assert repr(future) == "<future of test/nap: under way>"
    future.cancel()
    assert repr(future) == "<future of test/nap: cancelled>"
    future = nap.call_async(1)
    future.result()
    assert repr(future) == "<future of test/nap: done>"


def test_a_time_limit_that_no_clock_reaches_is_none(start, nap_idl):
    nap = start(nap_idl).connect().function("nap")
    assert nap(1, timeout=1e19).slept == 1
    assert nap.call_async(1, timeout=1e19).result(1e19).slept == 1


def test_a_cancelled_call_ends_at_the_server(start, nap_idl):
    process = start(nap_idl, options=["--workers", "1"])
    server = process.connect()
    nap = server.function("nap")
    future = nap.call_async(60_000)
    wait_until(process.napping, what="a worker at work")
    assert future.cancel()
    assert future.cancelled() and future.done()
    assert not future.cancel()
    with pytest.raises(asyncio.CancelledError):
        future.result()
    began = time.monotonic()
    nap(1)
    assert time.monotonic() - began < 30


def test_a_forgotten_future_is_given_up(start, nap_idl):
    process = start(nap_idl, options=["--workers", "1"])
    nap = process.connect().function("nap")
    nap.call_async(60_000)
    gc.collect()
    began = time.monotonic()
    nap(1)
    assert time.monotonic() - began < 30


def test_await(server):
    async def main():
        echo = server.function("bench/echo")
        results = await asyncio.gather(
            *(echo.call_async(3, np.full(3, float(index))) for index in range(10))
        )
        return [float(result.y[0]) for result in results]

    async def gather():
        return await main()

    assert asyncio.run(gather()) == list(range(10))


def test_concurrent_futures_says_how_to_wait(server):
    calls = [server.function("bench/null").call_async(1) for _ in range(3)]
    for waits in (concurrent.futures.wait, concurrent.futures.as_completed):
        with pytest.raises(AttributeError, match="whose `set_result` you have passed"):
            list(waits(calls))
    ends = [concurrent.futures.Future() for _ in calls]
    for call, end in zip(calls, ends, strict=True):
        call.add_done_callback(end.set_result)
    done = [end.result() for end in concurrent.futures.as_completed(ends, timeout=30)]
    assert {id(call) for call in done} == {id(call) for call in calls}
    assert all(call.result() is None for call in done)


def test_threads_share_one_connection(server):
    echo = server.function("bench/echo")
    gc.collect()
    before = descriptors()
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(50):
            source = rng.random(rng.integers(1, 20_000))
            if not (np.asarray(echo(source.size, source)) == source).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong
    assert descriptors() <= before


def test_what_was_given_up_harms_no_other_call(server):
    n = 60
    dgesv = server.function("lapack/dgesv")
    rng = np.random.default_rng(3)
    a = np.asfortranarray(rng.random((n, n)))
    for _ in range(30):
        futures = [
            dgesv.call_async(n=n, nrhs=1, a=a.copy("F"), lda=n, b=np.ones(n), ldb=n)
            for _ in range(16)
        ]
        assert futures[0].result().info == 0
        del futures
        assert dgesv(n=n, nrhs=1, a=a.copy("F"), lda=n, b=np.ones(n), ldb=n).info == 0


def test_a_function_outlives_a_restart_of_its_server(tmp_path):
    options = ["--unix", str(tmp_path / "s.sock")]
    idl = FAULTS / "faults.idl"
    first = ServerProcess(idl, options=options, listen=None)
    total = first.connect().function("sum")
    assert total.call_async(3, np.ones(3)).result().s == 3
    first.stop()
    second = ServerProcess(idl, options=options, listen=None)
    assert total.call_async(3, np.ones(3)).result().s == 3
    assert total(n=3, x=np.ones(3)).s == 3
    second.stop()
