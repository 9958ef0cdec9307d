"""Functions of Python modules, served."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import farcall
import numpy as np
import pytest
from servers import FARCALL, ROOT, free_addresses, stop, wait_until

MODULE = '''
import os, signal, sys
import numpy as np
import farcall

kept = []

@farcall.library(
    "add(IN int n, IN double x[n], INOUT double y[n])", calc_order="n", repeatable=True
)
def add(n, x, y):
    """Adds "x" to y."""
    assert not x.flags.writeable and y.shape == (n,)
    y += x

@farcall.library("column(IN int n, IN double a[n][4:1,3], OUT double c[n], OUT int *rows)")
def column(a):
    return a[:, 1:3].sum(axis=1), len(a)

@farcall.library("kinds(IN int i, IN double d, IN dcomplex z, IN string s, IN char c[3],"
               " OUT dcomplex *sum, OUT int length[2])")
def kinds(i, d, z, s, c, length):
    length[:] = len(s), len(c.tobytes())
    return i + d + z

@farcall.library("process(IN int n, OUT long *pid)")
def process():
    return os.getpid()

@farcall.library("raises(IN int n, INOUT double x[n])")
def raises(x):
    local = x[1:]
    raise ArithmeticError("no such root")

@farcall.library("keeps(IN int n, IN double x[n])")
def keeps(x):
    kept.append(x[1:])

@farcall.library("wrong(IN int n, OUT double y[n])")
def wrong():
    return np.zeros(3)

@farcall.library("exits(IN int n)")
def exits(n):
    sys.exit(n)

@farcall.library("dies(IN int n)")
def dies(n):
    os.kill(os.getpid(), signal.SIGKILL)

@farcall.library
def smooth(
    n: farcall.In[int], x: farcall.InOut["float64[max(n, 1)]"], least: farcall.Out["float64[1]"]
):
    x *= 2
    least[0] = x.min()

@farcall.library("gives(IN int how, OUT int *whole)")
def gives(how):
    masked = np.ma.masked_array([1], [True])
    return [7, None, 1.7, 1 + 2j, 2**40, masked, (1, 2), "7"][how]

@farcall.library("letter(IN double x, OUT char c[1], OUT double *y)")
def letter(x):
    return (x > 0, x) if x else (b"z", 2**60 + 1)

@farcall.library("says(IN int how, OUT string[9] *text)")
def says(how):
    return ["so", 5, b"so"][how]
'''


@pytest.fixture
def server(start, tmp_path):
    path = tmp_path / "served.py"
    path.write_text(MODULE)
    return start(path, options=["--workers", "1"])


def test_arguments_are_what_the_interface_says(server):
    connection = server.connect()
    y = np.arange(5.0)
    assert connection.call("add", 5, np.ones(5), y).y is y
    np.testing.assert_array_equal(y, np.arange(5.0) + 1)
    assert connection.call("add", 0, [], np.empty(0)).y.shape == (0,)
    result = connection.call("column", 3, np.arange(12.0).reshape(3, 4))
    np.testing.assert_array_equal(result.c, [3, 11, 19])
    assert result.rows == 3
    result = connection.call("kinds", 1, 0.5, 2j, "μ and more", "abc")
    assert result.sum == 1.5 + 2j
    np.testing.assert_array_equal(result.length, [10, 3])


def test_the_interface_tells_the_docstring_and_the_cost(server):
    function = server.connect().function("served/add")
    assert function.interface.description == "Adds 'x' to y"
    assert "CalcOrder n" in function.interface.text
    assert 'Repeatable "yes"' in function.interface.text


def test_large_arrays_over_the_network_and_in_shared_memory(server):
    n = 1 << 20
    for same_host in (False, True):
        connection = server.connect(same_host=same_host)
        y = connection.empty(n)
        y[:] = 1
        connection.call("add", n, np.arange(float(n)), y)
        np.testing.assert_array_equal(y, np.arange(float(n)) + 1)


def test_annotations_state_an_interface(server):
    smooth = server.connect().function("served/smooth")
    modes = [(each.name, each.mode, each.type) for each in smooth.interface.parameters]
    assert modes == [("n", "IN", "long"), ("x", "INOUT", "double"), ("least", "OUT", "double")]
    x = np.array([3.0, 4.0])
    assert smooth(n=2, x=x).least == 6
    assert x.tolist() == [6, 8]


def test_an_exception_is_a_failed_call_and_the_worker_goes_on(server):
    connection = server.connect()
    before = connection.call("process", 1).pid
    with pytest.raises(farcall.LibraryError) as raised:
        connection.call("raises", 4, np.zeros(4))
    text = r"served/raises raised ArithmeticError: no such root (served.py, line 33, in raises)"
    assert str(raised.value) == text
    assert raised.value.fault == "library"
    assert connection.call("process", 1).pid == before
    assert "Traceback" not in str(raised.value)


def test_wrong_functions_are_told(server):
    connection = server.connect()
    with pytest.raises(farcall.LibraryError, match=r"keeps its argument `x` .*x\.copy\(\)"):
        connection.call("keeps", 4, np.zeros(4))
    with pytest.raises(farcall.LibraryError, match=r"shape \(3,\) for .* shape \(4,\)"):
        connection.call("wrong", 4)
    assert connection.function("gives")(0).whole == 7
    given = ["None", "float 1.7", r"\(1\+2j\)", str(2**40), "masked", r"\(1, 2\)", "str '7'"]
    for how, text in enumerate(given, start=1):
        with pytest.raises(farcall.LibraryError, match=rf"{text}.* `whole`"):
            connection.call("gives", how)
    assert connection.call("says", 0).text == "so"
    with pytest.raises(farcall.LibraryError, match="returned int 5 for `text`, which is text"):
        connection.call("says", 1)
    with pytest.raises(farcall.LibraryError, match="not a str into `text`"):
        connection.call("says", 2)
    with pytest.raises(farcall.LibraryError, match="True for `c`, which is S1"):
        connection.call("letter", 1.0)
    with pytest.raises(farcall.LibraryError, match=rf"{2**60 + 1} for `y`, which is float64"):
        connection.call("letter", 0.0)
    with pytest.raises(farcall.LibraryError, match="raised SystemExit: 3"):
        connection.call("exits", 3)
    with pytest.raises(farcall.LibraryError, match="was killed, by another process"):
        connection.call("dies", 3)
    assert connection.call("process", 1).pid != os.getpid()


def test_a_time_limit_ends_an_endless_function(start, tmp_path):
    path = tmp_path / "endless.py"
    path.write_text(
        "import farcall\n@farcall.library('endless(IN int n)')\ndef endless(n):\n"
        "    while True:\n        pass\n"
    )
    server = start(path, options=["--time-limit", "0.3"])
    with pytest.raises(farcall.LibraryError, match="time limit"):
        server.connect().call("endless", 1)


def serve_fails(path, **environment):
    ran = subprocess.run(
        [FARCALL, "serve", path, "--listen", "127.0.0.1:0"],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env={"FARCALL_PYTHON": sys.executable} | os.environ | environment,
    )
    assert ran.returncode != 0
    return ran.stderr


def test_modules_that_cannot_be_served_say_why(tmp_path):
    path = tmp_path / "module.py"
    for text, told in [
        ("import nowhere", "raised ModuleNotFoundError: No module named 'nowhere' (module.py, l"),
        # Of another length, else Python takes what it has compiled in the same second.
        ("def f(:\n    pass", "raised SyntaxError"),
        ("x = 1", "no function has the decorator @farcall.library"),
        ("import farcall\n@farcall.library('f(IN int n')\ndef f(n): pass", "module.py"),
        ("import farcall\n@farcall.library('f(IN int n)')\ndef f(m): pass", "`m`"),
        # The line is that of the file.
        (
            "import farcall\n\n\n@farcall.library('f(IN int n, IN double x[m])')\ndef f(x): pass",
            f"--> {path}:4:32",
        ),
        (
            "import farcall\n@farcall.library('f(IN int n)')\nasync def f(n): pass",
            "`f` is `async`, and calls do not wait for a coroutine",
        ),
        (
            "import farcall\n@farcall.library('f(X, y)')\ndef f(X, y): pass",
            "`X` of `f(X, y)` has no type; write its mode, type and sizes",
        ),
        (
            "import farcall\n@farcall.library('f(IN int n, g(OUT v[n]))')\ndef f(n, g): pass",
            "`v` of `f(IN int n, g(OUT v[n]))` has no type",
        ),
        (
            "import farcall\n@farcall.library('f(IN filepointer x)')\ndef f(x): pass",
            "`f` has a parameter of type filepointer",
        ),
        ("import sys\nsys.exit('not as a module')", "raised SystemExit: not as a module (module.p"),
    ]:
        path.write_text(text)
        assert told in serve_fails(path), text
    assert "there is no such file" in serve_fails(tmp_path / "missing.py")
    assert "FARCALL_PYTHON" in serve_fails(path, FARCALL_PYTHON=str(tmp_path / "none"))


LOUD = """
import io, os, sys, threading, time
import farcall

