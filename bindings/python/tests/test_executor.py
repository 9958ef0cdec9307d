"""Python functions on servers, as `concurrent.futures` has them."""

import collections
import concurrent.futures
import dataclasses
import math
import os
import pickle
import subprocess
import sys
import threading
import time
import types
import weakref

import farcall
import farcall.joblib
import joblib
import numpy as np
import pytest
from farcall import _executor
from farcall._functions import FunctionPickles
from servers import FARCALL, ServerProcess, known, metaserver, wait_until


@pytest.fixture(scope="module")
def remote():
    """A server of two processor elements that runs functions of users."""
    server = ServerProcess(options=["--pickled", "--pes", "2"])
    yield server
    server.stop()


@pytest.fixture
def executor(remote):
    """An executor on it."""
    with farcall.Executor(remote.address) as executor:
        yield executor


def test_functions_and_lambdas_run_at_the_server(executor):
    offset = 10
    assert executor.submit(os.getpid).result() != os.getpid()
    squares = executor.map(lambda x, y: x * y + offset, range(50), range(50))
    assert list(squares) == [x * x + offset for x in range(50)]
    assert executor.submit(dict, a=1, b=[2, "three"]).result() == {"a": 1, "b": [2, "three"]}
    assert isinstance(executor, concurrent.futures.Executor) and executor._max_workers == 2


def test_a_task_that_connects_is_told_that_it_has_no_network(executor):
    task = executor.submit(lambda: farcall.connect("farcall://127.0.0.1:1"))
    with pytest.raises(farcall.ConnectionError, match=r"no network.*`network = true` below"):
        task.result()


def test_an_executor_in_a_transaction_is_refused(remote):
    servers = [farcall.connect(remote.address)]
    with pytest.raises(RuntimeError, match="before the block"), farcall.transaction(servers):
        farcall.Executor(remote.address)
    with farcall.Executor(remote.address) as executor:
        assert executor.submit(abs, -1).result() == 1


scale = 1
listed = []
counted = 0


def scaled(x, add=0):
    return scale * x + add


def length():
    return len(listed)


def count():
    global counted  # noqa: PLW0603
    counted += 1
    return counted


