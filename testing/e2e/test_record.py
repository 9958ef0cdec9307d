"""The record of calls, as tools of the Python world read it."""

import json
import resource
import subprocess

import pyarrow
import pyarrow.compute
import pyarrow.json
from servers import FARCALL, LIBRARIES


def test_whole_files_are_tables(start, tmp_path):
    server = start(LIBRARIES / "bench.idl", options=["--record", tmp_path])
    null = server.connect().function("bench/null")
    for _ in range(20):
        null(1)
    assert server.stop() == 0
    (path,) = tmp_path.glob("calls-*.jsonl.zst")
    with pyarrow.CompressedInputStream(path, "zstd") as file:
        lines = pyarrow.json.read_json(file)
    calls = lines.filter(pyarrow.compute.equal(lines["kind"], "call"))
    assert calls.num_rows == 20
    assert set(calls["function"].to_pylist()) == {"bench/null"}
    assert set(calls["server"].to_pylist()) == {server.address}
    moments = [calls[name].to_pylist() for name in ("asked", "granted", "queued", "started")]
    moments += [calls[name].to_pylist() for name in ("ended", "sent")]
    assert all(list(call) == sorted(call) for call in zip(*moments, strict=True))
    # The same lines, from the command.
    ran = subprocess.run(
        [FARCALL, "record", "cat", tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert told[0]["kind"] == "record"
    assert told[0]["schema"] == 1
    assert [line["exec_s"] for line in told if line["kind"] == "call"] == calls[
        "exec_s"
    ].to_pylist()


def test_many_calls_are_counted_exactly(start, tmp_path):
    """A record of few bytes has lines for a share of the calls, and counts the others."""
    config = tmp_path / "farcall.toml"
    config.write_text(f'[record]\nbytes = 1000000\nfolder = "{tmp_path}/record"\n')
    server = start(LIBRARIES / "bench.idl", options=["--config", config])
    null = server.connect().function("bench/null")
    rounds, batch = 60, 50
    for _ in range(rounds):
        for future in [null.call_async(1) for _ in range(batch)]:
            future.result()
    assert server.stop() == 0
    ran = subprocess.run(
        [FARCALL, "record", "cat", tmp_path / "record"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    alone = [line for line in told if line["kind"] == "call"]
    together = [line for line in told if line["kind"] == "together"]
    assert len(alone) + sum(line["calls"] for line in together) == rounds * batch
    assert 0 < len(alone) < rounds * batch
    assert together
    assert min(line["share"] for line in alone) < 1
    for line in together:
        assert line["wait_quantiles_s"] == sorted(line["wait_quantiles_s"])
        assert line["from"] <= line["to"]
    summary = [FARCALL, "record", "summary", tmp_path / "record", "--json"]
    ran = subprocess.run(summary, capture_output=True, text=True, timeout=60, check=True)
    (row,) = json.loads(ran.stdout)["rows"]
    assert row["calls"] == rounds * batch
    assert row["failed"] == 0


def test_a_part_that_cannot_be_written_whole_is_not_left(start, tmp_path):
    server = start(LIBRARIES / "bench.idl", options=["--record", tmp_path / "record"])
    server.connect().function("bench/null")(1)
    assert server.stop() == 0
    new = tmp_path / "day.jsonl.zst"
    # Nothing can be written into a file, as on a full disk.
    ran = subprocess.run(
        [FARCALL, "record", "cut", tmp_path / "record", "-o", new],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        restore_signals=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )
    assert ran.returncode == 1
    assert "cannot write" in ran.stderr
    assert not new.exists()
