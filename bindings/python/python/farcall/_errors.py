"""The exceptions of this package. Every one of them is an `Error`."""

import builtins
from typing import Any


class Error(Exception):
    """Base of all errors of Farcall; `fault` says who caused it.

    `fault` is "caller", "peer", "library" or "machine".
    """

    fault: str = "machine"
    # If the server of a call is gone: whether it may have begun with the call.
    _begun: bool | None = None
    # Whether it may have changed arrays of the caller, if it had begun.
    _changed: bool = False


class ArgumentError(Error, TypeError, ValueError):
    """An argument does not match the interface, or the library refuses it."""

    fault = "caller"


class UnknownFunction(Error, LookupError):  # noqa: N818
    """The server has no function of that name."""

    fault = "caller"


class ConnectionError(Error, builtins.ConnectionError):  # noqa: A001
    """The server cannot be reached, or the connection was lost."""

    fault = "peer"


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001
    """The server did not answer in time. The client has given the call up."""

    fault = "peer"


class CallbackError(Error, RuntimeError):
    """A callback failed and ended the call; `__cause__` is the exception of the callback."""

    fault = "caller"


class FileError(Error, OSError):
    """A file that an argument names cannot be read or written; `filename` is its name."""

    fault = "caller"

    def __str__(self) -> str:
        """The whole message; an OSError with a `filename` would leave part of it out."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Keeps `errno` and `filename`, which OSError does not pickle for these arguments."""
        state = {**self.__dict__, "errno": self.errno, "filename": self.filename}
        return type(self), self.args, state


class FileNotFoundError(FileError, builtins.FileNotFoundError):  # noqa: A001
    """There is no such file. The client has sent nothing."""


class PermissionError(FileError, builtins.PermissionError):  # noqa: A001
    """The file cannot be read, or its folder cannot be written to."""


class LibraryError(Error, RuntimeError):
    """The called library crashed, ended its process, or exceeded a limit."""

    fault = "library"


class ServerError(Error, RuntimeError):
    """The server refused the call or failed: it is busy or stopping, or the call is too large.

    If a reservation failed because too little is free at that time, `earliest` is the number of
    seconds from the error until enough is free. If the server cannot promise the end of a call in
    time (`before`), it is the number of seconds within which the server can promise it.
    """

    fault = "machine"
    earliest: float | None = None


class NotFoundError(ServerError, LookupError):
    """There is no such stored array, durable call or other thing, or it belongs to another user."""

    fault = "caller"


class ChannelError(Error, RuntimeError):
    """An operation on a channel failed, or this process does not belong to a gang job."""

    fault = "caller"


for _class in Error, *Error.__subclasses__(), *FileError.__subclasses__(), NotFoundError:
    _class.__module__ = "farcall"  # where users find them
