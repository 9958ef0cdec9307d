"""A pool of servers in Slurm, which grows and shrinks with the work."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from ._errors import ServerError
from ._native import Server, connect


class SlurmPool:
    """Servers that Slurm runs as jobs, as the backlog of calls asks for them.

    with farcall.SlurmPool("lapack", options=["--time=04:00:00"]).adapt(0, 20) as pool:
        dgesv = pool.connect().function("dgesv")

    `libraries` are the interface files, Python modules or names of libraries that the servers
    serve; without any, they run Python functions for `farcall.Executor`. `options` go to `sbatch`.
    A pool with nodes or clients on other hosts needs `listen`, the address of the metaserver on
    this host; `tls`, the folder of a certificate with the names and addresses of all hosts; and the
    file `tokens` with the name `server_user` in it. The times are in seconds:

    - `backlog` of predicted work for each server, above which another one is asked for;
    - `idle`, after which a server that nobody uses leaves;
    - `lead` before its time limit, at which a server drains;
    - `every`, between two questions to Slurm.

    It runs the command `farcall up --slurm`, whose messages go to the standard error output.
    """

    def __init__(
        self,
        *libraries: str | os.PathLike[str],
        options: str | Iterable[str] = (),
        listen: str | None = None,
        tls: str | os.PathLike[str] | None = None,
        tokens: str | os.PathLike[str] | None = None,
        server_user: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        backlog: float = 30.0,
        idle: float = 120.0,
        lead: float = 60.0,
        every: float = 5.0,
    ) -> None:
        """Notes the settings. `adapt` starts the pool."""
        given = {
            "--listen": listen or "127.0.0.1:0",
            "--tls": tls,
            "--tokens": tokens,
            "--server-user": server_user,
            "--slurm-folder": folder,
            "--backlog": backlog,
            "--idle": idle,
            "--lead": lead,
            "--every": every,
        }
        self._words = ["up", "--slurm", "--end-with-input"]
        self._words += [*(os.fspath(library) for library in libraries)]
        self._words += [] if libraries else ["--pickled"]
        each = [options] if isinstance(options, str) else options
        self._words += [f"--slurm-option={option}" for option in each]
        for name, value in given.items():
            self._words += [] if value is None else [name, str(value)]
        self._process: subprocess.Popen[str] | None = None
        self._address = ""

    def adapt(self, minimum: int = 0, maximum: int = 20) -> "SlurmPool":
        """Starts the pool: Slurm runs at least `minimum` servers, and has at most `maximum` jobs.

        With `minimum=0`, one more server runs on this machine. It knows the interfaces, and takes
        the calls that come before Slurm's servers are there.
        """
        if self._process is not None:
            raise RuntimeError("the pool has started already: close it, and make another one")
        words = [sys.executable, "-m", "farcall", *self._words]
        words += ["--min", str(minimum), "--max", str(maximum)]
        # A Ctrl-C of the terminal is for this program, which closes the pool. If this program is
        # killed, the input of the pool ends, and the pool with it.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("listening on ") and not self._address:
                self._address = line.split()[-1].replace("farcall", "meta", 1)
            if line.startswith("page at "):
                return self
        status = self.close()
        text = f"`farcall up --slurm` has ended with status {status}: see its error above"
        raise ServerError(text)

    @property
    def address(self) -> str:
        """The address of the pool: `meta://HOST:PORT`, or `metas://HOST:PORT` with TLS."""
        if not self._address:
            raise RuntimeError("the pool has not started: call `adapt`")
        return self._address

    def connect(self, **options: Any) -> Server:
        """A connection to all servers of the pool; the options are those of `farcall.connect`."""
        return connect(self.address, **options)

    def close(self, seconds: float = 30.0) -> int | None:
        """Ends the pool with all its servers, and returns the status of the command."""
        process, self._process, self._address = self._process, None, ""
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in process.stdin, process.stdout:
            if pipe is not None:
                pipe.close()
        return process.returncode

    def __enter__(self) -> "SlurmPool":
        """The pool."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Ends the pool."""
        self.close()

    def __del__(self) -> None:
        """Ends the pool that nobody has closed."""
        with contextlib.suppress(Exception):
            self.close()

    def __repr__(self) -> str:
        """The address of the pool."""
        return f"<farcall.SlurmPool {self._address or 'not started'}>"
