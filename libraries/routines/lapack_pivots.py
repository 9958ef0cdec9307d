"""Symmetric and hermitian indefinite systems with other pivots than those of sytrf, eigenvalues in
two stages, and unblocked or recursive factorisations.

rook: bounded pivots of Bunch and Kaufman. rk: the same, with the factors in another form. aa:
Aasen's algorithm; T is tridiagonal or, in two stages, a band matrix.
"""

from .description import matrix, routine
from .lapack_spectra import COUNT, IFAIL, RANGE, SPACE, VECTORS, Z
from .lapack_spectra import INTEGERS as SPACE_INTEGERS
from .lapack_spectra import REALS as SPACE_REALS
from .lapack_systems import HEAD, INTEGERS, IPIV, PLAIN, RCOND, X
from .parts import A_IN, A_MN, INFO, MAX, MIN, TALL, UPLO, WIDE, A, B, forms, more, only, work

KINDS = (("{p}sy", "sdcz", "symmetric"), ("{p}he", "cz", "hermitian"))
PIVOTS = "OUT int ipiv[n]"
E, E_IN = "OUT {T} e[n]", "IN {T} e[n]"
FACTOR, SOLVE, INVERT = "1 / 3 * n^3", "2 * n^2 * nrhs", "2 / 3 * n^3"
BLOCKED, SOLVED = more(PLAIN, lwork=900), more(UPLO, lwork=900)
TB = "INOUT {T} tb[max(1, ltb)], IN int ltb"
TB_IN = "IN {T} tb[max(1, ltb)], IN int ltb"


def routines():
    for kind in KINDS:
        yield from rook(*kind)
        yield from aasen(*kind)
        yield from inverses(*kind[:2])
        yield from conditions(*kind[:2])
    yield from conversions()
    yield from mixed()
    yield from two_stages()
    yield from complete_pivots()
    yield from unblocked()


def rook(kind, precisions, word):
    stem = kind[3:]
    words = f"A {word}, by bounded pivots"
    for form, solver, e, e_in in (("_rook", "_rook", "", ""),
                                  ("_rk", "_3", f"{E}, ", f"{E_IN}, ")):
        yield from routine(kind + "trf" + form, f"{HEAD}, {A}, {e}{PIVOTS}, {SPACE}, {INFO}",
                           f"Factor A = U D U', {words}; lwork at least 1, better 64 n", FACTOR,
                           BLOCKED, precisions, size="n")
        yield from routine(kind + "sv" + form, f"{HEAD}, IN int nrhs, {A}, {e}{PIVOTS}, {B}, "
                           f"{SPACE}, {INFO}", f"Solve A X = B, {words}; lwork at least 1, better "
                           "64 n", f"{FACTOR} + {SOLVE}", SOLVED, precisions, size="n")
        yield from routine(kind + "trs" + solver, f"{HEAD}, IN int nrhs, {A_IN}, {e_in}{IPIV}, "
                           f"{B}, {INFO}", f"Solve A X = B with the factors of {stem}trf{form}",
                           SOLVE, UPLO, precisions)


def aasen(kind, precisions, word):
    stem = kind[3:]
    words = f"A {word}, by Aasen's algorithm"
    yield from routine(kind + "trf_aa", f"{HEAD}, {A}, {PIVOTS}, {SPACE}, {INFO}",
                       f"Factor A = U' T U, {words}; lwork at least 2 n, better 65 n", FACTOR,
                       BLOCKED, precisions, size="n")
    head = f"{HEAD}, IN int nrhs"
    yield from routine(kind + "sv_aa", f"{head}, {A}, {PIVOTS}, {B}, {SPACE}, {INFO}",
                       f"Solve A X = B, {words}; lwork at least 3 n, better 65 n",
                       f"{FACTOR} + {SOLVE}", SOLVED, precisions, size="n")
    yield from routine(kind + "trs_aa", f"{head}, {A_IN}, {IPIV}, {B}, {SPACE}, {INFO}",
                       f"Solve A X = B with the factors of {stem}trf_aa; lwork at least 3 n - 2",
                       SOLVE, SOLVED, precisions)
    how = "in two stages; ltb at least 4 n, better 193 n; lwork at least n, better 64 n"
    both_pivots = "OUT int ipiv[n], OUT int ipiv2[n]"
    yield from routine(kind + "trf_aa_2stage", f"{HEAD}, {A}, {TB}, {both_pivots}, {SPACE}, "
                       f"{INFO}", f"Factor A = U' T U, {words}, {how}", FACTOR,
                       more(BLOCKED, ltb=200), precisions, size="n")
    yield from routine(kind + "sv_aa_2stage", f"{head}, {A}, {TB}, {both_pivots}, {B}, {SPACE}, "
                       f"{INFO}", f"Solve A X = B, {words}, {how}", f"{FACTOR} + {SOLVE}",
                       more(SOLVED, ltb=200), precisions, size="n")
    # tb begins with the size of blocks.
    yield from routine(kind + "trs_aa_2stage", f"{head}, {A_IN}, {TB_IN}, {IPIV}, "
                       f"IN int ipiv2[n], {B}, {INFO}",
                       f"Solve A X = B with the factors of {stem}trf_aa_2stage", SOLVE,
                       more(UPLO, ltb=200, tb=[1.0]), precisions)


