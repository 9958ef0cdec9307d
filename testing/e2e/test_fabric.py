"""MPI over the channels of gang jobs: unmodified MPIs load the provider of libfabric."""

import os
import signal
import subprocess

import pytest
from gangs import MPI, Gang
from programs import BUILT
from servers import FARCALL, ROOT, wait_until

PROGRAM = ROOT / "testing" / "e2e" / "fabric.c"
MPIS = ROOT / "target" / "mpi"
PROVIDER = BUILT / "libfarcall-fi.so"


def test_endpoints():
    """Matching, bounds and forged messages, without an MPI."""
    made = subprocess.run(
        ["make", "-s", "-C", ROOT / "bindings" / "fabric", "check", f"BUILT={BUILT}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (made.returncode, made.stdout) == (0, "all is well\n"), made.stdout + made.stderr


@pytest.fixture(scope="module", params=["mpich", "impi"])
def program(request, tmp_path_factory):
    """The program, compiled for an MPI."""
    if not PROVIDER.is_file():
        pytest.skip("no libfarcall-fi.so: the headers of libfabric were missing at `make build`")
    setup = subprocess.run([ROOT / "scripts" / "setup", "mpi"], check=False, timeout=300)
    folder = MPIS / request.param
    if setup.returncode != 0 or not folder.is_dir():
        pytest.skip(f"{request.param} is missing: `scripts/setup mpi` installs it")
    made = tmp_path_factory.mktemp("fabric") / request.param
    subprocess.run(
        [folder / "bin" / "mpicc", "-O1", "-Wall", "-Wextra", "-o", made, PROGRAM],
        check=True,
        timeout=120,
        env={**os.environ, "I_MPI_ROOT": str(folder)},
    )
    return made


def test_two_jobs_share_the_processors(program):
    """All kinds of messages, with checked payloads, while each job is stopped every 20 ms."""
    with Gang("shared", "--switch-alone") as gang:
        jobs = [gang.start(2, program, "2", "rma", options=MPI) for _ in range(2)]
        for job in jobs:
            out, err = job.communicate(timeout=240)
            assert (job.returncode, out) == (0, "all is well with 2\n"), err


def test_more_processes_than_processors(program):
    with Gang("many") as gang:
        ran = gang.run(3, program, "1", "rma", options=MPI)
        assert (ran.returncode, ran.stdout) == (0, "all is well with 3\n"), ran.stderr


@pytest.mark.parametrize("protocol", ["read", "write"])
def test_a_rendezvous_that_reads_or_writes_memory(program, protocol, monkeypatch):
    """The provider registers no memory, so MPICH must send, whatever the user has set."""
    monkeypatch.setenv("MPIR_CVAR_CH4_OFI_EAGER_THRESHOLD", "16384")
    monkeypatch.setenv("MPIR_CVAR_CH4_OFI_RNDV_PROTOCOL", protocol)
    with Gang("rendezvous") as gang:
        ran = gang.run(2, program, "1", options=MPI, timeout=60)
        assert (ran.returncode, ran.stdout) == (0, "all is well with 2\n"), ran.stderr


def test_two_nodes(program):
    """The engines of two daemons carry the messages between two nodes."""
    with Gang("nodes", slots=1, nodes=2) as gang:
        ran = gang.run(2, program, "1", "rma", options=MPI)
        assert (ran.returncode, ran.stdout) == (0, "all is well with 2\n"), ran.stderr


def test_nothing_is_left_of_a_job_that_was_killed(program):
    with Gang("killed") as gang:
        with gang.start(2, program, "100000", options=MPI) as front:
            [job] = wait_until(gang.jobs, what="the job")
            gang.kill(job)
            assert front.wait(30) == 128 + signal.SIGKILL
        wait_until(lambda: not gang.jobs(), what="the end of the job")

        def is_gone():
            words = ["pgrep", "-f", str(program)]
            return subprocess.run(words, check=False, capture_output=True).returncode == 1

        wait_until(is_gone, what="the end of its processes")


def test_counters_count_each_message_once(tmp_path):
    """Those without a completion too, and no buffer that the program gets back."""
    if not PROVIDER.is_file():
        pytest.skip("no libfarcall-fi.so: the headers of libfabric were missing at `make build`")
    program = tmp_path / "counters"
    source = PROGRAM.with_name("fabric_counters.c")
    flags = ["-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", program, source, "-lfabric"], check=True, timeout=120)
    with Gang("counters") as gang:
        ran = gang.run(2, program, options=MPI)
        assert ran.returncode == 0, ran.stderr


def test_a_node_without_the_provider_says_so(tmp_path):
    """A command without the library beside it."""
    alone = tmp_path / "bin" / "farcall"
    alone.parent.mkdir()
    alone.write_bytes(FARCALL.read_bytes())
    alone.chmod(0o755)
    with Gang("alone", program=alone) as gang:
        ran = gang.run(1, "true", options=MPI)
    assert ran.returncode == 125
    assert "needs libfarcall-fi.so" in ran.stderr
