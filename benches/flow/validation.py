#!/usr/bin/env python3
"""Compares the flow model with the packet model, and prints the table of docs/flow.md.

    benches/flow/validation.py

The environment variable FARCALL can name another program than target/release/farcall.
"""

import json
import os
import subprocess
from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / "target" / "release" / "farcall"
FARCALL = os.environ.get("FARCALL", str(BUILT))
PACKET = 1500
NETWORKS = {
    "torus 8 x 8": ("torus:8x8,nic=link", "exchange:8x8"),
    "fat tree 128": ("fat-tree:ports=8,levels=3", "exchange:8x16"),
    "dragonfly 72": ("dragonfly:routers=4,terminals=2,global=2", "exchange:8x9"),
}
PATTERNS = (
    "all-to-all:simple-spread",
    "all-to-all:pairwise",
    "all-to-all:bruck",
    "allreduce:recursive-doubling",
    "allreduce:ring",
    "broadcast:binomial",
)


def makespan(platform: str, pattern: str, placement: str, *options: str) -> float | None:
    """The time of a run with 20 KB, or None if the pattern needs another number of ranks."""
    command = [FARCALL, "flow", "run", "--json", "--platform", f"{platform},bandwidth=1e9"]
    command += ["--pattern", pattern, "--size", "20KB", "--placement", placement, *options]
    run = subprocess.run(command, capture_output=True, check=False)
    return json.loads(run.stdout)["makespan"] if run.returncode == 0 else None


def main() -> None:
    """Run everything."""
    print("| network | pattern | placement | packets | flows | flows, stored packet |")
    print("|---|---|---|---|---|---|")
    worst = [0.0, 0.0]
    beyond = 0
    for network, (platform, exchange) in NETWORKS.items():
        for pattern in (*PATTERNS, exchange):
            for placement in ("regular", "random:1"):
                case = platform, pattern, placement
                packets = makespan(*case, "--mode", "packets")
                plain = makespan(*case)
                stored = makespan(*case, "--stored-packet", str(PACKET))
                if packets is None or plain is None or stored is None:
                    continue
                errors = [time / packets - 1 for time in (plain, stored)]
                worst = [max(w, abs(e)) for w, e in zip(worst, errors, strict=True)]
                beyond += abs(errors[1]) > 0.15
                cells = [network, pattern, placement.split(":", maxsplit=1)[0]]
                cells.append(f"{packets * 1e3:.4g} ms")
                cells += [f"{round(error, 3) + 0:+.1%}" for error in errors]
                print("| " + " | ".join(cells) + " |")
    told = f"The largest error is {worst[0]:.0%}, and {worst[1]:.0%} with stored packets."
    print(f"\n{told} {beyond} cases are then off by more than 15 %.")


if __name__ == "__main__":
    main()
