"""The Python side of `farcall bench call`: measures a round for each line of standard input.

Run as `python -m farcall._bench ADDRESS`. A line `BYTES COUNT` asks for the median time in seconds
of COUNT calls that send BYTES bytes and receive as many; 0 bytes is the null call.
"""

import statistics
import sys
import time

import numpy as np

import farcall


def measure(server: farcall.Server, size: int, count: int) -> float:
    """Median seconds of `count` calls with `size` bytes out and back."""
    arguments: tuple[object, ...]
    if size == 0:
        function, arguments = server.function("bench/null"), (1,)
    else:
        elements = size // 8
        source, result = np.ones(elements), np.zeros(elements)
        function, arguments = server.function("bench/echo"), (elements, source, result)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Answers until standard input ends."""
    server = farcall.connect(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        size, count = line.split()
        print(measure(server, int(size), int(count)), flush=True)


if __name__ == "__main__":
    main()
