"""Durable calls from Python, C and the command, and across a restart of the server."""

import json
import pickle
import subprocess

import farcall
import numpy as np
import pytest
from programs import compile_c, run
from servers import FARCALL, LIBRARIES, ROOT, wait_until


@pytest.fixture
def state(tmp_path):
    """The options of a server that takes durable calls."""
    return ["--state", str(tmp_path / "state"), "--workers", "2"]


def command(server, *words):
    """The output of a command."""
    ran = subprocess.run(
        [FARCALL, *map(str, words), "--server", server.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def system(n, seed=1):
    rng = np.random.default_rng(seed)
    a = np.asfortranarray(rng.random((n, n)) + n * np.eye(n))
    return a, rng.random(n)


def test_a_call_outlives_its_connection_and_the_server(start, state):
    n = 50
    a, b = system(n)
    kept = b.copy()
    first = start(LIBRARIES / "lapack.idl", options=state)
    dgesv = first.connect().function("dgesv")
    job = dgesv.submit(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n)
    assert (b == kept).all()
    assert job.fetch(timeout=30).info == 0
    first.process.kill()
    first.process.wait()
    server = start(LIBRARIES / "lapack.idl", options=state).connect()
    (status,) = server.jobs()
    assert (status.id, status.state, status.function) == (job.id, "done", "lapack/dgesv")
    assert status.submitted <= status.started <= status.ended < status.expires
    again = server.job(job.id)
    result = again.fetch()
    assert result._fields == ("a", "ipiv", "b", "info")
    assert np.allclose(a @ result.b.ravel(), b)
    x = np.empty(n)
    filled = pickle.loads(pickle.dumps(again)).fetch(into={"b": x})
    assert filled.b is x
    assert np.allclose(a @ x, b)
    assert again.forget().state == "done"
    assert server.jobs() == []
    with pytest.raises(farcall.ServerError, match="no durable call") as raised:
        again.fetch()
    assert raised.value.fault == "caller"


def test_what_cannot_be_fetched_says_why(start, state, nap_idl):
    process = start(nap_idl, options=[*state[:2], "--workers", "1"])
    server = process.connect()
    nap = server.function("nap")
    crashed = server.function("segfault").submit(1)
    with pytest.raises(farcall.LibraryError):
        crashed.fetch(timeout=30)
    assert crashed.status.state == "failed"
    assert "segfault" in crashed.status.failure
    long, waiting = nap.submit(600_000), nap.submit(1)
    wait_until(lambda: long.status.state == "running", what="the first one runs")
    with pytest.raises(farcall.TimeoutError):
        waiting.fetch(timeout=0.05)
    assert waiting.cancel().state == "cancelled"
    with pytest.raises(farcall.ServerError, match="cancelled"):
        waiting.fetch()
    assert long.cancel().state == "cancelled"
    short = pickle.loads(pickle.dumps(nap.with_retention(hours=1))).submit(1)
    assert short.fetch(timeout=30).slept == 1
    assert short.status.expires - short.status.ended == pytest.approx(3600, abs=1)
    with pytest.raises(farcall.ArgumentError, match="expected hours greater than 0, given -1"):
        nap.with_retention(-1)
    with pytest.raises(farcall.ArgumentError, match=r"fetch\(\) makes it"):
        nap.submit(1, np.empty(1, np.int32))
    with pytest.raises(farcall.ArgumentError, match="not an OUT or INOUT argument"):
        short.fetch(into={"wrong": np.empty(1)})
    with pytest.raises(farcall.ArgumentError, match="hexadecimal"):
        server.job("nothing")


def test_a_part_of_a_matrix_is_submitted_as_a_matrix(start, state):
    n = 4
    a, b = system(n)
    large = np.full((2 * n, n), 7.0, order="F")
    large[:n] = a
    server = start(LIBRARIES / "lapack.idl", options=state).connect()
    job = server.function("dgesv").submit(nrhs=1, a=large[:n], b=b, ldb=n)
    result = job.fetch(timeout=30)
    assert result.a.shape == (n, n)
    assert np.allclose(a @ result.b.ravel(), b)


def test_results_do_not_overwrite_each_other(start, state):
    n = 4
    a, b = system(n)
    server = start(LIBRARIES / "lapack.idl", options=state).connect()
    job = server.function("dgesv").submit(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n)
    expected = job.fetch(timeout=30)
    for room, rows in (np.zeros((2 * n, n)), slice(0, None, 2)), (np.zeros((n, n)), slice(None)):
        with pytest.raises(farcall.ArgumentError, match="share memory"):
            job.fetch(into={"a": room[rows], "b": room[0]})
        assert not room.any()
    # They lie between each other and share nothing.
    room = np.zeros((2 * n, n))
    job.fetch(into={"a": room[::2], "b": room[1]})
    assert np.array_equal(room[::2], expected.a)
    assert np.array_equal(room[1], expected.b.ravel())


def test_a_server_without_a_folder_says_so(start):
    process = start(LIBRARIES / "blas.idl")
    ddot = process.connect().function("ddot")
    with pytest.raises(farcall.ArgumentError, match="--state DIR"):
        ddot.submit(1, [1.0], 1, [1.0], 1)


def test_a_server_without_a_home_folder_says_so(start, tmp_path):
    # An empty variable counts as one that is not set.
    environment = {"HOME": "", "XDG_STATE_HOME": "", "STATE_DIRECTORY": ""}
    options = ["--unix", str(tmp_path / "socket")]
    server = start(LIBRARIES / "bench.idl", options=options, listen=None, environment=environment)
    assert "no state folder, because neither HOME nor XDG_STATE_HOME is set" in server.log()


def test_the_command(start, state, tmp_path):
    a, b = system(4)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    process = start(LIBRARIES / "lapack.idl", options=state)
    arguments = ["n=4", "nrhs=1", f"a=@{tmp_path}/a.npy", "lda=4"]
    arguments += [f"b=@{tmp_path}/b.npy", "ldb=4"]
    made = command(process, "submit", "dgesv", *arguments, "--keep", 1, "--json")
    made = json.loads(made)
    assert (made["schema"], made["function"]) == (1, "lapack/dgesv")
    shown = command(process, "fetch", made["id"], "-o", f"b={tmp_path}/x.npy", "--time")
    assert "EXEC" in shown
    assert np.allclose(a @ np.load(tmp_path / "x.npy").ravel(), b)
    (job,) = json.loads(command(process, "jobs", "--json"))["jobs"]
    assert (job["id"], job["state"]) == (made["id"], "done")
    assert job["expires"] - job["ended"] == pytest.approx(3600, abs=1)
    assert f"{made['id']}  done" in command(process, "jobs")
    assert command(process, "cancel", made["id"], "--forget") == "done\n"
    assert command(process, "jobs") == ""


def test_from_c(start, state, tmp_path):
    program = compile_c(ROOT / "testing" / "e2e" / "jobs.c", tmp_path / "jobs")
    sparse = tmp_path / "sparse.idl"
    sparse.write_text(
        "Define total(IN int n, IN int ends[n + 1], IN double x[ends[n]], OUT double *sum)\n"
        "{ *sum = 0; for (int i = 0; i < ends[n]; i++) *sum += x[i]; }\n"
        "Define spelled(IN int n, IN string words[n], OUT int *length)\n"
        "{ *length = 0; for (int i = 0; i < n; i++) *length += (int)strlen(words[i]); }\n"
    )
    process = start(LIBRARIES / "lapack.idl", sparse, options=[*state, "--allow-code"])
    submitted = run(program, process.address)
    assert submitted.returncode == 0, submitted.stdout
    fetched = run(program, process.address, submitted.stdout.strip())
    assert fetched.returncode == 0, fetched.stdout
    assert "the scalars differ from those" in fetched.stdout
    assert "no durable call" in fetched.stdout


MIXED = """\
Module mixed;
Define mixed(IN char c, IN float f, IN double d, IN scomplex z, OUT double *sum)
{ (void)z; *sum = c + (d != d) + (f == 0.1f); }
"""
FETCH = """\
#include "farcall.h"
#include <math.h>
#include <stdio.h>

int main(int argc, char **argv) {
  farcall_server *server = argc == 3 ? farcall_connect(argv[1]) : NULL;
  farcall_scomplex z = 0.1f;
  double sum = 0;

  if (farcall_fetch(server, "mixed", argv[2], 'N', 0.1f, NAN, z, &sum) != FARCALL_OK)
    return printf("%s\\n", farcall_error_message()), 1;
  printf("%g\\n", sum);
  if (farcall_fetch(server, "mixed", argv[2], 'T', 0.1f, NAN, z, &sum) != FARCALL_ARGUMENT ||
      farcall_fetch(server, "mixed", argv[2], 'N', 0.2f, NAN, z, &sum) != FARCALL_ARGUMENT ||
      farcall_fetch(server, "mixed", argv[2], 'N', 0.1f, 0.0, z, &sum) != FARCALL_ARGUMENT)
    return printf("another scalar was taken\\n"), 1;
  farcall_disconnect(server);
  return 0;
}
"""


def test_c_fetches_what_python_has_submitted(start, state, tmp_path):
    """A character is a text there, its numbers have more digits, and NaN equals nothing."""
    (tmp_path / "mixed.idl").write_text(MIXED)
    (tmp_path / "fetch.c").write_text(FETCH)
    process = start(tmp_path / "mixed.idl", options=[*state, "--allow-code"])
    mixed = process.connect().function("mixed")
    job = mixed.submit(c="N", f=0.1, d=float("nan"), z=0.1)
    ran = run(compile_c(tmp_path / "fetch.c", tmp_path / "fetch"), process.address, job.id)
    assert (ran.returncode, ran.stdout) == (0, f"{ord('N') + 2}\n"), ran


def test_durable_calls_that_waited_on_disk_see_zeros_outside_of_a_section(start, state, tmp_path):
    """Their call buffers have served other calls."""
    config = tmp_path / "farcall.toml"
    config.write_text("[limits]\nmemory = 8388608\n")
    idl = ROOT / "testing" / "e2e" / "travel.idl"
    options = [*state, "--allow-code", "--config", str(config)]
    shrunk = start(idl, options=options).connect().function("shrunk")
    n, lda = 200, 400
    calls = [shrunk.submit(n=n, lda=lda, a=np.ones((n, lda))) for _ in range(20)]
    assert [call.fetch(timeout=60).outside for call in calls] == [0] * 20
