/* A program that knows nothing of Farcall. It is linked with a BLAS and LAPACK, or with none of
   their second names; the first argument says what it does. It prints results, and nothing that
   depends on where they were computed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void dgesv_(const int *n, const int *nrhs, double *a, const int *lda, int *ipiv, double *b,
            const int *ldb, int *info);
void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w,
            double *work, const int *lwork, int *info, size_t, size_t);
void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc, size_t, size_t);

/* Their own names in NumPy's package; only a drop-in library has them here. */
#pragma weak scipy_dgesv_64_
void scipy_dgesv_64_(const int64_t *n, const int64_t *nrhs, double *a, const int64_t *lda,
                     int64_t *ipiv, double *b, const int64_t *ldb, int64_t *info);

enum { ROWS = 101, COLUMNS = 102 };
void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int,
                 double, double *, int);
void cblas_zher2k(int, int, int, int, int, const void *, const void *, int, const void *, int,
                  double, void *, int);
void cblas_dtrsm(int, int, int, int, int, int, int, double, const double *, int, double *, int);
void cblas_dsymm(int, int, int, int, int, double, const double *, int, const double *, int, double,
                 double *, int);

static double *matrix(int rows, int columns, int diagonal) {
    static unsigned seed = 1;
    double *a = malloc(sizeof *a * rows * columns);
    for (int i = 0; i < rows * columns; i++) {
        seed = seed * 1103515245u + 12345u;
        a[i] = (double)(seed >> 16 & 0x7fff) / 32768 - 0.5;
    }
    for (int i = 0; diagonal && i < rows && i < columns; i++)
        a[i * rows + i] += diagonal;
    return a;
}

/* Ones are the solution of every system here. */
static void ones(int n, const double *a, double *b) {
    for (int i = 0; i < n; i++) {
        b[i] = 0;
        for (int j = 0; j < n; j++)
            b[i] += a[j * n + i];
    }
}

static int solves(int n) {
    double *a = matrix(n, n, n), *b = matrix(n, 1, 0);
    int *ipiv = malloc(sizeof *ipiv * n), one = 1, info = 99, good = 1;
    ones(n, a, b);
    dgesv_(&n, &one, a, &n, ipiv, b, &n, &info);
    for (int i = 0; i < n; i++)
        good &= b[i] > 1 - 1e-10 && b[i] < 1 + 1e-10 && ipiv[i] >= i + 1 && ipiv[i] <= n;
    free(a), free(b), free(ipiv);
    return info == 0 && good;
}

static void solve(void) { printf("solves %d %d\n", solves(150), solves(3)); }

static void many(int count) {
    int good = 0;
    for (int i = 0; i < count; i++)
        good += solves(400);
    printf("solved %d\n", good);
}

static jmp_buf back;
static int jumps;
static char wrong[7];

/* The program's own handler. */
void xerbla_(const char *name, const int *number, size_t length) {
    memcpy(wrong, name, length < 6 ? length : 6);
    printf("%s %d\n", wrong, *number);
    if (jumps)
        longjmp(back, 1);
}

static void errors(void) {
    int n = 50, one = 1, small = 1, info = 0, ipiv[50];
    double *a = matrix(n, n, n), *b = matrix(n, 1, 0), *before = malloc(sizeof *a * n * n);
    memcpy(before, a, sizeof *a * n * n);
    dgesv_(&n, &one, a, &small, ipiv, b, &n, &info);
    printf("info %d intact %d\n", info, !memcmp(before, a, sizeof *a * n * n));
    jumps = 1;
    for (int i = 0; i < 3; i++)
        if (!setjmp(back))
            dgesv_(&n, &one, a, &small, ipiv, b, &n, &info);
    jumps = 0;
    printf("after the jumps: %d\n", solves(100));
    /* With a wrong argument, LAPACK writes no eigenvalues. */
    double w[50] = {7, 7}, *vectors = matrix(n, n, n), room[200];
    int lwork = 200;
    dsyev_("X", "U", &n, vectors, &n, w, room, &lwork, &info, 1, 1);
    printf("info %d values %g %g\n", info, w[0], w[1]);
    /* A singular matrix is an answer, not an error. */
    memset(a, 0, sizeof *a * n * n);
    dgesv_(&n, &one, a, &n, ipiv, b, &n, &info);
    printf("singular: info %d\n", info);
}

