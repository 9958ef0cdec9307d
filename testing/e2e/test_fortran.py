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
  call no_elements(x, 2)
  print "(a)", "done"
contains
  type(farcall_function) function f(name)
    character(*), intent(in) :: name
    f = farcall_function_of(server, name)
  end function

  ! Their descriptors have negative lengths.
  subroutine no_elements(x, last)
    real(c_double), target :: x(:)
    integer, intent(in) :: last
    real(c_double) :: y(2, 2) = 1d0, z(4, 4) = 1d0
    type(farcall_handle) :: handle
    if (farcall_call(f("axpy"), 0, 2d0, x(5:last), y(5:last, :)) /= FARCALL_OK) error stop "none"
    if (farcall_call(f("axpy"), 4, 2d0, x(5:last), y) /= FARCALL_ARGUMENT) error stop "some"
    handle = farcall_put(server, z(5:last, :))
    if (.not. c_associated(handle%handle)) error stop "put"
    if (farcall_get(handle, z(5:last, :)) /= FARCALL_OK) error stop "get"
    if (farcall_drop(handle) /= FARCALL_OK) error stop "drop"
  end subroutine

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


TEXTS = """\
program texts
  use farcall
  use, intrinsic :: iso_c_binding
  implicit none
  type(farcall_server) :: server
  type(farcall_handle) :: stored
  character(12, c_char) :: six(6) = ["one  ", "two  ", "three", "four ", "five ", "six  "]
  character(24, c_char) :: wide(2) = ["one", "two"], was(2), one = "one"
  character(64, c_char) :: text
  character(0, c_char) :: hollow(3)
  real(c_double), allocatable :: unmade(:)
  integer(c_int) :: length
  character(1024) :: address

  call get_command_argument(1, address)
  call farcall_connect(server, trim(address))
  if (farcall_call(f("join"), 3, hollow, "-", text, length) /= FARCALL_ARGUMENT) error stop "hollow"
  print "(a)", farcall_error_message()
  if (farcall_call(f("join"), 3, six, "-", text, length) /= FARCALL_ARGUMENT) error stop "six"
  print "(a)", farcall_error_message()
  if (farcall_call(f("join"), 3, six(::2), "-", text, length) /= FARCALL_OK) error stop "some"
  if (text(:length) /= "one-three-five") error stop "joined"
  if (farcall_call(f("join"), 1, one, "-", text, length) /= FARCALL_OK) error stop "one"
  if (text(:length) /= "one") error stop "one joined"
  was = wide
  if (farcall_call(f("capitals"), 4, 12, wide) /= FARCALL_ARGUMENT) error stop "wide"
  if (any(wide /= was)) error stop "changed"
  if (farcall_call(f("capitals"), 2, 12, wide) /= FARCALL_OK) error stop "capitals"
  if (wide(1) /= "ONE" .or. wide(2) /= "TWO") error stop "not in capitals"
  stored = farcall_put(server, six)
  if (c_associated(stored%handle)) error stop "stored"
  print "(a)", farcall_error_message()
  allocate (unmade(3))
  deallocate (unmade)
  if (farcall_call(f("axpy"), 0, 2d0, unmade, unmade) /= FARCALL_OK) error stop "no elements"
  if (farcall_call(f("axpy"), 1, 2d0, unmade, [1d0]) /= FARCALL_ARGUMENT) error stop "unmade"
  print "(a)", farcall_error_message()
  stored = farcall_put(server, unmade)
  if (c_associated(stored%handle)) error stop "not allocated"
  print "(a)", farcall_error_message()
contains
  type(farcall_function) function f(name)
    character(*), intent(in) :: name
    f = farcall_function_of(server, name)
  end function
end program
"""


def test_an_array_of_texts_has_as_many_as_the_call_needs(start, tmp_path):
    source = tmp_path / "texts.f90"
    source.write_text(TEXTS)
    program = compile_fortran(source, tmp_path / "texts")
    ran = run(program, start(LANGUAGES).address)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "argument `words`" in ran.stdout and "6 texts" in ran.stdout, ran.stdout
    assert "not in one piece" not in ran.stdout, ran.stdout
    assert "not the kind of a number" in ran.stdout, ran.stdout
    assert "argument `x`: expected an array of double, given NULL" in ran.stdout, ran.stdout
    assert "the array is not allocated" in ran.stdout, ran.stdout
