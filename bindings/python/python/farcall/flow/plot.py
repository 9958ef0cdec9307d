"""Pictures of a simulation: the load of the links, and the messages over time.

python -m farcall.flow.plot heat-map picture.svg links.csv users.csv
python -m farcall.flow.plot timeline picture.png messages.csv
"""

import csv
import itertools
import sys
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._lanes import lanes
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
# The most messages of a rank at a time that have a bar each.
MAX_LANES = 8
# Prefixes of units, the largest first.
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
# What the columns and the rows of a panel are, by the first word of its name.
AXES = {
    "nodes": ("leaf switch", "node"),
    "level": ("switch", "port"),
    "global": ("to group", "from group"),
    "devices": ("a column for each machine", "device"),
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

    Bars of messages at the same time lie below each other. With many ranks or messages, draw the
    rate at which each rank sends instead.
    """
    result._require_messages()
    if result.message_count == 0:
        raise ValueError("this run has no messages: nothing to draw")
    sends = Sends(result.source.astype(np.int64), result.bytes, result.start, result.end)
    _timeline(sends, result.ranks, path)


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
    if panel in ("+x", "-x") and "+y" not in panels:
        return "x, folded into rows", ""
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
            # Elsewhere the numbers at the edge would not be those of the links.
            of_links = not any(word in label for word in ("square", "planes", "folded", "machine"))
            counts = places == 1 and of_links
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


@dataclass
class Sends:
    """Messages: their sources, bytes, starts and ends."""

    source: Integers
    size: Floats
    start: Floats
    end: Floats


def _timeline(sends: Sends, ranks: int, path: str | PathLike[str]) -> None:
    second, unit = _scaled(float(sends.end.max(initial=0)), TIMES)
    sends = Sends(sends.source, sends.size, sends.start / second, sends.end / second)
    places = _lanes(sends) if ranks <= MAX_RANKS and len(sends.source) <= MAX_BARS else None
    figure = _figure(10, max(3.0, 1.6 + 0.2 * ranks) if places is not None else 7)
    axes = figure.subplots()
    if places is not None:
        image, scale, what = _bars(axes, sends, ranks, places)
    else:
        image, scale, what = _rates(axes, sends, ranks)
    rates = np.asarray(image.get_array()) / second
    largest = float(rates.max(initial=0))
    size_of, prefix = _scaled(largest, PREFIXES)
    image.set_array(rates / size_of)
    image.set_clim(0, largest / size_of or 1)
    axes.set(xlabel=f"time ({unit})", ylabel=f"rank{scale}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    last = sends.end.max(initial=0)
    axes.set_title(f"{ranks} ranks, {len(sends.source)} messages, {last:.4g} {unit}")
    figure.colorbar(image, label=f"{what} ({prefix}B/s)")
    figure.savefig(path)


def _lanes(sends: Sends) -> Integers | None:
    """The lane of each message, so that messages of a rank do not hide each other."""
    places = np.zeros(len(sends.source), np.int64)
    order = np.lexsort((sends.end, sends.start))
    for rank in np.unique(sends.source):
        mine = order[sends.source[order] == rank]
        spans = zip(sends.start[mine].tolist(), sends.end[mine].tolist(), strict=True)
        for i, lane in zip(mine, lanes(spans), strict=True):
            if lane == MAX_LANES:
                return None
            places[i] = lane
    return places


def _bars(axes: Any, sends: Sends, ranks: int, places: Integers) -> tuple[Any, str, str]:
    from matplotlib.collections import PolyCollection

    source, start, end = sends.source, sends.start, sends.end
    duration, last = end - start, float(end.max(initial=0)) or 1.0
    rate = np.divide(sends.size, duration, out=np.zeros_like(sends.size), where=duration > 0)
    counts = np.ones(ranks, np.int64)
    np.maximum.at(counts, source, places + 1)
    height = 0.8 / counts[source]
    low = source - 0.4 + places * height
    corners = [[start, low], [start, low + height], [end, low + height], [end, low]]
    boxes = np.array(corners).transpose(2, 0, 1)
    # White edges would hide narrow bars. With edges of its own colour, each one can be seen.
    edges, line = ("white", 0.3) if (duration > last / MAX_COLUMNS * 4).all() else ("face", 1.0)
    bars = PolyCollection(list(boxes), array=rate, edgecolors=edges, linewidths=line)
    axes.add_collection(bars)
    axes.set_xlim(0, last)
    axes.set_ylim(ranks - 0.5, -0.5)
    return bars, "", "mean rate of the message"


def _rates(axes: Any, sends: Sends, ranks: int) -> tuple[Any, str, str]:
    last = float(sends.end.max(initial=0)) or 1.0
    together = -(-ranks // MAX_ROWS)
    rows, width = -(-ranks // together), last / MAX_COLUMNS
    row, size = sends.source // together, sends.size
    first, final = (
        np.minimum(at // width, MAX_COLUMNS - 1).astype(np.int64) for at in (sends.start, sends.end)
    )
    within = first == final
    rate = np.divide(size, sends.end - sends.start, out=np.zeros_like(size), where=~within)

    def added(column: Integers, value: Floats) -> Floats:
        cells = np.zeros((rows, MAX_COLUMNS))
        np.add.at(cells, (row, column), value)
        return cells

    # What a message sends in its first cell and in its last one, and in all cells between them.
    sent = added(first, np.where(within, size, rate * ((first + 1) * width - sends.start)))
    sent += added(final, np.where(within, 0, rate * (sends.end - final * width)))
    begins = added(np.minimum(first + 1, MAX_COLUMNS - 1), np.where(within, 0, rate * width))
    sent += (begins - added(final, np.where(within, 0, rate * width))).cumsum(axis=1)
    rates = np.maximum(sent / width / together, 0)
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


def _read_sends(path: str) -> tuple[Sends, int] | None:
    """Read messages and the number of ranks. There can be many: they are never kept as texts."""
    with Path(path).open(encoding="utf-8") as file:
        names = file.readline().strip().split(",")
        columns = [names.index(name) for name in ("source", "destination", "bytes", "start", "end")]
        rows = (line for line in file if line.strip())
        first = next(rows, None)
        if first is None:
            return None
        table = np.loadtxt(itertools.chain([first], rows), delimiter=",", usecols=columns, ndmin=2)
    source, destination, size, start, end = table.T
    ranks = int(max(source.max(), destination.max())) + 1
    return Sends(source.astype(np.int64), size, start, end), ranks


def _read_links(file: str, users: str) -> tuple[Links, list[HotLink]] | None:
    columns = _columns(file)
    if not columns:
        return None
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
            if links := _read_links(data, users):
                _heat_map(*links, picture)
                return 0
        case ["timeline", picture, data]:
            if sends := _read_sends(data):
                _timeline(*sends, picture)
                return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print(f"{data}: no rows: nothing to draw", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
