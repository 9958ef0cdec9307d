"""Calls that are recorded and run as a data-flow graph, on real servers."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

import farcall
import numpy as np
import pytest
from programs import compile_c, run
from servers import LIBRARIES, ROOT, ServerProcess, freeze, wait_until

BLAS, LAPACK = LIBRARIES / "blas.idl", LIBRARIES / "lapack.idl"

STEPS = """\
Module test;
Library "libc.so.6";
Define copy(OUT char out[n], IN char in[n], IN long n) Repeatable "yes"
    Calls "C" memcpy(out, in, n);
Define fill(INOUT char x[n], IN int value, IN long n) Repeatable "yes"
    Calls "C" memset(x, value, n);
Define nap(INOUT char x[n], IN int us, IN long n) Repeatable "yes" Calls "C" usleep(us);
Define once(OUT char out[n], IN char in[n], IN long n) Calls "C" memcpy(out, in, n);
Define crash(INOUT char x[n], IN long n) Calls "C" abort();
"""


@pytest.fixture
def steps(tmp_path):
    path = tmp_path / "steps.idl"
    path.write_text(STEPS)
    return path


@pytest.fixture(scope="module")
def four():
    """Four servers with BLAS and LAPACK."""
    servers = [ServerProcess(BLAS, LAPACK, options=("--pes", "1")) for _ in range(4)]
    yield servers
    for server in servers:
        server.stop()


def connect_all(servers, **options):
    return [server.connect(same_host=False, **options) for server in servers]


def blocked_lu(server, blocks, size):
    """The LU factors of a matrix in square blocks, in place; it needs no pivots."""
    count = len(blocks)
    dgetrf, dtrsm, dgemm = (server.function(name) for name in ("dgetrf", "dtrsm", "dgemm"))
    for k in range(count):
        dgetrf(m=size, n=size, a=blocks[k][k], lda=size)
        for j in range(k + 1, count):
            dtrsm("L", "L", "N", "U", size, size, 1.0, blocks[k][k], size, blocks[k][j], size)
            dtrsm("R", "U", "N", "N", size, size, 1.0, blocks[k][k], size, blocks[j][k], size)
        for i in range(k + 1, count):
            for j in range(k + 1, count):
                left, right, target = blocks[i][k], blocks[k][j], blocks[i][j]
                dgemm("N", "N", size, size, size, -1.0, left, size, right, size, 1.0, target, size)


def cut(matrix, count):
    size = len(matrix) // count
    rows = range(0, len(matrix), size)
    return [[matrix[i : i + size, j : j + size].copy(order="F") for j in rows] for i in rows]


def bytes_of_blocks(count, size):
    """Blocks that single calls move to and fro: dgetrf 1 and 1, dtrsm 2 and 1, dgemm 3 and 1."""
    panels = sum(count - 1 - k for k in range(count)) * 2
    updates = sum((count - 1 - k) ** 2 for k in range(count))
    return (count * 2 + panels * 3 + updates * 4) * 8 * size * size


def test_a_blocked_lu_on_four_servers(four):
    servers = connect_all(four)
    count, size = 4, 200
    rng = np.random.default_rng(3)
    matrix = rng.random((count * size, count * size)) + 2 * count * size * np.eye(count * size)
    plain, blocks = cut(matrix, count), cut(matrix, count)
    blocked_lu(servers[0], plain, size)
    with farcall.transaction(servers) as t:
        blocked_lu(servers[0], blocks, size)
    for ours, theirs in zip(np.block(blocks), np.block(plain), strict=True):
        assert np.array_equal(ours, theirs)
    factors = np.block(blocks)
    lower, upper = np.tril(factors, -1) + np.eye(len(factors)), np.triu(factors)
    assert np.allclose(lower @ upper, matrix)
    report = t.report
    moved = report["sent_bytes"] + report["returned_bytes"]
    assert report["calls"] == len(t) == 4 + 12 + 14
    assert 2 * moved <= bytes_of_blocks(count, size), report


def test_a_chain_of_products_comes_home_once(four):
    servers = connect_all(four)
    n = 100
    rng = np.random.default_rng(4)
    factors = [np.asfortranarray(rng.random((n, n))) for _ in range(5)]
    dgemm = servers[1].function("dgemm")

    def times(a, b, c):
        return dgemm("N", "N", n, n, n, 1.0, a, n, b, n, 0.0, c, n).c

    between = [np.full((n, n), np.nan, order="F") for _ in range(3)]
    last = np.zeros((n, n), order="F")
    for c in between:
        c[:] = 0
    with farcall.transaction(servers) as t:
        result = factors[0]
        for factor, c in zip(factors[1:], [*between, last], strict=True):
            result = times(result, factor, c)
        for c in between:
            t.discard(c)
    assert np.allclose(last, np.linalg.multi_dot(factors))
    for c in between:
        assert np.all(c == 0), "discarded arrays are not filled"
    assert t.report["returned_bytes"] <= 8 * n * n + 8


def test_what_is_left_out_stays_until_it_is_asked_for(start, steps):
    servers = connect_all([start(steps), start(steps)])
    copy = servers[0].function("copy")
    n = 100_000
    data = np.frombuffer(np.random.default_rng(5).bytes(n), dtype="S1")
    with farcall.transaction(servers) as t:
        one = copy(n=n, in_=data).out
        other = copy(n=n, in_=one).out
        with pytest.raises(farcall.ArgumentError, match="when its transaction has run"):
            one.get()
    assert t.report["sent_bytes"] == n
    assert t.report["returned_bytes"] == 0
    assert isinstance(other, farcall.RemoteArray)
    assert (other.shape, other.handle.nbytes) == ((n,), n)
    assert np.array_equal(np.asarray(other), data)
    assert other.handle is None, "it is here now"
    assert np.array_equal(copy(n=n, in_=one).out, data), "a call takes it as an array"
    small = np.array([b"a", b"b"], dtype="S1")
    with servers[0].transaction():
        result = copy(n=2, in_=small).out
        with pytest.raises(farcall.ArgumentError, match="when its transaction has run"):
            result.get()
        again = copy(n=2, in_=result).out
    assert list(np.asarray(result)) == list(np.asarray(again)) == [b"a", b"b"]


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_reads_and_writes_is_kept(start_once, seed):
    """Random calls on overlapping parts of one array, compared with the same calls one by one."""
    servers = connect_all(start_once)
    copy, fill = servers[0].function("copy"), servers[0].function("fill")
    rng = np.random.default_rng(seed)
    memory = rng.integers(0, 256, 400, dtype=np.uint8).view("S1")
    plain = memory.copy()
    calls = []
    for _ in range(25):
        n = int(rng.integers(1, 60))
        out, source = (int(start) for start in rng.integers(0, len(memory) - n, 2))
        if rng.random() < 0.4:
            calls.append((fill, (out, n), int(rng.integers(0, 256))))
        elif abs(out - source) >= n:
            calls.append((copy, (out, n), source))

    def play(memory):
        for function, (start, n), value in calls:
            part = memory[start : start + n]
            if function is fill:
                fill(part, value, n)
            else:
                copy(part, memory[value : value + n], n)

    play(plain)
    with farcall.transaction(servers):
        play(memory)
    assert np.array_equal(memory, plain)


@pytest.fixture(scope="module")
def start_once(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "steps.idl"
    path.write_text(STEPS)
    servers = [ServerProcess(path) for _ in range(3)]
    yield servers
    for server in servers:
        server.stop()


def test_independent_calls_run_at_the_same_time(start, steps):
    servers = connect_all([start(steps, options=("--pes", "1")) for _ in range(3)])
    nap = servers[0].function("nap")
    arrays = [np.zeros(10_000, dtype="S1") for _ in range(6)]
    with farcall.transaction(servers) as t:
        for array in arrays:
            nap(array, 1_000_000, len(array))
    assert t.report["servers"] == 3
    assert t.report["total"] < 6 * 1.0, "they ran one after the other"


def test_an_error_names_the_call(start, steps):
    servers = connect_all([start(steps), start(steps)])
    fill, crash = servers[0].function("fill"), servers[0].function("crash")
    x = np.zeros(100, dtype="S1")
    with (
        pytest.raises(
            farcall.LibraryError, match=r"call 2 of the transaction, test/crash"
        ) as raised,
        farcall.transaction(servers) as t,
    ):
        fill(x, 1, 100)
        crash(x, 100)
        fill(x, 2, 100)
    assert "one later call was not made" in str(raised.value)
    assert repr(t) == "<transaction: 3 calls, failed>"
    assert raised.value.fault == "library"
    assert fill(x, 3, 100).x is x, "the thread is out of the transaction"


def test_an_exception_discards_the_calls(start, steps, tmp_path):
    server = start(steps).connect()
    fill = server.function("fill")
    t = server.transaction()
    discarded, x = np.zeros(8, np.int8), np.zeros(8, np.int8)
    with pytest.raises(KeyError), t:
        fill(discarded, 1, 8)
        copy = server.function("copy")
        left_out = [copy(in_=np.zeros(n, np.int8), n=n).out for n in (9000, 8)]
        raise KeyError
    assert len(t) == 0
    for array in left_out:
        with pytest.raises(farcall.ArgumentError, match="has failed, or has not run"):
            array.get()
    with t:
        fill(x, 2, 8)
    assert (discarded == 0).all() and (x == 2).all()
    assert t.report["calls"] == 1
    with pytest.raises(farcall.ArgumentError, match="the calls have run"):
        t.save(tmp_path / "plan.toml", {"x": x})


def test_another_block_does_not_repeat_calls(start, steps):
    server = start(steps).connect()
    fill = server.function("fill")
    t = server.transaction()
    x, y = np.zeros(8, np.int8), np.zeros(8, np.int8)
    with t:
        fill(x, 1, 8)
    assert len(t) == 1
    x[:] = 0
    with t:
        fill(y, 2, 8)
    assert (x == 0).all() and (y == 2).all()
    assert len(t) == 1


def test_other_threads_may_look_while_it_runs(start, steps):
    process = start(steps)
    server = process.connect()
    nap = server.function("nap")
    t = server.transaction()
    looks = []

    def look():
        wait_until(process.napping, what="the nap")
        looks.append(repr(t))

    other = threading.Thread(target=look)
    with t:
        nap(np.zeros(8, np.int8), 3_000_000, 8)
        other.start()
    other.join()
    assert looks == ["<transaction: 1 calls, running>"]


def test_calls_of_a_lost_server_run_elsewhere(start, steps):
    first, second = (start(steps, options=("--pes", "1")) for _ in range(2))
    servers = connect_all([first, second])
    nap, copy = servers[0].function("nap"), servers[0].function("copy")
    n = 20_000
    data = np.frombuffer(np.random.default_rng(6).bytes(n), dtype="S1")
    arrays = [np.array(data) for _ in range(4)]
    lost = []

    def lose():
        lost.extend(wait_until(first.napping, what="a call of the first server"))
        first.process.kill()

    killer = threading.Thread(target=lose)
    with farcall.transaction(servers):
        for array in arrays:
            # Each goes through a stored array, so that arrays needed later are here.
            middle = copy(n=n, in_=array).out
            middle = nap(middle, 2_000_000, n).x
            copy(n=n, in_=middle, out=array)
        killer.start()
    killer.join()
    assert lost, "no call was under way there"
    for array in arrays:
        assert np.array_equal(array, data)


def test_a_server_that_comes_back_without_its_arrays(start, steps):
    """What it had is computed again, whether it is killed during a call or between two."""
    server = start(steps)
    address, kills = server.address, 0
    servers = connect_all([server])
    copy, nap = servers[0].function("copy"), servers[0].function("nap")
    n = 20_000
    data = np.frombuffer(np.random.default_rng(7).bytes(n), dtype="S1")
    result = np.zeros_like(data)
    ended = threading.Event()

    def kill():
        nonlocal server, kills
        for pause in (0.05, 0.4, 0.3):
            if ended.wait(pause):
                break
            server.process.kill()
            server.process.wait()
            kills += 1
            server = start(steps, listen=address)

    killer = threading.Thread(target=kill)
    try:
        with farcall.transaction(servers) as t:
            middle = copy(n=n, in_=data).out
            for _ in range(1000):
                middle = nap(middle, 50, n).x
            copy(n=n, in_=middle, out=result)
            killer.start()
    finally:
        ended.set()
        killer.join()
    assert np.array_equal(result, data)
    assert kills > 0
    assert t.report["calls"] > len(t), "calls were made again"


def test_a_call_that_may_not_be_repeated_says_so(start, steps):
    first, second = (start(steps, options=("--pes", "1")) for _ in range(2))
    servers = connect_all([first, second])
    nap, once = servers[0].function("nap"), servers[0].function("once")
    n = 20_000
    arrays = [np.zeros(n, dtype="S1") for _ in range(2)]

    def kill():
        wait_until(first.napping, what="that the first naps")
        first.process.kill()

    killer = threading.Thread(target=kill)
    with (
        pytest.raises(farcall.ServerError, match=r"was lost .* not declared Repeatable"),
        farcall.transaction(servers),
    ):
        for array in arrays:
            middle = once(n=n, in_=array).out
            nap(middle, 3_000_000, n)
        killer.start()
    killer.join()


@pytest.mark.parametrize("stalls", [False, True])
def test_no_call_outlasts_the_time_out(start, steps, stalls):
    first, second = start(steps), start(steps)
    servers = connect_all([first, second], timeout=1)
    nap = servers[0].function("nap")
    arrays = [np.zeros(20_000, dtype="S1") for _ in range(4)]
    begin = time.monotonic()
    try:
        with (
            pytest.raises(farcall.TimeoutError, match=r"call \d of the transaction, test/nap"),
            farcall.transaction(servers),
        ):
            for array in arrays:
                nap(nap(array, 1, len(array)).x, 30_000_000, len(array))
            if stalls:
                freeze(first.process)
    finally:
        first.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - begin < 25


def test_ctrl_c_ends_the_wait_for_a_server_that_was_lost(start, steps):
    only = start(steps)
    server = only.connect()
    nap = server.function("nap")
    x = np.zeros(4, dtype="S1")

    def lose():
        wait_until(only.napping, what="that it naps")
        only.process.kill()
        only.process.wait()
        # Long enough to notice, and much less than the time that it has to come back.
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=lose)
    with pytest.raises(KeyboardInterrupt), farcall.transaction([server]):
        nap(x, 30_000_000, len(x))
        thread.start()
    thread.join()


def test_what_cannot_be_part_of_one_says_why(start, steps):
    server = start(steps).connect()
    copy, fill = server.function("copy"), server.function("fill")
    n = 8192
    x, y = np.zeros(n, dtype="S1"), np.zeros(n, dtype="S1")
    handle = server.put(x)
    with server.transaction() as t:
        with pytest.raises(farcall.ArgumentError, match=r"argument `in`.*stored array"):
            copy(n=n, in_=handle)
        with pytest.raises(farcall.ArgumentError, match="leave the argument out"):
            copy(n=n, in_=x, out=farcall.keep())
        with pytest.raises(farcall.ArgumentError, match=r"numpy\.zeros"):
            fill(farcall.keep(), 1, n)
        with pytest.raises(farcall.ArgumentError, match="call_async"):
            copy.call_async(n=n, in_=x)
        with pytest.raises(farcall.ArgumentError, match="memory order"):
            fill(np.zeros(2 * n, dtype="S1")[::2], 1, n)
        with pytest.raises(RuntimeError, match="open on this thread"), server.transaction():
            pass
        copy(n=n, in_=x, out=y)
    assert len(t) == 1
    with pytest.raises(ZeroDivisionError), server.transaction() as t:
        fill(x, 1, n)
        raise ZeroDivisionError
    assert t.report is None
    assert not x.view("u1").any(), "nothing is run after an exception"


class Tensor:
    """An array of another library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_copies_of_other_arrays_are_no_other_arrays(four):
    """A transaction refuses a copy of what it writes, also if NumPy has only a view of it."""
    server = four[0].connect()
    dcopy, dgemm = server.function("dcopy"), server.function("dgemm")
    a, c = np.eye(3, order="F"), Tensor(np.zeros((3, 3)))
    dgemm("N", "N", 3, 3, 3, 1.0, a, 3, a, 3, 0.0, c, 3)
    assert (c.array == a).all()
    with (
        pytest.raises(farcall.ArgumentError, match="the call takes a copy"),
        server.transaction(),
    ):
        dgemm("N", "N", 3, 3, 3, 1.0, a, 3, a, 3, 0.0, c, 3)
    y, z = np.zeros(3), np.zeros(3)
    with (
        pytest.raises(farcall.ArgumentError, match="the call takes a copy"),
        server.transaction(),
    ):
        dcopy(3, np.ones(3), 1, y, 1)
        dcopy(3, memoryview(y), 1, z, 1)
    with server.transaction():
        dcopy(3, [1.0, 2.0, 3.0], 1, y, 1)
        dcopy(3, memoryview(np.ones(3)), 1, z, 1)
    assert (y == [1, 2, 3]).all() and (z == 1).all()


