"""Arrays at addresses outside of Farcall, which the server reads: with real servers on loopback."""

import hashlib
import io
import os
import pathlib
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import farcall
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import known, metaserver, wait_until
from sources import IDL, Web, connectors, npy, refused, serving


@pytest.fixture
def web():
    web = Web()
    yield web
    web.close()


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with these sources."""
    return serving(start, tmp_path)


def test_a_call_takes_an_address_where_it_takes_an_array(serve, web):
    web.pages["/data/a.npy"] = (npy(np.arange(5.0)),)
    process = serve(f'[sources.web]\naddress = "{web.address}/data/"')
    server = process.connect()
    total = server.function("total")
    source = farcall.url(f"{web.address}/data/a.npy")
    assert total(5, source).sum == 10
    assert total.call_async(5, source).result(timeout=30).sum == 10
    # Without a version at the source, the server keeps nothing.
    assert len(web.asked) == 2
    assert server.handles() == []
    # A connector serves one request after the other.
    assert len(connectors(process.process)) == 1
    with pytest.raises(farcall.ArgumentError, match="shape"):
        total(6, source)
    with pytest.raises(farcall.ArgumentError, match="an array to write to"):
        server.function("twice")(5, source)
    assert source == pickle.loads(pickle.dumps(source))
    raw = farcall.url("http://a/b", dtype=">f4", shape=(2, 3), order="F", columns=["c"])
    assert raw == pickle.loads(pickle.dumps(raw)) != farcall.url("http://a/b")
    options = "dtype='>f4', shape=[2, 3], order='F', columns=['c']"
    assert repr(raw) == f'farcall.url("http://a/b", {options})'
    part = farcall.url("folder:a.npy", rows=slice(2, None))
    assert repr(part) == 'farcall.url("folder:a.npy", rows=slice(2, None, None))'


def test_numbers_are_converted_if_that_loses_nothing(serve, web):
    matrix = np.arange(6, dtype="int16").reshape(3, 2)
    web.pages["/f.npy"] = (npy(np.asfortranarray(matrix)),)
    web.pages["/i.npy"] = (npy(np.arange(3, dtype="int64")),)
    web.pages["/c.npy"] = (npy(np.arange(3) * 1j),)
    web.pages["/o.npy"] = (npy(np.array(["a", None, 3], dtype=object)),)
    server = serve(f'[sources.web]\naddress = "{web.address}/"').connect()
    first = server.function("first")
    assert list(first(3, 2, farcall.url(f"{web.address}/f.npy")).y) == [0, 2, 4]
    # NumPy calls the conversion of long integers to float64 safe.
    assert server.function("total")(3, farcall.url(f"{web.address}/i.npy")).sum == 3
    error = refused(server, farcall.url(f"{web.address}/c.npy"), "complex128, and float64 is want")
    assert error.fault == "caller"
    refused(server, farcall.url(f"{web.address}/o.npy"), "of type object, which are no numbers")
    handle = server.put(farcall.url(f"{web.address}/f.npy"), order="F")
    assert (handle.dtype, handle.shape, handle.order) == (np.dtype("int16"), (3, 2), "F")
    assert np.array_equal(handle.get(), matrix)
    handle.drop()


def test_formats(serve, web):
    numbers = np.arange(6, dtype=">i4")
    table = 'time,"wind, mean",rain\n1,2.5,3\n4,-5e-1,6\n'
    web.pages |= {
        "/r.raw": (numbers.tobytes(),),
        "/t.csv": (table.encode(),),
        "/n.csv": (b"1,2\n3,4\n",),
        "/one.csv": (b"\xef\xbb\xbfx\r\n1\r\n2\r\n3\r\n",),
        "/empty.csv": (b"a,b\n",),
        "/bad.csv": (b"a,b\n1,2\n3,oops\n",),
        "/gap.csv": (b"1,,2\n4,5,6\n",),
        "/index.csv": (b",a,a\n0,1,2\n",),
        "/t.tsv": (b"a\tb\n1\t2\n",),
        "/unknown.xls": (b"?",),
        "/not.npy": (b"<html>",),
        "/short.npy": (npy(np.arange(5.0))[:-1],),
    }
    server = serve(f'[sources.web]\naddress = "{web.address}/"').connect()

    def get(name, **options):
        return server.put(farcall.url(f"{web.address}/{name}", **options)).get()

    assert np.array_equal(get("r.raw", dtype=">i4"), numbers)
    by_rows = get("r.raw", dtype=">i4", shape=(2, 3))
    assert np.array_equal(by_rows, numbers.reshape(2, 3))
    by_columns = get("r.raw", dtype=">i4", shape=(2, 3), order="F")
    assert np.array_equal(by_columns, numbers.reshape(2, 3, order="F"))
    assert np.array_equal(get("t.csv"), [[1, 2.5, 3], [4, -0.5, 6]])
    assert np.array_equal(get("t.csv", columns=["rain", "time"]), [[3, 1], [6, 4]])
    picked = get("t.csv", columns=["time"], dtype="int32")
    assert picked.dtype == np.int32
    assert list(picked) == [1, 4]
    assert list(get("t.csv", columns=["wind, mean"])) == [2.5, -0.5]
    assert np.array_equal(get("n.csv"), [[1, 2], [3, 4]])
    assert list(get("one.csv")) == [1, 2, 3]
    assert get("empty.csv").shape == (0, 2)
    assert np.array_equal(get("t.tsv"), [[1, 2]])
    for name, options, match in [
        ("r.raw", {}, "raw numbers: give their dtype"),
        ("r.raw", {"dtype": "f8", "shape": (4,)}, r"24 bytes, and float64 of shape \(4,\)"),
        ("r.raw", {"dtype": "f8", "shape": (2**40, 2**40)}, "24 bytes, and float64 of shape"),
        ("t.csv", {"columns": ["snow"]}, "no column `snow`; it has time, wind, mean, rain"),
        ("n.csv", {"columns": ["a"]}, "columns without names"),
        ("bad.csv", {}, "oops"),
        ("gap.csv", {}, "could not convert string ''"),
        ("index.csv", {"columns": ["a"]}, "several columns `a`; it has , a, a"),
        ("t.csv", {"dtype": "int32"}, "2.5"),
        ("t.csv", {"shape": (3, 3)}, r"shape \(2, 3\), and \(3, 3\) was expected"),
        ("unknown.xls", {}, "the format `xls`"),
        ("not.npy", {}, "no .npy file"),
        ("short.npy", {}, "39 bytes of numbers, and its head announces 40"),
        ("t.csv", {"query": "select 1"}, "no database"),
    ]:
        with pytest.raises(farcall.Error, match=match) as raised:
            get(name, **options)
        assert f"{web.address}/{name}" in str(raised.value)
    with pytest.raises(farcall.Error, match="64 hexadecimal digits"):
        get("r.raw", dtype="f4", sha256="12")
    with pytest.raises((ValueError, TypeError, farcall.ArgumentError)):
        farcall.url("http://a/b", dtype="U4")
    for columns in ("rain", [], [1]):
        with pytest.raises(farcall.ArgumentError, match="`columns`: expected a list of names"):
            farcall.url("http://a/b.csv", columns=columns)


def test_columns_of_parquet_and_arrow(serve, web):
    table = pa.table(
        {
            "time": pa.array(range(1000), pa.int32()),
            "wind": pa.array(np.arange(1000) / 2),
            "name": ["x"] * 1000,
            "gap": pa.array([None, *range(999)], pa.int64()),
        }
    )
    for name, options in [("a", {}), ("z", {"compression": "zstd", "row_group_size": 100})]:
        file = io.BytesIO()
        pq.write_table(table, file, **options)
        web.pages[f"/{name}.parquet"] = (file.getvalue(),)
    for name, make in [("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)]:
        file = io.BytesIO()
        with make(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
        web.pages[f"/{name}.arrow"] = (file.getvalue(),)
    large = io.BytesIO()
    zeros = pa.table({"x": np.zeros(10**6)})
    pq.write_table(zeros, large, compression="zstd")
    web.pages["/large.parquet"] = (large.getvalue(),)
    packed = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(packed, zeros.schema, options=options) as writer:
        writer.write_table(zeros)
    web.pages["/large.arrow"] = (packed.getvalue(),)
    web.pages["/bad.parquet"] = (b"PAR1" * 100,)
    web.pages["/bad.arrow"] = (b"ARROW1\0\0" * 100,)
    address = f'[sources.web]\naddress = "{web.address}/"\nmax_bytes = 4000000'
    process = serve(address)
    server = process.connect()

    def get(name, **options):
        return server.put(farcall.url(f"{web.address}/{name}", **options)).get()

    for name in ["a.parquet", "z.parquet", "file.arrow", "stream.arrow"]:
        both = get(name, columns=["wind", "time"])
        assert (both.shape, both.dtype) == ((1000, 2), np.dtype("float64"))
        assert np.array_equal(both[3], [1.5, 3])
        time = get(name, columns=["time"])
        assert time.dtype == np.int32
        assert np.array_equal(time, np.arange(1000))
        assert get(name, columns=["wind"], dtype="float32").dtype == np.float32
        for options, match in [
            ({}, "column `name` of type string"),
            ({"columns": ["gap"]}, "1 missing values in column `gap`"),
            ({"columns": ["snow"]}, "no column `snow`, or several; it has time, wind, name, gap"),
            ({"columns": ["wind"], "dtype": "int32"}, "float64, no int32"),
        ]:
            refused(server, farcall.url(f"{web.address}/{name}", **options), match)
    total = server.function("total")
    url = farcall.url(f"{web.address}/a.parquet", columns=["time"])
    assert total(1000, url).sum == 499500
    for name in ["large.parquet", "large.arrow"]:
        refused(server, farcall.url(f"{web.address}/{name}"), "8000000 bytes.*4000000 are allowed")
    for name in ["bad.parquet", "bad.arrow"]:
        refused(server, farcall.url(f"{web.address}/{name}"), "is no (parquet|arrow) file")
    assert len(connectors(process.process)) == 1


def test_a_source_with_a_version_is_read_once(serve, web):
    body = npy(np.arange(3.0))
    web.pages["/a.npy"] = (body, {"ETag": '"one"'})
    server = serve(f'[sources.web]\naddress = "{web.address}/"').connect()
    total, source = server.function("total"), farcall.url(f"{web.address}/a.npy")
    assert [total(3, source).sum for _ in range(3)] == [3, 3, 3]
    asked = [heads.get("If-None-Match") for _, heads in web.asked]
    assert asked == [None, '"one"', '"one"']
    [status] = server.list_data()
    assert status.name.startswith(f"sources/http_/127.0.0.1_{web.port}/a.npy=")
    assert not status.shared
    before = server.handle(name=status.name)
    # Other conversions of the same source are other arrays.
    assert server.put(source, order="F").order == "F"
    assert len(server.list_data()) == 2
    # A new version takes the place of the old one.
    web.pages["/a.npy"] = (npy(np.ones(3) * 7), {"ETag": '"two"'})
    assert total(3, source).sum == 21
    with pytest.raises(farcall.ServerError, match="new version"):
        total(3, before)
    assert len(server.list_data()) == 2
    with pytest.raises(farcall.Error, match="cannot change"):
        server.function("twice")(3, server.handle(name=status.name))
    # The array was dropped: the source is read again.
    server.drop_data(status.name)
    assert total(3, source).sum == 21
    # A tag that says only that the content means the same is no version.
    web.pages["/w.npy"] = (body, {"ETag": 'W/"weak"'})
    assert total(3, farcall.url(f"{web.address}/w.npy")).sum == 3
    assert len(server.list_data()) == 2


def test_the_cache_leaves_room_to_its_user(serve, web):
    for index in range(70):
        web.pages[f"/{index}.npy"] = (npy(np.full(1000, index)), {"ETag": f'"{index}"'})
    quota = "[data]\nbytes_per_user = 40000\n"
    server = serve(f'[sources.web]\naddress = "{web.address}/"', quota).connect()
    total = server.function("total")
    for index in range(8):
        assert total(1000, farcall.url(f"{web.address}/{index}.npy")).sum == 1000 * index
    assert sum(one.nbytes for one in server.list_data()) == 40000
    names = sorted(one.name.split("=")[0][-5:] for one in server.list_data())
    assert names == [f"{index}.npy" for index in range(3, 8)]
    with pytest.raises(farcall.ServerError, match="bytes_per_user"):
        server.put(np.ones(5001))


def test_an_array_that_was_dropped_before_its_call_is_read_anew(serve, web):
    for name in "ab":
        web.pages[f"/{name}.npy"] = (npy(np.full(1000, ord(name))), {"ETag": f'"{name}"'})
    quota = "[data]\nbytes_per_user = 10000\n"
    process = serve(f'[sources.web]\naddress = "{web.address}/"', quota)
    server = process.connect()
    total = server.function("total")
    first = total.call_async(1000, farcall.url(f"{web.address}/a.npy"))
    # The array is there, and nobody has asked for the call meanwhile.
    wait_until(lambda: len(server.list_data()) == 1, what="the array")
    assert total(1000, farcall.url(f"{web.address}/b.npy")).sum == 1000 * ord("b")
    assert first.result(timeout=30).sum == 1000 * ord("a")
    assert [path for path, _ in web.asked] == ["/a.npy", "/b.npy", "/a.npy"]


def test_checksums_and_lengths(serve, web):
    body = npy(np.arange(3.0))
    good = hashlib.sha256(body).hexdigest()

    def cut(one):
        one.close_connection = True
        one.send(body[:-4], length=len(body))

    web.pages |= {
        "/a.npy": (body,),
        "/md5.npy": (body, {"Content-MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}),
        "/digest.npy": (
            body,
            {"Repr-Digest": "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"},
        ),
        "/cut.npy": cut,
        "/large.npy": (npy(np.zeros(1000)),),
        "/packed.npy": (body, {"Content-Encoding": "gzip"}),
    }
    process = serve(f'[sources.web]\naddress = "{web.address}/"\nmax_bytes = 4000')
    server = process.connect()
    total = server.function("total")
    assert total(3, farcall.url(f"{web.address}/a.npy", sha256=good)).sum == 3
    assert total(3, farcall.url(f"{web.address}/a.npy", sha256=good.upper())).sum == 3
    for name, options, match in [
        ("a.npy", {"sha256": "0" * 64}, f"sha256 checksum {good}, and 00"),
        ("md5.npy", {}, "md5 checksum"),
        ("digest.npy", {}, "sha256 checksum"),
        ("cut.npy", {}, f"ended after {len(body) - 4} of {len(body)} bytes"),
        ("large.npy", {}, r"8128 bytes or more, and 4000 are allowed \(max_bytes of \[sources.web"),
        ("packed.npy", {}, "coding gzip"),
    ]:
        error = refused(server, farcall.url(f"{web.address}/{name}", **options), match)
        assert f"{web.address}/{name}" in str(error)
    # The connector has survived all this.
    assert len(connectors(process.process)) == 1


def test_a_source_that_breaks_off_is_resumed_only_if_it_is_the_same(serve, web):
    body = npy(np.arange(1000.0))

    def page(tag, tag_then):
        def answer(one):
            if "Range" not in one.headers:
                one.close_connection = True
                return one.send(body[:4000], {"ETag": tag}, length=len(body))
            if one.headers["If-Match"] != tag_then:
                return one.send(b"", status=412)
            begin = int(one.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            span = f"bytes {begin}-{len(body) - 1}/{len(body)}"
            return one.send(body[begin:], {"ETag": tag, "Content-Range": span}, status=206)

        return answer

    web.pages["/same.npy"] = page('"1"', '"1"')
    web.pages["/other.npy"] = page('"1"', '"2"')
    server = serve(f'[sources.web]\naddress = "{web.address}/"').connect()
    total = server.function("total")
    assert total(1000, farcall.url(f"{web.address}/same.npy")).sum == 499500
    assert [heads.get("Range") for _, heads in web.asked] == [None, "bytes=4000-"]
    refused(server, farcall.url(f"{web.address}/other.npy"), "has changed while it was read")


def test_slow_and_wrong_sources(serve, web):
    ends = threading.Event()

    def drip(one):
        one.send(b"", length=10**6)
        while not ends.wait(0.01):
            one.wfile.write(b"x")

    web.pages |= {"/slow.npy": drip, "/500.npy": 500, "/403.npy": 403}
    web.pages["/head.npy"] = lambda _: ends.wait(30)
    closed = Web()
    closed.close()
    server = serve(
        f'[sources.web]\naddress = "{web.address}/"\ntime_limit_s = 4.0\n'
        f'[sources.closed]\naddress = "{closed.address}/"\n'
    ).connect()
    for address, match, fault in [
        (f"{web.address}/slow.npy", "too slow: it was not read within 4 s", None),
        (f"{web.address}/head.npy", "too slow", None),
        (f"{web.address}/none.npy", "does not exist", "caller"),
        (f"{web.address}/500.npy", "HTTP status 500", None),
        (f"{web.address}/403.npy", "does not let this server in", None),
        (f"{closed.address}/a.npy", "Connection refused", None),
    ]:
        error = refused(server, farcall.url(address), match)
        assert f"`{address}`" in str(error)
        assert fault is None or error.fault == fault
    ends.set()
    assert server.function("total")(3, np.ones(3)).sum == 3


def test_the_time_out_of_a_call_counts_all_its_sources(serve, web):
    ends = threading.Event()

    def late(one):
        ends.wait(1.5)
        one.send(npy(np.arange(3.0)))

    web.pages |= {"/a.npy": late, "/b.npy": late}
    process = serve(f'[sources.web]\naddress = "{web.address}/"')
    both = process.connect(timeout=2).function("both")
    a, b = farcall.url(f"{web.address}/a.npy"), farcall.url(f"{web.address}/b.npy")
    for call in (lambda: both(3, a, b), lambda: both.call_async(3, a, b).result()):
        with pytest.raises(farcall.TimeoutError, match="within 2 s"):
            call()
    ends.set()
    assert process.connect().function("both")(3, a, b).sum == 6


def test_a_connector_that_dies_is_replaced(serve, web):
    asked, goes_on = threading.Event(), threading.Event()

    def wait(one):
        asked.set()
        goes_on.wait(30)
        one.send(npy(np.arange(3.0)))

    web.pages |= {"/wait.npy": wait, "/a.npy": (npy(np.arange(3.0)),)}
    process = serve(f'[sources.web]\naddress = "{web.address}/"')
    server = process.connect()
    total = server.function("total")
    errors = []

    def call():
        errors.append(refused(server, farcall.url(f"{web.address}/wait.npy"), "has ended"))

    caller = threading.Thread(target=call)
    caller.start()
    assert asked.wait(30)
    [pid] = connectors(process.process)
    os.kill(pid, signal.SIGKILL)
    caller.join(30)
    goes_on.set()
    assert f"{web.address}/wait.npy" in str(errors[0])
    assert total(3, farcall.url(f"{web.address}/a.npy")).sum == 3
    # One that waits may die too: nobody notices.
    [other] = connectors(process.process)
    os.kill(other, signal.SIGKILL)
    assert total(3, farcall.url(f"{web.address}/a.npy")).sum == 3
    # They end with the server, however it ends.
    [last] = connectors(process.process)
    process.process.kill()
    process.process.wait()
    wait_until(lambda: not pathlib.Path(f"/proc/{last}").exists(), what="the connector's end")


def test_a_call_in_progress_does_not_wait_for_its_source(serve, web):
    goes_on = threading.Event()

    def wait(one):
        goes_on.wait(30)
        one.send(npy(np.arange(3.0)))

    web.pages |= {"/wait.npy": wait, "/a.npy": (npy(np.ones(3)),)}
    source = farcall.url(f"{web.address}/wait.npy")
    sources = f'[sources.web]\naddress = "{web.address}/"'
    with metaserver() as address:
        process = serve(sources, words=["--metaserver", address])
        for place in [process.address, address]:
            goes_on.clear()
            server = farcall.connect(place)
            total = wait_until(lambda server=server: known(server, "total"), what="the function")
            both = server.function("both")
            before = len(web.asked)
            first = total.call_async(3, source)
            second = both.call_async(3, farcall.url(f"{web.address}/a.npy"), source)
            given_up = total.call_async(3, source)

            def are_asked(before=before, second=second):
                assert not second.done()
                return len(web.asked) == before + 4

            wait_until(are_asked, what="the requests")
            status = first.status()
            assert status.phase == "arriving"
            assert f"reads the source `{web.address}/wait.npy`" in status.reason
            given_up.cancel()
            # Errors that are known at once are told at once.
            with pytest.raises(farcall.ArgumentError):
                total.call_async(3, np.ones(2))
            goes_on.set()
            assert first.result(timeout=30).sum == 3
            assert second.result(timeout=30).sum == 6
            with pytest.raises(farcall.Error, match="does not exist"):
                total.call_async(3, farcall.url(f"{web.address}/none.npy")).result(timeout=30)
            # The arrays end with the calls, also that of the call that was given up.
            # The client drops that one when it hears of it, while it waits for others.
            own = process.connect()

            def have_ended(own=own, total=total):
                return total(3, np.ones(3)).sum == 3 and own.handles() == []

            wait_until(have_ended, what="the end of the arrays")


def test_sources_that_wait_for_memory_keep_no_connector(serve, web):
    count = 3 * 10**6
    for index in range(5):
        web.pages[f"/{index}.npy"] = (npy(np.full(count, float(index))),)
    web.pages["/small.npy"] = (npy(np.ones(3)),)
    limits = "[limits]\nmemory = 100000000\n[data]\nmemory = 100000000\n"
    server = serve(f'[sources.web]\naddress = "{web.address}/"', limits).connect()
    begun, ends = threading.Event(), threading.Event()

    def wait():
        begun.set()
        assert ends.wait(60)

    stored = server.put(np.ones(10**6))
    with ThreadPoolExecutor() as threads:
        large = threads.submit(server.function("hold"), 9 * 10**6, np.ones(9 * 10**6), wait)
        assert begun.wait(30)
        total = server.function("total")
        calls = [
            total.call_async(count, farcall.url(f"{web.address}/{index}.npy")) for index in range(5)
        ]

        waits = "waits for memory for its 24000000 bytes"

        def waiting():
            return all(waits in call.status().reason for call in calls)

        wait_until(waiting, what="sources that wait")
        small = total.call_async(3, farcall.url(f"{web.address}/small.npy"))
        assert small.result(timeout=20).sum == 3
        # A client that leaves takes its source with it.
        calls.pop().cancel()
        stored.drop()
        ends.set()
        large.result(30)
    for index, call in enumerate(calls):
        assert call.result(timeout=30).sum == index * count
    # Each was read once to learn its size, and once to be taken.
    asked = [path for path, _ in web.asked]
    assert [asked.count(f"/{index}.npy") for index in range(4)] == [2, 2, 2, 2]


def test_behind_a_metaserver_the_server_of_the_call_reads_the_address(start, web, tmp_path):
    web.pages["/a.npy"] = (npy(np.arange(3.0)), {"ETag": '"1"'})
    web.pages["/b.npy"] = (npy(np.ones(3)),)
    idl, config = tmp_path / "work.idl", tmp_path / "farcall.toml"
    idl.write_text(IDL)
    config.write_text(f'[sources.web]\naddress = "{web.address}/"')
    with metaserver() as address:
        words = ["--allow-code", "--config", str(config), "--metaserver", address]
        start(idl, options=words)
        client = farcall.connect(address)
        total = wait_until(lambda: known(client, "total"), what="the function")
        for _ in range(2):
            assert total(3, farcall.url(f"{web.address}/a.npy")).sum == 3
            assert total(3, farcall.url(f"{web.address}/b.npy")).sum == 3
        assert total.call_async(3, farcall.url(f"{web.address}/a.npy")).result(timeout=30).sum == 3
        # Each call reads a source without a version once.
        assert [path for path, _ in web.asked].count("/b.npy") == 2
        with pytest.raises(farcall.Error, match="does not exist"):
            total(3, farcall.url(f"{web.address}/c.npy"))
        with pytest.raises(farcall.Error, match="is not allowed"):
            total(3, farcall.url("https://example.org/c.npy"))


def test_a_call_goes_to_the_server_that_still_has_the_array(start, web, tmp_path):
    numbers = np.ones(2**20)
    for name in ["a", "b"]:
        web.pages[f"/{name}.npy"] = (npy(numbers), {"ETag": '"1"'})
    idl, config = tmp_path / "work.idl", tmp_path / "farcall.toml"
    idl.write_text(IDL)
    config.write_text(f'[sources.web]\naddress = "{web.address}/"')
    with metaserver() as address:
        words = ["--allow-code", "--config", str(config), "--metaserver", address]
        sources = [farcall.url(f"{web.address}/{name}.npy") for name in ["a", "b"]]
        servers = [start(idl, options=words) for _ in sources]
        # Each of two servers reads a source of its own.
        for server, source in zip(servers, sources, strict=True):
            assert server.connect().function("total")(2**20, source).sum == 2**20
        client = farcall.connect(address)
        total = wait_until(lambda: known(client, "total"), what="the function")
        wait_until(lambda: len(client.list_data()) == 2, what="the metaserver's news")
        for _ in range(3):
            for source in sources:
                assert total(2**20, source).sum == 2**20
        # No other server has read it: each was only asked whether its version is the same.
        whole = [path for path, heads in web.asked if "If-None-Match" not in heads]
        assert sorted(whole) == ["/a.npy", "/b.npy"]
        assert len(web.asked) == 8


def parts_of(server, address, array, **options):
    """Reads parts of an array, and compares them."""
    for begin, end in [(0, len(array)), (3, 7), (5, None), (None, 2), (4, 4), (0, 0)]:
        rows = slice(begin, end)
        part = server.put(farcall.url(address, rows=rows, **options)).get()
        assert part.dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(part, array[rows])


def test_parts_of_files_are_read_alone(serve, open_path):
    root = open_path / "data"
    root.mkdir()
    random = np.random.default_rng(1)
    vector, matrix = random.random(100_000), random.random((1000, 50, 2))
    np.save(root / "v.npy", vector)
    np.save(root / "m.npy", matrix)
    np.save(root / "f.npy", np.asfortranarray(matrix))
    np.save(root / "empty.npy", np.empty((0, 3)))
    np.save(root / "scalar.npy", np.float64(3))
    (root / "r.raw").write_bytes(matrix.astype(">f4").tobytes())
    (root / "t.csv").write_text("a,b\n" + "".join(f"{i},{i / 2}\n" for i in range(50)))
    # A part may be read of a file that is larger than what is allowed.
    sources = f'[sources.files]\naddress = "file://{root}/"\nmax_bytes = 200000\n'
    server = serve(sources, f'[data]\nfolder = "{root}"\n').connect()
    for place in [f"file://{root}/", "folder:"]:
        limit = len(vector) if place == "folder:" else 20_000
        part = farcall.url(f"{place}v.npy", rows=slice(777, 777 + limit))
        if place != "folder:":
            assert server.function("total")(limit, part).sum == pytest.approx(
                vector[777 : 777 + limit].sum()
            )
            refused(server, farcall.url(f"{place}v.npy"), "200000 are allowed")
        for name, array, options in [
            ("m.npy", matrix[:, :, :], {}),
            ("f.npy", matrix, {}),
            ("r.raw", matrix.astype(">f4"), {"dtype": ">f4", "shape": matrix.shape}),
        ]:
            for rows in [slice(0, 3), slice(990, None), slice(10, 10), slice(None, 1)]:
                got = server.put(farcall.url(f"{place}{name}", rows=rows, **options)).get()
                assert np.array_equal(got, array[rows])
        table = server.put(farcall.url(f"{place}t.csv", rows=slice(10, 20))).get()
        assert np.array_equal(table, [[i, i / 2] for i in range(10, 20)])
        assert server.put(farcall.url(f"{place}empty.npy", rows=slice(0, 0))).shape == (0, 3)
    for name, options, match in [
        (
            "v.npy",
            {"rows": slice(5, 100_001)},
            r"\(100000,\), which does not have the rows 5",
        ),
        ("v.npy", {"rows": slice(100_001, None)}, "does not have the rows"),
        ("v.npy", {"rows": slice(7, 3)}, "its rows end before they begin"),
        ("scalar.npy", {"rows": slice(0, 1)}, "does not have the rows"),
        ("m.npy", {"rows": slice(0, 1), "shape": (3, 3)}, r"\(3, 3\) was expected"),
        ("r.raw", {"rows": slice(0, 1)}, "give their dtype"),
    ]:
        error = refused(server, farcall.url(f"folder:{name}", **options), match)
        assert f"folder:{name}" in str(error)
    for wrong in [slice(-3, None), slice(0, 10, 2), slice("a", "b")]:
        with pytest.raises(farcall.ArgumentError, match="a slice from the beginning"):
            farcall.url("folder:v.npy", rows=wrong)
    part = farcall.url("folder:v.npy", rows=slice(3, None))
    assert part == pickle.loads(pickle.dumps(part)) != farcall.url("folder:v.npy")


def test_parts_of_pages_are_asked_for_by_range(serve, web):
    matrix = np.arange(200_000.0).reshape(20_000, 10)

    def page(array, tag='"1"', tag_then=None):
        body = npy(array)

        def answer(one):
            found = one.headers.get("Range")
            if found is None:
                return one.send(body, {"ETag": tag} if tag else {})
            now = tag_then if tag_then and "If-Match" in one.headers else tag
            if one.headers.get("If-Match", now) != now:
                return one.send(b"", status=412)
            begin, _, last = found.removeprefix("bytes=").partition("-")
            begin, end = int(begin), min(int(last) + 1 if last else len(body), len(body))
            heads = {"Content-Range": f"bytes {begin}-{end - 1}/{len(body)}"}
            return one.send(body[begin:end], heads | ({"ETag": tag} if tag else {}), status=206)

        return answer

    web.pages |= {
        "/m.npy": page(matrix),
        "/f.npy": page(np.asfortranarray(matrix)),
        "/small.npy": page(matrix[:10]),
        "/untagged.npy": page(matrix, tag=None),
        "/changes.npy": page(matrix, tag_then='"2"'),
        "/whole.npy": (npy(matrix), {"ETag": '"1"'}),
    }
    server = serve(f'[sources.web]\naddress = "{web.address}/"').connect()

    def ranges(name):
        return [heads.get("Range") for path, heads in web.asked if path == f"/{name}"]

    parts_of(server, f"{web.address}/m.npy", matrix)
    web.asked.clear()
    part = farcall.url(f"{web.address}/m.npy", rows=slice(10_000, 10_100))
    assert np.array_equal(server.put(part).get(), matrix[10_000:10_100])
    begin = 128 + 10_000 * 80
    assert ranges("m.npy") == ["bytes=0-65535", f"bytes={begin}-{begin + 100 * 80 - 1}"]
    # The part has a version: it is here, and only asked for.
    assert np.array_equal(server.put(part).get(), matrix[10_000:10_100])
    assert len(web.asked) == 3
    # Pages for which that is not possible, or costs more, are read whole.
    for name, array in [("f.npy", matrix), ("untagged.npy", matrix), ("whole.npy", matrix)]:
        parts_of(server, f"{web.address}/{name}", array)
    parts_of(server, f"{web.address}/small.npy", matrix[:10])
    refused(
        server,
        farcall.url(f"{web.address}/changes.npy", rows=slice(10_000, 10_100)),
        "has changed while it was read",
    )
    checked = farcall.url(f"{web.address}/m.npy", rows=slice(0, 5), sha256="0" * 64)
    refused(server, checked, "sha256 checksum")


def test_a_sweep_reads_files_where_they_are(start, open_path):
    """Each of two servers has its own files, and computes the calls that read them."""
    idl = open_path / "work.idl"
    idl.write_text(IDL.replace("CalcOrder n", 'CalcOrder n Repeatable "yes"'))
    with metaserver() as address:
        processes = []
        for name in ["a", "b"]:
            folder = open_path / name
            folder.mkdir()
            np.save(folder / f"{name}.npy", np.full(10_000, float(ord(name))))
            config = open_path / f"{name}.toml"
            config.write_text(f'[data]\nfolder = "{folder}"\n')
            words = ["--allow-code", "--config", str(config), "--metaserver", address]
            processes.append(start(idl, options=words))
        client = farcall.connect(address)
        total = wait_until(lambda: known(client, "total"), what="the function")
        wait_until(lambda: len(client.list_data()) == 2, what="the metaserver's news")
        # All calls of one file come first, more than the sweep looks ahead.
        names = ["a"] * 600 + ["b"] * 20
        parts = [
            (100, farcall.url(f"folder:{name}.npy", rows=slice(i % 90 * 100, i % 90 * 100 + 100)))
            for i, name in enumerate(names)
        ]
        sums = [one.sum for one in total.map(parts).wait()]
        assert sums == [100.0 * ord(name) for name in names]
        # A call goes to the server with the file, or the part goes to its server.
        for name in "abab":
            part = farcall.url(f"folder:{name}.npy", rows=slice(0, 100))
            assert total(100, part).sum == 100.0 * ord(name)
            assert total.call_async(100, part).result(timeout=30).sum == 100.0 * ord(name)
        both = client.function("both")
        a, b = (farcall.url(f"folder:{name}.npy", rows=slice(0, 100)) for name in "ab")
        assert both(100, a, b).sum == 100.0 * (ord("a") + ord("b"))
        assert both.call_async(100, b, a).result(timeout=30).sum == 100.0 * (ord("a") + ord("b"))
        with pytest.raises(farcall.Error, match="does not exist"):
            total(100, farcall.url("folder:c.npy", rows=slice(0, 100)))
