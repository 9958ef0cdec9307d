"""The package of Octave: its own tests, and what users of Octave expect."""

import re

import pytest
from programs import octave, run
from servers import LIBRARIES, NAP


@pytest.fixture(scope="module")
def command():
    """The command that runs Octave with the installed package."""
    return octave()


def evaluate(command, text, server=None, timeout=60):
    """Runs a text with the package; `address` is the server."""
    first = "pkg load farcall; "
    if server is not None:
        first += f"address = '{server.address}'; server = farcall_connect (address); "
    return run(*command, "--eval", first + text, timeout=timeout)


def test_the_tests_of_the_package_pass(command, library_server, tmp_path):
    environment = {"FARCALL_TEST_SERVER": library_server.address}
    ran = run(*command, "--eval", "pkg test farcall", timeout=120, cwd=tmp_path, **environment)
    assert ran.returncode == 0, ran.stderr
    told = dict(re.findall(r"^  (PASS|FAIL)\s+(\d+)", ran.stdout, re.MULTILINE))
    assert told["FAIL"] == "0", ran.stdout
    # Those that need a server are not skipped.
    assert "SKIP" not in ran.stdout, ran.stdout
    assert int(told["PASS"]) >= 40, ran.stdout


def test_lapack_solves_and_arguments_stay(start, command):
    server = start(LIBRARIES / "lapack.idl")
    text = """
    n = 200; a = randn (n); b = randn (n, 2); kept = a + 0;
    solved = server.dgesv (n, 2, a, n, b, n);
    assert (solved.b, a \\ b, 1e-9);
    assert (a, kept);
    assert (solved.info == 0 && isequal (size (solved.ipiv), [n, 1]));
    server
    f = server.dgesv;
    disp (farcall_interface (f));
    """
    ran = evaluate(command, text, server)
    assert ran.returncode == 0, ran.stderr
    assert f"server = <farcall server at {server.address}>" in ran.stdout
    assert "dgesv(" in ran.stdout


ROWS = """\
Module rows;
Library "{library}";
Define section(IN int n, IN int ld, INOUT int a[n][ld:n]) "Double the first n of each row"
    Calls "C" conformance_section(n, ld, a);
"""


def test_matrices_of_c_functions_are_as_octave_has_them(start, command, tmp_path):
    idl = tmp_path / "rows.idl"
    built = LIBRARIES.parent / "testing" / "conformance" / "libconformance.so"
    idl.write_text(ROWS.format(library=built))
    text = """
    a = int32 ([1, 2, 3; 4, 5, 6]);
    assert (server.section (2, 3, a).a, int32 ([2, 4, 3; 8, 10, 6]));
    assert (a, int32 ([1, 2, 3; 4, 5, 6]));
    assert (server.section (1, 1, 5).a, int32 (10));
    assert (size (server.section (1, 4, [1, 2, 3, 4]).a), [1, 4]);
    assert (size (server.section (1, 4, [1; 2; 3; 4]).a), [1, 4]);
    assert (size (server.section (0, 4, []).a), [0, 4]);
    """
    ran = evaluate(command, text, start(idl))
    assert ran.returncode == 0, ran.stderr


def test_parts_of_complex_numbers_fit_a_float_or_not(start, command, tmp_path):
    idl = tmp_path / "parts.idl"
    idl.write_text("Module parts;\nDefine same(INOUT scomplex z[1]) { (void)z; }\n")
    text = """
    large = 3e38 + 3e38i;
    assert (server.same (large).z, single (large));
    assert (server.same (Inf - 1i).z, complex (single (Inf), single (-1)));
    for z = [1.7e308 + 1.7e308i, 1e39i]
      try
        server.same (z);
        error ("no error");
      catch problem
        assert (! isempty (strfind (problem.message, "too large for a float")), problem.message);
      end_try_catch
    endfor
    """
    ran = evaluate(command, text, start(idl, options=["--allow-code"]))
    assert ran.returncode == 0, ran.stderr


LONGS = """\
Module longs;
Define same(IN long a, IN unsigned long b, OUT long c[1], OUT unsigned long d[1])
{
    c[0] = a;
    d[0] = b;
}
"""


def test_integers_of_64_bits_keep_all_digits(start, command, tmp_path):
    idl = tmp_path / "longs.idl"
    idl.write_text(LONGS)
    text = """
    large = intmax ("int64") - 1;
    got = server.same (uint64 (large), large);
    assert (got.c == large && got.d == uint64 (large));
    function refused (text, varargin)
      try
        varargin{1} (varargin{2:3});
        error ("no error");
      catch problem
        assert (problem.identifier, "farcall:argument");
        assert (! isempty (strfind (problem.message, text)), problem.message);
      end_try_catch
    endfunction
    refused ("`a`: 18446744073709551615 is past 2^63 - 1", server.same, intmax ("uint64"), 1);
    refused ("`b`: -5 is negative", server.same, 1, int64 (-5));
    """
    ran = evaluate(command, text, start(idl, options=["--allow-code"]))
    assert ran.returncode == 0, ran.stderr


