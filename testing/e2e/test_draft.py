"""`farcall idl draft`: drafts of every kind of source are accepted, served and called."""

import json
import subprocess
import sys

import numpy as np
import pytest
from servers import FARCALL

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

FIXED = """
      SUBROUTINE AXPY1(N, A, X, Y)
      INTEGER N
      DOUBLE PRECISION A, X(*), Y(*)
      INTEGER I
      DO 10 I = 1, N
         Y(I) = Y(I) + A*X(I)
   10 CONTINUE
      END
      DOUBLE PRECISION FUNCTION DSQ(N, X)
      INTEGER N
      DOUBLE PRECISION X(N)
      DSQ = DOT_PRODUCT(X, X)
      END
"""

MODULE = """
module smoothing
  implicit none
  integer, parameter :: dp = kind(1.0d0)
contains
  subroutine smooth(x, y, width)
    real(dp), intent(in) :: x(:)
    real(dp), intent(out) :: y(size(x))
    integer, intent(in) :: width
    integer :: i
    do i = 1, size(x)
      y(i) = sum(x(max(1, i - width):min(size(x), i + width)))
    end do
  end subroutine
  real(dp) function last(a) result(t)
    real(dp), intent(in) :: a(:, :)
    t = a(size(a, 1), 1) + 10 * a(1, size(a, 2))
  end function
end module
"""

KINDS = """
subroutine count_true(n, mask, total)
  use iso_fortran_env, only: ik => int64
  integer, intent(in) :: n
  logical(1), intent(in) :: mask(n)
  integer(ik), intent(out) :: total
  total = count(mask)
end subroutine
function single(n, x) result(s)
  use iso_fortran_env, only: rk => real32
  integer, intent(in) :: n
  real(rk), intent(in) :: x(n)
  real(rk) :: s
  s = sum(x)
end function
subroutine unknown(x)
  use precision, only: wp
  real(wp), intent(inout) :: x
end subroutine
subroutine texts(n, names, last)
  integer, intent(in) :: n
  character(len=8), intent(in) :: names(n)
  character(len=12), intent(out) :: last
  last = names(n)
end subroutine
subroutine solve(n, a, info)
  integer n, info
  double precision a(n)
  call inner(n, a, info)
end subroutine
subroutine by_value(n) bind(c)
  use iso_c_binding
  integer(c_int), value :: n
end subroutine
character(8) function named(n)
  integer, intent(in) :: n
  named = 'name'
end function
"""

