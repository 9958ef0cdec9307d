"""How many entries of a map a server gets at a time: a rule, and what it needs to know."""

import keyword
import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from weakref import WeakValueDictionary

from ._errors import ArgumentError
from ._native import Data, Function, Handle, Interface, Parameter, RemoteArray, Source

# A group of a map computes at least this long, so that it also covers the hand-over of a call.
_LEAST_S = 0.0025
_MOST = 1 << 16
# Time between two looks for servers that have joined, and how often a lost one may come back.
JOIN_S = 2.0
MOST_RETURNS = 4


class Cost:
    """What the calls of a function cost at one server, learned from each call."""

    def __init__(self, least_s: float = _LEAST_S) -> None:
        """Nothing is known yet. A group computes at least `least_s`."""
        self._least_s = least_s
        self.fixed_s: float = math.inf
        """Seconds that a call takes, however many entries it has."""
        self.entry_s: float | None = None
        """Seconds that each entry adds."""
        self.most = 1
        """The largest group; it doubles with each call, because one call can mislead."""

    def learn(self, entries: int, fixed_s: float, busy_s: float, *, alone: bool) -> None:
        """Learns from a call that kept the server or the line busy with so many entries.

        If the call was not `alone`, its fixed time includes a wait for the calls before it.
        """
        if fixed_s < self.fixed_s:
            self.fixed_s = fixed_s
        elif alone:
            self.fixed_s = (self.fixed_s + fixed_s) / 2
        entry_s = max(busy_s / entries, 1e-6)
        if self.entry_s is None:
            self.entry_s = entry_s
        else:
            # A few entries say less than a whole group: an interruption of their call lies on them
            # alone.
            weight = min(1.0, entries / self.group(_MOST)) / 2
            self.entry_s += weight * (entry_s - self.entry_s)
        self.most = min(2 * self.most, _MOST)

    def group(self, limit: int, busy_s: float = 0.0) -> int:
        """The number of entries that a server takes at a time, which compute at least `busy_s`.

        A server has two groups: one computes while the other travels. So it always has work if a
        group computes at least as long as the fixed time of a call. Twice that leaves a margin.
        """
        if self.entry_s is None:
            return 1
        enough = math.ceil(max(2 * self.fixed_s, self._least_s, busy_s) / self.entry_s)
        return max(1, min(enough, self.most, limit))


def next_group(group: int, left: int | None, share: float) -> int:
    """The number of entries of the next group, so that all servers end at the same time.

    `left` entries are not given to a server yet, `None` if nobody knows, and `share` of them are
    for this server. A server takes half of its share, but not much less than its group, because
    each call has its fixed cost.
    """
    if left is None:
        return group
    fair = math.ceil(left * share)
    return max(1, min(group, fair, max(math.ceil(group / 2), math.ceil(fair / 2))))


def share(cost: Cost, costs: Iterable[Cost]) -> float:
    """The part of the entries that one of the servers computes in the same time as the others."""
    speeds = [1 / other.entry_s for other in costs if other.entry_s is not None]
    mean = sum(speeds) / len(speeds) if speeds else 1.0
    speed = mean if cost.entry_s is None else 1 / cost.entry_s
    unknown = sum(other.entry_s is None for other in costs)
    return speed / (sum(speeds) + unknown * mean)


def checked(group: Any) -> int | Literal["auto"]:
    """The `group` of a map, which is "auto" unless the caller gives one."""
    if group is None:
        return "auto"
    if group == "auto" or (type(group) is int and group >= 1):
        return group  # type: ignore[no-any-return]
    raise ValueError(f'group={group!r}: use "auto", or a number of entries from 1 on')


