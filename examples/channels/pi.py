"""Pi by numerical integration, shared among the elements of a job.

farcall gang run -n 4 python examples/channels/pi.py 10000000
"""

import sys

import numpy as np
from farcall.channel import Channel


def main():
    """Each element sums every size-th rectangle; the sums are added at rank 0."""
    channel = Channel()
    # Rank 0 alone knows the number; the others are told.
    count = np.array([int(sys.argv[1]) if channel.rank == 0 else 0], np.int64)
    channel.broadcast(count)
    step = 1.0 / count[0]
    x = (np.arange(channel.rank, count[0], channel.size) + 0.5) * step
    total = channel.reduce((4.0 / (1.0 + x * x)).sum() * step)
    if total is not None:
        print(f"pi is about {float(total):.10f}, {channel.size} elements")


main()
