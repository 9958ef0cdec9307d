"""Pairs of matrices beyond the drivers of lapack_spectra: expert drivers, generalised
factorisations and singular values, and the steps around Schur forms, also those of one matrix.

A routine that LAPACK gives a SELECT argument is described for SORT = 'N' and SENSE = 'N'.
"""

from .description import is_one, matrix, routine
from .lapack_packed import bounded
from .parts import A_IN, INFO, SQUARE, A, both, forms, more, work

SPACE = f"{work()}, IN int lwork"
INTEGERS = f"{work('iwork', 'liwork', 'int')}, IN int liwork"
B = matrix("INOUT", "b", "n", "n", "ldb")
B_IN = matrix("IN", "b", "n", "n", "ldb")
REAL_VALUES = "OUT {T} alphar[n], OUT {T} alphai[n], OUT {T} beta[n]"
VALUES = "OUT {T} alpha[n], OUT {T} beta[n]"
CASE = dict(n=6, lda=8, ldb=7, lwork=800)
LETTERS = (("sd", "NT"), ("cz", "NC"))


def routines():
    yield from eigenvalues()
    yield from schur_forms()
    yield from factorisations()
    yield from singular_values()
    yield from singular_steps()
    yield from swaps()
    yield from conditions()
    yield from equations()
    yield from vectors()


def mixed(cases):
    """Three of the six cases of three and two letters: each letter is in one."""
    return [cases[0], cases[3], cases[4]]


def sides(mode, left, right, letter="V"):
    """Vectors of both sides, each if its job asks for them."""
    parts = []
    for name, job in ((left, f"job{left}"), (right, f"job{right}")):
        wants = is_one(job, letter)
        parts.append(f"{mode} {{T}} {name}[{wants} ? n : 0][ld{name} : {wants} ? n : 0], "
                     f"IN int ld{name}")
    return ", ".join(parts)


def eigenvalues():
    vectors = sides("OUT", "vl", "vr")
    head = f"IN char jobvl, IN char jobvr, IN int n, {A}, {B}"
    cases = [dict(CASE, ldvl=7, ldvr=6, jobvl=jl, jobvr=jr) for jl, jr in ("NN", "NV", "VV")]
    reals = work("rwork", "8 * n", "{R}")
    cost = f"{is_one('jobvl', 'V')} || {is_one('jobvr', 'V')} ? 66 * n^3 : 30 * n^3"
    yield from both("{p}ggev3", f"{head}, {REAL_VALUES}, {vectors}, {SPACE}, {INFO}",
                    f"{head}, {VALUES}, {vectors}, {SPACE}, {reals}, {INFO}",
                    "Eigenvalues alpha / beta and vectors of A x = l B x, with blocks; lwork at "
                    "least 8 n", cost, cases, size="n")
    of_values, of_vectors = (" || ".join(is_one("sense", letter) for letter in pair)
                             for pair in ("EB", "VB"))
    tail = (f"{vectors}, OUT int *ilo, OUT int *ihi, OUT {{R}} lscale[n], OUT {{R}} rscale[n], "
            f"OUT {{R}} *abnrm, OUT {{R}} *bbnrm, OUT {{R}} rconde[({of_values}) ? n : 0], "
            f"OUT {{R}} rcondv[({of_vectors}) ? n : 0], {SPACE}")
    last = f"WORK int iwork[n + 6], {work('bwork', 'n', 'int')}, {INFO}"
    head = (f"IN char balanc, IN char jobvl, IN char jobvr, IN char sense, IN int n, {A}, {B}")
    cases = [dict(CASE, ldvl=7, ldvr=6, balanc=balance, jobvl=jobs[0], jobvr=jobs[1], sense=jobs[2])
             for balance, jobs in (("N", "NNN"), ("B", "NVN"), ("P", "VVE"), ("B", "VVB"))]
    yield from both("{p}ggevx", f"{head}, {REAL_VALUES}, {tail}, {last}",
                    f"{head}, {VALUES}, {tail}, {work('rwork', '6 * n', '{R}')}, {last}",
                    "Eigenvalues and vectors of A x = l B x, with balancing and condition numbers; "
                    "lwork at least 2 n^2 + 8 n + 16", "66 * n^3", cases, size="n")


