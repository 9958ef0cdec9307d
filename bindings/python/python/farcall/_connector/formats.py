"""Formats: the bytes of a source as an array, and the array in the wanted type and order."""

from __future__ import annotations

import csv
import encodings.utf_8_sig  # noqa: F401  # Tables in text begin with it at times.
import io
import math
import re
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from .._arrays import inexact, overflowing
from .errors import TooLargeError, UnfitError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    from .addresses import Address, Entry
    from .content import Content

Array = npt.NDArray[Any]

ELEMENTS = {
    "char": "i1",
    "short": "i2",
    "int": "i4",
    "long": "i8",
    "longlong": "i8",
    "unsigned char": "u1",
    "unsigned short": "u2",
    "unsigned int": "u4",
    "unsigned long": "u8",
    "unsigned longlong": "u8",
    "float": "f4",
    "double": "f8",
    "scomplex": "c8",
    "dcomplex": "c16",
}
"""Types of interfaces, and NumPy's."""

_PIECE = 1 << 20
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
# What programs write for a number that is missing.
_MISSING = frozenset(("", "-", ".", "?", "#n/a", "missing", "n/a", "na", "none", "null"))
_NAMES = {code: name for name, code in reversed(ELEMENTS.items())}
_WIDER = {"b1": "u1", "f2": "f4"}
_ENDS = {
    "npy": "npy",
    "csv": "csv",
    "tsv": "tsv",
    "raw": "raw",
    "bin": "raw",
    "dat": "raw",
    "parquet": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
}


def dtype_of(asked: dict[str, Any]) -> np.dtype[Any] | None:
    """The type of the numbers that the request states."""
    element = asked["element"]
    if element is None:
        return None
    order: Literal["<", ">"] = ">" if asked["big_endian"] else "<"
    dtype: np.dtype[Any] = np.dtype(ELEMENTS[element]).newbyteorder(order)
    return dtype


def format_of(path: str, asked: dict[str, Any], source: str) -> str:
    """The format of a source: what the request says, else the end of its path."""
    _, point, ending = path.rpartition("/")[2].rpartition(".")
    said = asked["format"] or (ending.lower() if point else "")
    known = _ENDS.get(said)
    if known is None:
        what = "has no ending that says its format"
        if said:
            what = f"has the format `{said}`, which this server does not read"
        raise UnfitError(
            f"the source `{source}` {what}: "
            f'give format="npy", "csv", "tsv", "raw", "parquet" or "arrow"'
        )
    return known


def check_to_read(kind: str, asked: dict[str, Any], source: str) -> None:
    """Refuses what has no effect on a format, or on the tables of a database or a flight."""
    if asked["columns"] is not None and kind in ("npy", "raw"):
        raise UnfitError(f"the source `{source}` is no table: it takes no columns")
    if asked["by_columns"] and kind != "raw":
        raise UnfitError(f"the source `{source}` has no raw numbers: it takes no order")


def read(content: Content, kind: str, asked: dict[str, Any], entry: Entry) -> Array:
    """The array of a format."""
    if kind in ("arrow", "parquet"):
        return _read_arrow(content, kind, asked, entry)
    if kind == "npy":
        return as_stated(_read_npy(content), asked, content.source)
    if kind == "raw":
        return _read_raw(content, asked)
    return _read_table(content, "\t" if kind == "tsv" else ",", asked)


def check_to_write(kind: str, asked: dict[str, Any], address: str) -> None:
    """Refuses a format in which the array cannot be written."""
    if kind in ("arrow", "parquet"):
        raise UnfitError(
            f'arrays are not written as {kind}: give `{address}` the format "npy", "csv", "tsv" or '
            f'"raw"'
        )
    shape, names = asked["writes"], asked["columns"]
    if kind in ("csv", "tsv"):
        count = shape[1] if len(shape) == 2 else 1
        is_complex = "complex" in asked["wanted"] or "complex" in (asked["element"] or "")
        if len(shape) not in (1, 2) or is_complex:
            raise UnfitError(
                f"the array for `{address}` is no table: only vectors and matrices of real numbers "
                f"are written as {kind}"
            )
        if names is not None and len(names) != count:
            raise UnfitError(
                f"the array for `{address}` has {count} columns, and {len(names)} names were given"
            )
        if names is not None and not _are_names(names, float):
            raise UnfitError(
                f"the columns of `{address}` are called {', '.join(names)[:1000]}: a reader takes "
                f"such a line as numbers; give one of them a name"
            )
    elif names is not None:
        raise UnfitError(f"the address `{address}` is no table: it takes no columns")


