"""The printed output of libraries, in the server's log and at clients that ask for it."""

import io
import os
import pathlib
import pickle
import subprocess

import farcall
import numpy as np
import pytest
from programs import command, run
from servers import FARCALL, FAULTS, ServerProcess, wait_until

PRINTS = """\
Module prints;
Globals { #include <stdio.h> }
Define lines(IN int n, IN int bytes, OUT int *done, tell(IN int k))
{
    for (int k = 0; k < n; k++) {
        printf("line %d %0*d\\n", k, bytes, 0);
        if (k == 0) tell(k);
    }
    printf("no end");
    *done = n;
}
"""


@pytest.fixture(scope="module")
def process():
    process = ServerProcess(FAULTS / "faults.idl")
    yield process
    process.stop()


@pytest.fixture(params=["tcp", "same host"])
def prints(process, request):
    return process.connect(timeout=30, same_host=request.param != "tcp").function("prints")


def test_lines_appear_where_the_caller_wants_them(prints, capsys):
    prints.with_output()("out\n", "err\n")
    assert sorted(capsys.readouterr().out.splitlines()) == ["err", "out"]
    file, lines = io.StringIO(), []
    prints.with_output(file)("to a file\n", "")
    assert file.getvalue() == "to a file\n"
    prints.with_output(lines.append)("one\ntw\u00f6\nthree", "")
    assert lines == ["one\n", "tw\u00f6\n", "three"]
    prints("not here\n", "nor here\n")
    assert capsys.readouterr().out == ""
    future = prints.with_output(lines.append).call_async("later\n", "")
    future.result(timeout=20)
    assert lines[-1] == "later\n"
    with pytest.raises(farcall.ArgumentError, match="a file or a callable"):
        prints.with_output(3)


def test_pickled_functions_and_maps_keep_their_output(prints, capsys):
    pickle.loads(pickle.dumps(prints.with_output()))("out\n", "")
    assert capsys.readouterr().out == "out\n"
    lines = []
    prints.with_output(lines.append).map([("one\n", ""), ("two\n", "")]).wait()
    assert sorted(lines) == ["one\n", "two\n"]
    with pathlib.Path(os.devnull).open("w") as file, pytest.raises(TypeError, match="pickle"):
        pickle.dumps(prints.with_output(file))


def test_an_exception_of_the_writer_ends_the_call(prints):
    def broken(line):
        raise ValueError(line)

    with pytest.raises(farcall.CallbackError, match="output") as error:
        prints.with_output(broken)("a line\n", "")
    assert isinstance(error.value.__cause__, ValueError)
    prints("fine\n", "")


def test_the_last_words_of_a_library_reach_the_caller(process):
    lines = []
    allocate = process.connect(timeout=30).function("aborts").with_output(lines.append)
    with pytest.raises(farcall.LibraryError):
        allocate(1)
    prints = process.connect(timeout=30).function("prints").with_output(lines.append)
    prints("still\n", "")
    assert lines[-1] == "still\n"


def test_lines_come_while_the_function_runs_and_have_a_rate(tmp_path):
    path = tmp_path / "prints.idl"
    path.write_text(PRINTS)
    process = ServerProcess(path, options=["--allow-code"])
    try:
        lines, before = [], []
        function = process.connect(timeout=60).function("lines").with_output(lines.append)
        function(n=3, bytes=4, done=np.empty(1, np.int32), tell=lambda _: before.extend(lines))
        assert before == ["line 0 0000\n"]
        assert lines == ["line 0 0000\n", "line 1 0000\n", "line 2 0000\n", "no end"]
        lines.clear()
        function(n=400, bytes=100_000, done=np.empty(1, np.int32), tell=lambda _: None)
        assert "bytes of output were left out]" in lines[-1]
        assert sum(map(len, lines)) < 30_000_000
    finally:
        process.stop()


def test_the_log_has_the_name_of_the_function(tmp_path):
    log = (tmp_path / "log").open("w+")
    server = subprocess.Popen(
        [FARCALL, "serve", FAULTS / "faults.idl", "--listen", "127.0.0.1:0", "--log", "info"],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        address = server.stdout.readline().split()[-1]
        farcall.connect(address, timeout=30).call("prints", "for the log\n", "")

        def logged():
            log.seek(0)
            return "faults/prints" in (text := log.read()) and "for the log" in text

        wait_until(logged, what="the line in the log")
    finally:
        server.terminate()
        server.wait(10)


def test_from_c_and_from_the_shell(process, tmp_path):
    source = pathlib.Path(__file__).with_name("output.c")
    ran = run(*command(source, tmp_path), process.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout == "here\nthree\nhere again\nno end"
    call = [FARCALL, "call", "prints", "out=hello", "err=", "--server", process.address]
    done = subprocess.run(
        [*call, "--show-output"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == "hello"
