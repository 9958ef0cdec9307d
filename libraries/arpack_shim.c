/* The functions of libraries/arpack.idl: the loops around ARPACK's reverse communication. ARPACK
   keeps its state in static memory, and a process has one call at a time. */
#include <complex.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef double complex dcomplex;

void dsaupd_(int *ido, const char *bmat, const int *n, const char *which, const int *nev,
             const double *tol, double *resid, const int *ncv, double *v, const int *ldv,
             int *iparam, int *ipntr, double *workd, double *workl, const int *lworkl, int *info,
             size_t, size_t);
void dseupd_(const int *rvec, const char *howmny, int *select, double *d, double *z,
             const int *ldz, const double *sigma, const char *bmat, const int *n,
             const char *which, const int *nev, const double *tol, double *resid, const int *ncv,
             double *v, const int *ldv, int *iparam, int *ipntr, double *workd, double *workl,
             const int *lworkl, int *info, size_t, size_t, size_t);
void dnaupd_(int *ido, const char *bmat, const int *n, const char *which, const int *nev,
             const double *tol, double *resid, const int *ncv, double *v, const int *ldv,
             int *iparam, int *ipntr, double *workd, double *workl, const int *lworkl, int *info,
             size_t, size_t);
void dneupd_(const int *rvec, const char *howmny, int *select, double *dr, double *di, double *z,
             const int *ldz, const double *sigmar, const double *sigmai, double *workev,
             const char *bmat, const int *n, const char *which, const int *nev, const double *tol,
             double *resid, const int *ncv, double *v, const int *ldv, int *iparam, int *ipntr,
             double *workd, double *workl, const int *lworkl, int *info, size_t, size_t, size_t);
void znaupd_(int *ido, const char *bmat, const int *n, const char *which, const int *nev,
             const double *tol, dcomplex *resid, const int *ncv, dcomplex *v, const int *ldv,
             int *iparam, int *ipntr, dcomplex *workd, dcomplex *workl, const int *lworkl,
             double *rwork, int *info, size_t, size_t);
void zneupd_(const int *rvec, const char *howmny, int *select, dcomplex *d, dcomplex *z,
             const int *ldz, const dcomplex *sigma, dcomplex *workev, const char *bmat,
             const int *n, const char *which, const int *nev, const double *tol, dcomplex *resid,
             const int *ncv, dcomplex *v, const int *ldv, int *iparam, int *ipntr,
             dcomplex *workd, dcomplex *workl, const int *lworkl, double *rwork, int *info, size_t,
             size_t, size_t);

/* A matrix: its rows, or a function that multiplies it with a vector. */
struct matrix {
    const int *starts, *columns;
    const void *values;
    void (*of_real)(double *x, double *y);
    void (*of_complex)(dcomplex *x, dcomplex *y);
};

/* What a search for eigenvalues needs, and what it has found. */
struct search {
    int n, k, ncv, most, ldv, lworkl, info;
    const char *which;
    double tol;
    int iparam[11], ipntr[14], *select;
    /* Of the type of the matrix: the residual, the basis, and work space. */
    void *resid, *v, *workd, *workl, *workev;
    double *rwork;
};

enum kind { SYMMETRIC, REAL, COMPLEX };

/* -i where argument i of a function of arpack.idl is wrong: those of a matrix of rows, or, if
   `starts` is NULL, of a function. */
static int check(enum kind kind, int n, int nnz, const int *starts, const int *columns, int k,
                 const char *which, int ncv, int most)
{
    static const char *const ends[2] = {"LM SM LA SA BE", "LM SM LR SR LI SI"};
    int first = starts ? 6 : 2, spare = kind == SYMMETRIC ? 1 : 2;
    if (n < 1)
        return -1;
    if (starts) {
        if (starts[0] != 0 || starts[n] != nnz)
            return -3;
        for (int i = 0; i < n; i++)
            if (starts[i] > starts[i + 1])
                return -3;
        for (int j = 0; j < nnz; j++)
            if (columns[j] < 0 || columns[j] >= n)
                return -4;
    }
    if (k < 1 || k > n - spare)
        return -first;
    if (strlen(which) != 2 || !strstr(ends[kind != SYMMETRIC], which))
        return -(first + 1);
    if (ncv != 0 && (ncv < k + spare || ncv > n))
        return -(first + 2);
    return most < 0 ? -(first + 4) : 0;
}

/* Always the same numbers, between -1 and 1: results then do not depend on earlier calls. */
static double number(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) / (double)(UINT64_C(1) << 52) - 1;
}

