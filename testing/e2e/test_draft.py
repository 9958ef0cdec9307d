"""`farcall idl draft`: drafts of every kind of source are accepted, served and called."""

import numpy as np
import pytest
from drafts import build, check, draft, drafted, idl

HEADER = """
#include <stddef.h>
#include <stdint.h>
/** Mean of a sample. */
double mean(size_t n, const double *x);
void scale(int n, double factor, double *x);
const char *version(void);
double integrate(double (*f)(double x, void *user), void *user, double a, double b);
int histogram(const float *samples, int n_samples, int32_t *bins, int n_bins);
struct opaque;
void use(struct opaque *o);
int print_all(const char *format, ...);
"""


SOURCE = """
#include "heat.h"
double mean(size_t n, const double *x) { double s = 0; for (size_t i = 0; i < n; i++) s += x[i];
                                         return s / n; }
void scale(int n, double factor, double *x) { for (int i = 0; i < n; i++) x[i] *= factor; }
const char *version(void) { return "heat 1.2"; }
double integrate(double (*f)(double x, void *user), void *user, double a, double b)
{ return (b - a) * (f(a, user) + 4 * f((a + b) / 2, user) + f(b, user)) / 6; }
int histogram(const float *samples, int n_samples, int32_t *bins, int n_bins)
{ for (int i = 0; i < n_samples; i++) bins[(int)(samples[i] * n_bins)]++; return n_samples; }
void use(struct opaque *o) { (void)o; }
int print_all(const char *format, ...) { return format != 0; }
"""


PYTHON = '''
import numpy as np
import numpy.typing as npt

def predict(x: npt.NDArray[np.float64], slope: float) -> npt.NDArray[np.float64]:
    """Predicts y from x."""
    return x * slope

def letters(word: str) -> int:
    return len(word)

def untyped(x):
    return x

class Model:
    def run(self, x: float) -> float:
        return x
'''


def test_a_c_header(start, tmp_path):
    pytest.importorskip("clang.cindex")
    (tmp_path / "heat.h").write_text(HEADER)
    (tmp_path / "heat.c").write_text(SOURCE)
    build(tmp_path, "libheat.so", "cc", "heat.c")
    said = draft(tmp_path, "heat.h", "-o", "heat.idl").stderr
    text = (tmp_path / "heat.idl").read_text()
    assert f"it has questions in {text.count('/* ? ')} places" in said
    assert "/* ? left out: use: `o` is `struct opaque *`, which no interface has */" in text
    assert "/* ? is its size n? is it only written (OUT)? */" in text
    assert "double f(IN double x, void *user)" in text
    functions = check(tmp_path, "heat.idl")
    assert functions == {"mean", "scale", "version", "integrate", "histogram"}
    server = start(tmp_path / "heat.idl").connect()
    assert server.call("heat/mean", n=4, x=np.arange(4.0)).value == 1.5
    x = np.arange(3.0)
    server.call("heat/scale", n=3, factor=2.0, x=x)
    np.testing.assert_array_equal(x, [0, 2, 4])
    assert server.call("heat/version").value == "heat 1.2"
    result = server.call("heat/integrate", a=0.0, b=3.0, f=lambda x: x**2)
    assert result.value == pytest.approx(9)
    bins = np.zeros(2, np.int32)
    samples = np.array([0.1, 0.7, 0.9], np.float32)
    server.call("heat/histogram", samples=samples, n_samples=3, bins=bins, n_bins=2)
    np.testing.assert_array_equal(bins, [1, 2])


def test_a_python_module(start, tmp_path):
    (tmp_path / "model.py").write_text(PYTHON)
    draft(tmp_path, "model.py", "-o", "served_model.py")
    text = (tmp_path / "served_model.py").read_text()
    assert "# ? left out: untyped: `x` has no type hint" in text
    assert "# ? left out: Model: it is a class; functions that use it can be served" in text
    assert check(tmp_path, "served_model.py") == {"predict", "letters"}
    server = start(tmp_path / "served_model.py", options=["--no-sandbox"]).connect()
    x = np.arange(3.0)
    np.testing.assert_array_equal(
        server.call("served_model/predict", x=x, slope=2.0).value, [0, 2, 4]
    )
    assert server.call("served_model/letters", word="four").value == 4


