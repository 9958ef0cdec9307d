"""The rule that decides how many entries of a map a server gets at a time."""

import math
import types

import farcall
import numpy as np
import pytest
from farcall._group import Cost, Stack, Written, checked, next_group, share
from farcall._sweep import Sweep


def learned(*, fixed_s, entry_s, calls=8):
    """A cost after some calls of one entry each."""
    cost = Cost()
    for _ in range(calls):
        cost.learn(1, fixed_s, entry_s, alone=True)
    return cost


def test_a_group_computes_twice_as_long_as_a_call_costs():
    assert learned(fixed_s=0.4, entry_s=0.14).group(100) == math.ceil(0.8 / 0.14)
    assert learned(fixed_s=2.74, entry_s=2.87).group(100) == 2
    assert learned(fixed_s=0.001, entry_s=2.0).group(100) == 1


def test_the_first_group_is_one_entry_and_groups_grow_by_doubling():
    cost, groups = Cost(), []
    for _ in range(6):
        groups.append(cost.group(100))
        cost.learn(groups[-1], 0.1, 0.01 * groups[-1], alone=True)
    assert groups == [1, 2, 4, 8, 16, 20]


def test_a_group_has_a_limit_and_brief_entries_fill_it():
    assert learned(fixed_s=0.2, entry_s=1e-9, calls=5000).group(64) == 64
    assert learned(fixed_s=0.2, entry_s=1e-9, calls=5000).most < 1 << 20
    # Without any latency a group still covers the hand-over of calls.
    assert learned(fixed_s=0.0, entry_s=1e-4, calls=20).group(64) == 25


def test_a_small_call_that_was_interrupted_hardly_changes_the_group():
    cost = Cost()
    for _ in range(12):
        group = cost.group(1000)
        cost.learn(group, 0.0, 5e-5 * group, alone=True)
    assert cost.group(1000) == 50
    # The last entry of a map, on a busy machine.
    cost.learn(1, 0.0, 1e-3, alone=True)
    assert 40 <= cost.group(1000) < 50
    # Entries that take longer from now on change it as fast as before.
    cost.learn(cost.group(1000), 0.0, 1.0, alone=True)
    assert cost.group(1000) == 1


def test_a_wait_for_other_calls_is_no_fixed_time():
    cost = learned(fixed_s=0.1, entry_s=0.1)
    cost.learn(1, 5.0, 0.1, alone=False)
    assert cost.fixed_s == 0.1
    # A line that has become slower shows in a call that found the server free.
    cost.learn(1, 0.3, 0.1, alone=True)
    assert cost.fixed_s == pytest.approx(0.2)
    cost.learn(1, 0.05, 0.1, alone=False)
    assert cost.fixed_s == 0.05


def test_the_last_groups_are_smaller_so_that_all_servers_end_together():
    assert next_group(10, None, 0.5) == 10
    assert next_group(10, 1000, 0.5) == 10
    assert next_group(10, 24, 0.5) == 6
    # Half a group is the least, because each call has its fixed time.
    assert next_group(10, 14, 0.5) == 5
    assert next_group(10, 6, 0.5) == 3
    assert next_group(10, 1, 0.25) == 1
    left, servers, taken = 100, 4, []
    while left > 0:
        taken.append(min(left, next_group(40, left, 1 / servers)))
        left -= taken[-1]
    assert sum(taken) == 100
    assert max(taken) <= 100 / servers


def test_a_faster_server_gets_more():
    fast, slow = learned(fixed_s=0.1, entry_s=0.1), learned(fixed_s=0.1, entry_s=0.3)
    assert share(fast, [fast, slow]) == pytest.approx(0.75)
    assert share(slow, [fast, slow]) == pytest.approx(0.25)
    # A server that is not known yet counts as a mean one.
    new = Cost()
    assert share(new, [new]) == 1
    assert share(new, [fast, new]) == 0.5


def test_a_group_is_auto_or_a_number():
    assert [checked(group) for group in (None, "auto", 1, 7)] == ["auto", "auto", 1, 7]
    for wrong in (0, -1, 1.5, "all", True):
        with pytest.raises(ValueError, match="number of entries"):
            checked(wrong)


