"""Results at addresses outside of Farcall: the server that has computed them writes them there."""

import hashlib
import os
import pathlib
import pickle
import threading

import farcall
import numpy as np
import pytest
from buckets import Buckets
from servers import known, metaserver, wait_until
from sources import Web, connectors, serving

IDL = """\
Module work;
Define count(IN int n, OUT double x[n])
{
    int i;
    for (i = 0; i < n; i++) x[i] = i;
}
Define grid(IN int n, IN int m, OUT int x[n][m], OUT double y[m])
{
    int i;
    for (i = 0; i < n * m; i++) x[i] = i;
    for (i = 0; i < m; i++) y[i] = i / 2.0;
}
Define twice(IN int n, INOUT double x[n])
{
    int i;
    for (i = 0; i < n; i++) x[i] *= 2;
}
Define fails(IN int n, OUT double x[n])
{
    int *nowhere = 0;
    *nowhere = n;
}
"""


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with these sources."""
    return serving(start, tmp_path, IDL)


@pytest.fixture
def out(open_path):
    """A folder in which the connector may write."""
    folder = open_path / "out"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def check(receipt, path):
    """Compares a receipt with what lies in a file."""
    there = path.read_bytes()
    assert receipt.nbytes == len(there)
    assert receipt.sha256 == hashlib.sha256(there).hexdigest()


def test_a_result_goes_to_a_file(serve, out):
    server = serve(f'[sources.out]\naddress = "file://{out}/"\nwrite = true').connect()
    count, grid = server.function("count"), server.function("grid")
    result = count(5, farcall.url(f"file://{out}/a.npy"))
    assert result.x.address == f"file://{out}/a.npy"
    check(result.x, out / "a.npy")
    check(pickle.loads(pickle.dumps(result)).x, out / "a.npy")
    assert np.array_equal(np.load(out / "a.npy"), np.arange(5.0))
    # The call again writes the same thing again.
    again = count(5, farcall.url(f"file://{out}/a.npy")).x
    assert again.sha256 == result.x.sha256
    # Several results, and some of them come back.
    both = grid(2, 3, farcall.url(f"file://{out}/x.csv", columns=["a", "b,c", "d"]))
    assert (out / "x.csv").read_text() == 'a,"b,c",d\n0,1,2\n3,4,5\n'
    assert both.y.tolist() == [0, 0.5, 1]
    both = grid(
        2,
        3,
        farcall.url(f"file://{out}/x.raw", dtype=">i8", order="F"),
        farcall.url(f"file://{out}/y.tsv"),
    )
    assert np.fromfile(out / "x.raw", ">i8").tolist() == [0, 3, 1, 4, 2, 5]
    assert (out / "y.tsv").read_text() == "0\n0.5\n1\n"
    check(both.x, out / "x.raw")
    check(both.y, out / "y.tsv")
    grid(2, 3, farcall.url(f"file://{out}/x.npy", order="F"))
    by_columns = np.load(out / "x.npy")
    assert by_columns.flags.f_contiguous and by_columns.tolist() == [[0, 1, 2], [3, 4, 5]]
    result = count.call_async(4, farcall.url(f"file://{out}/b.npy")).result(timeout=30)
    assert np.load(out / "b.npy").tolist() == [0, 1, 2, 3]
    check(result.x, out / "b.npy")
    # A stored array, too. What was written can be read.
    handle = server.put(np.asfortranarray(np.arange(6.0).reshape(2, 3)), order="F")
    check(handle.write(farcall.url(f"file://{out}/h.npy")), out / "h.npy")
    assert np.array_equal(np.load(out / "h.npy"), handle.get())
    assert np.array_equal(server.put(farcall.url(f"file://{out}/h.npy")).get(), handle.get())
    assert list(out.glob(".*")) == []
    handle.drop()
    # The arrays of results stay at the server for their call only; the file that was read stays.
    wait_until(lambda: len(server.handles()) == len(server.list_data()) == 1, what="the end")


def test_nothing_half_written_stays(serve, out, tmp_path):
    (out / "folder.npy").mkdir()
    (out / "kept.npy").write_bytes(b"before")
    (out / "link.npy").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_bytes(b"victim")
    (out / "linked").symlink_to(tmp_path)
    closed = out / "closed"
    closed.mkdir()
    closed.chmod(0o755)
    sources = (
        f'[sources.out]\naddress = "file://{out}/"\nwrite = true\nmax_bytes = 1000\n'
        f'[sources.read]\naddress = "file://{out}/read/"\n'
        f'[sources.base]\naddress = "sqlite:{out}/base.db"\nwrite = true\n'
    )
    process = serve(sources)
    server = process.connect()
    count = server.function("count")
    for address, options, match in [
        (f"file://{out}/kept.npy", {"shape": (5,)}, "takes no shape"),
        (f"file://{out}/kept.npy", {"rows": slice(0, 5)}, "takes no rows"),
        (f"file://{out}/kept.npy", {"sha256": "0" * 64}, "takes no sha256"),
        (f"file://{out}/kept.npy", {"columns": ["x"]}, "takes no columns"),
        (f"file://{out}/kept.npy", {"dtype": "int32"}, "float64, no int32"),
        (f"file://{out}/kept.parquet", {}, "not written as parquet"),
        (f"file://{out}/kept.csv", {"columns": ["x", "y"]}, "1 columns, and 2 names"),
        (f"file://{out}/kept", {}, "format"),
        (f"file://{out}/folder.npy", {}, "is not opened"),
        (f"file://{out}/none/a.npy", {}, "the folder of .* does not exist"),
        (f"file://{out}/linked/victim.npy", {}, "is not opened|does not exist"),
        (f"file://{out}/../victim.npy", {}, "not an address of a file"),
        (f"file://{out}/read/a.npy", {}, r"is only read: .*write of \[sources.read\]"),
        (f"file://{tmp_path}/a.npy", {}, "no entry of"),
        (f"sqlite:{out}/base.db", {}, "is only read"),
        ("folder:a.npy", {}, "no entry of"),
        ("https://example.org/a.npy", {}, "no entry of"),
    ]:
        with pytest.raises(farcall.Error, match=match) as raised:
            count(5, farcall.url(address, **options))
        assert f"`{address}`" in str(raised.value)
    if os.geteuid() == 0:
        with pytest.raises(farcall.Error, match=r"user 65534.*workers\.user"):
            count(5, farcall.url(f"file://{closed}/a.npy"))
    with pytest.raises(farcall.Error, match=r"8000 bytes, and 1000 are allowed \(max_bytes"):
        count(1000, farcall.url(f"file://{out}/kept.npy"))
    with pytest.raises(farcall.Error, match="SIGSEGV"):
        server.function("fails")(5, farcall.url(f"file://{out}/kept.npy"))
    with pytest.raises(farcall.ArgumentError, match="an array to write to"):
        server.function("twice")(5, farcall.url(f"file://{out}/kept.npy"))
    assert (out / "kept.npy").read_bytes() == b"before"
    # A link is replaced, and the file that it names stays as it was.
    count(5, farcall.url(f"file://{out}/link.npy"))
    assert (tmp_path / "victim").read_bytes() == b"victim"
    assert np.load(out / "link.npy").tolist() == [0, 1, 2, 3, 4]
    assert not (out / "link.npy").is_symlink()
    names = ["closed", "folder.npy", "kept.npy", "link.npy", "linked"]
    assert sorted(one.name for one in out.iterdir()) == names
    assert list(closed.iterdir()) == []
    # The connector has survived all this.
    assert len(connectors(process.process)) == 1
    wait_until(lambda: server.handles() == [], what="the end of the arrays")


def test_a_result_goes_to_the_data_folder(serve, out):
    data = f'[data]\nfolder = "{out}"\n'
    (out / "results").mkdir()
    (out / "results").chmod(0o777)
    sources = '[sources.results]\naddress = "folder:results/"\nwrite = true\n'
    server = serve(sources, data).connect()
    server.function("count")(5, farcall.url("folder:results/a.npy"))
    assert np.load(out / "results" / "a.npy").tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(farcall.Error, match="no entry of"):
        server.function("count")(5, farcall.url("folder:a.npy"))


def test_a_result_goes_to_a_bucket(serve, tmp_path):
    buckets = Buckets()
    try:
        (tmp_path / "secret").write_text(buckets.secret)
        (tmp_path / "wrong").write_text("wrong")

        def entry(secret):
            return (
                f'[sources.bucket]\naddress = "s3://data/out/"\nendpoint = "{buckets.address}"\n'
                f'user = "{buckets.key}"\npassword_file = "{tmp_path}/{secret}"\nwrite = true\n'
            )

        server = serve(entry("secret")).connect()
        count = server.function("count")
        receipt = count(5, farcall.url("s3://data/out/a%20b.npy")).x
        there = buckets.get("out/a b.npy")
        assert (receipt.nbytes, receipt.sha256) == (len(there), hashlib.sha256(there).hexdigest())
        assert receipt.version == f'"{hashlib.md5(there).hexdigest()}"'
        assert server.put(farcall.url("s3://data/out/a%20b.npy")).get().tolist() == list(range(5))
        with pytest.raises(farcall.Error, match="no entry of"):
            count(5, farcall.url("s3://data/a.npy"))
        server = serve(entry("wrong")).connect()
        with pytest.raises(
            farcall.Error, match=r"s3://data/out/b\.npy.*403, SignatureDoesNotMatch"
        ):
            server.function("count")(5, farcall.url("s3://data/out/b.npy"))
        assert buckets.get("out/b.npy") is None
    finally:
        buckets.close()


def test_a_result_goes_to_a_page(serve, tmp_path):
    web, other = Web(), Web()
    (tmp_path / "token").write_text("t0ken")
    web.puts |= {
        "/out/moved.npy": (307, {"Location": f"{other.address}/out/a.npy"}),
        "/out/refused.npy": (403, {}),
        "/out/full.npy": (507, {}),
    }
    server = serve(
        f'[sources.web]\naddress = "{web.address}/out/"\nwrite = true\n'
        f'token_file = "{tmp_path}/token"\n'
    ).connect()
    count = server.function("count")
    receipt = count(5, farcall.url(f"{web.address}/out/a.raw")).x
    [(path, heads, body)] = web.written
    assert (path, heads["Authorization"]) == ("/out/a.raw", "Bearer t0ken")
    assert np.frombuffer(body).tolist() == [0, 1, 2, 3, 4]
    assert (receipt.nbytes, receipt.version) == (40, '"put"')
    for name, match in [
        ("moved", "written to the named address only"),
        ("refused", "does not let this server in"),
        ("full", "HTTP status 507"),
    ]:
        with pytest.raises(farcall.Error, match=match) as raised:
            count(5, farcall.url(f"{web.address}/out/{name}.npy"))
        assert f"`{web.address}/out/{name}.npy`" in str(raised.value)
    with pytest.raises(farcall.Error, match="has a query"):
        count(5, farcall.url(f"{web.address}/out/a.npy?x=1"))
    assert other.written == []
    web.close()
    with pytest.raises(farcall.Error, match="cannot be reached"):
        count(5, farcall.url(f"{web.address}/out/a.npy"))
    other.close()


def test_a_call_that_writes_waits_for_nobody_and_its_array_stays_until_then(serve):
    web = Web()
    asked, goes_on = threading.Event(), threading.Event()

    def slow(_one, _body):
        asked.set()
        goes_on.wait(30)
        return 200, {}

    web.puts["/slow.npy"] = slow
    server = serve(f'[sources.web]\naddress = "{web.address}/"\nwrite = true').connect()
    handle = server.put(np.arange(5.0))
    receipts = []
    writer = threading.Thread(
        target=lambda: receipts.append(handle.write(farcall.url(f"{web.address}/slow.npy")))
    )
    writer.start()
    assert asked.wait(30)
    # Others read the array, and one that writes it waits. It may even be dropped.
    assert handle.get().tolist() == [0, 1, 2, 3, 4]
    future = server.function("twice").call_async(5, handle)
    assert not future.done()
    goes_on.set()
    writer.join(30)
    assert future.result(timeout=30).x.get().tolist() == [0, 2, 4, 6, 8]
    assert receipts[0].nbytes == len(web.written[0][2])
    web.close()


def test_behind_a_metaserver_the_server_of_the_call_writes(start, out, tmp_path):
    idl, config = tmp_path / "work.idl", tmp_path / "farcall.toml"
    idl.write_text(IDL)
    config.write_text(f'[sources.out]\naddress = "file://{out}/"\nwrite = true')
    with metaserver() as address:
        words = ["--allow-code", "--config", str(config), "--metaserver", address]
        start(idl, options=words)
        client = farcall.connect(address)
        count = wait_until(lambda: known(client, "count"), what="the function")
        check(count(5, farcall.url(f"file://{out}/a.npy")).x, out / "a.npy")
        future = count.call_async(6, farcall.url(f"file://{out}/b.npy"))
        check(future.result(timeout=30).x, out / "b.npy")
        assert np.load(out / "b.npy").tolist() == list(range(6))
        with pytest.raises(farcall.Error, match="no entry of"):
            count(5, farcall.url(f"file://{tmp_path}/a.npy"))
        assert not pathlib.Path(tmp_path / "a.npy").exists()
