"""LAPACK at many sizes and leading dimensions, against the same library called here.

Libraries read past the end of arrays. The sizes of a call decide what lies there, so that one size
in some hundred crashes without memory behind every array. `make soak` makes the calls of all sizes.
"""

import os

import lapack_cases
import numpy as np
import pytest

SOAK = bool(os.environ.get("FARCALL_SOAK_LAPACK"))
SIZES = range(101) if SOAK else (0, 1, 2, 8, 33, 64)
EXCESS = range(9) if SOAK else (0, 5)
# Elements of work space at least, for routines that say so in n alone.
LEAST = {
    "getri": lambda n: n,
    "geqrf": lambda n: n,
    "orgqr": lambda n: n,
    "ungqr": lambda n: n,
    "syev": lambda n: 3 * n - 1,
    "heev": lambda n: 2 * n - 1,
    "geev": lambda n: 4 * n,
}
# Columns or rows of a case that do not grow with it.
COLUMNS = ("nrhs", "ncvt", "nru", "ncc")


def at(case, n, excess):
    """The case at another size, with leading dimensions that exceed the least by `excess`."""
    old, scalars = case.scalars, dict(case.scalars)
    scalars["n"] = n
    if "q" in old and "n" not in old:
        # Blocks of an orthogonal matrix.
        scalars |= {"m": 2 * n, "p": n, "q": n // 2}
        old = old | {"n": 0}
    elif "m" in old:
        scalars["m"] = max(0, n + old["m"] - old["n"])
    if "k" in old:
        scalars["k"] = max(0, n + old["k"] - old["n"])
    scalars.update(parts_of(old, n, scalars.get("m", 0)))
    largest = max(n, scalars.get("m", 0), scalars.get("p", 0))
    for name in old:
        if name in ("ldab", "ldafb", "ldbb"):
            scalars[name] = diagonals(old) + 1 + excess
        elif name.startswith("ld"):
            scalars[name] = max(1, largest, *(old.get(columns, 0) for columns in COLUMNS)) + excess
        elif name in ("lwork", "lcwork", "tsize", "ltb", "lhous"):
            least = LEAST.get(case.name[1:], lambda n: 7 * n * n + 200 * n + 8000)
            scalars[name] = max(1, least(largest) + excess)
        elif name == "lrwork":
            scalars[name] = 8 + 40 * n + 4 * n * n + excess
        elif name == "liwork":
            scalars[name] = 6 + 60 * n + excess
    return lapack_cases.Case(case.library, case.routine, scalars)


def diagonals(old):
    """Diagonals of a band matrix beside the main one, at most."""
    if "kl" not in old:
        return max(old.get(name, 0) for name in ("kd", "ka", "kb"))
    return 2 * old["kl"] + old["ku"]


def parts_of(old, n, m):
    """Scalars that name parts of a matrix of n columns and m rows: ranges, and other orders."""
    order = m if old.get("side") == "L" else n
    parts = {"il": 1, "iu": min(n, 3), "ilo": 1, "ihi": order}
    parts["l"] = min(old.get("l", 0), order, max(0, n + old.get("k", old["n"]) - old["n"]))
    # Blocks have fewer rows and columns than the matrix, but those of tall ones more rows.
    is_tall = old.get("mb", 0) > old["n"]
    parts |= {"nb": max(1, min(2, n // 2)), "mb1": n + 2}
    parts["mb"] = n + 2 if is_tall else parts["nb"]
    parts |= {"mm": n, "ilst": n, "nzc": n}
    # Constraints are fewer than columns.
    if "q" not in old:
        parts["p"] = max(0, n - 3) if old.get("m", 0) > old["n"] else 3
    return {name: value for name, value in parts.items() if isinstance(old.get(name), int)}


CASES = {}
for each in lapack_cases.cases("lapack"):
    form = {name: value for name, value in each.scalars.items() if isinstance(value, str)}
    # A random real matrix is a Schur form of one row only.
    if each.name in ("stgevc", "dtgevc"):
        continue
    CASES.setdefault(each.name, {}).setdefault(str(form), each)


@pytest.mark.timeout(3600 if SOAK else 120)
@pytest.mark.parametrize("name", CASES)
def test_every_driver_at_every_size(library_server, name):
    servers = [library_server.connect(same_host=same_host) for same_host in (False, True)]
    for case in CASES[name].values():
        for n in SIZES:
            for excess in EXCESS:
                agree(servers, at(case, n, excess))


def agree(servers, case):
    expected = case.reference()
    if 0 in (case.scalars["n"], case.scalars.get("m")):
        # Nothing is computed, and arrays that are only written may stay as they are.
        expected = {name: expected[name] for name in ("info",) if name in expected}
    over_tcp, same_host = servers
    arguments = case.arguments()
    in_shared = {name: born_shared(same_host, case, value) for name, value in arguments.items()}
    over_tcp.call(case.qualified_name, **arguments)
    case.compare(arguments, expected)
    same_host.call(case.qualified_name, **in_shared)
    case.compare(in_shared, expected)


def born_shared(server, case, value):
    """A copy of an array in memory that the server's workers share, or a scalar as it is."""
    if not isinstance(value, np.ndarray):
        return value
    array = server.empty(value.shape, value.dtype, order="F" if case.fortran else "C")
    array[...] = value
    return array