print("a word")
os.write(1, b"and another one\\n")
sys.stdout = io.StringIO()
threading.Thread(target=time.sleep, args=(3600,)).start()

@farcall.library("twice(IN int n, OUT int *m)")
def twice(n):
    return 2 * n
"""


def test_a_module_may_use_its_output_and_threads_while_it_is_imported(start, tmp_path):
    path = tmp_path / "loud.py"
    path.write_text(LOUD)
    assert start(path).connect().function("loud/twice")(3).m == 6


def test_without_the_package_the_remedy_is_told(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("x = 1")
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    other.chmod(0o755)
    assert "pip install farcall" in serve_fails(path, FARCALL_PYTHON=str(other))


def test_a_c_library_beside_a_module(start):
    server = start(ROOT / "examples" / "served" / "heat.py", ROOT / "libraries" / "blas.idl")
    connection = server.connect()
    plate = np.zeros((64, 64))
    plate[0] = 100
    result = connection.call("heat", n=64, steps=500, alpha=0.2, u=plate)
    assert result.u is plate and plate[1:-1, 1:-1].min() > 0
    assert connection.call("heat/moments", 4, [1, 2, 3, 4]).mean == 2.5
    assert connection.call("ddot", 2, [1, 2], 1, [3, 4], 1).r == 11


def test_its_worker_ends_with_the_server(server):
    pid = server.connect().call("process", 1).pid
    server.process.send_signal(signal.SIGKILL)
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), what="the end of the worker")


CALLING = """
import threading
import farcall

