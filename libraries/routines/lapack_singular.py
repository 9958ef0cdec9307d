"""Singular values by other ways than QR and divide and conquer, and the CS decomposition."""

from .description import is_one, matrix, routine
from .parts import A_MN, INFO, MIN, TALL, WIDE, both, forms, more, work

SPACE = f"{work()}, IN int lwork"


def routines():
    yield from selected()
    yield from jacobi()
    yield from preconditioned()
    yield from by_qr()
    yield from cosines()
    yield from two_by_one()
    yield from bidiagonal_blocks()


def selected():
    count = f"({is_one('range', 'I')} ? iu - il + 1 : {MIN})"
    wants_u, wants_v = is_one("jobu", "V"), is_one("jobvt", "V")
    head = (f"IN char jobu, IN char jobvt, IN char range, IN int m, IN int n, {A_MN}, IN {{R}} vl, "
            f"IN {{R}} vu, IN int il, IN int iu, OUT int *ns, INOUT {{R}} s[{MIN}], "
            f"OUT {{T}} u[{wants_u} ? {count} : 0][ldu : {wants_u} ? m : 0], IN int ldu, "
            f"OUT {{T}} vt[{wants_v} ? n : 0][ldvt : {wants_v} ? {count} : 0], IN int ldvt, "
            f"{SPACE}")
    integers = work("iwork", f"12 * {MIN}", "int")
    cases = [dict(case, ldu=9, ldvt=7, vl=0.0, vu=0.0, il=2, iu=3, lwork=2000) for case in
             (TALL, WIDE)]
    cases = [dict(case, jobu=ju, jobvt=jv) for case in forms(cases, range="AI")
             for ju, jv in ("NN", "VV", "VN")][::4]
    cost = f"4 * m * n * {MIN} + 20 * {MIN}^2 * {count}"
    yield from both("{p}gesvdx", f"{head}, {integers}, {INFO}",
                    f"{head}, {work('rwork', f'17 * {MIN}^2', '{R}')}, {integers}, {INFO}",
                    "Singular values and vectors, all or those of the indices il to iu; lwork as "
                    "the query says", cost, cases, size=MIN)


def jacobi():
    vectors, products = is_one("jobv", "V"), is_one("jobv", "A")
    head = (f"IN char joba, IN char jobu, IN char jobv, IN int m, IN int n, {A_MN}, "
            f"OUT {{R}} sva[n], IN int mv, "
            f"INOUT {{T}} v[{vectors} || {products} ? n : 0]"
            f"[ldv : {vectors} ? n : {products} ? mv : 0], IN int ldv")
    case = dict(m=8, n=5, lda=9, mv=3, ldv=7, lwork=100)
    cases = [dict(case, joba=jobs[0], jobu=jobs[1], jobv=jobs[2])
             for jobs in ("GNN", "GUV", "GUA", "UNV")]
    words = "Singular values and vectors by Jacobi's rotations, m >= n; lwork at least max(6, m " \
            "+ n)"
    cost = "20 * m * n^2"
    yield from routine("{p}gesvj", f"{head}, INOUT {{T}} work[max(6, lwork) : 6], IN int lwork, "
                       f"{INFO}", f"{words}; the first 6 of work tell more of the result", cost,
                       cases, "sd")
    yield from routine("{p}gesvj", f"{head}, WORK {{T}} cwork[max(1, lwork)], IN int lwork, "
                       f"INOUT {{R}} rwork[max(6, lrwork) : 6], IN int lrwork, {INFO}",
                       f"{words}, lrwork max(6, n); the first 6 of rwork tell more of the result",
                       cost, more(cases, lrwork=60), "cz")


