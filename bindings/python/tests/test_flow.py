import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from farcall import flow
from farcall.flow import plot
from farcall.flow.plot import MAX_COLUMNS, MAX_LANES, Sends, _bars, _lanes, _rates
from matplotlib import pyplot
from matplotlib.figure import Figure
from servers import FARCALL

TORUS = flow.Platform("torus:4x4,bandwidth=1e9")


def test_a_regular_fat_tree_needs_one_message_time_per_peer():
    tree = flow.Platform("fat-tree:ports=6,levels=3")
    result = flow.simulate(tree, flow.pattern("all-to-all", tree, 1), verify=True)
    assert (result.makespan, result.message_count) == (53.0, 54 * 53)


def test_arrays_go_in_and_arrow_comes_out():
    source = np.array([0, 0, 1], np.int64)
    result = flow.simulate(TORUS, flow.messages(source, [1, 2, 2], 1e6), verify=True)
    table = result.messages()
    assert table.num_rows == 3
    assert table.column("bytes").to_pylist() == [1e6] * 3
    assert max(table.column("end").to_pylist()) == result.makespan
    hops = sum(len(TORUS.route(s, d)) for s, d in zip(source, [1, 2, 2], strict=True))
    assert result.links().column("bytes").to_numpy().sum() == pytest.approx(hops * 1e6)
    assert 0 < result.utilisation.max() <= 1 + 1e-12


def test_modes_placements_and_windows():
    pattern = flow.pattern("all-to-all:simple-spread", TORUS, 2e4)
    times = {
        mode: flow.simulate(TORUS, pattern, mode=mode, placement="random:3").makespan
        for mode in ("exact", "iterated", "equal-split", "packets")
    }
    assert all(time > 0 for time in times.values())
    nodes = np.arange(16)[::-1]
    assert flow.simulate(TORUS, pattern, placement=nodes, window=2, verify=True).makespan > 0


def test_wrong_arguments_say_what_is_right(tmp_path):
    pattern = flow.pattern("ring", TORUS, 1)
    with pytest.raises(ValueError, match="torus:16x16"):
        flow.Platform("taurus:4x4")
    with pytest.raises(ValueError, match="'exact'"):
        flow.simulate(TORUS, pattern, mode="fast")
    with pytest.raises(ValueError, match="another rank has node 0 already"):
        flow.simulate(TORUS, pattern, placement=np.zeros(16, int))
    with pytest.raises(ValueError, match="whole numbers"):
        flow.messages([0.5], [1], 1)
    with pytest.raises(ValueError, match=r"source: .* given -1"):
        flow.messages([-1], [1], 1)
    with pytest.raises(ValueError, match="size: a masked array"):
        flow.messages([0], [1], np.ma.masked_array([1.0], [True]))
    with pytest.raises(ValueError, match="message 0"):
        flow.messages([0], [1], -1)
    with pytest.raises(ValueError, match=r"size: expected one number, or one for each of 1 mess"):
        flow.messages([0], [1], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"wait: .* given an array of shape \(1, 1\)"):
        flow.messages([0], [1], 1.0, wait=[[1.0]])
    bad = tmp_path / "bad.csv"
    bad.write_text("0,1,1,10\n0,1,x,10\n")
    with pytest.raises(ValueError, match=r"bad\.csv: line 2: order"):
        flow.read_pattern(bad)
    bad.write_text("0,1,1\n0,1\n")
    with pytest.raises(ValueError, match=r"bad\.csv: line 2: expected"):
        flow.edges(bad)


@pytest.mark.parametrize(
    "option",
    [
        {"threshold": -1.0, "mode": "iterated"},
        {"resolution": float("inf")},
        {"resolution": -1.0},
        {"packet_size": 0.0, "mode": "packets"},
    ],
)
def test_numbers_out_of_range_are_refused(option):
    line = flow.Platform("mesh:4")
    with pytest.raises(ValueError, match=f"{next(iter(option))}.*expected"):
        flow.simulate(line, flow.pattern("ring", line, 1), **option)


