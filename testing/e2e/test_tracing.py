"""Traces: the context that travels with calls, the spans, and where they go."""

import contextlib
import http.server
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time

import farcall
import numpy as np
import pytest
from gateways import gateway
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from servers import FARCALL, LIBRARIES, known, stop, wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0b8902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"

FUNCTIONS = r"""
Module traced;
Library "./libtraced.so";
Define told(OUT char text[64]) Calls "C" told(text);
"""
SOURCE = r"""
#include <stdlib.h>
#include <string.h>
void told(char *text)
{
    const char *value = getenv("TRACEPARENT");
    memset(text, 0, 64);
    if (value)
        strncpy(text, value, 63);
}
"""
MPI = r"""
Module traced;
Library "./libtraced.so";
Define everywhere(IN int n, OUT char text[n][64])
    Backend "MPI" ProcessorElements n Calls "C" everywhere(text);
"""
MPI_SOURCE = r"""
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
void everywhere(char *text)
{
    const char *value = getenv("TRACEPARENT");
    char mine[64] = "";
    if (value)
        strncpy(mine, value, 63);
    MPI_Gather(mine, 64, MPI_CHAR, text, 64, MPI_CHAR, 0, MPI_COMM_WORLD);
}
"""
MODULE = """
import ctypes, os, subprocess
import numpy as np
import farcall

getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p

@farcall.library("told(OUT char text[3][64])")
def told():
    of_child = subprocess.run(["sh", "-c", "echo $TRACEPARENT"], capture_output=True, text=True)
    values = os.environ.get("TRACEPARENT", ""), (getenv(b"TRACEPARENT") or b"").decode()
    rows = [value.encode().ljust(64, b"\\0") for value in (*values, of_child.stdout.strip())]
    return np.frombuffer(b"".join(rows), "S1").reshape(3, 64)
"""


@contextlib.contextmanager
def under(trace_id, span_id, sampled=True):
    """A current span of OpenTelemetry."""
    flags = trace.TraceFlags(int(sampled))
    ids = int(trace_id, 16), int(span_id, 16)
    context = trace.SpanContext(*ids, is_remote=True, trace_flags=flags)
    with trace.use_span(trace.NonRecordingSpan(context)):
        yield


def texts(array):
    raw = np.asarray(array).tobytes()
    return [raw[at : at + 64].rstrip(b"\0").decode() for at in range(0, len(raw), 64)]


def build(folder, compiler, source):
    path = folder / "traced.c"
    path.write_text(source)
    command = [compiler, "-shared", "-fPIC", "-o", folder / "libtraced.so", path]
    subprocess.run(command, check=True, timeout=60)
    folder.chmod(0o755)


def lines(folder, kind):
    """Lines of a record."""
    ran = subprocess.run(
        [FARCALL, "record", "cat", folder], capture_output=True, text=True, timeout=60, check=True
    )
    told = map(json.loads, ran.stdout.splitlines())
    return [line for line in told if line["kind"] == kind]


class Collector:
    """Takes spans by OTLP over HTTP, and decodes them."""

    def __init__(self):
        self.spans = []
        self.resources = {}
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/x-protobuf"
                collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        for resource in request.resource_spans:
            (name,) = (
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            )
            for scope in resource.scope_spans:
                for span in scope.spans:
                    self.resources[span.span_id] = name
                    self.spans.append(span)

    def named(self, *names):
        """The only span of each name, when all are there."""
        found = [[span for span in list(self.spans) if span.name == name] for name in names]
        if not all(found):
            return None
        assert [len(spans) for spans in found] == [1] * len(names)
        return [spans[0] for spans in found]

    def wait(self, *names):
        def what():
            return self.named(*names)

        return wait_until(what, what=f"the spans {names}; there are {[s.name for s in self.spans]}")


