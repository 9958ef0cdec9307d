"""The C library from C and from C++, and its frozen interface."""

import re
import shutil
import subprocess

import pytest
from programs import BUILT, INCLUDE, LINK, compile_c, run
from servers import ROOT, ServerProcess

STATIC = ["-L" + str(BUILT), "-l:libfarcall.a", "-lpthread", "-ldl", "-lm"]


@pytest.mark.parametrize(
    ("compiler", "link"),
    [
        (["cc", "-std=c99", "-pedantic"], LINK),
        (["c++", "-x", "c++"], LINK),
        (["cc", "-std=c11"], STATIC),
    ],
    ids=["c", "c++", "static"],
)
def test_dgesv(library_server, tmp_path, compiler, link):
    source = ROOT / "testing" / "e2e" / "dgesv.c"
    program = compile_c(source, tmp_path / "dgesv", compiler=compiler, link=link)
    ran = run(program, library_server.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("solved") == 3
    assert "argument `a`: expected an array of double, given NULL" in ran.stdout
    assert "arguments `a` and `b` are written and share memory" in ran.stdout
    assert "no function `lapack/nothing`" in ran.stdout
    cause = "cannot connect to farcall://127.0.0.1:1: "
    assert f"function is NULL; the failure before it: {cause}" in ran.stdout


VALUES = """\
Module values;
Define of_signed(IN int8_t x, OUT long *y) { *y = x; }
Define of_unsigned(IN uint8_t x, OUT long *y) { *y = x; }
Define of_int(IN int x, OUT long *y) { *y = x; }
Define of_double(IN double x, OUT long *y) { *y = (long)x; }
Define of_float(IN float x, OUT long *y) { *y = (long)x; }
Define nap(IN int ms, OUT int *slept) { usleep(1000 * ms); *slept = ms; }
"""


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    folder = tmp_path_factory.mktemp("values")
    interface = folder / "values.idl"
    interface.write_text(VALUES)
    program = compile_c(ROOT / "testing" / "e2e" / "values.c", folder / "values")
    server = ServerProcess(interface, options=["--allow-code"])
    ran = run(program, server.address)
    server.stop()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def test_small_integers_keep_their_sign_and_digits(values):
    assert values[:5] == [
        "of_signed -1",
        "of_unsigned 255",
        "of_int -1",
        "of_double -1",
        "of_float: values/of_float: argument `x`: expected float (32 bit), given 16777217",
    ]


def test_a_forked_child_has_connections_of_its_own(values):
    """It can call, and neither ends the calls of its parent nor takes their results."""
    connection = 3
    assert values[5:10] == [
        f"child waits: {connection}",
        "child calls: 0",
        "child has 1",
        "parent waits: 0",
        "parent has 500",
    ]


def test_a_destructor_of_a_thread_can_call(values):
    """The library's own variables of the thread are gone by then."""
    unknown_session = 10
    assert values[10:] == [
        "ended thread waits: 0",
        "ended thread has 1",
        f"ended thread waits for nothing: {unknown_session}",
    ]


ENDS = """\
Module ends;
Define total(IN int n, IN int ends[n + 1], IN double x[ends[n]], OUT double *sum)
{ *sum = 0; for (int i = 0; i < ends[n]; i++) *sum += x[i]; }
"""
OTHER_ENDS = """\
#include "farcall.h"
#include <stdio.h>

int main(int argc, char **argv) {
  farcall_server *server = argc == 2 ? farcall_connect(argv[1]) : NULL;
  farcall_function *total = farcall_function_of(server, "total");
  int32_t n = 1, ends[] = {0, 2};
  double x[] = {1, 2}, sum = 0, other[] = {0, 2};
  farcall_value values[] = {{&n, sizeof n, FARCALL_INT, 1},
                            {ends, sizeof ends, FARCALL_INT, 1},
                            {x, sizeof x, FARCALL_DOUBLE, 1},
                            {&sum, sizeof sum, FARCALL_DOUBLE, 0}};

  if (farcall_call_values(total, values, 4) != FARCALL_OK || sum != 3)
    return printf("%s\\n", farcall_error_message()), 1;
  values[1].data = other, values[1].bytes = sizeof other, values[1].kind = FARCALL_DOUBLE;
  if (farcall_call_values(total, values, 4) != FARCALL_ARGUMENT)
    return 2;
  printf("%s\\n", farcall_error_message());
  /* Nothing is read at the address of what has no type. */
  values[1].data = (void *)8, values[1].bytes = 8, values[1].kind = FARCALL_REFUSED;
  if (farcall_call_values(total, values, 4) != FARCALL_ARGUMENT)
    return 3;
  printf("%s\\n", farcall_error_message());
  farcall_disconnect(server);
  return 0;
}
"""


def test_elements_that_decide_sizes_have_the_type_of_the_interface(start, tmp_path):
    """Sizes were read from arrays of another type, and from what has none."""
    (tmp_path / "ends.idl").write_text(ENDS)
    (tmp_path / "ends.c").write_text(OTHER_ENDS)
    program = compile_c(tmp_path / "ends.c", tmp_path / "ends")
    ran = run(program, start(tmp_path / "ends.idl", options=["--allow-code"]).address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    expected = "ends/total: argument `ends`: expected an array of int, given"
    assert ran.stdout.splitlines() == [
        f"{expected} 2 of double",
        f"{expected} a type that no argument has",
    ]


def frozen():
    """The functions of the shared library, by version."""
    text = (ROOT / "bindings" / "c" / "farcall.map").read_text()
    nodes = re.findall(r"(FARCALL_[0-9.]+) \{(.*?)\}", text, re.DOTALL)
    return {
        name: version
        for version, body in nodes
        for name in re.findall(r"^    (\w+);$", body, re.MULTILINE)
    }


def test_the_library_exports_what_is_frozen_and_nothing_else():
    library = BUILT / "libfarcall.so.1"
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    found = dict(re.findall(r" [TBD] (\w+)@@(FARCALL_[0-9.]+)", symbols))
    assert found == frozen()
    # What drop-in libraries of `farcall offload` load is in no header and not frozen.
    offload = set(re.findall(r" T (\w+)@@FARCALL_OFFLOAD_1", symbols))
    names = ("add", "real", "status", "take", "watched")
    assert offload == {f"farcall_offload_{name}" for name in names}
    defined = [line for line in symbols.splitlines() if " A FARCALL_" not in line]
    assert len(defined) == len(found) + len(offload), symbols
    dynamic = subprocess.run(
        ["readelf", "-d", library], check=True, capture_output=True, text=True
    ).stdout
    assert "soname: [libfarcall.so.1]" in dynamic


def test_the_headers_declare_just_that():
    declared = set()
    for header in ("farcall.h", "grpc.h", "ninf.h", "ninf_error.h", "ninf_stub.h", "ninfg/grpc.h"):
        text = re.sub(r"/\*.*?\*/", "", (INCLUDE / header).read_text(), flags=re.DOTALL)
        text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
        declared |= set(re.findall(r"\b((?:farcall|grpc|Ninf)_\w+|\w*id_set\w*)\(", text))
        declared |= set(re.findall(r"^extern int (\w+);", text, flags=re.MULTILINE))
    # gfortran writes names small, with a low line at the end.
    fortran = (INCLUDE / "ninfg" / "grpc_fortran.inc").read_text().lower()
    names = re.findall(r"external (?:::)?\s*(grpc_\w+)", fortran.replace(",", ""))
    declared |= {f"{name}_" for name in names}
    assert declared == set(frozen())


def test_a_call_is_estimated_without_a_question_for_each(start, tmp_path):
    process = start(ROOT / "libraries" / "blas.idl")
    source = ROOT / "testing" / "e2e" / "estimate.c"
    ran = run(compile_c(source, tmp_path / "estimate"), process.address)
    assert (ran.returncode, ran.stdout) == (0, "estimated\n"), ran


@pytest.mark.parametrize("compiler", [["cc", "-std=c11"]], ids=["c11"])
def test_types_and_numbers_are_those_that_are_frozen(tmp_path, compiler):
    source = ROOT / "testing" / "e2e" / "abi.c"
    assert run(compile_c(source, tmp_path / "abi", compiler=compiler)).returncode == 0


def test_an_installed_library_is_found_by_pkg_config(library_server, tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    make = ["make", "-s", "-C", ROOT / "bindings" / "c", "install", f"BUILT={tmp_path}/built"]
    built = tmp_path / "built"
    built.mkdir()
    shutil.copy(BUILT / "libfarcall.a", built)
    subprocess.run([*make, f"PREFIX={tmp_path}/usr"], check=True, timeout=60)
    config = tmp_path / "usr" / "lib" / "pkgconfig"
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "farcall"],
        check=True,
        capture_output=True,
        text=True,
        env={"PKG_CONFIG_PATH": str(config), "PATH": "/usr/bin:/bin"},
    ).stdout.split()
    assert f"-I{tmp_path}/usr/include/farcall" in flags
    program = tmp_path / "dgesv"
    source = ROOT / "testing" / "e2e" / "dgesv.c"
    subprocess.run(["cc", source, *flags, "-lm", "-o", program], check=True, timeout=60)
    ran = run(program, library_server.address, LD_LIBRARY_PATH=str(tmp_path / "usr" / "lib"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
