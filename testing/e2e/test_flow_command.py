"""The output of `farcall flow` for scripts, and the recorder of MPI programs."""

import csv
import json
import os
import signal
import subprocess
from xml.etree import ElementTree

import pytest
from servers import FARCALL, ROOT


def flow(*arguments):
    command = [FARCALL, "flow", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


RING = ["--platform", "torus:4x4", "--pattern", "ring"]


def test_one_object_with_the_promised_fields():
    run = flow("run", *RING, "--size", "5", "--json")
    told = json.loads(run.stdout)
    assert run.returncode == 0
    assert (told["schema"], told["makespan"], told["messages"]) == (1, 5.0, 16)
    assert {"events", "wall_s", "peak_rss_bytes"} <= told.keys()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--platform", "taurus:4x4", "--pattern", "ring", "--size", "1"], 2, "torus:16x16"),
        (["--platform", "torus:4x4", "--pattern", "rung", "--size", "1"], 2, "all-to-all:pairwise"),
        (RING, 2, "--size is missing"),
        ([*RING, "--size", "1", "--threshold", "0.1"], 2, "--threshold: only --mode iterated"),
        ([*RING, "--size", "1GB/s"], 2, "--size `1GB/s` is a rate"),
        ([*RING[:2], "--job", "ranks=4,pattern=ring,size=1,size=2"], 2, "`size` is given twice"),
        ([*RING, "--size", "1", "--placement", "random:x"], 2, "whole number"),
        (["--platform", "torus:4x4", "--pattern", "file:absent.csv"], 1, "absent.csv"),
        (["--platform", "edges:absent.csv", "--pattern", "ring", "--size", "1"], 1, "absent.csv"),
    ],
)
def test_wrong_use_is_told(arguments, status, words):
    run = flow("run", *arguments)
    assert run.returncode == status
    assert words in run.stderr


def test_files_that_are_wrong_name_the_line(tmp_path):
    pattern = tmp_path / "bad.csv"
    pattern.write_text("0,1,1,10\nrecv,1,0,x\n")
    run = flow("run", "--platform", "torus:4x4", "--pattern", f"file:{pattern}")
    assert (run.returncode, "bad.csv: line 2: order" in run.stderr) == (1, True)
    pattern.write_text("recv,1,0,1\n")
    run = flow("run", "--platform", "torus:4x4", "--pattern", f"file:{pattern}")
    assert run.returncode == 1
    assert "rank 1 waits for rank 0 (line 1)" in run.stderr


def test_a_missing_rank_of_a_chakra_trace_is_named(tmp_path):
    # The node is a barrier, so the ranks that are there would do without the missing one.
    name = b"\x0a\x09comm_type\x48\x09", b"\x0a\x09comm_size\x48\x01"
    node = b"\x08\x01\x18\x07" + b"".join(b"\x52" + bytes([len(a)]) + a for a in name)
    for rank in (0, 1, 3):
        (tmp_path / f"all.{rank}.et").write_bytes(b"\x00" + bytes([len(node)]) + node)
    chakra = ["run", "--platform", "torus:4x4", "--pattern", f"chakra:{tmp_path}/all"]
    run = flow(*chakra)
    assert run.returncode == 1
    assert "all.2.et: no such file, but there is all.3.et" in run.stderr
    (tmp_path / "all.3.et").unlink()
    assert flow(*chakra).returncode == 0


# A simulation that would need minutes.
LARGE = ["--platform", "torus:64x64", "--pattern", "all-to-all", "--size", "1"]
LARGE += ["--placement", "random:1"]


@pytest.mark.parametrize("python", ["/nonexistent/python", "false"])
def test_a_plot_without_its_packages_says_so_before_the_simulation(tmp_path, python):
    run = flow("plot", *LARGE, "-o", str(tmp_path / "picture.svg"), "--python", python)
    assert run.returncode == 1
    assert "--python" in run.stderr or "false -m farcall.flow.plot" in run.stderr


def test_a_picture_that_cannot_be_written_is_refused_before_the_simulation(tmp_path):
    picture = str(tmp_path / "absent" / "picture.svg")
    run = flow("plot", *LARGE, "-o", picture)
    assert (run.returncode, "there is no such folder" in run.stderr) == (2, True)


def test_a_picture_of_a_large_network_leaves_no_folder(tmp_path):
    large = ["--platform", "torus:32x32x20", "--pattern", "ring", "--size", "1"]
    command = [FARCALL, "flow", "plot", *large, "-o", tmp_path / "load.svg", "--python", "true"]
    folder = tmp_path / "temporary"
    folder.mkdir()
    place = os.environ | {"TMPDIR": str(folder)}
    subprocess.run(command, env=place, check=True, timeout=120)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("kind", ["heat-map", "timeline"])
def test_a_picture_that_is_given_up_leaves_nothing(tmp_path, kind):
    painter, read, folder = (tmp_path / name for name in ("painter", "read", "temporary"))
    script = '#!/bin/sh\n[ "$1" = -c ] && exit\nshift 4\n'
    painter.write_text(f'{script}cat "$@" > {read}\nkill -KILL $PPID\n')
    painter.chmod(0o700)
    folder.mkdir()
    words = [FARCALL, "flow", "plot", "--kind", kind, *RING, "--size", "1"]
    words += ["-o", tmp_path / "x.svg", "--python", painter]
    place = os.environ | {"TMPDIR": str(folder)}
    assert subprocess.run(words, env=place, check=False, timeout=60).returncode == -signal.SIGKILL
    assert read.read_text().count("\n") > 16
    assert list(folder.iterdir()) == []


def test_a_timeline_without_messages_says_why(tmp_path):
    picture = str(tmp_path / "timeline.svg")
    run = flow("plot", "--kind", "timeline", *RING, "--size", "1", "--steps", "0", "-o", picture)
    assert (run.returncode, "no rank sends a message" in run.stderr) == (1, True)


def test_a_full_disk_leaves_the_figures(tmp_path):
    links = tmp_path / "links.csv"
    files = ["--messages", "/dev/full", "--links", links]
    run = flow("run", *RING, "--size", "5", "--json", *files)
    assert run.returncode == 1
    assert "/dev/full" in run.stderr
    assert json.loads(run.stdout)["makespan"] == 5.0
    assert links.read_text().count("\n") == 65


def test_names_of_an_edge_list_come_through_tables_and_pictures(tmp_path):
    edges, links = tmp_path / "edges.csv", tmp_path / "links.csv"
    names = ['"a', "$b", "c_{$", "<d&>"]
    edges.write_text("".join(f"both,{n},{name},1\n" for n, name in enumerate(names)))
    with edges.open("a") as file:
        file.writelines(f"both,{name},hub,1\n" for name in names)
    ring = ["--platform", f"edges:{edges}", "--pattern", "ring", "--size", "1"]
    assert flow("run", *ring, "--links", links).returncode == 0
    with links.open(newline="") as file:
        found = [row["name"] for row in csv.DictReader(file)]
    assert found[:4] == ['0 to "a', '"a to 0', "1 to $b", "$b to 1"]
    picture = tmp_path / "load.svg"
    run = flow("plot", *ring, "-o", picture)
    assert (run.returncode, run.stderr) == (0, "")
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_recorded_mpi_programs_are_simulated():
    script = ROOT / "bindings" / "pmpi" / "tests" / "try.sh"
    run = subprocess.run([script], capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 failed" in run.stdout
    if " 2 skipped" in run.stdout:
        pytest.skip(run.stdout)
