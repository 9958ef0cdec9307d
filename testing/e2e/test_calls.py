"""What `Calls` passes beside the caller's arguments, callbacks with values, and types of C."""

import farcall
import numpy as np
import pytest
import scipy.linalg
from servers import ServerProcess

LIBRARY = """
Module own;
Globals {
    #include <stdbool.h>
    #include <stddef.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>

    double minimum(double (*f)(double, void *), void *user, double low, double high, int steps)
    {
        double best = low;
        for (int i = 0; i <= steps; i++) {
            double x = low + (high - low) * i / steps;
            if (f(x, user) < f(best, user))
                best = x;
        }
        return best;
    }

    int count(const char *text, char letter, const double *none, int64_t add, double half)
    {
        int found = none == NULL && half == 0.5 ? 0 : -1000;
        for (; *text; text++)
            found += *text == letter;
        return found + (int)(add >> 32);
    }

    size_t positives(size_t n, const int16_t *x, bool strict, uint64_t *sum)
    {
        size_t found = 0;
        *sum = 0;
        for (size_t i = 0; i < n; i++)
            if (strict ? x[i] > 0 : x[i] >= 0) {
                found++;
                *sum += (uint64_t)x[i];
            }
        return found;
    }

    int8_t least(size_t n, const int8_t *x)
    {
        int8_t found = 127;
        for (size_t i = 0; i < n; i++)
            found = x[i] < found ? x[i] : found;
        return found;
    }

    const char *colour(int index) { return index == 0 ? NULL : index == 1 ? "red" : "ultramarine"; }

    static int released;

    void give_back(void *block)
    {
        released++;
        free(block);
    }

    int releases(void) { return released; }

    double *divisors(int n, int *count)
    {
        double *found = malloc(sizeof(double) * (size_t)n);
        *count = 0;
        for (int d = 1; d <= n; d++)
            if (n % d == 0)
                found[(*count)++] = d;
        return found;
    }

    int pairs(int n, int (**found)[2], long *count, char **title)
    {
        *count = n;
        *found = n < 0 ? NULL : malloc(sizeof(int[2]) * (size_t)n);
        for (int i = 0; i < n; i++)
            (*found)[i][0] = i, (*found)[i][1] = i * i;
        *title = strdup("squares");
        return 0;
    }

    int all_kinds(bool (*even)(int), float (*half)(float), int16_t (*minus)(int16_t),
                  uint32_t (*large)(void), double _Complex (*turned)(double))
    {
        double _Complex z = turned(2.0);
        return even(4) && !even(3) && half(3.0f) == 1.5f && minus(5) == -5
            && large() == 4000000000u && __real__ z == 0.0 && __imag__ z == 2.0;
    }

    void fortran_(const char *kind, const int *n, const double *x, const char *letter, int *seen,
                  size_t length, size_t one)
    {
        *seen = length == 3 && one == 1 && memcmp(kind, "abc", 3) == 0 && *n == -7 && *x == 2.5
            && *letter == 'N';
    }
}

Define minimum(IN double low, IN double high, OUT double *x, double f(IN double x, void *user))
    Calls "C" x = minimum(f, NULL, low, high, 1000);
Define letters(IN string text, OUT int *found)
    Calls "C" found = count(text, 'a', NULL, 12884901888, 0.5);
Define positives(IN size_t n, IN const int16_t x[n], IN bool strict, OUT uint64_t *sum,
                 OUT size_t *found)
    Calls "C" found = positives(n, x, strict, sum);
Define least(IN size_t n, IN int8_t x[n], IN int8_t start, OUT int8_t *found)
    Calls "C" found = least(n, x);
Define colour(IN int index, OUT string[8] *name) Calls "C" name = colour(index);
Define releases(OUT int *count) Calls "C" count = releases();
Define divisors(IN int n, IN int most, OUT allocate double found[most : count], OUT int *count)
    Release "give_back"
    Calls "C" found = divisors(n, count);
Define kept(IN int n, OUT allocate double found[n : 1], OUT int *count)
    Calls "C" found = divisors(n, count);
Define pairs(IN int n, OUT allocate int found[20 : count][2], OUT long *count,
             OUT allocate string[10] *title, OUT int *status)
    Release "free"
    Calls "C" status = pairs(n, found, count, title);
Define body_allocates(IN int n, OUT allocate int found[8 : count], OUT int *count) Release "free"
{
    *found = malloc(sizeof(int) * n);
    for (*count = 0; *count < n; ++*count)
        (*found)[*count] = *count;
}
Define kinds(OUT int *right, bool even(IN int n), float half(IN float x),
             int16_t minus(IN int16_t n), uint32_t large(void), dcomplex turned(IN double x))
    Calls "C" right = all_kinds(even, half, minus, large, turned);
Define body(OUT int *x, float half(IN float x, void *user)) { *x = half(9.0f, x) == 4.5f; }
Define fortran(OUT int *seen)
    Calls "FORTRAN" fortran("abc", -7, 2.5, 'N', seen);
"""

