"""Files of the caller that a called library reads and writes."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading

import farcall
import numpy as np
import pytest
from programs import command, run
from servers import FARCALL, ROOT, ServerProcess, wait_until

EXAMPLE = ROOT / "examples" / "files"
SERVED = """\
import pathlib
import farcall

@farcall.library("reverse(IN filename text, OUT filename reversed)")
def reverse(text, reversed):
    assert pathlib.Path(text).name.endswith("-words.txt")
    pathlib.Path(reversed).write_bytes(pathlib.Path(text).read_bytes()[::-1])
"""
IDL = """\
Module files;
Globals {
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
}
Define copy(IN filename from, OUT filename to, OUT long *bytes)
{
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    static char piece[1 << 20];
    size_t count;
    for (*bytes = 0; (count = fread(piece, 1, sizeof piece, in)) > 0; *bytes += count)
        fwrite(piece, 1, count, out);
    fclose(in);
    fclose(out);
}
Define count(IN filename from, OUT long *bytes)
{
    FILE *in = fopen(from, "r");
    fseek(in, 0, SEEK_END);
    *bytes = ftell(in);
    fclose(in);
}
Define make(IN long bytes, OUT filename to)
{
    FILE *out = fopen(to, "w");
    static char piece[1 << 16];
    for (long left = bytes; left > 0; left -= sizeof piece)
        fwrite(piece, 1, left < (long)sizeof piece ? left : (long)sizeof piece, out);
    fclose(out);
}
Define streams(IN filepointer from, INOUT filepointer both, OUT filepointer to)
{
    int c, first = getc(both);
    rewind(both);
    putc(first + 1, both);
    while ((c = getc(from)) != EOF)
        putc(c == 'a' ? 'b' : c, to);
}
Define lazy(OUT filename to)
{
    (void)to;
}
Define crashes(INOUT filename file)
{
    FILE *out = fopen(file, "w");
    fputs("half", out);
    fclose(out);
    abort();
}
Define parts(IN int n, OUT filename files[n])
{
    for (int k = 0; k < n; k++) {
        FILE *out = fopen(files[k], "w");
        fprintf(out, "%d", k);
        fclose(out);
    }
}
Define place(IN filename from, OUT char path[4096])
{
    strcpy(path, from);
}
Define waits(IN filename from, INOUT filename file, step(IN string path))
{
    step(from);
    sleep(60);
    (void)file;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which workers keep files."""
    return tmp_path_factory.mktemp("worker files")


@pytest.fixture(scope="module")
def process(tmp_path_factory, folder):
    here = tmp_path_factory.mktemp("files")
    (here / "files.idl").write_text(IDL)
    (here / "words.py").write_text(SERVED)
    config = here / "farcall.toml"
    config.write_text(f'[limits]\nfiles = 50000000\n[workers]\nfolder = "{folder}"\n')
    process = ServerProcess(
        here / "files.idl",
        here / "words.py",
        options=["--allow-code", "--workers", "2", "--config", config],
    )
    yield process
    process.stop()
    assert not list(folder.iterdir()), "the folders of workers go with them"


@pytest.fixture(params=["tcp", "same host"])
def server(process, request):
    return process.connect(timeout=60, same_host=request.param != "tcp")


def calls(folder):
    """Folders of active calls."""
    return list(folder.glob("*/call"))


def test_files_travel_there_and_back(server, folder, tmp_path):
    # An empty file, and files of whole and partial pieces.
    for length in [0, 1, 960 << 10, (960 << 10) + 1, 20_000_003]:
        content = np.random.default_rng(1).bytes(length)
        (tmp_path / "from").write_bytes(content)
        target = tmp_path / f"to{length}"
        copied = server.function("copy")(tmp_path / "from", str(target))
        assert copied.bytes == length
        assert copied._fields == ("bytes",)
        assert target.read_bytes() == content
        assert target.stat().st_mode == (tmp_path / "from").stat().st_mode
    assert not calls(folder)


def test_streams_of_the_c_library(server, tmp_path):
    source, both, to = (tmp_path / name for name in ("source", "both", "to"))
    source.write_text("banana")
    both.write_text("1 and more")
    both.chmod(0o640)
    server.function("streams")(source, both, to)
    assert (both.read_text(), to.read_text()) == ("2 and more", "bbnbnb")
    assert both.stat().st_mode & 0o777 == 0o640
    link = tmp_path / "link"
    link.symlink_to(both)
    server.function("streams")(source, link, to)
    assert link.is_symlink()
    assert both.read_text() == "3 and more"


def test_python_functions_work_on_files(server, tmp_path):
    (tmp_path / "words.txt").write_text("abc")
    server.function("reverse")(tmp_path / "words.txt", tmp_path / "cba")
    assert (tmp_path / "cba").read_text() == "cba"


def test_the_library_sees_private_copies(server, folder, tmp_path):
    name = tmp_path / ("long " * 30 + ".csv")
    name.write_text("x")
    place = bytes(server.function("place")(name).path).split(b"\0")[0].decode()
    assert place.startswith(str(folder))
    assert place.endswith(" long .csv")
    assert not pathlib.Path(place).exists(), "it is gone after the call"


def test_what_is_wrong_is_told_before_anything_is_sent(server, tmp_path):
    copy = server.function("copy")
    here = tmp_path / "here"
    here.write_text("text")
    with pytest.raises(FileNotFoundError, match=r"argument `from`: .*nothing: No such") as error:
        copy(tmp_path / "nothing", tmp_path / "to")
    assert isinstance(error.value, farcall.FileError)
    assert error.value.filename == str(tmp_path / "nothing")
    assert error.value.fault == "caller"
    with pytest.raises(farcall.FileError, match=r"argument `from`.* not a regular file"):
        copy(tmp_path, tmp_path / "to")
    with pytest.raises(FileNotFoundError, match="argument `to`"):
        copy(here, tmp_path / "no" / "folder")
    with pytest.raises(farcall.FileError, match=r"`from`: .*name of the file is empty"):
        copy("", tmp_path / "to")
    with pytest.raises(farcall.FileError, match=r"`to`: .*name of the file is empty"):
        copy(here, "")
    with pytest.raises(farcall.ArgumentError, match="argument `to`: expected the name of a file"):
        copy(here)
    with pytest.raises(farcall.ArgumentError, match="argument `from`: expected the path"):
        copy(3, tmp_path / "to")
    assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_failed_call_changes_no_file(server, folder, tmp_path):
    file = tmp_path / "file"
    file.write_text("as it was")
    with pytest.raises(farcall.LibraryError, match="abort"):
        server.function("crashes")(file)
    with pytest.raises(farcall.LibraryError, match="did not write the file of argument `to`"):
        server.function("lazy")(tmp_path / "to")
    assert file.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [file]
    wait_until(lambda: not calls(folder), what="the end of the files")


def test_files_have_a_quota(server, tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(60_000_000)
    with pytest.raises(farcall.ServerError, match=r"60000000 bytes.*`from`.*limits\.files"):
        server.function("count")(large)
    with pytest.raises(farcall.ServerError, match=r"limits\.files"):
        server.function("make")(60_000_000, tmp_path / "to")
    assert not (tmp_path / "to").exists()
    server.function("make")(50_000_000, tmp_path / "to")
    assert (tmp_path / "to").stat().st_size == 50_000_000


def test_a_cancelled_call_leaves_nothing(server, folder, tmp_path):
    file = tmp_path / "file"
    file.write_text("as it was")
    started = threading.Event()
    places = []

    def step(path):
        places.append(path)
        started.set()

    future = server.function("waits").call_async(file, file, step)
    wait_until(lambda: future.done() or started.is_set(), what="that it waits")
    with pytest.raises(farcall.TimeoutError):
        future.result(timeout=0.1)
    assert pathlib.Path(places[0]).exists()
    assert future.cancel()
    wait_until(lambda: not calls(folder), what="the end of the files")
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_text() == "as it was"


def test_a_killed_worker_leaves_nothing(process, server, tmp_path):
    file = tmp_path / "file"
    file.write_text("as it was")

    def step(path):
        worker = pathlib.Path(path).parents[1]
        for pid in process.workers():
            maps = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"farcall" in maps:
                os.kill(pid, signal.SIGKILL)
        places.append(worker)

    places = []
    with pytest.raises(farcall.LibraryError, match="killed"):
        server.function("waits")(file, file, step)
    wait_until(lambda: not places[0].exists(), what="the end of the worker's folder")
    assert file.read_text() == "as it was"


def test_progress_counts_files(server, tmp_path):
    (tmp_path / "from").write_bytes(bytes(30_000_000))
    future = server.function("copy").call_async(tmp_path / "from", tmp_path / "to")
    assert future.progress()[:2] == (0, 30_000_000)
    seen = set()
    while not future.done():
        seen.add(future.progress())
    assert future.result().bytes == 30_000_000
    seen.discard(None)
    assert all(sent <= 30_000_000 == to_send for sent, to_send, _, _ in seen)
    assert len(seen) > 5


def test_several_at_once(server, tmp_path):
    copy = server.function("copy")
    futures = []
    for index in range(8):
        (tmp_path / f"from{index}").write_bytes(bytes([index]) * 2_000_000)
        futures.append(copy.call_async(tmp_path / f"from{index}", tmp_path / f"to{index}"))
    for index, future in enumerate(futures):
        assert future.result(timeout=60).bytes == 2_000_000
        assert (tmp_path / f"to{index}").read_bytes() == bytes([index]) * 2_000_000


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The library of the example, built, and served."""
    here = tmp_path_factory.mktemp("example") / "files"
    shutil.copytree(EXAMPLE, here, ignore=shutil.ignore_patterns("*.so"))
    subprocess.run(["make", "--silent"], cwd=here, check=True, timeout=60)
    process = ServerProcess(here / "table.idl")
    yield here, process
    process.stop()


def test_the_example(example):
    here, process = example
    ran = [FARCALL, "call", "--server", process.address]
    call = [*ran, "summary", "table=weather.csv", "summary=out.csv"]
    done = subprocess.run(call, cwd=here, capture_output=True, text=True, timeout=60, check=True)
    shown = (here / "README.md").read_text()
    assert done.stdout in shown
    assert (here / "out.csv").read_text() in shown
    call = [*ran, "scale", "table=weather.csv", "factor=10"]
    subprocess.run(call, cwd=here, timeout=60, check=True)
    assert (here / "weather.csv").read_text().splitlines()[1] == "145,10132,34"
    call = [*ran, "summary", "table=nothing.csv", "summary=new.csv"]
    failed = subprocess.run(call, cwd=here, capture_output=True, text=True, timeout=60, check=False)
    assert failed.returncode == 1
    assert "argument `table`: nothing.csv: No such file" in failed.stderr
    assert not (here / "new.csv").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["from=in", "to=new", "-o", "bytes=in"], "this is an input file of the call"),
        (["from=in", "to=new", "--trace-out", "./in"], "this is an input file of the call"),
        (["from=in", "to=link"], "this is an input file of the call"),
        (["from=in", "to=new", "-o", "bytes=new"], "this is another result of the call"),
    ],
)
def test_the_command_overwrites_no_file_that_the_call_reads(process, tmp_path, words, said):
    (tmp_path / "in").write_text("text")
    (tmp_path / "link").symlink_to("in")
    call = [FARCALL, "call", "--server", process.address, "files/copy", *words]
    ran = subprocess.run(
        call, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, said in ran.stderr) == (2, True), ran
    assert (tmp_path / "in").read_text() == "text"
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written_is_refused_before_the_call(process):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "kept").write_text("old")
        (folder / "kept").chmod(0o444)
        folder.chmod(0o555)
        # Root may write everywhere.
        user = 65534 if os.geteuid() == 0 else None
        for words, said in [
            (["-o", "path=kept"], "cannot write kept: Permission denied"),
            (["-o", "path=new"], "cannot write new: Permission denied"),
            (["-o", "path="], "the name of a file to write is empty"),
            (["--trace-out", "new"], "cannot write new: Permission denied"),
            (["--trace-out", "no/new"], "cannot write no/new: there is no such folder"),
        ]:
            call = [FARCALL, "call", "--server", process.address, "place", "from=kept", *words]
            ran = subprocess.run(
                call, cwd=folder, capture_output=True, text=True, timeout=60, check=False, user=user
            )
            assert (ran.returncode, said in ran.stderr) == (2, True), ran
        folder.chmod(0o755)