SIGNATURE = """
python module blas1
interface
subroutine dscal(n,a,x,incx)
  integer, optional, intent(in) :: n = len(x)
  double precision intent(in) :: a
  double precision dimension(n), intent(in,out) :: x
  integer intent(hide) :: incx = 1
end subroutine dscal
subroutine daxpy(n,a,x,incx,y,incy)
  integer, optional, intent(in) :: n = len(x)
  double precision intent(hide) :: a = 2
  double precision dimension(n), intent(in) :: x
  integer intent(hide) :: incx = 1
  double precision dimension(n), intent(in,out) :: y
  integer intent(hide) :: incy = 1
end subroutine daxpy
subroutine sscal(n,a,x,incx)
  integer, optional, intent(in) :: n = len(x)
  real intent(hide) :: a = 2
  real dimension(n), intent(in,out) :: x
  integer intent(hide) :: incx = 1
end subroutine sscal
end interface
end python module
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


def draft(folder, *arguments):
    """Runs the command in a folder, and returns its answer."""
    ran = subprocess.run(
        [FARCALL, "idl", "draft", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"FARCALL_PYTHON": sys.executable, "PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def check(folder, name):
    """The draft is accepted, and says what its functions are."""
    environment = {"FARCALL_PYTHON": sys.executable, "PATH": "/usr/local/bin:/usr/bin:/bin"}
    words = [FARCALL, "idl", "check", name]
    ran = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout
    words = [FARCALL, "idl", "show", "--json", name]
    shown = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=True, env=environment
    )
    return {one["name"].split("/")[-1] for one in json.loads(shown.stdout)["functions"]}


def build(folder, library, compiler, *files):
    """A shared library of sources."""
    words = [compiler, "-shared", "-fPIC", "-O1", "-o", folder / library, *files]
    subprocess.run(words, cwd=folder, check=True)


def test_a_c_header(start, tmp_path):
    pytest.importorskip("clang.cindex")
    (tmp_path / "heat.h").write_text(HEADER)
    (tmp_path / "heat.c").write_text(SOURCE)
    build(tmp_path, "libheat.so", "cc", "heat.c")
    draft(tmp_path, "heat.h", "-o", "heat.idl")
    text = (tmp_path / "heat.idl").read_text()
    assert "/* ? left out: use: `o` is `struct opaque *`, which no interface has */" in text
    assert "/* ? is its size n? is it only written (OUT)? */" in text
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


def test_fortran_77(start, tmp_path):
    (tmp_path / "lin.f").write_text(FIXED)
    build(tmp_path, "liblin.so", "gfortran", "lin.f")
    draft(tmp_path, "lin.f", "-o", "lin.idl")
    assert check(tmp_path, "lin.idl") == {"axpy1", "dsq"}
    server = start(tmp_path / "lin.idl").connect()
    y = np.ones(3)
    server.call("lin/axpy1", n=3, a=2.0, x=np.arange(3.0), y=y)
    np.testing.assert_array_equal(y, [1, 3, 5])
    assert server.call("lin/dsq", n=3, x=y).value == 35


def test_a_fortran_module_through_a_shim(start, tmp_path):
    (tmp_path / "mods.f90").write_text(MODULE)
    draft(tmp_path, "mods.f90", "-o", "mods.idl")
    build(tmp_path, "libmods.so", "gfortran", "mods.f90", "mods_shim.f90")
    assert check(tmp_path, "mods.idl") == {"smooth", "last"}
    server = start(tmp_path / "mods.idl").connect()
    x = np.array([1.0, 2, 4, 8])
    np.testing.assert_array_equal(server.call("mods/smooth", x=x, width=1).y, [3, 7, 14, 12])
    a = np.asfortranarray([[1.0, 2, 3], [4, 5, 6]])
    assert server.call("mods/last", a=a).value == 4 + 30


def test_kinds_and_texts_of_fortran(start, tmp_path):
    """What the source does not say is a question; the rest is right."""
    (tmp_path / "kinds.f90").write_text(KINDS)
    draft(tmp_path, "kinds.f90", "--library", "./libkinds.so", "-o", "kinds.idl")
    text = (tmp_path / "kinds.idl").read_text()
    assert 'left out: by_value: it takes `n` by value, which is `Calls "C"`' in text
    assert "left out: named: its value is a text" in text
    assert "INOUT double x[1] /* ? has the kind wp 8 bytes? */" in text
    assert "IN int info /* ? is it changed (INOUT)? */" in text
    assert check(tmp_path, "kinds.idl") == {"count_true", "single", "unknown", "texts", "solve"}
    # The others would need a module, and a procedure that is not there.
    parts = KINDS.split("end subroutine\n")
    (tmp_path / "some.f90").write_text("end subroutine\n".join([parts[0], parts[2], ""]))
    (tmp_path / "single.f90").write_text(parts[1].split("subroutine")[0])
    build(tmp_path, "libkinds.so", "gfortran", "some.f90", "single.f90")
    kept = [one for one in text.split("\n\n") if "unknown" not in one and "solve" not in one]
    (tmp_path / "some.idl").write_text("\n\n".join(kept))
    server = start(tmp_path / "some.idl").connect()
    mask = np.array([True, False, True])
    assert server.function("kinds/count_true")(n=3, mask=mask).total == 2
    assert server.function("kinds/single")(n=2, x=np.array([1.5, 2], np.float32)).value == 3.5
    assert server.function("kinds/texts")(n=2, names=["one", "two"]).last == "two"


def test_an_f2py_signature(start, tmp_path):
    (tmp_path / "blas1.pyf").write_text(SIGNATURE)
    draft(tmp_path, "blas1.pyf", "--library", "libopenblas.so.0", "-o", "blas1.idl")
    assert check(tmp_path, "blas1.idl") == {"dscal", "daxpy", "sscal"}
    server = start(tmp_path / "blas1.idl").connect()
    x = np.arange(3.0)
    server.call("blas1/dscal", a=3.0, x=x)
    np.testing.assert_array_equal(x, [0, 3, 6])
    y = np.ones(3)
    server.call("blas1/daxpy", x=x, y=y)
    np.testing.assert_array_equal(y, [1, 7, 13])
    # No constant is a float.
    single = np.ones(3, np.float32)
    server.call("blas1/sscal", a=2.0, x=single)
    np.testing.assert_array_equal(single, [2, 2, 2])


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


def drafted(folder, name, source, output="drafted.idl"):
    """The draft of a source, in one line."""
    (folder / name).write_text(source)
    draft(folder, name, "-o", output)
    text = (folder / output).read_text()
    check(folder, output)
    return " ".join(text.split())


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
        "void each(double *x, int n, void (*f)(const void *item));\n",
    )
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
    source = "double old();\nint none() { return 1; }\nint some(int n);\nvoid half(_Float16 x);\n"
    text = drafted(tmp_path, "old.c", source)
    assert "left out: old: `()` does not say its arguments" in text
    assert "Define none(OUT int value[1])" in text
    assert "left out: half:" in text
    assert "Define some(IN int n, OUT int value[1])" in text


def test_what_a_fortran_source_changes_is_no_mere_input(tmp_path):
    """Statements go over several lines, follow others in a line, or hang on a condition."""
    fixed = (
        "      SUBROUTINE F(N, A, B, C, D, E, LONG, U)\n"
        "      INTEGER N, LONG(N)\n"
        "      DOUBLE PRECISION A(N), B(N), C(N), D(N), E(N), U(N)\n"
        "      CALL INNER('A''; U(', N,\n"
        "C     A comment in between\n"
        "     &           A, ! and U\n"
        "     &           B)\n"
        "      IF (N .GT. 1) CALL INNER(C)\n"
        "      DO I=1,N; D(I)=0; END DO\n"
        "   10 READ(*,*) E\n"
        "      LONG(1) = 1\n"
        "      PRINT *, U\n"
        "      END\n"
    )
    text = drafted(tmp_path, "fixed.f", fixed)
    for name in ("a", "b", "c", "e"):
        assert f"INOUT double {name}[n] /* ? is it changed? */" in text
    assert "INOUT double d[n] /* ? is it only written (OUT)? */" in text
    assert "INOUT int long_bn[n] /* ? is it only written (OUT)? */" in text
    assert "IN double u[n])" in text
    free = (
        "subroutine f(n, a, b, u)\n"
        "  integer n\n"
        "  real(8) a(n), b(n), u(n)\n"
        "     where (u > 0) a = 1\n"
        "  call inner(n, &\n"
        "  ! a comment in between\n"
        "    & b)\n"
        "end subroutine\n"
    )
    text = drafted(tmp_path, "free.f90", free)
    assert "INOUT double a[n] /* ? is it only written (OUT)? */" in text
    assert "INOUT double b[n] /* ? is it changed? */" in text
    assert "IN double u[n])" in text


def test_implicit_types_of_fortran_end_with_their_procedure(tmp_path):
    text = drafted(
        tmp_path,
        "old.f",
        "      SUBROUTINE ONE(A, K)\n      IMPLICIT REAL*8 (A-H, O-Z), INTEGER*8 (K)\n      END\n"
        "      SUBROUTINE TWO(A, K)\n      END\n",
    )
    assert "Define one(IN double a, IN long k)" in text
    assert "Define two(IN float a, IN int k)" in text
    text = drafted(
        tmp_path,
        "host.f90",
        "module host\nimplicit real(8) (a-h)\ncontains\n"
        "subroutine one(a, x)\nend subroutine\n"
        "subroutine two(a, x)\nimplicit complex (x)\nend subroutine\nend module\n"
        "subroutine three(a, x)\nend subroutine\n",
    )
    assert "Define one(IN double a, IN float x)" in text
    assert "Define two(IN double a, IN scomplex x)" in text
    assert "Define three(IN float a, IN float x)" in text


def test_shapes_that_fortran_arrays_take_from_others(start, tmp_path):
    source = """
