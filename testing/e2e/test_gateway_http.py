"""`farcall gateway http`: calls with JSON, who may make them, and the bounds."""

import base64
import concurrent.futures
import json
import os
import pty
import signal
import socket
import ssl
import subprocess
import threading

import numpy as np
import pytest
from gateways import Gateway, bearer, callers, gateway
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from servers import FARCALL, LIBRARIES, add_tokens, up_local, wait_until

WORK = """\
Module work;
Define twice(IN int n, INOUT double x[n]) "Doubles x"
{
    int i;
    for (i = 0; i < n; i++) x[i] *= 2;
}
Define letters(IN string s, INOUT string[8] t[2], INOUT scomplex z[1], INOUT unsigned long u[1])
{
    t[0][0] = s[0];
}
Define lines(IN filename table, OUT int *n) { *n = 0; }
"""

SYSTEM = {"n": 2, "nrhs": 1, "a": [[2, 1], [1, 3]], "lda": 2, "b": [[3], [5]], "ldb": 2}


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work.idl"
    path.write_text(WORK)
    return path


def encoded(array):
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": array.shape, "data": data}


def in_columns(array):
    data = base64.b64encode(array.tobytes(order="F")).decode()
    return encoded(array) | {"data": data, "fortran_order": True}


def flat(array):
    return {"shape": array.shape, "values": array.ravel().tolist()}


@pytest.mark.parametrize("form", [np.ndarray.tolist, flat, encoded, in_columns])
def test_a_linear_system_is_solved_in_every_form(library_server, form):
    a, b = np.array([[2.0, 1], [1, 3]]), np.array([[3.0], [5]])
    body = SYSTEM | {"a": form(a), "b": form(b)}
    with gateway("http", library_server.address) as http:
        status, results, headers = http.request("/v1/call/lapack/dgesv", body)
        assert status == 200, results
        assert sorted(results) == ["a", "b", "info", "ipiv"]
        assert np.allclose(results["b"], np.linalg.solve(a, b))
        assert results["info"] == [0]
        assert "exec;dur=" in headers["Server-Timing"]
        status, binary, _ = http.request("/v1/call/dgesv?arrays=base64", body)
        assert status == 200, binary
        assert decoded(binary["b"]).tolist() == results["b"]


def decoded(array):
    return np.frombuffer(base64.b64decode(array["data"]), array["dtype"]).reshape(array["shape"])


def test_the_description_is_openapi_and_fits_requests_and_answers(start, work):
    server = start(work, LIBRARIES / "lapack.idl", options=["--allow-code"])
    with gateway("http", server.address) as http:
        status, document, _ = http.request("/openapi.json")
        assert status == 200
        # All of LAPACK takes the validator most of a minute, and its routines have few forms.
        lapack = [path for path in document["paths"] if path.startswith("/v1/call/lapack/")]
        left_out = set(lapack) - set(lapack[::10])
        paths = {path: one for path, one in document["paths"].items() if path not in left_out}
        OpenAPIV31SpecValidator(document | {"paths": paths}).validate()
        assert document["openapi"] == "3.1.0"
        assert "/v1/call/work/twice" in document["paths"]
        # JSON cannot carry files of the caller.
        assert "/v1/call/work/lines" not in document["paths"]
        assert len(document["paths"]) > 80
        status, listed, _ = http.request("/v1/functions")
        assert {"name": "work/twice", "title": "Doubles x"} in listed["functions"]
        status, described, _ = http.request("/v1/functions/twice")
        assert (status, described["name"]) == (200, "work/twice")
        for path, body in [
            ("/v1/call/lapack/dgesv", SYSTEM),
            ("/v1/call/work/twice", {"n": 2, "x": encoded(np.ones(2))}),
            ("/v1/call/work/twice", {"n": 2, "x": {"shape": [2], "values": [1, "NaN"]}}),
            (
                "/v1/call/work/letters",
                {"s": "up", "t": ["ab", "cd"], "z": [[1, 2]], "u": [2**64 - 1]},
            ),
        ]:
            post = document["paths"][path]["post"]
            taken = post["requestBody"]["content"]["application/json"]["schema"]
            given = post["responses"]["200"]["content"]["application/json"]["schema"]
            parts = {"components": document["components"]}
            Draft202012Validator(taken | parts).validate(json.loads(json.dumps(body)))
            status, results, _ = http.request(path, body)
            assert status == 200, results
            Draft202012Validator(given | parts).validate(results)
            status, binary, _ = http.request(path + "?arrays=base64", body)
            Draft202012Validator(given | parts).validate(binary)