@pytest.mark.parametrize(
    "option",
    [
        {"verify": True, "mode": "iterated"},
        {"verify": True, "mode": "packets"},
        {"tolerance": 0.05, "mode": "equal-split"},
        {"virtual_output_queues": True},
        {"packet_size": 100.0},
        {"buffer": 4, "mode": "iterated"},
        {"threshold": 0.1, "mode": "packets"},
        {"resolution": 1.0, "mode": "packets"},
        {"stored_packet": 100.0, "mode": "packets"},
        {"window": 0},
        {"buffer": 0, "mode": "packets"},
    ],
)
def test_what_has_no_effect_is_refused(option):
    pattern = flow.pattern("ring", TORUS, 1)
    with pytest.raises(ValueError, match=f"{next(iter(option))} .*(leave it out|1 or more)"):
        flow.simulate(TORUS, pattern, **option)
    with pytest.raises(ValueError, match="count 0"):
        flow.pattern("ring", TORUS, 1, count=0)


def test_what_a_trace_has_by_itself_is_refused(tmp_path):
    (tmp_path / "one.goal").write_text("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\n")
    trace = flow.read_pattern(tmp_path / "one.goal", loggops="L=1")
    for pattern in (trace, flow.jobs([(trace, 0.0)])):
        with pytest.raises(ValueError, match="overhead is for patterns"):
            flow.simulate(flow.Platform("mesh:2"), pattern, overhead=1.0)
        with pytest.raises(ValueError, match="leave hop-latency out"):
            flow.simulate(flow.Platform("mesh:2,hop-latency=1us"), pattern)
    with pytest.raises(ValueError, match="destination: 8589934592 is too large"):
        flow.messages([0], [2**33], 1.0)
    with pytest.raises(ValueError, match="latency -1"):
        flow.Platform.from_edges("both,0,1,1", -1.0)


def test_a_deadlock_is_told(tmp_path):
    trace = tmp_path / "trace.goal"
    trace.write_text("num_ranks 2\nrank 0 {\n}\nrank 1 {\na: recv 4b from 0 tag 8\n}\n")
    with pytest.raises(RuntimeError, match="rank 1 waits for rank 0, tag 8"):
        flow.simulate(TORUS, flow.read_pattern(trace))


def test_a_sweep_reports_the_spread():
    sweep = flow.sweep(TORUS, "all-to-all:simple-spread", [1e3, 1e6], seeds=range(4))
    rows = sweep.spread()
    assert [row["runs"] for row in rows] == [4, 4]
    assert rows[0]["min"] <= rows[0]["median"] <= rows[0]["max"]
    assert rows[1]["mean"] == pytest.approx(1000 * rows[0]["mean"], rel=1e-6)
    assert "std" in repr(sweep)
    assert sweep.table().num_rows == 8


def test_files(tmp_path):
    result = flow.simulate(TORUS, flow.pattern("allreduce:ring", TORUS, 1e6))
    for name in ("messages", "links"):
        for suffix in (".csv", ".parquet"):
            file = tmp_path / (name + suffix)
            result.write(file, name)
            assert file.stat().st_size > 100
    with pytest.raises(ValueError, match=r"\.csv or \.parquet"):
        result.write(tmp_path / "messages.txt")


