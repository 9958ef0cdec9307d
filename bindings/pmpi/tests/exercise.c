/* Uses each kind of operation that the recorder supports. Other MPI programs work too. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size;
    static double a[4096], b[65536], c[65536];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Request request[4];
    MPI_Status status;

    /* A ring of nonblocking messages, received from any source. */
    MPI_Irecv(b, 1000, MPI_DOUBLE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &request[0]);
    MPI_Isend(a, 1000, MPI_DOUBLE, right, 5, MPI_COMM_WORLD, &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(a, 10, MPI_DOUBLE, left, 1, b, 10, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, &status);
    if (rank % 2 == 0 && rank + 1 < size)
        MPI_Send(a, 100, MPI_INT, rank + 1, 2, MPI_COMM_WORLD);
    else if (rank % 2 == 1)
        MPI_Recv(b, 100, MPI_INT, left, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);

    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(a, 100, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
    MPI_Reduce(a, b, 100, MPI_DOUBLE, MPI_SUM, 1 % size, MPI_COMM_WORLD);
    MPI_Allreduce(a, b, 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allgather(a, 10, MPI_DOUBLE, b, 10, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Alltoall(a, 16, MPI_DOUBLE, b, 16, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Gather(a, 7, MPI_DOUBLE, b, 7, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Scatter(b, 7, MPI_DOUBLE, a, 7, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Scan(a, b, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Exscan(a, b, 5, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    int counts[8], places[8];
    for (int k = 0; k < size; k++)
        counts[k] = 3, places[k] = 3 * k;
    MPI_Reduce_scatter(a, b, counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, a, counts, places, MPI_DOUBLE,
                  MPI_COMM_WORLD);

    /* A matched probe takes the message. Without it in the trace, nobody receives. */
    MPI_Message message;
    MPI_Isend(a, 10, MPI_DOUBLE, right, 6, MPI_COMM_WORLD, &request[0]);
    MPI_Mprobe(left, 6, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(b, 10, MPI_DOUBLE, &message, &status);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);

    /* A send that nobody waits for, whose handle may come back, and a receive that is cancelled. */
    for (int i = 0; i < 3; i++) {
        MPI_Isend(b, 60000, MPI_DOUBLE, right, 7, MPI_COMM_WORLD, &request[0]);
        MPI_Request_free(&request[0]);
        MPI_Recv(c, 60000, MPI_DOUBLE, left, 7, MPI_COMM_WORLD, &status);
        MPI_Irecv(c, 10, MPI_DOUBLE, left, 8, MPI_COMM_WORLD, &request[0]);
        MPI_Send(a, 10, MPI_DOUBLE, right, 8, MPI_COMM_WORLD);
        MPI_Wait(&request[0], &status);
    }
    MPI_Irecv(c, 10, MPI_DOUBLE, left, 10, MPI_COMM_WORLD, &request[0]);
    MPI_Cancel(&request[0]);
    MPI_Wait(&request[0], &status);

    /* Two halves with separate communicators, and a duplicate communicator with the same tags. */
    MPI_Comm half, twin;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_dup(half, &twin);
    MPI_Allreduce(a, b, 50, MPI_DOUBLE, MPI_SUM, half);
    int mine, members;
    MPI_Comm_rank(half, &mine);
    MPI_Comm_size(half, &members);
    MPI_Irecv(b, 30, MPI_DOUBLE, (mine + members - 1) % members, 9, twin, &request[0]);
    MPI_Irecv(b + 100, 20, MPI_DOUBLE, (mine + members - 1) % members, 9, half, &request[1]);
    MPI_Isend(a, 20, MPI_DOUBLE, (mine + 1) % members, 9, half, &request[2]);
    MPI_Isend(a, 30, MPI_DOUBLE, (mine + 1) % members, 9, twin, &request[3]);
    for (int i = 0; i < 4; i++) {
        int index;
        MPI_Waitany(4, request, &index, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&twin);
    MPI_Comm_free(&half);

    /* A communicator of other ranks, which may have the handle of one that was freed. */
    int pair[2] = {rank / 2 * 2, rank / 2 * 2 + 1}, count = pair[1] < size ? 2 : 1;
    MPI_Group world, two;
    MPI_Comm both;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, count, pair, &two);
    MPI_Comm_create_group(MPI_COMM_WORLD, two, 0, &both);
    int other = count == 2 ? 1 - rank % 2 : MPI_PROC_NULL;
    MPI_Sendrecv(a, 5, MPI_DOUBLE, other, 1, b, 5, MPI_DOUBLE, other, 1, both, &status);
    if (rank == 0)
        printf("done\n");
    MPI_Finalize();
    return 0;
}
