"""Gang daemons for tests, and their commands."""

import contextlib
import json
import os
import subprocess

from servers import FARCALL, stop, wait_until

# Programs of MPI whose messages go over channels.
MPI = ("--network", "farcall")


class Gang:
    """A gang daemon, or one for each of the nodes a, b, c and so on, as a context."""

    def __init__(self, name, *options, nodes=1, slots=2, program=FARCALL):
        self.slots = slots
        self.control = f"@farcall-{name}-{os.getpid()}"
        self.program = program
        self.daemons = []
        with self.ended_by_a_failure():
            self.start_daemons(nodes, options)

    def start_daemons(self, nodes, options):
        parent = ()
        for node in "abcdefgh"[:nodes]:
            control = self.control if node == "a" else f"{self.control}-{node}"
            words = [self.program, "gang", "daemon", "--listen", "127.0.0.1:0"]
            words += ["--control", control, "--node", node, "--slots", str(self.slots)]
            words += ["--slice", "20ms", *options, *parent]
            daemon = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self.daemons.append(daemon)
            line = daemon.stdout.readline()
            assert line.startswith("listening on farcall://"), line
            parent = parent or ("--parent", line.split()[2].removeprefix("farcall://"))

    def __enter__(self):
        if len(self.daemons) > 1:
            with self.ended_by_a_failure():
                wait_until(self.has_all_nodes, what="all nodes")
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        """Ends the daemons, the last first, and all of them also if one does not end in time."""
        with contextlib.ExitStack() as ends:
            for daemon in self.daemons:
                ends.callback(daemon.stdout.close)
                ends.callback(stop, daemon, 10)

    @contextlib.contextmanager
    def ended_by_a_failure(self):
        """Ends the daemons if the block fails: nobody else would."""
        try:
            yield
        except BaseException:
            self.end()
            raise

    def command(self, verb, *words):
        return [self.program, "gang", verb, "--control", self.control, *words]

    def start(self, size, *words, options=()):
        """Starts a job of so many processes."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self.job(size, words, options), stdout=pipe, stderr=pipe, text=True)

    def run(self, size, *words, options=(), timeout=240):
        """Runs a job to its end."""
        return self.finish(self.job(size, words, options), timeout)

    def job(self, size, words, options):
        return self.command("run", "--quiet", *options, "-n", str(size), "--", *words)

    def finish(self, command, timeout=60):
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout)

    def has_all_nodes(self):
        with self.start(self.slots * len(self.daemons), "sleep", "1000") as front:
            try:
                job = wait_until(self.rows, what="the job")[0]
            finally:
                front.kill()
        wait_until(lambda: not self.rows(), what="its end")
        return len(job["nodes"]) == len(self.daemons)

    def ask(self, verb, *words):
        """What a command prints as JSON; nothing if it fails."""
        ran = self.finish(self.command(verb, *words, "--json"))
        return json.loads(ran.stdout) if ran.returncode == 0 else {}

    def rows(self):
        """What is told of each job."""
        return self.ask("ps").get("jobs", [])

    def jobs(self):
        """The numbers of the jobs."""
        return [str(row["id"]) for row in self.rows()]

    def state(self, job):
        """The state of a job and its description; nothing if the job has ended."""
        told = self.ask("state", job)
        return told.get("state", ""), told.get("detail", "")

    def until(self, job, wanted):
        """Waits for a state, and returns its description."""
        last = []

        def is_there():
            last[:] = self.state(job)
            return last[0] == wanted

        try:
            wait_until(is_there, what=wanted)
        except TimeoutError as error:
            raise AssertionError(f"{wanted} did not come: {last}") from error
        return last[1]

    def kill(self, job):
        subprocess.run(self.command("kill", job), check=True, timeout=30)

    def move(self, job, *options):
        return self.finish(self.command("move", job, *options))
