"""The decorator that makes a Python function one that can be served."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

_Served = TypeVar("_Served", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Export:
    """A function with what the interface language says about it."""

    function: Callable[..., Any]
    interface: str
    options: str

    def declaration(self) -> str:
        """The interface as a definition in the interface language."""
        taken = ", ".join(inspect.signature(self.function).parameters)
        title = (inspect.getdoc(self.function) or "").partition("\n")[0]
        title = title.replace("\\", "/").replace('"', "'").rstrip(".")
        quoted = f' "{title}"' if title else ""
        body = f'Calls "Python" {self.function.__name__}({taken});'
        return f"Define {self.interface}{quoted}{self.options}\n    {body}"


exports: list[Export] = []


def serve(
    interface: str,
    *,
    calc_order: str | None = None,
    processor_elements: str | None = None,
    repeatable: bool = False,
) -> Callable[[_Served], _Served]:
    """Lets `farcall serve module.py` serve a function of the module.

    @farcall.serve("smooth(IN int n, IN double x[n], OUT double y[n])", calc_order="3 * n")
    def smooth(n, x, y):
        "Mean of each three neighbours"
        y[:] = np.convolve(x, np.ones(3) / 3, "same")

    `interface` is the name and the parameters as the interface language has them (docs/idl.md). The
    function gets those parameters that it names: numbers, texts, and NumPy arrays in the memory of
    the call, IN arrays read-only. It must not keep the arrays. OUT parameters that it does not name
    are what it returns, several as a tuple. An exception is a failed call whose error says what was
    raised. `calc_order` (operations of a call) and `processor_elements` are expressions of the
    parameters; `repeatable` says that a call may be run again after a failure.

    The function itself stays as it is. Each processor element has an interpreter of its own.
    """
    options = [
        f" CalcOrder {calc_order}" if calc_order else "",
        f" ProcessorElements {processor_elements}" if processor_elements else "",
        ' Repeatable "yes"' if repeatable else "",
    ]

    def register(function: _Served) -> _Served:
        exports.append(Export(function, interface, "".join(options)))
        return function

    return register