def interface(convention="C"):
    def parameter(name, mode, *shape):
        shape = list(shape) if convention == "C" else list(reversed(shape))
        dtype = "float64" if shape else "int32"
        return types.SimpleNamespace(name=name, mode=mode, shape=shape, dtype=dtype)

    return types.SimpleNamespace(
        convention=convention,
        parameters=[
            parameter("count", "IN"),
            parameter("n", "IN"),
            parameter("boxes", "IN", "count", "n"),
            parameter("weights", "IN", "count"),
            parameter("bounds", "OUT", "count", "n"),
            parameter("info", "OUT", "1"),
        ],
    )


class Row(tuple):
    _make = classmethod(lambda cls, values: cls(values))


@pytest.mark.parametrize("convention", ["C", "FORTRAN"])
def test_entries_become_the_rows_of_one_call(convention):
    boxes = [np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0])]
    entries = [{"boxes": box, "weights": 0.5} for box in boxes]
    stack = Stack.of(interface(convention), entries[0], {"n": 2})
    joined = stack.join(entries)
    assert joined["count"] == 3
    assert joined["boxes"].shape == ((3, 2) if convention == "C" else (2, 3))
    rows = stack.split(Row([joined["boxes"], 7]), 3)
    assert [list(row[0]) for row in rows] == [list(box) for box in boxes]
    assert [row[1] for row in rows] == [7, 7, 7]
    with pytest.raises(ValueError, match="same arguments"):
        stack.join([{"boxes": boxes[0]}, {"weights": 1.0}])


