"""Eigenvalues and singular values beyond the simple drivers: selected eigenvalues, generalised and
tridiagonal problems, Schur forms, and the steps under them.

A routine that LAPACK gives a SELECT argument is described for SORT = 'N', which does not use it. If
a program selects eigenvalues by value (RANGE = 'V') it may have less memory for the vectors than
the n columns that the interface declares.
"""

from .description import is_one, matrix, routine
from .parts import INFO, UPLO, A, both, forms, more, only, work

SPACE = f"{work()}, IN int lwork"
INTEGERS = f"{work('iwork', 'liwork', 'int')}, IN int liwork"
REALS = f"{work('rwork', 'lrwork', '{R}')}, IN int lrwork"
VECTORS, VALUES, BY_INDEX = is_one("jobz", "V"), is_one("jobz", "N"), is_one("range", "I")
# LAPACK destroys the matrix of a driver for selected eigenvalues: it need not travel back.
DESTROYED = matrix("IN", "a", "n", "n", "lda")
B = matrix("INOUT", "b", "n", "n", "ldb")
PAIRS = forms(only(UPLO, "n", "lda", "ldb", "uplo"), jobz="NV")
RANGE = "IN {R} vl, IN {R} vu, IN int il, IN int iu, IN {R} abstol, OUT int *m, OUT {R} w[n]"
COUNT = f"({BY_INDEX} ? iu - il + 1 : n)"
Z = (f"OUT {{T}} z[{VECTORS} ? {COUNT} : 0][ldz : {VECTORS} ? n : 0], IN int ldz")
IFAIL = f"INOUT int ifail[{VECTORS} ? {COUNT} : 0]"


def routines():
    yield from selected()
    yield from pairs()
    yield from tridiagonal()
    yield from expert()
    yield from schur()
    yield from schur_forms()
    yield from general_pairs()