def test_a_function_that_only_one_server_has(start, steps):
    blas, other = start(BLAS), start(steps)
    servers = connect_all([blas, other])
    n = 1000
    x, y = np.arange(float(n)), np.zeros(n)
    target = np.zeros(8 * n, dtype="S1")
    with farcall.transaction(servers) as t:
        servers[0].function("dcopy")(n, x, 1, y, 1)
        servers[1].function("copy")(target, y.view("S1"), 8 * n)
    assert t.report["servers"] == 2
    assert np.array_equal(target.view(float), x)
    with (
        pytest.raises(farcall.UnknownFunction, match=r"call 1 .*blas/dcopy"),
        servers[1].transaction(),
    ):
        servers[0].function("dcopy")(n, x, 1, y, 1)


def test_a_handle_is_pickled_with_its_own_server(start, steps):
    servers = connect_all([start(BLAS), start(steps)])
    data = np.frombuffer(np.random.default_rng(6).bytes(10_000), dtype="S1")
    with farcall.transaction(servers):
        made = servers[1].function("copy")(n=len(data), in_=data).out
    again = pickle.loads(pickle.dumps(made.handle))
    assert again.id == made.handle.id
    assert np.array_equal(again.get(), data)


def test_the_graph_can_be_drawn(start, steps):
    pytest.importorskip("matplotlib")
    server = start(steps).connect()
    copy = server.function("copy")
    n = 10
    a, b, c = (np.zeros(n, dtype="S1") for _ in range(3))
    with server.transaction() as t:
        copy(b, a, n)
        copy(c, b, n)
    assert 'c0 -> c1 [label="in"]' in t.dot()
    picture = xml.etree.ElementTree.fromstring(t._repr_svg_())
    texts = "".join(picture.itertext())
    assert "1 test/copy" in texts
    assert "2 test/copy" in texts


