"""Arrays at addresses outside of Farcall, which the server reads: with real servers on loopback."""

import hashlib
import http.server
import io
import json
import os
import pathlib
import pickle
import signal
import socket
import ssl
import subprocess
import threading

import farcall
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import FARCALL, children, wait_until

IDL = """\
Module work;
Define total(IN int n, IN double x[n], OUT double *sum)
    CalcOrder n
{
    int i;
    *sum = 0;
    for (i = 0; i < n; i++) *sum += x[i];
}
Define first(IN int n, IN int m, IN float x[n][m], OUT float y[n])
{
    int i;
    for (i = 0; i < n; i++) y[i] = x[i * m];
}
Define twice(IN int n, INOUT double x[n])
{
    int i;
    for (i = 0; i < n; i++) x[i] *= 2;
}
"""


def npy(array):
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class Web:
    """A web server of a test: pages with heads, and what was asked of it."""

    def __init__(self, tls=None):
        """Listens on a free port, with TLS if there is a folder of certificates."""
        self.pages = {}
        self.asked = []
        web = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                web.asked.append((self.path, dict(self.headers)))
                answer = web.pages.get(self.path, 404)
                if callable(answer):
                    return answer(self)
                if isinstance(answer, int):
                    return self.send(b"", status=answer)
                return self.send(*answer)

            def send(self, body, heads=(), status=200, length=None):
                heads = dict(heads)
                tag = heads.get("ETag")
                if tag is not None and self.headers.get("If-None-Match") == tag:
                    body, status = b"", 304
                self.send_response(status)
                for name, value in heads.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        # A connector closes connections of sources that it gives up.
        self._server.handle_error = lambda *_: None
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls / "server.pem", tls / "server.key")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port = self._server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}"

    def close(self):
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def web():
    web = Web()
    yield web
    web.close()


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with these sources."""
    idl = tmp_path / "work.idl"
    idl.write_text(IDL)

    def serve(sources, data="", **options):
        config = tmp_path / "farcall.toml"
        config.write_text(f"{data}\n{sources}")
        words = ["--allow-code", "--config", str(config)]
        return start(idl, options=words, **options)

    return serve


def refused(server, source, match, error=farcall.Error):
    """The error of a call that reads a source."""
    with pytest.raises(error, match=match) as raised:
        server.function("total")(3, source)
    return raised.value


def connectors(process):
    """The connectors of a server."""

    def is_one(pid):
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"farcall._connector" in words

    return [pid for pid in children(process.pid) if is_one(pid)]


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
    assert names == [f"{index}.npy" for index in range(3, 8)] or len(names) == 5
    with pytest.raises(farcall.ServerError, match="bytes_per_user"):
        server.put(np.ones(5001))


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
        f'[sources.web]\naddress = "{web.address}/"\ntime_limit_s = 1.0\n'
        f'[sources.closed]\naddress = "{closed.address}/"\n'
    ).connect()
    for address, match, fault in [
        (f"{web.address}/slow.npy", "too slow: it was not read within 1 s", None),
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


def test_credentials_go_to_their_source_only(serve, web, tmp_path):
    body = npy(np.arange(3.0))
    web.pages |= {"/token/a.npy": (body,), "/user/a.npy": (body,), "/open/a.npy": (body,)}
    web.pages["/token/moved.npy"] = (b"", {"Location": "/open/a.npy"}, 302)
    (tmp_path / "token").write_text("t0ken\n")
    (tmp_path / "password").write_text("s3cret\n")
    process = serve(
        f'[sources.token]\naddress = "{web.address}/token/"\ntoken_file = "{tmp_path}/token"\n'
        f'[sources.user]\naddress = "{web.address}/user/"\nuser = "alice"\n'
        f'password_file = "{tmp_path}/password"\n'
        f'[sources.open]\naddress = "{web.address}/open/"\n',
        environment={"AWS_SECRET_ACCESS_KEY": "secret", "PGPASSWORD": "secret"},
    )
    server = process.connect()
    for path in ["token/a.npy", "user/a.npy", "open/a.npy", "token/moved.npy"]:
        assert server.function("total")(3, farcall.url(f"{web.address}/{path}")).sum == 3
    shown = [(path, heads.get("Authorization")) for path, heads in web.asked]
    assert shown == [
        ("/token/a.npy", "Bearer t0ken"),
        ("/user/a.npy", "Basic YWxpY2U6czNjcmV0"),
        ("/open/a.npy", None),
        ("/token/moved.npy", "Bearer t0ken"),
        ("/open/a.npy", None),
    ]
    [pid] = connectors(process.process)
    known = pathlib.Path(f"/proc/{pid}")
    assert b"s3cret" not in (known / "cmdline").read_bytes()
    # Its memory belongs to root: workers of the same user cannot read it.
    assert (known / "mem").stat().st_uid == 0
    if os.geteuid() == 0:
        status = (known / "status").read_text()
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert "CapEff:\t0000000000000000" in status
        environment = (known / "environ").read_bytes()
        assert b"secret" not in environment
        assert b"FARCALL" not in environment


def test_the_certificate_of_a_source_is_verified(serve, tmp_path):
    tls = tmp_path / "tls"
    words = ["access", "certificate", "server", tls, "localhost"]
    subprocess.run([FARCALL, *words], check=True, capture_output=True, timeout=30)
    web = Web(tls)
    web.pages["/a.npy"] = (npy(np.arange(3.0)),)
    networks = 'networks = ["127.0.0.0/8", "::1/128"]\n'
    authority = f'certificates = "{tls}/authority.pem"\n'
    address = f"https://localhost:{web.port}/"
    source = farcall.url(f"{address}a.npy")
    server = serve(f'[sources.web]\naddress = "{address}"\n{networks}{authority}').connect()
    assert server.function("total")(3, source).sum == 3
    server = serve(f'[sources.web]\naddress = "{address}"\n{networks}').connect()
    refused(server, source, "CERTIFICATE_VERIFY_FAILED")
    # The certificate is not for this address.
    address = f"https://127.0.0.1:{web.port}/"
    server = serve(f'[sources.web]\naddress = "{address}"\n{authority}').connect()
    refused(server, farcall.url(f"{address}a.npy"), "CERTIFICATE_VERIFY_FAILED")
    web.close()


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


def test_no_other_address_is_opened(serve, web):
    other = Web()
    secret = (npy(np.arange(3.0)), {"ETag": '"1"'})
    for one in (web, other):
        one.pages = dict.fromkeys(["/secret.npy", "/data/a.npy", "/database/a.npy"], secret)
    web.pages |= {
        f"/data/{name}": (b"", {"Location": target}, status)
        for name, target, status in [
            ("other.npy", f"{other.address}/data/a.npy", 302),
            ("up.npy", "/secret.npy", 301),
            ("dots.npy", "../secret.npy", 307),
            ("escaped.npy", "/data/%2e%2e/secret.npy", 308),
            ("file.npy", "file:///etc/passwd", 302),
            ("circle.npy", "circle.npy", 302),
        ]
    }
    port, there = web.port, other.port
    sources = (
        f'[sources.web]\naddress = "http://127.0.0.1:{port}/data/"\n'
        f'[sources.private]\naddress = "http://localhost:{port}/data/"\n'
        f'[sources.tables]\naddress = "file:///srv/tables/"\n'
    )
    server = serve(sources).connect()
    total = server.function("total")
    assert total(3, farcall.url(f"http://127.0.0.1:{port}/data/a.npy")).sum == 3
    assert total(3, farcall.url(f"HTTP://127.0.0.1:{port}/data/a.npy")).sum == 3
    web.asked.clear()
    for address in [
        f"http://127.0.0.1:{port}/secret.npy",
        f"http://127.0.0.1:{there}/data/a.npy",
        f"https://127.0.0.1:{port}/data/a.npy",
        "http://127.0.0.1/data/a.npy",
        f"http://2130706433:{port}/data/a.npy",
        f"http://0x7f000001:{port}/data/a.npy",
        f"http://0x7f.0.0.1:{port}/data/a.npy",
        f"http://0177.0.0.1:{port}/data/a.npy",
        f"http://127.1:{port}/data/a.npy",
        f"http://0:{port}/data/a.npy",
        f"http://[::1]:{port}/data/a.npy",
        f"http://[::ffff:127.0.0.1]:{port}/data/a.npy",
        f"http://[::ffff:7f00:1]:{port}/data/a.npy",
        f"http://127.0.0.1.:{port}/data/a.npy",
        f"http://127.0.0.1:{port}@127.0.0.1:{there}/data/a.npy",
        f"http://user:word@127.0.0.1:{port}/data/a.npy",
        f"http://127.0.0.1:{there}#@127.0.0.1:{port}/data/a.npy",
        f"http://127.0.0.1:{port}\\@127.0.0.1:{there}/data/a.npy",
        f"http:/127.0.0.1:{port}/data/a.npy",
        f"http:///127.0.0.1:{port}/data/a.npy",
        f"//127.0.0.1:{port}/data/a.npy",
        f"http://127.0.0.1:{port}/database/a.npy",
        f"http://127.0.0.1:{port}/data",
        f"http://127.0.0.1:{port}/data/../secret.npy",
        f"http://127.0.0.1:{port}/data/%2e%2e/secret.npy",
        f"http://127.0.0.1:{port}/data/%2E./secret.npy",
        f"http://127.0.0.1:{port}/data/..%2fsecret.npy",
        f"http://127.0.0.1:{port}/data/%252e%252e/secret.npy",
        f"http://127.0.0.1:{port}/data/..;/secret.npy",
        f"http://127.0.0.1:{port}/data/..\\secret.npy",
        f"http://127.0.0.1:{port}/data/%5c../secret.npy",
        f"http://127.0.0.1:{port}/data/a.npy\r\nHost: other",
        f"http://127.0.0.1:{port}/data/%0d%0aHost:other",
        f"http://127.0.0.1:{port}/data/a.npy#x",
        f"http://127.0.0.1:{port}/%64ata/a.npy",
        "http://127.0.0.1:99999/data/a.npy",
        f"http://127.0.0.1:{port}/data/\u2025/secret.npy",
        f"http://\uff11\uff12\uff17.0.0.1:{port}/data/a.npy",
        f"simplecache::http://127.0.0.1:{port}/data/a.npy",
        f"zip://a.npy::http://127.0.0.1:{port}/data/a.npy",
        f"url:http://127.0.0.1:{port}/data/a.npy",
        f" http://127.0.0.1:{port}/data/a.npy",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "ftp://127.0.0.1/a.npy",
        "gopher://127.0.0.1:25/",
        "dict://127.0.0.1:11211/",
        "data:text/plain,1,2,3",
        "farcall://127.0.0.1:3717",
        "unix:///run/docker.sock",
        "folder:a.npy",
        "",
    ]:
        match = "is not an address|is not allowed|has no port|has dots or escapes|too many escapes"
        refused(server, farcall.url(address, format="npy"), match)
    # A name of a host that stands for an address that is not public.
    refused(server, farcall.url(f"http://localhost:{port}/data/a.npy"), "which is not public")
    assert web.asked == other.asked == []
    for name in ["other", "up", "dots", "escaped", "file"]:
        refused(server, farcall.url(f"http://127.0.0.1:{port}/data/{name}.npy"), "no entry of")
    refused(server, farcall.url(f"http://127.0.0.1:{port}/data/circle.npy"), "in circles")
    assert other.asked == []
    assert "/secret.npy" not in [path for path, _ in web.asked]
    other.close()


def test_an_operator_can_name_a_private_network(serve, web):
    web.pages["/a.npy"] = (npy(np.arange(3.0)),)
    networks = 'networks = ["127.0.0.0/8"]'
    source = f'[sources.web]\naddress = "http://localhost:{web.port}/"\n'
    server = serve(f"{source}{networks}").connect()
    source = farcall.url(f"http://localhost:{web.port}/a.npy")
    if any(one[4][0] == "::1" for one in socket.getaddrinfo("localhost", web.port)):
        refused(server, source, "::1, which is not public")
        both = 'networks = ["127.0.0.0/8", "::1/128"]'
        server = serve(f'[sources.web]\naddress = "http://localhost:{web.port}/"\n{both}').connect()
    assert server.function("total")(3, source).sum == 3


def test_refusals_are_in_the_audit_log(start, web, tmp_path):
    idl, config, audit = (tmp_path / name for name in ["work.idl", "farcall.toml", "audit"])
    idl.write_text(IDL)
    config.write_text(f'[sources.web]\naddress = "{web.address}/data/"')
    words = ["--allow-code", "--config", str(config), "--audit", str(audit)]
    server = start(idl, options=words).connect()
    refused(server, farcall.url(f"{web.address}/secret.npy"), "is not allowed")
    wait_until(lambda: f"{web.address}/secret.npy" in audit.read_text(), what="the line")
    [line] = [json.loads(line) for line in audit.read_text().splitlines()]
    assert line["outcome"] == "refused"


def test_behind_a_metaserver_the_server_of_the_call_reads_the_address(start, web, tmp_path):
    web.pages["/a.npy"] = (npy(np.arange(3.0)), {"ETag": '"1"'})
    web.pages["/b.npy"] = (npy(np.ones(3)),)
    idl, config = tmp_path / "work.idl", tmp_path / "farcall.toml"
    idl.write_text(IDL)
    config.write_text(f'[sources.web]\naddress = "{web.address}/"')
    meta = subprocess.Popen(
        [FARCALL, "meta", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = meta.stdout.readline().removeprefix("listening on ").strip()
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
    finally:
        meta.terminate()
        meta.wait(30)


def known(client, name):
    """A function of a client, when its metaserver knows it."""
    try:
        return client.function(name)
    except farcall.Error:
        return None


def test_a_server_without_sources_and_one_with_a_wrong_entry(serve, web, tmp_path):
    process = serve("")
    server = process.connect()
    error = refused(server, farcall.url(f"{web.address}/a.npy"), "has not named any")
    assert connectors(process.process) == []
    assert error.fault == "caller"
    server = serve('[sources.web]\naddress = "http://a@b/"').connect()
    refused(server, farcall.url(f"{web.address}/a.npy"), r"\[sources.web\]")
    lost = f'token_file = "{tmp_path}/none"'
    server = serve(f'[sources.web]\naddress = "{web.address}/"\n{lost}').connect()
    refused(server, farcall.url(f"{web.address}/a.npy"), r"\[sources.web\].*none: No such file")
    assert web.asked == []


def test_files_that_the_operator_names(serve, tmp_path):
    tables, folder = tmp_path / "tables", tmp_path / "data"
    for path in [tables / "sub", folder / "runs"]:
        path.mkdir(parents=True)
    (tables / "a.csv").write_text("x\n1\n2\n3\n")
    (tables / "sub" / "b.npy").write_bytes(npy(np.ones(3)))
    (tmp_path / "secret.csv").write_text("1\n2\n3\n")
    (tables / "link.csv").symlink_to(tmp_path / "secret.csv")
    (tables / "linked").symlink_to(tmp_path)
    os.mkfifo(tables / "pipe.csv")
    (folder / "runs" / "7.csv").write_text("4\n5\n6\n")
    for path in [tmp_path, *tmp_path.parents]:
        if path.stat().st_uid == os.geteuid() and path != pathlib.Path("/"):
            path.chmod(path.stat().st_mode | 0o011)
    sources = f'[sources.tables]\naddress = "file://{tables}/"\n'
    server = serve(sources, f'[data]\nfolder = "{folder}"\n').connect()
    total = server.function("total")
    assert total(3, farcall.url(f"file://{tables}/a.csv")).sum == 6
    assert total(3, farcall.url(f"file://{tables}/sub/b.npy")).sum == 3
    assert total(3, farcall.url("folder:runs/7.csv")).sum == 15
    assert len([one for one in server.list_data() if one.name.startswith("sources/")]) == 3
    (tables / "new").write_text("x\n10\n20\n30\n")
    (tables / "new").rename(tables / "a.csv")
    assert total(3, farcall.url(f"file://{tables}/a.csv")).sum == 60
    for path, match in [
        (f"file://{tables}/none.csv", "does not exist"),
        (f"file://{tables}/link.csv", "is not opened"),
        (f"file://{tables}/linked/secret.csv", "is not opened|does not exist"),
        (f"file://{tables}/pipe.csv", "not a regular file"),
        (f"file://{tables}/sub/../a.csv", "not an address of a file"),
        (f"file://{tables}/../secret.csv", "not an address of a file"),
        (f"file://{tables}/%2e%2e/secret.csv", "does not exist"),
        (f"file://{tables}", "no entry of|not allowed"),
        (f"file://{tmp_path}/secret.csv", "not allowed"),
        ("file:///etc/passwd", "not allowed"),
        ("file://localhost/etc/passwd", "not an address of a file"),
        ("folder:../secret.csv", "not an address of a file"),
        ("folder:/etc/passwd", "not an address of a file"),
        ("folder:none.csv", "does not exist"),
    ]:
        refused(server, farcall.url(path, format="csv"), match)
