/* Two MPI processes: 8 bytes one way in microseconds, then megabytes a second of messages of 64 KB
   and of 1 MB, each the median of seven rounds. Prints three numbers. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 7, TIMES = 20000, VOLUME = 256 << 20 };

static int rank;

static double latency(void)
{
    char word[8] = {0};
    double start = MPI_Wtime();
    for (int i = 0; i < TIMES; i++) {
        if (rank == 0) {
            MPI_Send(word, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(word, 8, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(word, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(word, 8, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - start) / TIMES / 2 * 1e6;
}

static double bandwidth(char *message, int bytes)
{
    int count = VOLUME / bytes;
    double start = MPI_Wtime();
    for (int i = 0; i < count; i++) {
        if (rank == 0)
            MPI_Send(message, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        else
            MPI_Recv(message, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return (double)bytes * count / (MPI_Wtime() - start) / 1e6;
}

static int order(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int count, char **arguments)
{
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *message = calloc(1, 1 << 20);
    double values[3][ROUNDS];
    if (message == NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Barrier(MPI_COMM_WORLD);
        values[0][round] = latency();
        values[1][round] = bandwidth(message, 64 << 10);
        values[2][round] = bandwidth(message, 1 << 20);
    }
    for (int row = 0; row < 3; row++) {
        qsort(values[row], ROUNDS, sizeof(double), order);
        if (rank == 0)
            printf("%g\n", values[row][ROUNDS / 2]);
    }
    free(message);
    MPI_Finalize();
    return 0;
}
