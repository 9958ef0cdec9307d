#!/usr/bin/env python3
"""Reproduces the experiments of the MFS paper and prints them beside its statements.

    benches/flow/paper.py [--full] [--figures FOLDER] > docs/papers/flow-paper.md

The page goes to standard output, progress to standard error. --full also runs mode N on random
placements of more than 432 nodes, which takes hours. --figures draws Figs. 2, 3, 4 and 6
(matplotlib).
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

FARCALL = Path(__file__).resolve().parents[2] / "target" / "release" / "farcall"
FAT_TREES = range(3, 13)
TORI = range(10, 17)
MODES = {"exact": "exact", "N": "iterated", "F": "equal-split"}
# Table 2 as printed: seconds of MFS and of BigSimulator on 7 cores.
TABLE_2 = {
    100: (0.06, 11.79),
    121: (0.09, 16.25),
    144: (0.14, 23.10),
    169: (0.19, 31.48),
    196: (0.31, 42.43),
    225: (0.44, 56.17),
    256: (0.20, 67.27),
}

INTRODUCTION = """\
# MFS, run again

This page repeats the experiments of Yazaki and Ishihata, *Development of a Message Flow Simulator
for Evaluation of Communication Algorithms* (2010): Figs. 2, 3, 4, 6 and Table 2.
`benches/flow/paper.py` wrote it. CPU times are those of one core of this processor: {machine}.

[The flow simulator](../flow.md) defines the terms. Mode N follows the text of the paper, because
its Fig. 1 is lost. The example of that text (section 3.3, step 5) lets its two flows change
places: first f0 has 1/3 on another link, and then f1 has. We read it as one flow with 1/3, whose
unused 1/6 the other flow gets. The packet model of `farcall flow run --mode packets` takes the
place of BigSimulator, but it is not BigSimulator.
"""
FAT_TREES_TEXT = """\
## Figs. 2 and 3: all-to-all on full-bisection fat trees

The trees have N = 2p^3 nodes, p = 3..12. All bandwidths and sizes are 1. The algorithm is Pairwise
if N is a power of two (128 and 1024), and otherwise Simple-Spread. The columns for random
placements show the mean and the range over several seeds.
"""
TORI_TEXT = """\
## Fig. 4 and Table 2: all-to-all on tori

