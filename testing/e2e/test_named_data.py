"""Named data, with real processes: at one server, behind a metaserver, in a data folder."""

import json
import os
import pathlib
import pickle
import subprocess

import farcall
import numpy as np
import pytest
from programs import compile_c, run
from servers import FARCALL, LIBRARIES, add_tokens, up_local, wait_until

IDL = """\
Module work;
Define total(IN int n, IN double x[n], OUT double *sum)
    CalcOrder n
    Repeatable "yes"
{
    int i;
    *sum = 0;
    for (i = 0; i < n; i++) *sum += x[i];
}
Define twice(IN int n, INOUT double x[n])
    CalcOrder n
{
    int i;
    for (i = 0; i < n; i++) x[i] *= 2;
}
"""

MORE = """\
Module more;
Library "libc.so.6";
Define copy(IN long n, IN long bytes, OUT double y[n], IN double x[n])
    Calls "C" memcpy(y, x, bytes);
"""


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work.idl"
    path.write_text(IDL)
    return path


def shell(address, *words, check=True):
    environment = os.environ | {"FARCALL_SERVER": address}
    done = subprocess.run(
        [FARCALL, *words], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("same_host", [True, False], ids=["unix", "tcp"])
def test_a_name_stands_for_what_was_put_last(start, work, same_host):
    server = start(work, options=["--allow-code"]).connect(same_host=same_host)
    total = server.function("total")
    first = server.put(np.arange(5.0), name="runs/atoms")
    assert (first.name, first.version, first.shape) == ("runs/atoms", 1, (5,))
    atoms = farcall.data("runs/atoms")
    assert atoms == pickle.loads(pickle.dumps(atoms))
    assert total(5, atoms).sum == 10
    assert total.call_async(5, atoms).result(timeout=30).sum == 10
    assert np.array_equal(server.get(atoms), np.arange(5.0))
    second = server.put(np.ones(5), name="runs/atoms")
    assert second.version == 2
    assert total(5, atoms).sum == 5
    with pytest.raises(farcall.ServerError, match="has a new version"):
        total(5, first)
    with pytest.raises(farcall.ArgumentError, match="shape"):
        total(6, atoms)
    [status] = server.list_data()
    assert (status.name, status.version, status.nbytes) == ("runs/atoms", 2, 40)
    assert status.holders == [str(server).removeprefix("<server ").removesuffix(">")]
    server.drop_data("runs/atoms")
    with pytest.raises(farcall.ServerError, match="no data named") as raised:
        total(5, atoms)
    assert raised.value.fault == "caller"


def test_named_data_do_not_change(start, work):
    server = start(work, options=["--allow-code"]).connect()
    twice = server.function("twice")
    handle = server.put(np.ones(3), name="fixed")
    with pytest.raises(farcall.Error, match=r"cannot change|an array to write to"):
        twice(3, farcall.data("fixed"))
    with pytest.raises(farcall.Error, match="cannot change"):
        twice(3, handle)
    assert np.array_equal(handle.get(), np.ones(3))
    with pytest.raises(farcall.Error, match="does not survive a restart of the server"):
        server.function("total").submit(3, farcall.data("fixed"))
    for name in ["", "../x", "a b", "a@b", "x" * 201]:
        with pytest.raises((ValueError, farcall.Error), match="name"):
            server.put(np.ones(3), name=name)
    with pytest.raises(ValueError, match="name"):
        server.put(np.ones(3), shared=True)


def test_a_user_reads_what_another_shares_and_nothing_else(start, work, tmp_path):
    tokens = tmp_path / "tokens"
    users = ["alice", "bob"]
    shown = dict(zip(users, add_tokens(tokens, *users), strict=True))
    process = start(work, options=["--allow-code", "--tokens", str(tokens)])
    alice, bob = (process.connect(token=shown[user], same_host=False) for user in ["alice", "bob"])
    alice.put(np.ones(3), name="private")
    alice.put(np.full(3, 2.0), name="open", shared=True)
    total = bob.function("total")
    for name in ["private", "private@alice", "missing"]:
        with pytest.raises(farcall.ServerError, match="no data named") as raised:
            total(3, farcall.data(name))
        assert "private@alice" not in str(raised.value) or name == "private@alice"
    assert total(3, farcall.data("open")).sum == 6
    assert total(3, farcall.data("open@alice")).sum == 6
    assert [one.name for one in bob.list_data()] == ["open"]
    opened = bob.handle(name="open")
    assert opened.name == "open@alice"
    with pytest.raises(farcall.ServerError, match="`open@alice` belongs to alice: only alice can"):
        opened.drop()
    with pytest.raises(farcall.Error, match="cannot change"):
        bob.function("twice")(3, opened)
    # The user's own data take precedence.
    bob.put(np.zeros(3), name="open")
    assert total(3, farcall.data("open")).sum == 0
    assert alice.function("total")(3, farcall.data("open")).sum == 6


def test_files_of_a_data_folder_are_data(start, work, tmp_path):
    folder, outside = tmp_path / "data", tmp_path / "outside"
    (folder / "runs").mkdir(parents=True)
    outside.mkdir()
    np.save(outside / "secret.npy", np.ones(3))
    np.save(folder / "runs" / "a.npy", np.arange(4.0))
    np.save(folder / "big.npy", np.arange(4.0).astype(">f8"))
    (folder / "link.npy").symlink_to(outside / "secret.npy")
    (folder / "linked").symlink_to(outside)
    (folder / "bytes").write_bytes(b"abc")
    settings = tmp_path / "farcall.toml"
    settings.write_text(f'[data]\nfolder = "{folder}"\n')
    server = start(work, options=["--allow-code", "--config", str(settings)]).connect()
    total = server.function("total")
    names = [one.name for one in server.list_data()]
    assert names == ["big.npy", "bytes", "runs/a.npy"]
    assert total(4, farcall.data("runs/a.npy")).sum == 6
    assert total(4, farcall.data("big.npy")).sum == 6
    assert bytes(server.get(farcall.data("bytes"))) == b"abc"
    for name in ["link.npy", "linked/secret.npy"]:
        with pytest.raises(farcall.ServerError, match="no data named"):
            total(3, farcall.data(name))
    with pytest.raises(ValueError, match="name"):
        farcall.data("../outside/secret.npy")
    with pytest.raises(farcall.ServerError, match=r"`runs/a.npy` is a file of the data folder"):
        server.handle(name="runs/a.npy").drop()
    new = folder / "runs" / "new.npy"
    np.save(new, np.ones(4))
    new.replace(folder / "runs" / "a.npy")
    wait_until(
        lambda: server.handle(name="runs/a.npy").version == 2,
        what="that the new file has been seen",
    )
    assert total(4, farcall.data("runs/a.npy")).sum == 4


@pytest.fixture
def cluster(work):
    """Three servers of one processor element each, behind a metaserver; its address."""
    with up_local(work) as address:
        yield address


def holders(server, name):
    found = [one for one in server.list_data() if one.name == name]
    return [(one.version, sorted(one.holders)) for one in found]


def test_a_call_goes_where_its_data_are(cluster):
    server = farcall.connect(cluster)
    wait_until(lambda: len(server.ls()) == 2, what="that a server has joined")
    n = 1_000_000
    handle = server.put(np.ones(n), name="atoms")
    wait_until(lambda: holders(server, "atoms"), what="that the metaserver knows of the data")
    [(version, at)] = holders(server, "atoms")
    assert version == 1 and len(at) == 1
    total = server.function("total")
    # Only the location of the data distinguishes the servers so far.
    assert total(n, farcall.data("atoms")).sum == n
    assert holders(server, "atoms") == [(1, at)]
    # A handle of named data works like the name.
    assert total(n, handle).sum == n
    assert server.handle(name="atoms").version == 1
    # So do both in a map, which makes calls at all servers.
    for atoms in (farcall.data("atoms"), handle):
        assert [one.sum for one in total.map([(n, atoms)] * 6).wait()] == [n] * 6
    again = server.put(np.zeros(n), name="atoms")
    assert again.version == 2
    assert [version for version, _ in holders(server, "atoms")] == [2]
    assert total(n, farcall.data("atoms")).sum == 0


def test_data_come_to_a_call_that_cannot_go_to_them(cluster, work):
    server = farcall.connect(cluster)
    wait_until(lambda: len(server.ls()) == 2, what="that a server has joined")
    server.put(np.ones(1000), name="atoms")
    wait_until(lambda: holders(server, "atoms"), what="that the metaserver knows of the data")
    [(_, [holder])] = holders(server, "atoms")
    status = json.loads(shell(cluster, "status", "--json").stdout)
    other = next(one["address"] for one in status["servers"] if one["address"] != holder)
    # A function that only another server has.
    more = work.parent / "more.idl"
    more.write_text(MORE)
    shell(other, "register", str(more))
    wait_until(lambda: len(server.ls()) == 3, what="that the function is known")
    copy = server.function("copy")
    assert copy(n=1000, bytes=8000, x=farcall.data("atoms")).y.sum() == 1000
    # That server now holds the data as well.
    expected = [(1, sorted([holder, other]))]
    wait_until(lambda: holders(server, "atoms") == expected, what="that the copy has the name")
    # Twice in one call.
    shell(other, "register", str(LIBRARIES / "blas.idl"))
    wait_until(lambda: len(server.ls()) > 3, what="that the library is known")
    server.put(np.ones(1000), name="pair")
    pair = farcall.data("pair")
    assert server.function("ddot")(n=1000, x=pair, incx=1, y=pair, incy=1).r == 1000
    server.drop_data("atoms")
    wait_until(lambda: not holders(server, "atoms"), what="that the data have gone")
    with pytest.raises(farcall.ServerError, match=r"no server holds data|no data named"):
        copy(n=1000, bytes=8000, x=farcall.data("atoms"))


def test_the_command_names_data(cluster, tmp_path):
    wait_until(lambda: "total" in shell(cluster, "ls").stdout, what="that a server has joined")
    np.save(tmp_path / "a.npy", np.arange(10.0))
    put = shell(cluster, "put", str(tmp_path / "a.npy"), "--name", "runs/a", "--json")
    put = json.loads(put.stdout)
    assert put["version"] == 1
    wait_until(lambda: "runs/a" in shell(cluster, "ls", "--data").stdout, what="the name")
    called = shell(cluster, "call", "total", "n=10", "x=data:runs/a")
    assert "45.0" in called.stdout
    shell(cluster, "get", "data:runs/a", "-o", str(tmp_path / "b.npy"))
    assert np.array_equal(np.load(tmp_path / "b.npy"), np.arange(10.0))
    listed = json.loads(shell(cluster, "ls", "--data", "--json").stdout)
    [row] = listed["data"]
    assert (row["name"], row["bytes"]) == ("runs/a", 80)
    assert put["server"] in row["holders"]
    status = shell(cluster, "status").stdout
    assert "named data   1\n" in status and "runs/a" in status
    assert "runs/a" in shell(put["server"], "status").stdout
    shell(cluster, "drop", "data:runs/a")
    refused = shell(cluster, "call", "total", "n=10", "x=data:runs/a", check=False)
    assert refused.returncode == 1 and "runs/a" in refused.stderr
    wrong = shell(cluster, "call", "total", "n=10", "x=data:../a", check=False)
    assert wrong.returncode == 2 and "name" in wrong.stderr


def test_a_program_in_c_names_data(start, work, tmp_path):
    process = start(work, options=["--allow-code"])
    source = pathlib.Path(__file__).with_name("named_data.c")
    program = compile_c(source, tmp_path / "named_data")
    assert run(program, process.address).stdout.split() == ["1", "2", "6.0", "12.0", "gone"]


class Grid:
    """A metaserver and two servers, each a process of its own."""

    def __init__(self, work, *options, environment=None):
        """Starts them, and returns when both servers have joined."""
        self.environment = os.environ | (environment or {})
        self.options = options
        self.processes = []
        self.meta, self.address = self._start("meta", "--listen", "127.0.0.1:0", *options)
        member = ["--metaserver", self.address.replace("farcall://", "meta://"), "--pes", "1"]
        serve = ["serve", str(work), "--allow-code", "--listen", "127.0.0.1:0", *member]
        serve += options[: 2 if "--tokens" in options else 0]
        self.servers = dict(reversed(self._start(*serve)) for _ in range(2))

    def _start(self, *words):
        process = subprocess.Popen(
            [FARCALL, *words, "--log", "error"],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self.processes.append(process)
        line = process.stdout.readline().strip()
        return process, line.removeprefix("listening on ").split()[0]

    def restart_meta(self):
        """Kills the metaserver and starts it again where it was."""
        self.meta.kill()
        self.meta.wait(timeout=10)
        where = self.address.removeprefix("farcall://")
        self.meta, _ = self._start("meta", "--listen", where, *self.options)

    def stop(self):
        """Ends what still runs."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait(timeout=10)


def test_data_outlive_their_metaserver_and_a_holder(work):
    grid = Grid(work)
    try:
        server = farcall.connect(grid.address)
        joined = lambda: "total" in shell(grid.address, "ls").stdout  # noqa: E731
        wait_until(joined, what="that the servers have joined")
        server.put(np.ones(1000), name="atoms")
        [(_, [holder])] = holders(server, "atoms")
        grid.restart_meta()
        again = farcall.connect(grid.address)
        known = [(1, [holder])]
        wait_until(
            lambda: holders(again, "atoms") == known,
            what="that the metaserver knows the data again",
        )
        total = again.function("total")
        assert total(1000, farcall.data("atoms")).sum == 1000
        grid.servers[holder].kill()
        grid.servers[holder].wait(timeout=10)
        # The other server may have a copy by now; if not, the error says where the data are.
        try:
            assert total(1000, farcall.data("atoms")).sum == 1000
        except farcall.ServerError as error:
            assert "`atoms" in str(error)
    finally:
        grid.stop()


def test_a_metaserver_tells_nobody_of_what_is_not_shared(work, tmp_path):
    tokens = tmp_path / "tokens"
    users = ["alice", "bob", "node"]
    shown = dict(zip(users, add_tokens(tokens, *users), strict=True))
    options = ["--tokens", str(tokens), "--server-user", "node"]
    grid = Grid(work, *options, environment={"FARCALL_TOKEN": shown["node"]})
    try:
        alice, bob = (
            farcall.connect(grid.address, token=shown[user], same_host=False)
            for user in ["alice", "bob"]
        )
        wait_until(lambda: len(alice.ls()) == 2, what="that the servers have joined")
        alice.put(np.ones(10), name="private")
        alice.put(np.full(10, 2.0), name="open", shared=True)
        assert sorted(one.name for one in alice.list_data()) == ["open", "private"]
        assert [one.name for one in bob.list_data()] == ["open"]
        total = bob.function("total")
        assert total(10, farcall.data("open")).sum == 20
        assert total(10, farcall.data("open@alice")).sum == 20
        for name in ["private", "private@alice"]:
            with pytest.raises(farcall.ServerError, match="no server holds data"):
                total(10, farcall.data(name))
        assert alice.function("total")(10, farcall.data("private")).sum == 10
    finally:
        grid.stop()
