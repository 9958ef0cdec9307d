"""Writes the types of the functions of a server, for editors and type checkers.

    python -m farcall.stubs farcall://host:3717 lapack > lapack.py

writes a Python module with a function for each function of the module `lapack`:

    from lapack import dgesv

    solve = dgesv(server)  # server.function("lapack/dgesv"), with its types
    x = solve(a=a, b=b).b

A call by name may leave out OUT arguments and the sizes of the arrays that it gives. A call by
position may leave out the last ones of these. Methods of objects have no function in the module.
"""

import keyword
import sys
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

import farcall

_HEAD = '''\
"""Functions of the module `{module}`. Made by `python -m farcall.stubs`: do not edit."""

# ruff: noqa
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Literal, NamedTuple, Protocol, SupportsComplex, SupportsFloat
from typing import SupportsIndex, TypeAlias, TypeVar, cast, overload

import farcall
import numpy as np
import numpy.typing as npt
from farcall._native import Keep

_Result = TypeVar("_Result", covariant=True)
_Each = TypeVar("_Each")
_Own = TypeVar("_Own")


class _Foreign(Protocol):
    """An array of another library."""

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


class _Sparse(Protocol):
    """A sparse matrix."""

    def toarray(self) -> Any: ...
    @property
    def nnz(self) -> Any: ...


_Read: TypeAlias = npt.ArrayLike | _Foreign | _Sparse | farcall.Data | farcall.Source
_Remote: TypeAlias = farcall.Handle | farcall.RemoteArray | farcall.Source | Keep


class Future(Protocol, Generic[_Result]):
    """A call under way."""

    def result(self, timeout: float | None = None) -> _Result: ...
    def done(self) -> bool: ...
    def cancel(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def progress(self) -> tuple[int, int, int, int] | None: ...
    def status(self) -> farcall.CallStatus: ...
    def add_done_callback(self, callback: Any) -> None: ...
    @property
    def library(self) -> str | None: ...
    @property
    def threads(self) -> int | None: ...
    @property
    def times(self) -> farcall.Times | None: ...
    def __await__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(self, *error: Any) -> Any: ...
    def close(self) -> None: ...


class Sweep(Protocol, Generic[_Each]):
    """The calls of a map."""

    @property
    def results(self) -> list[_Each | None]: ...
    @property
    def errors(self) -> dict[int, BaseException]: ...
    @property
    def wanted(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_Each]: ...
    def as_completed(self) -> Iterator[tuple[int, _Each]]: ...
    def wait(self) -> list[_Each]: ...
    def cancel(self) -> None: ...


class _Function(Protocol):
    """What all functions have."""

    @property
    def name(self) -> str: ...
    @property
    def interface(self) -> farcall.Interface: ...
    @property
    def library(self) -> str | None: ...
    @property
    def times(self) -> farcall.Times | None: ...
    def with_output(self: _Own, target: Any = None) -> _Own: ...
    def with_retention(self: _Own, hours: float) -> _Own: ...
    def with_reservation(
        self: _Own, reservation: farcall.Reservation | int | str | None
    ) -> _Own: ...
    def reserve(self, pes: int = 1, *, seconds: float, **when: Any) -> farcall.Reservation: ...
    def reservations(self) -> list[farcall.Reservation]: ...
'''


class _Argument(NamedTuple):
    """An argument of a method."""

    name: str
    type: str
    may_be_left_out: bool

    def __str__(self) -> str:
        """The text in a signature."""
        return f"{self.name}: {self.type}{' = ...' if self.may_be_left_out else ''}"


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
    returned = [each for each in passed if each.mode != "IN" and each.shape and not _is_file(each)]
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
    yield f"class {stem}_function(_Function, Protocol):"
    yield from textwrap.indent(_quoted(interface.description or function.name), "    ").splitlines()
    yield ""
    yield from _methods(interface, result, passed, named=named)
    yield ""
    yield ""
    yield f"def {stem}(server: farcall.Server) -> {stem}_function:"
    yield f'    """`{function.name}` of a server."""'
    yield f"    return cast({stem}_function, server.function({function.name!r}))"


