"""The papers' long links: small runs of `farcall bench load world` and `sites`."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from programs import run
from servers import FARCALL, LIBRARIES, ROOT, wait_until

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(not pathlib.Path("/dev/net/tun").exists(), reason="no /dev/net/tun"),
    pytest.mark.skipif(shutil.which("tc") is None, reason="no tc: apt install iproute2"),
]
BENCH = [FARCALL, "bench", "load"]


def namespaces(pid):
    """The network namespaces that a bench of this process has."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line.startswith(f"farcall-lab-{pid}-")]


def bench(*options):
    """Runs a benchmark to its end. Returns its output, and checks that it leaves nothing behind."""
    command = [*BENCH, *options, "--json", "--libraries", LIBRARIES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert namespaces(process.pid) == []
    return json.loads(printed)


@pytest.mark.skipif(shutil.which("mpicc.mpich") is None, reason="no MPICH")
def test_calls_over_a_long_link_take_what_it_takes(tmp_path):
    options = ["--sizes", "200", "--calls", "2", "--links", "lan,world", "--faster", "40"]
    measured = bench("world", *options)
    assert measured["schema"] == 1 and len(measured["calls"]) == 8
    for call in measured["calls"]:
        parts = sum(call[f"{part}_s"] for part in ("send", "exec", "recv", "other"))
        assert parts == pytest.approx(call["total_s"])
        bytes_up = 8 * 200 * 200
        if call["network"] == "world":
            # No call ends before a round trip and the time that the line needs for the bytes.
            assert call["total_s"] >= 0.2 + bytes_up / call["link_up_kb_s"] / 1e3
    groups = {(group["function"], group["network"]): group for group in measured["summary"]}
    for function in ("pdposv", "pdsyev"):
        near, far = (groups[function, network]["total_s"]["mean"] for network in ("lan", "world"))
        assert near < far
    file = tmp_path / "world.json"
    file.write_text(json.dumps(measured))
    paper = [sys.executable, ROOT / "benches" / "load" / "paper.py", file, "--output", tmp_path]
    subprocess.run(paper, check=True, timeout=60, capture_output=True)
    assert (tmp_path / "load-world.svg").stat().st_size > 1000


def test_sites_have_lines_of_their_own():
    measured = bench("sites", "--sizes", "200", "--clients", "1", "--faster", "100")
    cases = {case["way"]: case for case in measured["cases"]}
    assert len(cases) == 8 and all(case["calls"] > 0 for case in cases.values())
    for way, case in cases.items():
        # Never more than the site's line carries, with any number of callers.
        line = {"ocha-u": 16.6, "u-tokyo": 30, "nitech": 12, "titech": 20}[way.partition("/")[0]]
        assert case["mb_s"]["mean"] < 1.5 * line


def test_an_interrupted_bench_leaves_nothing():
    command = [*BENCH, "wan", "--sizes", "1400", "--faster", "1", "--libraries", LIBRARIES]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            wait_until(lambda: len(namespaces(process.pid)) == 3, what="the namespaces")
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 128 + signal.SIGINT
    assert namespaces(process.pid) == []


def test_without_root_it_says_what_to_do():
    nobody = ["setpriv", "--reuid", "65534", "--clear-groups", *BENCH, "world"]
    ended = run(*nobody, cwd=ROOT)
    assert ended.returncode == 1 and "run it with sudo" in ended.stderr
