"""Arrays of strings."""

import subprocess

import farcall
import numpy as np
import pytest
from servers import FARCALL, ServerProcess

IDL = """\
Module strings;
Globals { #include <string.h> }
Define lengths(IN int n, IN string words[n], OUT int lengths[n])
    "Length of each word"
{
    for (int i = 0; i < n; i++)
        lengths[i] = (int)strlen(words[i]);
    if (words[n] != NULL)
        lengths[0] = -1;
}
Define table(IN int rows, IN int columns, IN string cells[rows][columns], OUT char first[rows])
{
    for (int i = 0; i < rows; i++)
        first[i] = cells[i * columns][0];
}
"""
SERVED = """\
import farcall

@farcall.serve("longest(IN int n, IN string words[n], OUT int *length)")
def longest(words):
    assert type(words) is list
    return max(map(len, words), default=0)
"""
WRONG = [
    ("OUT string names[3]", "cannot be OUT", "write `OUT char names[n][length]`"),
    ("INOUT string names[3]", "cannot be INOUT", "char names[n][length]"),
    ("IN string names[3:1,2]", "cannot have a range", "all of them travel"),
    ("IN filename names[3]", "there are no arrays of filename", "char"),
]


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    here = tmp_path_factory.mktemp("strings")
    (here / "strings.idl").write_text(IDL)
    (here / "words.py").write_text(SERVED)
    process = ServerProcess(here / "strings.idl", here / "words.py", options=["--allow-code"])
    yield process
    process.stop()


@pytest.fixture
def server(process):
    return process.connect(timeout=30)


def test_they_arrive_as_c_has_them(server):
    lengths = server.function("lengths")
    words = ["one", "", "größer", "x" * 1000]
    assert list(lengths(n=4, words=words).lengths) == [3, 0, 8, 1000]
    assert list(lengths(4, tuple(words)).lengths) == [3, 0, 8, 1000]
    assert list(lengths(n=2, words=np.array(["ab", "c"])).lengths) == [2, 1]
    assert list(lengths(n=0, words=[]).lengths) == []
    assert "words    IN     str sequence of shape (n,)" in lengths.__doc__
    cells = ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert bytes(server.function("table")(rows=3, columns=2, cells=cells).first) == b"abc"


def test_python_functions_get_lists(server):
    assert server.function("longest")(n=3, words=["a", "ccc", "bb"]).length == 3
    assert server.function("longest")(n=0, words=[]).length == 0


def test_what_does_not_fit_is_told(server):
    lengths = server.function("lengths")
    for wrong in ("abc", 3, None, ["a", 3, "b"], [b"a", b"b", b"c"]):
        expected = "argument `words`: expected a sequence of str"
        with pytest.raises(farcall.ArgumentError, match=expected):
            lengths(n=3, words=wrong)
    with pytest.raises(farcall.ArgumentError, match="`words`: expected 3 strings, given 2"):
        lengths(n=3, words=["a", "b"])
    with pytest.raises(farcall.ArgumentError, match="without NUL"):
        lengths(n=1, words=["a\0b"])


def test_they_have_bounds(server):
    lengths = server.function("lengths")
    assert sum(lengths(n=1000, words=["x" * 1000] * 1000).lengths) == 1_000_000
    with pytest.raises(farcall.ArgumentError, match=r"scalars and texts have 110.* bytes"):
        lengths(n=1100, words=["x" * 1000] * 1100)
    most = 1 << 14
    assert sum(lengths(n=most, words=["x"] * most).lengths) == most
    with pytest.raises(farcall.ArgumentError, match="`words`"):
        lengths(n=most + 1, words=["x"] * (most + 1))
    assert lengths(n=1, words=["goes on"]).lengths == 7


def test_the_shell(process, tmp_path):
    call = [FARCALL, "call", "--server", process.address, "lengths"]
    done = subprocess.run(
        [*call, "n=3", "words=one,,three"], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "lengths [3] = [3, 0, 5]\n"
    (tmp_path / "lines").write_text("first line\nsecond, with a comma\n")
    done = subprocess.run(
        [*call, "n=2", "words=@lines"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "lengths [2] = [10, 20]\n"


@pytest.mark.parametrize("parameter, what, remedy", WRONG)
def test_what_is_not_served_is_refused_by_name(tmp_path, parameter, what, remedy):
    path = tmp_path / "wrong.idl"
    path.write_text(f'Module wrong;\nDefine f(IN int n, {parameter}) Calls "C" f(n, names);\n')
    done = subprocess.run(
        [FARCALL, "idl", "check", path], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    told = done.stdout + done.stderr
    assert what in told
    assert remedy in told
