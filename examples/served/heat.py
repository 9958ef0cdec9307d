"""Functions that `farcall serve examples/served/heat.py` serves, written with NumPy."""

import farcall


@farcall.library(
    "heat(IN int n, IN int steps, IN double alpha, INOUT double u[n][n])",
    calc_order="6 * steps * n ^ 2",
)
def heat(steps, alpha, u):
    """Steps of the heat equation on a plate whose edges keep their temperature."""
    for _ in range(steps):
        inner = u[1:-1, 1:-1]
        inner += alpha * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner)


@farcall.library(
    "moments(IN int n, IN double x[n], OUT double *mean, OUT double *deviation)", repeatable=True
)
def moments(x):
    """Mean and standard deviation of a sample."""
    return x.mean(), x.std(ddof=1)
