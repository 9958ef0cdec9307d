"""What `farcall.Executor` and the servers that run its functions agree on.

A call runs several tasks. A task is a pickled function with its arguments. Large parts of the
arguments, such as arrays, are blocks: they are told apart by their digests, and a server gets each
of them once. The results come back in pieces.
"""

import functools
import importlib.metadata
import os
import pickle
import platform
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

# Most blocks of a call, and the bytes from which a part of the arguments is a block.
MOST_BLOCKS = 8
LEAST_BLOCK = 1 << 16
# Bytes of a piece of the results.
PIECE = 1_000_000

PARAMETERS = ", ".join(
    [
        "IN long size, IN char tasks[size]",
        *(f"IN long size{i}, IN char block{i}[size{i}]" for i in range(MOST_BLOCKS)),
        "reply(IN long size, IN char piece[size])",
    ]
)


# Values of these types cannot change, and the plain pickle of one is that of cloudpickle.
CONSTANTS = frozenset({type(None), bool, int, float, complex, str, bytes})


class Task(NamedTuple):
    """A function with its arguments, and the digests of its blocks in their order."""

    function: bytes | None
    """The pickled function. In a call, tasks of the same function have the same object here."""
    pickled: bytes
    """The pickled positional and named arguments; the function before them if it is not above."""
    blocks: tuple[bytes, ...]


class RemoteTraceback(Exception):  # noqa: N818
    """The cause of an error that a task has raised at a server: where it came from."""

    def __init__(self, text: str) -> None:
        """`text` is the traceback."""
        super().__init__(text)

    def __str__(self) -> str:
        """The traceback in quotes, which Python prints before the error."""
        return f'\n"""\n{self.args[0]}"""'


def dump(value: Any) -> bytes:
    """Pickles what is not a user's."""
    return pickle.dumps(value, protocol=5)


def load(pickled: bytes, buffers: Iterable[Any] = ()) -> Any:
    """Unpickles."""
    return pickle.loads(pickled, buffers=buffers)


def versions(packages: Sequence[str]) -> dict[str, str]:
    """The versions of Python and of these packages, as far as they are installed."""
    found = {"Python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _installed() -> Mapping[str, Sequence[str]]:
    """The packages that each importable name comes from."""
    return importlib.metadata.packages_distributions()


def used_packages() -> list[str]:
    """The installed packages that this program has imported."""
    packages = _installed()
    modules = {name.partition(".")[0] for name in list(sys.modules)}
    return sorted({package for name in modules for package in packages.get(name, ())})


def is_installed(module: str) -> bool:
    """Whether a module belongs to Python or to an installed package, so that servers import it."""
    first = module.partition(".")[0]
    return first in sys.stdlib_module_names or first in _installed()


def own_modules() -> list[ModuleType]:
    """The imported modules that are files of the program itself, which no server can import."""
    installed = {*_installed(), "farcall", "__main__"}
    folders = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))

    def is_own(name: str, module: object) -> bool:
        # Programs put other objects among the modules, and modules under other names.
        if not isinstance(module, ModuleType) or sys.modules.get(module.__name__) is not module:
            return False
        file = getattr(module, "__file__", None)
        first = name.partition(".")[0]
        if not isinstance(file, str) or first in installed:
            return False
        return file.endswith(".py") and not file.startswith(folders)

    return [module for name, module in list(sys.modules.items()) if is_own(name, module)]
