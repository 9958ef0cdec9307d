"""The figures of the first Ninf paper's experiments again, from what `farcall bench load` measured.

python benches/load/paper.py FILE.json ... [--output FOLDER]

Each file holds what `farcall bench load single|many|threads|ep --json` printed. Draws performance
of each call and load by the number of clients (Tables 3 to 5 and 8), clients times threads
(Fig. 6), and one client beside local code (Figs. 3 and 4), and prints the tables as Markdown.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    """Draws and prints what is in the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path("out"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for file in arguments.files:
        measured = json.loads(file.read_text())
        if measured["cases"]:
            experiment = measured["cases"][0]["experiment"]
            print_cases(measured["cases"])
            draw = draw_grid if experiment == "threads" else draw_clients
            draw(measured["cases"], arguments.output / f"load-{experiment}.svg")
        else:
            print_rows(measured["rows"])
            draw_single(measured["rows"], arguments.output / "load-single.svg")


def print_cases(cases):
    """A table like the paper's Tables 3 to 5."""
    print("| | n | c | calls | Mflop/s max/min/mean | all | CPU % | load | T_response | T_wait |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in cases:
        rate = "/".join(f"{case['mflops'][part] or 0:.0f}" for part in ("max", "min", "mean"))
        response, wait = (case[name] or 0 for name in ("t_response_s", "t_wait_s"))
        print(
            f"| {case['way']} | {case['n']} | {case['clients']} | {case['calls']} | {rate}"
            f" | {case['aggregate_mflops']:.0f} | {case['cpu_percent']:.0f} | {case['load']:.1f}"
            f" | {response * 1e3:.1f} ms | {wait * 1e3:.1f} ms |"
        )


def print_rows(rows):
    """One line for each row."""
    print("| | ours | | beside | its | ratio |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['name']} | {row['value']:.0f} | {row['unit']} | {row['peer']}"
            f" | {row['peer_value']:.0f} | {row['ratio']:.2f} |"
        )


def draw_clients(cases, path):
    """Mean performance of a call and load of the machine by the number of clients."""
    sizes = sorted({case["n"] for case in cases})
    figure, axes = plt.subplots(2, len(sizes), figsize=(4 * len(sizes), 6), squeeze=False)
    for column, size in enumerate(sizes):
        for way in dict.fromkeys(case["way"] for case in cases):
            of_way = [case for case in cases if (case["n"], case["way"]) == (size, way)]
            clients = [case["clients"] for case in of_way]
            means = [case["mflops"]["mean"] for case in of_way]
            axes[0][column].plot(clients, means, marker="o", label=way)
            axes[1][column].plot(clients, [case["load"] for case in of_way], marker="o")
        axes[0][column].set(title=f"n = {size}", xscale="log", yscale="log")
        axes[1][column].set(xlabel="clients", xscale="log", yscale="log")
    axes[0][0].set_ylabel("Mflop/s of a call, mean")
    axes[1][0].set_ylabel("running and runnable")
    axes[0][0].legend()
    save(figure, path)


def draw_grid(cases, path):
    """All clients' performance by clients and threads, for the queue and without one."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axis, way in zip(axes, ("queue", "at once"), strict=True):
        for threads in (1, 2, 4, 8, 16):
            name = f"{way}, t = {threads}"
            of_way = [case for case in cases if case["way"] == name]
            clients = [case["clients"] for case in of_way]
            rates = [case["aggregate_mflops"] for case in of_way]
            axis.plot(clients, rates, marker="o", label=f"t = {threads}")
        axis.set(title=way, xlabel="clients", xscale="log", ylim=(0, None))
    axes[0].set_ylabel("Mflop/s of all clients")
    axes[0].legend()
    save(figure, path)


def draw_single(rows, path):
    """One client's calls beside local code."""
    figure, axis = plt.subplots(figsize=(6, 4))
    lines = {"call": [], "local dgefa": [], "local LAPACK": []}
    for row in rows:
        if row["unit"] == "Mflop/s":
            size = int(row["name"].split(",")[0].removeprefix("n = "))
            lines[row["peer"]].append((size, row["peer_value"]))
            if row["peer"] == "local dgefa":
                lines["call"].append((size, row["value"]))
    for name, points in lines.items():
        axis.plot(*zip(*points, strict=True), marker="o", label=name)
    axis.set(xlabel="n", ylabel="Mflop/s", yscale="log")
    axis.legend()
    save(figure, path)


def save(figure, path):
    """Writes a figure and says where."""
    figure.tight_layout()
    figure.savefig(path)
    print(f"\n{path}\n")


if __name__ == "__main__":
    main()
