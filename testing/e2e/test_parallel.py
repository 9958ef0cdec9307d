"""Functions that several processes compute together: ScaLAPACK, and what goes wrong with them."""

import importlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import farcall
import numpy as np
import pytest
from servers import FARCALL, LIBRARIES, ServerProcess, wait_until

MPICC = shutil.which("mpicc.mpich")
pytestmark = pytest.mark.skipif(
    MPICC is None, reason="no MPICH: apt install libscalapack-mpich-dev"
)

FUNCTIONS = r"""
Module parallel;
Library "./libparallel.so";
Define ranks(IN int n, OUT int r[n]) Backend "MPI" ProcessorElements n Calls "C" ranks(n, r);
Define total(IN broadcast double x[n], IN int n, OUT double *sum)
    Backend "MPI" ProcessorElements 2 Calls "C" total(x, n, sum);
Define made(OUT allocate int x[n], IN int n, OUT int *size)
    Backend "MPI" ProcessorElements 2 Calls "C" made(x, n, size);
Define crash(IN int rank) Backend "MPI" ProcessorElements 2 Calls "C" crash(rank);
Define spin(IN int rank) Backend "MPI" ProcessorElements 2 Calls "C" spin(rank);
Define alone(OUT int *size) Calls "C" alone(size);
Define fail(IN int rank, OUT int *rounds) Backend "MPI" ProcessorElements 2
    Calls "C" fail(rank, rounds);
Define copied(INOUT string[80] texts[n], IN int n, OUT string[80] *last, OUT int *nulls)
    Backend "MPI" ProcessorElements 2 Calls "C" last = copied(texts, n, nulls);
"""

SOURCE = r"""
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank(void) { int r; MPI_Comm_rank(MPI_COMM_WORLD, &r); return r; }

void ranks(int n, int *r)
{
    int mine = rank() + 100;
    (void)n;
    MPI_Gather(&mine, 1, MPI_INT, r, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

void total(double *x, int n, double *sum)
{
    double part = 0;
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = rank(); i < n; i += size) {
        part += x[i];
        x[i] = -1;
    }
    MPI_Reduce(&part, sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

void made(int *x, int n, int *size)
{
    for (int i = 0; i < n; i++)
        x[i] = rank() == 0 ? 0 : i;
    MPI_Reduce(rank() == 0 ? MPI_IN_PLACE : x, x, n, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, size);
}

void crash(int r) { if (rank() == r) abort(); MPI_Barrier(MPI_COMM_WORLD); }
void spin(int r) { for (volatile int on = 1; rank() == r && on;); MPI_Barrier(MPI_COMM_WORLD); }
void alone(int *size) { MPI_Comm_size(MPI_COMM_WORLD, size); }

void farcall_fail(const char *);

void fail(int r, int *rounds)
{
    static int done;
    if (rank() == r) {
        usleep(20000);
        farcall_fail("no block is left");
    }
    *rounds = ++done;
}

const char *copied(char **texts, int n, int *nulls)
{
    int mine = texts == NULL;
    if (rank() == 0)
        strcpy(texts[n - 1], texts[0]);
    MPI_Reduce(&mine, nulls, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    return mine ? "of another process" : texts[n - 1];
}
"""


def state(pid):
    """The system's fields about a process after its name; None if it is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def descendants(pid):
    """The processes below a process."""
    others = [int(folder.name) for folder in pathlib.Path("/proc").glob("[0-9]*")]
    children = [other for other in others if (state(other) or ["", ""])[1] == str(pid)]
    return [found for child in children for found in [child, *descendants(child)]]


def busy_seconds(pids):
    """Processor time of processes."""
    fields = [fields for pid in pids if (fields := state(pid))]
    ticks = sum(int(field[11]) + int(field[12]) for field in fields)
    return ticks / os.sysconf("SC_CLK_TCK")


def have_ended(pids):
    """Whether processes have ended, reaped or not."""
    return all((state(pid) or ["Z"])[0] == "Z" for pid in pids)


@pytest.fixture(scope="module")
def scalapack():
    process = ServerProcess(LIBRARIES / "scalapack.idl", options=["--pes", "2"])
    yield process.connect()
    process.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parallel")
    folder.chmod(0o755)
    (folder / "parallel.c").write_text(SOURCE)
    (folder / "parallel.idl").write_text(FUNCTIONS)
    library = ["-shared", "-fPIC", "-o", folder / "libparallel.so", folder / "parallel.c"]
    subprocess.run([MPICC, *library], check=True, timeout=60)
    return folder


BODIES = r"""
Module bodies;
Compiler "mpicc.mpich";
FortranFormat "%s__";
Define sum(IN int n, OUT int *s) Backend "MPI" ProcessorElements n
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    rank++;
    MPI_Reduce(&rank, s, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
}
Define size(IN int n, OUT int *s) Backend "MPI" ProcessorElements n Required "size.o"
    Calls "FORTRAN" size(s);
