"""What tests of sources share: functions to call, a web server, and what they ask of a server."""

import http.server
import io
import pathlib
import ssl
import threading

import farcall
import numpy as np
import pytest
from servers import children

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
Define both(IN int n, IN double x[n], IN double y[n], OUT double *sum)
{
    int i;
    *sum = 0;
    for (i = 0; i < n; i++) *sum += x[i] + y[i];
}
Define hold(IN int n, IN double x[n], until())
{
    until();
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
        # What is written: answers other than 201, and the bytes of each page.
        self.puts = {}
        self.written = []
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

            def do_PUT(self):
                web._put(self)

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

    def _put(self, one):
        """Takes a page that is written."""
        body = one.rfile.read(int(one.headers["Content-Length"]))
        answer = self.puts.get(one.path, (201, {"ETag": '"put"'}))
        status, heads = answer(one, body) if callable(answer) else answer
        if status < 300:
            self.written.append((one.path, dict(one.headers), body))
        one.send_response(status)
        for name, value in (heads | {"Content-Length": "0"}).items():
            one.send_header(name, value)
        one.end_headers()

    def close(self):
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()


def serving(start, folder, functions=IDL):
    """What starts servers with these functions and with sources, as a configuration."""
    idl = folder / "work.idl"
    idl.write_text(functions)

    def serve(sources, data="", words=(), idl=idl, **options):
        config = folder / "farcall.toml"
        config.write_text(f"{data}\n{sources}")
        words = ["--allow-code", "--config", str(config), *words]
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
        try:
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            # It has ended meanwhile.
            return False
        return b"farcall._connector" in words

    return [pid for pid in children(process.pid) if is_one(pid)]