def schur_forms():
    head = f"IN char jobvsl, IN char jobvsr, IN int n, {A}, {B}, OUT int *sdim"
    vectors = sides("OUT", "vsl", "vsr")
    cases = [dict(CASE, ldvsl=7, ldvsr=6, jobvsl=jl, jobvsr=jr) for jl, jr in ("NN", "VV")]
    reals = work("rwork", "8 * n", "{R}")
    words = "Generalised Schur form of a pair, unsorted{how}; lwork at least 8 n + 16"
    for which, last, found in (("sd", "", REAL_VALUES), ("cz", f"{reals}, ", VALUES)):
        yield from routine("{p}gges3", f"{head}, {found}, {vectors}, {SPACE}, {last}{INFO}",
                           words.format(how=", with blocks"), "66 * n^3", cases, which, size="n",
                           constants={"n": ["'N'", "NULL"], "info": ["NULL"]})
        yield from routine("{p}ggesx", f"{head}, {found}, {vectors}, {SPACE}, {last}{INTEGERS}, "
                           f"{INFO}", words.format(how=""), "66 * n^3", more(cases, liwork=20),
                           which, size="n",
                           constants={"n": ["'N'", "NULL", "'N'"], "work": ["NULL", "NULL"],
                                      "info": ["NULL"]})
    no_q, no_z = is_one("compq", "N"), is_one("compz", "N")
    factors = (f"INOUT {{T}} q[{no_q} ? 0 : n][ldq : {no_q} ? 0 : n], IN int ldq, "
               f"INOUT {{T}} z[{no_z} ? 0 : n][ldz : {no_z} ? 0 : n], IN int ldz")
    yield from routine("{p}gghd3", "IN char compq, IN char compz, IN int n, IN int ilo, "
                       f"IN int ihi, {A}, {B}, {factors}, {SPACE}, {INFO}",
                       "Reduce a pair to Hessenberg and triangular form, with blocks; lwork at "
                       "least 1, better 384 n", "8 * n^3",
                       [dict(CASE, ilo=1, ihi=6, ldq=7, ldz=8, compq=q, compz=z)
                        for q, z in ("NN", "IV")], size="n")


def factorisations():
    cases = [dict(n=7, m=5, p=6, lda=9, ldb=8, lwork=900)]
    for name, order, a, b, words in (
        ("{p}ggqrf", "nmp", ("n", "m"), ("n", "p"), "A = Q R, B = Q T Z"),
        ("{p}ggrqf", "mpn", ("m", "n"), ("p", "n"), "A = R Q, B = Z T Q"),
    ):
        head = ", ".join(f"IN int {letter}" for letter in order)
        yield from routine(name, f"{head}, {matrix('INOUT', 'a', *a, 'lda')}, "
                           f"OUT {{T}} taua[min({', '.join(a)})], "
                           f"{matrix('INOUT', 'b', *b, 'ldb')}, "
                           f"OUT {{T}} taub[min({', '.join(b)})], {SPACE}, {INFO}",
                           f"Factor a pair of matrices, {words}; lwork at least max(n, m, p)",
                           "2 * n * (m + p) * min(n, m)", cases)


def orthogonal(mode, letters):
    """The matrices U, V and Q of generalised singular values, each if its job is one of these."""
    orders = zip(("u", "v", "q"), "mpn", strict=True)
    tests = {name: " || ".join(is_one(f"job{name}", letter)
                               for letter in ([name.upper()] + letters)) for name in "uvq"}
    return ", ".join(
        f"{mode} {{T}} {name}[({tests[name]}) ? {order} : 0]"
        f"[ld{name} : ({tests[name]}) ? {order} : 0], IN int ld{name}"
        for name, order in orders)