"""


def test_bodies_and_objects_are_found_within_the_walls(tmp_path):
    """As interface files of Ninf-G have them: MPI without an `#include`."""
    tmp_path.chmod(0o755)
    (tmp_path / "bodies.idl").write_text(BODIES)
    (tmp_path / "size.c").write_text(
        "#include <mpi.h>\nvoid size__(int *s) { MPI_Comm_size(MPI_COMM_WORLD, s); }\n"
    )
    words = [MPICC, "-c", "-fPIC", "size.c"]
    subprocess.run(words, check=True, timeout=60, cwd=tmp_path)
    process = ServerProcess(tmp_path / "bodies.idl", options=["--pes", "3", "--allow-code"])
    server = process.connect()
    assert server.call("sum", n=3).s == 6
    assert server.call("size", n=2).s == 2
    process.stop()


@pytest.fixture
def process(folder):
    process = ServerProcess(folder / "parallel.idl", options=["--pes", "3"])
    yield process
    process.stop()


def matrix(n, seed=1):
    return np.asfortranarray(np.random.default_rng(seed).standard_normal((n, n)))


def positive(n):
    a = matrix(n)
    return np.asfortranarray(a @ a.T + n * np.eye(n))


def error(got, expected):
    return np.linalg.norm(got - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("n", [1, 63, 500, 1000])
def test_linear_systems(scalapack, n):
    a, b = positive(n), matrix(n)[:, :3].copy(order="F")
    nrhs = b.shape[1]
    expected = np.linalg.solve(a, b)
    x = b.copy(order="F")
    info = np.ones(1, np.int32)
    scalapack.call("pdposv", "L", n, nrhs, a.copy(order="F"), n, x, n, info)
    assert info[0] == 0 and error(x, expected) < 1e-10

    general = matrix(n, 7)
    factors, x, pivots = general.copy(order="F"), b.copy(order="F"), np.zeros(n, np.int32)
    scalapack.call("pdgesv", n, nrhs, factors, n, pivots, x, n, info)
    assert info[0] == 0 and error(x, np.linalg.solve(general, b)) < 1e-10
    swapped = general.copy()
    for row, pivot in enumerate(pivots - 1):
        swapped[[row, pivot]] = swapped[[pivot, row]]
    product = (np.tril(factors, -1) + np.eye(n)) @ np.triu(factors)
    assert error(product, swapped) < 1e-10


@pytest.mark.parametrize("n", [1, 100, 500, 1000])
def test_eigenvalues(scalapack, n):
    a = positive(n)
    values, vectors = np.zeros(n), np.zeros((n, n), order="F")
    info = np.ones(1, np.int32)
    scalapack.call("pdsyev", "V", "U", n, a.copy(order="F"), n, values, vectors, n, info)
    assert info[0] == 0 and error(values, np.linalg.eigvalsh(a)) < 1e-10
    assert error(a @ vectors, vectors * values) < 1e-10
    result = scalapack.function("pdsyev")(
        jobz="N", uplo="L", n=n, a=a.copy(order="F"), lda=n, ldz=n
    )
    assert error(result.w, values) < 1e-10


@pytest.mark.parametrize(("m", "n"), [(70, 40), (300, 500)])
def test_singular_values(scalapack, m, n):
    a = np.asfortranarray(np.random.default_rng(3).standard_normal((m, n)))
    size = min(m, n)
    result = scalapack.function("pdgesvd")(
        jobu="S", jobvt="S", m=m, n=n, a=a.copy(order="F"), lda=m, ldu=m, ldvt=size
    )
    assert result.info == 0
    assert error(result.s, np.linalg.svd(a, compute_uv=False)) < 1e-10
    assert error((result.u * result.s) @ result.vt, a) < 1e-10


@pytest.mark.parametrize(("jobs", "wrong"), [("AN", -1), ("NA", -2), ("oS", -1), ("n?", -2)])
def test_singular_vectors_that_have_no_room_are_refused(scalapack, jobs, wrong):
    """LAPACK's A and O would be written beyond the arrays of the call."""
    m, n = 130, 70
    a = np.asfortranarray(np.random.default_rng(4).standard_normal((m, n)))
    before = a.copy()
    result = scalapack.function("pdgesvd")(*jobs, m, n, a, m, ldu=m, ldvt=n)
    assert result.info == wrong
    assert (a == before).all()
    assert np.isnan(result.s).all()


