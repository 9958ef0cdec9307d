"""The chart of slices."""

import math
import subprocess
import sys
import time

import pytest
from farcall import _gantt

TRACE = """\
switch,start_ns,stopped_ns,frozen_ns,saved_ns,restored_ns,run_ns,out,in,nodes
1,1000000000,1000000000,1000000000,1000000000,1000000000,1001000000,,1 2,a+b c
2,1101000000,1101000000,1101000000,1101000000,1101000000,1102000000,1,3,a
3,1202000000,1202000000,1202000000,1202000000,1202000000,1203000000,2 3,4,-
"""


def test_slices(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    found = [
        (each.node, each.job, round(each.begin, 3), round(each.end, 3))
        for each in _gantt.slices(trace)
    ]
    assert found == [
        ("a", 1, 0.001, 0.101),
        ("b", 1, 0.001, 0.101),
        ("c", 2, 0.001, 0.202),
        ("a", 3, 0.102, 0.202),
    ]


def test_jobs_side_by_side_have_lanes():
    one, two, three = (
        _gantt.Slice("a", job, begin, end)
        for job, begin, end in [(1, 0.0, 1.0), (2, 0.0, 1.0), (3, 1.0, 2.0)]
    )
    assert _gantt.lanes([three, two, one]) == ({one: 0, two: 1, three: 0}, 2)


def test_the_picture(tmp_path):
    pytest.importorskip("matplotlib")
    trace, picture = tmp_path / "trace.csv", tmp_path / "slices.svg"
    trace.write_text(TRACE)
    _gantt.draw(_gantt.slices(trace), picture, 0.0, 0.15)
    text = picture.read_text()
    assert text.startswith("<?xml")
    assert text.count("<svg") == 1


def test_more_slices_than_a_chart_has_are_refused(tmp_path):
    pytest.importorskip("matplotlib")
    found = [_gantt.Slice("a", n % 3, n, n + 1) for n in range(_gantt.MAX_SLICES + 1)]
    picture = tmp_path / "slices.svg"
    with pytest.raises(ValueError, match=r"20001 slices .* --from and --to"):
        _gantt.draw(found, picture, 0.0, math.inf)
    _gantt.draw(found, picture, 0.0, 100.0)
    assert picture.exists()


def test_many_jobs_cost_no_more_than_few(tmp_path):
    pytest.importorskip("matplotlib")
    found = [_gantt.Slice("a", n, n, n + 0.9) for n in range(_gantt.MAX_SLICES)]
    begin = time.process_time()
    _gantt.draw(found, tmp_path / "slices.png", 0.0, math.inf)
    # A look through all slices for each job would take many minutes.
    assert time.process_time() - begin < 60


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", TRACE.splitlines()[0] + "\n"])
def test_what_is_no_trace(tmp_path, text):
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    command = [sys.executable, "-m", "farcall._gantt", trace, tmp_path / "x.svg"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert ran.returncode != 0
    assert str(trace) in ran.stderr.splitlines()[-1]
