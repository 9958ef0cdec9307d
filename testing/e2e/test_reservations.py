"""Processor elements reserved ahead of time, from Python and the command."""

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
    process = ServerProcess(idl, options=["--allow-code", "--pes", "2"])
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
        with pytest.raises(farcall.ServerError, match="at the earliest"):
            server.reserve(pes=1, seconds=1)
    assert outside.result(timeout=30).done == 1
    assert server.reservations() == []
    reservation.release()
    with pytest.raises(farcall.Error, match="there is no reservation"):
        within(1)
    assert within.with_reservation(None)(1).done == 1


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
    assert command("reservations").startswith(f"{number}  2 PEs  has begun")
    assert "reserved     2 PEs" in command("status")
    command("release", number)
    assert command("reservations") == ""
