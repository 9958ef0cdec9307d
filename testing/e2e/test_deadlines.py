"""Calls that must end in time: promised, or refused with the time that can be promised."""

import json
import time

import farcall
import pytest
from programs import compile_c, run
from servers import FARCALL, ROOT, up_local, wait_until

NAP = """\
Module nap;
Globals { #include <unistd.h> }
Define nap(IN int ms, OUT int *slept) Repeatable "yes" { usleep(ms * 1000); *slept = ms; }
Define before(IN int before, OUT int *seen) { *seen = before; }
"""
LIMITS = "[limits]\nreserve_share = 1.0\n"


@pytest.fixture
def process(start, tmp_path):
    """A server with one processor element, which knows how long naps take."""
    idl, config = tmp_path / "nap.idl", tmp_path / "farcall.toml"
    idl.write_text(NAP)
    config.write_text(LIMITS)
    return start(idl, "--allow-code", "--pes", "1", "--config", config)


def taught(process, ms=40):
    """A function whose time the server knows."""
    nap = process.connect().function("nap")
    for _ in range(25):
        nap(ms)
    return nap


def test_a_promised_call_goes_before_others_and_ends_in_time(process):
    nap = taught(process, 120)
    others = [nap.call_async(120) for _ in range(50)]
    asked = time.monotonic()
    future = nap.call_async(120, before=3.6)
    status = future.status()
    assert "for its deadline it goes first in " in status.reason
    assert future.result().slept == 120
    took = time.monotonic() - asked
    # Fifty naps of 120 ms are before it.
    assert took < 3.6
    assert not others[-1].done()
    assert [other.result().slept for other in others] == [120] * 50


def test_what_cannot_be_promised_is_refused_with_what_can(process):
    nap = taught(process)
    match = r"nap/nap: an end within 0.0\d+ s cannot"
    with pytest.raises(farcall.ServerError, match=match) as error:
        nap(40, before=0.01)
    assert 0.03 < error.value.earliest < 1
    assert nap(40, before=error.value.earliest + 0.5).slept == 40
    # Promises count towards the share of reservations, and one waits for the other.
    calls = [nap.call_async(40, before=0.3) for _ in range(20)]
    assert calls[0].result().slept == 40
    with pytest.raises(farcall.ServerError) as later:
        [call.result() for call in calls]
    assert later.value.earliest > 0.3
    # No promise outlives its call.
    wait_until(lambda: nap(40, before=error.value.earliest + 0.5), 10, "the calls have ended")


def test_wrong_deadlines_are_errors(process):
    server = process.connect()
    nap = server.function("nap")
    with pytest.raises(farcall.ServerError, match="does not know yet how long it takes"):
        nap(1, before=5)
    with pytest.raises(TypeError, match=r"before.*a number of seconds"):
        nap(1, before="soon")
    with pytest.raises(ValueError, match=r"before.*seconds greater than 0"):
        nap(1, before=0)
    nap(1)
    with pytest.raises(farcall.ServerError, match=r"limits.reserve_ahead_s"):
        nap(1, before=1e5)
    assert nap(1, before=None).slept == 1
    # An argument of that name goes first.
    assert server.function("nap/before")(before=7).seen == 7


def test_from_the_command(process):
    taught(process)
    call = [FARCALL, "call", "nap", "ms=40", "--server", process.address]
    assert run(*call, "--before", "2").stdout == "slept [1] = [40]\n"
    refused = run(*call, "--before", "0.01")
    assert refused.returncode != 0
    assert " s cannot be promised; an end within 0." in refused.stderr


def test_from_c(process, tmp_path):
    taught(process)
    source = ROOT / "testing" / "e2e" / "deadlines.c"
    ran = run(compile_c(source, tmp_path / "deadlines"), process.address)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    assert " s cannot be promised; an end within 0." in ran.stdout


def servers_of(address):
    """The addresses of the servers behind a metaserver."""
    told = json.loads(run(FARCALL, "status", "--json", "--server", address).stdout)
    return [server["address"] for server in told["servers"]]


def test_behind_a_metaserver_the_next_server_is_asked(tmp_path):
    idl = tmp_path / "nap.idl"
    idl.write_text(NAP)
    with up_local(idl) as address:
        wait_until(lambda: len(servers_of(address)) == 3, what="that the servers have joined")
        nap = farcall.connect(address).function("nap")
        servers = [farcall.connect(server) for server in servers_of(address)]
        for server in servers:
            for _ in range(25):
                server.function("nap")(40)
        # The first two servers have promised all that they can.
        promised = [
            server.function("nap").call_async(40, before=0.4)
            for server in servers[:2]
            for _ in range(2)
        ]
        assert nap(40, before=0.4).slept == 40
        with pytest.raises(farcall.ServerError) as refused:
            nap(40, before=0.01)
        assert 0.03 < refused.value.earliest < 1
        assert all(future.result() for future in promised)