def inverses(kind, precisions):
    stem = kind[3:]
    inverse = f"Invert A with the factors of {stem}"
    yield from routine(kind + "tri_rook", f"{HEAD}, {A}, {IPIV}, {work(size='n')}, {INFO}",
                       inverse + "trf_rook", INVERT, PLAIN, precisions, size="n")
    tail = f"{SPACE}, {INFO}"
    least = "; lwork at least (n + nb + 1) (nb + 3), where nb = 64 is the block size"
    cases = more(PLAIN, lwork=6000)
    yield from routine(kind + "tri2", f"{HEAD}, {A}, {IPIV}, {tail}", inverse + "trf" + least,
                       INVERT, cases, precisions, size="n")
    yield from routine(kind + "tri_3", f"{HEAD}, {A}, {E_IN}, {IPIV}, {tail}",
                       inverse + "trf_rk" + least, INVERT, cases, precisions, size="n")
    yield from routine(kind + "trs2", f"{HEAD}, IN int nrhs, {A_IN}, {IPIV}, {B}, "
                       f"{work(size='n')}, {INFO}", f"Solve A X = B with the factors of {stem}trf "
                       "by BLAS 3", SOLVE, UPLO, precisions)


def conditions(kind, precisions):
    words = f"Reciprocal of the condition number of A with the factors of {kind[3:]}trf"
    for pair, last in (("sd", f"{INTEGERS}, "), ("cz", "")):
        which = "".join(p for p in pair if p in precisions)
        for form, e, of in (("_rook", "", "_rook"), ("_3", f"{E_IN}, ", "_rk")):
            yield from routine(kind + "con" + form, f"{HEAD}, {A_IN}, {e}{IPIV}, IN {{R}} anorm, "
                               f"{RCOND}, {work(size='2 * n')}, {last}{INFO}", words + of,
                               "10 * n^2", more(PLAIN, anorm=30.0), which)


def conversions():
    head = f"IN char uplo, IN char way, IN int n, {A}"
    words = "Convert the factors of {of} to those of {to} (way C) or back (R)"
    cases = more(PLAIN, way="C")
    yield from routine("{p}syconv", f"{head}, {IPIV}, INOUT {{T}} e[n], {INFO}",
                       "Separate the factors of sytrf into triangle and block diagonal (way C) or "
                       "join them (R)", "n^2", cases)
    yield from routine("{p}syconvf", f"{head}, INOUT {{T}} e[n], INOUT int ipiv[n], {INFO}",
                       words.format(of="sytrf", to="sytrf_rk"), "n^2", cases)
    yield from routine("{p}syconvf_rook", f"{head}, INOUT {{T}} e[n], {IPIV}, {INFO}",
                       words.format(of="sytrf_rook", to="sytrf_rk"), "n^2", cases)


def mixed():
    given = matrix("IN", "b", "n", "nrhs", "ldb")
    tail = f"{given}, {X}, {work(size='n * nrhs')}"
    words = "Solve A X = B{kind} by a factorisation in single precision and refinement; iter is " \
            "the number of steps, or negative if the factorisation was one in double precision"
    cases = more(UPLO, ldx=9)
    reals = f"{work('rwork', 'n', '{R}')}, "
    for prefix, p, single, last in (("ds", "d", "float", ""), ("zc", "z", "scomplex", reals)):
        space = f"{work('swork', 'n * (n + nrhs)', single)}, {last}OUT int *iter, {INFO}"
        yield from routine(prefix + "gesv", f"IN int n, IN int nrhs, {A}, {PIVOTS}, {tail}, "
                           f"{space}", words.format(kind=""), "2 / 3 * n^3 + 6 * n^2 * nrhs",
                           only(cases[::2], "n", "nrhs", "lda", "ldb", "ldx"), p, size="n")
        yield from routine(prefix + "posv", f"{HEAD}, IN int nrhs, {A}, {tail}, {space}",
                           words.format(kind=", A positive definite,"),
                           "1 / 3 * n^3 + 6 * n^2 * nrhs", cases, p, size="n")


