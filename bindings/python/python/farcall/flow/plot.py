"""Pictures of a simulation: the load of the links, and the messages over time.

python -m farcall.flow.plot heat-map picture.svg links.csv users.csv
python -m farcall.flow.plot timeline picture.png messages.csv
"""

import csv
import sys
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._result import HotLink, Result

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# The most ranks and messages that a timeline shows as bars. More are shown as rates.
MAX_RANKS = 64
MAX_BARS = 20_000
# The most cells of a picture: more are smaller than its pixels.
MAX_ROWS = 512
MAX_COLUMNS = 800
# The most cells in a row between which lines are drawn.
MAX_LINED = 32
# Prefixes of units, the largest first.
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
# What the columns and the rows of a panel are, by the first word of its name.
AXES = {
    "nodes": ("leaf switch", "node"),
    "level": ("switch", "port"),
    "global": ("to group", "from group"),
    "local": ("a square for each group: to router", "from router"),
}


@dataclass
class Links:
    """The links of a network: their places in the picture, and their utilisation."""

    panel: list[str]
    row: Integers
    column: Integers
    utilisation: Floats


def _figure(width: float, height: float) -> Any:
    """A figure that ends with its last reference, and leaves the figures of pyplot alone."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("plots need matplotlib: pip install matplotlib") from None
    return Figure(figsize=(width, height), layout="constrained")


def heat_map(result: Result, path: str | PathLike[str]) -> None:
    """Draw the utilisation of every link in the shape of the network, and list the hottest links.

    A torus is a grid for each direction, a fat tree a panel for each level, a dragonfly a square
    of its groups. The list has the ranks that use each link.
    """
    panel, row, column = result.platform.places()
    links = Links(panel, row.astype(np.int64), column.astype(np.int64), result.utilisation)
    _heat_map(links, result.hottest(), path)


def timeline(result: Result, path: str | PathLike[str]) -> None:
    """Draw every message as a bar on the line of its source, coloured by its rate.

    With many ranks or messages, draw the rate at which each rank sends instead.
    """
    result._require_messages()
    source = result.source.astype(np.int64)
    _timeline(source, result.bytes, result.start, result.end, path)


def _scaled(largest: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The unit in which numbers up to `largest` are at least 1: its size and its name."""
    for size, name in units:
        if largest >= size:
            return size, name
    return units[-1]


