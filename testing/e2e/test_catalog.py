"""ARPACK, GSL and UMFPACK through the server, against the same libraries called directly, and the
examples of docs/libraries.md.

`scripts/setup catalog` installs what their shims are made with.
"""

import ctypes
import doctest
import math
import pathlib
import re
import subprocess

import farcall
import numpy as np
import pytest
from servers import FARCALL, LIBRARIES, ROOT, ServerProcess

NAMES = ("arpack", "gsl", "umfpack")
HERE = pathlib.Path(__file__).parent
# It may have to install the libraries first.
pytestmark = pytest.mark.timeout(500)
SPECIAL = ["airy_ai", "airy_bi", "dawson", "debye_1", "dilog", "ellint_K", "ellint_E", "erf"]
SPECIAL += ["erfc", "expint_E1", "gamma", "lngamma", "psi", "synchrotron_1", "zeta", "Si", "Ci"]
WITH_ORDER = ["bessel_J", "bessel_Y", "bessel_I", "bessel_K", "gamma_inc_P", "gamma_inc_Q"]
DISTRIBUTIONS = ["flat", "gaussian", "exponential", "gamma", "beta", "weibull", "poisson"]
DISTRIBUTIONS += ["student"]


def install():
    """Makes the shims, or skips the test."""
    shims = [LIBRARIES / f"libfarcall_{name}.so" for name in NAMES]
    if not all(shim.exists() for shim in shims):
        subprocess.run([ROOT / "scripts" / "setup", "catalog"], check=False, timeout=400)
        subprocess.run(["make", "--silent", "--directory", LIBRARIES], check=True, timeout=60)
    if not all(shim.exists() for shim in shims):
        pytest.skip("the shims are missing: `scripts/setup catalog` installs what they need")


def made_with(compiler):
    """The names of the shims that make would make with this compiler."""
    make = ["make", "--always-make", "--dry-run", "--directory", LIBRARIES, f"CC={compiler}"]
    made = subprocess.run(make, capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r"-o libfarcall_(\w+)\.so", made))


def test_a_machine_without_these_libraries_makes_the_other_shims():
    """A fresh machine has the headers of none of the three: `make build` failed there once."""
    install()
    everything = made_with("cc")
    assert everything >= {"fft", "linalg", *NAMES}
    assert made_with("cc -nostdinc") == everything - {*NAMES}


@pytest.fixture(scope="module")
def server():
    """A server of all three, started by their names."""
    install()
    process = ServerProcess("blas", "lapack", "fftw", "scalapack", *NAMES, "--pes", "2")
    try:
        yield process.connect()
    finally:
        process.stop()


def rows(matrix):
    """A dense matrix as the rows of a sparse one."""
    where, columns = np.nonzero(matrix)
    starts = np.searchsorted(where, np.arange(len(matrix) + 1)).astype(np.int32)
    return {
        "n": len(matrix),
        "starts": starts,
        "columns": columns.astype(np.int32),
        "values": matrix[where, columns],
    }


def matrix(n, kind):
    """A sparse matrix, always the same."""
    random = np.random.default_rng(3)
    dense = np.where(random.random((n, n)) < 4 / n, random.standard_normal((n, n)), 0)
    dense += np.diag(np.arange(1.0, n + 1))
    if kind == "d symmetric":
        return dense + dense.T
    return dense.astype(complex) + 0.5j * np.eye(n, k=1) if kind == "z" else dense


def first_vector(n):
    """The vector with which the shim begins."""
    state, numbers = 1, np.empty(n)
    for i in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers[i] = (state >> 11) / 2**52 - 1
    return numbers