The networks are n x n tori with nodes on links of their own, messages of 20 KB and links of 1 GB/s.
Mode F is that of the paper. The packet model (1500 B, 16 packets in a buffer) replaces
BigSimulator.
"""
TIMES_TEXT = """\
Run times in CPU seconds on one core. The paper's times are from 2010; those of BigSimulator are on
7 cores.
"""


def simulate(platform_spec: str, pattern: str, size: float, mode: str, placement: str) -> dict:
    """Run one simulation and return what `farcall flow run --json` prints."""
    command = [FARCALL, "flow", "run", "--json", "--platform", platform_spec]
    command += ["--pattern", pattern, "--size", str(size), "--mode", mode]
    command += ["--placement", placement]
    print(*command[3:], file=sys.stderr)
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def table(header: list[str], rows: list[list]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |")
    print()


def fat_trees(full: bool) -> dict:
    """Figs. 2 and 3: results by (nodes, placement, mode), random ones over several seeds."""
    results = {}
    for p in FAT_TREES:
        nodes = 2 * p**3
        spec = f"fat-tree:ports={2 * p},levels=3"
        for name, mode in MODES.items():
            run = simulate(spec, "all-to-all", 1, mode, "regular")
            results[nodes, "regular", name] = [run]
            if name == "N" and nodes > 432 and not full:
                continue
            seeds = range(1, 11 if nodes <= 250 else 4 if nodes <= 1024 else 2)
            if name == "N" and nodes == 432:
                seeds = range(1, 4)
            runs = [simulate(spec, "all-to-all", 1, mode, f"random:{s}") for s in seeds]
            results[nodes, "random", name] = runs
    return results


def mean(runs: list[dict] | None, field: str) -> float | None:
    """Mean of a field over runs."""
    return statistics.fmean(run[field] for run in runs) if runs else None


def spread(runs: list[dict] | None) -> str | None:
    """Mean and range of the makespan."""
    if not runs:
        return None
    times = [run["makespan"] for run in runs]
    text = f"{statistics.fmean(times):.1f}"
    return text if len(times) == 1 else f"{text} ({min(times):.0f}-{max(times):.0f})"


def print_fat_trees(results: dict) -> None:
    """Figs. 2 and 3 with the paper's statements."""
    sizes = sorted({key[0] for key in results})
    print(FAT_TREES_TEXT)
    rows = []
    for n in sizes:
        get = lambda place, mode, n=n: results.get((n, place, mode))  # noqa: E731
        ratio = mean(get("random", "F"), "makespan") / mean(get("regular", "F"), "makespan")
        rows.append(
            [n, spread(get("regular", "exact"))]
            + [spread(get("random", mode)) for mode in MODES]
            + [f"{ratio:.2f}"]
        )
    header = ["nodes", "regular, all modes", "random exact", "random N", "random F", "F / regular"]
    table(header, rows)
    regular = all(
        abs(results[n, "regular", mode][0]["makespan"] - (n - 1)) < 1e-6
        for n in sizes
        for mode in MODES
    )
    ratios = [
        mean(results[n, "random", "F"], "makespan") / mean(results[n, "regular", "F"], "makespan")
        for n in sizes
    ]
    both = [n for n in sizes if (n, "random", "N") in results]
    gaps = [
        mean(results[n, "random", "F"], "makespan") / mean(results[n, "random", "N"], "makespan")
        - 1
        for n in both
    ]
    costs = [
        mean(results[n, "random", "N"], "cpu_s") / mean(results[n, "random", "F"], "cpu_s")
        for n in both
    ]
    exact = [
        mean(results[n, "random", "F"], "makespan")
        / mean(results[n, "random", "exact"], "makespan")
        - 1
        for n in sizes
    ]
    print("CPU seconds on one core:\n")
    rows = [
        [n]
        + [
            f"{mean(results[n, place, mode], 'cpu_s'):.3f}" if (n, place, mode) in results else None
            for place in ("regular", "random")
            for mode in MODES
        ]
        for n in sizes
    ]
    header = ["nodes"] + [f"{place} {mode}" for place in ("regular", "random") for mode in MODES]
    table(header, rows)
    statement = [
        [
            "regular: no contention, the ideal time (printed as N^2; with unit sizes N - 1)",
            f"N - 1 in every mode at every size: {regular}",
            "agrees" if regular else "does not agree",
        ],
        [
            "random / regular 2.5 (54 nodes) to 3.4 (3,456), mean 3.1",
            f"{ratios[0]:.2f} (54) to {ratios[-1]:.2f} (3,456), "
            f"mean {statistics.fmean(ratios):.2f} (mode F)",
            f"grows in the same way; the mean differs by {statistics.fmean(ratios) / 3.1 - 1:+.0%}",
        ],
        [
            "N and F differ by 0-4 % in time",
            f"F is {min(gaps):+.1%} to {max(gaps):+.1%} of N at {both} nodes; "
            f"{min(exact):+.1%} to {max(exact):+.1%} of exact at all sizes",
            "F is a good approximation, with a larger gap" if max(gaps) > 0.04 else "agrees",
        ],
        [
            "N costs 3.6 (54 nodes) to 11 times (3,456) as much as F, mean 7.8",
            f"{min(costs):.1f} to {max(costs):.1f} at {both} nodes; here F is "
            "computed incrementally, and N from the beginning in every cycle",
            "N costs more; the ratios are not comparable",
        ],
        [
            "run time grows with N^2, the number of messages",
            "mode F random, CPU per message: "
            + ", ".join(
                f"{mean(results[n, 'random', 'F'], 'cpu_s') / (n * (n - 1)) * 1e6:.2f} us at {n}"
                for n in (sizes[3], sizes[5], sizes[-1])
            ),
            "agrees",
        ],
    ]
    table(["the paper says", "here", "verdict"], statement)


def torus(n: int, pattern: str, mode: str) -> dict:
    """One run on the n x n torus of section 5: 20 KB messages, links of 1 GB/s."""
    return simulate(f"torus:{n}x{n},bandwidth=1e9,nic=link", pattern, 20e3, mode, "regular")


def print_tori() -> dict:
    """Fig. 4 and Table 2 with the paper's statements."""
    print(TORI_TEXT)
    flows = {n: torus(n, "all-to-all", "equal-split") for n in TORI}
    exact = {n: torus(n, "all-to-all", "exact") for n in TORI}
    packets = {n: torus(n, "all-to-all", "packets") for n in TORI}
    bound = {n: n**3 / 8 * 20e-6 for n in TORI}
    rows = [
        [
            n * n,
            *(f"{r[n]['makespan'] * 1e3:.2f}" for r in (flows, exact, packets)),
            f"{bound[n] * 1e3:.2f}",
            f"{flows[n]['makespan'] / packets[n]['makespan'] - 1:+.0%}",
        ]
        for n in TORI
    ]
    header = ["nodes", "mode F (ms)", "exact (ms)", "packets (ms)", "bound (ms)"]
    header += ["F against packets"]
    table(header, rows)
    print(TIMES_TEXT)
    rows = []
    for n in TORI:
        mfs, big = TABLE_2[n * n]
        rows.append(
            [
                n * n,
                f"{flows[n]['cpu_s']:.4f}",
                f"{packets[n]['cpu_s']:.3f}",
                f"{packets[n]['cpu_s'] / flows[n]['cpu_s']:.0f}",
                mfs,
                big,
                f"{big / mfs:.0f}",
            ]
        )
    header = ["nodes", "mode F", "packets", "ratio", "MFS printed", "BigSimulator printed", "ratio"]
    table(header, rows)
    below = [1 - flows[n]["makespan"] / packets[n]["makespan"] for n in TORI]
    nearer = [
        abs(flows[n]["makespan"] - packets[n]["makespan"]) < abs(bound[n] - packets[n]["makespan"])
        for n in TORI
    ]
    times = [packets[n]["cpu_s"] / flows[n]["cpu_s"] for n in TORI]
    drop = flows[16]["makespan"] < flows[15]["makespan"]
    drop_too = packets[16]["makespan"] < packets[15]["makespan"]
    table(
        ["the paper says", "here", "verdict"],
        [
            [
                "MFS is about 40 % below BigSimulator on average",
                f"mode F is {statistics.fmean(below):.0%} below the packet model on average "
                f"({min(below):.0%} to {max(below):.0%})",
                "does not agree: this packet model lacks the costs in nodes and switches that "
                "the paper suspects in BigSimulator",
            ],
            [
                "MFS is always nearer to BigSimulator than the bound n^3/8 is",
                f"nearer to the packet model at {sum(nearer)} of {len(nearer)} sizes",
                "agrees" if all(nearer) else "does not agree",
            ],
            [
                "both times drop at 256 nodes, where Pairwise applies",
                f"drop in mode F: {drop}; packets: {drop_too}",
                "agrees" if drop and drop_too else "does not agree",
            ],
            [
                "MFS is 127-337 (188) times faster than BigSimulator on 7 cores",
                f"mode F is {min(times):.0f}-{max(times):.0f} ({statistics.fmean(times):.0f}) "
                "times faster than the packet model on one core",
                "flows cost far less than packets; the ratios are not comparable",
            ],
        ],
    )
    return {"flows": flows, "packets": packets, "bound": bound}


