/* What scalapack.idl calls: ScaLAPACK behind LAPACK's interfaces.

   Every process of a call runs the same function. The first one has the arrays; a matrix is
   distributed block by block over a grid of processes (the block-cyclic distribution of ScaLAPACK)
   and comes back the same way. Blocks travel through a few small buffers while others are packed,
   so that besides the caller's array no process holds more than its own part of a matrix. */
#include "scalapack_processes.h"
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    BLOCK = 64,     /* rows and columns of a block */
    WINDOW = 8,     /* blocks under way from the first process */
    DESCRIPTOR = 9, /* integers of an array descriptor */
};

extern int numroc_(const int *n, const int *nb, const int *process, const int *source,
                   const int *processes);
extern void pdgesv_(const int *n, const int *nrhs, double *a, const int *ia, const int *ja,
                    const int *desca, int *ipiv, double *b, const int *ib, const int *jb,
                    const int *descb, int *info);
extern void pdposv_(const char *uplo, const int *n, const int *nrhs, double *a, const int *ia,
                    const int *ja, const int *desca, double *b, const int *ib, const int *jb,
                    const int *descb, int *info);
extern void pdsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *ia,
                    const int *ja, const int *desca, double *w, double *z, const int *iz,
                    const int *jz, const int *descz, double *work, const int *lwork, int *info);
extern void pdgesvd_(const char *jobu, const char *jobvt, const int *m, const int *n, double *a,
                     const int *ia, const int *ja, const int *desca, double *s, double *u,
                     const int *iu, const int *ju, const int *descu, double *vt, const int *ivt,
                     const int *jvt, const int *descvt, double *work, const int *lwork, int *info);

extern void pdgels_(const char *trans, const int *m, const int *n, const int *nrhs, double *a,
                    const int *ia, const int *ja, const int *desca, double *b, const int *ib,
                    const int *jb, const int *descb, double *work, const int *lwork, int *info);
extern void pdsyevd_(const char *jobz, const char *uplo, const int *n, double *a, const int *ia,
                     const int *ja, const int *desca, double *w, double *z, const int *iz,
                     const int *jz, const int *descz, double *work, const int *lwork, int *iwork,
                     const int *liwork, int *info);
extern void pdsyevx_(const char *jobz, const char *range, const char *uplo, const int *n, double *a,
                     const int *ia, const int *ja, const int *desca, const double *vl,
                     const double *vu, const int *il, const int *iu, const double *abstol, int *m,
                     int *nz, double *w, const double *orfac, double *z, const int *iz,
                     const int *jz, const int *descz, double *work, const int *lwork, int *iwork,
                     const int *liwork, int *ifail, int *iclustr, double *gap, int *info);
extern void pdgesvx_(const char *fact, const char *trans, const int *n, const int *nrhs, double *a,
                     const int *ia, const int *ja, const int *desca, double *af, const int *iaf,
                     const int *jaf, const int *descaf, int *ipiv, char *equed, double *r,
                     double *c, double *b, const int *ib, const int *jb, const int *descb,
                     double *x, const int *ix, const int *jx, const int *descx, double *rcond,
                     double *ferr, double *berr, double *work, const int *lwork, int *iwork,
                     const int *liwork, int *info);
extern void pdposvx_(const char *fact, const char *uplo, const int *n, const int *nrhs, double *a,
                     const int *ia, const int *ja, const int *desca, double *af, const int *iaf,
                     const int *jaf, const int *descaf, char *equed, double *sr, double *sc,
                     double *b, const int *ib, const int *jb, const int *descb, double *x,
                     const int *ix, const int *jx, const int *descx, double *rcond, double *ferr,
                     double *berr, double *work, const int *lwork, int *iwork, const int *liwork,
                     int *info);
struct grid {
    int context, rows, columns, row, column, is_first;
};

/* A distributed matrix: this process's part, by columns. */
struct matrix {
    int rows, columns, local_rows, local_columns;
    int descriptor[DESCRIPTOR];
    double *local;
};

