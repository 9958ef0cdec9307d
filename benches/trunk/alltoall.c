/* All-to-all of messages of 1 MB between all processes for some seconds. The first process prints
   the bytes a second that all of them together have sent. A process that waits sleeps between its
   looks, because all processes and their trunks share few processors. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAUSE_US = 200 };

static void finish(MPI_Request request)
{
    int done = 0;

    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        usleep(PAUSE_US);
    }
}

static void exchange(const char *out, char *in, int bytes)
{
    MPI_Request request;

    MPI_Ialltoall(out, bytes, MPI_CHAR, in, bytes, MPI_CHAR, MPI_COMM_WORLD, &request);
    finish(request);
}

int main(int argc, char **argv)
{
    const int bytes = 1 << 20;
    const double seconds = 5;
    int rank, size, rounds = 0, goes_on = 1;
    char *out, *in;
    double begun;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    out = calloc(size, bytes);
    in = calloc(size, bytes);
    exchange(out, in, bytes);
    begun = MPI_Wtime();
    while (goes_on) {
        MPI_Request request;

        exchange(out, in, bytes);
        rounds++;
        goes_on = MPI_Wtime() - begun < seconds;
        MPI_Ibcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        finish(request);
    }
    if (rank == 0)
        printf("%.0f\n", (double)rounds * size * (size - 1) * bytes / (MPI_Wtime() - begun));
    fflush(stdout);
    free(out);
    free(in);
    MPI_Barrier(MPI_COMM_WORLD);
    /* MPICH 4.0 over TCP of UCX may wait for ever in MPI_Finalize: some processes poll for the end
       of connections that others have closed. */
    _exit(0);
}
