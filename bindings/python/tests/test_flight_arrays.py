"""Columns of record batches as arrays, and arrays as columns (`farcall._flight.arrays`)."""

import functools
import gc
import types

import farcall
import numpy as np
import pyarrow as pa
import pytest
from farcall._flight import arrays, gateway, memory


@pytest.mark.parametrize(
    "value",
    [
        np.arange(3.0),
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        np.zeros(0),
        np.zeros((2, 0)),
        np.array([1 + 2j, 3]),
        np.array([[1 + 2j], [3]], np.complex64),
    ],
    ids=lambda value: f"{value.dtype}{value.shape}",
)
def test_an_array_travels_there_and_back_without_a_copy(value):
    batch = arrays.batch({"x": value, "apart": np.arange(7)})
    batch.validate(full=True)
    found = arrays.array("x", batch.column(0), value.dtype.str)
    assert found.dtype == value.dtype
    assert np.array_equal(found, value)
    assert np.shares_memory(found, value) == bool(value.size)


def test_vectors_of_one_length_are_plain_columns():
    vectors = {"x": np.arange(3.0), "t": ["a", "b", "c"]}
    assert arrays.batch(vectors).schema.types == [pa.float64(), pa.string()]
    pairs = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2, 3, 4]), 2)
    assert arrays.array("z", pairs, "c16").tolist() == [1 + 2j, 3 + 4j]
    one = pa.array([[1.0, 2, 3]], pa.list_(pa.float64()))
    assert arrays.array("x", one, "f8").tolist() == [1, 2, 3]


@pytest.mark.parametrize("lie", [[0, 1 << 20], [3, 1], [-5, 3]])
def test_a_list_that_leaves_its_elements_is_refused(lie):
    offsets = np.array([0, 4], np.int32)
    buffers = [None, pa.py_buffer(offsets)]
    elements = pa.array(np.ones(4))
    column = pa.Array.from_buffers(pa.list_(pa.float64()), 1, buffers, children=[elements])
    batch = pa.record_batch([column], names=["x"])
    # It was valid when it was made. A peer sends what it likes, and pyarrow reads it unchecked.
    offsets[:] = lie
    with pytest.raises(pa.ArrowInvalid):
        gateway._columns(batch)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1.0, None]), "nulls"),
        (pa.array(["a"]), "not a type of numbers"),
        (pa.array([True]), "not a type of numbers"),
        (
            pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1.0])]),
            "not a type of numbers",
        ),
        (pa.array([[1.0], [2.0]], pa.list_(pa.float64())), "expected one list, given 2"),
    ],
)
def test_other_columns_are_refused(column, said):
    with pytest.raises(ValueError, match=said):
        arrays.array("x", column, "f8")


def one_row(*elements):
    return pa.FixedSizeListArray.from_arrays(pa.array(elements), len(elements))


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (
            pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.float64(), [2, 2]), one_row(1.0, None, 3.0, 4.0)
            ),
            "f8",
        ),
        (one_row(1.0, None, 3.0), "f8"),
        (pa.array([[1.0, None]], pa.list_(pa.float64())), "f8"),
        (pa.array([["a", None]], pa.list_(pa.string())), None),
        (pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2, 3, None]), 2), "c16"),
    ],
)
def test_nulls_within_a_row_are_refused(column, dtype):
    assert not column.null_count
    with pytest.raises(ValueError, match="argument `x`: a column with nulls"):
        arrays.array("x", column, dtype)


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (np.array([1.9]), np.zeros(1, np.int32)),
        (np.array([1 << 40]), np.zeros(1, np.int32)),
        (np.array([(1 << 53) + 1]), np.zeros(1)),
        (np.array([1e300]), np.zeros(1, np.float32)),
        (np.zeros((3, 2)), np.zeros((2, 3))),
        (np.zeros(1), np.zeros(3)),
    ],
)
def test_an_array_that_cannot_hold_another_one_is_not_filled(given, target):
    with pytest.raises(ValueError, match="argument `x`"):
        arrays.fill("x", target, given)


def test_an_array_is_filled_with_what_it_holds():
    target = np.zeros((2, 3), order="F")
    arrays.fill("x", target, np.arange(6, dtype=np.int32).reshape(2, 3))
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]
    arrays.fill("x", target, np.full(6, 1 << 60))
    assert (target == 2.0**60).all()


@pytest.mark.parametrize(
    ("parts", "wanted", "lost"),
    [
        (np.array([2**53 + 1, 0]), "c16", "9007199254740993"),
        (np.array([0, 2**24 + 1], np.int32), "c8", "16777217"),
        (np.array([0.5, 1e300]), "c8", "1e\\+300"),
    ],
)
def test_complex_numbers_are_not_changed_on_their_way(parts, wanted, lost):
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(parts), 2)
    with pytest.raises(ValueError, match=f"argument `z`: complex[0-9]+ cannot hold {lost}"):
        arrays.array("z", pairs, wanted)
    near = pa.FixedSizeListArray.from_arrays(pa.array([0.1, np.inf]), 2)
    assert arrays.array("z", near, "c8").tolist() == [np.complex64(complex(0.1, np.inf))]


@pytest.mark.parametrize("values", [[1, 0, -1], [0], []])
def test_characters_are_small_integers(values):
    value = np.array(values, np.int8).view("S1")
    batch = arrays.batch({"c": value})
    assert batch.schema.types == [pa.int8()]
    assert batch.column(0).to_pylist() == values
    target = np.empty(len(values), "S1")
    arrays.fill("c", target, arrays.array("c", batch.column(0), target.dtype.str))
    assert target.tobytes() == value.tobytes()


