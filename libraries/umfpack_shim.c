/* The functions of libraries/umfpack.idl. A process has one matrix at a time, because an object of
   the class Factors is a process of its own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <umfpack.h>

static struct {
    int n, nnz, *starts, *rows;
    double *values;
    void *symbolic, *numeric;
} kept;

static void forget_numbers(void)
{
    if (kept.numeric)
        umfpack_di_free_numeric(&kept.numeric);
}

static void forget(void)
{
    forget_numbers();
    if (kept.symbolic)
        umfpack_di_free_symbolic(&kept.symbolic);
    free(kept.starts);
    free(kept.rows);
    free(kept.values);
    memset(&kept, 0, sizeof kept);
}

static void *copy(const void *from, size_t count, size_t size)
{
    /* Not of zero bytes, because NULL means that memory is missing. */
    void *to = malloc(count * size + 1);
    return to ? memcpy(to, from, count * size) : NULL;
}

static int factor_numbers(double *rcond)
{
    double info[UMFPACK_INFO] = {0};
    forget_numbers();
    int status = umfpack_di_numeric(kept.starts, kept.rows, kept.values, kept.symbolic,
                                    &kept.numeric, NULL, info);
    *rcond = info[UMFPACK_RCOND];
    return status;
}

int farcall_umfpack_factor(int n, int nnz, const int *starts, const int *rows,
                           const double *values, double *rcond)
{
    forget();
    *rcond = 0;
    if (n < 1)
        return UMFPACK_ERROR_n_nonpositive;
    if (starts[n] != nnz)
        return UMFPACK_ERROR_invalid_matrix;
    kept.n = n;
    kept.nnz = nnz;
    kept.starts = copy(starts, (size_t)n + 1, sizeof *starts);
    kept.rows = copy(rows, (size_t)nnz, sizeof *rows);
    kept.values = copy(values, (size_t)nnz, sizeof *values);
    int status = UMFPACK_ERROR_out_of_memory;
    if (kept.starts && kept.rows && kept.values)
        status = umfpack_di_symbolic(n, n, kept.starts, kept.rows, kept.values, &kept.symbolic,
                                     NULL, NULL);
    if (status == UMFPACK_OK)
        status = factor_numbers(rcond);
    if (status < 0)
        forget();
    return status;
}

int farcall_umfpack_refactor(int nnz, const double *values, double *rcond)
{
    *rcond = 0;
    if (!kept.symbolic)
        return UMFPACK_ERROR_argument_missing;
    if (nnz != kept.nnz)
        return UMFPACK_ERROR_invalid_matrix;
    memcpy(kept.values, values, (size_t)nnz * sizeof *values);
    return factor_numbers(rcond);
}

/* Where there is no solution: the memory of a call may have the results of an earlier one. */
static void no_solution(int n, int nrhs, double *x)
{
    for (size_t i = 0; i < (size_t)n * (size_t)nrhs; i++)
        x[i] = NAN;
}

int farcall_umfpack_solve(char trans, int n, int nrhs, const double *b, double *x)
{
    no_solution(n, nrhs, x);
    if (!kept.numeric)
        return UMFPACK_ERROR_argument_missing;
    if (n != kept.n)
        return UMFPACK_ERROR_invalid_Numeric_object;
    if (!strchr("NnTt", trans) || !trans)
        return UMFPACK_ERROR_invalid_system;
    int system = trans == 'N' || trans == 'n' ? UMFPACK_A : UMFPACK_Aat, worst = UMFPACK_OK;
    for (int i = 0; i < nrhs && worst >= 0; i++) {
        size_t start = (size_t)i * (size_t)n;
        int status = umfpack_di_solve(system, kept.starts, kept.rows, kept.values, x + start,
                                      b + start, kept.numeric, NULL, NULL);
        if (status != UMFPACK_OK)
            worst = status;
    }
    return worst;
}

int farcall_umfpack_once(int n, int nnz, const int *starts, const int *rows, const double *values,
                         int nrhs, const double *b, double *x, double *rcond)
{
    no_solution(n, nrhs, x);
    int status = farcall_umfpack_factor(n, nnz, starts, rows, values, rcond);
    if (status == UMFPACK_OK)
        status = farcall_umfpack_solve('N', n, nrhs, b, x);
    forget();
    return status;
}