SCHUR = """
Module schur;
Library "libopenblas.so.0";
Define dgees(IN int n, INOUT double a[n][n], OUT int *sdim, OUT double wr[n], OUT double wi[n],
             OUT double vs[n][n], IN int lwork, WORK double work[lwork], WORK LOGICAL bwork[n],
             OUT int *info, LOGICAL select(IN double wr, IN double wi))
    Calls "FORTRAN" dgees('V', 'S', select, n, a, n, sdim, wr, wi, vs, n, work, lwork, bwork, info);
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    for name, text in ("own", LIBRARY), ("schur", SCHUR):
        (folder / f"{name}.idl").write_text(text)
    process = ServerProcess(
        *sorted(folder.glob("*.idl")), options=["--allow-code", "--workers", "1"]
    )
    yield process.connect()
    process.stop()


def test_a_callback_returns_its_value_and_the_users_pointer_stays_at_the_server(server):
    minimum = server.function("own/minimum")
    assert minimum(low=-4.0, high=4.0, f=lambda x: (x - 2) ** 2 + 1).x == pytest.approx(2)

    def fills(x, value):
        value[0] = abs(x + 1)

    assert minimum(low=-4.0, high=4.0, f=fills).x == pytest.approx(-1)
    with pytest.raises(farcall.CallbackError, match="returned None"):
        minimum(low=-4.0, high=4.0, f=lambda _: None)


def test_constants_and_null_are_passed(server):
    assert server.function("own/letters")(text="banana").found == 3 + 3
    assert server.function("own/fortran")().seen == 1


def test_types_of_c(server):
    positives = server.function("own/positives")
    x = np.array([-3, 0, 5, 300], np.int16)
    result = positives(n=4, x=x, strict=True)
    assert (result.found, result.sum) == (2, 305)
    assert positives(n=4, x=x, strict=False).found == 3


def test_callbacks_return_every_kind_of_number(server):
    functions = {
        "even": lambda n: n % 2 == 0,
        "half": lambda x: x / 2,
        "minus": lambda n: -n,
        "large": lambda: 4_000_000_000,
        "turned": lambda x: 1j * x,
    }
    assert server.function("own/kinds")(**functions).right == 1
    assert server.function("own/body")(half=functions["half"]).x == 1


def test_dgees_selects_eigenvalues_as_scipy_does(server):
    a = np.random.default_rng(3).standard_normal((6, 6))

    def stable(real, _):
        return real < 0

    t, _, count = scipy.linalg.schur(a, sort=stable)
    result = server.function("schur/dgees")(
        n=6, a=np.asfortranarray(a), lwork=200, select=lambda wr, wi: int(stable(wr, wi))
    )
    assert result.info == 0
    assert result.sdim == count
    assert 0 < count < 6
    # Eigenvalues of one kind come in an order that depends on the processor.
    np.testing.assert_allclose(np.sort(result.wr), np.sort(np.diag(t)), atol=1e-10)
    np.testing.assert_allclose(result.vs @ result.a @ result.vs.T, a, atol=1e-10)
    assert (result.wr[:count] < 0).all()
    assert (result.wr[count:] >= 0).all()


def test_small_integers_are_numbers(server):
    least = server.function("own/least")
    x = np.array([3, -100, 90], np.int8)
    result = least(n=3, x=x, start=-1)
    assert result.found == -100
    assert result._fields == ("found",)
    with pytest.raises(farcall.ArgumentError, match="-128"):
        least(n=3, x=x, start=200)
    assert "int8" in least.__doc__


def test_a_text_that_the_function_returns(server):
    colour = server.function("own/colour")
    assert [colour(index=index).name for index in (0, 1)] == ["", "red"]
    with pytest.raises(farcall.Error, match="text of 11 bytes, declared are at most 8"):
        colour(index=2)


def test_results_of_which_only_the_function_knows_the_size(server):
    divisors = server.function("own/divisors")
    result = divisors(n=12, most=50)
    np.testing.assert_array_equal(result.found, [1, 2, 3, 4, 6, 12])
    assert result.count == 6
    mine = np.full(10, -1.0)
    assert len(divisors(n=7, most=10, found=mine).found) == 2
    np.testing.assert_array_equal(mine, [1, 7] + 8 * [0])
    with pytest.raises(farcall.Error, match="6 elements, declared are at most 5"):
        divisors(n=12, most=5)
    # Each worker counts what it has released, and there is one.
    assert server.function("own/releases")().count == 3
    assert server.function("own/kept")(n=5).found[0] == 1
    assert server.function("own/releases")().count == 3


def test_a_table_and_a_text_come_through_pointers(server):
    pairs = server.function("own/pairs")
    result = pairs(n=3)
    np.testing.assert_array_equal(result.found, [[0, 0], [1, 1], [2, 4]])
    assert (result.title, result.count, result.status) == ("squares", 3, 0)
    assert pairs(n=0).found.shape == (0, 2)
    with pytest.raises(farcall.Error, match="-1 elements"):
        pairs(n=-1)
    np.testing.assert_array_equal(server.function("own/body_allocates")(n=3).found, [0, 1, 2])