def write(content: Content, kind: str, array: Array, asked: dict[str, Any]) -> None:
    """Writes an array in a format."""
    dtype = dtype_of(asked)
    if dtype is not None:
        array = converted(array, dtype, content.source)
    if kind == "npy":
        array = np.asfortranarray(array) if asked["by_columns"] else array
        np.lib.format.write_array(content, array, version=(1, 0), allow_pickle=False)
    elif kind == "raw":
        rows = array.T if asked["by_columns"] else array
        flat = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        for begin in range(0, flat.size, _PIECE):
            content.add(flat[begin : begin + _PIECE].tobytes())
    else:
        delimiter = "\t" if kind == "tsv" else ","
        if asked["columns"] is not None:
            head = io.StringIO()
            csv.writer(head, delimiter=delimiter, lineterminator="\n").writerow(asked["columns"])
            content.add(head.getvalue().encode())
        kinds = {"f": "%.9g" if array.dtype.itemsize == 4 else "%.17g"}
        np.savetxt(content, array, fmt=kinds.get(array.dtype.kind, "%d"), delimiter=delimiter)


def _read_arrow(content: Content, kind: str, asked: dict[str, Any], entry: Entry) -> Array:
    try:
        from . import arrow  # noqa: PLC0415  # It takes long to load, and a server may lack it.
    except ImportError:
        raise _no_pyarrow(content.source) from None
    table = arrow.read(content, kind, asked["columns"], entry)
    return as_stated(table, asked, content.source)


def read_flight(address: Address, entry: Entry, asked: dict[str, Any]) -> Array:
    """The columns of a flight."""
    try:
        from . import flight  # noqa: PLC0415
    except ImportError:
        raise _no_pyarrow(str(address)) from None
    return as_stated(flight.read(address, entry, asked), asked, str(address))


def _no_pyarrow(source: str) -> UnreachableError:
    return UnreachableError(
        f"the source `{source}` needs the package `pyarrow` at the server: its operator can "
        f"install it (`python3 -m pip install pyarrow`)"
    )


def as_stated(table: Array, asked: dict[str, Any], source: str) -> Array:
    """The numbers in the type that the request states, if it states one."""
    dtype = dtype_of(asked)
    return table if dtype is None else converted(table, dtype, source)


def converted(table: Array, dtype: np.dtype[Any], source: str) -> Array:
    """The numbers of a table in the type that the request states."""
    if not np.can_cast(table.dtype, dtype, "same_kind"):
        raise UnfitError(f"the source `{source}` has numbers of type {table.dtype}, no {dtype}")
    return held(table, dtype, source)


def held(array: Array, dtype: np.dtype[Any], source: str) -> Array:
    """The numbers in another type, which must hold them.

    A whole number stays the same. A real number becomes the nearest one, but no infinity.
    """
    narrower = array.dtype.kind in "fc" and dtype.itemsize < array.dtype.itemsize
    if inexact(array, dtype) or (narrower and overflowing(array, dtype)):
        raise UnfitError(
            f"the source `{source}` has numbers of type {array.dtype} that {dtype} cannot hold"
        )
    return array.astype(dtype, copy=False)


def number_of(name: str, names: Sequence[str]) -> str:
    """Says how many columns of a name there are, if it is not one."""
    return f"no column `{name}`" if name not in names else f"several columns `{name}`"


def side_by_side(columns: Sequence[Array], source: str) -> Array:
    """Columns as a matrix in the type that holds all of their numbers; one column as a vector."""
    common = np.result_type(*columns)
    columns = [held(column, common, source) for column in columns]
    return columns[0] if len(columns) == 1 else np.column_stack(columns)


