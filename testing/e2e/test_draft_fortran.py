"""`farcall idl draft` of Fortran and of signatures of f2py: the drafts are served and called."""

import numpy as np
from drafts import build, check, draft, drafted
from farcall._draft.form import Draft, Function

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
    statements = (
        "subroutine f(n, line, info, u)\n"
        "  integer n, info, u\n"
        "  character(len=8) line\n"
        "  write(line, '(i8)', iostat=info) n\n"
        "  write(u, *) n\n"
        "end subroutine\n"
    )
    text = drafted(tmp_path, "words.f90", statements)
    assert "INOUT string[8] line[1] /* ? is it only written (OUT)? */" in text
    assert "INOUT int info[1] /* ? is it only written (OUT)? */, IN int u)" in text


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
    real(8), intent(inout) :: a(:, :)
    real(8), intent(out) :: y(size(a))
    y = reshape(a, [size(a)])
    a = 0
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
    y = server.call("shifted", k=5, x=a).y
    np.testing.assert_array_equal(y, [[2, 2, 3], [5, 5, 6]])
    np.testing.assert_array_equal(server.call("flat", a=a).y, [1, 4, 2, 5, 3, 6])
    assert not a.any()


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


def test_an_argument_whose_declaration_is_not_read_has_no_type(tmp_path):
    text = drafted(
        tmp_path,
        "shapes.f90",
        "module shapes\n  implicit none\n  type :: circle\n    real(8) :: r\n  end type\n"
        "contains\n  function area(self) result(a)\n    class(circle), intent(in) :: self\n"
        "    real(8) :: a\n    a = self%r\n  end function\n"
        "  subroutine fill(n, x)\n    integer, intent(in) :: n\n"
        "    real(8), intent(out) :: x(n)\n    x = 1\n  end subroutine\nend module\n",
    )
    assert "left out: area: the parser of f2py does not read the declaration of `self`" in text
    assert "Define fill(IN int n, OUT double x[n])" in text


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
    assert "square(IN int k, IN double x[k^2])" in text
    assert "left out: jumps: it has an alternate return, `*`" in text


def test_kinds_of_fortran_by_numbers(tmp_path):
    text = drafted(
        tmp_path,
        "kinds.f90",
        "subroutine f(a, b, c, d, e)\n"
        "  integer, parameter :: dp = selected_real_kind(15), wp = kind(1.0_dp)\n"
        "  integer, parameter :: sp = kind(0.0), rp = kind(1.e0_sp), ep = kind(0.d0)\n"
        "  integer, parameter :: far = selected_real_kind(p=6, r=307)\n"
        "  real(wp), intent(in) :: a\n  real(sp), intent(in) :: b\n"
        "  real(rp), intent(in) :: c\n  real(ep), intent(in) :: d\n"
        "  real(far), intent(in) :: e\nend subroutine\n"
        "subroutine other(a)\n  use kinds, only: dp\n"
        "  integer, parameter :: wp = kind(1.0_dp)\n  real(wp), intent(in) :: a\n"
        "end subroutine\n",
    )
    assert "IN double a, IN float b, IN float c, IN double d, IN double e)" in text
    assert "other(IN double a /* ? has the kind wp 8 bytes? */)" in text


def test_sizes_of_fortran_divide_whole_numbers(tmp_path):
    text = drafted(
        tmp_path,
        "sizes.f90",
        "subroutine f(n, m, a, b, c)\n  integer, intent(in) :: n, m\n"
        "  real(8), intent(in) :: a(n/(m/2)), b((n+1)/2*2), c(n*(n+1)/2)\nend subroutine\n"
        "subroutine g(n, a, b, c)\n  integer, intent(in) :: n\n"
        "  integer, parameter :: half = 5/2, n_max = 10, most = n_max + 1\n"
        "  integer, parameter :: low = -1, odd = int(3.7), last = 2*half\n"
        "  real(8), intent(in) :: a(most), b(low:n, 0:9, last), c(odd)\nend subroutine\n"
        "subroutine h(n, x, y)\n  integer, intent(in) :: n\n"
        "  real(8), intent(in) :: x(mod(n, 3)), y(0:(n-1)/2)\nend subroutine\n"
        "subroutine any(x)\n  real(8), intent(in) :: x(..)\nend subroutine\n",
    )
    assert "IN double a[n/(m/2)], IN double b[(n+1)/2*2], IN double c[n*(n+1)/2])" in text
    assert "IN double a[11], IN double b[4][10][n + 2], IN double c[n] /* ? is its size odd" in text
    assert "IN double x[n] /* ? is its size mod(n, 3)? */, IN double y[(n-1)/2 + 1])" in text
    assert "left out: any: `x` has any number of dimensions" in text


