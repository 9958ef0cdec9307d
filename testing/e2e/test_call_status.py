"""Why a call waits, and when it will start and end, from Python, C and the command."""

import json
import subprocess
import time

import farcall
import pytest
from programs import compile_c, run
from servers import FARCALL, ROOT, add_tokens, wait_until


@pytest.fixture
def busy(start, nap_idl):
    """A server with one processor element, which knows how long naps take."""
    server = start(nap_idl, "--workers", "1")
    nap = server.connect().function("nap")
    for _ in range(2):
        nap(2000)
    return server, nap


def phase(future):
    return future.status().phase


def test_a_waiting_call_knows_why_it_waits_and_when_it_starts(busy):
    _, nap = busy
    first, *others = [nap.call_async(2000) for _ in range(4)]
    wait_until(lambda: phase(first) == "running", 10, "the first call runs")
    status = first.status()
    assert status.reason.startswith("has computed on 1 processor element for ")
    assert status.starts is None
    assert 0 <= status.ends.low <= status.ends.likely <= status.ends.high
    assert "; ends in " in str(status)

    second, _, last = others
    asked = time.monotonic()
    second, last = second.status(), last.status()
    assert second.phase == last.phase == "waiting"
    reason = "is next, and waits for 1 processor element; 0 are free"
    assert second.reason == reason
    assert last.reason == "waits for 1 processor element; 2 of your calls are before it"
    assert second.starts.likely < last.starts.likely < last.ends.likely
    assert "; starts in " in str(last)
    assert last.reason in repr(last)

    # The naps take as long as before, so the start is known well.
    wait_until(lambda: phase(others[-1]) == "running", 30, "the last call runs")
    took = time.monotonic() - asked
    assert last.starts.likely == pytest.approx(took, rel=0.5, abs=1.0)
    assert others[-1].result().slept == 2000
    over = others[-1].status()
    assert (over.phase, over.starts, over.ends) == ("over", None, None)


def test_a_call_that_was_cancelled_says_so(busy):
    _, nap = busy
    call = nap.call_async(5000)
    call.cancel()
    assert call.status().reason == "was cancelled"


def test_reasons_never_name_other_users(start, nap_idl, tmp_path):
    alice, bob = add_tokens(tmp_path / "tokens", "alice", "bob")
    server = start(nap_idl, "--workers", "1", "--tokens", tmp_path / "tokens")
    theirs = server.connect(token=alice).function("nap")
    theirs(300)
    mine = server.connect(token=bob).function("nap")
    mine(8000)
    running = theirs.call_async(6000)
    wait_until(lambda: phase(running) == "running", 10, "the first call runs")
    calls = [theirs.call_async(100)]
    wait_until(lambda: phase(calls[0]) == "waiting", 10, "their next call waits")
    calls.append(mine.call_async(100))

    def says_who_goes_first():
        # The server looks ahead at most every 100 us here, so at first it knows no order.
        text = str(calls[1].status())
        assert "alice" not in text
        return "calls of others, who have used less, go first" in text

    wait_until(says_who_goes_first, 10, "the call waits for its turn")
    for call in [running, *calls]:
        call.cancel()


def test_durable_calls_and_the_command_say_it_too(start, nap_idl, tmp_path):
    server = start(nap_idl, "--workers", "1", "--state", tmp_path / "state")
    nap = server.connect().function("nap")
    nap(300)
    # The first one runs until it is cancelled, however long the commands below take.
    jobs = [nap.submit(ms) for ms in (60_000, 1, 1)]
    wait_until(lambda: jobs[0].status.state == "running", 10, "the first call runs")
    status = jobs[2].status
    assert status.call.phase == "waiting"
    assert status.call.reason == "waits for 1 processor element; 1 of your calls is before it"
    assert status.call.reason in repr(status)

    words = [FARCALL, "jobs", server.address]
    listed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "1 of your calls is before it; starts in " in listed
    words.append("--json")
    listed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
    calls = [job["call"] for job in json.loads(listed)["jobs"]]
    assert [call["phase"] for call in calls].count("waiting") == 2
    starts = calls[-1]["starts"]
    assert 0 <= starts["low_s"] <= starts["likely_s"] <= starts["high_s"]

    assert jobs[0].cancel().state == "cancelled"
    for job in jobs[1:]:
        job.fetch()
    assert jobs[2].status.call is None
    with pytest.raises(farcall.Error, match="there is no durable call"):
        server.connect().job("0" * 32).status  # noqa: B018


def test_c_asks_too(start, nap_idl, tmp_path):
    server = start(nap_idl, "--workers", "1", "--state", tmp_path / "state")
    nap = server.connect().function("nap")
    for _ in range(2):
        nap(2000)
    program = compile_c(ROOT / "testing" / "e2e" / "call_status.c", tmp_path / "call_status")
    told = run(program, server.address)
    waits = "is next, and waits for 1 processor element; 0 are free"
    assert told.returncode == 0, told.stdout
    assert told.stdout.splitlines() == [f"2 {waits}", "5 has ended"]
    jobs = [nap.submit(ms) for ms in (60_000, 1)]
    wait_until(lambda: jobs[0].status.state == "running", 10, "the first call runs")
    assert run(program, server.address, jobs[1].id).stdout.strip() == f"2 {waits}"