def singular_values():
    a, b = matrix("INOUT", "a", "m", "n", "lda"), matrix("INOUT", "b", "p", "n", "ldb")
    jobs = "IN char jobu, IN char jobv, IN char jobq"
    case = dict(m=7, n=5, p=6, lda=9, ldb=8, ldu=8, ldv=7, ldq=6, lwork=900)
    cases = [dict(case, jobu="N", jobv="N", jobq="N"), dict(case, jobu="U", jobv="V", jobq="Q")]
    reals = f"{work('rwork', '2 * n', '{R}')}, "
    cost = "4 * (m + p) * n^2 + 20 * n^3"
    for which, last in (("sd", ""), ("cz", reals)):
        yield from routine("{p}ggsvd3",
                           f"{jobs}, IN int m, IN int n, IN int p, OUT int *k, OUT int *l, {a}, "
                           f"{b}, OUT {{R}} alpha[n], OUT {{R}} beta[n], {orthogonal('OUT', [])}, "
                           f"{SPACE}, {last}OUT int iwork[n], {INFO}",
                           "Generalised singular values alpha / beta of A and B, and vectors; "
                           "iwork sorts them; lwork as the query says", cost, cases, which)
        yield from routine("{p}ggsvp3",
                           f"{jobs}, IN int m, IN int p, IN int n, {a}, {b}, IN {{R}} tola, "
                           f"IN {{R}} tolb, OUT int *k, OUT int *l, {orthogonal('OUT', [])}, "
                           f"WORK int iwork[max(1, n)], {last}WORK {{T}} tau[max(1, n)], {SPACE}, "
                           f"{INFO}", "Reduce A and B to triangles for tgsja; lwork as the query "
                           "says", "4 * (m + p) * n^2",
                           more(cases, tola=1e-6, tolb=1e-6), which)


def singular_steps():
    a, b = matrix("INOUT", "a", "m", "n", "lda"), matrix("INOUT", "b", "p", "n", "ldb")
    # One row of B: then no rotation is needed.
    case = dict(m=5, n=6, p=3, k=2, l=1, lda=9, ldb=8, ldu=8, ldv=7, ldq=6, tola=1e-6, tolb=1e-6)
    cases = [dict(case, jobu=jobs[0], jobv=jobs[1], jobq=jobs[2]) for jobs in ("NNN", "III", "UVQ")]
    yield from routine("{p}tgsja", "IN char jobu, IN char jobv, IN char jobq, IN int m, IN int p, "
                       f"IN int n, IN int k, IN int l, {a}, {b}, IN {{R}} tola, IN {{R}} tolb, "
                       f"OUT {{R}} alpha[n], OUT {{R}} beta[n], {orthogonal('INOUT', ['I'])}, "
                       f"{work(size='2 * n')}, OUT int *ncycle, {INFO}",
                       "Generalised singular values of a pair of triangles, those of ggsvp3",
                       "20 * n^2 * l", cases)


def swaps():
    factors = ", ".join(
        f"INOUT {{T}} {name}[want{name} ? n : 0][ld{name} : want{name} ? n : 0], IN int ld{name}"
        for name in "qz")
    head = f"IN int wantq, IN int wantz, IN int n, {A}, {B}, {factors}"
    words = "Reorder the Schur form of a pair"
    # The first columns make the pair triangular.
    cases = [dict(n=2, lda=8, ldb=7, ldq=7, ldz=8, wantq=want, wantz=want, a=[1.5, 0.0],
                  b=[1.0, 0.0], ilst=[2]) for want in (0, 1)]
    yield from routine("{p}tgexc", f"{head}, INOUT int ifst[1], INOUT int ilst[1], {SPACE}, "
                       f"{INFO}", words + "; lwork at least 4 n + 16", "24 * n^2",
                       more(cases, lwork=100, ifst=[1]), "sd")
    yield from routine("{p}tgexc", f"{head}, IN int ifst, INOUT int ilst[1], {INFO}", words,
                       "24 * n^2", more(cases, ifst=1), "cz")


