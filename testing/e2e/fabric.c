/* Messages of MPI over the channels of a gang job: every kind that the provider of libfabric
 * distinguishes, with all payloads checked.
 *
 *   fabric ROUNDS [rma]     rma: also one-sided communication, where the MPI makes it of messages
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (3 << 20)

static int rank, size;
static unsigned char *out, *in;

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 9);
    }
}

static void fill(unsigned char *bytes, int count, int seed) {
    for (int place = 0; place < count; place++) bytes[place] = (unsigned char)(seed + place * 7);
}

static int is_filled(const unsigned char *bytes, int count, int seed) {
    for (int place = 0; place < count; place++)
        if (bytes[place] != (unsigned char)(seed + place * 7)) return 0;
    return 1;
}

/* All sizes around a ring, so that eager and offered messages take turns. */
static void ring(int round) {
    static const int sizes[] = {0,     1,     8,     100,   4000,  4096,
                                4097,  16000, 16384, 16385, 70000, LONGEST};
    int next = (rank + 1) % size, before = (rank + size - 1) % size;

    for (size_t step = 0; step < sizeof sizes / sizeof *sizes; step++) {
        MPI_Status status;
        int count;

        fill(out, sizes[step], rank + round);
        MPI_Sendrecv(out, sizes[step], MPI_BYTE, next, 1, in, LONGEST, MPI_BYTE, before, 1,
                     MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &count);
        check(count == sizes[step] && status.MPI_SOURCE == before, "a message around the ring");
        check(is_filled(in, count, before + round), "its bytes");
    }
}

/* Messages that come before their receives, in another order, and from anybody. */
static void probed(void) {
    int got = 0;

    if (rank > 0) {
        for (int tag = 0; tag < 3; tag++) {
            int value = rank * 10 + tag;
            MPI_Send(&value, 1, MPI_INT, 0, tag, MPI_COMM_WORLD);
        }
        return;
    }
    while (got < 3 * (size - 1)) {
        MPI_Status status;
        MPI_Message message;
        int value, count;

        if (got % 2 == 0) {
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            MPI_Mrecv(&value, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        }
        check(count == 1 && value == status.MPI_SOURCE * 10 + status.MPI_TAG, "a probed message");
        got++;
    }
}

static void cancelled(void) {
    MPI_Request request;
    MPI_Status status;
    int value = 0, flag = 0, next = (rank + 1) % size;

    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request);
    MPI_Iprobe(MPI_ANY_SOURCE, 78, MPI_COMM_WORLD, &flag, &status);
    check(flag == 0, "nothing is there to be probed");
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    check(flag, "a receive is cancelled");
    /* A synchronous send completes at its match. */
    MPI_Issend(&rank, 1, MPI_INT, next, 79, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Test(&request, &flag, &status);
    check(flag == 0, "a synchronous send waits for its receive");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 79, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(value == (rank + size - 1) % size, "the value of a synchronous send");
}

/* All send much before anybody receives, and the last message is wanted first. */
static void flood(int messages) {
    MPI_Request *requests = malloc((size_t)messages * sizeof *requests);
    int next = (rank + 1) % size, before = (rank + size - 1) % size, value = 0;
    int *values = malloc((size_t)messages * 256 * sizeof *values);

    check(requests != NULL && values != NULL, "memory");
    for (int number = 0; number < messages; number++) {
        values[number * 256] = number;
        MPI_Isend(&values[number * 256], 1 + number % 256, MPI_INT, next, 5, MPI_COMM_WORLD,
                  &requests[number]);
    }
    MPI_Send(&rank, 1, MPI_INT, next, 6, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, before, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check(value == before, "the last message of a flood");
    for (int number = 0; number < messages; number++) {
        int got[256];

        MPI_Recv(got, 256, MPI_INT, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(got[0] == number, "the order of a flood");
    }
    MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
    free(requests);
    free(values);
}

static void collectives(int round) {
    int count = 50000, sum = 0, one = rank + round;
    int *all = malloc((size_t)(size * 1000) * sizeof *all);
    int *mine = malloc((size_t)count * sizeof *mine);

    check(all != NULL && mine != NULL, "memory");
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(sum == size * (size - 1) / 2 + size * round, "a sum");
    for (int place = 0; place < count; place++)
        mine[place] = rank == round % size ? place + round : 0;
    MPI_Bcast(mine, count, MPI_INT, round % size, MPI_COMM_WORLD);
    for (int place = 0; place < count; place++) check(mine[place] == place + round, "a broadcast");
    for (int place = 0; place < 1000 * size; place++) all[place] = rank * size + place / 1000;
    MPI_Alltoall(MPI_IN_PLACE, 1000, MPI_INT, all, 1000, MPI_INT, MPI_COMM_WORLD);
    for (int place = 0; place < 1000 * size; place++)
        check(all[place] == place / 1000 * size + rank, "all to all");
    free(all);
    free(mine);
}

/* A message with gaps, which MPI packs. */
static void gaps(void) {
    MPI_Datatype columns;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    double values[40], got[20];

    for (int place = 0; place < 40; place++) values[place] = rank * 100 + place;
    MPI_Type_vector(20, 1, 2, MPI_DOUBLE, &columns);
    MPI_Type_commit(&columns);
    MPI_Sendrecv(values, 1, columns, next, 8, got, 20, MPI_DOUBLE, before, 8, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Type_free(&columns);
    for (int place = 0; place < 20; place++)
        check(got[place] == before * 100 + 2 * place, "a message with gaps");
}

static void one_sided(int round) {
    int *window, next = (rank + 1) % size, value = rank * 1000 + round, got = -1, one = 1;
    MPI_Win handle;

    MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &handle);
    memset(window, 0, 4 * sizeof(int));
    MPI_Win_fence(0, handle);
    MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, handle);
    MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, handle);
    MPI_Win_fence(0, handle);
    check(window[0] == (rank + size - 1) % size * 1000 + round, "a put");
    check(rank != 0 || window[1] == size, "an accumulation");
    MPI_Get(&got, 1, MPI_INT, next, 0, 1, MPI_INT, handle);
    MPI_Win_fence(0, handle);
    check(got == value, "a get");
    MPI_Win_free(&handle);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    out = malloc(LONGEST);
    in = malloc(LONGEST);
    check(out != NULL && in != NULL, "memory");
    for (int round = 0; round < rounds; round++) {
        ring(round);
        probed();
        MPI_Barrier(MPI_COMM_WORLD);
        cancelled();
        flood(2000);
        collectives(round);
        gaps();
        if (argc > 2 && strcmp(argv[2], "rma") == 0) one_sided(round);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == 0) printf("all is well with %d\n", size);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
