/* The functions of libraries/linpack.idl. Matrices are in Fortran's order. */
#include <math.h>
#include <stddef.h>
#include <string.h>

void dgetrf_(const int *m, const int *n, double *a, const int *lda, int *ipiv, int *info);
void dgetrs_(const char *trans, const int *n, const int *nrhs, const double *a, const int *lda,
             const int *ipiv, double *b, const int *ldb, int *info, size_t trans_length);

void farcall_linpack_(const int *n, const double *a, double *b, int *ipiv, int *info, double *lu)
{
    const int one = 1;
    memcpy(lu, a, (size_t)*n * *n * sizeof *a);
    dgetrf_(n, n, lu, n, ipiv, info);
    if (*info == 0)
        dgetrs_("N", n, &one, lu, n, ipiv, b, n, info, 1);
}

/* Factors in place, column by column; returns the first column without a pivot, from 1, or 0. */
static int factor(int n, double *lu, int *ipiv)
{
    int singular = 0;
    for (int k = 0; k < n; k++) {
        double *column = lu + (size_t)k * n;
        int pivot = k;
        for (int i = k + 1; i < n; i++)
            if (fabs(column[i]) > fabs(column[pivot]))
                pivot = i;
        ipiv[k] = pivot + 1;
        if (column[pivot] == 0) {
            singular = singular ? singular : k + 1;
            continue;
        }
        double swapped = column[pivot];
        column[pivot] = column[k];
        column[k] = swapped;
        for (int i = k + 1; i < n; i++)
            column[i] /= swapped;
        for (int j = k + 1; j < n; j++) {
            double *other = lu + (size_t)j * n;
            double factor = other[pivot];
            other[pivot] = other[k];
            other[k] = factor;
            for (int i = k + 1; i < n; i++)
                other[i] -= factor * column[i];
        }
    }
    return singular;
}

static void solve(int n, const double *lu, const int *ipiv, double *b)
{
    for (int k = 0; k < n; k++) {
        const double *column = lu + (size_t)k * n;
        double value = b[ipiv[k] - 1];
        b[ipiv[k] - 1] = b[k];
        b[k] = value;
        for (int i = k + 1; i < n; i++)
            b[i] -= value * column[i];
    }
    for (int k = n - 1; k >= 0; k--) {
        const double *column = lu + (size_t)k * n;
        b[k] /= column[k];
        for (int i = 0; i < k; i++)
            b[i] -= b[k] * column[i];
    }
}

void farcall_unblocked_(const int *n, const double *a, double *b, int *ipiv, int *info, double *lu)
{
    memcpy(lu, a, (size_t)*n * *n * sizeof *a);
    *info = factor(*n, lu, ipiv);
    if (*info == 0)
        solve(*n, lu, ipiv, b);
}