static void work(void) {
    int n = 80, query = -1, lwork, info;
    double *a = matrix(n, n, 0), w[80], size = 0, *work;
    dsyev_("N", "U", &n, a, &n, w, &size, &query, &info, 1, 1);
    lwork = size;
    work = calloc(lwork, sizeof *work);
    dsyev_("n", "u", &n, a, &n, w, work, &lwork, &info, 1, 1);
    printf("info %d query %d work %d ascending %d\n", info, lwork >= 3 * n - 1,
           work[0] >= 3 * n - 1, w[0] < w[n - 1]);
}

static void *solve_in_thread(void *bad) {
    for (int i = 0; i < 5; i++)
        if (!solves(120))
            __atomic_fetch_add((int *)bad, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void threads(void) {
    pthread_t threads[8];
    int bad = 0;
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, solve_in_thread, &bad);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    printf("threads: %d wrong\n", bad);
}

static void forks(void) {
    int good = solves(150), status = 0;
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0)
            exit(!(solves(150) && solves(150)));
        waitpid(child, &status, 0);
        good &= status == 0;
        good &= solves(150);
    }
    printf("forks: %d\n", good);
}

/* Behind the last element that LAPACK may use there is no memory. */
static void guards(void) {
    int n = 100, lda = 117, one = 1, info, ipiv[100], good = 1;
    size_t page = sysconf(_SC_PAGESIZE), bytes = sizeof(double) * ((n - 1) * lda + n);
    size_t room = (bytes + page - 1) / page * page;
    int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *area = mmap(NULL, room + page, access, kind, -1, 0);
    mprotect(area + room, page, PROT_NONE);
    double *a = (double *)(area + room - bytes), *plain = matrix(n, n, n), *b = matrix(n, 1, 0);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < (j == n - 1 ? n : lda); i++)
            a[j * lda + i] = i < n ? plain[j * n + i] : 77;
    ones(n, plain, b);
    dgesv_(&n, &one, a, &lda, ipiv, b, &n, &info);
    for (int j = 0; j < n - 1; j++)
        for (int i = n; i < lda; i++)
            good &= a[j * lda + i] == 77;
    for (int i = 0; i < n; i++)
        good &= b[i] > 1 - 1e-10 && b[i] < 1 + 1e-10;
    printf("guards: info %d good %d\n", info, good);
}

static void wide(void) {
    int64_t n = 60, one = 1, info = 99, ipiv[61], good = 1;
    double *a = matrix(n, n, n), *b = matrix(n, 1, 0);
    ones(n, a, b);
    ipiv[60] = 4711;
    scipy_dgesv_64_(&n, &one, a, &n, ipiv, b, &n, &info);
    for (int i = 0; i < n; i++)
        good &= b[i] > 1 - 1e-10 && b[i] < 1 + 1e-10 && ipiv[i] > i && ipiv[i] <= n;
    printf("wide: info %d good %d next %d\n", (int)info, (int)good, (int)ipiv[60]);
}

static double sum(const double *a, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += a[i] * (i % 7 + 1);
    return sum;
}

/* Every order and every form; the sums tell forms apart. */
static void cblas(void) {
    enum { M = 30, N = 40, K = 50, MOST = 64 };
    static const int orders[] = {ROWS, COLUMNS}, trans[] = {111, 112, 113};
    double *a = matrix(MOST, MOST, 9), *b = matrix(MOST, MOST, 0), *c = matrix(MOST, MOST, 0);
    double *c0 = malloc(sizeof *c * MOST * MOST), alpha[] = {0.5, 0.25};
    memcpy(c0, c, sizeof *c * MOST * MOST);
#define SHOW(name)                                                                                 \
    printf("%s %d %.9e\n", name, order, sum(c, MOST * MOST)),                                      \
        memcpy(c, c0, sizeof *c * MOST * MOST)
    for (int o = 0; o < 2; o++) {
        int order = orders[o];
        for (int t = 0; t < 3; t++)
            for (int u = 0; u < 3; u++) {
                cblas_dgemm(order, trans[t], trans[u], M, N, K, 0.5, a, MOST, b, MOST, 2, c, MOST);
                SHOW("gemm");
            }
        for (int side = 141; side <= 142; side++)
            for (int uplo = 121; uplo <= 122; uplo++) {
                cblas_dsymm(order, side, uplo, M, N, 0.5, a, MOST, b, MOST, 2, c, MOST);
                SHOW("symm");
                for (int t = 0; t < 3; t++) {
                    cblas_dtrsm(order, side, uplo, trans[t], 131, M, N, 0.5, a, MOST, c, MOST);
                    SHOW("trsm");
                }
            }
        for (int uplo = 121; uplo <= 122; uplo++)
            for (int t = 0; t < 3; t += 2) {
                cblas_zher2k(order, uplo, trans[t], 20, 24, alpha, a, 32, b, 32, 2, c, 32);
                SHOW("her2k");
            }
    }
}

