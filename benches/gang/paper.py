"""Draws Figs. 4 and 5 of the SCore-D paper again, from `farcall bench gang --part tree --json`.

python benches/gang/paper.py RESULT.json [--output FOLDER] [--format svg|png]
"""

import argparse
import json
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

NAMES = {"nap": "EP", "bar": "BAR"}


def main():
    """Draws the time of a switch by the number of nodes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--format", choices=["svg", "png"], default="svg")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    lines, limit = {}, []
    for row in json.loads(arguments.file.read_text())["rows"]:
        found = re.fullmatch(r"tree of (\d+) nodes, (\w+), switch", row["name"])
        if found:
            nodes, program = int(found[1]), found[2]
            lines.setdefault(program, []).append((nodes, row["value"] / 1e3))
            if program == "nap":
                limit.append((nodes, 3 * row["peer_value"] / 1e3))
    figure, axis = plt.subplots(figsize=(6, 4))
    for program, points in lines.items():
        axis.plot(*zip(*points, strict=True), marker="o", label=NAMES[program])
    axis.plot(*zip(*limit, strict=True), "--", color="black", label="three ways over the tree")
    axis.set_xscale("log", base=2)
    axis.set_xticks([nodes for nodes, _ in limit], [str(nodes) for nodes, _ in limit])
    axis.set(xlabel="nodes", ylabel="ms of a switch, or % of a slice of 100 ms", ylim=(0, None))
    axis.legend()
    figure.tight_layout()
    path = arguments.output / f"gang-tree.{arguments.format}"
    figure.savefig(path)
    print(path)


if __name__ == "__main__":
    main()
