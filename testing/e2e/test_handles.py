"""Stored arrays, with real processes."""

import concurrent.futures
import gc
import json
import pickle
import threading

import farcall
import numpy as np
import pytest
from programs import command, compile_c, run
from servers import FARCALL, LIBRARIES, ROOT, wait_until

LIBC = """\
Module test;
Library "libc.so.6";
Define copy(OUT char out[n], IN char in[n], IN long n) Calls "C" memcpy(out, in, n);
Define fill(INOUT char x[n], IN int value, IN long n) Calls "C" memset(x, value, n);
Define spoil(INOUT char x[n], IN long n) Calls "C" abort();
Define nap(INOUT char x[n], IN int us, IN long n) Calls "C" usleep(us);
"""


@pytest.fixture
def libc(tmp_path):
    path = tmp_path / "libc.idl"
    path.write_text(LIBC)
    return path


@pytest.mark.parametrize("same_host", [True, False], ids=["unix", "tcp"])
def test_a_matrix_is_put_used_and_got(library_server, same_host):
    server = library_server.connect(same_host=same_host)
    rng = np.random.default_rng(1)
    n = 40
    a, b = rng.random((n, n)) + n * np.eye(n), rng.random(n)
    h = server.put(a, order="F")
    assert (h.shape, h.dtype, h.order, h.nbytes) == ((n, n), np.float64, "F", 8 * n * n)
    assert np.array_equal(h.get(), a)
    result = server.function("dgesv")(n=n, nrhs=1, a=h, lda=n, b=b.copy(), ldb=n)
    assert result.a is h
    assert np.allclose(a @ result.b.ravel(), b)
    factors = server.get(h)
    again = b.copy()
    dgetrs = server.function("dgetrs")
    solved = dgetrs("N", n, 1, h, n, result.ipiv, again, n)
    assert np.allclose(a @ solved.b.ravel(), b)
    assert np.array_equal(server.get(h), factors), "it was only read"
    assert np.array_equal(np.asarray(h), factors)
    assert np.asarray(h, np.float32).dtype == np.float32
    h.drop()
    with pytest.raises(farcall.NotFoundError, match="no array") as raised:
        server.get(h)
    assert raised.value.fault == "caller"


BYTES = """\
Module bytes;
Library "libc.so.6";
Define plain(OUT char out[n], IN char x[n], IN long n) Calls "C" memcpy(out, x, n);
Define signed(OUT int8_t out[n], IN int8_t x[n], IN long n) Calls "C" memcpy(out, x, n);
Define unsigned(OUT uint8_t out[n], IN uint8_t x[n], IN long n) Calls "C" memcpy(out, x, n);
"""


def test_bytes_keep_their_sign(start, tmp_path):
    path = tmp_path / "bytes.idl"
    path.write_text(BYTES)
    server = start(path).connect()
    takes = {"u1": "unsigned", "i1": "signed", "S1": "plain"}
    for dtype, own in takes.items():
        array = np.array([1, 200, 77], np.uint8).view(dtype)
        handle = server.put(array)
        assert handle.dtype == array.dtype and handle.get().dtype == array.dtype
        for function in {own, "plain"}:
            result = server.function(function)(x=handle, n=3)
            assert result.out.tobytes() == array.tobytes()
        for function in set(takes.values()) - {own, "plain"}:
            if dtype == "S1":
                server.function(function)(x=handle, n=3)
                continue
            with pytest.raises(farcall.ArgumentError, match=f"expected {function} char"):
                server.function(function)(x=handle, n=3)


def test_bytes_of_python_are_an_array_of_bytes(start, tmp_path):
    path = tmp_path / "bytes.idl"
    path.write_text(BYTES)
    server = start(path).connect()
    for name in ("plain", "signed", "unsigned"):
        function = server.function(name)
        assert function(x=b"\x00\xc8M", n=3).out.tobytes() == b"\x00\xc8M"
        assert function(x=b"", n=0).out.tobytes() == b""
        with pytest.raises(farcall.ArgumentError, match=r"shape \(4,\)"):
            function(x=b"abc", n=4)
    with pytest.raises(farcall.ArgumentError, match="given str"):
        server.function("unsigned")(x="abc", n=3)