class Stack:
    """Several entries in one call, for a function that takes a list of them.

    Such a function has an integer parameter that is the outermost size of each array of an entry,
    and of a result. An entry whose arrays have all dimensions is a call of its own.
    """

    def __init__(self, interface: Interface, count: str) -> None:
        """`count` is the name of the parameter."""
        self._count = in_python(count)
        self._axis = _outer_axis(interface)
        self._dtypes = {in_python(p.name): p.dtype for p in interface.parameters}
        returned = [p for p in interface.parameters if p.mode in ("OUT", "INOUT") and p.shape]
        self._split = [p.shape[self._axis] == count for p in returned]
        self._returned = [in_python(p.name) for p in returned]

    @classmethod
    def of(cls, interface: Interface, entry: Any, fixed: Mapping[str, Any]) -> "Stack | None":
        """The stack of a function whose entries are like this one; `None` if it takes no list."""
        if not isinstance(entry, Mapping) or not entry:
            return None
        axis = _outer_axis(interface)
        parameters = {in_python(parameter.name): parameter for parameter in interface.parameters}
        if any(_is_whole(value, parameters.get(name)) for name, value in entry.items()):
            return None
        sizes = {_outer_size(parameters.get(name), axis) for name in entry}
        size = sizes.pop() if len(sizes) == 1 else None
        count = "" if size is None else in_python(size)
        if size is None or count not in parameters or count in entry or count in fixed:
            return None
        stack = cls(interface, size)
        # One result of a whole group would be that of each entry.
        return None if stack._split and not any(stack._split) else stack

    def join(self, entries: list[Mapping[str, Any]]) -> dict[str, Any]:
        """The arguments of a call with these entries."""
        if any(entry.keys() != entries[0].keys() for entry in entries):
            raise ValueError("the entries of a map with groups must have the same arguments")
        arguments = {
            name: _stacked(name, [entry[name] for entry in entries], self._axis, self._dtypes[name])
            for name in entries[0]
        }
        return {**arguments, self._count: len(entries)}

    def split(self, result: Any, count: int) -> list[Any]:
        """The result of each entry of a call."""
        # `farcall.offload.enable` must come before NumPy is imported.
        import numpy as np  # noqa: PLC0415

        if result is None:
            return [None] * count
        values = [
            np.moveaxis(value, self._axis, 0) if has_rows else [value] * count
            for value, has_rows in zip(result, self._split, strict=True)
        ]
        return [result._make(value[entry] for value in values) for entry in range(count)]

    def fill(self, entries: list[Mapping[str, Any]], results: list[Any]) -> None:
        """Copies the results to arrays that the entries gave for them, which a call would fill."""
        # `farcall.offload.enable` must come before NumPy is imported.
        import numpy as np  # noqa: PLC0415

        from ._arrays import from_other  # noqa: PLC0415

        for entry, result in zip(entries, results, strict=True):
            for name, value in zip(self._returned, result or (), strict=True):
                given = entry.get(name)
                target = given if isinstance(given, np.ndarray) else from_other(given, True)
                if target is not None:
                    np.copyto(target, value)


class Written:
    """The arrays that the calls of a map overwrite, of which each call needs its own."""

    def __init__(self, function: Function, fixed: Mapping[str, Any]) -> None:
        """`fixed` are the arguments that all calls share."""
        interface = function.interface
        passed = [p for p in interface.parameters if p.mode != "WORK"]
        self._function = function.name
        # Callbacks come after all parameters.
        self._order = [in_python(p.name) for p in passed]
        written = [p.name for p in passed if p.mode in ("OUT", "INOUT") and p.shape]
        self._names = [in_python(name) for name in written]
        self._fixed = fixed
        # A call and its results keep the arrays. After both, other entries may have their memory.
        self._arrays: WeakValueDictionary[tuple[str, Any], Any] = WeakValueDictionary()
        # Handles, and lists, to which there are no weak references.
        self._others: dict[tuple[str, Any], Any] = {}

    def check(self, entry: Any) -> None:
        """Refuses an entry with an array of an earlier one whose results are still in use."""
        if isinstance(entry, Mapping):
            own = entry
        else:
            values = entry if isinstance(entry, tuple) else (entry,)
            own = dict(zip(self._order, values, strict=False))
        mine: dict[tuple[str, Any], Any] = {}
        for name in self._names:
            value = own.get(name, self._fixed.get(name))
            place = _place(value)
            if place is None:
                continue
            if place in self._arrays or place in self._others:
                raise ArgumentError(
                    f"{self._function}: argument `{name}`: two calls of a map would overwrite the "
                    "same array: give each entry its own, such as a copy"
                )
            mine[place] = value
        for place, value in mine.items():
            try:
                self._arrays[place] = value
            except TypeError:
                # A handle that nobody else has drops its array.
                self._others[place] = None if isinstance(value, Handle) else value


