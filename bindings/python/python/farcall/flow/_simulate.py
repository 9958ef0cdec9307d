"""Platforms, patterns, single runs and sweeps."""

import os
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .. import _native
from .._arrays import UNMASKED
from .._native import simulate_flow
from ._result import Result, Sweep

# Memory for a message while a run that keeps it ends.
BYTES_OF_MESSAGE = 72

Platform = _native.FlowPlatform
Pattern = _native.FlowPattern


def edges(path: str | PathLike[str], latency: float = 0.0) -> Platform:
    """Read a network from a file of `from,to,bandwidth` lines."""
    text = Path(path).read_text(encoding="utf-8")
    try:
        return Platform.from_edges(text, latency)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def pattern(
    spec: str, platform: Platform, size: float, *, count: int = 1, steps: int | None = None
) -> Pattern:
    """Make a pattern with one rank on every node; `size` in bytes as the pattern defines it."""
    if count < 1:
        raise ValueError(f"count {count}: expected 1 or more")
    return Pattern(spec, platform.nodes, size, count=count, steps=steps)


def messages(
    source: npt.ArrayLike,
    destination: npt.ArrayLike,
    size: npt.ArrayLike,
    wait: npt.ArrayLike | None = None,
) -> Pattern:
    """Make a pattern of single messages: ranks, bytes, and seconds of delay before each send.

    A source sends its messages one after the other, in the order of the arrays. `size` and
    `wait` may be single numbers.
    """
    sources = _ranks("source", source)
    count = len(sources)
    sizes = _numbers("size", size, count)
    waits = None if wait is None else _numbers("wait", wait, count)
    return Pattern.from_arrays(sources, _ranks("destination", destination), sizes, waits)


