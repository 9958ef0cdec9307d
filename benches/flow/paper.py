#!/usr/bin/env python3
"""Reproduces the experiments of the MFS paper and prints them beside its statements.

    benches/flow/paper.py --figures docs/images > docs/papers/flow-paper.md

The page goes to standard output, progress to standard error. --figures draws Figs. 2 to 6
(matplotlib). --full runs mode N to the end on trees of more than 1458 nodes as well, which takes
hours; else it sends the first messages of each node there. The environment variable FARCALL can
name another program than target/release/farcall.
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / "target" / "release" / "farcall"
FARCALL = os.environ.get("FARCALL", str(BUILT))
FAT_TREES = range(3, 13)
TORI = range(10, 17)
MODES = {"exact": "exact", "N": "iterated", "F": "equal-split"}
# Mode F as the paper runs it: from the beginning in each cycle, as mode N without its rounds.
PUBLISHED_F = "published F"
# The largest tree whose random runs go to their end in mode N, and the messages of each node in
# larger ones.
WHOLE = 1458
FIRST = 50
ALGORITHMS = {
    "A2ASS": "all-to-all:simple-spread",
    "A2ASS2D": "all-to-all:simple-spread-2d",
    "A2APW": "all-to-all:pairwise",
}
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
for Evaluation of Communication Algorithms* (2010): the example of step 5, Figs. 2 to 6 and Table 2.
`benches/flow/paper.py` wrote it. CPU times are those of one core of this processor: {machine}.
{note}
[The flow simulator](../flow.md) defines the terms. Mode N follows the text of the paper, because
its Fig. 1 is lost. The packet model of `farcall flow run --mode packets` takes the place of
BigSimulator, but it is not BigSimulator.
"""
STEP_5_TEXT = """\
## The example of step 5 (section 3.3)

Step 5 is what mode N adds to mode F. The paper explains it with links of bandwidth 1. Two flows
share the link l0, and another link l1 limits one of them to 1/3. Half of l0 is too much for this
flow, so the other one gets the unused 1/2 - 1/3 = 1/6. The text lets the two flows change places on
the way: first f0 has the 1/3, and then f1 has. Here f0 has it, because two more flows are on l1.
All four messages have size 1, so a rate is 1 divided by the time:
"""
FAT_TREES_TEXT = """\
## Figs. 2 and 3: all-to-all on full-bisection fat trees

The trees have N = 2p^3 nodes, p = 3..12. All bandwidths and sizes are 1. The algorithm is Pairwise
if N is a power of two (128 and 1024), and otherwise Simple-Spread. The columns for random
placements show the mean and the range over several seeds.

![Fig. 2: communication time over nodes](../images/mfs-fig2.svg)

![Fig. 3: run time over nodes](../images/mfs-fig3.svg)
"""
COSTS_TEXT = """\
The next table compares the costs of modes N and F as the paper runs them: both compute all rates
from the beginning in each cycle (`--mode iterated --threshold inf` is mode F in this form). The
seed of the placement is 1. {first}
"""
ORDER_TEXT = """\
## Fig. 5: the order of sends

On the 4 x 4 torus, this is the place of each node in the order in which node 1 sends. Node numbers
grow from left to right, then downwards.

![Fig. 5: the order of sends](../images/mfs-fig5.svg)
"""
TORI_TEXT = """\
## Fig. 4 and Table 2: all-to-all on tori

The networks are n x n tori with nodes on links of their own, messages of 20 KB and links of 1 GB/s.
Mode F is that of the paper. The packet model (1500 B, 16 packets in a buffer) replaces
BigSimulator.

![Fig. 4: communication time on tori](../images/mfs-fig4.svg)
"""
TIMES_TEXT = """\
Run times in CPU seconds on one core. The paper's times are from 2010; those of BigSimulator are on
7 cores.
"""


