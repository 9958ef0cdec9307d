"""A PostgreSQL of a test, in a temporary folder and on a free port of the loopback."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

from servers import ROOT, wait_until

SETUP = ROOT / "scripts" / "setup"
_TRIES = 5


def _programs():
    """The folder of PostgreSQL's programs, which Debian does not put on the path."""
    folders = pathlib.Path("/usr/lib/postgresql").glob("*/bin")
    return max((folder for folder in folders if (folder / "initdb").exists()), default=None)


class PostgreSQL:
    """A running database, whose administrator is `farcall` on its Unix socket."""

    def __init__(self):
        """Makes and starts it. Raises `FileNotFoundError` if there can be none."""
        said = subprocess.run([SETUP, "postgres"], capture_output=True, text=True, check=False)
        programs = _programs()
        if programs is None:
            raise FileNotFoundError(f"PostgreSQL is not installed: {said.stderr.strip()}")
        self._programs = programs
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self._as = []
        if os.geteuid() == 0:
            # PostgreSQL does not run as root.
            self._as = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"]
            subprocess.run(["chown", "postgres", self.folder], check=True)
        words = ["--auth-local=trust", "--auth-host=scram-sha-256", "-U", "farcall", "--no-sync"]
        self._run("initdb", *words, "-D", self.folder / "data")
        for left in reversed(range(_TRIES)):
            self.port = _free_port()
            if self._start() or not left:
                break

    def _command(self, program, *words):
        return [*self._as, self._programs / program, *map(str, words)]

    def _run(self, program, *words, **options):
        return subprocess.run(
            self._command(program, *words),
            cwd=self.folder,
            check=True,
            capture_output=True,
            text=True,
            **options,
        )

    def _start(self):
        """Starts it. Returns whether it runs: another program may have taken the port."""
        words = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-c", "fsync=off"]
        words += ["-c", f"unix_socket_directories={self.folder}", "-D", self.folder / "data"]
        self.process = subprocess.Popen(
            self._command("postgres", *words),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
        ready = self._command("pg_isready", "-q", "-h", self.folder, "-p", self.port)

        def is_over():
            ended = self.process.poll() is not None
            return ended or subprocess.run(ready, cwd=self.folder, check=False).returncode == 0

        wait_until(is_over, what="PostgreSQL")
        return self.process.poll() is None

    def execute(self, text):
        """Runs statements as its administrator. Returns what they give."""
        words = ["-qtA", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-p", self.port]
        words += ["-U", "farcall", "-d", "postgres", "-f", "-"]
        return self._run("psql", *words, input=text).stdout.strip()

    def serve_tls(self, certificates):
        """Serves with TLS, with the certificate of a folder, from now on."""
        for name in ["server.pem", "server.key"]:
            there = self.folder / name
            there.write_bytes((certificates / name).read_bytes())
            there.chmod(0o600)
            if self._as:
                shutil.chown(there, "postgres")
        files = f"ssl_cert_file = '{self.folder}/server.pem'"
        self.execute(f"alter system set {files}")
        self.execute(f"alter system set ssl_key_file = '{self.folder}/server.key'")
        self.execute("alter system set ssl = on")
        self.execute("select pg_reload_conf()")
        wait_until(lambda: self.execute("show ssl") == "on", what="TLS")

    def stop(self):
        """Ends it at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
        self.process.wait(30)

    def close(self):
        """Ends it and removes its folder."""
        self.stop()
        self._folder.cleanup()


def _free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
