"""Draws the figures of the Ninf papers again, from results of `farcall bench load`.

python benches/load/paper.py FILE.json ... [--output FOLDER] [--format svg|png]

Each file holds what `farcall bench load EXPERIMENT --json` printed; files of one experiment are
drawn together. First paper: performance of each call and load by the number of clients (many, ep,
wan: Tables 3 to 8), clients times threads (threads: Fig. 6), one client beside local code (single:
Figs. 3 and 4), sites alone and at once (sites, shared: Fig. 8). Second paper (world): calls sorted
by client time with their parts (Figs. 5 to 8), up and down (Table 4), and (bmi) the time of branch
and bound on eight servers (Tables 6 and 7). Prints the tables as Markdown.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    """Draws and prints the results in the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--format", choices=["svg", "png"], default="svg")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for experiment, parts in by_experiment(arguments.files).items():
        path = arguments.output / f"load-{experiment}.{arguments.format}"
        if experiment == "world":
            print_world([part for file in parts for part in file["summary"]])
            draw_world([call for file in parts for call in file["calls"]], path)
        elif experiment == "bmi":
            problems = [problem for file in parts for problem in file["problems"]]
            print_bmi(problems)
            draw_bmi(problems, path)
        elif experiment == "single":
            rows = [row for file in parts for row in file["rows"]]
            print_rows(rows)
            draw_single(rows, path)
        else:
            cases = [case for file in parts for case in file["cases"]]
            print_cases(cases)
            draw = DRAW.get(experiment, draw_clients)
            draw(cases, path)


def by_experiment(files):
    """The results in the files, by measurement."""
    experiments = {}
    for file in files:
        measured = json.loads(file.read_text())
        if "experiment" in measured:
            name = measured["experiment"]
        else:
            name = measured["cases"][0]["experiment"] if measured["cases"] else "single"
        experiments.setdefault(name, []).append(measured)
    return experiments


