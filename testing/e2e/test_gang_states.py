"""The states of gang jobs whose MPI sends over channels: who waits for whom."""

import os
import signal
import subprocess
import sys
import time

import pytest
from gangs import MPI, Gang
from programs import BUILT
from servers import FARCALL, ROOT, wait_until

PROGRAM = ROOT / "testing" / "e2e" / "states.c"
MPIS = ROOT / "target" / "mpi"
PROVIDER = BUILT / "libfarcall-fi.so"

# What the program needs of Open MPI's header. Its own header comes with a compiler that would
# become the default one of the machine.
OPEN_MPI = """
#include <stddef.h>
typedef struct handle *MPI_Comm, *MPI_Datatype, *MPI_Op, *MPI_Request;
typedef struct { int MPI_SOURCE, MPI_TAG, MPI_ERROR, cancelled; size_t count; } MPI_Status;
extern char ompi_mpi_comm_world[], ompi_mpi_int[], ompi_mpi_byte[], ompi_mpi_op_sum[];
#define MPI_COMM_WORLD ((MPI_Comm)ompi_mpi_comm_world)
#define MPI_INT ((MPI_Datatype)ompi_mpi_int)
#define MPI_BYTE ((MPI_Datatype)ompi_mpi_byte)
#define MPI_SUM ((MPI_Op)ompi_mpi_op_sum)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_ANY_SOURCE (-1)
int MPI_Init(int *, char ***), MPI_Finalize(void), MPI_Abort(MPI_Comm, int);
int MPI_Comm_rank(MPI_Comm, int *), MPI_Comm_size(MPI_Comm, int *);
int MPI_Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Ssend(const void *, int, MPI_Datatype, int, int, MPI_Comm);
int MPI_Recv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
int MPI_Irecv(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
int MPI_Probe(int, int, MPI_Comm, MPI_Status *), MPI_Wait(MPI_Request *, MPI_Status *);
int MPI_Bcast(void *, int, MPI_Datatype, int, MPI_Comm);
int MPI_Allreduce(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);
"""


def is_set_up(what):
    ran = subprocess.run([ROOT / "scripts" / "setup", what], check=False, timeout=300)
    return ran.returncode == 0


def compile_with(words, made, environment=None):
    words = [*words, "-O1", "-Wall", "-Wextra", "-o", made, PROGRAM]
    words += ["-l:libmpi.so.40"] if words[0] == "cc" else []
    environment = {**os.environ, **(environment or {})}
    subprocess.run(words, check=True, timeout=120, env=environment)
    return made


@pytest.fixture(scope="module", params=["openmpi", "mpich", "impi"])
def program(request, tmp_path_factory):
    """The program, compiled for an MPI."""
    if not PROVIDER.is_file():
        pytest.skip("no libfarcall-fi.so: the headers of libfabric were missing at `make build`")
    folder = tmp_path_factory.mktemp("states")
    made = folder / request.param
    if request.param == "openmpi":
        if not is_set_up("openmpi"):
            pytest.skip("Open MPI is missing: `scripts/setup openmpi` installs it")
        (folder / "mpi.h").write_text(OPEN_MPI)
        return compile_with(["cc", f"-I{folder}"], made)
    mpi = MPIS / request.param
    if not is_set_up("mpi") or not mpi.is_dir():
        pytest.skip(f"{request.param} is missing: `scripts/setup mpi` installs it")
    return compile_with([mpi / "bin" / "mpicc"], made, {"I_MPI_ROOT": str(mpi)})


def suspected(name, program, what, size, *more, nodes=1):
    """The description of a suspected deadlock of a program, which is killed then."""
    with (
        Gang(name, slots=size // nodes, nodes=nodes) as gang,
        gang.start(size, program, what, *more, options=MPI) as front,
    ):
        job = wait_until(gang.jobs, what="the job")[0]
        text = gang.until(job, "suspected")
        gang.kill(job)
        assert front.wait(30) == 128 + signal.SIGKILL
    return text


@pytest.mark.timeout(120)
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_ring_of_receives(program, nodes):
    text = suspected(f"ring{nodes}", program, "ring", 3, nodes=nodes)
    assert text.startswith("deadlock: ")
    for rank in range(3):
        step = f"rank {rank} waits for a message from rank {(rank + 1) % 3} (tag 7)"
        assert step in text


@pytest.mark.timeout(120)
def test_receives_from_anybody(program):
    text = suspected("any", program, "any", 2)
    assert "rank 0 waits for a message from any rank (tag 7)" in text


@pytest.mark.timeout(120)
def test_probes(program):
    text = suspected("probe", program, "probe", 2)
    assert "rank 0 waits for a message from rank 1 (tag 7)" in text


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["ssend", "large"])
def test_sends_that_nobody_receives(program, what):
    text = suspected(what, program, what, 2)
    for rank in range(2):
        other = 1 - rank
        # The acknowledgement of MPI_Ssend can be a message.
        receive = f"rank {rank} waits for rank {other} to receive a message (tag 3)"
        message = f"rank {rank} waits for a message from rank {other} (tag 3)"
        assert receive in text or message in text


