"""Results as Arrow tables, files and traces."""

import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._native import FlowPlatform


def arrow() -> Any:
    """Import pyarrow, which tables need."""
    try:
        import pyarrow as pa
    except ImportError:
        raise ImportError("tables need pyarrow: pip install pyarrow") from None
    return pa


class Result:
    """The result of a simulation. Times are in seconds, sizes in bytes."""

    def __init__(self, platform: FlowPlatform, data: dict[str, Any]) -> None:
        self.platform = platform
        self.makespan: float = data["makespan"]
        self.message_count: int = data["messages"]
        self.events: int = data["events"]
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
        capacity = self.platform.bandwidths * self.makespan
        used: npt.NDArray[np.float64] = np.divide(
            self.link_bytes, capacity, out=np.zeros_like(self.link_bytes), where=capacity > 0
        )
        return used

    def messages(self) -> Any:
        """Arrow table of all messages in the order of arrival."""
        names = ("source", "destination", "bytes", "start", "end")
        return arrow().table({name: getattr(self, name) for name in names})

    def links(self) -> Any:
        """Arrow table of all links."""
        if len(self.link_bytes) == 0:
            raise ValueError("this run has no links: use keep_links=True, and not mode='packets'")
        return arrow().table(
            {
                "link": np.arange(len(self.link_bytes), dtype=np.uint32),
                "name": self.platform.link_names(),
                "bandwidth": self.platform.bandwidths,
                "bytes": self.link_bytes,
                "utilisation": self.utilisation,
            }
        )

    def write(self, path: str | PathLike[str], table: str = "messages") -> None:
        """Write `messages` or `links` to a `.csv` or `.parquet` file."""
        write_table(getattr(self, table)(), path)

    def write_perfetto(self, path: str | PathLike[str]) -> None:
        """Write a trace that Perfetto and chrome://tracing open: a track for each rank."""
        columns = (self.source, self.destination, self.bytes, self.start, self.end)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        events = [
            {
                "ph": "X",
                "name": f"to {to}",
                "cat": "message",
                "pid": 0,
                "tid": source,
                "ts": start * 1e6,
                "dur": (end - start) * 1e6,
                "args": {"bytes": size},
            }
            for source, to, size, start, end in rows
        ]
        trace = {"displayTimeUnit": "ns", "traceEvents": events}
        Path(path).write_text(json.dumps(trace), encoding="utf-8")


class Sweep:
    """Makespans over sizes and seeds. Printing it shows the spread."""

    def __init__(self, rows: list[tuple[float, int, float]]) -> None:
        self.size = np.array([row[0] for row in rows])
        self.seed = np.array([row[1] for row in rows], np.int64)
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
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        import pyarrow.csv

        pyarrow.csv.write_csv(table, path)
    else:
        raise ValueError(f"{path}: expected a name that ends in .csv or .parquet")
