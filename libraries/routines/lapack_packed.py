"""Matrices in packed storage: `ap` has one triangle by columns. In the rectangular full packed form
the same elements are a rectangle, to which BLAS 3 applies.
"""

from .description import is_one, matrix, routine
from .lapack_spectra import COUNT, IFAIL, RANGE, SPACE, VALUES, VECTORS, Z
from .lapack_spectra import INTEGERS as SPACE_INTEGERS
from .lapack_spectra import REALS as SPACE_REALS
from .lapack_systems import (
    B_IN,
    ERRORS,
    HEAD,
    INTEGERS,
    IPIV,
    PLAIN,
    RCOND,
    REALS,
    X,
    condition,
    refined,
)
from .parts import INFO, UPLO, B, both, forms, more, only, work

TRIANGLE = "n * (n + 1) / 2"
SOLVED = only(UPLO, "n", "nrhs", "ldb", "uplo")
ORDERS = only(PLAIN, "n", "uplo")
KINDS = (("{p}sp", "sdcz", "symmetric"), ("{p}hp", "cz", "hermitian"))
ALL_VECTORS = f"OUT {{T}} z[{VECTORS} ? n : 0][ldz : {VECTORS} ? n : 0], IN int ldz"


def packed(mode, name="ap", size=TRIANGLE):
    """A triangle by columns."""
    return f"{mode} {{T}} {name}[{size}]"


AP, AP_IN, AFP_IN = packed("INOUT"), packed("IN"), packed("IN", "afp")


def routines():
    yield from positive_definite()
    yield from symmetric()
    yield from triangular()
    yield from eigenvalues()
    yield from pairs()
    yield from reductions()
    yield from rectangular()
    yield from conversions()


def positive_definite():
    head = f"{HEAD}, IN int nrhs"
    words = "Solve A X = B, A positive definite, packed"
    yield from routine("{p}ppsv", f"{head}, {AP}, {B}, {INFO}", words,
                       "1 / 3 * n^3 + 2 * n^2 * nrhs", SOLVED, size="n")
    yield from routine("{p}pptrf", f"{HEAD}, {AP}, {INFO}",
                       "Cholesky factorisation of a packed matrix", "1 / 3 * n^3", ORDERS, size="n")
    yield from routine("{p}pptrs", f"{head}, {AP_IN}, {B}, {INFO}",
                       "Solve A X = B with the factor of pptrf", "2 * n^2 * nrhs", SOLVED)
    yield from routine("{p}pptri", f"{HEAD}, {AP}, {INFO}", "Invert A with the factor of pptrf",
                       "2 / 3 * n^3", ORDERS, size="n")
    yield from condition("{p}ppcon", f"{HEAD}, {AP_IN}, IN {{R}} anorm",
                         "Reciprocal of the condition number of A with the factor of pptrf",
                         "10 * n^2", more(ORDERS, anorm=30.0))
    yield from routine("{p}ppequ", f"{HEAD}, {AP_IN}, OUT {{R}} s[n], OUT {{R}} *scond, "
                       f"OUT {{R}} *amax, {INFO}",
                       "Scale factors for a positive definite packed matrix", "2 * n", ORDERS)
    yield from refined("{p}pprfs", f"{head}, {AP_IN}, {AFP_IN}, {B_IN}", more(SOLVED, ldx=8))
    scales = is_one("fact", "N") + " ? 0 : n"
    b = matrix("INOUT", "b", "n", "nrhs", "ldb")
    head = (f"IN char fact, {head}, {AP}, {packed('INOUT', 'afp')}, INOUT char equed[1], "
            f"INOUT {{R}} s[{scales}], {b}, {X}, {RCOND}, {ERRORS}")
    yield from both("{p}ppsvx", f"{head}, {work(size='3 * n')}, {INTEGERS}, {INFO}",
                    f"{head}, {work(size='2 * n')}, {REALS}, {INFO}",
                    f"{words}, with scaling, refinement and bounds of the errors",
                    "1 / 3 * n^3 + 24 * n^2 * nrhs", forms(more(SOLVED, ldx=9), fact="NE"),
                    size="n")


