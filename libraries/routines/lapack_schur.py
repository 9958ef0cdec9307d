"""Steps around Schur forms: balancing, eigenvectors of a Schur form, and its order.

SELECT arrays are LOGICAL: whole numbers, of which 0 is false.
"""

from .description import is_one, matrix, routine
from .parts import INFO, A, both, forms, more, work

A_IN = matrix("IN", "a", "m", "n", "lda")
SPACE = f"{work()}, IN int lwork"
T = matrix("INOUT", "t", "n", "n", "ldt")
T_IN = matrix("IN", "t", "n", "n", "ldt")
CASE = dict(n=6, ldt=8, ldq=7)
BALANCED = [dict(n=6, lda=8, job=job) for job in "NPSB"]


def routines():
    yield from scaled()
    yield from balanced()
    yield from vectors()
    yield from ordered()
    yield from ordered_pairs()


def scaled():
    yield from routine("{p}geequ", f"IN int m, IN int n, {A_IN}, OUT {{R}} r[m], OUT {{R}} c[n], "
                       f"OUT {{R}} *rowcnd, OUT {{R}} *colcnd, OUT {{R}} *amax, {INFO}",
                       "Scale factors for the rows and columns of A", "2 * m * n",
                       [dict(m=8, n=5, lda=9)])
    yield from routine("{p}poequ", f"IN int n, {matrix('IN', 'a', 'n', 'n', 'lda')}, "
                       f"OUT {{R}} s[n], OUT {{R}} *scond, OUT {{R}} *amax, {INFO}",
                       "Scale factors for a positive definite matrix", "2 * n", [dict(n=6, lda=8)])


def balanced():
    yield from routine("{p}gebal", f"IN char job, IN int n, {A}, OUT int *ilo, OUT int *ihi, "
                       f"OUT {{R}} scale[n], {INFO}", "Balance a general matrix", "4 * n^2",
                       BALANCED)
    v = matrix("INOUT", "v", "n", "m", "ldv")
    cases = forms([dict(n=6, m=4, ilo=1, ihi=6, ldv=8, job="S")], side="LR")
    head = "IN char job, IN char side, IN int n, IN int ilo, IN int ihi"
    yield from routine("{p}gebak", f"{head}, IN {{R}} scale[n], IN int m, {v}, {INFO}",
                       "Eigenvectors of a matrix that gebal has balanced", "n * m", cases)
    pair = matrix("INOUT", "b", "n", "n", "ldb")
    yield from routine("{p}ggbal", f"IN char job, IN int n, {A}, {pair}, OUT int *ilo, "
                       f"OUT int *ihi, OUT {{R}} lscale[n], OUT {{R}} rscale[n], "
                       f"{work(size='6 * n', element='{R}')}, {INFO}", "Balance a pair", "8 * n^2",
                       more(BALANCED, ldb=7))
    yield from routine("{p}ggbak", f"{head}, IN {{R}} lscale[n], IN {{R}} rscale[n], IN int m, "
                       f"{v}, {INFO}", "Eigenvectors of a pair that ggbal has balanced", "n * m",
                       cases)


def vectors():
    selects = is_one("howmny", "S")
    sides = [f"({is_one('side', one)} || {is_one('side', 'B')})" for one in "LR"]
    both_sides = ", ".join(
        f"INOUT {{T}} {name}[{side} ? mm : 0][ld{name} : {side} ? n : 0], IN int ld{name}"
        for name, side in zip(("vl", "vr"), sides, strict=True)
    )
    tail = f"{both_sides}, IN int mm, OUT int *m"
    head = f"IN char side, IN char howmny, INOUT int select[{selects} ? n : 0], IN int n"
    case = dict(n=6, mm=6, ldvl=7, ldvr=8)
    cases = forms([case], side="LRB", howmny="AB")
    words = "Eigenvectors of a Schur form"
    yield from both("{p}trevc", f"{head}, {T_IN}, {tail}, {work(size='3 * n')}, {INFO}",
                    f"{head}, {T_IN}, {tail}, {work(size='2 * n')}, "
                    f"{work('rwork', 'n', '{R}')}, {INFO}", words, "n^2 * mm",
                    more(cases, ldt=8))
    s, p = matrix("IN", "s", "n", "n", "lds"), matrix("IN", "p", "n", "n", "ldp")
    cases = more(cases, lds=8, ldp=7)
    # A random real matrix is a Schur form of one row only.
    yield from routine("{p}tgevc", f"{head}, {s}, {p}, {tail}, {work(size='6 * n')}, {INFO}",
                       words + " of a pair", "2 * n^2 * mm", more(cases, n=1, mm=1), "sd")
    yield from routine("{p}tgevc", f"{head}, {s}, {p}, {tail}, {work(size='2 * n')}, "
                       f"{work('rwork', '2 * n', '{R}')}, {INFO}", words + " of a pair",
                       "2 * n^2 * mm", cases, "cz")


