"""LAPACK drivers and the computational routines under them, after LAPACK's documentation.

The argument list is LAPACK's, but for work space: WORK arrays are the server's and are not passed.
`lwork` and its like stay, and the work space has as many elements as they say; with -1, the query
of LAPACK, there is one element, and the best size is not returned. The descriptions name the least
sizes.
"""

from . import (
    lapack_band,
    lapack_blocks,
    lapack_factors,
    lapack_packed,
    lapack_pairs,
    lapack_pivots,
    lapack_schur,
    lapack_singular,
    lapack_spectra,
    lapack_systems,
    lapack_tridiagonal,
)
from .description import is_one, matrix, routine
from .parts import A_IN, A_MN, INFO, MAX, MIN, SQUARE, TALL, UPLO, WIDE, A, B, only, work

HEADER = """
/* LAPACK. Written by libraries/generate.py: change libraries/routines/lapack.py.

   The argument lists are LAPACK's without the work space: WORK arrays are made at the server and
   are not passed. lwork, lrwork and liwork stay; work space has as many elements as they say. The
   query lwork = -1 is harmless but returns nothing: the descriptions name the least sizes. */
Module lapack;
Library "libopenblas.so.0";"""


def routines():
    yield from general()
    yield from positive_definite()
    yield from symmetric_systems()
    yield from banded()
    yield from orthogonal_factors()
    yield from least_squares()
    yield from singular_values()
    yield from symmetric_eigenvalues()
    yield from general_eigenvalues()
    yield from lapack_systems.routines()
    yield from lapack_factors.routines()
    yield from lapack_spectra.routines()
    yield from lapack_schur.routines()
    yield from lapack_packed.routines()
    yield from lapack_band.routines()
    yield from lapack_tridiagonal.routines()
    yield from lapack_pivots.routines()
    yield from lapack_blocks.routines()
    yield from lapack_pairs.routines()
    yield from lapack_singular.routines()


def general():
    yield from routine("{p}gesv",
                       f"IN int n, IN int nrhs, {A}, OUT int ipiv[n], {B}, {INFO}",
                       "Solve A X = B; A becomes its factors L and U, B the solution",
                       "2 / 3 * n^3 + 2 * n^2 * nrhs", SQUARE, size="n")
    yield from routine("{p}getrf", f"IN int m, IN int n, {A_MN}, OUT int ipiv[{MIN}], {INFO}",
                       "Factor A = P L U", f"{MAX} * {MIN}^2 - 1 / 3 * {MIN}^3", [TALL, WIDE],
                       size=MIN)
    yield from routine("{p}getrs",
                       f"IN char trans, IN int n, IN int nrhs, {A_IN}, IN int ipiv[n], {B}, {INFO}",
                       "Solve op(A) X = B with the factors of getrf", "2 * n^2 * nrhs",
                       [dict(case, trans=trans) for case in SQUARE for trans in "NT"])
    yield from routine("{p}getri", f"IN int n, {A}, IN int ipiv[n], {work()}, IN int lwork, {INFO}",
                       "Invert A with the factors of getrf; lwork at least n, better 64 n",
                       "4 / 3 * n^3", [dict(n=7, lda=9, lwork=448), dict(n=4, lda=4, lwork=4)],
                       size="n")


def positive_definite():
    yield from routine("{p}posv", f"IN char uplo, IN int n, IN int nrhs, {A}, {B}, {INFO}",
                       "Solve A X = B, A positive definite", "1 / 3 * n^3 + 2 * n^2 * nrhs", UPLO,
                       size="n")
    yield from routine("{p}potrf", f"IN char uplo, IN int n, {A}, {INFO}",
                       "Cholesky factorisation", "1 / 3 * n^3", only(UPLO, "n", "lda", "uplo"),
                       size="n")
    yield from routine("{p}potrs", f"IN char uplo, IN int n, IN int nrhs, {A_IN}, {B}, {INFO}",
                       "Solve A X = B with the factor of potrf", "2 * n^2 * nrhs", UPLO)


