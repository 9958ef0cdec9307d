"""Clients that begin a transfer and stop: they hold memory that others need."""

import farcall
import numpy as np
import pytest
from servers import FAULTS, wait_until

LARGE = 8_000_000


@pytest.fixture
def serve(start, tmp_path):
    """A server with memory for one large call and time limits on stalled transfers."""

    def serve(stalled, busy):
        config = tmp_path / "farcall.toml"
        config.write_text(
            f"[limits]\nmemory = 80000000\nstalled_s = {stalled}\nstalled_busy_s = {busy}\n"
        )
        return start(FAULTS / "faults.idl", options=["--config", config, "--workers", "2"])

    return serve


def connect(server):
    return server.connect(timeout=30, same_host=False)


def test_an_upload_that_stands_still_fails_and_its_connection_goes_on(serve):
    server = serve(1, 1)
    connection = connect(server)
    total = connection.function("sum")
    x = np.ones(LARGE)
    future = total.call_async(n=LARGE, x=x)
    # No thread waits for it, so it does not continue.
    wait_until(lambda: "received no more of its arguments" in server.log(), what="its end")
    with pytest.raises(farcall.TimeoutError, match=r"for 1 s \(limits\.stalled_s") as error:
        future.result()
    assert error.value.fault == "caller"
    assert total(n=LARGE, x=x).s == LARGE, "the connection goes on"


def test_a_client_that_does_not_read_is_let_go(serve):
    server = serve(1, 1)
    fill = connect(server).function("fill")
    future = fill.call_async(n=LARGE, value=2.0, x=(x := np.empty(LARGE)))
    wait_until(lambda: "has not read results for 1 s" in server.log(), what="its end")
    with pytest.raises(farcall.ConnectionError):
        future.result()
    del x
    assert fill(n=LARGE, value=3.0).x[-1] == 3, "another connection is made"


@pytest.mark.parametrize("what", ["upload", "result"])
def test_there_is_less_patience_while_others_wait_for_memory(serve, what):
    server = serve(3600, 1)
    one, other = connect(server), connect(server)
    if what == "upload":
        stalled = one.function("sum").call_async(n=LARGE, x=np.ones(LARGE))
    else:
        stalled = one.function("fill").call_async(n=LARGE, value=1.0)
    assert other.function("fill")(n=LARGE, value=2.0).x[0] == 2, "its turn comes"
    with pytest.raises(farcall.Error):
        stalled.result()
