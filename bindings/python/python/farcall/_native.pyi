"""The client for Python."""

from collections.abc import Callable, Generator, Sequence
from os import PathLike
from typing import Any, Literal, SupportsComplex, SupportsFloat, SupportsIndex, TypeAlias, final

import numpy as np
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
    "FlowPattern",
    "FlowPlatform",
    "Function",
    "FunctionSummary",
    "Future",
    "Interface",
    "Parameter",
    "Server",
    "SharedMemory",
    "Times",
    "__version__",
    "connect",
    "run_worker",
    "simulate_flow",
]

__version__: str

def run_worker(
    bind: Callable[[str], list[Callable[[Sequence[Any], Sequence[Any]], None]]],
) -> None: ...
def connect(
    address: str | None = None,
    *,
    timeout: float | None = None,
    connect_timeout: float = 10.0,
    same_host: bool = True,
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
    def empty(
        self,
        shape: SupportsIndex | Sequence[SupportsIndex],
        dtype: npt.DTypeLike | None = None,
        order: Literal["C", "F"] = "C",
    ) -> npt.NDArray[Any]: ...
    def _share(self, size: int) -> SharedMemory | None: ...
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
    def call_async(self, *args: _Argument, **kwargs: _Argument) -> Future: ...

@final
class Future:
    def result(self, timeout: float | None = None) -> Any: ...
    def done(self) -> bool: ...
    def cancel(self) -> bool: ...
    def cancelled(self) -> bool: ...
    @property
    def times(self) -> Times | None: ...
    def __await__(self) -> Generator[Any, None, Any]: ...

@final
class SharedMemory:
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

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

@final
class FlowPlatform:
    def __new__(cls, spec: str) -> FlowPlatform: ...
    @staticmethod
    def from_edges(text: str, latency: float = 0.0) -> FlowPlatform: ...
    @property
    def nodes(self) -> int: ...
    @property
    def links(self) -> int: ...
    @property
    def latency(self) -> float: ...
    @property
    def bandwidths(self) -> npt.NDArray[np.float64]: ...
    def link_names(self) -> list[str]: ...
    def route(self, source: int, destination: int) -> npt.NDArray[np.uint32]: ...

@final
class FlowPattern:
    def __new__(
        cls, spec: str, ranks: int, size: float, *, count: int = 1, steps: int | None = None
    ) -> FlowPattern: ...
    @staticmethod
    def from_arrays(
        source: npt.NDArray[np.uint32],
        destination: npt.NDArray[np.uint32],
        size: npt.NDArray[np.float64],
        wait: npt.NDArray[np.float64] | None = None,
    ) -> FlowPattern: ...
    @staticmethod
    def from_csv(text: str) -> FlowPattern: ...
    @staticmethod
    def from_goal(text: str) -> FlowPattern: ...
    @property
    def ranks(self) -> int: ...
    @property
    def messages(self) -> int: ...

def simulate_flow(
    platform: FlowPlatform,
    pattern: FlowPattern,
    placement: str | npt.NDArray[np.uint32],
    settings: dict[str, Any],
) -> dict[str, Any]: ...
