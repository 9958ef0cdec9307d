"""What users install: the Debian package and the wheel, in a fresh Debian."""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import zipfile

import pytest
from fresh_debian import FreshDebian
from servers import FARCALL, ROOT
from ssh_hosts import Site

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a root folder of its own needs root"),
    pytest.mark.timeout(900),
]

# A server and a call, in one line of the shell.
CALL = """
farcall serve ep --listen 127.0.0.1:0 >/tmp/told 2>/tmp/log &
server=$!
for i in $(seq 300); do grep -q listening /tmp/told && break; sleep 0.1; done
farcall call ep m=10 --server "$(cut -d' ' -f3 /tmp/told)" || { cat /tmp/log; exit 1; }
kill $server
wait $server || true
"""

PROGRAM = """
#include <farcall.h>
#include <stdio.h>
int main(void)
{
    farcall_server *server = farcall_connect("http://nowhere");
    printf("%s: %s\\n", farcall_version(), server ? "connected" : farcall_error_message());
    return 0;
}
"""


@pytest.fixture
def fresh(tmp_path):
    """A fresh Debian, which nothing has changed."""
    made = FreshDebian(tmp_path)
    yield made
    made.close()


def host(words, umask=-1, **environment):
    ran = subprocess.run(
        list(map(str, words)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
        umask=umask,
        env=os.environ | environment,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def package():
    """The Debian package."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is missing: this is not Debian")
    fast = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    # The files of a user with this mask are closed to all others.
    return ROOT / host([ROOT / "scripts" / "deb"], umask=0o077, **fast).strip()


def test_the_debian_package_is_installed_calls_and_leaves_nothing(fresh, package, tmp_path):
    before = fresh.files()
    place = fresh.copy(package, "tmp")
    installed = fresh.run(f"dpkg --install {place}")
    assert installed.returncode == 0, installed.stderr
    called = fresh.run(CALL)
    assert called.returncode == 0, called.stdout + called.stderr
    assert called.stdout.startswith("sums [2] = ["), called.stdout

    # A program in C, which is compiled on another machine with the installed files.
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    [folder] = (fresh.root / "usr" / "lib").glob("*/pkgconfig")
    found = {"PKG_CONFIG_LIBDIR": str(folder), "PKG_CONFIG_SYSROOT_DIR": str(fresh.root)}
    flags = host(["pkg-config", "--cflags", "--libs", "farcall"], **found).split()
    host(["cc", source, *flags, "-o", fresh.root / "tmp" / "program"])
    ran = fresh.run("/tmp/program")
    assert ": `http://nowhere`" in ran.stdout or "not a server address" in ran.stdout, ran.stderr

    added = fresh.files() - before
    for path in [
        "usr/bin/farcall",
        "usr/include/farcall/farcall.h",
        "usr/lib/farcall/lapack.idl",
        "usr/lib/systemd/system/farcall.service",
        "usr/share/bash-completion/completions/farcall",
        "usr/share/man/man1/farcall-serve.1.gz",
    ]:
        assert path in added, sorted(added)
    assert [path for path in added if not (fresh.root / path).lstat().st_mode & 0o004] == []
    unit = (fresh.root / "usr/lib/systemd/system/farcall.service").read_text()
    assert "/usr/local" not in unit
    assert "ExecStart=/usr/bin/farcall serve" in unit

    removed = fresh.run("dpkg --purge farcall")
    assert removed.returncode == 0, removed.stderr
    assert fresh.files() - before == set()


@pytest.fixture
def hosts(tmp_path):
    """Two hosts, of which one has an sshd."""
    made = Site(tmp_path)
    try:
        yield made.build()
    finally:
        made.remove()


def put_wheels(fresh, wheel):
    """Puts a wheel and that of NumPy into a folder of the fresh Debian."""
    fresh.copy(wheel, "wheels")
    told = fresh.run("python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'")
    words = [ROOT / ".venv" / "bin" / "python", "-m", "pip", "download", "--quiet", "--no-deps"]
    words += ["--only-binary=:all:", "--python-version", told.stdout.strip()]
    host([*words, "--dest", fresh.root / "wheels", "numpy"])
    return "/wheels"


def newest(folder):
    """The newest wheel of a folder of target, if there is one."""
    made = sorted((ROOT / "target" / folder).glob("farcall-*.whl"), key=os.path.getmtime)
    return made[-1] if made else None


def install(fresh, wheels, *before):
    """Installs the wheel, as with a package index that has it."""
    index = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels, "PIP_BREAK_SYSTEM_PACKAGES": "1"}
    ran = fresh.run("pip install farcall", *before, PIP_ROOT_USER_ACTION="ignore", **index)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def wheels(fresh):
    """The folder of the fresh Debian with the wheel and that of NumPy."""
    made = newest("wheels")
    assert made, "there is no wheel: `make build` makes it"
    return put_wheels(fresh, made)


def test_a_newcomer_solves_a_system_on_another_host_in_two_commands(fresh, wheels, hosts):
    folder = fresh.root / "root" / ".ssh"
    folder.mkdir(mode=0o700, parents=True)
    shutil.copy(hosts.folder / "user", folder / "id")
    (folder / "config").write_text(
        "Host far\nHostName 10.9.0.2\nUser root\nIdentityFile /root/.ssh/id\n"
        "StrictHostKeyChecking accept-new\nLogLevel ERROR\nBatchMode yes\n"
    )
    near = ["ip", "netns", "exec", hosts.near]
    install(fresh, wheels, *near)
    server = f"ssh://far?serve=lapack&farcall={FARCALL}"
    system = "n=2 nrhs=1 a=2,1,1,3 lda=2 b=1,1 ldb=2"
    second = fresh.run(f"farcall call dgesv {system} --server '{server}'", *near)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "b [2, 1] = [0.400000, 0.200000]\n" in second.stdout, second.stdout
    assert len(hosts.servers()) == 1

    # The module, and what C programs need.
    program = f"""
import farcall, numpy
a = numpy.array([[2.0, 1], [1, 3]], order="F")
dgesv = farcall.connect({server!r}).function("dgesv")
solved = dgesv(2, 1, a, 2, numpy.zeros(2, "i4"), numpy.ones(2), 2)
print(numpy.round(solved.b, 12).ravel().tolist())
"""
    (fresh.root / "tmp" / "program.py").write_text(program)
    third = fresh.run("python3 /tmp/program.py && ls /usr/local/lib/libfarcall.so.1", *near)
    assert third.stdout == "[0.4, 0.2]\n/usr/local/lib/libfarcall.so.1\n", third.stderr


@pytest.fixture
def manylinux():
    """The wheel for every Linux with glibc 2.28 or newer, which a release has."""
    made = newest("manylinux")
    if made is None:
        pytest.skip("there is no manylinux wheel: `scripts/manylinux` makes it")
    assert "-manylinux_2_28_" in made.name
    return made


def test_the_manylinux_wheel_needs_glibc_2_28_and_nothing_else(manylinux, tmp_path):
    with zipfile.ZipFile(manylinux) as made:
        made.extractall(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    programs = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
    glibc = {"c", "dl", "m", "pthread", "rt", "util"}
    versions = set()
    for program in programs:
        told = host(["readelf", "--dynamic", "--version-info", "--wide", program])
        needed = set(re.findall(r"\(NEEDED\).*\[lib(\w+)\.so", told))
        assert needed <= glibc, program
        versions |= {int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", told)}
    assert max(versions) == 28, sorted(versions)
    names = {path.name for path in programs}
    assert {"farcall", "libfarcall.so.1", "libfarcall_lapack.so", "_native.abi3.so"} <= names


# A function in Python that calls back, and OpenBLAS.
SERVED = """
import farcall


@farcall.library("total(IN int n, OUT double *sum, f(IN double x, OUT double *y))")
def total(n, f):
    return sum(f(float(i)) for i in range(n))
"""
CALLER = """
import os

import farcall
import numpy

server = farcall.connect(os.environ["SERVER"])
print(server.call("total", 4, f=lambda x: x * x).sum)
a = numpy.array([[2.0, 1], [1, 3]], order="F")
solved = server.call("dgesv", 2, 1, a, 2, numpy.zeros(2, "i4"), numpy.ones(2), 2)
print(solved.info, numpy.round(solved.b, 12).ravel().tolist())
try:
    server.call("dgemv", "X", 2, 2, 1.0, a, 2, numpy.ones(2), 1, 0.0, numpy.ones(2), 1)
except farcall.Error as error:
    print(error)
"""
JOB = """
import numpy
from farcall.channel import Channel

channel = Channel()
total = channel.all_reduce(numpy.array([channel.rank + 1.0]))
if channel.rank == 0:
    print(total[0])
"""
USE = """
farcall serve /tmp/served.py lapack blas --listen 127.0.0.1:0 >/tmp/told 2>/tmp/log &
server=$!
farcall gang daemon --listen 127.0.0.1:0 --control @farcall-manylinux >/tmp/gang 2>>/tmp/log &
daemon=$!
for i in $(seq 300); do
    grep -q listening /tmp/told && grep -q listening /tmp/gang && break
    sleep 0.1
done
status=0
SERVER="$(cut -d' ' -f3 /tmp/told)" python3 /tmp/caller.py || status=$?
farcall gang run --control @farcall-manylinux --quiet -n 2 -- python3 /root/job.py || status=$?
kill $server $daemon
wait $server $daemon || true
[ $status = 0 ] || { cat /tmp/log >&2; exit $status; }
"""


def test_the_manylinux_wheel_serves_functions_and_runs_gangs(fresh, manylinux):
    wheels = put_wheels(fresh, manylinux)
    install(fresh, wheels)
    # What `apt install libopenblas0-pthread` brings.
    for library in ["libopenblas.so.0", "libgfortran.so.5", "libquadmath.so.0"]:
        found = host([os.environ.get("CC", "cc"), f"-print-file-name={library}"]).strip()
        if not pathlib.Path(found).is_file():
            pytest.skip(f"{library} is missing: `scripts/setup system` installs OpenBLAS")
        fresh.copy(found, "usr/local/lib")
    (fresh.root / "tmp" / "served.py").write_text(SERVED)
    (fresh.root / "tmp" / "caller.py").write_text(CALLER)
    # Jobs have a /tmp of their own.
    (fresh.root / "root" / "job.py").write_text(JOB)
    assert fresh.run("ldconfig").returncode == 0
    simple = fresh.run(CALL)
    assert simple.stdout.startswith("sums [2] = ["), simple.stdout + simple.stderr
    used = fresh.run(USE)
    assert used.returncode == 0, used.stdout + used.stderr
    total, solved, wrong, job = used.stdout.splitlines()
    assert total == "14.0"
    assert solved == "0 [0.4, 0.2]"
    # The command exports the error handler of BLAS to the library.
    assert "argument 1 (`trans`) of DGEMV has an illegal value" in wrong
    assert job == "3.0"


def test_a_release_writes_the_addresses_of_the_project_into_the_wheel(tmp_path):
    wheel = tmp_path / "farcall-1.0-py3-none-any.whl"
    metadata = (
        "Metadata-Version: 2.1\nName: farcall\nProject-URL: Old, https://old/\n\nText\n\nMore\n"
    )
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("farcall/__init__.py", "")
        made.writestr("farcall-1.0.dist-info/METADATA", metadata)
        made.writestr(
            "farcall-1.0.dist-info/RECORD",
            "farcall/__init__.py,,\nfarcall-1.0.dist-info/METADATA,sha256=x,1\n",
        )
    told = host([ROOT / "scripts" / "project-urls", wheel], FARCALL_URL="https://host/us/farcall")
    assert "https://host/us/farcall" in told
    with zipfile.ZipFile(wheel) as made:
        written = made.read("farcall-1.0.dist-info/METADATA").decode()
        record = made.read("farcall-1.0.dist-info/RECORD").decode()
    assert "Project-URL: Issues, https://host/us/farcall/issues\n" in written
    assert "https://old" not in written
    assert written.endswith("\n\nText\n\nMore\n")
    digest = hashlib.sha256(written.encode()).digest()
    told = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    assert f"METADATA,sha256={told},{len(written)}\n" in record
