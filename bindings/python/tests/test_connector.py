"""Addresses of sources: which texts are one, which of them an entry allows, and which hosts."""

import contextlib
import dataclasses
import http.server
import io
import ipaddress
import pathlib
import socket
import sys
import threading
import types

import farcall._connector
import numpy as np
import pyarrow as pa
import pytest
from farcall._connector import __main__ as loop
from farcall._connector import (
    addresses,
    arrow,
    content,
    databases,
    destinations,
    formats,
    network,
    parts,
)
from farcall._connector import flight as flights
from farcall._connector import http as web
from farcall._connector.errors import RefusedError, SourceError, UnfitError, UnreachableError
from pyarrow import flight


def told_of(address, *networks, endpoint=None):
    """What the server tells of an entry of its configuration."""
    return {
        "address": address,
        "user": None,
        "password": None,
        "token": None,
        "certificates": None,
        "endpoint": endpoint,
        "region": None,
        "networks": networks,
        "write": False,
        "max_bytes": 1000,
        "time_limit_s": 1.0,
    }


def entry(address, *networks, name="one", endpoint=None):
    """An entry of the configuration."""
    return addresses.Entry.read(name, told_of(address, *networks, endpoint=endpoint))


def permits(allowed, address):
    """Whether an entry allows an address."""
    return entry(allowed).permits(addresses.parse(address))


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("https://Data.Example.org/A.npy", "https://data.example.org/A.npy"),
        ("HTTPS://data.example.org:443/a?b=c%20d", "https://data.example.org/a?b=c%20d"),
        ("https://Data.Example.org?Q=A/B", "https://data.example.org/?Q=A/B"),
        ("http://[2001:db8::1]:8080", "http://[2001:db8::1]:8080/"),
        ("file:///srv/a.npy", "file:///srv/a.npy"),
        ("file:/srv/a.npy", "file:///srv/a.npy"),
        ("file:///srv/a b.npy", "file:///srv/a b.npy"),
        ("file:///srv/100%.npy", "file:///srv/100%.npy"),
        ("folder:runs/a.npy", "folder:runs/a.npy"),
        ("sqlite:///srv/stock.db", "sqlite:/srv/stock.db"),
        ("S3://stock.2024/a%20b/c.npy", "s3://stock.2024/a%20b/c.npy"),
        ("s3://stock", "s3://stock/"),
        ("postgresql://Db.example.org/stock", "postgresql://db.example.org/stock"),
        ("postgresql://db.example.org:5433/stock", "postgresql://db.example.org:5433/stock"),
    ],
)
def test_an_address_has_one_spelling(text, spelled):
    parsed = addresses.parse(text)
    assert str(parsed) == spelled
    assert addresses.parse(spelled) == parsed


@pytest.mark.parametrize(
    "address",
    ["postgresql://db.example.org/a?sslmode=verify-full", "flight://lab.example.org/a?v=2"],
)
def test_options_that_nothing_reads_are_refused(address):
    with pytest.raises(RefusedError, match="takes nothing after a `\\?`"):
        addresses.parse(address)


def test_the_address_of_a_file_is_decoded_once():
    assert addresses.parse("file:///srv/a%20b%23%C3%A9.npy").path == "/srv/a b#\u00e9.npy"
    twice = addresses.parse("file:///srv/%2541.npy")
    assert twice.path == "/srv/%41.npy"
    assert addresses.parse(str(twice)) == twice
    assert addresses.parse("folder:a%20b.npy").path == "a%20b.npy"
    assert permits("file:///srv/my%20data/", "file:///srv/my data/a.npy")
    for text in ["file:///srv/%2e%2e/a.npy", "file:///srv%2Fa.npy", "file:///srv/a%00.npy"]:
        with pytest.raises(RefusedError):
            addresses.parse(text)


@pytest.mark.parametrize("name", [".a.npy", "runs/.a.npy", ".runs/a.npy"])
def test_hidden_files_of_the_data_folder_are_not_read(name):
    with pytest.raises(RefusedError, match="begins with a dot"):
        addresses.parse(f"folder:{name}")
    assert addresses.parse(f"file:///{name}").path == f"/{name}"


@pytest.mark.parametrize("text", ["https://a.org/%ff.npy", "s3://stock/%ff", "file:///%ff.npy"])
def test_an_escape_that_is_no_utf_8_is_refused(text):
    with pytest.raises(RefusedError, match="escapes in its path that are not UTF-8"):
        addresses.parse(text)


