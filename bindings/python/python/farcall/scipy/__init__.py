"""SciPy's `linalg` and `fft`, computed on a server.

from farcall.scipy import linalg, fft  # instead of: from scipy import linalg, fft
linalg.use("farcall://host:3717")      # without this: the server of the environment

All other functions are SciPy's own and run on this machine.
"""

from . import fft, linalg

__all__ = ["fft", "linalg"]