def arpack_directly(a, k, which):
    """Eigenvalues and vectors of a symmetric matrix, by ARPACK called from here."""
    arpack = ctypes.CDLL("libarpack.so.2")
    n, ncv = len(a), 20
    integer, real = ctypes.c_int, ctypes.c_double
    ido, info, tol = integer(0), integer(1), real(0)
    lworkl = ncv * (ncv + 8)
    resid, v = first_vector(n), np.zeros((ncv, n))
    workd, workl = np.zeros(3 * n), np.zeros(lworkl)
    iparam = np.array([1, 0, 300, 1, 0, 0, 1, 0, 0, 0, 0], np.int32)
    ipntr, select = np.zeros(14, np.int32), np.zeros(ncv, np.int32)
    by = ctypes.byref
    sizes = [by(integer(number)) for number in (n, k, ncv, lworkl)]
    shared = [
        *(b"I", sizes[0], which.encode(), sizes[1], by(tol), resid.ctypes, sizes[2]),
        *(v.ctypes, sizes[0], iparam.ctypes, ipntr.ctypes, workd.ctypes, workl.ctypes),
        *(sizes[3], by(info)),
    ]
    ends = [ctypes.c_size_t(1), ctypes.c_size_t(2)]
    while True:
        arpack.dsaupd_(by(ido), *shared, *ends)
        if ido.value not in (1, -1):
            break
        x, y = ipntr[0] - 1, ipntr[1] - 1
        workd[y : y + n] = multiplied(a, workd[x : x + n])
    w = np.zeros(k)
    first = [by(integer(1)), b"A", select.ctypes, w.ctypes, v.ctypes, sizes[0], by(real(0))]
    arpack.dseupd_(*first, *shared, ctypes.c_size_t(1), *ends)
    assert info.value == 0
    return w, v[:k]


def multiplied(a, x):
    """The product in the order of the shim, element by element."""
    return np.array([sum((row[j] * x[j] for j in np.flatnonzero(row)), 0.0) for row in a])


def test_arpack_agrees_with_the_library_called_directly(server):
    a = matrix(60, "d symmetric")
    found = server.call("arpack/dseigs", **rows(a), k=4, which="LA", ncv=0, tol=0, most=0)
    w, v = arpack_directly(a, 4, "LA")
    assert (found.info, found.found) == (0, 4)
    np.testing.assert_allclose(found.w, w, rtol=1e-14)
    np.testing.assert_allclose(found.v, v, atol=1e-13)
    by = server.function("arpack/dseigs_by")
    called = by(n=60, k=4, which="LA", ncv=0, tol=0, most=0, multiply=lambda x: multiplied(a, x))
    np.testing.assert_allclose(called.w, w, rtol=1e-14)


@pytest.mark.parametrize("kind", ["d", "z"])
@pytest.mark.parametrize("which", ["LM", "SR"])
def test_arpack_finds_eigenvalues_of_general_matrices(server, kind, which):
    a = matrix(60, kind)
    options = {"k": 5, "which": which, "ncv": 0, "tol": 0, "most": 0}
    found = server.call(f"arpack/{kind}neigs", **rows(a), **options)
    assert (found.info, found.found) == (0, 5)
    np.testing.assert_allclose(found.v @ a.T, found.w[:, None] * found.v, atol=1e-10)
    key = np.abs if which == "LM" else lambda values: -values.real
    best = np.sort(key(np.linalg.eigvals(a)))[::-1][:5]
    np.testing.assert_allclose(np.sort(key(found.w))[::-1], best, rtol=1e-10)
    by = server.function(f"arpack/{kind}neigs_by")
    called = by(n=60, **options, multiply=lambda x: a @ x)
    np.testing.assert_allclose(np.sort(called.w), np.sort(found.w), rtol=1e-10)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_pair_of_arpack_may_begin_at_the_last_value(server, k):
    """ARPACK finds both values of a pair, and several of a value that occurs often."""
    pairs = np.kron(np.diag(np.arange(1.0, 6)), [[0, 1], [-1, 0]])
    for a in (pairs, np.kron(np.diag([3.0, 1]), np.eye(5))):
        options = {"k": k, "which": "LM", "ncv": 0, "tol": 0, "most": 0}
        found = server.call("arpack/dneigs", **rows(a), **options)
        assert (found.info, found.found) == (0, k)
        best = np.sort(np.abs(np.linalg.eigvals(a)))[::-1][:k]
        np.testing.assert_allclose(np.abs(found.w), best, rtol=1e-10)
        np.testing.assert_allclose(found.v @ a.T, found.w[:, None] * found.v, atol=1e-10)


