"""GridRPC and the Ninf names, in C: every function, every error code, threads, leaks."""

import contextlib
import re
import shutil
import socket
import sys
import threading

import pytest
from programs import INCLUDE, compile_c, run
from servers import ROOT, ServerProcess

E2E = ROOT / "testing" / "e2e"
LANGUAGES = ROOT / "testing" / "conformance" / "languages.idl"
SMALL = "[limits]\nmemory = 8000000\ncalls_per_connection = 4096\n"


@pytest.fixture(scope="module")
def languages(tmp_path_factory):
    """A server of languages.idl with little memory for calls."""
    config = tmp_path_factory.mktemp("server") / "farcall.toml"
    config.write_text(SMALL)
    server = ServerProcess(LANGUAGES, options=["--config", str(config), "--workers", "8"])
    yield server
    assert server.process.poll() is None, server.log()
    server.stop()


@pytest.fixture(scope="module", params=["plain", "valgrind"])
def checked(request):
    """The tool under which a program runs."""
    if request.param == "plain":
        return []
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed: leaks are not looked for")
    return [
        *("valgrind", "--quiet", "--leak-check=full", "--show-leak-kinds=definite,indirect"),
        *("--errors-for-leak-kinds=definite,indirect", "--error-exitcode=99"),
    ]