/* The grid of all processes, as square as possible. It is made once. */
static const struct grid *the_grid(void)
{
    static struct grid grid;
    int rank, processes;

    if (grid.rows > 0)
        return &grid;
    Cblacs_pinfo(&rank, &processes);
    for (grid.rows = 1; (grid.rows + 1) * (grid.rows + 1) <= processes;)
        grid.rows++;
    while (processes % grid.rows != 0)
        grid.rows--;
    Cblacs_get(-1, 0, &grid.context);
    Cblacs_gridinit(&grid.context, "Row", grid.rows, processes / grid.rows);
    Cblacs_gridinfo(grid.context, &grid.rows, &grid.columns, &grid.row, &grid.column);
    grid.is_first = rank == 0;
    return &grid;
}

/* How many of n rows, or columns, one of `processes` processes has. */
static int part(int n, int process, int processes)
{
    const int block = BLOCK, source = 0;

    return numroc_(&n, &block, &process, &source, &processes);
}

static struct matrix new_matrix(const struct grid *grid, int rows, int columns)
{
    struct matrix matrix = {
        .rows = rows,
        .columns = columns,
        .local_rows = part(rows, grid->row, grid->rows),
        .local_columns = part(columns, grid->column, grid->columns),
    };
    const int lead = matrix.local_rows > 0 ? matrix.local_rows : 1;
    const int descriptor[DESCRIPTOR] = {1, grid->context, rows, columns, BLOCK, BLOCK, 0, 0, lead};

    memcpy(matrix.descriptor, descriptor, sizeof descriptor);
    matrix.local = take_doubles((size_t)lead * matrix.local_columns);
    return matrix;
}

/* A process's rows of one column of blocks, between the whole matrix and a buffer by columns. */
struct strip {
    int process_row, rows, first_column, columns;
};

static void copy_strip(const struct grid *grid, int rows, double *whole, int lead,
                       const struct strip *strip, double *buffer, int packs)
{
    for (int column = 0; column < strip->columns; column++) {
        double *in_whole = whole + (size_t)(strip->first_column + column) * lead;
        double *in_buffer = buffer + (size_t)column * strip->rows;

        for (int row = strip->process_row * BLOCK; row < rows; row += grid->rows * BLOCK) {
            const int count = least(BLOCK, rows - row);

            if (packs)
                memcpy(in_buffer, in_whole + row, count * sizeof(double));
            else
                memcpy(in_whole + row, in_buffer, count * sizeof(double));
            in_buffer += count;
        }
    }
}

/* This process's memory of a column of blocks. */
static double *local_strip(const struct matrix *matrix, const struct grid *grid, int block_column)
{
    return matrix->local + (size_t)(block_column / grid->columns) * BLOCK * matrix->local_rows;
}

