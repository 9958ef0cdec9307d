"""Addresses of arrays in programs of C and on the command line."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
from programs import compile_c, run
from servers import FARCALL
from sources import IDL, Web, npy, serving

COPY = """\
Define copy(IN int n, IN double x[n], OUT double y[n])
{
    int i;
    for (i = 0; i < n; i++) y[i] = x[i];
}
"""


@pytest.fixture
def web():
    web = Web()
    yield web
    web.close()


@pytest.fixture
def process(start, tmp_path, web):
    """A server that reads and writes pages."""
    web.pages["/a.npy"] = (npy(np.arange(3.0)),)
    web.pages["/t.csv"] = (b"x,y\n1,2\n3,4\n5,6\n",)
    serve = serving(start, tmp_path, f"{IDL}{COPY}")
    return serve(f'[sources.web]\naddress = "{web.address}/"\nwrite = true')


def test_a_program_in_c_passes_addresses(process, web, tmp_path):
    program = compile_c(pathlib.Path(__file__).with_name("sources.c"), tmp_path / "sources")
    addresses = [f"{web.address}/t.csv#columns=y", f"{web.address}/out.npy", "https://a.org/a.npy"]
    lines = run(program, process.address, *addresses).stdout.splitlines()
    assert lines[0] == "12.0"
    assert "`https://a.org/a.npy` is not allowed" in lines[1]
    [(path, _, body)] = web.written
    assert path == "/out.npy"
    assert body == npy(np.array([2.0, 4, 6]))


def shell(address, *words):
    """What the command prints."""
    environment = os.environ | {"FARCALL_SERVER": address}
    return subprocess.run(
        [FARCALL, *words], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_the_command_line_passes_addresses(process, web):
    def call(*words):
        return shell(process.address, "call", *words)

    assert call("total", "n=3", f"x=@{web.address}/a.npy").stdout == "sum [1] = [3.000000]\n"
    column = f"x=@{web.address}/t.csv#columns=x&format=csv"
    assert call("total", "n=3", column).stdout == "sum [1] = [9.000000]\n"
    part = f"x=@{web.address}/a.npy#rows=1:"
    assert call("total", "n=2", part).stdout == "sum [1] = [3.000000]\n"
    out = f"y=@{web.address}/out.raw"
    written = call("copy", "n=3", f"x=@{web.address}/a.npy", out)
    assert written.stdout == f"y -> {web.address}/out.raw (24 bytes)\n"
    told = json.loads(call("copy", "n=3", f"x=@{web.address}/a.npy", out, "--json").stdout)
    assert told["results"]["y"]["address"] == f"{web.address}/out.raw"
    assert [np.frombuffer(body).tolist() for _, _, body in web.written] == [[0, 1, 2]] * 2
    for words, status, match in [
        ((f"x=@{web.address}/none.npy",), 1, "does not exist"),
        (("x=@https://a.org/a.npy",), 1, "is not allowed"),
        ((f"x=@{web.address}/a.npy#rows",), 2, "an option has no value"),
        ((f"x=@{web.address}/a.npy#rows=1",), 2, "the rows are BEGIN:END, such as 0:10"),
    ]:
        failed = call("total", "n=3", *words)
        assert failed.returncode == status, failed
        assert match in failed.stderr
