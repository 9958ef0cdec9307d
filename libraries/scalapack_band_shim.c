/* ScaLAPACK's solvers for band and tridiagonal matrices, behind LAPACK's interfaces. Each process
   has neighbouring columns of the matrix and these rows of the right sides. */
#include "scalapack_processes.h"
#include <string.h>

extern void pdgbsv_(const int *n, const int *bwl, const int *bwu, const int *nrhs, double *a,
                    const int *ja, const int *desca, int *ipiv, double *b, const int *ib,
                    const int *descb, double *work, const int *lwork, int *info);
extern void pdpbsv_(const char *uplo, const int *n, const int *bw, const int *nrhs, double *a,
                    const int *ja, const int *desca, double *b, const int *ib, const int *descb,
                    double *work, const int *lwork, int *info);
extern void pddbsv_(const int *n, const int *bwl, const int *bwu, const int *nrhs, double *a,
                    const int *ja, const int *desca, double *b, const int *ib, const int *descb,
                    double *work, const int *lwork, int *info);
extern void pddtsv_(const int *n, const int *nrhs, double *dl, double *d, double *du, const int *ja,
                    const int *desca, double *b, const int *ib, const int *descb, double *work,
                    const int *lwork, int *info);
extern void pdptsv_(const int *n, const int *nrhs, double *d, double *e, const int *ja,
                    const int *desca, double *b, const int *ib, const int *descb, double *work,
                    const int *lwork, int *info);

/* A band matrix and its right sides. Each process has the same number of neighbouring columns of
   the band, and these rows of the right sides; the last ones can have fewer. */
struct band {
    int context, processes, rank, n, each, lead, first_row;
    int of_band[7], of_sides[7];
    double *band, *sides;
};

/* The first column of a process. */
static int begin_of(const struct band *band, int process)
{
    return least(band->n, process * band->each);
}

