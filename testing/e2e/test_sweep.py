"""Many calls of one function over several servers."""

import itertools
import json
import subprocess
import threading
from types import SimpleNamespace

import farcall
import numpy as np
import pytest
from farcall import _sweep
from farcall._sweep import Sweep
from servers import FARCALL, FAULTS, LIBRARIES, metaserver, stop, up_local, wait_until

STEPS = f"""\
Module test;
Library "{FAULTS}/libfarcall_faults.so";
Define nap(IN int ms, OUT int *slept) Repeatable "yes" Calls "C" fault_sleep(ms, slept);
Define once(IN int ms, OUT int *slept) Calls "C" fault_sleep(ms, slept);
Define segfault(IN int n) Calls "C" fault_segfault(n);
"""


@pytest.fixture
def cluster(tmp_path):
    """`farcall up`: a metaserver and three servers."""
    path = tmp_path / "steps.idl"
    path.write_text(STEPS)
    process = subprocess.Popen(
        [FARCALL, "up", "--local", "3", path, LIBRARIES / "ep.idl", LIBRARIES / "blas.idl"]
        + ["--listen", "127.0.0.1:0", "--pes", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines = [process.stdout.readline().split()[-1] for _ in range(4)]
        address = lines[0].replace("farcall://", "meta://")
        wait_until(lambda: have_joined(address) == 3, what="all servers")
        yield address, lines[1:]
    finally:
        stop(process, 10)


def test_a_sweep_gives_results_in_order_from_all_servers(cluster):
    address, servers = cluster
    nap = farcall.connect(address).function("nap")
    sweep = nap.map([{"ms": 20 + number % 3} for number in range(60)])
    assert len(sweep) == 60
    assert [result.slept for result in sweep] == [20 + number % 3 for number in range(60)]
    assert sweep.errors == {}
    computed = [farcall.connect(server).function("nap") for server in servers]
    assert all(function.name == "test/nap" for function in computed)
    assert repr(sweep) == "<sweep: 60 of 60 calls done, 0 failed>"


def test_calls_come_in_any_form(cluster):
    ddot = farcall.connect(cluster[0]).function("ddot")
    x = np.arange(5.0)
    expected = [float(np.dot(x, x * factor)) for factor in range(4)]
    by_name = ddot.map([{"y": x * factor} for factor in range(4)], n=5, x=x, incx=1, incy=1)
    assert [result.r for result in by_name] == expected
    own = ddot.map([{"y": 2 * x}, {}], n=5, x=x, y=x, incx=1, incy=1)
    assert [result.r for result in own] == [60.0, 30.0]
    in_order = ddot.map((5, x, 1, x * factor, 1) for factor in range(4))
    assert [result.r for result in in_order.wait()] == expected
    nap = farcall.connect(cluster[0]).function("nap")
    numbers = nap.map(itertools.islice(itertools.count(1), 3))
    with pytest.raises(TypeError, match="not counted"):
        len(numbers)
    assert sorted(result.slept for _, result in numbers.as_completed()) == [1, 2, 3]


def test_calls_that_would_overwrite_one_array_are_refused(library_server):
    server = library_server.connect()
    dgesv = server.function("lapack/dgesv")
    sizes = {"n": 3, "nrhs": 1, "lda": 3, "ldb": 3}
    matrix = np.asfortranarray(np.diag([2.0, 4.0, 8.0]))
    own = [{"a": matrix.copy("F"), "b": np.ones((3, 1))} for _ in range(4)]
    assert [r.b[0, 0] for r in dgesv.map(own, **sizes)] == [0.5] * 4
    sides = [{"b": np.ones((3, 1))} for _ in range(4)]
    same = [{"a": matrix.copy("F"), **sides[0]}, {"a": matrix.copy("F"), **sides[0]}]
    for shared in matrix.copy("F"), server.put(matrix):
        with pytest.raises(farcall.ArgumentError, match="`a`: two calls of a map would overwrite"):
            dgesv.map(sides, a=shared, **sizes).wait()
    with pytest.raises(farcall.ArgumentError, match="`b`: two calls of a map would overwrite"):
        dgesv.map(same, **sizes).wait()
    one = [{"b": np.ones((3, 1))}]
    (alone,) = dgesv.map(one, a=matrix.copy("F"), ipiv=farcall.keep(), **sizes)
    assert alone.b[0, 0] == 0.5


def test_an_error_is_raised_in_its_place(cluster):
    nap = farcall.connect(cluster[0]).function("nap")
    sweep = nap.map([1, 2, "three", 4])
    seen = []
    with pytest.raises(farcall.ArgumentError, match="ms"):
        seen.extend(result.slept for result in sweep)
    assert seen == [1, 2]
    sweep = nap.map([1, "two", 3])
    assert sorted(number for number, _ in sweep.as_completed()) == [0, 2]
    assert list(sweep.errors) == [1]

    def broken():
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nap.map(broken()).wait()


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.terminate])
def test_calls_of_a_lost_server_are_made_elsewhere(start, tmp_path, end):
    path = tmp_path / "steps.idl"
    path.write_text(STEPS)
    meta = subprocess.Popen(
        [FARCALL, "meta", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = meta.stdout.readline().split()[-1].replace("farcall://", "meta://")
        options = ("--metaserver", address, "--pes", "1")
        servers = [start(path, options=options) for _ in range(3)]
        wait_until(lambda: have_joined(address) == len(servers), what="all servers")
        nap = farcall.connect(address).function("nap")
        lost = []

        def lose():
            lost.extend(wait_until(servers[0].napping, what="a call of the first server"))
            end(servers[0].process)

        killer = threading.Thread(target=lose)
        killer.start()
        results = nap.map([100] * 100).wait()
        killer.join()
        assert lost, "no call was under way there"
        assert [result.slept for result in results] == [100] * 100
    finally:
        meta.terminate()
        meta.wait(10)


def test_calls_that_wait_for_a_reserved_server_are_made_elsewhere(cluster):
    address, servers = cluster
    reserved = [farcall.connect(server).reserve(seconds=20) for server in servers[:2]]
    nap = farcall.connect(address).function("nap")
    results = nap.map([20] * 20).wait()
    assert [result.slept for result in results] == [20] * 20
    for server, reservation in zip(servers, reserved, strict=False):
        left = farcall.connect(server).reservations()
        assert [one.id for one in left] == [reservation.id], "the sweep has waited for it"


class Scripted:
    """A function whose calls end as a script says, and the future of such a call."""

    name = "scripted"
    interface = SimpleNamespace(repeatable=False, parameters=[], callbacks=[], convention="C")
    times = None

    def __init__(self, *errors):
        self.errors = iter(errors)
        self.error = None

    def call_async(self, *_args):
        future = Scripted()
        future.error = next(self.errors, None)
        return future

    def result(self, **_limits):
        if self.error is not None:
            raise self.error
        return "done"

    def done(self):
        return True

    def cancel(self):
        return True


def test_a_call_that_a_server_has_not_begun_is_made_elsewhere():
    refusal = farcall.ServerError("the server is draining")
    refusal._begun = False
    functions = [("one", Scripted(*[refusal] * 9)), ("other", Scripted())]
    sweep = Sweep(functions, range(9), {}, False, 1)
    assert sweep.wait() == ["done"] * 9


class Changing(Scripted):
    """A function that overwrites an array that it reads, and notes its calls."""

    interface = SimpleNamespace(
        repeatable=True,
        parameters=[SimpleNamespace(name="x", mode="INOUT", shape=["n"])],
        callbacks=[],
        convention="C",
    )

    def __init__(self, made, *errors):
        super().__init__(*errors)
        self.made = made

    def call_async(self, *args):
        self.made.append(args)
        return super().call_async(*args)


@pytest.mark.parametrize(("begun", "changed"), [(True, False), (True, True), (False, True)])
def test_a_call_is_not_made_again_with_an_array_that_has_changed(begun, changed):
    lost = farcall.ConnectionError("lost")
    lost._begun, lost._changed = begun, changed
    made = []
    sweep = Sweep([(name, Changing(made, lost)) for name in ("a", "b")], [0], {}, False, 1)
    with pytest.raises(farcall.ConnectionError, match="lost"):
        sweep.wait()
    assert len(made) == (1 if begun and changed else 2)


def test_a_file_of_a_lost_server_is_no_reason_to_wait_for_ever(monkeypatch):
    leave = Sweep._leave

    def leave_later(sweep, server, error):
        # The other server looks once more while this one still counts.
        wait_until(lambda: sweep._idle == {1 - server}, what="the other server")
        leave(sweep, server, error)

    monkeypatch.setattr(Sweep, "_leave", leave_later)
    functions = [("one", Scripted(*[ConnectionError("lost")] * 9)), ("other", Scripted())]
    file = farcall.url("folder:file.npy")
    sweep = Sweep(functions, [file] * 4, {}, False, 1, lambda: {"file.npy": ["one"]})
    reader = threading.Thread(target=lambda: list(sweep.as_completed()), daemon=True)
    reader.start()
    reader.join(10)
    assert not reader.is_alive(), "the sweep waits for a server that is lost"
    # It had one call or two when it was lost.
    assert list(sweep.errors) in ([0], [0, 1])
    assert [number for number in range(4) if sweep.results[number] is None] == list(sweep.errors)
    assert sweep.results[2:] == ["done", "done"]


def test_calls_that_read_named_data_go_through_the_metaserver():
    at_servers, placed = [], []
    functions = [(name, Changing(at_servers)) for name in ("one", "other")]
    reads = (1, farcall.data("k"))
    sweep = Sweep(functions, [reads, 2, reads], {}, False, 1, whole=Changing(placed))
    assert sweep.wait() == ["done"] * 3
    assert placed == [reads] * 2 and at_servers == [(2,)]


def test_a_call_that_fails_behind_the_metaserver_takes_no_server_from_the_sweep():
    lost = farcall.ConnectionError("lost")
    functions = [(name, Changing([])) for name in ("one", "other")]
    reads = (1, farcall.data("k"))
    whole = Changing([], lost, lost)
    sweep = Sweep(functions, [reads, reads, 2, 3], {}, False, 1, whole=whole)
    assert sorted(number for number, _ in sweep.as_completed()) == [2, 3]
    assert sorted(sweep.errors) == [0, 1]


class Held(Scripted):
    """A function whose calls end when an event has come."""

    def __init__(self, event):
        super().__init__()
        self.event = event

    def call_async(self, *_args):
        return Held(self.event)

    def result(self, timeout=30.0):
        if not self.event.wait(timeout):
            raise TimeoutError
        return "done"

    def done(self):
        return self.event.is_set()


class Telling(Scripted):
    """A function that says when it is called."""

    def __init__(self, event, *errors):
        super().__init__(*errors)
        self.event = event

    def call_async(self, *args):
        self.event.set()
        return super().call_async(*args)


@pytest.mark.parametrize("comes_back", [False, True])
def test_servers_that_join_meanwhile_make_calls(monkeypatch, comes_back):
    monkeypatch.setattr(_sweep, "JOIN_S", 0.05)
    event = threading.Event()
    refusal = farcall.ServerError("the server is draining")
    refusal._begun = False
    functions = [("one", Held(event))]
    if comes_back:
        functions.append(("other", Scripted(refusal, refusal)))
    everywhere = [*functions[:1], ("other", Telling(event))]
    sweep = Sweep(functions, range(9), {}, False, 1, dict, lambda: everywhere)
    assert sweep.wait() == ["done"] * 9
    assert sorted(sweep._starts) == ["one", "other"]


def test_a_server_that_is_lost_again_and_again_makes_no_more_calls(monkeypatch):
    monkeypatch.setattr(_sweep, "JOIN_S", 0.01)
    event = threading.Event()
    refusal = farcall.ServerError("the server is draining")
    refusal._begun = False
    functions = [("one", Held(event)), ("other", Scripted(*[refusal] * 99))]
    sweep = Sweep(functions, range(9), {}, False, 1, dict, lambda: functions)
    wait_until(lambda: sweep._starts["other"] == 5, what="its last return")
    wait_until(lambda: len(sweep._costs) == 1, what="its last loss")
    event.set()
    assert sweep.wait() == ["done"] * 9
    assert sweep._starts["other"] == 5


def test_a_server_that_joins_a_metaserver_gets_calls_of_a_sweep(start, tmp_path):
    path = tmp_path / "steps.idl"
    path.write_text(STEPS)
    with metaserver() as address:
        options = ("--metaserver", address, "--pes", "1")
        start(path, options=options)
        wait_until(lambda: have_joined(address) == 1, what="the first server")
        nap = farcall.connect(address.replace("farcall://", "meta://")).function("nap")
        sweep = nap.map([300] * 60)
        joins = start(path, options=options)
        assert [result.slept for result in sweep.wait()] == [300] * 60
        ran = [FARCALL, "status", joins.address, "--json"]
        status = json.loads(subprocess.run(ran, capture_output=True, check=True).stdout)
        assert sum(one["done"] for one in status["functions"]) > 0


def have_joined(address):
    """The number of servers that a metaserver knows."""
    ran = subprocess.run(
        [FARCALL, "status", address, "--json"], capture_output=True, text=True, check=True
    )
    return len(json.loads(ran.stdout)["servers"])


def test_a_sweep_can_be_given_up(cluster):
    nap = farcall.connect(cluster[0]).function("nap")
    sweep = nap.map([2000] * 50)
    sweep.cancel()
    wait_until(lambda: sum(1 for _ in sweep.as_completed()) == 0, what="the end of the sweep")
    assert len(sweep.errors) <= 10


def test_one_server_is_enough_and_brief_calls_are_grouped(server):
    ddot = server.function("ddot")
    x = np.arange(3.0)
    results = ddot.map(({"n": 3, "x": x, "y": x * n} for n in range(2000)), incx=1, incy=1)
    assert [result.r for result in results] == [5.0 * n for n in range(2000)]


def test_an_iterator_that_waits_holds_up_neither_results_nor_the_end(cluster):
    nap = farcall.connect(cluster[0]).function("nap")
    goes_on, waited = threading.Event(), []

    def calls():
        yield from [1] * 6
        waited.append(goes_on.wait(20))

    sweep = nap.map(calls())
    done = sweep.as_completed()
    assert {next(done)[0] for _ in range(6)} == set(range(6))
    sweep.cancel()
    assert not list(done)
    assert not waited
    goes_on.set()
    wait_until(lambda: waited == [True], what="the end of the iterator")
    assert len(sweep.results) == 6
    assert not sweep.errors


def test_an_iterator_can_wait_for_results(server):
    ddot, sweeps, x = server.function("ddot"), [], np.arange(3.0)

    def calls():
        yield {"y": x}
        for _ in range(20):
            wait_until(lambda: sweeps and sweeps[0].results[-1], what="the last result")
            yield {"y": x + sweeps[0].results[-1].r}

    sweeps.append(ddot.map(calls(), n=3, x=x, incx=1, incy=1))
    results = [result.r for result in sweeps[0].wait()]
    assert results[:3] == [5.0, 20.0, 65.0]
    assert len(results) == 21


NORMS = """\
Globals {
#include <math.h>
#include <time.h>
}
Module lists;
Define norms(IN int count, IN int n, IN double us, IN double x[count][n], OUT double norm[count],
    OUT int *entries) Repeatable "yes"
{
    double seconds = count * us * 1e-6;
    struct timespec pause = { (time_t)seconds, (long)(1e9 * fmod(seconds, 1)) };
    int i, k;
    nanosleep(&pause, 0);
    for (i = 0; i < count; i++) {
        norm[i] = 0;
        for (k = 0; k < n; k++)
            norm[i] += x[i * n + k] * x[i * n + k];
    }
    *entries = count;
}
Define total(IN int n, IN double x[n], OUT double *sum) Repeatable "yes"
{
    int k;
    for (*sum = 0, k = 0; k < n; k++)
        *sum += x[k];
}
"""


@pytest.fixture
def lists(start, tmp_path):
    """A server of the functions above."""
    path = tmp_path / "lists.idl"
    path.write_text(NORMS)
    return start(path, options=("--allow-code",)).connect()


@pytest.fixture
def norms(lists):
    """A function that takes a list, and naps for each entry."""
    return lists.function("norms")


def test_two_threads_can_read_a_sweep(lists):
    total = lists.function("total")
    sweep = total.map([{"x": np.full(2, float(k))} for k in range(300)], group=1)
    read = [[], []]
    threads = [
        threading.Thread(target=lambda into=into: into.extend(r.sum for r in sweep), daemon=True)
        for into in read
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert read == [[2.0 * k for k in range(300)]] * 2


@pytest.mark.parametrize(("group", "calls"), [(1, [1] * 20), (7, [7] * 14 + [6] * 6)])
def test_a_function_that_takes_a_list_gets_groups(norms, group, calls):
    entries = [{"x": np.full(3, float(k))} for k in range(20)]
    results = norms.map(entries, group=group, n=3, us=0.0).wait()
    assert [result.norm for result in results] == [3.0 * k * k for k in range(20)]
    assert [result.entries for result in results] == calls


@pytest.mark.parametrize("group", [1, 3])
def test_arrays_that_entries_give_for_results_are_filled(norms, group):
    given = [np.zeros(()) for _ in range(4)]
    entries = [{"x": np.full(3, float(k)), "norm": norm} for k, norm in enumerate(given)]
    results = norms.map(entries, group=group, n=3, us=0.0).wait()
    assert [float(norm) for norm in given] == [result.norm for result in results] == [0, 3, 12, 27]


@pytest.mark.parametrize("group", [1, 2])
def test_an_entry_has_its_own_value_of_a_shared_argument(norms, group):
    entries = [{"x": np.full(3, float(k))} for k in range(4)]
    results = norms.map(entries, group=group, n=3, us=0.0, x=np.zeros(3)).wait()
    assert [result.norm for result in results] == [3.0 * k * k for k in range(4)]


def test_the_size_of_groups_follows_the_time_of_an_entry(norms):
    entries = [{"x": np.ones(3)} for _ in range(40)]
    # An entry takes much longer than a call on a busy machine.
    slow = norms.map(entries[:6], n=3, us=200_000.0)
    assert [result.entries for result in slow.wait()] == [1] * 6
    assert slow.wanted == 1
    brief = norms.map(({"x": np.ones(3)} for _ in range(3000)), n=3, us=0.0, group="auto")
    taken = [result.entries for result in brief.wait()]
    assert len(taken) == 3000
    assert max(taken) > 32
    assert brief.wanted > 32
    # A server that is known gets whole groups from the start, unless the entries are others.
    # On a busy machine, the first call can begin before the sweep has asked for more entries.
    again = norms.map(entries, n=3, us=0.0).wait()
    assert max(result.entries for result in again[:3]) > 8
    others = norms.map([{"x": np.ones(4)} for _ in range(40)], n=4, us=0.0).wait()
    assert others[0].entries == 1


def test_all_servers_share_the_entries_of_a_list(tmp_path):
    path = tmp_path / "lists.idl"
    path.write_text(NORMS)
    with up_local(path) as address:
        norms = farcall.connect(address).function("norms")
        sweep = norms.map([{"x": np.full(2, float(k))} for k in range(200)], n=2, us=500.0)
        results = sweep.wait()
    assert [result.norm for result in results] == [2.0 * k * k for k in range(200)]
    # The largest group leaves work for the two other servers.
    assert max(result.entries for result in results) <= 200 / 3


@pytest.mark.parametrize("group", ["auto", 1, 3])
def test_vectors_whose_size_follows_from_them_are_no_lists(lists, group):
    total = lists.function("total")
    vectors = [np.full(length, 2.0) for length in (1,) * 30 + (3, 0, 2)]
    results = total.map([{"x": x} for x in vectors], group=group).wait()
    assert [result.sum for result in results] == [2.0 * x.size for x in vectors]
    # One number is no vector, and a function with one result takes no list of numbers.
    text = "which is taken from `x` only if that is a NumPy array with 1 dimension"
    with pytest.raises(farcall.ArgumentError, match=text):
        total.map([{"x": 1.0}, {"x": 2.0}], group=group).wait()


def test_an_error_of_a_group_is_that_of_each_entry(norms):
    entries = [{"x": np.ones(3)}, {"x": np.ones(4)}]
    sweep = norms.map(entries, group=2, n=3, us=0.0)
    with pytest.raises(ValueError, match="same shape"):
        sweep.wait()
    assert sorted(sweep.errors) == [0, 1]
    with pytest.raises(ValueError, match="number of entries"):
        norms.map(entries, group=0, n=3, us=0.0)


def test_the_error_of_the_entries_is_raised(norms):
    def entries():
        yield {"x": np.ones(3)}
        raise KeyError("of the entries")

    # The call before it is under way, and given up.
    for read in (list, lambda sweep: sweep.wait(), lambda sweep: list(sweep.as_completed())):
        sweep = norms.map(entries(), n=3, us=1_000_000.0)
        for _ in range(2):
            with pytest.raises(KeyError, match="of the entries"):
                read(sweep)


def test_a_group_rounds_no_integer(norms):
    # In one array both are float64.
    def mixed(number):
        return [{"x": np.full(3, number)}, {"x": np.full(3, 0.5)}]

    with pytest.raises(ValueError, match="would round the integer 9007199254740993"):
        norms.map(mixed(2**53 + 1), group=2, n=3, us=0.0).wait()
    results = norms.map(mixed(3), group=2, n=3, us=0.0).wait()
    assert [result.norm for result in results] == [27.0, 0.75]


def test_a_transaction_runs_behind_a_metaserver(cluster):
    server = farcall.connect(cluster[0])
    nap, once = server.function("nap"), server.function("once")
    slept = [np.zeros(1, dtype=np.int32) for _ in range(6)]
    with server.transaction() as t:
        for array in slept[:5]:
            nap(200, array)
        once(1, slept[5])
    assert t.report["servers"] == 3
    assert [int(array[0]) for array in slept] == [200] * 5 + [1]


VERSION = """\
Module test;
Library "libc.so.6";
Define pick(OUT char out[n], IN char {}[n], IN char {}[n], IN long n) Repeatable "yes"
    Calls "C" memcpy(out, a, n);
"""


def test_a_server_with_another_interface_makes_no_calls_of_a_sweep(start, tmp_path):
    path = tmp_path / "version.idl"
    path.write_text(VERSION.format("a", "b"))
    server = start(path)
    pick = server.connect().function("pick")
    one, two, out = (np.full(4, letter, "S1") for letter in (b"1", b"2", b"3"))
    assert (pick.map([(out, one, two, 4)]).wait()[0].out == one).all()
    server.stop()
    path.write_text(VERSION.format("b", "a"))
    start(path, listen=server.address.removeprefix("farcall://"))
    with pytest.raises(farcall.ServerError, match="the interface of `test/pick` has changed"):
        pick.map([(out, one, two, 4)]).wait()