module shapes
contains
  subroutine flat(a, y)
    real(8), intent(in) :: a(:, :)
    real(8), intent(out) :: y(size(a))
    y = reshape(a, [size(a)])
  end subroutine
  subroutine shifted(k, x, y)
    integer, intent(in) :: k
    real(8), intent(in) :: x(0:, k:)
    real(8), intent(out) :: y(size(x, dim=1), size(x, 2))
    y(:, 1) = x(:, k + 1)
    y(:, 2:) = x(:, k + 1:)
  end subroutine
end module
"""
    text = drafted(tmp_path, "shapes.f90", source)
    assert "OUT double y[(a_n1 * a_n2)]" in text
    build(tmp_path, "libshapes.so", "gfortran", "shapes.f90", "drafted_shim.f90")
    server = start(tmp_path / "drafted.idl").connect()
    a = np.asfortranarray([[1.0, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(server.call("flat", a=a).y, [1, 4, 2, 5, 3, 6])
    y = server.call("shifted", k=5, x=a).y
    np.testing.assert_array_equal(y, [[2, 2, 3], [5, 5, 6]])


def test_arrays_as_values_of_fortran(start, tmp_path):
    ramp = (
        "function ramp(n) result(y)\n  integer, intent(in) :: n\n  real(8) :: y(n, 2)\n"
        "  integer :: i\n  y(:, 1) = [(i, i = 1, n)]\n  y(:, 2) = 0\nend function\n"
        "function grown(n) result(y)\n  integer, intent(in) :: n\n"
        "  real(8), allocatable :: y(:)\n  allocate(y(n))\nend function\n"
    )
    (tmp_path / "outside.f90").write_text(f"subroutine other()\nend subroutine\n{ramp}")
    draft(tmp_path, "outside.f90", "-o", "outside.idl")
    text = (tmp_path / "outside.idl").read_text()
    assert "left out: ramp: its value is an array, which only Fortran can receive" in text
    text = drafted(tmp_path, "values.f90", f"module values\ncontains\n{ramp}end module\n")
    assert "left out: grown: its value is an array" in text
    build(tmp_path, "libvalues.so", "gfortran", "values.f90", "drafted_shim.f90")
    server = start(tmp_path / "drafted.idl").connect()
    np.testing.assert_array_equal(server.call("ramp", n=3).value, [[1, 0], [2, 0], [3, 0]])


def test_kinds_of_fortran_by_digits_and_range(tmp_path):
    kinds = ["6, 37", "p=6, r=307", "9", "15, 307"]
    text = drafted(
        tmp_path,
        "kinds.f90",
        "subroutine f(a, b, c, d)\n"
        + "".join(
            f"real(selected_real_kind({kind})), intent(in) :: {name}\n"
            for kind, name in zip(kinds, "abcd", strict=True)
        )
        + "end subroutine\n"
        "subroutine wide(a)\nreal(selected_real_kind(15, 4000)), intent(in) :: a\n"
        "end subroutine\n",
    )
    assert "f(IN float a, IN double b, IN double c, IN double d)" in text
    assert "left out: wide: the kind of `a` is not known" in text


def test_texts_of_fortran_are_padded_to_their_length(start, tmp_path):
    """A procedure with character(4) reads four characters, whatever its caller passes."""
    source = """