def print_cases(cases):
    """A table like the paper's Tables 3 to 5."""
    print(
        "| | n | c | calls | Mflop/s max/min/mean | all | MB/s max/min/mean | CPU % | load"
        " | T_response | T_wait |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for case in cases:
        rate, carried = (
            "/".join(f"{case[figure][part] or 0:.{digits}f}" for part in ("max", "min", "mean"))
            for figure, digits in (("mflops", 0), ("mb_s", 1))
        )
        response, wait = (case[name] or 0 for name in ("t_response_s", "t_wait_s"))
        print(
            f"| {case['way']} | {case['n']} | {case['clients']} | {case['calls']} | {rate}"
            f" | {case['aggregate_mflops']:.0f} | {carried} | {case['cpu_percent']:.0f}"
            f" | {case['load']:.1f}"
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


def print_world(summary):
    """Tables 2 and 4 of the second paper."""
    print("| | n | network | calls | min | max | mean | sd | up KB/s min/max/mean/sd | down |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    parts = ("min", "max", "mean", "sd")
    for group in sorted(summary, key=lambda group: (group["function"], group["n"])):
        times = " | ".join(f"{group['total_s'][part]:.2f}" for part in parts)
        ways = (
            "/".join(f"{group[way][part]:.0f}" for part in parts)
            for way in ("up_kb_s", "down_kb_s")
        )
        name = f"| {group['function']} | {group['n']} | {group['network']} | {group['calls']}"
        print(f"{name} | {times} | {' | '.join(ways)} |")


def draw_world(calls, path):
    """Figs. 5 to 8: every call, the shortest first, with the parts of its time."""
    networks = list(dict.fromkeys(call["network"] for call in calls))
    figures = sorted({(call["function"], call["n"]) for call in calls})
    size = (4 * len(networks), 2.5 * len(figures))
    figure, axes = plt.subplots(len(figures), len(networks), figsize=size, squeeze=False)
    for row, (function, n) in zip(axes, figures, strict=True):
        for axis, network in zip(row, networks, strict=True):
            group = [
                call
                for call in calls
                if (call["function"], call["n"], call["network"]) == (function, n, network)
            ]
            group.sort(key=lambda call: call["total_s"])
            bottom = [0.0] * len(group)
            for part in ("SEND", "EXEC", "RECV", "OTHER"):
                heights = [call[f"{part.lower()}_s"] for call in group]
                axis.bar(range(1, len(group) + 1), heights, bottom=bottom, label=part)
                bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
            axis.set(title=f"{function}, n = {n}, {network}")
        row[0].set_ylabel("seconds")
    axes[0][0].legend()
    save(figure, path)


def print_bmi(problems):
    """Tables 6 and 7 of the second paper, beside the runs here."""
    columns = ["problem", "", "boxes", "calls", "a call computes", "and communicates"]
    print("|", " | ".join([*columns, "communication in all", "time", "relative to 1 server"]), "|")
    print("|---|---|---|---|---|---|---|---|---|")
    for problem in problems:
        paper, alone = problem["paper"], problem["alone"]["seconds"]
        rows = [
            ["the paper, 8 servers", paper["calls"], paper["calls"], f"{paper['compute_s']:.2f} s"]
            + [f"{paper['communicate_s']:.2f} s", f"{paper['all_communicate_s'][0]:.0f} s"]
            + [f"{paper['all_s'][0]:.0f} s", f"{paper['all_s'][0] / paper['all_s'][1]:.2f}"],
            ["the paper, 1 server", "", 1, "", "", f"{paper['all_communicate_s'][1]:.2f} s"]
            + [f"{paper['all_s'][1]:.0f} s", 1],
        ]
        for text, how, servers in (
            ("8 servers, one box a call", "single", 8),
            ("8 servers, `auto`", "auto", 8),
            ("1 server", "alone", 1),
        ):
            run = problem[how]
            communicates = run["calls"] * run["communicate_s"] / servers
            rows.append(
                [text, run["boxes"], run["calls"], f"{run['compute_s']:.2f} s"]
                + [f"{run['communicate_s']:.2f} s", f"{communicates:.1f} s"]
                + [f"{run['seconds']:.1f} s", f"{run['seconds'] / alone:.2f}"]
            )
        for row in rows:
            print(" | ".join(["| " + problem_name(problem), *map(str, row)]), "|")


def draw_bmi(problems, path):
    """Table 7: the time on eight servers, relative to that on one."""
    figure, axis = plt.subplots(figsize=(6, 4))
    alone = [problem["alone"]["seconds"] for problem in problems]
    bars = {"the paper": [one["paper"]["all_s"][0] / one["paper"]["all_s"][1] for one in problems]}
    for name, how in (("one box a call", "single"), ("auto", "auto")):
        seconds = [problem[how]["seconds"] for problem in problems]
        bars[name] = [one / of for one, of in zip(seconds, alone, strict=True)]
    for place, (name, heights) in enumerate(bars.items()):
        axis.bar([k + 0.27 * place for k in range(len(problems))], heights, width=0.27, label=name)
    axis.axhline(1, color="black", linewidth=1)
    axis.set_xticks([k + 0.27 for k in range(len(problems))], map(problem_name, problems))
    axis.set(ylabel="time on 8 servers / time on 1 server")
    axis.legend()
    save(figure, path)


def problem_name(problem):
    """The dimensions of x and y, and the order of the matrices."""
    return f"({problem['nx']}, {problem['ny']}, {problem['m']})"


def draw_sites(cases, path):
    """Fig. 8: the performance of each site, alone and with the others."""
    groups = list(dict.fromkeys((case["n"], case["clients"]) for case in cases))
    figure, axes = plt.subplots(1, len(groups), figsize=(5 * len(groups), 4), squeeze=False)
    for axis, (n, clients) in zip(axes[0], groups, strict=True):
        of_group = [case for case in cases if (case["n"], case["clients"]) == (n, clients)]
        for mark, at_once in (("alone", False), ("all at once", True)):
            shown = [case for case in of_group if case["way"].endswith("/4") == at_once]
            places = [place + 0.4 * at_once for place in range(len(shown))]
            rates = [case["mb_s"]["mean"] * case["clients"] for case in shown]
            axis.bar(places, rates, width=0.4, label=mark)
        names = [case["way"] for case in of_group if not case["way"].endswith("/4")]
        axis.set_xticks([place + 0.2 for place in range(len(names))], names)
        axis.set(title=f"n = {n}, {clients} clients a site", ylabel="MB/s of the site")
    axes[0][0].legend()
    save(figure, path)


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


DRAW = {"threads": draw_grid, "sites": draw_sites, "shared": draw_sites}


def save(figure, path):
    """Writes a figure and prints its path."""
    figure.tight_layout()
    figure.savefig(path)
    print(f"\n{path}\n")


if __name__ == "__main__":
    main()
