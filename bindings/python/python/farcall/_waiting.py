"""How coroutines wait for calls, in asyncio and in trio. No thread waits for a single call."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any

from ._native import Future


async def wait(call: Future) -> Any:
    """The result of a call. If the task is cancelled meanwhile, the call is cancelled."""
    try:
        trio = _trio()
        await (_in_asyncio(call) if trio is None else _in_trio(call, trio))
    except BaseException:
        call.cancel()
        raise
    return call.result()


async def _in_asyncio(call: Future) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end() -> None:
        if not ended.done():
            ended.set_result(None)

    call._tell(lambda: _schedule(loop.call_soon_threadsafe, end))
    await ended


def _schedule(schedule: Callable[[Callable[[], None]], object], end: Callable[[], None]) -> None:
    """Runs `end` in the loop. A loop that is closed waits for nothing."""
    with contextlib.suppress(RuntimeError):
        schedule(end)


def _trio() -> Any:
    """The module, if it runs the present task."""
    trio = sys.modules.get("trio")
    if trio is None:
        return None
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return None
    return trio


async def _in_trio(call: Future, trio: Any) -> None:
    task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
    waits = True

    def end() -> None:
        nonlocal waits
        if waits:
            waits = False
            trio.lowlevel.reschedule(task)

    def abort(_: Any) -> Any:
        nonlocal waits
        waits = False
        return trio.lowlevel.Abort.SUCCEEDED

    call._tell(lambda: _schedule(token.run_sync_soon, end))
    await trio.lowlevel.wait_task_rescheduled(abort)
