"""Many calls of one function, on all servers that have it."""

import asyncio
import collections
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from numbers import Real
from typing import Any

from ._group import JOIN_S, MOST_RETURNS, Cost, Stack, Written, checked, next_group, share
from ._native import Data, Function, Future, Handle, Source, Times
from ._progress import bar_class, is_shown

# Groups at a server: one computes while the other travels.
_GROUPS = 2
# The most entries of a group: calls that are under way together, and entries of one call.
_MOST_CALLS = 64
_MOST_ENTRIES = 1024

# What calls with lists have cost in this process, by the address of the server, the function and
# the numbers that all entries share, and how many of these costs are kept.
_Key = tuple[object, ...]
_known: dict[_Key, Cost] = {}
_MOST_KNOWN = 1024

# So many calls are looked at ahead, for one whose files a server has.
_WINDOW = 256
# How often a server that waits for a call looks at what else has happened.
_LOOK_S = 0.2
# The same while the caller's iterator is asked, and how long a part of a group waits for the rest.
_PULL_S = 0.01

_Entry = tuple[int, Any]
_Call = tuple[list[_Entry], Future]
_Homes = frozenset[int]
_Functions = list[tuple[str, Function]]


class Sweep:
    """The calls of `Function.map`, which start at once.

    Iterate over a sweep to get the results in the order of the calls, each when it is complete. A
    loop that is left early does not end the sweep: `cancel` does.
    """

    def __init__(
        self,
        functions: _Functions,
        calls: Iterable[Any],
        fixed: Mapping[str, Any],
        progress: bool | None,
        group: Any,
        holders: Callable[[], dict[str, list[str]]] = dict,
        joined: Callable[[], _Functions] | None = None,
        whole: Function | None = None,
    ) -> None:
        """Starts a thread for each server, which comes with its address.

        `holders` tells which servers have the files of data folders, and `joined` which servers
        have the function meanwhile. `whole` is the function of the metaserver, if there is one.
        """
        self.results: list[Any] = []
        """The results so far, in the order of the calls; `None` for calls that have not ended."""
        self.errors: dict[int, BaseException] = {}
        """Why calls have failed, by their number."""
        self._group = checked(group)
        self._calls = enumerate(calls)
        self._total = len(calls) if isinstance(calls, Sized) else None
        self._left = self._total
        self._fixed = dict(fixed)
        self._written = Written(functions[0][1], self._fixed)
        # How several entries go into one call, from the first entry on.
        self._stack: Stack | None = None
        self._ended: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done: set[int] = set()
        # What the threads share.
        # A condition enters and leaves it by code in Python, where Ctrl-C would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Calls to make again, and the servers where they have failed or waited.
        self._again: collections.deque[tuple[int, _Entry]] = collections.deque()
        # Servers without a call, while other servers have calls.
        self._idle: set[int] = set()
        # Servers that could not begin with a call; they get no waiting call of another one.
        self._slow: set[int] = set()
        # Calls that no server has taken yet, and the servers that have the files which they read.
        self._later: collections.deque[tuple[_Homes, _Entry]] = collections.deque()
        # The servers by address; one that comes back has another number.
        self._places: dict[str, int] = {}
        self._starts: collections.Counter[str] = collections.Counter()
        self._holders = holders
        self._whole = whole
        self._files: dict[str, list[str]] | None = None
        self._exhausted = False
        # How many calls servers want of the caller's iterator, which a thread of its own asks.
        self._asked_for = 0
        self._asked = threading.Condition(self._lock)
        self._cancelled = False
        self._outstanding = 0
        self._serving = 0
        # By the number of the server; those of lost servers are removed.
        self._costs: dict[int, Cost] = {}
        self._shared = tuple(sorted((k, v) for k, v in fixed.items() if isinstance(v, Real)))
        self._keys: list[_Key] = []
        self._failure: BaseException | None = None
        shows = is_shown() if progress is None else progress
        name = functions[0][1].name
        self._bar = bar_class()(total=self._total, unit="call", desc=name) if shows else None
        # Threads whose end was not seen yet, and those that have not ended.
        self._threads = self._running = 0
        self._over = threading.Event()
        try:
            with self._lock:
                for place, function in functions:
                    self._admit(place, function)
            threading.Thread(target=self._ask, args=(functions[0][1],), daemon=True).start()
            if joined is not None:
                threading.Thread(target=self._watch, args=(joined,), daemon=True).start()
        except BaseException:
            # The system gives no thread, or Ctrl-C has come: those that have started end.
            self.cancel()
            raise

    def _admit(self, place: str, function: Function) -> None:
        """Starts the thread of a server, which waits for the lock at first."""
        server = len(self._keys)
        thread = threading.Thread(target=self._serve, args=(function, server), daemon=True)
        thread.start()
        self._keys.append((place, function.name, *self._shared))
        self._places[place] = server
        self._starts[place] += 1
        self._costs[server] = Cost() if self._stack is None else self._known_cost(server)
        self._serving += 1
        self._threads += 1
        self._running += 1

    def _watch(self, joined: Callable[[], _Functions]) -> None:
        """Has servers that join while the sweep runs make calls, too."""
        while not self._over.wait(JOIN_S):
            # Whatever fails here, the sweep goes on with the servers that it has.
            with contextlib.suppress(Exception):
                for place, function in joined():
                    with self._lock:
                        if self._is_wanted(place):
                            # It may have files that no other server has.
                            self._files = None
                            self._admit(place, function)

    def _is_wanted(self, place: str) -> bool:
        """Whether a server that is there makes no calls, and shall make some."""
        goes_on = self._serving > 0 and self._running > 0 and not self._cancelled
        serves = self._places.get(place) in self._costs
        return goes_on and not serves and self._starts[place] <= MOST_RETURNS

    def __len__(self) -> int:
        """The number of calls, if it is known."""
        if self._total is None:
            raise TypeError("the number of calls is not counted: they come from an iterator")
        return self._total

    def __iter__(self) -> Iterator[Any]:
        """The results in the order of the calls. If a call has failed, its error is raised."""
        number = 0
        while True:
            while number not in self._done:
                if self._wait() is None:
                    # Every call has ended, and another thread may have been told of this one.
                    if number >= len(self.results):
                        return
                    break
            if number in self.errors:
                self.cancel()
                raise self._error_of(number)
            yield self.results[number]
            number += 1

    def _error_of(self, number: int) -> BaseException:
        """Why a call has failed; if it was given up, what the sweep has failed of."""
        error = self.errors[number]
        is_given_up = isinstance(error, asyncio.CancelledError)
        return self._failure if is_given_up and self._failure is not None else error

    def as_completed(self) -> Iterator[tuple[int, Any]]:
        """The number and the result of each call, in the order in which the calls end.

        Calls that fail are left out; `errors` has them.
        """
        for known in sorted(self._done - self.errors.keys()):
            yield known, self.results[known]
        while (number := self._wait()) is not None:
            if number not in self.errors:
                yield number, self.results[number]

    def wait(self) -> list[Any]:
        """Waits for all calls and returns their results; raises the first error at the end."""
        while self._wait() is not None:
            pass
        if self.errors:
            raise self.errors[min(self.errors)]
        return self.results

    def cancel(self) -> None:
        """Makes no more calls, and gives up those that are under way."""
        with self._lock:
            self._cancelled = True
            self._changed.notify_all()
            self._asked.notify()

    def __repr__(self) -> str:
        """The progress of the sweep."""
        total = "" if self._total is None else f" of {self._total}"
        return f"<sweep: {len(self._done)}{total} calls done, {len(self.errors)} failed>"

    def _wait(self) -> int | None:
        """The number of the next call that ends; `None` when all have."""
        try:
            while self._threads > 0:
                number = self._ended.get()
                if number is None:
                    with self._lock:
                        self._threads -= 1
                    continue
                self._done.add(number)
                if self._bar is not None:
                    self._bar.update()
                return number
        except BaseException:
            self.cancel()
            raise
        # Another thread may wait for the end, too.
        self._ended.put(None)
        if self._bar is not None:
            self._bar.close()
        if self._failure is not None:
            raise self._failure
        return None

    @property
    def wanted(self) -> int:
        """How many entries keep all servers busy, by what their calls have cost so far."""
        with self._lock:
            return sum(self._group_of(cost) for cost in self._costs.values())

    def _group_of(self, cost: Cost) -> int:
        if self._group != "auto":
            return self._group
        return cost.group(_MOST_CALLS if self._stack is None else _MOST_ENTRIES)

    def _take(self, server: int, oldest: Future | None, wanted: int) -> list[_Entry]:
        """The entries of the next call. The caller's iterator is asked for so many calls.

        Empty if there are no more, or if the server has something to do before: its oldest call has
        ended, or it is time to look at it.
        """
        taken: list[_Entry] = []
        end = time.monotonic() + _LOOK_S
        with self._lock:
            size = 1
            while len(taken) < size and not self._cancelled:
                entry = self._next(server)
                if entry is not None:
                    taken.append(entry)
                    if len(taken) == 1 and self._stack is not None:
                        size = self._size(self._costs[server])
                        end = time.monotonic() + _PULL_S
                elif taken or oldest is not None:
                    may_come = self._want(max(wanted, size) - len(taken))
                    has_other = not taken and oldest is not None and oldest.done()
                    if not may_come or has_other or time.monotonic() >= end:
                        break
                    self._changed.wait(_PULL_S)
                elif self._want(wanted) or self._outstanding > 0:
                    # If another server is lost, this one makes its calls again. It also makes
                    # calls that another server cannot begin with.
                    self._idle.add(server)
                    self._changed.wait()
                    self._idle.discard(server)
                else:
                    break
        return taken

    def _size(self, cost: Cost) -> int:
        """The number of entries of the next call, of which one is taken."""
        group = self._group_of(cost)
        if self._group != "auto":
            return group
        waiting = len(self._again) + len(self._later) + 1
        left = None if self._left is None else self._left + waiting
        return next_group(group, left, share(cost, self._costs.values()))

    def _next(self, server: int) -> _Entry | None:
        """The next call for a server. Files of data folders are read where they are."""
        for again in self._again:
            if self._may_again(again, server):
                self._again.remove(again)
                return again[1]
        for index, (homes, entry) in enumerate(self._later):
            if self._may(homes, server):
                if len(self._later) == _WINDOW:
                    # Others may want more than this one.
                    self._changed.notify_all()
                del self._later[index]
                return entry
        return None

    def _want(self, count: int) -> bool:
        """Asks the caller's iterator for calls; false if there are none now."""
        if not self._may_ask():
            return False
        self._asked_for = max(self._asked_for, count)
        self._asked.notify()
        return True

    def _may_ask(self) -> bool:
        return not self._exhausted and not self._cancelled and len(self._later) < _WINDOW

    def _may(self, homes: _Homes, server: int) -> bool:
        """Whether a server makes a call: it has the files, or no server has all of them."""
        return server in homes or homes.isdisjoint(self._costs)

    def _may_again(self, again: tuple[int, _Entry], server: int) -> bool:
        """Whether a server makes a call again: not where it has waited, unless no other may."""
        before, entry = again
        homes = self._homes(entry[1])
        others = (other for other in self._costs if other != before)
        is_elsewhere = before != server or not any(self._may(homes, other) for other in others)
        return is_elsewhere and self._may(homes, server)

    def _homes(self, call: Any) -> _Homes:
        """The servers that have the files which a call reads; none if it reads no files."""
        if len(self._places) == 1:
            return frozenset()
        values = self._values(call)
        sources = [value.address for value in values if isinstance(value, Source)]
        names = [a.removeprefix("folder:") for a in sources if a.startswith("folder:")]
        if not names:
            return frozenset()
        if self._files is None:
            self._files = self._holders()
        holders = [set(self._files.get(name, [])) for name in names]
        return frozenset(
            self._places[place] for place in set.intersection(*holders) if place in self._places
        )

    def _values(self, call: Any) -> list[Any]:
        """The arguments of a call."""
        values = call.values() if isinstance(call, Mapping) else call
        values = values if isinstance(call, Mapping | tuple) else (call,)
        return [*values, *self._fixed.values()]

    def _caller(self, function: Function, entries: list[_Entry]) -> Function:
        """The function to call. A server may lack named data, or have others of that name."""
        if self._whole is None:
            return function
        values = (value for _, call in entries for value in self._values(call))
        return self._whole if any(map(_is_named, values)) else function

    def _ask(self, function: Function) -> None:
        """Asks the caller's iterator for calls, while servers want some.

        The iterator may take long, or call a function itself. It holds up nothing else.
        """
        with self._lock:
            try:
                while self._is_asked():
                    self._lock.release()
                    try:
                        number, call = next(self._calls)
                    finally:
                        self._lock.acquire()
                    if not self._cancelled:
                        self._put(function, number, call)
            except StopIteration:
                self._exhausted = True
                self._changed.notify_all()
            except BaseException as error:
                # The caller's iterator has failed: raised in the thread that waits.
                self._fail(error)

    def _is_asked(self) -> bool:
        """Waits until servers want calls; false if they want no more."""
        while self._asked_for == 0 and not self._cancelled:
            self._asked.wait()
        return not self._cancelled

    def _put(self, function: Function, number: int, call: Any) -> None:
        """Has a server make a call of the caller."""
        self._written.check(call)
        if number == 0:
            self._stack = Stack.of(function.interface, call, self._fixed)
            if self._stack is not None:
                self._recall()
        if self._left is not None:
            self._left -= 1
        self.results.append(None)
        self._outstanding += 1
        self._later.append((self._homes(call), (number, call)))
        self._asked_for -= 1
        if len(self._later) == _WINDOW:
            self._asked_for = 0
        if self._asked_for == 0 or self._idle:
            self._changed.notify_all()

    def _recall(self) -> None:
        """Begins with what is known from the sweeps before this one."""
        self._costs = {server: self._known_cost(server) for server in self._costs}

    def _known_cost(self, server: int) -> Cost:
        cost = _known.setdefault(self._keys[server], Cost())
        while len(_known) > _MOST_KNOWN:
            del _known[next(iter(_known))]
        return cost

    def _ahead(self, server: int) -> int:
        """The number of calls at a server."""
        if self._stack is not None:
            return _GROUPS
        return _GROUPS * self._group_of(self._costs[server])

    def _serve(self, function: Function, server: int) -> None:
        """Keeps one server busy."""
        under_way: collections.deque[_Call] = collections.deque()
        # Whether the oldest call found the server without work of this sweep.
        alone = True
        # Until `_admit` has noted the server.
        with self._lock:
            pass
        try:
            while True:
                lacks = self._fill(function, server, under_way)
                if not under_way:
                    break
                entries, future = under_way[0]
                if not self._cancelled and not _has_ended(future, 0 if lacks else _LOOK_S):
                    if self._gives_away(function, server, entries, future):
                        under_way.popleft()
                    continue
                under_way.popleft()
                self._finish(function, server, entries, future)
                self._learn(self._costs[server], len(entries), future.times, alone=alone)
                alone = not under_way
        except _LostError as error:
            # A server that ends may still finish what it has begun.
            for entries, future in under_way:
                with contextlib.suppress(_LostError):
                    self._finish(function, server, entries, future)
            self._leave(server, error.cause)
        except BaseException as error:
            # Such as that of `holders`: raised in the thread that waits.
            for _, future in under_way:
                future.cancel()
            with self._lock:
                self._fail(error)
        finally:
            self._end()

    def _fill(self, function: Function, server: int, under_way: "collections.deque[_Call]") -> bool:
        """Starts as many calls as a server takes. Says whether more may come while it has room."""
        while len(under_way) < (ahead := self._ahead(server)):
            # To ask the iterator takes longer than a brief call, so it is asked for some at once.
            wanted = max(1, ahead // 2)
            entries = self._take(server, under_way[0][1] if under_way else None, wanted)
            if not entries:
                return self._may_ask()
            future = self._start(function, server, entries)
            if future is not None:
                under_way.append((entries, future))
        return False

    def _end(self) -> None:
        """The thread of a server ends."""
        left: list[_Entry] = []
        with self._lock:
            self._running -= 1
            if self._running == 0:
                # No server makes the calls that the sweep was given up with.
                left = [entry for _, entry in (*self._again, *self._later)]
                self._again.clear()
                self._later.clear()
                self._cancelled = True
                self._asked.notify()
                self._over.set()
        self._settle_all(left, asyncio.CancelledError())
        self._ended.put(None)

    def _learn(self, cost: Cost, entries: int, times: Times | None, *, alone: bool) -> None:
        if times is None:
            return
        if self._stack is not None:
            cost.learn(entries, times.total - times.exec, times.exec, alone=alone)
        else:
            # While arrays travel, further calls cannot use the line.
            busy_s = max(times.send, times.exec, times.recv)
            cost.learn(1, times.other, busy_s, alone=alone)

    def _start(self, function: Function, server: int, entries: list[_Entry]) -> Future | None:
        try:
            call_async = self._caller(function, entries).call_async
            if self._stack is not None:
                joined = self._stack.join([call for _, call in entries])
                return call_async(**{**self._fixed, **joined})
            ((_, call),) = entries
            if isinstance(call, Mapping):
                return call_async(**{**self._fixed, **call})
            if isinstance(call, tuple):
                return call_async(*call, **self._fixed)
            return call_async(call, **self._fixed)
        except Exception as error:
            self._fails(function, server, entries, error)
            return None

    def _finish(
        self, function: Function, server: int, entries: list[_Entry], future: Future
    ) -> None:
        """Waits for a call, and takes its results."""
        try:
            while not self._cancelled and not _has_ended(future, _LOOK_S):
                pass
            if self._cancelled:
                future.cancel()
            result = future.result()
            results = [result]
            if self._stack is not None:
                results = self._stack.split(result, len(entries))
                self._stack.fill([call for _, call in entries], results)
        except (Exception, asyncio.CancelledError) as error:
            self._fails(function, server, entries, error)
            return
        for (number, _), one in zip(entries, results, strict=True):
            self._settle(number, result=one)

    def _gives_away(
        self, function: Function, server: int, entries: list[_Entry], future: Future
    ) -> bool:
        """Gives a call that its server has not begun with to a server without a call."""
        if not function.interface.repeatable or not self._has_taker(server, entries):
            return False
        try:
            waits = future.status().phase == "waiting"
        except Exception:  # An old server cannot say it, and the result says whether one is lost.
            return False
        # It may have begun meanwhile, and its results may be in arrays that it reads.
        progress = future.progress() if waits else None
        if progress is None or progress[2] > 0 or not future.cancel():
            return False
        with self._lock:
            self._slow.add(server)
            self._again.extend((server, entry) for entry in entries)
            self._changed.notify_all()
        return True

    def _has_taker(self, server: int, entries: list[_Entry]) -> bool:
        """Whether another server has no call, and may make these."""
        with self._lock:
            idle = self._idle - self._slow - {server}
            homes = [self._homes(call) for _, call in entries]
            return any(all(self._may(home, other) for home in homes) for other in idle)

    def _settle(
        self, number: int, *, result: Any = None, error: BaseException | None = None
    ) -> None:
        with self._lock:
            self.results[number] = result
            if error is not None:
                self.errors[number] = error
            self._outstanding -= 1
            self._changed.notify_all()
        self._ended.put(number)

    def _settle_all(self, entries: list[_Entry], error: BaseException) -> None:
        for number, _ in entries:
            self._settle(number, error=error)

    def _fails(
        self, function: Function, server: int, entries: list[_Entry], error: BaseException
    ) -> None:
        """A call has failed. If its server is lost, another one makes it, if that is safe."""
        begun = getattr(error, "_begun", None)
        # A call that the metaserver places has tried other servers itself, and says nothing of this
        # one.
        is_placed = self._caller(function, entries) is not function
        if is_placed or (begun is None and not isinstance(error, ConnectionError)):
            self._settle_all(entries, error)
            return
        # An array that the call reads and overwrites is no longer what it was.
        is_changed = begun is not False and getattr(error, "_changed", False)
        is_changed = is_changed and _overwrites(function)
        with self._lock:
            is_safe = not is_changed and (function.interface.repeatable or begun is False)
            moves = is_safe and self._serving > 1 and not self._cancelled
            if moves:
                self._again.extend((server, entry) for entry in entries)
                self._changed.notify_all()
        if not moves:
            self._settle_all(entries, error)
        raise _LostError(error) from error

    def _leave(self, server: int, error: BaseException) -> None:
        """Removes a server; without servers the remaining calls fail."""
        with self._lock:
            del self._costs[server]
            self._serving -= 1
            # The others may now make calls whose files only this one had.
            self._changed.notify_all()
            if self._serving > 0:
                return
            left = [entry for _, entry in (*self._again, *self._later)]
            self._again.clear()
            self._later.clear()
            if not self._exhausted:
                self._fail(error)
        self._settle_all(left, error)

    def _fail(self, error: BaseException) -> None:
        self._failure, self._cancelled = error, True
        self._changed.notify_all()
        self._asked.notify()


def _is_named(value: Any) -> bool:
    """Whether an argument is named data, by the name or as a handle."""
    return isinstance(value, Data) or (isinstance(value, Handle) and value.name is not None)


def _has_ended(future: Future, seconds: float = 0) -> bool:
    """Whether a call ends within a short time."""
    if seconds == 0:
        return future.done()
    try:
        future.result(timeout=seconds)
    except TimeoutError:
        return future.done()
    except (Exception, asyncio.CancelledError):
        return True
    return True


def _overwrites(function: Function) -> bool:
    """Whether a call reads arrays that its results overwrite."""
    parameters = function.interface.parameters
    return any(parameter.mode == "INOUT" and parameter.shape for parameter in parameters)


class _LostError(Exception):
    """A server is lost."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause
