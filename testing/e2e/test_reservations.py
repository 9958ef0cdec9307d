"""Processor elements and bandwidth reserved ahead of time, from Python, C and the command."""

import json
import pickle
import subprocess
import time

import farcall
import numpy as np
import pytest
from programs import compile_c, run
from servers import FARCALL, ROOT, ServerProcess

NAP = """\
Module nap;
Globals { #include <unistd.h> }
Define nap(IN int ms, OUT int *done) { usleep(ms * 1000); *done = 1; }
"""


COPY = """\
Module libc;
Library "libc.so.6";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls "C" memcpy(out, in, n);
"""
LIMITS = """\
[limits]
reserve_share = 1.0
bandwidth_up = "20MB/s"
bandwidth_down = 20e6
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    idl = tmp_path_factory.mktemp("nap") / "nap.idl"
    idl.write_text(NAP)
    state = str(tmp_path_factory.mktemp("state"))
    config = tmp_path_factory.mktemp("config") / "farcall.toml"
    config.write_text("[limits]\nreserve_share = 1.0\n")
    options = ["--allow-code", "--pes", "2", "--state", state, "--config", str(config)]
    process = ServerProcess(idl, options=options)
    yield farcall.connect(process.address)
    process.stop()


def test_a_reservation_is_made_used_and_released(server):
    nap = server.function("nap")
    with server.reserve(pes=2, seconds=60) as reservation:
        assert reservation.pes == 2
        assert reservation.begins_in == 0
        assert 0 < reservation.ends_in <= 60
        outside = nap.call_async(1)
        within = nap.with_reservation(reservation)
        assert within(1).done == 1
        assert nap.with_reservation(reservation.id)(1).done == 1
        assert pickle.loads(pickle.dumps(within))(1, timeout=20).done == 1
        assert not outside.done()
        assert [known.id for known in server.reservations()] == [reservation.id]
        with pytest.raises(farcall.ServerError, match="earliest start") as refused:
            server.reserve(pes=1, seconds=1)
        assert 0 < refused.value.earliest <= 60
        with server.reserve(pes=1, seconds=1, earliest=True) as later:
            assert 0 < later.begins_in <= refused.value.earliest
    assert outside.result(timeout=30).done == 1
    assert server.reservations() == []
    reservation.release()
    with pytest.raises(farcall.Error, match="there is no reservation"):
        within(1)
    assert within.with_reservation(None)(1).done == 1


def test_submitted_calls_have_a_reservation(server):
    nap = server.function("nap")
    with server.reserve(pes=2, seconds=60) as reservation:
        outside = nap.submit(1)
        within = nap.with_retention(1).with_reservation(reservation).submit(1)
        assert within.fetch(timeout=30).done == 1
        assert outside.status.state == "queued"
    assert outside.fetch(timeout=30).done == 1


def test_other_errors_know_no_earliest_time(server):
    with pytest.raises(farcall.ServerError) as refused:
        server.reserve(pes=3, seconds=1)
    assert refused.value.earliest is None


def test_seconds_are_checked(server):
    with pytest.raises(farcall.ArgumentError, match="start"):
        server.reserve(seconds=1, start=-1)


def test_wrong_arguments_are_told_in_words_of_python(server, broad):
    for pes in (-1, 2**40, "two"):
        with pytest.raises(farcall.ArgumentError, match=f"`pes`: expected .* given .*{pes}"):
            server.reserve(pes, seconds=1)
    for rate in (True, -1.0, "8 furlongs", []):
        with pytest.raises(farcall.ArgumentError, match="`up`: expected bytes/s"):
            server.reserve(pes=0, up=rate, seconds=1)
    for rate in (0.5, "0.5"):
        with pytest.raises(farcall.ArgumentError, match=r"0\.5 is less than 1 byte/s; write"):
            broad.connect().reserve(pes=0, up=rate, seconds=1)
    with pytest.raises(farcall.ArgumentError, match="given bool True"):
        server.function("nap").with_reservation(True)


def test_the_exception_of_the_block_reaches_the_caller(tmp_path):
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    process = ServerProcess(idl, options=["--allow-code"])
    server = process.connect()
    with pytest.raises(ZeroDivisionError), server.reserve(pes=1, seconds=60):
        process.stop()
        _ = 1 / 0
    # Without one, the release says what failed.
    process = ServerProcess(idl, options=["--allow-code"])
    server = process.connect()
    with pytest.raises(farcall.Error), server.reserve(pes=1, seconds=60):
        process.stop()


def command_at(server):
    def command(*words):
        return subprocess.run(
            [FARCALL, *words, "--server", server.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    return command


def test_the_command_reserves(server):
    command = command_at(server)
    number = command("reserve", "--pes", "2", "--seconds", "60").strip()
    assert "= [1]" in command("call", "nap", "ms=1", "--reservation", number)
    job = command("submit", "nap", "ms=1", "--reservation", number).strip()
    assert "= [1]" in command("fetch", job)
    later = json.loads(command("reserve", "--seconds", "1", "--earliest", "--json"))
    assert 50 < later["reservation"]["begins_in_s"] <= 60
    command("release", str(later["reservation"]["id"]))
    assert command("reservations").startswith(f"{number}  2 PEs  has begun")
    assert "reserved     2 PEs" in command("status")
    command("release", number)
    assert command("reservations") == ""


@pytest.fixture(scope="module")
def broad(tmp_path_factory):
    """A server with bandwidth to reserve, over TCP: within the host no link is crossed."""
    folder = tmp_path_factory.mktemp("broad")
    idl, config = folder / "libc.idl", folder / "farcall.toml"
    idl.write_text(COPY)
    config.write_text(LIMITS)
    process = ServerProcess(idl, options=["--pes", "2", "--config", str(config)])
    yield process
    process.stop()


def test_arrays_travel_at_the_rates_reserved(broad):
    server = broad.connect(same_host=False)
    copy = server.function("copy")
    data = np.ones(4_000_000, dtype=np.int8)
    with server.reserve(pes=0, up="64Mbit/s", down=4e6, seconds=60) as reservation:
        assert (reservation.pes, reservation.up, reservation.down) == (0, 8_000_000, 4_000_000)
        assert "8000000 B/s up" in repr(reservation)
        within = copy.with_reservation(reservation)
        start = time.monotonic()
        assert within(in_=data, n=data.size).out.tobytes() == data.tobytes()
        seconds = time.monotonic() - start
        # Half a second to the server and a second back, less the bursts.
        assert 1.3 < seconds < 15
        [known] = server.reservations()
        assert (known.up, known.down) == (8_000_000, 4_000_000)
        with pytest.raises(farcall.ServerError, match="earliest start"):
            server.reserve(up=12e6, seconds=1)
    with pytest.raises(farcall.ServerError, match=r"limits\.bandwidth_up"):
        server.reserve(up="19MB/s", seconds=1)
    for wrong in ["8 furlongs", -1, float("nan")]:
        with pytest.raises(farcall.ArgumentError, match="down"):
            server.reserve(down=wrong, seconds=1)


def test_stored_arrays_keep_their_order_with_a_reserved_rate(broad):
    server = broad.connect(same_host=False)
    data = np.ones(2_000_000, dtype=np.int8)
    x = server.put(np.zeros_like(data))
    with server.reserve(pes=0, up="64Mbit/s", down=4e6, seconds=60) as reservation:
        copy = server.function("copy").with_reservation(reservation)
        call = copy.call_async(x, data, data.size)
        assert x.get().tobytes() == data.tobytes()
        call.result(timeout=30)


def test_the_command_reserves_bandwidth(broad):
    command = command_at(broad)
    number = command("reserve", "--pes", "0", "--up", "40Mbit/s", "--seconds", "60").strip()
    assert command("reservations").startswith(f"{number}  0 PEs, 5 MB/s up  has begun")
    assert "reserved     0 PEs, 5 MB/s up" in command("status")
    command("release", number)


def test_from_c(broad, tmp_path):
    source = ROOT / "testing" / "e2e" / "reservations.c"
    ran = run(compile_c(source, tmp_path / "reservations"), broad.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    refused, seconds, gone = ran.stdout.splitlines()
    assert "earliest start" in refused
    assert 1.8 < float(seconds.removesuffix(" s")) < 5
    assert "there is no reservation" in gone