def test_what_fails_has_a_fitting_status_and_the_words_of_farcall(start, work, nap_idl):
    server = start(work, nap_idl, options=["--allow-code", "--time-limit", "1"])
    with gateway("http", server.address, "--max-bytes", "100KB") as http:
        for path, body, status, kind, said in [
            ("/v1/call/work/twice", {"n": 1}, 400, "BadArgument", "argument `x` is missing"),
            ("/v1/call/work/twice", b"{", 400, "BadArgument", "EOF while parsing"),
            ("/v1/call/work/twice", {"n": 2, "x": [1]}, 400, "BadArgument", "expected shape [2]"),
            ("/v1/call/work/twice?arrays=x", {}, 400, "BadRequest", "arrays"),
            ("/v1/call/work/thrice", {}, 404, "UnknownFunction", "work/thrice"),
            ("/v1/call/%ff", {}, 400, "BadRequest", "UTF-8"),
            ("/v2/call", {}, 404, "NotFound", "/openapi.json"),
            ("/v1/functions", {}, 405, "NotAllowed", "method"),
            ("/v1/call/work/twice", b" " * 100_001, 413, "TooLarge", "larger than 100000 bytes"),
            ("/v1/call/work/lines", {}, 501, "NotCarried", "takes files"),
            ("/v1/call/test/nap", {"ms": 60_000}, 504, "TimeLimit", "1 s"),
            ("/v1/call/test/segfault", {"n": 1}, 500, "LibraryCrashed", "SIGSEGV"),
        ]:
            answer = http.request(path, body)
            assert answer[0] == status, (path, answer)
            assert answer[1]["error"]["kind"] == kind, answer
            assert said in answer[1]["error"]["message"], answer
        body = {"n": 20_000, "x": {"shape": [20_000], "values": [0] * 20_000}}
        status, answer, _ = http.request("/v1/call/work/twice", body)
        assert (status, answer["error"]["kind"]) == (413, "TooLarge")
        status, answer, _ = http.request(
            "/v1/call/work/twice", b"n=1", {"Content-Type": "application/x-www-form-urlencoded"}
        )
        assert status == 415, answer
        status, _, _ = http.request("/v1/call/work/twice", {"n": 1, "x": [4]})
        assert status == 200
        server.stop()
        status, answer, _ = http.request("/v1/call/work/twice", {"n": 1, "x": [4]})
        assert status in (502, 503), answer


def test_a_call_runs_as_the_user_of_its_token(start, work, tmp_path):
    tokens, audit = tmp_path / "tokens", tmp_path / "audit"
    alice, bob = add_tokens(tokens, "alice", "bob")
    options = ["--allow-code", "--tokens", tokens, "--audit", audit]
    server = start(work, options=list(map(str, options)))
    # The gateway has a token itself, and shows it for nobody.
    environment = {"FARCALL_TOKEN": bob}
    body = {"n": 1, "x": [4]}
    with gateway("http", server.address, environment=environment) as http:
        status, answer, headers = http.request("/v1/call/twice", body)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "asks for a token" in answer["error"]["message"]
        assert http.request("/openapi.json")[0] == http.request("/v1/functions")[0] == 401
        for wrong in [bearer("guess"), {"Authorization": "Basic YTpi"}, bearer("")]:
            assert http.request("/v1/call/twice", body, wrong)[0] == 401
        for token in [alice, alice, bob]:
            status, results, _ = http.request("/v1/call/twice", body, bearer(token))
            assert (status, results) == (200, {"x": [8.0]})
    assert callers(audit, "work/twice", 3) == ["alice", "alice", "bob"]
    with gateway("http", server.address, "--own-identity", environment=environment) as http:
        assert http.request("/v1/call/twice", body)[0] == 200
        assert http.request("/v1/call/twice", body, bearer("guess"))[0] == 401
    assert callers(audit, "work/twice", 4)[3:] == ["bob"]


