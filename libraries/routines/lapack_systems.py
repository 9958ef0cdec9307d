"""Computational routines for systems of linear equations, and their expert drivers.

Condition numbers, band and tridiagonal matrices need few operations for each number. Servers have
them, and drop-in libraries leave them out.
"""

from .description import is_one, matrix, routine
from .parts import A_IN, INFO, SQUARE, UPLO, A, B, both, forms, more, only, work

HEAD = "IN char uplo, IN int n"
IPIV = "IN int ipiv[n]"
RCOND = "OUT {R} *rcond"
B_IN = matrix("IN", "b", "n", "nrhs", "ldb")
X = matrix("OUT", "x", "n", "nrhs", "ldx")
ERRORS = "OUT {R} ferr[nrhs], OUT {R} berr[nrhs]"
AF = matrix("INOUT", "af", "n", "n", "ldaf")
AF_IN = matrix("IN", "af", "n", "n", "ldaf")
NORM = [dict(n=7, lda=9, norm="1", anorm=30.0), dict(n=4, lda=4, norm="I", anorm=25.0)]
PLAIN = only(UPLO, "n", "lda", "uplo")
INTEGERS, REALS = work("iwork", "n", "int"), work("rwork", "n", "{R}")


def routines():
    yield from general()
    yield from triangular()
    yield from positive_definite()
    yield from symmetric()
    yield from expert()
    yield from general_band()
    yield from positive_band()
    yield from tridiagonal()


def condition(name, head, description, cost, cases, *, sizes=(3, 2), reals="n"):
    """The reciprocal of a condition number. `sizes` are those of the work space, in n."""
    real, other = (work(size=f"{size} * n") for size in sizes)
    yield from both(name, f"{head}, {RCOND}, {real}, {INTEGERS}, {INFO}",
                    f"{head}, {RCOND}, {other}, {work('rwork', reals, '{R}')}, {INFO}",
                    description, cost, cases)


def general():
    yield from condition("{p}gecon", f"IN char norm, IN int n, {A_IN}, IN {{R}} anorm",
                         "Reciprocal of the condition number of A with the factors of getrf",
                         "10 * n^2", NORM, sizes=(4, 2), reals="2 * n")
    head = f"IN char trans, IN int n, IN int nrhs, {A_IN}, {AF_IN}, {IPIV}, {B_IN}"
    yield from refined("{p}gerfs", head, more(SQUARE, trans="N", ldaf=8, ldx=8))


def refined(name, head, cases, precisions="sdcz", cost="18 * n^2 * nrhs"):
    """Iterative refinement. A solution that is no solution yet is one that is refined much."""
    words = "Refine the solution X of A X = B, and bound its errors"
    tail = f"{matrix('INOUT', 'x', 'n', 'nrhs', 'ldx')}, {ERRORS}"
    for kinds, size, last in (("sd", 3, INTEGERS), ("cz", 2, REALS)):
        kind = "".join(p for p in kinds if p in precisions)
        yield from routine(name, f"{head}, {tail}, {work(size=f'{size} * n')}, {last}, {INFO}",
                           words, cost, cases, kind)


def triangular():
    head = "IN char uplo, IN char diag, IN int n"
    cases = forms(only(SQUARE, "n", "lda"), uplo="UL", diag="NU")
    yield from routine("{p}trtri", f"{head}, {A}, {INFO}", "Invert a triangular matrix",
                       "1 / 3 * n^3", cases, size="n")
    yield from routine("{p}trtrs",
                       f"IN char uplo, IN char trans, IN char diag, IN int n, IN int nrhs, "
                       f"{A_IN}, {B}, {INFO}", "Solve op(A) X = B, A triangular", "n^2 * nrhs",
                       forms(more(SQUARE, diag="N"), uplo="UL", trans="NTC"))
    yield from condition("{p}trcon", f"IN char norm, {head}, {A_IN}",
                         "Reciprocal of the condition number of a triangular matrix", "5 * n^2",
                         more(cases[:2], norm="1"))


def positive_definite():
    yield from routine("{p}potri", f"{HEAD}, {A}, {INFO}", "Invert A with the factor of potrf",
                       "2 / 3 * n^3", PLAIN, size="n")
    yield from condition("{p}pocon", f"{HEAD}, {A_IN}, IN {{R}} anorm",
                         "Reciprocal of the condition number of A with the factor of potrf",
                         "10 * n^2", more(PLAIN, anorm=30.0))
    yield from routine("{p}pstrf",
                       f"{HEAD}, {A}, OUT int piv[n], OUT int *rank, IN {{R}} tol, "
                       f"{work(size='2 * n', element='{R}')}, {INFO}",
                       "Cholesky factorisation with pivots, A positive semidefinite",
                       "1 / 3 * n^3", more(PLAIN, tol=-1.0), size="n")
    head = f"{HEAD}, IN int nrhs, {A_IN}, {AF_IN}, {B_IN}"
    yield from refined("{p}porfs", head, more(UPLO, ldaf=8, ldx=8))


