/* What scalapack.idl calls: ScaLAPACK behind LAPACK's interfaces.

   Every process of a call runs the same function. The first one has the arrays; a matrix is
   distributed block by block over a grid of processes (the block-cyclic distribution of ScaLAPACK)
   and comes back the same way. Blocks travel through a few small buffers while others are packed,
   so that besides the caller's array no process holds more than its own part of a matrix. */
#include <ctype.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 64,     /* rows and columns of a block */
    WINDOW = 8,     /* blocks under way from the first process */
    TAG = 1,
    DESCRIPTOR = 9, /* integers of an array descriptor */
};

extern void Cblacs_pinfo(int *rank, int *processes);
extern void Cblacs_get(int context, int what, int *value);
extern void Cblacs_gridinit(int *context, const char *order, int rows, int columns);
extern void Cblacs_gridinfo(int context, int *rows, int *columns, int *row, int *column);
extern void Cblacs_gridexit(int context);
extern int Cblacs_pnum(int context, int row, int column);

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
extern void pdgbsv_(const int *n, const int *bwl, const int *bwu, const int *nrhs, double *a,
                    const int *ja, const int *desca, int *ipiv, double *b, const int *ib,
                    const int *descb, double *work, const int *lwork, int *info);
extern void pdpbsv_(const char *uplo, const int *n, const int *bw, const int *nrhs, double *a,
                    const int *ja, const int *desca, double *b, const int *ib, const int *descb,
                    double *work, const int *lwork, int *info);

static const int ONE = 1;

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

/* Memory, or the end of all processes: the others would wait for ever. */
static void *take(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);

    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static double *take_doubles(size_t count)
{
    return take(count * sizeof(double));
}

/* How many of n rows, or columns, one of `processes` processes has. */
static int part(int n, int process, int processes)
{
    const int block = BLOCK, source = 0;

    return numroc_(&n, &block, &process, &source, &processes);
}

static int least(int a, int b)
{
    return a < b ? a : b;
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
    }
    free(values);
    free(of_a.local);
    free(of_z.local);
}

void farcall_pdgesvd_(const char *jobu, const char *jobvt, const int *m, const int *n, double *a,
                      const int *lda, double *s, double *u, const int *ldu, double *vt,
                      const int *ldvt, int *info)
{
    const struct grid *grid = the_grid();
    const int size = least(*m, *n);
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