@pytest.fixture
def collector():
    """A collector of spans."""
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def test_a_c_function_sees_the_trace_of_each_call(start, tmp_path):
    build(tmp_path, "cc", SOURCE)
    (tmp_path / "traced.idl").write_text(FUNCTIONS)
    state = tmp_path / "state"
    server = start(tmp_path / "traced.idl", options=["--state", state, "--pes", "1"])
    told = server.connect().function("told")
    assert texts(told().text) == [""]
    with under(TRACE, SPAN):
        assert texts(told().text) == [PARENT]
        assert texts(told.call_async().result().text) == [PARENT]
        assert texts(told.submit().fetch().text) == [PARENT]
    with under(TRACE, SPAN[::-1], sampled=False):
        assert texts(told().text) == [f"00-{TRACE}-{SPAN[::-1]}-00"]
    assert texts(told().text) == [""]
    assert server.stop() == 0
    traces = [line["trace"] for line in lines(state, "call")]
    assert traces == ["", TRACE, TRACE, TRACE, TRACE, ""]


def test_a_python_function_sees_it_too(start, tmp_path):
    module = tmp_path / "traced.py"
    module.write_text(MODULE)
    server = start(module)
    told = server.connect().function("told")
    assert texts(told()) == [""] * 3
    with under(TRACE, SPAN):
        assert texts(told()) == [PARENT] * 3
    assert texts(told()) == [""] * 3


@pytest.mark.skipif(not shutil.which("mpicc.mpich"), reason="no MPICH")
def test_every_process_of_a_parallel_function_sees_it(start, tmp_path):
    build(tmp_path, "mpicc.mpich", MPI_SOURCE)
    (tmp_path / "traced.idl").write_text(MPI)
    server = start(tmp_path / "traced.idl", options=["--pes", "2"])
    everywhere = server.connect().function("everywhere")
    with under(TRACE, SPAN):
        assert texts(everywhere(2)) == [PARENT] * 2
    assert texts(everywhere(2)) == [""] * 2


def test_transactions_and_the_gateway_pass_the_context_on(start, tmp_path):
    server = start(LIBRARIES / "bench.idl", options=["--record", tmp_path / "record"])
    client = server.connect()
    null = client.function("bench/null")
    with client.transaction(), under(TRACE, SPAN):
        null(1)
    with gateway("http", server.address) as http:
        for header in ({"traceparent": PARENT}, {"traceparent": "00-nothing"}, {}):
            assert http.request("/v1/call/bench/null", {"n": 1}, header)[0] == 200
    assert server.stop() == 0
    traces = [line["trace"] for line in lines(tmp_path / "record", "call")]
    assert traces == [TRACE, TRACE, "", ""]


@pytest.mark.parametrize(
    ("given", "known"),
    [(PARENT, TRACE), (PARENT + "-more", ""), (PARENT.upper(), ""), ("x" * 5000, ""), ("", "")],
)
def test_a_malformed_traceparent_is_ignored(start, tmp_path, given, known):
    server = start(LIBRARIES / "bench.idl", options=["--record", tmp_path / "record"])
    subprocess.run(
        [FARCALL, "call", "bench/null", "n=1", "--server", server.address],
        env=os.environ | {"TRACEPARENT": given},
        check=True,
        timeout=60,
    )
    assert server.stop() == 0
    assert [line["trace"] for line in lines(tmp_path / "record", "call")] == [known]


def contains(outer, inner):
    """Whether a span is within another one. Clocks of one host differ by less than 20 ms."""
    slack = 20_000_000
    return (
        outer.start_time_unix_nano <= inner.start_time_unix_nano + slack
        and inner.end_time_unix_nano <= outer.end_time_unix_nano + slack
    )


PARTS = "transfer arguments", "wait", "compute", "transfer results"


