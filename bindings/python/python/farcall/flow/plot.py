"""Pictures of a simulation: the load of the links, and the messages over time.

python -m farcall.flow.plot heat-map links.csv picture.svg
python -m farcall.flow.plot timeline messages.csv picture.png
"""

import csv
import re
import sys
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._result import Result

Floats = npt.NDArray[np.float64]

# The most messages of a timeline: more would be thinner than a line.
MAX_BARS = 50_000


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError:
        raise ImportError("plots need matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height), layout="constrained")


def heat_map(result: Result, path: str | PathLike[str]) -> None:
    """Draw the utilisation of every link: a row for each kind of link, a column for each place."""
    _heat_map(result.platform.link_names(), result.utilisation, path)


def timeline(result: Result, path: str | PathLike[str]) -> None:
    """Draw every message as a bar on the line of its source, coloured by its rate."""
    _timeline(result.source.astype(float), result.bytes, result.start, result.end, path)


def _rows(names: list[str]) -> dict[str, list[int]]:
    """Links by kind: their names without the first number, which is the place."""
    kinds: dict[str, list[int]] = {}
    for link, name in enumerate(names):
        if name.startswith("level"):
            kind = " ".join(name.split()[:2] + name.split()[-1:])
        else:
            kind = re.sub(r"^(\w+) \d+", r"\1", name)
            kind = re.sub(r" \d+$", "", kind)
        kinds.setdefault(kind, []).append(link)
    return kinds


def _heat_map(names: list[str], utilisation: Floats, path: str | PathLike[str]) -> None:
    kinds = _rows(names)
    if len(kinds) > 64:
        kinds = {"all links": list(range(len(names)))}
    width = max(len(links) for links in kinds.values())
    grid = np.full((len(kinds), width), np.nan)
    for row, links in enumerate(kinds.values()):
        grid[row, : len(links)] = utilisation[links]
    figure, axes = _figure(9, 1.5 + 0.35 * len(kinds))
    image = axes.imshow(
        grid, aspect="auto", interpolation="nearest", vmin=0, vmax=1, cmap="viridis"
    )
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set(xlabel="link", title=f"mean utilisation {np.nanmean(grid):.1%}")
    figure.colorbar(image, label="utilisation")
    figure.savefig(path)


def _timeline(
    source: Floats, size: Floats, start: Floats, end: Floats, path: str | PathLike[str]
) -> None:
    if len(source) > MAX_BARS:
        first = np.argsort(start, kind="stable")[:MAX_BARS]
        source, size, start, end = source[first], size[first], start[first], end[first]
        print(f"the picture has only the first {MAX_BARS} messages", file=sys.stderr)
    duration = end - start
    rate = np.divide(size, duration, out=np.zeros_like(size), where=duration > 0)
    ranks = int(source.max(initial=0)) + 1
    figure, axes = _figure(10, min(20.0, 1.5 + 0.12 * ranks))
    from matplotlib.collections import PolyCollection

    low, high = source - 0.4, source + 0.4
    corners = [[start, low], [start, high], [end, high], [end, low]]
    boxes = np.array(corners).transpose(2, 0, 1)
    bars = PolyCollection(list(boxes), array=rate, edgecolors="white", linewidths=0.2)
    axes.add_collection(bars)
    axes.set_xlim(0, end.max(initial=0) or 1)
    axes.set_ylim(ranks - 0.5, -0.5)
    axes.set(xlabel="time (s)", ylabel="rank")
    figure.colorbar(bars, label="mean rate (bytes/s)")
    figure.savefig(path)


def _columns(path: str) -> dict[str, list[str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def main(arguments: list[str]) -> int:
    """Draw one picture from a CSV file."""
    if len(arguments) != 3 or arguments[0] not in ("heat-map", "timeline"):
        print(__doc__, file=sys.stderr)
        return 2
    kind, data, picture = arguments
    columns = _columns(data)
    if not columns:
        print(f"{data}: no rows: nothing to draw", file=sys.stderr)
        return 1
    if kind == "heat-map":
        _heat_map(columns["name"], np.array(columns["utilisation"], float), picture)
    else:
        names = ("source", "bytes", "start", "end")
        source, size, start, end = (np.array(columns[name], float) for name in names)
        _timeline(source, size, start, end, picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