def head_of(file: BinaryIO, source: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of a `.npy` file. Its numbers follow in the file."""
    try:
        version = np.lib.format.read_magic(file)
        readers = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, by_columns, dtype = readers[version](file)
    except (ValueError, KeyError, EOFError, SyntaxError) as error:
        raise UnfitError(
            f"the source `{source}` is no .npy file that can be read: {error}"
        ) from None
    if dtype.hasobject or dtype.fields is not None:
        raise UnfitError(
            f"the source `{source}` has elements of type {dtype}, which are no numbers"
        )
    return shape, by_columns, dtype


def _read_npy(content: Content) -> Array:
    source, file = content.source, content.start()
    shape, by_columns, dtype = head_of(file, source)
    offset, count = file.tell(), math.prod(shape)
    if offset + count * dtype.itemsize != content.length:
        raise UnfitError(
            f"the source `{source}` has {content.length - offset} bytes of numbers, and its head "
            f"announces {count * dtype.itemsize}"
        )
    flat = np.frombuffer(content.view(), dtype, count, offset) if count else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


def raw_shape(
    asked: dict[str, Any], length: int, source: str
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape of raw numbers of this many bytes."""
    dtype = dtype_of(asked)
    if dtype is None:
        raise UnfitError(
            f"the source `{source}` has raw numbers: give their dtype, such as "
            f'dtype="float64" in Python, or #type=double after the address'
        )
    whole = length // dtype.itemsize
    shape = (whole,) if asked["shape"] is None else tuple(asked["shape"])
    if math.prod(shape) * dtype.itemsize != length:
        raise UnfitError(
            f"the source `{source}` has {length} bytes, and {dtype} of shape {shape} has "
            f"{math.prod(shape) * dtype.itemsize}"
        )
    return dtype, shape


def _read_raw(content: Content, asked: dict[str, Any]) -> Array:
    dtype, shape = raw_shape(asked, content.length, content.source)
    flat = np.frombuffer(content.view(), dtype)
    return flat.reshape(shape, order="F" if asked["by_columns"] else "C")


def _read_table(content: Content, delimiter: str, asked: dict[str, Any]) -> Array:
    """Numbers of a table in text. A first line that has no numbers has the names of columns."""
    source, columns = content.source, asked["columns"]
    dtype = dtype_of(asked) or np.dtype(ELEMENTS[asked["wanted"] or "double"])
    dtype = dtype.newbyteorder("=")
    text = io.TextIOWrapper(content.start(), encoding="utf-8-sig", newline="")
    try:
        first = next(csv.reader([text.readline()], delimiter=delimiter), [])
        names = [name.strip() for name in first]
        has_names = _are_names(names, complex if dtype.kind == "c" else float)
        picked = None
        if columns is not None:
            absent = [name for name in columns if names.count(name) != 1 or not has_names]
            if absent:
                known = ", ".join(names) if has_names else "columns without names"
                said = f"{number_of(absent[0], names if has_names else [])}; it has {known[:1000]}"
                raise UnfitError(f"the source `{source}` has {said}")
            picked = [names.index(name) for name in columns]
        text.seek(0)
        # NumPy would make an infinity of a number that is too large for 32 bits.
        wide = {"f": np.dtype("f8"), "c": np.dtype("c16")}.get(dtype.kind, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Versions before 2.4 warn of a number that an integer cannot hold, and change it.
            warnings.simplefilter("error", DeprecationWarning)
            table = np.loadtxt(
                text,
                dtype=wide,
                comments=None,
                delimiter=delimiter,
                quotechar='"',
                skiprows=int(has_names),
                usecols=picked,
                ndmin=2,
            )
        if picked is not None:
            text.seek(0)
            _check_widths(csv.reader(text, delimiter=delimiter), len(names))
        if asked["element"] is None:
            text.seek(0)
            rows = csv.reader(text, delimiter=delimiter)
            if has_names:
                next(rows)
            _check_whole(table, filter(None, rows), picked, dtype, source)
    except (ValueError, OverflowError, csv.Error) as error:
        raise UnfitError(
            f"the source `{source}` is no table of numbers that fit: {_told(error)}"
        ) from None
    finally:
        text.detach()
    table = held(table, dtype, source)
    if table.size == 0:
        table = np.empty((0, len(names) if picked is None else len(picked)), table.dtype)
    return table[:, 0] if table.shape[1] == 1 else table


def _told(error: Exception) -> str:
    """What NumPy says of a table, without advice for its callers, and with rows counted from 1."""
    text = str(error).partition("; use `usecols`")[0]
    return re.sub(r"row (\d+), column", lambda row: f"row {int(row[1]) + 1}, column", text)


def _check_widths(rows: Iterable[Sequence[str]], width: int) -> None:
    """Refuses a row with more fields than there are names: they name other columns there."""
    for number, row in enumerate(filter(None, rows)):
        if len(row) > width and any(field.strip() for field in row[width:]):
            raise ValueError(
                f"row {number} has {len(row)} fields, and the first line has {width} names"
            )


def _check_whole(
    table: Array,
    rows: Iterable[Sequence[str]],
    picked: Sequence[int] | None,
    dtype: np.dtype[Any],
    source: str,
) -> None:
    """Refuses whole numbers that a type which nobody has stated would round."""
    if dtype.kind not in "fc":
        return
    real = np.finfo(dtype)
    is_large: Array = np.any(np.abs(table) >= 2.0 ** (real.nmant + 1), axis=1, keepdims=True)
    if not is_large.any():
        return
    for row_is_large, row in zip(is_large.flat, rows, strict=False):
        fields = row if picked is None else [row[column] for column in picked]
        for field in fields if row_is_large else []:
            if _WHOLE.fullmatch(field) and int(real.dtype.type(int(field))) != int(field):
                raise UnfitError(
                    f"the source `{source}` has the whole number {field.strip()}, which {dtype} "
                    f'cannot hold: give dtype="int64", or dtype="{dtype}" to have it rounded'
                )


def _are_names(fields: Sequence[str], number: type[float | complex]) -> bool:
    """Whether the first line of a table has something else than numbers, also missing ones."""
    others = [field for field in fields if not _is_number(field, number)]
    is_row = len(others) < len(fields)
    return any(one.lower() not in (_MISSING if is_row else ("",)) for one in others)


def _is_number(word: str, number: type[float | complex]) -> bool:
    try:
        number(word)
    except ValueError:
        return False
    return True


def check_shape(shape: tuple[int, ...], asked: dict[str, Any], source: str) -> None:
    """Refuses an array whose shape the request does not expect."""
    expected = asked["shape"]
    if expected is not None and shape != tuple(expected):
        raise UnfitError(
            f"the source `{source}` has an array of shape {shape}, and {tuple(expected)} "
            f"was expected"
        )


def bounds(shape: tuple[int, ...], asked: dict[str, Any], source: str) -> tuple[int, int]:
    """The wanted rows of an array of this shape."""
    begin, end = asked["rows"]
    if end is None:
        end = shape[0] if shape else 0
    if not shape or not begin <= end <= shape[0]:
        raise UnfitError(
            f"the source `{source}` has an array of shape {shape}, which does not have the rows "
            f"{begin} to {end}"
        )
    return begin, end


def picked(array: Array, asked: dict[str, Any], source: str) -> Array:
    """The wanted rows of an array that was read whole."""
    check_shape(array.shape, asked, source)
    if asked["rows"] is None:
        return array
    begin, end = bounds(array.shape, asked, source)
    return array[begin:end]


def fitted(array: Array, asked: dict[str, Any], source: str, entry: Entry) -> tuple[Array, str]:
    """The array in the wanted type and order, and the name of its type."""
    code = array.dtype.kind + str(array.dtype.itemsize)
    wanted = asked["wanted"]
    if wanted == "" or (wanted == "char" and array.dtype.itemsize == 1):
        code = _WIDER.get(code, code)
        wanted = wanted or _NAMES.get(code, "")
        if wanted == "":
            raise UnfitError(
                f"the source `{source}` has elements of type {array.dtype}, which no function takes"
            )
    else:
        code = ELEMENTS[wanted]
        if not np.can_cast(array.dtype, code, "safe"):
            raise UnfitError(
                f"the source `{source}` has numbers of type {array.dtype}, and {np.dtype(code)} "
                f"is wanted, which cannot hold all of them"
            )
        array = held(array, np.dtype(code), source)
    if array.size * np.dtype(code).itemsize > entry.max_bytes:
        raise TooLargeError(
            f"the array of the source `{source}` has {array.size * np.dtype(code).itemsize} bytes, "
            f"and {entry.max_bytes} are allowed (max_bytes of [sources.{entry.name}] in the "
            f"server's configuration)"
        )
    order: Literal["C", "F"] = "F" if asked["column_major"] else "C"
    return array.astype(code, order=order, casting="unsafe", copy=False), wanted
