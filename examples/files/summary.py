"""Statistics of a table, by a library on a server: `summary.py TABLE.csv [SERVER]`."""

import pathlib
import sys

import farcall

table = pathlib.Path(sys.argv[1])
server = farcall.connect(*sys.argv[2:])
summary = table.with_suffix(".summary.csv")
rows = int(server.function("table/summary")(table, summary).rows)
print(f"{rows} rows")
print(summary.read_text(), end="")