def test_every_function_and_error_code(languages, start, tmp_path, checked):
    config, wrong = tmp_path / "client.toml", tmp_path / "wrong.toml"
    config.write_text(f'[client]\nserver = "{languages.address}"\nconnect_timeout = 20\n')
    wrong.write_text("[client]\nsurver = 1\n")
    doomed = start(LANGUAGES)
    program = compile_c(E2E / "gridrpc.c", tmp_path / "gridrpc")
    ran = run(
        *checked,
        program,
        languages.address,
        doomed.address,
        doomed.process.pid,
        config,
        wrong,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def ninf(folder, address):
    """The program of Ninf's names, its server, and a map whose third line has no port."""
    (folder / "map").write_text("# hosts\nnode1 3717\nnode2\n")
    program = compile_c(E2E / "ninf.c", folder / "ninf")
    return [program, f"ninf://{address}/conformance", folder / "map"]


def test_ninf_names(languages, tmp_path, checked):
    address = languages.address.removeprefix("farcall://")
    host, port = address.rsplit(":", 1)
    ran = run(*checked, *ninf(tmp_path, address), "-server", host, "-port", port)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "map: line 3: write a host and a port" in ran.stderr
    assert "what: there is" not in ran.stderr
    assert "argument `x`: expected an array of double, given NULL" in ran.stderr


def test_more_names_of_ninf(tmp_path, checked):
    """Groups use the hosts of a file, of which one is away."""
    servers = [ServerProcess(E2E / "ninf_more.idl", options=["--allow-code"]) for _ in range(2)]
    ports = [server.address.rsplit(":", 1)[1] for server in servers]
    hosts = [f"127.0.0.1 {port}\n" for port in [*ports, "1"]]
    (tmp_path / "map").write_text("# hosts and ports\n" + "".join(hosts))
    program = compile_c(E2E / "ninf_more.c", tmp_path / "ninf_more")
    options = ["-server", "127.0.0.1", "-port", ports[0], "-map", tmp_path / "map"]
    files = tmp_path / "files"
    files.mkdir()
    ran = run(*checked, program, *options, TMPDIR=str(files))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert not list(files.iterdir())
    for server in servers:
        server.stop()


FORMS = """\
#include <ninf_stub.h>

int main(void) {
  int (*any)(void) = Ninf_wait_any, ids[2] = {1, 2}, id = 1, sum;
  sum = any() + Ninf_wait_any() + Ninf_wait_or(ids, 2);
  sum += Ninf_wait_any(&id) + id;
  id = 1;
  return sum + Ninf_wait_or(ids, 2, &id) + id;
}
"""


@pytest.mark.parametrize(
    "compiler",
    [["cc", "-std=c99"], ["cc", "-std=gnu11"], ["c++", "-x", "c++", "-std=c++11"]],
    ids=["c99", "gnu11", "c++11"],
)
def test_both_forms_of_ninf_wait_compile_in_every_standard(tmp_path, compiler):
    (tmp_path / "forms.c").write_text(FORMS)
    words = [*compiler, "-pedantic"]
    program = compile_c(tmp_path / "forms.c", tmp_path / "forms", compiler=words)
    ran = run(program)
    assert ran.returncode == 0, ran.stderr


CUT = """\
Module cut;
Define increase(IN int n, INOUT double x[n]) { int i; for (i = 0; i < n; i++) x[i] += 1; }
"""


def test_a_call_of_a_group_runs_again_from_the_same_array(start, tmp_path):
    """The first results are cut when half of them have arrived."""
    (tmp_path / "cut.idl").write_text(CUT)
    server = start(tmp_path / "cut.idl", options=["--allow-code"])
    host, port = server.address.removeprefix("farcall://").rsplit(":", 1)
    program = compile_c(E2E / "group.c", tmp_path / "group")
    # Another network: the program cannot use the server's Unix socket.
    network = ["unshare", "--net", "--map-root-user"]
    if run(*network, "true").returncode != 0:
        pytest.skip("no network namespaces")
    with contextlib.ExitStack() as stack:
        connect = socket.create_connection
        sockets = [stack.enter_context(connect((host, int(port)))) for _ in range(4)]
        descriptors = [each.fileno() for each in sockets]
        words = [*network, sys.executable, E2E / "cut.py", 8_000_000, *descriptors, "--", program]
        ran = run(*words, pass_fds=descriptors)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert sorted(ran.stdout.splitlines()) == ["0 wrong", "cut"], ran.stdout + ran.stderr


PERROR = """\
#include <ninf.h>
#include <stdio.h>

int main(void) {
  Ninf_call("nothing");
  Ninf_perror("full");
  Ninf_perror(NULL);
  puts("done");
  return 0;
}
"""


def test_an_error_is_printed_where_standard_error_is_full(languages, tmp_path):
    (tmp_path / "perror.c").write_text(PERROR)
    program = compile_c(tmp_path / "perror.c", tmp_path / "perror")
    ran = run("sh", "-c", f"{program} 2>/dev/full", FARCALL_SERVER=languages.address)
    assert (ran.returncode, ran.stdout) == (0, "done\n")
    ran = run(program, FARCALL_SERVER=languages.address)
    assert re.fullmatch(r"full: (.*`nothing`.*\n)\1", ran.stderr), ran.stderr


def test_the_ninf_environment_is_honoured(languages, tmp_path):
    address = languages.address.removeprefix("farcall://")
    host, port = address.rsplit(":", 1)
    words = ninf(tmp_path, address)
    ran = run(*words, NINF_SERVER=host, NINF_SERVER_PORT=port)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = run(*words, FARCALL_SERVER=languages.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = run(*words, NINF_SERVER=host, NINF_SERVER_PORT="1")
    assert ran.returncode == 1
    assert "cannot connect" in ran.stderr


def test_sessions(languages, start, tmp_path, checked):
    program = compile_c(E2E / "sessions.c", tmp_path / "sessions")
    other = start(LANGUAGES)
    environment = {"FARCALL_SERVER": languages.address}
    ran = run(*checked, program, languages.address, other.address, timeout=110, **environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_strings_that_come_back(languages, tmp_path, checked):
    program = compile_c(E2E / "texts.c", tmp_path / "texts")
    ran = run(*checked, program, languages.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_name_of_the_headers_is_left_out():
    text = "".join(path.read_text() for path in sorted(E2E.glob("*.c")))
    # The names for Fortran: gfortran writes them small, with a low line at the end.
    fortran = (E2E / "ninfg.f").read_text().lower()
    text += re.sub(r"\bgrpc_\w+", lambda found: found[0] + "_", fortran)
    declared = (ROOT / "bindings" / "c" / "farcall.map").read_text()
    # What drop-in libraries load is in no header.
    declared = declared.split("\nFARCALL_OFFLOAD_1 ")[0]
    names = set(re.findall(r"^    (\w+);$", declared, re.MULTILINE))
    names |= set(re.findall(r"^  (GRPC_\w+) = ", (INCLUDE / "grpc.h").read_text(), re.MULTILINE))
    assert len(names) > 90
    unused = {name for name in names if not re.search(rf"\b{name}\b", text)}
    assert not unused


def test_more_sessions_than_are_remembered(languages, tmp_path):
    program = compile_c(E2E / "many.c", tmp_path / "many")
    ran = run(program, languages.address, timeout=110)
    assert ran.returncode == 0, ran.stdout + ran.stderr


WAITS = """\
#include <farcall.h>
#include <stdio.h>
#include <time.h>

enum { CALLS = 16000 };

static int32_t slept[CALLS];

static double processor(void) { return (double)clock() / CLOCKS_PER_SEC; }

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argv[argc - 1]);
  farcall_function *nap = farcall_function_of(server, "nap");
  farcall_session sessions[CALLS], which;
  double began, spent[4];
  int kind, i;

  for (kind = 0; kind < 4; kind++) {
    for (i = 0; i < CALLS; i++)
      if ((sessions[i] = farcall_invoke_async(nap, 0, &slept[i])) == 0)
        return 1;
    began = processor();
    if (kind == 0)
      for (i = 0; i < CALLS; i++)
        farcall_wait(sessions[i], -1);
    else if (kind == 1)
      farcall_wait_and(sessions, CALLS, -1);
    else if (kind == 2)
      farcall_wait_all(server, -1);
    else
      for (which = 1; which != 0;)
        if (farcall_wait_any(server, -1, &which) != FARCALL_OK)
          return 2;
    spent[kind] = processor() - began;
    for (i = 0; i < CALLS; i++)
      if (farcall_probe(sessions[i]) != FARCALL_OK)
        return 3;
  }
  printf("%f %f %f %f\\n", spent[0], spent[1], spent[2], spent[3]);
  farcall_disconnect(server);
  return 0;
}
"""


def test_a_wait_for_thousands_of_calls_costs_little_more_than_one_for_each(start, tmp_path):
    """It looked at all of them whenever one had ended, which took 40 times as long."""
    (tmp_path / "waits.c").write_text(WAITS)
    program = compile_c(tmp_path / "waits.c", tmp_path / "waits")
    ran = run(program, start(LANGUAGES).address, timeout=110)
    assert ran.returncode == 0, ran.stderr
    each, *together = (float(spent) for spent in ran.stdout.split())
    assert max(together) < 12 * each, ran.stdout


TURNS = """\
Module turns;
Define turn(IN int ms, tell(IN int ms)) { usleep(1000 * ms); tell(ms); }
"""
TELLS = """\
#include <ninf.h>
#include <stdio.h>

static void tell(int ms) { printf("%d\\n", ms); }

int main(void) {
  Ninf_group_t *group = Ninf_group_init("turn");
  int each[] = {0, 2000}, i;

  for (i = 0; i < 2; i++)
    if (Ninf_group_call_async(group, each[i], tell) == NINF_ERROR)
      return 1;
  return Ninf_group_wait_all(group) != NINF_OK;
}
"""


def test_the_calls_of_a_group_go_on_together(start, tmp_path):
    """A wait for one of them left the callbacks, arguments and results of the others behind."""
    (tmp_path / "turns.idl").write_text(TURNS)
    (tmp_path / "tells.c").write_text(TELLS)
    server = start(tmp_path / "turns.idl", options=["--allow-code", "--workers", "2"])
    program = compile_c(tmp_path / "tells.c", tmp_path / "tells")
    ran = run(program, FARCALL_SERVER=server.address)
    assert (ran.returncode, ran.stdout) == (0, "0\n2000\n"), ran.stderr


AWAY = """\
#include <ninf.h>

int main(int argc, char **argv) {
  Ninf_group_t *group;
  int slept[6], i;

  Ninf_parse_arg(argc, argv);
  group = Ninf_group_init("nap");
  for (i = 0; i < 6; i++)
    if (!group || Ninf_group_call_async(group, 0, &slept[i]) == NINF_ERROR)
      return 1;
  return Ninf_group_wait_all(group) != NINF_OK;
}
"""


def test_a_host_that_is_away_is_not_asked_for_every_call(languages, tmp_path):
    """Each attempt may take ten seconds."""
    (tmp_path / "away.c").write_text(AWAY)
    program = compile_c(tmp_path / "away.c", tmp_path / "away")
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse():
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()
                    asked.append(1)

        thread = threading.Thread(target=refuse)
        thread.start()
        ports = [listener.getsockname()[1], languages.address.rsplit(":", 1)[1]]
        (tmp_path / "map").write_text("".join(f"127.0.0.1 {port}\n" for port in ports))
        ran = run(program, "-map", tmp_path / "map")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    # One attempt connects a few times; there were four attempts.
    assert (ran.returncode, len(asked) < 10) == (0, True), (len(asked), ran.stderr)
