"""Objects of a real S3 service as arrays, which the server of a call reads."""

import farcall
import numpy as np
import pytest
from buckets import Buckets, Line
from sources import connectors, npy, refused, serving


@pytest.fixture(scope="module")
def buckets():
    buckets = Buckets()
    yield buckets
    buckets.close()


@pytest.fixture
def serve(start, tmp_path):
    """Starts a server with these sources."""
    return serving(start, tmp_path)


def bucket(buckets, folder, path="data/", endpoint=None, user=None, secret=None, more=""):
    """An entry of `[sources]`."""
    word = folder / "secret"
    word.write_text(f"{secret or buckets.secret}\n")
    return (
        f'[sources.bucket]\naddress = "s3://{path}"\nendpoint = "{endpoint or buckets.address}"\n'
        f'user = "{user or buckets.key}"\npassword_file = "{word}"\n{more}\n'
    )


def test_an_object_is_read_once_per_version(serve, buckets, tmp_path):
    buckets.put("a/one two.npy", npy(np.arange(3.0)))
    line = Line(buckets.port, [])
    process = serve(bucket(buckets, tmp_path, endpoint=line.address))
    server = process.connect()
    total = server.function("total")
    source = farcall.url("s3://data/a/one%20two.npy")
    assert [total(3, source).sum for _ in range(3)] == [3, 3, 3]
    # The service was asked each time, and has sent the object once.
    assert line.connections == 3
    [status] = server.list_data()
    assert status.name.startswith("sources/s3_/data/a/one_20two.npy=")
    buckets.put("a/one two.npy", npy(np.ones(3) * 7))
    assert total(3, source).sum == 21
    assert len(server.list_data()) == 1
    # A checksum that the service keeps is verified.
    buckets.put("sum.npy", npy(np.arange(3.0)), ChecksumAlgorithm="SHA256")
    assert total(3, farcall.url("s3://data/sum.npy")).sum == 3
    buckets.put("t.csv", b"x,y\n1,2\n3,4\n")
    assert server.put(farcall.url("s3://data/t.csv", columns=["y"])).get().tolist() == [2, 4]
    assert len(connectors(process.process)) == 1
    line.close()


def test_errors_name_the_object(serve, buckets, tmp_path):
    buckets.put("a.npy", npy(np.arange(3.0)))
    buckets.put("large.npy", npy(np.zeros(1000)))
    buckets.put("packed.npy", npy(np.zeros(3)), ContentEncoding="gzip")
    server = serve(bucket(buckets, tmp_path, more="max_bytes = 4000")).connect()
    total = server.function("total")
    assert total(3, farcall.url("s3://data/a.npy")).sum == 3
    for name, match in [
        ("none.npy", r"does not exist \(HTTP status 404, NoSuchKey\)"),
        ("large.npy", r"8128 bytes or more, and 4000 are allowed \(max_bytes of \[sources.bucket"),
        ("packed.npy", "coding gzip"),
    ]:
        error = refused(server, farcall.url(f"s3://data/{name}"), match)
        assert f"`s3://data/{name}`" in str(error)
    for user, secret, match in [
        (None, "wrong", "HTTP status 403, SignatureDoesNotMatch"),
        ("AKIANOBODY", None, "HTTP status 403, InvalidAccessKeyId"),
    ]:
        other = serve(bucket(buckets, tmp_path, user=user, secret=secret)).connect()
        error = refused(other, farcall.url("s3://data/a.npy"), match)
        assert buckets.secret not in str(error)
    no_bucket = serve(bucket(buckets, tmp_path, path="other/")).connect()
    refused(no_bucket, farcall.url("s3://other/a.npy"), "404, NoSuchBucket")
    line = Line(buckets.port, [])
    line.close()
    lost = serve(bucket(buckets, tmp_path, endpoint=line.address)).connect()
    refused(lost, farcall.url("s3://data/a.npy"), "`s3://data/a.npy` cannot be reached")


def test_only_the_named_objects_of_the_named_service_are_asked_for(serve, buckets, tmp_path):
    buckets.put("in/a.npy", npy(np.arange(3.0)))
    buckets.put("out/a.npy", npy(np.arange(3.0)))
    line = Line(buckets.port, [])
    server = serve(bucket(buckets, tmp_path, path="data/in/", endpoint=line.address)).connect()
    for address in [
        "s3://data/out/a.npy",
        "s3://other/in/a.npy",
        "s3://data/in",
        "s3://data/in/../out/a.npy",
        "s3://data/in/%2e%2e/out/a.npy",
        "s3://data/in%2fa.npy",
        "s3://data/%69n/a.npy",
        "s3://data/in/a.npy?versionId=1",
        "s3://data/in/?policy",
        "s3://data:80/in/a.npy",
        "s3://key:secret@data/in/a.npy",
        "s3://127.0.0.1/data/in/a.npy",
        "s3:/data/in/a.npy",
        f"{line.address}/data/in/a.npy",
    ]:
        refused(server, farcall.url(address, format="npy"), "is not an address|is not allowed|dots")
    assert line.connections == 0
    name = line.address.replace("127.0.0.1", "localhost")
    server = serve(bucket(buckets, tmp_path, endpoint=name)).connect()
    refused(server, farcall.url("s3://data/in/a.npy"), "which is not public")
    for more in ['endpoint = "http://127.0.0.1:1/path"', 'endpoint = "file:///etc/"']:
        server = serve(f'[sources.bucket]\naddress = "s3://data/"\n{more}').connect()
        refused(server, farcall.url("s3://data/a.npy"), r"endpoint.*\[sources.bucket\]")
    server = serve('[sources.web]\naddress = "http://127.0.0.1:1/"\nregion = "x"').connect()
    refused(server, farcall.url("s3://data/a.npy"), r"no bucket.*\[sources.web\]")
    assert line.connections == 0
    line.close()


def test_an_object_that_breaks_off_is_resumed_only_if_it_is_the_same(serve, buckets, tmp_path):
    body = npy(np.arange(1000.0))
    buckets.put("a.npy", body)
    line = Line(buckets.port, [4000])
    server = serve(bucket(buckets, tmp_path, endpoint=line.address)).connect()
    assert server.function("total")(1000, farcall.url("s3://data/a.npy")).sum == 499500
    assert line.connections == 2
    line.close()
    line = Line(buckets.port, [4000])
    server = serve(bucket(buckets, tmp_path, endpoint=line.address)).connect()

    def change(number):
        if number == 2:
            buckets.put("a.npy", npy(np.arange(1000.0) + 1))

    line.before = change
    error = refused(server, farcall.url("s3://data/a.npy"), "has changed while it was read")
    assert "`s3://data/a.npy`" in str(error)
    line.close()
