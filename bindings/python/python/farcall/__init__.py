"""Call a numerical library on any machine as if it were local.

server = farcall.connect("farcall://host:3717")
dgesv = server.function("lapack/dgesv")
help(dgesv)
x = dgesv(n=n, nrhs=1, a=A, lda=n, b=B, ldb=n).b
"""

import warnings
from typing import TYPE_CHECKING, Any

from ._errors import (
    ArgumentError,
    CallbackError,
    ChannelError,
    ConnectionError,  # noqa: A004
    Error,
    FileError,
    FileNotFoundError,  # noqa: A004
    LibraryError,
    NotFoundError,
    PermissionError,  # noqa: A004
    ServerError,
    TimeoutError,  # noqa: A004
    UnknownFunction,
)
from ._executor import Executor
from ._memory import empty
from ._native import (
    CallStatus,
    Data,
    DataStatus,
    DurableCall,
    DurableStatus,
    Estimate,
    Expected,
    Function,
    FunctionSummary,
    Future,
    Handle,
    Interface,
    Object,
    Parameter,
    Receipt,
    RemoteArray,
    Reservation,
    Server,
    Source,
    Times,
    Transaction,
    TransactionPlan,
    __version__,
    connect,
    data,
    keep,
    load_plan,
    transaction,
    url,
)
from ._pool import SlurmPool
from ._progress import progress
from ._serving import In, InOut, Out, library

__all__ = [
    "ArgumentError",
    "CallStatus",
    "CallbackError",
    "ChannelError",
    "ConnectionError",
    "Data",
    "DataStatus",
    "DurableCall",
    "DurableStatus",
    "Error",
    "Estimate",
    "Executor",
    "Expected",
    "FileError",
    "FileNotFoundError",
    "Function",
    "FunctionSummary",
    "Future",
    "Handle",
    "In",
    "InOut",
    "Interface",
    "LibraryError",
    "NotFoundError",
    "Object",
    "Out",
    "Parameter",
    "PermissionError",
    "Receipt",
    "RemoteArray",
    "Reservation",
    "Server",
    "ServerError",
    "SlurmPool",
    "Source",
    "TimeoutError",
    "Times",
    "Transaction",
    "TransactionPlan",
    "UnknownFunction",
    "__version__",
    "connect",
    "data",
    "empty",
    "keep",
    "library",
    "load_plan",
    "progress",
    "transaction",
    "url",
]

# Modules that `import farcall` leaves out.
_MODULES = ("channel", "cuda", "fft", "flow", "joblib", "linalg", "offload", "scipy", "stubs")

# Names of earlier versions, and the present ones.
_DEPRECATED = {
    "Job": "DurableCall",
    "JobStatus": "DurableStatus",
    "Plan": "Estimate",
    "Timeout": "TimeoutError",
    "serve": "library",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The present object of an old name."""
        present = _DEPRECATED.get(name)
        if present is None:
            remedy = f": write `import farcall.{name}`" if name in _MODULES else ""
            raise AttributeError(f"module `farcall` has no attribute `{name}`{remedy}")
        text = f"farcall.{name} is deprecated; use farcall.{present}"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return globals()[present]
