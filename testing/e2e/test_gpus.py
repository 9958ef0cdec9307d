"""GPUs in the queue, with servers that are told how many they have: no GPU is needed, because the
functions only look at the GPUs that they may use. The last tests call the library `cuda` where no
driver is installed.
"""

import ctypes
import errno
import itertools
import json
import os
import subprocess

import farcall
import numpy as np
import pytest
from farcall import cuda
from servers import FARCALL, ServerProcess, wait_until

IDL = """
Module gpus;
Globals {
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/socket.h>
    #include <time.h>
    #include <unistd.h>
    static double now(void) {
        struct timespec time;
        clock_gettime(CLOCK_MONOTONIC, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
    static void look(int ms, int *seen, double *span) {
        struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
        const char *names = getenv("CUDA_VISIBLE_DEVICES");
        seen[0] = seen[1] = -1;
        if (names) sscanf(names, "%d,%d", seen, seen + 1);
        span[0] = now();
        nanosleep(&time, 0);
        span[1] = now();
    }
    /* What CUDA needs, then what nobody may have: 0 or the error. */
    static void try_walls(int *errors) {
        const int sockets[4][2] = {{AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC}, {AF_UNIX, SOCK_STREAM},
                                   {AF_UNIX, SOCK_DGRAM}, {AF_INET, SOCK_STREAM}};
        char name[64];
        snprintf(name, sizeof name, "/proc/self/task/%d/comm", (int)getpid());
        int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        errors[0] = file >= 0 ? 0 : errno;
        for (int i = 0; i < 4; i++)
            errors[i + 1] = socket(sockets[i][0], sockets[i][1], 0) >= 0 ? 0 : errno;
    }
}
Define walls(OUT int errors[5]) { try_walls(errors); }
Define walls_of_gpu(OUT int errors[5]) Gpus 1 { try_walls(errors); }
Define none(IN int ms, OUT int seen[2], OUT double span[2]) { look(ms, seen, span); }
Define one(IN int ms, OUT int seen[2], OUT double span[2]) Gpus 1 { look(ms, seen, span); }
Define two(IN int ms, OUT int seen[2], OUT double span[2]) Gpus 2 { look(ms, seen, span); }
DefClass Held
{
    DefMethod one(IN int ms, OUT int seen[2], OUT double span[2]) Gpus 1 { look(ms, seen, span); }
}
"""


@pytest.fixture
def serve(tmp_path):
    """Starts a server of the functions above with options."""
    file = tmp_path / "gpus.idl"
    file.write_text(IDL)
    started = []

    def start(*options):
        started.append(ServerProcess(file, options=["--allow-code", "--pes", "4", *options]))
        return started[-1]

    yield start
    for process in started:
        process.stop()


def gpus(result):
    """The numbers of the GPUs that a call could use."""
    return [gpu for gpu in result.seen.tolist() if gpu >= 0]


def check_alone(results):
    """No two calls had a GPU at the same time."""
    for one, other in itertools.combinations(results, 2):
        together = max(one.span[0], other.span[0]) < min(one.span[1], other.span[1])
        assert not (together and set(gpus(one)) & set(gpus(other))), (one, other)


def test_a_worker_with_gpus_can_do_what_cuda_needs_and_no_more(serve):
    server = serve("--gpus", "1").connect()
    denied = [errno.EPERM] * 3
    assert server.call("walls").errors.tolist() == [errno.EACCES, errno.EPERM, *denied]
    assert server.call("walls_of_gpu").errors.tolist() == [0, 0, *denied]


def test_each_call_has_its_gpus_for_itself(serve):
    server = serve("--gpus", "2").connect()
    names = ["one", "two", "one", "one", "none", "one", "two", "one", "one"] * 2
    calls = [server.function(f"gpus/{name}").call_async(30) for name in names]
    results = [call.result(timeout=60) for call in calls]
    wanted = {"none": 0, "one": 1, "two": 2}
    assert [len(gpus(result)) for result in results] == [wanted[name] for name in names]
    check_alone(results)
    assert {gpu for result in results for gpu in gpus(result)} == {0, 1}


def test_objects_keep_their_gpus(serve):
    server = serve("--gpus", "2").connect()
    objects = [server.new("gpus/Held") for _ in range(3)]
    plain = server.function("gpus/one")
    calls = [held.method("one").call_async(20) for held in objects for _ in range(4)]
    calls += [plain.call_async(20) for _ in range(6)]
    results = [call.result(timeout=60) for call in calls]
    check_alone(results)
    of_objects = [results[4 * i : 4 * i + 4] for i in range(3)]
    of_objects = [{gpu for result in each for gpu in gpus(result)} for each in of_objects]
    assert all(len(each) == 1 for each in of_objects)
    assert set().union(*of_objects) == {0, 1}, "they are spread over the GPUs"


def test_a_call_that_needs_more_gpus_than_there_are_is_refused(serve):
    server = serve("--gpus", "1").connect()
    assert gpus(server.call("gpus/one", 0)) == [0]
    refused = r"gpus/two: needs 2 GPUs, and this server has 1; .*--gpus"
    with pytest.raises(farcall.Error, match=refused):
        server.call("gpus/two", 0)
    without = serve("--gpus", "0").connect()
    with pytest.raises(farcall.Error, match=r"needs 1 GPU, and this server has 0"):
        without.new("gpus/Held")


def test_the_status_shows_gpus_and_calls_that_wait_for_them(serve):
    process = serve("--gpus", "1")
    server = process.connect()
    calls = [server.function("gpus/one").call_async(4000) for _ in range(2)]

    def status():
        words = [FARCALL, "status", process.address, "--json"]
        return json.loads(subprocess.run(words, check=True, capture_output=True).stdout)

    now = wait_until(lambda: (found := status())["gpus_used"] and found)
    assert (now["gpus"], now["gpus_used"]) == (1, 1)
    reason = wait_until(lambda: "GPU" in (text := str(calls[1].status())) and text)
    assert "it needs 1, and 0 of 1 are free" in reason
    check_alone([call.result(timeout=60) for call in calls])
    words = [FARCALL, "describe", "gpus/one", process.address]
    described = subprocess.run(words, check=True, capture_output=True, text=True)
    assert "(1 GPU)" in described.stdout


def test_more_gpus_than_cuda_may_see_are_refused(tmp_path):
    file = tmp_path / "gpus.idl"
    file.write_text(IDL)
    words = [FARCALL, "serve", file, "--allow-code", "--gpus", "3", "--listen", "127.0.0.1:0"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "4,5"}
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, env=environment, timeout=30
    )
    assert done.returncode != 0
    assert "3 GPUs are wanted, and there are 2" in done.stderr


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="a driver of NVIDIA is here: see test_cuda.py")
def test_without_a_driver_the_functions_of_cuda_say_what_is_missing():
    process = ServerProcess("cuda", options=["--gpus", "1"])
    try:
        server = process.connect()
        matrix = np.eye(2)
        for call in (
            lambda: server.call("cuda/dgesv", n=2, nrhs=2, a=matrix, b=matrix),
            lambda: cuda.Device(server).put(matrix),
        ):
            missing = r"no NVIDIA driver: libcuda\.so\.1.*nvidia-smi"
            with pytest.raises(farcall.Error, match=missing):
                call()
    finally:
        process.stop()
