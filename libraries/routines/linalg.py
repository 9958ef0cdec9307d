"""Stacks of matrices, through libraries/linalg_shim.c."""

from .description import PRECISIONS, Routine, is_one, split_params

HEADER = """
/* Stacks of matrices. Written by libraries/generate.py: change libraries/routines/linalg.py.

   One call computes `count` matrices in C order, which lie one after the other; farcall.linalg and
   farcall.scipy.linalg call these functions. info[i] is 0, or says as LAPACK does why matrix i
   failed; its results are NaN then, but for factors, pivots and determinants, which a singular
   matrix has too. info is -1000 where memory is missing. structure is 0 for general matrices, 101
   for positive definite, 201 for symmetric and 211 for hermitian ones, of which uplo is read; -1
   finds it out. With check not 0, rcond has the reciprocals of the condition numbers in the
   1-norm. */
Module linalg;
Library "libfarcall_linalg.so";"""

SQUARE, COUNT = "[count * m * m]", "IN long count, "
TALL = "[count * m * n]"
LEAST = "min(m, n)"
VECTORS, NONE, ALL, FIRST = (is_one("jobz", letter) for letter in "VNAS")
# So much work makes another thread worth while: about four milliseconds.
WORK_PER_ELEMENT = 50000000


def functions():
    """Name, parameters with {T} and {R}, description and operations for each matrix."""
    yield ("slogdet", f"IN int m, {COUNT}IN {{T}} a{SQUARE}, OUT {{T}} sign[count], "
           "OUT {R} logdet[count]",
           "Sign and logarithm of the absolute value of determinants", "2 / 3 * m^3", "m")
    yield ("det", f"IN int m, {COUNT}IN {{T}} a{SQUARE}, OUT {{T}} det[count]",
           "Determinants, as the products of the pivots", "2 / 3 * m^3", "m")
    yield ("getrf", f"IN int m, IN int n, {COUNT}IN {{T}} a{TALL}, OUT {{T}} f{TALL}, "
           f"OUT int ipiv[count * {LEAST}]", "Factors of A = P L U in f, and the pivots",
           f"max(m, n) * {LEAST}^2", LEAST)
    yield ("solve", "IN int structure, IN char uplo, IN char trans, IN int m, IN int n, "
           f"IN int check, IN int keep, {COUNT}IN {{T}} a{SQUARE}, IN {{T}} b{TALL}, "
           f"OUT {{T}} x{TALL}, OUT {{T}} f[keep != 0 ? count * m * m : 0], OUT {{R}} rcond[count]",
           "Solutions of A X = B; with keep not 0, f has the factors of A in column order",
           "2 / 3 * m^3 + 2 * m^2 * n", "m")
    yield ("inv", f"IN int structure, IN char uplo, IN int m, IN int check, {COUNT}"
           f"IN {{T}} a{SQUARE}, OUT {{T}} x{SQUARE}, OUT {{R}} rcond[count]", "Inverses",
           "8 / 3 * m^3", "m")
    yield ("cholesky", f"IN char uplo, IN int m, {COUNT}IN {{T}} a{SQUARE}, OUT {{T}} x{SQUARE}",
           "Cholesky factors, with zeros in the other triangle", "1 / 3 * m^3", "m")
    yield ("eigh", f"IN char jobz, IN char uplo, IN int m, {COUNT}IN {{T}} a{SQUARE}, "
           f"OUT {{R}} w[count * m], OUT {{T}} v[{VECTORS} ? count * m * m : 0]",
           "Eigenvalues, ascending, of symmetric or hermitian matrices; vectors with jobz 'V'",
           f"{VECTORS} ? 16 / 3 * m^3 : 4 / 3 * m^3", "m")
    yield ("eig", f"IN char jobz, IN int m, {COUNT}IN {{T}} a{SQUARE}, "
           f"OUT dcomplex w[count * m], OUT dcomplex v[{VECTORS} ? count * m * m : 0]",
           "Eigenvalues of square matrices; right vectors with jobz 'V'",
           f"{VECTORS} ? 25 * m^3 : 10 * m^3", "m")
    yield ("svd", f"IN char jobz, IN int m, IN int n, {COUNT}IN {{T}} a{TALL}, "
           f"OUT {{T}} u[{ALL} ? count * m * m : {FIRST} ? count * m * {LEAST} : 0], "
           f"OUT {{R}} s[count * {LEAST}], "
           f"OUT {{T}} vt[{ALL} ? count * n * n : {FIRST} ? count * {LEAST} * n : 0]",
           "Singular values; with jobz 'A' all vectors, with 'S' the first min(m, n)",
           f"{NONE} ? 4 * max(m, n) * {LEAST}^2 "
           f": 6 * max(m, n) * {LEAST}^2 + 20 * {LEAST}^3", LEAST)
    yield ("geqrf", f"IN int m, IN int n, {COUNT}IN {{T}} a{TALL}, OUT {{T}} f{TALL}, "
           f"OUT {{T}} tau[count * {LEAST}]",
           "R of A = Q R in the upper triangle of f, the reflectors of Q below it, and tau",
           f"2 * max(m, n) * {LEAST}^2", LEAST)
    yield ("orgqr", f"IN int m, IN int n, IN int k, {COUNT}IN {{T}} f{TALL}, "
           f"IN {{T}} tau[count * {LEAST}], OUT {{T}} q[count * m * k]",
           "The first k columns of Q from the f and tau of geqrf", f"4 * m * k * {LEAST}", "k")
    yield ("lstsq", f"IN int m, IN int n, IN int nrhs, {COUNT}IN {{T}} a{TALL}, "
           "IN {T} b[count * m * nrhs], IN {R} rcond[count], OUT {T} x[count * n * nrhs], "
           f"OUT {{R}} resids[count * nrhs], OUT int rank[count], OUT {{R}} s[count * {LEAST}]",
           "Least squares: solutions of least norm, residues where the rank is full, ranks and "
           "singular values", f"4 * max(m, n) * {LEAST}^2 + 8 * {LEAST}^3", LEAST)


def routines():
    """All functions in double precision, real and complex."""
    for name, params, description, cost, size in functions():
        for p in "dz":
            element, real = PRECISIONS[p]
            text = params.replace("{T}", element).replace("{R}", real)
            cost_of_one = f"4 * ({cost})" if p == "z" else f"({cost})"
            yield Routine(
                name=p + name,
                params=split_params(text + ", OUT int info[count]"),
                description=description,
                cost=f"count * {cost_of_one}",
                cases=[],
                convention="C",
                elements=f"1 + {size} / 1200 + count / 2 * ({size} + 8)^3 / {WORK_PER_ELEMENT}",
            )
