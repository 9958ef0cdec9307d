"""Why a call failed. Every exception of this package is an `Error`."""

import builtins


class Error(Exception):
    """Base of all errors of Farcall; `fault` says whose it was.

    `fault` is "caller", "peer", "library" or "machine".
    """

    fault: str = "machine"


class ArgumentError(Error, TypeError, ValueError):
    """An argument does not fit the interface, or the library refuses it."""

    fault = "caller"


class UnknownFunction(Error, LookupError):  # noqa: N818
    """The server has no function of that name."""

    fault = "caller"


class ConnectionError(Error, builtins.ConnectionError):  # noqa: A001
    """The server cannot be reached, or the connection to it was lost."""

    fault = "peer"


class Timeout(Error, TimeoutError):  # noqa: N818
    """The server did not answer in the time given. The call was given up."""

    fault = "peer"


class CallbackError(Error, RuntimeError):
    """A callback failed, so that the call was given up; `__cause__` is what it raised."""

    fault = "caller"


class FileError(Error, OSError):
    """A file that an argument names cannot be read or written; `filename` is its name."""

    fault = "caller"

    def __str__(self) -> str:
        """What an OSError with `filename` set would leave out."""
        return str(self.args[0]) if self.args else ""


class FileNotFoundError(FileError, builtins.FileNotFoundError):  # noqa: A001
    """There is no such file; nothing was sent."""


class PermissionError(FileError, builtins.PermissionError):  # noqa: A001
    """The file may not be read, or its folder may not be written to."""


class LibraryError(Error, RuntimeError):
    """The called library crashed, ended its process, or ran past a limit."""

    fault = "library"


class ServerError(Error, RuntimeError):
    """The server refused the call or failed: busy, stopping, call too large.

    Where something could not be reserved because it is not free then, `earliest` is how many
    seconds after the refusal it can be had.
    """

    fault = "machine"
    earliest: float | None = None


class ChannelError(Error, RuntimeError):
    """An operation on a channel failed, or this process is no element of a job."""

    fault = "caller"


for _class in Error, *Error.__subclasses__(), *FileError.__subclasses__():
    _class.__module__ = "farcall"  # where users find them
