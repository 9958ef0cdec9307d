"""Branch and bound over servers: examples/bmi."""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys

import farcall
import numpy as np
import pytest
from farcall import _sweep
from programs import compile_c, run
from servers import FARCALL, ROOT, up_local, wait_until

EXAMPLE = ROOT / "examples" / "bmi"
TOLERANCE = 0.1


@pytest.fixture(scope="module")
def idl(tmp_path_factory):
    """The interface file, beside its library."""
    if not pathlib.Path("/usr/include/dsdp/dsdp5.h").exists():
        pytest.skip("no DSDP, so examples/bmi is not tested: apt-get install libdsdp-dev")
    folder = tmp_path_factory.mktemp("bmi") / "bmi"
    shutil.copytree(EXAMPLE, folder)
    subprocess.run(["make", "--silent", "--directory", folder], check=True, timeout=120)
    return folder / "bmi.idl"


@pytest.fixture(scope="module")
def client():
    """The module bmi.py."""
    spec = importlib.util.spec_from_file_location("bmi", EXAMPLE / "bmi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def eigenvalue(f, point, nx):
    """The largest eigenvalue of F(x, y)."""
    x, y = np.append(1, point[:nx]), np.append(1, point[nx:])
    return np.linalg.eigvalsh(np.einsum("i,j,ijkl->kl", x, y, f))[-1]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 3, 4), (3, 1, 5), (2, 3, 8)])
def test_no_point_of_a_box_is_below_the_lower_bound(start, idl, sizes):
    nx, ny, m = sizes
    server = start(idl).connect()
    f = server.call("bmi/example", 7, nx, ny, m).f
    assert np.array_equal(f, f.swapaxes(2, 3))
    rng = np.random.default_rng(1)
    boxes = np.sort(rng.uniform(-2, 2, (6, nx + ny, 2)))
    # The last box is a point: its bounds are equal.
    boxes[5, :, 1] = boxes[5, :, 0]
    found = server.function("bmi/bound")(count=6, nx=nx, ny=ny, m=m, f=f, boxes=boxes)
    assert found.info == 0
    for box, lower, upper, point in zip(boxes, found.lower, found.upper, found.points, strict=True):
        assert np.all((box[:, 0] - 1e-12 <= point) & (point <= box[:, 1] + 1e-12))
        assert upper == pytest.approx(eigenvalue(f, point, nx), abs=1e-9)
        sampled = [eigenvalue(f, rng.uniform(box[:, 0], box[:, 1]), nx) for _ in range(200)]
        assert lower <= min(*sampled, upper) + 1e-9
    assert found.upper[5] - found.lower[5] < 1e-4


def test_sizes_that_it_refuses(start, idl):
    server = start(idl).connect()
    f, box = np.zeros((18, 2, 1, 1)), np.zeros((1, 18, 2))
    assert server.function("bmi/bound")(count=1, nx=17, ny=1, m=1, f=f, boxes=box).info == -1


def test_servers_find_what_a_search_of_all_points_finds(idl, client):
    with up_local(idl) as address:
        server = farcall.connect(address)
        f = server.call("bmi/example", 3, 1, 1, 6).f
        problem = {"nx": 1, "ny": 1, "m": 6, "f": f}
        box = np.array([[-1.0, 1.0]] * 2)
        lower, upper, point, _ = client.solve(server.function("bmi/bound"), problem, box, 0.01)
        steps = np.linspace(-1, 1, 81)
        least = min(eigenvalue(f, (x, y), 1) for x in steps for y in steps)
    assert upper - lower <= 0.01
    assert lower <= least <= eigenvalue(f, point, 1) + 0.05
    assert upper == pytest.approx(eigenvalue(f, point, 1), abs=1e-9)


def test_all_clients_find_the_same(idl, tmp_path):
    compiled = compile_c(EXAMPLE / "client.c", tmp_path / "client")
    python = [sys.executable, EXAMPLE / "bmi.py"]
    with up_local(idl) as address:
        ran = [
            run(*python, address, "--one-call"),
            run(*python, address),
            run(*python, address, "--group", "1"),
            run(compiled, address, "3", "4"),
        ]
    found = []
    for one in ran:
        assert one.returncode == 0, one.stderr
        bounds = re.match(r"least eigenvalue between (\S+) and (\S+)\n", one.stdout)
        found.append([float(bound) for bound in bounds.groups()])
    sequential = found[0]
    for lower, upper in found:
        assert upper - lower <= TOLERANCE + 1e-4
        assert abs(upper - sequential[1]) <= TOLERANCE
        assert lower <= sequential[1]
    readme = (EXAMPLE / "README.md").read_text()
    assert ran[0].stdout.splitlines()[0] in readme
    assert ran[3].stdout.splitlines()[0] in readme


@pytest.fixture
def three(start, idl):
    """Three servers behind a metaserver: its address, and the servers."""
    meta = subprocess.Popen(
        [FARCALL, "meta", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    address = meta.stdout.readline().split()[-1].replace("farcall://", "meta://")
    servers = [start(idl, options=("--metaserver", address, "--pes", "1")) for _ in range(3)]

    def known():
        status = subprocess.run(
            [FARCALL, "status", address, "--json"], capture_output=True, text=True, check=True
        )
        return sum(one["functions"] > 0 for one in json.loads(status.stdout)["servers"]) == 3

    wait_until(known, what="all servers")
    yield address, servers
    meta.terminate()
    meta.wait(10)


def test_a_killed_server_costs_only_the_boxes_that_it_had(three, client, monkeypatch):
    address, servers = three
    repeated = []
    fails = _sweep.Sweep._fails

    def counted(sweep, function, server, entries, error):
        repeated.extend(entries)
        fails(sweep, function, server, entries, error)

    monkeypatch.setattr(_sweep.Sweep, "_fails", counted)
    server = farcall.connect(address)
    bound = server.function("bmi/bound")
    problem = {"nx": 2, "ny": 3, "m": 8, "f": server.call("bmi/example", 1, 2, 3, 8).f}
    whole = np.array([[-1.0, 1.0]] * 5)
    expected = client.solve(bound, problem, whole, TOLERANCE)

    rng = np.random.default_rng(2)
    boxes = [{"boxes": np.sort(rng.uniform(-1, 1, (5, 2)))} for _ in range(150)]
    sweep = bound.map(boxes, group=3, **problem)
    completed = sweep.as_completed()
    for _ in range(10):
        next(completed)
    servers[0].process.kill()
    assert 10 + sum(1 for _ in completed) == 150
    assert sweep.errors == {}
    # Two groups at most: the one that computed, and the one that travelled.
    assert 1 <= len(repeated) <= 6
    one_by_one = bound.map(boxes, **problem).wait()
    assert [r.lower for r in sweep.results] == pytest.approx([r.lower for r in one_by_one])

    class Killing:
        """Kills another server in the third round."""

        rounds = 0

        def map(self, *arguments, **options):
            made = bound.map(*arguments, **options)
            self.rounds += 1
            if self.rounds == 3:
                servers[1].process.kill()
            return made

    lower, upper, _, _ = client.solve(Killing(), problem, whole, TOLERANCE, group=2)
    assert upper - lower <= TOLERANCE
    assert abs(upper - expected[1]) <= TOLERANCE
