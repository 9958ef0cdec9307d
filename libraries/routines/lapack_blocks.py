"""QR and LQ factorisations whose reflectors come in blocks, with their triangular factors in t, and
least squares on top of them.
"""

from .description import is_one, matrix, routine
from .lapack_factors import ORDER, SPACE, C
from .parts import A_MN, INFO, MAX, MIN, TALL, WIDE, forms, more, work

COST = f"2 * {MAX} * {MIN}^2 - 2 / 3 * {MIN}^3"
LEFT = is_one("side", "L")
OTHER = f"({LEFT} ? n : m)"
SIDES = forms([dict(m=7, n=5, ldc=8, k=4)], side="LR")
LETTERS = (("sd", "NT"), ("cz", "NC"))


def routines():
    yield from factorisations()
    yield from products()
    yield from pentagonal()
    yield from tall_and_skinny()
    yield from least_squares()


def triangles(mode, rows, columns):
    """Triangular factors, one beside the other. LAPACK writes the upper triangles alone."""
    return matrix(mode, "t", rows, columns, "ldt")


def factorisations():
    cases = [dict(case, lwork=384) for case in (TALL, WIDE)]
    yield from routine("{p}geqrfp", f"IN int m, IN int n, {A_MN}, OUT {{T}} tau[{MIN}], {SPACE}, "
                       f"{INFO}", "Factor A = Q R, the diagonal of R not negative; lwork at least "
                       "n, better 64 n", COST, cases, size=MIN)
    for name, blocks, length, words in (("{p}geqrt", "nb", "n", "A = Q R"),
                                        ("{p}gelqt", "mb", "m", "A = L Q")):
        cases = [dict(case, ldt=4, **{blocks: 2}) for case in (TALL, WIDE)]
        yield from routine(name, f"IN int m, IN int n, IN int {blocks}, {A_MN}, "
                           f"{triangles('INOUT', blocks, MIN)}, "
                           f"{work(size=f'{blocks} * {length}')}, {INFO}",
                           f"Factor {words} by blocks of {blocks}", COST, cases, size=MIN)
    for name, least, words in (("{p}geqr", "n", "A = Q R"), ("{p}gelq", "m", "A = L Q")):
        cases = [dict(case, tsize=200, lwork=700) for case in (TALL, WIDE)]
        yield from routine(name, f"IN int m, IN int n, {A_MN}, INOUT {{T}} t[max(5, tsize)], "
                           f"IN int tsize, {SPACE}, {INFO}",
                           f"Factor {words} in the form that suits the shape; tsize and lwork as "
                           f"the queries say, lwork at least {least}", COST, cases, size=MIN)


def products():
    head = "IN char side, IN char trans, IN int m, IN int n, IN int k"
    cost = f"4 * m * n * k - 2 * k^2 * {OTHER}"
    by_columns, by_rows = matrix("IN", "v", ORDER, "k", "ldv"), matrix("IN", "v", "k", ORDER, "ldv")
    full = {"qr": matrix("IN", "a", ORDER, "k", "lda"), "lq": matrix("IN", "a", "k", ORDER, "lda")}
    for which, letters in LETTERS:
        cases = forms(SIDES, trans=letters)
        for name, blocks, v, of in (("{p}gemqrt", "nb", by_columns, "geqrt"),
                                    ("{p}gemlqt", "mb", by_rows, "gelqt")):
            yield from routine(name, f"{head}, IN int {blocks}, {v}, "
                               f"{triangles('IN', blocks, 'k')}, {C}, "
                               f"{work(size=f'{OTHER} * {blocks}')}, {INFO}",
                               f"C = op(Q) C or C op(Q), Q of {of}", cost,
                               more(cases, ldv=9, ldt=4, **{blocks: 2}), which, size="k")
        # t begins with its length and the sizes of blocks.
        for kind in ("qr", "lq"):
            yield from routine("{p}gem" + kind, f"{head}, {full[kind]}, "
                               f"IN {{T}} t[max(5, tsize)], IN int tsize, {C}, {SPACE}, {INFO}",
                               f"C = op(Q) C or C op(Q), Q of ge{kind}; lwork as the query says",
                               cost, more(cases, lda=9, tsize=200, lwork=700, t=[200, 1, 1]),
                               which, size="k")


