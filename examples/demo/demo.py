#!/usr/bin/env python3
"""Real problems, solved by a LAPACK in another process and reached over the network.

Starts `farcall serve libraries/lapack.idl`, works on data sets that scikit-learn ships, compares
with the same work done here, and stops the server. The plot goes to out/demo.png.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import time

import farcall
import numpy as np
from plot import draw
from scipy.linalg import lapack
from sklearn.datasets import load_diabetes, load_digits
from threadpoolctl import threadpool_limits

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = (100, 200, 400, 800, 1600)
REPEATS = 5


class Daemon:
    """A `farcall serve` of our own, on a free port."""

    def __enter__(self):
        """Starts it and waits for its first line, which tells where it listens."""
        command = ["serve", ROOT / "libraries" / "lapack.idl", "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [ROOT / "target" / "release" / "farcall", *command, "--log", "warn"],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline().strip()
        if not line.startswith("listening on "):
            sys.exit("the server did not start; its message is above")
        self.address = line.removeprefix("listening on ")
        return self

    def __exit__(self, *_):
        """Stops it as an operator would."""
        self.process.send_signal(signal.SIGTERM)
        self.status = self.process.wait(10)


def heading(text):
    """Sets a part apart."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}")


def split(name, times):
    """The times of one call, as the second Ninf paper splits them."""
    parts = [times.send, times.exec, times.recv, times.other, times.total]
    return f"  {name:<8}" + "".join(f"{1e3 * part:9.2f}" for part in parts)


def components(server, images):
    """Principal components of the digits by a singular value decomposition."""
    m, n = images.shape
    centred = np.asfortranarray(images - images.mean(axis=0))
    dgesdd = server.function("lapack/dgesdd")
    result = dgesdd(
        jobz="S", m=m, n=n, a=centred.copy("F"), lda=m, ldu=m, ldvt=n, lwork=4 * n * n + 7 * n + m
    )
    local = np.linalg.svd(centred, full_matrices=False)
    share = result.s**2 / (result.s**2).sum()
    residual = np.abs(centred - (result.u * result.s) @ result.vt).max()
    print(
        f"  {m} images of 8 x 8 pixels; two components hold {share[:2].sum():.1%} of the variance,"
    )
    print(f"  21 hold {share[:21].sum():.1%}")
    print(f"  largest |A - U S V'|                       {residual:.1e}")
    print(f"  singular values, remote - local            {np.abs(result.s - local.S).max():.1e}")
    return dgesdd.times, centred @ result.vt[:2].T


def regression(server, data, target):
    """Disease progression from ten measurements of 442 patients, by least squares."""
    a = np.asfortranarray(np.column_stack([np.ones(len(data)), data]))
    m, n = a.shape
    dgels = server.function("lapack/dgels")
    result = dgels(
        trans="N", m=m, n=n, nrhs=1, a=a.copy("F"), lda=m, b=target.copy(), ldb=m, lwork=64 * n
    )
    weights = result.b[:n]
    local = np.linalg.lstsq(a, target)[0]
    explained = 1 - ((target - a @ weights) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    print(f"  {m} patients, {n - 1} measurements: R^2 = {explained:.3f}")
    print(f"  weights, remote - local, relative          {relative(weights, local):.1e}")
    return dgels.times


def kernel(left, right):
    """How alike images are: a Gaussian of their distance."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return np.exp(-np.maximum(squares, 0) / 900)


def classification(server, images, labels):
    """Which digit an image shows, by kernel ridge regression: one linear system of order 1600."""
    n, classes = 1600, 10
    matrix = np.asfortranarray(kernel(images[:n], images[:n]) + 0.01 * np.eye(n))
    wanted = np.asfortranarray(np.eye(classes)[labels[:n]])
    dgesv = server.function("lapack/dgesv")
    result = dgesv(n=n, nrhs=classes, a=matrix.copy("F"), lda=n, b=wanted.copy("F"), ldb=n)
    residual = np.abs(matrix @ result.b - wanted).max()
    local = np.linalg.solve(matrix, wanted)
    guesses = (kernel(images[n:], images[:n]) @ result.b).argmax(axis=1)
    right = (guesses == labels[n:]).mean()
    print(f"  learnt from {n} digits; {right:.1%} of {len(guesses)} others are recognised")
    print(f"  largest |A x - b|                          {residual:.1e}")
    print(f"  solution, remote - local, relative         {relative(result.b, local):.1e}")
    return dgesv.times


def relative(value, reference):
    """Largest difference over the largest value."""
    return np.abs(value - reference).max() / np.abs(reference).max()


def rates(server, images):
    """Mflop/s of dgesv on matrices of the digits, remote and local, best of several runs."""
    dgesv = server.function("lapack/dgesv")
    rows = []
    for n in SIZES:
        matrix = np.asfortranarray(kernel(images[:n], images[:n]) + 0.01 * np.eye(n))
        side = np.ones((n, 1), order="F")
        operations = 2 / 3 * n**3 + 2 * n**2
        remote, local, times = [], [], []
        for _ in range(REPEATS):
            a, b = matrix.copy("F"), side.copy("F")
            dgesv(n, 1, a, n, None, b, n)
            remote.append(dgesv.times.total)
            times.append(dgesv.times)
            a, b = matrix.copy("F"), side.copy("F")
            begin = time.perf_counter()
            lapack.dgesv(a, b, overwrite_a=True, overwrite_b=True)
            local.append(time.perf_counter() - begin)
        best = times[int(np.argmin(remote))]
        rows.append((n, operations / min(remote) / 1e6, operations / min(local) / 1e6, best))
        _, far, near, _ = rows[-1]
        print(f"  {n:6}{far:12.0f}{near:12.0f}{far / near:10.2f}")
    return rows


def main():
    """The demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=pathlib.Path, default=ROOT / "out" / "demo.png")
    arguments = parser.parse_args()
    images, labels = load_digits(return_X_y=True)
    data, target = load_diabetes(return_X_y=True)

    begin = time.monotonic()
    with Daemon() as daemon, threadpool_limits(1):
        server = farcall.connect(daemon.address)
        print(f"A LAPACK of {len(server.ls())} functions, {daemon.address}")
        print(server.function("dgesv").__doc__.strip().splitlines()[2])

        heading("Principal components of handwritten digits: dgesdd")
        svd_times, plane = components(server, images)
        heading("A regression on diabetes patients: dgels")
        ls_times = regression(server, data, target)
        heading("Recognising digits by a linear system: dgesv")
        solve_times = classification(server, images, labels)

        heading("Where the time went, ms")
        print(
            "  " + " " * 8 + "".join(f"{n:>9}" for n in ("SEND", "EXEC", "RECV", "OTHER", "TOTAL"))
        )
        for name, times in [("dgesdd", svd_times), ("dgels", ls_times), ("dgesv", solve_times)]:
            print(split(name, times))

        heading("dgesv, Mflop/s, one thread: remote, and here by SciPy's own LAPACK")
        print(f"  {'n':>6}{'remote':>12}{'local':>12}{'ratio':>10}")
        rows = rates(server, images)

    arguments.plot.parent.mkdir(parents=True, exist_ok=True)
    draw(arguments.plot, plane, labels, rows)
    shown = arguments.plot.resolve()
    if shown.is_relative_to(pathlib.Path.cwd()):
        shown = shown.relative_to(pathlib.Path.cwd())
    print(f"\nThe server has stopped (status {daemon.status}). The plot is {shown}.")
    print(f"It took {time.monotonic() - begin:.1f} s.")


if __name__ == "__main__":
    main()
