"""Tridiagonal and bidiagonal matrices: d is the diagonal, dl and du or e the ones beside it."""

from .description import is_one, matrix, routine
from .lapack_spectra import COUNT, IFAIL, INTEGERS, RANGE, SPACE, VALUES, VECTORS, Z
from .lapack_spectra import REALS as SPACE_REALS
from .lapack_systems import B_IN, ERRORS, IPIV, RCOND, REALS, X, refined
from .lapack_systems import INTEGERS as N_INTEGERS
from .parts import INFO, both, forms, more, work

OFF, SECOND = "[max(0, n - 1)]", "[max(0, n - 2)]"
CASE = dict(n=7, nrhs=3, ldb=8, ldx=9)


def routines():
    yield from general()
    yield from positive_definite()
    yield from by_index()
    yield from representations()
    yield from whole_spectra()
    yield from bidiagonal()


def diagonals(mode, after=""):
    """The three diagonals of a general matrix or of its factors."""
    return f"{mode} {{T}} dl{after}{OFF}, {mode} {{T}} d{after}[n], {mode} {{T}} du{after}{OFF}"


def general():
    head = f"IN char trans, IN int n, IN int nrhs, {diagonals('IN')}"
    cases = forms([CASE], trans="NT")
    yield from refined("{p}gtrfs", f"{head}, {diagonals('IN', 'f')}, IN {{T}} du2{SECOND}, {IPIV}, "
                       f"{B_IN}", cases, cost="60 * n * nrhs")
    head = (f"IN char fact, {head}, {diagonals('INOUT', 'f')}, INOUT {{T}} du2{SECOND}, "
            f"INOUT int ipiv[n], {B_IN}, {X}, {RCOND}, {ERRORS}")
    yield from both("{p}gtsvx", f"{head}, {work(size='3 * n')}, {N_INTEGERS}, {INFO}",
                    f"{head}, {work(size='2 * n')}, {REALS}, {INFO}",
                    "Solve op(A) X = B, A tridiagonal, with refinement and bounds of the errors",
                    "70 * n * nrhs", forms(cases, fact="NF"))


def positive_definite():
    given = f"IN {{R}} d[n], IN {{T}} e{OFF}"
    head = f"IN int n, {given}, IN {{R}} anorm, {RCOND}"
    yield from both("{p}ptcon", f"{head}, {work(size='n')}, {INFO}", f"{head}, {REALS}, {INFO}",
                    "Reciprocal of the condition number of A with the factors of pttrf", "10 * n",
                    [dict(n=7, anorm=20.0)])
    tail = f"{B_IN}, {matrix('INOUT', 'x', 'n', 'nrhs', 'ldx')}, {ERRORS}"
    head = f"IN int n, IN int nrhs, {given}, IN {{R}} df[n], IN {{T}} ef{OFF}, {tail}"
    words = "Refine the solution X of A X = B, A tridiagonal and positive definite, and bound " \
            "its errors"
    cost = "40 * n * nrhs"
    yield from routine("{p}ptrfs", f"{head}, {work(size='2 * n')}, {INFO}", words, cost, [CASE],
                       "sd")
    yield from routine("{p}ptrfs", f"IN char uplo, {head}, {work(size='n')}, {REALS}, {INFO}",
                       words, cost, forms([CASE], uplo="UL"), "cz")
    head = (f"IN char fact, IN int n, IN int nrhs, {given}, INOUT {{R}} df[n], "
            f"INOUT {{T}} ef{OFF}, {B_IN}, {X}, {RCOND}, {ERRORS}")
    yield from both("{p}ptsvx", f"{head}, {work(size='2 * n')}, {INFO}",
                    f"{head}, {work(size='n')}, {REALS}, {INFO}",
                    "Solve A X = B, A tridiagonal and positive definite, with refinement and "
                    "bounds of the errors", cost, forms([CASE], fact="NF"))
    none = is_one("compz", "N")
    yield from routine("{p}pteqr", "IN char compz, IN int n, INOUT {R} d[n], "
                       f"INOUT {{R}} e{OFF}, INOUT {{T}} z[{none} ? 0 : n][ldz : {none} ? 0 : n], "
                       "IN int ldz, "
                       f"{work(size='4 * n', element='{R}')}, {INFO}",
                       "Eigenvalues, accurate ones, of a positive definite tridiagonal matrix; "
                       "vectors as those of steqr", f"{none} ? 30 * n^2 : 6 * n^3",
                       forms([dict(n=7, ldz=8)], compz="NIV"))