def print_algorithms() -> dict:
    """Fig. 6 with the paper's statement."""
    print("## Fig. 6: three all-to-all algorithms on the 16 x 16 torus\n")
    names = {
        "A2ASS": "all-to-all:simple-spread",
        "A2ASS2D": "all-to-all:simple-spread-2d",
        "A2APW": "all-to-all:pairwise",
    }
    models = ("equal-split", "exact", "packets")
    times = {
        name: [torus(16, pattern, mode)["makespan"] * 1e3 for mode in models]
        for name, pattern in names.items()
    }
    header = ["algorithm", "mode F (ms)", "exact (ms)", "packets (ms)"]
    table(header, [[name, *(f"{t:.2f}" for t in row)] for name, row in times.items()])
    order = {
        model: " > ".join(sorted(times, key=lambda name, i=i: -times[name][i]))
        for i, model in enumerate(models)
    }
    told = "; ".join(f"{model}: {text}" for model, text in order.items())
    table(
        ["the paper says", "here", "verdict"],
        [
            [
                "time falls in the order A2ASS > A2ASS2D > A2APW, in both simulators",
                told,
                "agrees"
                if set(order.values()) == {"A2ASS > A2ASS2D > A2APW"}
                else "does not agree in all models",
            ]
        ],
    )
    return times


def draw(folder: Path, trees: dict, tori: dict, algorithms: dict) -> None:
    """Draw the four figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    sizes = sorted({key[0] for key in trees})
    for field, label, name in (
        ("makespan", "virtual communication time", "fig2.svg"),
        ("cpu_s", "CPU time (s)", "fig3.svg"),
    ):
        figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
        for place in ("regular", "random"):
            for mode in MODES:
                known = [n for n in sizes if (n, place, mode) in trees]
                values = [mean(trees[n, place, mode], field) for n in known]
                axes.loglog(known, values, marker="o", markersize=3, label=f"{place} {mode}")
        axes.set(xlabel="nodes", ylabel=label)
        axes.legend(fontsize="small")
        figure.savefig(folder / name)
        plt.close(figure)
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    nodes = [n * n for n in TORI]
    axes.plot(nodes, [tori["packets"][n]["makespan"] * 1e3 for n in TORI], "+-", label="packets")
    axes.plot(nodes, [tori["flows"][n]["makespan"] * 1e3 for n in TORI], "x-", label="mode F")
    axes.plot(nodes, [tori["bound"][n] * 1e3 for n in TORI], "--", label="bound")
    axes.set(xlabel="nodes", ylabel="virtual communication time (ms)", ylim=(0, None))
    axes.legend()
    figure.savefig(folder / "fig4.svg")
    plt.close(figure)
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for i, model in enumerate(("mode F", "exact", "packets")):
        positions = [x + 0.27 * (i - 1) for x in range(len(algorithms))]
        axes.bar(positions, [row[i] for row in algorithms.values()], 0.25, label=model)
    axes.set_xticks(range(len(algorithms)), algorithms)
    axes.set(ylabel="virtual communication time (ms)")
    axes.legend()
    figure.savefig(folder / "fig6.svg")
    plt.close(figure)


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="mode N on large random placements")
    parser.add_argument("--figures", type=Path, help="folder for the figures")
    arguments = parser.parse_args()
    machine = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            machine = line.split(":", 1)[1].strip()
            break
    print(INTRODUCTION.format(machine=machine))
    trees = fat_trees(arguments.full)
    print_fat_trees(trees)
    tori = print_tori()
    algorithms = print_algorithms()
    if arguments.figures:
        draw(arguments.figures, trees, tori, algorithms)


if __name__ == "__main__":
    main()
