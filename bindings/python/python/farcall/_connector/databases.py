"""Sources that are databases: one query that reads, whose columns are numbers. Files of SQLite."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from .errors import RefusedError, TooLargeError, UnfitError
from .files import open_beneath, root_of
from .formats import ELEMENTS, Array, converted, dtype_of, held, number_of, side_by_side
from .network import Deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .addresses import Address, Entry

ROWS = 10_000
"""Rows that are taken at a time."""

_READS = frozenset(
    [
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    ]
)
_REFUSED_FUNCTIONS = frozenset(["load_extension", "fts3_tokenizer", "readfile", "writefile"])
_MOST_VALUE = 1_000_000
_STEPS = 10_000


class Table:
    """Columns of numbers, as rows come."""

    def __init__(self, address: Address, entry: Entry, names: Sequence[str]) -> None:
        self.source = str(address)
        self._entry = entry
        self.names = list(names)
        self.pieces: list[list[Array]] = [[] for _ in names]
        self._rows = 0

    def add(self, rows: Sequence[Sequence[Any]], types: Sequence[str | None]) -> None:
        """Adds rows. Types that are not given are those of the values."""
        most = self._entry.max_bytes
        if (self._rows + len(rows)) * len(self.names) * 8 > most:
            raise TooLargeError(
                f"the source `{self.source}` has more than {self._rows} rows of "
                f"{len(self.names)} columns, and {most} bytes are allowed (max_bytes of "
                f"[sources.{self._entry.name}] in the server's configuration)"
            )
        for index, (values, code) in enumerate(zip(zip(*rows, strict=True), types, strict=True)):
            self.pieces[index].append(self._column(index, values, code))
        self._rows += len(rows)

    def _column(self, index: int, values: tuple[Any, ...], code: str | None) -> Array:
        name = self.names[index]
        kinds = {type(value) for value in values}
        if type(None) in kinds:
            row = self._rows + values.index(None) + 1
            raise UnfitError(
                f"the source `{self.source}` has NULL in column `{name}`, row {row}: replace it in "
                f"the query, with COALESCE for example"
            )
        if code is None:
            other = kinds - {int, float}
            if other:
                raise self.no_number(name, min(one.__name__ for one in other))
            code = "i8" if kinds == {int} else "f8"
            if len(kinds) == 2:
                whole = np.array([one for one in values if isinstance(one, int)], dtype="i8")
                held(whole, np.dtype(code), self.source)
        return np.array(values, dtype=code)

    def no_number(self, name: str, kind: str) -> UnfitError:
        """The error of a column that cannot be in an array."""
        hint = ': give dtype="float64", or cast it in the query' if kind == "numeric" else ""
        return UnfitError(
            f"the source `{self.source}` has a column `{name}` of type {kind}, which is no number "
            f"of a fixed size{hint}"
        )

    def _place(self, name: str) -> int:
        """The position of a column. Several columns of a query can have the same name."""
        if self.names.count(name) != 1:
            raise UnfitError(
                f"the source `{self.source}` has {number_of(name, self.names)}; the query gives "
                f"{', '.join(self.names)[:1000]}"
            )
        return self.names.index(name)

    def array(self, asked: dict[str, Any]) -> Array:
        """The wanted columns side by side."""
        places: Sequence[int] = range(len(self.names))
        if asked["columns"] is not None:
            places = [self._place(name) for name in asked["columns"]]
        dtype = dtype_of(asked)
        # Without rows, the columns of SQLite have no types.
        empty = np.empty(0, dtype or np.dtype(ELEMENTS[asked["wanted"] or "double"]))
        columns = []
        for place in places:
            pieces = self.pieces[place] or [empty]
            common = np.result_type(*pieces)
            columns.append(np.concatenate([held(piece, common, self.source) for piece in pieces]))
        table = side_by_side(columns, self.source)
        if dtype is None:
            return table
        return converted(table, dtype, self.source)


def query_of(address: Address, asked: dict[str, Any]) -> str:
    """The query of a request."""
    query: str | None = asked["query"]
    if query is None or not query.strip() or "\0" in query:
        raise UnfitError(f'the source `{address}` is a database: give a query="select ..."')
    if asked["rows"] is not None:
        raise UnfitError(
            f"the source `{address}` is a database: its query says which rows are wanted"
        )
    return query


def read_sqlite(address: Address, entry: Entry, asked: dict[str, Any]) -> Array:
    """The columns of a query to a file of SQLite, which only reads."""
    query = query_of(address, asked)
    deadline = Deadline(str(address), entry.time_limit_s)
    root, path = root_of(address, entry, None)
    os.close(open_beneath(root, path, address))
    end = time.monotonic() + deadline.left()
    refused: list[str] = []

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _READS and (second or "").lower() not in _REFUSED_FUNCTIONS:
            return sqlite3.SQLITE_OK
        refused.append(first or second or "this statement")
        return sqlite3.SQLITE_DENY

    try:
        database = sqlite3.connect(
            f"file:{quote(address.path)}?mode=ro", uri=True, timeout=deadline.left()
        )
        try:
            if sys.version_info >= (3, 11):
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE)
                database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            database.set_authorizer(authorize)
            database.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
            rows = database.execute(query)
            names = [column[0] for column in rows.description or []]
            if not names:
                raise RefusedError(f"the query to `{address}` is no SELECT: sources are only read")
            table = Table(address, entry, names)
            while piece := list(islice(rows, ROWS)):
                table.add(piece, [None] * len(names))
            return table.array(asked)
        finally:
            database.close()
    except (sqlite3.Error, sqlite3.Warning) as error:
        if refused:
            raise RefusedError(
                f"the query to `{address}` is not allowed: a source is only read, by one SELECT "
                f"({refused[0]})"
            ) from None
        deadline.left()
        raise UnfitError(f"the source `{address}` does not answer the query: {error}") from None
