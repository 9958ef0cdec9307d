"""BLAS, levels 1 to 3, after the reference implementation's documentation."""

from .description import is_one, matrix, routine, vector

HEADER = """
/* BLAS, levels 1 to 3. Written by libraries/generate.py: change libraries/routines/blas.py */
Module blas;
Library "libopenblas.so.0";"""

ALPHA, BETA = (1.25, -0.5), (0.75, 0.25)
STEPS = [dict(n=9, incx=1, incy=1), dict(n=6, incx=2, incy=-3), dict(n=0, incx=1, incy=1)]
ONE_STEP = [dict(n=9, incx=1), dict(n=5, incx=3)]


def x(mode="IN", element="{T}", length="n"):
    return vector(mode, "x", length, "incx", element)


def y(mode="IN", element="{T}", length="n"):
    return vector(mode, "y", length, "incy", element)


def routines():
    yield from level1()
    yield from level1_mixed()
    yield from level2_general()
    yield from level2_symmetric()
    yield from level2_triangular()
    yield from level3()


def level1():
    yield from routine("{p}swap", f"IN int n, {x('INOUT')}, {y('INOUT')}",
                       "Exchange two vectors", "n", STEPS)
    yield from routine("{p}copy", f"IN int n, {x()}, {y('INOUT')}", "y = x", "n", STEPS)
    yield from routine("{p}scal", f"IN int n, IN {{T}} alpha, {x('INOUT')}", "x = alpha x", "n",
                       [dict(case, alpha=ALPHA) for case in ONE_STEP])
    yield from routine("{p}axpy", f"IN int n, IN {{T}} alpha, {x()}, {y('INOUT')}",
                       "y = alpha x + y", "2 * n", [dict(case, alpha=ALPHA) for case in STEPS])
    yield from routine("{p}dot", f"IN int n, {x()}, {y()}, OUT {{R}} *r", "r = x' y", "2 * n",
                       STEPS, "sd", "r")
    for kind, words in (("u", "r = x' y"), ("c", "r = conj(x)' y")):
        yield from routine("{p}dot" + kind, f"IN int n, {x()}, {y()}, OUT {{T}} *r", words,
                           "2 * n", STEPS, "cz", "r")
    for name, r in (("snrm2", "s"), ("dnrm2", "d"), ("scnrm2", "c"), ("dznrm2", "z")):
        yield from routine(name, f"IN int n, {x()}, OUT {{R}} *r", "r = norm of x", "2 * n",
                           ONE_STEP, r, "r")
    for name, r in (("sasum", "s"), ("dasum", "d"), ("scasum", "c"), ("dzasum", "z")):
        yield from routine(name, f"IN int n, {x()}, OUT {{R}} *r",
                           "r = sum of the absolute values of the parts of x", "n", ONE_STEP, r,
                           "r")
    yield from routine("i{p}amax", f"IN int n, {x()}, OUT int *r",
                       "r = index, from 1, of the element with the greatest absolute value", "n",
                       ONE_STEP, "sdcz", "r")