def test_nobody_gets_the_transpose(server):
    square = np.arange(9.0).reshape(3, 3)
    dgemv = server.function("dgemv")
    x = np.ones(3)

    def times(a):
        y = np.zeros(3)
        return dgemv("N", 3, 3, 1.0, a, 3, x, 1, 0.0, y, 1).y

    assert np.allclose(times(server.put(np.asfortranarray(square))), square @ x)
    rows = server.put(square)
    assert rows.order == "C"
    with pytest.raises(
        farcall.ArgumentError, match=r"expected .* in columns, .* in rows; put it again in columns"
    ):
        times(rows)
    with pytest.raises(farcall.ArgumentError, match="expected double of shape"):
        times(server.put(np.zeros((4, 3), order="F")))
    with pytest.raises(farcall.ArgumentError, match=r"given float.*; put it again as double$"):
        times(server.put(np.zeros((3, 3), np.float32, order="F")))
    with pytest.raises(farcall.ArgumentError, match="array of numbers"):
        server.put(np.array(["text"]))
    with pytest.raises(
        farcall.ArgumentError, match=r'given bool .* as in `array.astype\("uint8"\)`'
    ):
        server.put(np.array([True, False]))
    y = server.put(np.zeros(3))
    with pytest.raises(farcall.ArgumentError, match="uses it for another"):
        dgemv("N", 3, 3, 1.0, np.asfortranarray(square), 3, y, 1, 0.0, y, 1)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i2", ">u8", ">c16"])
def test_the_bytes_of_elements_may_have_the_other_order(server, dtype):
    square = np.arange(6).reshape(2, 3).astype(dtype)
    for array in (square, np.asfortranarray(square), square[:, ::2], square[0, 0]):
        handle = server.put(array)
        assert handle.dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(handle.get(), array)


def test_results_stay_and_are_chained_without_waiting(start, libc):
    server = start(libc).connect()
    n = 100_000
    copy, fill = server.function("copy"), server.function("fill")
    x = server.put(np.zeros(n, np.int8))
    futures = []
    for value in range(20):
        futures.append(fill.call_async(x, value, n))
        futures.append(copy.call_async(farcall.keep(), x, n))
    kept = [future.result(timeout=30).out for future in futures[1::2]]
    for value, handle in enumerate(kept):
        assert (handle.get().view(np.int8) == value).all()
    last = copy(farcall.keep(stays=True), kept[-1], n).out
    assert len(server.handles()) == 22
    del futures, kept, handle
    gc.collect()
    assert {handle.id for handle in server.handles()} == {x.id, last.id}


def test_chains_keep_their_order_beside_large_calls(start, tmp_path):
    path = tmp_path / "libc.idl"
    look = 'Define look(IN char x[n], IN int us, IN long n) Calls "C" usleep(us);\n'
    path.write_text(LIBC + look)
    server = start(path).connect(same_host=False)
    look, fill = server.function("look"), server.function("fill")
    n, large = 1000, np.ones(32 << 20, np.int8)
    for value in range(1, 31):
        x = server.put(np.zeros(n, np.int8))
        looked = look.call_async(large, 1000, large.size)
        filled = fill.call_async(x, value, n)
        assert x.get()[0] == value
        x.drop()
        looked.result()
        filled.result()


def test_arrays_keep_their_order_behind_calls_that_wait_for_a_place(start, libc, tmp_path):
    settings = tmp_path / "farcall.toml"
    settings.write_text("[limits]\ncalls_per_connection = 8\n")
    server = start(libc, options=["--config", str(settings)]).connect()
    nap, fill = server.function("nap"), server.function("fill")
    n = 10
    naps = [nap.call_async(np.zeros(n, np.int8), 20_000, n) for _ in range(20)]
    x = server.put(np.zeros(n, np.int8))
    more = [nap.call_async(np.zeros(n, np.int8), 20_000, n) for _ in range(20)]
    filled = fill.call_async(x, 7, n)
    assert x.get().tolist() == [7] * n
    last = fill.call_async(x, 8, n)
    x.drop()
    for call in [*naps, *more, filled, last]:
        call.result()


@pytest.mark.parametrize("memory", [None, 64_000_000])
def test_arrays_keep_their_order_behind_large_calls(start, tmp_path, memory):
    path, settings = tmp_path / "libc.idl", tmp_path / "farcall.toml"
    large = "INOUT char x[n], IN int value, IN long n, IN char more[m], IN long m"
    path.write_text(f'{LIBC}Define fill2({large}) Calls "C" memset(x, value, n);\n')
    settings.write_text(f"[limits]\nmemory = {memory}\n" if memory else "")
    server = start(path, options=["--config", str(settings)]).connect(same_host=False)
    fill, fill2 = server.function("fill"), server.function("fill2")
    n, more = 1000, np.ones(40_000_000, np.int8)
    x, y, *others = (server.put(np.zeros(n, np.int8)) for _ in range(6))
    # The server takes the data of two calls of a connection at a time.
    calls = [fill2.call_async(other, 1, n, more, more.size) for other in others]
    calls.append(fill2.call_async(x, 7, n, more, more.size))
    calls.append(fill.call_async(x, 9, n))
    calls.append(fill2.call_async(y, 7, n, more, more.size))
    assert y.get().tolist() == [7] * n
    assert x.get().tolist() == [9] * n
    for call in calls:
        call.result()