def test_sizes_of_fortran_are_the_largest_of_several_numbers(tmp_path):
    """`max` of the interface language takes two; `drafted` has the draft checked."""
    text = drafted(
        tmp_path,
        "sizes.f90",
        "subroutine f(n, m, x, y)\n  integer, intent(in) :: n, m\n"
        "  real(8), intent(in) :: x(max(1,n,m)), y(min(n,max(m,2*n,(n+m)),9)+1)\nend subroutine\n",
    )
    assert "IN double x[max(max(1,n),m)]" in text
    assert "IN double y[min(min(n,max(max(m,2*n),(n+m))),9)+1]" in text


def test_a_shim_has_powers_and_long_statements(tmp_path):
    names = [f"number_{one}_of_a_long_list" for one in range(12)]
    given = ", &\n    ".join(names)
    source = (
        f"module sizes\ncontains\nsubroutine fill(n, x, &\n    {given})\n"
        "  integer, intent(in) :: n\n  real(8), intent(out) :: x(n**2)\n"
        f"  real(8), intent(in) :: {given}\n  x = {names[0]}\nend subroutine\nend module\n"
    )
    assert "OUT double x[n^2]" in drafted(tmp_path, "sizes.f90", source)
    build(tmp_path, "libsizes.so", "gfortran", "sizes.f90", "drafted_shim.f90")


def test_procedures_of_several_modules_can_have_one_name(tmp_path):
    """The draft has the first one. The others are left out, and their shims too."""
    text = "module {0}\ncontains\nsubroutine start(n)\n  integer, intent(in) :: n\n"
    text += "end subroutine\nend module\n"
    for files in (("both.f90",), ("first.f90", "second.f90")):
        parts = [text.format("first"), text.format("second")]
        parts = ["".join(parts)] if len(files) == 1 else parts
        for name, part in zip(files, parts, strict=True):
            (tmp_path / name).write_text(part)
        draft(tmp_path, *files, "-o", f"{len(files)}.idl")
        drafted_text = (tmp_path / f"{len(files)}.idl").read_text()
        assert drafted_text.count("Define start(IN int n)") == 1
        assert "/* ? left out: start: another one has this name */" in drafted_text
        shim = (tmp_path / f"{len(files)}_shim.f90").read_text()
        assert shim.count("subroutine draft_start(n)") == 1 and "use first, only: start" in shim


def test_a_procedure_that_is_left_out_has_no_shim():
    whole = Draft()
    whole.add(Draft([Function("start", "start", ["n"], [])]))
    second = Function("start", "draft_start", ["n"], [], module="second")
    whole.add(Draft([second], [], {"start": ["subroutine draft_start(n)"]}))
    assert whole.shims == {}
    assert "start: another one has this name" in whole.text("both", "./libboth.so")


def test_sizes_that_fortran_states_twice_are_a_question(tmp_path):
    text = drafted(
        tmp_path,
        "twice.f90",
        "subroutine f(x, y)\n  real(8), intent(in), dimension(3) :: x(4), y\nend subroutine\n",
    )
    question = "/* ? the source states two sizes of x: is the one behind its name here? */"
    assert f"{question} Define f(IN double x[3], IN double y[3])" in text


def test_what_a_signature_changes_in_place_comes_back(tmp_path):
    text = drafted(
        tmp_path,
        "place.pyf",
        "python module place\ninterface\nsubroutine f(x)\n"
        "  double precision dimension(3), intent(inplace) :: x\n"
        "end subroutine f\nend interface\nend python module\n",
    )
    assert "Define f(INOUT double x[3])" in text