def test_spans_of_client_and_server_make_one_trace(start, tmp_path, collector):
    module = tmp_path / "traced.py"
    module.write_text(MODULE)
    options = ["--otlp", collector.url, "--record", tmp_path / "record"]
    server = start(module, options=options)
    subprocess.run(
        [FARCALL, "call", "told", "--server", server.address, "-o", f"text={tmp_path}/text.npy"],
        env=os.environ | {"TRACEPARENT": PARENT, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
        check=True,
        timeout=60,
    )
    call, served, *parts = collector.wait("call traced/told", "traced/told", *PARTS)
    spans = [call, served, *parts]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert call.parent_span_id.hex() == SPAN
    assert served.parent_span_id == call.span_id
    assert all(part.parent_span_id == served.span_id for part in parts)
    assert (call.kind, served.kind) == (call.SPAN_KIND_CLIENT, served.SPAN_KIND_SERVER)
    assert len({span.span_id for span in spans}) == len(spans)
    assert contains(call, served)
    assert served.start_time_unix_nano == parts[0].start_time_unix_nano
    for before, after in itertools.pairwise(parts):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert collector.resources[call.span_id] == "farcall"
    assert collector.resources[served.span_id] == "farcall-server"
    # Whatever the function does belongs to its computation.
    compute = parts[PARTS.index("compute")]
    assert texts(np.load(tmp_path / "text.npy"))[0] == f"00-{TRACE}-{compute.span_id.hex()}-01"
    assert server.stop() == 0
    assert [line["trace"] for line in lines(tmp_path / "record", "call")] == [TRACE]


@pytest.mark.parametrize("is_away", [True, False], ids=["away", "silent"])
def test_a_collector_that_does_not_answer_delays_no_call(start, is_away):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        if is_away:
            listener.close()
        server = start(LIBRARIES / "bench.idl", options=["--otlp", url])
        null = server.connect().function("bench/null")
        times = []
        with under(TRACE, SPAN):
            # Spans are sent each half second, and an answer is waited for for 5 s.
            for _ in range(200):
                begin = time.monotonic()
                null(1)
                times.append(time.monotonic() - begin)
                time.sleep(0.01)
        assert max(times) < 3, max(times)
        assert server.stop() == 0


@pytest.mark.parametrize("url", ["collector:4318", "https://collector"])
def test_an_address_that_cannot_be_used_is_refused(url):
    words = [FARCALL, "serve", LIBRARIES / "bench.idl", "--listen", "127.0.0.1:0", "--otlp", url]
    ran = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert f"cannot send spans to `{url}`" in ran.stderr


def test_a_call_is_made_without_a_collector_that_cannot_be_used(start):
    server = start(LIBRARIES / "bench.idl")
    ran = subprocess.run(
        [FARCALL, "call", "bench/null", "n=1", "--server", server.address],
        env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "cannot send spans to `https://collector`" in ran.stderr


def test_a_call_writes_a_trace_that_perfetto_opens(start, tmp_path):
    server = start(LIBRARIES / "bench.idl", options=["--record", tmp_path / "record"])
    path = tmp_path / "t.json"
    words = [FARCALL, "call", "bench/null", "n=1", "--server", server.address, "--trace-out", path]
    subprocess.run(words, check=True, timeout=60)
    assert server.stop() == 0
    told = json.loads(path.read_text())
    spans = [event for event in told["traceEvents"] if event["ph"] == "X"]
    assert [span["name"] for span in spans] == ["call bench/null", *PARTS]
    whole, *parts = spans
    at = whole["ts"]
    for span in parts:
        assert span["ts"] >= at - 1e-3
        at = span["ts"] + span["dur"]
    assert at <= whole["ts"] + whole["dur"] + 1e-3
    (line,) = lines(tmp_path / "record", "call")
    assert line["trace"] == told["otherData"]["trace_id"]
    assert len(line["trace"]) == 32


@pytest.mark.parametrize("full", [["--trace-out", "/dev/full"], ["-o", "r=/dev/full"]])
def test_a_file_that_cannot_be_written_leaves_the_results(start, tmp_path, full):
    server = start(LIBRARIES / "blas.idl")
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0]))
    words = [FARCALL, "call", "ddot", "n=2", "x=@x.npy", "incx=1", "y=@x.npy", "incy=1"]
    words += ["--server", server.address, *full]
    ran = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, "5.0" in ran.stdout, "/dev/full" in ran.stderr) == (1, True, True)
    words.append("--json")
    ran = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert json.loads(ran.stdout)["results"]["r"]["values"] == [5.0]
    assert ran.returncode == 1