def test_a_trace_for_perfetto_has_names_computations_counters_and_arrows(tmp_path):
    trace = tmp_path / "trace.goal"
    trace.write_text(
        "num_ranks 2\nrank 0 {\nw: calc 1000\ns: send 100b to 1\ns requires w\n}\n"
        "rank 1 {\nrecv 100b from 0\n}\n"
    )
    platform = flow.Platform("hypercrossbar:2,bandwidth=1GB/s")
    result = flow.simulate(platform, flow.read_pattern(trace))
    result.write_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {1: "rank 0", 2: "rank 1", 3: "links"}
    slices = [(e["pid"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert sorted(slices) == [
        (1, "calc", 0.0, pytest.approx(1.0)),
        (1, "to 1", pytest.approx(1.0), pytest.approx(0.1)),
        (2, "from 0", pytest.approx(1.0), pytest.approx(0.1)),
    ]
    arrow = [(e["ph"], e["pid"], e["id"]) for e in events if e["ph"] in "sf"]
    assert arrow == [("s", 1, 0), ("f", 2, 0)]
    loads = {(e["name"], e["args"]["bytes/s"]) for e in events if e["ph"] == "C"}
    link = result.hottest(1)[0]
    assert (link.utilisation, link.users, link.pairs) == (
        pytest.approx(0.1 / 1.1),
        [(0, 1, 1.0)],
        1,
    )
    assert {(link.name, 1e9), (link.name, 0)} <= loads


def test_routes_failures_overheads_and_jobs():
    tree = flow.Platform("fat-tree:ports=8,levels=2")
    colliding = flow.messages([0, 1, 2, 3], [4, 8, 12, 16], 1.0)
    times = {r: flow.simulate(tree, colliding, routing=r).makespan for r in ("static", "adaptive")}
    assert times == {"static": 4.0, "adaptive": 1.0}
    failed = flow.simulate(tree, colliding, routing="adaptive", failures=["level 2 switch 0.1@0.5"])
    assert failed.makespan == pytest.approx(1.5)
    ring = flow.Platform("mesh:2,devices=2,device-bandwidth=4")
    two = flow.jobs([(flow.messages([0], [1], 8.0), 0.0), (flow.messages([0], [1], 8.0), 3.0)])
    result = flow.simulate(ring, two, placement=[0, 1, 2, 3], overhead=0.5)
    assert result.job_ends == pytest.approx([3.0, 6.0])
    stored = flow.simulate(ring, two, placement=[0, 1, 2, 3], stored_packet=1.0)
    assert stored.job_ends == pytest.approx([2.25, 5.25])
    pattern = flow.pattern("ring", TORUS, 1)
    with pytest.raises(ValueError, match="only fat trees and dragonflies"):
        flow.simulate(TORUS, pattern, routing="ecmp")
    with pytest.raises(ValueError, match="no link and no switch `node 99`"):
        flow.simulate(TORUS, pattern, failures=["node 99@1"])
    with pytest.raises(ValueError, match="overhead -1"):
        flow.simulate(TORUS, pattern, overhead=-1.0)


def test_each_panel_of_a_picture_has_the_links_in_their_places():
    dragonfly = flow.Platform("dragonfly:groups=3,routers=2,terminals=2,global=1")
    panel, row, column = dragonfly.places()
    places = {p: set() for p in dict.fromkeys(panel)}
    for name, y, x in zip(panel, row.tolist(), column.tolist(), strict=True):
        places[name].add((y, x))
    assert list(places) == ["injection", "ejection", "local", "global"]
    assert places["global"] == {(y, x) for y in range(3) for x in range(3) if x != y}
    assert places["injection"] == {(y, x) for y in range(4) for x in range(3)}


def test_the_rates_of_a_timeline_are_those_of_the_messages():
    # Rank 0 sends 10 bytes in the first quarter, rank 1 sends 20 in the last three quarters.
    values = [np.array(v, float) for v in ([10, 20], [0, 1], [1, 4])]
    sends = Sends(np.array([0, 1]), *values)
    image, *_ = _rates(pyplot.figure().subplots(), sends, 2)
    rates = np.asarray(image.get_array())
    quarter = MAX_COLUMNS // 4
    assert rates[0, :quarter] == pytest.approx(10)
    assert rates[0, quarter:] == pytest.approx(0, abs=1e-9)
    assert rates[1, :quarter] == pytest.approx(0, abs=1e-9)
    assert rates[1, quarter:] == pytest.approx(20 / 3)


def test_the_rates_of_brief_and_of_long_messages_add_up_to_their_bytes():
    random = np.random.default_rng(1)
    count, last = 1000, 1e-3
    start = random.random(count) * last / 2
    length = np.where(random.random(count) < 0.5, 1e-15, last / 2)
    sends = Sends(random.integers(0, 4, count), random.random(count), start, start + length)
    image, *_ = _rates(pyplot.figure().subplots(), sends, 4)
    bytes_ = np.asarray(image.get_array()).sum(axis=1) * sends.end.max() / MAX_COLUMNS
    assert bytes_ == pytest.approx(np.bincount(sends.source, sends.size))


def test_bars_of_messages_at_the_same_time_lie_below_each_other():
    values = [np.array(v, float) for v in ([1, 1, 1, 1], [0, 1, 3, 0], [2, 3, 4, 4])]
    sends = Sends(np.array([0, 0, 0, 1]), *values)
    lanes = _lanes(sends)
    assert lanes.tolist() == [0, 1, 0, 0]
    bars, *_ = _bars(pyplot.figure().subplots(), sends, 2, lanes)
    boxes = [path.get_extents() for path in bars.get_paths()]
    assert all(a.y1 <= b.y0 + 1e-9 for a, b in [(boxes[0], boxes[1]), (boxes[1], boxes[3])])
    many = np.ones(MAX_LANES + 1)
    assert _lanes(Sends(np.zeros(len(many), int), many, 0 * many, many)) is None


def test_brief_messages_of_a_long_run_can_be_seen(tmp_path):
    messages = flow.messages([0] * 10, [1] * 10, 1e3, wait=100.0)
    result = flow.simulate(flow.Platform("torus:4x4,bandwidth=1e9"), messages)
    plot.timeline(result, tmp_path / "timeline.png")
    pixels = pyplot.imread(tmp_path / "timeline.png")[:, :, :3]
    # Without the axes, the texts and the bar of colours, which are at the edges.
    height, width, _ = pixels.shape
    inner = pixels[height // 4 : height * 2 // 3, width // 8 : width * 3 // 4]
    assert (inner < 0.9).any(axis=2).sum() > 100


def test_a_result_keeps_its_placement_when_the_array_changes():
    nodes = np.arange(16, dtype=np.uint32)[::-1].copy()
    result = flow.simulate(TORUS, flow.pattern("ring", TORUS, 1), placement=nodes)
    before = result.hottest()
    nodes[:] = 0
    assert result.hottest() == before


def test_a_trace_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    result = flow.simulate(TORUS, flow.pattern("ring", TORUS, 1))
    with pytest.raises(FileNotFoundError, match="missing"):
        result.write_perfetto(tmp_path / "missing" / "trace.json")
    trace = tmp_path / "trace.json"
    result.write_perfetto(trace)
    before = trace.read_bytes()
    assert json.loads(before)
    link = tmp_path / "link.json"
    link.symlink_to(trace)
    result.write_perfetto(link)
    assert link.is_symlink()
    link.unlink()

    def interrupted(path, *_):
        Path(path).write_text("[")
        raise KeyboardInterrupt

    monkeypatch.setattr(flow._result, "write_flow_trace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        result.write_perfetto(trace)
    assert trace.read_bytes() == before
    assert list(tmp_path.iterdir()) == [trace]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"window": 2**32}, "window"),
        ({"overhead": "1us"}, "overhead"),
        ({"mode": None}, "mode"),
        ({"failures": "node 77@1ms"}, "node 77"),
    ],
)
def test_errors_name_the_argument(settings, text):
    with pytest.raises(ValueError, match=text):
        flow.simulate(TORUS, flow.pattern("ring", TORUS, 1), **settings)


def test_more_messages_than_memory_are_refused():
    platform = flow.Platform("torus:100x100x10")
    pattern = flow.pattern("allreduce:ring", platform, 1e6, count=1000)
    with pytest.raises(ValueError, match="keep_messages=False"):
        flow.simulate(platform, pattern)


def test_results_refuse_what_they_do_not_have(tmp_path):
    result = flow.simulate(TORUS, flow.pattern("ring", TORUS, 1))
    with pytest.raises(ValueError, match="'messages' or 'links'"):
        result.write(tmp_path / "rows.csv", "makespan")
    with pytest.raises(ValueError, match="0 or more"):
        result.hottest(-1)
    for wrong in ({"sizes": [1, 1]}, {"sizes": [1], "seeds": [2, 2]}, {"sizes": [float("nan")]}):
        with pytest.raises(ValueError, match=r"once|expected 0 or more"):
            flow.sweep(TORUS, "ring", **wrong)


def test_pictures_leave_the_figures_of_the_program_alone(tmp_path):
    result = flow.simulate(TORUS, flow.pattern("ring", TORUS, 1))
    backend = matplotlib.get_backend()
    try:
        matplotlib.use("svg")
        figures = pyplot.get_fignums()
        plot.heat_map(result, tmp_path / "load.png")
        plot.timeline(result, tmp_path / "timeline.svg")
        assert (pyplot.get_fignums(), matplotlib.get_backend()) == (figures, "svg")
    finally:
        matplotlib.use(backend)


def test_a_name_with_dollars_is_no_formula():
    axes = Figure().subplots()
    plot._list(axes, [flow.HotLink(0, "a$b to c$d", 1.0, 1, [(0, 1, 1.0)])])
    assert not axes.texts[0].get_parse_math()


def test_what_a_run_has_not_kept_is_told(tmp_path):
    pattern = flow.pattern("ring", TORUS, 1)
    result = flow.simulate(TORUS, pattern, keep_messages=False, keep_links=False)
    for wanted in (
        result.messages,
        lambda: result.write(tmp_path / "messages.csv"),
        lambda: plot.timeline(result, tmp_path / "timeline.svg"),
    ):
        with pytest.raises(ValueError, match="keep_messages=True"):
            wanted()
    for wanted in (
        result.links,
        lambda: result.utilisation,
        lambda: plot.heat_map(result, tmp_path / "load.svg"),
    ):
        with pytest.raises(ValueError, match="keep_links=True"):
            wanted()


@pytest.mark.parametrize("kind", ["heat-map", "timeline"])
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_pictures_from_the_command(tmp_path, kind, suffix):
    picture = tmp_path / f"picture{suffix}"
    command = [FARCALL, "flow", "plot", "--kind", kind, "--platform", "fat-tree:ports=4,levels=3"]
    command += ["--pattern", "all-to-all", "--size", "1", "-o", picture]
    subprocess.run(command, check=True, timeout=60)
    assert picture.stat().st_size > 1000


def test_the_command_and_python_agree():
    command = [FARCALL, "flow", "run", "--json", "--platform", "torus:4x4,bandwidth=1e9"]
    command += ["--pattern", "all-to-all", "--size", "20KB", "--placement", "random:1"]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    pattern = flow.pattern("all-to-all", TORUS, 20e3)
    result = flow.simulate(TORUS, pattern, placement="random:1")
    assert told["schema"] == 1
    assert (told["makespan"], told["messages"], told["events"]) == (
        result.makespan,
        result.message_count,
        result.events,
    )


def test_traces_are_read_as_text_bytes_and_chakra(tmp_path):
    platform = flow.Platform("hypercrossbar:2,bandwidth=1e18")
    text = "num_ranks 2\nrank 0 {\nsend 101b to 1\n}\nrank 1 {\nrecv 101b from -1 tag -1\n}\n"
    file = tmp_path / "one.goal"
    file.write_text(text)
    costs = "L=2500,o=1500,g=1000,G=6"
    result = flow.simulate(platform, flow.read_pattern(file, loggops=costs))
    assert result.makespan == pytest.approx(6.1e-6)
    pattern = flow.Pattern.from_goal(text, costs)
    assert flow.simulate(platform, pattern).makespan == result.makespan
    # The node 3 is an all-reduce of 64 bytes.
    name = b"\x0a\x09comm_type\x48\x00", b"\x0a\x09comm_size\x48\x40"
    node = b"\x08\x03\x18\x07" + b"".join(b"\x52" + bytes([len(a)]) + a for a in name)
    trace = b"\x00" + bytes([len(node)]) + node
    for rank in range(2):
        (tmp_path / f"all.{rank}.et").write_bytes(trace)
    slow = flow.Platform("hypercrossbar:2")
    assert flow.simulate(slow, flow.read_chakra(tmp_path / "all")).makespan == 64.0
    (tmp_path / "all.3.et").write_bytes(trace)
    with pytest.raises(FileNotFoundError, match=r"all\.2\.et: no such file, .*all\.3\.et"):
        flow.read_chakra(tmp_path / "all")
    with pytest.raises(ValueError, match="leave out loggops"):
        flow.read_pattern(tmp_path / "rows.csv", loggops=costs)
    with pytest.raises(ValueError, match="tolerance"):
        flow.simulate(platform, pattern, tolerance=2.0)
    with pytest.raises(ValueError, match="leave completion out"):
        flow.simulate(platform, pattern, completion="source")


def test_an_interrupt_ends_a_simulation_with_slow_batches():
    tree = flow.Platform("fat-tree:ports=24,levels=3,bandwidth=1")
    pattern = flow.pattern("all-to-all", tree, size=1)
    sent = []

    def interrupt():
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(1, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        flow.simulate(tree, pattern, window=64, placement="random:1")
    # A thousand of these batches take much longer. Others may have the processors meanwhile.
    assert time.process_time() - sent[0] < 5
    timer.join()
