"""Writes docs/papers/trunk-paper.md from what `farcall bench trunk --peers --json` printed.

python benches/trunk/paper.py RESULT.json... > docs/papers/trunk-paper.md
"""

import json
import pathlib
import re
import sys

TABLE2 = {
    "a": 112.2,
    "b": 223.1,
    "c": 213.8,
    "d": 142.9,
    "e": 211.2,
    "f": 160.6,
    "g": 195.7,
    "h": 120.4,
}
TABLE5 = {
    "b": (100.0, 97.9),
    "c": (100.0, 100.4),
    "d": (113.2, 133.9),
    "e": (99.6, 100.9),
    "f": (113.1, 112.2),
    "g": (99.7, 101.6),
    "h": (127.8, 159.9),
}
TABLE6 = {
    "b": ("B", 1.0, 1.0),
    "c": ("C", 1.0, 1.0),
    "d": ("C", 2.0, 5.0),
    "e": ("C", 1.0, 1.0),
    "f": ("C", 1.5, 2.2),
    "g": ("C", 1.0, 2.1),
    "h": ("C", 3.0, 10.6),
}
TABLE7 = {
    "b": (1.0, 1.0, 1.0),
    "c": (1.0, 1.0, 1.0),
    "d": (2.0, 1.5, 1.2),
    "e": (1.0, 1.0, 1.0),
    "f": (1.5, 1.2, 1.0),
    "g": (1.0, 1.0, 0.8),
    "h": (3.0, 2.3, 2.1),
}
TABLE8 = {"round-robin": 235.5, "link-count": 213.8, "traffic": 234.2}
SYSTEMS = ["max-min", "traffic", "link-count", "round-robin", "MPTCP", "TCP, one link"]
PUBLISHED = {"round-robin": "RI2N", "link-count": "RI2N+", "traffic": "RI2N++"}
# The best rate of the paper's Gigabit links in MB/s: topology (a), one link.
LINK = TABLE2["a"]


def read(paths):
    """The rows of all results by name; only whole results count."""
    rows = {}
    for path in paths:
        text = pathlib.Path(path).read_text()
        if text.strip():
            rows.update((row["name"], row) for row in json.loads(text)["rows"])
    return rows


