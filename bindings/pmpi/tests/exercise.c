/* Uses each kind of operation that the recorder supports. Other MPI programs work too. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

/* Rank 0 sends in `late` first, and rank 1 waits in `early` first. If a trace cannot tell the
 * communicators apart, the first receive takes the wrong message, and the last one waits for
 * ever. */
static void apart(int rank, MPI_Comm early, MPI_Comm late) {
    int a = 0, b = 0;
    MPI_Request request;
    if (rank == 0) {
        MPI_Send(&a, 1, MPI_INT, 1, 3, late);
        MPI_Recv(&b, 1, MPI_INT, 1, 4, late, MPI_STATUS_IGNORE);
        MPI_Send(&a, 1, MPI_INT, 1, 3, early);
    } else if (rank == 1) {
        MPI_Irecv(&a, 1, MPI_INT, 0, 3, early, &request);
        MPI_Recv(&b, 1, MPI_INT, 0, 3, late, MPI_STATUS_IGNORE);
        MPI_Send(&b, 1, MPI_INT, 0, 4, late);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

/* Communicators of the same members, made in each way. Only ranks 1 and 2 have used the first one
 * before. */
static void same_members(int rank, int size) {
    enum { KINDS = 7 };
    int a = 0, neighbour = (rank + 1) % size, from = (rank + size - 1) % size;
    int *index = malloc(sizeof(int) * size), *edges = malloc(sizeof(int) * size);
    for (int i = 0; i < size; i++)
        index[i] = i + 1, edges[i] = (i + 1) % size;
    if (rank == 1 && size > 2)
        MPI_Send(&a, 1, MPI_INT, 2, 0, MPI_COMM_WORLD);
    else if (rank == 2)
        MPI_Recv(&a, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm made[KINDS];
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &made[0]);
    MPI_Comm_dup(MPI_COMM_WORLD, &made[1]);
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &made[2]);
    MPI_Comm_idup(MPI_COMM_WORLD, &made[3], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &made[4]);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, MPI_UNWEIGHTED, 1, &neighbour,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made[5]);
    int one = 1;
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &one, &neighbour, MPI_UNWEIGHTED, MPI_INFO_NULL,
                          0, &made[6]);
    for (int i = 0; size > 1 && i < KINDS; i++)
        apart(rank, i == 0 ? MPI_COMM_WORLD : made[i - 1], made[i]);
    for (int i = 0; i < KINDS; i++)
        MPI_Comm_free(&made[i]);
    free(index);
    free(edges);
}

/* The ranks use communicators in different orders, and one is made of two others. */
static void unlike_use(int rank, int size) {
    if (size < 2)
        return;
    MPI_Comm half, between, merged, twin;
    MPI_Request request;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &between);
    MPI_Intercomm_merge(between, rank % 2, &merged);
    MPI_Comm_idup(merged, &twin, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    int mine, other;
    MPI_Comm_rank(merged, &mine);
    MPI_Comm_size(merged, &other);
    other -= 1; /* the last one, which is odd */
    MPI_Sendrecv(&mine, 1, MPI_INT, MPI_PROC_NULL, 0, &mine, 1, MPI_INT, MPI_PROC_NULL, 0,
                 rank == 0 ? twin : merged, MPI_STATUS_IGNORE);
    if (mine == 0) {
        MPI_Send(&mine, 1, MPI_INT, other, 1, twin);
        MPI_Send(&mine, 1, MPI_INT, other, 1, merged);
    } else if (mine == other) {
        MPI_Recv(&other, 1, MPI_INT, 0, 1, twin, MPI_STATUS_IGNORE);
        MPI_Recv(&other, 1, MPI_INT, 0, 1, merged, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&twin);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    int rank, size;
    static double a[4096], b[65536], c[65536];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    same_members(rank, size);
    unlike_use(rank, size);
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

    /* A communicator that is freed while messages in it are under way; another one is made. */
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Irecv(b, 10, MPI_DOUBLE, left, 11, twin, &request[0]);
    MPI_Isend(a, 10, MPI_DOUBLE, right, 11, twin, &request[1]);
    MPI_Comm_free(&twin);
    MPI_Comm_dup(MPI_COMM_WORLD, &half);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
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

    /* What is not recorded must be told. */
    MPI_Igather(a, 1, MPI_DOUBLE, b, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD, &request[0]);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
#if MPI_VERSION >= 4
    MPI_Iallreduce_c(a, b, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request[0]);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request[0]);
#else
    MPI_Send_init(a, 1, MPI_DOUBLE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request[0]);
#endif
    MPI_Start(&request[0]);
    MPI_Wait(&request[0], MPI_STATUS_IGNORE);
    MPI_Request_free(&request[0]);
    if (rank == 0)
        printf("done\n");
    MPI_Finalize();
    return 0;
}
