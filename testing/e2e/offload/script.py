"""What scripts of NumPy do, for an interpreter that knows nothing of Farcall."""

import numpy as np

n = 120
i = np.arange(n)
a = 1 / (1 + abs(i[:, None] - i)) + 3 * np.eye(n)
b = a @ np.ones(n)
print("solution:", np.allclose(np.linalg.solve(a, b), 1))
singular = np.linalg.svd(a, compute_uv=False)
print(f"singular values: {singular[0]:.6f} {singular[-1]:.6f}")
values = np.linalg.eigvalsh(a)
print(f"eigenvalues: {values[0]:.6f} {values[-1]:.6f}")
print(f"general: {abs(np.linalg.eigvals(a + np.triu(np.ones((n, n))))).max():.6f}")
print("cholesky:", np.allclose(np.linalg.cholesky(a) @ np.linalg.cholesky(a).T, a))
least = np.linalg.lstsq(a[:, :60], b, rcond=None)[0]
print(f"least squares: {np.linalg.norm(least):.6f}")