kept = []

@farcall.library(
    "bisect(IN double a, IN double b, OUT double *root, f(IN double x, OUT double *y))"
)
def bisect(a, b, f):
    below = f(a) < 0
    while abs(b - a) > 1e-9:
        middle = (a + b) / 2
        a, b = (middle, b) if (f(x=middle) < 0) == below else (a, middle)
    return a

@farcall.library("every(IN int n, IN double x[n], OUT double total[n],"
               " g(IN int n, IN double x[n], INOUT double y[n], OUT int *k, OUT double z[n]))")
def every(n, x, total, g):
    y = x * 2
    k, z = g(n, x, y)
    assert type(k) is int and z.shape == (n,)
    total[:] = y + z + k
    into = z * 0
    assert g(n, x, y, k=(one := __import__("numpy").zeros(1, "int32")), z=into) is None
    assert one[0] == k and (into == z).all()

@farcall.library("wrong(IN int how, f(IN int n, IN double x[n]))")
def wrong(how, f):
    match how:
        case 0: f(2)
        case 1: f(2, [1, 2, 3])
        case 2: f("two", [1, 2])
        case 3: f(200_000, [0.0] * 200_000)

@farcall.library("keep(IN int n, f(IN int n))")
def keep(f):
    kept.append(f)

@farcall.library("late(IN int n)")
def late():
    kept[0](1)

@farcall.library("threads(IN int n, f(IN int k))")
def threads(n, f):
    all = [threading.Thread(target=f, args=(k,)) for k in range(n)]
    for each in all: each.start()
    for each in all: each.join()
