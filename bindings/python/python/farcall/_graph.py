"""A picture of a transaction: a box for each call, an arrow for each array between calls.

python -m farcall._graph graph.dot picture.svg
"""

import io
import re
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path as File
from statistics import fmean
from typing import Any, NamedTuple

LABEL = r'label="((?:[^"\\]|\\.)*)"'
BOX = re.compile(rf"^\s*c(\d+) \[{LABEL} shape=box\];$", re.MULTILINE)
ARROW = re.compile(rf"^\s*c(\d+) -> c(\d+) \[{LABEL}( style=dashed)?\];$", re.MULTILINE)
# Inches.
LAYER = 1.0
BOX_HEIGHT = 0.32
BEND_WIDTH = 0.4
LETTER = 0.085
# Passes over the layers that move calls near those that they exchange arrays with.
PASSES = 8
# Arrows that would have more bends are straight.
MOST_BENDS = 5000


class Arrow(NamedTuple):
    """An array between two calls; dashed if the second call only waits for the first."""

    before: int
    after: int
    label: str
    dashed: bool


def read(dot: str) -> tuple[list[str], list[Arrow]]:
    """The texts of the calls, in their order, and the arrows between them."""

    def plain(text: str) -> str:
        return re.sub(r"\\(.)", r"\1", text)

    calls = [plain(match[2]) for match in BOX.finditer(dot)]
    arrows = [
        Arrow(int(match[1]), int(match[2]), plain(match[3]), match[4] is not None)
        for match in ARROW.finditer(dot)
    ]
    return calls, arrows


def layers(calls: int, arrows: list[Arrow]) -> tuple[list[list[int]], list[list[int]]]:
    """The nodes of each layer from left to right, and the nodes of each arrow.

    Nodes from `calls` on are bends of arrows that pass a layer. All arrows point down.
    """
    depth = [0] * calls
    for arrow in sorted(arrows, key=lambda arrow: arrow.after):
        depth[arrow.after] = max(depth[arrow.after], depth[arrow.before] + 1)
    rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for call in range(calls):
        rows[depth[call]].append(call)
    ways, nodes = [], calls
    bends = sum(depth[arrow.after] - depth[arrow.before] - 1 for arrow in arrows)
    for arrow in arrows:
        way = [arrow.before]
        passed = range(depth[arrow.before] + 1, depth[arrow.after])
        for row in (rows[at] for at in passed if bends <= MOST_BENDS):
            row.append(nodes)
            way.append(nodes)
            nodes += 1
        ways.append([*way, arrow.after])
    up, down = defaultdict(list), defaultdict(list)
    for way in ways:
        for above, below in pairwise(way):
            up[below].append(above)
            down[above].append(below)
    place = {node: float(at) for row in rows for at, node in enumerate(row)}
    for each in range(PASSES):
        near, order = (up, rows) if each % 2 == 0 else (down, rows[::-1])
        for row in order:
            wish = {n: fmean(place[m] for m in near[n]) if near[n] else place[n] for n in row}
            row.sort(key=wish.__getitem__)
            place.update((node, float(at)) for at, node in enumerate(row))
    return rows, ways


def svg(dot: str) -> str:
    """The picture of a graph that `farcall` wrote in the DOT language."""
    try:
        import matplotlib  # noqa: PLC0415
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from None
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import FancyArrowPatch  # noqa: PLC0415
    from matplotlib.path import Path  # noqa: PLC0415

    calls, arrows = read(dot)
    rows, ways = layers(len(calls), arrows)
    at: dict[int, tuple[float, float]] = {}
    widest = 1.0
    for depth, row in enumerate(rows):
        widths = [0.5 + LETTER * len(calls[n]) if n < len(calls) else BEND_WIDTH for n in row]
        left = -sum(widths) / 2
        widest = max(widest, -2 * left)
        for node, width in zip(row, widths, strict=True):
            at[node] = left + width / 2, -LAYER * depth
            left += width
    size = widest, LAYER * max(len(rows), 1)
    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-size[0] / 2, size[0] / 2), ylim=(LAYER / 2 - size[1], LAYER / 2))
    axes.set_axis_off()
    for arrow, way in zip(arrows, ways, strict=True):
        points: list[tuple[float, float]] = []
        codes: list[Any] = []
        for above, below in pairwise(way):
            (x, y), (to, end) = at[above], at[below]
            y -= BOX_HEIGHT / 2 * (above == way[0])
            end += BOX_HEIGHT / 2 * (below == way[-1])
            points += [(x, y)] if not points else []
            points += [(x, (y + end) / 2), (to, (y + end) / 2), (to, end)]
            codes += [Path.CURVE4] * 3
        line = Path(points, [Path.MOVETO, *codes])
        style = "dashed" if arrow.dashed else "solid"
        head: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 9}
        axes.add_patch(FancyArrowPatch(path=line, linestyle=style, color="0.4", **head))
        (x, y), (to, end) = points[0], points[3]
        axes.text((x + to) / 2, (y + end) / 2, f" {arrow.label}", fontsize=8, parse_math=False)
    box = {"boxstyle": "round,pad=0.4", "facecolor": "white", "edgecolor": "black"}
    middle: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
    for call, label in enumerate(calls):
        axes.text(*at[call], label, fontsize=9, bbox=box, **middle)
    picture = io.StringIO()
    # Keep texts as texts, so that readers can search for them.
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(picture, format="svg")
    return picture.getvalue()


def main() -> None:
    """The command."""
    graph, picture = map(File, sys.argv[1:])
    picture.write_text(svg(graph.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
