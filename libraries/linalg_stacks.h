/* The functions of libraries/linalg.idl in one element type. T is the type, IS_COMPLEX says whether
   it is complex, STACK and LAPACK make names. */

#if IS_COMPLEX
#define CONJ(x) conj(x)
#define LENGTH(x) cabs(x)
#define SIGN(x) ((x) / cabs(x))
#define UNITARY_LAPACK(name) JOIN(zun, JOIN(name, _))
#define EXTRA double
#define NOT_A_NUMBER CMPLX(NAN, NAN)
#else
#define CONJ(x) (x)
#define LENGTH(x) fabs(x)
/* An infinite number has a sign, too. */
#define SIGN(x) ((x) < 0 ? -1 : 1)
#define UNITARY_LAPACK(name) JOIN(dor, JOIN(name, _))
#define EXTRA int
#define NOT_A_NUMBER NAN
#endif
#define INT const int *

void LAPACK(getrf)(INT m, INT n, T *a, INT lda, int *ipiv, int *info);
void LAPACK(getrs)(const char *trans, INT n, INT nrhs, const T *a, INT lda, INT ipiv, T *b,
                   INT ldb, int *info);
void LAPACK(getri)(INT n, T *a, INT lda, INT ipiv, T *work, INT lwork, int *info);
void LAPACK(gecon)(const char *norm, INT n, const T *a, INT lda, const double *anorm,
                   double *rcond, T *work, EXTRA *extra, int *info);
void LAPACK(potrf)(const char *uplo, INT n, T *a, INT lda, int *info);
void LAPACK(potrs)(const char *uplo, INT n, INT nrhs, const T *a, INT lda, T *b, INT ldb,
                   int *info);
void LAPACK(pocon)(const char *uplo, INT n, const T *a, INT lda, const double *anorm,
                   double *rcond, T *work, EXTRA *extra, int *info);
void LAPACK(sytrf)(const char *uplo, INT n, T *a, INT lda, int *ipiv, T *work, INT lwork,
                   int *info);
void LAPACK(sytrs)(const char *uplo, INT n, INT nrhs, const T *a, INT lda, INT ipiv, T *b,
                   INT ldb, int *info);
void LAPACK(geqrf)(INT m, INT n, T *a, INT lda, T *tau, T *work, INT lwork, int *info);
void UNITARY_LAPACK(gqr)(INT m, INT n, INT k, T *a, INT lda, const T *tau, T *work, INT lwork,
                         int *info);
#if IS_COMPLEX
void zsycon_(const char *uplo, INT n, const T *a, INT lda, INT ipiv, const double *anorm,
             double *rcond, T *work, int *info);
void zhecon_(const char *uplo, INT n, const T *a, INT lda, INT ipiv, const double *anorm,
             double *rcond, T *work, int *info);
void zhetrf_(const char *uplo, INT n, T *a, INT lda, int *ipiv, T *work, INT lwork, int *info);
void zhetrs_(const char *uplo, INT n, INT nrhs, const T *a, INT lda, INT ipiv, T *b, INT ldb,
             int *info);
void zheevd_(const char *jobz, const char *uplo, INT n, T *a, INT lda, double *w, T *work,
             INT lwork, double *rwork, INT lrwork, int *iwork, INT liwork, int *info);
void zgeev_(const char *jobvl, const char *jobvr, INT n, T *a, INT lda, T *w, T *vl, INT ldvl,
            T *vr, INT ldvr, T *work, INT lwork, double *rwork, int *info);
void zgesdd_(const char *jobz, INT m, INT n, T *a, INT lda, double *s, T *u, INT ldu, T *vt,
             INT ldvt, T *work, INT lwork, double *rwork, int *iwork, int *info);
void zgelsd_(INT m, INT n, INT nrhs, T *a, INT lda, T *b, INT ldb, double *s,
             const double *rcond, int *rank, T *work, INT lwork, double *rwork, int *iwork,
             int *info);
