"""What `farcall serve module.py` runs: `python -m farcall._worker declare|worker`."""

import importlib.util
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from . import _native
from ._serving import Export, exports


class CallError(Exception):
    """A module or a call has failed, for the reason in the text."""


def load(path: str) -> list[Export]:
    """The functions that a module exports, in the order of their decorators."""
    file = pathlib.Path(path).resolve()
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise CallError("the file is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        if error.filename == str(file):
            raise CallError("there is no such file") from None
        raise CallError(_told(error, file)) from None
    except (Exception, SystemExit) as error:
        raise CallError(_told(error, file)) from None
    if not exports:
        raise CallError(
            "no function has the decorator @farcall.library; `farcall idl draft` writes a module "
            "that serves the functions of another one"
        )
    return exports


def _told(error: BaseException, file: pathlib.Path) -> str:
    """The exception, and the line of the module that raised it."""
    name = type(error).__name__
    try:
        told = str(error)
    except Exception:  # the exception cannot tell itself
        told = ""
    text = f"raised {name}: {told}" if told else f"raised {name}"
    every = list(traceback.extract_tb(error.__traceback__))
    frames = [frame for frame in every if frame.filename == str(file)] or every
    if isinstance(error, SyntaxError) or not frames:
        return text
    frame = frames[-1]
    where = "" if frame.name == "<module>" else f", in {frame.name}"
    return f"{text} ({pathlib.Path(frame.filename).name}, line {frame.lineno}{where})"


def declare(path: str) -> str:
    """The module's functions in the interface language."""
    file = pathlib.Path(path).resolve()
    module = pathlib.Path(path).stem
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", module):
        raise CallError(f"`{module}` cannot be the name of a module: use letters, digits and _")
    lines = [f"Module {module};"]
    for export in load(path):
        lines += [export.place(file), export.declaration()]
    return "\n".join(lines) + "\n"


def bind(path: str) -> list[Callable[[Sequence[Any], Sequence[tuple[str, Any]]], None]]:
    """For each function, a callable that calls it and stores what it returns."""
    file = pathlib.Path(path).resolve()
    return [_Bound(export.function, file) for export in load(path)]


class _Bound:
    def __init__(self, function: Callable[..., Any], file: pathlib.Path) -> None:
        self._function = function
        self._file = file

    def __call__(self, arguments: Sequence[Any], results: Sequence[tuple[str, Any]]) -> None:
        try:
            _store(self._function(*arguments), results)
        except CallError:
            raise
        except BaseException as error:
            traceback.print_exc()
            text = _told(error, self._file)
            # The objects in the frames of the call must not outlive it.
            traceback.clear_frames(error.__traceback__)
            raise CallError(text) from None


def _store(returned: Any, results: Sequence[tuple[str, Any]]) -> None:
    if not results:
        if returned is not None:
            raise CallError("returned a value, but it has all OUT parameters as arguments")
        return
    names = ", ".join(f"`{name}`" for name, _ in results)
    if returned is None:
        raise CallError(f"returned None: it must return a value for {names}")
    values = returned if isinstance(returned, tuple) and len(results) > 1 else (returned,)
    if len(values) != len(results):
        raise CallError(f"returned {len(values)} values for {len(results)} OUT parameters: {names}")
    for value, (name, result) in zip(values, results, strict=True):
        if isinstance(result, list):  # of strings
            _store_texts(name, result, value)
            continue
        try:
            _native.store_result(name, result, value)
        except TypeError as error:
            raise CallError(str(error).removeprefix("it ")) from None


def _store_texts(name: str, result: list[str], value: Any) -> None:
    try:
        result[:] = [value] if isinstance(value, str) else value
    except TypeError:
        kind = type(value).__name__
        raise CallError(f"returned {kind} {value!r} for `{name}`, which is text") from None


def main(arguments: Sequence[str]) -> int:
    """Declares the functions of a module, or runs as a worker that a server has started."""
    match arguments:
        case ["declare", path]:
            # What the module prints, and what it does to its output, is no declaration.
            output, errors = os.dup(1), os.dup(2)
            os.dup2(2, 1)
            try:
                text, status = declare(path), 0
            except CallError as error:
                text, output, status = f"{error}\n", errors, 1
            with open(output, "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
            # A thread of the module may go on.
            os._exit(status)
        case ["where", name]:
            found = importlib.util.find_spec(name)
            sys.stdout.write(f"{found.origin if found else ''}\n")
        case ["worker"]:
            _native.run_worker(bind)
        case _:
            sys.stderr.write("only `farcall serve module.py` runs this module\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