class Foreign:
    """An array of another library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array__(self, dtype=None, copy=None):
        return self.array


def test_the_results_go_to_the_arrays_of_the_entries():
    own, other = np.zeros(2), np.zeros(2)
    entries = [{"bounds": own}, {"bounds": Foreign(other)}, {}]
    stack = Stack.of(interface(), entries[0], {"n": 2})
    stack.fill(entries, [Row([np.array([k + 1.0, k + 2.0]), k]) for k in range(3)])
    assert (own.tolist(), other.tolist()) == ([1.0, 2.0], [2.0, 3.0])


def test_names_that_are_keywords_of_python_have_an_underscore():
    of = interface()
    lambdas, bounds = of.parameters[3], of.parameters[4]
    lambdas.name, bounds.name = "lambda", "is"
    target = np.zeros(2)
    entries = [{"boxes": np.ones(2), "lambda_": 0.5, "is_": target}]
    stack = Stack.of(of, entries[0], {"n": 2})
    assert stack.join(entries).keys() == {"boxes", "lambda_", "is_", "count"}
    stack.fill(entries, [Row([np.ones(2), 7])])
    assert target.tolist() == [1.0, 1.0]


def test_an_entry_with_a_mask_is_refused():
    boxes = [np.array([1.0, 2.0]), np.ma.masked_array([3.0, 4.0], [False, True])]
    entries = [{"boxes": box, "weights": 0.5} for box in boxes]
    stack = Stack.of(interface(), entries[0], {"n": 2})
    with pytest.raises(ValueError, match=r"boxes: .* mask would be lost"):
        stack.join(entries)


def test_numbers_and_lists_get_the_type_of_the_parameter():
    of = interface()
    types_of = {parameter.name: parameter for parameter in of.parameters}
    types_of["boxes"].dtype, types_of["weights"].dtype = "int32", "float32"
    entries = [{"boxes": [1, 2], "weights": 0.5}, {"boxes": [3, 4], "weights": 1}]
    joined = Stack.of(of, entries[0], {"n": 2}).join(entries)
    assert (joined["boxes"].dtype, joined["weights"].dtype) == (np.int32, np.float32)
    assert joined["boxes"].tolist() == [[1, 2], [3, 4]]
    assert joined["weights"].tolist() == [0.5, 1.0]
    entries = [{"boxes": list(np.arange(2)), "weights": np.float64(0.5)}]
    joined = Stack.of(of, entries[0], {"n": 2}).join(entries)
    assert (joined["boxes"].dtype, joined["weights"].dtype) == (np.int32, np.float32)
    nothing = [{"boxes": [], "weights": 0.5}]
    joined = Stack.of(of, nothing[0], {"n": 0}).join(nothing)
    assert (joined["boxes"].dtype, joined["boxes"].shape) == (np.int32, (1, 0))
    # An array has a type of its own, which the call checks.
    arrays = [{"boxes": np.array([1, 2]), "weights": 0.5}, {"boxes": [3, 4], "weights": 1}]
    joined = Stack.of(of, arrays[0], {"n": 2}).join(arrays)
    assert joined["boxes"].dtype == np.int64
    # Nor is a fraction an integer.
    fractions = [{"boxes": [1.5, 2], "weights": 0.5}]
    assert Stack.of(of, fractions[0], {"n": 2}).join(fractions)["boxes"].dtype == np.float64


@pytest.mark.parametrize(
    ("boxes", "weights", "lost"),
    [
        ([1 << 31, 2], 0.5, r"boxes: .* 2147483648, which int32 cannot hold"),
        ([1, 2], (1 << 24) + 1, r"weights: .* 16777217, which float32 cannot hold"),
        ([1, 2], 1e300, r"weights: .* 1e\+300, which float32 cannot hold"),
    ],
)
def test_a_number_that_the_parameter_cannot_hold_is_refused(boxes, weights, lost):
    of = interface()
    of.parameters[2].dtype, of.parameters[3].dtype = "int32", "float32"
    entries = [{"boxes": boxes, "weights": weights}]
    with pytest.raises(ValueError, match=lost):
        Stack.of(of, entries[0], {"n": 2}).join(entries)


def test_an_integer_among_floats_is_not_rounded():
    entries = [{"boxes": [(1 << 53) + 1, 0.5]}, {"boxes": np.array([1.0, 2.0])}]
    for some in (entries, entries[:1]):
        stack = Stack.of(interface(), some[0], {"n": 2})
        with pytest.raises(ValueError, match=r"9007199254740993, which float64 would round"):
            stack.join(some)


def test_other_entries_are_calls_of_their_own():
    box = np.zeros(2)
    of = interface()
    assert Stack.of(of, {"boxes": box}, {"n": 2}) is not None
    assert Stack.of(of, {"boxes": box}, {"n": 2, "count": 1}) is None
    assert Stack.of(of, {"boxes": box, "count": 1}, {"n": 2}) is None
    assert Stack.of(of, {"boxes": box, "n": 2}, {}) is None
    assert Stack.of(of, (1, 2, box), {}) is None
    assert Stack.of(of, {}, {}) is None
    assert Stack.of(of, {"unknown": 1}, {}) is None
    # With all its dimensions, an array tells the sizes of a call of its own.
    assert Stack.of(of, {"boxes": np.zeros((3, 2))}, {"n": 2}) is None
    assert Stack.of(of, {"boxes": [[1.0, 2.0]]}, {"n": 2}) is None
    # A result without a part for each entry would be that of the whole group.
    of.parameters = [p for p in of.parameters if p.name != "bounds"]
    assert Stack.of(of, {"boxes": box}, {"n": 2}) is None


def test_no_two_calls_of_a_map_overwrite_the_same_array():
    function = types.SimpleNamespace(name="f", interface=interface())
    written, box, bounds, texts = Written(function, {}), np.zeros(4), np.zeros(4), ["a"]
    for _ in range(100):
        written.check({"boxes": box, "bounds": np.zeros(4)})
        written.check({"bounds": np.zeros(0)})
    # Nobody has these arrays any more.
    assert not written._arrays
    written.check({"bounds": bounds})
    written.check({"bounds": texts})
    for again in (bounds, bounds[:2], texts):
        written.check({"bounds": np.zeros(4)})
        with pytest.raises(farcall.ArgumentError, match=r"`bounds`.*the same array"):
            written.check({"bounds": again})
    with pytest.raises(farcall.ArgumentError, match=r"`bounds`.*the same array"):
        written.check((1, 4, box, 1.0, bounds))
    shared = Written(function, {"bounds": bounds})
    shared.check({"boxes": box})
    with pytest.raises(farcall.ArgumentError, match=r"`bounds`.*the same array"):
        shared.check({"boxes": box})


def test_a_map_fails_if_nobody_tells_where_files_are():
    def holders():
        raise OSError("no answer")

    nothing = types.SimpleNamespace(parameters=[], callbacks=[])
    function = types.SimpleNamespace(name="f", interface=nothing)
    calls = [(farcall.url("folder:a.npy"),)] * 2
    sweep = Sweep([("a", function), ("b", function)], calls, {}, False, None, holders)
    with pytest.raises(OSError, match="no answer"):
        sweep.wait()
