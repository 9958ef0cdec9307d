"""The picture of a transaction's graph."""

import subprocess
import sys
import xml.etree.ElementTree

import pytest
from farcall import _graph

DOT = r"""digraph transaction {
  c0 [label="1 f" shape=box];
  c1 [label="2 \"q\" $x$ \\" shape=box];
  c0 -> c1 [label="in"];
  c2 [label="3 h" shape=box];
  c1 -> c2 [label="a b"];
  c0 -> c2 [label="" style=dashed];
}
"""


def test_the_graph_is_read():
    calls, arrows = _graph.read(DOT)
    assert calls == ["1 f", '2 "q" $x$ \\', "3 h"]
    assert arrows == [(0, 1, "in", False), (1, 2, "a b", False), (0, 2, "", True)]


def test_arrows_go_down_and_around_calls():
    calls, arrows = _graph.read(DOT)
    rows, ways = _graph.layers(len(calls), arrows)
    assert [sorted(row) for row in rows] == [[0], [1, 3], [2]]
    assert ways == [[0, 1], [1, 2], [0, 3, 2]]
    assert _graph.layers(0, []) == ([], [])


def test_calls_stand_under_those_they_need():
    arrows = [_graph.Arrow(before, after, "", False) for before, after in [(0, 3), (1, 2)]]
    rows, _ = _graph.layers(4, arrows)
    places = [{node: at for at, node in enumerate(row)} for row in rows]
    assert (places[0][0] < places[0][1]) == (places[1][3] < places[1][2])


@pytest.mark.parametrize("dot", [DOT, "digraph transaction {\n}\n"])
def test_the_picture(tmp_path, dot):
    pytest.importorskip("matplotlib")
    graph, picture = tmp_path / "graph.dot", tmp_path / "graph.svg"
    graph.write_text(dot)
    command = [sys.executable, "-m", "farcall._graph", graph, picture]
    subprocess.run(command, check=True, timeout=120)
    texts = "".join(xml.etree.ElementTree.parse(picture).getroot().itertext())
    for label in _graph.read(dot)[0]:
        assert label in texts


def test_far_too_many_bends_are_straight():
    calls = 200
    arrows = [_graph.Arrow(0, call, "", False) for call in range(1, calls)]
    arrows += [_graph.Arrow(call - 1, call, "", False) for call in range(2, calls)]
    rows, ways = _graph.layers(calls, arrows)
    assert sum(map(len, rows)) == calls
    assert all(len(way) == 2 for way in ways)
