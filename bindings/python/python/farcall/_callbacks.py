"""What the code of a callback says about it."""

import dis
import inspect
import types
from collections.abc import Callable
from typing import Any

# With these names, a function reaches its parameters without naming them.
_INDIRECT = frozenset({"eval", "exec", "locals", "vars", "_getframe", "currentframe"})


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments, as far as is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def ignores(function: Callable[..., Any], position: int) -> bool:
    """Whether a function certainly does nothing with the argument at this position."""
    if isinstance(function, types.MethodType):
        function, position = function.__func__, position + 1
    if not isinstance(function, types.FunctionType):
        return False
    code = function.__code__
    if position >= code.co_argcount or not _INDIRECT.isdisjoint(code.co_names):
        return False
    name = code.co_varnames[position]
    if name in code.co_cellvars:
        return False
    for step in dis.get_instructions(code):
        if "LOAD" not in step.opname:
            continue
        if step.argval == name or (isinstance(step.argval, tuple) and name in step.argval):
            return False
    return True