static int begin(struct search *s, enum kind kind)
{
    size_t size = kind == COMPLEX ? sizeof(dcomplex) : sizeof(double);
    size_t n = (size_t)s->n;
    if (s->ncv == 0)
        s->ncv = 2 * s->k + 1 > 20 ? 2 * s->k + 1 : 20;
    if (s->ncv > s->n)
        s->ncv = s->n;
    size_t ncv = (size_t)s->ncv;
    s->ldv = s->n;
    size_t lworkl = kind == SYMMETRIC ? ncv * (ncv + 8)
                    : kind == REAL    ? 3 * ncv * ncv + 6 * ncv
                                      : 3 * ncv * ncv + 5 * ncv;
    if (lworkl > INT32_MAX)
        return -9999;
    s->lworkl = (int)lworkl;
    s->resid = malloc(n * size);
    s->v = calloc(n * (ncv + 1), size);
    s->workd = calloc(3 * n, size);
    s->workl = calloc(lworkl, size);
    s->workev = calloc(3 * ncv, size);
    s->rwork = calloc(ncv, sizeof *s->rwork);
    s->select = calloc(ncv, sizeof *s->select);
    if (!s->resid || !s->v || !s->workd || !s->workl || !s->workev || !s->rwork || !s->select)
        return -9999;
    uint64_t state = 1;
    double *numbers = s->resid;
    for (size_t i = 0; i < n * size / sizeof *numbers; i++)
        numbers[i] = number(&state);
    s->iparam[0] = s->iparam[6] = 1;
    s->iparam[2] = s->most ? s->most : 300;
    s->iparam[3] = 1;
    /* The residual is given. */
    s->info = 1;
    return 0;
}

static void end(struct search *s)
{
    free(s->resid);
    free(s->v);
    free(s->workd);
    free(s->workl);
    free(s->workev);
    free(s->rwork);
    free(s->select);
}

#define MULTIPLY(name, number, member)                                                            \
    static void name(const struct search *s, const struct matrix *a, number *x, number *y)        \
    {                                                                                             \
        if (a->member) {                                                                          \
            a->member(x, y);                                                                      \
            return;                                                                               \
        }                                                                                         \
        const number *values = a->values;                                                         \
        for (int i = 0; i < s->n; i++) {                                                          \
            number sum = 0;                                                                       \
            for (int j = a->starts[i]; j < a->starts[i + 1]; j++)                                 \
                sum += values[j] * x[a->columns[j]];                                              \
            y[i] = sum;                                                                           \
        }                                                                                         \
    }

MULTIPLY(multiply_real, double, of_real)
MULTIPLY(multiply_complex, dcomplex, of_complex)

/* Iterates until ARPACK has the basis. */
static void iterate(struct search *s, enum kind kind, const struct matrix *a)
{
    int ido = 0;
    for (;;) {
        if (kind == SYMMETRIC)
            dsaupd_(&ido, "I", &s->n, s->which, &s->k, &s->tol, s->resid, &s->ncv, s->v, &s->ldv,
                    s->iparam, s->ipntr, s->workd, s->workl, &s->lworkl, &s->info, 1, 2);
        else if (kind == REAL)
            dnaupd_(&ido, "I", &s->n, s->which, &s->k, &s->tol, s->resid, &s->ncv, s->v, &s->ldv,
                    s->iparam, s->ipntr, s->workd, s->workl, &s->lworkl, &s->info, 1, 2);
        else
            znaupd_(&ido, "I", &s->n, s->which, &s->k, &s->tol, s->resid, &s->ncv, s->v, &s->ldv,
                    s->iparam, s->ipntr, s->workd, s->workl, &s->lworkl, s->rwork, &s->info, 1, 2);
        if (ido != 1 && ido != -1)
            return;
        int from = s->ipntr[0] - 1, to = s->ipntr[1] - 1;
        if (kind == COMPLEX)
            multiply_complex(s, a, (dcomplex *)s->workd + from, (dcomplex *)s->workd + to);
        else
            multiply_real(s, a, (double *)s->workd + from, (double *)s->workd + to);
    }
}

/* Eigenvalues and vectors of a symmetric matrix. */
static void take_symmetric(struct search *s, double *w, double *v)
{
    int all = 1;
    double sigma = 0;
    dseupd_(&all, "A", s->select, w, s->v, &s->ldv, &sigma, "I", &s->n, s->which, &s->k, &s->tol,
            s->resid, &s->ncv, s->v, &s->ldv, s->iparam, s->ipntr, s->workd, s->workl, &s->lworkl,
            &s->info, 1, 1, 2);
    memcpy(v, s->v, (size_t)s->n * (size_t)s->k * sizeof *v);
}

/* Those of a real matrix. A pair of conjugate values has its vectors as real and imaginary parts,
   and can begin at the last value that was asked for. ARPACK then counts one value more in k. */
static void take_real(struct search *s, dcomplex *w, dcomplex *v)
{
    int all = 1, n = s->n, k = s->k;
    double zero = 0, *z = s->v;
    double *wr = calloc(2 * ((size_t)k + 1), sizeof *wr), *wi = wr + k + 1;
    if (!wr) {
        s->info = -9999;
        return;
    }
    dneupd_(&all, "A", s->select, wr, wi, z, &s->ldv, &zero, &zero, s->workev, "I", &n, s->which,
            &s->k, &s->tol, s->resid, &s->ncv, s->v, &s->ldv, s->iparam, s->ipntr, s->workd,
            s->workl, &s->lworkl, &s->info, 1, 1, 2);
    for (int i = 0; i < k && s->info == 0; i++) {
        double *column = z + (size_t)i * (size_t)n;
        dcomplex *row = v + (size_t)i * (size_t)n;
        w[i] = CMPLX(wr[i], wi[i]);
        for (int j = 0; j < n; j++)
            row[j] = CMPLX(column[j], wi[i] == 0 ? 0 : column[n + j]);
        if (wi[i] != 0 && ++i < k) {
            w[i] = CMPLX(wr[i], wi[i]);
            for (int j = 0; j < n; j++)
                row[n + j] = conj(row[j]);
        }
    }
    free(wr);
}

