"""How notebooks show functions, calls in progress, durable calls and estimates.

Each function takes an object and makes HTML of it. Nothing is loaded from elsewhere, and colors are
those of the notebook, but for the parts of a call.
"""

import datetime
import html
from collections.abc import Iterable

from ._errors import Error
from ._native import CallStatus, DurableCall, Estimate, Expected, Function, Future, Interface

# The parts of a call and their colors.
_PARTS = {"SEND": "#3b7dd8", "wait": "#b8860b", "EXEC": "#1a8a5a", "RECV": "#8a4fbf"}
_CELL = "text-align:left;padding:0 1em 0 0"


def function(shown: Function) -> str:
    """The signature, the description and the parameters of a function."""
    interface = shown.interface
    head = f"<code>{html.escape(f'{shown.name}{shown.__signature__}')}</code>"
    text = html.escape(interface.description or "")
    return f"<div>{head}<p>{text}</p>{_parameters(interface)}</div>"


def _parameters(interface: Interface) -> str:
    rows = [[one.mode, one.name, one.type, " x ".join(one.shape)] for one in interface.parameters]
    rows += [["callback", one.name, "", ""] for one in interface.callbacks]
    return _table(["", "parameter", "type", "shape"], rows)


def future(shown: Future) -> str:
    """How far a call in progress has come; the times and the result of one that has ended."""
    if not shown.done():
        try:
            return _status(shown.status())
        # As when the server reads nothing while a request waits for memory.
        except Error as error:
            return f"<div>the call is under way: {html.escape(str(error))}</div>"
    if shown.cancelled():
        return "<div>the call was cancelled</div>"
    try:
        result = shown.result()
    # Ctrl-C ended the wait for it, and the call.
    except (Exception, KeyboardInterrupt) as error:
        return f"<div><b>{type(error).__name__}</b>: {html.escape(str(error))}</div>"
    times = shown.times
    bar = "" if times is None else _bar([times.send, times.other, times.exec, times.recv])
    return f"<div>{bar}<pre>{html.escape(repr(result))}</pre></div>"


def durable_call(shown: DurableCall) -> str:
    """The state of a durable call at its server."""
    try:
        status = shown.status
    except Error as error:
        return f"<div>call <code>{shown.id}</code>: {html.escape(str(error))}</div>"
    moments = {"submitted": status.submitted, "started": status.started, "ended": status.ended}
    rows = [[name, _moment(at)] for name, at in moments.items() if at is not None]
    rows += [["failure", status.failure]] if status.failure else []
    head = f"{html.escape(status.function)} <code>{shown.id}</code>: <b>{status.state}</b>"
    waits = "" if status.call is None else _status(status.call)
    return f"<div>{head}{waits}{_table([], rows)}</div>"


def estimate(shown: Estimate) -> str:
    """The parts of a predicted call, and what it needs."""
    # As in the times of a call, the latency is a part of the wait.
    parts = [shown.send, shown.latency + shown.wait, shown.exec, shown.recv]
    total = "not known yet" if shown.total is None else _seconds(shown.total)
    rows = [
        ["sends", _bytes(shown.sent_bytes)],
        ["returns", _bytes(shown.returned_bytes)],
        ["memory", _bytes(shown.memory_bytes)],
    ]
    return f"<div>predicted: <b>{total}</b>{_bar(parts)}{_table([], rows)}</div>"


def _status(shown: CallStatus) -> str:
    rows = [
        [name, _expected(expected)]
        for name, expected in [("starts", shown.starts), ("ends", shown.ends)]
        if expected is not None
    ]
    head = f"<b>{shown.phase}</b>: {html.escape(shown.reason)}"
    return f"<div>{head}{_table([], rows)}</div>"


def _expected(shown: Expected) -> str:
    low, likely, high = map(_seconds, (shown.low, shown.likely, shown.high))
    return f"in {likely} (80 %: {low} to {high})"


def _bar(parts: Iterable[float | None]) -> str:
    """The parts of a call beside each other, and their seconds in words."""
    known = [(name, part) for name, part in zip(_PARTS, parts, strict=True) if part is not None]
    whole = sum(part for _, part in known) or 1.0
    pieces = [
        f'<div style="width:{100 * part / whole:.2f}%;background:{_PARTS[name]}"></div>'
        for name, part in known
    ]
    words = ", ".join(f"{name} {_seconds(part)}" for name, part in known)
    style = "display:flex;height:0.8em;max-width:40em;border-radius:3px;overflow:hidden"
    return f'<div style="{style}" aria-hidden="true">{"".join(pieces)}</div><div>{words}</div>'


def _table(heads: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    cells = "".join(f'<th scope="col" style="{_CELL}">{head}</th>' for head in heads)
    head = f"<thead><tr>{cells}</tr></thead>" if heads else ""
    lines = [
        "".join(f'<td style="{_CELL}">{html.escape(cell)}</td>' for cell in row) for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _seconds(value: float) -> str:
    for size, unit in [(86400.0, "days"), (3600.0, "h"), (60.0, "min")]:
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    for size, unit in [(1.0, "s"), (1e-3, "ms")]:
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def _bytes(count: int) -> str:
    size = float(count)
    for unit in ["B", "kB", "MB", "GB"]:
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def _moment(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
