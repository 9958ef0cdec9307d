"""Call a numerical library on any machine as if it were local.

server = farcall.connect("farcall://host:3717")
dgesv = server.function("lapack/dgesv")
help(dgesv)
x = dgesv(n=n, nrhs=1, a=A, lda=n, b=B, ldb=n).b
"""

from ._errors import (
    ArgumentError,
    CallbackError,
    ChannelError,
    ConnectionError,  # noqa: A004
    Error,
    FileError,
    LibraryError,
    ServerError,
    Timeout,
    UnknownFunction,
)
from ._memory import empty
from ._native import (
    Data,
    DataStatus,
    Function,
    FunctionSummary,
    Future,
    Handle,
    Interface,
    Job,
    JobStatus,
    Object,
    Parameter,
    Plan,
    RemoteArray,
    Reservation,
    Server,
    Times,
    Transaction,
    TransactionPlan,
    __version__,
    connect,
    data,
    keep,
    load_plan,
    transaction,
)
from ._progress import progress
from ._serving import serve

__all__ = [
    "ArgumentError",
    "CallbackError",
    "ChannelError",
    "ConnectionError",
    "Data",
    "DataStatus",
    "Error",
    "FileError",
    "Function",
    "FunctionSummary",
    "Future",
    "Handle",
    "Interface",
    "Job",
    "JobStatus",
    "LibraryError",
    "Object",
    "Parameter",
    "Plan",
    "RemoteArray",
    "Reservation",
    "Server",
    "ServerError",
    "Timeout",
    "Times",
    "Transaction",
    "TransactionPlan",
    "UnknownFunction",
    "__version__",
    "connect",
    "data",
    "empty",
    "keep",
    "load_plan",
    "progress",
    "serve",
    "transaction",
]