def test_the_names_that_a_draft_adds_are_free(tmp_path):
    """A parameter can have the name that the value or a size would get."""
    pytest.importorskip("clang.cindex")
    (tmp_path / "own.h").write_text(
        "int own(int value, int result, int value_);\nvoid plane(int n, int m, double a[n][m]);\n"
    )
    (tmp_path / "own.f90").write_text(
        "module own\ncontains\n"
        "function same(value, x_n1, x) result(r)\n"
        "  real(8), intent(in) :: value, x(:)\n  integer, intent(in) :: x_n1\n"
        "  real(8) :: r\n  r = value\nend function\n"
        "subroutine grow(a)\n  real(8), allocatable, intent(inout) :: a(:)\nend subroutine\n"
        "end module\n"
    )
    draft(tmp_path, "own.h", "-o", "c.idl")
    assert check(tmp_path, "c.idl") == {"own", "plane"}
    assert "a[n][1] /* ? what are its other sizes, if not 1?" in (tmp_path / "c.idl").read_text()
    draft(tmp_path, "own.f90", "-o", "fortran.idl")
    assert "left out: grow: `a` is allocatable" in (tmp_path / "fortran.idl").read_text()
    assert check(tmp_path, "fortran.idl") == {"same"}
    build(tmp_path, "libown.so", "gfortran", "own.f90", "fortran_shim.f90")


def test_python_functions_of_every_signature(start, tmp_path):
    (tmp_path / "odd.py").write_text(
        "def named(value: float, *, factor: float) -> float:\n"
        "    r'''Say \"a\\b\" and \"c\"'''\n    return value * factor\n"
        "def several(x: float, *rest: float) -> float:\n    return x\n"
        "def sized(x: list[float], n_x: int) -> float:\n    return sum(x) + n_x\n"
        "async def later(x: float) -> float:\n    return x\n"
    )
    draft(tmp_path, "odd.py", "-o", "served_odd.py")
    text = (tmp_path / "served_odd.py").read_text()
    assert "left out: several: `*rest: float` is any number of arguments" in text
    assert "left out: later: it is `async`" in text
    assert check(tmp_path, "served_odd.py") == {"named", "sized"}
    server = start(tmp_path / "served_odd.py", options=["--no-sandbox"]).connect()
    assert server.call("served_odd/named", value=2.0, factor=3.0).value_ == 6
    assert server.call("served_odd/sized", x=np.ones(3), n_x=4).value == 7


def test_const_arrays_of_c_are_only_read(tmp_path):
    pytest.importorskip("clang.cindex")
    text = drafted(
        tmp_path,
        "arrays.h",
        "typedef double vector[3];\n"
        "void f(int n, const double x[], const double a[2][3], const vector v, double y[]);\n"
        "int count(const char word[]);\n",
    )
    assert "IN double x[n] /* ? is its size n? */" in text
    assert "IN double a[2][3], IN double v[3], INOUT double y[n]" in text
    assert "count(IN string word, OUT int value[1])" in text


def test_enums_of_c_keep_their_width(tmp_path):
    pytest.importorskip("clang.cindex")
    text = drafted(
        tmp_path,
        "enums.h",
        "enum usual { A }; enum large { B = 0x100000000LL }; enum small { C } "
        "__attribute__((packed));\n"
        "void f(enum usual a, enum large b, enum small c[3], const enum small d[3]);\n",
    )
    assert "f( IN int a, IN unsigned long b, INOUT uint8_t c[3]" in text
    assert "IN uint8_t d[3])" in text


def test_only_the_pointer_of_a_callback_stays_at_the_server(tmp_path):
    pytest.importorskip("clang.cindex")
    text = drafted(
        tmp_path,
        "back.h",
        "double one(double (*f)(double, void *), void *user, double a);\n"
        "double both(double (*f)(double, void *), double (*g)(double, void *), void *user);\n"
        "void visit(void (*f)(double), void *data);\n"
        "void work(double (*f)(double, void *), void *user, void *space);\n"
        "void sort(double *x, int n, int (*less)(const void *, const void *));\n"
        "void each(double *x, int n, void (*f)(const void *item));\n"
        "void walk(void (*f)(int, const void *item), void *items, int n);\n",
    )
    question = "/* ? does only the callback get items, so that it is NULL? */"
    assert f"{question} Define walk(IN int n," in text
    assert text.count("so that it is NULL") == 1
    assert 'Calls "C" value = one(f, NULL, a);' in text
    assert 'Calls "C" value = both(f, g, NULL);' in text
    for reason in (
        "visit: `data` is `void *`, which no interface has",
        "work: `space` is `void *`, which no interface has",
        "sort: its callback `less` takes several `void *`",
        "each: its callback takes a `void *`, and it takes none after it to pass on",
    ):
        assert f"/* ? left out: {reason} */" in text


