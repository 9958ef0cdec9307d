/* A program of MPI whose processes compute for a number of seconds of processor time, and add a
 * number up after every millisecond of it. Rank 0 prints the mean processor time of a process. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double processor(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int rounds = (int)(atof(argv[1]) * 1e3), size;
    double used, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < rounds; round++) {
        double until = processor() + 1e-3, one = 1;
        while (processor() < until) { }
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (sum != size)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    used = processor();
    MPI_Reduce(&used, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        printf("%.6f\n", sum / size);
    MPI_Finalize();
    return 0;
}