def symmetric():
    head = f"{HEAD}, IN int nrhs"
    for kind, precisions, word in KINDS:
        factors = f"the factors of {kind[3:]}trf"
        yield from routine(kind + "sv", f"{head}, {AP}, OUT int ipiv[n], {B}, {INFO}",
                           f"Solve A X = B, A {word}, packed", "1 / 3 * n^3 + 2 * n^2 * nrhs",
                           SOLVED, precisions)
        yield from routine(kind + "trf", f"{HEAD}, {AP}, OUT int ipiv[n], {INFO}",
                           f"Factor A = U D U', A {word}, packed", "1 / 3 * n^3", ORDERS,
                           precisions)
        yield from routine(kind + "trs", f"{head}, {AP_IN}, {IPIV}, {B}, {INFO}",
                           f"Solve A X = B with {factors}", "2 * n^2 * nrhs", SOLVED, precisions)
        yield from routine(kind + "tri", f"{HEAD}, {AP}, {IPIV}, {work(size='n')}, {INFO}",
                           f"Invert A with {factors}", "2 / 3 * n^3", ORDERS, precisions)
        ends = (("sd", INTEGERS), ("cz", REALS))
        for pair, last in ends:
            which = "".join(p for p in pair if p in precisions)
            yield from routine(kind + "con", f"{HEAD}, {AP_IN}, {IPIV}, IN {{R}} anorm, {RCOND}, "
                               f"{work(size='2 * n')}, "
                               + (f"{last}, " if pair == "sd" else "") + INFO,
                               f"Reciprocal of the condition number of A with {factors}",
                               "10 * n^2", more(ORDERS, anorm=30.0), which)
        yield from refined(kind + "rfs", f"{head}, {AP_IN}, {AFP_IN}, {IPIV}, {B_IN}",
                           more(SOLVED, ldx=8), precisions)
        for pair, last in ends:
            which = "".join(p for p in pair if p in precisions)
            size = 3 if pair == "sd" else 2
            yield from routine(kind + "svx",
                               f"IN char fact, {head}, {AP_IN}, {packed('INOUT', 'afp')}, "
                               f"INOUT int ipiv[n], {B_IN}, {X}, {RCOND}, {ERRORS}, "
                               f"{work(size=f'{size} * n')}, {last}, {INFO}",
                               f"Solve A X = B, A {word}, packed, with refinement and bounds of "
                               "the errors", "1 / 3 * n^3 + 24 * n^2 * nrhs",
                               forms(more(SOLVED, ldx=9), fact="NF"), which)


def triangular():
    head = "IN char uplo, IN char diag, IN int n"
    cases = forms(ORDERS, diag="NU")
    yield from routine("{p}tptri", f"{head}, {AP}, {INFO}", "Invert a triangular packed matrix",
                       "1 / 3 * n^3", cases)
    words = "Solve op(A) X = B, A triangular, packed"
    head = "IN char uplo, IN char trans, IN char diag, IN int n, IN int nrhs"
    solved = forms(more(SOLVED, diag="N"), trans="NTC")[::5]
    yield from routine("{p}tptrs", f"{head}, {AP_IN}, {B}, {INFO}", words, "n^2 * nrhs", solved)
    yield from condition("{p}tpcon", f"IN char norm, IN char uplo, IN char diag, IN int n, {AP_IN}",
                         "Reciprocal of the condition number of a triangular packed matrix",
                         "5 * n^2", more(cases, norm="1"))
    yield from bounded("{p}tprfs", f"{head}, {AP_IN}", more(solved, ldx=8))


