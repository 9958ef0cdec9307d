"""One run of examples/bmi for `farcall bench load bmi`: prints one JSON object.

python benches/load/bmi.py ADDRESS HOW NX NY M SEED TOLERANCE

HOW is a number of boxes of a call, `auto`, or `one-call`. `measure` only bounds the first box, once
for each of 16 calls.
"""

import json
import pathlib
import sys
import time

import farcall
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "bmi"))
import bmi


def main():
    """Runs it."""
    address, how, nx, ny, m, seed, tolerance = sys.argv[1:]
    nx, ny, m, seed, tolerance = int(nx), int(ny), int(m), int(seed), float(tolerance)
    # The hosts are namespaces of this host, which must not share memory.
    server = farcall.connect(address, same_host=False)
    problem = {"nx": nx, "ny": ny, "m": m, "f": server.call("bmi/example", seed, nx, ny, m).f}
    box = np.array([[-1.0, 1.0]] * (nx + ny))
    function = server.function("bmi/solve" if how == "one-call" else "bmi/bound")
    start = time.perf_counter()
    if how == "measure":
        function.map([{"boxes": box}] * 16, group=1, **problem).wait()
        lower, upper, boxes = 0.0, 0.0, 16
    elif how == "one-call":
        found = function(box=box, tolerance=tolerance, most=10**6, **problem)
        lower, upper, boxes = found.lower, found.upper, found.bounded
    else:
        group = how if how == "auto" else int(how)
        lower, upper, _, boxes = bmi.solve(function, problem, box, tolerance, group)
    seconds = time.perf_counter() - start
    values = {"seconds": seconds, "lower": lower, "upper": upper, "boxes": boxes}
    print(json.dumps({name: float(value) for name, value in values.items()}))


if __name__ == "__main__":
    main()
