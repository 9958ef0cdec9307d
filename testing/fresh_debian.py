"""A fresh Debian or Ubuntu in a folder, with Python alone, for tests of packages."""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess

import pytest
from servers import ROOT

# What a newcomer has.
PACKAGES = ["ca-certificates", "openssh-client", "python3", "python3-pip"]
CACHE = ROOT / "target" / "fresh-debian"
# A new root of the mount namespace, which also a process that enters the namespace again has.
ENTER = """
mount --rbind "$1" "$1"
cd "$1"
shift
pivot_root . mnt
cd /
umount --lazy --no-mtab /mnt
exec "$@"
"""


def sources():
    """The files that say where this machine has its packages from."""
    apt = pathlib.Path("/etc/apt")
    known = [apt / "sources.list.d" / name for name in ("debian.sources", "ubuntu.sources")]
    found = [path for path in [*known, apt / "sources.list"] if path.is_file()]
    return found[:1]


def archive():
    """The archive of a fresh system, which `mmdebstrap` makes once."""
    if shutil.which("mmdebstrap") is None:
        subprocess.run([ROOT / "scripts" / "setup", "debian"], check=False, timeout=300)
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is missing: `scripts/setup debian` installs it")
    release = dict(
        line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines()
    )
    suite = release["VERSION_CODENAME"].strip('"')
    [source] = sources()
    inputs = [suite, source.read_text(), *PACKAGES]
    name = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    made = CACHE / f"{name}.tar"
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            settings = subprocess.run(
                ["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True
            )
            (CACHE / "apt.conf").write_text(settings.stdout)
            part = made.with_suffix(".part.tar")
            words = ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root"]
            words += [f"--aptopt={CACHE / 'apt.conf'}", f"--include={','.join(PACKAGES)}"]
            subprocess.run([*words, suite, part, source], check=True, timeout=500)
            part.rename(made)
    return made


class FreshDebian:
    """The folder of a system, in memory. Programs run in it with a /proc of their own."""

    def __init__(self, folder):
        made = archive()
        self.root = folder / "root"
        self.root.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", "mode=755", "farcall-test", self.root]
        subprocess.run(words, check=True)
        words = ["tar", "--extract", "--file", made, "--directory", self.root]
        subprocess.run(words, check=True, timeout=120)

    def close(self):
        """Removes it."""
        subprocess.run(["umount", "--lazy", self.root], check=True)

    def copy(self, path, place):
        """Copies a file to a place such as `root/wheels`."""
        target = self.root / place / pathlib.Path(path).name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        return f"/{place}/{target.name}"

    def run(self, command, *before, timeout=100, **environment):
        """Runs a line of the shell, after the words `before`, and returns its result."""
        variables = {
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        }
        variables |= environment
        words = [*before, "unshare", "--mount", "--pid", "--fork", "--kill-child"]
        words += [f"--mount-proc={self.root}/proc", "sh", "-ec", ENTER, "sh", self.root]
        words += ["env", "-i"]
        words += [f"{name}={value}" for name, value in variables.items()]
        return subprocess.run(
            [*words, "sh", "-ec", command],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def files(self):
        """All files, without the lists and logs of dpkg and the cache of the linker."""
        kept = ("var/lib/dpkg/", "var/log/", "var/cache/", "etc/ld.so.cache", "tmp/", "proc/")
        found = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))
        return {path for path in found if not path.startswith(kept)}
