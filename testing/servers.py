"""Real servers for tests, as a pytest plugin."""

import contextlib
import os
import pathlib
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Here programs and servers share few processors. Threads of OpenBLAS that wait for each other spin,
# and on busy processors that took most of the time. Servers decide for their workers themselves.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import farcall
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
FARCALL = ROOT / "target" / "release" / "farcall"
LIBRARIES = ROOT / "libraries"
FAULTS = ROOT / "testing" / "faults"

NAP = f"""\
Module test;
Library "{FAULTS}/libfarcall_faults.so";
Define nap(IN int ms, OUT int *slept) "Sleep" Calls "C" fault_sleep(ms, slept);
Define segfault(IN int n) "Crash" Calls "C" fault_segfault(n);
"""


def pytest_configure(config):
    """Sets what the programs that tests start shall find.

    Their state is in a folder that goes with the tests: what a server on the same port left in the
    home of the user would be found again.

    A shell ignores Ctrl-C for what it starts in the background, and all programs would inherit
    that. Programs that tests compare with use the kernel of OpenBLAS that servers select, because
    the results of different kernels differ in their last bits.
    """
    state = tempfile.TemporaryDirectory(prefix="farcall-state-")
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "OPENBLAS_CORETYPE" not in os.environ and FARCALL.exists():
        doctor = subprocess.run(
            [FARCALL, "doctor", "--json"], capture_output=True, text=True, check=False
        )
        if kernel := re.search(r"OpenBLAS .*, kernel (\w+)", doctor.stdout):
            os.environ["OPENBLAS_CORETYPE"] = kernel[1]


# Files whose tests take longest begin first, so that none of them is left to a single worker.
LONGEST = ["offload_netlib", "drop_ins", "gang_states", "fabric", "offload_suites", "gridrpc"]


def pytest_collection_modifyitems(items):
    """Orders the tests by file."""
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def wait_until(condition, seconds=30.0, what="the condition"):
    """Waits for a condition, at most this many seconds, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not come within {seconds} s")
        time.sleep(0.005)


def free_addresses(count):
    """Addresses at which nothing listens, for programs that cannot say which port they found.

    They are on a host of the loopback that this process alone uses, so that nobody else takes them
    before the program does.
    """
    pid = os.getpid()
    # Process identifiers have 22 bits. Most programs use the hosts below.
    host = f"127.{64 | (pid >> 16)}.{(pid >> 8) & 255}.{pid & 255}"
    with contextlib.ExitStack() as stack:
        # All at once, so that they differ.
        free = [stack.enter_context(socket.create_server((host, 0))) for _ in range(count)]
        return [f"{host}:{one.getsockname()[1]}" for one in free]


def stop(process, seconds=5.0):
    """Stops a program as an operator does; it must end within this time."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def freeze(process):
    """Stops a program without an end, and returns when none of its threads runs anymore."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


@contextlib.contextmanager
def metaserver():
    """A metaserver; the value is its address."""
    words = [FARCALL, "meta", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            stop(process)


def known(client, name):
    """A function of a client, when its metaserver knows it."""
    try:
        return client.function(name)
    except farcall.Error:
        return None


class ServerProcess:
    """A `farcall serve` of its own on a free port of the loopback."""

    def __init__(
        self,
        *idl,
        options=(),
        listen="127.0.0.1:0",
        environment=None,
        user=None,
        terminal=None,
    ):
        """Starts it, at the terminal of this path, and returns once it listens."""
        arguments = [*map(str, idl), *(["--listen", listen] if listen else []), *options]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [FARCALL, "serve", *arguments, "--log", "warn"],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env={"FARCALL_PYTHON": sys.executable} | os.environ | (environment or {}),
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            start_new_session=terminal is not None,
            # The first terminal that a session opens is its own.
            preexec_fn=terminal and (lambda: os.open(terminal, os.O_RDWR)),  # noqa: PLW1509
        )
        line = self._first_line()
        if not line.startswith("listening on "):
            self.stop()
            raise RuntimeError(f"no server: {line!r}\n{self.log()}")
        self.addresses = line.removeprefix("listening on ").split()
        self.address = self.addresses[0]

    def _first_line(self, seconds=60.0):
        lines = queue.Queue()
        reader = threading.Thread(
            target=lambda: lines.put(self.process.stdout.readline()), daemon=True
        )
        reader.start()
        try:
            return lines.get(timeout=seconds)
        except queue.Empty:
            self.process.kill()
            return ""

    def connect(self, **options):
        """A connection to it."""
        return farcall.connect(self.address, **options)

    def log(self):
        """The text of its log."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def workers(self):
        """The ids of its workers: to end one of these processes is to end the worker."""
        return children(self.process.pid)

    def napping(self):
        """The ids of its workers that are in `usleep` or `nanosleep`, as functions that nap are."""

        def naps(pid):
            try:
                return "nanosleep" in pathlib.Path(f"/proc/{worker_in(pid)}/wchan").read_text()
            except OSError:
                return False

        return [pid for pid in self.workers() if naps(pid)]

    def resident_bytes(self):
        """Memory of the server process itself."""
        return resident_bytes(self.process.pid)

    def descriptors(self):
        """Number of its open files."""
        return descriptors(self.process.pid)

    def stop(self, seconds=5.0):
        """Stops it as an operator does; it must end within five seconds."""
        return stop(self.process, seconds)


