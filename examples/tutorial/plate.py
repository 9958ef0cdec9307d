"""Computes the temperature of a plate on a server, and watches the computation."""

import sys

import farcall
import numpy as np


def monitor(sweep, change, stop):
    """Shows every hundredth sweep, and stops after a thousand."""
    if sweep % 100 == 0:
        print(f"sweep {sweep}: largest change {change:.6f}")
    stop[0] = sweep >= 1000


server = farcall.connect(*sys.argv[1:])
relax = server.function("plate/relax")

n = 30
u = np.zeros((n, n))
u[0] = 100.0  # the first row is hot
result = relax(n=n, tolerance=1e-3, u=u, monitor=monitor)
print(f"{result.sweeps} sweeps, {u[n // 2, n // 2]:.3f} degrees in the middle")
