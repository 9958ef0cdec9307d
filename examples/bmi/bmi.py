"""Branch and bound over servers: the least of the largest eigenvalues of F(x, y) in a box.

The client cuts boxes, and drops those that cannot contain the least one. Servers bound the boxes.
"""

import argparse
import collections
import heapq
import itertools
import math
import time

import farcall
import numpy as np


def main():
    """Solves a problem, and prints what it found."""
    arguments = parse()
    nx, ny, m = arguments.sizes
    server = farcall.connect(arguments.server)
    f = server.call("bmi/example", arguments.seed, nx, ny, m).f
    problem = {"nx": nx, "ny": ny, "m": m, "f": f}
    box = np.array([[-1.0, 1.0]] * (nx + ny))
    start = time.perf_counter()
    if arguments.one_call:
        solver = server.function("bmi/solve")
        found = solver(box=box, tolerance=arguments.tolerance, most=10**6, **problem)
        lower, upper, point, boxes = found.lower, found.upper, found.point, found.bounded
    else:
        bound = server.function("bmi/bound")
        lower, upper, point, boxes = solve(
            bound, problem, box, arguments.tolerance, arguments.group
        )
    seconds = time.perf_counter() - start
    print(f"least eigenvalue between {lower:.4f} and {upper:.4f}")
    print(f"at x = {point[:nx].round(4)}, y = {point[nx:].round(4)}")
    print(f"{boxes} boxes in {seconds:.1f} s")


def solve(bound, problem, box, tolerance, group="auto"):
    """Bounds of the least eigenvalue in a box, its point, and the number of boxes bounded.

    Each round cuts as many boxes as all servers take at a time.
    """
    upper, best, boxes = math.inf, None, 0
    undecided, cut = [], collections.deque([box])
    numbers = itertools.count()  # boxes with equal bounds are taken in order
    while cut:
        sweep = bound.map([{"boxes": one} for one in cut], group=group, **problem)
        for one, result in zip(cut, sweep, strict=True):
            if result.info != 0:
                raise ValueError("bmi/bound refuses the sizes of the problem")
            heapq.heappush(undecided, (result.lower, next(numbers), one))
            if result.upper < upper:
                upper, best = result.upper, result.points
        boxes += len(cut)
        cut = branch(undecided, upper - tolerance, sweep.wanted)
    lower = min(undecided[0][0], upper)
    return lower, upper, best, boxes


def branch(undecided, limit, wanted):
    """Cuts the best boxes into so many. If there are few, their parts are cut again."""
    cut = collections.deque()
    while len(cut) < wanted:
        if undecided and undecided[0][0] < limit:
            cut += halves(heapq.heappop(undecided)[2])
        elif cut:
            cut += halves(cut.popleft())
        else:
            break
    return cut


def halves(box):
    """Both halves of a box, cut across its longest edge."""
    longest = np.argmax(box[:, 1] - box[:, 0])
    left, right = box.copy(), box.copy()
    left[longest, 1] = right[longest, 0] = box[longest].mean()
    return [left, right]


def parse():
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", nargs="?", help="a server, or meta://HOST:PORT for all servers")
    parser.add_argument("--sizes", nargs=3, type=int, default=[2, 3, 10], metavar=("NX", "NY", "M"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--group", type=group_size, default="auto", help="boxes of a call, or auto")
    parser.add_argument("--one-call", action="store_true", help="let one server do it all")
    return parser.parse_args()


def group_size(text):
    """Parses `--group`."""
    return text if text == "auto" else int(text)


if __name__ == "__main__":
    main()
