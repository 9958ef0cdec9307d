"""Reads Python modules with type hints, and writes modules that `farcall serve` takes."""

import collections.abc
import contextlib
import importlib.util
import inspect
import keyword
import pathlib
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .form import RefusedError, free_name, name_of

# Hints of arrays that a function takes as lists.
_LISTS = {
    list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection,
    collections.abc.Iterable,
}  # fmt: skip
_SCALARS = {int: "long", float: "double", complex: "dcomplex", str: "string", bool: "bool"}


def read(path: pathlib.Path) -> str:
    """A module that serves the functions of another one."""
    if not path.stem.isidentifier() or keyword.iskeyword(path.stem):
        raise ValueError(f"{path}: `import` takes no module of this name; rename the file")
    functions = dict(_functions(_load(path)))
    taken = _taken(functions)
    module, farcall = free_name(path.stem, taken), free_name("farcall", taken)
    lines = [
        f'"""Serves functions of `{path.stem}`: `farcall serve THIS_FILE`."""',
        "",
        "import pathlib",
        "import sys",
        "",
        _import("farcall", farcall),
        "",
        "sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))",
        f"{_import(path.stem, module)}  # ? is it in this folder, or installed?",
    ]
    served = 0
    for name, function in functions.items():
        try:
            lines += ["", "", *_function(farcall, module, name, function)]
            served += 1
        except RefusedError as error:
            # The text of an error can have several lines.
            reason = " ".join(str(error).split())
            lines += ["", "", f"# ? left out: {name}: {reason}"]
    if served == 0:
        raise ValueError(f"{path}: no function has type hints that an interface can state")
    return "\n".join(lines) + "\n"


def _import(name: str, wanted: str) -> str:
    return f"import {name}" if name == wanted else f"import {name} as {wanted}"