def test_an_entry_allows_what_it_names():
    assert permits("https://a.org/w/", "https://a.org/w/2024/a.npy?x=1")
    assert permits("https://a.org", "https://a.org/anything")
    assert permits("https://a.org/w/a.npy", "https://a.org:443/w/a.npy")
    for allowed, address in [
        ("https://a.org/w/", "https://a.org/w"),
        ("https://a.org/w", "https://a.org/w/a.npy"),
        ("https://a.org/w", "https://a.org/work"),
        ("https://a.org/w", "https://a.org/w?x=1"),
        ("https://a.org/w?x=1", "https://a.org/w"),
        ("https://a.org/", "http://a.org/a"),
        ("https://a.org/", "https://a.org:8443/a"),
        ("https://a.org/", "https://a.org.evil.com/a"),
        ("https://a.org/", "https://b.a.org/a"),
        ("https://a.org/", "https://a.org./a"),
        ("https://127.0.0.1/", "https://2130706433/"),
        ("file:///srv/tables/", "file:///srv/tables"),
        ("file:///srv/tables/", "file:///srv/tables2/a"),
        ("folder:a.npy", "file:///a.npy"),
        ("s3://stock/a/", "s3://stock/b"),
        ("s3://stock/a/", "s3://stock2/a/b"),
        ("s3://stock/a/", "s3://stock/%61/b"),
    ]:
        assert not permits(allowed, address), (allowed, address)


def test_the_most_special_entry_counts():
    all_of_it, part = entry("https://a.org/"), entry("https://a.org/b/", name="two")
    found = addresses.find([all_of_it, part], addresses.parse("https://a.org/b/c"))
    assert found.name == "two"
    with pytest.raises(RefusedError, match=r"no entry of \[sources\]"):
        addresses.find([part], addresses.parse("https://a.org/c"))


def test_only_public_addresses_are_reached_by_name():
    plain = entry("https://a.org/")
    for ip in ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"]:
        assert plain.lets(ip), ip
    private = [
        "127.0.0.1 127.8.8.8 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1",
        "224.0.0.1 255.255.255.255 198.18.0.1 ::1 :: fe80::1%eth0 fc00::1 ff02::1",
        "::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 64:ff9b::7f00:1 2002:7f00:1::",
        "2001:0:7f00:1::1",
    ]
    for ip in " ".join(private).split():
        assert not plain.lets(ip), ip
    inside = entry("https://a.org/", "10.0.0.0/8")
    assert inside.lets("10.1.2.3")
    assert inside.lets("::ffff:10.1.2.3")
    assert not inside.lets("127.0.0.1")
    assert isinstance(inside.networks[0], ipaddress.IPv4Network)


