"""The client for Python."""

from os import PathLike
from typing import Any, Literal, SupportsComplex, SupportsFloat, SupportsIndex, TypeAlias, final

import numpy.typing as npt

_Argument: TypeAlias = (
    npt.ArrayLike
    | SupportsIndex
    | SupportsFloat
    | SupportsComplex
    | str
    | bytes
    | PathLike[str]
    | None
)

__all__ = [
    "Function",
    "FunctionSummary",
    "Interface",
    "Parameter",
    "Server",
    "Times",
    "__version__",
    "connect",
]

__version__: str

def connect(
    address: str | None = None,
    *,
    timeout: float | None = None,
    connect_timeout: float = 10.0,
) -> Server: ...

@final
class Server:
    @property
    def address(self) -> str: ...
    @property
    def times(self) -> Times | None: ...
    def ls(self) -> list[FunctionSummary]: ...
    def describe(self, name: str) -> str: ...
    def function(self, name: str) -> Function: ...
    # A named tuple whose fields the server's interface decides, or None.
    def call(self, name: str, /, *args: _Argument, **kwargs: _Argument) -> Any: ...

@final
class Function:
    @property
    def name(self) -> str: ...
    @property
    def __name__(self) -> str: ...
    @property
    def __doc__(self) -> str: ...  # type: ignore[override]
    @property
    def interface(self) -> Interface: ...
    @property
    def times(self) -> Times | None: ...
    def __call__(self, *args: _Argument, **kwargs: _Argument) -> Any: ...

@final
class FunctionSummary:
    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...

@final
class Interface:
    @property
    def name(self) -> str: ...
    @property
    def module(self) -> str | None: ...
    @property
    def description(self) -> str | None: ...
    @property
    def parameters(self) -> list[Parameter]: ...
    @property
    def convention(self) -> Literal["C", "C++", "FORTRAN"]: ...
    @property
    def text(self) -> str: ...
    def help(self) -> str: ...

@final
class Parameter:
    @property
    def name(self) -> str: ...
    @property
    def mode(self) -> Literal["IN", "OUT", "INOUT", "WORK"]: ...
    @property
    def type(self) -> str: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def shape(self) -> list[str]: ...

@final
class Times:
    @property
    def send(self) -> float: ...
    @property
    def exec(self) -> float: ...
    @property
    def recv(self) -> float: ...
    @property
    def other(self) -> float: ...
    @property
    def total(self) -> float: ...
