"""A recorded day, replayed with changes by the command."""

import json
import subprocess
import sys
import threading

import pytest
from servers import FARCALL, LIBRARIES, ServerProcess

NAP_MS, CLIENTS, CALLS = 150, 4, 12


def replay(*words):
    """What `farcall sim replay` answers, and its messages."""
    command = [FARCALL, "sim", "replay", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def answer(*words):
    """The answer as an object."""
    status, out, messages = replay(*words, "--json")
    assert status == 0, messages
    return json.loads(out)


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """The record of a server with two processor elements, which four loops of calls keep busy."""
    folder = tmp_path_factory.mktemp("record")
    server = ServerProcess(LIBRARIES / "bench.idl", options=["--pes", "2", "--record", folder])

    def loop():
        nap = server.connect().function("bench/nap")
        for _ in range(CALLS):
            nap(1, NAP_MS * 1000)

    threads = [threading.Thread(target=loop) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.stop() == 0
    return folder


def test_without_changes_the_replay_is_near_the_record(record):
    told = answer(record, record)
    assert told["calls"] == CLIENTS * CALLS, "a record that is named twice counts once"
    # All calls of a loop but the first wait for the results of the one before.
    assert told["following_calls"] >= CLIENTS * (CALLS - 2)
    for figure in ("makespan", "mean_response"):
        of = told[figure]
        assert of["replayed_s"] == pytest.approx(of["recorded_s"], rel=0.2), figure
        assert of["low_s"] <= of["predicted_s"] <= of["high_s"]


def test_twice_the_processor_elements_halve_the_day(record):
    told = answer(record, "--elements", "127.0.0.1=4")
    for figure in ("makespan", "mean_response"):
        of = told[figure]
        assert 0.35 < of["predicted_s"] / of["recorded_s"] < 0.75, of


def test_a_second_server_is_not_called_by_clients_that_chose_the_first(record):
    told = answer(record, "--add", "b=copy-of:127.0.0.1")
    calls = {one["name"]: one["predicted_calls"] for one in told["servers"]}
    assert calls.pop("b") == 0
    assert set(calls.values()) == {CLIENTS * CALLS}


def test_the_table_and_the_picture(record, tmp_path):
    picture = tmp_path / "day.svg"
    words = ["--clients", "x2", "--runs", "3", "--plot", picture, "--python", sys.executable]
    status, out, messages = replay(record, *words)
    assert status == 0, messages
    assert "makespan" in out
    assert "four of five days" in out
    assert b"<svg" in picture.read_bytes()[:500]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--remove", "other"], "no server other"),
        (["--remove", "127.0.0.1"], "no server has bench/nap"),
        (["--link", "lab<->127.0.0.1=1MB/s"], "no calls from a host lab"),
        (["--link", "lab=1MB/s"], "HOST<->SERVER=RATE"),
        (["--policy", "best"], "fcfs"),
        (["--add", "b"], "copy-of"),
        (["--clients", "2"], "x2"),
        (["--plot", "day.txt"], "--plot must end in .svg"),
        (["--plot", "absent/day.svg"], "there is no such folder"),
        (["--to", "2000-01-01"], "no calls"),
    ],
)
def test_what_does_not_fit_is_an_error_that_says_so(record, words, reason):
    status, out, messages = replay(record, *words)
    assert status != 0
    assert out == ""
    assert reason in messages, messages


def test_a_foreign_file_is_no_record(tmp_path):
    file = tmp_path / "foreign.jsonl"
    file.write_text('{"a": 1}\n')
    status, _, messages = replay(file)
    assert status != 0
    assert "not a record of calls" in messages