def symmetric_systems():
    arguments = (f"IN char uplo, IN int n, IN int nrhs, {A}, OUT int ipiv[n], {B}, "
                 f"{work()}, IN int lwork, {INFO}")
    cases = [dict(case, lwork=448) for case in UPLO]
    kinds = (("{p}sysv", "sdcz", "symmetric"), ("{p}hesv", "cz", "hermitian"))
    for name, precisions, kind in kinds:
        yield from routine(name, arguments,
                           f"Solve A X = B, A {kind}; lwork at least 1, better 64 n",
                           "1 / 3 * n^3 + 2 * n^2 * nrhs", cases, precisions)


def banded():
    yield from routine("{p}gbsv",
                       "IN int n, IN int kl, IN int ku, IN int nrhs, "
                       f"{matrix('INOUT', 'ab', '2 * kl + ku + 1', 'n', 'ldab')}, "
                       f"OUT int ipiv[n], {B}, {INFO}",
                       "Solve A X = B, A with kl diagonals below and ku above the main one",
                       "2 * n * kl * (kl + ku + 1) + 2 * n * (2 * kl + ku + 1) * nrhs",
                       [dict(n=7, kl=2, ku=1, nrhs=3, ldab=7, ldb=8)])
    yield from routine("{p}gtsv",
                       "IN int n, IN int nrhs, INOUT {T} dl[max(0, n - 1)], INOUT {T} d[n], "
                       f"INOUT {{T}} du[max(0, n - 1)], {B}, {INFO}",
                       "Solve A X = B, A tridiagonal", "n * (3 + 5 * nrhs)",
                       [dict(n=7, nrhs=3, ldb=8)])


def orthogonal_factors():
    yield from routine("{p}geqrf",
                       f"IN int m, IN int n, {A_MN}, OUT {{T}} tau[{MIN}], {work()}, "
                       f"IN int lwork, {INFO}",
                       "Factor A = Q R; A becomes R and the reflectors of Q; lwork at least n, "
                       "better 64 n",
                       f"2 * {MAX} * {MIN}^2 - 2 / 3 * {MIN}^3",
                       [dict(case, lwork=384) for case in (TALL, WIDE)], size=MIN)
    yield from routine("{p}{or}gqr",
                       f"IN int m, IN int n, IN int k, {A_MN}, IN {{T}} tau[k], {work()}, "
                       f"IN int lwork, {INFO}",
                       "The first n columns of Q, m by m, from the k reflectors of geqrf; "
                       "m >= n >= k; lwork at least n, better 64 n",
                       "4 * m * n * k - 2 * (m + n) * k^2 + 4 / 3 * k^3",
                       [dict(m=8, n=5, k=3, lda=9, lwork=320), dict(m=4, n=4, k=4, lda=4, lwork=4)],
                       size="k")


def least_squares():
    b = matrix("INOUT", "b", MAX, "nrhs", "ldb")
    head = f"IN int m, IN int n, IN int nrhs, {A_MN}, {b}"
    cases = [dict(case, nrhs=2, ldb=9) for case in (TALL, WIDE)]
    yield from routine("{p}gels", f"IN char trans, {head}, {work()}, IN int lwork, {INFO}",
                       "Least squares or least norm by QR or LQ, A of full rank; lwork at least "
                       "min(m, n) + max(1, m, n, nrhs), better 64 times that",
                       f"2 * {MAX} * {MIN}^2 - 2 / 3 * {MIN}^3 + 4 * m * n * nrhs",
                       [dict(case, trans="N", lwork=900) for case in cases], size=MIN)
    tail = "OUT {R} s[min(m, n)], IN {R} rcond, OUT int *rank, " + work() + ", IN int lwork"
    cases = [dict(case, rcond=1e-6, lwork=6000) for case in cases]
    cost = f"4 * {MAX} * {MIN}^2 + 8 * {MIN}^3 + 4 * m * n * nrhs"
    words = ("Least norm solution of least squares by the singular values, divide and conquer; "
             "lwork at least ")
    # The number of levels, log2(min(m, n) / 26) + 1, is at most 27 for 32-bit sizes.
    integers = f"WORK int iwork[max(1, 92 * {MIN})]"
    yield from routine("{p}gelsd", f"{head}, {tail}, {integers}, {INFO}",
                       words + "k (62 + 8 l + nrhs) + 676 + max(m, n), where k = min(m, n) and "
                       "l = max(0, log2(k / 26) + 1)",
                       cost, cases, "sd")
    reals = (f"WORK {{R}} rwork[276 * {MIN} + 75 * nrhs + "
             f"max(676, {MIN} * (1 + nrhs) + 2 * nrhs)]")
    yield from routine("{p}gelsd", f"{head}, {tail}, {reals}, {integers}, {INFO}",
                       words + "2 min(m, n) + min(m, n) nrhs and max(m, n) + 64 min(m, n)", cost,
                       cases, "cz")