def conditions():
    of_values, of_vectors = (" || ".join(is_one("job", letter) for letter in pair)
                             for pair in ("EB", "VB"))
    selects = is_one("howmny", "S")
    head = (f"IN char job, IN char howmny, IN int select[{selects} ? n : 0], IN int n")
    given = ", ".join(f"IN {{T}} {name}[({of_values}) ? mm : 0][ld{name} : ({of_values}) ? n : 0], "
                      f"IN int ld{name}" for name in ("vl", "vr"))
    sizes = "OUT {{R}} s[({}) ? mm : 0], OUT {{R}} {}[({}) ? mm : 0], IN int mm, OUT int *m"
    words = "Condition numbers of eigenvalues and vectors of a Schur form"
    t = matrix("IN", "t", "n", "n", "ldt")
    # The first column makes the matrix triangular.
    case = dict(n=2, mm=2, ldvl=7, ldvr=8)
    cases = forms([dict(case, ldt=8, ldwork=9, t=[1.5, 0.0])], job="EVB", howmny="AS")
    cases = mixed(cases)
    head_of_one = f"{head}, {t}, {given}, {sizes.format(of_values, 'sep', of_vectors)}"
    space = f"{work(size='ldwork * (n + 6)')}, IN int ldwork"
    yield from both("{p}trsna", f"{head_of_one}, {space}, {work('iwork', '2 * n', 'int')}, {INFO}",
                    f"{head_of_one}, {space}, {work('rwork', 'n', '{R}')}, {INFO}", words,
                    "10 * n^3 * mm", cases)
    cases = forms([dict(case, lda=8, ldb=7, a=[1.5, 0.0], b=[1.0, 0.0], lwork=400)], job="EVB",
                  howmny="AS")
    cases = mixed(cases)
    yield from routine("{p}tgsna", f"{head}, {A_IN}, {B_IN}, {given}, "
                       f"{sizes.format(of_values, 'dif', of_vectors)}, {SPACE}, "
                       f"{work('iwork', 'n + 6', 'int')}, {INFO}",
                       words + " of a pair; lwork at least 2 n (n + 2) + 16", "20 * n^3 * mm",
                       cases)


def equations():
    c = matrix("INOUT", "c", "m", "n", "ldc")
    of_m, of_n = (tuple(matrix("IN", name, order, order, f"ld{name}") for name in names)
                  for order, names in (("m", "ad"), ("n", "be")))
    case = dict(m=6, n=5, lda=8, ldb=7, ldc=9, ldd=8, lde=7, ldf=9, lwork=400)
    for which, letters in LETTERS:
        none = f"ijob == 0 || !{is_one('trans', 'N')}"
        cases = [dict(case, ijob=ijob, trans=trans)
                 for ijob, trans in ((0, "N"), (3, "N"), (0, letters[1]))]
        yield from routine("{p}tgsyl", "IN char trans, IN int ijob, IN int m, IN int n, "
                           f"{of_m[0]}, {of_n[0]}, {c}, {of_m[1]}, {of_n[1]}, "
                           f"{matrix('INOUT', 'f', 'm', 'n', 'ldf')}, OUT {{R}} *scale, "
                           f"OUT {{R}} dif[({none}) ? 0 : 1], {SPACE}, "
                           f"{work('iwork', 'm + n + 6', 'int')}, {INFO}",
                           "Solve A R - L B = scale C, D R - L E = scale F, pairs of Schur forms; "
                           "lwork at least 2 m n for ijob 1 and 2", "2 * m * n * (m + n)", cases,
                           which)
    # The work space has fewer columns than three times its rows.
    space = f"{work('swork', '3 * ldswork * ldswork + 2', '{R}')}, IN int ldswork, {INFO}"
    head = ("IN char trana, IN char tranb, IN int isgn, IN int m, IN int n, "
            f"{of_m[0]}, {of_n[0]}, {c}, OUT {{R}} *scale")
    cases = [dict(m=6, n=5, lda=8, ldb=7, ldc=9, isgn=1, trana=a, tranb=b, ldswork=40)
             for a, b in ("NN", "CN")]
    words = "Solve op(A) X + isgn X op(B) = scale C, A and B Schur forms, with blocks; {least} " \
            "as the queries say"
    yield from routine("{p}trsyl3", f"{head}, {INTEGERS}, {space}",
                       words.format(least="liwork and ldswork"), "m * n * (m + n)",
                       more(cases, liwork=80), "sd", size="min(m, n)")
    yield from routine("{p}trsyl3", f"{head}, {space}", words.format(least="ldswork"),
                       "m * n * (m + n)", cases, "cz", size="min(m, n)")
    yield from bounded("{p}trrfs", "IN char uplo, IN char trans, IN char diag, IN int n, "
                       f"IN int nrhs, {A_IN}",
                       forms(more(SQUARE, diag="N", ldx=8), uplo="UL", trans="NTC")[::5])