def ordered():
    has_q = is_one("compq", "V")
    q = f"INOUT {{T}} q[{has_q} ? n : 0][ldq : {has_q} ? n : 0], IN int ldq"
    words = "Reorder a Schur form"
    yield from routine("{p}trexc", f"IN char compq, IN int n, {T}, {q}, INOUT int ifst[1], "
                       f"INOUT int ilst[1], {work(size='n')}, {INFO}", words, "12 * n^2",
                       forms([CASE], compq="NV"), "sd")
    yield from routine("{p}trexc", f"IN char compq, IN int n, {T}, {q}, IN int ifst, "
                       f"IN int ilst, {INFO}", words, "12 * n^2",
                       forms([dict(CASE, ifst=1, ilst=4)], compq="NV"), "cz")
    head = f"IN char job, IN char compq, IN int select[n], IN int n, {T}, {q}"
    conditions = [" || ".join(is_one("job", letter) for letter in pair) for pair in ("EB", "VB")]
    tail = (f"OUT int *m, OUT {{R}} s[({conditions[0]}) ? 1 : 0], "
            f"OUT {{R}} sep[({conditions[1]}) ? 1 : 0], {SPACE}")
    words = "Move selected eigenvalues to the start of a Schur form; lwork at least n^2"
    cases = forms([dict(CASE, lwork=100)], job="NE", compq="NV")
    integers = f"{work('iwork', 'liwork', 'int')}, IN int liwork"
    yield from routine("{p}trsen", f"{head}, OUT {{T}} wr[n], OUT {{T}} wi[n], {tail}, "
                       f"{integers}, {INFO}", words, "12 * n^3", more(cases, liwork=40), "sd")
    yield from routine("{p}trsen", f"{head}, OUT {{T}} w[n], {tail}, {INFO}", words, "12 * n^3",
                       cases, "cz")


def ordered_pairs():
    factors = ", ".join(
        f"INOUT {{T}} {name}[want{name} ? n : 0][ld{name} : want{name} ? n : 0], IN int ld{name}"
        for name in "qz"
    )
    one = "((ijob == 1 || ijob >= 4) ? 1 : 0)"
    pair = matrix("INOUT", "b", "n", "n", "ldb")
    head = (f"IN int ijob, IN int wantq, IN int wantz, IN int select[n], IN int n, {A}, {pair}")
    tail = (f"{factors}, OUT int *m, OUT {{R}} pl[{one}], OUT {{R}} pr[{one}], "
            f"OUT {{R}} dif[ijob >= 2 ? 2 : 0], {SPACE}, {work('iwork', 'liwork', 'int')}, "
            f"IN int liwork, {INFO}")
    values = "OUT {T} alphar[n], OUT {T} alphai[n], OUT {T} beta[n]"
    words = "Move selected eigenvalues to the start of the Schur form of a pair; lwork at least " \
            "4 n + 16 and, with ijob > 0, n^2"
    cases = [dict(n=6, lda=8, ldb=7, ldq=7, ldz=8, ijob=0, wantq=want, wantz=want, lwork=200,
                  liwork=40) for want in (0, 1)]
    yield from both("{p}tgsen", f"{head}, {values}, {tail}",
                    f"{head}, OUT {{T}} alpha[n], OUT {{T}} beta[n], {tail}", words, "24 * n^3",
                    cases)
