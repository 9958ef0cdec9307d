"""What `farcall bench call` measures from Python: Farcall, and the tools it is compared with.

Run as `python benches/contenders.py NAME [ADDRESS]`. It prints `ready`, then answers each line
`BYTES COUNT OUTSTANDING` of standard input with seconds: with 1 outstanding the median of COUNT
calls that send BYTES bytes and receive as many, where 0 bytes is the null call. With more than 1
outstanding, it answers with the time of COUNT null calls divided by COUNT; OUTSTANDING of them are
under way at any time.

Every tool is used as its documentation says for speed: kept connections, its own fast path for
arrays, no encryption, its server in a process of its own on this machine.
"""

import atexit
import collections
import multiprocessing
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

Array = Any


class Contender(Protocol):
    """A way to call a function in another process."""

    def null(self) -> None:
        """Calls a function that does nothing, with an int."""

    def echo(self, source: Array, target: Array) -> Array:
        """Calls a function that copies an array; returns the copy, in `target` or elsewhere."""

    def start_null(self) -> Callable[[], object]:
        """Begins a null call; what is returned waits for its end."""

    def array(self, elements: int) -> Array:
        """An array of doubles, where the tool likes them."""


class Farcall:
    """Arrays are filled in place."""

    def __init__(self, address: str, *, same_host: bool, born: bool = False) -> None:
        """Connects."""
        import farcall

        self.server = farcall.connect(address, same_host=same_host)
        self.array = self.server.empty if born else np.empty
        self._null = self.server.function("bench/null")
        self._echo = self.server.function("bench/echo")

    def null(self) -> None:
        """A handle is kept, as in a loop of a user."""
        self._null(1)

    def echo(self, source: Array, target: Array) -> Array:
        """OUT argument given."""
        self._echo(len(source), source, target)
        return target

    def start_null(self) -> Callable[[], object]:
        """A future."""
        return self._null.call_async(1).result  # type: ignore[no-any-return]


class OfPeer:
    """What the other tools have in common: results are new arrays."""

    def array(self, elements: int) -> Array:
        """Plain memory."""
        return np.empty(elements)


class Grpc(OfPeer):
    """Unary calls of bytes, without protobuf's copy."""

    @staticmethod
    def serve(ready: Any) -> None:
        """Echoes bytes."""
        from concurrent import futures

        import grpc

        handler = grpc.method_handlers_generic_handler(
            "bench",
            {
                "null": grpc.unary_unary_rpc_method_handler(lambda request, _: request),
                "echo": grpc.unary_unary_rpc_method_handler(
                    lambda request, _: np.frombuffer(request).copy().tobytes()
                ),
            },
        )
        server = grpc.server(futures.ThreadPoolExecutor(4), options=Grpc.options())
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        ready.send(port)
        server.wait_for_termination()

    @staticmethod
    def options() -> list[tuple[str, int]]:
        """Messages of any length."""
        return [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

    def __init__(self) -> None:
        """Starts a server and connects."""
        import grpc

        port = start(Grpc.serve)
        channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=Grpc.options())
        self._null = channel.unary_unary("/bench/null")
        self._echo = channel.unary_unary("/bench/echo")

    def null(self) -> None:
        """Four bytes."""
        self._null(b"1234")

    def echo(self, source: Array, target: Array) -> Array:
        """Bytes there and back."""
        return np.frombuffer(self._echo(source.tobytes()))

    def start_null(self) -> Callable[[], object]:
        """A future."""
        return self._null.future(b"1234").result  # type: ignore[no-any-return]


