"""What notebooks show of functions, calls, durable calls and estimates."""

import types

import farcall._notebook
import nbclient
import nbformat
import pytest
from servers import FAULTS

IDL = f"""\
Module test;
Library "{FAULTS}/libfarcall_faults.so";
Define nap(IN int ms, OUT int *slept) "Sleep & wake" Calls "C" fault_sleep(ms, slept);
Define segfault(IN int n) "Crash" Calls "C" fault_segfault(n);
"""


def shown(cells):
    """The HTML that each cell shows last; `None` where it shows none."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=60).execute()
    outputs = [cell.outputs[-1] if cell.outputs else {} for cell in notebook.cells]
    return [output.get("data", {}).get("text/html") for output in outputs]


@pytest.fixture
def server(start, tmp_path):
    """A server with one function."""
    path = tmp_path / "nap.idl"
    path.write_text(IDL)
    return start(path, options=["--state", tmp_path / "state"])


def test_numbers_have_units_that_people_read():
    seconds = {3e-5: "30 µs", 0.25: "250 ms", 90.0: "90 s", 1234.5: "20.6 min", 259_200.0: "3 days"}
    assert {value: farcall._notebook._seconds(value) for value in seconds} == seconds
    sizes = {12: "12 B", 999_600: "1 MB", 1500: "1.5 kB", 2 * 10**12: "2 TB"}
    assert {value: farcall._notebook._bytes(value) for value in sizes} == sizes


def test_a_notebook_shows_objects_of_farcall(server):
    _, function, waiting, ended, wrong, cancelled, durable, estimate = shown([
        f"import farcall; server = farcall.connect({server.address!r})\n"
        'nap = server.function("nap")',
        "nap",
        "call = nap.call_async(60_000); call",
        "call.cancel(); call = nap.call_async(1); call.result(); call",
        'call = server.function("segfault").call_async(1)\nwhile not call.done(): pass\ncall',
        "call = nap.call_async(60_000); call.cancel(); call",
        "job = nap.submit(1); job.fetch(); job",
        "nap.estimate(1)",
    ])  # fmt: skip
    assert "nap(ms" in function and "Sleep &amp; wake" in function
    assert "<b>running</b>" in waiting or "<b>waiting</b>" in waiting
    assert "EXEC" in ended and "slept=1" in ended
    assert "<b>LibraryError</b>" in wrong
    assert "cancelled" in cancelled
    assert "<b>done</b>" in durable and "submitted" in durable
    assert "predicted" in estimate and "memory" in estimate


def test_the_parts_of_an_estimate_are_its_total():
    parts = {"send": 0.0, "latency": 0.5, "wait": 0.25, "exec": 0.25, "recv": 0.0, "total": 1.0}
    sizes = {"sent_bytes": 8, "returned_bytes": 8, "memory_bytes": 16}
    shown = farcall._notebook.estimate(types.SimpleNamespace(**parts, **sizes))
    assert "predicted: <b>1 s</b>" in shown and "wait 750 ms, EXEC 250 ms" in shown


def test_a_future_that_ctrl_c_has_ended_can_be_shown():
    def result():
        raise KeyboardInterrupt

    shown = types.SimpleNamespace(done=lambda: True, cancelled=lambda: False, result=result)
    assert farcall._notebook.future(shown) == "<div><b>KeyboardInterrupt</b>: </div>"


def test_a_future_whose_server_does_not_say_how_it_fares_can_be_shown():
    def status():
        raise farcall.TimeoutError("no answer <within 5 s>")

    shown = types.SimpleNamespace(done=lambda: False, status=status)
    expected = "<div>the call is under way: no answer &lt;within 5 s&gt;</div>"
    assert farcall._notebook.future(shown) == expected