def read_pattern(path: str | PathLike[str], *, loggops: str | None = None) -> Pattern:
    """Read a pattern file (`.csv`) or a GOAL trace (`.goal`, or `.bin` as txt2bin writes it).

    `loggops` says what hosts need for a message of a trace, such as `"L=2500,o=1500,g=1000,G=6"`
    in nanoseconds.
    """
    path = Path(path)
    try:
        if path.suffix.lower() in (".goal", ".bin"):
            return Pattern.from_goal(path.read_bytes(), loggops)
        if loggops is not None:
            raise ValueError("only traces have hosts with costs: leave out loggops")
        return Pattern.from_csv(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_chakra(prefix: str | PathLike[str], *, loggops: str | None = None) -> Pattern:
    """Read Chakra execution traces: the files `PREFIX.0.et`, `PREFIX.1.et` and so on."""
    files = [Path(f"{prefix}.0.et")]
    while (following := Path(f"{prefix}.{len(files)}.et")).exists():
        files.append(following)
    if later := _later_rank(files):
        raise FileNotFoundError(
            f"{following}: no such file, but there is {later}: give the files of all ranks"
        )
    try:
        return Pattern.from_chakra([file.read_bytes() for file in files], loggops)
    except ValueError as error:
        raise ValueError(f"{prefix}: {error}") from None


def _later_rank(files: list[Path]) -> Path | None:
    """A file of a rank above the one that follows these, which is missing."""
    start, folder = files[0].name.removesuffix("0.et"), files[0].parent
    for file in sorted(folder.iterdir()) if files[0].exists() else ():
        rank = file.name.removeprefix(start).removesuffix(".et")
        if file.name == f"{start}{rank}.et" and rank.isdecimal() and int(rank) > len(files):
            return file
    return None


def jobs(patterns: Iterable[tuple[Pattern, float]]) -> Pattern:
    """Make a pattern of several ones at once, each with its start in seconds.

    The ranks of a job follow those of the job before it. `placement` of `simulate` says which nodes
    they have, and `Result.job_ends` when each job ended.
    """
    return Pattern.of_jobs(list(patterns))


def simulate(
    platform: Platform,
    pattern: Pattern,
    *,
    placement: str | npt.ArrayLike = "regular",
    mode: str = "exact",
    threshold: float = 0.01,
    window: int = 1,
    completion: str | None = None,
    tolerance: float = 0.0,
    resolution: float = 0.0,
    verify: bool = False,
    keep_messages: bool = True,
    keep_links: bool = True,
    packet_size: float = 1500.0,
    buffer: int = 16,
    virtual_output_queues: bool = False,
    routing: str = "static",
    failures: str | Iterable[str] = (),
    overhead: float = 0.0,
    stored_packet: float = 0.0,
) -> Result:
    """Run one simulation.

    `placement` is `"regular"`, `"random:SEED"` or the node of each rank. `mode` is `"exact"`
    (max-min), `"iterated"`, `"equal-split"` (modes N and F of the MFS paper) or `"packets"`. A send
    is complete at the `completion` `"destination"` or `"source"`; the default is `"source"` for
    traces and `"destination"` for patterns. `tolerance`, such as 0.01, is the fraction of its
    bandwidth by which the load of a link can be off in mode exact, to save time. Leave messages or
    links out of the result to save memory. `verify` checks after every batch that the rates are
    max-min fair. `routing` is `"static"`, or on fat trees and dragonflies `"ecmp"`, `"spray"`,
    `"valiant"` or `"adaptive"`, with a seed such as `"ecmp:7"`. `failures` are links, switches or
    nodes with times, such as `"group 0 router 1@1ms"`. `overhead` is the time in seconds that a
    host needs for a message of a pattern at each end. `stored_packet` is the size in bytes of the
    packets that switches store before they forward them. Raises `ValueError` for wrong arguments,
    also for those that have no effect in the mode, and `RuntimeError` for a deadlock.
    """
    for name, number in (("window", window), ("buffer", buffer)):
        if not isinstance(number, Integral) or not 1 <= number < 1 << 32:
            raise ValueError(f"{name} {number!r}: expected 1 or more, below {1 << 32}")
    for name, value in (
        ("threshold", threshold),
        ("tolerance", tolerance),
        ("resolution", resolution),
        ("packet_size", packet_size),
        ("overhead", overhead),
        ("stored_packet", stored_packet),
    ):
        if not isinstance(value, Real):
            raise ValueError(f"{name} {value!r}: expected a number")
    for name, text in (("mode", mode), ("routing", routing), ("completion", completion or "")):
        if not isinstance(text, str):
            raise ValueError(f"{name} {text!r}: expected a text")
    if keep_messages:
        _check_memory(pattern.messages)
    of_modes = (
        ("verify", verify, ("exact",)),
        ("tolerance", tolerance > 0, ("exact",)),
        ("threshold", threshold != 0.01, ("iterated",)),
        ("packet_size", packet_size != 1500.0, ("packets",)),
        ("buffer", buffer != 16, ("packets",)),
        ("virtual_output_queues", virtual_output_queues, ("packets",)),
        ("resolution", resolution > 0, ("exact", "iterated", "equal-split")),
        ("stored_packet", stored_packet > 0, ("exact", "iterated", "equal-split")),
    )
    for name, given, modes in of_modes:
        if given and mode not in modes and mode in ("exact", "iterated", "equal-split", "packets"):
            raise ValueError(f"{name} has no effect in mode {mode!r}: leave it out")
    where = placement if isinstance(placement, str) else _ranks("placement", placement)
    settings = {
        "mode": mode,
        "threshold": threshold,
        "window": window,
        "completion": completion,
        "tolerance": tolerance,
        "resolution": resolution,
        "verify": verify,
        "keep_messages": keep_messages,
        "keep_links": keep_links and mode != "packets",
        "packet_size": packet_size,
        "buffer": buffer,
        "virtual_output_queues": virtual_output_queues,
        "watch": [],
        "routing": routing,
        "failures": [failures] if isinstance(failures, str) else list(failures),
        "overhead": overhead,
        "stored_packet": stored_packet,
    }
    inputs = (platform, pattern, where, settings)
    return Result(inputs, simulate_flow(*inputs))


def sweep(
    platform: Platform,
    pattern: str | Callable[[float], Pattern],
    sizes: Iterable[float],
    *,
    seeds: Iterable[int] = range(10),
    mode: str = "exact",
    window: int = 1,
) -> Sweep:
    """Run a pattern over message sizes and random placements; the result shows the spread.

    `pattern` is a specification, or a function from the size to a pattern.
    """
    rows = []
    sizes, seeds = list(sizes), list(seeds)
    for name, values in (("sizes", sizes), ("seeds", seeds)):
        if len(set(values)) < len(values):
            raise ValueError(f"{name}: each may be given once, given {values}")
    for seed in seeds:
        if not isinstance(seed, Integral) or not 0 <= seed < 1 << 64:
            raise ValueError(f"seed {seed!r}: expected a whole number from 0 to {2**64 - 1}")
    for size in sizes:
        if not size >= 0:
            raise ValueError(f"size {size}: expected 0 or more")
    for size in sizes:
        made = pattern(size) if callable(pattern) else Pattern(pattern, platform.nodes, size)
        for seed in seeds:
            run = simulate(
                platform,
                made,
                placement=f"random:{seed}",
                mode=mode,
                window=window,
                keep_messages=False,
                keep_links=False,
            )
            rows.append((float(size), seed, run.makespan))
    return Sweep(rows)


def _check_memory(count: int) -> None:
    """Refuse to keep messages that need more memory than this machine has."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if count * BYTES_OF_MESSAGE > memory:
        needed, has = (round(bytes_ / 2**30) for bytes_ in (count * BYTES_OF_MESSAGE, memory))
        raise ValueError(
            f"{count} messages would need {needed} GiB, and this machine has {has} GiB: "
            "use keep_messages=False"
        )


def _ranks(name: str, values: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    array = np.asarray(_unmasked(name, values))
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, given {array.ndim}")
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected whole numbers from 0, given {array.dtype}")
    if array.size and array.min() < 0:
        raise ValueError(f"{name}: expected whole numbers from 0, given {array.min()}")
    if array.size and array.max() > np.iinfo(np.uint32).max:
        raise ValueError(f"{name}: {array.max()} is too large")
    # A copy: the result simulates again with it, and the caller may change its array meanwhile.
    return np.array(array, np.uint32)


def _numbers(name: str, values: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    """A number for each of so many messages."""
    array = np.asarray(_unmasked(name, values), np.float64)
    if array.ndim > 1 or array.size not in (1, count):
        raise ValueError(
            f"{name}: expected one number, or one for each of {count} messages, given an array of "
            f"shape {array.shape}"
        )
    return np.ascontiguousarray(np.broadcast_to(array, count))


def _unmasked(name: str, values: npt.ArrayLike) -> npt.ArrayLike:
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name}: a masked array: {UNMASKED}")
    return values
