"""Gateways of a test, and requests to them."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from servers import FARCALL, ROOT, stop, wait_until


class Gateway:
    """A `farcall gateway` on a free port of the loopback."""

    def __init__(self, kind, to, *options, environment=None):
        """Starts it, and returns once it listens."""
        words = ["gateway", kind, "--to", to, *options]
        if "--listen" not in options:
            words += ["--listen", "127.0.0.1:0"]
        clean = {name: value for name, value in os.environ.items() if name != "FARCALL_TOKEN"}
        self.process = subprocess.Popen(
            [FARCALL, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={"FARCALL_PYTHON": sys.executable} | clean | (environment or {}),
        )
        lines = queue.Queue()
        reader = threading.Thread(
            target=lambda: lines.put(self.process.stdout.readline()), daemon=True
        )
        reader.start()
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=60)
            if line.startswith("listening on "):
                self.url = line.removeprefix("listening on ").strip()
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        self.process.kill()
        raise RuntimeError(f"no gateway: {self.process.communicate()[1]}")

    def request(self, path, body=None, headers=(), context=None):
        """The status, the JSON and the headers of an answer."""
        headers = dict(headers)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return answer.status, json.loads(answer.read()), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), error.headers

    def stop(self, seconds=5.0):
        """Stops it as an operator does; it must end within five seconds."""
        return stop(self.process, seconds)


@contextlib.contextmanager
def gateway(kind, to, *options, **others):
    """A gateway that ends with the block."""
    running = Gateway(kind, to, *options, **others)
    try:
        yield running
    finally:
        running.stop()


def bearer(token):
    """The header of a user's request."""
    return {"Authorization": f"Bearer {token}"}


def callers(audit, function, count):
    """The users of the calls of a function, once the audit log has `count` of them."""

    def users():
        lines = map(json.loads, audit.read_text().splitlines())
        found = [line["user"] for line in lines if line["what"] == function]
        return found if len(found) >= count else None

    return wait_until(users, what=f"{count} lines of the audit log")
