"""The Python side of `farcall bench call`: measures a round for each line of standard input.

Run as `python -m farcall._bench ADDRESS`. A line `BYTES COUNT OUTSTANDING` asks for the seconds of a
call: with 1 outstanding the median of COUNT calls that send BYTES bytes and receive as many, 0 bytes
being the null call; with more the time of COUNT null calls divided by their number.
"""

import collections
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


def measure_outstanding(server: farcall.Server, count: int, outstanding: int) -> float:
    """Seconds for each of `count` null calls, of which so many are under way at any time."""
    function = server.function("bench/null")
    futures: collections.deque[farcall.Future] = collections.deque()
    start = time.perf_counter()
    for _ in range(count):
        if len(futures) == outstanding:
            futures.popleft().result()
        futures.append(function.call_async(1))
    for future in futures:
        future.result()
    return (time.perf_counter() - start) / count


def main() -> None:
    """Answers until standard input ends."""
    server = farcall.connect(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        size, count, outstanding = map(int, line.split())
        if outstanding == 1:
            seconds = measure(server, size, count)
        else:
            seconds = measure_outstanding(server, count, outstanding)
        print(seconds, flush=True)


if __name__ == "__main__":
    main()
