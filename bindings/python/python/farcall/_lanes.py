"""Lanes of a chart: what happens at the same time lies below each other."""

from collections.abc import Iterable, Iterator


def lanes(spans: Iterable[tuple[float, float]]) -> Iterator[int]:
    """The lane of each span, so that those of one lane do not overlap.

    The spans are begins and ends, in the order of their begins.
    """
    ends: list[float] = []
    for begin, end in spans:
        free = (lane for lane, last in enumerate(ends) if last <= begin)
        lane = next(free, len(ends))
        ends[lane : lane + 1] = [end]
        yield lane