/* The first process's matrix goes to all, strip by strip. */
static void scatter(const struct grid *grid, double *whole, int lead, struct matrix *matrix)
{
    const int widest = part(matrix->rows, 0, grid->rows);
    MPI_Request under_way[WINDOW];
    double *buffers[WINDOW] = {NULL};
    int next = 0;

    for (int i = 0; i < WINDOW; i++) {
        under_way[i] = MPI_REQUEST_NULL;
        if (grid->is_first)
            buffers[i] = take_doubles((size_t)widest * BLOCK);
    }
    for (int block = 0; block * BLOCK < matrix->columns; block++) {
        const int owner_column = block % grid->columns;
        const int columns = least(BLOCK, matrix->columns - block * BLOCK);

        for (int row = 0; row < grid->rows; row++) {
            const int rows = part(matrix->rows, row, grid->rows);
            const struct strip strip = {row, rows, block * BLOCK, columns};
            const int owner = Cblacs_pnum(grid->context, row, owner_column);
            const int mine = row == grid->row && owner_column == grid->column;

            if (grid->is_first && mine) {
                copy_strip(grid, matrix->rows, whole, lead, &strip,
                           local_strip(matrix, grid, block), 1);
            } else if (grid->is_first) {
                MPI_Wait(&under_way[next], MPI_STATUS_IGNORE);
                copy_strip(grid, matrix->rows, whole, lead, &strip, buffers[next], 1);
                MPI_Isend(buffers[next], strip.rows * columns, MPI_DOUBLE, owner, TAG,
                          MPI_COMM_WORLD, &under_way[next]);
                next = (next + 1) % WINDOW;
            } else if (mine) {
                MPI_Recv(local_strip(matrix, grid, block), strip.rows * columns, MPI_DOUBLE, 0,
                         TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
    }
    for (int i = 0; i < WINDOW; i++) {
        MPI_Wait(&under_way[i], MPI_STATUS_IGNORE);
        free(buffers[i]);
    }
}

/* And back. */
static void gather(const struct grid *grid, double *whole, int lead, struct matrix *matrix)
{
    const int widest = part(matrix->rows, 0, grid->rows);
    double *buffer = grid->is_first ? take_doubles((size_t)widest * BLOCK) : NULL;

    for (int block = 0; block * BLOCK < matrix->columns; block++) {
        const int owner_column = block % grid->columns;
        const int columns = least(BLOCK, matrix->columns - block * BLOCK);

        for (int row = 0; row < grid->rows; row++) {
            const int rows = part(matrix->rows, row, grid->rows);
            const struct strip strip = {row, rows, block * BLOCK, columns};
            const int owner = Cblacs_pnum(grid->context, row, owner_column);
            const int mine = row == grid->row && owner_column == grid->column;
            double *local = mine ? local_strip(matrix, grid, block) : NULL;

            if (grid->is_first && !mine)
                MPI_Recv(buffer, strip.rows * columns, MPI_DOUBLE, owner, TAG, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            if (grid->is_first)
                copy_strip(grid, matrix->rows, whole, lead, &strip, mine ? local : buffer, 0);
            else if (mine)
                MPI_Send(local, strip.rows * columns, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD);
        }
    }
    free(buffer);
}

/* Fills the first process's matrix where nothing was computed: the memory of a call may have the
   results of an earlier one. */
static void fill(const struct grid *grid, double *whole, int rows, int lead, int columns,
                 double value)
{
    for (int column = 0; grid->is_first && column < columns; column++)
        for (int row = 0; row < rows; row++)
            whole[(size_t)column * lead + row] = value;
}

/* The pivots of the rows, of which each process of the grid's first column has its own. */
static void gather_pivots(const struct grid *grid, int n, const int *local, int *pivots)
{
    int *buffer = take(sizeof(int) * (part(n, 0, grid->rows) + 1));

    for (int row = 0; row < grid->rows; row++) {
        const int count = part(n, row, grid->rows), owner = Cblacs_pnum(grid->context, row, 0);
        const int mine = row == grid->row && grid->column == 0;
        const int *from = buffer;

        if (mine && !grid->is_first)
            MPI_Send(local, count, MPI_INT, 0, TAG, MPI_COMM_WORLD);
        if (!grid->is_first)
            continue;
        if (mine)
            from = local;
        else
            MPI_Recv(buffer, count, MPI_INT, owner, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int first = row * BLOCK; first < n; first += grid->rows * BLOCK) {
            const int length = least(BLOCK, n - first);

            memcpy(pivots + first, from, length * sizeof(int));
            from += length;
        }
    }
    free(buffer);
}

void farcall_pdgesv_(const int *n, const int *nrhs, double *a, const int *lda, int *ipiv, double *b,
                     const int *ldb, int *info)
{
    const struct grid *grid = the_grid();
    struct matrix of_a = new_matrix(grid, *n, *n), of_b = new_matrix(grid, *n, *nrhs);
    int *pivots = take(sizeof(int) * (of_a.local_rows + BLOCK));

    scatter(grid, a, *lda, &of_a);
    scatter(grid, b, *ldb, &of_b);
    pdgesv_(n, nrhs, of_a.local, &ONE, &ONE, of_a.descriptor, pivots, of_b.local, &ONE, &ONE,
            of_b.descriptor, info);
    gather(grid, a, *lda, &of_a);
    gather(grid, b, *ldb, &of_b);
    gather_pivots(grid, *n, pivots, ipiv);
    free(pivots);
    free(of_a.local);
    free(of_b.local);
}

void farcall_pdposv_(const char *uplo, const int *n, const int *nrhs, double *a, const int *lda,
                     double *b, const int *ldb, int *info)
{
    const struct grid *grid = the_grid();
    struct matrix of_a = new_matrix(grid, *n, *n), of_b = new_matrix(grid, *n, *nrhs);

    scatter(grid, a, *lda, &of_a);
    scatter(grid, b, *ldb, &of_b);
    pdposv_(uplo, n, nrhs, of_a.local, &ONE, &ONE, of_a.descriptor, of_b.local, &ONE, &ONE,
            of_b.descriptor, info);
    gather(grid, a, *lda, &of_a);
    gather(grid, b, *ldb, &of_b);
    free(of_a.local);
    free(of_b.local);
}

void farcall_pdsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda,
                     double *w, double *z, const int *ldz, int *info)
{
    const struct grid *grid = the_grid();
    struct matrix of_a = new_matrix(grid, *n, *n), of_z = new_matrix(grid, *n, *n);
    double *values = take_doubles(*n), *work, best;
    int length = -1;

    scatter(grid, a, *lda, &of_a);
    pdsyev_(jobz, uplo, n, of_a.local, &ONE, &ONE, of_a.descriptor, values, of_z.local, &ONE, &ONE,
            of_z.descriptor, &best, &length, info);
    if (*info == 0) {
        length = (int)best;
        work = take_doubles(length);
        pdsyev_(jobz, uplo, n, of_a.local, &ONE, &ONE, of_a.descriptor, values, of_z.local, &ONE,
                &ONE, of_z.descriptor, work, &length, info);
        free(work);
        gather(grid, a, *lda, &of_a);
        if (toupper(*jobz) == 'V')
            gather(grid, z, *ldz, &of_z);
        if (grid->is_first)
            memcpy(w, values, *n * sizeof(double));
    } else {
        fill(grid, w, *n, *n, 1, NAN);
        fill(grid, z, *n, *ldz, toupper(*jobz) == 'V' ? *n : 0, NAN);
    }
    free(values);
    free(of_a.local);
    free(of_z.local);
}

void farcall_pdsyevd_(const char *uplo, const int *n, double *a, const int *lda, double *w,
                      double *z, const int *ldz, int *info)
{
    const struct grid *grid = the_grid();
    struct matrix of_a = new_matrix(grid, *n, *n), of_z = new_matrix(grid, *n, *n);
    double *values = take_doubles(*n), best;
    int length = -1, integers = -1;

    scatter(grid, a, *lda, &of_a);
    pdsyevd_("V", uplo, n, of_a.local, &ONE, &ONE, of_a.descriptor, values, of_z.local, &ONE, &ONE,
             of_z.descriptor, &best, &length, &integers, &integers, info);
    if (*info == 0) {
        /* The answer to the query is too small for the pdormtr and the pdlasrt inside if n is near
           the size of a block. Both then print an error and the vectors are wrong, with info 0. */
        length = (int)best + BLOCK * (BLOCK - 1) / 2 +
                 BLOCK * (BLOCK + of_a.local_rows + of_a.local_columns);
        integers += *n + 2 * BLOCK + 2 * grid->columns;
        double *work = take_doubles(length);
        int *more = take(sizeof(int) * integers);

        pdsyevd_("V", uplo, n, of_a.local, &ONE, &ONE, of_a.descriptor, values, of_z.local, &ONE,
                 &ONE, of_z.descriptor, work, &length, more, &integers, info);
        free(work);
        free(more);
        gather(grid, a, *lda, &of_a);
        gather(grid, z, *ldz, &of_z);
        if (grid->is_first)
            memcpy(w, values, *n * sizeof(double));
    } else {
        fill(grid, w, *n, *n, 1, NAN);
        fill(grid, z, *n, *ldz, *n, NAN);
    }
    free(values);
    free(of_a.local);
    free(of_z.local);
}

/* Eigenvectors of eigenvalues that are close to each other need n^2 numbers more to become
   orthogonal. They are taken when the routine says at some process that it had too little. */
static int lacks_memory(int info)
{
    const int not_orthogonal = 2;
    int lacks = info > 0 && info & not_orthogonal, some = 0;

    MPI_Allreduce(&lacks, &some, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return some;
}

void farcall_pdsyevx_(const char *jobz, const char *range, const char *uplo, const int *n,
                      double *a, const int *lda, const double *vl, const double *vu, const int *il,
                      const int *iu, const double *abstol, int *m, double *w, double *z,
                      const int *ldz, int *ifail, int *info)
{
    const struct grid *grid = the_grid();
    const int processes = grid->rows * grid->columns;
    const double usual = -1;
    struct matrix of_a = new_matrix(grid, *n, *n), of_z = new_matrix(grid, *n, *n);
    double *values = take_doubles(*n), *gaps = take_doubles(processes), best[3];
    int *failed = take(sizeof(int) * *n), *clusters = take(sizeof(int) * 2 * processes);
    int length = -1, integers = -1, vectors, least_integers;

    pdsyevx_(jobz, range, uplo, n, of_a.local, &ONE, &ONE, of_a.descriptor, vl, vu, il, iu, abstol,
             m, &vectors, values, &usual, of_z.local, &ONE, &ONE, of_z.descriptor, best, &length,
             &least_integers, &integers, failed, clusters, gaps, info);
    const int is_refused = *info < 0;

    if (is_refused) {
        *m = 0;
    } else {
        integers = least_integers;
        length = (int)best[0];
    }
    for (int tries = 0; !is_refused && tries < 2 && (tries == 0 || lacks_memory(*info)); tries++) {
        double *work = take_doubles(length);
        int *more = take(sizeof(int) * integers);

        scatter(grid, a, *lda, &of_a);
        memset(of_z.local, 0,
               sizeof(double) * of_z.descriptor[DESCRIPTOR - 1] * of_z.local_columns);
        memset(values, 0, sizeof(double) * *n);
        memset(failed, 0, sizeof(int) * *n);
        pdsyevx_(jobz, range, uplo, n, of_a.local, &ONE, &ONE, of_a.descriptor, vl, vu, il, iu,
                 abstol, m, &vectors, values, &usual, of_z.local, &ONE, &ONE, of_z.descriptor, work,
                 &length, more, &integers, failed, clusters, gaps, info);
        free(work);
        free(more);
        const double enough = length + (double)*n * *n;
        length = enough < INT_MAX ? (int)enough : INT_MAX;
    }
    if (toupper(*jobz) == 'V' && !is_refused)
        gather(grid, z, *ldz, &of_z);
    if (grid->is_first && !is_refused) {
        memcpy(w, values, *n * sizeof(double));
        memcpy(ifail, failed, *n * sizeof(int));
    } else if (grid->is_first) {
        fill(grid, w, *n, *n, 1, 0);
        fill(grid, z, *n, *ldz, toupper(*jobz) == 'V' ? *n : 0, 0);
        memset(ifail, 0, *n * sizeof(int));
    }
    free(values);
    free(gaps);
    free(failed);
    free(clusters);
    free(of_a.local);
    free(of_z.local);
}

/* Whether an option is one of these letters. With others, the caller has no room for results. */
static int is_one_of(char option, const char *letters)
{
    return option != '\0' && strchr(letters, toupper(option)) != NULL;
}

void farcall_pdgesvd_(const char *jobu, const char *jobvt, const int *m, const int *n, double *a,
                      const int *lda, double *s, double *u, const int *ldu, double *vt,
                      const int *ldvt, int *info)
{
    const struct grid *grid = the_grid();
    const int size = least(*m, *n);

    *info = !is_one_of(*jobu, "NS") ? -1 : !is_one_of(*jobvt, "NS") ? -2 : 0;
    fill(grid, s, size, size, 1, NAN);
    fill(grid, u, *m, *ldu, toupper(*jobu) == 'S' ? size : 0, NAN);
    fill(grid, vt, size, *ldvt, toupper(*jobvt) == 'S' ? *n : 0, NAN);
    if (*info != 0)
        return;
    /* ScaLAPACK says V where LAPACK says S. */
    const char has_u = toupper(*jobu) == 'N' ? 'N' : 'V';
    const char has_vt = toupper(*jobvt) == 'N' ? 'N' : 'V';
    struct matrix of_a = new_matrix(grid, *m, *n);
    struct matrix of_u = new_matrix(grid, *m, size), of_vt = new_matrix(grid, size, *n);
    double *values = take_doubles(size), *work, best;
    int length = -1;

    scatter(grid, a, *lda, &of_a);
    pdgesvd_(&has_u, &has_vt, m, n, of_a.local, &ONE, &ONE, of_a.descriptor, values, of_u.local,
             &ONE, &ONE, of_u.descriptor, of_vt.local, &ONE, &ONE, of_vt.descriptor, &best, &length,
             info);
    if (*info == 0) {
        length = (int)best;
        work = take_doubles(length);
        pdgesvd_(&has_u, &has_vt, m, n, of_a.local, &ONE, &ONE, of_a.descriptor, values, of_u.local,
                 &ONE, &ONE, of_u.descriptor, of_vt.local, &ONE, &ONE, of_vt.descriptor, work,
                 &length, info);
        free(work);
        gather(grid, a, *lda, &of_a);
        if (has_u == 'V')
            gather(grid, u, *ldu, &of_u);
        if (has_vt == 'V')
            gather(grid, vt, *ldvt, &of_vt);
        if (grid->is_first)
            memcpy(s, values, size * sizeof(double));
    }
    free(values);
    free(of_a.local);
    free(of_u.local);
    free(of_vt.local);
}

void farcall_pdgels_(const char *trans, const int *m, const int *n, const int *nrhs, double *a,
                     const int *lda, double *b, const int *ldb, int *info)
{
    const struct grid *grid = the_grid();
    const int rows = *m > *n ? *m : *n;
    struct matrix of_a = new_matrix(grid, *m, *n), of_b = new_matrix(grid, rows, *nrhs);
    double *work, best;
    int length = -1;

    scatter(grid, a, *lda, &of_a);
    scatter(grid, b, *ldb, &of_b);
    pdgels_(trans, m, n, nrhs, of_a.local, &ONE, &ONE, of_a.descriptor, of_b.local, &ONE, &ONE,
            of_b.descriptor, &best, &length, info);
    if (*info == 0) {
        length = (int)best;
        work = take_doubles(length);
        pdgels_(trans, m, n, nrhs, of_a.local, &ONE, &ONE, of_a.descriptor, of_b.local, &ONE, &ONE,
                of_b.descriptor, work, &length, info);
        free(work);
        gather(grid, a, *lda, &of_a);
        gather(grid, b, *ldb, &of_b);
    }
    free(of_a.local);
    free(of_b.local);
}

/* A linear system for an expert driver: the matrix, its factors, both sides, and what is told of
   each column of the solution. Nothing of it is the caller's. */
struct system {
    struct matrix a, factors, b, x, forward, backward;
    double *of_rows, *of_columns;
};

static struct system new_system(const struct grid *grid, int n, int nrhs, double *a, int lda,
                                double *b, int ldb)
{
    struct system system = {
        .a = new_matrix(grid, n, n),
        .factors = new_matrix(grid, n, n),
        .b = new_matrix(grid, n, nrhs),
        .x = new_matrix(grid, n, nrhs),
        .forward = new_matrix(grid, 1, nrhs),
        .backward = new_matrix(grid, 1, nrhs),
    };

    /* The pdlaqsy of pdposvx scales some columns beyond the last one. */
    free(system.a.local);
    system.a.local = take_doubles((size_t)system.a.descriptor[DESCRIPTOR - 1] *
                                  (system.a.local_columns + BLOCK));
    scatter(grid, a, lda, &system.a);
    scatter(grid, b, ldb, &system.b);
    system.of_rows = take_doubles(system.a.local_rows + BLOCK);
    system.of_columns = take_doubles(system.a.local_columns + BLOCK);
    return system;
}

/* What pdpocon and pdgecon need beyond the answers to the queries of the expert drivers. That of
   pdposvx is too small for two processes: some of them then take the matrix for singular. */
static int expert_work(const struct grid *grid, const struct matrix *a)
{
    return 2 * a->local_rows + 3 * a->local_columns + BLOCK * (grid->rows + grid->columns);
}

/* The solution goes to the first process, if there is one, and the system ends. With info n + 1
   the matrix is singular as far as doubles can tell, and there is a solution. */
static void end_system(const struct grid *grid, struct system *system, int n, double *x, int ldx,
                       double *ferr, double *berr, int info)
{
    struct matrix *all[] = {&system->a, &system->factors, &system->b,
                            &system->x, &system->forward, &system->backward};

    if (info == 0 || info == n + 1) {
        gather(grid, x, ldx, &system->x);
        gather(grid, ferr, 1, &system->forward);
        gather(grid, berr, 1, &system->backward);
    } else {
        fill(grid, x, n, ldx, system->b.columns, NAN);
        fill(grid, ferr, 1, 1, system->b.columns, NAN);
        fill(grid, berr, 1, 1, system->b.columns, NAN);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]->local);
    free(system->of_rows);
    free(system->of_columns);
}

void farcall_pdgesvx_(const char *fact, const char *trans, const int *n, const int *nrhs, double *a,
                      const int *lda, double *b, const int *ldb, double *x, const int *ldx,
                      double *rcond, double *ferr, double *berr, int *info)
{
    const struct grid *grid = the_grid();
    struct system of = new_system(grid, *n, *nrhs, a, *lda, b, *ldb);
    int *pivots = take(sizeof(int) * (of.a.local_rows + BLOCK));
    double best, *work = &best;
    int length = -1, integers = -1, most, *more = &most;
    char equed = 'N';

    *info = toupper(*fact) == 'F' ? -1 : 0;
    *rcond = NAN;
    for (int computes = 0; computes < 2 && *info == 0; computes++) {
        if (computes) {
            length = (int)best + expert_work(grid, &of.a);
            integers = most + of.a.local_rows + of.a.local_columns + BLOCK;
            work = take_doubles(length);
            more = take(sizeof(int) * integers);
        }
        pdgesvx_(fact, trans, n, nrhs, of.a.local, &ONE, &ONE, of.a.descriptor, of.factors.local,
                 &ONE, &ONE, of.factors.descriptor, pivots, &equed, of.of_rows, of.of_columns,
                 of.b.local, &ONE, &ONE, of.b.descriptor, of.x.local, &ONE, &ONE, of.x.descriptor,
                 rcond, of.forward.local, of.backward.local, work, &length, more, &integers, info);
    }
    if (work != &best) {
        free(work);
        free(more);
    }
    free(pivots);
    end_system(grid, &of, *n, x, *ldx, ferr, berr, *info);
}

void farcall_pdposvx_(const char *fact, const char *uplo, const int *n, const int *nrhs, double *a,
                      const int *lda, double *b, const int *ldb, double *x, const int *ldx,
                      double *rcond, double *ferr, double *berr, int *info)
{
    const struct grid *grid = the_grid();
    struct system of = new_system(grid, *n, *nrhs, a, *lda, b, *ldb);
    double best, *work = &best;
    int length = -1, integers = -1, most, *more = &most;
    char equed = 'N';

    *info = toupper(*fact) == 'F' ? -1 : 0;
    *rcond = NAN;
    for (int computes = 0; computes < 2 && *info == 0; computes++) {
        if (computes) {
            length = (int)best + expert_work(grid, &of.a);
            integers = most + of.a.local_rows + of.a.local_columns + BLOCK;
            work = take_doubles(length);
            more = take(sizeof(int) * integers);
        }
        pdposvx_(fact, uplo, n, nrhs, of.a.local, &ONE, &ONE, of.a.descriptor, of.factors.local,
                 &ONE, &ONE, of.factors.descriptor, &equed, of.of_rows, of.of_columns, of.b.local,
                 &ONE, &ONE, of.b.descriptor, of.x.local, &ONE, &ONE, of.x.descriptor, rcond,
                 of.forward.local, of.backward.local, work, &length, more, &integers, info);
    }
    if (work != &best) {
        free(work);
        free(more);
    }
    end_system(grid, &of, *n, x, *ldx, ferr, berr, *info);
}
