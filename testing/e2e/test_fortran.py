"""What users of Fortran pass, beyond the script of all languages."""

from programs import compile_fortran, run
from servers import ROOT

LANGUAGES = ROOT / "testing" / "conformance" / "languages.idl"
ASSUMED = """\
program assumed
  use farcall
  use, intrinsic :: iso_c_binding
  implicit none
  type(farcall_server) :: server
  real(c_double) :: x(4) = [1d0, 2d0, 3d0, 4d0], y(2, 2) = 1d0
  real(c_float) :: short(4) = 1.0
  character(8, c_char) :: words(3) = ["one  ", "two  ", "three"]
  character(1024) :: address

  call get_command_argument(1, address)
  call farcall_connect(server, trim(address))
  call numbers(x, y)
  if (any(abs(reshape(y, [4]) - [3d0, 5d0, 7d0, 9d0]) > 0d0)) error stop "axpy"
  call another_type(short, y)
  call texts(words)
  print "(a)", "done"
contains
  type(farcall_function) function f(name)
    character(*), intent(in) :: name
    f = farcall_function_of(server, name)
  end function

  subroutine numbers(x, y)
    real(c_double) :: x(*), y(2, *)
    if (farcall_call(f("axpy"), 4, 2d0, x, y) /= FARCALL_OK) error stop "numbers"
  end subroutine

  subroutine another_type(x, y)
    real(c_float) :: x(*)
    real(c_double) :: y(2, *)
    if (farcall_call(f("axpy"), 4, 2d0, x, y) /= FARCALL_ARGUMENT) error stop "another type"
    if (farcall_call(f("axpy"), y, 2d0, y, y) /= FARCALL_ARGUMENT) error stop "no scalar"
    print "(a)", farcall_error_message()
  end subroutine

  subroutine texts(words)
    character(8, c_char) :: words(*)
    character(64, c_char) :: text
    integer(c_int) :: length
    if (farcall_call(f("join"), 3, words, "-", text, length) /= FARCALL_ARGUMENT) error stop "texts"
    if (farcall_call(f("join"), 3, words(:3), "-", text, length) /= FARCALL_OK) error stop "some"
    if (text(:length) /= "one-two-three") error stop "joined"
  end subroutine
end program
"""


def test_arrays_of_assumed_size_have_the_size_of_the_interface(start, tmp_path):
    source = tmp_path / "assumed.f90"
    source.write_text(ASSUMED)
    program = compile_fortran(source, tmp_path / "assumed")
    ran = run(program, start(LANGUAGES).address)
    assert ran.stdout.endswith("done\n"), ran.stdout + ran.stderr
    assert "argument `n`: expected int" in ran.stdout, ran.stdout
