"""Messages between the elements of a parallel job that `farcall gang run` started.

from farcall.channel import Channel
channel = Channel()
channel.send((channel.rank + 1) % channel.size, array)
source, data = channel.receive()
total = channel.all_reduce(np.array([x]))
"""

import types
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from . import _native
from ._errors import ArgumentError

__all__ = ["Channel", "Message"]

# NumPy takes each of these without a copy.
_Data: TypeAlias = npt.NDArray[Any] | bytes | bytearray | memoryview


class Message(NamedTuple):
    """What came, or would be received next: the rank that sent it, and its bytes."""

    source: int
    nbytes: int


class Channel:
    """One element's end of a channel: send, receive and collective operations by rank.

    Messages between two elements arrive in order, each exactly once, however often the job is
    preempted. A call that waits lets other threads run, and ends with KeyboardInterrupt at Ctrl-C.
    One thread at a time may use a channel.
    """

    def __init__(self, number: int = 0) -> None:
        """Opens the channel of that number; `farcall gang run --channels` says how many there are.

        Raises ChannelError where this process is no element of a job.
        """
        self._channel = _native.Channel(number)

    @property
    def rank(self) -> int:
        """This element's rank, from 0."""
        return self._channel.rank

    @property
    def size(self) -> int:
        """Elements of the job."""
        return self._channel.size

    @property
    def eager_bytes(self) -> int:
        """Bytes of the longest message that `try_send` takes."""
        return self._channel.eager_bytes

    def send(self, target: int, data: _Data) -> None:
        """Sends a contiguous array, or bytes; returns when they are in the FIFO.

        What is longer than `eager_bytes` also waits until the receiver takes its first parts: two
        elements that send such to each other at once use `exchange`.
        """
        self._channel.send(target, _readable(data))

    def try_send(self, target: int, data: _Data) -> bool:
        """Sends if the FIFO has room now; says whether it had."""
        return self._channel.try_send(target, _readable(data))

    def receive(self, source: int | None = None) -> tuple[int, bytes]:
        """Waits for a message from a rank, or from any: who sent it, and its bytes.

        `numpy.frombuffer` makes an array of them without a copy.
        """
        return self._channel.receive(source)

    def receive_into(self, buffer: _Data, source: int | None = None) -> Message:
        """Waits for a message and puts it at the start of a writable contiguous array.

        A message that is too long for it stays, and ArgumentError is raised.
        """
        return Message(*self._channel.receive_into(source, _writable(buffer)))

    def try_receive_into(self, buffer: _Data, source: int | None = None) -> Message | None:
        """Receives a message if one is there."""
        message = self._channel.try_receive_into(source, _writable(buffer))
        return Message(*message) if message else None

    def poll(self, source: int | None = None) -> Message | None:
        """The message that would be received next, if there is one."""
        message = self._channel.poll(source)
        return Message(*message) if message else None

    def exchange(self, target: int, data: _Data, source: int, buffer: _Data) -> int:
        """Sends one message and receives another at the same time, each of any length.

        Returns how many bytes came.
        """
        return self._channel.exchange(target, _readable(data), source, _writable(buffer))

    def barrier(self) -> None:
        """Returns when every element has come here."""
        self._channel.barrier()

    def broadcast(self, buffer: _Data, root: int = 0) -> None:
        """Gives every element what the buffer of `root` holds."""
        self._channel.broadcast(root, _writable(buffer))

    def reduce(
        self, numbers: npt.ArrayLike, op: Literal["sum", "min", "max"] = "sum", root: int = 0
    ) -> npt.NDArray[Any] | None:
        """The numbers of all elements made one, place by place, at `root`; None elsewhere.

        Integers are added as int64, others as float64, always in the same order.
        """
        result = self._reduced(root, numbers, op)
        return result if self.rank == root else None

    def all_reduce(
        self, numbers: npt.ArrayLike, op: Literal["sum", "min", "max"] = "sum"
    ) -> npt.NDArray[Any]:
        """The same, for every element."""
        return self._reduced(None, numbers, op)

    def close(self) -> None:
        """Closes the channel, which may be opened again."""
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

    def _reduced(self, root: int | None, numbers: npt.ArrayLike, op: str) -> npt.NDArray[Any]:
        given = np.asarray(numbers)
        if given.dtype.kind in "bi" or (given.dtype.kind == "u" and given.dtype.itemsize < 8):
            integers = np.array(given, dtype=np.int64, order="C")
            self._channel.reduce_integers(root, op, integers.reshape(-1))
            return integers
        if given.dtype.kind != "f" or given.dtype.itemsize > 8:
            raise ArgumentError(f"numbers of type {given.dtype}: int64 and float64 can be reduced")
        floats = np.array(given, dtype=np.float64, order="C")
        self._channel.reduce_floats(root, op, floats.reshape(-1))
        return floats


def _readable(data: _Data) -> npt.NDArray[np.uint8]:
    """The bytes of a contiguous array or buffer, without a copy."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if array.dtype.hasobject:
        raise ArgumentError("an array of Python objects: only numbers can be sent")
    if not array.flags.c_contiguous:
        raise ArgumentError("the array is not contiguous: send numpy.ascontiguousarray of it")
    return array.reshape(-1).view(np.uint8)


def _writable(buffer: _Data) -> npt.NDArray[np.uint8]:
    array = _readable(buffer)
    if not array.flags.writeable:
        raise ArgumentError("the buffer is read-only")
    return array