@pytest.mark.parametrize("shape", [(50, 20), (700, 400), (30, 70)])
def test_least_squares(scalapack, shape):
    m, n = shape
    random = np.random.default_rng(m)
    a = np.asfortranarray(random.standard_normal((m, n)))
    right = random.standard_normal((m, 3))
    b = np.zeros((max(m, n), 3), order="F")
    b[:m] = right
    info = np.empty(1, np.int32)
    scalapack.call("pdgels", "N", m, n, 3, a.copy(order="F"), m, b, max(m, n), info)
    assert info[0] == 0
    expected = np.linalg.lstsq(a, right, rcond=None)[0]
    np.testing.assert_allclose(b[:n], expected, atol=1e-9)


@pytest.mark.parametrize("n", [7, 200, 30_000])
def test_band_matrices(scalapack, n):
    kl, ku, nrhs = 2, 3, 2
    random = np.random.default_rng(n)
    ab = np.zeros((2 * kl + ku + 1, n), order="F")
    ab[kl:] = random.standard_normal((kl + ku + 1, n))
    ab[kl + ku] += 8
    x = random.standard_normal((n, nrhs))
    # Row kl + ku + i - j of ab has element (i, j).
    b = np.zeros((n, nrhs), order="F")
    for below in range(-ku, kl + 1):
        columns = np.arange(max(0, -below), min(n, n - below))
        b[columns + below] += ab[kl + ku + below, columns, None] * x[columns]
    info = np.empty(1, np.int32)
    scalapack.call("pdgbsv", n, kl, ku, nrhs, ab, len(ab), b, n, info)
    assert info[0] == 0
    np.testing.assert_allclose(b, x, atol=1e-9)


@pytest.mark.parametrize("n", [7, 200, 30_000])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_positive_definite_band_matrices(scalapack, n, uplo):
    kd, random = 2, np.random.default_rng(n)
    diagonals = [10 + random.random(n), random.random(n), random.random(n)]
    ab = np.zeros((kd + 1, n), order="F")
    x = random.standard_normal((n, 1))
    b = np.asfortranarray(diagonals[0][:, None] * x)
    ab[0 if uplo == "L" else kd] = diagonals[0]
    for distance in (1, 2):
        values = diagonals[distance][: n - distance]
        if uplo == "L":
            ab[distance, : n - distance] = values
        else:
            ab[kd - distance, distance:] = values
        b[distance:] += values[:, None] * x[:-distance]
        b[:-distance] += values[:, None] * x[distance:]
    info = np.empty(1, np.int32)
    scalapack.call("pdpbsv", uplo, n, kd, 1, ab, len(ab), b, n, info)
    assert info[0] == 0
    np.testing.assert_allclose(b, x, atol=1e-9)


@pytest.mark.parametrize("n", [1, 3, 10, 40, 65, 100, 500])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvalues_by_divide_and_conquer(scalapack, n, uplo):
    """Small sizes, and those near the size of a block, need more memory than ScaLAPACK says."""
    a = positive(n)
    result = scalapack.function("pdsyevd")(uplo=uplo, n=n, a=a.copy(order="F"), lda=n, ldz=n)
    assert result.info == 0
    assert error(result.w, np.linalg.eigvalsh(a)) < 1e-10
    assert error(a @ result.z, result.z * result.w) < 1e-10
    assert error(result.z.T @ result.z, np.eye(n)) < 1e-10


