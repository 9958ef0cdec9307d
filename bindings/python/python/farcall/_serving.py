"""The decorator for Python functions that a server serves."""

import dataclasses
import inspect
import pathlib
import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, overload

_Served = TypeVar("_Served", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Export:
    """A function and its interface."""

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

    def place(self, module: pathlib.Path) -> str:
        """A line marker, as of the C preprocessor, with the first line of the function: what is
        said about the declaration names that line of the module, or of another file."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        if code is None:
            return "# 1"
        other = code.co_filename != str(module) and code.co_filename.isprintable()
        named = f' "{code.co_filename}"' if other and '"' not in code.co_filename else ""
        return f"# {code.co_firstlineno}{named}"


exports: list[Export] = []

# The words of a parameter that are neither its type nor its name.
_MODES = {"IN", "OUT", "INOUT", "WORK", "mode_in", "mode_out", "mode_inout", "mode_work"}
_MODES |= {"allocate", "broadcast"}

# The types of the interface language, by the names that Python and NumPy use.
_TYPES = {
    "int": "long",
    "float": "double",
    "complex": "dcomplex",
    "str": "string",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long",
    "uint64": "unsigned long",
    "float32": "float",
    "float64": "double",
    "complex64": "scomplex",
    "complex128": "dcomplex",
}


@dataclasses.dataclass(frozen=True)
class Annotation:
    """The mode and the type of a parameter."""

    mode: str
    type: Any

    def declaration(self, name: str) -> str:
        """The parameter in the interface language."""
        text = self.type if isinstance(self.type, str) else getattr(self.type, "__name__", "")
        element, _, sizes = text.partition("[")
        if element not in _TYPES or (sizes and not sizes.endswith("]")):
            raise TypeError(
                f"`{name}`: {self.type!r} is not a type; write int, float, complex, str, the name "
                'of a NumPy type, or an array such as "float64[n, m]"'
            )
        # Commas between sizes are no commas in `max(n, 1)`.
        between = r",(?![^()]*(?:\([^()]*\)[^()]*)*\))"
        every = re.split(between, sizes[:-1]) if sizes else []
        shape = "".join(f"[{size.strip()}]" for size in every)
        if not shape and self.mode != "IN":
            raise TypeError(f'`{name}`: {self.mode} parameters are arrays, such as "float64[1]"')
        return f"{self.mode} {_TYPES[element]} {name}{shape}"


class In:
    """The annotation of a parameter that the function reads: `In[int]`, `In["float64[n]"]`."""

    _mode: ClassVar[str] = "IN"

    def __class_getitem__(cls, item: Any) -> Annotation:
        """The annotation for a type."""
        return Annotation(cls._mode, item)


class Out(In):
    """The annotation of an array that the function fills: `Out["float64[n]"]`."""

    _mode = "OUT"


class InOut(In):
    """The annotation of an array that the function reads and changes: `InOut["float64[n]"]`."""

    _mode = "INOUT"


def _interface(function: Callable[..., Any]) -> str:
    """The interface that the annotations of a function state."""
    declared = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if not isinstance(parameter.annotation, Annotation):
            raise TypeError(
                f"`{name}` of `{function.__name__}` needs an annotation In[...], Out[...] or "
                "InOut[...]; or give the interface to the decorator"
            )
        declared.append(parameter.annotation.declaration(name))
    return f"{function.__name__}({', '.join(declared)})"


def _check_types(interface: str) -> None:
    """Refuses an interface with a parameter of no type, which would be an `int`."""
    bare = re.sub(r"\[[^]]*\]", "", interface)
    inside = bare.partition("(")[2]
    # The parameters of callbacks first; then only the function's own are left, and what follows.
    while callback := re.search(r"\w+\s*\(([^()]*)\)", inside):
        _check_params(interface, callback[1])
        inside = inside[: callback.start()] + inside[callback.end() :]
    _check_params(interface, inside.partition(")")[0])


def _check_params(interface: str, params: str) -> None:
    for param in params.split(","):
        words = re.findall(r"\w+", param)
        if not words or set(words[:-1]) - _MODES:
            continue
        name = words[-1]
        raise TypeError(
            f"`{name}` of `{interface}` has no type; write its mode, type and sizes, as in "
            f"`IN double {name}[n]`, or leave out the interface and annotate the function: "
            f'`{name}: farcall.In["float64[n]"]`'
        )


@overload
def library(interface: _Served) -> _Served: ...
@overload
def library(
    interface: str | None = None,
    *,
    calc_order: str | None = None,
    processor_elements: str | None = None,
    gpus: int = 0,
    repeatable: bool = False,
) -> Callable[[_Served], _Served]: ...
def library(
    interface: Any = None,
    *,
    calc_order: str | None = None,
    processor_elements: str | None = None,
    gpus: int = 0,
    repeatable: bool = False,
) -> Any:
    """Makes a function of a module one that `farcall serve module.py` serves.

    @farcall.library
    def smooth(n: farcall.In[int], x: farcall.In["float64[n]"], y: farcall.Out["float64[n]"]):
        "Mean of each three neighbours"
        y[:] = np.convolve(x, np.ones(3) / 3, "same")

    The annotations state the interface: the mode and the type of each parameter. The sizes of
    arrays are expressions of other parameters. The decorator also takes the interface as text, in
    the interface language (docs/idl.md):

    @farcall.library("smooth(IN int n, IN double x[n], OUT double y[n])", calc_order="3 * n")
    def smooth(n, x):
        return np.convolve(x, np.ones(3) / 3, "same")

    The function gets the parameters that it names: numbers, texts, and NumPy arrays in the memory
    of the call. IN arrays are read-only. The function must not keep the arrays. It returns the OUT
    parameters that it does not name, several of them as a tuple. If it raises an exception, the
    call fails with the text of the exception.

    `calc_order` (the operations of a call) and `processor_elements` are expressions of the
    parameters. A call has `gpus` GPUs for itself. `repeatable` says that the server may run a call
    again after a failure. The decorator does not change the function itself. Each processor element
    has its own interpreter.
    """
    options = [
        f" CalcOrder {calc_order}" if calc_order else "",
        f" ProcessorElements {processor_elements}" if processor_elements else "",
        f" Gpus {gpus}" if gpus else "",
        ' Repeatable "yes"' if repeatable else "",
    ]

    def register(function: _Served) -> _Served:
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"`{function.__name__}` is `async`, and calls do not wait for a coroutine; write a "
                "plain function, which may run one with `asyncio.run`"
            )
        if isinstance(interface, str):
            _check_types(interface)
            text = interface
        else:
            text = _interface(function)
        exports.append(Export(function, text, "".join(options)))
        return function

    return register(interface) if callable(interface) else register