def known(monkeypatch, *answers):
    """Lets the look-up of a host answer with these addresses, one after the other."""
    rest = list(answers)

    def look_up(_host, port, **_options):
        found = rest.pop(0) if len(rest) > 1 else rest[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return rest


def test_a_host_is_looked_up_once(monkeypatch):
    rest = known(monkeypatch, ["8.8.8.8"], ["127.0.0.1"])
    reached = []

    def connect(address, **_options):
        reached.append(address)
        raise ConnectionRefusedError("no")

    monkeypatch.setattr(socket, "create_connection", connect)
    plain = entry("https://a.org/")
    address = addresses.parse("https://a.org/a.npy")
    with pytest.raises(UnreachableError, match="cannot be reached"):
        network.connect(address, plain, network.Deadline("a", 1.0))
    assert reached == [("8.8.8.8", 443)]
    assert rest == [["127.0.0.1"]]
    # The name stands for a private address now, or for one among others.
    for found in [["127.0.0.1"], ["8.8.8.8", "10.0.0.1"]]:
        known(monkeypatch, found)
        with pytest.raises(RefusedError, match="not public"):
            network.connect(address, plain, network.Deadline("a", 1.0))
    assert len(reached) == 1


def test_a_flight_is_asked_for_where_its_host_answers(monkeypatch):
    """A host can have an address of IPv6 at which the service does not listen."""
    table = pa.table({"x": [1.0, 2.0]})

    class Flights(flight.FlightServerBase):
        def do_get(self, _context, _ticket):
            return flight.RecordBatchStream(table)

    look_up = socket.getaddrinfo

    def both(host, *rest, **options):
        hosts = ["::1", "127.0.0.1"] if host == "lab.example.org" else [host]
        return [found for one in hosts for found in look_up(one, *rest, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with Flights("grpc://127.0.0.1:0") as service:
        address = addresses.parse(f"flight://lab.example.org:{service.port}/")
        lab = entry(str(address), "127.0.0.0/8", "::1/128")
        lab = dataclasses.replace(lab, time_limit_s=30.0)
        found = flights.read(address, lab, {"query": "all", "columns": None})
        assert found.tolist() == [1, 2]


def test_a_server_without_pyarrow_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "farcall._connector.arrow", None)
    monkeypatch.delattr(farcall._connector, "arrow", raising=False)
    one = entry("https://a.org/")
    asked = {"format": None, "element": None, "columns": None, "wanted": "", "shape": None}
    kind = formats.format_of("/a.parquet", asked, "https://a.org/a.parquet")
    data = content.Content("https://a.org/a.parquet", one)
    with pytest.raises(UnreachableError, match=r"a\.parquet` needs the package `pyarrow`"):
        formats.read(data, kind, asked, one)


def table(text, *, element=None, wanted="", columns=None):
    """The array of a table in text."""
    data = content.Content("https://a.org/t.csv", entry("https://a.org/"))
    data.add(text.encode())
    asked = {"element": element, "big_endian": False, "columns": columns, "wanted": wanted}
    return formats.read(data, "csv", asked, entry("https://a.org/"))


def test_whole_numbers_of_a_table_are_not_rounded_unasked():
    large = 2**53 + 1
    text = f"id,x\n1,2.5\n\n {large} ,1e300\n"
    for wanted in "", "double":
        with pytest.raises(UnfitError, match=rf"whole number {large}, .* dtype=\"int64\""):
            table(text, wanted=wanted)
    with pytest.raises(UnfitError, match="16777217, which float32 cannot hold"):
        table("16777216\n16777217\n", wanted="float")
    # A number with a fraction or an exponent becomes the nearest one, and so does a stated type.
    assert table(text, columns=["x"]).tolist() == [2.5, 1e300]
    assert table(text, element="double").tolist() == [[1.0, 2.5], [2.0**53, 1e300]]
    assert table(f"{large}\n", element="long").tolist() == [large]
    assert table(f"{2**60}\n-{2**53}\n{large}.0\n").tolist() == [2.0**60, -(2.0**53), 2.0**53]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1.5", "int"),
        ("nan", "long"),
        ("1e300", "long"),
        ("300", "char"),
        ("-1", "unsigned int"),
        ("5000000000", "int"),
    ],
)
def test_a_number_of_a_table_that_an_integer_cannot_hold_is_refused(text, wanted):
    with pytest.raises(UnfitError, match=f"could not convert string '{text}'"):
        table(f"7\n{text}\n", wanted=wanted)


def test_a_table_in_text_has_no_complex_numbers():
    """NumPy would write `%d` of their parts."""
    asked = {"writes": [2], "columns": None, "wanted": "double", "element": None}
    formats.check_to_write("csv", asked, "https://a.org/t.csv")
    for complex_one in {"wanted": "dcomplex"}, {"element": "dcomplex"}:
        with pytest.raises(UnfitError, match="of real numbers are written as csv"):
            formats.check_to_write("csv", asked | complex_one, "https://a.org/t.csv")


def test_names_that_are_numbers_are_not_written():
    asked = {"writes": [3, 2], "wanted": "double", "element": None}
    formats.check_to_write("csv", asked | {"columns": ["time", "2021"]}, "https://a.org/t.csv")
    for names in (["2020", "2021"], ["", "2"], ["NA", "1"]):
        with pytest.raises(UnfitError, match="takes such a line as numbers"):
            formats.check_to_write("csv", asked | {"columns": names}, "https://a.org/t.csv")


def test_a_column_can_be_called_j():
    """Python would read it as a complex number."""
    assert table("J\n1\n2\n").tolist() == [1.0, 2.0]
    assert table("j,J\n1,2\n", wanted="long", columns=["J"]).tolist() == [2]
    assert table("1j\n2\n", wanted="dcomplex").tolist() == [1j, 2]


