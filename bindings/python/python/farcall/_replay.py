"""A picture of a replayed day: the calls in progress over time.

python -m farcall._replay progress.csv picture.svg
"""

import csv
import sys
from pathlib import Path

COLUMNS = {"series", "seconds", "calls"}


def series(path: Path) -> dict[str, tuple[list[float], list[int]]]:
    """The moments of each series, and the calls in progress from then on."""
    found: dict[str, tuple[list[float], list[int]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        if COLUMNS.difference(table.fieldnames or ()):
            raise ValueError(f"{path} is no data of `farcall sim replay`")
        for row in table:
            moments, calls = found.setdefault(row["series"], ([], []))
            moments.append(float(row["seconds"]))
            calls.append(int(row["calls"]))
    return found


def draw(data: Path, picture: Path) -> None:
    """Draws a line for each series."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError:
        raise ImportError("pictures need matplotlib: pip install matplotlib") from None
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    styles = ("-", "--", "-")
    for (name, (moments, calls)), style in zip(series(data).items(), styles, strict=False):
        axes.step(moments, calls, style, where="post", label=name, linewidth=1.2)
    axes.set(xlabel="seconds since the first call", ylabel="calls in progress", xlim=0, ylim=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