def test_more_arrays_are_fetched_than_the_server_allows_at_once(start, libc, tmp_path):
    settings = tmp_path / "farcall.toml"
    settings.write_text("[limits]\ncalls_per_connection = 8\n")
    server = start(libc, options=["--config", str(settings)]).connect()
    array = np.arange(1 << 20)
    x = server.put(array)
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        fetched = pool.map(lambda _: x.get(), range(50))
        assert all(np.array_equal(one, array) for one in fetched)


def test_arrays_that_others_drop_meanwhile_are_not_listed(start, libc):
    server = start(libc)
    ends = threading.Event()

    def put_and_drop():
        other = server.connect()
        while not ends.is_set():
            handles = [other.put(np.zeros(10)) for _ in range(50)]
            for handle in handles:
                handle.drop()

    thread = threading.Thread(target=put_and_drop)
    thread.start()
    try:
        client = server.connect()
        stays = client.put(np.zeros(10))
        for _ in range(300):
            assert stays.id in {handle.id for handle in client.handles()}
    finally:
        ends.set()
        thread.join()


def test_what_a_failed_call_was_to_write_is_not_read(start, libc):
    server = start(libc).connect()
    n = 1000
    x = server.put(np.ones(n, np.int8))
    spoilt = server.function("spoil").call_async(x, n)
    read = server.function("copy").call_async(np.empty(n, np.int8), x, n)
    with pytest.raises(farcall.LibraryError):
        spoilt.result(timeout=30)
    with pytest.raises(farcall.ArgumentError, match="contents are undefined"):
        read.result(timeout=30)
    with pytest.raises(farcall.ArgumentError, match=r"the request uses .* contents are undefined"):
        server.get(x)
    server.function("copy")(x, np.full(n, 3, np.int8), n)
    assert (server.get(x).view(np.int8) == 3).all()


def test_arrays_go_with_their_connection_unless_they_stay(start, libc):
    process = start(libc)
    first, second = process.connect(), process.connect()
    gone, stays = first.put([1.0, 2.0]), first.put([3.0], stays=True)
    assert np.array_equal(second.handle(gone.id).get(), [1.0, 2.0])
    assert np.array_equal(pickle.loads(pickle.dumps(gone)).get(), [1.0, 2.0])
    ids = gone.id, stays.id
    del gone, stays, first
    gc.collect()
    wait_until(lambda: len(second.handles()) == 1, what="its arrays are gone")
    assert [handle.id for handle in second.handles()] == [ids[1]]
    anybody = process.connect(same_host=False)
    assert anybody.handles() == []
    for name in (ids[1], "0" * 32):
        with pytest.raises(farcall.ServerError, match="no array"):
            anybody.handle(name)
    second.handle(ids[1]).drop()
    assert second.handles() == []


