"""Remote objects: state that lives on the server between calls."""

import gc
import json
import os
import pathlib
import pickle
import signal
import subprocess

import farcall
import numpy as np
import pytest
from servers import FARCALL, ServerProcess, add_tokens, wait_until, worker_in

IDL = """\
Module counters;
Globals {
    #include <stdlib.h>
    #include <unistd.h>
}
DefClass Counter "Counts"
{
    DefState {
        static int count;
        static double history[100];
        static int length;
    }
    DefMethod add(IN int n, IN double x[n])
        "Add to the history"
    {
        for (int i = 0; i < n && length < 100; i++)
            history[length++] = x[i];
        count++;
    }
    DefMethod read(IN int most, OUT double values[most], OUT int *calls)
    {
        for (int i = 0; i < most; i++)
            values[i] = i < length ? history[i] : -1;
        *calls = count;
    }
    DefMethod nap(IN int ms, OUT int *calls) { usleep(ms * 1000); *calls = ++count; }
    DefMethod crash(IN int n) { (void)n; abort(); }
    DefMethod pid(OUT long *pid) { *pid = getpid(); }
    DefMethod tell(IN int n, report(IN int k))
    {
        for (int k = 0; k < n; k++)
            report(k + count);
        count += n;
    }
}
DefClass Other
{
    DefState { int count = 40; }
    DefMethod add(IN int n, OUT int *value) { *value = count += n; }
}
Define pid(OUT long *pid) { *pid = getpid(); }
Define nap(IN int ms, OUT int *slept) { usleep(ms * 1000); *slept = ms; }
Define fill(INOUT double x[n], IN int n, IN int ms) { usleep(ms * 1000); x[0] = n; }
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    here = tmp_path_factory.mktemp("objects")
    (here / "counters.idl").write_text(IDL)
    config = here / "farcall.toml"
    config.write_text("[limits]\nobjects_per_connection = 3\nobjects = 5\n")
    options = ["--allow-code", "--workers", "2", "--config", config]
    process = ServerProcess(here / "counters.idl", options=options)
    yield process
    process.stop()


@pytest.fixture(params=["tcp", "same host"])
def server(process, request):
    """A connection. Objects of a test are gone when the next test begins."""
    before = len(process.workers())
    yield process.connect(timeout=30, same_host=request.param != "tcp")
    gc.collect()
    wait_until(lambda: len(process.workers()) <= max(before, 3), what="the end of all objects")


def test_state_stays_between_calls(server):
    counter, other = server.new("counters/Counter"), server.new("Counter")
    counter.add(2, np.array([1.0, 2.0]))
    counter.add(n=1, x=np.array([3.0]))
    other.add(1, np.array([9.0]))
    values, calls = counter.read(most=4)
    assert list(values) == [1, 2, 3, -1]
    assert calls == 2
    assert list(other.read(most=2).values) == [9, -1]
    assert counter.pid().pid != other.pid().pid
    assert counter.pid().pid == counter.pid().pid


def test_classes_keep_their_names_to_themselves(server):
    with server.new("Other") as other, server.new("Counter") as counter:
        assert other.add(2).value == 42
        assert counter.nap(0).calls == 1


@pytest.mark.parametrize("name", ["Counter", "counters/Counter"])
def test_a_class_is_described(process, server, name):
    for text in (farcall_output("describe", name, process.address), server.describe(name)):
        assert "Add to the history" in text
        assert "DefMethod read(" in text
        assert "slept" not in text
    described = json.loads(farcall_output("describe", "--json", name, process.address))
    assert described["class"] == name
    assert len(described["methods"]) == 6
    with pytest.raises(farcall.UnknownFunction, match="Nothing"):
        server.describe("Nothing")


def farcall_output(*words):
    command = [FARCALL, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def test_what_python_shows(server):
    counter = server.new("Counter")
    assert repr(counter) == f"<object of Counter at {server.address}>"
    assert {"add", "read", "close"} <= set(dir(counter))
    assert "Add to the history" in counter.add.__doc__
    assert counter.add is counter.add
    assert not hasattr(counter, "nothing")
    with pytest.raises(AttributeError, match=r"Counter\.nothing"):
        counter.nothing(1)
    assert not hasattr(counter, "_repr_html_")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(counter)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(counter.add)
    assert "counters/Counter.add" in [each.name for each in server.ls()]
    assert "DefClass Counter" in str(counter.add.interface)


def test_methods_run_one_after_the_other(server):
    counter = server.new("Counter")
    futures = [counter.nap.call_async(20) for _ in range(5)]
    assert [future.result(timeout=20).calls for future in futures] == [1, 2, 3, 4, 5]
    # Other calls do not wait behind one that waits for its object.
    naps = [counter.nap.call_async(700) for _ in range(3)]
    assert server.function("nap")(1).slept == 1
    assert not naps[-1].done()
    assert naps[-1].result(timeout=20).calls == 8


def test_objects_call_back(server):
    counter, seen = server.new("Counter"), []
    counter.tell(2, seen.append)
    counter.tell(2, seen.append)
    assert seen == [0, 1, 2, 3]


def test_they_end_with_what_refers_to_them(server):
    for end in ("close", "with", "del"):
        counter = server.new("Counter")
        pid = int(counter.pid().pid)
        if end == "close":
            counter.close()
            counter.close()
            with pytest.raises(farcall.ArgumentError, match="was released"):
                counter.pid()
        elif end == "with":
            with counter:
                pass
        else:
            del counter
        wait_until(lambda pid=pid: not running(pid), what=f"the end by {end}")
    counter = server.new("Counter")
    pid, method = int(counter.pid().pid), counter.pid
    del counter
    assert method().pid == pid, "a method keeps its object"


def running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_they_end_with_the_connection(process):
    server = process.connect(timeout=30)
    counter = server.new("Counter")
    pid = int(counter.pid().pid)
    program = (
        "import farcall, os, sys\n"
        "counter = farcall.connect(sys.argv[1]).new('Counter')\n"
        "print(int(counter.pid().pid), flush=True)\n"
        "os._exit(0)\n"
    )
    ran = subprocess.run(
        [os.sys.executable, "-c", program, process.address],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    wait_until(lambda: not running(int(ran.stdout)), what="the end of the object")
    assert counter.pid().pid == pid, "that of another connection goes on"
    counter.close()


@pytest.mark.parametrize("ends", ["process", "object"])
def test_an_object_ends_while_the_arguments_of_a_call_come(server, ends):
    counter = server.new("Counter")
    pid = worker_in(counter.pid().pid)
    x = server.put(np.ones(5))
    fill = server.function("fill").call_async(x, 5, 4000)
    waiting = counter.add.call_async(5, x)
    if ends == "process":
        os.kill(pid, signal.SIGKILL)
    else:
        counter.close()
    with pytest.raises(farcall.LibraryError, match="before the call could start"):
        waiting.result(timeout=30)
    fill.result(timeout=30)
    assert server.call("pid").pid > 0


def test_a_lost_object_says_so(server):
    counter = server.new("Counter")
    waiting = counter.nap.call_async(200)
    crash = counter.crash.call_async(1)
    behind = counter.nap.call_async(1)
    assert waiting.result(timeout=20).calls == 1
    with pytest.raises(farcall.LibraryError, match=r"Counter\.crash called abort"):
        crash.result(timeout=20)
    for call in (lambda: behind.result(timeout=20), lambda: counter.nap(1)):
        text = r"Counter\.nap was called on an object that is lost because its process .* abort\(\)"
        with pytest.raises(farcall.LibraryError, match=text):
            call()
    killed = server.new("Counter")
    pid = int(killed.pid().pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not running(pid), what="the end of the process")
    with pytest.raises(farcall.LibraryError, match="lost"):
        wait_until(lambda: killed.pid() is None, what="the news")
    assert server.new("Counter").nap(0).calls == 1


def test_a_cancelled_method_takes_its_object_along(server):
    counter = server.new("Counter")
    assert counter.nap(0).calls == 1, "its process is there"
    pid = int(counter.pid().pid)
    idle = wait_until(lambda: sleeps_in(pid), what="that the process sleeps")
    nap = counter.nap.call_async(60_000)
    assert not nap.done()
    # A call that has not started is taken back, and the object remains.
    wait_until(lambda: sleeps_in(pid) not in (None, idle), what="the nap")
    nap.cancel()
    with pytest.raises(farcall.LibraryError, match=r"lost.*cancelled the call"):
        counter.nap(1)


def sleeps_in(pid):
    """The number of the system call in which a process sleeps; none while it runs."""
    number = pathlib.Path(f"/proc/{worker_in(pid)}/syscall").read_text().split()[0]
    return None if number == "running" else number


def test_there_are_so_many(process, server):
    objects = [server.new("Counter") for _ in range(3)]
    with pytest.raises(farcall.ServerError, match=r"limits\.objects_per_connection"):
        server.new("Counter")
    objects[0].close()
    objects[0] = server.new("Counter")
    another = process.connect(timeout=30)
    more = [another.new("Counter")]
    with pytest.raises(farcall.ServerError, match=r"limits\.objects "):
        for _ in range(2):
            more.append(another.new("Counter"))
    for each in (*objects, *more):
        each.close()


def test_wrong_uses_are_told(process, server):
    with pytest.raises(farcall.UnknownFunction, match="did you mean `Counter`"):
        server.new("Countr")
    with pytest.raises(farcall.UnknownFunction, match=r"did you mean `Counter\.add`"):
        server.function("counters/Counter.ad")
    with pytest.raises(farcall.UnknownFunction, match="no class `Nothing`"):
        server.new("Nothing")
    with pytest.raises(farcall.ArgumentError, match="is a method: make an object of `Counter`"):
        server.call("Counter.pid", np.empty(1, np.int64))
    with pytest.raises(farcall.ArgumentError, match="in a loop instead of `map`"):
        server.new("Counter").pid.map([()])
    assert server.call("pid", np.empty(1, np.int64)).pid > 0
    ran = subprocess.run(
        [FARCALL, "call", "--server", process.address, "Counter.pid"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ran.returncode == 1
    assert "is a method" in ran.stderr


def shell(process, *words, status=0, token=""):
    """The output of a command, or its error."""
    command = [FARCALL, *words, "--server", process.address]
    environment = os.environ | ({"FARCALL_TOKEN": token} if token else {})
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, check=False, env=environment
    )
    assert done.returncode == status, done.stderr
    return (done.stderr if status else done.stdout).strip()


def test_the_shell_makes_calls_lists_and_drops(process):
    one, other = shell(process, "new", "Counter"), shell(process, "new", "counters/Other")
    assert len(one) == 32
    assert one != other
    assert shell(process, "call", f"object:{one}.add", "n=2", "x=1,2") == ""
    assert shell(process, "call", f"object:{other}.add", "n=2") == "value [1] = [42]"
    told = shell(process, "call", f"object:{one}.read", "most=2")
    assert told == "values [2] = [1.000000, 2.000000]\ncalls [1] = [1]"
    listed = shell(process, "objects").splitlines()
    assert listed == [f"{one}  counters/Counter", f"{other}  counters/Other"]
    told = shell(process, "call", f"object:{other}.crash", "n=1", status=1)
    assert "no function `counters/Other.crash`" in told
    shell(process, "call", f"object:{one}.crash", "n=1", status=1)
    assert "object that is lost" in shell(process, "call", f"object:{one}.pid", status=1)
    assert f"{one}  counters/Counter  lost: its process " in shell(process, "objects")
    assert shell(process, "drop", f"object:{one}", f"object:{other}") == ""
    assert shell(process, "objects") == ""
    assert f"no object {other}" in shell(process, "call", f"object:{other}.add", "n=2", status=1)
    assert "write object:ID.METHOD" in shell(process, "call", f"object:{other}", status=2)
    assert "farcall object list" in shell(process, "call", "object:nonsense.add", status=2)
    assert "survives a restart" in shell(process, "submit", f"object:{other}.add", status=2)
    assert "farcall object list" in shell(process, "drop", "object:nonsense", status=2)
    assert "Nothing" in shell(process, "new", "Nothing", status=1)


def test_objects_that_stay_outlive_their_connection(process):
    server = process.connect(timeout=30)
    counter = server.new("Counter", stays=True)
    counter.add(1, np.ones(1))
    pid = counter.pid().pid
    handle = counter.id
    counter.close()
    del counter, server
    gc.collect()
    other = process.connect(timeout=30)
    again = other.object(handle)
    assert again.pid().pid == pid
    assert again.read(most=1).calls == 1
    assert (handle, "counters/Counter") in other.objects()
    assert pickle.loads(pickle.dumps(again)).pid().pid == pid
    assert other.new("Counter").id is None
    # Methods over several connections run one after the other.
    third = process.connect(timeout=30).object(handle)
    futures = [each.method("nap").call_async(ms=20) for each in (again, third, again, third)]
    assert sorted(future.result(timeout=30).calls for future in futures) == [2, 3, 4, 5]
    other.drop_object(handle)
    with pytest.raises(farcall.Error, match="dropped or has expired"):
        again.pid()
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="the end of its process")
    with pytest.raises(farcall.Error, match="no object"):
        other.object(handle)
    with pytest.raises(farcall.ArgumentError, match="32 hexadecimal digits"):
        other.object("nonsense")


def test_a_user_has_only_so_many_that_stay(process):
    server = process.connect(timeout=30)
    kept = []
    with pytest.raises(farcall.Error, match="objects_per_connection"):
        for _ in range(4):
            counter = process.connect(timeout=30).new("Counter", stays=True)
            kept.append(counter.id)
    assert len(kept) == 3
    for handle in kept:
        server.drop_object(handle)
    assert server.objects() == []


def test_nobody_reaches_the_objects_of_another(tmp_path):
    (tmp_path / "counters.idl").write_text(IDL)
    tokens = str(tmp_path / "tokens")
    alice, bob = add_tokens(tokens, "alice", "bob")
    options = ["--allow-code", "--tokens", tokens]
    process = ServerProcess(tmp_path / "counters.idl", options=options)
    try:
        mine = shell(process, "new", "Other", token=alice)
        assert shell(process, "objects", token=bob) == ""
        for words in (("call", f"object:{mine}.add", "n=1"), ("drop", f"object:{mine}")):
            assert f"no object {mine}" in shell(process, *words, token=bob, status=1)
        told = shell(process, "call", f"object:{mine}.add", "n=1", token=alice)
        assert told == "value [1] = [41]"
        # A method that its caller cancels destroys the state of the object.
        counter = shell(process, "new", "Counter", token=alice)
        words = ["call", f"object:{counter}.nap", "ms=60000", "--server", process.address]
        given_up = subprocess.Popen([FARCALL, *words], env=os.environ | {"FARCALL_TOKEN": alice})
        assert shell(process, "objects", token=alice).count("lost") == 0
        wait_until(process.napping, what="that the method runs")
        given_up.send_signal(signal.SIGKILL)
        given_up.wait(10)
        wait_until(
            lambda: f"{counter}  counters/Counter  lost" in shell(process, "objects", token=alice),
            what="that the object is lost",
        )
    finally:
        process.stop()
