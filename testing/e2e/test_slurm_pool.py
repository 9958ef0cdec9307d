"""Pools of servers in Slurm: a Slurm of its own, real jobs, and calls while servers come and go."""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time

import farcall
import pytest
from servers import FARCALL, ROOT, stop, wait_until

NAP = f"""\
Module test;
Library "{ROOT}/testing/faults/libfarcall_faults.so";
Define nap(IN int ms, OUT int *slept) "Sleep" Repeatable "yes" CalcOrder ms
    Calls "C" fault_sleep(ms, slept);
"""


@pytest.fixture(scope="module")
def slurm():
    """A Slurm with one node of four processors, which is this machine."""
    sys.path.insert(0, str(ROOT / "benches" / "gang"))
    module = importlib.import_module("slurm")
    subprocess.run([ROOT / "scripts" / "setup", "slurm"], check=False, timeout=250)
    if reason := module.why_not():
        pytest.skip(f"slurm: {reason}")
    with module.cluster(nodes=1, cpus=4) as folder:
        yield folder


@pytest.fixture
def interface(tmp_path):
    """The interface file of `nap`."""
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    return idl


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    """A file with the token of ann, who this program is."""
    words = [FARCALL, "access", "token", "add", tmp_path / "tokens", "ann"]
    made = subprocess.run(words, capture_output=True, text=True, check=True, timeout=30)
    monkeypatch.setenv("FARCALL_TOKEN", made.stdout.split()[0])
    return tmp_path / "tokens"


def jobs():
    """The numbers and states of the jobs that Slurm has."""
    words = ["squeue", "--noheader", "--format", "%i %T"]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return dict(line.split() for line in told.stdout.splitlines())


def running():
    return [job for job, state in jobs().items() if state == "RUNNING"]


def servers(address):
    """The calls at each server that takes calls, by its address."""
    words = [FARCALL, "status", address, "--json"]
    told = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(told.stdout)["servers"]
    return {one["address"]: one["calls"] for one in found if one["state"] == "serving"}


QUICK = ["--every", "0.2", "--idle", "1.5", "--backlog", "1"]


@contextlib.contextmanager
def pool(interface, folder, *options):
    """`farcall up --slurm`; yields its address and its standard error output as a file."""
    words = [FARCALL, "up", "--slurm", interface, "--listen", "127.0.0.1:0", *QUICK, *options]
    words += ["--slurm-folder", folder, "--pes", "1"]
    words += [] if "--lead" in options else ["--lead", "5"]
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            list(map(str, words)), stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on "), (folder / "log").read_text()
            yield "meta://" + line.split("//")[1].strip()
        finally:
            stop(process, 40)
            process.stdout.close()
    wait_until(lambda: not jobs(), 60, "the end of the jobs")


@pytest.mark.usefixtures("slurm")
def test_a_pool_grows_with_the_backlog_and_shrinks_when_it_is_idle(interface, tmp_path):
    with pool(interface, tmp_path, "--min", "0", "--max", "2") as address:
        wait_until(lambda: servers(address), what="the server on this machine")
        assert jobs() == {}
        nap = farcall.connect(address).function("nap")
        # The server learns how long a call takes.
        assert nap(100).slept == 100
        pending = [nap.call_async(1000) for _ in range(6)]
        wait_until(lambda: len(servers(address)) == 3, 60, "two servers of Slurm")
        assert len(jobs()) == 2
        # New calls go to them.
        began = [nap.call_async(1500) for _ in range(3)]
        wait_until(lambda: all(servers(address).values()), what="calls at each server")
        assert [future.result().slept for future in began] == [1500] * 3
        assert [future.result().slept for future in pending] == [1000] * 6
        wait_until(lambda: not jobs(), 60, "that unused servers leave")
        assert len(servers(address)) == 1
        assert nap(1).slept == 1
    log = (tmp_path / "log").read_text()
    assert log.count("is asked for") == log.count("serves at") == log.count("drains") == 2, log