def table(header, lines):
    """Prints a table."""
    print("\n| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for line in lines:
        print("| " + " | ".join(line) + " |")


class Page:
    """The figures of one run."""

    def __init__(self, rows):
        """Takes rows by name."""
        self.rows = rows
        self.topologies = [t for t in "abcdefgh" if f"({t}) max-min, sum" in rows]
        self.compared = [t for t in self.topologies if f"({t}) traffic, sum" in rows]

    def cell(self, name, form="{:.1f}", field="value", scale=1.0):
        """A figure, or None if it was not measured."""
        row = self.rows.get(name)
        return form.format(row[field] * scale) if row and row[field] is not None else ""

    def sums(self):
        """Tables 2 and 5, Fig. 8."""
        print("\n## Table 2 and Fig. 8: sums")
        print("\nPercent of what the links carry. For the paper, one link is its (a), 112.2 MB/s.")
        lines = []
        for t in self.topologies:
            ideal = 1 if t == "a" else 2
            paper = f"{TABLE2[t] / LINK / ideal * 100:.1f}"
            cells = [self.cell(f"({t}) {s}, sum", field="ratio", scale=100) for s in SYSTEMS]
            lines.append([f"({t})", paper, *cells])
        table(["", "RI2N in the paper", *SYSTEMS], lines)
        print("\n## Table 5: sums relative to RI2N")
        lines = []
        for t in self.compared:
            base = self.rows[f"({t}) round-robin, sum"]["value"]
            ours = [self.cell(f"({t}) {s}, sum", scale=100 / base) for s in SYSTEMS[2::-1]]
            lines.append([f"({t})", *map(str, TABLE5[t]), *ours])
        header = ["%", "RI2N+ in the paper", "RI2N++ in the paper"]
        table([*header, "link-count", "traffic", "max-min"], lines)

    def shares(self):
        """Fig. 10, and fairness."""
        print("\n## Fig. 10: the rate of each client")
        print("\nMbit/s of each client, and Jain's index of the ratio of rate to max-min share.")
        lines = []
        for t in self.compared or self.topologies:
            for s in SYSTEMS:
                name = f"({t}) {s}"
                cells = [self.cell(f"{name}, client {c}") for c in "BCD"]
                lines.append([f"({t}) {s}", *cells, self.cell(f"{name}, Jain", "{:.3f}")])
        table(["", "B", "C", "D", "Jain"], lines)

    def weights(self):
        """Tables 6 and 7."""
        print("\n## Table 6: weight of link 1, with that of link 0 set to 1")
        lines = []
        for t in self.compared:
            client, *paper = TABLE6[t]
            ours = [
                self.cell(f"({t}) {s}, weight of link 1, {client}", "{:.2f}")
                for s in ("link-count", "traffic")
            ]
            lines.append([f"({t}), {client}", *map(str, paper), *ours])
        header = ["", "RI2N+ in the paper", "RI2N++ in the paper", "link-count", "traffic"]
        table(header, lines)
        print("\n## Table 7: ratio of the loads of switch 0 and switch 1")
        print(TABLE7_TEXT)
        lines = []
        for t in self.compared:
            ours = [
                self.cell(f"({t}) {s}, load of switch 0 to 1", "{:.2f}")
                for s in ("link-count", "traffic")
            ]
            lines.append([f"({t})", *map(str, TABLE7[t]), *ours])
        header = ["", *(f"{name} in the paper" for name in PUBLISHED.values())]
        table([*header, "link-count", "traffic"], lines)

    def ping(self):
        """Table 8."""
        if "ping beside a burst, max-min, of ideal" not in self.rows:
            return
        print("\n## Table 8: one client pings while the other sends as fast as it can")
        print("\nPercent of two links. For the paper, this is its MB/s divided by twice its (a).")
        lines = []
        for s in SYSTEMS[:4]:
            paper = f"{TABLE8[s] / LINK / 2 * 100:.1f}" if s in TABLE8 else ""
            lines.append([s, paper, self.cell(f"ping beside a burst, {s}, of ideal")])
        table(["", "the paper", "here"], lines)

    def weights_over_time(self):
        """Fig. 9."""
        pattern = re.compile(r"weights at (\d+) s, (\S+), (\w)")
        found = [match for name in self.rows if (match := pattern.fullmatch(name))]
        if not found:
            return
        print("\n## Fig. 9: weights while (e) becomes (f) and then (h)")
        print(FIGURE9)
        systems = [s for s in SYSTEMS if any(match[2] == s for match in found)]
        columns = [(s, client) for s in systems for client in "BCD"]
        lines = []
        for second in sorted({int(match[1]) for match in found}):
            phase = "(e)" if second < 12 else "(f)" if second < 24 else "(h)"
            names = [f"weights at {second} s, {s}, {client}" for s, client in columns]
            cells = [self.cell(name, "{:.2f}") for name in names]
            lines.append([f"{second} s {phase}", *cells])
        table(["", *(f"{s}, {client}" for s, client in columns)], lines)

    def learned(self):
        """The same topologies without configured rates."""
        names = [f"({t}) max-min, speeds learned" for t in "abcdefgh"]
        names = [name for name in names if f"{name}, sum" in self.rows]
        if not names:
            return
        print("\n## Not in the paper: learned rates")
        print(LEARNED)
        lines = []
        for name in names:
            total = self.cell(f"{name}, sum", field="ratio", scale=100)
            clients = [self.cell(f"{name}, client {c}") for c in "BCD"]
            lines.append([name[:3], total, *clients, self.cell(f"{name}, Jain", "{:.3f}")])
        table(["", "% of the sum", "B", "C", "D", "Jain"], lines)

    def failures(self):
        """Stalls and repairs, beside multipath TCP."""
        lines = []
        for kind in ("in", "out", "both ways"):
            for system, name in (("max-min", ""), ("MPTCP", ", MPTCP")):
                row = f"failure {kind}{name}"
                used = self.rows.get(f"{row}: repaired link used after")
                if used is None:
                    continue
                stalls = [f"{row}: stall, {what}" for what in ("median", "95 %")]
                spread = f"{used['value']:.0f} ({used['min']:.0f} to {used['max']:.0f})"
                cells = [self.cell(stall, "{:.0f}") for stall in stalls]
                lines.append([f"{kind}, {system}", *cells, spread])
        if lines:
            print("\n## Not in the paper: silent failures")
            print(FAILURES)
            table(["ms", "stall, median", "stall, 95 %", "repaired link used after"], lines)

    def rest(self):
        """Other figures that the paper does not have."""
        wanted = ("change", "loss", "busy", "speed")
        rows = [row for name, row in self.rows.items() if name.startswith(wanted)]
        if rows:
            print("\n## Not in the paper: changes, loss, speed")
            lines = [
                [r["name"], f"{r['value']:.1f} {r['unit']}", f"{r['min']:.1f}..{r['max']:.1f}"]
                for r in rows
            ]
            table(["", "median", "range"], lines)

    def bonding(self):
        """Round-robin in order, as it comes, and max-min."""
        systems = ["round-robin, unordered", "round-robin", "max-min"]
        if f"(b) {systems[0]}, sum" not in self.rows:
            return
        print("\n## Section 2.1: round-robin without order, as bonding's balance-rr")
        print(BONDING)
        lines = []
        for t in self.topologies:
            name = f"({t}) {systems[0]}"
            if f"{name}, sum" not in self.rows:
                continue
            sums = [self.cell(f"({t}) {s}, sum", field="ratio", scale=100) for s in systems]
            parts = [
                self.cell(f"({t}) {s}, segments {what}", "{:.2f}")
                for what in ("out of order", "sent again")
                for s in systems[:2]
            ]
            lines.append([f"({t})", *sums, *parts])
        header = ["", "sum: unordered, %", "in order", "max-min"]
        header += ["out of order: unordered, %", "in order", "sent again: unordered, %", "in order"]
        table(header, lines)

    def programs(self):
        """A file service and MPI on unlike links."""
        if not self.cell("NFS (d) max-min"):
            return
        print("\n## A file service and MPI on unlike links")
        print(PROGRAMS)
        systems = ["max-min", "traffic", "round-robin", "one link"]
        lines = [
            [f"{what} ({t})", *(self.cell(f"{what} ({t}) {s}") for s in systems)]
            for what in ("NFS", "MPI")
            for t in "cdf"
            if self.cell(f"{what} ({t}) max-min")
        ]
        table(["MB/s", *systems], lines)

    def nodes(self):
        """The cost of a peer."""
        if not self.cell("nodes: memory of a peer"):
            return
        print("\n## Section 2.1: the number of nodes")
        print(NODES)
        lines = [
            [
                str(peers),
                self.cell(f"nodes: memory, {peers} peers"),
                self.cell(f"nodes: processor when idle, {peers} peers", "{:.2f}"),
            ]
            for peers in (1, 250, 1000)
        ]
        table(["peers", "memory, MB", "processor when idle, %"], lines)

    def questions(self):
        """Questions that the paper leaves open."""
        print("\n## Open questions of the paper")
        print(BYTES)
        small = "small packets beside a burst, {}, of what is left"
        self.by_policy({"C, % of what is left": (small, "{:.1f}")})
        print(SPARSE)
        sparse = "sparse bursts of 4 MiB, {}"
        self.by_policy({"ms, median": (sparse, "{:.0f}")}, "ms, least and most")
        print(STAGES)
        columns = {}
        for which in ("both clients", "one client"):
            for what, form in (("sum", "{:.1f}"), ("Jain", "{:.3f}")):
                name = f"stages, {which} behind, {{}}: {what}"
                columns[f"{which}: {what}"] = (name, form)
        self.by_policy(columns)

    def by_policy(self, columns, spread=None):
        """A line for each policy; with the spread of the first column under this name."""
        lines = []
        for s in SYSTEMS[:4]:
            cells = [self.cell(name.format(s), form) for name, form in columns.values()]
            if not any(cells):
                continue
            if spread:
                row = self.rows[next(iter(columns.values()))[0].format(s)]
                cells.append(f"{row['min']:.0f} to {row['max']:.0f}")
            lines.append([s, *cells])
        table(["", *columns, *([spread] if spread else [])], lines)


INTRODUCTION = """# RI2N, run again

This page repeats the experiments of Yonemoto, Hanawa, Miura, Boku and Sato, *Asymmetric
Multi-link Ethernet Trunking System with Adaptive Traffic Control* (2010): Tables 2, 5, 6, 7 and
8, and Figs. 8, 9 and 10. `benches/trunk/paper.py` wrote it from the results of `farcall bench
trunk --peers --json`. [METHOD.md](../../benches/METHOD.md#bench-trunk) describes the
measurements.

Our links have 100 Mbit/s, those of the paper 1 Gbit/s. TCP is that of Linux 6.18 (cubic)
instead of 2.6.27. `round-robin` is RI2N, `link-count` is RI2N+ and `traffic` is RI2N++. Each
chooses links as published, with HBSPAN 2 s and without repair. Heartbeats every 10 ms find
failures under every policy. The paper finds them by the difference of packet counts; `round-robin`
has this rule too, but the heartbeats come first. `max-min` is the policy of this project."""

TABLE7_TEXT = """
Sums over the clients. The largest weight of each client is 1. RI2N has no weights: each client
sends the same number of frames on each of its links, here as in the paper."""

DIFFERENCES = """
## What differs, and why

- The weights and the loads of the switches agree with the paper (Tables 6 and 7). Those of
  RI2N+ agree exactly. Those of RI2N++ depend on how the flows shared the links by chance.
- RI2N reaches about the same part of the links as in the paper. RI2N++ reaches a little less:
  the paper has 85 % in (d) and 86 % in (h). Time is a likely reason, because weights are right
  only after some spans of 2 s. Until then a switch drops frames that already have a number. The
  same happens if no ratio is right: in (h) only 0 : 1 keeps C off link 0. The receiver passes
  the gap on to TCP, and TCP slows down on both links. Our runs last seconds and count from the
  first byte. The paper averaged over a minute.
- A published policy finds ratios. It does not stop a sender that has a link of its own from
  filling a shared link too. Max-min grants do: in (d) they give 0 : 1, which the paper names as
  the optimum.
- In Fig. 9, C and D change in the same way in (f). In the paper, D changed less. Max-min grants
  are sparse: in (e), B and C have a link each, and only D uses both. A change moves only the
  rates that must change."""

FIGURE9 = """
The table shows the share of link 1 in the traffic of each client. For the published policies it
is the weight, with a sum of 1 over both links, and for max-min it is the rate. In the paper,
the weights are one half in (e). In (f), after B lost link 1, they are more than half at C and,
to a lesser degree, at D. In (h) they are even larger at C."""

LEARNED = """
The table shows percent of the ideal sum, and Mbit/s. The interfaces claim 10 Gbit/s, and the
links carry 100 Mbit/s. The measurement begins with the first byte. Frames then travel in
datagrams, which take 28 bytes each, so that the best possible value is about 97 %."""

FAILURES = """
One of two links loses all frames without any sign."""

BYTES = """
**Bytes or packets.** Our grants are bytes on the wire, with preamble and gap, so that a minimal
frame counts 84 and a full one 1538. The published policies count packets. In (d), B sends 5000
datagrams of 64 bytes a second, which is 6 % of its link, and C sends as fast as it can over
both links. With this load, counting packets does not harm RI2N++. It harms RI2N+, but because
RI2N+ counts neighbours and not traffic."""

SPARSE = """
**Traffic sparser than HBSPAN.** A span without traffic gives no information, and RI2N++ returns
to equal weights. With max-min nobody waits for a span. An idle peer has a small rate to begin
with. With its first delayed frame it reports that it waits, and one round trip later it has its
share. In (h), B and D send all the time, and C sends 4 MiB after a pause of three spans (HBSPAN
0.5 s). Over a link of its own that takes 356 ms. As the paper expects, RI2N++ begins each burst
with equal weights."""

STAGES = """
**Several stages of switches.** A receiver cannot see where else the paths of its peers cross,
but it sees how long their frames wait. If frames of most peers on a link wait, the link is
full. If frames of one peer wait, the path of that peer is full. The rate follows the arriving
traffic, and a short queue remains. The published policies lose a third if all clients share the
narrow line, because nothing tells them about it. The table shows (c) with a second switch
behind switch 1 and half a link between the two. Either both clients or only C are behind it.
The sums are percent of what the links can carry:"""


COUNTS = """
## Section 2.1: failures found by counts alone

RI2N finds a failed link by the difference of the packet counts of its links. `round-robin` has this
rule: a link fails if it brought 1000 packets less than another one in a span of 2 s. In virtual
time (`cargo test -p farcall-trunk-proto counts_find -- --nocapture`) one of the two links of (b)
goes silent at four moments of a span, with the heartbeats of the trunk for the comparison:

| traffic | by counts alone | by heartbeats |
|---|---|---|
| both links full | 0.6, 1.1, 1.6 and 2.1 s | 0.04 s |
| a tenth | 1.6, 2.1, 2.6 and 3.1 s | 0.04 s |
| a hundredth | never | 0.04 s |

Counts find a failure at the end of the span in which 1000 packets are missing: after half a span to
a whole one, and later with less traffic. With less than 500 packets a second they never find it.
Heartbeats every 10 ms do not depend on the traffic."""

BONDING = """
Linux's bonding with balance-rr is RI2N's rival. This kernel has no bonding, so we take its place
with our own round-robin whose receiver delivers each frame as it arrives (`--order off`). Unlike
bonding, it has the trunk's header and takes failed links out. The table shows the sums in percent
of what the links carry, and the segments of TCP that arrived out of order at the server or were
sent again, in percent of those that the clients sent. Each segment out of order makes the server
send a duplicate acknowledgement (RFC 5681). One stream alone loses 4 % of the sum. With several
streams both links stay full. TCP of Linux 6.18 waits for late segments before it sends others
again; that of the paper (2.6.27) did not."""

PROGRAMS = """
`farcall bench trunk --peers --only NFS`: a file service whose server (nfs-ganesha) and clients
(libnfs) run in user space, because this kernel has neither. Every client copies a file of 48
MiB at the same time. In (c) all hosts have two links, in (d) and (f) client B has only one.
Without a trunk all use the switch that everybody has. The table shows MB/s of all together
until the last client has its file. One link carries 11.8 MB/s. Files go from the server to the
clients, so a link of the sender is the narrow one. Receivers grant rates without knowing it, so
max-min does not reach the ideal 23.5 MB/s in (d) and (f), but it is above the others.

`--only MPI` runs MPI_Alltoall with messages of 1 MB between all hosts (MPICH over TCP). Its
processes poll. On our two processors, which did other work too, they took the time of the
trunks, and the figures said nothing about the links, so they are not shown."""

NODES = """
A trunk knows up to 16,384 peers. `farcall bench trunk --only nodes` starts a real trunk with two
links. Its peers are the state machines of trunks in the process of the benchmark, which reach only
this trunk. An idle peer costs 13 KB, and one heartbeat and one hello a second on each link in each
direction. Busy peers get one every 10 ms, or fewer if more than 100 of them have two links,
so that a node sends at most 20,000 a second. In virtual time a test has 2100 peers. (The processor
times are those of a busy machine: load 9.)"""


def main():
    """Prints the page."""
    page = Page(read(sys.argv[1:]))
    print(INTRODUCTION)
    page.sums()
    page.shares()
    page.weights()
    page.ping()
    page.weights_over_time()
    page.learned()
    page.failures()
    page.rest()
    page.bonding()
    page.programs()
    print(COUNTS)
    page.nodes()
    print(DIFFERENCES)
    page.questions()


if __name__ == "__main__":
    main()
