"""Many calls of one function, on all servers that have it."""

import asyncio
import collections
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any

from ._native import Function, Future
from ._progress import bar_class, is_shown

# Computing time of the calls that wait at each server, so that it always has work: calls that are
# shorter than the round trip travel in groups.
_AHEAD_S = 0.005
_MOST_AHEAD = 128


class Sweep:
    """The calls of `Function.map`, which start at once.

    Iterate over a sweep to get the results in the order of the calls, each when it is complete.
    """

    def __init__(
        self,
        functions: list[Function],
        calls: Iterable[Any],
        fixed: Mapping[str, Any],
        progress: bool | None,
    ) -> None:
        """Starts a thread for each server."""
        self.results: list[Any] = []
        """The results so far, in the order of the calls; `None` for calls that have not ended."""
        self.errors: dict[int, BaseException] = {}
        """Why calls have failed, by their number."""
        self._calls = enumerate(calls)
        self._total = len(calls) if isinstance(calls, Sized) else None
        self._fixed = dict(fixed)
        self._ended: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done: set[int] = set()
        # What the threads share.
        self._changed = threading.Condition()
        self._again: collections.deque[tuple[int, Any]] = collections.deque()
        self._exhausted = False
        self._cancelled = False
        self._outstanding = 0
        self._serving = len(functions)
        self._failure: BaseException | None = None
        shows = is_shown() if progress is None else progress
        name = functions[0].name
        self._bar = bar_class()(total=self._total, unit="call", desc=name) if shows else None
        self._threads = len(functions)
        for function in functions:
            thread = threading.Thread(target=self._serve, args=(function,), daemon=True)
            thread.start()

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
                    return
            if number in self.errors:
                self.cancel()
                raise self.errors[number]
            yield self.results[number]
            number += 1

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
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()

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
                    self._threads -= 1
                    continue
                self._done.add(number)
                if self._bar is not None:
                    self._bar.update()
                return number
        except BaseException:
            self.cancel()
            raise
        if self._bar is not None:
            self._bar.close()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return None

    def _take(self, *, waits: bool) -> tuple[int, Any] | None:
        """The next call; `None` if there is none now or, with `waits`, if no more will come."""
        with self._changed:
            while not self._cancelled:
                if self._again:
                    return self._again.popleft()
                if not self._exhausted:
                    try:
                        number, call = next(self._calls)
                    except StopIteration:
                        self._exhausted = True
                        self._changed.notify_all()
                        continue
                    except BaseException as error:
                        # The caller's iterator has failed: raised in the thread that waits.
                        self._fail(error)
                        break
                    self.results.append(None)
                    self._outstanding += 1
                    return number, call
                if not waits or self._outstanding == 0:
                    break
                # If another server is lost, this one makes its calls again.
                self._changed.wait()
            return None

    def _serve(self, function: Function) -> None:
        """Keeps one server busy."""
        under_way: collections.deque[tuple[int, Any, Future]] = collections.deque()
        ahead = 2
        try:
            while True:
                while len(under_way) < ahead:
                    taken = self._take(waits=not under_way)
                    if taken is None:
                        break
                    future = self._start(function, *taken)
                    if future is not None:
                        under_way.append((*taken, future))
                if not under_way:
                    break
                number, call, future = under_way.popleft()
                exec_s = self._finish(function, number, call, future)
                if exec_s is not None:
                    wanted = 2 + int(_AHEAD_S / max(exec_s, 1e-6))
                    ahead = min(wanted, _MOST_AHEAD, 2 * ahead)
        except _LostError as error:
            for number, call, future in under_way:
                future.cancel()
                self._again_or_failed(function, number, call, error.cause)
            self._leave(error.cause)
        finally:
            self._ended.put(None)

    def _start(self, function: Function, number: int, call: Any) -> Future | None:
        try:
            if isinstance(call, Mapping):
                return function.call_async(**{**self._fixed, **call})
            if isinstance(call, tuple):
                return function.call_async(*call, **self._fixed)
            return function.call_async(call, **self._fixed)
        except ConnectionError as error:
            self._again_or_failed(function, number, call, error)
            raise _LostError(error) from error
        except Exception as error:
            self._settle(number, error=error)
            return None

    def _finish(self, function: Function, number: int, call: Any, future: Future) -> float | None:
        """Waits for a call, and returns its computing time."""
        try:
            result = self._result(future)
        except ConnectionError as error:
            self._again_or_failed(function, number, call, error)
            raise _LostError(error) from error
        except (Exception, asyncio.CancelledError) as error:
            self._settle(number, error=error)
            return None
        self._settle(number, result=result)
        return None if future.times is None else future.times.exec

    def _result(self, future: Future) -> Any:
        while not self._cancelled:
            try:
                return future.result(timeout=0.2)
            except TimeoutError:
                if future.done():
                    return future.result()
        future.cancel()
        return future.result()

    def _settle(
        self, number: int, *, result: Any = None, error: BaseException | None = None
    ) -> None:
        with self._changed:
            self.results[number] = result
            if error is not None:
                self.errors[number] = error
            self._outstanding -= 1
            self._changed.notify_all()
        self._ended.put(number)

    def _again_or_failed(self, function: Function, number: int, call: Any, error: Any) -> None:
        """A server is lost: another server makes the call again, if it is repeatable."""
        with self._changed:
            if function.interface.repeatable and self._serving > 1 and not self._cancelled:
                self._again.append((number, call))
                self._changed.notify_all()
                return
        self._settle(number, error=error)

    def _leave(self, error: BaseException) -> None:
        """Removes a server; without servers the remaining calls fail."""
        with self._changed:
            self._serving -= 1
            if self._serving > 0:
                return
            left = list(self._again)
            self._again.clear()
            if not self._exhausted:
                self._fail(error)
        for number, _ in left:
            self._settle(number, error=error)

    def _fail(self, error: BaseException) -> None:
        self._failure, self._cancelled = error, True
        self._changed.notify_all()


class _LostError(Exception):
    """A server is lost."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
