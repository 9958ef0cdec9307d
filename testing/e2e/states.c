/* Programs of MPI that wait for each other, for the state of a gang job.
 *
 *   states ring          each rank receives from the next one, and nobody sends
 *   states any           the same, from anybody
 *   states probe         the same, with MPI_Probe
 *   states ssend         two ranks send each other a message that nobody receives
 *   states large         the same with long messages, which stay with their sender
 *   states partial       ranks 0 and 1 receive from each other, the others compute for SECONDS
 *   states computes FILE      rank 0 computes while it has posted a receive, until there is the
 *                             file; the others wait
 *   states sleeps FILE        the same, but it sleeps
 *   states exchanges SECONDS  all exchange messages
 *
 * The last three end well. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LONG 1000000

static int rank, size;
static char out[LONG], in[LONG];

static double now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void compute(double seconds) {
    volatile double sum = 0;

    for (double end = now() + seconds; now() < end;)
        for (int step = 0; step < 10000; step++) sum += step;
}

static void receive(int source, int count, int tag) {
    MPI_Recv(in, count, MPI_BYTE, source, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Rank 0 does something until there is the file, for a minute at most, and then sends what the
 * others wait for. */
static void wait_for_rank_0(const char *file, int sleeps) {
    if (rank > 0) {
        receive(0, 8, 7);
        MPI_Send(out, 8, MPI_BYTE, 0, 8, MPI_COMM_WORLD);
        return;
    }
    MPI_Request request;
    MPI_Irecv(in, 8, MPI_BYTE, 1, 8, MPI_COMM_WORLD, &request);
    for (double end = now() + 60; access(file, F_OK) != 0 && now() < end;) {
        if (sleeps)
            usleep(500000);
        else
            compute(0.05);
    }
    for (int other = 1; other < size; other++)
        MPI_Send(out, 8, MPI_BYTE, other, 7, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int other = 2; other < size; other++) receive(other, 8, 8);
}

/* Short and long messages around the ring, to and from rank 0, and collective operations. */
static void exchange(double seconds) {
    static const int counts[] = {8, 4000, 20000, LONG};
    double end = now() + seconds;
    int next = (rank + 1) % size, before = (rank + size - 1) % size, goes_on = 1;

    for (int round = 0; goes_on; round++) {
        int count = counts[round % 4], one = rank, sum = 0;
        MPI_Request request;

        MPI_Irecv(in, count, MPI_BYTE, before, round, MPI_COMM_WORLD, &request);
        if (round % 3 == 0)
            MPI_Ssend(out, count, MPI_BYTE, next, round, MPI_COMM_WORLD);
        else
            MPI_Send(out, count, MPI_BYTE, next, round, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (sum != size * (size - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 9);
        /* The others wait, now and then for a while. */
        if (round % 100 == 50 && rank == round / 100 % size) compute(0.3);
        goes_on = now() < end;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *with = argc > 2 ? argv[2] : "0";
    double seconds = atof(with);
    int next, other;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    other = rank ^ 1;
    if (strcmp(what, "ring") == 0)
        receive(next, 8, 7);
    else if (strcmp(what, "any") == 0)
        receive(MPI_ANY_SOURCE, 8, 7);
    else if (strcmp(what, "probe") == 0)
        MPI_Probe(next, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (strcmp(what, "ssend") == 0)
        MPI_Ssend(out, 8, MPI_BYTE, other, 3, MPI_COMM_WORLD);
    else if (strcmp(what, "large") == 0)
        MPI_Send(out, LONG, MPI_BYTE, other, 3, MPI_COMM_WORLD);
    else if (strcmp(what, "partial") == 0)
        rank < 2 ? receive(other, 8, 7) : compute(seconds);
    else if (strcmp(what, "computes") == 0)
        wait_for_rank_0(with, 0);
    else if (strcmp(what, "sleeps") == 0)
        wait_for_rank_0(with, 1);
    else if (strcmp(what, "exchanges") == 0)
        exchange(seconds);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Finalize();
    return 0;
}