def simulate(
    platform_spec: str,
    pattern: str,
    size: float | None,
    mode: str,
    placement: str = "regular",
    options: tuple[object, ...] = (),
) -> dict:
    """Run one simulation and return what `farcall flow run --json` prints."""
    command = [FARCALL, "flow", "run", "--json", "--platform", platform_spec]
    command += ["--pattern", pattern, "--mode", mode, "--placement", placement]
    command += ["--size", str(size)] if size is not None else []
    command += map(str, options)
    print(*command[3:], file=sys.stderr)
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def table(header: list[str], rows: list[list]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |")
    print()


def messages(platform_spec: str, pattern: str, size: float | None, mode: str) -> list[dict]:
    """The messages of a simulation, in the order in which they start."""
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as file:
        simulate(platform_spec, pattern, size, mode, options=("--messages", file.name))
        rows = list(csv.DictReader(file))
    return sorted(rows, key=lambda row: float(row["start"]))


def print_step_5() -> None:
    """The example of step 5 as four messages in one network."""
    ends = {"f0": (0, 1), "f1": (2, 3), "f2": (4, 5), "f3": (6, 7)}
    edges = ["A,B,1", "B,C,1", "B,A,9", "C,B,9"]
    at = {0: "A", 1: "C", 2: "A", 3: "B", 4: "B", 5: "C", 6: "B", 7: "C"}
    edges += [f"both,{node},{switch},9" for node, switch in at.items()]
    with tempfile.TemporaryDirectory() as folder:
        network, pattern = Path(folder, "network.csv"), Path(folder, "pattern.csv")
        network.write_text("\n".join(edges), encoding="utf-8")
        rows = [f"{source},{destination},1,1" for source, destination in ends.values()]
        pattern.write_text("\n".join(rows), encoding="utf-8")
        rates = {}
        for name, mode in MODES.items():
            sent = messages(f"edges:{network}", f"file:{pattern}", None, mode)
            time = {int(row["source"]): float(row["end"]) for row in sent}
            rates[name] = [f"{1 / time[source]:.4f}" for source, _ in ends.values()]
    print(STEP_5_TEXT)
    links = ["l0, l1", "l0", "l1", "l1"]
    header = ["flow", "links", "mode F (before step 5)", "mode N (after step 5)", "max-min"]
    columns = (ends, links, rates["F"], rates["N"], rates["exact"])
    table(header, list(map(list, zip(*columns, strict=True))))


def print_order() -> dict:
    """Fig. 5: the order in which node 1 of the 4 x 4 torus sends."""
    print(ORDER_TEXT)
    orders = {}
    for name, pattern in ALGORITHMS.items():
        sent = messages("torus:4x4", pattern, 1, "exact")
        own = [int(row["destination"]) for row in sent if row["source"] == "1"]
        orders[name] = {node: place + 1 for place, node in enumerate(own)}

    def row(order: dict, y: int) -> str:
        return " ".join(f"{order.get(4 * y + x, 'src'):>3}" for x in range(4))

    print("```text")
    print("   ".join(f"{name:15}" for name in orders).rstrip())
    for y in range(4):
        print("   ".join(row(order, y) for order in orders.values()))
    print("```\n")
    expected = {
        "A2ASS": [(1 + p) % 16 for p in range(1, 16)],
        "A2ASS2D": [(1 + p % 4) % 4 + p // 4 % 4 * 4 for p in range(1, 16)],
        "A2APW": [1 ^ p for p in range(1, 16)],
    }
    same = all(list(orders[name]) == expected[name] for name in orders)
    table(
        ["the paper says", "here", "verdict"],
        [
            [
                "the p-th message goes as equations (1), (2) and (3) say",
                f"each of the 15 messages of each algorithm does: {same}",
                "agrees" if same else "does not agree",
            ]
        ],
    )
    return orders


def fat_trees(full: bool) -> dict:
    """Figs. 2 and 3: results by (nodes, placement, mode), random ones over several seeds."""
    results = {}
    for p in FAT_TREES:
        nodes = 2 * p**3
        spec = f"fat-tree:ports={2 * p},levels=3"
        for name, mode in MODES.items():
            run = simulate(spec, "all-to-all", 1, mode, "regular")
            results[nodes, "regular", name] = [run]
            if name == "N" and nodes > WHOLE and not full:
                continue
            seeds = range(1, 11 if nodes <= 250 else 4 if nodes <= 1024 else 2)
            if name == "N" and nodes >= 432:
                seeds = range(1, 4 if nodes == 432 else 2)
            runs = [simulate(spec, "all-to-all", 1, mode, f"random:{s}") for s in seeds]
            results[nodes, "random", name] = runs
        steps = () if nodes <= WHOLE or full else ("--steps", FIRST)
        for name, options in (("N", ()), (PUBLISHED_F, ("--threshold", "inf"))):
            run = simulate(spec, "all-to-all", 1, "iterated", "random:1", (*options, *steps))
            results[nodes, "cost", name] = [run]
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
    costs = print_costs(results, sizes)
    exact = [
        mean(results[n, "random", "F"], "makespan")
        / mean(results[n, "random", "exact"], "makespan")
        - 1
        for n in sizes
    ]
    rounds = [run["rounds"] / run["events"] for n in sizes for run in results[n, "cost", "N"]]
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
            f"F is {min(gaps):+.1%} to {max(gaps):+.1%} of N at {both[0]} to {both[-1]} nodes; "
            f"{min(exact):+.1%} to {max(exact):+.1%} of exact at all sizes",
            "F is a good approximation, with a larger gap" if max(gaps) > 0.04 else "agrees",
        ],
        [
            "N costs 3.6 (54 nodes) to 11 times (3,456) as much as F, mean 7.8",
            f"{costs[0]:.1f} (54) to {costs[-1]:.1f} (3,456), mean {statistics.fmean(costs):.1f}",
            "does not agree: N costs less here, because a round looks only at flows that no full "
            "link limits, and there are fewer rounds",
        ],
        [
            "8 to 13 rounds of step 5 in a cycle",
            f"{min(rounds):.1f} to {max(rounds):.1f}, the last of which changes no rate by more "
            "than 1 %",
            "fewer: the loop of the lost Fig. 1 is another one",
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


def print_costs(results: dict, sizes: list[int]) -> list[float]:
    """The cost of mode N over mode F, both from the beginning in each cycle."""
    first = [n for n in sizes if results[n, "cost", "N"][0]["messages"] < n * (n - 1)]
    told = "".join(
        f"From {n} nodes on, each node sends only its first {FIRST} messages." for n in first[:1]
    )
    print(COSTS_TEXT.format(first=told))
    rows, costs = [], []
    for n in sizes:
        (iterated,), (split,) = results[n, "cost", "N"], results[n, "cost", PUBLISHED_F]
        costs.append(iterated["cpu_s"] / split["cpu_s"])
        rows.append(
            [
                n,
                f"{iterated['cpu_s']:.3f}",
                f"{split['cpu_s']:.3f}",
                f"{costs[-1]:.2f}",
                f"{iterated['rounds'] / iterated['events']:.1f}",
                f"{split['makespan'] / iterated['makespan'] - 1:+.1%}",
            ]
        )
    header = ["nodes", "N (CPU s)", "F (CPU s)", "N / F", "rounds of step 5 in a cycle"]
    table([*header, "time of F against N"], rows)
    return costs


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
    return {"flows": flows, "exact": exact, "packets": packets, "bound": bound}


def print_algorithms() -> dict:
    """Fig. 6 with the paper's statement."""
    print("## Fig. 6: three all-to-all algorithms on the 16 x 16 torus\n")
    print("![Fig. 6: three algorithms](../images/mfs-fig6.svg)\n")
    models = ("equal-split", "exact", "packets")
    times = {
        name: [torus(16, pattern, mode)["makespan"] * 1e3 for mode in models]
        for name, pattern in ALGORITHMS.items()
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


def draw(folder: Path, trees: dict, tori: dict, orders: dict, algorithms: dict) -> None:
    """Draw Figs. 2 to 6."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "mfs"
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)

    def figure(number: int, columns: int = 1) -> tuple:
        picture, axes = pyplot.subplots(
            1, columns, figsize=(6.4 if columns == 1 else 7.5, 3.6), layout="constrained"
        )

        def save() -> None:
            name = folder / f"mfs-fig{number}.svg"
            picture.savefig(name, metadata={"Date": None})
            text = name.read_text(encoding="utf-8").splitlines()
            name.write_text("\n".join(line.rstrip() for line in text) + "\n", encoding="utf-8")
            pyplot.close(picture)

        return axes, save

    sizes = sorted({key[0] for key in trees})
    fields = {2: ("makespan", "virtual communication time"), 3: ("cpu_s", "CPU time (s)")}
    for number, (field, label) in fields.items():
        axes, save = figure(number)
        for place, line in (("regular", "--"), ("random", "-")):
            for mode, marker in zip(MODES, "o+x", strict=True):
                known = [n for n in sizes if (n, place, mode) in trees]
                values = [mean(trees[n, place, mode], field) for n in known]
                axes.loglog(known, values, line, marker=marker, label=f"{place}, {mode}")
        axes.set(xlabel="nodes", ylabel=label)
        axes.legend(fontsize="small")
        save()
    axes, save = figure(4)
    nodes = [n * n for n in TORI]
    for name, label, line in (
        ("packets", "packets", "+-"),
        ("flows", "mode F", "x-"),
        ("exact", "exact", "o:"),
    ):
        axes.plot(nodes, [tori[name][n]["makespan"] * 1e3 for n in TORI], line, label=label)
    axes.plot(nodes, [tori["bound"][n] * 1e3 for n in TORI], "k--", label="bound")
    axes.set(xlabel="nodes", ylabel="virtual communication time (ms)", ylim=(0, None))
    axes.legend()
    save()
    panels, save = figure(5, len(orders))
    for axes, (name, order) in zip(panels, orders.items(), strict=True):
        for node in range(16):
            x, y = node % 4, node // 4
            mine = node not in order
            axes.add_patch(pyplot.Circle((x, y), 0.36, fc="0.85" if mine else "white", ec="black"))
            text = "src" if mine else str(order[node])
            axes.text(x, y, text, ha="center", va="center")
        axes.set(xlim=(-0.6, 3.6), ylim=(3.6, -0.6), aspect="equal", title=name)
        axes.axis("off")
    save()
    axes, save = figure(6)
    for i, model in enumerate(("mode F", "exact", "packets")):
        positions = [x + 0.27 * (i - 1) for x in range(len(algorithms))]
        axes.bar(positions, [row[i] for row in algorithms.values()], 0.25, label=model)
    axes.set_xticks(range(len(algorithms)), algorithms)
    axes.set(ylabel="virtual communication time (ms)")
    axes.legend()
    save()


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="mode N to the end on large trees")
    parser.add_argument("--figures", type=Path, help="folder for the figures")
    parser.add_argument("--note", help="a sentence about the circumstances of this run")
    arguments = parser.parse_args()
    machine = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            machine = line.split(":", 1)[1].strip()
            break
    note = f"{arguments.note}\n" if arguments.note else ""
    print(INTRODUCTION.format(machine=machine, note=note))
    print_step_5()
    trees = fat_trees(arguments.full)
    print_fat_trees(trees)
    tori = print_tori()
    orders = print_order()
    algorithms = print_algorithms()
    if arguments.figures:
        draw(arguments.figures, trees, tori, orders, algorithms)


if __name__ == "__main__":
    main()
