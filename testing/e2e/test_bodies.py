"""Bodies in C beside a library of one's own."""

import subprocess

import farcall
import pytest

BODY = """
Module own;
Library "{name}";
Globals {{ int twice(int); }}
Define both(IN int n, OUT int *y) {{ int unused; *y = twice(n) + 1; }}
Define plain(IN int n, OUT int *y) Calls "C" y = twice(n);
CompileOptions "-Wall";
"""


@pytest.mark.parametrize("name", ["./libown.so", "libown.so", "sub/libown.so", "../own/libown.so"])
@pytest.mark.parametrize("soname", [[], ["-Wl,-soname,libown.so"]], ids=["plain", "soname"])
def test_a_library_in_the_folder_of_the_file_and_a_body(start, tmp_path, name, soname):
    folder = tmp_path / "own"
    library = folder / name
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "own.c").write_text("int twice(int n) { return 2 * n; }")
    command = ["cc", "-shared", "-fPIC", *soname, "-o", library, tmp_path / "own.c"]
    subprocess.run(command, check=True)
    file = folder / "own.idl"
    file.write_text(BODY.format(name=name))
    process = start(file, options=["--allow-code"])
    server = process.connect()
    assert server.call("own/both", n=4).y == 9
    assert server.call("own/plain", n=4).y == 8
    assert "unused variable" in process.log()


SURROUNDINGS = """
Module state;
Globals {
    #include <locale.h>
    #include <string.h>
    #include <sys/stat.h>
    #include <unistd.h>
    void farcall_fail(const char *);
    static void change(void)
    {
        umask(0707);
        setlocale(LC_ALL, "C.UTF-8");
        if (chdir("/"))
            farcall_fail("no folder");
    }
    static int are_changed(void)
    {
        char folder[4096];
        mode_t mask = umask(0);
        umask(mask);
        return 100 * !strcmp(getcwd(folder, sizeof folder), "/") + 10 * (mask == 0707) +
               !strcmp(setlocale(LC_ALL, 0), "C.UTF-8");
    }
}
Define changes(OUT int *y) { change(); *y = are_changed(); }
Define looks(OUT int *y) { *y = are_changed(); }
DefClass Own
{
    DefMethod changes(OUT int *y) { change(); *y = 0; }
    DefMethod looks(OUT int *y) { *y = are_changed(); }
}
"""


def test_what_a_function_changes_around_it_ends_with_its_call(start, tmp_path):
    file = tmp_path / "state.idl"
    file.write_text(SURROUNDINGS)
    server = start(file, options=["--allow-code", "--workers", "1"]).connect()
    for _ in range(2):
        assert server.call("changes").y == 111
        assert server.call("looks").y == 0
    with server.new("Own") as own:
        own.method("changes")()
        assert own.method("looks")().y == 111, "an object keeps its state"


QUIET = """
Module quiet;
Globals {
    #include <fcntl.h>
    #include <unistd.h>
    __attribute__((constructor)) static void silence(void)
    {
        int nothing = open("/dev/null", O_WRONLY);
        dup2(nothing, 1);
        dup2(nothing, 2);
        usleep(100000);
    }
}
Define next(IN int n, OUT int *y) { *y = n + 1; }
"""


def test_a_library_that_closes_its_output_while_it_is_loaded_is_served(start, tmp_path):
    file = tmp_path / "quiet.idl"
    file.write_text(QUIET)
    assert start(file, options=["--allow-code"]).connect().call("next", n=4).y == 5


REPORTS = """
Module reports;
Library "libopenblas.so.0";
Globals {
    void farcall_fail(const char *);
    void xerbla_(const char *, const int *, unsigned long);
}
Define both(IN int n) { xerbla_("DGEMV", &n, 5); farcall_fail("no folder"); }
Define fine(IN int n) { (void)n; }
"""


def test_what_a_call_reports_is_not_told_to_the_next_one(start, tmp_path):
    file = tmp_path / "reports.idl"
    file.write_text(REPORTS)
    server = start(file, options=["--allow-code", "--workers", "1"]).connect()
    for _ in range(2):
        with pytest.raises(farcall.LibraryError, match="no folder"):
            server.call("both", 1)
        server.call("fine", 1)


LAZY = """
Module lazy;
Globals {
    #include <dlfcn.h>
}
Define threads(OUT int *n) ProcessorElements 2
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW);
    int (*get)(void) = (int (*)(void))dlsym(library, "openblas_get_num_threads");
    *n = get();
}
"""


def test_a_library_that_a_function_loads_has_the_threads_of_its_calls(start, tmp_path):
    file = tmp_path / "lazy.idl"
    file.write_text(LAZY)
    options = ["--allow-code", "--workers", "1", "--pes", "2"]
    server = start(file, options=options).connect()
    # The call that loads it has the number of its environment.
    server.call("threads")
    assert [server.call("threads").n for _ in range(2)] == [2, 2]


LOUD = """
#include <stdio.h>
__attribute__((constructor)) static void greet(void)
{
    for (int line = 0; line < 10000; line++)
        printf("line %d of a license\\n", line);
}
int twice(int n) { return 2 * n; }
"""


def test_a_library_may_print_any_amount_while_it_is_loaded(start, tmp_path):
    (tmp_path / "loud.c").write_text(LOUD)
    library = tmp_path / "libloud.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "loud.c"], check=True)
    file = tmp_path / "loud.idl"
    file.write_text(
        'Library "libloud.so"; Define twice(IN int n, OUT int *y) Calls "C" y = twice(n);'
    )
    assert start(file).connect().call("twice", n=4).y == 8
