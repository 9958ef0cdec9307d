"""The rod of rod.c in Python. The server is the first argument, or FARCALL_SERVER."""

import sys

import farcall
import numpy as np

n = 200
h = 1 / (n + 1)
exact = np.sin(np.pi * h * np.arange(1, n + 1))
a = np.asfortranarray(2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))
u = h**2 * np.pi**2 * exact

server = farcall.connect(*sys.argv[1:])
result = server.function("lapack/dgesv")(n=n, nrhs=1, a=a, lda=n, b=u, ldb=n)
error = abs(u - exact).max()
print(f"{n} points: info {int(result.info)}, largest error {error:.3e}")
