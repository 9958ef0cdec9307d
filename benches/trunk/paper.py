"""Writes docs/trunk-paper.md from what `farcall bench trunk --peers --json` printed.

python benches/trunk/paper.py RESULT.json... > docs/trunk-paper.md
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
    "b": (1.0, 1.0),
    "c": (1.0, 1.0),
    "d": (1.5, 1.2),
    "e": (1.0, 1.0),
    "f": (1.2, 1.0),
    "g": (1.0, 0.8),
    "h": (2.3, 2.1),
}
TABLE8 = {"round-robin": 235.5, "link-count": 213.8, "traffic": 234.2}
SYSTEMS = ["max-min", "traffic", "link-count", "round-robin", "MPTCP", "TCP, one link"]
PUBLISHED = {"round-robin": "RI2N", "link-count": "RI2N+", "traffic": "RI2N++"}
# What the paper's Gigabit links carry at best, in MB/s: its (a), one link.
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
        """A figure, or nothing where it was not measured."""
        row = self.rows.get(name)
        return form.format(row[field] * scale) if row and row[field] is not None else ""

    def sums(self):
        """Tables 2 and 5, Fig. 8."""
        print("\n## Table 2 and Fig. 8: sums")
        print(
            "\nPercent of what the links carry; the paper's with its (a), 112.2 MB/s, as one link."
        )
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
        print("\n## Fig. 10: who gets what")
        print("\nMbit/s of each client, and Jain's index of rate / max-min share.")
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
        print("\n## Table 7: load of switch 0 to that of switch 1")
        print("\nSums over the clients, each client's largest weight set to 1.")
        lines = []
        for t in self.compared:
            ours = [
                self.cell(f"({t}) {s}, load of switch 0 to 1", "{:.2f}")
                for s in ("link-count", "traffic")
            ]
            lines.append([f"({t})", *map(str, TABLE7[t]), *ours])
        table(header, lines)

    def ping(self):
        """Table 8."""
        if "ping beside a burst, max-min, of ideal" not in self.rows:
            return
        print("\n## Table 8: one client pings, the other sends all it can")
        print("\nPercent of two links; the paper's MB/s against twice its (a).")
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
        """The same topologies without any rate told."""
        names = [f"({t}) max-min, speeds learned" for t in "abcdefgh"]
        names = [name for name in names if f"{name}, sum" in self.rows]
        if not names:
            return
        print("\n## Not in the paper: speeds learned")
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
        """What else the paper did not measure."""
        wanted = ("change", "loss", "busy", "speed")
        rows = [row for name, row in self.rows.items() if name.startswith(wanted)]
        if rows:
            print("\n## Not in the paper: changes, loss, speed")
            lines = [
                [r["name"], f"{r['value']:.1f} {r['unit']}", f"{r['min']:.1f}..{r['max']:.1f}"]
                for r in rows
            ]
            table(["", "median", "range"], lines)

    def questions(self):
        """What the paper leaves open."""
        print("\n## Its open questions")
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


INTRODUCTION = """# The RI2N paper's experiments, run again

Yonemoto, Hanawa, Miura, Boku and Sato, *Asymmetric Multi-link Ethernet Trunking System with
Adaptive Traffic Control* (2010): Tables 2, 5, 6, 7 and 8, Figs. 8, 9 and 10. This page is
the output of `benches/trunk/paper.py` over `farcall bench trunk --peers --json`; benches/METHOD.md
says how that measures. Links have 100 Mbit/s here and 1 Gbit/s there; TCP is that of Linux 6.18
(cubic) instead of 2.6.27. `round-robin` is RI2N, `link-count` RI2N+, `traffic` RI2N++, each as
published, with HBSPAN 2 s and without repair; `max-min` is this project's."""

DIFFERENCES = """
## What differs, and why

- The weights and the loads of the switches come out as in the paper (Tables 6 and 7), RI2N+'s
  exactly; RI2N++'s depend on how the flows happened to share.
- RI2N reaches about the same part of the links as there; RI2N++ somewhat less ((d) 85 % and (h)
  86 % there). A likely reason is time: weights are right only after some spans of 2 s, and until
  then, or where no ratio is right (in (h) only 0 : 1 keeps C off link 0), a switch drops frames
  that are numbered already, the receiver passes the hole on to TCP, and TCP slows down on both
  links. Runs here last seconds and count from the first byte; the paper averaged a minute.
- A published policy finds ratios; nothing in it bounds a sender that has a link of its own from
  filling a shared one too. Max-min grants do: (d) comes out as 0 : 1, the optimum that the paper
  names.
- In Fig. 9, C and D move alike here in (f), where the paper saw D stay behind. Max-min grants are
  sparse: in (e) B and C have a link each, and only D uses both; a change moves what it must."""

FIGURE9 = """
Share of link 1 in what each client sends: the weights with the sum of both links as 1, and for
max-min the rates. The paper shows weights of one half in (e); in (f), after B lost link 1, more
than half at C and, less so, at D; in (h) still more at C."""

LEARNED = """
Percent of the ideal sum, and Mbit/s. The interfaces claim 10 Gbit/s, and the links carry 100;
the run counts from the first byte. Frames travel in datagrams then, which take 28 bytes each, so
that about 97 % would be all."""

FAILURES = """
One of two links swallows all frames, without a sign."""

BYTES = """
**Bytes or packets.** Grants here are bytes on the wire, preamble and gap included, so a minimal
frame counts 84 and a full one 1538; the published policies count packets. In (d), B sends 5000
datagrams of 64 bytes a second, 6 % of its link, and C all it can over both. With this load RI2N++
does not suffer from counting packets. RI2N+ suffers, but as it counts neighbours, not traffic."""

SPARSE = """
**Traffic sparser than HBSPAN.** A span without traffic says nothing, and RI2N++ falls back to
equal weights. Here nobody waits for a span: an idle peer has a small floor to begin with, says
with its first delayed frame that it waits, and has its share a round trip later. In (h), B and D
send all the time, and C sends 4 MiB after a pause of three spans (HBSPAN 0.5 s); over a link of
its own that takes 356 ms. As the paper expects, RI2N++ begins each burst with equal weights."""

STAGES = """
**Several stages of switches.** A receiver cannot see where else its peers' ways cross, but it sees
how long their frames wait: where most of several peers on a link wait, the link is full, where
one does, its way. The rate follows what arrives meanwhile, and a short queue is left standing. The
published policies lose a third where all share the narrow line: nothing tells them of it. In (c),
with a second switch behind switch 1 and half a link between the two, and either both clients or
only C behind it (percent of what can be carried):"""


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
    print(DIFFERENCES)
    page.questions()


if __name__ == "__main__":
    main()