subroutine codes(n, name, other, any, code)
  integer, intent(in) :: n
  character(4), intent(in) :: name
  character(n), intent(in) :: other
  character(*), intent(in) :: any
  integer, intent(out) :: code(4, 2)
  integer :: i
  code(:, 1) = [(ichar(name(i:i)), i = 1, 4)]
  code(:, 2) = [(ichar(other(i:i)), i = 1, n), len(any)]
end subroutine
"""
    text = drafted(tmp_path, "padded.f90", source)
    assert "IN string[4] name[1], IN string[n] other[1], IN string any" in text
    build(tmp_path, "libpadded.so", "gfortran", "padded.f90")
    server = start(tmp_path / "drafted.idl").connect()
    code = server.call("codes", n=3, name=["A"], other=["B"], any="any").code
    np.testing.assert_array_equal(code.T, [[65, 32, 32, 32], [66, 32, 32, 3]])


def test_signatures_of_c_functions(tmp_path):
    text = drafted(
        tmp_path,
        "rows.pyf",
        "python module rows\ninterface\n"
        "subroutine rows(n, m, a)\n  intent(c)\n  intent(c) rows\n"
        "  integer intent(in) :: n\n  integer intent(in) :: m\n"
        "  double precision dimension(n, m), intent(in, out) :: a\nend subroutine\n"
        "subroutine mixed(n, m)\n  intent(c) mixed\n"
        "  integer intent(in) :: n\n  integer intent(in, c) :: m\nend subroutine\n"
        "subroutine shifted(n, x, offset)\n  callstatement (*f2py_func)(&n, x + offset)\n"
        "  callprotoargument int *, double *\n"
        "  integer intent(in) :: n\n  integer intent(in) :: offset\n"
        "  double precision dimension(n), intent(in) :: x\nend subroutine\n"
        "subroutine result(n, x)\n  intent(c) result\n"
        "  integer intent(in, c) :: n\n  integer intent(out) :: x\nend subroutine\n"
        "end interface\nend python module\n",
    )
    assert 'result(IN int n, OUT int x[1]) Calls "C" result(n, x);' in text
    assert 'INOUT double a[n][m]) Calls "C" rows(n, m, a);' in text
    assert "left out: mixed: it is a function of C that takes `n` by reference" in text
    assert "left out: shifted: f2py calls it by the C of `callstatement`" in text


def test_standard_output_is_the_draft_alone(tmp_path):
    """The parser of f2py prints dimensions that it does not expect, and a module what it likes."""
    (tmp_path / "words.f").write_text(
        "      SUBROUTINE F(N, X)\n      CHARACTER X(N)*5\n      END\n"
    )
    (tmp_path / "loud.py").write_text("print('loud')\ndef f(x: float) -> float:\n    return x\n")
    for name, first in ("words.f", "Module words;"), ("loud.py", '"""Serves'):
        assert draft(tmp_path, name).stdout.startswith(first)