class Flight(OfPeer):
    """An action for the null call, an exchange of one record batch for arrays."""

    @staticmethod
    def serve(ready: Any) -> None:
        """Echoes record batches."""
        import pyarrow as pa
        from pyarrow import flight

        class Server(flight.FlightServerBase):  # type: ignore[misc]
            def do_action(self, _context: Any, action: Any) -> list[bytes]:
                return [bytes(action.body)]

            def do_exchange(self, _context: Any, _what: Any, reader: Any, writer: Any) -> None:
                batch = reader.read_chunk().data
                copy = pa.array(batch.column(0).to_numpy().copy())
                writer.begin(batch.schema)
                writer.write_batch(pa.record_batch([copy], schema=batch.schema))

        server = Server("grpc://127.0.0.1:0")
        ready.send(server.port)
        server.serve()

    def __init__(self) -> None:
        """Starts a server and connects."""
        from concurrent.futures import ThreadPoolExecutor

        from pyarrow import flight

        self._client = flight.connect(f"grpc://127.0.0.1:{start(Flight.serve)}")
        self._action = flight.Action("null", b"1234")
        self._what = flight.FlightDescriptor.for_command(b"echo")
        self._threads = ThreadPoolExecutor(8)

    def null(self) -> None:
        """One action."""
        list(self._client.do_action(self._action))

    def echo(self, source: Array, target: Array) -> Array:
        """A batch there and back."""
        import pyarrow as pa

        batch = pa.record_batch([pa.array(source)], names=["x"])
        writer, reader = self._client.do_exchange(self._what)
        with writer:
            writer.begin(batch.schema)
            writer.write_batch(batch)
            writer.done_writing()
            return reader.read_chunk().data.column(0).to_numpy()

    def start_null(self) -> Callable[[], object]:
        """A thread, for the client has no futures."""
        return self._threads.submit(self.null).result


class FlightGateway(Flight):
    """The same client, with `farcall gateway flight` in the place of the server."""

    def __init__(self, address: str) -> None:
        """Connects to the gateway."""
        from pyarrow import flight

        self._client = flight.connect(address)
        self._action = flight.Action("describe", b"bench/null")

    def echo(self, source: Array, target: Array) -> Array:
        """The function of the server that copies an array."""
        import json

        from pyarrow import flight

        what = {"function": "bench/echo", "arguments": {"n": len(source)}}
        self._what = flight.FlightDescriptor.for_command(json.dumps(what))
        return super().echo(source, target)


class Zmq(OfPeer):
    """A dealer and a router over TCP, frames without copies."""

    @staticmethod
    def serve(ready: Any) -> None:
        """Echoes frames."""
        import zmq

        socket = zmq.Context().socket(zmq.ROUTER)
        ready.send(socket.bind_to_random_port("tcp://127.0.0.1"))
        while True:
            who, body = socket.recv_multipart(copy=False)
            if len(body.buffer) > 8:
                body = np.frombuffer(body.buffer).copy()
            socket.send_multipart([who, body], copy=False)

    def __init__(self) -> None:
        """Starts a server and connects."""
        import zmq

        self._socket = zmq.Context().socket(zmq.DEALER)
        self._socket.connect(f"tcp://127.0.0.1:{start(Zmq.serve)}")

    def null(self) -> None:
        """Four bytes."""
        self._socket.send(b"1234")
        self._socket.recv()

    def echo(self, source: Array, target: Array) -> Array:
        """A frame there and back."""
        self._socket.send(source, copy=False)
        return np.frombuffer(self._socket.recv(copy=False).buffer)

    def start_null(self) -> Callable[[], object]:
        """Replies come in order."""
        self._socket.send(b"1234")
        return self._socket.recv  # type: ignore[no-any-return]


class Pyro(OfPeer):
    """A proxy with its fastest serializer for bytes."""

    @staticmethod
    def serve(ready: Any) -> None:
        """Echoes bytes."""
        import Pyro5.api

        class Bench:
            @Pyro5.api.expose  # type: ignore[untyped-decorator]
            def null(self, number: int) -> int:
                return number

            @Pyro5.api.expose  # type: ignore[untyped-decorator]
            def echo(self, data: bytes) -> bytes:
                return np.frombuffer(data).copy().tobytes()

        daemon = Pyro5.api.Daemon()
        ready.send(str(daemon.register(Bench)))
        daemon.requestLoop()

    def __init__(self) -> None:
        """Starts a server and connects."""
        import threading
        from concurrent.futures import ThreadPoolExecutor

        import Pyro5.api

        Pyro5.config.SERIALIZER = "marshal"
        self._uri = start(Pyro.serve)
        self._proxy = Pyro5.api.Proxy(self._uri)
        self._threads = ThreadPoolExecutor(8)
        self._local = threading.local()

    def null(self) -> None:
        """An int."""
        self._proxy.null(1)

    def echo(self, source: Array, target: Array) -> Array:
        """Bytes there and back."""
        return np.frombuffer(self._proxy.echo(source.tobytes()))

    def start_null(self) -> Callable[[], object]:
        """A thread with a proxy of its own."""
        return self._threads.submit(self._null_of_thread).result

    def _null_of_thread(self) -> None:
        import Pyro5.api

        if not hasattr(self._local, "proxy"):
            self._local.proxy = Pyro5.api.Proxy(self._uri)
        self._local.proxy.null(1)


