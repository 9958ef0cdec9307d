"""Processor elements reserved ahead of time, from Python and the command."""

import json
import subprocess

import farcall
import pytest
from servers import FARCALL, ServerProcess

NAP = """\
Module nap;
Globals { #include <unistd.h> }
Define nap(IN int ms, OUT int *done) { usleep(ms * 1000); *done = 1; }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    idl = tmp_path_factory.mktemp("nap") / "nap.idl"
    idl.write_text(NAP)
    state = str(tmp_path_factory.mktemp("state"))
    process = ServerProcess(idl, options=["--allow-code", "--pes", "2", "--state", state])
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
        assert not outside.done()
        assert [known.id for known in server.reservations()] == [reservation.id]
        with pytest.raises(farcall.ServerError, match="at the earliest") as refused:
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
        within = nap.with_keep(1).with_reservation(reservation).submit(1)
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


def test_the_command_reserves(server):
    def command(*words):
        return subprocess.run(
            [FARCALL, *words, "--server", server.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

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