def by_index():
    given = f"IN {{R}} d[n], IN {{R}} e{OFF}"
    cases = [dict(n=7, vl=0.0, vu=0.0, il=2, iu=3, abstol=0.0)]
    yield from routine("{p}stebz", "IN char range, IN char order, IN int n, IN {R} vl, IN {R} vu, "
                       f"IN int il, IN int iu, IN {{R}} abstol, {given}, OUT int *m, "
                       "OUT int *nsplit, INOUT {R} w[n], INOUT int iblock[n], INOUT int isplit[n], "
                       f"{work(size='4 * n')}, {work('iwork', '3 * n', 'int')}, {INFO}",
                       "Eigenvalues of a symmetric tridiagonal matrix by bisection",
                       "200 * n^2", forms(cases, range="AI", order="BE"), "sd")
    # The matrix of the case has a block for each row.
    yield from routine("{p}stein", f"IN int n, {given}, IN int m, IN {{R}} w[m], "
                       "IN int iblock[m], IN int isplit[n], "
                       f"{matrix('OUT', 'z', 'n', 'm', 'ldz')}, "
                       f"{work(size='5 * n', element='{R}')}, {work('iwork', 'n', 'int')}, "
                       f"OUT int ifail[m], {INFO}",
                       "Eigenvectors of a symmetric tridiagonal matrix by inverse iteration, for "
                       "the eigenvalues of stebz", "10 * n * m^2", [dict(n=7, m=7, ldz=8)])
    words = "Eigenvalues and vectors of a symmetric tridiagonal matrix, all or those of the " \
            "indices il to iu; {how}"
    cost = f"{VALUES} ? 30 * n^2 : 30 * n^2 + 4 * n^2 * {COUNT}"
    head = f"IN char jobz, IN char range, IN int n, INOUT {{R}} d[n], INOUT {{R}} e{OFF}, {RANGE}"
    cases = forms(more(cases, ldz=8), jobz="NV", range="AI")
    yield from routine("{p}stevx", f"{head}, {Z}, {work(size='5 * n')}, "
                       f"{work('iwork', '5 * n', 'int')}, {IFAIL}, {INFO}",
                       words.format(how="bisection and inverse iteration"), cost, cases, "sd")
    # The supports of the vectors are known only if all eigenvalues are wanted.
    support = f"INOUT int isuppz[{VECTORS} && {COUNT} == n ? 2 * max(1, n) : 0]"
    how = "relatively robust representations; lwork at least 20 n, liwork 10 n"
    yield from routine("{p}stevr", f"{head}, {Z}, {support}, {SPACE}, {INTEGERS}, {INFO}",
                       words.format(how=how), cost, more(cases, lwork=200, liwork=80), "sd")


def representations():
    support = f"OUT int isuppz[{VECTORS} ? 2 * max(1, {COUNT}) : 0]"
    space = f"{work(element='{R}')}, IN int lwork, {INTEGERS}, {INFO}"
    words = "Eigenvalues and vectors of a symmetric tridiagonal matrix by relatively robust " \
            "representations, all or those of the indices il to iu; lwork at least 18 n, liwork " \
            "10 n"
    # The last element of e is work space.
    head = "IN char jobz, IN char range, IN int n, INOUT {R} d[n], INOUT {R} e[n]"
    cost = f"{VALUES} ? 30 * n^2 : 30 * n^2 + 10 * n * {COUNT}"
    cases = [dict(n=7, vl=0.0, vu=0.0, il=2, iu=3, ldz=8, lwork=200, liwork=80)]
    cases = forms(cases, jobz="NV", range="AI")
    yield from routine("{p}stegr", f"{head}, {RANGE}, {Z}, {support}, {space}", words, cost,
                       more(cases, abstol=0.0))
    # With nzc < 0, z(1, 1) becomes the number of columns that z must have.
    z = (f"OUT {{T}} z[{VECTORS} ? nzc < 0 ? 1 : {COUNT} : 0]"
         f"[ldz : {VECTORS} ? nzc < 0 ? 1 : n : 0], IN int ldz")
    found = RANGE.replace("IN {R} abstol, ", "")
    yield from routine("{p}stemr", f"{head}, {found}, {z}, IN int nzc, {support}, "
                       f"INOUT int tryrac[1], {space}",
                       f"{words}; nzc is the number of columns of z", cost, more(cases, nzc=7))


