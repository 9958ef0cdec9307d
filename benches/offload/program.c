/* What `farcall bench offload` runs, plain and under `farcall offload`: calls of LAPACK and BLAS by
   a program that knows nothing of Farcall. The first argument is the part; some take a number. It
   prints figures of its own on standard output. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void dgesv_(const int *n, const int *nrhs, double *a, const int *lda, int *ipiv, double *b,
            const int *ldb, int *info);
void dgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc, size_t, size_t);
void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *ipiv, int *info);
void dgetrs_(const char *trans, const int *n, const int *nrhs, const double *a, const int *lda,
             const int *ipiv, double *b, const int *ldb, int *info, size_t);
void dpotrf_(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t);
void dpotrs_(const char *uplo, const int *n, const int *nrhs, const double *a, const int *lda,
             double *b, const int *ldb, int *info, size_t);
void dsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w,
             double *work, const int *lwork, int *iwork, const int *liwork, int *info, size_t,
             size_t);

static const double one = 1, zero = 0;
static int failed;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

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

static void product(int n, const double *a, const double *b, double *c) {
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n, 1, 1);
}

/* Nanoseconds of a call with n = 3: the least mean of many batches. */
static void tiny(int is_dgesv) {
    enum { BATCHES = 200, CALLS = 5000 };
    double a[9], b[3], c[9], given[9] = {4, 1, 2, 1, 5, 1, 2, 1, 6}, least = 1e9;
    int n = 3, nrhs = 1, ipiv[3], info;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now();
        for (int i = 0; i < CALLS; i++) {
            if (is_dgesv) {
                memcpy(a, given, sizeof a);
                b[0] = b[1] = b[2] = 1;
                dgesv_(&n, &nrhs, a, &n, ipiv, b, &n, &info);
            } else {
                product(n, given, given, c);
            }
        }
        double each = 1e9 * (now() - start) / CALLS;
        least = each < least ? each : least;
    }
    printf("%.3f\n", least);
}

static void eigenvalues(int n, double *a) {
    int lwork = 1 + 6 * n + 2 * n * n, liwork = 3 + 5 * n, info = 0;
    double *w = malloc(sizeof *w * n), *work = malloc(sizeof *work * lwork);
    int *iwork = malloc(sizeof *iwork * liwork);
    dsyevd_("V", "L", &n, a, &n, w, work, &lwork, iwork, &liwork, &info, 1, 1);
    failed |= info;
    free(w), free(work), free(iwork);
}

static void system_of(int n, int nrhs) {
    double *a = matrix(n, n, n), *b = matrix(n, nrhs, 0);
    int *ipiv = malloc(sizeof *ipiv * n), info = 0;
    dgesv_(&n, &nrhs, a, &n, ipiv, b, &n, &info);
    failed |= info;
    free(a), free(b), free(ipiv);
}

/* Some seconds of middle-sized calls, as a script makes them. Prints its seconds. */
static void script(int rounds) {
    int n = 500;
    double *a = matrix(n, n, 0), *b = matrix(n, n, 0), *c = matrix(n, n, 0), start = now();
    for (int i = 0; i < rounds; i++) {
        memcpy(c, a, sizeof *c * n * n);
        eigenvalues(n, c);
        for (int j = 0; j < 3; j++) {
            system_of(n, 20);
            product(n, a, b, c);
        }
    }
    printf("%.6f\n", now() - start);
}

/* Eigenvalues and products of a size. Prints the seconds of all. */
static void large(int n) {
    double *a = matrix(n, n, 0), *b = matrix(n, n, 0), *c = matrix(n, n, 0), start = now();
    for (int i = 0; i < 4; i++) {
        memcpy(c, a, sizeof *c * n * n);
        eigenvalues(n, c);
        product(n, a, b, c);
    }
    printf("%.6f\n", now() - start);
}

/* A factorisation and ten solutions with its factors. */
static void factors(int n) {
    int nrhs = 1, info = 0, *ipiv = malloc(sizeof *ipiv * n);
    double *a = matrix(n, n, n);
    dgetrf_(&n, &n, a, &n, ipiv, &info);
    failed |= info;
    for (int i = 0; i < 10; i++) {
        double *b = matrix(n, 1, 0);
        dgetrs_("N", &n, &nrhs, a, &n, ipiv, b, &n, &info, 1);
        failed |= info;
        free(b);
    }
}

/* Normal equations: a product, its Cholesky factor, and five solutions. */
static void cholesky(int n) {
    int nrhs = 1, info = 0;
    double *x = matrix(n, n, n), *a = matrix(n, n, 0);
    dgemm_("T", "N", &n, &n, &n, &one, x, &n, x, &n, &zero, a, &n, 1, 1);
    dpotrf_("L", &n, a, &n, &info, 1);
    failed |= info;
    for (int i = 0; i < 5; i++) {
        double *b = matrix(n, 1, 0);
        dpotrs_("L", &n, &nrhs, a, &n, b, &n, &info, 1);
        failed |= info;
        free(b);
    }
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(int);
    } parts[] = {{"tiny", tiny},   {"script", script},     {"large", large},
                 {"factors", factors}, {"cholesky", cholesky}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (count == 3 && !strcmp(words[1], parts[i].name))
            return parts[i].run(atoi(words[2])), failed != 0;
    return 2;
}