"""


@pytest.fixture
def calling(start, tmp_path):
    path = tmp_path / "calling.py"
    path.write_text(CALLING)
    return start(path, options=["--workers", "1"]).connect(timeout=30)


def test_they_call_functions_of_their_caller(calling):
    def square(x, y):
        y[0] = x * x - 2

    root = calling.function("bisect")(a=0, b=2, f=square).root
    assert abs(root - 2**0.5) < 1e-8

    def g(n, x, y, k, z):
        y += x
        k[0] = n
        z[:] = 100

    x = np.arange(3.0)
    total = calling.function("every")(n=3, x=x, g=g).total
    np.testing.assert_array_equal(total, 3 * x + 103)


def test_wrong_callbacks_are_exceptions_of_the_function(calling):
    wrong = calling.function("wrong")
    for how, text in enumerate(
        ["`x`: expected an argument", "`x`", "`n`: expected an integer", "1600000 bytes, more than"]
    ):
        with pytest.raises(farcall.LibraryError, match=text):
            wrong(how, print)


def test_a_callback_that_is_kept_is_over_with_its_call(calling):
    calling.call("keep", 1, print)
    with pytest.raises(farcall.LibraryError, match="the call of callback `f` has ended"):
        calling.call("late", 1)


def test_threads_of_a_function_take_turns_to_call_back(calling):
    seen = []
    calling.call("threads", 5, seen.append)
    assert sorted(seen) == [0, 1, 2, 3, 4]


def test_an_exception_of_the_caller_ends_the_call(calling):
    with pytest.raises(farcall.CallbackError) as error:
        calling.function("bisect")(a=0, b=1, f=fails)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert abs(calling.function("bisect")(a=0, b=1, f=half).root - 0.5) < 1e-8


def fails(x, y):
    y[0] = x / 0


def half(x, y):
    y[0] = x - 0.5


SLOW = """
import pathlib, time
import farcall

here = pathlib.Path(__file__).parent
stage = 2 if (here / "go1").exists() else 1
(here / f"at{stage}").touch()
end = time.monotonic() + 60
while not (here / f"go{stage}").exists() and time.monotonic() < end:
    time.sleep(0.01)

@farcall.library("one(OUT int *n)")
def one():
    return 1
"""


def test_a_slow_module_is_announced_and_the_port_opens_when_it_can_answer(tmp_path):
    module = tmp_path / "slow.py"
    module.write_text(SLOW)
    [address] = free_addresses(1)
    host, port = address.split(":")

    def is_open():
        with socket.socket() as client:
            return client.connect_ex((host, int(port))) == 0

    words = [FARCALL, "serve", module, "--listen", address, "--workers", "1"]
    process = subprocess.Popen(
        [*words, "--no-sandbox"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"FARCALL_PYTHON": sys.executable} | os.environ,
    )
    try:
        for stage in (1, 2):
            wait_until((tmp_path / f"at{stage}").exists, what=f"import {stage}")
            if stage == 1:
                assert process.stderr.readline() == f"loading {module} ...\n"
            assert not is_open()
            (tmp_path / f"go{stage}").touch()
        assert process.stdout.readline() == f"listening on farcall://{address}\n"
        assert farcall.connect(f"farcall://{address}").call("one").n == 1
    finally:
        stop(process)


TELLS = """
import farcall

class Mute(Exception):
    def __str__(self):
        raise ValueError

@farcall.library("mute(OUT int *n)")
def mute():
    raise Mute

@farcall.library("tells(IN long n, OUT int *m)")
def tells(n):
    if n:
        raise ValueError("x" * n)
    return 1
"""


def test_an_exception_of_any_length_is_one_failed_call(start, tmp_path):
    module = tmp_path / "tells.py"
    module.write_text(TELLS)
    connection = start(module, options=["--workers", "1"]).connect()
    tells = connection.function("tells")
    others = [tells.call_async(0) for _ in range(3)]
    long = tells.call_async(10_000_000)
    others += [tells.call_async(0) for _ in range(3)]
    with pytest.raises(farcall.LibraryError, match="raised ValueError: xxx") as raised:
        long.result()
    assert len(str(raised.value)) < 100_000
    assert [other.result().m for other in others] == [1] * 6
    with pytest.raises(farcall.LibraryError, match=r"raised Mute \(tells.py, line 10, in mute\)"):
        connection.call("mute")
