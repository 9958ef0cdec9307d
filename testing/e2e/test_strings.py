"""Arrays of strings."""

import subprocess

import farcall
import numpy as np
import pytest
from programs import compile_c, run
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
Define numbered(IN int n, IN int length, INOUT string[length] words[n], OUT string[length] last[1])
    "Puts the index before each word"
{
    for (int i = 0; i < n; i++) {
        memmove(words[i] + 1, words[i], strlen(words[i]) + 1);
        words[i][0] = '0' + i;
    }
    strcpy(last[0], n > 0 ? words[n - 1] : "");
    if (words[n] != NULL || last[1] != NULL)
        strcpy(last[0], "wrong");
}
Define measured(IN int n, IN string[6] words[n], OUT int lengths[n])
{
    for (int i = 0; i < n; i++)
        lengths[i] = (int)strlen(words[i]);
}
Define unended(OUT string[4] words[2])
{
    memset(words[0], 'a', 5);
    memset(words[1], 0xff, 2);
}
Define table(IN int rows, IN int columns, IN string cells[rows][columns], OUT char first[rows])
{
    for (int i = 0; i < rows; i++)
        first[i] = cells[i * columns][0];
}
"""
SERVED = """\
import farcall

@farcall.library("longest(IN int n, IN string words[n], OUT int *length)")
def longest(words):
    assert type(words) is list
    return max(map(len, words), default=0)

@farcall.library(
    "shout(IN int n, INOUT string[8] words[n], OUT string[9] all[n],"
    " OUT string[4] *how)"
)
def shout(words):
    assert type(words) is list
    words[:] = [word.upper() for word in words]
    return [f"{word}!" for word in words], "loud"

@farcall.library("wrong(IN int kind, OUT string[2] words[2])")
def wrong(kind):
    return (["a"], ["abc", "d"], [1, 2], ["a", "b"])[kind]
