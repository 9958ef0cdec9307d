"""What the code of a callback says about it."""

import dis
import inspect
import types
from collections.abc import Callable
from typing import Any

# With these names, a function reaches its parameters without naming them.
_INDIRECT = frozenset({"eval", "exec", "locals", "vars", "_getframe", "currentframe"})


def takes_out(function: Callable[..., Any], count: int, out: int) -> bool:
    """Whether a function takes all `count` arguments, `out` of which are OUT, as far as is known.

    A default value keeps its parameter: `lambda x, c=c: x - c` takes `x` alone.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    if not _binds(signature, count - out):
        return True
    if not _binds(signature, count):
        return False
    bound = signature.bind(*range(count)).arguments
    return all(signature.parameters[name].default is inspect.Parameter.empty for name in bound)


def _binds(signature: inspect.Signature, count: int) -> bool:
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