def test_arpack_names_a_wrong_argument(server):
    a = rows(matrix(60, "d symmetric"))
    call = server.function("arpack/dseigs")
    usual = {**a, "k": 4, "which": "LA", "ncv": 0, "tol": 0, "most": 0}
    wrong = {
        -3: {"starts": a["starts"][::-1].copy()},
        -4: {"columns": a["columns"] + 60},
        -6: {"k": 60},
        -7: {"which": "LR"},
        -8: {"ncv": 4},
        -10: {"most": -1},
    }
    for info, changed in wrong.items():
        assert call(**usual | changed).info == info
    # One restart is not enough.
    hard = usual | {"k": 20, "which": "SM", "ncv": 22}
    assert call(**hard | {"most": 1}).info == 1
    # What has not converged is not there.
    for most in range(1, 9):
        some = call(**hard | {"most": most})
        for missing in np.isnan(some.w), np.isnan(some.v).all(axis=1):
            assert missing.tolist() == [False] * some.found + [True] * (20 - some.found)


def umfpack_directly(starts, places, values, b):
    """Solutions and the condition number by UMFPACK called from here."""
    umfpack = ctypes.CDLL("libumfpack.so")
    n, info = len(b), np.zeros(90)
    symbolic, numeric, x = ctypes.c_void_p(), ctypes.c_void_p(), np.zeros(n)
    a = [starts.ctypes, places.ctypes, values.ctypes]
    assert umfpack.umfpack_di_symbolic(n, n, *a, ctypes.byref(symbolic), None, None) == 0
    status = umfpack.umfpack_di_numeric(*a, symbolic, ctypes.byref(numeric), None, info.ctypes)
    assert status == 0
    assert umfpack.umfpack_di_solve(0, *a, x.ctypes, b.ctypes, numeric, None, None) == 0
    return x, info[67]


def test_umfpack_agrees_with_the_library_called_directly(server):
    a = matrix(200, "d")
    given = rows(a.T.copy())
    given["rows"] = given.pop("columns")
    b = np.random.default_rng(4).standard_normal((2, 200))
    expected = [umfpack_directly(given["starts"], given["rows"], given["values"], row) for row in b]
    once = server.call("umfpack/solve", **given, b=b)
    assert once.status == 0
    assert once.rcond == expected[0][1]
    np.testing.assert_array_equal(once.x, [x for x, _ in expected])

    with server.new("umfpack/Factors") as factors:
        assert factors.solve(trans="N", b=b).status == -5
        assert factors.factor(**given) == (expected[0][1], 0)
        np.testing.assert_array_equal(factors.solve(trans="N", b=b).x, once.x)
        np.testing.assert_allclose(factors.solve(trans="T", b=b).x @ a, b, atol=1e-10)
        assert factors.refactor(values=2 * given["values"]).status == 0
        np.testing.assert_allclose(factors.solve(trans="N", b=b).x, once.x / 2, rtol=1e-12)
        assert factors.refactor(values=given["values"][1:]).status == -8
        assert factors.solve(trans="X", b=b).status == -13
        assert factors.solve(trans="N", b=b[:, 1:].copy()).status == -3
        assert factors.factor(**given | {"values": 0 * given["values"]}).status == 1
        assert factors.factor(**given | {"rows": given["rows"] + 200}).status == -8