PARTS = {
    ".cpp": """\
#include "farcall.hpp"
int main() {
  std::vector<std::string> files{"a", "b"};
  farcall::Server().call("parts", 2, files);
}
""",
    ".java": """\
public class Parts {
  public static void main(String[] none) {
    new farcall.Server().call("parts", 2, new String[] {"a", "b"});
  }
}
""",
    ".m": """\
pkg load farcall
farcall_connect ().parts (2, {"a", "b"});
""",
    ".R": """\
library(farcall)
farcall_connect()$parts(2, c("a", "b"))
""",
}


@pytest.mark.parametrize("suffix", PARTS)
def test_every_language_names_the_files_that_a_call_writes(process, tmp_path, suffix):
    source = tmp_path / f"Parts{suffix}"
    source.write_text(PARTS[suffix])
    here = tmp_path / "here"
    here.mkdir()
    words = command(source, tmp_path)
    ran = run(*words, cwd=here, FARCALL_SERVER=process.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [(here / name).read_text() for name in ("a", "b")] == ["0", "1"]
    assert sorted(path.name for path in here.iterdir()) == ["a", "b"]


def test_the_command_names_the_files_that_a_call_writes(process, tmp_path):
    def call(*words):
        return run(FARCALL, "call", *words, "--server", process.address, cwd=tmp_path)

    ran = call("parts", "n=2", "files=a,b")
    assert ran.stdout == "files -> a, b\n", ran.stderr
    told = json.loads(call("parts", "n=2", "files=a,b", "--json").stdout)
    assert told["results"] == {"files": {"type": "filename", "files": ["a", "b"]}}
    (tmp_path / "list").write_text("a\n./a\n")
    ran = call("parts", "n=2", "files=@list")
    assert ran.returncode == 1
    assert "the call writes another result to this file" in ran.stderr
    (tmp_path / "list").write_text("a\nlist\n")
    ran = call("parts", "n=2", "files=@list")
    assert ran.returncode == 2
    assert "cannot write list: this is an input file of the call" in ran.stderr


def test_a_command_that_is_killed_leaves_no_file(process, tmp_path):
    (tmp_path / "in").write_text("text")
    words = [FARCALL, "call", "waits", "from=in", "file=in", "--server", process.address]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as ran:
        assert ran.stderr.readline().startswith("step"), "the function runs"
        ran.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert (tmp_path / "in").read_text() == "text"