def _matrix(row: Integers, column: Integers, value: Floats) -> tuple[Floats, int]:
    """The largest value of each cell, and how many places are in one cell. Empty cells are NaN."""
    rows, columns = int(row.max()) + 1, int(column.max()) + 1
    high, wide = -(-rows // MAX_ROWS), -(-columns // MAX_COLUMNS)
    matrix = np.full((-(-rows // high), -(-columns // wide)), -np.inf)
    np.maximum.at(matrix, (row // high, column // wide), value)
    matrix[np.isinf(matrix)] = np.nan
    return matrix, high * wide


def _axes_of(panel: str, panels: list[str]) -> tuple[str, str]:
    if panel in ("injection", "ejection"):
        if "global" in panels:
            return "group", "node"
        if "to another x" in panels:
            return "switch", "node"
    if panel.startswith("to another"):
        return "switch", panel.removeprefix("to ")
    if "+z" in panels or "to crossbar z" in panels:
        return "x, the planes side by side", "y"
    return AXES.get(panel.split(maxsplit=1)[0], ("", "") if panel == "links" else ("x", "y"))


def _panels(links: Links) -> list[list[str]]:
    """The names of the panels, two in a row. The top level of a fat tree comes first."""
    names = list(dict.fromkeys(links.panel))
    rows = [names[i : i + 2] for i in range(0, len(names), 2)]
    return rows[::-1] if any(name.startswith("level") for name in names) else rows


def _heat_map(links: Links, hottest: list[HotLink], path: str | PathLike[str]) -> None:
    layout = _panels(links)
    names = [name for row in layout for name in row]
    kinds = np.array(links.panel)
    matrices = {}
    for name in names:
        mine = kinds == name
        matrices[name] = _matrix(links.row[mine], links.column[mine], links.utilisation[mine])
    shapes = [matrix.shape for matrix, _ in matrices.values()]
    square = all(0.4 < rows / columns < 2.5 for rows, columns in shapes)
    columns = max(len(row) for row in layout)
    heights = [3.6 if square else 1.5] * len(layout) + [0.4 + 0.17 * (len(hottest) + 1)]
    width = 9.0 if columns > 1 else 6.5
    figure = _figure(width, 0.6 + sum(heights))
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    top = float(np.nanmax(links.utilisation, initial=0)) or 1.0
    image = None
    for y, row in enumerate(layout):
        for x, name in enumerate(row):
            matrix, places = matrices[name]
            axes = figure.add_subplot(grid[y, x] if len(row) > 1 else grid[y, :])
            image = axes.imshow(
                100 * matrix,
                aspect="equal" if square else "auto",
                interpolation="nearest",
                vmin=0,
                vmax=100 * top,
                cmap="viridis",
            )
            axes.set_facecolor("0.9")
            most = "" if places == 1 else f": the most of {places} links in each cell"
            label, side = _axes_of(name, names)
            axes.set_title(f"{name}{most}", fontsize="medium")
            axes.set_xlabel(label, fontsize="small")
            axes.set_ylabel(side, fontsize="small")
            # In squares side by side, the numbers at the edge would not be those of the links.
            counts = places == 1 and name != "local" and "planes" not in label
            axes.tick_params(labelsize="small", labelbottom=counts, labelleft=counts)
            for axis, cells in ((axes.yaxis, matrix.shape[0]), (axes.xaxis, matrix.shape[1])):
                axis.get_major_locator().set_params(integer=True)
                if max(matrix.shape) <= MAX_LINED:
                    axis.set_ticks(np.arange(cells + 1) - 0.5, minor=True)
                    axis.set_tick_params(which="minor", length=0)
                    axes.grid(which="minor", color="white", linewidth=0.5)
    used = links.utilisation[links.utilisation > 0]
    mean = float(used.mean()) if len(used) else 0.0
    figure.suptitle(f"{len(used)} of {len(kinds)} links are used, at {mean:.1%} on average")
    bar = figure.colorbar(image, ax=figure.axes, label="utilisation (%)", fraction=0.04)
    bar.ax.tick_params(labelsize="small")
    _list(figure.add_subplot(grid[len(layout), :]), hottest)
    figure.savefig(path)


def _list(axes: Any, hottest: list[HotLink]) -> None:
    """The hottest links as lines of text."""
    axes.axis("off")
    lines = ["The hottest links, and the ranks that send most over them:"]
    wide = max((len(link.name) for link in hottest), default=0)
    for link in hottest:
        users = ", ".join(f"{s} to {d} {share:.0%}" for s, d, share in link.users)
        more = f" of {link.pairs} pairs" if link.pairs > len(link.users) else ""
        lines.append(f"{link.utilisation:7.1%}  {link.name:{wide}}  {users}{more}")
    # Names of an edge list can have dollars.
    style = {"family": "monospace", "fontsize": 7.5, "va": "top", "parse_math": False}
    axes.text(0, 1, "\n".join(lines), transform=axes.transAxes, **style)


def _timeline(
    source: Integers, size: Floats, start: Floats, end: Floats, path: str | PathLike[str]
) -> None:
    second, unit = _scaled(float(end.max(initial=0)), TIMES)
    ranks = int(source.max(initial=0)) + 1
    start, end = start / second, end / second
    if ranks <= MAX_RANKS and len(source) <= MAX_BARS:
        figure = _figure(10, 1.6 + 0.2 * ranks)
        axes = figure.subplots()
        image, scale, what = _bars(axes, source, size, start, end)
    else:
        figure = _figure(10, 7)
        axes = figure.subplots()
        image, scale, what = _rates(axes, source, size, start, end)
    rates = np.asarray(image.get_array()) / second
    largest = float(rates.max(initial=0))
    size_of, prefix = _scaled(largest, PREFIXES)
    image.set_array(rates / size_of)
    image.set_clim(0, largest / size_of or 1)
    axes.set(xlabel=f"time ({unit})", ylabel=f"rank{scale}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_title(f"{ranks} ranks, {len(source)} messages, {end.max(initial=0):.4g} {unit}")
    figure.colorbar(image, label=f"{what} ({prefix}B/s)")
    figure.savefig(path)


def _bars(
    axes: Any, source: Integers, size: Floats, start: Floats, end: Floats
) -> tuple[Any, str, str]:
    from matplotlib.collections import PolyCollection

    duration = end - start
    rate = np.divide(size, duration, out=np.zeros_like(size), where=duration > 0)
    low, high = source - 0.4, source + 0.4
    corners = [[start, low], [start, high], [end, high], [end, low]]
    boxes = np.array(corners).transpose(2, 0, 1)
    bars = PolyCollection(list(boxes), array=rate, edgecolors="white", linewidths=0.3)
    axes.add_collection(bars)
    axes.set_xlim(0, end.max(initial=0) or 1)
    axes.set_ylim(source.max(initial=0) + 0.5, -0.5)
    return bars, "", "mean rate of the message"


def _rates(
    axes: Any, source: Integers, size: Floats, start: Floats, end: Floats
) -> tuple[Any, str, str]:
    ranks, last = int(source.max(initial=0)) + 1, float(end.max(initial=0)) or 1.0
    together = -(-ranks // MAX_ROWS)
    rows, width = -(-ranks // together), last / MAX_COLUMNS
    # The bytes that a row has sent by the time t are the sum of rate * (t - start) over the
    # messages that have started, less rate * (t - end) over those that have ended.
    moves = (end > start) & (size > 0)
    row, rate = source[moves] // together, size[moves] / (end - start)[moves]
    edges = np.arange(MAX_COLUMNS + 1) * width
    sent = np.zeros((rows, MAX_COLUMNS + 1))
    for at, sign in ((start[moves], 1.0), (end[moves], -1.0)):
        column = np.minimum(np.ceil(at / width).astype(np.int64), MAX_COLUMNS)
        cell = row * (MAX_COLUMNS + 1) + column
        slope = np.bincount(cell, rate, sent.size).reshape(sent.shape).cumsum(axis=1)
        offset = np.bincount(cell, rate * at, sent.size).reshape(sent.shape).cumsum(axis=1)
        sent += sign * (slope * edges - offset)
    rates = np.maximum(np.diff(sent, axis=1) / width / together, 0)
    extent = (0, last, rows * together - 0.5, -0.5)
    image = axes.imshow(
        rates, aspect="auto", interpolation="nearest", extent=extent, cmap="viridis"
    )
    scale = "" if together == 1 else f" ({together} in a row)"
    return image, scale, "rate at which a rank sends"


def _columns(path: str) -> dict[str, list[str]]:
    with Path(path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def _read_links(file: str, users: str) -> tuple[Links, list[HotLink]]:
    columns = _columns(file)
    utilisation = np.array(columns["utilisation"], float)
    row, column = (np.array(columns[name], np.int64) for name in ("row", "column"))
    hottest: dict[int, HotLink] = {}
    rows = _columns(users)
    for i, link in enumerate(map(int, rows.get("link", []))):
        made = HotLink(link, rows["name"][i], float(utilisation[link]), int(rows["pairs"][i]), [])
        pair = int(rows["source"][i]), int(rows["destination"][i]), float(rows["share"][i])
        hottest.setdefault(link, made).users.append(pair)
    return Links(columns["panel"], row, column, utilisation), list(hottest.values())


def main(arguments: list[str]) -> int:
    """Draw one picture from CSV files."""
    match arguments:
        case ["heat-map", picture, data, users]:
            if not _columns(data):
                print(f"{data}: no rows: nothing to draw", file=sys.stderr)
                return 1
            links, hottest = _read_links(data, users)
            _heat_map(links, hottest, picture)
        case ["timeline", picture, data]:
            columns = _columns(data)
            if not columns:
                print(f"{data}: no rows: nothing to draw", file=sys.stderr)
                return 1
            source = np.array(columns["source"], np.int64)
            size, start, end = (
                np.array(columns[name], float) for name in ("bytes", "start", "end")
            )
            _timeline(source, size, start, end, picture)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
