"""What a function cannot reach: credentials of the server, and peers that a client chooses."""

import contextlib
import errno
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time

import farcall
import numpy as np
import pytest
from servers import FARCALL, ROOT, ServerProcess, add_tokens, children, wait_until

SECRET = "a-token-of-the-server"

# Functions that look at their environment and at files.
LOOK = """\
Module look;
Globals {
    extern char *getenv(const char *);
    extern int open(const char *, int, ...), close(int);
    extern int *__errno_location(void);
}
Define variable(IN string name, OUT int *is_set) { *is_set = getenv(name) != 0; }
Define read_file(IN string path, OUT int *error_number) {
    int file = open(path, 0);
    *error_number = file < 0 ? *__errno_location() : 0;
    if (file >= 0) close(file);
}
"""
# A function that leaves a file in its folder, and waits.
LEAVE = """\
Define leave_file(IN string name, IN int seconds, OUT char path[n], IN int n) {
    extern int snprintf(char *, unsigned long, const char *, ...);
    extern unsigned sleep(unsigned);
    snprintf(path, n, "%s/%s", getenv("HOME"), name);
    close(open(path, 0101, 0666));
    sleep(seconds);
}
"""


@pytest.fixture
def serve(tmp_path):
    """Starts servers of the functions above, with these variables and in an open folder."""
    tmp_path.chmod(0o755)
    idl = tmp_path / "look.idl"
    idl.write_text(LOOK)
    with contextlib.ExitStack() as stack:

        def serve(*options, environment=None):
            server = ServerProcess(
                idl,
                options=["--allow-code", *map(str, options)],
                environment=environment or {},
            )
            stack.callback(server.stop)
            return server

        yield serve