def vectors():
    left, right = (f"({is_one('side', one)} || {is_one('side', 'B')})" for one in "LR")
    pair = ", ".join(f"INOUT {{T}} {name}[{side} ? mm : 0][ld{name} : {side} ? n : 0], "
                     f"IN int ld{name}" for name, side in (("vl", left), ("vr", right)))
    selects = is_one("howmny", "S")
    t = matrix("IN", "t", "n", "n", "ldt")
    head = (f"IN char side, IN char howmny, INOUT int select[{selects} ? n : 0], IN int n, {t}, "
            f"{pair}, IN int mm, OUT int *m, {SPACE}")
    cases = forms([dict(n=6, mm=6, ldt=8, ldvl=7, ldvr=8, lwork=400)], side="LRB", howmny="AB")
    cases = mixed(cases)
    words = "Eigenvectors of a Schur form, with blocks; lwork at least {least}"
    yield from routine("{p}trevc3", f"{head}, {INFO}", words.format(least="3 n, better 129 n"),
                       "n^2 * mm", cases, "sd", size="n")
    yield from routine("{p}trevc3", f"{head}, {work('rwork', 'lrwork', '{R}')}, IN int lrwork, "
                       f"{INFO}", words.format(least="2 n, better 129 n, lrwork n"), "n^2 * mm",
                       more(cases, lrwork=40), "cz", size="n")
    h = matrix("IN", "h", "n", "n", "ldh")
    failed = ", ".join(f"INOUT int ifail{side}[{wants} ? mm : 0]"
                       for side, wants in (("l", left), ("r", right)))
    head = "IN char side, IN char eigsrc, IN char initv, INOUT int select[n], IN int n, " + h
    # Of one row, the eigenvalue is known.
    cases = forms([dict(n=1, mm=1, ldh=8, ldvl=7, ldvr=8, eigsrc="N", h=[2.0], w=[2.0], wr=[2.0],
                        wi=[0.0])], side="LRB", initv="NU")
    cases = mixed(cases)
    words = "Eigenvectors of a Hessenberg matrix by inverse iteration"
    yield from routine("{p}hsein", f"{head}, INOUT {{T}} wr[n], IN {{T}} wi[n], {pair}, IN int mm, "
                       f"OUT int *m, {work(size='n * (n + 2)')}, {failed}, {INFO}", words,
                       "n^2 * mm", cases, "sd")
    yield from routine("{p}hsein", f"{head}, INOUT {{T}} w[n], {pair}, IN int mm, OUT int *m, "
                       f"{work(size='n * n')}, {work('rwork', 'n', '{R}')}, {failed}, {INFO}",
                       words, "n^2 * mm", cases, "cz")