def test_files_that_a_fortran_source_includes(tmp_path):
    """They often have the types. What is not read is a question."""
    (tmp_path / "types").mkdir()
    (tmp_path / "types" / "types.inc").write_text("      IMPLICIT REAL*8 (A-H, O-Z)\n")
    source = "      SUBROUTINE F(A)\n      INCLUDE 'types.inc'\n      END\n"
    text = drafted(tmp_path, "old.f", source)
    question = "/* ? types.inc, which the source includes, was not read: are the types right? */"
    assert f"{question} Define f(IN float a)" in text
    text = draft(tmp_path, "-I", "types", "old.f").stdout
    assert "types.inc" not in text and "Define f(IN double a)" in text
    text = drafted(tmp_path, "new.f", f'#include "types.inc"\n{source}')
    assert f"{question} Define f(" in text


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


def test_python_hints_that_say_little(tmp_path):
    text = drafted(
        tmp_path,
        "hints.py",
        "import numpy as np\nimport numpy.typing as npt\n"
        "def unknown(x: 'Missing') -> float:\n    return 1.0\n"
        "def odd(x: [1, 2]) -> float:\n    return 1.0\n"
        "def steps(n_steps: int, x: list[float]) -> list[float]:\n    return x\n"
        "def fixed(n_steps: int) -> list[float]:\n    return [1.0]\n"
        "def some(x: npt.NDArray[np.floating]) -> float:\n    return 1.0\n",
        "drafted.py",
    )
    assert "left out: unknown: its type hints cannot be read: name 'Missing' is not defined" in text
    assert "left out: odd: `x` is [1, 2], which no interface has" in text
    assert "# ? are the elements of `x` double?" in text
    assert "# ? has `value` the size n_x?" in text
    assert "left out: fixed: no argument has the size of its result" in text


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


