"""Band matrices: `ab` has a diagonal in each row. Those with kl diagonals below the main one and ku
above it are general. Those with kd, or ka and kb, on one side are symmetric, hermitian or
triangular.
"""

from .description import is_one, matrix, routine
from .lapack_packed import ALL_VECTORS, bounded
from .lapack_spectra import COUNT, IFAIL, RANGE, SPACE, VALUES, VECTORS, Z
from .lapack_spectra import INTEGERS as SPACE_INTEGERS
from .lapack_spectra import REALS as SPACE_REALS
from .lapack_systems import B_IN, ERRORS, HEAD, INTEGERS, RCOND, REALS, X, condition, refined
from .parts import INFO, MIN, B, both, forms, more, only, work

OFF = "[max(0, n - 1)]"
SCALED_B = matrix("INOUT", "b", "n", "nrhs", "ldb")
SCALES = "OUT {R} *amax, " + INFO
BAND = "IN int kl, IN int ku"
ROWS, FACTOR_ROWS = "kl + ku + 1", "2 * kl + ku + 1"
ONE_SIDE = [dict(n=7, kd=2, ldab=4, uplo="L"), dict(n=7, kd=0, ldab=2, uplo="U"),
            dict(n=7, kd=2, ldab=3, uplo="U")]


def band(mode, rows="kd + 1", name="ab"):
    """A band matrix of n columns."""
    return matrix(mode, name, rows, "n", f"ld{name}")


def routines():
    yield from scales()
    yield from general()
    yield from positive_definite()
    yield from triangular()
    yield from eigenvalues()
    yield from pairs()
    yield from reductions()
    yield from two_stages()


def scales():
    rows = f"OUT {{R}} r[m], OUT {{R}} c[n], OUT {{R}} *rowcnd, OUT {{R}} *colcnd, {SCALES}"
    words = "Scale factors for the rows and columns of A{how}"
    powers = ", powers of the radix"
    cases = [dict(m=6, n=5, kl=2, ku=1, ldab=5)]
    for name, how in (("{p}gbequ", ""), ("{p}gbequb", powers)):
        yield from routine(name, f"IN int m, IN int n, {BAND}, {band('IN', ROWS)}, {rows}",
                           words.format(how=how), f"2 * n * ({ROWS})", cases)
    yield from routine("{p}geequb", "IN int m, IN int n, "
                       f"{matrix('IN', 'a', 'm', 'n', 'lda')}, {rows}",
                       words.format(how=powers), "2 * m * n", [dict(m=8, n=5, lda=9)])
    one = f"OUT {{R}} s[n], OUT {{R}} *scond, {SCALES}"
    yield from routine("{p}pbequ", f"{HEAD}, IN int kd, {band('IN')}, {one}",
                       "Scale factors for a positive definite band matrix", "2 * n", ONE_SIDE)
    a = matrix("IN", "a", "n", "n", "lda")
    yield from routine("{p}poequb", f"IN int n, {a}, {one}",
                       "Scale factors, powers of the radix, for a positive definite matrix",
                       "2 * n", [dict(n=6, lda=8)])
    for kind, precisions in (("{p}sy", "sdcz"), ("{p}he", "cz")):
        yield from routine(kind + "equb", f"{HEAD}, {a}, OUT {{R}} s[n], OUT {{R}} *scond, "
                           f"OUT {{R}} *amax, {work(size='2 * n')}, {INFO}",
                           "Scale factors, powers of the radix, for a symmetric or hermitian "
                           "matrix", "4 * n^2", forms([dict(n=6, lda=8)], uplo="UL"), precisions)


