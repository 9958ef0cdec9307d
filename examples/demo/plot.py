"""The picture of the demonstration."""

import matplotlib as mpl

mpl.use("Agg")  # no screen is needed

import matplotlib.pyplot as plt

PARTS = ("send", "exec", "recv", "other")
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#bab0ac")


def draw(path, plane, labels, rows):
    """Writes the digits in their plane, the rates, and the parts of each call to a file."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")

    points = left.scatter(*plane.T, c=labels, cmap="tab10", s=9, vmin=-0.5, vmax=9.5)
    figure.colorbar(points, ax=left, ticks=range(10), label="digit")
    left.set(
        title="Handwritten digits on two principal components (dgesdd)",
        xlabel="first component",
        ylabel="second component",
    )

    sizes = [n for n, *_ in rows]
    middle.plot(sizes, [near for _, _, near, _ in rows], "o--", color="#777777", label="local")
    middle.plot(sizes, [far for _, far, _, _ in rows], "o-", color="#e45756", label="remote")
    middle.set_xscale("log", base=2)
    middle.set_xticks(sizes, [str(n) for n in sizes])
    middle.set(title="dgesv, one thread", xlabel="order of the matrix", ylabel="Mflop/s", ylim=0)
    middle.legend()
    middle.grid(alpha=0.3)

    base = [0.0] * len(rows)
    for part, colour in zip(PARTS, COLOURS, strict=True):
        share = [100 * getattr(times, part) / times.total for *_, times in rows]
        right.bar([str(n) for n in sizes], share, bottom=base, color=colour, label=part.upper())
        base = [low + more for low, more in zip(base, share, strict=True)]
    right.set(
        title="Where a remote call spends its time",
        xlabel="order of the matrix",
        ylabel="percent",
        ylim=(0, 100),
    )
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=4, frameon=False)

    figure.savefig(path, dpi=110)
    plt.close(figure)
