! Systems of equations and eigenvalues in Fortran, for a program that knows nothing of Farcall.
program linear
  implicit none
  integer, parameter :: n = 120, nrhs = 3
  double precision :: a(n, n), f(n, n), b(n, nrhs), x(n, nrhs), w(n), work(40 * n)
  integer :: ipiv(n), info, i, j
  do j = 1, n
    do i = 1, n
      a(i, j) = 1d0 / (1 + abs(i - j))
    end do
    a(j, j) = a(j, j) + 3
  end do
  x = 1
  b = matmul(a, x)
  f = a
  call dgesv(n, nrhs, f, n, ipiv, b, n, info)
  print '(a, i2, l2)', 'info, solution:', info, all(abs(b - x) < 1d-10)
  f = a
  call dsyev('V', 'U', n, f, n, w, work, size(work), info)
  print '(a, i2, l2)', 'info, vectors:', info, &
    all(abs(matmul(a, f) - f * spread(w, 1, n)) < 1d-10)
  print '(a, 2f12.6)', 'eigenvalues:', w(1), w(n)
end program linear
