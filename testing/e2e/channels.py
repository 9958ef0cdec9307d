"""Uses every method of farcall.channel, as a process of a gang job. Rank 0 prints the result."""

import contextlib
import os
import pathlib
import sys
import tempfile
import threading
import time

import farcall
import numpy as np
import pytest
from farcall.channel import Channel, Message


def messages(channel):
    rank, size = channel.rank, channel.size
    after, before = (rank + 1) % size, (rank - 1) % size
    array = np.arange(1000, dtype=np.float32).reshape(10, 100) + rank
    channel.send(after, array)
    source, data = channel.receive()
    assert source == before
    assert np.array_equal(np.frombuffer(data, np.float32).reshape(10, 100), array - rank + before)
    channel.send(after, b"bytes")
    buffer = bytearray(8)
    assert channel.receive_into(buffer, before) == Message(before, 5)
    assert buffer == b"bytes\0\0\0"
    large = np.full(300_000, rank, np.int16)
    into = np.empty_like(large)
    assert channel.exchange(after, large, before, into) == large.nbytes
    assert (into == before).all()
    channel.barrier()
    assert channel.poll() is None
    assert channel.try_receive_into(buffer) is None
    channel.barrier()
    assert channel.try_send(after, np.empty(0))
    while (message := channel.poll(before)) is None:
        time.sleep(0)
    assert message == Message(before, 0)
    assert channel.try_receive_into(buffer) == Message(before, 0)


def collectives(channel):
    rank, size = channel.rank, channel.size
    shared = np.full((3, 3), rank, np.complex128)
    channel.broadcast(shared, root=size - 1)
    assert (shared == size - 1).all()
    total = channel.reduce([[rank, 1], [2, 3]], root=1)
    if rank == 1:
        assert total.dtype == np.int64
        assert total.tolist() == [[sum(range(size)), size], [2 * size, 3 * size]]
    else:
        assert total is None
    assert channel.all_reduce(rank + 0.5, "max") == size - 0.5
    assert channel.all_reduce(np.float32(rank), "min").dtype == np.float64


def refused(channel):
    for call in (
        lambda: channel.send(channel.size, b""),
        lambda: channel.send(0, np.arange(10)[::2]),
        lambda: channel.send(0, np.array([object()])),
        lambda: channel.receive_into(b"constant"),
        lambda: channel.reduce(np.array(["text"])),
        lambda: channel.try_send(0, bytes(channel.eager_bytes + 1)),
        lambda: Channel(200),
    ):
        with pytest.raises(farcall.ArgumentError):
            call()
    with pytest.raises(ValueError, match="max"):
        channel.reduce([1], "product")
    with pytest.raises(farcall.ChannelError, match="already open"):
        Channel()
    for call in (
        lambda: channel.send(-1, b""),
        lambda: channel.receive(-1),
        lambda: channel.reduce([1], root=-1),
    ):
        with pytest.raises(farcall.ArgumentError, match="rank -1 does not exist: the gang job has"):
            call()


def waiting_lets_others_run(channel):
    """Another thread works while this one waits, and must not use the channel meanwhile."""
    channel.barrier()
    if channel.rank == 0:
        refusals, received = [], []
        refused = pathlib.Path(tempfile.mkdtemp()) / "refused"
        channel.send(1, bytes(refused))

        def use():
            while not refusals and not received:
                try:
                    channel.poll(1)
                except farcall.ChannelError as error:
                    refusals.append(str(error))
                    refused.touch()
                time.sleep(0.001)

        thread = threading.Thread(target=use)
        thread.start()
        while not received:
            # Until the other thread was refused once, it can be the first.
            with contextlib.suppress(farcall.ChannelError):
                received.append(channel.receive(1))
        thread.join()
        assert received == [(1, b"at last")]
        assert "another thread" in refusals[0]
        refused.unlink()
        refused.parent.rmdir()
    elif channel.rank == 1:
        refused = pathlib.Path(os.fsdecode(channel.receive(0)[1]))
        while not refused.exists():
            time.sleep(0.001)
        channel.send(0, b"at last")
    channel.barrier()


def interrupted(channel):
    """Prints that it waits; the test sends SIGINT then."""
    try:
        print("waits", flush=True)
        channel.receive()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        channel.send(channel.rank, b"still there")
        assert channel.receive() == (channel.rank, b"still there")
        sys.exit(7)


with Channel() as opened:
    if sys.argv[1:] == ["interrupted"]:
        interrupted(opened)
    messages(opened)
    collectives(opened)
    refused(opened)
    waiting_lets_others_run(opened)
    if opened.rank == 0:
        print("all is well")
with pytest.raises(farcall.ChannelError, match="closed"):
    opened.poll()