def test_c_without_prototypes_or_with_odd_types(tmp_path):
    pytest.importorskip("clang.cindex")
    source = (
        "double old();\nint none() { return 1; }\nint some(int n);\nvoid half(_Float16 x);\n"
        "void wide(a, b) float a; const float b[2]; {}\nvoid narrow(float a) {}\n"
        "typedef double map(float); map named;\nvoid __attribute__((ms_abi)) other(int n);\n"
    )
    text = drafted(tmp_path, "old.c", source)
    assert "left out: old: `()` does not say its arguments" in text
    assert "Define none(OUT int value[1])" in text
    assert "left out: half:" in text
    assert "Define wide(IN double a, IN float b[2])" in text
    assert "Define narrow(IN float a)" in text
    assert "Define named(IN float argument1, OUT double value[1])" in text
    assert "left out: other: no interface has the calling convention `ms_abi`" in text
    assert "Define some(IN int n, OUT int value[1])" in text


def test_standard_output_is_the_draft_alone(tmp_path):
    """The parser of f2py prints dimensions that it does not expect, and a module what it likes."""
    (tmp_path / "words.f").write_text(
        "      SUBROUTINE F(N, X)\n      CHARACTER X(N)*5\n      END\n"
    )
    (tmp_path / "loud.py").write_text("print('loud')\ndef f(x: float) -> float:\n    return x\n")
    for name, first in ("words.f", "Module words;"), ("loud.py", '"""Serves'):
        assert draft(tmp_path, name).stdout.startswith(first)


def test_python_functions_of_lists_get_lists(start, tmp_path):
    (tmp_path / "lists.py").write_text(
        "from collections.abc import Iterator, Sequence\n"
        "def double(x: list[float]) -> float:\n    return float(len(x + x))\n"
        "def thrice(*, x: Sequence[int]) -> int:\n    return len(x * 3)\n"
        "def union(x: set[int]) -> int:\n    return len(x | {1})\n"
        "def each(x: list[float]) -> Iterator[float]:\n    yield from x\n"
    )
    draft(tmp_path, "lists.py", "-o", "served_lists.py")
    text = (tmp_path / "served_lists.py").read_text()
    assert "left out: union: `x` is set[int], which no interface has" in text
    assert "left out: each: `value` is collections.abc.Iterator[float]" in text
    server = start(tmp_path / "served_lists.py", options=["--no-sandbox"]).connect()
    assert server.call("served_lists/double", x=np.array([1.0, 2.0])).value == 4
    assert server.call("served_lists/thrice", x=np.array([1, 2])).value == 6


def test_python_functions_of_truth_values_get_them(start, tmp_path):
    (tmp_path / "masks.py").write_text(
        "import numpy as np\nimport numpy.typing as npt\n"
        "def total(x: npt.NDArray[np.float64], mask: npt.NDArray[np.bool_], turn: bool) -> float:\n"
        "    assert isinstance(turn, bool)\n"
        "    return float(x[~mask if turn else mask].sum())\n"
    )
    draft(tmp_path, "masks.py", "-o", "served_masks.py")
    server = start(tmp_path / "served_masks.py", options=["--no-sandbox"]).connect()
    given = {"n_x": 3, "x": np.array([1.0, 2, 4]), "n_mask": 3, "mask": [True, False, True]}
    assert server.call("served_masks/total", **given, turn=False).value == 5
    assert server.call("served_masks/total", **given, turn=True).value == 2


def test_python_hints_that_say_little(tmp_path):
    text = drafted(
        tmp_path,
        "hints.py",
        "import numpy as np\nimport numpy.typing as npt\n"
        "def unknown(x: 'Missing') -> float:\n    return 1.0\n"
        "def odd(x: [1, 2]) -> float:\n    return 1.0\n"
        "def steps(n_steps: int, x: list[float]) -> list[float]:\n    return x\n"
        "def fixed(n_steps: int) -> list[float]:\n    return [1.0]\n"
        "def some(x: npt.NDArray[np.floating]) -> float:\n    return 1.0\n"
        "class Lines:\n"
        "    def __class_getitem__(cls, _):\n        raise ValueError('two\\nlines')\n"
        "def told(x: 'Lines[1]') -> float:\n    return 1.0\n"
        "def wide(größe: float) -> float:\n    return 1.0\n",
        "drafted.py",
    )
    assert "left out: unknown: its type hints cannot be read: name 'Missing' is not defined" in text
    assert "left out: odd: `x` is [1, 2], which no interface has" in text
    assert "# ? are the elements of `x` double?" in text
    assert "# ? has `value` the size n_x?" in text
    assert "left out: fixed: no argument has the size of its result" in text
    assert "# ? left out: told: its type hints cannot be read: two lines" in text
    assert "left out: wide: `größe` is no name of an interface" in text


