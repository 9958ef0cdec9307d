"""Orthogonal factors of LAPACK: QR, LQ, QL and RQ, reductions to condensed forms, the products with
their orthogonal matrices, and least squares on top of them.

A is the same array before and after a factorisation: `a` becomes the triangle and the reflectors.
"""

from .description import is_one, matrix, routine
from .parts import A_MN, INFO, MAX, MIN, TALL, WIDE, A, both, forms, more, work

LEFT = is_one("side", "L")
ORDER = f"({LEFT} ? m : n)"
SPACE = f"{work()}, IN int lwork"
C = matrix("INOUT", "c", "m", "n", "ldc")
SIDES = forms([dict(m=7, n=5, lda=9, ldc=8, lwork=700)], side="LR")


def routines():
    yield from factorisations()
    yield from orthogonal_matrices()
    yield from products()
    yield from condensed()
    yield from condensed_products()
    yield from least_squares()
    yield from constrained()


def factorisations():
    cost = f"2 * {MAX} * {MIN}^2 - 2 / 3 * {MIN}^3"
    cases = [dict(case, lwork=384) for case in (TALL, WIDE)]
    for name, words, least in (("gelqf", "A = L Q", "m"), ("geqlf", "A = Q L", "n"),
                               ("gerqf", "A = R Q", "m")):
        yield from routine("{p}" + name, f"IN int m, IN int n, {A_MN}, OUT {{T}} tau[{MIN}], "
                           f"{SPACE}, {INFO}", f"Factor {words}; lwork at least {least}, better "
                           f"64 {least}", cost, cases, size=MIN)
    head = (f"IN int m, IN int n, {A_MN}, INOUT int jpvt[n], OUT {{T}} tau[{MIN}], {SPACE}")
    words = "Factor A P = Q R with pivots; columns with jpvt = 0 are free; lwork at least {least}"
    reals = work("rwork", "2 * n", "{R}")
    for which, least, last in (("sd", "3 n + 1", ""), ("cz", "n + 1", f"{reals}, ")):
        yield from routine("{p}geqp3", f"{head}, {last}{INFO}", words.format(least=least), cost,
                           cases, which, size=MIN)
    yield from routine("{p}tzrzf", f"IN int m, IN int n, {A_MN}, OUT {{T}} tau[m], {SPACE}, "
                       f"{INFO}", "Factor a trapezoid A = (R 0) Z, n >= m; lwork at least m",
                       "4 * m^2 * (n - m + 1)", [dict(WIDE, lwork=300)])


def orthogonal_matrices():
    cost = "4 * m * n * k - 2 * (m + n) * k^2 + 4 / 3 * k^3"
    tall = [dict(m=8, n=5, k=3, lda=9, lwork=320)]
    wide = [dict(m=5, n=8, k=3, lda=9, lwork=320)]
    for name, words, least, cases in (
        ("glq", "first m rows of Q, from the k reflectors of gelqf; n >= m >= k", "m", wide),
        ("gql", "last n columns of Q, from the k reflectors of geqlf; m >= n >= k", "n", tall),
        ("grq", "last m rows of Q, from the k reflectors of gerqf; n >= m >= k", "m", wide),
    ):
        yield from routine("{p}{or}" + name, f"IN int m, IN int n, IN int k, {A_MN}, "
                           f"IN {{T}} tau[k], {SPACE}, {INFO}", f"The {words}; lwork at least "
                           f"{least}", cost, cases, size="k")