def pentagonal():
    words = "Factor {what} by blocks of {blocks}; B ends with a trapezoid of l {lines}"
    case = dict(m=6, n=5, l=3, lda=7, ldb=8, ldt=4)
    for name, order, blocks, what, lines in (
        ("{p}tpqrt", "n", "nb", "(A; B) = Q R, A upper triangular,", "rows"),
        ("{p}tplqt", "m", "mb", "(A B) = L Q, A lower triangular,", "columns"),
    ):
        yield from routine(name, f"IN int m, IN int n, IN int l, IN int {blocks}, "
                           f"{matrix('INOUT', 'a', order, order, 'lda')}, "
                           f"{matrix('INOUT', 'b', 'm', 'n', 'ldb')}, "
                           f"{triangles('INOUT', blocks, order)}, "
                           f"{work(size=f'{blocks} * {order}')}, {INFO}",
                           words.format(what=what, blocks=blocks, lines=lines), "2 * m * n * "
                           + order, [dict(case, **{blocks: 2}), dict(case, l=0, **{blocks: 2})],
                           size=MIN)
    head = "IN char side, IN char trans, IN int m, IN int n, IN int k, IN int l"
    a = matrix("INOUT", "a", f"({LEFT} ? k : m)", f"{LEFT} ? n : k", "lda")
    b = matrix("INOUT", "b", "m", "n", "ldb")
    for which, letters in LETTERS:
        cases = forms([dict(m=7, n=5, k=4, l=2, lda=8, ldb=8, ldv=9, ldt=4)], side="LR",
                      trans=letters)
        for name, blocks, v, of in (("{p}tpmqrt", "nb", (ORDER, "k"), "tpqrt"),
                                    ("{p}tpmlqt", "mb", ("k", ORDER), "tplqt")):
            yield from routine(name, f"{head}, IN int {blocks}, {matrix('IN', 'v', *v, 'ldv')}, "
                               f"{triangles('IN', blocks, 'k')}, {a}, {b}, "
                               f"{work(size=f'{OTHER} * {blocks}')}, {INFO}",
                               "(A; B) = op(Q) (A; B) or (A B) = (A B) op(Q), Q of " + of,
                               "4 * m * n * k", more(cases, **{blocks: 2}), which, size="k")


def tall_and_skinny():
    blocks = "n * max(1, (m - n + max(1, mb - n) - 1) / max(1, mb - n))"
    head = f"IN int m, IN int n, IN int mb, IN int nb, {A_MN}"
    case = dict(m=8, n=5, mb=7, nb=2, lda=9, ldt=4, lwork=400)
    for name, least in (("{p}{or}gtsqr", "(m + nb) n"), ("{p}{or}gtsqr_row", "nb max(nb, n - nb)")):
        yield from routine(name, f"{head}, {triangles('IN', 'nb', blocks)}, {SPACE}, {INFO}",
                           "The first n columns of Q from the blocks of mb rows that latsqr has "
                           f"factored; m >= mb > n; lwork at least {least}",
                           "4 * m * n^2", [case], size="n")
    yield from routine("{p}{or}hr_col", f"IN int m, IN int n, IN int nb, {A_MN}, "
                       f"{triangles('INOUT', 'nb', 'n')}, OUT {{T}} d[n], {INFO}",
                       "The reflectors, as those of geqrt, of a matrix with orthonormal columns",
                       "2 * m * n^2", [dict(m=8, n=5, nb=2, lda=9, ldt=4)], size="n")
    yield from routine("{p}getsqrhrt", "IN int m, IN int n, IN int mb1, IN int nb1, IN int nb2, "
                       f"{A_MN}, {triangles('INOUT', 'min(nb2, n)', 'n')}, {SPACE}, {INFO}",
                       "Factor a tall A = Q R by blocks of mb1 rows, with the reflectors of geqrt; "
                       "m >= n, mb1 > n; lwork as the query says", "4 * m * n^2",
                       [dict(m=8, n=5, mb1=7, nb1=2, nb2=2, lda=9, ldt=4, lwork=400)], size="n")


def least_squares():
    b = matrix("INOUT", "b", MAX, "nrhs", "ldb")
    head = f"IN char trans, IN int m, IN int n, IN int nrhs, {A_MN}, {b}, {SPACE}, {INFO}"
    for which, letters in LETTERS:
        cases = forms([dict(case, nrhs=2, ldb=9, lwork=900) for case in (TALL, WIDE)],
                      trans=letters)
        for name, how in (("{p}gelst", "blocks of reflectors with their triangles"),
                          ("{p}getsls", "QR or LQ of tall or wide matrices")):
            yield from routine(name, head, f"Least squares or least norm by {how}, A of full rank; "
                               "lwork at least min(m, n) + max(1, m, n, nrhs), better as the query "
                               "says", f"{COST} + 4 * m * n * nrhs", cases, which, size=MIN)