def test_python_functions_may_have_any_name(start, tmp_path):
    (tmp_path / "heat.py").write_text(
        "import functools\n"
        "def heat(x: float) -> float:\n    return x + 1\n"
        "def farcall(heat_: float) -> float:\n    return heat_ + 2\n"
        "def words(*, string: str, double: float, double_: float) -> float:\n"
        "    return len(string) + double + 10 * double_\n"
        "@functools.cache\ndef kept(x: float) -> float:\n    return x + 3\n"
    )
    draft(tmp_path, "heat.py", "-o", "served_heat.py")
    assert check(tmp_path, "served_heat.py") == {"heat", "farcall", "words", "kept"}
    server = start(tmp_path / "served_heat.py", options=["--no-sandbox"]).connect()
    assert server.call("served_heat/heat", x=0.0).value == 1
    assert server.call("served_heat/farcall", heat_=0.0).value == 2
    assert server.call("served_heat/kept", x=0.0).value == 3
    given = {"string_": "abc", "double__": 4.0, "double_": 5.0}
    assert server.call("served_heat/words", **given).value == 57


def test_texts_behind_two_pointers(tmp_path):
    pytest.importorskip("clang.cindex")
    text = drafted(
        tmp_path,
        "texts.h",
        "void f(const char *const *a, int n_a, const char *const b[3]);\n"
        "int get(const char **name);\nint many(char **names);\n",
    )
    assert "IN string a[n_a] /* ? is its size n_a? */, IN int n_a, IN string b[3])" in text
    assert "IN string name[1] /* ? is its size 1? is it only read? */" in text
    assert "left out: many: `names` is `char **`, which no interface has" in text


def test_functions_of_one_name_are_told(tmp_path):
    modules = "".join(
        f"module {name}\ncontains\nsubroutine init(n)\n  {kind}, intent(in) :: n\n"
        "end subroutine\nend module\n"
        for name, kind in (("one", "integer"), ("two", "real"))
    )
    text = drafted(tmp_path, "names.f90", modules)
    assert "/* ? left out: init: another one has this name */ Define init(IN int n)" in text
    build(tmp_path, "libnames.so", "gfortran", "names.f90", "drafted_shim.f90")


def test_a_source_without_functions_is_an_error(tmp_path):
    (tmp_path / "none.f").write_text("      PROGRAM P\n      END\n")
    (tmp_path / "words.pyf").write_text("x\n")
    (tmp_path / "bytes.f90").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "my-model.py").write_text("def f(x: float) -> float:\n    return x\n")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "folder.h").mkdir()
    for name, text in (
        ("none.f", "no function has an interface"),
        ("x.txt", "neither C"),
        ("missing.h", "missing.h: there is no such file"),
        ("missing.f90", "missing.f90: there is no such file"),
        ("folder.h", "folder.h: this is not a file of text"),
        ("words.pyf", "words.pyf: the parser of f2py fails"),
        ("script.py", "script.py: it raised SystemExit: 0"),
        ("my-model.py", "my-model.py: `import` takes no module of this name"),
        ("bytes.f90", "bytes.f90: this is not a text of Fortran"),
    ):
        ran = idl(tmp_path, "draft", name)
        assert ran.returncode != 0
        assert text in ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_draft_replaces_no_source(tmp_path):
    module = "module mods\ncontains\nsubroutine f(n)\n  integer n\nend subroutine\nend module\n"
    sources = {
        "heat.c": "void heat(int n, double *x) {}\n",
        "model.py": "def scale(x: float) -> float:\n    return x\n",
        "mods.f90": module,
        "own_shim.f90": module.replace("mods", "others"),
    }
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link.idl").symlink_to("heat.c")
    (tmp_path / "answered.idl").write_text("answers")
    for *words, reason in [
        ("heat.c", "-o", "heat.c", "heat.c: the draft would replace this source"),
        ("heat.c", "-o", "./heat.c", "would replace this source"),
        ("heat.c", "-o", "link.idl", "would replace this source"),
        ("model.py", "-o", "model.py", "would replace this source"),
        ("mods.f90", "own_shim.f90", "-o", "own.idl", "own_shim.f90: the draft would replace"),
        ("heat.c", "-o", "answered.idl", "answered.idl: there is such a file"),
        ("heat.c", "-o", "nowhere/heat.idl", "nowhere/heat.idl"),
    ]:
        ran = idl(tmp_path, "draft", *words)
        assert ran.returncode == 1 and reason in ran.stderr, (words, ran.stderr)
        assert "Traceback" not in ran.stderr
    assert {name: (tmp_path / name).read_text() for name in sources} == sources
    assert not (tmp_path / "own.idl").exists()