def products():
    cost = f"2 * m * n * k + 2 * k * {ORDER} * min(m, n)"
    head = "IN char side, IN char trans, IN int m, IN int n, IN int k"
    tail = f"IN {{T}} tau[k], {C}, {SPACE}, {INFO}"
    by_columns, by_rows = matrix("IN", "a", ORDER, "k", "lda"), matrix("IN", "a", "k", ORDER, "lda")
    for name, of, a in (("mqr", "geqrf", by_columns), ("mlq", "gelqf", by_rows),
                        ("mql", "geqlf", by_columns), ("mrq", "gerqf", by_rows)):
        for which, letters in (("sd", "NT"), ("cz", "NC")):
            yield from routine("{p}{or}" + name, f"{head}, {a}, {tail}",
                               f"C = op(Q) C or C op(Q), Q of {of}; lwork at least the other "
                               "order of C, better 64 times that",
                               cost, forms(more(SIDES, k=4), trans=letters), which, size="k")
    a = matrix("IN", "a", "k", ORDER, "lda")
    for which, letters in (("sd", "NT"), ("cz", "NC")):
        yield from routine("{p}{or}mrz", f"{head}, IN int l, {a}, {tail}",
                           "C = op(Q) C or C op(Q), Q of tzrzf; lwork at least the other order of "
                           "C", "4 * m * n * k", forms(more(SIDES, k=3, l=2), trans=letters), which)


def condensed():
    head = "IN int n, IN int ilo, IN int ihi"
    cases = [dict(n=7, lda=9, ilo=1, ihi=7, lwork=600), dict(n=7, lda=9, ilo=2, ihi=6, lwork=600)]
    yield from routine("{p}gehrd", f"{head}, {A}, OUT {{T}} tau[max(0, n - 1)], {SPACE}, {INFO}",
                       "Reduce A to Hessenberg form; lwork at least n, better 64 n",
                       "10 / 3 * n^3", cases, size="n")
    yield from routine("{p}{or}ghr", f"{head}, {A}, IN {{T}} tau[max(0, n - 1)], {SPACE}, {INFO}",
                       "The orthogonal matrix of gehrd; lwork at least ihi - ilo",
                       "4 / 3 * n^3", cases, size="n")
    cases = [dict(case, lwork=700) for case in (TALL, WIDE)]
    yield from routine("{p}gebrd",
                       f"IN int m, IN int n, {A_MN}, OUT {{R}} d[{MIN}], "
                       f"OUT {{R}} e[max(0, {MIN} - 1)], OUT {{T}} tauq[{MIN}], "
                       f"OUT {{T}} taup[{MIN}], {SPACE}, {INFO}",
                       "Reduce A to bidiagonal form; lwork at least max(m, n)",
                       f"4 * {MAX} * {MIN}^2 - 4 / 3 * {MIN}^3", cases, size=MIN)
    is_q = is_one("vect", "Q")
    length = f"({is_q} ? min(m, k) : min(n, k))"
    cases = [dict(m=8, n=5, k=5, lda=9, lwork=320, vect="Q"),
             dict(m=5, n=8, k=5, lda=9, lwork=320, vect="P")]
    yield from routine("{p}{or}gbr", f"IN char vect, IN int m, IN int n, IN int k, {A_MN}, "
                       f"IN {{T}} tau[{length}], {SPACE}, {INFO}",
                       "Q or P' of gebrd; lwork at least min(m, n)",
                       f"4 * {MAX} * {MIN}^2 - 4 / 3 * {MIN}^3", cases, size=MIN)
    cases = forms([dict(n=7, lda=9, lwork=500)], uplo="UL")
    head = f"IN char uplo, IN int n, {A}"
    yield from routine("{p}{sy}trd", f"{head}, OUT {{R}} d[n], OUT {{R}} e[max(0, n - 1)], "
                       f"OUT {{T}} tau[max(0, n - 1)], {SPACE}, {INFO}",
                       "Reduce A to tridiagonal form; lwork at least 1, better 64 n",
                       "4 / 3 * n^3", cases, size="n")
    yield from routine("{p}{or}gtr", f"{head}, IN {{T}} tau[max(0, n - 1)], {SPACE}, {INFO}",
                       "The orthogonal matrix of the reduction to tridiagonal form; lwork at "
                       "least n - 1", "4 / 3 * n^3", cases, size="n")


