"""Channels from C and Python, in gang jobs of a real daemon."""

import itertools
import os
import signal
import subprocess
import sys
import time

import farcall
import numpy as np
import pytest
from farcall import channel
from gangs import Gang
from programs import compile_c
from servers import ROOT, wait_until

# How often a job is moved between nodes; one second apart if the number is given.
MOVES = int(os.environ.get("FARCALL_SOAK_MOVES", "0"))


# A process that fails leaves the others waiting. They are ended, so that its output is shown.
ENDS = ("--detect-termination",)


@pytest.fixture
def gang():
    with Gang("channels") as gang:
        yield gang


def job(gang, elements, *program, timeout=60):
    """Runs a job to its end."""
    return gang.run(elements, *program, options=ENDS, timeout=timeout)


def test_every_function(gang, tmp_path):
    program = compile_c(ROOT / "testing" / "e2e" / "channels.c", tmp_path / "channels")
    ran = job(gang, 3, program)
    assert (ran.returncode, ran.stdout) == (0, "all is well\n"), ran.stderr


def test_the_ring_of_the_examples(gang, tmp_path):
    program = compile_c(ROOT / "examples" / "channels" / "ring.c", tmp_path / "ring")
    ran = job(gang, 3, program)
    assert (ran.returncode, ran.stdout) == (0, "ring 3, sum 3\n"), ran.stderr


PYTHON = ROOT / "testing" / "e2e" / "channels.py"


@pytest.mark.parametrize("elements", [2, 3])
def test_every_method_of_python(gang, elements):
    ran = job(gang, elements, sys.executable, PYTHON)
    assert (ran.returncode, ran.stdout) == (0, "all is well\n"), ran.stderr


def test_pi_of_the_examples(gang):
    example = ROOT / "examples" / "channels" / "pi.py"
    ran = job(gang, 3, sys.executable, example, "100000")
    assert (ran.returncode, ran.stdout) == (0, "pi is about 3.1415926536, 3 elements\n"), ran.stderr


def moved(gang, elements, *program):
    """Runs a job and moves it a few times; checks that it prints what one prints that stays."""
    stays = job(gang, elements, *program)
    assert stays.returncode == 0, stays.stderr
    moves = 0
    with gang.start(elements, *program, options=ENDS) as running:
        # A job that is moved again and again hardly computes.
        while running.poll() is None and moves < 3:
            for number in gang.jobs():
                moves += gang.move(number).returncode == 0
        output, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert sorted(output.splitlines()) == sorted(stays.stdout.splitlines())
    assert moves > 0
    return errors


def test_a_program_in_c_moves(gang, tmp_path):
    program = compile_c(ROOT / "testing" / "e2e" / "steps.c", tmp_path / "steps")
    ran = job(gang, 1, program)
    assert (ran.returncode, ran.stdout) == (0, "all is well\n"), ran.stderr
    assert "was restored" in moved(gang, 2, program, "50000")


def test_a_program_in_python_moves(gang):
    moved(gang, 2, sys.executable, ROOT / "examples" / "channels" / "heat.py", "5000")


# In this map a difference in the last bit is everywhere after a hundred steps. A step takes a
# hundredth of a second, so that the job outlasts its moves on fast machines, too.
CHAOS = """
import sys, time
import numpy as np
from farcall.channel import Channel

channel = Channel()
numbers = np.linspace(0.1, 0.9, 10_000) + channel.rank / 100
channel.register(numbers)

def step(number):
    numbers[:] = 3.9 * numbers * (1 - numbers)
    numbers[0] = channel.all_reduce(numbers.sum()) % 1
    time.sleep(0.01)
    return number + 1 < int(sys.argv[1])

channel.run(step)
print(channel.rank, numbers[0].hex(), numbers.sum().hex())
"""


@pytest.mark.timeout(120 + 30 * MOVES)
def test_a_program_in_python_moves_between_nodes_again_and_again():
    moves = MOVES or 3
    program = (4, sys.executable, "-c", CHAOS, str(200 * moves))
    with Gang("moves", nodes=3) as gang:
        stays = job(gang, *program, timeout=60 + 15 * MOVES)
        assert stays.returncode == 0, stays.stderr
        places = itertools.cycle(["b", "a,b,c", "c", "b,c", "a"])
        with gang.start(*program, options=ENDS) as running:
            [number] = wait_until(gang.jobs, what="the job")
            for count, place in zip(range(moves), places, strict=False):
                move = gang.move(number, "--to", place)
                assert move.returncode == 0, f"move {count} to {place}: {move.stderr}"
                if MOVES:
                    time.sleep(1)
            output, errors = running.communicate(timeout=60 + 15 * MOVES)
    assert running.returncode == 0, errors
    assert sorted(output.splitlines()) == sorted(stays.stdout.splitlines())


def test_python_registers_before_its_first_message(gang):
    program = """
from farcall import ArgumentError
from farcall.channel import Channel
import numpy as np
channel = Channel()
try:
    channel.run(lambda number: False)
except ArgumentError as error:
    assert "has not registered" in str(error), error
channel.register(np.zeros(3))
try:
    channel.run(lambda number: None)
except ArgumentError as error:
    assert "step 0 returned None" in str(error), error
    print("all is well")
"""
    ran = job(gang, 1, sys.executable, "-c", program)
    assert (ran.returncode, ran.stdout) == (0, "all is well\n"), ran.stderr


def test_python_that_waits_can_be_interrupted(gang):
    """Ctrl-C reaches every process of the job as KeyboardInterrupt."""
    with gang.start(1, sys.executable, PYTHON, "interrupted", options=ENDS) as running:
        assert running.stdout.readline() == "waits\n"
        running.send_signal(signal.SIGINT)
        assert running.stdout.read() == "interrupted\n"
        assert running.wait(30) == 7


STALLS = """
from farcall.channel import Channel
with Channel() as channel:
    other = 1 - channel.rank
    for _ in range(5000):
        channel.send(other, b"")
"""


def test_channels_that_are_full_of_empty_messages_stall(gang):
    ran = job(gang, 2, sys.executable, "-c", STALLS)
    assert ran.returncode == 125
    assert "flow-control stall: rank 0 waits for space in the full channel of rank 1" in ran.stderr


def test_python_without_a_job():
    ran = subprocess.run(
        [sys.executable, "-c", "from farcall.channel import Channel; Channel()"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 1
    assert "ChannelError: this process does not belong to a gang job" in ran.stderr


def test_a_buffer_that_is_not_contiguous_is_not_filled_by_a_copy():
    """A copy would get what arrives, and the caller's array nothing."""
    columns = np.zeros((4, 4))[:, :2]
    with pytest.raises(farcall.ArgumentError, match="copy it into this one afterwards"):
        channel._writable(columns)
    with pytest.raises(farcall.ArgumentError, match="send numpy"):
        channel._readable(columns)


def test_without_a_daemon_there_is_no_channel(tmp_path):
    program = compile_c(ROOT / "examples" / "channels" / "ring.c", tmp_path / "ring")
    ran = subprocess.run([program], check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert "gang run" in ran.stderr