TEXTS = """\
Module texts;
Globals {
    #include <stdio.h>
    #include <string.h>
}
Define join(IN int n, IN int m, IN string words[n][m], OUT string[20] *all)
{
    all[0][0] = 0;
    for (int k = 0; k < n * m; k++)
        strcat(all[0], words[k]);
}
Define number(IN int n, IN int m, INOUT string[8] words[n][m], OUT string[20] *all)
{
    all[0][0] = 0;
    for (int k = 0; k < n * m; k++) {
        strcat(all[0], words[k]);
        sprintf(words[k], "%d", k);
    }
}
Define made(IN int n, IN int m, OUT string[8] words[n][m])
{
    for (int k = 0; k < n * m; k++)
        sprintf(words[k], "%d", k);
}
"""


def test_matrices_of_texts_are_as_octave_has_them(start, command, tmp_path):
    idl = tmp_path / "texts.idl"
    idl.write_text(TEXTS)
    text = """
    words = {"a", "b", "c"; "d", "e", "f"};
    numbers = {"0", "1", "2"; "3", "4", "5"};
    assert (server.join (2, 3, words).all, {"abcdef"});
    numbered = server.number (2, 3, words);
    assert (numbered.all, {"abcdef"});
    assert (numbered.words, numbers);
    assert (server.made (2, 3).words, numbers);
    assert (server.join (1, 3, {"a"; "b"; "c"}).all, {"abc"});
    try
      server.join (2, 3, words');
      error ("no error");
    catch problem
      assert (! isempty (strfind (problem.message, "`words` must be 2x3, not 3x2")));
    end_try_catch
    """
    ran = evaluate(command, text, start(idl, options=["--allow-code"]))
    assert ran.returncode == 0, ran.stderr


def test_an_array_that_a_call_reads_is_not_copied(start, command, tmp_path):
    """The process may have no more memory of its own, and the call works all the same."""
    idl = tmp_path / "sum.idl"
    built = LIBRARIES.parent / "testing" / "conformance" / "libconformance.so"
    idl.write_text(
        f'Module sums;\nLibrary "{built}";\n'
        "Define dot(IN int n, IN double x[n], IN double y[n], OUT double *r)\n"
        '    "Dot" Calls "C" r = conformance_dot(n, x, y);\n'
    )
    text = """
    n = 2^24; x = ones (n, 1); y = ones (n, 1, "single");
    assert (server.dot (1, 1, 1).r, 1);
    told = regexp (fileread ("/proc/self/status"), 'VmData:\\s+(\\d+)', "tokens");
    most = 1024 * str2double (told{1}{1}) + 4 * n;
    assert (system (sprintf ("prlimit --pid %d --data=%d", getpid (), most)), 0);
    assert (server.dot (n, x, x).r, n);
    try
      server.dot (n, x, y);
      error ("a copy of another type had room");
    catch problem
      assert (! isempty (strfind (problem.message, "out of memory")), problem.message);
    end_try_catch
    """
    ran = evaluate(command, text, start(idl))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_interrupt_ends_the_wait_and_the_call(start, command, tmp_path):
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    text = """
    system (sprintf ("sh -c 'sleep 2; kill -INT %d' &", getpid ()));
    began = tic ();
    unwind_protect
      server.nap (60000);
    unwind_protect_cleanup
      assert (toc (began) < 30);
      assert (server.nap (1).slept == 1);
      disp ("went on");
    end_unwind_protect
    """
    ran = evaluate(command, text, start(idl))
    assert ran.stdout == "went on\n", ran.stderr


def test_texts_that_nobody_asks_for_are_freed(start, command, tmp_path):
    idl = tmp_path / "texts.idl"
    idl.write_text(TEXTS)
    text = """
    function told = data ()
      told = regexp (fileread ("/proc/self/status"), 'VmData:\\s+(\\d+)', "tokens");
      told = str2double (told{1}{1});
    endfunction
    function make (server, times)
      for k = 1:times
        call = farcall_start (server.made, 16, 1000);
        while (! farcall_done (call))
          pause (0.001);
        endwhile
        clear call
      endfor
    endfunction
    make (server, 2);
    was = data ();
    make (server, 100);
    assert (data () - was < 16e3, sprintf ("%d KB more", data () - was));
    """
    ran = evaluate(command, text, start(idl, options=["--allow-code"]))
    assert ran.returncode == 0, ran.stderr


def test_texts_that_are_not_those_of_the_call_are_an_error(start, command):
    server = start(LIBRARIES.parent / "testing" / "conformance" / "languages.idl")
    text = """
    for words = {{"one", "two"}, {["one"; "two"]}}
      try
        server.join (1000, words{1}, "+");
      catch problem
        printf ("%s %s\\n", problem.identifier, problem.message);
      end_try_catch
    endfor
    """
    ran = evaluate(command, text, server)
    assert ran.returncode == 0, ran.stderr
    fewer, rows = ran.stdout.splitlines()
    assert fewer.startswith("farcall:argument conformance/join: argument `words`: "), ran.stdout
    assert rows == "farcall:argument argument `words` has a text of several rows", ran.stdout