def preconditioned():
    jobs = ", ".join(f"IN char job{letter}" for letter in "auvrtp")
    transposes = is_one("jobt", "T")
    needs_u = " || ".join(is_one("jobu", letter) for letter in "UFW")
    needs_v = " || ".join(is_one("jobv", letter) for letter in "VJW")
    # A is transposed if that is better, and then the one holds the vectors of the other first.
    u_there = f"({needs_u} || {transposes} && ({needs_v}))"
    v_there = f"({needs_v} || {transposes} && ({needs_u}))"
    u = (f"OUT {{T}} u[{u_there} ? {is_one('jobu', 'F')} ? m : n : 0]"
         f"[ldu : {u_there} ? m : 0], IN int ldu")
    v = f"OUT {{T}} v[{v_there} ? n : 0][ldv : {v_there} ? n : 0], IN int ldv"
    head = f"{jobs}, IN int m, IN int n, {A_MN}, OUT {{R}} sva[n], {u}, {v}"
    case = dict(m=8, n=5, lda=9, ldu=9, ldv=7, lwork=2000)
    cases = [dict(case, **{f"job{name}": letter for name, letter in zip("auvrtp", choice,
                                                                       strict=True)})
             for choice in ("CNNRNN", "CUVRNN", "GFVNNN", "EUNRNN", "CUJRNP")]
    cases.append(dict(cases[1], m=5, jobt="T"))
    words = "Singular values and vectors, accurate ones, by QR with pivots and Jacobi's " \
            "rotations, m >= n; lwork as LAPACK says; the first {count} of iwork and 7 of {name} " \
            "tell more of the result"
    cost = "8 * m * n^2 + 20 * n^3"
    yield from routine("{p}gejsv", f"{head}, INOUT {{T}} work[max(7, lwork) : 7], IN int lwork, "
                       f"INOUT int iwork[max(3, m + 3 * n) : 3], {INFO}",
                       words.format(count="3", name="work"), cost, cases, "sd")
    yield from routine("{p}gejsv", f"{head}, WORK {{T}} cwork[max(2, lwork)], IN int lwork, "
                       f"INOUT {{R}} rwork[max(7, lrwork) : 7], IN int lrwork, "
                       f"INOUT int iwork[max(4, m + 3 * n) : 4], {INFO}",
                       words.format(count="4", name="rwork"), cost, more(cases, lrwork=2000), "cz")


def by_qr():
    columns, vectors = (" || ".join(is_one(name, letter) for letter in letters)
                        for name, letters in (("jobu", "SURF"), ("jobv", "AVR")))
    all_u, factored = is_one("jobu", "A"), is_one("jobu", "F")
    v_there = f"({vectors} || {is_one('joba', 'E')})"
    u = (f"INOUT {{T}} u[{all_u} ? m : ({columns}) ? n : 0]"
         f"[ldu : {factored} ? n : ({all_u} || {columns}) ? m : 0], IN int ldu")
    v = f"INOUT {{T}} v[{v_there} ? n : 0][ldv : {v_there} ? n : 0], IN int ldv"
    jobs = ", ".join(f"IN char job{letter}" for letter in "apruv")
    head = (f"{jobs}, IN int m, IN int n, {A_MN}, OUT {{R}} s[n], {u}, {v}, OUT int *numrank, "
            "INOUT int iwork[max(1, liwork)], IN int liwork")
    case = dict(m=8, n=5, lda=9, ldu=9, ldv=7, liwork=40)
    cases = [dict(case, **{f"job{name}": letter for name, letter in zip("apruv", choice,
                                                                       strict=True)})
             for choice in ("ANNNN", "HPNSV", "MPTAV", "ENNRR", "HPNFN")]
    tail = f"INOUT {{R}} rwork[max(2, lrwork) : 2], IN int lrwork, {INFO}"
    for which, name, size in (("sd", "work", "lwork"), ("cz", "cwork", "lcwork")):
        space = f"INOUT {{T}} {name}[max(2, {size}) : max(1, n)], IN int {size}"
        yield from routine("{p}gesvdq", f"{head}, {space}, {tail}",
                           "Singular values and vectors by QR with pivots and gesvd, m >= n; the "
                           f"first n of {name} are the factors of the reflectors; {size}, lrwork "
                           "and liwork as the queries say", "8 * m * n^2 + 20 * n^3",
                           more(cases, lrwork=40, **{size: 900}), which, size="n")


def blocks(mode, names):
    """The four blocks of an orthogonal matrix, by rows if TRANS is T; or the two on the left."""
    parts = []
    for name in names:
        rows = "p" if name[1] == "1" else "m - p"
        columns = "q" if name[2] == "1" else "m - q"
        if len(names) == 4:
            by_rows = is_one("trans", "T")
            rows, columns = (f"({by_rows} ? {columns} : {rows})", f"{by_rows} ? {rows} : {columns}")
        parts.append(matrix(mode, name, rows, columns, f"ld{name}"))
    return ", ".join(parts)


def wanted(mode, orders):
    """Square matrices, each if its job is Y."""
    return ", ".join(
        f"{mode} {{T}} {name}[{is_one(f'job{name}', 'Y')} ? {order} : 0]"
        f"[ld{name} : {is_one(f'job{name}', 'Y')} ? {order} : 0], IN int ld{name}"
        for name, order in orders.items())


