"""The functions of the module `python`, which run functions that users send.

A server serves them where the operator has set `[python] pickled = true`.
"""

import collections
import inspect
import json
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import farcall
from farcall._pickled import (
    CONSTANTS,
    MOST_BLOCKS,
    PARAMETERS,
    PIECE,
    Task,
    dump,
    load,
    versions,
)

try:
    import cloudpickle
except ImportError:
    raise ImportError(
        "functions of users need cloudpickle: pip install 'farcall[executor]'"
    ) from None

# The blocks that this process keeps for later tasks; the last one used is at the end.
_KEPT_BYTES = 1 << 30
_kept: collections.OrderedDict[bytes, bytes] = collections.OrderedDict()


@farcall.library("versions(IN string packages, tell(IN string versions))")
def _versions(packages: str, tell: Callable[[str], None]) -> None:
    """Tell the versions of Python and of packages."""
    tell(json.dumps(versions(json.loads(packages))))


def _run(tasks: Any, *rest: Any) -> None:
    """Run pickled functions."""
    *blocks, reply = rest
    listed, digests = load(tasks)
    # Not all of them may find room among the blocks that are kept.
    given = {digest: _keep(digest, block) for digest, block in zip(digests, blocks, strict=False)}
    results = np.frombuffer(dump([_result(Task(*task), given) for task in listed]), np.uint8)
    for start in range(0, results.size, PIECE):
        piece = results[start : start + PIECE]
        reply(piece.size, piece)


# Which parameters the function takes, by name.
_taken = ["tasks", *(f"block{place}" for place in range(MOST_BLOCKS)), "reply"]
_run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in _taken]
)
farcall.library(f"run({PARAMETERS})")(_run)


def _keep(digest: bytes, block: np.ndarray[Any, Any]) -> bytes:
    """Copies a block, because the memory of a call does not outlive it."""
    if digest not in _kept:
        _kept[digest] = block.tobytes()
    copy = _kept[digest]
    _kept.move_to_end(digest)
    while len(_kept) > 1 and sum(map(len, _kept.values())) > _KEPT_BYTES:
        _kept.popitem(last=False)
    return copy


def _result(task: Task, given: Mapping[bytes, bytes]) -> tuple[bool, bytes]:
    """What a task returns, pickled; or True, and the error that it raises with its traceback."""
    try:
        blocks = [given[digest] for digest in task.blocks]
        if task.function is None:
            function, args, kwargs = load(task.pickled, blocks)
        else:
            function = load(task.function)
            args, kwargs = load(task.pickled, blocks)
        return False, _pickled(function(*args, **kwargs))
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        # The objects in the frames of the task must not outlive it.
        traceback.clear_frames(error.__traceback__)
        return True, _pickled_error(error, text)


def _pickled(value: Any) -> bytes:
    if type(value) in CONSTANTS:
        return dump(value)
    pickled: bytes = cloudpickle.dumps(value, protocol=5)
    return pickled


def _pickled_error(error: BaseException, text: str) -> bytes:
    """The error with its traceback. An error that cannot be pickled comes as its text."""
    try:
        pickled: bytes = cloudpickle.dumps((error, text), protocol=5)
        if isinstance(load(pickled)[0], BaseException):
            return pickled
    except Exception:  # it cannot travel
        pass
    try:
        told = f": {error}"
    except Exception:  # it cannot tell itself
        told = ""
    return dump((RuntimeError(f"{type(error).__name__}{told}"), text))
