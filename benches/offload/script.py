"""A whole script for `farcall bench offload`: NumPy alone, with what a user would do with it.

The interpreter and the imports count, too: the benchmark measures the process.
"""

import numpy as np

random = np.random.default_rng(1)
covariance = np.cov(random.standard_normal((1500, 3000)))
total = 0.0
for step in range(4):
    values, vectors = np.linalg.eigh(covariance + step * np.eye(len(covariance)))
    projected = vectors[:, -10:].T @ covariance
    total += float(np.abs(projected).sum()) + float(values[-1])
u, s, vt = np.linalg.svd(covariance)
print(f"{total + s[0]:.6e}")
