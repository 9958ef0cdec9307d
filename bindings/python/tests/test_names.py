"""The names of the package: exceptions, names of earlier versions, and served functions."""

import builtins
import pickle

import farcall
import farcall.scipy
import pytest
from farcall import _serving, fft, linalg


def subclasses(base):
    """All classes below a class."""
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


EXCEPTIONS = [farcall.Error, *subclasses(farcall.Error)]


@pytest.mark.parametrize("kind", EXCEPTIONS, ids=lambda kind: kind.__name__)
def test_every_exception_is_exported_and_can_be_pickled(kind):
    """Another process gets the same exception, with what was said of it."""
    assert getattr(farcall, kind.__name__) is kind
    assert kind.__name__ in farcall.__all__
    error = kind("a text")
    error.fault = "library"
    if isinstance(error, farcall.FileError):
        error.filename, error.errno = "a.csv", 2
    loaded = pickle.loads(pickle.dumps(error))
    assert type(loaded) is kind
    assert (str(loaded), loaded.fault) == ("a text", "library")
    if isinstance(error, farcall.FileError):
        assert (loaded.filename, loaded.errno) == ("a.csv", 2)


def test_exceptions_are_those_of_python_too():
    """Handlers for Python's own exceptions catch them."""
    names = ("ConnectionError", "FileNotFoundError", "PermissionError", "TimeoutError")
    for name in names:
        assert issubclass(getattr(farcall, name), getattr(builtins, name))


@pytest.mark.parametrize(("old", "present"), farcall._DEPRECATED.items())
def test_old_names_work_and_warn(old, present):
    """A name of an earlier version leads to the same object as the present name."""
    with pytest.warns(DeprecationWarning, match=f"use farcall.{present}"):
        assert getattr(farcall, old) is getattr(farcall, present)
    with pytest.raises(AttributeError, match="nothing"):
        getattr(farcall, "nothing")  # noqa: B009


@pytest.fixture
def exported():
    """What the decorators of a test have exported."""
    before = len(_serving.exports)
    yield lambda: _serving.exports[before:]
    del _serving.exports[before:]


def test_annotations_state_the_interface(exported):
    """Each parameter has the mode and the type of its annotation."""

    @farcall.library
    def smooth(
        n: farcall.In[int],
        w: farcall.In[float],
        x: farcall.In["float64[n]"],  # noqa: F821
        y: farcall.InOut["complex64[n, 2 * n]"],  # noqa: F821
        z: farcall.Out["int32[1]"],  # noqa: F821
    ):
        "Mean of neighbours."

    @farcall.library(repeatable=True)
    def other(n: "farcall.In[int]"): ...

    @farcall.library("third(IN int n, OUT int *m)", calc_order="n")
    def third(n): ...

    assert smooth.__name__ == "smooth"
    first, second, last = [export.declaration() for export in exported()]
    assert first == (
        "Define smooth(IN long n, IN double w, IN double x[n], INOUT scomplex y[n][2 * n], "
        'OUT int z[1]) "Mean of neighbours"\n    Calls "Python" smooth(n, w, x, y, z);'
    )
    assert second == 'Define other(IN long n) Repeatable "yes"\n    Calls "Python" other(n);'
    assert last.startswith("Define third(IN int n, OUT int *m) CalcOrder n\n")


def test_annotations_that_state_no_interface_are_refused():
    """The error names the parameter and says what to write."""
    for annotation, text in (
        (int, "`x` of `f` needs an annotation"),
        (farcall.In[list], r"`x`: <class 'list'> is not a type"),
        (farcall.In["float64[n"], "is not a type"),
        (farcall.Out[int], "OUT parameters are arrays"),
    ):

        def f(x): ...

        f.__annotations__["x"] = annotation
        with pytest.raises(TypeError, match=text):
            farcall.library(f)


@pytest.mark.parametrize("module", [linalg, fft, farcall.scipy.linalg, farcall.scipy.fft])
def test_a_shell_can_complete_the_names_of_functions(module):
    assert set(module.__all__) <= set(dir(module))
    assert all(hasattr(module, name) for name in dir(module))
    assert "copied" not in dir(module)


def test_a_module_that_is_not_imported_says_how():
    with pytest.raises(AttributeError, match=r"`linalg`: write `import farcall\.linalg`"):
        farcall.__getattr__("linalg")
