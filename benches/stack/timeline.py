"""Draws what happened in a run of `farcall bench stack --timeline FOLDER`.

python benches/stack/timeline.py FOLDER PICTURE
"""

import argparse
import csv
import json
import re
from pathlib import Path

import matplotlib as mpl
from farcall._gantt import slices

mpl.use("Agg")
from matplotlib import pyplot as plt

PARALLEL, SERIAL, BATCH, DOWN = "#d95f02", "#7570b3", "#c7c7c7", "#e31a1c"
UP = "#66a61e"
# Processor elements of a site.
ELEMENTS = 4


def links(events, trunks, begin, end):
    """The spans of a node's links to the others: (node, link, begin, end, whether it is up)."""
    names = {address: name for name, address in trunks.items()}
    since = {}
    for event in sorted(events, key=lambda event: event["time"]):
        found = re.match(r"link (\S+) to (\S+) (up|down)", event["text"])
        if found and found[2] in names:
            key, is_up = (names[found[2]], found[1]), found[3] == "up"
            at, was_up = since.get(key, (begin, True))
            yield *key, at, max(event["time"], begin), was_up
            since[key] = max(event["time"], begin), is_up
    for key, (at, is_up) in since.items():
        yield *key, at, end, is_up


def draw_links(axis, events, trunks, start, end):
    """A bar for each link of the first node to another node."""
    spans = [span for span in links(events, trunks, start, start + end) if span[3] > span[2]]
    rows = sorted({span[:2] for span in spans}, reverse=True)
    for node, link, begin, until, is_up in spans:
        axis.broken_barh(
            [(begin - start, until - begin)],
            (rows.index((node, link)) - 0.35, 0.7),
            color=UP if is_up else DOWN,
        )
    axis.set_yticks(range(len(rows)), [f"{node} {link}" for node, link in rows], fontsize=7)
    axis.set_ylabel("links")


def draw_slices(axis, trace, start_ns, end):
    """A row for each node: the batch job, and the jobs of parallel calls over it."""
    with trace.open(newline="", encoding="utf-8") as file:
        first = int(next(csv.DictReader(file))["start_ns"])
    offset = (first - start_ns) / 1e9
    found = [each for each in slices(trace) if each.end + offset > 0]
    # Workers wait as jobs of one process until they know what they serve.
    width = {job: len({s.node for s in found if s.job == job}) for job in {s.job for s in found}}
    nodes = sorted({each.node for each in found}, reverse=True)
    batch = max(width, key=width.get, default=None)
    for each in found:
        begin, until = max(each.begin + offset, 0), min(each.end + offset, end)
        axis.broken_barh(
            [(begin, until - begin)],
            (nodes.index(each.node) - 0.4, 0.8),
            color=BATCH if each.job == batch else PARALLEL,
            zorder=2 if each.job == batch else 3,
        )
    axis.set_yticks(range(len(nodes)), nodes, fontsize=7)
    axis.set_ylabel("gang")


def draw_calls(axis, calls, end):
    """How many processor elements compute for serial and for parallel calls."""
    times = sorted({0, end, *(c[key] for c in calls for key in ("start_s", "end_s"))})
    heights = {1: [], ELEMENTS: []}
    for at in times:
        for pes, height in heights.items():
            own = (c for c in calls if c["pes"] == pes)
            height.append(sum(pes for c in own if c["start_s"] <= at < c["end_s"]))
    axis.stackplot(
        times, heights[1], heights[ELEMENTS], colors=[SERIAL, PARALLEL], step="post", lw=0
    )
    axis.set_ylim(0, ELEMENTS * 1.15)
    axis.set_yticks([0, ELEMENTS])
    axis.set_ylabel("calls")


def main():
    """Draws links, gang slices and calls of both sites over the same time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder
    told = json.loads((folder / "calls.json").read_text())
    right = [call for call in told["calls"] if call["fate"] == "right"]
    end = max(call["end_s"] for call in told["calls"])
    # The server of the second site, which drains, ends first.
    servers = sorted(
        {call["server"] for call in right},
        key=lambda server: -max(c["end_s"] for c in right if c["server"] == server),
    )
    figure, axes = plt.subplots(
        6, 1, sharex=True, figsize=(10, 9), gridspec_kw={"height_ratios": [3, 2, 1.3] * 2}
    )
    for site, (three, server) in enumerate(zip((axes[:3], axes[3:]), servers, strict=True)):
        name = "ab"[site]
        events = told["links"][site]
        draw_links(three[0], events, told["trunks"], told["start_unix"], end)
        draw_slices(three[1], folder / f"gang-{name}.csv", told["start_ns"], end)
        draw_calls(three[2], [call for call in right if call["server"] == server], end)
        three[0].set_title(f"site {name}", loc="left", fontsize=9, fontweight="bold")
    for at, what in told["faults"]:
        for axis in axes:
            axis.axvline(at, color="black", lw=0.8, ls="--", zorder=4)
        axes[0].annotate(
            what, (at, 1.02), xycoords=("data", "axes fraction"), fontsize=7, rotation=12
        )
    failed = [call["end_s"] for call in told["calls"] if call["fate"] != "right"]
    axes[5].plot(failed, [ELEMENTS] * len(failed), "x", color=DOWN, clip_on=False)
    axes[5].set_xlabel("seconds")
    handles = [
        plt.Rectangle((0, 0), 1, 1, color=color) for color in (UP, DOWN, BATCH, PARALLEL, SERIAL)
    ]
    names = ["link up", "link down", "batch job", "parallel calls", "serial calls"]
    figure.legend(handles, names, loc="lower center", ncol=5, fontsize=8, frameon=False)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.92, bottom=0.09, hspace=0.25)
    figure.savefig(arguments.picture, dpi=110)


if __name__ == "__main__":
    main()
