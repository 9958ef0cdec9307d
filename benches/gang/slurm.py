"""Starts a temporary Slurm, whose gang scheduling lets jobs take turns.

python benches/gang/slurm.py PROGRAM [ARGUMENT ...]
python benches/gang/slurm.py --calls NUMBER PROCESSORS PROGRAM [ARGUMENT ...]

Starts slurmctld and two slurmd of its own (Debian's packages slurmctld, slurmd and slurm-client) on
free ports of the loopback, in a temporary folder, with the shortest slice that Slurm takes, 5 s.
The first form runs two jobs of two nodes with one processor each, and prints the seconds from the
submission of both until both have ended. The second form runs a batch job on all processors of one
node, and short jobs beside it one after another. The last argument of the program is nanoseconds of
work, which are those of the short jobs. It prints the seconds of each short job. Both forms end all
that they started. Needs root, as slurmd does.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Seconds for the daemons to find each other, and for the jobs.
START, JOBS = 40, 900

CONFIGURATION = """\
ClusterName=farcall
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE OverSubscribe={share}
"""
GANG = "PreemptMode=GANG\nSchedulerTimeSlice=5\n"
NODE = "NodeName=farcall{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus}\n"


def free_ports(count):
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def told(*command):
    """The output of a command, empty if it fails."""
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    return ran.stdout if ran.returncode == 0 else ""


def wait_until(condition, what, seconds=START):
    """Waits until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            told_last = told("sinfo", "-h", "-N", "-l") + told("squeue", "-l")
            raise TimeoutError(f"slurm: {what} did not come in time: {told_last}")
        time.sleep(0.01)


def submit(folder, options, line):
    """Starts `sbatch` with a job that runs this line."""
    words = ["sbatch", *options, "-o", folder / "out-%j", f"--wrap={line}"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, cwd=folder)


def why_not():
    """The reason why Slurm cannot be started here, if there is one."""
    missing = [name for name in ("slurmctld", "slurmd", "sbatch", "srun") if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurmctld slurmd slurm-client"
    return None if os.geteuid() == 0 else "slurmd needs root"


@contextlib.contextmanager
def cluster(nodes, cpus, gang=False):
    """A cluster whose nodes are all this machine; SLURM_CONF names it. Yields its folder."""
    with tempfile.TemporaryDirectory(prefix="farcall-slurm-") as name:
        folder = Path(name)
        (folder / "state").mkdir()
        host = socket.gethostname().split(".")[0]
        ports = free_ports(1 + nodes)
        share = "FORCE:2" if gang else "NO"
        text = CONFIGURATION.format(host=host, ports=ports, folder=folder, share=share)
        for index, port in enumerate(ports[1:]):
            text += NODE.format(index=index, host=host, port=port, cpus=cpus)
        configuration = folder / "slurm.conf"
        configuration.write_text(text + (GANG if gang else ""))
        os.environ["SLURM_CONF"] = str(configuration)
        commands = [["slurmctld", "-D"]]
        commands += [["slurmd", "-D", "-N", f"farcall{index}"] for index in range(nodes)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        daemons = [
            subprocess.Popen([*command, "-f", configuration], cwd=folder, **quiet)
            for command in commands
        ]
        try:
            idle = ["idle"] * nodes
            wait_until(lambda: told("sinfo", "-h", "-N", "-o", "%t").split() == idle, "the nodes")
            yield folder
        finally:
            # If the nodes go before their jobs, the controller waits for these jobs.
            told("scancel", "-u", "root")
            end = time.monotonic() + START
            while told("squeue", "-h") and time.monotonic() < end:
                time.sleep(0.1)
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in daemons:
                try:
                    daemon.wait(30)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()


def makespan(folder, command):
    """Seconds from the submission of two jobs until both have ended."""
    line = "exec srun -N 2 -n 2 " + " ".join(command)
    start = time.monotonic()
    jobs = [submit(folder, ["--wait", "-N", "2", "-n", "2"], line) for _ in range(2)]
    try:
        codes = [job.wait(JOBS) for job in jobs]
    finally:
        if any(job.poll() is None for job in jobs):
            told("scancel", "--state=RUNNING,SUSPENDED,PENDING", "-u", "root")
            for job in jobs:
                job.kill()
    if any(codes):
        texts = [path.read_text() for path in folder.glob("out-*")]
        sys.exit(f"slurm: the jobs ended with {codes}: {texts}")
    return time.monotonic() - start


def responses(folder, number, processors, command):
    """Seconds of jobs of one processor beside a batch job on all of them."""
    # Longer than all the short jobs.
    batch = " ".join([*command[:-1], str(JOBS * 10**9)])
    line = f"exec srun -n {processors} {batch}"
    assert submit(folder, ["-N", "1", "-n", processors], line).wait(START) == 0
    running = ["squeue", "-h", "-t", "RUNNING", "-o", "%i"]
    wait_until(lambda: told(*running), "the batch job")
    seconds = []
    for turn in range(number):
        # Not in step with the slices.
        time.sleep(0.3 + 0.7 * turn % 1)
        # A step of srun does not begin in a job that is suspended when it asks.
        ended = folder / f"ended-{turn}"
        line = f"{' '.join(command)} && touch {ended}"
        start = time.monotonic()
        assert submit(folder, ["-N", "1", "-n", "1"], line).wait(START) == 0
        wait_until(ended.exists, f"job {turn}", 2 * START)
        seconds.append(time.monotonic() - start)
    return seconds


def main():
    """The measurement."""
    # A benchmark that is killed ends this process by the signal: end what it has started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if reason := why_not():
        sys.exit(f"slurm: {reason}")
    if sys.argv[1:2] == ["--calls"]:
        number, processors = sys.argv[2:4]
        with cluster(nodes=1, cpus=int(processors), gang=True) as folder:
            times = responses(folder, int(number), processors, sys.argv[4:])
            print(" ".join(f"{one:.4f}" for one in times))
        return
    with cluster(nodes=2, cpus=1, gang=True) as folder:
        print(f"{makespan(folder, sys.argv[1:]):.2f}")


if __name__ == "__main__":
    main()