@pytest.mark.usefixtures("slurm")
def test_calls_survive_servers_that_slurm_kills(interface, tmp_path):
    with pool(interface, tmp_path, "--min", "2", "--max", "3") as address:
        wait_until(lambda: len(servers(address)) == 2, 60, "two servers of Slurm")
        nap = farcall.connect(address).function("nap")
        pending = [nap.call_async(700) for _ in range(8)]
        first = running()
        assert len(first) == 2
        words = ["scancel", "--signal=KILL", "--full", first[0]]
        subprocess.run(words, check=True, timeout=60)
        assert [future.result().slept for future in pending] == [700] * 8
        # Another one takes its place.
        wait_until(lambda: len(set(running()) - {first[0]}) >= 2, 60, "another server")


@pytest.mark.usefixtures("slurm")
def test_servers_drain_before_their_time_ends(interface, tmp_path):
    options = ["--min", "1", "--max", "4", "--slurm-option=--time=1", "--lead", "30"]
    with pool(interface, tmp_path, *options) as address:
        wait_until(lambda: servers(address), 60, "a server of Slurm")
        [before] = running()
        nap = farcall.connect(address).function("nap")
        # A call is under way all the time, and none fails.
        wait_until(
            lambda: nap(200).slept == 200 and before not in running(), 100, "the first one's end"
        )
        assert nap(1).slept == 1
    log = (tmp_path / "log").read_text()
    assert f"job {before} drains" in log, log
    # One, its successor, and at most the next.
    assert log.count("is asked for") <= 3, log


@pytest.mark.usefixtures("slurm")
def test_jobs_that_fail_are_said_and_not_asked_for_again_at_once(interface, tmp_path):
    options = ["--min", "1", "--max", "2", "--local", "1", "--slurm-option=--partition=nowhere"]
    with pool(interface, tmp_path, *options) as address:
        log = tmp_path / "log"
        wait_until(lambda: "Invalid partition" in log.read_text(), 30, "the error")
        assert farcall.connect(address).function("nap")(1).slept == 1
    # It pauses for 5 s, and looks every 0.2 s.
    assert log.read_text().count("Invalid partition") <= 2, log.read_text()


@pytest.mark.usefixtures("slurm")
def test_options_do_not_hide_jobs_from_the_pool(interface, tmp_path):
    hiding = ["--slurm-option=--job-name=mine", "--slurm-option=--output=/dev/null"]
    with pool(interface, tmp_path, "--min", "1", "--max", "1", *hiding) as address:
        wait_until(lambda: servers(address), 60, "a server of Slurm")
        wait_until(lambda: "serves at" in (tmp_path / "log").read_text(), 30, "its address")
    wait_until(lambda: not jobs(), 60, "that the job ends with the pool")