@pytest.mark.timeout(120)
def test_a_deadlock_of_some_while_others_compute(program):
    """MPICH and Intel MPI can always get a message of their own from a rank that computes."""
    if program.name != "openmpi":
        pytest.skip("only Open MPI says all that it looks for")
    text = suspected("partial", program, "partial", 3, "1000")
    assert text.startswith("deadlock: rank 0 waits for a message from rank 1 (tag 7)")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", ["computes", "sleeps"])
def test_ranks_that_wait_for_one_that_does_something_else(program, what, tmp_path):
    go_on = tmp_path / "go-on"
    with Gang(what, slots=3) as gang:
        options = (*MPI, "--detect-termination")
        with gang.start(3, program, what, go_on, options=options) as front:
            job = wait_until(gang.jobs, what="the job")[0]
            words = set()
            while True:
                word, text = gang.state(job)
                words.add(word)
                # The two others come to their receives one after the other.
                if "rank 1 waits for a message from rank 0 (tag 7)" in text:
                    break
                assert front.poll() is None, f"nobody was seen to wait: {words}"
            assert "rank 0 waits" not in text
            end = time.monotonic() + 2
            while time.monotonic() < end:
                words.add(gang.state(job)[0])
            go_on.touch()
            out, err = front.communicate()
            assert (front.returncode, out) == (0, ""), err
            assert "suspected" not in words
            assert "suspected" not in err


@pytest.mark.timeout(120)
def test_a_program_that_goes_on_is_never_suspected(program):
    """Two jobs take turns, each with more processes than processors."""
    seconds = os.environ.get("FARCALL_SOAK_SECONDS", "5")
    with Gang("exchanges", "--switch-alone") as gang:
        options = (*MPI, "--detect-termination")
        words = [program, "exchanges", seconds]
        fronts = [gang.start(3, *words, options=options) for _ in range(2)]
        seen = []
        while any(front.poll() is None for front in fronts):
            seen += [gang.state(job) for job in gang.jobs()]
        for front in fronts:
            out, err = front.communicate()
            assert (front.returncode, out, err) == (0, "", "")
        assert seen
        assert [state for state in seen if state[0] == "suspected"] == []


@pytest.mark.timeout(120)
def test_a_suspected_job_goes_on_and_its_command_says_so(program):
    with Gang("told") as gang:
        options = (*MPI, "--detect-termination")
        with gang.start(2, program, "ssend", options=options) as front:
            line = front.stderr.readline()
            assert line.startswith("farcall: gang job 1: suspected deadlock: rank 0 waits for ")
            for _ in range(3):
                gang.until("1", "suspected")
            assert front.poll() is None
            gang.kill("1")
            assert "suspected" not in front.communicate()[1]


@pytest.mark.timeout(120)
def test_mpi_over_its_own_transport(program):
    with Gang("own") as gang, gang.start(2, program, "ring") as front:
        job = wait_until(gang.jobs, what="the job")[0]
        text = gang.until(job, "unknown")
        assert "`--network farcall`" in text
        front.kill()


# Takes the port of a server in a network of its own, and becomes a daemon.
BESIDE_A_SERVER = """
import os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = socket.create_server(("127.0.0.1", 3717))
server.set_inheritable(True)
os.execv(sys.argv[1], [sys.argv[1], "gang", "daemon", "--control", sys.argv[2]])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_daemon_without_an_address_starts_beside_a_server(tmp_path):
    words = ["unshare", "--net", sys.executable, "-c", BESIDE_A_SERVER, FARCALL, tmp_path / "gang"]
    daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert daemon.stdout.readline().startswith("listening on farcall://127.0.0.1:3721 ")
    finally:
        daemon.terminate()
        daemon.wait(10)
        daemon.stdout.close()