def whole_spectra():
    none = is_one("compz", "N")
    head = (f"IN char compz, IN int n, INOUT {{R}} d[n], INOUT {{R}} e{OFF}, "
            f"INOUT {{T}} z[{none} ? 0 : n][ldz : {none} ? 0 : n], IN int ldz, {SPACE}")
    words = "Eigenvalues of a symmetric tridiagonal matrix by divide and conquer; vectors as " \
            "those of steqr; lwork at least {least}, where l is log2(n) rounded up"
    cost = f"{none} ? 30 * n^2 : 4 * n^3"
    cases = forms([dict(n=7, ldz=8, lwork=400, liwork=200)], compz="NIV")
    yield from both("{p}stedc", f"{head}, {INTEGERS}, {INFO}",
                    f"{head}, {SPACE_REALS}, {INTEGERS}, {INFO}",
                    words.format(least="1 + 4 n + n^2 and liwork 3 + 5 n (compz I), 1 + 3 n + 2 n "
                                 "l + 4 n^2 and 6 + 6 n + 5 n l (V); the real work space of "
                                 "complex ones is lrwork, with compz V lwork is n^2"),
                    cost, more(cases, lrwork=400))
    yield from routine("{p}disna", "IN char job, IN int m, IN int n, "
                       f"IN {{R}} d[{is_one('job', 'E')} ? m : min(m, n)], "
                       f"INOUT {{R}} sep[{is_one('job', 'E')} ? m : min(m, n)], {INFO}",
                       "Condition numbers of the vectors of a symmetric matrix (job E) or of "
                       "singular vectors (L, R), from the ordered values", "2 * m",
                       [dict(m=4, n=4, d=[1.5, 2.0, 3.0, 5.5], job=job) for job in "ELR"], "sd")


def bidiagonal():
    vt = "INOUT {T} vt[ncvt][ldvt : ncvt > 0 ? n : 0], IN int ldvt"
    u = "INOUT {T} u[nru > 0 ? n : 0][ldu : nru], IN int ldu"
    c = "INOUT {T} c[ncc][ldc : ncc > 0 ? n : 0], IN int ldc"
    head = (f"IN char uplo, IN int n, IN int ncvt, IN int nru, IN int ncc, INOUT {{R}} d[n], "
            f"INOUT {{R}} e{OFF}, {vt}, {u}, {c}")
    sizes = [dict(n=7, ncvt=4, nru=6, ncc=2, ldvt=8, ldu=6, ldc=9),
             dict(n=7, ncvt=0, nru=0, ncc=0, ldvt=1, ldu=1, ldc=1)]
    yield from both("{p}bdsqr", f"{head}, {work(size='4 * n')}, {INFO}",
                    f"{head}, {work('rwork', '4 * n', '{R}')}, {INFO}",
                    "Singular values of a bidiagonal matrix, and the products of the matrices of "
                    "its vectors with vt, u and c", "6 * n^2 * (ncvt + nru + ncc + 4)",
                    forms(sizes, uplo="UL"))
    yield from routine("{p}bdsdc", f"IN char uplo, IN int n, INOUT {{R}} d[n], "
                       f"INOUT {{R}} e{OFF}, {matrix('OUT', 'u', 'n', 'n', 'ldu')}, "
                       f"{matrix('OUT', 'vt', 'n', 'n', 'ldvt')}, "
                       f"{work(size='3 * n^2 + 4 * n')}, {work('iwork', '8 * n', 'int')}, {INFO}",
                       "Singular values and vectors of a bidiagonal matrix by divide and conquer, "
                       "with COMPQ = I", "16 / 3 * n^3", forms([dict(n=7, ldu=8, ldvt=9)],
                                                             uplo="UL"), "sd",
                       constants={"n": ["'I'"], "work": ["NULL", "NULL"]})
