/* The loop of before.py as a function: the largest amplitude at each of `count` frequencies. */
#include <complex.h>
#include <stdlib.h>

extern void zgesv_(const int *n, const int *nrhs, double complex *a, const int *lda, int *pivots,
                   double complex *b, const int *ldb, int *info);

void response(int n, const double *k, const double *m, const double *c, const double *force,
              int count, const double *frequencies, double *largest, int *info)
{
    const int one = 1;
    const size_t size = (size_t)n * n;
    double complex *a = malloc(size * sizeof *a), *x = malloc(n * sizeof *x);
    int *pivots = malloc(n * sizeof *pivots);

    *info = a == NULL || x == NULL || pivots == NULL ? -1 : 0;
    for (int i = 0; i < count && *info == 0; i++) {
        const double w = frequencies[i];

        /* The matrices are symmetric, so their order does not matter. */
        for (size_t j = 0; j < size; j++)
            a[j] = k[j] - w * w * m[j] + I * w * c[j];
        for (int j = 0; j < n; j++)
            x[j] = force[j];
        zgesv_(&n, &one, a, &n, pivots, x, &n, info);
        largest[i] = 0;
        for (int j = 0; j < n; j++)
            if (cabs(x[j]) > largest[i])
                largest[i] = cabs(x[j]);
    }
    free(a);
    free(x);
    free(pivots);
}