void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *ipiv, int *info);
void dgetrs_(const char *trans, const int *n, const int *nrhs, const double *a, const int *lda,
             const int *ipiv, double *b, const int *ldb, int *info, size_t);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t);
void dpotrs_(const char *uplo, const int *n, const int *nrhs, const double *a, const int *lda,
             double *b, const int *ldb, int *info, size_t);

static int is_one(int n, const double *x) {
    int good = 1;
    for (int i = 0; i < n; i++)
        good &= x[i] > 1 - 1e-9 && x[i] < 1 + 1e-9;
    return good;
}

/* With alpha 0, BLAS reads neither A nor B: here they are no memory. */
static void scaled(void) {
    int n = 300;
    double zero = 0, half = 0.5, *c = matrix(n, n, 0), first = c[0];
    size_t bytes = sizeof *c * n * n;
    double *none = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dgemm_("N", "N", &n, &n, &n, &zero, none, &n, none, &n, &half, c, &n, 1, 1);
    printf("scaled: %d\n", c[0] == first / 2);
}

/* One factorization and ten solutions; in the middle, the factors are others. */
static void factors(void) {
    int n = 700, one = 1, info = 0, good = 1, *ipiv = malloc(sizeof *ipiv * n);
    double *a = matrix(n, n, n), *lu = malloc(sizeof *a * n * n), *b = matrix(n, 1, 0);
    for (int i = 0; i < 10; i++) {
        if (i % 5 == 0) {
            a[i] += 1;
            memcpy(lu, a, sizeof *a * n * n);
            dgetrf_(&n, &n, lu, &n, ipiv, &info);
            good &= info == 0;
        }
        ones(n, a, b);
        dgetrs_("N", &n, &one, lu, &n, ipiv, b, &n, &info, 1);
        good &= info == 0 && is_one(n, b);
    }
    printf("factors: %d\n", good);
}

/* Products with and without what the result contained, and a Cholesky pipeline on their result. */
static void cholesky(void) {
    int n = 500, one = 1, info = 0, good = 1;
    double *x = matrix(n, n, 0), *a = matrix(n, n, 0), *f = malloc(sizeof *a * n * n);
    double *b = matrix(n, 1, 0), alpha = 1, zero = 0, corner;
    dgemm_("N", "T", &n, &n, &n, &alpha, x, &n, x, &n, &zero, a, &n, 1, 1);
    corner = a[0];
    dgemm_("N", "T", &n, &n, &n, &alpha, x, &n, x, &n, &alpha, a, &n, 1, 1);
    good &= a[0] > 1.999999 * corner && a[0] < 2.000001 * corner;
    for (int i = 0; i < n; i++)
        a[i * n + i] += n;
    memcpy(f, a, sizeof *a * n * n);
    dpotrf_("L", &n, f, &n, &info, 1);
    good &= info == 0;
    for (int i = 0; i < 5; i++) {
        ones(n, a, b);
        dpotrs_("L", &n, &one, f, &n, b, &n, &info, 1);
        good &= info == 0 && is_one(n, b);
    }
    /* A matrix that is not positive definite stays as LAPACK leaves it. */
    memset(f, 0, sizeof *f * n * n);
    dpotrf_("L", &n, f, &n, &info, 1);
    printf("cholesky: %d, %d\n", good, info);
}

void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w,
             double *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t,
             size_t);

/* The decisions of `auto` over a line: eigenvalues first, and products of the same size. */
static void large(void) {
    int n = 1500, lwork = 1 + 6 * n + 2 * n * n, liwork = 3 + 5 * n, info = 0, good = 1;
    double *a = matrix(n, n, 0), *b = matrix(n, n, 0), *c = malloc(sizeof *a * n * n);
    double *w = malloc(sizeof *w * n), *work = malloc(sizeof *work * lwork), one = 1, zero = 0;
    int *iwork = malloc(sizeof *iwork * liwork);
    for (int i = 0; i < 3; i++) {
        memcpy(c, a, sizeof *a * n * n);
        dsyevd_("V", "L", &n, c, &n, w, work, &lwork, iwork, &liwork, &info, 1, 1);
        good &= info == 0 && w[0] < w[n - 1];
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
        good &= c[0] == c[0];
    }
    printf("large: %d\n", good);
}

