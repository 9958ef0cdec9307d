/* What both parts of scalapack.idl's library share: processes, and memory or the end of all. */
#ifndef SCALAPACK_PROCESSES_H
#define SCALAPACK_PROCESSES_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { TAG = 1 };

extern void Cblacs_pinfo(int *rank, int *processes);
extern void Cblacs_get(int context, int what, int *value);
extern void Cblacs_gridinit(int *context, const char *order, int rows, int columns);
extern void Cblacs_gridinfo(int context, int *rows, int *columns, int *row, int *column);
extern void Cblacs_gridexit(int context);
extern MPI_Comm Cblacs2sys_handle(int handle);
extern int Cblacs_pnum(int context, int row, int column);

static const int ONE = 1;

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

static int least(int a, int b)
{
    return a < b ? a : b;
}

#endif