def test_names_may_look_like_numbers_and_like_missing_ones():
    assert table("Na\n1\n", columns=["Na"]).tolist() == [1]
    assert table("Na,\n1,2\n", columns=["Na"]).tolist() == [1]
    assert table("time,0.5,?\n1,2,3\n", columns=["0.5"]).tolist() == [2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\nx,2\n", "'x' to float64 at row 1, column 1"),
        ("a,b\n1,2\n3,x\n", "'x' to float64 at row 2, column 2"),
        ("a,b\n1,2\n3\n", "changed from 2 to 1 at row 2$"),
        ("NA,2\n3,4\n", "'NA' to float64 at row 1, column 1"),
        ("1,,#N/A\n3,4,5\n", "'' to float64 at row 1, column 2"),
    ],
)
def test_errors_of_a_table_count_rows_from_1(text, said):
    with pytest.raises(UnfitError, match=said):
        table(text)


def test_no_number_of_another_column_is_taken():
    assert table("t,rain,wind\n1,2,3,\n\n2,0,4\n", columns=["wind"]).tolist() == [3, 4]
    with pytest.raises(UnfitError, match=r"row 2 has 4 fields, and the first line has 3 names$"):
        table("t,rain,wind\n1,2,3\n2,2,5,3\n", columns=["wind"])


def test_a_name_without_an_ending_says_no_format():
    for path in "/a.csv/rain", "/rain":
        with pytest.raises(UnfitError, match="has no ending that says its format: give format="):
            formats.format_of(path, {"format": None}, f"file://{path}")


def test_an_empty_line_changes_no_shape():
    for text in "1\n2\n", "\n1\n2\n", "1\n\n2\n":
        assert table(text).shape == (2,)


def test_time_is_bounded():
    deadline = network.Deadline("here", 0.0)
    with pytest.raises(SourceError, match="`here` is too slow"):
        deadline.left()


@pytest.mark.parametrize(
    ("values", "source", "dtype", "fits"),
    [
        ([2**53 + 1], "i8", "f8", False),
        ([2**53, -(2**63), 2**62], "i8", "f8", True),
        ([2**63 - 1], "i8", "f8", False),
        ([2**64 - 1], "u8", "f8", False),
        ([2**63], "u8", "f8", True),
        ([2**53 + 1], "i8", "c16", False),
        ([2**24 + 1], "i4", "f4", False),
        ([2**40], "i8", "i4", False),
        ([-(2**31), 2**31 - 1], "i8", "i4", True),
        ([2**63], "u8", "i8", False),
        ([1e300], "f8", "f4", False),
        ([0.1, float("inf"), float("nan")], "f8", "f4", True),
        ([1e300j], "c16", "c8", False),
        ([], "i8", "i4", True),
    ],
)
def test_a_number_is_what_it_was_in_another_type(values, source, dtype, fits):
    array = np.array(values, dtype=source)
    for order in "=<>":
        wanted = np.dtype(dtype).newbyteorder(order)
        if fits:
            found = formats.held(array, wanted, "one")
            assert found.dtype == wanted
            assert np.array_equal(found, array.astype(dtype), equal_nan=wanted.kind == "f")
        else:
            with pytest.raises(SourceError, match="cannot hold"):
                formats.held(array, wanted, "one")


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_server_without_room_says_so(size):
    data = content.Content("https://a.org/a.raw", entry("https://a.org/"))
    data._entry = dataclasses.replace(data._entry, max_bytes=1 << 21)
    # Each write to this device fails, as on a full disk.
    data.file = pathlib.Path("/dev/full").open("r+b")  # noqa: SIM115
    with pytest.raises(SourceError, match=r"no room for the source `.*` in /.*: No space left"):
        data.add(bytes(size))
        data.view()
    with contextlib.suppress(OSError):
        data.file.close()


def test_a_column_can_be_wanted_twice():
    batch = pa.record_batch({"a": [1, 2], "b": [3, 4]})
    found = arrow.gathered(batch.schema, [batch], ["b", "a", "b"], "one", entry("https://a.org/"))
    assert found.tolist() == [[3, 1, 3], [4, 2, 4]]


