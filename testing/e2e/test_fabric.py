"""MPI over the channels of gang jobs: unmodified MPIs load the provider of libfabric."""

import json
import os
import signal
import subprocess

import pytest
from programs import BUILT
from servers import FARCALL, ROOT, wait_until

PROGRAM = ROOT / "testing" / "e2e" / "fabric.c"
MPIS = ROOT / "target" / "mpi"
PROVIDER = BUILT / "libfarcall-fi.so"


@pytest.mark.timeout(300)
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


class Daemon:
    """A gang daemon of a test, as a context."""

    def __init__(self, name, *options, program=FARCALL):
        self.control = f"@farcall-fabric-{name}-{os.getpid()}"
        words = [program, "gang", "daemon", "--listen", "127.0.0.1:0", "--control", self.control]
        self.process = subprocess.Popen(
            [*words, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = self.process.stdout.readline()
        assert line.startswith("listening on farcall://"), line
        self.address = line.split()[2].removeprefix("farcall://")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(10)
        self.process.stdout.close()

    def command(self, size, *words):
        run = [FARCALL, "gang", "run", "--control", self.control, "--network", "farcall", "--quiet"]
        return [*run, "-n", str(size), "--", *words]

    def run(self, size, *words):
        return subprocess.run(
            self.command(size, *words), check=False, capture_output=True, text=True, timeout=240
        )

    def jobs(self):
        words = [FARCALL, "gang", "ps", "--control", self.control, "--json"]
        shown = subprocess.run(words, check=True, capture_output=True, text=True, timeout=30)
        return json.loads(shown.stdout)["jobs"]

    def kill(self, job):
        words = [FARCALL, "gang", "kill", str(job["id"]), "--control", self.control]
        subprocess.run(words, check=True, timeout=30)

    def nodes(self):
        """Nodes on which a job of two processes runs."""
        with subprocess.Popen(self.command(2, "sleep", "1000")):
            job = wait_until(lambda: next(iter(self.jobs()), None), what="the job")
            self.kill(job)
        wait_until(lambda: not self.jobs(), what="the end of the job")
        return len(job["nodes"])


@pytest.mark.timeout(300)
def test_two_jobs_share_the_processors(program):
    """All kinds of messages, with checked payloads, while each job is stopped every 20 ms."""
    with Daemon("shared", "--slots", "2", "--slice", "20ms", "--switch-alone") as daemon:
        words = daemon.command(2, program, "2", "rma")
        pipe = subprocess.PIPE
        jobs = [subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) for _ in range(2)]
        for job in jobs:
            out, err = job.communicate(timeout=240)
            assert (job.returncode, out) == (0, "all is well with 2\n"), err


@pytest.mark.timeout(300)
def test_more_processes_than_processors(program):
    with Daemon("many", "--slots", "2", "--slice", "20ms") as daemon:
        ran = daemon.run(3, program, "1", "rma")
        assert (ran.returncode, ran.stdout) == (0, "all is well with 3\n"), ran.stderr


@pytest.mark.timeout(300)
def test_two_nodes(program):
    """The engines of two daemons carry the messages between two nodes."""
    options = ["--slots", "1", "--slice", "20ms"]
    with (
        Daemon("root", "--node", "a", *options) as root,
        Daemon("other", "--node", "b", "--parent", root.address, *options),
    ):
        wait_until(lambda: root.nodes() == 2, what="the second node")
        ran = root.run(2, program, "1", "rma")
        assert (ran.returncode, ran.stdout) == (0, "all is well with 2\n"), ran.stderr


def test_nothing_is_left_of_a_job_that_was_killed(program):
    with Daemon("killed", "--slots", "2", "--slice", "20ms") as daemon:
        words = daemon.command(2, program, "100000")
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
            row = wait_until(lambda: next(iter(daemon.jobs()), None), what="the job")
            daemon.kill(row)
            assert job.wait(30) == 128 + signal.SIGKILL
        wait_until(lambda: not daemon.jobs(), what="the end of the job")
        left = subprocess.run(["pgrep", "-f", str(program)], check=False, capture_output=True)
        assert left.returncode == 1, left.stdout


def test_a_node_without_the_provider_says_so(tmp_path):
    """A command without the library beside it."""
    alone = tmp_path / "bin" / "farcall"
    alone.parent.mkdir()
    alone.write_bytes(FARCALL.read_bytes())
    alone.chmod(0o755)
    with Daemon("alone", program=alone) as daemon:
        ran = daemon.run(1, "true")
    assert ran.returncode == 125
    assert "needs libfarcall-fi.so" in ran.stderr