def bounded(name, head, cases, cost="6 * n^2 * nrhs"):
    """Bounds of the errors of a solution that another routine has found."""
    tail = f"{B_IN}, {matrix('IN', 'x', 'n', 'nrhs', 'ldx')}, {ERRORS}"
    yield from both(name, f"{head}, {tail}, {work(size='3 * n')}, {INTEGERS}, {INFO}",
                    f"{head}, {tail}, {work(size='2 * n')}, {REALS}, {INFO}",
                    "Bounds of the errors of a solution X of op(A) X = B, A triangular", cost,
                    cases)


def eigenvalues():
    head = f"IN char jobz, IN char uplo, IN int n, {AP}, OUT {{R}} w[n], {ALL_VECTORS}"
    cases = forms(more(ORDERS, ldz=8), jobz="NV")
    words = "Eigenvalues and vectors of a symmetric or hermitian packed matrix{how}"
    cost = f"{VALUES} ? 4 / 3 * n^3 : 9 * n^3"
    reals = work("rwork", "3 * n - 2", "{R}")
    yield from routine("{p}spev", f"{head}, {work(size='3 * n')}, {INFO}", words.format(how=""),
                       cost, cases, "sd")
    yield from routine("{p}hpev", f"{head}, {work(size='2 * n - 1')}, {reals}, {INFO}",
                       words.format(how=""), cost, cases, "cz")
    cost = f"{VALUES} ? 4 / 3 * n^3 : 16 / 3 * n^3"
    divided = more(cases, lwork=400, liwork=60)
    how = ", by divide and conquer; with vectors lwork at least {least}, else {few}"
    words_divided = words.format(how=how)
    yield from routine("{p}spevd", f"{head}, {SPACE}, {SPACE_INTEGERS}, {INFO}",
                       words_divided.format(least="1 + 6 n + n^2 and liwork 3 + 5 n",
                                            few="2 n and 1"), cost, divided, "sd")
    yield from routine("{p}hpevd", f"{head}, {SPACE}, {SPACE_REALS}, {SPACE_INTEGERS}, {INFO}",
                       words_divided.format(least="2 n, lrwork 1 + 5 n + 2 n^2 and liwork 3 + 5 n",
                                            few="n, n and 1"), cost, more(divided, lrwork=300),
                       "cz")
    head = f"IN char jobz, IN char range, IN char uplo, IN int n, {AP}, {RANGE}, {Z}"
    cases = more(forms(cases, range="AI")[::5], vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0)
    cost = f"{VALUES} ? 4 / 3 * n^3 : 4 / 3 * n^3 + 4 * n^2 * {COUNT}"
    five, seven = work("iwork", "5 * n", "int"), work("rwork", "7 * n", "{R}")
    how = ", all or those of the indices il to iu"
    yield from routine("{p}spevx", f"{head}, {work(size='8 * n')}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how), cost, cases, "sd")
    yield from routine("{p}hpevx", f"{head}, {work(size='2 * n')}, {seven}, {five}, {IFAIL}, "
                       f"{INFO}", words.format(how=how), cost, cases, "cz")


def pairs():
    bp = packed("INOUT", "bp")
    head = f"IN int itype, IN char jobz, IN char uplo, IN int n, {AP}, {bp}"
    words = "Eigenvalues and vectors of A x = l B x (itype 1), A B x = l x (2) or B A x = l x " \
            "(3), packed, B positive definite{how}"
    cases = forms(more(ORDERS, itype=1, ldz=8), jobz="NV")
    cases += [dict(cases[0], itype=3)]
    cost = f"{VALUES} ? 8 / 3 * n^3 : 14 * n^3"
    simple = f"{head}, OUT {{R}} w[n], {ALL_VECTORS}"
    yield from routine("{p}spgv", f"{simple}, {work(size='3 * n')}, {INFO}", words.format(how=""),
                       cost, cases, "sd")
    yield from routine("{p}hpgv", f"{simple}, {work(size='2 * n - 1')}, "
                       f"{work('rwork', '3 * n - 2', '{R}')}, {INFO}", words.format(how=""), cost,
                       cases, "cz")
    how = ", by divide and conquer; lwork at least {least}"
    divided = more(cases, lwork=400, liwork=60)
    yield from routine("{p}spgvd", f"{simple}, {SPACE}, {SPACE_INTEGERS}, {INFO}",
                       words.format(how=how.format(least="1 + 6 n + 2 n^2, liwork 3 + 5 n")), cost,
                       divided, "sd")
    least = "2 n, lrwork 1 + 5 n + 2 n^2, liwork 3 + 5 n"
    yield from routine("{p}hpgvd", f"{simple}, {SPACE}, {SPACE_REALS}, {SPACE_INTEGERS}, {INFO}",
                       words.format(how=how.format(least=least)), cost, more(divided, lrwork=300),
                       "cz")
    head = (f"IN int itype, IN char jobz, IN char range, IN char uplo, IN int n, {AP}, {bp}, "
            f"{RANGE}, {Z}")
    cases = more(forms(cases, range="AI")[::5], vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0)
    five, seven = work("iwork", "5 * n", "int"), work("rwork", "7 * n", "{R}")
    how = ", all or those of the indices il to iu"
    yield from routine("{p}spgvx", f"{head}, {work(size='8 * n')}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how), cost, cases, "sd")
    yield from routine("{p}hpgvx", f"{head}, {work(size='2 * n')}, {seven}, {five}, {IFAIL}, "
                       f"{INFO}", words.format(how=how), cost, cases, "cz")
    yield from routine("{p}{h}pgst", f"IN int itype, IN char uplo, IN int n, {AP}, "
                       f"{packed('IN', 'bp')}, {INFO}",
                       "Reduce a packed definite pair to one matrix, with the factor of pptrf",
                       "n^3", more(ORDERS, itype=1))


def reductions():
    off = "[max(0, n - 1)]"
    yield from routine("{p}{h}ptrd", f"{HEAD}, {AP}, OUT {{R}} d[n], OUT {{R}} e{off}, "
                       f"OUT {{T}} tau{off}, {INFO}", "Reduce a packed matrix to tridiagonal form",
                       "4 / 3 * n^3", ORDERS)
    yield from routine("{p}{o}pgtr", f"{HEAD}, {AP_IN}, IN {{T}} tau{off}, "
                       f"{matrix('OUT', 'q', 'n', 'n', 'ldq')}, {work(size='n - 1')}, {INFO}",
                       "The orthogonal matrix of the reduction of a packed matrix", "4 / 3 * n^3",
                       more(ORDERS, ldq=8))
    left = is_one("side", "L")
    order = f"({left} ? m : n)"
    ap = packed("IN", "ap", f"{order} * ({order} + 1) / 2")
    for which, letters in (("sd", "NT"), ("cz", "NC")):
        yield from routine("{p}{o}pmtr",
                           f"IN char side, IN char uplo, IN char trans, IN int m, IN int n, {ap}, "
                           f"IN {{T}} tau[max(0, {order} - 1)], "
                           f"{matrix('INOUT', 'c', 'm', 'n', 'ldc')}, "
                           f"{work(size=f'({left} ? n : m)')}, {INFO}",
                           "C = op(Q) C or C op(Q), Q of the reduction of a packed matrix",
                           f"2 * m * n * {order}",
                           forms([dict(m=7, n=5, ldc=8)], side="LR", uplo="UL",
                                 trans=letters)[::3], which)


def both_forms(name, params, description, cost, cases, **options):
    """A routine on rectangles, of which real and complex ones differ in the letter of TRANSR."""
    for which, letters in (("sd", "NT"), ("cz", "NC")):
        yield from routine(name, params, description, cost, forms(cases, transr=letters), which,
                           **options)


def rectangular():
    a, a_in = packed("INOUT", "a"), packed("IN", "a")
    head = f"IN char transr, {HEAD}"
    form = "in rectangular full packed form"
    yield from both_forms("{p}pftrf", f"{head}, {a}, {INFO}", f"Cholesky factorisation {form}",
                          "1 / 3 * n^3", ORDERS, size="n")
    yield from both_forms("{p}pftri", f"{head}, {a}, {INFO}", "Invert A with the factor of pftrf",
                          "2 / 3 * n^3", ORDERS, size="n")
    yield from both_forms("{p}pftrs", f"{head}, IN int nrhs, {a_in}, {B}, {INFO}",
                          "Solve A X = B with the factor of pftrf", "2 * n^2 * nrhs", SOLVED)
    yield from both_forms("{p}tftri", f"IN char transr, IN char uplo, IN char diag, IN int n, {a}, "
                          f"{INFO}", f"Invert a triangular matrix {form}", "1 / 3 * n^3",
                          forms(ORDERS, diag="NU"), size="n")
    order = f"({is_one('side', 'L')} ? m : n)"
    a = packed("IN", "a", f"{order} * ({order} + 1) / 2")
    for which, letters in (("sd", "NT"), ("cz", "NC")):
        cases = forms([dict(m=7, n=5, ldb=8, alpha=(1.25, -0.5), diag="N")], side="LR", uplo="UL",
                      trans=letters, transr=letters)[::3]
        yield from routine("{p}tfsm",
                           "IN char transr, IN char side, IN char uplo, IN char trans, "
                           f"IN char diag, IN int m, IN int n, IN {{T}} alpha, {a}, "
                           f"{matrix('INOUT', 'b', 'm', 'n', 'ldb')}",
                           f"Solve op(A) X = alpha B or X op(A) = alpha B, A triangular {form}",
                           f"m * n * {order}", cases, which, size="min(m, n)")
    plain = is_one("trans", "N")
    a = matrix("IN", "a", f"({plain} ? n : k)", f"{plain} ? k : n", "lda")
    for name, which, letters in (("{p}sfrk", "sd", "NT"), ("{p}hfrk", "cz", "NC")):
        cases = forms([dict(n=6, k=4, lda=7, alpha=1.25, beta=0.75)], uplo="UL", trans=letters,
                      transr=letters)[::3]
        yield from routine(name, f"IN char transr, IN char uplo, IN char trans, IN int n, "
                           f"IN int k, IN {{R}} alpha, {a}, IN {{R}} beta, "
                           f"{packed('INOUT', 'c')}", f"C = alpha op(A) op(A)' + beta C, C {form}",
                           "n^2 * k", cases, which, size="min(n, k)")


def conversions():
    full, given = matrix("INOUT", "a", "n", "n", "lda"), matrix("IN", "a", "n", "n", "lda")
    head = f"IN char transr, {HEAD}"
    words = "Copy a triangle from {a} to {b}"
    forms_of = ("rectangular full packed form", "packed form", "a full matrix")
    rectangle, triangle, whole = forms_of
    for name, source, target, a, b, cases in (
        ("{p}tfttp", packed("IN", "arf"), packed("OUT"), rectangle, triangle, ORDERS),
        ("{p}tfttr", packed("IN", "arf"), full, rectangle, whole, PLAIN),
        ("{p}tpttf", AP_IN, packed("OUT", "arf"), triangle, rectangle, ORDERS),
        ("{p}trttf", given, packed("OUT", "arf"), whole, rectangle, PLAIN),
    ):
        yield from both_forms(name, f"{head}, {source}, {target}, {INFO}",
                              words.format(a=a, b=b), "n^2 / 2", cases)
    yield from routine("{p}tpttr", f"{HEAD}, {AP_IN}, {full}, {INFO}",
                       words.format(a=triangle, b=whole), "n^2 / 2", PLAIN)
    yield from routine("{p}trttp", f"{HEAD}, {given}, {packed('OUT')}, {INFO}",
                       words.format(a=whole, b=triangle), "n^2 / 2", PLAIN)
