"""Faults that a server survives: libraries that misbehave, killed workers, lost clients."""

import concurrent.futures
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import farcall
import pytest
from servers import FARCALL, FAULTS, NAP, ServerProcess, freeze, wait_until


@pytest.fixture(scope="module")
def faults():
    options = ["--workers", "2", "--time-limit", "2"]
    server = ServerProcess(FAULTS / "faults.idl", options=options)
    yield server
    assert server.process.poll() is None, server.log()
    server.stop()


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        ("segfault", (1,), "SIGSEGV"),
        ("divide", (0,), "SIGFPE"),
        ("leave", (3,), "status 3"),
        ("leave_at_once", (4,), "status 4"),
        ("aborts", (1,), "SIGABRT"),
        ("overflow", (1 << 30,), "SIG"),
        ("forever", (1,), "limit"),
    ],
)
def test_a_fault_is_one_failed_call(faults, function, arguments, words):
    server = faults.connect()
    # The division traps on some machines only.
    if function == "divide" and os.uname().machine not in ("x86_64", "i686"):
        pytest.skip("an integer division by zero does not trap here")
    with pytest.raises(farcall.LibraryError) as raised:
        server.call(f"faults/{function}", *arguments)
    assert words in str(raised.value)
    assert function in str(raised.value)
    assert raised.value.fault == "library"
    assert server.call("faults/sum", 3, [1.0, 2.0, 3.0]).s == 6.0


def test_a_library_may_print_and_close_what_it_likes(faults):
    server = faults.connect()
    server.call("faults/prints", "to standard output\n", "to standard error\n")
    with contextlib.suppress(farcall.LibraryError):
        server.call("faults/closes", 1)
    assert server.call("faults/sum", 1, [5.0]).s == 5.0


HANGS_UP = """
Module hangs;
Globals {
#include <unistd.h>
}
Define up(IN int seconds) { closefrom(3); sleep(seconds); }
Define plus_one(IN int n, OUT int *r) Repeatable "yes" { *r = n + 1; }
"""