def test_a_server_that_is_started_again_can_have_another_interface(start, work):
    server = start(work, options=["--allow-code"])
    with gateway("http", server.address) as http:
        assert http.request("/v1/call/twice", {"n": 1, "x": [4]})[0] == 200
        server.stop()
        changed = WORK.replace("twice(IN int n,", "twice(IN int n, IN int times,")
        work.write_text(changed.replace("x[i] *= 2;", "x[i] *= times;"))
        listen = server.address.removeprefix("farcall://")
        start(work, options=["--allow-code"], listen=listen)
        body = {"n": 1, "times": 3, "x": [4]}
        status, results, _ = http.request("/v1/call/twice", body)
        assert (status, results) == (200, {"x": [12.0]})
        told = http.request("/v1/functions/twice")[1]
        assert [one["name"] for one in told["parameters"]] == ["n", "times", "x"]


def test_no_caller_is_taken_for_the_user_of_the_gateway(start, work, tmp_path):
    """On the gateway's own host, a server knows processes by their user. This must not reach
    callers over HTTP."""
    audit, socket_path = tmp_path / "audit", tmp_path / "socket"
    options = ["--allow-code", "--audit", audit, "--unix", socket_path]
    server = start(work, options=list(map(str, options)))
    body = {"n": 1, "x": [4]}
    with gateway("http", server.address) as http:
        assert http.request("/v1/call/twice", body)[0] == 200
        # The server has no tokens, so it cannot say whose this is.
        status, answer, _ = http.request("/v1/call/twice", body, bearer("any"))
        assert status == 401, answer
    [user] = callers(audit, "work/twice", 1)
    assert user == "anonymous" or user.startswith("local:")
    with pytest.raises(RuntimeError, match="would take callers without a token for the user"):
        Gateway("http", f"unix://{socket_path}")
    with gateway("http", f"unix://{socket_path}", "--own-identity") as http:
        assert http.request("/v1/call/twice", body)[0] == 200
        assert http.request("/v1/call/twice", body, bearer("any"))[0] == 401
    [_, user] = callers(audit, "work/twice", 2)
    assert user.startswith("uid:")


