"""A pytest plugin: a module of NumPy or SciPy has the functions that Farcall offers for it.

`FARCALL_DROP_IN` names Farcall's module, and `FARCALL_SERVER` the server. The names are replaced
before the tests import them. At the end the plugin prints how many calls the server got.
"""

import importlib
import os

from farcall import _compute, _stacks, _transforms
from farcall.scipy import _lapack

OURS = os.environ["FARCALL_DROP_IN"]
THEIRS = OURS.removeprefix("farcall.") if ".scipy." in OURS else OURS.replace("farcall", "numpy")

_names = []  # of the functions that the server computed


def _counted(call):
    def wrapper(name, **arguments):
        result = call(name, **arguments)
        _names.append(name)
        return result

    return wrapper


def pytest_configure():
    """Replaces the names."""
    ours, theirs = importlib.import_module(OURS), importlib.import_module(THEIRS)
    capabilities = _capabilities()
    for name in ours.__all__:
        if hasattr(theirs, name):
            function, original = getattr(ours, name), getattr(theirs, name)
            setattr(theirs, name, function)
            if original in capabilities:
                capabilities[function] = capabilities[original]
    for module in _compute, _stacks, _transforms, _lapack:
        module.call = _counted(module.call)


def _capabilities():
    """SciPy's table of what a function can do with the arrays of other libraries, for its tests."""
    try:
        # A backend of the tests, which is one for SciPy's own names.
        importlib.import_module("scipy.fft.tests.mock_backend")
        return importlib.import_module("scipy._lib._array_api").xp_capabilities_table
    except (ImportError, AttributeError):  # other versions
        return {}


def pytest_terminal_summary(terminalreporter):
    """Says what went to the server."""
    terminalreporter.write_line(f"calls of the server: {len(_names)}")