def _methods(
    interface: farcall.Interface, result: str, passed: list[farcall.Parameter], *, named: bool
) -> Iterator[str]:
    """The ways to call a function."""
    made = [("__call__", result), ("call_async", f"Future[{result}]")]
    submitted = ("submit", "farcall.DurableCall")
    estimated = ("estimate", "farcall.Estimate")
    if named:
        names = {p.name for p in passed} | {each.name for each in interface.callbacks}
        options = [f"{name}: float | None = ..." for name in _OPTIONS if name not in names]
        calls = [(each.name, "Callable[..., object]") for each in interface.callbacks]
        callbacks = [_Argument(*call, False) for call in calls]
        given = [_Argument(p.name, _type(p), _may_be_left_out(p)) for p in passed]
        for method, answer in made:
            yield from _method(method, answer, [*given, *callbacks], options)
        # A durable call makes all arrays that it returns.
        inputs = [a._replace(type="None") if _is_made(p) else a for p, a in _both(passed, given)]
        yield from _method(*submitted, [*inputs, *callbacks], [])
        # Most arrays are not needed for an estimate, and no callback.
        sizes = [a._replace(may_be_left_out=not _is_needed(p)) for p, a in _both(passed, given)]
        callbacks = [_Argument(*call, True) for call in calls]
        yield from _method(*estimated, [*sizes, *callbacks], [])
    else:
        for method, answer in (*made, submitted, estimated):
            yield f"    def {method}(self, *args: Any, **kwargs: Any) -> {answer}: ..."
    yield "    def map("
    yield '        self, calls: Iterable[Any], *, group: int | Literal["auto"] | None = ...,'
    yield "        progress: bool | None = ..., **fixed: Any,"
    yield f"    ) -> Sweep[{result}]: ..."


# Options of a call, which are arguments of the function if it has arguments of these names.
_OPTIONS = ("timeout", "before")


def _both(
    passed: list[farcall.Parameter], given: list[_Argument]
) -> Iterator[tuple[farcall.Parameter, _Argument]]:
    return zip(passed, given, strict=True)


def _method(name: str, result: str, given: list[_Argument], options: list[str]) -> Iterator[str]:
    """A method; as two, if an argument that may be left out is before one that may not be."""
    needed = [index for index, each in enumerate(given) if not each.may_be_left_out]
    last = max(needed, default=-1)
    head = [each._replace(may_be_left_out=False) for each in given[: last + 1]]
    by_position = [*head, *given[last + 1 :]]
    signatures = [["self", *map(str, by_position), *(["*", *options] if options else [])]]
    if by_position != given:
        signatures.append(["self", "*", *map(str, given), *options])
    for signature in signatures:
        if len(signatures) > 1:
            yield "    @overload"
        yield f"    def {name}({', '.join(signature)}) -> {result}: ..."


def _is_file(parameter: farcall.Parameter) -> bool:
    return parameter.type in ("filename", "filepointer")


def _is_made(parameter: farcall.Parameter) -> bool:
    """Whether a call makes the array if it is left out; the caller must name an OUT file."""
    return parameter.mode == "OUT" and bool(parameter.shape) and not _is_file(parameter)


def _may_be_left_out(parameter: farcall.Parameter) -> bool:
    """OUT arrays can be left out, and sizes that an array has."""
    return _is_made(parameter) or (parameter.mode == "IN" and bool(parameter.inferred_from))


def _is_needed(parameter: farcall.Parameter) -> bool:
    """Whether an estimate needs the argument: it is a scalar, a text or a file."""
    is_text = parameter.type == "string" and parameter.length is None
    is_value = not parameter.shape or is_text or _is_file(parameter)
    return is_value and not _may_be_left_out(parameter)


def _type(parameter: farcall.Parameter) -> str:
    """The type of an argument."""
    if _is_file(parameter):
        return "Iterable[str]" if parameter.shape else "str | os.PathLike[str]"
    if parameter.type == "string" and parameter.shape:
        kinds = {"IN": "Iterable[str]", "OUT": "list[str] | None"}
        return kinds.get(parameter.mode, "list[str]")
    if parameter.shape:
        return "_Read" if parameter.mode == "IN" else _written(parameter)
    if parameter.dtype is None:
        return "str"
    if parameter.type.endswith("char"):
        return "str | bytes | SupportsIndex"
    kind = np.dtype(parameter.dtype).kind
    return {"f": "SupportsFloat", "c": "SupportsComplex | SupportsFloat"}.get(kind, "SupportsIndex")


def _written(parameter: farcall.Parameter) -> str:
    """The type of an array that the call fills, or of what stands for one."""
    arrays = _array(parameter)
    if parameter.type == "char":
        arrays += " | npt.NDArray[np.int8] | npt.NDArray[np.uint8]"
    return f"{arrays} | _Remote{' | None' if parameter.mode == 'OUT' else ''}"


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