def meta(*options, **environment):
    words = [FARCALL, "meta", "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    )
    return process, process.stdout.readline().split()[-1]


def test_a_placed_call_is_one_trace_and_the_metaserver_records_it(start, tmp_path, collector):
    record = tmp_path / "record"
    process, address = meta("--otlp", collector.url, "--record", record)
    with process:
        options = ["--otlp", collector.url, "--metaserver", address]
        server = start(LIBRARIES / "bench.idl", options=options)
        place = "meta://" + address.removeprefix("farcall://")
        client = farcall.connect(place)
        wait_until(lambda: known(client, "bench/null"))
        path = tmp_path / "t.json"
        subprocess.run(
            [FARCALL, "call", "bench/null", "n=1", "--server", place, "--trace-out", path],
            env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
            check=True,
            timeout=60,
        )
        names = "call bench/null", "choose the server", "place bench/null", "bench/null", *PARTS
        call, choice, placed, served, *_ = collector.wait(*names)
        assert not call.parent_span_id
        assert len({span.trace_id for span in collector.spans}) == 1
        below = choice, placed, served
        assert all(span.parent_span_id == call.span_id for span in below)
        assert contains(call, placed)
        assert contains(placed, choice) or contains(choice, placed)
        assert collector.resources[placed.span_id] == "farcall-metaserver"
        told = json.loads(path.read_text())
        assert told["otherData"]["trace_id"] == call.trace_id.hex()
        spans = [event["name"] for event in told["traceEvents"] if event["ph"] == "X"]
        assert spans == ["call bench/null", "placement", *PARTS]
        # The outcome of a placement comes with the client's next request or with its end.
        assert stop(process) == 0
    (line,) = lines(record, "placement")
    assert line["trace"] == call.trace_id.hex()
    assert (line["function"], line["server"]) == ("bench/null", server.address)
    assert (line["host"], line["outcome"]) == ("127.0.0.1", "done")
    assert line["asked"] <= line["placed"] <= line["ended"]
    assert line["compute_s"] > 0
    events = [(line["event"], line["server"]) for line in lines(record, "server")]
    assert ("joined", server.address) in events
    assert {line["host"] for line in lines(record, "link")} == {"127.0.0.1"}
    words = [FARCALL, "record", "summary", record]
    ran = subprocess.run([*words, "--json"], capture_output=True, text=True, check=True, timeout=60)
    told = json.loads(ran.stdout)
    assert told["rows"] == []
    assert [(row["placements"], row["lost"]) for row in told["placements"]] == [(1, 0)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert "predicted ms" in ran.stdout


@pytest.mark.parametrize("options", [(), ("--no-record",)])
def test_a_metaserver_with_a_store_keeps_a_record(start, tmp_path, options):
    process, address = meta("--store", f"sqlite:{tmp_path}/meta.sqlite", *options)
    with process:
        server = start(LIBRARIES / "bench.idl", options=["--metaserver", address])
        address = "meta://" + address.removeprefix("farcall://")
        client = farcall.connect(address)
        wait_until(lambda: known(client, "bench/null"))
        assert server.stop() == 0
        status = [FARCALL, "status", "--json", "--server", address]

        def has_left():
            return not json.loads(subprocess.check_output(status, timeout=30))["servers"]

        wait_until(has_left, what="that the server has left")
        assert stop(process) == 0
    record = tmp_path / "meta-record"
    assert record.exists() == (not options)
    if record.exists():
        events = [line["event"] for line in lines(record, "server")]
        assert events == ["joined", "left"]
        assert lines(record, "record")[0]["server"].startswith("meta://127.0.0.1:")