def test_kinds_in_front_of_fortran_functions(tmp_path):
    kinds = [
        ("recursive integer(8)", "long"),
        ("real(kind(1d0)) pure", "double"),
        ("complex*16", "dcomplex"),
        ("pure logical(kind = 1)", "bool"),
        ("pure real(dp)", "double"),
        ("real", "float"),
        ("double precision", "double"),
    ]
    heads = "".join(
        f"{kind} function f{index}(x) result(n)\n  use iso_fortran_env, only: dp => real64\n"
        "  integer, intent(in) :: x\n  n = x\nend function\n"
        for index, (kind, _) in enumerate(kinds)
    )
    text = drafted(tmp_path, "kinds.f90", heads)
    for index, (_, name) in enumerate(kinds):
        assert f"f{index}(IN int x, OUT {name} value[1])" in text


def test_a_procedure_argument_of_fortran_is_no_number(tmp_path):
    source = """
module calls
  abstract interface
    function shape_of(x) result(y)
      real(8), intent(in) :: x
      real(8) :: y
    end function
  end interface
contains
  subroutine apply(f, x)
    procedure(shape_of) :: f
    real(8), intent(inout) :: x
    x = f(x)
  end subroutine
  subroutine other(x)
    real(8), intent(inout) :: x
    x = 0
  end subroutine
end module
"""
    text = drafted(tmp_path, "calls.f90", source)
    assert "left out: apply: the source does not say which arguments its callback `f` has" in text
    assert "Define other(INOUT double x[1])" in text


def test_callbacks_of_a_fortran_module(start, tmp_path):
    source = """
module backs
  implicit none
contains
  function applied(f, a) result(r)
    interface
      function f(x) result(y)
        real(8), intent(in) :: x
        real(8) :: y
      end function
    end interface
    real(8), intent(in) :: a
    real(8) :: r
    r = f(a)
  end function
  subroutine each(s, n, x)
    interface
      subroutine s(n, x)
        integer, intent(in) :: n
        real(8), intent(inout) :: x(n)
      end subroutine
    end interface
    integer, intent(in) :: n
    real(8), intent(inout) :: x(n)
    call s(n, x)
  end subroutine
end module
"""
    drafted(tmp_path, "backs.f90", source)
    build(tmp_path, "libbacks.so", "gfortran", "backs.f90", "drafted_shim.f90")
    server = start(tmp_path / "drafted.idl").connect()
    assert server.call("applied", a=3.0, f=lambda x: x * x).value == 9
    x = np.arange(3.0)

    def twice(n, x):
        x[:n] *= 2

    server.call("each", n=3, x=x, s=twice)
    np.testing.assert_array_equal(x, [0, 2, 4])


def test_a_shim_has_arrays_whose_size_is_a_question(tmp_path):
    source = (
        "module sizes\n  integer, parameter :: most = 7\ncontains\n"
        "subroutine fill(x, y, s)\n  real(8), intent(inout) :: x(most), y(*)\n"
        "  real(8), intent(out) :: s\n  x = 1\n  y(1) = 2\n  s = 3\nend subroutine\n"
        "end module\n"
    )
    text = drafted(tmp_path, "sizes.f90", source)
    assert "INOUT double x[1] /* ? is its size most? */" in text
    build(tmp_path, "libsizes.so", "gfortran", "sizes.f90", "drafted_shim.f90")


