"""Progress bars for long calls."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from ._errors import Error, TimeoutError  # noqa: A004
from ._native import Future, Times, show_progress

# How often a bar moves.
_PERIOD_S = 0.1
# How often the server is asked how a call fares.
_ASK_S = 1.0

_lock = threading.Lock()
_blocks: list[float] = []


@contextlib.contextmanager
def progress(least: float = 0.5) -> Iterator[None]:
    """Shows a bar for each blocking call of a `with` block that takes more than `least` seconds.

    with farcall.progress():
        x = dgesv(n=n, nrhs=1, a=a, lda=n, b=b, ldb=n).b

    The bar shows how much of the arrays has travelled, why the call waits, and when it will
    probably start or end. In a notebook it is a widget. Each thread has its own bars. This needs
    the package tqdm: `pip install farcall[progress]`.
    """
    bar_class()
    with _lock:
        _blocks.append(least)
        show_progress(True)
    try:
        yield
    finally:
        with _lock:
            _blocks.remove(least)
            show_progress(bool(_blocks))


def is_shown() -> bool:
    """Whether a `with` block wants bars."""
    return bool(_blocks)


def bar_class() -> Any:
    """The class of a bar."""
    try:
        from tqdm.auto import tqdm  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            "farcall.progress needs the package tqdm: pip install farcall[progress]"
        ) from error
    return tqdm


def shown(name: str, future: Future) -> tuple[Any, Times | None]:
    """Waits for a call and shows its progress; returns its result and times."""
    with _lock:
        wait = min(_blocks, default=_PERIOD_S)
    bar = None
    doing = _Doing(future)
    try:
        while True:
            try:
                result = future.result(timeout=max(wait, 1e-3))
                break
            except TimeoutError:
                # The time limit of the connection ends the call; this one only ends the wait.
                if future.done() or future._expired():
                    result = future.result()
                    break
            state = future.progress()
            if state is not None:
                bar = _draw(bar, f"{name}: {doing.text(state)}", state)
            wait = _PERIOD_S
        if bar is not None:
            bar.set_description_str(name, refresh=False)
            bar.update(bar.total - bar.n)
        return result, future.times
    except BaseException:
        future.cancel()
        raise
    finally:
        if bar is not None:
            bar.close()


class _Doing:
    """What a call does, in words."""

    def __init__(self, future: Future) -> None:
        self._future = future
        self._asked = -_ASK_S
        self._status = ""

    def text(self, state: tuple[int, int, int, int]) -> str:
        sent, to_send, received, _ = state
        if sent < to_send:
            return "sending"
        if received > 0:
            return "receiving"
        if time.monotonic() - self._asked >= _ASK_S:
            self._asked = time.monotonic()
            # The call itself ends with any error of its connection.
            with contextlib.suppress(Error):
                self._status = str(self._future.status())
        return self._status


def _draw(bar: Any, text: str, state: tuple[int, int, int, int]) -> Any:
    sent, to_send, received, to_receive = state
    if bar is None:
        bar = bar_class()(total=to_send + to_receive, unit="B", unit_scale=True)
    bar.set_description_str(text, refresh=False)
    bar.update(sent + received - bar.n)
    bar.refresh()
    return bar
