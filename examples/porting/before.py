"""How strongly a structure vibrates at each frequency, computed on this computer.

    python before.py 600 40

A row of n masses between two walls, with springs, dampers and a force on the first mass. For each
of `count` frequencies the program solves (K - w^2 M + i w C) x = f and prints the largest x.
"""

import sys

import numpy as np


def structure(n):
    """Stiffness, mass and damping of n masses, and the force on them."""
    random = np.random.default_rng(n)
    links = random.uniform(0.5, 1.5, n + 1)
    k = np.diag(links[:-1] + links[1:]) - np.diag(links[1:-1], 1) - np.diag(links[1:-1], -1)
    m = np.diag(random.uniform(0.9, 1.1, n))
    force = np.zeros(n)
    force[0] = 1
    return k, m, 0.02 * k, force


def response(k, m, c, force, frequencies):
    """The largest amplitude at each frequency."""
    largest = []
    for w in frequencies:
        x = np.linalg.solve(k - w**2 * m + 1j * w * c, force)
        largest.append(np.abs(x).max())
    return np.array(largest)


def main():
    """Prints the frequency of the strongest response."""
    n, count = int(sys.argv[1]), int(sys.argv[2])
    k, m, c, force = structure(n)
    frequencies = np.linspace(0.1, 2.0, count)
    largest = response(k, m, c, force, frequencies)
    print(f"{largest.max():.6f} at {frequencies[largest.argmax()]:.4f}")


if __name__ == "__main__":
    main()