def test_functions_run_as_they_were_when_they_were_submitted(executor, monkeypatch):
    module = sys.modules[__name__]
    inner = 0

    def closure():
        return inner

    futures = []
    for n in range(10):
        monkeypatch.setattr(module, "scale", n // 2)
        monkeypatch.setattr(module, "listed", [0] * n)
        monkeypatch.setattr(scaled, "__defaults__", (n // 5,))
        inner = n // 3
        tasks = [(scaled, 10), (length,), (closure,)]
        futures.append([executor.submit(*task) for task in tasks])
        listed.append(1)
        futures[-1].append(executor.submit(length))
    told = [tuple(future.result() for future in row) for row in futures]
    assert told == [(n // 2 * 10 + n // 5, n, n // 3, n + 1) for n in range(10)]


def test_tasks_do_not_see_what_others_have_changed(executor):
    futures = [executor.submit(count) for _ in range(50)]
    assert {future.result() for future in futures} == {1}


def test_a_function_is_pickled_again_only_if_it_may_have_changed(monkeypatch):
    module = sys.modules[__name__]
    made = []

    def dumps(function):
        made.append(function)
        return pickle.dumps(len(made))

    pickles = FunctionPickles(dumps)
    first = pickles.of(scaled)
    assert pickles.of(scaled) is first and len(made) == 1
    for name, value in [("scale", 2), ("scale", math), ("scale", (math.sin, os.path.join, "x"))]:
        monkeypatch.setattr(module, name, value)
        assert pickles.of(scaled) is pickles.of(scaled) is not None
    monkeypatch.setattr(scaled, "__defaults__", (1,))
    assert pickles.of(scaled) is not None
    monkeypatch.setattr(scaled, "__code__", (lambda x, add=0: math.sin(x) + add).__code__)
    assert pickles.of(scaled) is not None
    assert len(made) == 6
    monkeypatch.undo()
    # What these refer to can change without a trace.
    for changing in [[], {}, count, module, RefusedError, (1, []), [].append]:
        monkeypatch.setattr(module, "scale", changing)
        assert pickles.of(scaled) is None
    monkeypatch.setattr(module, "scale", 1)
    monkeypatch.setattr(scaled, "seen", [], raising=False)
    assert pickles.of(scaled) is None
    assert pickles.of(length) is pickles.of(abs) is pickles.of([].append) is None
    assert len(made) == 6


def test_wait_and_as_completed_know_its_futures(executor):
    goes_on = threading.Event()
    futures = [executor.submit(time.sleep, 0.01 * n) for n in (20, 1, 10)]
    futures[1].add_done_callback(lambda _: goes_on.set())
    done, _ = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED)
    assert done and all(future.done() for future in done)
    assert goes_on.wait(30)
    assert set(concurrent.futures.as_completed(futures)) == set(futures)
    assert not concurrent.futures.wait(futures).not_done


class RefusedError(Exception):
    """An error with two arguments."""

    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


def fail(code):
    raise RefusedError(code, "no")


def hide():
    class OwnError(Exception):
        def __reduce__(self):
            raise TypeError("not for others")

    raise OwnError("hidden")


def test_errors_come_back_with_their_traceback(executor):
    with pytest.raises(RefusedError) as raised:
        executor.submit(fail, 7).result()
    assert raised.value.code == 7
    assert "in fail" in str(raised.value.__cause__)
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(threading.Lock).result()
    with pytest.raises(RuntimeError, match="OwnError: hidden"):
        executor.submit(hide).result()
    with pytest.raises(TypeError, match="pickle"):
        executor.submit(threading.Lock())
    with pytest.raises(SystemExit):
        executor.submit(exit, 3).result()
    assert executor.submit(int, "5").result() == 5


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """An error that nobody may change."""

    code: int

    def __reduce__(self):
        return FrozenError, (self.code,)


def freeze(code):
    raise FrozenError(code)


def mute():
    class MuteError(Exception):
        def __str__(self):
            raise ValueError("no words")

        def __reduce__(self):
            return int, (5,)

    raise MuteError


def test_errors_that_refuse_or_tell_nothing_end_their_tasks(executor):
    futures = [executor.submit(freeze, 5), executor.submit(mute), executor.submit(abs, -1)]
    with pytest.raises(FrozenError) as raised:
        futures[0].result(timeout=30)
    assert raised.value.code == 5 and "in freeze" in str(raised.value.__cause__)
    with pytest.raises(RuntimeError, match=r"^MuteError$"):
        futures[1].result(timeout=30)
    assert futures[2].result(timeout=30) == 1


def test_a_crash_fails_its_own_task_alone(executor):
    executor.map(abs, range(100))
    futures = [
        executor.submit(os.abort if n == 17 else abs, *([] if n == 17 else [n])) for n in range(40)
    ]
    for n, future in enumerate(futures):
        if n == 17:
            with pytest.raises(farcall.LibraryError, match=r"SIGABRT|abort"):
                future.result()
        else:
            assert future.result() == n


def test_large_arrays_are_sent_once(remote):
    x = np.random.default_rng(1).random(1 << 17)
    server = farcall.connect(remote.address)
    with farcall.Executor(server) as executor:
        assert executor.submit(np.sum, x).result() == pytest.approx(x.sum())
        before = len(server.handles())
        sums = [executor.submit(lambda a, n: float(a[n]), x, n) for n in range(30)]
        assert [future.result() for future in sums] == list(x[:30])
        assert executor.submit(lambda a: a.flags.writeable, x).result() is False
        assert len(server.handles()) == before
        x[0] = 5
        assert executor.submit(lambda a: float(a[0]), x).result() == 5
        many = [np.full(1 << 14, float(n)) for n in range(20)]
        total = executor.submit(lambda arrays: sum(float(a[3]) for a in arrays), many)
        assert total.result() == sum(range(20))


def test_tasks_that_wait_share_the_copy_of_an_array(executor):
    x = np.ones(1 << 16)
    one, other = (executor._work(len, (x,), {}) for _ in range(2))
    assert one.blocks[0] is other.blocks[0]
    x[0] = 2
    changed = executor._work(len, (x,), {})
    assert changed.blocks[0] is not one.blocks[0]
    assert (one.blocks[0].data.view(float) == 1).all()
    del one, other, changed
    assert not executor._blocks


def test_a_task_has_more_in_arrays_than_a_worker_keeps(executor):
    def shrink():
        sys._getframe(1).f_globals["_KEPT_BYTES"] = 1 << 20

    arrays = [np.full(1 << 17, float(n)) for n in range(8)]
    for _ in range(4):
        executor.submit(shrink).result()
        firsts = executor.submit(lambda them: [float(one[0]) for one in them], arrays).result()
        assert firsts == list(range(8))


def test_large_arrays_need_no_more_room_than_a_user_has(start, tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text("[data]\nper_user = 30\n")
    server = start(options=["--pickled", "--pes", "1", "--config", str(config)])
    with farcall.Executor(server.address) as executor:
        arrays = [np.full(1 << 14, float(n)) for n in range(100)]
        for _ in range(2):
            assert list(executor.map(lambda a: float(a[3]), arrays)) == list(range(100))


def test_large_arrays_that_the_server_has_dropped_are_sent_again(start, tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text("[data]\nkeep_h = 0.0001\n")
    server = start(options=["--pickled", "--pes", "1", "--config", str(config)])
    with farcall.Executor(server.address) as executor:
        x = np.ones(1 << 14)
        assert executor.submit(np.sum, x).result() == x.size
        time.sleep(1)  # more than the retention
        assert executor.submit(np.sum, x).result() == x.size


def test_objects_among_the_modules_that_are_none_do_no_harm(executor, monkeypatch):
    class Lazy:
        __file__ = "/program/lazy.py"

    stray = types.ModuleType("nobody_has_this_name")
    stray.__file__ = "/program/stray.py"
    monkeypatch.setitem(sys.modules, "lazy", Lazy())
    monkeypatch.setitem(sys.modules, "stray", stray)
    assert executor.submit(lambda: 3).result() == 3


def test_a_forked_child_cannot_use_the_executor_of_its_parent(executor):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            executor.submit(int)
        except RuntimeError as error:
            status = 0 if "after a fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert executor.submit(int).result() == 0


def test_an_executor_that_nobody_holds_ends_after_its_tasks(remote):
    executor = farcall.Executor(remote.address)
    thread, known = executor._thread, weakref.ref(executor)
    futures = [executor.submit(abs_after, 0.05, -k) for k in range(6)]
    del executor
    assert [future.result(timeout=30) for future in futures] == list(range(6))
    wait_until(lambda: known() is None, what="the end of the executor")
    thread.join(30)
    assert not thread.is_alive()


def abs_after(seconds, number):
    time.sleep(seconds)
    return abs(number)


def test_large_results_come_back(executor):
    result = executor.submit(np.arange, 700_000.0).result()
    assert (result == np.arange(700_000.0)).all() and result.flags.writeable


def test_tasks_are_cancelled_before_they_begin(remote):
    executor = farcall.Executor(remote.address)
    futures = [executor.submit(time.sleep, 0.5) for _ in range(20)]
    assert futures[-1].cancel()
    wait_until(futures[0].running, what="the first task")
    executor.shutdown(cancel_futures=True)
    assert all(future.done() for future in futures) and not futures[0].cancelled()
    assert sum(future.cancelled() for future in futures) > 5
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(abs, 1)


def test_tasks_that_run_again_have_begun(remote, monkeypatch):
    executor = farcall.Executor(remote.address)
    executor.submit(abs, -1).result()
    # All tasks are in the call that crashes.
    monkeypatch.setattr(executor, "_size", lambda _: len(executor._waiting))
    with executor._changed:
        futures = [
            executor.submit(os.abort) if n == 4 else executor.submit(time.sleep, 0.2)
            for n in range(8)
        ]
    wait_until(
        lambda: any(work.is_alone for work in list(executor._waiting)), what="a call that crashes"
    )
    executor.shutdown(cancel_futures=True)
    assert all(future.done() for future in futures)


def test_tasks_of_a_lost_server_run_at_another(start):
    servers = [start(options=["--pickled", "--pes", "1"]) for _ in range(2)]
    with farcall.Executor([server.address for server in servers]) as executor:
        assert executor._max_workers == 2
        futures = [executor.submit(lambda n: (time.sleep(0.05), n)[1], n) for n in range(40)]
        futures[1].result()
        servers[0].process.kill()
        assert [future.result() for future in futures] == list(range(40))
        servers[1].process.kill()
        with pytest.raises((farcall.ConnectionError, concurrent.futures.BrokenExecutor)):
            executor.submit(abs, -1).result()
        with pytest.raises(concurrent.futures.BrokenExecutor, match="lost all"):
            wait_until(lambda: executor.submit(abs, -1).result() and None)


def test_tasks_of_a_server_that_ends_run_at_another(executor):
    error = farcall.ServerError("the server is stopping")
    error._begun = True
    (site,) = executor._sites
    executor._sites.append(_executor._Site(site.server, site.function))

    def failed():
        with executor._lock:
            future = executor.submit(abs, -1)
            executor._failed(executor._next(), error)
        return future

    assert failed().result() == 1
    # There is no other server now.
    assert len(executor._sites) == 1
    with pytest.raises(farcall.ServerError, match="is stopping"):
        failed().result()
    assert executor.submit(abs, -2).result() == 2


def test_a_block_may_be_forgotten_while_it_is_kept():
    class Forgetful(collections.OrderedDict):
        """Blocks that another thread forgets at once."""

        def __setitem__(self, digest, handle):
            super().__setitem__(digest, handle)
            del self[digest]

    site = _executor._Site.__new__(_executor._Site)
    site._kept, site.server = Forgetful(), types.SimpleNamespace(put=len)
    assert site.keep(_executor._Block(memoryview(b"abc"))) == 3


def test_blocks_may_be_forgotten_while_others_make_room():
    class Forgetful(collections.OrderedDict):
        """Blocks that another thread forgets just before they make room."""

        def popitem(self, last=True):
            self.clear()
            return super().popitem(last)

    answers = [4, farcall.ServerError("no room")]

    def put(_data):
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    site = _executor._Site.__new__(_executor._Site)
    site._kept, site.server = Forgetful({b"old": 3}), types.SimpleNamespace(put=put)
    assert site.keep(_executor._Block(memoryview(b"abc"))) == 4


def test_many_waiting_tasks_end_soon_when_the_last_server_is_lost(start):
    server = start(options=["--pickled", "--pes", "1"])
    with farcall.Executor(server.address) as executor:
        executor.submit(abs, -1).result()
        futures = [executor.submit(time.sleep, 0.01) for _ in range(40_000)]
        server.process.kill()
        before = time.process_time()
        assert not concurrent.futures.wait(futures, timeout=120).not_done
        assert time.process_time() - before < 4
    with pytest.raises(farcall.ConnectionError):
        futures[-1].result()


def test_servers_that_join_later_get_tasks(start):
    with metaserver() as address:
        options = ["--pickled", "--pes", "1", "--metaserver", address]
        start(options=options)
        there = wait_until(
            lambda: known(farcall.connect(address), "python/run"), what="the first server"
        )
        with farcall.Executor(address) as executor:
            assert executor._max_workers == len(there._everywhere()) == 1
            start(options=options)
            wait_until(lambda: executor._max_workers == 2, what="the second server")
            homes = executor.map(lambda _: (time.sleep(0.05), os.environ["HOME"])[1], range(20))
            assert len(set(homes)) == 2


def test_a_metaserver_tells_all_its_servers(start):
    with metaserver() as address:
        for _ in range(2):
            start(options=["--pickled", "--pes", "1", "--metaserver", address])

        def both():
            try:
                return len(farcall.connect(address).function("python/run")._everywhere()) == 2
            except farcall.Error:
                return False

        wait_until(both, what="both servers at the metaserver")
        with farcall.Executor(address) as executor:
            assert executor._max_workers == 2
            folders = executor.map(lambda _: (time.sleep(0.05), os.environ["HOME"])[1], range(20))
            assert len(set(folders)) == 2


INTERRUPTED = """
import signal, sys
import farcall

def interrupt(_signal, frame):
    if frame.f_code.co_name in ("__enter__", "__exit__"):
        raise KeyboardInterrupt

executor = farcall.Executor(sys.argv[1])
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
for _ in range(20_000):
    try:
        executor.submit(abs, -1)
    except KeyboardInterrupt:
        pass
signal.setitimer(signal.ITIMER_REAL, 0)
print(executor.submit(abs, -2).result(timeout=30))
"""


def test_ctrl_c_in_submit_leaves_no_lock_behind(remote):
    words = [sys.executable, "-c", INTERRUPTED, remote.address]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "2\n", ran.stderr


def test_a_server_that_does_not_allow_it_says_how(start, nap_idl):
    with pytest.raises(farcall.Error, match="farcall serve --pickled"):
        farcall.Executor(start(nap_idl).address)


def test_nothing_to_serve_is_an_error(tmp_path):
    (tmp_path / "farcall.toml").write_text("allow_code = false\n")
    words = [FARCALL, "serve", "--config", tmp_path / "farcall.toml", "--listen", "127.0.0.1:0"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2 and "nothing to serve" in ended.stderr


def test_other_versions_are_told(remote, monkeypatch):
    real = _executor.versions

    def older(packages):
        return real(packages) | {"numpy": "1.26.0"}

    monkeypatch.setattr(_executor, "versions", older)
    with pytest.warns(UserWarning, match=r"numpy .* instead of 1\.26\.0"):
        farcall.Executor(remote.address).shutdown()
    monkeypatch.setattr(_executor, "versions", lambda _: {"Python": "3.1.0"})
    with pytest.raises(farcall.Error, match=r"this program has 3\.1\.0"):
        farcall.Executor(remote.address)


def test_scikit_learn_runs_on_servers(remote):
    from sklearn.linear_model import Ridge  # noqa: PLC0415
    from sklearn.model_selection import GridSearchCV  # noqa: PLC0415

    rng = np.random.default_rng(2)
    x, y = rng.random((200, 5)), rng.random(200)
    search = {"alpha": [0.1, 1.0, 10.0]}
    local = GridSearchCV(Ridge(), search, cv=3).fit(x, y)
    with joblib.parallel_config(backend="farcall", servers=remote.address):
        remote_search = GridSearchCV(Ridge(), search, cv=3, n_jobs=-1).fit(x, y)
        pids = joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(4))
    assert os.getpid() not in pids
    assert remote_search.best_params_ == local.best_params_
    scores = "mean_test_score"
    assert np.allclose(remote_search.cv_results_[scores], local.cv_results_[scores])


def test_joblib_raises_the_error_of_a_task(remote):
    config = joblib.parallel_config(backend="farcall", servers=remote.address)
    with config, pytest.raises(RefusedError):
        joblib.Parallel(n_jobs=2)(joblib.delayed(fail)(n) for n in range(4))


def test_joblib_takes_the_servers_of_a_parallel(remote, monkeypatch):
    monkeypatch.setenv("FARCALL_SERVER", "farcall://127.0.0.1:1")
    tasks = [joblib.delayed(os.getpid)() for _ in range(4)]
    pids = joblib.Parallel(n_jobs=2, backend="farcall", servers=remote.address)(tasks)
    assert os.getpid() not in pids
    with joblib.parallel_config(backend="farcall", servers=remote.address):
        with pytest.raises(farcall.ConnectionError, match=r"127\.0\.0\.1:2"):
            joblib.Parallel(n_jobs=2, servers="farcall://127.0.0.1:2")(tasks)
        assert os.getpid() not in joblib.Parallel(n_jobs=2)(tasks)


def test_joblib_refuses_an_option_with_another_name(remote):
    with pytest.raises(TypeError, match="'server'"):
        joblib.parallel_config(backend="farcall", server=remote.address)
    tasks = [joblib.delayed(abs)(-1)]
    with pytest.raises(TypeError, match="'server'"):
        joblib.Parallel(n_jobs=2, backend="farcall", server=remote.address)(tasks)


def test_dask_computes_on_servers(executor):
    dask = pytest.importorskip("dask")
    total = dask.delayed(sum)([dask.delayed(pow)(n, 2) for n in range(10)])
    assert dask.compute(total, scheduler=executor) == (285,)