def test_what_is_not_found_is_no_result_of_an_earlier_call(server):
    """A server uses the memory of a call again."""
    a = rows(matrix(60, "d symmetric"))
    options = {"k": 4, "which": "LA", "ncv": 0, "tol": 0, "most": 0}
    assert server.call("arpack/dseigs", **a, **options).info == 0
    failed = server.call("arpack/dseigs", **a | {"columns": a["columns"] + 60}, **options)
    assert np.isnan(failed.w).all() and np.isnan(failed.v).all()

    given, b = rows(matrix(50, "d").T.copy()), np.ones((1, 50))
    given["rows"] = given.pop("columns")
    assert server.call("umfpack/solve", **given, b=b).status == 0
    for wrong in {"rows": given["rows"] + 50}, {"values": 0 * given["values"]}:
        failed = server.call("umfpack/solve", **given | wrong, b=b)
        assert failed.status != 0 and np.isnan(failed.x).all()

    x, at = np.arange(4.0), np.array([1.5, 9, 2])
    assert server.call("gsl/spline", x=x, y=x, at=x[:3]).status == 0
    failed = server.call("gsl/spline", x=x, y=x, at=at)
    assert failed.status == 1 and np.isnan(failed.value[1:]).all()
    server.call("gsl/random", name="flat", seed=1, a=0, b=1, n=3)
    failed = server.call("gsl/random", name="poisson", seed=1, a=-1, b=0, n=3)
    assert failed.status == 1 and np.isnan(failed.x).all()


@pytest.fixture(scope="module")
def direct(tmp_path_factory):
    """The results of gsl.c by name."""
    install()
    program = tmp_path_factory.mktemp("gsl") / "gsl"
    words = ["cc", "-O2", "-ffp-contract=off", HERE / "gsl.c", "-lgsl", "-lgslcblas", "-lm"]
    subprocess.run([*words, "-o", program], check=True, timeout=60)
    ran = subprocess.run([program], check=True, timeout=60, capture_output=True, text=True)
    lines = (line.split() for line in ran.stdout.splitlines())
    return {name: float.fromhex(value) for name, value in lines}


def test_gsl_calls_functions_of_the_caller(server, direct):
    def bell(x):
        return 1 / (1 + x * x)

    exact = {"absolute": 0, "relative": 1e-10, "most": 100}
    for (low, high), name in {
        (0, 3): "integral",
        (-math.inf, math.inf): "whole",
        (0, math.inf): "above",
        (-math.inf, 3): "below",
    }.items():
        found = server.call("gsl/integrate", a=low, b=high, **exact, f=bell)
        assert (found.status, found.value) == (0, direct[name]), name
    back = server.call("gsl/integrate", a=3, b=0, **exact, f=bell)
    assert back.value == -direct["integral"]

    found = server.call(*("gsl/root", 0, 2, 0, 1e-12, 100), f=lambda x: x * x * x - 2)
    assert found == (direct["root"], int(direct["root_steps"]), 0)
    found = server.call(*("gsl/minimum", 0, 1, 5, 1e-6, 0, 100), f=lambda x: (x - 2) * (x - 2) + 1)
    assert (found.status, found.x) == (0, direct["minimum"])

    def bowl(x):
        a, b = x[0] - 1, x[1] + 2
        return a * a + 3 * (b * b)

    x = np.array([5.0, 5.0])
    found = server.call("gsl/minimize", x=x, step=np.ones(2), size=1e-6, most=500, f=bowl)
    assert found.status == 0
    assert x.tolist() == [direct["least_x"], direct["least_y"]]

    found = server.call(
        "gsl/ode",
        *(2, 3, np.array([0.0, 1, 2]), np.array([1.0, 0])),
        absolute=0,
        relative=1e-10,
        rhs=lambda _t, y: np.array([y[1], -y[0]]),
    )
    assert found.status == 0
    assert found.y[2].tolist() == [direct["spring"], direct["speed"]]


