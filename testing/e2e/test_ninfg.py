"""Clients and interface files that were written for Ninf-G 5."""

import os
import re
import shutil
import subprocess

import farcall
import numpy as np
import pytest
from programs import INCLUDE, LINK, compile_c, run
from servers import FARCALL, ROOT, ServerProcess

HERE = ROOT / "testing" / "e2e"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ninfg")
    (folder / "include").mkdir()
    shutil.copy(HERE / "ninfg.idl", folder)
    shutil.copy(HERE / "ninfg_sizes.h", folder / "include")
    options = ["--allow-code", "-I", folder / "include", "-D", "SCALE=10"]
    process = ServerProcess(folder / "ninfg.idl", options=map(str, options))
    yield process
    assert process.process.poll() is None, process.log()
    process.stop()


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="gfortran is not installed")
def test_a_client_in_fortran(tmp_path):
    process = ServerProcess(HERE / "ninfg_fortran.idl", options=["--allow-code"])
    # One name is called with arguments of different types.
    compiler = ["gfortran", "-O1", "-fallow-argument-mismatch", "-w", f"-I{INCLUDE / 'ninfg'}"]
    program = tmp_path / "client"
    subprocess.run([*compiler, HERE / "ninfg.f", *LINK, "-o", program], check=True, timeout=60)
    port = process.address.rsplit(":", 1)[1]
    # The first server is the default one, and each has its port.
    (tmp_path / "client.conf").write_text(
        f"<SERVER>\n  hostname 127.0.0.1\n  port {port} # ours\n</SERVER>\n"
        "<SERVER>\n  hostname example.org\n  port 1\n</SERVER>\n"
    )
    ran = run(program, tmp_path / "client.conf")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # GRPC_PERROR_NP says why a call was refused.
    assert re.search(r"^back: fortran/back: .*callback", ran.stderr, re.MULTILINE), ran.stderr
    process.stop()


def test_a_client_compiles_and_runs_unchanged(server, tmp_path):
    compiler = ("cc", "-std=gnu11", f"-I{INCLUDE / 'ninfg'}")
    program = compile_c(HERE / "ninfg.c", tmp_path / "client", compiler=compiler)
    host = server.address.removeprefix("farcall://")
    name, port = host.rsplit(":", 1)
    (tmp_path / "client.conf").write_text(
        f"# a client of Ninf-G\n<CLIENT>\n  loglevel 1\n</CLIENT>\n"
        f"<SERVER>\n  hostname {name}\n  port {port}\n</SERVER>\n"
    )
    for index in range(2):
        (tmp_path / f"from-{index}").write_text("abc"[index:])
    ran = subprocess.run(
        [program, "client.conf"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={key: value for key, value in os.environ.items() if "SERVER" not in key},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [(tmp_path / f"to-{index}").read_text() for index in range(2)] == ["bcd", "cd"]


def test_the_same_functions_from_python(server, tmp_path):
    client = server.connect()
    doubled = client.function("ninfg/doubled")
    a = np.arange(4.0)
    np.testing.assert_array_equal(doubled(N=4, a=a, twice=lambda c: 2 * c).b, 2 * a)
    assert "callable (c, d)" in doubled.__doc__
    heard = []
    words = client.function("ninfg/words")
    result = words(["a", "b", "c"], told=heard.extend)
    assert (result.out, result.first, heard) == (["constant", "b"], "a", ["a", "and"])
    with pytest.raises(farcall.ArgumentError, match="texts without NUL"):
        words(["\0", "b", "c"], told=heard.extend)
    for index in range(2):
        (tmp_path / f"in{index}").write_text("xy"[index:])
    files = [[str(tmp_path / f"{kind}{index}") for index in range(2)] for kind in ("in", "out")]
    client.call("ninfg/files", 2, *files)
    assert [(tmp_path / f"out{index}").read_text() for index in range(2)] == ["yz", "z"]


def test_idl_check_takes_folders_and_macros(tmp_path):
    (tmp_path / "i").mkdir()
    (tmp_path / "i" / "n.h").write_text("#define SIZE [n]\n")
    (tmp_path / "a.idl").write_text('#include "n.h"\nDefine f(IN T n, IN double x SIZE) {}\n')
    words = [FARCALL, "idl", "check", "a.idl"]
    failed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "n.h" in failed.stdout
    words += ["-I", "i", "-DT=int"]
    passed = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert passed.returncode == 0, passed.stdout


BOTH = """\
#include <ninfg/grpc.h>
#include <farcall.h>

static void twice(double *x, double *y) {
  for (int i = 0; i < 4; i++)
    y[i] = 2 * x[i];
}

static void told(char **both) { puts(both[0]); }

int main(int argc, char **argv) {
  static char rooms[3][5000];
  double a[4] = {1, 2, 3, 4}, b[4] = {0};
  const char *in[] = {"one", "two", "three"};
  char *out[] = {rooms[0], rooms[1]}, *first[] = {rooms[2]};
  farcall_server *server = farcall_connect(argv[argc - 1]);

  if (grpc_initialize(NULL) != GRPC_NO_ERROR)
    return 1;
  if (farcall_call(server, "ninfg/doubled", 4, a, b, twice) != FARCALL_OK)
    return 2;
  if (farcall_call(server, "ninfg/words", in, out, first, told) != FARCALL_OK)
    return 3;
  if (strcmp(rooms[0], "constant") != 0 || strcmp(rooms[1], "two") != 0 || out[0] != rooms[0])
    return 4;
  farcall_disconnect(server);
  return b[0] != 2 || b[3] != 8;
}
"""


def test_a_program_may_use_farcall_h_too(server, tmp_path):
    """Its calls pass nothing for WORK, and have memory for texts that come back."""
    (tmp_path / "both.c").write_text(BOTH)
    program = compile_c(tmp_path / "both.c", tmp_path / "both")
    ran = run(program, server.address)
    assert ran.returncode == 0, ran.stderr


CONFIGURED = """\
#include <ninfg/grpc.h>
#include <farcall.h>

int main(int argc, char **argv) {
  const grpc_error_t error = grpc_initialize(argv[argc - 1]);
  printf("%d %s\\n", error, farcall_error_message());
  return 0;
}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<SERVER>\n  hostname a\n", "line 1: this section has no end `</SERVER>`"),
        ("# two\n<SERVER>\n hostname a\n<SERVER>\n hostname b\n</SERVER>\n", "line 2: this sec"),
        (
            "<CLIENT>\n</CLIENT>\n<SERVER>\n  port 1\n</SERVER>\n",
            "line 3: this `<SERVER>` has no host",
        ),
        ("<server> # ours\n\thostname\ta\t# here\n</server>\t# end\n", None),
    ],
)
def test_a_server_of_a_configuration_is_not_left_out(tmp_path, text, said):
    """The program would have used the server of this machine."""
    (tmp_path / "configured.c").write_text(CONFIGURED)
    (tmp_path / "client.conf").write_text(text)
    program = compile_c(tmp_path / "configured.c", tmp_path / "configured")
    ran = run(program, tmp_path / "client.conf")
    configfile_error = 3
    code, _, message = ran.stdout.partition(" ")
    assert int(code) == (configfile_error if said else 0), ran.stdout
    assert (said or "") in message, ran.stdout
