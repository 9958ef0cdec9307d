! A procedure that a remote function calls: `callbacks SERVER` serves callbacks.idl.
module functions
  use, intrinsic :: iso_c_binding
  implicit none
contains
  subroutine square(x, y) bind(C)
    real(c_double), value :: x
    real(c_double), intent(out) :: y
    y = x * x
  end subroutine
end module

program callbacks
  use farcall
  use functions
  implicit none
  type(farcall_server) :: server
  type(farcall_function) :: evaluate
  real(c_double) :: values(4)
  character(200) :: address

  call get_command_argument(1, address)
  call farcall_connect(server, trim(address))
  evaluate = farcall_function_of(server, "evaluate")
  if (farcall_call(evaluate, 4, values, farcall_callback(c_funloc(square))) /= FARCALL_OK) then
    print *, farcall_error_message()
    error stop 1
  end if
  if (any(abs(values - [0d0, 1d0, 4d0, 9d0]) > 0d0)) error stop 2
  call farcall_disconnect(server)
end program