/* Parts of equal length, each this far from the one before. */
static MPI_Datatype strided(int parts, int length, int stride)
{
    MPI_Datatype type;

    MPI_Type_vector(parts, length, stride, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* The columns of the whole band, `rows` long and `ldab` apart, go to the processes, which store
   them from row `first_row` on. The rows of the right sides go with them. */
static struct band scatter_band(int n, int rows, int first_row, int narrowest, int nrhs,
                                const double *ab, int ldab, const double *b, int ldb)
{
    struct band band = {.n = n, .lead = first_row + rows, .first_row = first_row};
    int grid_rows, grid_columns, row;

    Cblacs_pinfo(&band.rank, &band.processes);
    Cblacs_get(-1, 0, &band.context);
    Cblacs_gridinit(&band.context, "Row", 1, band.processes);
    Cblacs_gridinfo(band.context, &grid_rows, &grid_columns, &row, &band.rank);
    band.each = (n + band.processes - 1) / band.processes;
    if (band.each < narrowest)
        band.each = narrowest;
    const int of_band[7] = {501, band.context, n, band.each, 0, band.lead, 0};
    const int of_sides[7] = {502, band.context, n, band.each, 0, band.each, 0};

    memcpy(band.of_band, of_band, sizeof of_band);
    memcpy(band.of_sides, of_sides, sizeof of_sides);
    band.band = take_doubles((size_t)band.lead * band.each);
    band.sides = take_doubles((size_t)band.each * nrhs);
    memset(band.band, 0, sizeof(double) * band.lead * band.each);
    for (int process = 0; process < band.processes; process++) {
        const int begin = begin_of(&band, process);
        const int count = begin_of(&band, process + 1) - begin;
        MPI_Datatype there[2] = {strided(count, rows, ldab), strided(nrhs, count, ldb)};
        MPI_Datatype here[2] = {strided(count, rows, band.lead), strided(nrhs, count, band.each)};
        double *into[2] = {band.band + first_row, band.sides};
        const double *from[2] = {NULL, NULL};

        if (band.rank == 0) {
            from[0] = ab + (size_t)begin * ldab;
            from[1] = b + begin;
        }
        for (int i = 0; i < 2 && count > 0; i++) {
            const int sends = band.rank == 0, takes = process == band.rank;

            MPI_Sendrecv(from[i], sends, there[i], sends ? process : MPI_PROC_NULL, TAG, into[i],
                         takes, here[i], takes ? 0 : MPI_PROC_NULL, TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < 2; i++) {
            MPI_Type_free(&there[i]);
            MPI_Type_free(&here[i]);
        }
    }
    return band;
}

/* Takes what a solver has sent and nobody has received. It leaves such messages where a matrix is
   singular, and another call would take them for its own. */
static void drain(const struct band *band)
{
    const int scope_of_messages = 10, last = TAG;
    MPI_Request *leaving = take(sizeof *leaving * band->processes);
    int handle, bytes;

    Cblacs_get(band->context, scope_of_messages, &handle);
    MPI_Comm scope = Cblacs2sys_handle(handle);
    for (int process = 0; process < band->processes; process++)
        MPI_Isend(NULL, 0, MPI_BYTE, process, last, scope, &leaving[process]);
    for (int process = 0; process < band->processes; process++) {
        MPI_Status status;

        do {
            MPI_Probe(process, MPI_ANY_TAG, scope, &status);
            MPI_Get_count(&status, MPI_BYTE, &bytes);
            void *left = take(bytes);
            MPI_Recv(left, bytes, MPI_BYTE, process, status.MPI_TAG, scope, MPI_STATUS_IGNORE);
            free(left);
        } while (status.MPI_TAG != last);
    }
    for (int process = 0; process < band->processes; process++)
        MPI_Wait(&leaving[process], MPI_STATUS_IGNORE);
    free(leaving);
}

/* The solutions go back to the first process. */
static void gather_sides(struct band *band, int nrhs, double *b, int ldb)
{
    MPI_Request leaving = MPI_REQUEST_NULL;
    MPI_Datatype sides;
    const int own = begin_of(band, band->rank + 1) - begin_of(band, band->rank);

    if (own > 0) {
        sides = strided(nrhs, own, band->each);
        MPI_Isend(band->sides, 1, sides, 0, TAG, MPI_COMM_WORLD, &leaving);
        MPI_Type_free(&sides);
    }
    for (int process = 0; band->rank == 0 && process < band->processes; process++) {
        const int begin = begin_of(band, process);
        const int count = begin_of(band, process + 1) - begin;

        if (count == 0)
            continue;
        sides = strided(nrhs, count, ldb);
        MPI_Recv(b + begin, 1, sides, process, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Type_free(&sides);
    }
    MPI_Wait(&leaving, MPI_STATUS_IGNORE);
    drain(band);
    Cblacs_gridexit(band->context);
    free(band->band);
    free(band->sides);
}

void farcall_pdgbsv_(const int *n, const int *kl, const int *ku, const int *nrhs, const double *ab,
                     const int *ldab, double *b, const int *ldb, int *info)
{
    /* LAPACK leaves kl rows for the factors above the band, ScaLAPACK kl + ku. */
    struct band band = scatter_band(*n, *kl + *ku + 1, *kl + *ku, *kl + *ku + 1, *nrhs,
                                    ab == NULL ? NULL : ab + *kl, *ldab, b, *ldb);
    int *pivots = take(sizeof(int) * (band.each + *kl + *ku));
    const int factors = (band.each + *ku) * (*kl + *ku) + 6 * (*kl + *ku) * (*kl + 2 * *ku);
    const int length = factors + *nrhs * (band.each + 2 * *kl + 4 * *ku) + 1;
    double *work = take_doubles(length);

    pdgbsv_(n, kl, ku, nrhs, band.band, &ONE, band.of_band, pivots, band.sides, &ONE, band.of_sides,
            work, &length, info);
    free(work);
    free(pivots);
    gather_sides(&band, *nrhs, b, *ldb);
}

void farcall_pdpbsv_(const char *uplo, const int *n, const int *kd, const int *nrhs,
                     const double *ab, const int *ldab, double *b, const int *ldb, int *info)
{
    struct band band = scatter_band(*n, *kd + 1, 0, 2 * *kd, *nrhs, ab, *ldab, b, *ldb);
    const int more = *nrhs > *kd ? *nrhs : *kd;
    const int length = (band.each + 2 * *kd) * *kd + more * *kd + 1;
    double *work = take_doubles(length);

    pdpbsv_(uplo, n, kd, nrhs, band.band, &ONE, band.of_band, band.sides, &ONE, band.of_sides, work,
            &length, info);
    free(work);
    gather_sides(&band, *nrhs, b, *ldb);
}

void farcall_pddbsv_(const int *n, const int *kl, const int *ku, const int *nrhs, const double *ab,
                     const int *ldab, double *b, const int *ldb, int *info)
{
    const int wide = *kl > *ku ? *kl : *ku;
    struct band band =
        scatter_band(*n, *kl + *ku + 1, 0, 2 * wide > 1 ? 2 * wide : 1, *nrhs, ab, *ldab, b, *ldb);
    const int more = *nrhs > wide ? *nrhs : wide;
    /* The pddbtrsv inside writes beyond what pddbsv asks for: its columns are wide + kl long. */
    const int length = band.each * (*kl + *ku) + 6 * wide * wide + 2 * more * wide + 1;
    double *work = take_doubles(length);

    pddbsv_(n, kl, ku, nrhs, band.band, &ONE, band.of_band, band.sides, &ONE, band.of_sides, work,
            &length, info);
    free(work);
    gather_sides(&band, *nrhs, b, *ldb);
}

/* This process's part of a diagonal, of which the first process has the elements from `first` to
   n + first. Elements outside of 0 to `count` there do not exist. */
static double *scatter_diagonal(const struct band *band, const double *whole, int first, int count)
{
    double *own = take_doubles(band->each);

    memset(own, 0, sizeof(double) * band->each);
    for (int process = 0; process < band->processes; process++) {
        const int begin = begin_of(band, process), end = begin_of(band, process + 1);
        const int skipped = begin + first < 0 ? -(begin + first) : 0;
        const int last = least(end + first, count), length = last - (begin + first + skipped);
        const int sends = band->rank == 0 && process != 0;

        if (length <= 0)
            continue;
        if (sends)
            MPI_Send(whole + begin + first + skipped, length, MPI_DOUBLE, process, TAG,
                     MPI_COMM_WORLD);
        else if (process == band->rank && process != 0)
            MPI_Recv(own + skipped, length, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (process == band->rank)
            memcpy(own + skipped, whole + begin + first + skipped, length * sizeof(double));
    }
    return own;
}

/* Numbers that a tridiagonal solver works on. */
static int tridiagonal_work(const struct band *band, int nrhs)
{
    return 12 * band->processes + 3 * band->each +
           (10 + 2 * least(100, nrhs)) * band->processes + 4 * nrhs + 8 * band->processes;
}

void farcall_pddtsv_(const int *n, const int *nrhs, const double *dl, const double *d,
                     const double *du, double *b, const int *ldb, int *info)
{
    struct band band = scatter_band(*n, 0, 0, 2, *nrhs, NULL, 1, b, *ldb);
    double *diagonals[] = {scatter_diagonal(&band, dl, -1, *n - 1),
                           scatter_diagonal(&band, d, 0, *n),
                           scatter_diagonal(&band, du, 0, *n - 1)};
    const int length = tridiagonal_work(&band, *nrhs);
    double *work = take_doubles(length);

    pddtsv_(n, nrhs, diagonals[0], diagonals[1], diagonals[2], &ONE, band.of_band, band.sides, &ONE,
            band.of_sides, work, &length, info);
    free(work);
    for (int i = 0; i < 3; i++)
        free(diagonals[i]);
    gather_sides(&band, *nrhs, b, *ldb);
}

void farcall_pdptsv_(const int *n, const int *nrhs, const double *d, const double *e, double *b,
                     const int *ldb, int *info)
{
    struct band band = scatter_band(*n, 0, 0, 2, *nrhs, NULL, 1, b, *ldb);
    double *diagonals[] = {scatter_diagonal(&band, d, 0, *n),
                           scatter_diagonal(&band, e, 0, *n - 1)};
    const int length = tridiagonal_work(&band, *nrhs);
    double *work = take_doubles(length);

    pdptsv_(n, nrhs, diagonals[0], diagonals[1], &ONE, band.of_band, band.sides, &ONE,
            band.of_sides, work, &length, info);
    free(work);
    free(diagonals[0]);
    free(diagonals[1]);
    gather_sides(&band, *nrhs, b, *ldb);
}
