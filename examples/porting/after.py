"""before.py with its computing at a server, in the three steps of docs/porting.md.

    python after.py 600 40 [each|loop|parts] [SERVER]

`each` replaces the solver by a remote call, `loop` calls the whole loop once, and `parts` computes
parts of the frequencies at the same time at one server, which keeps the matrices.
"""

import sys
import time

import farcall
import numpy as np
from before import structure

PARTS = 4


def each(server, k, m, c, force, frequencies):
    """Step 1: the solver is a remote call. Every call sends a matrix there and back."""
    solve = server.function("lapack/zgesv")
    n, largest = len(force), []
    pivots, info = np.empty(n, np.int32), np.empty(1, np.int32)
    for w in frequencies:
        a = np.asfortranarray(k - w**2 * m + 1j * w * c)
        x = np.asfortranarray(force.reshape(n, 1).astype(complex))
        solve(n, 1, a, n, pivots, x, n, info)
        largest.append(np.abs(x).max())
    return np.array(largest)


def loop(server, k, m, c, force, frequencies):
    """Step 2: the loop is a remote call. It sends each matrix once."""
    largest = np.empty(len(frequencies))
    server.call(
        "porting/response", len(force), k, m, c, force, len(frequencies), frequencies, largest,
        np.empty(1, np.int32),
    )  # fmt: skip
    return largest


def parts(server, k, m, c, force, frequencies):
    """Step 3: the matrices stay at the server, and parts of the loop run at the same time."""
    response = server.function("porting/response")
    kept = [server.put(matrix) for matrix in (k, m, c)]
    largest = np.empty(len(frequencies))
    calls = []
    for part in np.array_split(np.arange(len(frequencies)), PARTS):
        into = largest[part[0] : part[-1] + 1]
        now = (len(part), frequencies[part], into, np.empty(1, np.int32))
        calls.append(response.call_async(len(force), *kept, force, *now))
    for call in calls:
        call.result()
    return largest


def main():
    """Prints what before.py prints, and the time."""
    n, count = int(sys.argv[1]), int(sys.argv[2])
    step = {"each": each, "loop": loop, "parts": parts}[sys.argv[3]]
    server = farcall.connect(*sys.argv[4:])
    matrices = structure(n)
    frequencies = np.linspace(0.1, 2.0, count)
    begun = time.perf_counter()
    largest = step(server, *matrices, frequencies)
    seconds = time.perf_counter() - begun
    print(f"{largest.max():.6f} at {frequencies[largest.argmax()]:.4f}")
    print(f"{seconds:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
