"""Results as Arrow tables, files and traces."""

import os
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import FlowPattern, FlowPlatform, simulate_flow, write_flow_trace

Inputs = tuple[FlowPlatform, FlowPattern, str | npt.NDArray[np.uint32], dict[str, Any]]


def arrow() -> Any:
    """Import pyarrow, which tables need."""
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError("tables need pyarrow: pip install pyarrow") from None
    return pa


@dataclass
class HotLink:
    """A link with a high utilisation, and the pairs of ranks that send most bytes over it."""

    link: int
    name: str
    utilisation: float
    # Number of pairs that use the link.
    pairs: int
    # Source, destination, and their part of the bytes on the link.
    users: list[tuple[int, int, float]]


class Result:
    """The result of a simulation. Times are in seconds, sizes in bytes."""

    def __init__(self, inputs: Inputs, data: dict[str, Any]) -> None:
        self._inputs = inputs
        self.platform = inputs[0]
        self.ranks: int = inputs[1].ranks
        self.makespan: float = data["makespan"]
        self.message_count: int = data["messages"]
        self.events: int = data["events"]
        # When each of several jobs ended.
        self.job_ends: list[float] = data["job_ends"]
        self.link_bytes: npt.NDArray[np.float64] = data["link_bytes"]
        self.source: npt.NDArray[np.uint32] = data["source"]
        self.destination: npt.NDArray[np.uint32] = data["destination"]
        self.bytes: npt.NDArray[np.float64] = data["bytes"]
        self.start: npt.NDArray[np.float64] = data["start"]
        self.end: npt.NDArray[np.float64] = data["end"]

    def __repr__(self) -> str:
        return (
            f"Result(makespan={self.makespan:.9g} s, messages={self.message_count}, "
            f"events={self.events})"
        )

    @property
    def utilisation(self) -> npt.NDArray[np.float64]:
        """Bytes over each link, divided by the bytes that it could carry in the makespan."""
        self._require_links()
        capacity = self.platform.bandwidths * self.makespan
        used: npt.NDArray[np.float64] = np.divide(
            self.link_bytes, capacity, out=np.zeros_like(self.link_bytes), where=capacity > 0
        )
        return used

    def messages(self) -> Any:
        """Arrow table of all messages in the order of arrival."""
        self._require_messages()
        names = ("source", "destination", "bytes", "start", "end")
        return arrow().table({name: getattr(self, name) for name in names})

    def links(self) -> Any:
        """Arrow table of all links."""
        self._require_links()
        panel, row, column = self.platform.places()
        return arrow().table(
            {
                "link": np.arange(len(self.link_bytes), dtype=np.uint32),
                "name": self.platform.link_names(),
                "bandwidth": self.platform.bandwidths,
                "bytes": self.link_bytes,
                "utilisation": self.utilisation,
                "panel": panel,
                "row": row,
                "column": column,
            }
        )

    def hottest(self, count: int = 10, users: int = 3) -> list[HotLink]:
        """The links with the highest utilisation, and the ranks that use them.

        This simulates again.
        """
        if count < 0 or users < 0:
            raise ValueError(f"count {count}, users {users}: expected 0 or more")
        self._require_links()
        utilisation = self.utilisation
        order = np.argsort(-utilisation, kind="stable")[:count]
        links = [int(link) for link in order if utilisation[link] > 0]
        platform, pattern, where, settings = self._inputs
        settings = settings | {"watch": links, "keep_messages": False}
        all_users = simulate_flow(platform, pattern, where, settings)["users"]
        names = platform.link_names()
        found = []
        for link, pairs in zip(links, all_users, strict=True):
            total = sum(size for *_, size in pairs)
            most = [(source, to, size / total) for source, to, size in pairs[:users]]
            found.append(HotLink(link, names[link], float(utilisation[link]), len(pairs), most))
        return found

    def _require_messages(self) -> None:
        if len(self.source) < self.message_count:
            raise ValueError("this run has kept no messages: use keep_messages=True")

    def _require_links(self) -> None:
        if len(self.link_bytes) == 0:
            raise ValueError("this run has no links: use keep_links=True, and not mode='packets'")

    def write(self, path: str | PathLike[str], table: str = "messages") -> None:
        """Write `messages` or `links` to a `.csv` or `.parquet` file."""
        if table not in ("messages", "links"):
            raise ValueError(f"table {table!r}: expected 'messages' or 'links'")
        write_table(getattr(self, table)(), path)

    def write_perfetto(self, path: str | PathLike[str]) -> None:
        """Write a trace that Perfetto and chrome://tracing open.

        It has the messages and computations of each rank, an arrow from each send to its receive,
        and the load of the hottest links. This simulates again.
        """
        # A link stays, and leads to the new trace.
        path = Path(path).resolve()
        if path.exists() and not path.is_file():
            # A device or a pipe.
            return write_flow_trace(fspath(path), *self._inputs)
        # The file is complete, or is not there: a run can fail or be interrupted.
        part = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            part.touch()
            write_flow_trace(fspath(part), *self._inputs)
            part.replace(path)
        except OSError as error:
            raise OSError(error.errno, f"cannot be written: {error}", fspath(path)) from None
        finally:
            part.unlink(missing_ok=True)


class Sweep:
    """Makespans over sizes and seeds. Printing it shows the spread."""

    def __init__(self, rows: list[tuple[float, int, float]]) -> None:
        self.size = np.array([row[0] for row in rows])
        self.seed = np.array([row[1] for row in rows], np.uint64)
        self.makespan = np.array([row[2] for row in rows])

    def table(self) -> Any:
        """Arrow table: size, seed, makespan."""
        return arrow().table({"size": self.size, "seed": self.seed, "makespan": self.makespan})

    def spread(self) -> list[dict[str, float]]:
        """For every size: runs, mean, standard deviation, least, median and greatest makespan."""
        rows = []
        for size in dict.fromkeys(self.size.tolist()):
            times = self.makespan[self.size == size]
            rows.append(
                {
                    "size": size,
                    "runs": len(times),
                    "mean": float(times.mean()),
                    "std": float(times.std(ddof=1)) if len(times) > 1 else 0.0,
                    "min": float(times.min()),
                    "median": float(np.median(times)),
                    "max": float(times.max()),
                }
            )
        return rows

    def __repr__(self) -> str:
        lines = [f"{'size':>12} {'runs':>5} {'mean':>12} {'std':>10} {'min':>12} {'max':>12}"]
        lines += [
            f"{r['size']:12g} {r['runs']:5d} {r['mean']:12.6g} {r['std']:10.3g} "
            f"{r['min']:12.6g} {r['max']:12.6g}"
            for r in self.spread()
        ]
        return "\n".join(lines)


def write_table(table: Any, path: str | PathLike[str]) -> None:
    """Write an Arrow table in the format of the ending of the file name."""
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    elif path.suffix.lower() == ".csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path)
    else:
        raise ValueError(f"{path}: expected a name that ends in .csv or .parquet")