def singular_values():
    all_u, some_u = is_one("jobu", "A"), is_one("jobu", "S")
    all_v, some_v = is_one("jobvt", "A"), is_one("jobvt", "S")
    u = (f"OUT {{T}} u[{all_u} ? m : {some_u} ? {MIN} : 0]"
         f"[ldu : {all_u} || {some_u} ? m : 0], IN int ldu")
    vt = (f"OUT {{T}} vt[{all_v} || {some_v} ? n : 0]"
          f"[ldvt : {all_v} ? n : {some_v} ? {MIN} : 0], IN int ldvt")
    head = f"IN int m, IN int n, {A_MN}, OUT {{R}} s[{MIN}]"
    vectors = is_one("jobu", "N") + " && " + is_one("jobvt", "N")
    cost = (f"{vectors} ? 4 * {MAX} * {MIN}^2 - 4 / 3 * {MIN}^3 "
            f": 14 * {MAX} * {MIN}^2 + 8 * {MIN}^3")
    sizes = [dict(case, ldu=9, ldvt=7, lwork=900) for case in (TALL, WIDE)]
    cases = [dict(case, jobu=ju, jobvt=jv) for case in sizes for ju, jv in ("AA", "SS", "NN", "ON")]
    for precisions, more in (("sd", ""), ("cz", f"WORK {{R}} rwork[max(1, 5 * {MIN})], ")):
        least = "3 min(m, n) + max(m, n) and 5 min(m, n)" if not more else "2 min(m, n) + max(m, n)"
        yield from routine("{p}gesvd",
                           f"IN char jobu, IN char jobvt, {head}, {u}, {vt}, {work()}, "
                           f"IN int lwork, {more}{INFO}",
                           f"Singular values and vectors, A = U S VT; lwork at least {least}",
                           cost, cases, precisions)
    yield from divide_and_conquer(head, sizes)


def divide_and_conquer(head, sizes):
    everything, some, over = (is_one("jobz", letter) for letter in "ASO")
    u_over, v_over = f"({over} && m < n)", f"({over} && m >= n)"
    u = (f"OUT {{T}} u[{everything} || {u_over} ? m : {some} ? {MIN} : 0]"
         f"[ldu : {everything} || {some} || {u_over} ? m : 0], IN int ldu")
    vt = (f"OUT {{T}} vt[{everything} || {some} || {v_over} ? n : 0]"
          f"[ldvt : {everything} || {v_over} ? n : {some} ? {MIN} : 0], IN int ldvt")
    cost = (f"{is_one('jobz', 'N')} ? 4 * {MAX} * {MIN}^2 - 4 / 3 * {MIN}^3 "
            f": 6 * {MAX} * {MIN}^2 + 20 * {MIN}^3")
    cases = [dict(case, jobz=jobz) for case in sizes for jobz in "ASON"]
    rwork = (f"WORK {{R}} rwork[max(1, {is_one('jobz', 'N')} ? 7 * {MIN} : {MIN} * "
             f"max(5 * {MIN} + 7, 2 * {MAX} + 2 * {MIN} + 1))], ")
    for precisions, more in (("sd", ""), ("cz", rwork)):
        least = ("4 min(m, n)^2 + 7 min(m, n)" if not more
                 else "2 min(m, n)^2 + 2 min(m, n) + max(m, n)")
        if not more:
            least += " and 3 min(m, n) + max(m, n)"
        yield from routine("{p}gesdd",
                           f"IN char jobz, {head}, {u}, {vt}, {work()}, IN int lwork, {more}"
                           f"WORK int iwork[max(1, 8 * {MIN})], {INFO}",
                           "Singular values and vectors by divide and conquer, A = U S VT; lwork "
                           f"at least {least}", cost, cases, precisions, size=MIN)


