"""Calls in coroutines: no thread waits for a single one, and a cancelled task cancels its call."""

import asyncio
import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import farcall
import numpy as np
import pytest
from servers import wait_until

trio = pytest.importorskip("trio")


@pytest.fixture
def napping(start, nap_idl):
    """A server whose function sleeps, with two processor elements."""
    return start(nap_idl, options=["--pes", "2"])


def begun(process, server, milliseconds=60_000):
    """A call under way that sleeps."""
    call = server.function("nap").call_async(milliseconds)
    wait_until(process.napping, what="a worker at work")
    return call


class NoExecutor(ThreadPoolExecutor):
    """The executor of a loop that needs none."""

    def submit(self, *_, **__):
        raise AssertionError("the loop uses a thread of its executor")


def test_awaits_use_no_threads_of_the_executor(napping):
    nap = napping.connect().function("nap")

    async def main():
        asyncio.get_running_loop().set_default_executor(NoExecutor())
        awaits = [asyncio.ensure_future(nap.call_async(50)) for _ in range(40)]
        threads = threading.active_count()
        results = await asyncio.gather(*awaits)
        assert [result.slept for result in results] == [50] * 40
        assert threading.active_count() <= threads + 1

    asyncio.run(main())


def test_ten_thousand_awaits_at_once(server):
    echo = server.function("bench/echo")

    async def main():
        calls = [echo.call_async(2, np.full(2, float(index))) for index in range(10_000)]
        return [result.y[1] for result in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == list(range(10_000))


def test_a_cancelled_task_cancels_its_call(start, nap_idl):
    process = start(nap_idl, options=["--workers", "1"])
    server = process.connect()

    async def main():
        call = begun(process, server)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call, 0.1)
        assert call.cancelled()

    began = time.monotonic()
    asyncio.run(main())
    assert server.function("nap")(1).slept == 1
    assert time.monotonic() - began < 30


def test_a_task_is_made_of_a_call(napping):
    nap = napping.connect().function("nap")

    async def main():
        first = asyncio.create_task(nap.call_async(10))
        second = asyncio.create_task(nap.call_async(60_000))
        done, _ = await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        assert done == {first} and first.result().slept == 10
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(main())


def test_an_error_is_raised_where_the_coroutine_waits(napping):
    server = napping.connect()

    async def main():
        with pytest.raises(farcall.LibraryError):
            await server.function("segfault").call_async(1)
        with pytest.raises(farcall.TimeoutError, match=r"0\.1 s"):
            await server.function("nap").call_async(60_000, timeout=0.1)

    asyncio.run(main())


def test_the_time_limit_of_the_connection_ends_a_call_without_its_own(napping):
    nap = napping.connect(timeout=1).function("nap")

    async def main():
        begin = time.monotonic()
        with pytest.raises(farcall.TimeoutError, match="within 1 s"):
            await nap.call_async(60_000)
        assert time.monotonic() - begin < 15
        # A call may take longer than others.
        await nap.call_async(1500, timeout=60)

    asyncio.run(main())


def test_a_lost_server_is_told(start, nap_idl):
    process = start(nap_idl)
    server = process.connect()

    async def main():
        call = begun(process, server)
        process.process.kill()
        with pytest.raises(farcall.ConnectionError):
            await asyncio.wait_for(call, 30)

    asyncio.run(main())


COUNTS = """\
Module test;
Define counts(IN int n, OUT int *sum, step(IN int i, OUT int *value))
{
    *sum = 0;
    for (int i = 0; i < n; i++) {
        int value = 0;
        step(i, &value);
        *sum += value;
    }
}
"""


def test_callbacks_run_while_a_coroutine_waits(start, tmp_path):
    (tmp_path / "counts.idl").write_text(COUNTS)
    counts = start(tmp_path / "counts.idl", options=["--allow-code"]).connect().function("counts")
    calls = []

    def step(i):
        with pytest.raises(RuntimeError, match="cannot ask its own call"):
            calls[0].result()
        return 10 * i

    async def main():
        calls.append(counts.call_async(n=5, step=step))
        return (await calls[0]).sum

    assert asyncio.run(main()) == 100


def test_other_threads_share_the_connection(server):
    echo = server.function("bench/echo")
    stop = threading.Event()
    wrong = []

    def work(value):
        while not stop.is_set():
            if echo(2, np.full(2, value)).y[0] != value:
                wrong.append(value)

    async def main():
        for _ in range(100):
            calls = [echo.call_async(3, np.full(3, float(index))) for index in range(20)]
            results = await asyncio.gather(*calls)
            assert [result.y[2] for result in results] == list(range(20))

    threads = [threading.Thread(target=work, args=(float(value),)) for value in range(2)]
    for thread in threads:
        thread.start()
    try:
        asyncio.run(main())
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_a_callback_is_called_once_when_the_call_is_done(napping):
    server = napping.connect()
    told = []
    done = server.function("nap").call_async(50)
    done.add_done_callback(told.append)
    wait_until(lambda: told, what="the callback")
    assert told == [done] and done.done() and done.result().slept == 50
    done.add_done_callback(told.append)
    wait_until(lambda: len(told) == 2, what="the callback of a call that is done")
    cancelled = begun(napping, server)
    cancelled.add_done_callback(told.append)
    cancelled.cancel()
    wait_until(lambda: told[2:] == [cancelled], what="the callback of a cancelled call")