def symmetric():
    blocked = more(PLAIN, lwork=448)
    kinds = (("{p}sy", "sdcz", "symmetric"), ("{p}he", "cz", "hermitian"))
    for kind, precisions, word in kinds:
        yield from routine(kind + "trf", f"{HEAD}, {A}, OUT int ipiv[n], {work()}, IN int lwork, "
                           f"{INFO}", f"Factor A = U D U', A {word}; lwork at least 1, better "
                           "64 n", "1 / 3 * n^3", blocked, precisions, size="n")
        yield from routine(kind + "trs", f"{HEAD}, IN int nrhs, {A_IN}, {IPIV}, {B}, {INFO}",
                           f"Solve A X = B with the factors of {kind[3:]}trf", "2 * n^2 * nrhs",
                           UPLO, precisions)
        yield from routine(kind + "tri", f"{HEAD}, {A}, {IPIV}, {work(size='2 * n')}, {INFO}",
                           f"Invert A with the factors of {kind[3:]}trf", "2 / 3 * n^3", PLAIN,
                           precisions, size="n")
        head = f"{HEAD}, {A_IN}, {IPIV}, IN {{R}} anorm, {RCOND}, {work(size='2 * n')}"
        words = f"Reciprocal of the condition number of A with the factors of {kind[3:]}trf"
        for pair, last in (("sd", f"{INTEGERS}, "), ("cz", "")):
            which = "".join(p for p in pair if p in precisions)
            yield from routine(kind + "con", f"{head}, {last}{INFO}", words, "10 * n^2",
                               more(PLAIN, anorm=30.0), which)
        head = f"{HEAD}, IN int nrhs, {A_IN}, {AF_IN}, {IPIV}, {B_IN}"
        yield from refined(kind + "rfs", head, more(UPLO, ldaf=8, ldx=8), precisions)


def expert():
    cost = "2 / 3 * n^3 + 24 * n^2 * nrhs"
    scales = is_one("fact", "N") + " ? 0 : n"
    tail = f"{X}, {RCOND}, {ERRORS}"
    b = matrix("INOUT", "b", "n", "nrhs", "ldb")
    # What the first element of the work space tells is a result: the growth of the pivots.
    head = (f"IN char fact, IN char trans, IN int n, IN int nrhs, {A}, {AF}, INOUT int ipiv[n], "
            f"INOUT char equed[1], INOUT {{R}} r[{scales}], INOUT {{R}} c[{scales}], {b}, {tail}")
    cases = forms(more(SQUARE, ldaf=9, ldx=9), fact="NE", trans="NT")
    words = "Solve op(A) X = B, with scaling, refinement and bounds of the errors; {w} tells the " \
            "growth of the pivots"
    yield from both("{p}gesvx",
                    f"{head}, OUT {{T}} work[max(1, 4 * n)], {INTEGERS}, {INFO}",
                    f"{head}, {work(size='2 * n')}, OUT {{R}} rwork[max(1, 2 * n)], {INFO}",
                    words.format(w="the first element of the work space"), cost, cases, size="n")
    head = (f"IN char fact, {HEAD}, IN int nrhs, {A}, {AF}, INOUT char equed[1], "
            f"INOUT {{R}} s[{scales}], {b}, {tail}")
    cost = "1 / 3 * n^3 + 24 * n^2 * nrhs"
    yield from both("{p}posvx", f"{head}, {work(size='3 * n')}, {INTEGERS}, {INFO}",
                    f"{head}, {work(size='2 * n')}, {REALS}, {INFO}",
                    "Solve A X = B, A positive definite, with scaling, refinement and bounds of "
                    "the errors", cost, forms(more(UPLO, ldaf=9, ldx=9), fact="NE"), size="n")
    head = (f"IN char fact, {HEAD}, IN int nrhs, {A_IN}, {AF}, INOUT int ipiv[n], {B_IN}, {tail}, "
            f"{work()}, IN int lwork")
    cases = more(UPLO, ldaf=9, ldx=9, fact="N", lwork=448)
    for kind, precisions in (("sy", "sdcz"), ("he", "cz")):
        for pair, last in (("sd", INTEGERS), ("cz", REALS)):
            which = "".join(p for p in pair if p in precisions)
            yield from routine("{p}" + kind + "svx", f"{head}, {last}, {INFO}",
                               "Solve A X = B, A symmetric or hermitian, with refinement and "
                               "bounds of the errors; lwork at least 3 n, better 64 n", cost,
                               cases, which, size="n")


