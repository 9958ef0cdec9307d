"""Measures calls from Python for `farcall bench call`.

Reads lines `null COUNT` or `BYTES COUNT`, and answers each with the median time of one call in
seconds: of `bench/null`, or of `bench/echo` with arrays of so many bytes each way.
"""

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from ._native import Server, connect


def call_of(server: Server, what: str) -> Callable[[], object]:
    """The call to measure, with its arguments made."""
    if what == "null":
        null = server.function("bench/null")
        return lambda: null(1)
    echo = server.function("bench/echo")
    n = int(what) // 8
    x, y = np.arange(n, dtype=np.float64), np.zeros(n)
    return lambda: echo(n, x, y)


def median_seconds(call: Callable[[], object], count: int) -> float:
    """The median time of one of `count` calls."""
    clock = time.perf_counter
    seconds = []
    for _ in range(count):
        begin = clock()
        call()
        seconds.append(clock() - begin)
    return statistics.median(seconds)


def main() -> None:
    """Answers until standard input ends."""
    server = connect(sys.argv[1])
    calls: dict[str, Callable[[], object]] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        what, count = line.split()
        if what not in calls:
            calls[what] = call_of(server, what)
            calls[what]()
        print(median_seconds(calls[what], int(count)), flush=True)


if __name__ == "__main__":
    main()