def test_a_text_alone_is_a_list_of_one():
    # This is what the result of `OUT string[8] text[1]` is.
    assert arrays.batch({"text": "up"}).to_pydict() == {"text": ["up"]}
    both = arrays.batch({"text": "up", "x": np.arange(2.0)})
    assert both.column("text").to_pylist() == [["up"]]


def test_a_call_that_fails_with_a_time_limit_is_not_asked_for_ever():
    asked = []

    def result(timeout=None):
        asked.append(timeout)
        if len(asked) > 9:
            raise AssertionError("the failure of the call was never raised")
        raise farcall.TimeoutError("the arguments stalled")

    future = types.SimpleNamespace(result=result, done=lambda: True)
    function = types.SimpleNamespace(call_async=lambda: future)
    own = types.SimpleNamespace(_arguments=lambda *_: {}, _seconds=60.0)
    own._results = functools.partial(gateway.Gateway._results, own)
    with pytest.raises(farcall.TimeoutError, match="the arguments stalled"):
        gateway.Gateway._call(own, None, None, function, {}, None)


def test_no_other_call_gets_the_memory_of_a_call_that_was_given_up():
    """It may write to its arrays until the server has ended it."""
    made = []

    def share(size):
        made.append(np.empty(size, np.uint8))
        return types.SimpleNamespace(__array_interface__=made[-1].__array_interface__)

    shared = memory.Memory(types.SimpleNamespace(_share=share), clears=False)
    size = (100, 1000)

    def call(*results):
        array = shared.empty(size, np.dtype(float), "F")
        own = types.SimpleNamespace(
            _arguments=lambda *_: {"x": array}, _results=lambda *_: next(iter(results))
        )
        parameters = [types.SimpleNamespace(name="x", mode="OUT")]
        interface = types.SimpleNamespace(parameters=parameters)
        function = types.SimpleNamespace(call_async=lambda **_: None, interface=interface)
        gateway.Gateway._call(own, None, shared, function, {}, None)

    for _ in range(2):
        call(types.SimpleNamespace(x=np.ones(1)))
        gc.collect()
        assert len(made) == 1
    with pytest.raises(StopIteration):
        call()
    gc.collect()
    call(types.SimpleNamespace(x=np.ones(1)))
    assert len(made) == 2


def test_arguments_and_results_may_have_names_that_are_keywords_of_python():
    called = {}
    own = types.SimpleNamespace(
        _arguments=lambda *_: {"lambda": 2.0, "n": 3},
        _results=lambda *_: types.SimpleNamespace(is_=np.ones(3)),
    )
    parameters = [types.SimpleNamespace(name="is", mode="OUT")]
    interface = types.SimpleNamespace(parameters=parameters)
    function = types.SimpleNamespace(
        call_async=lambda **arguments: called.update(arguments), interface=interface
    )
    batch = gateway.Gateway._call(own, None, None, function, {}, None)
    assert called == {"lambda_": 2.0, "n": 3}
    assert batch.to_pydict() == {"is": [1.0, 1.0, 1.0]}


def test_a_server_that_is_away_hides_its_own_functions_alone():
    asked = []

    def function(name):
        asked.append(name)
        if name == "a/gone":
            raise farcall.UnknownFunction("gone")
        if name.startswith("b/"):
            raise farcall.ConnectionError("away")
        return types.SimpleNamespace(interface=name.upper())

    server = types.SimpleNamespace(function=function)
    names = ["a/gone", "a/one", "b/one", "b/two", "c/one"]
    found = gateway._described(server, names)
    assert found == [("a/one", "A/ONE"), ("c/one", "C/ONE")]
    assert asked == ["a/gone", "a/one", "b/one", "c/one"]
    with pytest.raises(farcall.ConnectionError, match="away"):
        gateway._described(server, ["b/one", "b/two"])
    assert gateway._described(server, []) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, r"FlightDescriptor\.for_command"),
        (b'{"function": "f", "arguments": {"x": 1e400}}', "1e400 is too large"),
        (b'{"function": "f", "arguments": {"x": 1, "x": 2}}', "`x` is given twice"),
        (b'{"function": "f", "function": "g"}', "`function` is given twice"),
        (b'{"function": "f"', "the command is not a name"),
        (b'{"function": "f", "arguments": {"z": [9007199254740993, 0]}}', "9007199254740993$"),
        (
            b'{"function": "f", "arguments": {"z": [0, 1%b]}}' % (b"0" * 400),
            "cannot hold the whole",
        ),
    ],
)
def test_a_command_that_is_no_call_is_refused(command, said):
    with pytest.raises(ValueError, match=said):
        gateway._command(command)


def test_a_command_has_complex_numbers():
    text = b'{"function": "f", "arguments": {"z": [9007199254740992, -0.5]}}'
    assert gateway._command(text) == ("f", {"z": complex(2**53, -0.5)})


def test_a_command_has_a_name_and_scalars():
    text = b'{"function": "f", "arguments": {"x": 1.5, "n": 2, "y": "Infinity"}}'
    # Whether that is a number depends on the function.
    assert gateway._command(text) == ("f", {"x": 1.5, "n": 2, "y": "Infinity"})
    assert gateway._command(b"f") == ("f", {})