def children(pid):
    """The ids of the children of a process."""
    found = []
    # The process or a thread of it may end meanwhile.
    with contextlib.suppress(OSError):
        for each in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (each / "children").read_text().split())
    return sorted(found)


def worker_in(pid):
    """The process that calls functions: the only child of the keeper of a worker's processes."""
    return next(iter(children(pid)), pid)


def resident_bytes(pid="self"):
    """Memory of a process."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid="self"):
    """Number of open files of a process."""
    return sum(1 for _ in pathlib.Path(f"/proc/{pid}/fd").iterdir())


def add_tokens(path, *users):
    """Tokens of users, in their order, for a server or metaserver with `--tokens` and the path."""
    add = [FARCALL, "token", "add", path]
    runs = [
        subprocess.run([*add, user], capture_output=True, text=True, timeout=30, check=True)
        for user in users
    ]
    return [run.stdout.strip() for run in runs]


@contextlib.contextmanager
def up_local(idl):
    """Three servers of one processor element each, behind a metaserver; its address."""
    words = ["up", "--local", "3", idl.name, "--allow-code", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [FARCALL, *words, "--pes", "1"], stdout=subprocess.PIPE, text=True, cwd=idl.parent
    )
    try:
        address = process.stdout.readline().strip().removeprefix("listening on ")
        for _ in range(3):
            process.stdout.readline()
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
    finally:
        stop(process, 10)


@pytest.fixture(scope="session")
def library_server():
    """BLAS, LAPACK, FFTW and the benchmark functions: what every build has."""
    served = "bench blas db ep fft lapack linalg linpack scalapack"
    server = ServerProcess(*(LIBRARIES / f"{name}.idl" for name in served.split()))
    yield server
    assert server.process.poll() is None, f"the server ended:\n{server.log()}"
    server.stop()


@pytest.fixture
def server(library_server):
    """A connection to the libraries."""
    return library_server.connect()


@pytest.fixture
def start():
    """Starts servers that end with the test."""
    # One that does not end in time leaves no other behind.
    with contextlib.ExitStack() as servers:

        def start(*idl, **options):
            server = ServerProcess(*idl, **options)
            servers.callback(server.stop)
            return server

        yield start


@pytest.fixture
def open_path():
    """A folder that other users may enter. Each run of pytest closes its own folders to them."""
    with tempfile.TemporaryDirectory(prefix="farcall-open-") as folder:
        path = pathlib.Path(folder)
        path.chmod(0o755)
        yield path


@pytest.fixture
def nap_idl(tmp_path):
    """An interface file with functions that sleep or crash."""
    path = tmp_path / "nap.idl"
    path.write_text(NAP)
    return path
