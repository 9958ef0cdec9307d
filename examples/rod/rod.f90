! The rod of rod.c in Fortran. The server is the first argument, or FARCALL_SERVER.
program rod
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use farcall
  implicit none
  integer, parameter :: n = 200
  real(c_double), parameter :: pi = acos(-1.0_c_double), h = 1.0_c_double / (n + 1)
  real(c_double) :: a(n, n), u(n), exact(n)
  integer(c_int) :: pivots(n), info, i
  type(farcall_server) :: server
  character(200) :: address

  a = 0
  a(n, n) = 2
  do i = 1, n - 1
    a(i, i) = 2
    a(i + 1, i) = -1
    a(i, i + 1) = -1
  end do
  exact = [(sin(pi * i * h), i = 1, n)]
  u = h**2 * pi**2 * exact

  call get_command_argument(1, address)
  if (address == "") then
    call farcall_connect(server)
  else
    call farcall_connect(server, address)
  end if
  if (farcall_call(farcall_function_of(server, "lapack/dgesv"), n, 1, a, n, pivots, u, n, info) &
    /= FARCALL_OK) then
    write (error_unit, "(a)") farcall_error_message()
    error stop
  end if
  print "(i0,a,i0,a,es9.3e2)", n, " points: info ", info, ", largest error ", &
    maxval(abs(u - exact))
  call farcall_disconnect(server)
end program