def general():
    head = f"IN char trans, IN int n, {BAND}, IN int nrhs"
    given = f"{band('IN', ROWS)}, {band('IN', FACTOR_ROWS, 'afb')}, IN int ipiv[n]"
    case = dict(n=7, kl=2, ku=1, nrhs=3, ldab=5, ldafb=7, ldb=8, ldx=9)
    cost = f"6 * n * ({FACTOR_ROWS}) * nrhs"
    cases = forms([case], trans="NT")
    yield from refined("{p}gbrfs", f"{head}, {given}, {B_IN}", cases, cost=cost)
    scale = is_one("fact", "N") + " ? 0 : n"
    ab, afb = band("INOUT", ROWS), band("INOUT", FACTOR_ROWS, "afb")
    head = (f"IN char fact, {head}, {ab}, {afb}, INOUT int ipiv[n], INOUT char equed[1], "
            f"INOUT {{R}} r[{scale}], INOUT {{R}} c[{scale}], {SCALED_B}, {X}, {RCOND}, {ERRORS}")
    words = "Solve op(A) X = B, A a band matrix, with scaling, refinement and bounds of the " \
            "errors; the first element of {w} tells the growth of the pivots"
    yield from both("{p}gbsvx", f"{head}, OUT {{T}} work[max(1, 3 * n)], {INTEGERS}, {INFO}",
                    f"{head}, {work(size='2 * n')}, OUT {{R}} rwork[max(1, n)], {INFO}",
                    words.format(w="the work space"), f"2 * n * kl * ({ROWS}) + {cost}",
                    forms(cases, fact="NE"))


def positive_definite():
    head = f"{HEAD}, IN int kd"
    solved = more(ONE_SIDE, nrhs=3, ldafb=4, ldb=8, ldx=9)
    cost = "12 * n * (kd + 1) * nrhs"
    yield from refined("{p}pbrfs", f"{head}, IN int nrhs, {band('IN')}, "
                       f"{band('IN', name='afb')}, {B_IN}", solved, cost=cost)
    scale = is_one("fact", "N") + " ? 0 : n"
    head = (f"IN char fact, {head}, IN int nrhs, {band('INOUT')}, {band('INOUT', name='afb')}, "
            f"INOUT char equed[1], INOUT {{R}} s[{scale}], {SCALED_B}, {X}, {RCOND}, {ERRORS}")
    yield from both("{p}pbsvx", f"{head}, {work(size='3 * n')}, {INTEGERS}, {INFO}",
                    f"{head}, {work(size='2 * n')}, {REALS}, {INFO}",
                    "Solve A X = B, A a positive definite band matrix, with scaling, refinement "
                    "and bounds of the errors", f"n * (kd + 1)^2 + {cost}",
                    forms(solved, fact="NE"))
    yield from routine("{p}pbstf", f"{HEAD}, IN int kd, {band('INOUT')}, {INFO}",
                       "Split Cholesky factorisation of a band matrix, for pairs",
                       "n * (kd + 1)^2", ONE_SIDE)


def triangular():
    given = band("IN")
    head = "IN char uplo, IN char trans, IN char diag, IN int n, IN int kd, IN int nrhs"
    cases = forms(more(ONE_SIDE, nrhs=3, ldb=8, diag="N"), trans="NTC")[::4]
    yield from routine("{p}tbtrs", f"{head}, {given}, {B}, {INFO}",
                       "Solve op(A) X = B, A a triangular band matrix", "2 * n * (kd + 1) * nrhs",
                       cases)
    yield from bounded("{p}tbrfs", f"{head}, {given}", more(cases, ldx=9),
                       "12 * n * (kd + 1) * nrhs")
    yield from condition("{p}tbcon", "IN char norm, IN char uplo, IN char diag, IN int n, "
                         f"IN int kd, {given}",
                         "Reciprocal of the condition number of a triangular band matrix",
                         "10 * n * (kd + 1)", more(ONE_SIDE, diag="N", norm="1"))


