"""Writes the types of the functions of a server, for editors and type checkers.

    python -m farcall.stubs farcall://host:3717 lapack > lapack.py

writes a Python module with a function for each function of the module `lapack`:

    from lapack import dgesv

    solve = dgesv(server)  # server.function("lapack/dgesv"), with its types
    x = solve(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n).b

A call by name may leave out OUT arguments; a call by position must give all of them. Methods of
objects have no function in the module.
"""

import keyword
import sys
import textwrap
from collections.abc import Iterator

import numpy as np

import farcall

_HEAD = '''\
"""Functions of the module `{module}`. Made by `python -m farcall.stubs`: do not edit."""

# ruff: noqa
import os
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, SupportsComplex, SupportsFloat
from typing import SupportsIndex, TypeVar, cast, overload

import farcall
import numpy as np
import numpy.typing as npt

_Result = TypeVar("_Result", covariant=True)


class Future(Protocol, Generic[_Result]):
    """A call under way."""

    def result(self, timeout: float | None = None) -> _Result: ...
    def done(self) -> bool: ...
    def cancel(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def add_done_callback(self, callback: Any) -> None: ...
    @property
    def library(self) -> str | None: ...
    @property
    def times(self) -> farcall.Times | None: ...
    def __await__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, *error: Any) -> Any: ...
    def close(self) -> None: ...
'''


def generate(server: farcall.Server, module: str) -> str:
    """The text of a Python module with the types of all functions of one module of the server."""
    # A method, which has a class in its name, is called by its object.
    names = [summary.name for summary in server.ls() if "." not in summary.name]
    mine = [name for name in names if name.rpartition("/")[0] == module]
    if not mine:
        served = ", ".join(sorted({name.rpartition("/")[0] for name in names})) or "none"
        raise farcall.UnknownFunction(
            f"no module `{module}` with functions; the server has: {served}"
        )
    parts = [_HEAD.format(module=module)]
    parts.extend("\n".join(_function(server.function(name))) for name in mine)
    return "\n\n".join(parts) + "\n"


def _function(function: farcall.Function) -> Iterator[str]:
    interface = function.interface
    passed = [each for each in interface.parameters if each.mode != "WORK"]
    returned = [each for each in passed if each.mode != "IN" and each.shape]
    stem = _identifier(interface.name)
    names = [*(each.name for each in passed), *(each.name for each in interface.callbacks)]
    named = all(map(_is_plain, names))
    result = f"{stem}_result" if returned and named else "Any" if returned else "None"
    if result.endswith("_result"):
        yield f"class {result}(NamedTuple):"
        yield f'    """The result of `{function.name}`."""'
        yield ""
        yield from (f"    {each.name}: {_result_type(each)}" for each in returned)
        yield ""
        yield ""
    yield f"class {stem}_function(Protocol):"
    yield from textwrap.indent(_quoted(interface.description or function.name), "    ").splitlines()
    yield ""
    for method, answer in (("__call__", result), ("call_async", f"Future[{result}]")):
        callbacks = [each.name for each in interface.callbacks]
        yield from _method(method, answer, passed if named else None, callbacks)
    yield "    @property"
    yield "    def interface(self) -> farcall.Interface: ..."
    yield "    @property"
    yield "    def times(self) -> farcall.Times | None: ..."
    yield ""
    yield ""
    yield f"def {stem}(server: farcall.Server) -> {stem}_function:"
    yield f'    """`{function.name}` of a server."""'
    yield f"    return cast({stem}_function, server.function({function.name!r}))"


def _method(
    name: str, result: str, passed: list[farcall.Parameter] | None, callbacks: list[str]
) -> Iterator[str]:
    if passed is None:
        yield f"    def {name}(self, *args: Any, **kwargs: Any) -> {result}: ..."
        return
    given = [f"{each.name}: {_type(each)}" for each in passed]
    functions = [f"{each}: Callable[..., object]" for each in callbacks]
    if not any(_may_be_left_out(each) for each in passed):
        yield f"    def {name}({', '.join(['self', *given, *functions])}) -> {result}: ..."
        return
    by_name = [
        f"{text} = ..." if _may_be_left_out(each) else text
        for each, text in zip(passed, given, strict=True)
    ]
    yield "    @overload"
    yield f"    def {name}({', '.join(['self', *given, *functions])}, /) -> {result}: ..."
    yield "    @overload"
    yield f"    def {name}({', '.join(['self', '*', *by_name, *functions])}) -> {result}: ..."


def _may_be_left_out(parameter: farcall.Parameter) -> bool:
    """OUT arrays can be left out; the caller must name an OUT file."""
    return parameter.mode == "OUT" and bool(parameter.shape)


def _type(parameter: farcall.Parameter) -> str:
    """The type of an argument."""
    if parameter.type in ("filename", "filepointer"):
        return "str | os.PathLike[str]"
    if parameter.type == "string" and parameter.shape:
        return "Iterable[str]" if parameter.mode == "IN" else "list[str]"
    if parameter.shape:
        return "npt.ArrayLike" if parameter.mode == "IN" else _array(parameter)
    if parameter.dtype is None:
        return "str"
    if parameter.type.endswith("char"):
        return "str | bytes | SupportsIndex"
    kind = np.dtype(parameter.dtype).kind
    return {"f": "SupportsFloat", "c": "SupportsComplex | SupportsFloat"}.get(kind, "SupportsIndex")


def _result_type(parameter: farcall.Parameter) -> str:
    """An array; or a number for an array of one element that was left out."""
    if parameter.type == "string":
        return "list[str] | str" if parameter.shape == ["1"] else "list[str]"
    if parameter.shape != ["1"]:
        return _array(parameter)
    scalar = {"f": "float", "c": "complex", "i": "int", "u": "int"}
    kind = np.dtype(parameter.dtype).kind if parameter.dtype else ""
    return f"{_array(parameter)} | {scalar.get(kind, 'Any')}"


def _array(parameter: farcall.Parameter) -> str:
    element = np.dtype(parameter.dtype).type.__name__ if parameter.dtype else "str_"
    return f"npt.NDArray[np.{element}]"


def _is_plain(name: str) -> bool:
    """Whether a method can have an argument of this name, and a named tuple a field."""
    is_taken = keyword.iskeyword(name) or name == "self" or name.startswith("_")
    return name.isidentifier() and not is_taken


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{escaped}"""'


def main() -> None:
    """Writes the module that the arguments name to standard output."""
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        sys.exit(f"usage: python -m farcall.stubs SERVER MODULE > MODULE.py\n\n{__doc__}")
    try:
        print(generate(farcall.connect(sys.argv[1]), sys.argv[2]), end="")
    except farcall.Error as error:
        sys.exit(f"farcall.stubs: {error}")


if __name__ == "__main__":
    main()