def selected():
    head = f"IN char jobz, IN char range, IN char uplo, IN int n, {DESTROYED}, {RANGE}, {Z}"
    cases = forms(only(UPLO, "n", "lda", "uplo"), jobz="NV", range="AI")
    cases = more(cases, vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0, ldz=8, lwork=400)
    words = "Eigenvalues and vectors of a symmetric or hermitian matrix, all or those of the " \
            "indices il to iu; {how}; lwork at least {least}"
    cost = f"{VALUES} ? 4 / 3 * n^3 : 4 / 3 * n^3 + 4 * n^2 * {COUNT}"
    # The supports of the vectors are known only if all eigenvalues are wanted.
    support = f"OUT int isuppz[{VECTORS} && {COUNT} == n ? 2 * max(1, n) : 0]"
    how = "relatively robust representations"
    yield from routine("{p}syevr", f"{head}, {support}, {SPACE}, {INTEGERS}, {INFO}",
                       words.format(how=how, least="26 n, liwork 10 n"), cost,
                       more(cases, liwork=80), "sd", size="n")
    yield from routine("{p}heevr", f"{head}, {support}, {SPACE}, {REALS}, {INTEGERS}, {INFO}",
                       words.format(how=how, least="2 n, lrwork 24 n, liwork 10 n"), cost,
                       more(cases, lrwork=200, liwork=80), "cz", size="n")
    five = work("iwork", "5 * n", "int")
    reals = work("rwork", "7 * n", "{R}")
    how = "bisection and inverse iteration"
    yield from routine("{p}syevx", f"{head}, {SPACE}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how, least="8 n"), cost, cases, "sd")
    yield from routine("{p}heevx", f"{head}, {SPACE}, {reals}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how, least="2 n"), cost, cases, "cz")


def pairs():
    head = f"IN int itype, IN char jobz, IN char uplo, IN int n, {A}, {B}, OUT {{R}} w[n], {SPACE}"
    words = "Eigenvalues and vectors of A x = l B x (itype 1), A B x = l x (2) or B A x = l x " \
            "(3), B positive definite{how}; lwork at least {least}"
    cases = more(PAIRS, itype=1, lwork=400) + more(PAIRS[:1], itype=3, lwork=400)
    cost = f"{VALUES} ? 8 / 3 * n^3 : 14 * n^3"
    yield from routine("{p}sygv", f"{head}, {INFO}", words.format(how="", least="3 n - 1"), cost,
                       cases, "sd", size="n")
    yield from routine("{p}hegv", f"{head}, WORK {{R}} rwork[max(1, 3 * n - 2)], {INFO}",
                       words.format(how="", least="2 n - 1"), cost, cases, "cz", size="n")
    how = ", by divide and conquer"
    least = "1 + 6 n + 2 n^2, liwork 3 + 5 n"
    divided = more(cases, liwork=60)
    yield from routine("{p}sygvd", f"{head}, {INTEGERS}, {INFO}",
                       words.format(how=how, least=least), cost, divided, "sd", size="n")
    least = "2 n + n^2, lrwork 1 + 5 n + 2 n^2, liwork 3 + 5 n"
    yield from routine("{p}hegvd", f"{head}, {REALS}, {INTEGERS}, {INFO}",
                       words.format(how=how, least=least), cost, more(divided, lrwork=300), "cz",
                       size="n")
    head = (f"IN int itype, IN char jobz, IN char range, IN char uplo, IN int n, {A}, {B}, "
            f"{RANGE}, {Z}, {SPACE}")
    cases = forms(more(PAIRS, itype=1, lwork=400, vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0, ldz=8),
                  range="AI")
    five = work("iwork", "5 * n", "int")
    reals = work("rwork", "7 * n", "{R}")
    how = ", all or those of the indices il to iu"
    yield from routine("{p}sygvx", f"{head}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how, least="8 n"), cost, cases, "sd", size="n")
    yield from routine("{p}hegvx", f"{head}, {reals}, {five}, {IFAIL}, {INFO}",
                       words.format(how=how, least="2 n"), cost, cases, "cz", size="n")
    factor = matrix("IN", "b", "n", "n", "ldb")
    yield from routine("{p}{sy}gst", f"IN int itype, IN char uplo, IN int n, {A}, {factor}, {INFO}",
                       "Reduce a symmetric definite pair to one matrix, with the factor of potrf",
                       "n^3", more(only(PAIRS, "n", "lda", "ldb", "uplo"), itype=1))


def tridiagonal():
    off = "e[max(0, n - 1)]"
    z = f"OUT {{T}} z[{VECTORS} ? n : 0][ldz : {VECTORS} ? n : 0], IN int ldz"
    head = f"IN char jobz, IN int n, INOUT {{R}} d[n], INOUT {{R}} {off}, {z}"
    cases = forms([dict(n=7, ldz=8)], jobz="NV")
    cost = f"{VALUES} ? 30 * n^2 : 6 * n^3"
    words = "Eigenvalues and vectors of a symmetric tridiagonal matrix"
    yield from routine("{p}stev", f"{head}, {work(size='2 * n')}, {INFO}", words, cost, cases,
                       "sd")
    yield from routine("{p}stevd", f"{head}, {SPACE}, {INTEGERS}, {INFO}",
                       f"{words}, by divide and conquer; with vectors lwork at least 1 + 4 n + "
                       "n^2 and liwork 3 + 5 n", cost, more(cases, lwork=100, liwork=60), "sd")
    yield from routine("{p}sterf", f"IN int n, INOUT {{R}} d[n], INOUT {{R}} {off}, {INFO}",
                       "Eigenvalues of a symmetric tridiagonal matrix", "30 * n^2", [dict(n=7)],
                       "sd")
    none = is_one("compz", "N")
    z = f"INOUT {{T}} z[{none} ? 0 : n][ldz : {none} ? 0 : n], IN int ldz"
    head = f"IN char compz, IN int n, INOUT {{R}} d[n], INOUT {{R}} {off}, {z}"
    yield from routine("{p}steqr", f"{head}, WORK {{R}} work[max(1, 2 * n)], {INFO}",
                       "Eigenvalues of a symmetric tridiagonal matrix; z becomes the vectors of "
                       "it (compz = I) or, from the matrix of the reduction, those of the full "
                       "matrix (V)", f"{none} ? 30 * n^2 : 6 * n^3",
                       forms([dict(n=7, ldz=8)], compz="NIV"))


def expert():
    left, right = is_one("jobvl", "V"), is_one("jobvr", "V")
    conditions = [" || ".join(is_one("sense", letter) for letter in pair) for pair in ("EB", "VB")]
    vectors = (f"OUT {{T}} vl[{left} ? n : 0][ldvl : {left} ? n : 0], IN int ldvl, "
               f"OUT {{T}} vr[{right} ? n : 0][ldvr : {right} ? n : 0], IN int ldvr")
    tail = (f"{vectors}, OUT int *ilo, OUT int *ihi, OUT {{R}} scale[n], OUT {{R}} *abnrm, "
            f"OUT {{R}} rconde[({conditions[0]}) ? n : 0], "
            f"OUT {{R}} rcondv[({conditions[1]}) ? n : 0], {SPACE}")
    head = f"IN char balanc, IN char jobvl, IN char jobvr, IN char sense, IN int n, {A}"
    cases = [dict(n=6, lda=8, ldvl=7, ldvr=6, lwork=600, balanc=balance, jobvl=jobs[0],
                  jobvr=jobs[1], sense=jobs[2])
             for balance, jobs in (("N", "NNN"), ("B", "NVN"), ("P", "VVE"), ("B", "VVB"))]
    words = "Eigenvalues and vectors of a general matrix, with balancing and condition numbers; " \
            "lwork at least n (n + 6), without condition numbers of vectors 3 n"
    yield from both("{p}geevx",
                    f"{head}, OUT {{T}} wr[n], OUT {{T}} wi[n], {tail}, "
                    f"WORK int iwork[max(1, 2 * n)], {INFO}",
                    f"{head}, OUT {{T}} w[n], {tail}, WORK {{R}} rwork[max(1, 2 * n)], {INFO}",
                    words, "25 * n^3", cases, size="n")


def schur():
    vectors = is_one("jobvs", "V")
    vs = f"OUT {{T}} vs[{vectors} ? n : 0][ldvs : {vectors} ? n : 0], IN int ldvs"
    head = f"IN char jobvs, IN int n, {A}, OUT int *sdim"
    cases = [dict(n=6, lda=8, ldvs=7, lwork=400, jobvs=job) for job in "NV"]
    cost = f"{vectors} ? 25 * n^3 : 10 * n^3"
    words = "Schur form and vectors of a general matrix, unsorted; lwork at least 3 n"
    reals = work("rwork", "n", "{R}")
    places = ["'N'", "NULL"]
    yield from routine("{p}gees", f"{head}, OUT {{T}} wr[n], OUT {{T}} wi[n], {vs}, {SPACE}, "
                       f"{INFO}", words, cost, cases, "sd", size="n",
                       constants={"n": places, "info": ["NULL"]})
    yield from routine("{p}gees", f"{head}, OUT {{T}} w[n], {vs}, {SPACE}, {reals}, {INFO}", words,
                       cost, cases, "cz", size="n", constants={"n": places, "info": ["NULL"]})
    places = [*places, "'N'"]
    unused = ["NULL", "NULL"]
    yield from routine("{p}geesx", f"{head}, OUT {{T}} wr[n], OUT {{T}} wi[n], {vs}, {SPACE}, "
                       f"{INTEGERS}, {INFO}", words, cost, more(cases, liwork=20), "sd", size="n",
                       constants={"n": places, "work": unused, "info": ["NULL"]})
    yield from routine("{p}geesx", f"{head}, OUT {{T}} w[n], {vs}, {SPACE}, {reals}, {INFO}",
                       words, cost, cases, "cz", size="n",
                       constants={"n": places, "work": unused, "info": ["NULL"]})


def schur_forms():
    none = is_one("compz", "N")
    z = f"INOUT {{T}} z[{none} ? 0 : n][ldz : {none} ? 0 : n], IN int ldz"
    head = (f"IN char job, IN char compz, IN int n, IN int ilo, IN int ihi, "
            f"{matrix('INOUT', 'h', 'n', 'n', 'ldh')}")
    case = dict(n=6, ilo=1, ihi=6, ldh=8, ldz=7, lwork=400)
    cases = [dict(case, job=job, compz=compz) for job, compz in ("EN", "SI", "SV")]
    words = "Eigenvalues and Schur form of a Hessenberg matrix; lwork at least n"
    tail = f"{z}, {SPACE}, {INFO}"
    yield from both("{p}hseqr", f"{head}, OUT {{T}} wr[n], OUT {{T}} wi[n], {tail}",
                    f"{head}, OUT {{T}} w[n], {tail}", words,
                    f"{none} ? 10 * n^3 : 25 * n^3", cases, size="n")
    c = matrix("INOUT", "c", "m", "n", "ldc")
    yield from routine("{p}trsyl",
                       "IN char trana, IN char tranb, IN int isgn, IN int m, IN int n, "
                       f"{matrix('IN', 'a', 'm', 'm', 'lda')}, "
                       f"{matrix('IN', 'b', 'n', 'n', 'ldb')}, {c}, OUT {{R}} *scale, {INFO}",
                       "Solve op(A) X + isgn X op(B) = scale C, A and B Schur forms",
                       "m * n * (m + n)",
                       [dict(m=6, n=5, lda=8, ldb=7, ldc=9, isgn=1, trana=a, tranb=b)
                        for a, b in ("NN", "CN")])


def general_pairs():
    left, right = is_one("jobvl", "V"), is_one("jobvr", "V")
    vectors = (f"OUT {{T}} vl[{left} ? n : 0][ldvl : {left} ? n : 0], IN int ldvl, "
               f"OUT {{T}} vr[{right} ? n : 0][ldvr : {right} ? n : 0], IN int ldvr")
    case = dict(n=6, lda=8, ldb=7, lwork=600)
    head = f"IN char jobvl, IN char jobvr, IN int n, {A}, {B}"
    values = "OUT {T} alphar[n], OUT {T} alphai[n], OUT {T} beta[n]"
    pair = "OUT {T} alpha[n], OUT {T} beta[n]"
    reals = work("rwork", "8 * n", "{R}")
    cases = [dict(case, ldvl=7, ldvr=6, jobvl=jl, jobvr=jr) for jl, jr in ("NN", "NV", "VV")]
    yield from both("{p}ggev", f"{head}, {values}, {vectors}, {SPACE}, {INFO}",
                    f"{head}, {pair}, {vectors}, {SPACE}, {reals}, {INFO}",
                    "Eigenvalues alpha / beta and vectors of A x = l B x; lwork at least 8 n",
                    f"{left} || {right} ? 66 * n^3 : 30 * n^3", cases, size="n")
    left, right = is_one("jobvsl", "V"), is_one("jobvsr", "V")
    vectors = (f"OUT {{T}} vsl[{left} ? n : 0][ldvsl : {left} ? n : 0], IN int ldvsl, "
               f"OUT {{T}} vsr[{right} ? n : 0][ldvsr : {right} ? n : 0], IN int ldvsr")
    head = f"IN char jobvsl, IN char jobvsr, IN int n, {A}, {B}, OUT int *sdim"
    cases = [dict(case, ldvsl=7, ldvsr=6, jobvsl=jl, jobvsr=jr) for jl, jr in ("NN", "VV")]
    constants = {"n": ["'N'", "NULL"], "info": ["NULL"]}
    for which, last, found in (("sd", "", values), ("cz", f"{reals}, ", pair)):
        yield from routine("{p}gges", f"{head}, {found}, {vectors}, {SPACE}, {last}{INFO}",
                           "Generalised Schur form of a pair, unsorted; lwork at least 8 n + 16",
                           "66 * n^3", cases, which, size="n", constants=constants)
    yield from reduced_pairs(case)


def reduced_pairs(case):
    no_q, no_z = is_one("compq", "N"), is_one("compz", "N")
    factors = (f"INOUT {{T}} q[{no_q} ? 0 : n][ldq : {no_q} ? 0 : n], IN int ldq, "
               f"INOUT {{T}} z[{no_z} ? 0 : n][ldz : {no_z} ? 0 : n], IN int ldz")
    case = dict(case, ilo=1, ihi=6, ldq=7, ldz=8)
    choices = [dict(case, compq=q, compz=z) for q, z in ("NN", "IV")]
    head = "IN char compq, IN char compz, IN int n, IN int ilo, IN int ihi"
    yield from routine("{p}gghrd", f"{head}, {A}, {B}, {factors}, {INFO}",
                       "Reduce a pair to Hessenberg and triangular form", "8 * n^3",
                       [{name: value for name, value in one.items() if name != "lwork"}
                        for one in choices])
    h, t = matrix("INOUT", "h", "n", "n", "ldh"), matrix("INOUT", "t", "n", "n", "ldt")
    values = "OUT {T} alphar[n], OUT {T} alphai[n], OUT {T} beta[n]"
    pair = "OUT {T} alpha[n], OUT {T} beta[n]"
    words = "Eigenvalues and Schur form of a Hessenberg and triangular pair; lwork at least n"
    pairs = zip("ES", choices, strict=True)
    cases = [{"job": job, "ldh": 8, "ldt": 7, **one} for job, one in pairs]
    cases = [{name: value for name, value in one.items() if name not in ("lda", "ldb")}
             for one in cases]
    reals = work("rwork", "n", "{R}")
    for which, last, found in (("sd", "", values), ("cz", f"{reals}, ", pair)):
        yield from routine("{p}hgeqz", f"IN char job, {head}, {h}, {t}, {found}, {factors}, "
                           f"{SPACE}, {last}{INFO}", words, "40 * n^3", cases, which, size="n")