def test_everybody_who_waits_for_a_call_is_told(napping):
    nap, told = napping.connect().function("nap"), []

    async def slept(call):
        return (await call).slept

    async def main():
        call = nap.call_async(200)
        call.add_done_callback(told.append)
        call.add_done_callback(told.append)
        waits = asyncio.gather(*(slept(call) for _ in range(3)))
        return call, await asyncio.wait_for(waits, 30)

    call, results = asyncio.run(main())
    assert results == [200] * 3
    wait_until(lambda: told == [call, call], what="both callbacks")


def test_a_callback_of_an_awaited_call_cannot_await(start, tmp_path):
    """The thread that runs the callback would wait for itself."""
    interface = tmp_path / "apply.idl"
    interface.write_text(
        "Module apply;\n"
        "Define apply(IN double x, OUT double *y, double f(IN double x)) { *y = f(x); }"
    )
    apply = start(interface, options=["--allow-code"]).connect().function("apply")

    def awaits(x):
        async def inner():
            return (await apply.call_async(x, f=lambda x: x)).y

        return asyncio.run(inner())

    async def outer(f):
        return (await asyncio.wait_for(apply.call_async(2.0, f=f), 30)).y

    with pytest.raises(farcall.CallbackError, match="cannot await a call"):
        asyncio.run(outer(awaits))
    assert asyncio.run(outer(lambda x: apply(x, f=lambda x: x + 1).y)) == 3.0


def test_trio_waits_and_cancels(napping):
    server = napping.connect()
    nap = server.function("nap")

    async def main():
        slept = []

        async def add(milliseconds):
            slept.append((await nap.call_async(milliseconds)).slept)

        async with trio.open_nursery() as nursery:
            for milliseconds in (3000, 50):
                nursery.start_soon(add, milliseconds)
        call = begun(napping, server)
        with trio.move_on_after(0.1):
            await call
        return slept, call.cancelled()

    assert trio.run(main) == ([50, 3000], True)


INTERRUPTED = """\
import asyncio, sys, farcall

async def main():
    nap = farcall.connect(sys.argv[1]).function("nap")
    calls = [asyncio.ensure_future(nap.call_async(60_000)) for _ in range(20)]
    await asyncio.sleep(0.1)
    print("waits", flush=True)
    await asyncio.gather(*calls)

asyncio.run(main())
"""


def test_an_interrupt_ends_a_program_that_awaits(napping):
    words = [sys.executable, "-c", INTERRUPTED, napping.address]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process, contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout.readline() == b"waits\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=30)[1].decode()
        # The calls take a minute.
        assert time.monotonic() - began < 20, error
    assert "KeyboardInterrupt" in error and process.returncode in (-signal.SIGINT, 130)


def test_a_forked_child_leaves_the_calls_of_its_parent_alone(napping):
    call = begun(napping, napping.connect(), 1000)
    child = os.fork()
    if child == 0:
        refused = 0
        for ask in (call.result, call.done, call.cancel, lambda: call.add_done_callback(print)):
            try:
                ask()
            except farcall.ConnectionError:
                refused += 1
        del call, ask
        gc.collect()
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert call.result(timeout=30).slept == 1000


def test_a_forked_child_drops_a_call_while_arrays_travel(library_server):
    """A thread of its parent may hold the lock of the connection at the moment of the fork."""
    echo = library_server.connect(same_host=False).function("bench/echo")
    n = 1 << 25
    call, forks = echo.call_async(1, np.ones(1)), 0
    # On a busy machine few forks fall into one transfer.
    while forks <= 3:
        travels = echo.call_async(n, np.ones(n))
        waits = threading.Thread(target=travels.result)
        waits.start()
        while waits.is_alive() and forks < 30:
            forks += 1
            child = os.fork()
            if child == 0:
                del call
                gc.collect()
                os._exit(0)
            with contextlib.suppress(TimeoutError):
                wait_until(functools.partial(has_ended, child), seconds=10)
                continue
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        waits.join()
        assert travels.result().y.all()
    assert forks > 3 and call.result().y == 1


def has_ended(child):
    return os.waitpid(child, os.WNOHANG)[0] == child


def test_a_forked_child_awaits_on_its_own(napping):
    nap = napping.connect().function("nap")

    async def one(nap):
        return (await nap.call_async(1)).slept

    assert asyncio.run(one(nap)) == 1
    child = os.fork()
    if child == 0:
        status = 1
        try:
            nap = farcall.connect(napping.address).function("nap")
            status = 0 if asyncio.run(asyncio.wait_for(one(nap), 20)) == 1 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


ENDS = """
import asyncio, atexit, os, sys
import farcall

nap = farcall.connect(sys.argv[1]).function("nap")

async def one():
    return (await nap.call_async(1)).slept

assert asyncio.run(one()) == 1
child = os.fork()
if child == 0:
    atexit._run_exitfuncs()
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_ends_without_the_thread_of_its_parent(napping):
    words = [sys.executable, "-W", "ignore", "-c", ENDS, napping.address]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


THREADLESS = """
import resource, sys, threading
import farcall
import numpy as np

echo = farcall.connect(sys.argv[1]).function("bench/echo")
call = echo.call_async(1, np.ones(1))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
try:
    call.add_done_callback(print)
except OSError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
told = threading.Event()
call.add_done_callback(lambda call: told.set())
print(told.wait(30), call.result().y)
"""


def test_a_thread_that_the_system_does_not_give_is_an_error(library_server):
    words = [sys.executable, "-c", THREADLESS, library_server.address]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout.startswith("the system gives no thread: "), ran.stderr
    assert ran.stdout.endswith("\nTrue [1.]\n")