def test_an_array_goes_from_server_to_server(start, steps, tmp_path):
    config = tmp_path / "closed.toml"
    config.write_text('[data]\npeers = ["192.0.2.0/24"]\n')
    first, second = start(steps), start(steps)
    closed = start(steps, options=("--config", str(config)))
    one, two, three = connect_all([first, second, closed])
    matrix = np.random.default_rng(7).random((300, 200))
    handle = one.put(matrix)
    there = handle.copy_to(two)
    assert (there.shape, there.dtype, there.order) == (handle.shape, handle.dtype, "C")
    assert np.array_equal(there.get(), matrix)
    assert np.array_equal(handle.get(), matrix)
    with pytest.raises(farcall.ServerError, match=r"data\.peers"):
        handle.copy_to(three)
    # In a transaction it then goes through the client.
    copy = one.function("copy")
    n = 50_000
    data = np.frombuffer(np.random.default_rng(8).bytes(n), dtype="S1")
    # Only `first` copies; only `closed` fills.
    with farcall.transaction([one, three]) as t:
        results = [copy(n=n, in_=copy(n=n, in_=data).out).out for _ in range(4)]
    assert all(np.array_equal(result, data) for result in results)
    assert t.report["passed_bytes"] in range(0, 8 * n + 1, n)
    first.process.kill()
    first.process.wait()
    with pytest.raises(farcall.Error):
        handle.copy_to(two)


