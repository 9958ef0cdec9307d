% What scripts of Octave do, for an interpreter that knows nothing of Farcall.
n = 120;
a = 1 ./ (1 + abs ((1:n)' - (1:n))) + 3 * eye (n);
b = a * ones (n, 1);
printf ("solution: %d\n", max (abs (a \ b - 1)) < 1e-10);
printf ("inverse: %d\n", norm (inv (a) * a - eye (n), 1) < 1e-10);
printf ("singular values: %.6f %.6f\n", svd (a)([1, n]));
printf ("eigenvalues: %.6f %.6f\n", eig (a)([1, n]));
printf ("general: %.6f\n", max (abs (eig (a + triu (ones (n))))));
[u, s] = schur (a + triu (ones (n)));
printf ("schur: %d\n", norm (u * s * u' - a - triu (ones (n)), 1) < 1e-9);
[q, r, p] = qr (a);
printf ("qr: %d\n", norm (q * r - a * p, 1) < 1e-10);
printf ("cholesky: %d\n", norm (chol (a)' * chol (a) - a, 1) < 1e-10);
printf ("least squares: %.6f\n", norm (a(:, 1:60) \ b));