def _functions(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module itself has to call, also if a decorator made it."""
    for name, function in vars(module).items():
        is_own = getattr(function, "__module__", None) == module.__name__
        if callable(function) and is_own and not name.startswith("_"):
            yield name, function


def _taken(functions: Mapping[str, Any]) -> set[str]:
    """Names that functions and their parameters have, which would hide a module."""
    taken = set(functions)
    for function in functions.values():
        with contextlib.suppress(TypeError, ValueError):
            taken.update(inspect.signature(function).parameters)
    return taken


def _load(path: pathlib.Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path}: Python cannot import it")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    try:
        # What the module prints is no part of the draft.
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}: it raised {type(error).__name__}: {error}") from None
    return module


def _signature(function: Any) -> tuple[dict[str, Any], list[inspect.Parameter]]:
    """The hints of a function, with that of its result, and its parameters."""
    if isinstance(function, type):
        raise RefusedError("it is a class; functions that use it can be served")
    if inspect.iscoroutinefunction(function):
        raise RefusedError(
            "it is `async`; a function that runs it with `asyncio.run` can be served"
        )
    try:
        hints = typing.get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())
    except Exception as error:  # Hints are expressions.
        raise RefusedError(f"its type hints cannot be read: {error}") from None
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise RefusedError(f"`{parameter}` is any number of arguments")
        if parameter.name not in hints:
            raise RefusedError(f"`{parameter.name}` has no type hint")
    if hints.get("return") is None:
        raise RefusedError("the type of its result is not stated")
    return hints, parameters


def _function(farcall: str, module: str, name: str, function: Any) -> list[str]:
    hints, parameters = _signature(function)
    declared: list[str] = []
    questions: list[str] = []
    own = [parameter.name for parameter in parameters]
    for word in (name, *own):
        if not word.isascii():
            raise RefusedError(f"`{word}` is no name of an interface: use a-z, A-Z, digits and _")
    # The interface language takes some names for itself.
    names = [one if name_of(one) == one else free_name(name_of(one), own) for one in own]
    for parameter, shown in zip(own, names, strict=True):
        text, asked = _declaration(shown, hints[parameter], names)
        declared += text
        questions += asked
    result = hints["return"]
    results = [result]
    if typing.get_origin(result) is tuple:
        results = list(typing.get_args(result))
    sizes = [text.partition("[")[2].rstrip("]") for text in declared if "[" in text]
    for index, one in enumerate(results if result is not type(None) else []):
        shown = "value" if len(results) == 1 else f"value{index + 1}"
        returned, asked = _result(free_name(shown, names), one, sizes)
        declared.append(returned)
        questions += asked
    interface = f"{name}({', '.join(declared)})"
    description = (inspect.getdoc(function) or name).splitlines()[0]
    description = description.replace("\\", "\\\\").replace('"', '\\"')
    given = []
    for one, shown in zip(parameters, names, strict=True):
        value = _passed(shown, hints[one.name])
        given.append(f"{one.name}={value}" if one.kind == one.KEYWORD_ONLY else value)
    return [
        *(f"# ? {question}" for question in questions),
        f'@{farcall}.library("{interface}")',
        f"def {name}({', '.join(names)}):",
        f'    """{description}"""',
        f"    return {module}.{name}({', '.join(given)})",
    ]


def _declaration(name: str, hint: Any, names: list[str]) -> tuple[list[str], list[str]]:
    """A parameter, with its size before it if it is an array, and questions."""
    if isinstance(hint, type) and hint in _SCALARS:
        return [f"IN {_SCALARS[hint]} {name}"], []
    element, asked = _element(name, hint)
    size = free_name(f"n_{name}", names)
    question = f"`{name}` is taken as a vector: has it more dimensions, as in [n][m]?"
    return [f"IN long {size}", f"IN {element} {name}[{size}]"], [question, *asked]


def _passed(name: str, hint: Any) -> str:
    """What the function gets for a parameter."""
    # Lists do other things than arrays: `x + x` has twice as many elements.
    if typing.get_origin(hint) in _LISTS:
        return f"{name}.tolist()"
    # A `bool` of the interface language is a small integer: `x[mask]` would take it as an index.
    if hint is bool:
        return f"bool({name})"
    is_scalar = isinstance(hint, type) and hint in _SCALARS
    return f"{name}.astype(bool)" if not is_scalar and _element(name, hint)[0] == "bool" else name


def _result(name: str, hint: Any, sizes: list[str]) -> tuple[str, list[str]]:
    if hint is str:
        return f"OUT string[256] {name}[1]", [f"how long can `{name}` be, if not 256 bytes?"]
    if isinstance(hint, type) and hint in _SCALARS:
        return f"OUT {_SCALARS[hint]} *{name}", []
    element, asked = _element(name, hint)
    if not sizes:
        raise RefusedError("no argument has the size of its result")
    return f"OUT {element} {name}[{sizes[0]}]", [f"has `{name}` the size {sizes[0]}?", *asked]


def _element(name: str, hint: Any) -> tuple[str, list[str]]:
    """The type of the elements of an array, a list or a sequence."""
    if hint is np.ndarray:
        return "double", [f"are the elements of `{name}` double?"]
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is np.ndarray:
        inner = typing.get_args(arguments[1])
        # Others are names of several types, such as `np.floating`.
        if inner and inner[0] in set(np.sctypeDict.values()):
            return _of_dtype(name, np.dtype(inner[0])), []
        return "double", [f"are the elements of `{name}` double?"]
    is_list = typing.get_origin(hint) in _LISTS
    if is_list and len(arguments) == 1 and arguments[0] in (int, float, complex):
        return _SCALARS[arguments[0]], []
    raise RefusedError(f"`{name}` is {hint!r}, which no interface has")


def _of_dtype(name: str, dtype: Any) -> str:
    types_of = {
        "f4": "float", "f8": "double", "c8": "scomplex", "c16": "dcomplex", "i1": "int8_t",
        "u1": "uint8_t", "i2": "short", "u2": "unsigned short", "i4": "int", "u4": "unsigned int",
        "i8": "long", "u8": "unsigned long", "b1": "bool",
    }  # fmt: skip
    found = types_of.get(dtype.str[1:])
    if found is None:
        raise RefusedError(f"`{name}` has elements of {dtype}")
    return found
