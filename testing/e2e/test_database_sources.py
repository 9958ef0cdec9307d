"""Queries to databases as arrays: real SQLite and real PostgreSQL, which the server only reads."""

import sqlite3
import subprocess
import threading

import farcall
import numpy as np
import pytest
from databases import PostgreSQL
from servers import FARCALL, LIBRARIES, known, metaserver, wait_until
from sources import refused, serving


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with these sources."""
    return serving(start, tmp_path)


@pytest.fixture
def stock(open_path):
    """A file of SQLite that users may read."""
    path = open_path / "stock.db"
    with sqlite3.connect(path) as database:
        database.execute("create table price (day integer, value real, name text, gap real)")
        rows = [(day, day / 2, f"n{day}", None if day == 2 else 0.5) for day in range(25_000)]
        database.executemany("insert into price values (?, ?, ?, ?)", rows)
    database.close()
    (open_path / "other.db").write_bytes(path.read_bytes())
    path.chmod(0o644)
    return path


def test_sqlite(serve, stock):
    process = serve(f'[sources.stock]\naddress = "sqlite:{stock}"\n')
    server = process.connect()

    def ask(query, **options):
        return farcall.url(f"sqlite:{stock}", query=query, **options)

    total = server.function("total")
    assert total(10, ask("select day from price where day < 10 order by day")).sum == 45
    both = server.put(ask("select day, value from price order by day"))
    assert (both.shape, both.dtype) == ((25_000, 2), np.dtype("float64"))
    assert np.array_equal(both.get()[-1], [24_999, 12_499.5])
    days = server.put(ask("select day from price order by day"))
    assert (days.shape, days.dtype) == ((25_000,), np.dtype("int64"))
    one = ask("select day, value, 1 as x from price where day in (3, 5)", columns=["value"])
    assert list(server.put(one).get()) == [1.5, 2.5]
    small = server.put(ask("select value from price where day < 3", dtype="float32"))
    assert small.dtype == np.float32
    assert server.put(ask("select day, value from price where 0")).shape == (0, 2)
    recursive = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 9)"
    assert list(server.put(ask(f"{recursive} select i from n")).get()) == list(range(1, 10))
    for query, match in [
        (None, "is a database: give a query"),
        (" ", "is a database: give a query"),
        ("select name from price", "column `name` of type str"),
        ("select gap from price order by day", "NULL in column `gap`, row 3"),
        ("select absent from price", "no such column: absent"),
        ("select from from", "syntax error"),
    ]:
        error = refused(server, ask(query), match)
        assert f"sqlite:{stock}" in str(error)
        assert error.fault == "caller"
    refused(server, ask("select day from price", columns=["x"]), "no column `x`; the query gives")
    twice = "select day as x, value as x from price where day = 3"
    assert server.put(ask(twice)).get().tolist() == [[3, 1.5]]
    refused(server, ask(twice, columns=["x"]), "several columns `x`; the query gives x, x")
    large = "select 9007199254740993, 0.5"
    refused(server, ask(large), "int64 that float64 cannot hold")
    refused(server, ask(large.partition(",")[0], dtype="int32"), "int64 that int32 cannot hold")
    refused(server, ask("select value from price", dtype="int32"), "float64, no int32")
    missing = serve(f'[sources.stock]\naddress = "sqlite:{stock}.none"\n').connect()
    refused(missing, farcall.url(f"sqlite:{stock}.none", query="select 1"), "does not exist")


def test_sqlite_is_only_read(serve, stock, tmp_path):
    before = stock.read_bytes()
    sources = f'[sources.stock]\naddress = "sqlite:{stock}"\nmax_bytes = 150000\n'
    server = serve(f"{sources}time_limit_s = 5.0\n").connect()
    out = tmp_path / "out.db"
    for query, match in [
        ("delete from price", "only read"),
        ("insert into price values (1, 1, 'x', 1) returning day", "only read"),
        ("create table more (x)", "only read"),
        (f"attach database '{tmp_path}/other.db' as other", "only read"),
        (f"vacuum into '{out}'", "only read|not allowed"),
        ("pragma query_only = 0", "only read"),
        ("pragma table_info(price)", "only read"),
        ("begin", "only read"),
        ("select load_extension('libc.so.6')", "only read|no such function|not authorized"),
        ("select 1; delete from price", "one statement at a time"),
        ("select 1; select 2", "one statement at a time"),
        ("select day from price", "150000 bytes are allowed"),
        ("select length(zeroblob(2000000))", "too big"),
        (
            "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) from n",
            "is too slow: it was not read within 5 s",
        ),
    ]:
        refused(server, farcall.url(f"sqlite:{stock}", query=query), match)
    for address in [
        f"sqlite:{tmp_path}/other.db",
        f"sqlite:{stock}?mode=rwc",
        f"sqlite:{tmp_path}/./stock.db",
        f"sqlite:{tmp_path}/",
        "sqlite::memory:",
        "sqlite:stock.db",
    ]:
        refused(server, farcall.url(address, query="select 1"), "is not allowed|not an address")
    assert stock.read_bytes() == before
    assert not out.exists()


@pytest.fixture(scope="module")
def postgresql():
    """A database with a user who may read one table, and one who may do more."""
    try:
        database = PostgreSQL()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    database.execute(
        """
        create table price (day integer, value double precision, name text, gap real, num numeric);
        insert into price
            select i, i / 2.0, 'n' || i, case when i = 2 then null else 0.5 end, i / 4.0
            from generate_series(0, 24999) as i;
        create table secret as select 1 as x;
        create role reader login password 's3cret';
        grant select on price to reader;
        create role writer login password 's3cret';
        grant all on price to writer;
        create role mighty login superuser password 's3cret';
        create role files login password 's3cret' in role pg_read_server_files;
        create sequence numbers; grant all on sequence numbers to writer;
        """
    )
    yield database
    database.close()


def source(database, folder, user="reader", name="stock", more=""):
    """An entry of `[sources]`."""
    word = folder / "password"
    word.write_text("s3cret\n")
    return (
        f'[sources.{name}]\naddress = "postgresql://127.0.0.1:{database.port}/postgres"\n'
        f'user = "{user}"\npassword_file = "{word}"\n{more}\n'
    )


def test_postgresql(serve, postgresql, tmp_path):
    server = serve(source(postgresql, tmp_path)).connect()
    address = f"postgresql://127.0.0.1:{postgresql.port}/postgres"

    def ask(query, **options):
        return farcall.url(address, query=query, **options)

    total = server.function("total")
    assert total(10, ask("select day from price where day < 10")).sum == 45
    both = server.put(ask("select day, value from price order by day"))
    assert (both.shape, both.dtype) == ((25_000, 2), np.dtype("float64"))
    assert np.array_equal(both.get()[-1], [24_999, 12_499.5])
    days = server.put(ask("select day from price order by day -- all"))
    assert (days.shape, days.dtype) == ((25_000,), np.dtype("int32"))
    one = ask("select day, value from price where day in (3, 5) order by 1", columns=["value"])
    assert list(server.put(one).get()) == [1.5, 2.5]
    assert list(server.put(ask("values (1.5::float4), (2.5)")).get()) == [1.5, 2.5]
    exact = ask("select num from price where day < 3 order by day", dtype="float64")
    assert list(server.put(exact).get()) == [0, 0.25, 0.5]
    empty = server.put(ask("select day from price where false"))
    assert (empty.shape, empty.dtype) == ((0,), np.dtype("int32"))
    # What a query reads may change: nothing is kept.
    assert server.list_data() == []
    for query, match in [
        (None, "is a database: give a query"),
        ("select name from price", "column `name` of type text"),
        ("select num from price", 'column `num` of type numeric.*give dtype="float64"'),
        ("select gap from price order by day", "NULL in column `gap`, row 3"),
        ("select nothing from price", 'column "nothing" does not exist'),
        ("select from from", "syntax error"),
        ("select", "no columns"),
        ("select x from secret", "permission denied for table secret"),
    ]:
        error = refused(server, ask(query), match)
        assert address in str(error)
        assert error.fault == "caller"


def test_postgresql_is_only_read(serve, postgresql, tmp_path):
    out = postgresql.folder / "out"
    sources = source(postgresql, tmp_path, "writer", more="time_limit_s = 5.0\nmax_bytes = 150000")
    server = serve(sources).connect()
    address = f"postgresql://127.0.0.1:{postgresql.port}/postgres"
    before = postgresql.execute("select count(*), sum(day) from price")
    for query, match in [
        ("delete from price", "syntax error"),
        ("with gone as (delete from price returning day) select day from gone", "modify|modifying"),
        ("select day into more from price", "INTO|syntax"),
        ("create table more (x int)", "syntax error"),
        (f"copy price to program 'touch {out}'", "syntax error"),
        (f"copy (select 1) to '{out}'", "syntax error"),
        (f"select 1) to program 'touch {out}' --", "syntax error"),
        ("select 1; delete from price", "multiple commands"),
        ("select 1; commit; delete from price", "multiple commands"),
        ("select nextval('numbers')", "read-only transaction"),
        ("select day from price for update", "read-only transaction|FOR UPDATE"),
        ("select set_config('transaction_read_only', 'off', true)::int", "read-write mode"),
        ("set transaction read write", "syntax error"),
        ("select pg_read_file('/etc/passwd')::bytea", "permission denied"),
        ("select length(lo_import('/etc/passwd')::text)", "permission denied|read-only"),
        ("select day from price", "150000 bytes are allowed"),
        ("select 1 from pg_sleep(60)", "is too slow: it was not read within 5 s"),
        (
            "select 1 from (select set_config('statement_timeout', '0', true)) a, pg_sleep(60)",
            "is too slow",
        ),
    ]:
        error = refused(server, farcall.url(address, query=query), match)
        assert address in str(error), error
    assert postgresql.execute("select count(*), sum(day) from price") == before
    assert not out.exists()
    # Queries that were given up do not go on at the database.
    active = "select count(*) from pg_stat_activity where usename = 'writer' and state = 'active'"
    wait_until(lambda: postgresql.execute(active) == "0", what="the end of the queries")


def test_the_name_of_a_database_can_have_escapes(serve, postgresql, tmp_path):
    entry = source(postgresql, tmp_path).replace("/postgres", "/post%67res")
    address = f"postgresql://127.0.0.1:{postgresql.port}/post%67res"
    ask = farcall.url(address, query="select day from price where day < 3 order by day")
    assert serve(entry).connect().put(ask).get().tolist() == [0, 1, 2]


def test_postgresql_users_and_addresses(serve, postgresql, tmp_path):
    address = f"postgresql://127.0.0.1:{postgresql.port}/postgres"
    query = "select day from price where day < 3"
    for user in ["mighty", "files"]:
        server = serve(source(postgresql, tmp_path, user)).connect()
        refused(server, farcall.url(address, query=query), "a user with fewer rights")
    server = serve(source(postgresql, tmp_path, "nobody")).connect()
    error = refused(server, farcall.url(address, query=query), "password authentication failed")
    assert "s3cret" not in str(error)
    server = serve(source(postgresql, tmp_path)).connect()
    for other in [
        f"postgresql://127.0.0.1:{postgresql.port}/template1",
        f"postgresql://127.0.0.1:{postgresql.port}/postgres?host=/tmp",
        f"postgresql://mighty@127.0.0.1:{postgresql.port}/postgres",
        f"postgresql:///postgres?host={postgresql.folder}",
        f"postgres://127.0.0.1:{postgresql.port}/postgres",
        "postgresql://127.0.0.1/postgres",
    ]:
        refused(server, farcall.url(other, query=query), "is not allowed|not an address")


def test_the_certificate_of_a_database_is_verified(serve, postgresql, tmp_path):
    tls = tmp_path / "tls"
    words = ["access", "certificate", "server", tls, "localhost"]
    subprocess.run([FARCALL, *words], check=True, capture_output=True, timeout=30)
    authority = f'certificates = "{tls}/authority.pem"\n'
    networks = 'networks = ["127.0.0.0/8", "::1/128"]\n'
    here = source(postgresql, tmp_path, more=authority)
    there = here.replace("127.0.0.1", "localhost") + networks
    query = "select ssl::int from pg_stat_ssl where pid = pg_backend_pid()"

    def ask(sources, host):
        address = f"postgresql://{host}:{postgresql.port}/postgres"
        return serve(sources).connect(), farcall.url(address, query=query)

    refused(*ask(here, "127.0.0.1"), "cannot be reached")
    postgresql.serve_tls(tls)
    # The certificate has this name, and not the address that the name stands for.
    server, value = ask(there, "localhost")
    assert list(server.put(value).get()) == [1]
    refused(*ask(here, "127.0.0.1"), "CERTIFICATE_VERIFY_FAILED")
    server, value = ask(source(postgresql, tmp_path), "127.0.0.1")
    assert list(server.put(value).get()) == [1]


def test_a_database_that_goes_away_is_named(serve, tmp_path):
    try:
        database = PostgreSQL()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    database.execute("create role reader login password 's3cret'")
    process = serve(source(database, tmp_path))
    server = process.connect()
    address = f"postgresql://127.0.0.1:{database.port}/postgres"
    errors = []

    def call():
        query = "select 1 from pg_sleep(60)"
        errors.append(refused(server, farcall.url(address, query=query), "has gone away"))

    caller = threading.Thread(target=call)
    caller.start()
    running = "select count(*) from pg_stat_activity where usename = 'reader' and state = 'active'"
    wait_until(lambda: database.execute(running) == "1", what="the query")
    database.stop()
    caller.join(30)
    assert address in str(errors[0])
    refused(server, farcall.url(address, query="select 1"), "cannot be reached")
    assert server.function("total")(3, np.ones(3)).sum == 3
    database.close()


def check_db(server, ask):
    """Calls the functions of db.idl: only the database knows how long their results are."""
    query = server.function("db/query")
    found = query(source=ask("select day, value from price where day < 9 order by day"))
    assert np.array_equal(found.table, [[day, day / 2] for day in range(9)])
    ahead = query.call_async(source=ask("select day, value from price where day % 2 = 0"))
    assert ahead.result(timeout=30).table.shape == (12_500, 2)
    assert query(source=ask("select day, value from price where day < 0")).table.shape == (0, 2)
    column = server.function("db/column")
    assert list(column(source=ask("select value from price where day = 5")).values) == [2.5]
    integers = server.function("db/integers")
    large = integers(source=ask("select day + 9007199254740993 from price where day < 2"))
    assert list(large.values) == [2**53 + 1, 2**53 + 2]
    for function, text, match in [
        (query, "select name, day from price", "column `name`"),
        (query, "delete from price", "only read|syntax error"),
        (integers, "select value from price", "float64, and int64 is wanted"),
    ]:
        with pytest.raises(farcall.Error, match=match):
            function(source=ask(text))
    # One column is a vector. A table of another size than the caller has said is refused.
    with pytest.raises(farcall.ArgumentError, match="rows"):
        query(source=ask("select day from price"))
    with pytest.raises(farcall.ArgumentError, match="shape"):
        query(7, 2, ask("select day, value from price"))
    assert server.handles() == []


def test_the_library_of_databases(start, stock, postgresql, tmp_path):
    config = tmp_path / "farcall.toml"
    sqlite = f'[sources.file]\naddress = "sqlite:{stock}"\n'
    config.write_text(sqlite + source(postgresql, tmp_path, more="max_bytes = 1000000"))
    postgres = f"postgresql://127.0.0.1:{postgresql.port}/postgres"
    with metaserver() as address:
        words = ["--config", str(config), "--metaserver", address]
        server = start(LIBRARIES / "db.idl", options=words).connect()
        check_db(server, lambda query: farcall.url(f"sqlite:{stock}", query=query))
        check_db(server, lambda query: farcall.url(postgres, query=query))
        large = farcall.url(postgres, query="select day, value, day, value, day, value from price")
        with pytest.raises(farcall.Error, match="1000000 bytes are allowed"):
            server.function("db/query")(source=large)
        with pytest.raises(farcall.Error, match="is not allowed"):
            other = farcall.url("sqlite:/etc/other.db", query="select 1, 2")
            server.function("db/query")(source=other)
        # Behind a metaserver, the sizes are given: nobody knows who will compute.
        client = farcall.connect(address)
        query = wait_until(lambda: known(client, "db/query"), what="the function")
        some = farcall.url(postgres, query="select day, value from price where day < 3")
        assert query(3, 2, some).table.shape == (3, 2)
        with pytest.raises(farcall.ArgumentError, match="rows"):
            query(source=some)


def test_sizes_that_an_array_has_can_be_left_out(serve):
    server = serve("").connect()
    total, first = server.function("total"), server.function("first")
    assert total(x=np.arange(5.0)).sum == 10
    assert total.call_async(x=server.put(np.arange(5.0))).result(timeout=30).sum == 10
    assert list(first(x=np.arange(6, dtype="float32").reshape(3, 2)).y) == [0, 2, 4]
    with pytest.raises(farcall.ArgumentError, match="shape"):
        server.function("both")(x=np.ones(3), y=np.ones(4))
    with pytest.raises(farcall.ArgumentError, match=r"`n`.*nothing"):
        total(x=[1.0, 2.0])
    with pytest.raises(farcall.ArgumentError, match=r"`n`.*nothing"):
        first(m=2, x=np.ones(4, dtype="float32"))
    fortran = serve("", idl=LIBRARIES / "lapack.idl").connect()
    a = np.asfortranarray(np.random.default_rng(1).random((5, 5)))
    b = np.ones((5, 1), order="F")
    solved = fortran.function("dgesv")(a=a.copy(order="F"), b=b.copy(order="F"))
    assert np.allclose(a @ solved.b, b)