static void take_complex(struct search *s, dcomplex *w, dcomplex *v)
{
    int all = 1;
    dcomplex sigma = 0, *d = calloc((size_t)s->k + 1, sizeof *d);
    if (!d) {
        s->info = -9999;
        return;
    }
    zneupd_(&all, "A", s->select, d, s->v, &s->ldv, &sigma, s->workev, "I", &s->n, s->which, &s->k,
            &s->tol, s->resid, &s->ncv, s->v, &s->ldv, s->iparam, s->ipntr, s->workd, s->workl,
            &s->lworkl, s->rwork, &s->info, 1, 1, 2);
    if (s->info == 0) {
        memcpy(w, d, (size_t)s->k * sizeof *w);
        memcpy(v, s->v, (size_t)s->n * (size_t)s->k * sizeof *v);
    }
    free(d);
}

/* Results that are not found: the memory of a call may have those of an earlier one. */
static void not_found(void *results, size_t bytes)
{
    double *numbers = results;
    for (size_t i = 0; i < bytes / sizeof *numbers; i++)
        numbers[i] = NAN;
}

/* Values that did not converge are none, nor are their vectors. */
static void only_found(enum kind kind, int n, int k, int found, void *w, void *v)
{
    size_t size = kind == SYMMETRIC ? sizeof(double) : sizeof(dcomplex);
    size_t first = (size_t)found * size, rest = (size_t)(k - found) * size;
    not_found((char *)w + first, rest);
    not_found((char *)v + first * (size_t)n, rest * (size_t)n);
}

static void find(struct search *s, enum kind kind, const struct matrix *a, void *w, void *v,
                 int *found, int *info)
{
    /* ARPACK may change its own. */
    int k = s->k;
    *found = 0;
    *info = begin(s, kind);
    if (*info == 0) {
        iterate(s, kind, a);
        /* With 1, there are fewer values than asked for. */
        int first = s->info;
        if (first == 0 || (first == 1 && s->iparam[4] > 0)) {
            *found = s->iparam[4] < s->k ? s->iparam[4] : s->k;
            if (kind == SYMMETRIC)
                take_symmetric(s, w, v);
            else if (kind == REAL)
                take_real(s, w, v);
            else
                take_complex(s, w, v);
        }
        *info = s->info ? s->info : first;
        if (*info < 0)
            *found = 0;
        only_found(kind, s->n, k, *found, w, v);
    }
    end(s);
}

#define BY_ROWS(name, kind, number, result)                                                       \
    void name(int n, int nnz, const int *starts, const int *columns, const number *values, int k, \
              const char *which, int ncv, double tol, int most, result *w, result *v, int *found, \
              int *info)                                                                          \
    {                                                                                             \
        struct matrix a = {.starts = starts, .columns = columns, .values = values};               \
        struct search s = {.n = n, .k = k, .ncv = ncv, .most = most, .which = which, .tol = tol}; \
        *found = 0;                                                                               \
        not_found(w, (size_t)k * sizeof *w);                                                      \
        not_found(v, (size_t)k * (size_t)n * sizeof *v);                                          \
        *info = check(kind, n, nnz, starts, columns, k, which, ncv, most);                        \
        if (*info == 0)                                                                           \
            find(&s, kind, &a, w, v, found, info);                                                \
    }

#define BY_FUNCTION(name, kind, number, member, result)                                           \
    void name(int n, int k, const char *which, int ncv, double tol, int most, result *w,          \
              result *v, int *found, int *info, void (*multiply)(number *x, number *y))           \
    {                                                                                             \
        struct matrix a = {.member = multiply};                                                   \
        struct search s = {.n = n, .k = k, .ncv = ncv, .most = most, .which = which, .tol = tol}; \
        *found = 0;                                                                               \
        not_found(w, (size_t)k * sizeof *w);                                                      \
        not_found(v, (size_t)k * (size_t)n * sizeof *v);                                          \
        *info = check(kind, n, 0, NULL, NULL, k, which, ncv, most);                               \
        if (*info == 0)                                                                           \
            find(&s, kind, &a, w, v, found, info);                                                \
    }

BY_ROWS(farcall_dseigs, SYMMETRIC, double, double)
BY_ROWS(farcall_dneigs, REAL, double, dcomplex)
BY_ROWS(farcall_zneigs, COMPLEX, dcomplex, dcomplex)
BY_FUNCTION(farcall_dseigs_by, SYMMETRIC, double, of_real, double)
BY_FUNCTION(farcall_dneigs_by, REAL, double, of_real, dcomplex)
BY_FUNCTION(farcall_zneigs_by, COMPLEX, dcomplex, of_complex, dcomplex)
