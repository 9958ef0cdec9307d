"""Predict how long a communication pattern takes on a network.

from farcall import flow
torus = flow.Platform("torus:16x16,bandwidth=1GB/s")
pattern = flow.pattern("all-to-all:pairwise", torus, size=20e3)
result = flow.simulate(torus, pattern)
result.makespan, result.messages(), result.links()
"""

from ._result import HotLink, Result, Sweep
from ._simulate import (
    Pattern,
    Platform,
    edges,
    jobs,
    messages,
    pattern,
    read_chakra,
    read_pattern,
    simulate,
    sweep,
)

__all__ = [
    "HotLink",
    "Pattern",
    "Platform",
    "Result",
    "Sweep",
    "edges",
    "jobs",
    "messages",
    "pattern",
    "read_chakra",
    "read_pattern",
    "simulate",
    "sweep",
]