"""
WRONG = [
    ("WORK string[8] names[3]", "cannot be WORK", "char names[n][length]"),
    ("OUT string[8] names", "has a length and no dimension", "string[64] *names"),
    ("OUT string[] names[3]", "length of the strings `names` is missing", "string[64] names"),
    ("IN string[8] names[3:1,2]", "cannot have a range", "all of them travel"),
    ("OUT string names", "scalar `names` cannot be OUT", "write `OUT string[64] *names`"),
    ("IN string names[3:1,2]", "cannot have a range", "all of them travel"),
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


def test_they_come_back(server):
    numbered = server.function("numbered")
    words = ["one", "", "größe"]
    result = numbered(n=3, length=8, words=words)
    assert result.words is words
    assert words == ["0one", "1", "2größe"]
    assert result.last == "2größe"
    last = ["before"]
    assert numbered(3, 8, ["a", "b", "c"], last).last is last
    assert last == ["2c"]
    assert numbered(n=0, length=1, words=[]) == ([], "")
    future = numbered.call_async(n=1, length=9, words=["later"])
    assert future.result(timeout=30).words == ["0later"]
    most = ["x" * 6, "größe"[:4], ""]
    assert list(server.function("measured")(n=3, words=most).lengths) == [6, 6, 0]
    # A string without a NUL ends with its space; bytes that are not UTF-8 are replaced.
    assert server.function("unended")().words == ["aaaa", "\ufffd\ufffd"]
    assert "str list of shape (n,), each of at most length bytes" in numbered.__doc__
    assert numbered.interface.parameters[2].length == "length"


def test_python_functions_change_them(server):
    assert server.function("shout")(n=2, words=["a", "bc"]) == (["A", "BC"], ["A!", "BC!"], "loud")
    wrong = server.function("wrong")
    for kind, told in enumerate(["2 strings, given 1", "at most 2 bytes", "is not a str"]):
        with pytest.raises(farcall.LibraryError, match=told):
            wrong(kind=kind)
    assert wrong(kind=3).words == ["a", "b"]


def test_what_cannot_come_back_is_told(server):
    numbered = server.function("numbered")
    for wrong in (("a",), "a", None, [1], farcall.keep()):
        with pytest.raises(farcall.ArgumentError, match="`words`: expected a list of str"):
            numbered(n=1, length=8, words=wrong)
    for words, told in ((["a", "b"], "expected 1 strings, given 2"), (["a\0"], "without NUL")):
        with pytest.raises(farcall.ArgumentError, match=told):
            numbered(n=1, length=8, words=words)
    with pytest.raises(farcall.ArgumentError, match="at most 3 bytes, given string 0 of 4"):
        numbered(n=1, length=3, words=["four"])
    with pytest.raises(farcall.ArgumentError, match="`words`"):
        numbered(n=(1 << 14) + 1, length=1, words=[])
    told = "in a transaction no strings come back"
    with pytest.raises(farcall.ArgumentError, match=told), farcall.transaction([server]):
        numbered(n=1, length=8, words=["a"])
    assert numbered(n=1, length=8, words=["goes on"]).last == "0goes on"


def test_submitted_calls_have_them(tmp_path):
    (tmp_path / "strings.idl").write_text(IDL)
    state = ["--allow-code", "--state", str(tmp_path / "state")]
    server = ServerProcess(tmp_path / "strings.idl", options=state)
    try:
        numbered = server.connect(timeout=30).function("numbered")
        words = ["one", "two"]
        job = numbered.submit(n=2, length=8, words=words)
        assert job.fetch(timeout=30) == (["0one", "1two"], "1two")
        into = ["", ""]
        assert job.fetch(timeout=30, into={"words": into}).words is into
        assert into == ["0one", "1two"]
        assert words == ["one", "two"]
    finally:
        server.stop()


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
    with pytest.raises(farcall.ArgumentError, match=r"scalars and strings have 110.* bytes"):
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
    call[-1:] = ["numbered", "n=2", "length=30", "words=@lines", "-o", "words=out"]
    done = subprocess.run(
        call, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == 'words [2] -> out\nlast [1] = ["1second, with a comma"]\n'
    assert (tmp_path / "out").read_text() == "0first line\n1second, with a comma\n"


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


COUNTED = """\
Module counted;
Define all(IN int k, IN int counts[k], IN string words[counts[0]], OUT int *length)
{
    *length = 0;
    for (int i = 0; i < counts[0]; i++)
        for (const char *c = words[i]; *c; c++)
            ++*length;
}
"""
CLIENT = """\
#include "farcall.h"
#include <stdio.h>

int main(int argc, char **argv) {
  farcall_server *server = argc == 2 ? farcall_connect(argv[1]) : NULL;
  farcall_function *all = server ? farcall_function_of(server, "all") : NULL;
  int counts[2] = {3, 9}, length = 0, k = 2;
  const char *words[] = {"a", "bb", "ccc"};
  void *arguments[] = {&k, counts, words, &length};
  size_t shape[1];

  if (!all || farcall_invoke(all, k, counts, words, &length) != FARCALL_OK || length != 6 ||
      farcall_argument_shape(all, arguments, 4, 2, shape, 1) != 1 || shape[0] != 3)
    return fprintf(stderr, "%d: %s", length, farcall_error_message()), 1;
  farcall_disconnect(server);
  return 0;
}
"""


def test_their_number_can_be_an_element_of_an_array(tmp_path):
    (tmp_path / "counted.idl").write_text(COUNTED)
    (tmp_path / "client.c").write_text(CLIENT)
    program = compile_c(tmp_path / "client.c", tmp_path / "client")
    server = ServerProcess(tmp_path / "counted.idl", options=["--allow-code"])
    try:
        counts = np.array([3, 9], dtype=np.int32)
        all_of = server.connect(timeout=30).function("all")
        assert all_of(k=2, counts=counts, words=["a", "bb", "ccc"]).length == 6
        ran = run(program, server.address)
        assert ran.returncode == 0, ran.stderr
    finally:
        server.stop()
