"""Copies of the Python functions of a module, with other names under them.

NumPy and SciPy check arguments, choose types and shape results in Python, and compute in compiled
functions. A copy that finds other compiled functions in its globals does all the former as they do,
whatever their version. The originals are not changed.
"""

import functools
import types
from collections.abc import Mapping
from typing import Any


def copied(module: Any, replaced: Mapping[str, Any], home: str) -> types.SimpleNamespace:
    """The names of a module; its functions see `replaced`, and the copies of each other.

    `home` is the module that offers the copies: `pickle` finds them there.
    """
    return types.SimpleNamespace(**_Copier(vars(module), replaced, home).names)


class _Copier:
    def __init__(self, original: dict[str, Any], replaced: Mapping[str, Any], home: str) -> None:
        self._original, self._home = original, home
        self._done: dict[int, Any] = {}
        self.names = dict(original)
        self.names.update((name, self.copy(value)) for name, value in original.items())
        self.names.update(replaced)

    def copy(self, value: Any) -> Any:
        """A function of the module, or what is wrapped around one, anew; else the value itself."""
        if id(value) not in self._done:
            self._done[id(value)] = self._copy(value)
        return self._done[id(value)]

    def _copy(self, value: Any) -> Any:
        if isinstance(value, functools.partial):
            function = self.copy(value.func)
            again = functools.partial(function, *value.args, **value.keywords)
            again.__dict__.update(vars(value))
            return value if function is value.func else again
        if not isinstance(value, types.FunctionType):
            # NumPy's dispatchers are objects around a function.
            wrapped = getattr(value, "__wrapped__", None) if callable(value) else None
            mine = isinstance(wrapped, types.FunctionType) and not isinstance(value, type)
            return self.copy(wrapped) if mine and wrapped is not None else value
        mine = value.__globals__ is self._original
        cells = value.__closure__ or ()
        contents = [self._cell(cell) for cell in cells]
        changed = any(a is not b for a, b in zip(contents, cells, strict=True))
        if not mine and not changed:
            return value
        scope = self.names if mine else value.__globals__
        copy = types.FunctionType(
            value.__code__, scope, value.__name__, value.__defaults__, tuple(contents) or None
        )
        copy.__dict__.update(vars(value))
        copy.__kwdefaults__ = value.__kwdefaults__
        copy.__doc__, copy.__qualname__ = value.__doc__, value.__qualname__
        copy.__annotations__, copy.__module__ = value.__annotations__, self._home
        return copy

    def _cell(self, cell: types.CellType) -> types.CellType:
        try:
            content = cell.cell_contents
        except ValueError:  # the variable has no value
            return cell
        if not isinstance(content, types.FunctionType):
            return cell
        copy = self.copy(content)
        return cell if copy is content else types.CellType(copy)