def level1_mixed():
    rotation = [dict(case, c=0.6, s=0.8) for case in STEPS]
    yield from routine("{p}rot", f"IN int n, {x('INOUT')}, {y('INOUT')}, IN {{R}} c, IN {{R}} s",
                       "Apply a plane rotation", "6 * n", rotation, "sd")
    for name, p in (("csrot", "c"), ("zdrot", "z")):
        yield from routine(name,
                           f"IN int n, {x('INOUT')}, {y('INOUT')}, IN {{R}} c, IN {{R}} s",
                           "Apply a real plane rotation", "6 * n", rotation, p)
    yield from routine("{p}rotg", "INOUT {T} *a, INOUT {T} *b, OUT {T} *c, OUT {T} *s",
                       "Construct a plane rotation", "10", [{}], "sd")
    yield from routine("{p}rotg", "INOUT {T} *a, IN {T} b, OUT {R} *c, OUT {T} *s",
                       "Construct a plane rotation", "10", [dict(b=ALPHA)], "cz")
    yield from routine("{p}rotm",
                       f"IN int n, {x('INOUT')}, {y('INOUT')}, IN {{T}} param[5]",
                       "Apply a modified plane rotation", "6 * n", STEPS, "sd")
    yield from routine("{p}rotmg",
                       "INOUT {T} *d1, INOUT {T} *d2, INOUT {T} *x1, IN {T} y1, "
                       "INOUT {T} param[5]", "Construct a modified plane rotation", "20",
                       [dict(y1=1.5)], "sd")
    for name, p in (("csscal", "c"), ("zdscal", "z")):
        yield from routine(name, f"IN int n, IN {{R}} alpha, {x('INOUT')}",
                           "x = alpha x for a real alpha", "n / 2",
                           [dict(case, alpha=1.25) for case in ONE_STEP], p)
    yield from routine("dsdot", f"IN int n, {x(element='float')}, {y(element='float')}, "
                       "OUT double *r", "r = x' y, accumulated in double", "2 * n", STEPS, "d",
                       "r")
    yield from routine("sdsdot", f"IN int n, IN float sb, {x()}, {y()}, OUT float *r",
                       "r = sb + x' y, accumulated in double", "2 * n",
                       [dict(case, sb=0.5) for case in STEPS], "s", "r")


def level2_general():
    # OpenBLAS also takes letters for a matrix that is conjugated only.
    plain = is_one("trans", "N", "R", "O", "S")
    xs = vector("IN", "x", f"({plain} ? n : m)", "incx")
    ys = vector("INOUT", "y", f"({plain} ? m : n)", "incy")
    case = dict(m=7, n=5, lda=8, alpha=ALPHA, beta=BETA, incx=1, incy=2)
    cases = [dict(case, trans=trans) for trans in "NTc"]
    yield from routine("{p}gemv",
                       f"IN char trans, IN int m, IN int n, IN {{T}} alpha, "
                       f"{matrix('IN', 'a', 'm', 'n', 'lda')}, {xs}, IN {{T}} beta, {ys}",
                       "y = alpha op(A) x + beta y", "2 * m * n", cases)
    band = [dict(case, kl=2, ku=1, lda=5) for case in cases]
    yield from routine("{p}gbmv",
                       f"IN char trans, IN int m, IN int n, IN int kl, IN int ku, "
                       f"IN {{T}} alpha, {matrix('IN', 'a', 'kl + ku + 1', 'n', 'lda')}, {xs}, "
                       f"IN {{T}} beta, {ys}",
                       "y = alpha op(A) x + beta y for a band matrix", "2 * n * (kl + ku + 1)",
                       band)
    update = [dict(m=7, n=5, lda=8, alpha=ALPHA, incx=2, incy=-1)]
    for name, precisions, words in (("{p}ger", "sd", "A = alpha x y' + A"),
                                    ("{p}geru", "cz", "A = alpha x y' + A"),
                                    ("{p}gerc", "cz", "A = alpha x conj(y)' + A")):
        yield from routine(name,
                           f"IN int m, IN int n, IN {{T}} alpha, {x(length='m')}, {y()}, "
                           f"{matrix('INOUT', 'a', 'm', 'n', 'lda')}", words, "2 * m * n", update,
                           precisions)


