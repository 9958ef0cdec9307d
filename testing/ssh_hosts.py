"""Two hosts in network namespaces, of which one has a real sshd."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import threading

from servers import ROOT, stop, wait_until

SSHD = "/usr/sbin/sshd"


def run(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


class Site:
    """Two hosts: one has an sshd, and ssh runs on the other one."""

    def __init__(self, folder):
        self.folder = folder
        name = f"fc-ssh-{os.getpid()}"
        self.near, self.far = f"{name}-a", f"{name}-b"
        self.runtime = folder / "run"
        self.runtime.mkdir(mode=0o700)
        self.config = folder / "ssh_config"
        self.sshd = None

    def build(self):
        """Makes the hosts and starts sshd. `scripts/setup programs` installs what is missing."""
        if not shutil.which("ssh") or not pathlib.Path(SSHD).exists():
            run(ROOT / "scripts" / "setup", "programs")
        for space in [self.near, self.far]:
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        run(
            "ip",
            "-n",
            self.near,
            "link",
            "add",
            "l0",
            "type",
            "veth",
            "peer",
            "l0",
            "netns",
            self.far,
        )
        for space, address in [(self.near, "10.9.0.1"), (self.far, "10.9.0.2")]:
            run("ip", "-n", space, "address", "add", f"{address}/24", "dev", "l0")
            run("ip", "-n", space, "link", "set", "l0", "up")
        for key in ["host", "user"]:
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key)
        # The login prints a line, as those of many hosts do.
        (self.folder / "sshd_config").write_text(
            f"ListenAddress 10.9.0.2\nHostKey {self.folder}/host\nPidFile none\nStrictModes no\n"
            f"AuthorizedKeysFile {self.folder}/user.pub\nPermitRootLogin yes\nUsePAM no\n"
            f"SetEnv XDG_RUNTIME_DIR={self.runtime}\nAllowStreamLocalForwarding yes\n"
        )
        self.config.write_text(
            f"Host far\nHostName 10.9.0.2\nUser root\nIdentityFile {self.folder}/user\n"
            f"IdentitiesOnly yes\nUserKnownHostsFile {self.folder}/known\n"
            "StrictHostKeyChecking accept-new\nLogLevel ERROR\nBatchMode yes\n"
        )
        # A server of this machine is none of that host. sshd separates its privileges in a folder.
        own = 'mount -t tmpfs none /run && mkdir /run/sshd && exec "$0" "$@"'
        words = [
            "ip",
            "netns",
            "exec",
            self.far,
            "sh",
            "-c",
            own,
            SSHD,
            "-D",
            "-e",
            "-f",
            self.folder / "sshd_config",
        ]
        self.sshd = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert "listening" in self.sshd.stderr.readline()
        threading.Thread(target=self.sshd.stderr.read, daemon=True).start()
        return self

    def remove(self):
        """Ends everything."""
        try:
            if self.sshd is not None:
                stop(self.sshd)
            for pid in self.servers():
                # It may have ended meanwhile, as one without clients does.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not self.servers())
        finally:
            for space in [self.near, self.far]:
                subprocess.run(["ip", "netns", "delete", space], check=False, capture_output=True)

    def servers(self):
        """The servers that were started for `ssh://`."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_text(errors="replace").split("\0")
                if "serve" in words and any(str(self.runtime) in word for word in words):
                    found.append(int(entry.name))
        return found

    @property
    def ssh(self):
        """The program of ssh, on the near host."""
        return f"ip netns exec {self.near} ssh -F {self.config}"
