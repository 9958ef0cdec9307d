"""Functions that write to an IN array in memory that others use: nobody else sees it."""

import concurrent.futures

import farcall
import numpy as np
import pytest
from servers import LIBRARIES, ServerProcess

IDL = """\
Module lent;
Globals {
#include <pthread.h>
#include <unistd.h>
static double *part;
static int length;
static void *negate(void *number)
{
    for (long i = (long)number; i < length; i += 4)
        part[i] = -part[i];
    return 0;
}
}
Define destroy(IN int n, IN double x[n], OUT double *sum)
{
    *sum = 0;
    for (int i = 0; i < n; i++) {
        *sum += x[i];
        x[i] = -1;
    }
}
Define borrow(IN int n, IN double x[n], OUT double *seen)
{
    double before = x[n / 2];
    *seen = before;
    x[n / 2] = 1e9;
    usleep(20000);
    x[n / 2] = before;
}
Define together(IN int n, IN double x[n], OUT double y[n])
{
    pthread_t threads[4];
    part = x, length = n;
    for (long k = 0; k < 4; k++)
        pthread_create(&threads[k], 0, negate, (void *)k);
    for (int k = 0; k < 4; k++)
        pthread_join(threads[k], 0);
    for (int i = 0; i < n; i++)
        y[i] = x[i];
}
Define pair(IN int n, IN double x[n], IN double y[n], INOUT double z[n])
{
    for (int i = 0; i < n; i++) {
        z[i] += x[i] + y[i];
        x[i] = y[i] = -1;
    }
}
Define beyond(IN int n, IN double x[n]) { ((double *)0)[x[0] > 1e9] = 1; }
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    file = tmp_path_factory.mktemp("lent") / "lent.idl"
    file.write_text(IDL)
    files = [file, LIBRARIES / "lapack.idl", LIBRARIES / "fft.idl"]
    process = ServerProcess(*files, options=["--allow-code", "--workers", "2"])
    yield process
    process.stop()


@pytest.fixture
def server(process):
    return process.connect(timeout=30)


def shared(server, array):
    found = server.empty(array.shape, array.dtype, "F" if array.ndim > 1 else "C")
    found[...] = array
    return found


def stored(server, array):
    return server.put(array, order="F" if array.ndim > 1 else "C")


def contents(array):
    return array.get() if hasattr(array, "get") else np.array(array)


lends = pytest.mark.parametrize("lend", [shared, stored])


@lends
@pytest.mark.parametrize("n", [3, 1000, 300_000])
def test_an_array_that_a_function_destroys_stays_what_it_was(server, lend, n):
    x = np.arange(n, dtype=float)
    lent = lend(server, x)
    for _ in range(3):
        assert server.call("lent/destroy", n, lent).sum == x.sum()
        assert np.array_equal(contents(lent), x)
    # A call between two others may write to it.
    z = lend(server, np.zeros(n))
    for times in (2, 4):
        server.call("lent/pair", n, lent, x, z)
        assert server.call("lent/destroy", n, z).sum == times * x.sum()
        assert np.array_equal(contents(z), times * x)


@lends
def test_threads_write_to_one_array(server, lend):
    x = np.random.default_rng(1).random(200_001)
    lent = lend(server, x)
    for _ in range(5):
        assert np.array_equal(server.call("lent/together", x.size, lent).y, -x)
    assert np.array_equal(contents(lent), x)


@lends
def test_calls_beside_one_that_changes_an_array_for_a_moment(server, lend):
    x = np.arange(1000.0)
    lent = lend(server, x)
    borrow = server.function("lent/borrow")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        seen = {result.seen for result in pool.map(lambda _: borrow(1000, lent), range(20))}
    assert seen == {500.0}
    assert np.array_equal(contents(lent), x)


@lends
def test_routines_that_destroy_their_input(server, lend):
    n = 60
    a = np.random.default_rng(2).random((n, n))
    a = a + a.T
    lent = lend(server, a)
    for _ in range(3):
        size = {"n": n, "lda": n, "ldz": 1, "lwork": 26 * n, "liwork": 10 * n}
        which = {"jobz": "N", "range": "A", "uplo": "L", "vl": 0, "vu": 0, "il": 1, "iu": n}
        found = server.function("lapack/dsyevr")(**size, **which, a=lent, abstol=0)
        assert np.allclose(found.w, np.linalg.eigvalsh(a))
    spectrum = lend(server, np.fft.rfft(a[0]))
    for _ in range(3):
        assert np.allclose(server.call("fft/difft", n, 1, spectrum).y / n, a[0])


@lends
def test_wrong_accesses_are_told_as_ever(server, lend):
    lent = lend(server, np.zeros(10))
    for _ in range(2):
        with pytest.raises(farcall.LibraryError, match="SIGSEGV"):
            server.call("lent/beyond", 10, lent)
    assert server.call("lent/destroy", 10, lent).sum == 0


def test_a_private_copy_counts_as_memory_of_the_worker(start, tmp_path):
    (tmp_path / "lent.idl").write_text(IDL)
    config = tmp_path / "farcall.toml"
    config.write_text("[workers]\nmemory = 300000000\n")
    options = ["--allow-code", "--workers", "1", "--config", config]
    server = start(tmp_path / "lent.idl", options=options).connect()
    small, large = server.put(np.ones(1_000_000)), server.put(np.ones(50_000_000))
    assert server.call("lent/destroy", 1_000_000, small).sum == 1_000_000
    with pytest.raises(farcall.LibraryError, match="ran out of memory"):
        server.call("lent/destroy", 50_000_000, large)
    assert large.get().min() == 1