FOUR = {"u1": "p", "u2": "m - p", "v1t": "q", "v2t": "m - q"}
THREE = {name: FOUR[name] for name in ("u1", "u2", "v1t")}
X = ("x11", "x12", "x21", "x22")
LEAST = "min(min(p, m - p), min(q, m - q))"
LEADING = dict({f"ld{name}": 9 for name in FOUR}, **{f"ld{name}": 8 for name in X})


def jobs(orders):
    return ", ".join(f"IN char job{name}" for name in orders)


def chosen(case, orders, letters="NY"):
    """The case without and with all matrices."""
    return [dict(case, **{f"job{name}": letter for name in orders}) for letter in letters]


def cosines():
    head = (f"{jobs(FOUR)}, IN char trans, IN char signs, IN int m, IN int p, IN int q, "
            f"{blocks('INOUT', X)}, OUT {{R}} theta[{LEAST}], {wanted('OUT', FOUR)}, {SPACE}")
    last = f"{work('iwork', f'm - {LEAST}', 'int')}, {INFO}"
    case = dict(m=8, p=4, q=3, lwork=900, **LEADING)
    cases = chosen(dict(case, trans="N", signs="D"), FOUR)
    cases += chosen(dict(case, trans="T", signs="O"), FOUR)
    words = "CS decomposition of an orthogonal or unitary matrix of four blocks; {least} as the " \
            "queries say"
    cost = "12 * m^3"
    reals = f"{work('rwork', 'lrwork', '{R}')}, IN int lrwork"
    yield from both("{p}{or}csd", f"{head}, {last}", f"{head}, {reals}, {last}",
                    words.format(least="lwork, and lrwork of complex ones,"), cost,
                    more(cases, lrwork=900))
    head = (f"IN char trans, IN char signs, IN int m, IN int p, IN int q, {blocks('INOUT', X)}, "
            "OUT {R} theta[q], OUT {R} phi[max(0, q - 1)], INOUT {T} taup1[p], "
            "INOUT {T} taup2[m - p], INOUT {T} tauq1[q], INOUT {T} tauq2[m - q], "
            f"{SPACE}, {INFO}")
    case = dict(m=8, p=4, q=3, lwork=900, **{f"ld{name}": 8 for name in X})
    yield from routine("{p}{or}bdb", head, "Reduce an orthogonal or unitary matrix of four blocks "
                       "to bidiagonal blocks, q <= min(p, m - p, m - q); lwork at least m - q",
                       "4 / 3 * m^3", forms([case], trans="NT", signs="DO"))


def two_by_one():
    head = (f"{jobs(THREE)}, IN int m, IN int p, IN int q, {blocks('INOUT', ('x11', 'x21'))}, "
            f"OUT {{R}} theta[{LEAST}], {wanted('OUT', THREE)}, {SPACE}")
    last = f"{work('iwork', f'm - {LEAST}', 'int')}, {INFO}"
    case = dict(m=8, p=4, q=3, lwork=900, ldx11=8, ldx21=8, ldu1=9, ldu2=9, ldv1t=9)
    reals = f"{work('rwork', 'lrwork', '{R}')}, IN int lrwork"
    yield from both("{p}{or}csd2by1", f"{head}, {last}", f"{head}, {reals}, {last}",
                    "CS decomposition of the first q columns of an orthogonal or unitary matrix; "
                    "lwork, and lrwork of complex ones, as the queries say", "8 * m^2 * q",
                    more(chosen(case, THREE), lrwork=900))


def bidiagonal_blocks():
    found = ", ".join(f"INOUT {{R}} b{block}{part}[{size}]" for block in ("11", "12", "21", "22")
                      for part, size in (("d", "q"), ("e", "max(0, q - 1)")))
    head = (f"{jobs(FOUR)}, IN char trans, IN int m, IN int p, IN int q, INOUT {{R}} theta[q], "
            f"INOUT {{R}} phi[max(0, q - 1)], {wanted('INOUT', FOUR)}, {found}")
    case = dict(m=8, p=4, q=3, trans="N", **{f"ld{name}": 9 for name in FOUR})
    cases = chosen(case, FOUR)
    yield from both("{p}bbcsd", f"{head}, {SPACE}, {INFO}",
                    f"{head}, {work('rwork', 'lrwork', '{R}')}, IN int lrwork, {INFO}",
                    "CS decomposition of a matrix of bidiagonal blocks; lwork, or lrwork of "
                    "complex ones, at least 8 q", "24 * q^2 * m",
                    more(cases, lwork=200, lrwork=200))
