"""Which addresses a server reads for its users, and who gets which credentials."""

import contextlib
import functools
import json
import os
import pathlib
import socket
import subprocess

import farcall
import numpy as np
import pytest
from farcall._connector import addresses
from servers import FARCALL, wait_until
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


def test_the_server_takes_the_schemes_that_its_connector_knows(serve):
    schemes = [*addresses.PORTS, *addresses.LOCAL]
    serve("".join(f'[sources.{one}]\naddress = "{one}://a/"\n' for one in schemes))


def test_new_credentials_hold_for_the_next_source(serve, web, tmp_path):
    web.pages["/a.npy"] = (npy(np.arange(3.0)),)
    token = tmp_path / "token"
    token.write_text("first\n")
    process = serve(f'[sources.web]\naddress = "{web.address}/"\ntoken_file = "{token}"\n')
    server = process.connect()

    def shown():
        assert server.function("total")(3, farcall.url(f"{web.address}/a.npy")).sum == 3
        return web.asked[-1][1].get("Authorization")

    assert shown() == "Bearer first"
    [before] = connectors(process.process)
    token.write_text("second\n")
    assert shown() == "Bearer second"
    [after] = connectors(process.process)
    assert before != after
    # A file that is being replaced changes nothing.
    token.unlink()
    assert shown() == "Bearer second"
    assert connectors(process.process) == [after]


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


def test_a_page_of_no_length_ends_as_tls_does(serve, tmp_path):
    """Otherwise somebody on the way could end it, and half a table would be a table."""
    tls = tmp_path / "tls"
    words = ["access", "certificate", "server", tls, "localhost"]
    subprocess.run([FARCALL, *words], check=True, capture_output=True, timeout=30)
    web = Web(tls)

    def page(one, *, ends):
        one.send_response(200)
        one.end_headers()
        one.wfile.write(b"1\n2\n3\n")
        one.close_connection = True
        if ends:
            with contextlib.suppress(OSError):
                one.connection.unwrap()

    web.pages["/half.csv"] = functools.partial(page, ends=False)
    web.pages["/whole.csv"] = functools.partial(page, ends=True)
    address = f"https://localhost:{web.port}/"
    server = serve(
        f'[sources.web]\naddress = "{address}"\nnetworks = ["127.0.0.0/8", "::1/128"]\n'
        f'certificates = "{tls}/authority.pem"\n'
    ).connect()
    assert server.function("total")(3, farcall.url(f"{address}whole.csv")).sum == 6
    refused(server, farcall.url(f"{address}half.csv"), "cannot be read: .*EOF occurred")
    web.close()


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


def test_a_server_without_sources_and_one_with_a_wrong_entry(serve, web):
    process = serve("")
    server = process.connect()
    error = refused(server, farcall.url(f"{web.address}/a.npy"), "has not named any")
    assert connectors(process.process) == []
    assert error.fault == "caller"
    server = serve('[sources.web]\naddress = "http://a@b/"').connect()
    refused(server, farcall.url(f"{web.address}/a.npy"), r"\[sources.web\]")
    assert web.asked == []


def test_a_source_whose_credentials_are_missing_fails_alone(serve, web, tmp_path):
    web.pages["/a.npy"] = web.pages["/closed/a.npy"] = (npy(np.arange(3.0)),)
    token = tmp_path / "none"
    lost = f'[sources.closed]\naddress = "{web.address}/closed/"\ntoken_file = "{token}"\n'
    server = serve(f'[sources.web]\naddress = "{web.address}/"\n{lost}').connect()
    closed = farcall.url(f"{web.address}/closed/a.npy")
    error = refused(server, closed, r"credentials of \[sources.closed\]")
    # The log has the path.
    assert str(token) not in str(error)
    assert web.asked == []
    total = server.function("total")
    assert total(3, farcall.url(f"{web.address}/a.npy")).sum == 3
    token.write_text("word\n")
    assert total(3, closed).sum == 3


def test_files_that_the_operator_names(serve, open_path):
    tables, folder = open_path / "tables", open_path / "data"
    for path in [tables / "sub", folder / "runs"]:
        path.mkdir(parents=True)
    (tables / "a.csv").write_text("x\n1\n2\n3\n")
    (tables / "sub" / "b.npy").write_bytes(npy(np.ones(3)))
    (open_path / "secret.csv").write_text("1\n2\n3\n")
    (tables / "link.csv").symlink_to(open_path / "secret.csv")
    (tables / "linked").symlink_to(open_path)
    os.mkfifo(tables / "pipe.csv")
    (folder / "runs" / "7.csv").write_text("4\n5\n6\n")
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
        (f"file://{tables}/%2e%2e/secret.csv", "not an address of a file"),
        (f"file://{tables}", "no entry of|not allowed"),
        (f"file://{open_path}/secret.csv", "not allowed"),
        ("file:///etc/passwd", "not allowed"),
        ("file://localhost/etc/passwd", "not an address of a file"),
        ("folder:../secret.csv", "not an address of a file"),
        ("folder:/etc/passwd", "not an address of a file"),
        ("folder:none.csv", "does not exist"),
    ]:
        refused(server, farcall.url(path, format="csv"), match)