void dgees_(const char *jobvs, const char *sort, int (*select)(const double *, const double *),
            const int *n, double *a, const int *lda, int *sdim, double *wr, double *wi, double *vs,
            const int *ldvs, double *work, const int *lwork, int *bwork, int *info, size_t, size_t);

static int is_positive(const double *real, const double *imaginary) {
    (void)imaginary;
    return *real > 0;
}

/* A Schur form without and with an order, which a function of the program decides. */
static void schur(void) {
    int n = 60, sdim = -1, lwork = 64 * 60, info = 99, bwork[60];
    double *a = matrix(n, n, 0), *t = malloc(sizeof *a * n * n), *vs = malloc(sizeof *a * n * n);
    double wr[60], wi[60], *work = malloc(sizeof *work * lwork);
    for (int ordered = 0; ordered < 2; ordered++) {
        int good = 1, positive = 0;
        memcpy(t, a, sizeof *a * n * n);
        dgees_("V", ordered ? "S" : "N", ordered ? is_positive : NULL, &n, t, &n, &sdim, wr, wi, vs,
               &n, work, &lwork, bwork, &info, 1, 1);
        for (int i = 0; i < n; i++) {
            positive += wr[i] > 0;
            good &= !ordered || (wr[i] > 0) == (i < sdim);
        }
        printf("schur: info %d, first %d of %d, good %d\n", info, sdim, positive, good);
    }
}

void dsyevr_(const char *jobz, const char *range, const char *uplo, const int *n, double *a,
             const int *lda, const double *vl, const double *vu, const int *il, const int *iu,
             const double *abstol, int *m, double *w, double *z, const int *ldz, int *isuppz,
             double *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t,
             size_t, size_t);

/* Eigenvectors by index, and by value with room for no more than there are. */
static void selected(void) {
    int n = 80, il = 79, iu = 80, m = 0, info = 99, lwork = 40 * 80, liwork = 10 * 80, support[4];
    size_t page = sysconf(_SC_PAGESIZE), bytes = sizeof(double) * n * 2;
    size_t room = (bytes + page - 1) / page * page;
    int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *area = mmap(NULL, room + page, access, kind, -1, 0);
    double *z = (double *)(area + room - bytes), *a = matrix(n, n, 0), none = 0, most = 1e6;
    double *t = malloc(sizeof *a * n * n), w[80], *work = malloc(sizeof *work * lwork);
    int *iwork = malloc(sizeof *iwork * liwork);
    mprotect(area + room, page, PROT_NONE);
    for (int by_value = 0; by_value < 2; by_value++) {
        memcpy(t, a, sizeof *a * n * n);
        if (by_value)
            none = 0.5 * (w[0] + w[1]);
        dsyevr_("V", by_value ? "V" : "I", "U", &n, t, &n, &none, &most, &il, &iu, &none, &m, w, z,
                &n, support, work, &lwork, iwork, &liwork, &info, 1, 1, 1);
        printf("selected: info %d, %d eigenvalues\n", info, m);
    }
}

/* The parent ends; its child lives until its standard input ends. */
static void orphan(void) {
    char byte;
    int good = solves(150);
    if (fork() == 0)
        exit(read(0, &byte, 1) != 0);
    printf("orphan: %d\n", good);
}

/* What `auto` decides: one kind of call is large, the other small. */
static void mixed(void) {
    int n = 3, good = 1;
    double a[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, c[9], one = 1, zero = 0;
    for (int i = 0; i < 1000; i++) {
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
        good &= c[0] == 1 && c[1] == 0;
    }
    printf("mixed: %d %d\n", good, solves(300));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"solve", solve},     {"errors", errors}, {"work", work},   {"threads", threads},
                 {"forks", forks},     {"guards", guards}, {"wide", wide},   {"cblas", cblas},
                 {"mixed", mixed},     {"factors", factors}, {"cholesky", cholesky},
                 {"large", large},     {"schur", schur},   {"orphan", orphan},
                 {"selected", selected}, {"scaled", scaled}};
    if (argc == 3 && !strcmp(argv[1], "many"))
        return many(atoi(argv[2])), 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (argc == 2 && !strcmp(argv[1], parts[i].name))
            return parts[i].run(), 0;
    return 2;
}