def test_sizes_of_fortran_are_numbers_that_travel_there(tmp_path):
    text = drafted(
        tmp_path,
        "sizes.f90",
        "subroutine shrink(n, x)\n  integer n\n  real(8) x(n)\n  n = n - 1\nend subroutine\n"
        "subroutine count(s, n)\n  real(8), intent(in) :: s(*)\n  integer, intent(out) :: n\n"
        "  n = 1\nend subroutine\n"
        "subroutine square(k, x)\n  integer, intent(in) :: k\n"
        "  real(8), intent(in) :: x(k**2)\nend subroutine\n"
        "subroutine jumps(*, x)\n  real(8), intent(inout) :: x\n  return 1\nend subroutine\n",
    )
    question = "/* ? a size is IN: must its caller get a changed value? */"
    assert f"shrink(IN int n {question}, IN double x[n])" in text.replace("shrink( ", "shrink(")
    assert "IN double s[1] /* ? what is its size, if not 1? */, OUT int n[1])" in text
    assert "square(IN int k, IN double x[k ^2])" in text
    assert "left out: jumps: it has an alternate return, `*`" in text


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


def test_kinds_of_fortran_by_numbers(tmp_path):
    text = drafted(
        tmp_path,
        "kinds.f90",
        "subroutine f(a, b, c, d, e)\n"
        "  integer, parameter :: dp = selected_real_kind(15), wp = kind(1.0_dp)\n"
        "  integer, parameter :: sp = kind(0.0), rp = kind(1.e0_sp), ep = kind(0.d0)\n"
        "  integer, parameter :: far = selected_real_kind(6, 307)\n"
        "  real(wp), intent(in) :: a\n  real(sp), intent(in) :: b\n"
        "  real(rp), intent(in) :: c\n  real(ep), intent(in) :: d\n"
        "  real(far), intent(in) :: e\nend subroutine\n"
        "subroutine other(a)\n  use kinds, only: dp\n"
        "  integer, parameter :: wp = kind(1.0_dp)\n  real(wp), intent(in) :: a\n"
        "end subroutine\n",
    )
    assert "IN double a, IN float b, IN float c, IN double d, IN double e)" in text
    assert "other(IN double a /* ? has the kind wp 8 bytes? */)" in text


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
        words = [FARCALL, "idl", "draft", name]
        ran = subprocess.run(
            words,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"FARCALL_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        )
        assert ran.returncode != 0
        assert text in ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_draft_replaces_no_source(tmp_path):
    sources = {
        "heat.c": "void heat(int n, double *x) {}\n",
        "model.py": "def scale(x: float) -> float:\n    return x\n",
        "mods.f90": MODULE,
        "own_shim.f90": MODULE.replace("mods", "others"),
    }
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "link.idl").symlink_to("heat.c")
    for *words, reason in [
        ("heat.c", "-o", "heat.c", "heat.c: the draft would replace this source"),
        ("heat.c", "-o", "./heat.c", "would replace this source"),
        ("heat.c", "-o", "link.idl", "would replace this source"),
        ("model.py", "-o", "model.py", "would replace this source"),
        ("mods.f90", "own_shim.f90", "-o", "own.idl", "own_shim.f90: the draft would replace"),
        ("heat.c", "-o", "nowhere/heat.idl", "nowhere/heat.idl"),
    ]:
        ran = subprocess.run(
            [FARCALL, "idl", "draft", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"FARCALL_PYTHON": sys.executable, "PATH": "/usr/bin:/bin"},
        )
        assert ran.returncode == 1 and reason in ran.stderr, (words, ran.stderr)
        assert "Traceback" not in ran.stderr
    assert {name: (tmp_path / name).read_text() for name in sources} == sources
    assert not (tmp_path / "own.idl").exists()