def test_gsl_computes_values(server, direct):
    x, y = np.array([0.0, 1, 2, 4]), np.array([1.0, 3, 2, 5])
    assert server.call("gsl/spline", x=x, y=y, at=np.array([1.5])) == (
        [direct["spline"]],
        [direct["slope"]],
        0,
    )
    for name in SPECIAL:
        found = server.call("gsl/special", name=name, x=np.array([0.7]))
        assert (found.status, found.y[0]) == (0, direct[name]), name
    for name in WITH_ORDER:
        found = server.call("gsl/special_of", name=name, order=1.5, x=np.array([0.7]))
        assert (found.status, found.y[0]) == (0, direct[name]), name
    for name in DISTRIBUTIONS:
        found = server.call("gsl/random", name=name, seed=7, a=2, b=3, n=1)
        key = "random_gamma" if name == "gamma" else name
        assert (found.status, found.x[0]) == (0, direct[key]), name


def test_each_result_has_a_file_of_its_own(server, tmp_path):
    call = [FARCALL, "call", "gsl/spline", "n=3", "x=0,1,2", "y=0,1,4", "m=1", "at=0.5"]
    call += ["--server", server.address, "-o", "value=a.npy", "-o"]
    run = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run([*call, "slope=./a.npy"], check=False, **run)
    assert done.returncode == 2
    assert "name one file for each" in done.stderr
    assert not (tmp_path / "a.npy").exists()
    subprocess.run([*call, "slope=b.npy"], check=True, **run)
    assert np.load(tmp_path / "b.npy") == [0.875]


def test_gsl_tells_what_is_wrong(server):
    found = server.call("gsl/special", name="lngamma", x=np.array([2.5, 0, 0.5]))
    assert found.status == 1
    assert np.isnan(found.y).tolist() == [False, True, False]
    assert server.call("gsl/special", name="besel", x=np.ones(1)).status == 4
    assert server.call("gsl/random", name="gamma", seed=1, a=-1e9, b=1, n=1).status == 1
    assert server.call("gsl/root", 1, 2, 0, 1e-12, 100, f=lambda x: x).status == 4
    assert server.call("gsl/root", -1, 2, 0, 1e-12, 2, f=lambda x: x * x * x - 1).status == 11
    assert server.call("gsl/root", 0, 2, 0, 0, -1, f=lambda x: x * x - 2).status == 11
    for mean in [4.5e9, 1e300]:
        assert server.call("gsl/random", name="poisson", seed=1, a=mean, b=0, n=1).status == 1
    found = server.call("gsl/integrate", math.inf, math.inf, 0, 1e-8, 100, f=lambda x: 1 / x**2)
    assert (found.status, found.value) == (0, 0)
    for bad in [math.nan, math.inf]:
        ode = {"t": np.array([0, bad, 1]), "start": np.ones(1), "absolute": 0, "relative": 1e-8}
        assert server.call("gsl/ode", **ode, rhs=lambda _t, y: -y).status == 4
    # Times go one way: the state at the last good time is no state at a wrong one.
    ode = {"t": np.array([0.0, 1, 0.5]), "start": np.ones(1), "absolute": 0, "relative": 1e-8}
    found = server.call("gsl/ode", **ode, rhs=lambda _t, y: -y)
    assert found.status == 4
    assert np.isnan(found.y).ravel().tolist() == [False, False, True]
    falling = np.array([3.0, 2, 1])
    assert server.call("gsl/spline", x=falling, y=falling, at=np.ones(1)).status == 4
    with pytest.raises(farcall.CallbackError):
        server.call("gsl/root", -1, 2, 0, 1e-12, 99, f=lambda _x: 1 / 0)


def test_the_examples_of_the_page_are_true(server):
    text = (ROOT / "docs" / "libraries.md").read_text()
    # The last section needs a GPU: test_cuda.py.
    text, _, _ = text.partition("## CUDA")
    examples = "\n".join(re.findall(r"```pycon\n(.*?)```", text, re.DOTALL))
    page = doctest.DocTestParser().get_doctest(
        examples, {"server": server, "np": np}, "libraries.md", None, 0
    )
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(page).failed == 0
    assert runner.summarize().attempted > 30
