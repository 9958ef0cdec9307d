"""The pickles of functions that a program gives to servers again and again."""

import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ._pickled import CONSTANTS, is_installed

# A variable that does not exist.
_MISSING = object()


class _Known(NamedTuple):
    """The pickle of a function, and what it was made of."""

    names: set[str]
    values: list[Any]
    pickled: bytes

    def is_good(self, function: types.FunctionType) -> bool:
        """Whether the function still refers to the same."""
        values = _values(function, self.names)
        return (
            values is not None
            and len(values) == len(self.values)
            and all(map(operator.is_, values, self.values))
        )


class FunctionPickles:
    """Pickles functions, and keeps the pickles of those that have not changed.

    A pickle contains what the function refers to: variables of its module, of its closure, and
    default values. If all of them are constants, or modules, functions and classes of installed
    packages, the pickle is good as long as they are the same.
    """

    def __init__(self, dumps: Callable[[Any], bytes]) -> None:
        """`dumps` pickles a function."""
        self._dumps = dumps
        self._known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()

    def of(self, function: Any) -> bytes | None:
        """The pickle of a function; `None` if something that it refers to may change unseen."""
        if type(function) is not types.FunctionType:
            return None
        known = self._known.get(function)
        if known is not None and known.is_good(function):
            return known.pickled
        names = set(_names(function.__code__))
        values = _values(function, names)
        if values is None or not all(map(_is_fixed, values)):
            return None
        pickled = self._dumps(function)
        self._known[function] = _Known(names, values, pickled)
        return pickled


def _names(code: types.CodeType) -> Iterator[str]:
    """The names in a function and in those inside it; some are of attributes, not of variables."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _values(function: types.FunctionType, names: set[str]) -> list[Any] | None:
    """What the pickle of a function depends on, if this module knows all of it."""
    if function.__dict__ or function.__kwdefaults__:
        return None
    variables = function.__globals__
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a variable without a value
        return None
    named = (variables.get(name, _MISSING) for name in names)
    return [function.__code__, *(function.__defaults__ or ()), *cells, *named]


def _is_fixed(value: Any) -> bool:
    """Whether a value cannot change, or is one that servers import."""
    kind = type(value)
    if kind in CONSTANTS or kind is types.CodeType or value is _MISSING:
        return True
    if kind is tuple:
        return all(map(_is_fixed, value))
    if kind is types.ModuleType:
        return is_installed(value.__name__) and sys.modules.get(value.__name__) is value
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        module = sys.modules.get(value.__module__ or "")
        return (
            module is not None
            and is_installed(module.__name__)
            and getattr(module, value.__qualname__, None) is value
        )
    return False
