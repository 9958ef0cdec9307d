! The call script in Fortran: prints what script.txt says. The server is the first argument.
program script
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use farcall
  implicit none
  type(farcall_server) :: server
  character(200) :: address

  call get_command_argument(1, address)
  call farcall_connect(server, trim(address))
  call arrays()
  call kinds()
  call files()
  call objects()
  call errors()
  call several()
  call farcall_disconnect(server)

contains

  subroutine check(status)
    integer(c_int), intent(in) :: status
    if (status == FARCALL_OK) return
    write (error_unit, "(a)") farcall_error_message()
    error stop
  end subroutine

  type(farcall_function) function f(name)
    character(*), intent(in) :: name
    f = farcall_function_of(server, "conformance/" // name)
  end function

  ! Numbers times 100, so that every language prints them alike.
  subroutine show(name, values)
    character(*), intent(in) :: name
    real(c_double), intent(in) :: values(:)
    write (*, "(2a,*(1x,i0))") name, ":", nint(100 * values, c_int64_t)
  end subroutine

  subroutine arrays()
    real(c_double) :: values(6), x(3) = [1, 2, 3], total
    real(c_double), pointer :: y(:)
    type(c_ptr) :: memory
    real(c_double) :: numbers(8) = [0, 1, 2, 3, 4, 5, 6, 7]
    integer(c_int16_t) :: shorts(3) = [10_c_int16_t, -20_c_int16_t, 30_c_int16_t]
    real(c_float) :: floats(3) = [1.5, 2.5, 3.5]
    integer(c_int8_t) :: bytes(3) = [64_c_int8_t, 11_c_int8_t, 96_c_int8_t]
    integer(c_int64_t) :: sums(3)
    integer(c_int) :: a(6) = [1, 2, 3, 4, 5, 6]

    call check(farcall_call(f("scalars"), "A", -2, 300000, 5000000000_c_int64_t, 1.5, &
      -0.25_c_double, values))
    call show("scalars", values)
    memory = farcall_allocate(server, 24_c_size_t)
    call c_f_pointer(memory, y, [3])
    y = [10, 20, 30]
    call check(farcall_call(f("axpy"), 3, 2.0_c_double, x, y))
    call show("axpy", y)
    call farcall_free(memory)
    call check(farcall_call(f("types"), 3, shorts, floats, bytes, sums))
    write (*, "(a,*(1x,i0))") "types:", sums
    call check(farcall_call(f("section"), 2, 3, a))
    write (*, "(a,*(1x,i0))") "section:", a
    call check(farcall_call(f("shrunk"), 8, 1, 7, 2, numbers, total))
    call show("shrunk", [total])
  end subroutine

  subroutine kinds()
    character(32, c_char) :: text
    character(64, c_char) :: joined
    character(8, c_char) :: words(3), full(3)
    character(16, c_char) :: parts(4)
    integer :: i
    integer(c_int) :: length
    complex(c_double) :: z(2) = [(1, 0), (0, 2)]
    complex(c_float) :: conjugate
    real(c_double) :: unsorted(4) = [5, -3, 2, 1], sorted(4), x(3) = [1, 2, 3], y(3) = [4, 5, 6]
    real(c_double) :: dot, grid(3, 2)

    call check(farcall_call(f("greet"), "hello   ", "world", 32, text, length))
    write (*, "(3a,i0,a)") "greet: ", text(:length), " (", length, ")"
    words = [character(8) :: "one", "", "three"]
    call check(farcall_call(f("join"), 3, words, "+", joined, length))
    write (*, "(3a,i0,a)") "join: ", joined(:length), " (", length, ")"
    call check(farcall_call(f("split"), "one,,three,a dozen characters", ",", 4, parts, length))
    write (*, "(a,*(a))", advance="no") "split: ", (trim(parts(i)), "|", i = 1, 3), trim(parts(4))
    write (*, "(a,i0,a)") " (", length, ")"
    full = [character(8) :: "one", "two full", ""]
    call check(farcall_call(f("capitals"), 3, 8, full))
    write (*, "(a,*(a))") "capitals: ", (trim(full(i)), "|", i = 1, 2), trim(full(3))
    call check(farcall_call(f("rotate"), 2, (0.0_c_double, 1.0_c_double), z, (1.5, 2.5), conjugate))
    write (*, "(a,4(1x,i0),a,2(1x,i0))") "rotate:", nint(100 * [z(1)%re, z(1)%im, z(2)%re, &
      z(2)%im]), " /", nint(100 * [conjugate%re, conjugate%im])
    call check(farcall_call(f("sort"), 4, unsorted, sorted))
    call show("sort", sorted)
    call check(farcall_call(f("dot"), 3, x, y, dot))
    call show("dot", [dot])
    call check(farcall_call(f("grid"), 3, 2, grid))
    if (nint(grid(3, 1)) /= 31 .or. nint(grid(1, 2)) /= 12) error stop "grid(i, j) is not A(i, j)"
    call show("grid", reshape(grid, [6]))
  end subroutine

  function word(status) result(text)
    integer(c_int), intent(in) :: status
    character(:), allocatable :: text
    select case (status)
    case (FARCALL_ARGUMENT)
      text = "argument"
    case (FARCALL_UNKNOWN_FUNCTION)
      text = "unknown function"
    case (FARCALL_LIBRARY)
      text = "library"
    case (FARCALL_RUNNING)
      text = "running"
    case (FARCALL_CANCELLED)
      text = "cancelled"
    case default
      text = farcall_status_text(status)
    end select
  end function

  subroutine files()
    integer(c_int64_t) :: length

    call check(farcall_call(f("upper"), "text", "capitals", "tally", length))
    print "(a,i0,a)", "files: ", length, " bytes"
    print "(2a)", "no such file: ", &
      word(farcall_call(f("upper"), "nothing", "new", "tally", length))
  end subroutine

  subroutine objects()
    type(farcall_object) :: one, other
    integer(c_int) :: values(3)

    one = farcall_object_new(server, "conformance/Counter")
    other = farcall_object_new(server, "Counter")
    call check(farcall_call(farcall_object_method(one, "add"), 3, values(1)))
    call check(farcall_call(farcall_object_method(other, "add"), 7, values(2)))
    call check(farcall_call(farcall_object_method(one, "add"), 7, values(3)))
    write (*, "(a,*(1x,i0))") "objects:", values
    call farcall_object_free(one)
    call farcall_object_free(other)
    print "(2a)", "method of no object: ", word(farcall_call(f("Counter.add"), 1, values(1)))
  end subroutine

  subroutine errors()
    type(farcall_function) :: nothing
    real(c_double) :: x(3) = [1, 2, 3], y(3) = [4, 5, 6], dot
    integer(c_int) :: status

    print "(2a)", "wrong argument: ", word(farcall_call(f("dot"), 3, x(1:2), y, dot))
    nothing = farcall_function_of(server, "conformance/nothing", status)
    print "(2a)", "unknown function: ", word(status)
    print "(2a)", "crash: ", word(farcall_call(f("crash"), 1))
    call rows()
    call check(farcall_call(f("dot"), 3, x, y, dot))
    call show("after the crash", [dot])
  end subroutine

  ! A row of a matrix is not in one piece of memory: a call works on a copy, an asynchronous one
  ! refuses it.
  subroutine rows()
    real(c_double), asynchronous :: matrix(3, 2)
    real(c_double) :: dot
    character(:), allocatable :: message

    matrix = 7
    matrix(1, :) = [1, 2]
    call check(farcall_call(f("axpy"), 2, 10.0_c_double, matrix(1, :), matrix(2, :)))
    if (any(nint(matrix) /= reshape([1, 17, 7, 2, 27, 7], [3, 2]))) error stop "axpy of rows"
    if (farcall_call_async(f("dot"), 2, matrix(1, :), matrix(1, :), dot) /= 0) &
      error stop "an asynchronous call took a row"
    message = farcall_error_message()
    if (index(message, "one piece") == 0) error stop "the message does not say why"
  end subroutine

  subroutine several()
    type(farcall_function) :: nap
    integer(c_int), asynchronous :: slept(3)
    integer(c_int64_t) :: sessions(3), session, which
    integer :: i, ended

    nap = f("nap")
    do i = 1, 3
      sessions(i) = farcall_call_async(nap, 10 * i, slept(i))
    end do
    call check(farcall_wait_and(sessions, 30.0_c_double))
    write (*, "(a,*(1x,i0))") "several at once:", slept

    do i = 1, 3
      sessions(i) = farcall_call_async(nap, 1, slept(i))
    end do
    ended = 0
    do
      call check(farcall_wait_any(server, 30.0_c_double, which))
      if (which == 0) exit
      ended = ended + 1
    end do
    print "(a,i0,a)", "wait any: ", ended, " of 3"

    session = farcall_call_async(nap, 300, slept(1))
    write (*, "(3a)", advance="no") "time-out: ", word(farcall_wait(session, 0.01_c_double)), ", "
    call check(farcall_wait(session, 30.0_c_double))
    print "(a,i0)", "then ", slept(1)

    session = farcall_call_async(nap, 60000, slept(1))
    call check(farcall_cancel(session))
    print "(2a)", "cancel: ", word(farcall_wait(session, 30.0_c_double))
  end subroutine
end program