def test_a_batch_that_ends_before_its_rows_is_refused():
    buffer = pa.allocate_buffer(80, resizable=True)
    column = pa.Array.from_buffers(pa.int64(), 10, [None, buffer])
    batch = pa.record_batch([column], names=["a"])
    # It was valid when it was made. A source says what it likes, and pyarrow reads it unchecked.
    buffer.resize(8)
    with pytest.raises(pa.ArrowInvalid, match="too small"):
        arrow.gathered(batch.schema, [batch], None, "one", entry("https://a.org/"))


@pytest.mark.parametrize("name", ["a.npy", "a.raw"])
def test_columns_of_no_table_are_refused(tmp_path, name):
    np.arange(6.0).tofile(tmp_path / name)
    connector = loop._Connector({"sources": {}, "folder": str(tmp_path)})
    asked = {"address": f"folder:{name}", "query": None, "format": None, "columns": ["x"]}
    with pytest.raises(UnfitError, match=f"`folder:{name}` is no table: it takes no columns"):
        connector.array(asked)


def of_folder(folder, name, **asked):
    """What the connector makes of a file of the data folder."""
    keys = ["query", "format", "columns", "sha256", "rows", "shape", "element", "version"]
    flags = dict.fromkeys(["big_endian", "by_columns", "column_major"], False)
    plain = dict.fromkeys(keys) | flags | {"wanted": ""}
    connector = loop._Connector({"sources": {}, "folder": str(folder)})
    return connector.array(plain | {"address": f"folder:{name}"} | asked)[0][0]


@pytest.mark.parametrize("rows", [None, (1, 3)])
def test_a_stated_type_holds_for_npy_files_too(tmp_path, rows):
    numbers = np.arange(6.0)
    np.save(tmp_path / "a.npy", numbers)
    found = of_folder(tmp_path, "a.npy", element="float", rows=rows)
    assert found.dtype == np.float32
    assert np.array_equal(found, numbers[slice(*rows) if rows else slice(None)])
    with pytest.raises(UnfitError, match="has numbers of type float64, no int32"):
        of_folder(tmp_path, "a.npy", element="int", rows=rows)


@pytest.mark.parametrize("name", ["a.npy", "a.csv"])
def test_an_order_is_for_raw_numbers_alone(tmp_path, name):
    np.savetxt(tmp_path / "a.csv", np.eye(2), delimiter=",")
    np.save(tmp_path / "a.npy", np.eye(2))
    assert of_folder(tmp_path, name).shape == (2, 2)
    with pytest.raises(UnfitError, match=f"`folder:{name}` has no raw numbers: it takes no order"):
        of_folder(tmp_path, name, by_columns=True)


def test_columns_that_no_type_holds_together_are_refused():
    ids, prices = np.array([2**53 + 1, 3]), np.array([0.5, 1.5])
    assert formats.side_by_side([ids], "one").dtype == np.int64
    assert formats.side_by_side([ids[1:], prices[1:]], "one").tolist() == [[3.0, 1.5]]
    with pytest.raises(SourceError, match="int64 that float64 cannot hold"):
        formats.side_by_side([ids, prices], "one")


