"""Columns of Parquet and of Arrow, which need the package `pyarrow`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from .errors import TooLargeError, UnfitError
from .formats import side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .addresses import Entry
    from .content import Content
    from .formats import Array


def read(content: Content, kind: str, columns: list[str] | None, entry: Entry) -> Array:
    """The columns of a file side by side."""
    source = content.source
    try:
        file = pa.BufferReader(pa.py_buffer(content.view()))
        if kind == "parquet":
            return _read_parquet(pa.parquet.ParquetFile(file), columns, source, entry)
        return _read_ipc(file, columns, source, entry)
    except (pa.ArrowException, OSError) as error:
        raise UnfitError(f"the source `{source}` is no {kind} file: {error}") from None


def _read_parquet(file: Any, columns: list[str] | None, source: str, entry: Entry) -> Array:
    schema = file.schema_arrow
    names = _picked(schema, columns, source)
    # The size is known before anything is unpacked.
    _bound(file.metadata.num_rows, schema, names, source, entry)
    return _side_by_side(file.read(columns=names, use_threads=False), names, source)


def _read_ipc(file: Any, columns: list[str] | None, source: str, entry: Entry) -> Array:
    try:
        reader = pa.ipc.open_file(file)
        batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
    except pa.ArrowInvalid:
        file.seek(0)
        reader = pa.ipc.open_stream(file)
        batches = iter(reader)
    return gathered(reader.schema, batches, columns, source, entry)


def gathered(
    schema: Any, batches: Iterable[Any], columns: list[str] | None, source: str, entry: Entry
) -> Array:
    """The columns of batches, as they come, side by side."""
    names = _picked(schema, columns, source)
    # A column can be wanted twice.
    once = list(dict.fromkeys(names))
    rows, kept = 0, []
    for batch in batches:
        rows += batch.num_rows
        _bound(rows, schema, names, source, entry)
        part = batch.select(once)
        # A source says what it likes of its lengths, and pyarrow would read beyond its bytes.
        part.validate()
        kept.append(part)
    picked = pa.schema([schema.field(name) for name in once])
    return _side_by_side(pa.Table.from_batches(kept, picked), names, source)


def _picked(schema: Any, columns: list[str] | None, source: str) -> list[str]:
    """The wanted columns, each of which has numbers."""
    known = schema.names
    for name in known if columns is None else columns:
        if known.count(name) != 1:
            raise UnfitError(
                f"the source `{source}` has no column `{name}`, or several; it has "
                f"{', '.join(known)[:1000]}"
            )
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise UnfitError(
                f"the source `{source}` has a column `{name}` of type {kind}, which is no number "
                f"of a fixed size; give the `columns` that are numbers"
            )
    return list(known if columns is None else columns)


def _bound(rows: int, schema: Any, names: list[str], source: str, entry: Entry) -> None:
    size = rows * sum(schema.field(name).type.bit_width // 8 for name in names)
    if size > entry.max_bytes:
        raise TooLargeError(
            f"the source `{source}` has {size} bytes in the columns, and {entry.max_bytes} are "
            f"allowed (max_bytes of [sources.{entry.name}] in the server's configuration)"
        )


def _side_by_side(table: Any, names: list[str], source: str) -> Array:
    arrays = []
    for name in names:
        column = table.column(name)
        if column.null_count:
            raise UnfitError(
                f"the source `{source}` has {column.null_count} missing values in column `{name}`"
            )
        arrays.append(np.asarray(column.to_numpy()))
    if not arrays:
        raise UnfitError(f"the source `{source}` has no columns")
    return side_by_side(arrays, source)