def level2_symmetric():
    square = matrix("IN", "a", "n", "n", "lda")
    packed = "n * (n + 1) / 2"
    case = dict(n=6, lda=8, alpha=ALPHA, beta=BETA, incx=1, incy=-2)
    cases = [dict(case, uplo=uplo) for uplo in "UL"]
    tail = f"{x()}, IN {{T}} beta, {y('INOUT')}"
    head = "IN char uplo, IN int n"
    yield from routine("{p}{sy}mv", f"{head}, IN {{T}} alpha, {square}, {tail}",
                       "y = alpha A x + beta y, A symmetric or hermitian", "2 * n^2", cases)
    banded = matrix("IN", "a", "k + 1", "n", "lda")
    packed_cases = [drop(case, "lda") for case in cases]
    for name, precisions in (("s", "sd"), ("h", "cz")):
        yield from routine("{p}" + name + "bmv",
                           f"{head}, IN int k, IN {{T}} alpha, {banded}, {tail}",
                           "y = alpha A x + beta y, A a symmetric or hermitian band matrix",
                           "4 * n * (k + 1)", [dict(case, k=2) for case in cases], precisions)
        yield from routine("{p}" + name + "pmv",
                           f"{head}, IN {{T}} alpha, IN {{T}} ap[{packed}], {tail}",
                           "y = alpha A x + beta y, A symmetric or hermitian, packed", "2 * n^2",
                           packed_cases, precisions)
        real = [dict(drop(case, "beta", "incy"), alpha=1.25) for case in cases]
        yield from routine("{p}" + name + "pr",
                           f"{head}, IN {{R}} alpha, {x()}, INOUT {{T}} ap[{packed}]",
                           "A = alpha x x' + A, A symmetric or hermitian, packed", "n^2",
                           [drop(case, "lda") for case in real], precisions)
        yield from routine("{p}" + name + "pr2",
                           f"{head}, IN {{T}} alpha, {x()}, {y()}, INOUT {{T}} ap[{packed}]",
                           "A = alpha x y' + alpha y x' + A, A symmetric or hermitian, packed",
                           "2 * n^2", [drop(case, "beta") for case in packed_cases], precisions)
    update = matrix("INOUT", "a", "n", "n", "lda")
    yield from routine("{p}{sy}r", f"{head}, IN {{R}} alpha, {x()}, {update}",
                       "A = alpha x x' + A, A symmetric or hermitian", "n^2", real)
    yield from routine("{p}{sy}r2", f"{head}, IN {{T}} alpha, {x()}, {y()}, {update}",
                       "A = alpha x y' + alpha y x' + A, A symmetric or hermitian", "2 * n^2",
                       [drop(case, "beta") for case in cases])


def level2_triangular():
    head = "IN char uplo, IN char trans, IN char diag, IN int n"
    case = dict(n=6, lda=8, incx=2)
    cases = [dict(case, uplo=u, trans=t, diag=d) for u, t, d in ("UNN", "LTU", "UCN")]
    for verb, words in (("mv", "x = op(A) x"), ("sv", "Solve op(A) x = b in place")):
        yield from routine("{p}tr" + verb,
                           f"{head}, {matrix('IN', 'a', 'n', 'n', 'lda')}, {x('INOUT')}",
                           f"{words}, A triangular", "n^2", cases)
        yield from routine("{p}tb" + verb,
                           f"{head}, IN int k, {matrix('IN', 'a', 'k + 1', 'n', 'lda')}, "
                           f"{x('INOUT')}", f"{words}, A a triangular band matrix",
                           "2 * n * (k + 1)", [dict(case, k=2) for case in cases])
        yield from routine("{p}tp" + verb,
                           f"{head}, IN {{T}} ap[n * (n + 1) / 2], {x('INOUT')}",
                           f"{words}, A triangular, packed", "n^2",
                           [drop(case, "lda") for case in cases])