def condensed_products():
    order = ORDER
    a = matrix("IN", "a", order, order, "lda")
    tail = f"{a}, IN {{T}} tau[max(0, {order} - 1)], {C}, {SPACE}, {INFO}"
    cost = f"2 * m * n * {order}"
    words = "C = op(Q) C or C op(Q), Q of {of}; lwork at least the other order of C"
    for which, letters in (("sd", "NT"), ("cz", "NC")):
        cases = forms(SIDES, trans=letters)
        hessenberg = [dict(case, ilo=1, ihi=7 if case["side"] == "L" else 5) for case in cases]
        yield from routine("{p}{or}mhr", "IN char side, IN char trans, IN int m, IN int n, "
                           f"IN int ilo, IN int ihi, {tail}", words.format(of="gehrd"), cost,
                           hessenberg, which, size=MIN)
        yield from routine("{p}{or}mtr", "IN char side, IN char uplo, IN char trans, IN int m, "
                           f"IN int n, {tail}", words.format(of="the reduction to tridiagonal "
                           "form"), cost, forms(cases, uplo="UL"), which, size=MIN)
        is_q = is_one("vect", "Q")
        few = f"min({order}, k)"
        a = matrix("IN", "a", f"({is_q} ? {order} : {few})", f"{is_q} ? {few} : {order}", "lda")
        yield from routine("{p}{or}mbr", "IN char vect, IN char side, IN char trans, IN int m, "
                           f"IN int n, IN int k, {a}, IN {{T}} tau[{few}], {C}, {SPACE}, {INFO}",
                           words.format(of="gebrd, or P"), f"4 * m * n * {few}",
                           forms(more(cases, k=4), vect="QP"), which, size=MIN)


def least_squares():
    b = matrix("INOUT", "b", MAX, "nrhs", "ldb")
    head = f"IN int m, IN int n, IN int nrhs, {A_MN}, {b}"
    cases = [dict(case, nrhs=2, ldb=9, rcond=1e-6, lwork=6000) for case in (TALL, WIDE)]
    cost = f"4 * {MAX} * {MIN}^2 + 8 * {MIN}^3 + 4 * m * n * nrhs"
    tail = f"OUT {{R}} s[{MIN}], IN {{R}} rcond, OUT int *rank, {SPACE}"
    words = "Least norm solution of least squares by {how}; lwork at least {least}"
    reals = work("rwork", f"5 * {MIN}", "{R}")
    least = "3 min(m, n) + max(2 min(m, n), max(m, n), nrhs)"
    yield from both("{p}gelss", f"{head}, {tail}, {INFO}", f"{head}, {tail}, {reals}, {INFO}",
                    words.format(how="the singular values", least=least), cost, cases, size=MIN)
    tail = f"INOUT int jpvt[n], IN {{R}} rcond, OUT int *rank, {SPACE}"
    least = "min(m, n) + max(2 min(m, n), n + 1, min(m, n) + nrhs) and min(m, n) + 3 n + 1"
    yield from both("{p}gelsy", f"{head}, {tail}, {INFO}",
                    f"{head}, {tail}, {work('rwork', '2 * n', '{R}')}, {INFO}",
                    words.format(how="QR with pivots", least=least),
                    f"4 * {MAX} * {MIN}^2 + 4 * m * n * nrhs", cases, size=MIN)


def constrained():
    rows = [dict(m=8, n=6, p=3, lda=9, ldb=8, lwork=800)]
    yield from routine("{p}gglse",
                       f"IN int m, IN int n, IN int p, {A_MN}, "
                       f"{matrix('INOUT', 'b', 'p', 'n', 'ldb')}, INOUT {{T}} c[m], "
                       f"INOUT {{T}} d[p], OUT {{T}} x[n], {SPACE}, {INFO}",
                       "Least squares |A x - c| with the constraints B x = d, p <= n <= m + p; "
                       "lwork at least m + n + p", "2 * (m + p) * n^2", rows)
    rows = [dict(n=8, m=6, p=3, lda=9, ldb=8, lwork=800)]
    yield from routine("{p}ggglm",
                       f"IN int n, IN int m, IN int p, {matrix('INOUT', 'a', 'n', 'm', 'lda')}, "
                       f"{matrix('INOUT', 'b', 'n', 'p', 'ldb')}, INOUT {{T}} d[n], "
                       f"OUT {{T}} x[m], OUT {{T}} y[p], {SPACE}, {INFO}",
                       "The least y with d = A x + B y, m <= n <= m + p; lwork at least m + n + p",
                       "2 * (m + p) * n^2", rows)