def test_a_function_sees_no_secret_variable(serve):
    secrets = {
        "FARCALL_TOKEN": SECRET,
        "FARCALL_KEY": "/keys/own.key",
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    others = {"OMP_SCHEDULE": "static", "LC_TIME": "C"}
    server = serve(environment=secrets | others)
    variable = server.connect(token=None).function("variable")

    def is_set(name):
        return variable(name).is_set

    assert {name: is_set(name) for name in secrets} == dict.fromkeys(secrets, 0)
    assert {name: is_set(name) for name in others} == dict.fromkeys(others, 1)
    assert is_set("PATH") == 1


def test_no_worker_sees_the_files_of_others():
    # Not in a folder that no function can read anyway.
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        pathlib.Path(folder).chmod(0o755)
        idl = pathlib.Path(folder) / "look" / "look.idl"
        workers = pathlib.Path(folder) / "workers"
        for path in idl.parent, workers:
            path.mkdir()
        idl.write_text(LOOK + LEAVE)
        config = pathlib.Path(folder) / "farcall.toml"
        config.write_text(f'[workers]\nfolder = "{workers}"\n')
        options = ["--allow-code", "--pes", "2", "--config", str(config)]
        server = ServerProcess(idl, options=options)
        try:
            client = server.connect()
            leaves = client.function("leave_file").call_async("left", 2, n=500)
            (left,) = wait_until(lambda: list(workers.glob("*/left")), what="the file")
            error = client.function("read_file")(str(left)).error_number
            assert error in (errno.ENOENT, errno.EACCES)
            assert bytes(leaves.result().path).startswith(bytes(left))
        finally:
            server.stop()


def test_an_operator_names_further_variables(serve, tmp_path):
    config = tmp_path / "farcall.toml"
    config.write_text('[workers]\nenvironment = ["LICENSE_SERVER"]\n')
    environment = {"LICENSE_SERVER": "host", "LICENSE_KEY": SECRET}
    variable = serve("--config", config, environment=environment).connect().function("variable")
    assert (variable("LICENSE_SERVER").is_set, variable("LICENSE_KEY").is_set) == (1, 0)


def certificates(folder):
    subprocess.run(
        [FARCALL, "access", "certificate", "server", folder, "127.0.0.1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )


def test_no_certificate_and_no_key_can_be_read(serve, tmp_path):
    tls, own = tmp_path / "tls", tmp_path / "own.key"
    certificates(tls)
    own.write_text(SECRET)
    server = serve("--tls", tls, environment={"FARCALL_KEY": str(own)})
    read = server.connect(authorities=tls / "authority.pem").function("read_file")
    assert read("/etc/passwd").error_number == 0
    hidden = [*tls.iterdir(), *(tmp_path / "tls-authority").iterdir(), own]
    assert [path.name for path in hidden if read(str(path)).error_number == 0] == []
    assert (tmp_path / "tls-authority" / "authority.key").exists()
    assert "sign certificates" not in server.log()


def test_the_key_of_an_authority_beside_the_servers_key_is_hidden_and_reported(serve, tmp_path):
    tls = tmp_path / "tls"
    certificates(tls)
    (tmp_path / "tls-authority" / "authority.key").rename(tls / "authority.key")
    made = subprocess.run(
        [FARCALL, "access", "certificate", "client", tls, "alice"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert "move it to" in made.stderr
    server = serve("--tls", tls)
    read = server.connect(authorities=tls / "authority.pem").function("read_file")
    assert read(str(tls / "authority.key")).error_number != 0
    assert "can sign certificates for every user" in server.log()


def test_files_that_become_secret_while_a_server_runs_are_hidden(serve, tmp_path):
    paths = [tmp_path / "tokens", tmp_path / "others"]
    config, unix = tmp_path / "farcall.toml", tmp_path / "socket"
    for path in paths:
        add_tokens(path, "alice")
        path.chmod(0o644)
    config.write_text(f'[access]\ntokens = "{paths[0]}"\n')
    server = serve("--config", config, "--unix", unix)
    client = farcall.connect(f"unix://{unix}")

    def hidden():
        read = client.function("read_file")
        return [path.name for path in paths if read(str(path)).error_number != 0]

    assert hidden() == ["tokens"]
    config.write_text(f'[access]\ntokens = "{paths[1]}"\n')
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: hidden() == ["tokens", "others"], what="the new walls")


def frame(kind, request, payload):
    return struct.pack("<IB3xQ", len(payload), kind, request) + payload


def text(value):
    data = value.encode()
    assert len(data) < 256
    return bytes([0x78, len(data)]) + data


def receive(stream):
    header = stream.recv(16, socket.MSG_WAITALL)
    length, kind = struct.unpack("<IB11x", header)
    return kind, stream.recv(length, socket.MSG_WAITALL)


def pull(server, address):
    """Asks a server to read an array from an address. The failure's text, and how long it took."""
    host, port = server.address.removeprefix("farcall://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as stream:
        hello = b"\x85" + text("farcall") + b"\x01\x01\x19\x22\x00"
        stream.sendall(frame(1, 0, hello + text("test")))
        assert receive(stream)[0] == 1
        form = b"\x83" + text("double") + b"\x81\x02\xf4"
        message = b"\x84" + text(address) + b"\x50" + bytes(range(16)) + form + b"\xf4"
        start = time.monotonic()
        stream.sendall(frame(58, 1, message))
        kind, payload = receive(stream)
        assert kind == 10, (kind, payload)
        return payload[2:].decode(errors="replace"), time.monotonic() - start


def test_a_server_shows_its_credentials_to_no_address_that_a_client_chooses(serve):
    server = serve(environment={"FARCALL_TOKEN": SECRET})
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def listen():
            with contextlib.suppress(OSError):
                while True:
                    stream, _ = listener.accept()
                    stream.settimeout(1)
                    with stream, contextlib.suppress(TimeoutError):
                        heard.append(stream.recv(4096))

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        of_open, open_s = pull(server, f"farcall://127.0.0.1:{port}")
        # A close alone does not end an accept under way: the port would stay open.
        listener.shutdown(socket.SHUT_RDWR)
        listening.join()
    of_closed, closed_s = pull(server, f"farcall://127.0.0.1:{port}")
    assert heard and SECRET.encode() not in b"".join(heard)
    assert of_open == of_closed
    # Both answers take the same time: no failure is told earlier than after three seconds.
    assert min(open_s, closed_s) > 2.9, (open_s, closed_s)
    assert abs(open_s - closed_s) < 2.0, (open_s, closed_s)


def test_an_array_travels_between_servers_by_its_loan_alone(serve, tmp_path):
    tokens = tmp_path / "tokens"
    (alice,) = add_tokens(tokens, "alice")
    without = {"FARCALL_TOKEN": ""}
    here, there = (serve("--tokens", tokens, environment=without) for _ in range(2))
    array = np.arange(1000.0)
    ours, theirs = (server.connect(token=alice) for server in (here, there))
    copy = ours.put(array).copy_to(theirs)
    assert (copy.get() == array).all()
    with pytest.raises(farcall.Error, match="asks for a token"):
        here.connect()


def test_a_loan_opens_nothing_but_its_array(serve, tmp_path):
    tokens = tmp_path / "tokens"
    add_tokens(tokens, "alice")
    server = serve("--tokens", tokens)
    host, port = server.address.removeprefix("farcall://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as stream:
        # No array is lent under this name.
        hello = b"\x8a" + text("farcall") + b"\x01\x01\x19\x22\x00" + text("test")
        stream.sendall(frame(1, 0, hello + b"\xf6" * 4 + b"\x50" + bytes(16)))
        kind, payload = receive(stream)
        assert kind == 12 and b"no array is lent under this name" in payload


def test_a_token_that_the_disk_has_no_room_for_leaves_the_others(tmp_path):
    tokens = tmp_path / "tokens"
    add_tokens(tokens, "alice")
    before = tokens.read_bytes()
    # A part of the line can be written, as on a disk that is almost full.
    most = len(before) + 20
    ran = subprocess.run(
        [FARCALL, "access", "token", "add", tokens, "bob"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        restore_signals=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert ran.returncode == 1
    assert str(tokens) in ran.stderr
    assert tokens.read_bytes() == before


HERE = pathlib.Path(__file__).parent
SECURITY = ROOT / "docs" / "security.md"
MPICC = shutil.which("mpicc.mpich")
# A user without rights, who need not have a name.
PLAIN = 54321

CONFIG = """\
[workers]
memory = 500000000
time_limit_s = 60.0
[limits]
files = 100000000
"""

PYTHON = """\
import ctypes
import farcall

probes = ctypes.CDLL("{folder}/libprobes.so")


@farcall.library("run_probe(IN string name, IN string argument, OUT int *escaped)")
def run_probe(name, argument):
    escaped = ctypes.c_int()
    probes.run_probe(name.encode(), argument.encode(), ctypes.byref(escaped))
    return escaped.value
"""

NATIVE = """\
Module probes;
Library "./libprobes.so";
Define run_probe(IN string name, IN string argument, OUT int *escaped)
    {backend} Calls "C" run_probe(name, argument, escaped);
"""


def compile_probes(folder, with_mpi):
    compiler = [MPICC, "-DWITH_MPI", "-Wl,--no-as-needed"] if with_mpi else ["cc"]
    flags = ["-shared", "-fPIC", "-O1", "-o", folder / "libprobes.so", HERE / "probes.c", "-lrt"]
    subprocess.run([*compiler, *flags], check=True, timeout=60)


def interface(folder, host):
    """What a server serves: the probes as a library, from Python, or in several processes."""
    compile_probes(folder, host == "mpi")
    if host == "python":
        path = folder / "probes.py"
        path.write_text(PYTHON.format(folder=folder))
        return path
    path = folder / "probes.idl"
    backend = 'Backend "MPI" ProcessorElements 2' if host == "mpi" else ""
    path.write_text(NATIVE.format(backend=backend))
    return path


def as_user(user, *command):
    who = {"user": user, "group": user, "extra_groups": []}
    return subprocess.run(command, **who, capture_output=True, check=False, timeout=60)


def skip_if_impossible(host, user):
    if user is not None and os.geteuid() != 0:
        pytest.skip("needs root, to start a server as another user")
    if host == "mpi" and MPICC is None:
        pytest.skip("no MPICH: apt install libmpich-dev")
    if user is None:
        return
    try:
        reached = as_user(user, FARCALL, "--version").returncode == 0
    except PermissionError:
        reached = False
    if not reached:
        pytest.skip("another user cannot reach this checkout")


def python_of(user):
    """Variables that name a Python which a user can run, with the packages of this one."""
    packages = sysconfig.get_paths()["purelib"]
    for program in (sys.executable, "/usr/bin/python3"):
        variables = {"FARCALL_PYTHON": program, "PYTHONPATH": packages}
        with contextlib.suppress(OSError):
            script = ["env", f"PYTHONPATH={packages}", program, "-c", "import farcall, numpy"]
            if user is None or as_user(user, *script).returncode == 0:
                return variables
    pytest.skip("another user cannot run a Python with these packages")


class Prison:
    """A server with secrets around it, and the arguments of the probes."""

    def __init__(self, host, user, stack):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="farcall-walls-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        own, open_folder = folder / "secrets", folder / "open"
        for each in own, open_folder:
            each.mkdir()
        idl = interface(open_folder, host)
        certificates(own / "tls")
        (self.token,) = add_tokens(own / "tokens", "alice")
        (own / "own.key").write_text(SECRET)
        (own / "audit").write_text("{}\n")
        others = folder / "others"
        others.write_text(SECRET)
        (open_folder / "farcall.toml").write_text(CONFIG)
        if user is not None:
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, user, user)
        abstract = f"farcall-probe-{os.getpid()}-{folder.name}"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + abstract)
        self.listener.listen()
        stack.callback(self.listener.close)
        files = {"tokens": own / "tokens", "audit": own / "audit", "state": own / "state"}
        options = [
            *(word for name, path in files.items() for word in (f"--{name}", path)),
            *("--tls", own / "tls", "--unix", own / "socket"),
            *("--config", open_folder / "farcall.toml"),
        ]
        environment = {
            "FARCALL_TOKEN": SECRET,
            "FARCALL_KEY": str(own / "own.key"),
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "HOME": str(folder),
        }
        if host == "python":
            environment |= python_of(user)
        ends = os.openpty()
        for end in ends:
            stack.callback(os.close, end)
        if user is not None:
            os.fchown(ends[1], user, user)
        self.server = ServerProcess(
            idl,
            options=[*map(str, options)],
            environment=environment,
            user=user,
            terminal=os.ttyname(ends[1]),
        )
        stack.callback(self.server.stop)
        pid, port = str(self.server.process.pid), self.server.address.rsplit(":", 1)[1]
        self.name = f"probe-{os.getpid() % 10000}"
        tls = own / "tls"
        self.authority = tls / "authority.pem"
        self.arguments = {
            "variable_token": "FARCALL_TOKEN",
            "variable_key": "FARCALL_KEY",
            "variable_cloud": "AWS_SECRET_ACCESS_KEY",
            "environ_of_keeper": "1",
            "root_of_keeper": "1",
            "reads_tokens": own / "tokens",
            "reads_server_key": tls / "server.key",
            "reads_authority_key": own / "tls-authority" / "authority.key",
            "reads_own_key": own / "own.key",
            "lists_state": own / "state",
            "reads_audit": own / "audit",
            "reads_shadow": "/etc/shadow",
            "reads_tmp_of_others": others,
            "lists_root": "/root",
            "reads_by_symlink": own / "own.key",
            "reads_by_hard_link": open_folder / "farcall.toml",
            "reads_by_parent": others,
            "reads_by_handle": own / "own.key",
            "reads_disk": "/dev/vda" if pathlib.Path("/dev/vda").exists() else "/dev/sda",
            "reads_kernel_memory": "/dev/mem",
            "writes_beside_interface": open_folder / "new",
            "writes_etc": "/etc/farcall-probe",
            "writes_audit": own / "audit",
            "writes_core_pattern": "/proc/sys/kernel/core_pattern",
            "writes_memory_limit": "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "message_queue": "/farcall-probe",
            "leaves_child": self.name,
            "forks": "5000",
            "system_v": "4711",
            "system_v_memory": "2000",
            "segments": "2000",
            "memory_files": "2000",
            "shared_memory": "1500",
            "private_memory": "1500",
            "memory_of_children": "2400",
            "many_files": "/tmp",
            "removed_files": "/tmp",
            "large_file": "/tmp",
            "connects_server": port,
            "connects_abstract": abstract,
            "connects_unix": own / "socket",
            "uncovers": "/dev/shm",
            "opens_terminals": "/dev/pts",
        }
        of_server = "environ maps memory sees signals traces reads_memory opens slows binds enters"
        for name in probe_names():
            if any(name.startswith(word) for word in of_server.split()) and "server" in name:
                self.arguments.setdefault(name, pid)

    def connect(self):
        return self.server.connect(token=self.token, authorities=self.authority)

    def try_out(self, function, name):
        """Whether an attempt works. An attempt that ends its worker does not."""
        try:
            escaped = function(name, str(self.arguments.get(name, ""))).escaped
        except farcall.Error as error:
            # An attempt without an end would say nothing.
            assert "time limit" not in str(error), name
            return False
        assert escaped in (0, 1), name
        return escaped == 1


def probe_names():
    return re.findall(r'\{"(\w+)", \w+\}', (HERE / "probes.c").read_text())


def named_exceptions(host, user):
    """The probes that docs/security.md names as working for this host of functions and server."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|", SECURITY.read_text(), re.MULTILINE)
    who = "root" if user is None and os.geteuid() == 0 else "plain"
    return {
        name
        for name, hosts, servers in rows
        if hosts.strip() in (host, "all") and servers.strip() in (who, "all")
    }


@pytest.mark.parametrize("user", [None, PLAIN], ids=["root", "plain"])
@pytest.mark.parametrize("host", ["library", "python", "mpi"])
def test_no_probe_escapes_that_the_documentation_does_not_name(host, user):
    skip_if_impossible(host, user)
    names = probe_names()
    assert len(names) >= 60
    with contextlib.ExitStack() as stack:
        prison = Prison(host, user, stack)
        function = prison.connect().function("run_probe")
        escaped = {name for name in names if prison.try_out(function, name)}
        # No attempt works at a server that is gone.
        assert prison.server.process.poll() is None, prison.server.log()
        assert escaped == named_exceptions(host, user), prison.server.log()
        # The child of `leaves_child` has ended with its call.
        assert not is_running(prison.name)
        # What a function has written is not in the folders that others see.
        assert not list(pathlib.Path("/tmp").glob("probe-*-99"))
        assert not list(pathlib.Path("/dev/shm").glob("farcall-probe-*"))


def is_running(name):
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if path.read_text().strip() == name:
                return True
    return False


def test_all_processes_of_a_worker_end_with_a_server_that_is_killed(serve):
    server = serve()
    server.connect().function("variable")("PATH")
    (keeper,) = server.workers()
    (worker,) = children(keeper)
    adjusted = pathlib.Path(f"/proc/{worker}/oom_score_adj").read_text()
    assert int(adjusted) >= 500
    server.process.kill()
    server.process.wait()
    gone = [pathlib.Path(f"/proc/{pid}") for pid in (keeper, worker)]
    wait_until(lambda: not any(path.exists() for path in gone), what="the end of the worker")


def test_the_doctor_names_the_walls():
    doctor = [FARCALL, "doctor"]
    found = subprocess.run(doctor, capture_output=True, check=False, text=True, timeout=60).stdout
    (line,) = [line for line in found.splitlines() if line.split()[1:2] == ["walls"]]
    assert "seccomp" in line


# Starts a server, as a user without rights, in a place where nobody can make namespaces.
WITHOUT_NAMESPACES = """\
import ctypes, os, sys

user = int(sys.argv[1])
library = ctypes.CDLL(None, use_errno=True)
(ready, tell_ready), (mapped, tell_mapped) = os.pipe(), os.pipe()
child = os.fork()
if child:
    os.read(ready, 1)
    for name in "uid_map", "gid_map":
        with open(f"/proc/{child}/{name}", "w") as file:
            file.write("0 0 65536")
    os.write(tell_mapped, b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
new_users = 0x10000000
assert library.unshare(new_users) == 0
os.write(tell_ready, b"x")
os.read(mapped, 1)
os.setgroups([])
os.setresgid(0, 0, 0)
os.setresuid(0, 0, 0)
with open("/proc/sys/user/max_user_namespaces", "w") as file:
    file.write("0")
os.setresgid(user, user, user)
os.setresuid(user, user, user)
assert library.prctl(1, 9) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to forbid namespaces to a server")
def test_a_server_goes_on_without_walls_unless_they_are_required(tmp_path):
    skip_if_impossible("library", PLAIN)
    with tempfile.TemporaryDirectory(prefix="farcall-walls-") as folder:
        pathlib.Path(folder).chmod(0o755)
        idl = pathlib.Path(folder) / "look.idl"
        idl.write_text(LOOK)
        required = pathlib.Path(folder) / "farcall.toml"
        required.write_text("[workers]\nwalls_required = true\n")
        serve = [FARCALL, "serve", idl, "--allow-code", "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-c", WITHOUT_NAMESPACES, str(PLAIN), *serve]
        refused = subprocess.run(
            [*command, "--config", required],
            capture_output=True,
            check=False,
            text=True,
            timeout=60,
        )
        assert refused.returncode == 1
        assert "workers.walls_required" in refused.stderr
        log = tmp_path / "log"
        with (
            log.open("w") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
        ):
            try:
                address = server.stdout.readline().split()[-1]
                assert farcall.connect(address).function("variable")("PATH").is_set == 1
            finally:
                for child in children(server.pid):
                    os.kill(child, signal.SIGTERM)
        assert "the system refuses processes of their own" in log.read_text()
        assert "walls around functions: Landlock, seccomp" in log.read_text()