def test_transactions_from_c(start, steps, tmp_path, monkeypatch):
    program = compile_c(ROOT / "testing" / "e2e" / "transactions.c", tmp_path / "transactions")
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("matplotlib")
    servers = (start(steps).address for _ in range(2))
    ran = run(program, *servers, FARCALL_PYTHON=sys.executable)
    assert ran.returncode == 0, ran.stderr
    xml.etree.ElementTree.parse(tmp_path / "graph.svg")


THREADLESS = """
import resource, sys
import farcall
import numpy as np

server = farcall.connect(sys.argv[1])
nap, x = server.function("nap"), np.ones(10, "S1")
nap(x, 1000, 10)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 20), resource.RLIM_INFINITY))
with farcall.transaction([server]) as t:
    for _ in range(60):
        nap(np.ones(10, "S1"), 1000, 10)
print(t.report["calls"])
"""


def test_a_transaction_runs_without_room_for_threads(start, steps):
    words = [sys.executable, "-c", THREADLESS, start(steps).address]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "60\n", ran.stderr


LOOKS = """
import signal, sys
import farcall
import numpy as np

server = farcall.connect(sys.argv[1])
nap, x = server.function("nap"), np.ones(10, "S1")
t = farcall.transaction([server])
signal.signal(signal.SIGALRM, lambda *_: print(repr(t), len(t), t.report))
with t:
    nap(x, 2_000_000, 10)
    signal.setitimer(signal.ITIMER_REAL, 1)
print(len(t), t.report["calls"])
"""


def test_a_signal_handler_may_look_at_a_transaction_that_runs(start, steps):
    words = [sys.executable, "-c", LOOKS, start(steps).address]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "<transaction: 1 calls, running> 1 None\n1 1\n", ran.stderr
