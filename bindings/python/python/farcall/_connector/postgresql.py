"""Sources in PostgreSQL: one query that reads, in a transaction that only reads."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

import numpy as np

from .databases import ROWS, Table, query_of
from .errors import RefusedError, SourceError, UnfitError, UnreachableError
from .network import Deadline, resolve

try:
    import asyncpg
except ImportError:
    asyncpg = None

if TYPE_CHECKING:
    from .addresses import Address, Entry
    from .formats import Array

_TYPES = {
    "bool": "u1",
    "int2": "i2",
    "int4": "i4",
    "int8": "i8",
    "float4": "f4",
    "float8": "f8",
}
"""Types of PostgreSQL that are numbers of machines."""

_FAREWELL_S = 2.0
# Before Python 3.11 these are two.
_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)

_INEXACT = ("numeric",)
_RIGHTS = """
select rolsuper or pg_has_role('pg_read_server_files', 'member')
    or pg_has_role('pg_write_server_files', 'member')
    or pg_has_role('pg_execute_server_program', 'member')
from pg_roles where rolname = current_user
"""


def read(address: Address, entry: Entry, asked: dict[str, Any]) -> Array:
    """The columns of a query to PostgreSQL, in a transaction that only reads."""
    query = query_of(address, asked)
    deadline = Deadline(str(address), entry.time_limit_s)

    async def run() -> Array:
        return await asyncio.wait_for(_ask(address, entry, deadline, query, asked), deadline.left())

    try:
        return asyncio.run(run())
    except SourceError:
        raise
    except _TIMEOUTS:
        raise deadline.missed() from None


class _Named(ssl.SSLContext):
    """Expects the certificate of a host at its IP address."""

    host = ""

    def wrap_bio(self, *pipes: Any, **options: Any) -> ssl.SSLObject:
        """Wraps a connection."""
        return super().wrap_bio(*pipes, **options | {"server_hostname": self.host})


def _tls(address: Address, entry: Entry) -> _Named | Literal["prefer"]:
    """TLS with the expected authority; otherwise TLS if the database offers it."""
    if entry.certificates is None:
        return "prefer"
    context = _Named(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=entry.certificates)
    context.host = address.host.strip("[]")
    return context


async def _ask(
    address: Address, entry: Entry, deadline: Deadline, query: str, asked: dict[str, Any]
) -> Array:
    if asyncpg is None:
        raise UnreachableError(
            f"the source `{address}` needs the package `asyncpg` at the server: its operator can "
            f"install it (`python3 -m pip install asyncpg`)"
        )
    left = deadline.left()
    try:
        database = await asyncpg.connect(
            host=resolve(address, entry, str(address)),
            port=address.port,
            user=entry.user,
            password=entry.password or "",
            database=unquote(address.path.removeprefix("/")),
            ssl=_tls(address, entry),
            timeout=left,
            statement_cache_size=0,
            server_settings={"statement_timeout": str(int(left * 1000) + 1)},
        )
        try:
            # A transaction that begins like this stays so.
            await database.execute("begin transaction isolation level repeatable read read only")
            if await database.fetchval(_RIGHTS):
                raise RefusedError(
                    f"the user {entry.user} of `{address}` can reach files and programs of the "
                    f"database's machine: its operator must give [sources.{entry.name}] a user "
                    f"with fewer rights"
                )
            # Only a query that reads can have a cursor, and a prepared text is one statement.
            await (await database.prepare(f"declare source no scroll cursor for {query}")).fetch()
            return await _columns(database, address, entry, asked)
        finally:
            # A query that is given up ends at the database too.
            await _close(database)
    except (asyncpg.QueryCanceledError, *_TIMEOUTS):
        raise deadline.missed() from None
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InsufficientPrivilegeError,
        asyncpg.ReadOnlySQLTransactionError,
    ) as error:
        raise RefusedError(f"the source `{address}` refuses: {error}") from None
    except (
        asyncpg.SyntaxOrAccessError,
        asyncpg.DataError,
        asyncpg.InvalidCatalogNameError,
        asyncpg.FeatureNotSupportedError,
    ) as error:
        raise UnfitError(f"the source `{address}` does not answer the query: {error}") from None
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        what = str(error) or type(error).__name__
        raise UnreachableError(
            f"the source `{address}` cannot be reached, or has gone away: {what}"
        ) from None


async def _close(database: Any) -> None:
    try:
        await database.close(timeout=_FAREWELL_S)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, *_TIMEOUTS):
        database.terminate()


async def _columns(
    database: Any,
    address: Address,
    entry: Entry,
    asked: dict[str, Any],
) -> Array:
    """All rows of the cursor."""
    fetch = await database.prepare(f"fetch {ROWS} from source")
    attributes = fetch.get_attributes()
    if not attributes:
        raise UnfitError(f"the query to `{address}` gives no columns")
    table = Table(address, entry, [one.name for one in attributes])
    types = []
    for one in attributes:
        name = one.type.name
        code = "f8" if name in _INEXACT and asked["element"] is not None else _TYPES.get(name)
        if code is None:
            raise table.no_number(one.name, name)
        types.append(code)
    table.pieces = [[np.empty(0, dtype=code)] for code in types]
    while rows := await fetch.fetch():
        table.add(rows, types)
    return table.array(asked)
