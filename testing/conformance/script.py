"""The call script in Python: its output must equal script.txt. The server is the first argument."""

import asyncio
import pathlib
import sys

import farcall
import numpy as np

server = farcall.connect(sys.argv[1])


def function(name):
    return server.function(f"conformance/{name}")


def show(name, values):
    """Numbers times 100, so that every language prints them alike."""
    print(f"{name}:", *(round(100 * float(value)) for value in np.atleast_1d(values)))


def arrays():
    values, y = np.zeros(6), np.array([10.0, 20, 30])
    function("scalars")("A", -2, 300000, 5_000_000_000, 1.5, -0.25, values)
    show("scalars", values)
    function("axpy")(3, 2.0, np.array([1.0, 2, 3]), y)
    show("axpy", y)
    sums = function("types")(
        n=3,
        s=np.array([10, -20, 30], np.int16),
        f=np.array([1.5, 2.5, 3.5], np.float32),
        c=np.array([64, 11, 96], np.int8),
    ).sums
    print("types:", *sums)
    a = np.arange(1, 7, dtype=np.int32).reshape(2, 3)
    function("section")(2, 3, a)
    print("section:", *a.ravel())
    shrunk = function("shrunk")(size=8, start=1, end=7, step=2, x=np.arange(8.0))
    show("shrunk", shrunk.sum)


def kinds():
    greeting = function("greet")(greeting="hello", name="world", room=32)
    text = bytes(greeting.text).split(b"\0")[0].decode()
    print(f"greet: {text} ({int(greeting.length)})")
    joined = function("join")(n=3, words=["one", "", "three"], between="+")
    text = bytes(joined.text).split(b"\0")[0].decode()
    print(f"join: {text} ({int(joined.length)})")
    parts = function("split")(text="one,,three,a dozen characters", at=",", n=4)
    print(f"split: {'|'.join(parts.words)} ({parts.count})")
    words = ["one", "two full", ""]
    assert function("capitals")(3, 8, words).words is words
    print("capitals:", "|".join(words))
    z = np.array([1, 2j])
    conjugate = function("rotate")(n=2, by=1j, z=z, w=1.5 + 2.5j).conjugate
    parts = [part for value in z for part in (value.real, value.imag)]
    print("rotate:", *(round(100 * part) for part in parts), end=" / ")
    print(round(100 * complex(conjugate).real), round(100 * complex(conjugate).imag))
    show("sort", function("sort")(n=4, x=np.array([5.0, -3, 2, 1])).sorted)
    show("dot", function("dot")(n=3, x=np.array([1.0, 2, 3]), y=np.array([4.0, 5, 6])).r)
    grid = function("grid")(rows=3, columns=2).a
    assert grid.shape == (3, 2) and grid[2, 0] == 31
    show("grid", grid.ravel(order="F"))


def failing(what, body):
    words = {
        farcall.ArgumentError: "argument",
        farcall.UnknownFunction: "unknown function",
        farcall.LibraryError: "library",
    }
    try:
        body()
    except farcall.Error as error:
        named = [word for kind, word in words.items() if isinstance(error, kind)]
        print(f"{what}: {named[0] if named else type(error).__name__}")


def files():
    upper = function("upper")
    moved = upper(text=pathlib.Path("text"), capitals="capitals", tally="tally")
    print(f"files: {moved.bytes} bytes")
    try:
        upper("nothing", "new", "tally")
    except FileNotFoundError as error:
        assert error.filename == "nothing"
        print("no such file: argument")


def objects():
    with server.new("conformance/Counter") as one, server.new("Counter") as other:
        values = [one.add(3).value, other.add(7).value, one.add(7).value]
    print("objects:", *map(int, values))
    failing("method of no object", lambda: function("Counter.add")(1))


def errors():
    x, y = np.array([1.0, 2, 3]), np.array([4.0, 5, 6])
    dot = function("dot")
    failing("wrong argument", lambda: dot(n=3, x=x[:2], y=y))
    failing("unknown function", lambda: function("nothing"))
    failing("crash", lambda: function("crash")(1))
    show("after the crash", dot(n=3, x=x, y=y).r)


def several():
    nap = function("nap")
    futures = [nap.call_async(ms=10 * (i + 1)) for i in range(3)]
    print("several at once:", *(int(future.result(timeout=30).slept) for future in futures))

    async def first_come():
        calls = [nap.call_async(ms=1) for _ in range(3)]
        return [await each for each in asyncio.as_completed([wait(call) for call in calls])]

    async def wait(call):
        return await call

    print(f"wait any: {len(asyncio.run(first_come()))} of 3")

    future = nap.call_async(ms=300)
    try:
        future.result(timeout=0.01)
    except farcall.TimeoutError:
        print("time-out: running", end=", ")
    print("then", int(future.result(timeout=30).slept))

    future = nap.call_async(ms=60000)
    future.cancel()
    print("cancel:", "cancelled" if future.cancelled() else "ended")


arrays()
kinds()
files()
objects()
errors()
several()
