"""A chart of the time slices of gang jobs: a row for each node, a colour for each job.

python -m farcall._gantt trace.csv picture.svg [FROM [TO]]
"""

import csv
import math
import sys
from pathlib import Path
from typing import NamedTuple

from . import _lanes

# The most slices of a chart: more would be thinner than a line.
MAX_SLICES = 20_000
# The most characters of the first line, which names the columns.
MAX_HEAD = 4096
COLUMNS = {"start_ns", "run_ns", "out", "in", "nodes"}


class Slice(NamedTuple):
    """A job on a node: when its processes may run and when they must stop, in seconds."""

    node: str
    job: int
    begin: float
    end: float


def slices(path: Path) -> list[Slice]:
    """The slices of a trace, from the first switch on; the last ends with the last switch."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        head = file.readline(MAX_HEAD)
        names = next(csv.reader([head]), [])
        if COLUMNS.difference(names):
            raise ValueError(f"{path} is not a trace of `farcall gang daemon --trace`")
        table = csv.DictReader(file, names)
        rows = [row for row in table if row["nodes"] is not None]
    if not rows:
        raise ValueError(f"{path} has no switches")
    first = int(rows[0]["start_ns"])
    done: list[Slice] = []
    running: dict[int, tuple[float, list[str]]] = {}

    def end(job: int, time: float) -> None:
        if job in running:
            begin, nodes = running.pop(job)
            done.extend(Slice(node, job, begin, time) for node in nodes if node != "-")

    for row in rows:
        stop, run = ((int(row[name]) - first) / 1e9 for name in ("start_ns", "run_ns"))
        for job in map(int, row["out"].split()):
            end(job, stop)
        for job, nodes in zip(map(int, row["in"].split()), row["nodes"].split(), strict=False):
            end(job, stop)
            running[job] = run, nodes.split("+")
    last = (int(rows[-1]["run_ns"]) - first) / 1e9
    for job in list(running):
        end(job, last)
    return done


def lanes(found: list[Slice]) -> tuple[dict[Slice, int], int]:
    """The lane of each slice of a node, so that jobs do not overlap; and the number of lanes."""
    ordered = sorted(found, key=lambda each: (each.begin, each.job))
    places = dict(zip(ordered, _lanes.lanes((one.begin, one.end) for one in ordered), strict=True))
    return places, max(places.values(), default=-1) + 1


def draw(found: list[Slice], path: Path, begin: float, end: float) -> None:
    """Draw the slices between two times."""
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        raise ImportError("charts need matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    shown = [each for each in found if each.end > begin and each.begin < end]
    if not shown:
        raise ValueError(f"there is no slice between {begin} and {end} s")
    if len(shown) > MAX_SLICES:
        raise ValueError(
            f"there are {len(shown)} slices between {begin} and {end} s, but a chart has at most "
            f"{MAX_SLICES}; draw a part with --from and --to"
        )
    nodes: dict[str, list[Slice]] = {node: [] for node in sorted({each.node for each in shown})}
    for each in shown:
        nodes[each.node].append(each)
    jobs = sorted({each.job for each in shown})
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 0.45 * len(nodes)), layout="constrained")
    colours = pyplot.get_cmap("tab10" if len(jobs) <= 10 else "tab20")
    colour = {job: colours(index % colours.N) for index, job in enumerate(jobs)}
    for row, mine in enumerate(nodes.values()):
        places, count = lanes(mine)
        rows: list[list[Slice]] = [[] for _ in range(count)]
        for each, lane in places.items():
            rows[lane].append(each)
        for lane, bars in enumerate(rows):
            starts = [max(each.begin, begin) for each in bars]
            spans = [(s, min(each.end, end) - s) for s, each in zip(starts, bars, strict=True)]
            place = (row - 0.4 + lane * 0.8 / count, 0.8 / count)
            axes.broken_barh(spans, place, facecolors=[colour[each.job] for each in bars])
    axes.set_yticks(range(len(nodes)), nodes)
    axes.set_xlabel("seconds after the first switch")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    if len(jobs) <= 20:
        keys = [Patch(color=colour[job], label=f"job {job}") for job in jobs]
        figure.legend(handles=keys, loc="outside right upper", frameon=False)
    figure.savefig(path)


def main() -> None:
    """The command."""
    trace, picture, *times = sys.argv[1:]
    begin = float(times[0]) if times else 0.0
    end = float(times[1]) if len(times) > 1 else math.inf
    draw(slices(Path(trace)), Path(picture), begin, end)


if __name__ == "__main__":
    main()