def eigenvalues():
    head = f"IN char jobz, IN char uplo, IN int n, IN int kd, {band('INOUT')}"
    simple = f"{head}, OUT {{R}} w[n], {ALL_VECTORS}"
    cases = forms(more(ONE_SIDE, ldz=8), jobz="NV")
    words = "Eigenvalues and vectors of a symmetric or hermitian band matrix{how}"
    few = f"{VALUES} ? 6 * n^2 * (kd + 1)"
    cost = few + " : 6 * n^2 * (kd + 1) + 9 * n^3"
    reals = work("rwork", "3 * n - 2", "{R}")
    yield from routine("{p}sbev", f"{simple}, {work(size='3 * n - 2')}, {INFO}",
                       words.format(how=""), cost, cases, "sd")
    yield from routine("{p}hbev", f"{simple}, {work(size='n')}, {reals}, {INFO}",
                       words.format(how=""), cost, cases, "cz")
    how = ", by divide and conquer; with vectors lwork at least {least}, else {few}"
    words_divided = words.format(how=how)
    divided = more(cases, lwork=400, liwork=60)
    cost = few + " : 6 * n^2 * (kd + 1) + 16 / 3 * n^3"
    yield from routine("{p}sbevd", f"{simple}, {SPACE}, {SPACE_INTEGERS}, {INFO}",
                       words_divided.format(least="1 + 5 n + 2 n^2 and liwork 3 + 5 n",
                                            few="2 n and 1"), cost, divided, "sd")
    least = "2 n^2, lrwork 1 + 5 n + 2 n^2 and liwork 3 + 5 n"
    yield from routine("{p}hbevd", f"{simple}, {SPACE}, {SPACE_REALS}, {SPACE_INTEGERS}, {INFO}",
                       words_divided.format(least=least, few="n, n and 1"), cost,
                       more(divided, lrwork=300), "cz")
    q = f"INOUT {{T}} q[{VECTORS} ? n : 0][ldq : {VECTORS} ? n : 0], IN int ldq"
    head = (f"IN char jobz, IN char range, IN char uplo, IN int n, IN int kd, {band('INOUT')}, "
            f"{q}, {RANGE}, {Z}")
    cases = more(forms(cases, range="AI")[::5], ldq=9, vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0)
    cost = f"6 * n^2 * (kd + 1) + ({VALUES} ? 0 : 2 * n^3 + 4 * n^2 * {COUNT})"
    five, seven = work("iwork", "5 * n", "int"), work("rwork", "7 * n", "{R}")
    how = ", all or those of the indices il to iu"
    yield from routine("{p}sbevx", f"{head}, {work(size='7 * n')}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how), cost, cases, "sd")
    yield from routine("{p}hbevx", f"{head}, {work(size='n')}, {seven}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how), cost, cases, "cz")


def pairs():
    both_bands = (f"IN int ka, IN int kb, {band('INOUT', 'ka + 1')}, "
                  f"{band('INOUT', 'kb + 1', 'bb')}")
    simple = (f"IN char jobz, IN char uplo, IN int n, {both_bands}, OUT {{R}} w[n], "
              f"{ALL_VECTORS}")
    case = dict(n=7, ka=2, kb=1, ldab=4, ldbb=3, ldz=8)
    cases = forms([case], uplo="UL", jobz="NV")
    words = "Eigenvalues and vectors of A x = l B x, A and B bands, B positive definite{how}"
    cost = f"6 * n^2 * (ka + kb + 1) + ({VALUES} ? 0 : 11 * n^3)"
    yield from routine("{p}sbgv", f"{simple}, {work(size='3 * n')}, {INFO}", words.format(how=""),
                       cost, cases, "sd")
    yield from routine("{p}hbgv", f"{simple}, {work(size='n')}, "
                       f"{work('rwork', '3 * n', '{R}')}, {INFO}", words.format(how=""), cost,
                       cases, "cz")
    how = ", by divide and conquer; lwork at least {least}"
    divided = more(cases, lwork=400, liwork=60)
    yield from routine("{p}sbgvd", f"{simple}, {SPACE}, {SPACE_INTEGERS}, {INFO}",
                       words.format(how=how.format(least="1 + 5 n + 2 n^2, liwork 3 + 5 n")), cost,
                       divided, "sd")
    least = "2 n^2, lrwork 1 + 5 n + 2 n^2, liwork 3 + 5 n"
    yield from routine("{p}hbgvd", f"{simple}, {SPACE}, {SPACE_REALS}, {SPACE_INTEGERS}, {INFO}",
                       words.format(how=how.format(least=least)), cost, more(divided, lrwork=300),
                       "cz")
    q = f"INOUT {{T}} q[{VECTORS} ? n : 0][ldq : {VECTORS} ? n : 0], IN int ldq"
    head = (f"IN char jobz, IN char range, IN char uplo, IN int n, {both_bands}, {q}, {RANGE}, "
            f"{Z}")
    cases = more(forms(cases, range="AI")[::3], ldq=9, vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0)
    five, seven = work("iwork", "5 * n", "int"), work("rwork", "7 * n", "{R}")
    how = ", all or those of the indices il to iu"
    yield from routine("{p}sbgvx", f"{head}, {work(size='7 * n')}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how), cost, cases, "sd")
    yield from routine("{p}hbgvx", f"{head}, {work(size='n')}, {seven}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how), cost, cases, "cz")
    wants = is_one("vect", "V")
    head = (f"IN char vect, IN char uplo, IN int n, IN int ka, IN int kb, "
            f"{band('INOUT', 'ka + 1')}, {band('IN', 'kb + 1', 'bb')}, "
            f"OUT {{T}} x[{wants} ? n : 0][ldx : {wants} ? n : 0], IN int ldx")
    cases = forms(more(only([case], "n", "ka", "kb", "ldab", "ldbb"), ldx=8), uplo="UL", vect="NV")
    words = "Reduce a pair of bands to one matrix, with the factor of pbstf"
    cost = f"6 * n^2 * (ka + kb + 1) + ({wants} ? 2 * n^3 : 0)"
    yield from routine("{p}sbgst", f"{head}, {work(size='2 * n')}, {INFO}", words, cost, cases,
                       "sd")
    yield from routine("{p}hbgst", f"{head}, {work(size='n')}, {REALS}, {INFO}", words, cost,
                       cases, "cz")


def reductions():
    none = is_one("vect", "N")
    yield from routine("{p}{h}btrd",
                       f"IN char vect, {HEAD}, IN int kd, {band('INOUT')}, OUT {{R}} d[n], "
                       f"OUT {{R}} e{OFF}, "
                       f"INOUT {{T}} q[{none} ? 0 : n][ldq : {none} ? 0 : n], IN int ldq, "
                       f"{work(size='n')}, {INFO}",
                       "Reduce a band matrix to tridiagonal form; with vect V, q becomes the "
                       "matrix of the reduction, with U its product with that",
                       f"6 * n^2 * (kd + 1) + ({none} ? 0 : 3 * n^3)",
                       forms(more(ONE_SIDE, ldq=8), vect="NVU")[::4])
    wants = [" || ".join(is_one("vect", letter) for letter in pair) for pair in ("QB", "PB")]
    q = f"OUT {{T}} q[({wants[0]}) ? m : 0][ldq : ({wants[0]}) ? m : 0], IN int ldq"
    pt = f"OUT {{T}} pt[({wants[1]}) ? n : 0][ldpt : ({wants[1]}) ? n : 0], IN int ldpt"
    c = "INOUT {T} c[ncc][ldc : ncc > 0 ? m : 0], IN int ldc"
    head = (f"IN char vect, IN int m, IN int n, IN int ncc, {BAND}, {band('INOUT', ROWS)}, "
            f"OUT {{R}} d[{MIN}], OUT {{R}} e[max(0, {MIN} - 1)], {q}, {pt}, {c}")
    sizes = [dict(m=8, n=5), dict(m=4, n=6)]
    cases = forms(more(sizes, ncc=2, kl=2, ku=1, ldab=5, ldq=9, ldpt=7, ldc=8), vect="NQPB")
    cases += more(cases[:1], ncc=0)
    most = "max(m, n)"
    yield from both("{p}gbbrd", f"{head}, {work(size=f'2 * {most}')}, {INFO}",
                    f"{head}, {work(size=most)}, {work('rwork', most, '{R}')}, {INFO}",
                    "Reduce a band matrix to bidiagonal form", f"6 * n^2 * ({ROWS})", cases)


def two_stages():
    """The routines have no vectors yet: jobz and vect are N."""
    end = ", in two stages, without vectors; lwork as the query says"
    words = "Eigenvalues of a symmetric or hermitian band matrix"
    head = f"IN char jobz, IN char uplo, IN int n, IN int kd, {band('INOUT')}"
    simple = f"{head}, OUT {{R}} w[n], {ALL_VECTORS}, {SPACE}"
    cases = more(ONE_SIDE[::2], ldz=8, jobz="N", lwork=20000)
    cost = "6 * n^2 * (kd + 1)"
    reals = f"{work('rwork', '3 * n - 2', '{R}')}, "
    divided = {"sd": "", "cz": f"{SPACE_REALS}, "}
    q = f"OUT {{T}} q[{VECTORS} ? n : 0][ldq : {VECTORS} ? n : 0], IN int ldq"
    five, seven = work("iwork", "5 * n", "int"), f"{work('rwork', '7 * n', '{R}')}, "
    chosen = more(forms(cases, range="AI"), ldq=9, vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0)
    for which, h, last, last_x in (("sd", "s", "", ""), ("cz", "h", reals, seven)):
        extra = {"lrwork": 300} if which == "cz" else {}
        yield from routine("{p}" + h + "bev_2stage", f"{simple}, {last}{INFO}", words + end, cost,
                           cases, which)
        yield from routine("{p}" + h + "bevd_2stage",
                           f"{simple}, {divided[which]}{SPACE_INTEGERS}, {INFO}",
                           f"{words} by divide and conquer{end}", cost,
                           more(cases, liwork=60, **extra), which)
        yield from routine("{p}" + h + "bevx_2stage",
                           "IN char jobz, IN char range, IN char uplo, IN int n, IN int kd, "
                           f"{band('INOUT')}, {q}, {RANGE}, {Z}, {SPACE}, {last_x}{five}, "
                           f"{IFAIL}, {INFO}", f"{words}, all or those of the indices il to iu"
                           + end, cost, chosen, which)
    for name, of in (("{p}sytrd_sy2sb", "sd"), ("{p}hetrd_he2hb", "cz")):
        yield from routine(name, f"{HEAD}, IN int kd, {matrix('INOUT', 'a', 'n', 'n', 'lda')}, "
                           f"{band('INOUT')}, OUT {{T}} tau[max(0, n - kd)], {SPACE}, {INFO}",
                           "Reduce a symmetric or hermitian matrix to one with kd diagonals on "
                           "each side; lwork as the query says", "4 / 3 * n^3",
                           forms([dict(n=7, kd=2, lda=9, ldab=4, lwork=20000)], uplo="UL"), of,
                           size="n")
    for name, of in (("{p}sytrd_sb2st", "sd"), ("{p}hetrd_hb2st", "cz")):
        yield from routine(name, f"IN char stage1, IN char vect, {HEAD}, IN int kd, "
                           f"{band('INOUT')}, OUT {{R}} d[n], OUT {{R}} e{OFF}, "
                           f"WORK {{T}} hous[max(1, lhous)], IN int lhous, {SPACE}, {INFO}",
                           "Reduce a band matrix to tridiagonal form, without the reflectors; "
                           "lhous at least 4 n, lwork as the query says", cost,
                           more(ONE_SIDE[::2], stage1="N", vect="N", lhous=200, lwork=20000), of)