@contextlib.contextmanager
def broken_web(body, most):
    """A web server whose connections break off after so many bytes; the ranges that are asked."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            begin, end = self.headers["Range"].removeprefix("bytes=").split("-")
            asked.append(f"{begin}-{end}")
            part = body[int(begin) : int(end) + 1 if end else len(body)]
            self.send_response(206)
            self.send_header("ETag", '"1"')
            last = int(begin) + len(part) - 1
            self.send_header("Content-Range", f"bytes {begin}-{last}/{len(body)}")
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part[:most])

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, asked
        server.shutdown()


def test_a_part_that_breaks_off_is_resumed():
    array = np.arange(30_000.0)
    file = io.BytesIO()
    np.save(file, array)
    with broken_web(file.getvalue(), 70_000) as (port, asked):
        allowed = entry(f"http://127.0.0.1:{port}/")
        allowed = dataclasses.replace(allowed, max_bytes=1 << 20, time_limit_s=30.0)
        address = addresses.parse(f"http://127.0.0.1:{port}/a.npy")
        for end, ranges in [
            (30_000, ["0-65535", "80128-", "150128-", "220128-"]),
            (20_000, ["0-65535", "80128-160127", "150128-160127"]),
        ]:
            asked.clear()
            wanted = {"rows": (10_000, end), "sha256": None, "shape": None, "element": None}
            part = parts.Part.of("npy", wanted, str(address))
            found, version = web.Web(address, [allowed]).read(None, part)
            assert part.array(found).tolist() == array[10_000:end].tolist()
            assert (asked, version) == (ranges, '"1"')


def test_a_part_of_packed_bytes_is_refused():
    """A service of S3 sends an object in the coding with which it was stored."""

    class Packed(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            is_part = "Range" in self.headers
            self.send_response(206 if is_part else 200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", "16")
            if is_part:
                self.send_header("Content-Range", "bytes 0-15/16")
            self.end_headers()
            self.wfile.write(bytes(16))

        def log_message(self, *_):
            pass

    asked = {"rows": (0, 1), "sha256": None, "shape": None, "by_columns": False}
    asked |= {"element": "double", "big_endian": False}
    with http.server.HTTPServer(("127.0.0.1", 0), Packed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = addresses.parse(f"http://127.0.0.1:{server.server_port}/a.raw")
        allowed = dataclasses.replace(entry(str(address)), time_limit_s=30.0)
        part = parts.Part.of("raw", asked, str(address))
        with pytest.raises(UnreachableError, match="coding gzip"):
            web.Web(address, [allowed]).read(None, part)
        server.shutdown()


def test_a_page_of_an_ipv6_address_is_asked_for_by_that_address(monkeypatch):
    sent = io.BytesIO()

    def connect(*_):
        answer = io.BytesIO(b"HTTP/1.1 204 No Content\r\n\r\n")
        return types.SimpleNamespace(
            sendall=sent.write, makefile=lambda *_: answer, close=lambda: None
        )

    monkeypatch.setattr(web, "connect", connect)
    address = addresses.parse("http://[2001:db8::1]:8080/a")
    allowed = entry("http://[2001:db8::1]:8080/")
    answer = web.Answer(address, allowed, network.Deadline("one", 1.0), {})
    assert answer.status == 204
    assert b"\r\nHost: [2001:db8::1]:8080\r\n" in sent.getvalue()


@pytest.mark.parametrize(
    ("element", "wanted", "dtype"),
    [(None, "", "f8"), (None, "long", "i8"), ("int", "", "i4"), ("int", "double", "f8")],
)
def test_a_query_without_rows_has_numbers_of_the_wanted_type(element, wanted, dtype):
    address = addresses.parse("sqlite:/srv/a.db")
    one = entry(str(address))
    asked = {"columns": None, "element": element, "big_endian": False, "wanted": wanted}
    for names, shape in [(["a"], (0,)), (["a", "b"], (0, 2))]:
        found = databases.Table(address, one, names).array(asked)
        fitted, _ = formats.fitted(found, asked | {"column_major": False}, str(address), one)
        assert (fitted.dtype, fitted.shape) == (np.dtype(dtype), shape)


def test_no_rows_of_a_file_are_written():
    allowed = dataclasses.replace(entry("file:///srv/"), write=True)
    address = addresses.parse("file:///srv/a.npy")
    asked = {"query": None, "rows": [0, 5], "sha256": None, "shape": None}
    with pytest.raises(UnfitError, match="is written to, and takes no rows"):
        destinations.Destination(address, [allowed], None, asked)


def test_a_wrong_entry_does_not_take_the_others_along():
    told = {name: told_of(address) for name, address in [("a", "file:///srv/"), ("b", "htps://x")]}
    connector = loop._Connector({"sources": told, "folder": None})
    assert [str(one.address) for one in connector.entries] == ["file:///srv/"]
    with connector.told():
        addresses.find(connector.entries, addresses.parse("file:///srv/a.npy"))
    wanted = r"https://x/` is not allowed.* An entry cannot be used: .*\[sources\.b\]"
    with pytest.raises(RefusedError, match=wanted), connector.told():
        addresses.find(connector.entries, addresses.parse("https://x/"))


@pytest.mark.parametrize(
    "address", ["postgresql://me:s3c@/ret@db.example.org/a", "https:me:s3c@/ret@db.example.org/a"]
)
def test_users_do_not_read_a_password_in_a_wrong_entry(address):
    connector = loop._Connector({"sources": {"a": told_of(address)}, "folder": None})
    assert "s3c" not in str(connector.problem)
    assert "...@db.example.org/a` is not an address" in str(connector.problem)