class Ray(OfPeer):
    """An actor."""

    def __init__(self) -> None:
        """Starts a node of its own."""
        folder = tempfile.mkdtemp(prefix="ray")
        # Ray registers its own end when it is imported. What is registered first comes last.
        atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True))
        import ray

        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            object_store_memory=1 << 30,
            _temp_dir=folder,
        )

        @ray.remote
        class Bench:
            def null(self, number: int) -> int:
                return number

            def echo(self, data: Array) -> Array:
                return data.copy()

        self._get = ray.get
        self._actor = Bench.remote()  # type: ignore[attr-defined]

    def null(self) -> None:
        """An int."""
        self._get(self._actor.null.remote(1))

    def echo(self, source: Array, target: Array) -> Array:
        """Through the object store."""
        return self._get(self._actor.echo.remote(source))

    def start_null(self) -> Callable[[], object]:
        """A reference."""
        reference = self._actor.null.remote(1)
        return lambda: self._get(reference)


class Dask(OfPeer):
    """A local cluster with one worker process."""

    def __init__(self) -> None:
        """Starts scheduler and worker."""
        from dask.distributed import Client, LocalCluster

        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
        )
        self._client = Client(cluster)  # type: ignore[no-untyped-call]

    def null(self) -> None:
        """An int."""
        self.start_null()()

    def echo(self, source: Array, target: Array) -> Array:
        """An array as argument and result."""
        return self._client.submit(np.copy, source, pure=False).result()

    def start_null(self) -> Callable[[], object]:
        """A future."""
        return self._client.submit(abs, 1, pure=False).result  # type: ignore[no-any-return]


def start(serve: Callable[[Any], None]) -> Any:
    """Starts a server in a process of its own, which ends with this one; returns where it is."""
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True).start()
    if not ours.poll(60):
        raise TimeoutError("the server did not start")
    return ours.recv()


def measure(contender: Contender, size: int, count: int) -> float:
    """Median seconds of `count` calls with `size` bytes out and back."""
    if size == 0:
        return statistics.median(seconds(contender.null) for _ in range(count))
    source, target = contender.array(size // 8), contender.array(size // 8)
    source[:], target[:] = 1, 0
    if not np.array_equal(contender.echo(source, target), source):
        raise ValueError("the array came back changed")
    return statistics.median(seconds(contender.echo, source, target) for _ in range(count))


def seconds(call: Callable[..., object], *arguments: object) -> float:
    """How long one call takes, with the handling of its result."""
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


def measure_outstanding(contender: Contender, count: int, outstanding: int) -> float:
    """Seconds for each of `count` null calls. `outstanding` of them are under way at any time."""
    under_way: collections.deque[Callable[[], object]] = collections.deque()
    begin = time.perf_counter()
    for _ in range(count):
        if len(under_way) == outstanding:
            under_way.popleft()()
        under_way.append(contender.start_null())
    for wait in under_way:
        wait()
    return (time.perf_counter() - begin) / count


CONTENDERS: dict[str, Callable[..., Contender]] = {
    "farcall-tcp": lambda address: Farcall(address, same_host=False),
    "farcall-host": lambda address: Farcall(address, same_host=True),
    "farcall-born": lambda address: Farcall(address, same_host=True, born=True),
    "gRPC": Grpc,
    "Arrow Flight": Flight,
    "flight-gateway": FlightGateway,
    "pyzmq": Zmq,
    "Pyro5": Pyro,
    "Ray": Ray,
    "Dask": Dask,
}


def main() -> None:
    """Answers until standard input ends."""
    # A benchmark that is killed ends this process by the signal, and its servers end with it only
    # if it ends by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    contender = CONTENDERS[sys.argv[1]](*sys.argv[2:])
    contender.null()
    print("ready", flush=True)
    for line in sys.stdin:
        size, count, outstanding = map(int, line.split())
        if outstanding == 1:
            answer = measure(contender, size, count)
        else:
            answer = measure_outstanding(contender, count, outstanding)
        print(answer, flush=True)


if __name__ == "__main__":
    main()
