"""An S3 service of a test, on a free port of the loopback: moto, which verifies signatures."""

import contextlib
import json
import socket
import threading
import urllib.request

import botocore.session
from moto.server import ThreadedMotoServer

REGION = "us-east-1"


class Buckets:
    """The service. `key` and `secret` belong to a user who may do all with the objects."""

    def __init__(self):
        """Starts it."""
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._server.start()
        _, self.port = self._server.get_host_and_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._ask("reset", b"")
        iam = self.client("iam", "any", "any")
        iam.create_user(UserName="farcall")
        rule = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]})
        iam.put_user_policy(UserName="farcall", PolicyName="all", PolicyDocument=policy)
        key = iam.create_access_key(UserName="farcall")["AccessKey"]
        self.key, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        # From now on, each request needs a signature.
        self._ask("reset-auth", b"0")
        self.s3 = self.client("s3", self.key, self.secret)
        self.s3.create_bucket(Bucket="data")

    def client(self, service, key, secret):
        """A client of one of its services."""
        return botocore.session.get_session().create_client(
            service,
            endpoint_url=self.address,
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )

    def put(self, key, body, **options):
        """Stores an object."""
        self.s3.put_object(Bucket="data", Key=key, Body=body, **options)

    def get(self, key):
        """The bytes of an object; nothing if there is none."""
        try:
            return self.s3.get_object(Bucket="data", Key=key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None

    def _ask(self, what, body):
        words = urllib.request.Request(
            f"{self.address}/moto-api/{what}",
            data=body,
            method="POST",
            headers={"Content-Type": "text/plain"},
        )
        urllib.request.urlopen(words, timeout=30).close()

    def close(self):
        """Ends it."""
        self._ask("reset-auth", b"inf")
        self._server.stop()


class Line:
    """A line to a port of the loopback, which counts connections and breaks the first ones."""

    def __init__(self, port, breaks):
        """`breaks`: so many bytes of the answers pass, on one connection after the other."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._to = port
        self._breaks = list(breaks)
        self.connections = 0
        self.before = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                if self.before is not None:
                    self.before(self.connections)
                most = self._breaks.pop(0) if self._breaks else None
                far = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=_pass, args=(near, far, None), daemon=True).start()
                threading.Thread(target=_pass, args=(far, near, most), daemon=True).start()

    def close(self):
        """Takes no more connections."""
        # A close alone does not end an accept under way: it would take one connection more.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


def _pass(source, target, most):
    left = float("inf") if most is None else most
    with contextlib.suppress(OSError):
        while left > 0 and (piece := source.recv(int(min(left, 65536)))):
            target.sendall(piece)
            left -= len(piece)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
