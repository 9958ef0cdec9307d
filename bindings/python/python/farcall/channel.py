"""Messages between the processes of a gang job, which `farcall gang run` has started.

from farcall.channel import Channel
channel = Channel()
channel.send((channel.rank + 1) % channel.size, array)
source, data = channel.receive()
total = channel.all_reduce(np.array([x]))
"""

import sys
import types
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import refuse_mask
from ._errors import ArgumentError, ChannelError

__all__ = ["Channel", "Message"]

# NumPy takes each of these without a copy.
_Data: TypeAlias = npt.NDArray[Any] | bytes | bytearray | memoryview


class Message(NamedTuple):
    """A message: the rank that sent it, and its size in bytes."""

    source: int
    nbytes: int


class Channel:
    """The end of a channel in one process: send, receive and collective operations by rank.

    Messages between two processes arrive in order and exactly once, even if the job is preempted.
    While a call waits, other threads run; Ctrl-C ends it with KeyboardInterrupt. Only one thread
    may use a channel at a time.
    """

    def __init__(self, number: int = 0) -> None:
        """Opens the channel of that number; `farcall gang run --channels` sets how many there are.

        Raises ChannelError if this process does not belong to a gang job, which only Linux has.
        """
        if sys.platform != "linux":
            raise ChannelError("gang jobs and their channels need Linux: run the program there")
        self._channel = _native.Channel(number)
        self._arrays: list[npt.NDArray[np.uint8]] = []

    @property
    def rank(self) -> int:
        """The rank of this process, from 0."""
        return self._channel.rank

    @property
    def size(self) -> int:
        """The number of processes of the job."""
        return self._channel.size

    @property
    def eager_bytes(self) -> int:
        """The most bytes of a message that `try_send` can send."""
        return self._channel.eager_bytes

    def send(self, target: int, data: _Data) -> None:
        """Sends a contiguous array, or bytes; returns when they are in the FIFO.

        A message of more than `eager_bytes` also waits until the receiver takes its first parts.
        Two processes that send such messages to each other at the same time need `exchange`.
        """
        self._channel.send(self._rank(target), _readable(data))

    def try_send(self, target: int, data: _Data) -> bool:
        """Sends if the FIFO has space, and returns whether it had."""
        return self._channel.try_send(self._rank(target), _readable(data))

    def receive(self, source: int | None = None) -> tuple[int, bytes]:
        """Waits for a message from a rank, or from any; returns the sender and the bytes.

        `numpy.frombuffer` makes an array of them without a copy.
        """
        return self._channel.receive(self._rank_or_any(source))

    def receive_into(self, buffer: _Data, source: int | None = None) -> Message:
        """Waits for a message, and copies it to the start of a writable contiguous array.

        If the message is too long for the array, it raises ArgumentError, and the message remains.
        """
        received = self._channel.receive_into(self._rank_or_any(source), _writable(buffer))
        return Message(*received)

    def try_receive_into(self, buffer: _Data, source: int | None = None) -> Message | None:
        """Receives a message if one has arrived."""
        message = self._channel.try_receive_into(self._rank_or_any(source), _writable(buffer))
        return Message(*message) if message else None

    def poll(self, source: int | None = None) -> Message | None:
        """The message that would be received next, if there is one."""
        message = self._channel.poll(self._rank_or_any(source))
        return Message(*message) if message else None

    def exchange(self, target: int, data: _Data, source: int, buffer: _Data) -> int:
        """Sends one message and receives another at the same time, each of any length.

        Returns the number of bytes received.
        """
        target, source = self._rank(target), self._rank(source)
        return self._channel.exchange(target, _readable(data), source, _writable(buffer))

    def barrier(self) -> None:
        """Waits until every process has called this."""
        self._channel.barrier()

    def broadcast(self, buffer: _Data, root: int = 0) -> None:
        """Copies the buffer of `root` to all processes."""
        self._channel.broadcast(self._rank(root), _writable(buffer))

    def reduce(
        self, numbers: npt.ArrayLike, op: Literal["sum", "min", "max"] = "sum", root: int = 0
    ) -> npt.NDArray[Any] | None:
        """Combines the numbers of all processes, place by place, at `root`; None elsewhere.

        Integers are added as int64, where a sum past 64 bits wraps around as in NumPy, and others
        as float64, always in the same order. All processes must pass equally many, and all integers
        or all floats; otherwise this raises ArgumentError.
        """
        result = self._reduced(self._rank(root), numbers, op)
        return result if self.rank == root else None

    def all_reduce(
        self, numbers: npt.ArrayLike, op: Literal["sum", "min", "max"] = "sum"
    ) -> npt.NDArray[Any]:
        """The same, for every process."""
        return self._reduced(None, numbers, op)

    def register(self, *arrays: npt.NDArray[Any]) -> bool:
        """Registers the state of this process before its first message, for `run`.

        If the job was restarted or moved, this fills the arrays, and returns True.
        """
        writable = [_writable(array) for array in arrays]
        is_restored = self._channel.register(writable)
        self._arrays = writable
        return is_restored

    def run(self, step: Callable[[int], bool]) -> None:
        """Calls `step(number)` until it returns False, then waits until all have done their steps.

        Between two steps the job can be moved, and its state can be taken: the registered arrays
        are all that a step may need of those before it. What a step receives should have been sent
        in a step with the same or a lower number.
        """
        while (number := self._channel.next_step(self._arrays)) is not None:
            goes_on = step(number)
            if not isinstance(goes_on, bool | np.bool_):
                raise ArgumentError(
                    f"step {number} returned {goes_on!r}; return True if another step follows, "
                    "and False if this was the last one"
                )
            self._channel.end_step(bool(goes_on))

    def close(self) -> None:
        """Closes the channel, which can be opened again."""
        self._channel.close()

    def __enter__(self) -> "Channel":
        """The channel, closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Closes it."""
        self.close()

    def _rank(self, number: int) -> int:
        """A rank that is not negative; the channel refuses other ranks that do not exist."""
        if number < 0:
            raise ArgumentError(
                f"rank {number} does not exist: the gang job has {self.size} processes, with ranks "
                "from 0"
            )
        return number

    def _rank_or_any(self, number: int | None) -> int | None:
        return None if number is None else self._rank(number)

    def _reduced(self, root: int | None, numbers: npt.ArrayLike, op: str) -> npt.NDArray[Any]:
        refuse_mask(numbers)
        given = np.asarray(numbers)
        if given.dtype.kind in "bi" or (given.dtype.kind == "u" and given.dtype.itemsize < 8):
            integers = np.array(given, dtype=np.int64, order="C")
            self._channel.reduce_integers(root, op, integers.reshape(-1))
            return integers
        if given.dtype.kind != "f" or given.dtype.itemsize > 8:
            raise ArgumentError(f"type {given.dtype}: only int64 and float64 can be reduced")
        floats = np.array(given, dtype=np.float64, order="C")
        self._channel.reduce_floats(root, op, floats.reshape(-1))
        return floats


def _readable(
    data: _Data, remedy: str = "send numpy.ascontiguousarray(array)"
) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous array or buffer, without a copy."""
    refuse_mask(data)
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if array.dtype.hasobject:
        raise ArgumentError("the array has Python objects; only numbers can be sent")
    if not array.flags.c_contiguous:
        raise ArgumentError(f"the array is not contiguous; {remedy}")
    return array.reshape(-1).view(np.uint8)


def _writable(buffer: _Data) -> npt.NDArray[np.uint8]:
    array = _readable(buffer, "use one that is, and copy it into this one afterwards")
    if not array.flags.writeable:
        raise ArgumentError("the buffer is read-only")
    return array