def two_stages():
    """The drivers have no vectors yet: jobz is N."""
    end = "; in two stages, without vectors; lwork as the query says, about 100 n + 3000"
    head = f"IN char jobz, IN char uplo, IN int n, {A}, OUT {{R}} w[n], {SPACE}"
    plain = more(only(UPLO, "n", "lda", "uplo"), jobz="N", lwork=20000)
    words = "Eigenvalues of a symmetric or hermitian matrix"
    cost = "4 / 3 * n^3"
    last = {"sd": "", "cz": f"{work('rwork', '3 * n - 2', '{R}')}, "}
    divided = {"sd": f"{SPACE_INTEGERS}, ", "cz": f"{SPACE_REALS}, {SPACE_INTEGERS}, "}
    for which in ("sd", "cz"):
        yield from routine("{p}{sy}ev_2stage", f"{head}, {last[which]}{INFO}", words + end, cost,
                           plain, which, size="n")
        yield from routine("{p}{sy}evd_2stage", f"{head}, {divided[which]}{INFO}",
                           words + ", by divide and conquer" + end, cost,
                           more(plain, liwork=60, lrwork=300) if which == "cz"
                           else more(plain, liwork=60), which, size="n")
        pair = (f"IN int itype, IN char jobz, IN char uplo, IN int n, {A}, "
                f"{matrix('INOUT', 'b', 'n', 'n', 'ldb')}, OUT {{R}} w[n], {SPACE}")
        yield from routine("{p}{sy}gv_2stage", f"{pair}, {last[which]}{INFO}",
                           "Eigenvalues of a symmetric definite pair, as those of sygv" + end,
                           "8 / 3 * n^3", more(plain, itype=1, ldb=8), which, size="n")
        head_x = f"IN char jobz, IN char range, IN char uplo, IN int n, {A}, {RANGE}, {Z}"
        chosen = more(forms(plain, range="AI"), vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0, ldz=8)
        words_x = words + ", all or those of the indices il to iu"
        support = f"OUT int isuppz[{VECTORS} && {COUNT} == n ? 2 * max(1, n) : 0]"
        yield from routine("{p}{sy}evr_2stage",
                           f"{head_x}, {support}, {SPACE}, {divided[which]}{INFO}", words_x + end,
                           cost, more(chosen, liwork=80, lrwork=200) if which == "cz"
                           else more(chosen, liwork=80), which, size="n")
        five = work("iwork", "5 * n", "int")
        seven = f"{work('rwork', '7 * n', '{R}')}, " if which == "cz" else ""
        yield from routine("{p}{sy}evx_2stage",
                           f"{head_x}, {SPACE}, {seven}{five}, {IFAIL}, {INFO}", words_x + end,
                           cost, chosen, which, size="n")


def complete_pivots():
    yield from routine("{p}getc2", f"IN int n, {A}, {PIVOTS}, OUT int jpiv[n], {INFO}",
                       "Factor A = P L U Q with complete pivots", "2 / 3 * n^3",
                       [dict(n=7, lda=9), dict(n=4, lda=4)])
    yield from routine("{p}gesc2", f"IN int n, {A_IN}, INOUT {{T}} rhs[n], {IPIV}, "
                       "IN int jpiv[n], OUT {R} *scale",
                       "Solve A x = scale rhs with the factors of getc2", "2 * n^2",
                       [dict(n=7, lda=9), dict(n=4, lda=4)])


def unblocked():
    for name, words in (("{p}getrf2", "by recursion"), ("{p}getf2", "without blocks")):
        yield from routine(name, f"IN int m, IN int n, {A_MN}, OUT int ipiv[{MIN}], {INFO}",
                           f"Factor A = P L U {words}", f"{MAX} * {MIN}^2 - 1 / 3 * {MIN}^3",
                           [TALL, WIDE])
    for name, words in (("{p}potrf2", "by recursion"), ("{p}potf2", "without blocks")):
        yield from routine(name, f"{HEAD}, {A}, {INFO}", f"Cholesky factorisation {words}", FACTOR,
                           PLAIN)
    yield from routine("{p}pstf2", f"{HEAD}, {A}, OUT int piv[n], OUT int *rank, IN {{R}} tol, "
                       f"{work(size='2 * n', element='{R}')}, {INFO}",
                       "Cholesky factorisation with pivots without blocks, A positive semidefinite",
                       FACTOR, more(PLAIN, tol=-1.0))
    for kind, precisions, word in KINDS:
        for form in ("", "_rook"):
            yield from routine(kind + "tf2" + form, f"{HEAD}, {A}, {PIVOTS}, {INFO}",
                               f"Factor A = U D U', A {word}, without blocks", FACTOR, PLAIN,
                               precisions)
    yield from routine("{p}lauum", f"{HEAD}, {A}, {INFO}",
                       "The product U U' or L' L of a triangular matrix", FACTOR, PLAIN, size="n")
    yield from routine("{p}trti2", f"IN char uplo, IN char diag, IN int n, {A}, {INFO}",
                       "Invert a triangular matrix without blocks", FACTOR, forms(PLAIN, diag="NU"))
