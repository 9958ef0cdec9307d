"""Python functions on servers, as `concurrent.futures` has them."""

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import pickle
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from ._errors import ConnectionError as LostError
from ._errors import Error, LibraryError, NotFoundError, ServerError, UnknownFunction
from ._functions import FunctionPickles
from ._group import JOIN_S, MOST_RETURNS, Cost, next_group, share
from ._native import Function, Future, Handle, Server, connect, is_recording
from ._pickled import (
    CONSTANTS,
    LEAST_BLOCK,
    MOST_BLOCKS,
    RemoteTraceback,
    Task,
    dump,
    load,
    own_modules,
    used_packages,
    versions,
)

# Most tasks of a call, and the seconds that they take at least: a call costs this process and the
# server together about a millisecond.
_MOST_TASKS = 256
_LEAST_S = 0.02
# Where many tasks wait, a call takes this part of those for its server, but not more seconds than
# this: results come at the end of a call.
_PART, _MOST_S = 0.125, 0.1
# Seconds from which tasks count as long: the time between two of them does not matter then, and a
# server without work can take them.
_LONG_S = 0.05
# Bytes of blocks that a server keeps for an executor, and the most blocks: other programs of the
# user need some of the arrays that it may have.
_KEPT_BYTES = 4 << 30
_MOST_KEPT = 500
# Seconds between two looks whether somebody refers to the executor.
_LOOK_S = 2.0


