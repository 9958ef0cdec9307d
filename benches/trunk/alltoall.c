/* All-to-all of messages of 1 MB between all processes for some seconds. The first process prints
   the bytes a second that all of them together have sent. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

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
    MPI_Alltoall(out, bytes, MPI_CHAR, in, bytes, MPI_CHAR, MPI_COMM_WORLD);
    begun = MPI_Wtime();
    while (goes_on) {
        MPI_Alltoall(out, bytes, MPI_CHAR, in, bytes, MPI_CHAR, MPI_COMM_WORLD);
        rounds++;
        goes_on = MPI_Wtime() - begun < seconds;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%.0f\n", (double)rounds * size * (size - 1) * bytes / (MPI_Wtime() - begun));
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