def test_an_open_pool_needs_tokens_and_tls(interface, tokens):
    words = [FARCALL, "up", "--slurm", interface, "--listen", "0.0.0.0:0"]
    for given in [], ["--tokens", tokens, "--server-user", "ann"]:
        ran = subprocess.run(
            [*words, *given], capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 2
        assert "is open to other hosts: add --tokens FILE" in ran.stderr
        assert "--tls FOLDER" in ran.stderr


@pytest.mark.usefixtures("slurm")
def test_a_pool_with_tokens_and_tls(interface, tokens, tmp_path, monkeypatch):
    tls = tmp_path / "certificates"
    words = [FARCALL, "access", "certificate", "server", tls, "127.0.0.1"]
    subprocess.run(words, check=True, capture_output=True, timeout=30)
    monkeypatch.setenv("FARCALL_CA", str(tls / "authority.pem"))
    access = {"tls": tls, "tokens": tokens, "server_user": "ann"}
    pool = farcall.SlurmPool(interface, folder=tmp_path, every=0.2, lead=5, idle=60, **access)
    with pool.adapt(1, 1):
        assert pool.address.startswith("metas://127.0.0.1:")
        wait_until(lambda: servers(pool.address), 60, "a server of Slurm")
        assert all(one.startswith("farcalls://127.0.0.1:") for one in servers(pool.address))
        assert pool.connect().function("nap")(1).slept == 1
        monkeypatch.delenv("FARCALL_TOKEN")
        with pytest.raises(farcall.Error, match="token"):
            pool.connect()
    wait_until(lambda: not jobs(), 60, "the end of the jobs")


@pytest.mark.usefixtures("slurm")
def test_a_pool_of_python(interface, tmp_path):
    pool = farcall.SlurmPool(
        interface, folder=tmp_path, backlog=1, idle=60, lead=5, every=0.2, options=["--time=10"]
    )
    assert repr(pool) == "<farcall.SlurmPool not started>"
    with pytest.raises(RuntimeError, match="call `adapt`"):
        pool.connect()
    with pool.adapt(1, 2):
        assert pool.address.startswith("meta://127.0.0.1:")
        with pytest.raises(RuntimeError, match="has started already"):
            pool.adapt()
        wait_until(lambda: servers(pool.address), 60, "a server of Slurm")
        assert pool.connect().function("nap")(1).slept == 1
    wait_until(lambda: not jobs(), 60, "the end of the jobs")
    assert pool.close() is None


OWNER = """
import sys, time
import farcall

pool = farcall.SlurmPool(sys.argv[1], folder=sys.argv[2], every=0.2).adapt()
pool.connect().function("nap")  # It is there at once.
print(pool.address, flush=True)
time.sleep(100)
"""


def test_one_option_of_slurm_needs_no_list():
    alone, listed = farcall.SlurmPool(options="-p gpu"), farcall.SlurmPool(options=["-p gpu"])
    assert alone._words == listed._words


def test_a_pool_ends_with_its_program(interface, tmp_path):
    """Also if the program is killed. This Slurm has no jobs."""
    for name in "sbatch", "squeue", "scancel":
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, interface, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PATH": path},
    )
    address = process.stdout.readline().strip()
    try:
        assert servers(address)
    finally:
        process.kill()
    # The processes of the pool have this pipe, too.
    process.communicate(timeout=60)


@pytest.mark.usefixtures("slurm")
def test_a_pool_that_cannot_start_is_an_error(tmp_path):
    pool = farcall.SlurmPool(tmp_path / "nothing.idl", folder=tmp_path)
    with pytest.raises(farcall.ServerError, match="has ended with status"):
        pool.adapt()


@pytest.mark.usefixtures("slurm")
def test_an_interrupt_ends_the_pool_and_its_jobs(interface, tmp_path):
    words = [FARCALL, "up", "--slurm", interface, "--listen", "127.0.0.1:0", *QUICK]
    words += ["--min", "1", "--slurm-folder", tmp_path, "--lead", "5"]
    process = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
    wait_until(running, 60, "a job")
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    assert process.wait(40) == 0
    wait_until(lambda: not jobs(), 60, "the end of the jobs")
    assert list(tmp_path.iterdir())


def test_ctrl_c_ends_the_pool_while_slurm_stands_still(interface, tmp_path):
    commands, started, cancelled = (tmp_path / name for name in ("bin", "started", "cancelled"))
    commands.mkdir()
    for name, line in [
        ("squeue", f"touch {started}; exec sleep 100"),
        ("scancel", f"touch {cancelled}"),
    ]:
        (commands / name).write_text(f"#!/bin/sh\n{line}\n")
        (commands / name).chmod(0o755)
    words = [FARCALL, "up", "--slurm", interface, "--listen", "127.0.0.1:0"]
    words += ["--slurm-folder", tmp_path / "jobs"]
    path = f"{commands}:{os.environ['PATH']}"
    process = subprocess.Popen(list(map(str, words)), env={**os.environ, "PATH": path})
    try:
        wait_until(started.exists, what="the first look at the jobs")
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert time.monotonic() - start < 20
    finally:
        stop(process)
    # No job was asked for, and nothing is left.
    assert not cancelled.exists()
    assert list((tmp_path / "jobs").iterdir()) == []