def test_calls_are_bounded_and_a_caller_who_leaves_ends_the_call(start, nap_idl):
    server = start(nap_idl, options=["--workers", "4", "--pes", "4"])
    options = ["--user-calls", "2", "--calls", "3", "--time-limit", "30"]
    with gateway("http", server.address, *options) as http:
        host, port = http.url.removeprefix("http://").split(":")
        left = []
        for _ in range(2):
            left.append(socket.create_connection((host, int(port))))
            body = b'{"ms": 600000}'
            left[-1].sendall(
                b"POST /v1/call/nap HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
        wait_until(lambda: calls_at(server) == 2, what="two calls")
        status, answer, headers = http.request("/v1/call/nap", {"ms": 1})
        assert (status, answer["error"]["kind"]) == (429, "QuotaExceeded")
        assert headers["Retry-After"] == "1"
        for one in left:
            one.close()
        wait_until(lambda: calls_at(server) == 0, what="the end of both calls")
        wait_until(lambda: http.request("/v1/call/nap", {"ms": 1})[0] == 200, what="a place")
    with gateway("http", server.address, "--time-limit", "0.2") as http:
        status, answer, _ = http.request("/v1/call/nap", {"ms": 600_000})
        assert (status, answer["error"]["kind"]) == (504, "TimeLimit")
        assert "the time limit of the gateway" in answer["error"]["message"]
        wait_until(lambda: calls_at(server) == 0, what="the end of the call")


def test_a_call_keeps_its_place_until_its_results_are_read(start, tmp_path):
    path = tmp_path / "zeros.idl"
    path.write_text("Module z;\nDefine zeros(IN long n, OUT double y[n]) { }\n")
    server = start(path, options=["--allow-code"])
    with gateway("http", server.address, "--user-calls", "1") as http:
        host, port = http.url.removeprefix("http://").split(":")
        body = b'{"n": 4000000}'
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(
                b"POST /v1/call/zeros?arrays=base64 HTTP/1.1\r\nHost: x\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            assert slow.recv(15) == b"HTTP/1.1 200 OK"
            status, answer, _ = http.request("/v1/call/zeros", {"n": 1})
            assert (status, answer["error"]["kind"]) == (429, "QuotaExceeded")
        wait_until(lambda: http.request("/v1/call/zeros", {"n": 1})[0] == 200, what="a place")


def calls_at(server):
    """How many calls compute at the server."""
    words = [FARCALL, "status", "--json", server.address]
    run = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    status = json.loads(run.stdout)
    return sum(user["running"] for user in status["users"])


def test_a_web_page_calls_only_if_its_origin_is_allowed(start, work):
    server = start(work, options=["--allow-code"])
    body = {"n": 1, "x": [4]}
    page = {"Origin": "https://lab.example.org"}
    with gateway("http", server.address) as http:
        status, answer, headers = http.request("/v1/call/twice", body, page)
        assert (status, answer["error"]["kind"]) == (403, "NotAllowed")
        assert headers["Access-Control-Allow-Origin"] is None
    with gateway("http", server.address, "--allow-origin", page["Origin"]) as http:
        status, _, headers = http.request("/v1/call/twice", body, page)
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, page["Origin"])
        other = {"Origin": "https://evil.example.org"}
        assert http.request("/v1/call/twice", body, other)[0] == 403
    with pytest.raises(RuntimeError, match="expected the origin of a web page"):
        Gateway("http", server.address, "--allow-origin", "*")


def test_tokens_do_not_travel_over_a_network_without_tls(start, work, tmp_path):
    server = start(work, options=["--allow-code"])
    with pytest.raises(RuntimeError, match="without TLS; add --tls FOLDER, or --plain"):
        Gateway("http", server.address, "--listen", "0.0.0.0:0")
    with gateway("http", server.address, "--listen", "0.0.0.0:0", "--plain"):
        pass
    certificates = tmp_path / "certificates"
    words = [FARCALL, "access", "certificate", "server", certificates, "127.0.0.1"]
    subprocess.run(words, check=True, capture_output=True, timeout=30)
    with gateway("http", server.address, "--tls", str(certificates)) as http:
        assert http.url.startswith("https://")
        context = ssl.create_default_context(cafile=certificates / "authority.pem")
        answer = http.request("/v1/call/twice", {"n": 1, "x": [4]}, context=context)
        assert answer[:2] == (200, {"x": [8.0]})


def test_connections_that_say_nothing_leave_room_for_others(start, work):
    server = start(work, options=["--allow-code"])
    with gateway("http", server.address, "--connections", "4") as http:
        host, port = http.url.removeprefix("http://").split(":")
        slow = [socket.create_connection((host, int(port))) for _ in range(4)]
        # They are cut off, one after the other, and this request has its turn.
        assert http.request("/v1/call/twice", {"n": 1, "x": [4]})[0] == 200
        huge = socket.create_connection((host, int(port)))
        with pytest.raises(OSError), huge:
            while True:
                huge.sendall(b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000)
        for one in slow:
            one.close()


def test_calls_go_to_all_servers_behind_a_metaserver(work):
    with up_local(work) as address, gateway("http", address) as http:
        run = concurrent.futures.ThreadPoolExecutor(4)
        call = lambda i: http.request("/v1/call/twice", {"n": 1, "x": [i]})  # noqa: E731
        answers = [answer[:2] for answer in run.map(call, range(12))]
        assert answers == [(200, {"x": [2.0 * i]}) for i in range(12)]


def test_a_gateway_ends_within_its_time_and_says_so(start, nap_idl):
    server = start(nap_idl)
    http = Gateway("http", server.address)
    answers = []
    call = lambda: answers.append(http.request("/v1/call/nap", {"ms": 600_000}))  # noqa: E731
    waiting = threading.Thread(target=call)
    waiting.start()
    wait_until(lambda: calls_at(server) == 1, what="the call")
    assert http.stop() == 0
    waiting.join(10)
    [(status, answer, _)] = answers
    assert status == 503
    assert "the gateway ends" in answer["error"]["message"]
    wait_until(lambda: calls_at(server) == 0, what="the end of the call")


def test_a_gateway_ends_with_its_terminal(library_server):
    ours, theirs = pty.openpty()
    words = ["gateway", "http", "--to", library_server.address, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [FARCALL, *words], stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        assert process.stdout.readline().startswith("listening on ")
        process.send_signal(signal.SIGHUP)
        assert process.wait(20) == 0
    os.close(theirs)
    os.close(ours)