def test_a_worker_that_hangs_up_and_goes_on_delays_nobody(start, tmp_path):
    (tmp_path / "hangs.idl").write_text(HANGS_UP)
    server = start(tmp_path / "hangs.idl", options=["--allow-code", "--pes", "4"])
    bad, plus_one = server.connect().function("hangs/up"), server.connect().function("plus_one")
    plus_one(1)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        # Each is killed after a second.
        hanging = [pool.submit(bad, 30) for _ in range(4)]
        times = []
        while not all(call.done() for call in hanging):
            begin = time.monotonic()
            assert plus_one(len(times)).r == len(times) + 1
            times.append(time.monotonic() - begin)
            time.sleep(0.005)
    for call in hanging:
        with pytest.raises(farcall.LibraryError, match="closed its connection to the server"):
            call.result()
    # Who waits for a worker that hangs waits for a second.
    assert sorted(times)[len(times) // 2] < 0.5, times


def test_a_worker_killed_among_a_hundred_calls_fails_one(start, nap_idl):
    server = start(nap_idl, options=["--workers", "4"])
    nap = server.connect().function("test/nap")
    results, errors = [], []

    def call(ms):
        try:
            results.append(nap(ms).slept)
        except farcall.Error as error:
            errors.append(error)

    # Only the first is sure to be in its function when its worker ends.
    naps = [60_000, *(20 + index % 5 for index in range(99))]
    threads = [threading.Thread(target=call, args=(ms,)) for ms in naps]
    threads[0].start()
    (victim,) = wait_until(server.napping, what="the long nap")
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: len(results) >= 20, what="results beside the long nap")
    os.kill(victim, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    assert len(errors) == 1, errors
    assert len(results) == 99
    assert isinstance(errors[0], farcall.LibraryError)
    assert "SIGKILL" in str(errors[0])
    wait_until(lambda: len(server.workers()) == 4, what="a new worker")
    assert victim not in server.workers()
    assert nap(1).slept == 1


@pytest.mark.parametrize("n", [2**45, 2**60, 2**62, 2**63 - 1])
def test_arrays_that_no_memory_holds_are_refused(faults, n):
    server = faults.connect()
    with pytest.raises((MemoryError, farcall.ArgumentError)):
        server.call("faults/fill", n, 1.0)
    assert server.call("faults/fill", 2, 1.0).x.tolist() == [1.0, 1.0]


def test_a_call_times_out(faults):
    server = faults.connect(timeout=0.3)
    begin = time.monotonic()
    with pytest.raises(farcall.TimeoutError, match=r"within 0\.3 s"):
        server.call("faults/sleep_ms", 60_000)
    assert time.monotonic() - begin < 30

    def is_called_again():
        # A busy machine may take longer than the time-out.
        with contextlib.suppress(farcall.TimeoutError):
            return server.call("faults/sleep_ms", 1).slept == 1
        return False

    wait_until(is_called_again, what="a call in time")


INTERRUPTED = """
import sys, farcall
server = farcall.connect(sys.argv[1])
nap = server.function("test/nap")
print("calling", flush=True)
try:
    nap(60_000)
except KeyboardInterrupt:
    print("interrupted", nap(1).slept, flush=True)
"""


def test_a_call_is_interrupted_from_the_keyboard(start, nap_idl):
    server = start(nap_idl, options=["--workers", "2"])
    script = [sys.executable, "-c", INTERRUPTED, server.address]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout.readline() == "calling\n"
        connection = server.connect()
        wait_until(server.napping, what="a worker at work")
        begin = time.monotonic()
        client.send_signal(signal.SIGINT)
        assert client.stdout.readline() == "interrupted 1\n"
        assert time.monotonic() - begin < 30
        assert client.wait(10) == 0
    # No client waits for the long call any more: both workers take new calls.
    naps = [threading.Thread(target=connection.call, args=("nap", 10)) for _ in range(4)]
    for thread in naps:
        thread.start()
    for thread in naps:
        thread.join(20)
        assert not thread.is_alive()


def test_work_under_way_is_reported_when_the_server_ends(start, nap_idl):
    server = start(nap_idl)
    nap = server.connect().function("nap")
    nap(1)
    errors = []

    def call():
        try:
            nap(30_000)
        except farcall.Error as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(server.napping, what="a worker at work")
    begin = time.monotonic()
    server.stop(seconds=5)
    thread.join(5)
    assert time.monotonic() - begin < 5
    assert len(errors) == 1
    assert str(errors[0])
    with pytest.raises(farcall.ConnectionError):
        nap(1)


def test_a_worker_that_runs_out_of_memory_says_so(start, tmp_path):
    config = tmp_path / "limits.toml"
    config.write_text("[workers]\nmemory = 300000000\n")
    server = start(FAULTS / "faults.idl", options=["--config", str(config)]).connect()
    with pytest.raises(farcall.LibraryError, match=r"ran out of memory.*300000000 bytes"):
        server.call("allocate", 1 << 20)
    assert server.function("sum")(n=2, x=[1.0, 2.0]).s == 3


DROPS = """
import sys, threading, time
import farcall, numpy
server = farcall.connect(sys.argv[1], connect_timeout=60)
handle = server.put(numpy.ones(10))
print("waits", flush=True)
sys.stdin.readline()
threading.Thread(target=server.ls, daemon=True).start()
time.sleep(0.5)
del handle
print("goes on", flush=True)
sys.stdin.readline()
"""

LOOKS = """
import sys, threading, time
import farcall
nap = farcall.connect(sys.argv[1]).function("nap")
call = nap.call_async(60_000)
print("waits", flush=True)
sys.stdin.readline()
for wait in (call.result, call.progress, call.done, call.cancel):
    threading.Thread(target=wait, daemon=True).start()
    time.sleep(0.5)
print("goes on", flush=True)
sys.stdin.readline()
"""

ASKS = """
import signal, sys
import farcall
nap = farcall.connect(sys.argv[1]).function("nap")
call = nap.call_async(60_000)

def ask(*_):
    assert not call.done()
    assert call.progress() == (0, 0, 0, 0)
    # It runs on another thread when the call ends.
    call.add_done_callback(lambda _: None)
    for wait in (call.result, call.status, call.cancel):
        try:
            wait()
        except RuntimeError as error:
            assert "a signal handler cannot ask" in str(error)
        else:
            sys.exit("it waited for itself")
    raise KeyError

signal.signal(signal.SIGALRM, ask)
print("waits", flush=True)
sys.stdin.readline()
signal.alarm(1)
try:
    call.result()
except KeyError:
    print("goes on", flush=True)
sys.stdin.readline()
"""


def goes_on(program, address, disturb):
    """Whether a program goes on after a disturbance while its threads wait for servers."""
    words = [sys.executable, "-c", program, address]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout.readline() == "waits\n"
            disturb()
            process.stdin.write("\n")
            process.stdin.flush()
            with concurrent.futures.ThreadPoolExecutor() as executor:
                line = executor.submit(process.stdout.readline)
                with contextlib.suppress(TimeoutError):
                    return line.result(10) == "goes on\n"
                process.kill()
                return False
        finally:
            process.kill()


def test_a_handle_is_dropped_while_another_thread_connects(start, nap_idl):
    server = start(nap_idl)
    host, _, port = server.address.removeprefix("farcall://").rpartition(":")

    with contextlib.ExitStack() as stack:

        def replace():
            server.process.kill()
            server.process.wait()
            # It accepts connections, and says nothing.
            stack.enter_context(socket.create_server((host, int(port))))

        assert goes_on(DROPS, server.address, replace)


@pytest.mark.parametrize("program", [LOOKS, ASKS], ids=["threads", "signal"])
def test_threads_go_on_while_a_call_looks_for_another_server(start, tmp_path, program):
    idl = tmp_path / "naps.idl"
    idl.write_text(NAP.replace('"Sleep"', '"Sleep" Repeatable "yes"'))
    words = [FARCALL, "meta", "--listen", "127.0.0.1:0", "--store", "none"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as metaserver:
        try:
            address = metaserver.stdout.readline().split()[-1]
            server = start(idl, options=["--metaserver", address])
            wait_until(lambda: farcall.connect(f"meta://{address.partition('//')[2]}").ls())

            def lose():
                wait_until(server.napping, what="a worker at work")
                freeze(metaserver)
                server.process.kill()

            assert goes_on(program, f"meta://{address.partition('//')[2]}", lose)
        finally:
            metaserver.kill()


def test_a_server_at_a_terminal_rests_until_the_terminal_closes(nap_idl):
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    words = [FARCALL, "serve", nap_idl, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, text=True) as server:
        try:
            address = server.stdout.readline().split()[-1]
            assert farcall.connect(address, timeout=30).call("nap", ms=1).slept == 1
            said = b""
            with contextlib.suppress(BlockingIOError):
                said = os.read(ours, 1 << 16)
            assert b"SIGHUP" not in said
            server.send_signal(signal.SIGHUP)
            assert server.wait(30) == 0
        finally:
            server.kill()
            os.close(theirs)
            os.close(ours)