def level3():
    # OpenBLAS also takes R, for a matrix that is conjugated only.
    na, nb = is_one("transa", "N", "R"), is_one("transb", "N", "R")
    a = matrix("IN", "a", f"({na} ? m : k)", f"{na} ? k : m", "lda")
    b = matrix("IN", "b", f"({nb} ? k : n)", f"{nb} ? n : k", "ldb")
    c = matrix("INOUT", "c", "m", "n", "ldc")
    scale = dict(alpha=ALPHA, beta=BETA)
    case = dict(m=5, n=7, k=4, lda=8, ldb=8, ldc=6, **scale)
    yield from routine("{p}gemm",
                       f"IN char transa, IN char transb, IN int m, IN int n, IN int k, "
                       f"IN {{T}} alpha, {a}, {b}, IN {{T}} beta, {c}",
                       "C = alpha op(A) op(B) + beta C", "2 * m * n * k",
                       [dict(case, transa=ta, transb=tb) for ta, tb in ("NN", "TN", "NC", "ct")],
                       size="min(m, n)")
    left = is_one("side", "L")
    order = f"({left} ? m : n)"
    a = matrix("IN", "a", order, order, "lda")
    b = matrix("IN", "b", "m", "n", "ldb")
    case = drop(case, "k")
    sides = [dict(case, side=s, uplo=u) for s, u in ("LU", "RL")]
    for name, precisions in (("sy", "sdcz"), ("he", "cz")):
        yield from routine("{p}" + name + "mm",
                           f"IN char side, IN char uplo, IN int m, IN int n, IN {{T}} alpha, "
                           f"{a}, {b}, IN {{T}} beta, {c}",
                           "C = alpha A B + beta C or alpha B A + beta C, A symmetric or hermitian",
                           f"2 * m * n * {order}", sides, precisions, size="min(m, n)")
    yield from rank_updates()
    triangular = [dict(drop(case, "beta", "ldc"), side=s, uplo=u, transa=t, diag=d)
                  for s, u, t, d in ("LUNN", "RLTU", "LLCN")]
    b = matrix("INOUT", "b", "m", "n", "ldb")
    for verb, words in (("mm", "B = alpha op(A) B or alpha B op(A)"),
                        ("sm", "Solve op(A) X = alpha B or X op(A) = alpha B in place")):
        yield from routine("{p}tr" + verb,
                           f"IN char side, IN char uplo, IN char transa, IN char diag, IN int m, "
                           f"IN int n, IN {{T}} alpha, {a}, {b}", f"{words}, A triangular",
                           f"m * n * {order}", triangular, size="min(m, n)")


def rank_updates():
    plain = is_one("trans", "N")
    rows, columns = f"({plain} ? n : k)", f"{plain} ? k : n"
    a = matrix("IN", "a", rows, columns, "lda")
    b = matrix("IN", "b", rows, columns, "ldb")
    c = matrix("INOUT", "c", "n", "n", "ldc")
    head = "IN char uplo, IN char trans, IN int n, IN int k"
    case = dict(n=6, k=4, lda=7, ldc=8)

    def cases(other, alpha, beta, **more):
        modes = (("U", "N"), ("L", other))
        return [dict(case, uplo=u, trans=t, alpha=alpha, beta=beta, **more) for u, t in modes]

    yield from routine("{p}syrk", f"{head}, IN {{T}} alpha, {a}, IN {{T}} beta, {c}",
                       "C = alpha op(A) op(A)' + beta C, C symmetric", "n^2 * k",
                       cases("T", ALPHA, BETA), size="min(n, k)")
    yield from routine("{p}herk", f"{head}, IN {{R}} alpha, {a}, IN {{R}} beta, {c}",
                       "C = alpha op(A) op(A)' + beta C, C hermitian", "n^2 * k",
                       cases("C", 1.25, 0.75), "cz", size="min(n, k)")
    yield from routine("{p}syr2k", f"{head}, IN {{T}} alpha, {a}, {b}, IN {{T}} beta, {c}",
                       "C = alpha op(A) op(B)' + alpha op(B) op(A)' + beta C, C symmetric",
                       "2 * n^2 * k", cases("T", ALPHA, BETA, ldb=7), size="min(n, k)")
    yield from routine("{p}her2k", f"{head}, IN {{T}} alpha, {a}, {b}, IN {{R}} beta, {c}",
                       "C = alpha op(A) op(B)' + conj(alpha) op(B) op(A)' + beta C, C hermitian",
                       "2 * n^2 * k", cases("C", ALPHA, 0.75, ldb=7), "cz", size="min(n, k)")


def drop(case, *names):
    """The case without some scalars."""
    return {name: value for name, value in case.items() if name not in names}