def general_band():
    band = "IN int kl, IN int ku"
    rows = "2 * kl + ku + 1"
    ab = matrix("INOUT", "ab", rows, "n", "ldab")
    factors = matrix("IN", "ab", rows, "n", "ldab")
    case = dict(n=7, kl=2, ku=1, ldab=7)
    yield from routine("{p}gbtrf", f"IN int m, IN int n, {band}, {ab}, OUT int ipiv[min(m, n)], "
                       f"{INFO}", "Factor a band matrix", "2 * n * kl * (kl + ku + 1)",
                       [dict(case, m=7), dict(case, m=6)])
    yield from routine("{p}gbtrs", f"IN char trans, IN int n, {band}, IN int nrhs, {factors}, "
                       f"{IPIV}, {B}, {INFO}", "Solve op(A) X = B with the factors of gbtrf",
                       "2 * n * (2 * kl + ku + 1) * nrhs",
                       [dict(case, nrhs=3, ldb=8, trans=trans) for trans in "NT"])
    yield from condition("{p}gbcon", f"IN char norm, IN int n, {band}, {factors}, {IPIV}, "
                         "IN {R} anorm",
                         "Reciprocal of the condition number of A with the factors of gbtrf",
                         "10 * n * (2 * kl + ku + 1)", [dict(case, norm="1", anorm=5.0)])


def positive_band():
    ab, factor = (matrix(mode, "ab", "kd + 1", "n", "ldab") for mode in ("INOUT", "IN"))
    cases = [dict(n=7, kd=2, ldab=4, uplo="L"), dict(n=7, kd=0, ldab=2, uplo="U")]
    solved = more(cases, nrhs=3, ldb=8)
    head = f"{HEAD}, IN int kd"
    words = "Solve A X = B, A a positive definite band matrix"
    yield from routine("{p}pbsv", f"{head}, IN int nrhs, {ab}, {B}, {INFO}", words,
                       "n * (kd + 1)^2 + 4 * n * (kd + 1) * nrhs", solved)
    yield from routine("{p}pbtrf", f"{head}, {ab}, {INFO}",
                       "Cholesky factorisation of a band matrix", "n * (kd + 1)^2", cases)
    yield from routine("{p}pbtrs", f"{head}, IN int nrhs, {factor}, {B}, {INFO}",
                       "Solve A X = B with the factor of pbtrf", "4 * n * (kd + 1) * nrhs", solved)
    yield from condition("{p}pbcon", f"{head}, {factor}, IN {{R}} anorm",
                         "Reciprocal of the condition number of A with the factor of pbtrf",
                         "20 * n * (kd + 1)", more(cases, anorm=5.0))


def tridiagonal():
    off, second = "[max(0, n - 1)]", "[max(0, n - 2)]"
    bands = [f"{{mode}} {{{{T}}}} {name}" for name in (f"dl{off}", "d[n]", f"du{off}")]
    inout, given = (", ".join(band.format(mode=mode) for band in bands) for mode in ("INOUT", "IN"))
    case = dict(n=7, nrhs=3, ldb=8)
    yield from routine("{p}gttrf", f"IN int n, {inout}, OUT {{T}} du2{second}, OUT int ipiv[n], "
                       f"{INFO}", "Factor a tridiagonal matrix", "5 * n", [dict(n=7)])
    factors = f"{given}, IN {{T}} du2{second}, {IPIV}"
    yield from routine("{p}gttrs", f"IN char trans, IN int n, IN int nrhs, {factors}, {B}, {INFO}",
                       "Solve op(A) X = B with the factors of gttrf", "7 * n * nrhs",
                       [dict(case, trans=trans) for trans in "NT"])
    head = f"IN char norm, IN int n, {factors}, IN {{R}} anorm, {RCOND}, {work(size='2 * n')}"
    yield from both("{p}gtcon", f"{head}, {INTEGERS}, {INFO}", f"{head}, {INFO}",
                    "Reciprocal of the condition number of A with the factors of gttrf", "40 * n",
                    [dict(n=7, norm="1", anorm=4.0)])
    yield from positive_tridiagonal(off, case)


def positive_tridiagonal(off, case):
    inout = f"INOUT {{R}} d[n], INOUT {{T}} e{off}"
    given = f"IN {{R}} d[n], IN {{T}} e{off}"
    yield from routine("{p}ptsv", f"IN int n, IN int nrhs, {inout}, {B}, {INFO}",
                       "Solve A X = B, A tridiagonal and positive definite", "n * (3 + 5 * nrhs)",
                       [case])
    yield from routine("{p}pttrf", f"IN int n, {inout}, {INFO}",
                       "Factor a tridiagonal positive definite matrix", "3 * n", [dict(n=7)])
    words = "Solve A X = B with the factors of pttrf"
    yield from routine("{p}pttrs", f"IN int n, IN int nrhs, {given}, {B}, {INFO}", words,
                       "5 * n * nrhs", [case], "sd")
    yield from routine("{p}pttrs", f"IN char uplo, IN int n, IN int nrhs, {given}, {B}, {INFO}",
                       words, "5 * n * nrhs", forms([case], uplo="UL"), "cz")