def test_memory_is_bounded_and_what_was_used_least_goes_to_the_disk(start, libc, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text("[data]\nmemory = 3000000\nper_user = 5\n")
    options = ["--config", settings, "--state", tmp_path / "state"]
    process = start(libc, options=list(map(str, options)))
    server = process.connect()
    size = 1_000_000
    arrays = [np.full(size, value, np.int8) for value in range(5)]
    handles = [server.put(array) for array in arrays]
    # A later array comes while the disk still takes the one before it.
    wait_until(lambda: [handle.on_disk for handle in handles] == [True] * 2 + [False] * 3)
    with pytest.raises(farcall.ServerError, match=r"data\.per_user"):
        server.put(arrays[0])
    with pytest.raises(farcall.ServerError, match=r"data\.memory"):
        server.put(np.zeros(4_000_000, np.int8))
    fill = server.function("fill")
    for value, handle in enumerate(handles):
        assert (handle.get().view(np.int8) == value).all()
    fill(handles[0], 7, size)
    for handle in handles[1:4]:
        handle.get()
    wait_until(lambda: handles[0].on_disk, what="the changed one has left")
    assert (handles[0].get().view(np.int8) == 7).all()
    files = list((tmp_path / "state" / "arrays").iterdir())
    assert files
    for handle in handles:
        handle.drop()
    folder = tmp_path / "state" / "arrays"
    wait_until(lambda: not list(folder.iterdir()), what="no file is left")


def test_without_state_arrays_leave_memory_for_a_folder_that_ends_with_the_server(
    start, libc, tmp_path
):
    settings, folder = tmp_path / "settings.toml", tmp_path / "temporary"
    folder.mkdir()
    settings.write_text(f"[data]\nmemory = 3000000\n[workers]\nfolder = '{folder}'\n")
    process = start(libc, options=["--config", str(settings)])
    server = process.connect()
    handles = [server.put(np.full(1_000_000, value, np.int8)) for value in range(5)]
    # A later array comes while the disk still takes the one before it.
    wait_until(lambda: [handle.on_disk for handle in handles] == [True] * 2 + [False] * 3)
    assert list(folder.glob("*/*.array"))
    for value, handle in enumerate(handles):
        assert (handle.get().view(np.int8) == value).all()
    process.stop()
    assert not list(folder.iterdir())


def test_arrays_that_neither_memory_nor_disk_takes_are_an_error(start, libc, tmp_path):
    settings, folder = tmp_path / "settings.toml", tmp_path / "temporary"
    folder.mkdir()
    settings.write_text(f"[data]\nmemory = 3000000\n[workers]\nfolder = '{folder}'\n")
    server = start(libc, options=["--config", str(settings)]).connect()
    kept = [server.put(np.zeros(1_000_000, np.int8)) for _ in range(3)]
    moved = folder.rename(tmp_path / "elsewhere")
    with pytest.raises(farcall.ServerError, match=r"data\.memory.*the disk accepts none: "):
        server.put(np.zeros(1_000_000, np.int8))
    moved.rename(folder)
    assert all((handle.get().view(np.int8) == 0).all() for handle in kept)


def test_arrays_make_way_for_calls(start, libc, tmp_path):
    settings, folder = tmp_path / "settings.toml", tmp_path / "temporary"
    folder.mkdir()
    limits = "[limits]\nmemory = 8000000\n[data]\nmemory = 8000000\n"
    settings.write_text(f"{limits}[workers]\nfolder = '{folder}'\n")
    server = start(libc, options=["--config", str(settings)]).connect(same_host=False)
    fill, large = server.function("fill"), np.zeros(6_000_000, np.int8)
    kept = [server.put(np.full(1_500_000, value, np.int8)) for value in range(4)]
    assert not any(handle.on_disk for handle in kept)
    fill(large, 5, large.size)
    assert (large == 5).all()
    assert all(handle.on_disk for handle in kept[:3])
    for value, handle in enumerate(kept):
        assert (handle.get().view(np.int8) == value).all()
    # A call that nobody's end would give memory is refused.
    moved = folder.rename(tmp_path / "elsewhere")
    match = r"fill: 6000000 bytes are needed.* stored arrays use [0-9]+: drop.* accepts none: "
    with pytest.raises(farcall.ServerError, match=match):
        fill(large, 6, large.size)
    moved.rename(folder)
    for handle in kept:
        handle.drop()
    fill(large, 7, large.size)
    assert (large == 7).all()


def test_calls_wait_until_memory_has_room_for_their_arrays(start, tmp_path):
    settings, library = tmp_path / "settings.toml", tmp_path / "slow.py"
    settings.write_text("[limits]\nmemory = 8000000\n[data]\nmemory = 8000000\n")
    library.write_text(
        "import time, farcall\n"
        "@farcall.library('total(IN int n, IN double x[n], OUT double y[1])')\n"
        "def total(x):\n    time.sleep(0.2)\n    return [x.sum()]\n"
        "@farcall.library('both(IN int n, IN double x[n], IN double z[n], OUT double y[1])')\n"
        "def both(x, z):\n    return [x.sum() + z.sum()]\n"
    )
    server = start(library, options=["--config", str(settings), "--workers", "8"]).connect()
    total, size = server.function("total"), 187_500
    kept = [server.put(np.full(size, float(value))) for value in range(8)]
    for _ in range(2):
        calls = [total.call_async(size, handle) for handle in kept]
        assert [call.result().y for call in calls] == [size * value for value in range(8)]
    # Calls get an array each, and wait for those of others.
    both = server.function("both")
    pairs = [(first, second) for first in range(8) for second in range(first)]
    calls = [both.call_async(size, kept[first], kept[second]) for first, second in pairs]
    assert [call.result().y for call in calls] == [size * sum(pair) for pair in pairs]


def test_from_the_shell(library_server, tmp_path):
    def farcall_(*words, status=0):
        words = [FARCALL, *map(str, words), "--server", library_server.address]
        ran = run(*words, cwd=tmp_path)
        assert ran.returncode == status, ran.stderr
        return ran.stdout if status == 0 else ran.stderr

    n = 30
    rng = np.random.default_rng(2)
    a, b = rng.random((n, n)) + n * np.eye(n), rng.random(n)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    rows = farcall_("put", "a.npy").strip()
    held = farcall_("put", "a.npy", "--order", "columns").strip()
    solve = ["call", "dgesv", f"n={n}", "nrhs=1", f"lda={n}", "b=@b.npy", f"ldb={n}"]
    assert "in rows" in farcall_(*solve, f"a=handle:{rows}", status=1)
    # The factors remain at the server, and the next call uses them.
    farcall_(*solve, f"a=handle:{held}", "-o", "b=x.npy", "-o", "ipiv=p.npy")
    assert np.allclose(a @ np.load(tmp_path / "x.npy").ravel(), b)
    again = ["call", "dgetrs", "trans=N", *solve[2:], f"a=handle:{held}", "ipiv=@p.npy"]
    farcall_(*again, "-o", "b=y.npy")
    assert np.array_equal(np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"))
    assert "farcall data get" in farcall_(*solve, f"a=handle:{held}", "-o", "a=a2.npy", status=2)
    # A file that cannot be written costs no other result of the call.
    full = ["a=@a.npy", "-o", "ipiv=/dev/full", "-o", "b=kept.npy", "--trace-out", "/dev/full"]
    assert "No space left" in farcall_(*solve, *full, status=1)
    assert np.load(tmp_path / "kept.npy").shape == np.load(tmp_path / "x.npy").shape
    listed = {array["id"]: array for array in json.loads(farcall_("get", "--json"))["arrays"]}
    assert listed[held]["shape"] == [n, n] and listed[held]["order"] == "columns"
    assert np.array_equal(library_server.connect().handle(rows).get(), a)
    farcall_("get", rows, "-o", "back.npy")
    shown = json.loads(farcall_("get", rows, "--json"))
    assert (shown["shape"], shown["file"]) == ([n, n], None)
    assert np.array_equal(shown["values"], a)
    assert np.array_equal(np.load(tmp_path / "back.npy"), a)
    farcall_("drop", rows, held)
    assert "no array" in farcall_("get", rows, status=1)
    assert "farcall data list" in farcall_("get", "not-an-id", status=2)


def test_a_handle_cannot_be_submitted(start, tmp_path):
    server = start(LIBRARIES / "blas.idl", options=["--state", str(tmp_path / "state")]).connect()
    x = server.put([1.0, 2.0])
    with pytest.raises(farcall.ArgumentError, match="does not survive a restart of the server"):
        server.function("ddot").submit(2, x, 1, [1.0, 1.0], 1)


def test_from_c(library_server, tmp_path):
    program = compile_c(ROOT / "testing" / "e2e" / "handles.c", tmp_path / "handles")
    ran = run(program, library_server.address)
    assert ran.returncode == 0, ran.stdout
    assert "in columns, given double of shape" in ran.stdout
    assert "the array has 32 bytes, given 1" in ran.stdout
    assert "there is no array" in ran.stdout
    assert ran.stdout.count("is not the kind of a number") == 3
    assert "there is no session -5" in ran.stdout


@pytest.mark.parametrize("source", ["handles.f90", "Handles.java"])
def test_from_other_languages(library_server, tmp_path, source):
    """Arguments are at the server before the call, in every language."""
    program = command(ROOT / "testing" / "e2e" / source, tmp_path)
    ran = run(*program, library_server.address)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_user_who_drops_many_arrays_stops_nobody(start, libc, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text("[limits]\nmemory = 8000000\n")
    process = start(libc, options=["--config", str(settings)])
    server = process.connect()
    copy = server.function("copy")
    handles = [server.put(np.full(8, index % 100, np.int8)) for index in range(600)]
    for index, handle in enumerate(handles):
        assert copy(in_=handle, n=8).out.tobytes() == bytes([index % 100] * 8)
    for handle in handles:
        handle.drop()
    # This takes the memory of all of them, which the worker has mapped.
    large = np.ones(3_500_000, np.int8)
    assert copy(in_=large, n=large.size).out.tobytes() == large.tobytes()
    assert process.connect().call("copy", in_=large[:8], n=8).out.tobytes() == bytes([1] * 8)