#else
void dsycon_(const char *uplo, INT n, const T *a, INT lda, INT ipiv, const double *anorm,
             double *rcond, T *work, int *iwork, int *info);
void dsyevd_(const char *jobz, const char *uplo, INT n, T *a, INT lda, double *w, T *work,
             INT lwork, int *iwork, INT liwork, int *info);
void dgeev_(const char *jobvl, const char *jobvr, INT n, T *a, INT lda, T *wr, T *wi, T *vl,
            INT ldvl, T *vr, INT ldvr, T *work, INT lwork, int *info);
void dgesdd_(const char *jobz, INT m, INT n, T *a, INT lda, double *s, T *u, INT ldu, T *vt,
             INT ldvt, T *work, INT lwork, int *iwork, int *info);
void dgelsd_(INT m, INT n, INT nrhs, T *a, INT lda, T *b, INT ldb, double *s,
             const double *rcond, int *rank, T *work, INT lwork, int *iwork, int *info);
#endif

/* Copies an m x n matrix from rows into columns `ld` elements apart. From columns into rows it is
   the same with m and n exchanged. Small blocks stay in the cache. */
static void STACK(columns)(T *to, int ld, const T *from, int m, int n)
{
    enum { BLOCK = 8 };
    for (int first = 0; first < n; first += BLOCK)
        for (int start = 0; start < m; start += BLOCK) {
            int last = least(m, start + BLOCK), end = least(n, first + BLOCK);
            for (int i = start; i < last; i++)
                for (int j = first; j < end; j++)
                    to[(size_t)j * ld + i] = from[(size_t)i * n + j];
        }
}