class Executor(concurrent.futures.Executor):
    """Runs Python functions on servers.

    with farcall.Executor("meta://cluster:3718") as executor:
        squares = list(executor.map(lambda x: x * x, range(1000)))

    `servers` is an address or a connection of a server or a metaserver, or a list of them; without
    it, the address is found as by `farcall.connect`. The servers must run functions that users
    send: `farcall serve --pickled`. They must have the same minor version of Python. For imported
    packages with other versions there, the executor warns.

    A task and its result are pickled with cloudpickle, so that lambdas, functions of a notebook and
    those of the program's own modules work. Arrays and other contiguous parts of 64 KiB or more are
    sent to a server once, by their contents, and are read-only in the task.

    Behind a metaserver, servers that join later get tasks, too. If a server is lost, its tasks run
    again at another one, at most `retries` times. A task may thus run twice. When the program ends,
    so do the tasks that were not waited for. An executor to which nothing refers ends after its
    tasks, as `shutdown` without waiting does.
    """

    def __init__(
        self,
        servers: str | Server | Iterable[str | Server] | None = None,
        *,
        retries: int = 2,
    ) -> None:
        """Connects to the servers, and compares their versions of Python and packages."""
        if is_recording():
            raise RuntimeError(
                "an executor needs the results of its first calls at once, and the transaction of "
                "this thread would record them: make the executor before the block"
            )
        self._pickler = _cloudpickle()
        self._functions = FunctionPickles(functools.partial(_dump, self._pickler))
        self._modules = 0
        self._retries = retries
        self._pid = os.getpid()
        # A condition enters and leaves it by code in Python, where Ctrl-C would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting: collections.deque[_Work] = collections.deque()
        # Tasks with the same array share its copy.
        self._blocks: weakref.WeakValueDictionary[bytes, _Block] = weakref.WeakValueDictionary()
        self._unfinished = 0
        self._is_shut = False
        self._failure: BaseException | None = None
        found, grids = _found(servers)
        self._sites = [_Site(server, function) for server, function in found]
        self._starts = collections.Counter(site.server.address for site in self._sites)
        _compare(self._sites)
        self._over = threading.Event()
        # Threads do not keep an executor that nobody else refers to.
        own = weakref.ref(self)
        for grid in grids:
            threading.Thread(target=_watch, args=(own, self._over, *grid), daemon=True).start()
        self._thread = threading.Thread(
            target=_serve, args=(own, self._changed), name="farcall.Executor", daemon=True
        )
        self._thread.start()

    @property
    def _max_workers(self) -> int:
        """The number of tasks that run at once, under the name that Dask reads."""
        return sum(site.pes for site in self._sites) or 1

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> concurrent.futures.Future[Any]:
        """Runs `fn(*args, **kwargs)` at a server. The arguments are read before this returns."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "the executor belongs to the parent of this process: make another one after a fork"
            )
        work = self._work(fn, args, kwargs)
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot submit to an executor after its shutdown")
            if not self._sites:
                raise self._broken()
            self._waiting.append(work)
            self._count(1)
            # A server that ends a call looks for the next one by itself.
            if any(site.is_free for site in self._sites):
                self._changed.notify_all()
        return work.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more tasks, and waits until all have ended.

        With `cancel_futures`, tasks that have not begun are cancelled.
        """
        self._over.set()
        with self._lock:
            self._is_shut = True
            dropped: list[_Work] = []
            if cancel_futures:
                # Those that run again after a failure have begun.
                dropped = [work for work in self._waiting if not work.future.running()]
                begun = [work for work in self._waiting if work.future.running()]
                self._waiting = collections.deque(begun)
            self._count(-len(dropped))
            self._changed.notify_all()
        for work in dropped:
            work.future.cancel()
            work.future.set_running_or_notify_cancel()
        if wait:
            self._thread.join()

    def _work(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> "_Work":
        self._know_modules()
        function = self._functions.of(fn)
        if function is not None and not kwargs and all(type(arg) in CONSTANTS for arg in args):
            return _Work(Task(function, dump((args, kwargs)), ()), [])
        blocks: list[_Block] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            with buffer.raw() as view:
                if view.nbytes < LEAST_BLOCK or len(blocks) == MOST_BLOCKS:
                    return True
                block = _Block(view)
                blocks.append(self._blocks.setdefault(block.digest, block))
            return False

        value = (fn, args, kwargs) if function is None else (args, kwargs)
        pickled = _dump(self._pickler, value, is_small)
        return _Work(Task(function, pickled, tuple(block.digest for block in blocks)), blocks)

    def _know_modules(self) -> None:
        """Has the modules of the program pickled with what is in them."""
        count = len(sys.modules)
        if count != self._modules:
            for module in own_modules():
                self._pickler.register_pickle_by_value(module)
            # Another thread may have asked meanwhile.
            self._modules = count

    def _admit(self, server: Server, function: Function) -> None:
        address = server.address
        with self._lock:
            is_known = any(site.server.address == address for site in self._sites)
            if is_known or self._starts[address] > MOST_RETURNS:
                return
            self._starts[address] += 1
        with contextlib.suppress(Exception):  # such as another version of Python there
            site = _Site(server, function)
            _compare([site])
            with self._lock:
                self._sites.append(site)
                self._changed.notify_all()

    def _count(self, change: int) -> None:
        """Counts the tasks that have not ended. They need the executor, also if nobody holds it."""
        self._unfinished += change
        if self._unfinished:
            _busy.add(self)
        else:
            _busy.discard(self)

    @property
    def _is_over(self) -> bool:
        return self._is_shut and self._unfinished == 0

    def _next(self) -> "_Call | None":
        """The next call, if a server is free."""
        free = [site for site in self._sites if site.is_free]
        if not free or not self._waiting:
            return None
        site = min(free, key=lambda site: site.under_way / site.pes)
        size = self._size(site)
        works: list[_Work] = []
        blocks: dict[bytes, _Block] = {}
        while self._waiting and len(works) < size:
            work = self._waiting[0]
            wanted = blocks | {block.digest: block for block in work.blocks}
            if works and (work.is_alone or works[0].is_alone or len(wanted) > MOST_BLOCKS):
                break
            self._waiting.popleft()
            if not work.begin():
                self._count(-1)
                continue
            works.append(work)
            blocks = wanted
        if not works:
            return None
        site.under_way += 1
        return _Call(site, works, list(blocks.values()), alone=site.under_way == 1)

    def _size(self, site: "_Site") -> int:
        part = share(site.cost, [other.cost for other in self._sites]) / site.pes
        waiting_s = len(self._waiting) * part * (site.cost.entry_s or 0.0)
        group = site.cost.group(_MOST_TASKS, min(_PART * waiting_s, _MOST_S))
        return next_group(group, len(self._waiting), part)

    def _start(self, call: "_Call") -> None:
        try:
            call.start(self._ended)
        except Exception as error:
            self._failed(call, error)

    def _ended(self, call: "_Call", future: Future) -> None:
        """Takes the results of a call, on the thread that waits for calls."""
        try:
            future.result()
            results = load(bytes(call.reply))
        except BaseException as error:
            self._failed(call, error)
            return
        for work, (is_error, pickled) in zip(call.works, results, strict=True):
            work.end(is_error, pickled)
        times = future.times
        with self._lock:
            if times is not None:
                left = times.total - times.exec
                call.site.cost.learn(len(call.works), left, times.exec, alone=call.alone)
            self._release(call, len(call.works))

    def _failed(self, call: "_Call", error: BaseException) -> None:
        """A call has failed. If another server or a task of the call may be the cause, again."""
        over: list[_Work] = []
        with self._lock:
            # A server that ends counts as lost if another one can take its tasks.
            ends = getattr(error, "_begun", None) is not None
            is_elsewhere = any(site is not call.site for site in self._sites)
            is_lost = isinstance(error, LostError) or (ends and is_elsewhere)
            if is_lost and call.site in self._sites:
                self._sites.remove(call.site)
                self._failure = error
            is_stale = call.lacks_blocks(error)
            if is_stale:
                call.site.forget(call.blocks)
            for work in call.works:
                work.tries += is_lost or is_stale
                crashed = isinstance(error, LibraryError) and len(call.works) > 1
                may_again = (is_lost or is_stale) and work.tries <= self._retries
                again = (may_again and self._sites) or crashed
                if again:
                    work.is_alone |= crashed
                    self._waiting.appendleft(work)
                else:
                    over.append(work)
            if not self._sites:
                # None of these is in the call: it waits again there, or is over.
                over.extend(self._waiting)
                self._waiting.clear()
            self._release(call, len(over))
        for work in over:
            work.fail(error)

    def _release(self, call: "_Call", ended: int) -> None:
        call.site.under_way -= 1
        self._count(-ended)
        self._changed.notify_all()

    def _broken(self) -> Exception:
        text = f"the executor has lost all its servers: {self._failure}"
        return concurrent.futures.BrokenExecutor(text)


# Executors with tasks that have not ended.
_busy: set[Executor] = set()


def _serve(own: "weakref.ref[Executor]", changed: threading.Condition) -> None:
    """Hands the tasks of an executor to the servers, until it is shut or nobody refers to it."""
    while True:
        with changed:
            while True:
                executor = own()
                if executor is None or executor._is_over:
                    return
                call = executor._next()
                if call is not None:
                    break
                del executor
                changed.wait(_LOOK_S)
        executor._start(call)
        del executor, call


def _watch(
    own: "weakref.ref[Executor]", over: threading.Event, address: str, function: Function
) -> None:
    """Takes servers that join the metaserver at this address, or come back to it."""
    while not over.wait(JOIN_S):
        executor = own()
        if executor is None:
            return
        # Whatever fails here, the executor goes on with the servers that it has.
        with contextlib.suppress(Exception):
            for server, there in function._everywhere():
                if server.address != address:
                    executor._admit(server, there)
        del executor


def _dump(pickler: Any, value: Any, buffer_callback: Callable[[Any], bool] | None = None) -> bytes:
    pickled: bytes = pickler.dumps(value, protocol=5, buffer_callback=buffer_callback)
    return pickled


class _Block:
    """A large part of the arguments of a task."""

    def __init__(self, view: memoryview) -> None:
        # NumPy binds its LAPACK when it is imported, which must not be before
        # `farcall.offload.enable`.
        import numpy as np  # noqa: PLC0415

        self.data = np.frombuffer(view, np.uint8).copy()
        self.digest = hashlib.blake2b(self.data.data, digest_size=20).digest()


class _Work:
    """A task and its future."""

    def __init__(self, task: Task, blocks: list[_Block]) -> None:
        self.task = task
        self.blocks = blocks
        self.future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self.tries = 0
        self.is_alone = False

    def begin(self) -> bool:
        """Whether the task shall run: it was not cancelled."""
        return self.future.running() or self.future.set_running_or_notify_cancel()

    def end(self, is_error: bool, pickled: bytes) -> None:
        try:
            value = load(pickled)
            if is_error:
                value, text = value
                # Its own `__setattr__` may refuse that, as that of a frozen dataclass does.
                BaseException.__setattr__(value, "__cause__", RemoteTraceback(text))
        except BaseException as error:
            self.fail(error)
            return
        if is_error:
            self.future.set_exception(value)
        else:
            self.future.set_result(value)

    def fail(self, error: BaseException) -> None:
        if self.begin():
            self.future.set_exception(error)


class _Site:
    """A server, and what the executor knows of it."""

    def __init__(self, server: Server, function: Function) -> None:
        self.server = server
        self.function = function
        estimate = function.estimate(**_arguments(b"", []), reply=print)
        self.pes = estimate.processor_elements or 1
        self.under_way = 0
        self.cost = Cost(_LEAST_S)
        self._kept: collections.OrderedDict[bytes, Handle] = collections.OrderedDict()

    @property
    def is_free(self) -> bool:
        """Whether it takes a call: one for each processor element, and as many that travel."""
        entry_s = self.cost.entry_s
        is_long = entry_s is None or entry_s >= _LONG_S
        return self.under_way < (self.pes if is_long else 2 * self.pes)

    def keep(self, block: _Block) -> Handle:
        """The block at the server, which gets it once while there is room for it."""
        # The thread that learns that the server has dropped blocks may forget them meanwhile.
        known = self._kept.pop(block.digest, None)
        handle = self._put(block) if known is None else known
        self._kept[block.digest] = handle
        while known is None and len(self._kept) > 1 and self._is_much():
            self._drop_oldest()
        return handle

    def _drop_oldest(self) -> None:
        with contextlib.suppress(KeyError):  # The other thread has forgotten the last ones.
            self._kept.popitem(last=False)

    def _is_much(self) -> bool:
        bytes_kept = sum(handle.nbytes for handle in list(self._kept.values()))
        return len(self._kept) > _MOST_KEPT or bytes_kept > _KEPT_BYTES

    def _put(self, block: _Block) -> Handle:
        """Stores a block. If the server takes no more arrays of this user, others make room."""
        while True:
            try:
                return self.server.put(block.data)
            except ServerError:
                if not self._kept:
                    raise
            for _ in range((len(self._kept) + 1) // 2):
                self._drop_oldest()

    def forget(self, blocks: list[_Block]) -> None:
        """Lets these blocks be sent again."""
        for block in blocks:
            self._kept.pop(block.digest, None)


class _Call:
    """Tasks that run one after another in one call."""

    def __init__(
        self, site: _Site, works: list[_Work], blocks: list[_Block], *, alone: bool
    ) -> None:
        self.site = site
        self.works = works
        self.alone = alone
        self.reply = bytearray()
        self.blocks = blocks
        # The server keeps them until the call has ended.
        self._handles: list[Handle] = []

    def start(self, ended: Callable[["_Call", Future], None]) -> None:
        """Starts the call, and has `ended` called when it is done."""
        self._handles = [self.site.keep(block) for block in self.blocks]
        digests = [block.digest for block in self.blocks]
        tasks = dump(([tuple(work.task) for work in self.works], digests))
        arguments = _arguments(tasks, self._handles)
        future = self.site.function.call_async(**arguments, reply=self._take)
        future.add_done_callback(lambda future: ended(self, future))

    def lacks_blocks(self, error: BaseException) -> bool:
        """Whether the server has dropped blocks that were unused for long, before the call."""
        return isinstance(error, NotFoundError) and bool(self.blocks)

    def _take(self, *piece: Any) -> None:
        self.reply += piece[1].tobytes()


def _arguments(tasks: bytes, blocks: list[Handle]) -> dict[str, Any]:
    # As above.
    import numpy as np  # noqa: PLC0415

    data = np.frombuffer(tasks, np.uint8)
    nothing = np.empty(0, np.uint8)
    arguments: dict[str, Any] = {"size": data.size, "tasks": data}
    for place in range(MOST_BLOCKS):
        block = blocks[place] if place < len(blocks) else None
        arguments[f"size{place}"] = 0 if block is None else block.nbytes
        arguments[f"block{place}"] = nothing if block is None else block
    return arguments


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # noqa: PLC0415
    except ImportError:
        text = "farcall.Executor needs cloudpickle (pip install cloudpickle), also at the servers"
        raise ImportError(text) from None
    return cloudpickle


def _found(
    servers: str | Server | Iterable[str | Server] | None,
) -> tuple[list[tuple[Server, Function]], list[tuple[str, Function]]]:
    """The servers that run functions of users, each once, and the metaservers that told them."""
    listed: list[str | Server | None] = (
        [servers] if servers is None or isinstance(servers, str | Server) else list(servers)
    )
    if not listed:
        raise ValueError("no server is given")
    found: dict[str, tuple[Server, Function]] = {}
    grids: list[tuple[str, Function]] = []
    for one in listed:
        known = one if isinstance(one, Server) else connect(one)
        try:
            function = known.function("python/run")
        except UnknownFunction:
            raise Error(
                f"{known.address} does not run Python functions that users send; its operator "
                "allows it with `farcall serve --pickled`, or `pickled = true` below [python]"
            ) from None
        there = function._everywhere()
        if any(server.address != known.address for server, _ in there):
            grids.append((known.address, function))
        for server, own in there:
            found.setdefault(server.address, (server, own))
    return list(found.values()), grids


def _compare(sites: list[_Site]) -> None:
    """Compares the versions of Python and of packages, here and at the servers."""
    packages = sorted({*used_packages(), "cloudpickle"})
    here = versions(packages)
    for site in sites:
        told: list[str] = []
        check = site.server.function("python/versions")
        check(packages=json.dumps(packages), tell=told.append)
        there: dict[str, str] = json.loads(told[0])
        if _minor(here["Python"]) != _minor(there["Python"]):
            raise Error(
                f"{site.server.address} has Python {there['Python']}, and this program has "
                f"{here['Python']}: functions can be sent only within one minor version"
            )
        others = [
            f"{name} {there.get(name, 'none')} instead of {version}"
            for name, version in here.items()
            if name != "Python" and there.get(name) != version
        ]
        if others:
            text = f"{site.server.address} has other packages: {', '.join(others)}"
            warnings.warn(text, stacklevel=3)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