def symmetric_eigenvalues():
    head = f"IN char jobz, IN char uplo, IN int n, {A}, OUT {{R}} w[n], {work()}, IN int lwork"
    cases = [dict(case, jobz=jobz) for case in only(UPLO, "n", "lda", "uplo") for jobz in "NV"]
    values = is_one("jobz", "N")
    words = "Eigenvalues and vectors of a {kind} matrix, ascending; A becomes the vectors; "
    simple = [dict(case, lwork=300) for case in cases]
    cost = f"{values} ? 4 / 3 * n^3 : 9 * n^3"
    yield from routine("{p}syev", f"{head}, {INFO}",
                       words.format(kind="symmetric") + "lwork at least 3 n - 1, better 34 n",
                       cost, simple, "sd")
    yield from routine("{p}heev", f"{head}, WORK {{R}} rwork[max(1, 3 * n - 2)], {INFO}",
                       words.format(kind="hermitian") + "lwork at least 2 n - 1, better 33 n",
                       cost, simple, "cz")
    integers = f"{work('iwork', 'liwork', 'int')}, IN int liwork"
    divide = [dict(case, lwork=400, liwork=60) for case in cases]
    cost = f"{values} ? 4 / 3 * n^3 : 16 / 3 * n^3"
    yield from routine("{p}syevd", f"{head}, {integers}, {INFO}",
                       words.format(kind="symmetric") + "divide and conquer; with vectors lwork at "
                       "least 1 + 6 n + 2 n^2 and liwork 3 + 5 n, else 2 n + 1 and 1",
                       cost, divide, "sd", size="n")
    reals = f"{work('rwork', 'lrwork', '{R}')}, IN int lrwork"
    yield from routine("{p}heevd", f"{head}, {reals}, {integers}, {INFO}",
                       words.format(kind="hermitian") + "divide and conquer; with vectors lwork at "
                       "least 2 n + n^2, lrwork 1 + 5 n + 2 n^2 and liwork 3 + 5 n, else n + 1, n "
                       "and 1",
                       cost, [dict(case, lrwork=300) for case in divide], "cz", size="n")


def general_eigenvalues():
    left, right = is_one("jobvl", "V"), is_one("jobvr", "V")
    vectors = (f"OUT {{T}} vl[{left} ? n : 0][ldvl : {left} ? n : 0], IN int ldvl, "
               f"OUT {{T}} vr[{right} ? n : 0][ldvr : {right} ? n : 0], IN int ldvr")
    head = f"IN char jobvl, IN char jobvr, IN int n, {A}"
    tail = f"{vectors}, {work()}, IN int lwork"
    cases = [dict(n=6, lda=8, ldvl=7, ldvr=6, lwork=400, jobvl=jl, jobvr=jr)
             for jl, jr in ("NN", "NV", "VV")]
    cost = f"{left} || {right} ? 25 * n^3 : 10 * n^3"
    yield from routine("{p}geev", f"{head}, OUT {{T}} wr[n], OUT {{T}} wi[n], {tail}, {INFO}",
                       "Eigenvalues wr + i wi and vectors of a general matrix; lwork at least 4 n",
                       cost, cases, "sd")
    yield from routine("{p}geev",
                       f"{head}, OUT {{T}} w[n], {tail}, WORK {{R}} rwork[2 * n], {INFO}",
                       "Eigenvalues and vectors of a general matrix; lwork at least 2 n", cost,
                       cases, "cz")