def in_python(name: str) -> str:
    """The name of an argument in Python, which has keywords of its own."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _place(value: Any) -> tuple[str, Any] | None:
    """What two arrays with the same memory have in common; `None` for a value that is no array."""
    if isinstance(value, Handle):
        return "handle", value.id
    if isinstance(value, list):
        return "list", id(value)
    if not hasattr(value, "__dlpack__"):
        return None
    described = getattr(value, "__array_interface__", None)
    if described is None:
        return "object", id(value)
    return None if 0 in described["shape"] else ("memory", described["data"][0])


def _stacked(name: str, values: list[Any], axis: int, dtype: str | None) -> Any:
    """The values of an argument as one array, which has the same numbers.

    As in a call, numbers and lists get the type of the parameter, `dtype`; arrays keep their own.
    """
    # `farcall.offload.enable` must come before NumPy is imported.
    import numpy as np  # noqa: PLC0415

    from ._arrays import UNMASKED, inexact, rounded  # noqa: PLC0415

    if any(isinstance(value, np.ma.MaskedArray) for value in values):
        raise ValueError(f"{name}: an entry is a masked array: {UNMASKED}")
    arrays = [np.asarray(value) for value in values]
    stacked = np.stack(arrays, axis=axis)
    if len({array.dtype for array in arrays}) > 1:
        for array in arrays:
            lost = inexact(array, stacked.dtype)
            if lost:
                raise ValueError(
                    f"{name}: the entries have several types, and {stacked.dtype}, which holds all "
                    f"of them, would round the integer {lost}: give them as one type"
                )
    pairs = zip(values, arrays, strict=True)
    plain = [
        (v, array) for v, array in pairs if isinstance(v, np.generic) or not hasattr(v, "dtype")
    ]
    takes = stacked.dtype if dtype is None or len(plain) < len(values) else np.dtype(dtype)
    for value, array in plain:
        lost = rounded(value, array, takes) if takes.kind in "fc" else None
        if lost:
            raise ValueError(f"{name}: an entry has the integer {lost}, which {takes} would round")
    return _converted(name, stacked, takes)


# The kinds of numbers, and those that hold them if they are not too large.
_HOLDERS = {"i": "iufc", "f": "fc", "c": "c"}


def _converted(name: str, stacked: Any, dtype: Any) -> Any:
    """The numbers in this type. The call refuses those of a kind that the type does not hold."""
    from ._arrays import inexact, overflowing  # noqa: PLC0415

    if stacked.size == 0:
        # An empty list is an array of floats for NumPy.
        return stacked.astype(dtype)
    kind = stacked.dtype.kind
    if stacked.dtype == dtype or dtype.kind not in _HOLDERS.get(kind, ""):
        return stacked
    lost = inexact(stacked, dtype) if kind == "i" else overflowing(stacked, dtype)
    if lost:
        raise ValueError(f"{name}: an entry has the number {lost}, which {dtype} cannot hold")
    return stacked.astype(dtype)


def _is_whole(value: Any, parameter: Parameter | None) -> bool:
    """Whether a value has all dimensions of its parameter, or only the server knows them."""
    # `farcall.offload.enable` must come before NumPy is imported.
    import numpy as np  # noqa: PLC0415

    if isinstance(value, (Data, Handle, RemoteArray, Source)):
        return True
    if parameter is None or not parameter.shape:
        return False
    try:
        return np.ndim(value) >= len(parameter.shape)
    except ValueError:  # Lists of different lengths: the call tells.
        return False


def _outer_axis(interface: Interface) -> int:
    return -1 if interface.convention == "FORTRAN" else 0


def _outer_size(parameter: Parameter | None, axis: int) -> str | None:
    return parameter.shape[axis] if parameter is not None and parameter.shape else None