/* Copies an m x n matrix from columns `ld` elements apart into rows. */
static void STACK(rows)(T *to, const T *from, int ld, int m, int n)
{
    if (ld == m) {
        STACK(columns)(to, n, from, n, m);
        return;
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            to[(size_t)i * n + j] = from[(size_t)j * ld + i];
}

static void STACK(fill)(T *to, size_t count, T value)
{
    while (count--)
        *to++ = value;
}

static void STACK(conjugate)(T *to, size_t count)
{
    for (; count > 0; count--, to++)
        *to = CONJ(*to);
}

/* Sign and logarithm of the absolute value of determinants; 0 and -inf for a singular matrix. */
void STACK(slogdet)(int m, long count, const T *a, T *sign, double *logdet, int *info)
{
    size_t size = (size_t)m * m;
    FOR_EACH(count, ROOM(T, size) + ROOM(int, m), info, {
        T *lu = TAKE(T, size);
        int *ipiv = TAKE(int, m);
        STACK(columns)(lu, m, a + i * size, m, m);
        LAPACK(getrf)(&m, &m, lu, &m, ipiv, info + i);
        T product = 1;
        double sum = 0;
        for (int k = 0; k < m && info[i] == 0; k++) {
            T pivot = lu[(size_t)k * m + k];
            product *= (ipiv[k] != k + 1 ? -1 : 1) * SIGN(pivot);
            sum += log(LENGTH(pivot));
        }
        sign[i] = info[i] == 0 ? product : 0;
        logdet[i] = info[i] == 0 ? sum : -INFINITY;
    });
    if (has_no_memory(count, info)) {
        not_found(sign, (size_t)count * sizeof *sign);
        not_found(logdet, (size_t)count * sizeof *logdet);
    }
}

/* The determinants as products of the pivots. */
void STACK(det)(int m, long count, const T *a, T *det, int *info)
{
    size_t size = (size_t)m * m;
    FOR_EACH(count, ROOM(T, size) + ROOM(int, m), info, {
        T *lu = TAKE(T, size);
        int *ipiv = TAKE(int, m);
        STACK(columns)(lu, m, a + i * size, m, m);
        LAPACK(getrf)(&m, &m, lu, &m, ipiv, info + i);
        T product = 1;
        for (int k = 0; k < m; k++)
            product *= (ipiv[k] != k + 1 ? -1 : 1) * lu[(size_t)k * m + k];
        det[i] = product;
    });
    if (has_no_memory(count, info)) {
        not_found(det, (size_t)count * sizeof *det);
    }
}

/* The factors of A = P L U in f, and the pivots. */
void STACK(getrf)(int m, int n, long count, const T *a, T *f, int *ipiv, int *info)
{
    size_t size = (size_t)m * n;
    int k = least(m, n);
    FOR_EACH(count, ROOM(T, size), info, {
        T *matrix = TAKE(T, size);
        STACK(columns)(matrix, m, a + i * size, m, n);
        LAPACK(getrf)(&m, &n, matrix, &m, ipiv + i * k, info + i);
        STACK(rows)(f + i * size, matrix, m, m, n);
    });
    if (has_no_memory(count, info)) {
        not_found(f, (size_t)count * size * sizeof *f);
        memset(ipiv, 0, (size_t)count * k * sizeof *ipiv);
    }
}

/* Whether the other triangle of a matrix in columns is the conjugate of this one. */
static int STACK(is_hermitian)(const T *a, int m, int conjugate)
{
    for (int j = 0; j < m; j++)
        for (int i = 0; i <= j; i++) {
            T other = a[(size_t)i * m + j];
            if (a[(size_t)j * m + i] != (conjugate ? CONJ(other) : other))
                return 0;
        }
    return 1;
}

/* The 1-norm of a matrix in columns, of which `uplo` is stored unless it is 'G'. */
static double STACK(norm)(const T *a, int m, char uplo)
{
    double largest = 0;
    for (int j = 0; j < m; j++) {
        double sum = 0;
        for (int i = 0; i < m; i++) {
            int here = uplo == 'G' || (uplo == 'U' ? i <= j : i >= j);
            sum += LENGTH(here ? a[(size_t)j * m + i] : a[(size_t)i * m + j]);
        }
        if (!(sum <= largest))
            largest = sum;
    }
    return largest;
}

/* What `solve` and `inv` do for one matrix. */
typedef struct {
    int structure, m, nrhs, check, keep, invert;
    char uplo, trans;
} STACK(system);

#define SYSTEM_ROOM(m, nrhs)                                                                       \
    (2 * ROOM(T, (size_t)(m) * (m)) + ROOM(T, (size_t)(m) * (nrhs)) + ROOM(int, m) +               \
     ROOM(T, 64 * (size_t)(m)) + ROOM(double, 2 * (m)))

/* Solves with the symmetric or hermitian factors, and estimates the condition. */
static void STACK(indefinite)(const STACK(system) *s, int hermitian, T *a, double anorm, int *ipiv,
                              T *work, EXTRA *extra, T *b, double *rcond, int *info)
{
    int lwork = 64 * s->m;
    const int *m = &s->m;
#if IS_COMPLEX
    (void)extra;
    (hermitian ? zhetrf_ : zsytrf_)(&s->uplo, m, a, m, ipiv, work, &lwork, info);
    if (*info == 0 && s->check)
        (hermitian ? zhecon_ : zsycon_)(&s->uplo, m, a, m, ipiv, &anorm, rcond, work, info);
    if (*info == 0)
        (hermitian ? zhetrs_ : zsytrs_)(&s->uplo, m, &s->nrhs, a, m, ipiv, b, m, info);
#else
    (void)hermitian;
    dsytrf_(&s->uplo, m, a, m, ipiv, work, &lwork, info);
    if (*info == 0 && s->check)
        dsycon_(&s->uplo, m, a, m, ipiv, &anorm, rcond, work, extra, info);
    if (*info == 0)
        dsytrs_(&s->uplo, m, &s->nrhs, a, m, ipiv, b, m, info);
#endif
}

/* Solves for b in place; a becomes the factors. `memory` is what SYSTEM_ROOM has beside both. */
static void STACK(factored)(const STACK(system) *s, T *a, T *b, char *memory, double *rcond,
                            int *info)
{
    size_t size = (size_t)s->m * s->m;
    const int *m = &s->m;
    T *whole = TAKE(T, size), *work = TAKE(T, 64 * (size_t)s->m);
    int *ipiv = TAKE(int, s->m);
    EXTRA *extra = (EXTRA *)TAKE(double, 2 * s->m);
    int structure = s->structure, retry = 0;
    int known = structure == GENERAL || structure == POSITIVE || structure == SYMMETRIC ||
                structure == HERMITIAN || structure == UNKNOWN;
    *rcond = 0;
    if (!known || (s->trans != 'N' && s->trans != 'T' && s->trans != 'C')) {
        *info = -1;
        return;
    }
    if (structure == UNKNOWN) {
        retry = STACK(is_hermitian)(a, s->m, 1);
        structure = retry                                         ? POSITIVE
                    : IS_COMPLEX && STACK(is_hermitian)(a, s->m, 0) ? SYMMETRIC
                                                                  : GENERAL;
        if (retry)
            memcpy(whole, a, size * sizeof(T));
    }
    /* The transpose of a hermitian matrix is its conjugate, and so is the conjugate transpose of a
       symmetric one: X is the conjugate of the solution for the conjugate of B. */
    int is_conjugate = IS_COMPLEX && structure != GENERAL &&
                       s->trans == (structure == SYMMETRIC ? 'C' : 'T');
    size_t conjugates = is_conjugate ? (size_t)s->m * s->nrhs : 0;
    STACK(conjugate)(b, conjugates);
    double anorm = s->check ? STACK(norm)(a, s->m, structure == GENERAL ? 'G' : s->uplo) : 0;
    if (structure == POSITIVE) {
        LAPACK(potrf)(&s->uplo, m, a, m, info);
        if (*info == 0 && s->check)
            LAPACK(pocon)(&s->uplo, m, a, m, &anorm, rcond, work, extra, info);
        if (*info == 0)
            LAPACK(potrs)(&s->uplo, m, &s->nrhs, a, m, b, m, info);
        if (*info <= 0 || !retry) {
            STACK(conjugate)(b, conjugates);
            return;
        }
        memcpy(a, whole, size * sizeof(T));
        structure = HERMITIAN;
    }
    if (structure != GENERAL) {
        STACK(indefinite)(s, structure == HERMITIAN, a, anorm, ipiv, work, extra, b, rcond, info);
        STACK(conjugate)(b, conjugates);
        return;
    }
    LAPACK(getrf)(m, m, a, m, ipiv, info);
    if (*info == 0 && s->check)
        LAPACK(gecon)("1", m, a, m, &anorm, rcond, work, extra, info);
    if (*info == 0 && s->invert) {
        int lwork = 64 * s->m;
        LAPACK(getri)(m, a, m, ipiv, work, &lwork, info);
        memcpy(b, a, size * sizeof(T));
    } else if (*info == 0)
        LAPACK(getrs)(&s->trans, m, &s->nrhs, a, m, ipiv, b, m, info);
}

/* Solves for b in place; f gets the factors in column order if they are kept. */
static void STACK(one_system)(const STACK(system) *s, const T *from, T *b, T *f, char *memory,
                              double *rcond, int *info)
{
    size_t size = (size_t)s->m * s->m;
    T *a = TAKE(T, size);
    STACK(columns)(a, s->m, from, s->m, s->m);
    STACK(factored)(s, a, b, memory, rcond, info);
    if (s->keep)
        memcpy(f, a, size * sizeof(T));
}

/* The solutions of A X = B; with `check` the reciprocals of the condition numbers, else zeros. */
void STACK(solve)(int structure, char uplo, char trans, int m, int n, int check, int keep,
                  long count, const T *a, const T *b, T *x, T *f, double *rcond, int *info)
{
    size_t size = (size_t)m * m, wide = (size_t)m * n;
    STACK(system) system = {structure, m, n, check, keep, 0, capital(uplo), capital(trans)};
    FOR_EACH(count, SYSTEM_ROOM(m, n), info, {
        T *right = TAKE(T, wide);
        STACK(columns)(right, m, b + i * wide, m, n);
        STACK(one_system)(&system, a + i * size, right, f + (keep ? i * size : 0), memory,
                          rcond + i, info + i);
        if (info[i] == 0)
            STACK(rows)(x + i * wide, right, m, m, n);
        else
            STACK(fill)(x + i * wide, wide, NOT_A_NUMBER);
    });
    if (has_no_memory(count, info)) {
        not_found(x, (size_t)count * wide * sizeof *x);
        not_found(f, (size_t)count * (keep ? size : 0) * sizeof *f);
        not_found(rcond, (size_t)count * sizeof *rcond);
    }
}

/* The inverses, of matrices that are not general as the solutions of A X = I. */
void STACK(inv)(int structure, char uplo, int m, int check, long count, const T *a, T *x,
                double *rcond, int *info)
{
    size_t size = (size_t)m * m;
    STACK(system) system = {structure, m, m, check, 0, 1, capital(uplo), 'N'};
    FOR_EACH(count, SYSTEM_ROOM(m, m), info, {
        T *right = TAKE(T, size);
        STACK(fill)(right, size, 0);
        for (int k = 0; k < m; k++)
            right[(size_t)k * m + k] = 1;
        STACK(one_system)(&system, a + i * size, right, NULL, memory, rcond + i, info + i);
        if (info[i] == 0)
            STACK(rows)(x + i * size, right, m, m, m);
        else
            STACK(fill)(x + i * size, size, NOT_A_NUMBER);
    });
    if (has_no_memory(count, info)) {
        not_found(x, (size_t)count * size * sizeof *x);
        not_found(rcond, (size_t)count * sizeof *rcond);
    }
}

/* The lower or upper factors; the other triangle is zero. The lower triangle in rows is the upper
   one in columns, of the conjugate matrix, whose factor in columns is the wanted one in rows. */
void STACK(cholesky)(char uplo, int m, long count, const T *a, T *x, int *info)
{
    size_t size = (size_t)m * m;
    uplo = capital(uplo);
    /* Another letter is one that LAPACK does not know either. */
    char other = uplo == 'U' ? 'L' : uplo == 'L' ? 'U' : uplo;
    FOR_EACH(count, 0, info, {
        T *factor = x + i * size;
        (void)memory;
        memcpy(factor, a + i * size, size * sizeof(T));
        LAPACK(potrf)(&other, &m, factor, &m, info + i);
        if (info[i] != 0)
            STACK(fill)(factor, size, NOT_A_NUMBER);
        for (int k = 0; k < m && info[i] == 0; k++) {
            T *row = factor + (size_t)k * m;
            if (uplo == 'U')
                STACK(fill)(row, k, 0);
            else
                STACK(fill)(row + k + 1, m - k - 1, 0);
        }
    });
}

/* Eigenvalues, ascending, and with jobz 'V' vectors of symmetric or hermitian matrices. */
void STACK(eigh)(char jobz, char uplo, int m, long count, const T *a, double *w, T *v, int *info)
{
    jobz = capital(jobz);
    size_t size = (size_t)m * m;
    int integers = 3 + 5 * m, reals = 1 + 5 * m + 2 * m * m;
    int lwork = (IS_COMPLEX ? 2 * m + m * m : 1 + 6 * m + 2 * m * m) + 64 * m;
    size_t bytes = ROOM(T, size) + ROOM(T, lwork) + ROOM(int, integers) +
                   (IS_COMPLEX ? ROOM(double, reals) : 0);
    if (2.0 * m * m + 100.0 * m > INT_MAX)
        bytes = TOO_MANY_BYTES;
    FOR_EACH(count, bytes, info, {
        T *vectors = TAKE(T, size);
        T *work = TAKE(T, lwork);
        int *iwork = TAKE(int, integers);
        STACK(columns)(vectors, m, a + i * size, m, m);
#if IS_COMPLEX
        zheevd_(&jobz, &uplo, &m, vectors, &m, w + i * m, work, &lwork, TAKE(double, reals),
                &reals, iwork, &integers, info + i);
#else
        dsyevd_(&jobz, &uplo, &m, vectors, &m, w + i * m, work, &lwork, iwork, &integers, info + i);
#endif
        for (int k = 0; k < m && info[i] != 0; k++)
            w[i * m + k] = NAN;
        if (jobz == 'V' && info[i] == 0)
            STACK(rows)(v + i * size, vectors, m, m, m);
        else if (jobz == 'V')
            STACK(fill)(v + i * size, size, NOT_A_NUMBER);
    });
    if (has_no_memory(count, info)) {
        not_found(w, (size_t)count * m * sizeof *w);
        not_found(v, (size_t)count * (jobz == 'V' ? size : 0) * sizeof *v);
    }
}

/* Eigenvalues and with jobz 'V' right vectors of square matrices. */
void STACK(eig)(char jobz, int m, long count, const T *a, double complex *w, double complex *v,
                int *info)
{
    jobz = capital(jobz);
    size_t size = (size_t)m * m;
    int lwork = 66 * m, one = 1;
    FOR_EACH(count, 2 * ROOM(T, size) + ROOM(T, lwork) + 2 * ROOM(double, m), info, {
        T *matrix = TAKE(T, size), *vectors = TAKE(T, size), *work = TAKE(T, lwork);
        double *first = TAKE(double, m), *second = TAKE(double, m);
        double complex *values = w + i * m, *found = v + (jobz == 'V' ? i * size : 0);
        STACK(columns)(matrix, m, a + i * size, m, m);
#if IS_COMPLEX
        (void)second; /* rwork has both parts: they lie one behind the other */
        zgeev_("N", &jobz, &m, matrix, &m, values, NULL, &one, vectors, &m, work, &lwork, first,
               info + i);
        if (jobz == 'V' && info[i] == 0)
            STACK(rows)(found, vectors, m, m, m);
#else
        dgeev_("N", &jobz, &m, matrix, &m, first, second, NULL, &one, vectors, &m, work, &lwork,
               info + i);
        for (int k = 0; k < m; k++)
            values[k] = CMPLX(first[k], second[k]);
        for (int k = 0; k < m && jobz == 'V' && info[i] == 0; k++)
            for (int j = 0; j < m; j++) {
                /* Columns k and k + 1 are the real and imaginary parts of a pair. */
                double *column = vectors + (size_t)k * m;
                found[(size_t)j * m + k] = second[k] > 0   ? CMPLX(column[j], column[m + j])
                                           : second[k] < 0 ? CMPLX(column[j - m], -column[j])
                                                           : column[j];
            }
#endif
        for (int k = 0; k < m && info[i] != 0; k++)
            values[k] = CMPLX(NAN, NAN);
        for (size_t k = 0; k < size && jobz == 'V' && info[i] != 0; k++)
            found[k] = CMPLX(NAN, NAN);
    });
    if (has_no_memory(count, info)) {
        not_found(w, (size_t)count * m * sizeof *w);
        not_found(v, (size_t)count * (jobz == 'V' ? size : 0) * sizeof *v);
    }
}

/* Singular values, and vectors of the least number ('S') or all ('A') unless jobz is 'N'. */
void STACK(svd)(char jobz, int m, int n, long count, const T *a, T *u, double *s, T *vt, int *info)
{
    jobz = capital(jobz);
    /* LAPACK also knows 'O', which overwrites the matrix: its vectors have no place here. */
    int vectors = jobz == 'S' || jobz == 'A';
    if (!vectors && jobz != 'N')
        jobz = '?';
    size_t size = (size_t)m * n;
    int k = least(m, n), across = jobz == 'S' ? k : m, down = jobz == 'S' ? k : n;
    size_t left = vectors ? (size_t)m * across : 0, right = vectors ? (size_t)down * n : 0;
    int lwork = 4 * k * k + 7 * k + most(m, n) + 64 * (m + n);
    int reals = k * most(5 * k + 7, 2 * most(m, n) + 2 * k + 1);
    size_t bytes = ROOM(T, size) + ROOM(T, left) + ROOM(T, right) + ROOM(T, lwork) +
                   ROOM(int, 8 * k) + (IS_COMPLEX ? ROOM(double, reals) : 0);
    if (9.0 * k * most(m, n) + 200.0 * (m + n) > INT_MAX)
        bytes = TOO_MANY_BYTES;
    FOR_EACH(count, bytes, info, {
        T *matrix = TAKE(T, size), *lefts = TAKE(T, left), *rights = TAKE(T, right);
        T *work = TAKE(T, lwork);
        int *iwork = TAKE(int, 8 * k);
        STACK(columns)(matrix, m, a + i * size, m, n);
#if IS_COMPLEX
        zgesdd_(&jobz, &m, &n, matrix, &m, s + i * k, lefts, &m, rights, &down, work, &lwork,
                TAKE(double, reals), iwork, info + i);
#else
        dgesdd_(&jobz, &m, &n, matrix, &m, s + i * k, lefts, &m, rights, &down, work, &lwork,
                iwork, info + i);
#endif
        for (int j = 0; j < k && info[i] != 0; j++)
            s[i * k + j] = NAN;
        if (!vectors)
            continue;
        STACK(rows)(u + i * left, lefts, m, m, across);
        STACK(rows)(vt + i * right, rights, down, down, n);
        if (info[i] != 0) {
            STACK(fill)(u + i * left, left, NOT_A_NUMBER);
            STACK(fill)(vt + i * right, right, NOT_A_NUMBER);
        }
    });
    if (has_no_memory(count, info)) {
        not_found(u, (size_t)count * left * sizeof *u);
        not_found(s, (size_t)count * k * sizeof *s);
        not_found(vt, (size_t)count * right * sizeof *vt);
    }
}

/* The reflectors and R of A = Q R in f, and tau. */
void STACK(geqrf)(int m, int n, long count, const T *a, T *f, T *tau, int *info)
{
    size_t size = (size_t)m * n;
    int lwork = 64 * n, k = least(m, n);
    FOR_EACH(count, ROOM(T, size) + ROOM(T, lwork), info, {
        T *matrix = TAKE(T, size), *work = TAKE(T, lwork);
        STACK(columns)(matrix, m, a + i * size, m, n);
        LAPACK(geqrf)(&m, &n, matrix, &m, tau + i * k, work, &lwork, info + i);
        STACK(rows)(f + i * size, matrix, m, m, n);
    });
    if (has_no_memory(count, info)) {
        not_found(f, (size_t)count * size * sizeof *f);
        not_found(tau, (size_t)count * k * sizeof *tau);
    }
}

/* The first k columns of Q from the reflectors in f, which is m x n, and tau. Later reflectors do
   not change these columns. */
void STACK(orgqr)(int m, int n, int k, long count, const T *f, const T *tau, T *q, int *info)
{
    size_t size = (size_t)m * n, wide = (size_t)m * k;
    int lwork = 64 * k, each = least(m, n), reflectors = least(each, k);
    FOR_EACH(count, ROOM(T, most(n, k) * (size_t)m) + ROOM(T, lwork), info, {
        T *matrix = TAKE(T, most(n, k) * (size_t)m), *work = TAKE(T, lwork);
        STACK(columns)(matrix, m, f + i * size, m, n);
        for (size_t j = size; j < wide; j++)
            matrix[j] = 0;
        UNITARY_LAPACK(gqr)(&m, &k, &reflectors, matrix, &m, tau + i * each, work, &lwork,
                            info + i);
        if (info[i] == 0)
            STACK(rows)(q + i * wide, matrix, m, m, k);
        else
            STACK(fill)(q + i * wide, wide, NOT_A_NUMBER);
    });
    if (has_no_memory(count, info)) {
        not_found(q, (size_t)count * wide * sizeof *q);
    }
}

/* Least squares by the singular values: the solution of least norm, the sums of the squares of what
   remains if the rank is full, the rank and the singular values. */
void STACK(lstsq)(int m, int n, int nrhs, long count, const T *a, const T *b, const double *rcond,
                  T *x, double *resids, int *rank, double *s, int *info)
{
    int k = least(m, n), tall = most(m, n), levels = 0;
    for (int rest = k / 26; rest > 0; rest /= 2)
        levels++;
    size_t size = (size_t)m * n, right = (size_t)m * nrhs, left = (size_t)n * nrhs;
    /* With more than it needs, it computes by blocks, and wide matrices by their LQ factors. */
    double needed = (double)k * (70.0 + 8 * levels + nrhs) + 676 + tall;
    double useful = 64.0 * (4.0 * k + nrhs) + 5000 + (m < n ? (double)k * k : 0);
    int lwork = (int)fmin(needed + useful, INT_MAX);
    int integers = most(1, 3 * k * levels + 11 * k);
    size_t reals = 10 * (size_t)tall + 50 * (size_t)k + 8 * (size_t)k * levels +
                   77 * (size_t)nrhs + 676 + (size_t)tall * (1 + (size_t)nrhs) + 26 * 26;
    size_t bytes = ROOM(T, size) + ROOM(T, (size_t)tall * nrhs) + ROOM(T, lwork) +
                   ROOM(int, integers) + (IS_COMPLEX ? ROOM(double, reals) : 0);
    if (needed > INT_MAX)
        bytes = TOO_MANY_BYTES;
    FOR_EACH(count, bytes, info, {
        T *matrix = TAKE(T, size), *found = TAKE(T, (size_t)tall * nrhs), *work = TAKE(T, lwork);
        int *iwork = TAKE(int, integers);
        STACK(columns)(matrix, m, a + i * size, m, n);
        STACK(columns)(found, tall, b + i * right, m, nrhs);
#if IS_COMPLEX
        zgelsd_(&m, &n, &nrhs, matrix, &m, found, &tall, s + i * k, rcond + i, rank + i, work,
                &lwork, TAKE(double, reals), iwork, info + i);
#else
        dgelsd_(&m, &n, &nrhs, matrix, &m, found, &tall, s + i * k, rcond + i, rank + i, work,
                &lwork, iwork, info + i);
#endif
        int full = info[i] == 0 && rank[i] == n;
        for (int j = 0; j < nrhs; j++) {
            double sum = full ? 0 : NAN;
            for (int row = n; row < m && full; row++) {
                T rest = found[(size_t)j * tall + row];
                sum += creal(rest) * creal(rest) + cimag(rest) * cimag(rest);
            }
            resids[(size_t)i * nrhs + j] = sum;
        }
        if (info[i] == 0)
            STACK(rows)(x + i * left, found, tall, n, nrhs);
        else
            STACK(fill)(x + i * left, left, NOT_A_NUMBER);
        for (int j = 0; j < k && info[i] != 0; j++)
            s[i * k + j] = NAN;
    });
    if (has_no_memory(count, info)) {
        not_found(x, (size_t)count * left * sizeof *x);
        not_found(resids, (size_t)count * nrhs * sizeof *resids);
        memset(rank, 0, (size_t)count * sizeof *rank);
        not_found(s, (size_t)count * k * sizeof *s);
    }
}

#undef CONJ
#undef LENGTH
#undef SIGN
#undef UNITARY_LAPACK
#undef EXTRA
#undef NOT_A_NUMBER
#undef INT
#undef SYSTEM_ROOM