@pytest.mark.parametrize("n", [1, 40, 300])
def test_some_eigenvalues(scalapack, n):
    a = positive(n)
    expected = np.linalg.eigvalsh(a)
    last = min(n, 5)
    between = (expected[0] - 1, (expected[last - 1] + expected[min(n - 1, last)]) / 2 + 1e-9)
    for kind, bounds in [("I", (0.0, 0.0)), ("V", between), ("A", (0.0, 0.0))]:
        result = scalapack.function("pdsyevx")(
            "V", kind, "L", n, a, n, *bounds, 1, last, 0.0, ldz=n
        )
        count = n if kind == "A" else last
        assert (result.info, result.m) == (0, count)
        assert error(result.w[:count], expected[:count]) < 1e-10
        vectors = result.z[:, :count]
        assert error(a @ vectors, vectors * result.w[:count]) < 1e-8
        assert not result.w[count:].any()
        assert not result.z[:, count:].any()
        assert not result.ifail.any()
    # Equal eigenvalues: their vectors are orthogonal all the same.
    basis = np.linalg.qr(matrix(n))[0]
    same = np.asfortranarray((basis * np.where(np.arange(n) < n // 2, 1.0, 2.0)) @ basis.T)
    result = scalapack.function("pdsyevx")("V", "A", "L", n, same, n, 0, 0, 1, n, 0.0, ldz=n)
    assert result.info == 0
    assert error(result.z.T @ result.z, np.eye(n)) < 1e-8


@pytest.mark.parametrize(
    ("words", "first", "wrong"), [("VXL", 1, -2), ("QAL", 1, -1), ("NIL", 0, -11)]
)
def test_wrong_arguments_of_an_expert_driver_find_nothing(scalapack, words, first, wrong):
    n = 40
    a = positive(n)
    result = scalapack.function("pdsyevx")(*words, n, a, n, 0, 0, first, 3, 0.0, ldz=n)
    assert (result.info, result.m) == (wrong, 0)
    assert not result.w.any()


@pytest.mark.parametrize("n", [1, 63, 65, 500])
@pytest.mark.parametrize("fact", ["N", "E"])
def test_linear_systems_with_bounds_of_the_error(scalapack, n, fact):
    scales = 10.0 ** np.arange(n).clip(max=5)
    general, symmetric = matrix(n, 7) + 20 * np.eye(n), positive(n)
    b = matrix(n)[:, :3].copy(order="F")
    nrhs = b.shape[1]
    for name, word, a in [
        ("pdgesvx", "N", np.asfortranarray(general * scales[:, None])),
        ("pdgesvx", "T", np.asfortranarray(general)),
        ("pdposvx", "U", np.asfortranarray(symmetric * scales * scales[:, None])),
        ("pdposvx", "L", symmetric),
    ]:
        before = a.copy()
        result = scalapack.function(name)(fact, word, n, nrhs, a, n, b, n, ldx=n)
        expected = np.linalg.solve(a.T if word == "T" else a, b)
        assert result.info in (0, n + 1)
        assert error(result.x, expected) < 1e-8
        assert (result.ferr >= 0).all()
        assert (result.berr < 1e-13).all()
        assert (a == before).all()
    assert result.info == 0
    # The norms of ScaLAPACK's estimate are those of columns.
    estimate = 1 / np.linalg.cond(symmetric, 1)
    assert estimate / 10 < result.rcond < 10 * estimate
    largest = np.abs(result.x - expected).max(axis=0) / np.abs(expected).max(axis=0)
    assert (largest <= 10 * result.ferr).all()


def test_factors_are_not_taken_from_the_caller(scalapack):
    result = scalapack.function("pdgesvx")(
        "F", "N", 3, 1, np.eye(3, order="F"), 3, np.ones((3, 1)), 3, ldx=3
    )
    assert result.info == -1
    for unknown in result.x, result.rcond, result.ferr, result.berr:
        assert np.isnan(unknown).all()


@pytest.mark.parametrize("n", [1, 2, 7, 200, 30_001])
def test_dominant_and_tridiagonal_matrices(scalapack, n):
    nrhs, random = 2, np.random.default_rng(n)
    x = random.standard_normal((n, nrhs))
    d = 10 + random.random(n)
    dl, du = random.random(n - 1), random.random(n - 1)

    def product(below, above):
        b = d[:, None] * x
        b[1:] += below[:, None] * x[:-1]
        b[:-1] += above[:, None] * x[1:]
        return np.asfortranarray(b)

    info = np.ones(1, np.int32)
    b = product(dl, du)
    scalapack.call("pddtsv", n, nrhs, dl, d, du, b, n, info)
    assert info[0] == 0
    np.testing.assert_allclose(b, x, atol=1e-12)
    b = product(du, du)
    scalapack.call("pdptsv", n, nrhs, d, du, b, n, info)
    assert info[0] == 0
    np.testing.assert_allclose(b, x, atol=1e-12)
    if n > 1:
        ab = np.zeros((3, n), order="F")
        ab[0, 1:], ab[1], ab[2, :-1] = du, d, dl
        b = product(dl, du)
        scalapack.call("pddbsv", n, 1, 1, nrhs, ab, 3, b, n, info)
        assert info[0] == 0
        np.testing.assert_allclose(b, x, atol=1e-12)


def dominant_band(n, kl, ku, seed):
    """A dominant band matrix, stored as for pddbsv, a right side and the solution."""
    random = np.random.default_rng(seed)
    ab = np.asfortranarray(random.uniform(-1, 1, (kl + ku + 1, n)))
    ab[ku] = kl + ku + 3
    x = random.standard_normal((n, 2))
    b = np.zeros((n, 2), order="F")
    for below in range(-ku, kl + 1):
        columns = np.arange(max(0, -below), min(n, n - below))
        b[columns + below] += ab[ku + below, columns, None] * x[columns]
    return ab, b, x


def test_wide_bands_one_after_another(scalapack):
    """ScaLAPACK writes beyond the memory that it asks for."""
    for seed in range(4):
        ab, b, x = dominant_band(20_001, 2, 2, seed)
        result = scalapack.function("pddbsv")(20_001, 2, 2, 2, ab, 5, b, 20_001)
        assert result.info == 0
        np.testing.assert_allclose(result.b, x, atol=1e-12)


@pytest.mark.parametrize("place", [500, 10_500])
def test_a_singular_matrix_harms_no_later_call(scalapack, place):
    """ScaLAPACK leaves messages behind when it gives up."""
    n = 20_001
    ab, b, _ = dominant_band(n, 2, 2, place)
    ab[:, place] = 0
    assert scalapack.function("pddbsv")(n, 2, 2, 2, ab, 5, b, n).info > 0
    for kl, ku in ((1, 1), (2, 2)):
        band, b, x = dominant_band(n, kl, ku, 1)
        ab = np.zeros((2 * kl + ku + 1, n), order="F")
        ab[kl:] = band
        result = scalapack.function("pdgbsv")(n, kl, ku, 2, ab, len(ab), b, n)
        assert result.info == 0
        np.testing.assert_allclose(result.b, x, atol=1e-12)


def test_matrices_that_stay_at_the_server(scalapack):
    """The factors of one parallel function are the arguments of the next call, and of the user."""
    n = 500
    a, b = positive(n), matrix(n)[:, :2].copy(order="F")
    held, right = scalapack.put(a), scalapack.put(b)
    info = np.ones(1, np.int32)
    scalapack.call("pdposv", "L", n, 2, held, n, right, n, info)
    assert info[0] == 0
    assert error(right.get(), np.linalg.solve(a, b)) < 1e-10
    assert error(np.tril(held.get()), np.linalg.cholesky(a)) < 1e-10
    # Read, written and stored, one call after the other without a wait.
    again = scalapack.put(a)
    eigen = scalapack.function("pdsyev")
    futures = [
        eigen.call_async("N", "L", n, again, n, farcall.keep(), None, n, info),
        scalapack.function("pdposv").call_async("L", n, 2, held, n, right, n, info),
    ]
    values = futures[0].result(timeout=60).w
    futures[1].result(timeout=60)
    assert error(values.get(), np.linalg.eigvalsh(a)) < 1e-10


def test_all_processes_get_an_array_that_stays(process):
    server = process.connect()
    x = server.put(np.arange(1000.0))
    for _ in range(2):
        assert server.function("total")(x=x, n=1000).sum == 499_500
    assert np.array_equal(x.get(), np.arange(1000.0)), "it is changed in the call alone"
    made = server.function("made")(x=farcall.keep(), n=1000)
    assert (made.x.get() == np.arange(1000)).all()
    again = server.function("made")(x=made.x, n=1000)
    assert again.size == 2 and (made.x.get() == np.arange(1000)).all()


def test_what_a_crash_was_to_write_is_not_read(process):
    server = process.connect()
    x = server.put(np.zeros(3, np.int32))
    server.call("ranks", 3, x)
    assert x.get().tolist() == [100, 101, 102]
    with pytest.raises(farcall.LibraryError):
        server.call("crash", 1)
    server.call("ranks", 3, x)
    assert x.get().tolist() == [100, 101, 102]


def test_a_matrix_that_is_not_positive_definite_is_told(scalapack):
    n = 300
    a = -np.eye(n, order="F")
    info = np.zeros(1, np.int32)
    scalapack.call("pdposv", "L", n, 1, a, n, np.ones((n, 1), order="F"), n, info)
    assert info[0] == 1


def test_a_call_has_as_many_processes_as_processor_elements(process):
    server = process.connect()
    for n in [1, 3, 2, 3]:
        ranks = np.zeros(n, np.int32)
        server.call("ranks", n, ranks)
        assert ranks.tolist() == [100 + i for i in range(n)]


def test_arrays_for_all_processes(process):
    server = process.connect()
    x = np.arange(1000.0)
    assert server.function("total")(x=x, n=1000).sum == x.sum()
    result = server.function("made")(n=1000)
    assert result.size == 2 and (result.x == np.arange(1000)).all()
    assert server.function("alone")().size == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_crashes_is_one_failed_call(process, rank):
    server = process.connect()
    with pytest.raises(farcall.LibraryError, match="parallel/crash"):
        server.call("crash", rank)
    ranks = np.zeros(2, np.int32)
    server.call("ranks", 2, ranks)
    assert ranks.tolist() == [100, 101]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_cancelled_call_ends_all_processes(process, rank):
    server = process.connect()
    idle = set(descendants(process.process.pid))
    future = server.function("spin").call_async(rank)
    wait_until(lambda: busy_seconds(descendants(process.process.pid)) > 0.5, what="work")
    started = set(descendants(process.process.pid)) - idle
    assert len(started) >= 3
    future.cancel()
    wait_until(lambda: have_ended(started), what="their end")
    ranks = np.zeros(2, np.int32)
    server.call("ranks", 2, ranks)


def test_nothing_is_left_of_a_server_that_is_killed(folder):
    process = ServerProcess(folder / "parallel.idl", options=["--pes", "2"])
    process.connect().call("ranks", 2, np.zeros(2, np.int32))
    started = descendants(process.process.pid)
    assert len(started) >= 5
    os.kill(process.process.pid, signal.SIGKILL)
    process.process.wait()
    wait_until(lambda: have_ended(started), what="their end")


def test_waiting_processes_leave_the_processor_alone(process):
    process.connect().call("ranks", 2, np.zeros(2, np.int32))

    def busy_share():
        before = busy_seconds(descendants(process.process.pid))
        time.sleep(1.0)
        return busy_seconds(descendants(process.process.pid)) - before

    # Processes that have just computed might not sleep yet.
    wait_until(lambda: busy_share() < 0.3, what="that they wait")


@pytest.fixture(scope="module")
def slurm():
    sys.path.insert(0, str(LIBRARIES.parent / "benches" / "gang"))
    slurm = importlib.import_module("slurm")
    subprocess.run([LIBRARIES.parent / "scripts" / "setup", "slurm"], check=False, timeout=300)
    if reason := slurm.why_not():
        pytest.skip(f"slurm: {reason}")
    with slurm.cluster(nodes=1, cpus=2) as folder:
        allocate = ["salloc", "--no-shell", "-n", "2"]
        granted = subprocess.run(allocate, capture_output=True, text=True, timeout=60, check=True)
        job = granted.stderr.split("Granted job allocation")[1].split()[0]
        launcher = ["srun", f"--jobid={job}", "--overlap", "--mpi=pmi2", "-n", "{processes}"]
        (folder / "farcall.toml").write_text(f"[parallel]\nlauncher = {launcher}\n")
        yield folder


def test_scalapack_under_slurm(slurm):
    options = ["--pes", "2", "--config", slurm / "farcall.toml"]
    process = ServerProcess(LIBRARIES / "scalapack.idl", options=options)
    try:
        for n in [500, 1000]:
            test_linear_systems(process.connect(), n)
            test_eigenvalues(process.connect(), n)
    finally:
        process.stop()


def test_slurm_ends_what_is_cancelled(slurm, folder):
    options = ["--pes", "2", "--config", slurm / "farcall.toml"]
    process = ServerProcess(folder / "parallel.idl", options=options)
    try:
        server = process.connect()
        started = workers_of_slurm()
        future = server.function("spin").call_async(1)
        wait_until(lambda: busy_seconds(workers_of_slurm() - started) > 0.5, what="work")
        spinning = workers_of_slurm() - started
        assert len(spinning) == 2
        future.cancel()
        wait_until(lambda: have_ended(spinning), what="their end")
        ranks = np.zeros(2, np.int32)
        server.call("ranks", 2, ranks)
        assert ranks.tolist() == [100, 101]
    finally:
        process.stop()


def workers_of_slurm():
    """Workers of this program that Slurm's daemon has started."""
    command = f"{FARCALL}\0worker\0".encode()

    def is_worker(folder):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            of_slurm = (folder.parent / parent / "comm").read_text().startswith("slurmstepd")
            return of_slurm and (folder / "cmdline").read_bytes() == command
        except (FileNotFoundError, ProcessLookupError):
            return False

    folders = pathlib.Path("/proc").glob("[0-9]*")
    return {int(folder.name) for folder in folders if is_worker(folder)}


def test_a_library_without_mpi_is_named(tmp_path):
    (tmp_path / "serial.idl").write_text(
        'Module serial; Library "libc.so.6"; Define f(IN int n) Backend "MPI" Calls "C" usleep(n);'
    )
    with pytest.raises(RuntimeError, match="no library of the file is linked with MPI"):
        ServerProcess(tmp_path / "serial.idl")


def test_a_launcher_that_is_not_there_is_named(tmp_path):
    config = tmp_path / "launcher.toml"
    config.write_text('[parallel]\nlauncher = ["./no-such-launcher"]\n')
    with pytest.raises(RuntimeError, match=r"no process: \./no-such-launcher: No such file"):
        ServerProcess(LIBRARIES / "scalapack.idl", options=("--config", str(config)))


def test_a_process_that_fails_the_call_goes_on(process):
    fail = process.connect().function("fail")
    assert fail(-1).rounds == 1
    with pytest.raises(farcall.Error, match=r"no block is left \(process 1\)"):
        fail(1)
    with pytest.raises(farcall.Error, match=r"no block is left$"):
        fail(0)
    assert fail(-1).rounds == 4


def test_texts_are_those_of_the_first_process(process):
    result = process.connect().function("copied")(["first", "second"], 2)
    assert result.texts == ["first", "first"]
    assert (result.last, result.nulls) == ("first", 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as which functions would run")
def test_the_log_says_that_functions_under_another_launcher_are_root(folder, tmp_path):
    config = tmp_path / "launcher.toml"
    launcher = '[parallel]\nlauncher = ["mpiexec.mpich", "-n", "{processes}"]\n'
    config.write_text(launcher)
    options = ["--pes", "2", "--config", str(config)]
    server = ServerProcess(folder / "parallel.idl", options=options)
    server.stop()
    assert "run as root under parallel.launcher" in server.log()
    config.write_text(launcher + "[workers]\nwalls_required = true\n")
    with pytest.raises(RuntimeError, match=r"parallel\.launcher.*walls_required"):
        ServerProcess(folder / "parallel.idl", options=options)
