"""Heat in a rod, shared among the elements of a job. The job can be moved and restarted.

farcall gang run -n 4 python examples/channels/heat.py 2000
farcall gang move 1 --to node2
"""

import sys

import numpy as np
from farcall.channel import Channel


def main():
    """Each element has a part of the rod, and two cells for the ends of its neighbours."""
    steps = int(sys.argv[1])
    channel = Channel()
    rank, size = channel.rank, channel.size
    rod = np.zeros(1002)
    hottest = np.zeros(1)
    if rank == 0:
        rod[0] = 100.0
    channel.register(rod, hottest)

    def step(number):
        if rank > 0:
            channel.send(rank - 1, rod[1:2])
        if rank + 1 < size:
            channel.send(rank + 1, rod[-2:-1])
            channel.receive_into(rod[-1:], rank + 1)
        if rank > 0:
            channel.receive_into(rod[:1], rank - 1)
        rod[1:-1] += 0.4 * (rod[:-2] - 2 * rod[1:-1] + rod[2:])
        hottest[:] = channel.all_reduce(rod[1:-1].max(keepdims=True), "max")
        return number + 1 < steps

    channel.run(step)
    total = channel.reduce(rod[1:-1].sum())
    if total is not None:
        print(f"heat {float(total):.17g}, hottest cell {hottest[0]:.17g}")


main()
