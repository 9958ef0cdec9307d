! Stores an array at the server before a call needs it. The result of the call stays there.
program handles
  use farcall
  use, intrinsic :: iso_c_binding
  implicit none
  integer, parameter :: n = 3
  type(farcall_server) :: server
  type(farcall_function) :: dgesv, dgetrs
  type(farcall_handle) :: held
  type(farcall_callback) :: none
  real(c_double) :: a(n, n), b(n), x(n), factors(n, n), rows(2 * n, n)
  integer(c_int) :: pivots(n), info
  integer(c_int64_t) :: bits(n, n)
  character(1024) :: address

  call get_command_argument(1, address)
  call farcall_connect(server, trim(address))
  dgesv = farcall_function_of(server, "lapack/dgesv")
  dgetrs = farcall_function_of(server, "lapack/dgetrs")
  a = reshape([4d0, 1d0, 2d0, 0d0, 5d0, 1d0, 1d0, 2d0, 6d0], [n, n])
  x = [1d0, -2d0, 3d0]
  b = matmul(a, x)

  held = farcall_put(server, a)
  if (.not. c_associated(held%handle)) error stop "put"
  call expect(farcall_call(dgesv, n, 1, held, n, pivots, b, n, info))
  if (any(abs(b - x) > 1d-12)) error stop "dgesv"
  b = matmul(a, x)
  call expect(farcall_call(dgetrs, "N", n, 1, held, n, pivots, b, n, info))
  if (any(abs(b - x) > 1d-12)) error stop "dgetrs"
  call expect(farcall_get(held, factors))
  if (all(abs(factors - a) < 1d-12)) error stop "factors"
  if (farcall_get(held, b) == FARCALL_OK) error stop "a length"
  if (farcall_get(held, bits) /= FARCALL_ARGUMENT) error stop "another type"
  call expect(farcall_drop(held))

  ! An array that is not in one piece is copied.
  rows(1::2, :) = a
  held = farcall_put(server, rows(1::2, :))
  call expect(farcall_get(held, factors))
  if (any(abs(factors - a) > 0d0)) error stop "rows"
  call expect(farcall_drop(held))
  ! A value that is not a handle is refused.
  if (farcall_call(dgesv, n, 1, none, n, pivots, b, n, info) /= FARCALL_ARGUMENT) &
    error stop "a callback"
  call farcall_disconnect(server)
contains
  subroutine expect(status)
    integer(c_int), intent(in) :: status
    if (status == FARCALL_OK) return
    print "(a)", farcall_error_message()
    error stop
  end subroutine
end program
