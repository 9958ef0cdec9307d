/* Records the messages of an unmodified MPI program as a GOAL trace.
 *
 *   mpicc -shared -fPIC -O2 -o libfarcall_record.so record.c
 *   export FARCALL_TRACE=app.goal
 *   mpirun -n 4 -x LD_PRELOAD=$PWD/libfarcall_record.so -x FARCALL_TRACE ./app      (Open MPI)
 *   mpirun -n 4 -genv LD_PRELOAD $PWD/libfarcall_record.so ./app                    (MPICH)
 *   farcall flow run --platform torus:2x2,bandwidth=1e9 --pattern goal:app.goal
 *
 * Every call goes through the MPI standard's profiling interface: this file defines MPI_X, which
 * calls the library's PMPI_X. The time between two calls becomes a calc of that many nanoseconds;
 * FARCALL_TRACE_CALC=0 omits computation. Point-to-point messages are recorded one by one. The
 * library's own messages for blocking collectives do not pass this interface. The recorder writes
 * the messages of a textbook algorithm instead, which the comment of each function names.
 *
 * Not recorded: one-sided and persistent communication, nonblocking and neighbourhood collectives,
 * collectives with large counts (MPI_X_c), sessions, intercommunicators, processes that
 * MPI_Comm_spawn has started, messages by concurrent threads, receives whose request is freed, and
 * Fortran bindings that do not call the C ones. The recorder reports the first use of the usual
 * ones of these.
 *
 * A tag consists of bit 31 for a collective, 11 bits for the communicator, and 20 bits for the
 * program's tag or the number of the collective. So messages of different communicators do not
 * match, unless a process makes more than 2,048 of them, which the recorder reports. It also
 * reports the first tag of the program that has more bits.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { SEND, RECEIVE };

/* A nonblocking operation in progress. */
struct request {
    MPI_Request handle;
    enum kind kind;
    long label; /* SEND: the operation. RECEIVE: `last` when it was posted. */
    size_t comm; /* index; the program may have freed the handle */
    long bytes;
};

struct communicator {
    MPI_Comm handle;
    uint32_t id; /* the same on all members; no other communicator of a member has it */
    uint32_t collectives;
    size_t pending; /* requests in progress, also after it was freed */
    int rank, size;
    int *world; /* world rank of each rank */
};

/* A communicator that MPI_Comm_idup makes. */
struct duplicate {
    MPI_Comm handle;
    MPI_Request agreed; /* the members agree on an id */
    int *numbers; /* what this process has said, and the result */
};

static FILE *out;
static int world_rank, world_size, recording, with_calc = 1;
static long next_label = 1, last; /* `last`: the next operation waits for it; 0: none */
static int64_t left_at; /* when the last MPI call returned */
static struct request *requests;
static size_t request_count, request_room;
static struct communicator *comms;
static size_t comm_count, comm_room;
static int next_id; /* larger than the id of each communicator of this process */
static struct duplicate *duplicates;
static size_t duplicate_count, duplicate_room;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "farcall record: rank %d: %s\n", world_rank, what);
    PMPI_Abort(MPI_COMM_WORLD, 1);
}

static void *grow(void *array, size_t *room, size_t count, size_t each) {
    if (count < *room)
        return array;
    *room = *room ? 2 * *room : 64;
    array = realloc(array, *room * each);
    if (!array)
        die("out of memory");
    return array;
}

/* ---- operations ---- */

static void needs(long later, long earlier) {
    if (earlier)
        fprintf(out, "l%ld requires l%ld\n", later, earlier);
}

static long calc(int64_t nanoseconds) {
    long label = next_label++;
    fprintf(out, "l%ld: calc %lld\n", label, (long long)nanoseconds);
    return label;
}

static long put_send(int to, long bytes, uint32_t tag, long after) {
    long label = next_label++;
    fprintf(out, "l%ld: send %ldb to %d tag %u\n", label, bytes, to, tag);
    needs(label, after);
    return label;
}

static long put_receive(int from, long bytes, uint32_t tag, long after) {
    long label = next_label++;
    fprintf(out, "l%ld: recv %ldb from %d tag %u\n", label, bytes, from, tag);
    needs(label, after);
    return label;
}

/* Makes the next operation wait for `label` and for `last`. */
static void join(long label) {
    if (!last) {
        last = label;
        return;
    }
    long both = calc(0);
    needs(both, last);
    needs(both, label);
    last = both;
}

/* The program calls MPI. The time since the previous call was computation. */
static void enter(void) {
    int64_t elapsed = now() - left_at;
    if (recording && with_calc && elapsed > 0) {
        long label = calc(elapsed);
        needs(label, last);
        last = label;
    }
}

static void leave(void) { left_at = now(); }

/* ---- communicators ---- */

static int is_unused(const struct communicator *c) {
    return c->handle == MPI_COMM_NULL && c->pending == 0;
}

/* The communicator without its id; NULL if it has members outside of MPI_COMM_WORLD. */
static struct communicator *add_communicator(MPI_Comm handle) {
    struct communicator c = {.handle = handle};
    PMPI_Comm_rank(handle, &c.rank);
    PMPI_Comm_size(handle, &c.size);
    c.world = malloc(sizeof(int) * c.size);
    int *all = malloc(sizeof(int) * c.size);
    if (!c.world || !all)
        die("out of memory");
    MPI_Group group, world;
    PMPI_Comm_group(handle, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int i = 0; i < c.size; i++)
        all[i] = i;
    PMPI_Group_translate_ranks(group, c.size, all, world, c.world);
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    free(all);
    for (int i = 0; i < c.size; i++)
        if (c.world[i] == MPI_UNDEFINED) {
            free(c.world);
            return NULL;
        }
    size_t place = 0;
    while (place < comm_count && !is_unused(&comms[place]))
        place++;
    if (place == comm_count)
        comms = grow(comms, &comm_room, comm_count++, sizeof *comms);
    else
        free(comms[place].world);
    comms[place] = c;
    return &comms[place];
}

static struct communicator *number(struct communicator *c, int id) {
    static int told;
    if (id >= next_id)
        next_id = id + 1;
    c->id = (uint32_t)id & 0x7ff;
    if (id > 0x7ff && !told++)
        fprintf(stderr,
                "farcall record: rank %d: more than 2,048 communicators: messages of different "
                "ones may match in the simulation\n",
                world_rank);
    return c;
}

static int is_inter(MPI_Comm handle) {
    int inter = 0;
    PMPI_Comm_test_inter(handle, &inter);
    return inter;
}

/* All members have made the communicator. They agree on the first id that none of them has used. */
static void made_communicator(MPI_Comm handle) {
    struct communicator *c = is_inter(handle) ? NULL : add_communicator(handle);
    if (!c)
        return;
    int id;
    PMPI_Allreduce(&next_id, &id, 1, MPI_INT, MPI_MAX, handle);
    number(c, id);
}

/* The members of `parent` begin to make a duplicate of it. They agree while the program goes on. */
static void begun_duplicate(MPI_Comm parent, MPI_Comm handle) {
    duplicates = grow(duplicates, &duplicate_room, duplicate_count, sizeof *duplicates);
    struct duplicate *d = &duplicates[duplicate_count++];
    d->handle = handle;
    d->numbers = malloc(2 * sizeof *d->numbers);
    if (!d->numbers)
        die("out of memory");
    d->numbers[0] = next_id++;
    PMPI_Iallreduce(&d->numbers[0], &d->numbers[1], 1, MPI_INT, MPI_MAX, parent, &d->agreed);
}

/* The duplicate with this handle, which the program uses for the first time; NULL if none. */
static struct communicator *finish_duplicate(MPI_Comm handle) {
    for (size_t i = 0; i < duplicate_count; i++) {
        struct duplicate d = duplicates[i];
        if (d.handle != handle)
            continue;
        duplicates[i] = duplicates[--duplicate_count];
        PMPI_Wait(&d.agreed, MPI_STATUS_IGNORE);
        int id = d.numbers[1];
        free(d.numbers);
        struct communicator *c = add_communicator(handle);
        return c ? number(c, id) : NULL;
    }
    return NULL;
}

/* The communicator; NULL if its messages are not recorded. */
static struct communicator *find(MPI_Comm handle) {
    static int told_inter, told_other;
    if (!recording)
        return NULL;
    for (size_t i = comm_count; i-- > 0;)
        if (comms[i].handle == handle)
            return &comms[i];
    if (is_inter(handle)) {
        if (!told_inter++)
            fprintf(stderr, "farcall record: intercommunicators are not recorded\n");
        return NULL;
    }
    struct communicator *c = finish_duplicate(handle);
    if (!c && !told_other++)
        fprintf(stderr,
                "farcall record: rank %d: communicators of sessions and of processes that "
                "MPI_Comm_spawn has started are not recorded\n",
                world_rank);
    return c;
}

/* Forgets a handle that the program frees, which MPI may give to another communicator. */
static void forget_communicator(MPI_Comm handle) {
    (void)finish_duplicate(handle);
    for (size_t i = 0; i < comm_count; i++)
        if (comms[i].handle == handle)
            comms[i].handle = MPI_COMM_NULL;
}

static uint32_t user_tag(const struct communicator *c, int tag) {
    static int told;
    if (tag > 0xfffff && !told++)
        fprintf(stderr,
                "farcall record: rank %d: tag %d has more than 20 bits, of which the trace keeps "
                "the last 20: messages with different tags may match in the simulation\n",
                world_rank, tag);
    return c->id << 20 | ((uint32_t)tag & 0xfffff);
}

static long bytes_of(MPI_Count count, MPI_Datatype type) {
    MPI_Count size = 0;
    PMPI_Type_size_x(type, &size);
    return (long)(count * size);
}

/* ---- start and end ---- */

static void begin(void) {
    const char *text = getenv("FARCALL_TRACE_CALC");
    with_calc = !(text && strcmp(text, "0") == 0);
    PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &world_size);
    /* Its trace would replace that of the processes that have started this one. */
    MPI_Comm parent;
    PMPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        if (world_rank == 0)
            fprintf(stderr, "farcall record: processes that MPI_Comm_spawn has started are not "
                            "recorded\n");
        return;
    }
    out = tmpfile();
    if (!out)
        die("cannot create a temporary file");
    number(add_communicator(MPI_COMM_WORLD), 0);
    number(add_communicator(MPI_COMM_SELF), 1);
    recording = 1;
    leave();
}

int MPI_Init(int *argc, char ***argv) {
    int r = PMPI_Init(argc, argv);
    begin();
    return r;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int r = PMPI_Init_thread(argc, argv, required, provided);
    begin();
    if (*provided == MPI_THREAD_MULTIPLE && world_rank == 0)
        fprintf(stderr, "farcall record: calls by concurrent threads are not recorded correctly\n");
    return r;
}

static void copy_own(FILE *to) {
    static char block[1 << 16];
    size_t n;
    rewind(out);
    while ((n = fread(block, 1, sizeof block, out)) > 0)
        fwrite(block, 1, n, to);
}

static void send_own(void) {
    static char block[1 << 16];
    int n;
    rewind(out);
    do {
        n = (int)fread(block, 1, sizeof block, out);
        PMPI_Send(block, n, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    } while (n > 0);
}

static void receive_others(FILE *to, int rank) {
    static char block[1 << 16];
    int n;
    do {
        MPI_Status status;
        PMPI_Recv(block, sizeof block, MPI_CHAR, rank, 0, MPI_COMM_WORLD, &status);
        PMPI_Get_count(&status, MPI_CHAR, &n);
        fwrite(block, 1, n, to);
    } while (n > 0);
}

int MPI_Finalize(void) {
    if (!recording)
        return PMPI_Finalize();
    enter();
    while (duplicate_count > 0)
        (void)finish_duplicate(duplicates[0].handle);
    recording = 0;
    if (fflush(out) != 0 || ferror(out))
        die("cannot write the temporary file of the trace: is the disk full?");
    PMPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0) {
        const char *name = getenv("FARCALL_TRACE");
        name = name ? name : "trace.goal";
        FILE *trace = fopen(name, "w");
        if (!trace) {
            perror(name);
            die("cannot write the trace");
        }
        fprintf(trace, "num_ranks %d\n", world_size);
        for (int rank = 0; rank < world_size; rank++) {
            fprintf(trace, "\nrank %d {\n", rank);
            if (rank == 0)
                copy_own(trace);
            else
                receive_others(trace, rank);
            fprintf(trace, "}\n");
        }
        int failed = ferror(trace);
        if (fclose(trace) != 0 || failed)
            die("cannot write the trace");
    } else {
        send_own();
    }
    fclose(out);
    return PMPI_Finalize();
}

/* ---- point to point ---- */

static void record_send(MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    struct communicator *c = to == MPI_PROC_NULL ? NULL : find(comm);
    if (!c)
        return;
    last = put_send(c->world[to], bytes_of(count, type), user_tag(c, tag), last);
}

static void record_received(const MPI_Status *status, const struct communicator *c, long bytes,
                            long after) {
    if (!c || status->MPI_SOURCE < 0 || status->MPI_SOURCE >= c->size)
        return; /* MPI_PROC_NULL */
    uint32_t tag = user_tag(c, status->MPI_TAG);
    long label = put_receive(c->world[status->MPI_SOURCE], bytes, tag, after);
    if (after == last)
        last = label;
    else
        join(label);
}

/* Defines MPI_X: enters, calls PMPI_X with the same arguments, records the result, leaves. */
#define RECORDED(name, parameters, arguments, before, after)                                       \
    int MPI_##name parameters {                                                                    \
        enter();                                                                                   \
        before;                                                                                    \
        int r = PMPI_##name arguments;                                                             \
        after;                                                                                     \
        leave();                                                                                   \
        return r;                                                                                  \
    }

/* `LARGE(define, name)` defines MPI_X_c too, which MPI has since version 4. */
#if MPI_VERSION >= 4
#define LARGE(define, name) define(name, int) define(name##_c, MPI_Count)
#else
#define LARGE(define, name) define(name, int)
#endif

#define BLOCKING_SEND(name, many)                                                                  \
    RECORDED(name,                                                                                 \
             (const void *buf, many count, MPI_Datatype type, int to, int tag, MPI_Comm comm),     \
             (buf, count, type, to, tag, comm), record_send(count, type, to, tag, comm), )
LARGE(BLOCKING_SEND, Send)
LARGE(BLOCKING_SEND, Ssend)
LARGE(BLOCKING_SEND, Rsend)
LARGE(BLOCKING_SEND, Bsend)

/* Copies the status to the program, unless it ignores it. */
static void tell(MPI_Status *wanted, const MPI_Status *own) {
    if (wanted != MPI_STATUS_IGNORE)
        *wanted = *own;
}

#define RECV(name, many)                                                                           \
    RECORDED(name,                                                                                 \
             (void *buf, many count, MPI_Datatype type, int from, int tag, MPI_Comm comm,          \
              MPI_Status *status),                                                                 \
             (buf, count, type, from, tag, comm, &own), MPI_Status own,                            \
             record_received(&own, find(comm), bytes_of(count, type), last);                       \
             tell(status, &own))
LARGE(RECV, Recv)

/* A matched probe takes the message; MPI_Mrecv only copies it. */
static void record_matched(const MPI_Status *status, MPI_Comm comm) {
    MPI_Count bytes = 0;
    PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
    record_received(status, find(comm), bytes == MPI_UNDEFINED ? 0 : (long)bytes, last);
}

RECORDED(Mprobe, (int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status),
         (from, tag, comm, message, &own), MPI_Status own, record_matched(&own, comm);
         tell(status, &own))
RECORDED(Improbe,
         (int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message, MPI_Status *status),
         (from, tag, comm, flag, message, &own), MPI_Status own, if (*flag) {
             record_matched(&own, comm);
             tell(status, &own);
         })

static void record_exchange(long sent, int to, int send_tag, const MPI_Status *status,
                            long received, MPI_Comm comm) {
    struct communicator *c = find(comm);
    long before = last, send = 0;
    if (c && to != MPI_PROC_NULL)
        send = put_send(c->world[to], sent, user_tag(c, send_tag), before);
    record_received(status, c, received, before);
    if (send)
        join(send);
}

#define SENDRECV(name, many)                                                                       \
    RECORDED(name,                                                                                 \
             (const void *sendbuf, many sendcount, MPI_Datatype sendtype, int to, int sendtag,     \
              void *recvbuf, many recvcount, MPI_Datatype recvtype, int from, int recvtag,         \
              MPI_Comm comm, MPI_Status *status),                                                  \
             (sendbuf, sendcount, sendtype, to, sendtag, recvbuf, recvcount, recvtype, from,       \
              recvtag, comm, &own),                                                                \
             MPI_Status own,                                                                       \
             record_exchange(bytes_of(sendcount, sendtype), to, sendtag, &own,                     \
                             bytes_of(recvcount, recvtype), comm);                                 \
             tell(status, &own))
LARGE(SENDRECV, Sendrecv)

#define SENDRECV_REPLACE(name, many)                                                               \
    RECORDED(name,                                                                                 \
             (void *buf, many count, MPI_Datatype type, int to, int sendtag, int from, int recvtag,\
              MPI_Comm comm, MPI_Status *status),                                                  \
             (buf, count, type, to, sendtag, from, recvtag, comm, &own), MPI_Status own,           \
             long bytes = bytes_of(count, type);                                                   \
             record_exchange(bytes, to, sendtag, &own, bytes, comm);                               \
             tell(status, &own))
LARGE(SENDRECV_REPLACE, Sendrecv_replace)

/* ---- nonblocking ---- */

static void add_request(MPI_Request handle, enum kind kind, long label, struct communicator *c,
                        long bytes) {
    if (handle == MPI_REQUEST_NULL || !c)
        return;
    c->pending++;
    requests = grow(requests, &request_room, request_count, sizeof *requests);
    requests[request_count++] = (struct request){handle, kind, label, (size_t)(c - comms), bytes};
}

/* Takes the request `handle` out of those in progress; 0 if it is not among them. */
static int take(MPI_Request handle, struct request *taken) {
    for (size_t i = 0; i < request_count; i++) {
        if (requests[i].handle != handle)
            continue;
        *taken = requests[i];
        comms[taken->comm].pending--;
        requests[i] = requests[--request_count];
        return 1;
    }
    return 0;
}

/* Records that the request `handle` is complete. The call may have changed the handle itself. */
static void complete(MPI_Request handle, const MPI_Status *status) {
    struct request done;
    int is_cancelled = 0;
    if (!take(handle, &done))
        return;
    if (done.kind == SEND) {
        join(done.label);
        return;
    }
    PMPI_Test_cancelled(status, &is_cancelled);
    if (!is_cancelled)
        record_received(status, &comms[done.comm], done.bytes, done.label);
}

/* Forgets the request `handle`, whose completion nobody is told. The library may give its handle to
 * another request. */
static void forget(MPI_Request handle) {
    static int told;
    struct request freed;
    if (take(handle, &freed) && freed.kind == RECEIVE && !told++)
        fprintf(stderr, "farcall record: rank %d: receives that are freed are not recorded\n",
                world_rank);
}

static void record_begun_send(MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                              MPI_Request request) {
    struct communicator *c = to == MPI_PROC_NULL ? NULL : find(comm);
    if (!c)
        return;
    long bytes = bytes_of(count, type);
    long label = put_send(c->world[to], bytes, user_tag(c, tag), last);
    add_request(request, SEND, label, c, bytes);
}

#define NONBLOCKING_SEND(name, many)                                                               \
    RECORDED(name,                                                                                 \
             (const void *buf, many count, MPI_Datatype type, int to, int tag, MPI_Comm comm,      \
              MPI_Request *request),                                                               \
             (buf, count, type, to, tag, comm, request), ,                                         \
             record_begun_send(count, type, to, tag, comm, *request))
LARGE(NONBLOCKING_SEND, Isend)
LARGE(NONBLOCKING_SEND, Issend)
LARGE(NONBLOCKING_SEND, Irsend)
LARGE(NONBLOCKING_SEND, Ibsend)

/* Written when it is complete, because the source and the tag are known only then. */
#define IRECV(name, many)                                                                          \
    RECORDED(name,                                                                                 \
             (void *buf, many count, MPI_Datatype type, int from, int tag, MPI_Comm comm,          \
              MPI_Request *request),                                                               \
             (buf, count, type, from, tag, comm, request), ,                                       \
             add_request(*request, RECEIVE, last, find(comm), bytes_of(count, type)))
LARGE(IRECV, Irecv)

/* Records that one request is complete, and gives the program its status. */
static void completed(MPI_Request handle, const MPI_Status *own, MPI_Status *wanted) {
    complete(handle, own);
    tell(wanted, own);
}

RECORDED(Wait, (MPI_Request *request, MPI_Status *status), (request, &own),
         MPI_Request handle = *request;
         MPI_Status own, completed(handle, &own, status))
RECORDED(Test, (MPI_Request *request, int *flag, MPI_Status *status), (request, flag, &own),
         MPI_Request handle = *request;
         MPI_Status own, if (*flag) completed(handle, &own, status))
RECORDED(Request_free, (MPI_Request *request), (request), MPI_Request handle = *request,
         forget(handle))

/* Copies of the handles, and memory for statuses, for the calls on several requests. */
static MPI_Request *handles;
static MPI_Status *statuses;
static size_t handle_room;

static void keep(int count, const MPI_Request *array) {
    if ((size_t)count > handle_room) {
        handle_room = count;
        handles = realloc(handles, sizeof *handles * handle_room);
        statuses = realloc(statuses, sizeof *statuses * handle_room);
        if (!handles || !statuses)
            die("out of memory");
    }
    memcpy(handles, array, sizeof *handles * count);
}

/* Records that `count` of the copied requests are complete: those at `indices`, or the first. */
static void completed_several(int count, const int *indices, MPI_Status *wanted) {
    for (int i = 0; i < count; i++)
        complete(handles[indices ? indices[i] : i], &statuses[i]);
    if (wanted != MPI_STATUSES_IGNORE)
        memcpy(wanted, statuses, sizeof *statuses * count);
}

/* Records that the request at `index` is complete, unless none was in progress. */
static void completed_any(int index, const MPI_Status *own, MPI_Status *wanted) {
    if (index != MPI_UNDEFINED)
        complete(handles[index], own);
    tell(wanted, own);
}

RECORDED(Waitall, (int count, MPI_Request array[], MPI_Status *status), (count, array, statuses),
         keep(count, array), completed_several(count, NULL, status))
RECORDED(Testall, (int count, MPI_Request array[], int *flag, MPI_Status *status),
         (count, array, flag, statuses), keep(count, array),
         if (*flag) completed_several(count, NULL, status))
RECORDED(Waitany, (int count, MPI_Request array[], int *index, MPI_Status *status),
         (count, array, index, &own), MPI_Status own;
         keep(count, array), completed_any(*index, &own, status))
RECORDED(Testany, (int count, MPI_Request array[], int *index, int *flag, MPI_Status *status),
         (count, array, index, flag, &own), MPI_Status own;
         keep(count, array), if (*flag) completed_any(*index, &own, status))

#define SOME(name)                                                                                 \
    RECORDED(name,                                                                                 \
             (int count, MPI_Request array[], int *done, int indices[], MPI_Status *status),       \
             (count, array, done, indices, statuses), keep(count, array),                          \
             if (*done != MPI_UNDEFINED) completed_several(*done, indices, status))
SOME(Waitsome)
SOME(Testsome)

/* ---- communicators: registered at creation, in the same order at all members ---- */

#define MADE(name, parameters, arguments)                                                          \
    RECORDED(name, parameters, arguments, struct communicator *parent = find(comm),                \
             if (r == MPI_SUCCESS && parent && *made != MPI_COMM_NULL) made_communicator(*made))
MADE(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
MADE(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *made), (comm, info, made))
MADE(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made))
MADE(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made),
     (comm, type, key, info, made))
MADE(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made))
MADE(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made),
     (comm, group, tag, made))
MADE(Cart_create,
     (MPI_Comm comm, int n, const int dims[], const int periods[], int reorder, MPI_Comm *made),
     (comm, n, dims, periods, reorder, made))
MADE(Cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm *made), (comm, remain, made))
MADE(Graph_create,
     (MPI_Comm comm, int n, const int index[], const int edges[], int reorder, MPI_Comm *made),
     (comm, n, index, edges, reorder, made))
MADE(Dist_graph_create,
     (MPI_Comm comm, int n, const int sources[], const int degrees[], const int destinations[],
      const int weights[], MPI_Info info, int reorder, MPI_Comm *made),
     (comm, n, sources, degrees, destinations, weights, info, reorder, made))
MADE(Dist_graph_create_adjacent,
     (MPI_Comm comm, int in, const int sources[], const int in_weights[], int out_degree,
      const int destinations[], const int out_weights[], MPI_Info info, int reorder,
      MPI_Comm *made),
     (comm, in, sources, in_weights, out_degree, destinations, out_weights, info, reorder, made))
RECORDED(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), (comm, high, made), ,
         if (recording && r == MPI_SUCCESS) made_communicator(*made))

#define DUPLICATED(name, parameters, arguments)                                                    \
    RECORDED(name, parameters, arguments, struct communicator *parent = find(comm),                \
             if (r == MPI_SUCCESS && parent) begun_duplicate(comm, *made))
DUPLICATED(Comm_idup, (MPI_Comm comm, MPI_Comm *made, MPI_Request *request),
           (comm, made, request))
#if MPI_VERSION >= 4
DUPLICATED(Comm_idup_with_info,
           (MPI_Comm comm, MPI_Info info, MPI_Comm *made, MPI_Request *request),
           (comm, info, made, request))
#endif

RECORDED(Comm_free, (MPI_Comm *comm), (comm), forget_communicator(*comm), )
RECORDED(Comm_disconnect, (MPI_Comm *comm), (comm), forget_communicator(*comm), )

/* ---- collectives ---- */

static uint32_t collective_tag(struct communicator *c) {
    return UINT32_C(1) << 31 | c->id << 20 | (c->collectives++ & 0xfffff);
}

/* A send and a receive at the same time; -1 for none. */
static void step(const struct communicator *c, uint32_t tag, int to, long sent, int from,
                 long received) {
    long before = last, send = 0;
    if (to >= 0)
        send = put_send(c->world[to], sent, tag, before);
    if (from >= 0)
        last = put_receive(c->world[from], received, tag, before);
    if (send && from >= 0)
        join(send);
    else if (send)
        last = send;
}

/* Dissemination. */
static void record_barrier(struct communicator *c) {
    uint32_t tag = collective_tag(c);
    for (int k = 1; k < c->size; k <<= 1)
        step(c, tag, (c->rank + k) % c->size, 1, (c->rank - k + c->size) % c->size, 1);
}

/* Binomial tree from the root. */
static void record_bcast(struct communicator *c, long bytes, int root) {
    uint32_t tag = collective_tag(c);
    int n = c->size, me = (c->rank - root + n) % n, k = 1;
    for (; k <= me; k <<= 1)
        ;
    if (me > 0)
        step(c, tag, -1, 0, (me - (k >> 1) + root) % n, bytes);
    for (; me + k < n; k <<= 1)
        step(c, tag, (me + k + root) % n, bytes, -1, 0);
}

/* Binomial tree to the root. */
static void record_reduce(struct communicator *c, long bytes, int root) {
    uint32_t tag = collective_tag(c);
    int n = c->size, me = (c->rank - root + n) % n;
    for (int k = 1; k < n; k <<= 1) {
        if (me & k) {
            step(c, tag, (me - k + root) % n, bytes, -1, 0);
            return;
        }
        if (me + k < n)
            step(c, tag, -1, 0, (me + k + root) % n, bytes);
    }
}

/* Recursive doubling, or reduce and broadcast if the size is not a power of two. */
static void record_allreduce(struct communicator *c, long bytes) {
    if (c->size & (c->size - 1)) {
        record_reduce(c, bytes, 0);
        record_bcast(c, bytes, 0);
        return;
    }
    uint32_t tag = collective_tag(c);
    for (int k = 1; k < c->size; k <<= 1)
        step(c, tag, c->rank ^ k, bytes, c->rank ^ k, bytes);
}

/* Ring. If `counts` is null, all counts are the same. */
static void record_allgather(struct communicator *c, long each, const int *counts,
                             MPI_Datatype type) {
    uint32_t tag = collective_tag(c);
    int n = c->size, right = (c->rank + 1) % n, left = (c->rank - 1 + n) % n;
    for (int k = 0; k + 1 < n; k++) {
        int mine = (c->rank - k + n) % n, next = (c->rank - k - 1 + 2 * n) % n;
        long sent = counts ? bytes_of(counts[mine], type) : each;
        long received = counts ? bytes_of(counts[next], type) : each;
        step(c, tag, right, sent, left, received);
    }
}

/* Simple spread. If the counts are null, all are the same. */
static void record_alltoall(struct communicator *c, long each, const int *sendcounts,
                            MPI_Datatype sendtype, const int *recvcounts, MPI_Datatype recvtype) {
    uint32_t tag = collective_tag(c);
    for (int k = 1; k < c->size; k++) {
        int to = (c->rank + k) % c->size, from = (c->rank - k + c->size) % c->size;
        step(c, tag, to, sendcounts ? bytes_of(sendcounts[to], sendtype) : each, from,
             recvcounts ? bytes_of(recvcounts[from], recvtype) : each);
    }
}

/* Simple spread with a type for each rank. */
static void record_alltoallw(struct communicator *c, const int *sendcounts,
                             const MPI_Datatype *sendtypes, const int *recvcounts,
                             const MPI_Datatype *recvtypes) {
    uint32_t tag = collective_tag(c);
    for (int k = 1; k < c->size; k++) {
        int to = (c->rank + k) % c->size, from = (c->rank - k + c->size) % c->size;
        step(c, tag, to, bytes_of(sendcounts[to], sendtypes[to]), from,
             bytes_of(recvcounts[from], recvtypes[from]));
    }
}

/* Every rank sends to the root, or the root to every rank, one after the other. */
static void record_rooted(struct communicator *c, int root, int gather, long each,
                          const int *counts, MPI_Datatype type) {
    uint32_t tag = collective_tag(c);
    if (c->rank != root) {
        step(c, tag, gather ? root : -1, each, gather ? -1 : root, each);
        return;
    }
    for (int i = 0; i < c->size; i++) {
        long bytes = counts ? bytes_of(counts[i], type) : each;
        if (i != root)
            step(c, tag, gather ? -1 : i, bytes, gather ? i : -1, bytes);
    }
}

/* Chain along the ranks. */
static void record_scan(struct communicator *c, long bytes) {
    uint32_t tag = collective_tag(c);
    if (c->rank > 0)
        step(c, tag, -1, 0, c->rank - 1, bytes);
    if (c->rank + 1 < c->size)
        step(c, tag, c->rank + 1, bytes, -1, 0);
}

#define COLLECTIVE(name, parameters, arguments, record)                                            \
    RECORDED(name, parameters, arguments, struct communicator *c = find(comm); if (c) record, )

COLLECTIVE(Barrier, (MPI_Comm comm), (comm), record_barrier(c))
COLLECTIVE(Bcast, (void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm),
           (buf, count, type, root, comm), record_bcast(c, bytes_of(count, type), root))
COLLECTIVE(Reduce,
           (const void *in, void *res, int count, MPI_Datatype type, MPI_Op op, int root,
            MPI_Comm comm),
           (in, res, count, type, op, root, comm), record_reduce(c, bytes_of(count, type), root))
COLLECTIVE(Allreduce,
           (const void *in, void *res, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (in, res, count, type, op, comm), record_allreduce(c, bytes_of(count, type)))
COLLECTIVE(Reduce_scatter_block,
           (const void *in, void *res, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (in, res, count, type, op, comm),
           record_alltoall(c, bytes_of(count, type), NULL, type, NULL, type))
COLLECTIVE(Reduce_scatter,
           (const void *in, void *res, const int counts[], MPI_Datatype type, MPI_Op op,
            MPI_Comm comm),
           (in, res, counts, type, op, comm),
           record_alltoall(c, bytes_of(counts[c->rank], type), counts, type, NULL, type))
COLLECTIVE(Exscan,
           (const void *in, void *res, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (in, res, count, type, op, comm), record_scan(c, bytes_of(count, type)))
COLLECTIVE(Scan,
           (const void *in, void *res, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
           (in, res, count, type, op, comm), record_scan(c, bytes_of(count, type)))
COLLECTIVE(Allgather,
           (const void *in, int sendcount, MPI_Datatype sendtype, void *res, int recvcount,
            MPI_Datatype recvtype, MPI_Comm comm),
           (in, sendcount, sendtype, res, recvcount, recvtype, comm),
           record_allgather(c, bytes_of(recvcount, recvtype), NULL, recvtype))
COLLECTIVE(Allgatherv,
           (const void *in, int sendcount, MPI_Datatype sendtype, void *res, const int counts[],
            const int displs[], MPI_Datatype recvtype, MPI_Comm comm),
           (in, sendcount, sendtype, res, counts, displs, recvtype, comm),
           record_allgather(c, 0, counts, recvtype))
COLLECTIVE(Alltoall,
           (const void *in, int sendcount, MPI_Datatype sendtype, void *res, int recvcount,
            MPI_Datatype recvtype, MPI_Comm comm),
           (in, sendcount, sendtype, res, recvcount, recvtype, comm),
           record_alltoall(c, bytes_of(recvcount, recvtype), NULL, recvtype, NULL, recvtype))
COLLECTIVE(Alltoallv,
           (const void *in, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype,
            void *res, const int recvcounts[], const int rdispls[], MPI_Datatype recvtype,
            MPI_Comm comm),
           (in, sendcounts, sdispls, sendtype, res, recvcounts, rdispls, recvtype, comm),
           record_alltoall(c, 0, in == MPI_IN_PLACE ? recvcounts : sendcounts,
                           in == MPI_IN_PLACE ? recvtype : sendtype, recvcounts, recvtype))
COLLECTIVE(Alltoallw,
           (const void *in, const int sendcounts[], const int sdispls[],
            const MPI_Datatype sendtypes[], void *res, const int recvcounts[], const int rdispls[],
            const MPI_Datatype recvtypes[], MPI_Comm comm),
           (in, sendcounts, sdispls, sendtypes, res, recvcounts, rdispls, recvtypes, comm),
           record_alltoallw(c, in == MPI_IN_PLACE ? recvcounts : sendcounts,
                            in == MPI_IN_PLACE ? recvtypes : sendtypes, recvcounts, recvtypes))

/* Counts and types of the root are valid only at the root. */
COLLECTIVE(Gather,
           (const void *in, int sendcount, MPI_Datatype sendtype, void *res, int recvcount,
            MPI_Datatype recvtype, int root, MPI_Comm comm),
           (in, sendcount, sendtype, res, recvcount, recvtype, root, comm),
           record_rooted(c, root, 1,
                         c->rank == root ? bytes_of(recvcount, recvtype)
                                         : bytes_of(sendcount, sendtype),
                         NULL, sendtype))
COLLECTIVE(Gatherv,
           (const void *in, int sendcount, MPI_Datatype sendtype, void *res, const int counts[],
            const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm),
           (in, sendcount, sendtype, res, counts, displs, recvtype, root, comm),
           record_rooted(c, root, 1, c->rank == root ? 0 : bytes_of(sendcount, sendtype), counts,
                         recvtype))
COLLECTIVE(Scatter,
           (const void *in, int sendcount, MPI_Datatype sendtype, void *res, int recvcount,
            MPI_Datatype recvtype, int root, MPI_Comm comm),
           (in, sendcount, sendtype, res, recvcount, recvtype, root, comm),
           record_rooted(c, root, 0,
                         c->rank == root ? bytes_of(sendcount, sendtype)
                                         : bytes_of(recvcount, recvtype),
                         NULL, recvtype))
COLLECTIVE(Scatterv,
           (const void *in, const int counts[], const int displs[], MPI_Datatype sendtype,
            void *res, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
           (in, counts, displs, sendtype, res, recvcount, recvtype, root, comm),
           record_rooted(c, root, 0, c->rank == root ? 0 : bytes_of(recvcount, recvtype), counts,
                         sendtype))

/* ---- not recorded ---- */

static void omitted(int *told, const char *name) {
    if (!(*told)++)
        fprintf(stderr, "farcall record: rank %d: %s is not recorded\n", world_rank, name);
}

#define OMITTED(name, parameters, arguments)                                                       \
    RECORDED(name, parameters, arguments, static int told; omitted(&told, "MPI_" #name), )

OMITTED(Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request))
/* Collectives and messages in parts can be persistent, too. */
OMITTED(Start, (MPI_Request *request), (request))
OMITTED(Startall, (int count, MPI_Request array[]), (count, array))
OMITTED(Fetch_and_op,
        (const void *buf, void *res, MPI_Datatype type, int target_rank, MPI_Aint target_disp,
         MPI_Op op, MPI_Win win),
        (buf, res, type, target_rank, target_disp, op, win))
OMITTED(Compare_and_swap,
        (const void *buf, const void *compare_addr, void *res, MPI_Datatype type, int target_rank,
         MPI_Aint target_disp, MPI_Win win),
        (buf, compare_addr, res, type, target_rank, target_disp, win))

/* Operations with counts and displacements: those of MPI_X and, since version 4, of MPI_X_c. */
#define OMITTED_WITH_COUNTS(define, many, place)                                                   \
    define(Ibcast,                                                                                 \
           (void *buf, many count, MPI_Datatype type, int root, MPI_Comm comm,                     \
            MPI_Request *request),                                                                 \
           (buf, count, type, root, comm, request))                                                \
    define(Ireduce,                                                                                \
           (const void *in, void *res, many count, MPI_Datatype type, MPI_Op op, int root,         \
            MPI_Comm comm, MPI_Request *request),                                                  \
           (in, res, count, type, op, root, comm, request))                                        \
    define(Iallreduce,                                                                             \
           (const void *in, void *res, many count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,    \
            MPI_Request *request),                                                                 \
           (in, res, count, type, op, comm, request))                                              \
    define(Iallgather,                                                                             \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),                           \
           (in, sendcount, sendtype, res, recvcount, recvtype, comm, request))                     \
    define(Ialltoall,                                                                              \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),                           \
           (in, sendcount, sendtype, res, recvcount, recvtype, comm, request))                     \
    define(Ialltoallv,                                                                             \
           (const void *in, const many sendcounts[], const place sdispls[],                        \
            MPI_Datatype sendtype, void *res, const many recvcounts[], const place rdispls[],      \
            MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),                           \
           (in, sendcounts, sdispls, sendtype, res, recvcounts, rdispls, recvtype, comm,           \
            request))                                                                              \
    define(Neighbor_allgather,                                                                     \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, MPI_Comm comm),                                                 \
           (in, sendcount, sendtype, res, recvcount, recvtype, comm))                              \
    define(Neighbor_alltoall,                                                                      \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, MPI_Comm comm),                                                 \
           (in, sendcount, sendtype, res, recvcount, recvtype, comm))                              \
    define(Send_init,                                                                              \
           (const void *buf, many count, MPI_Datatype type, int to, int tag, MPI_Comm comm,        \
            MPI_Request *request),                                                                 \
           (buf, count, type, to, tag, comm, request))                                             \
    define(Recv_init,                                                                              \
           (void *buf, many count, MPI_Datatype type, int from, int tag, MPI_Comm comm,            \
            MPI_Request *request),                                                                 \
           (buf, count, type, from, tag, comm, request))                                           \
    define(Put,                                                                                    \
           (const void *buf, many count, MPI_Datatype type, int to, MPI_Aint at, many there,       \
            MPI_Datatype target, MPI_Win win),                                                     \
           (buf, count, type, to, at, there, target, win))                                         \
    define(Get,                                                                                    \
           (void *buf, many count, MPI_Datatype type, int from, MPI_Aint at, many there,           \
            MPI_Datatype target, MPI_Win win),                                                     \
           (buf, count, type, from, at, there, target, win))                                       \
    define(Accumulate,                                                                             \
           (const void *buf, many count, MPI_Datatype type, int to, MPI_Aint at, many there,       \
            MPI_Datatype target, MPI_Op op, MPI_Win win),                                          \
           (buf, count, type, to, at, there, target, op, win))                                     \
    define(Igather,                                                                                \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request *request),                 \
           (in, sendcount, sendtype, res, recvcount, recvtype, root, comm, request))               \
    define(Igatherv,                                                                               \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res,                      \
            const many recvcounts[], const place displs[], MPI_Datatype recvtype, int root,        \
            MPI_Comm comm, MPI_Request *request),                                                  \
           (in, sendcount, sendtype, res, recvcounts, displs, recvtype, root, comm, request))      \
    define(Iscatter,                                                                               \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request *request),                 \
           (in, sendcount, sendtype, res, recvcount, recvtype, root, comm, request))               \
    define(Iscatterv,                                                                              \
           (const void *in, const many sendcounts[], const place displs[],                         \
            MPI_Datatype sendtype, void *res, many recvcount, MPI_Datatype recvtype, int root,     \
            MPI_Comm comm, MPI_Request *request),                                                  \
           (in, sendcounts, displs, sendtype, res, recvcount, recvtype, root, comm, request))      \
    define(Iallgatherv,                                                                            \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res,                      \
            const many recvcounts[], const place displs[], MPI_Datatype recvtype, MPI_Comm comm,   \
            MPI_Request *request),                                                                 \
           (in, sendcount, sendtype, res, recvcounts, displs, recvtype, comm, request))            \
    define(Ialltoallw,                                                                             \
           (const void *in, const many sendcounts[], const place sdispls[],                        \
            const MPI_Datatype sendtypes[], void *res, const many recvcounts[],                    \
            const place rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm,                  \
            MPI_Request *request),                                                                 \
           (in, sendcounts, sdispls, sendtypes, res, recvcounts, rdispls, recvtypes, comm,         \
            request))                                                                              \
    define(Ireduce_scatter,                                                                        \
           (const void *in, void *res, const many recvcounts[], MPI_Datatype type, MPI_Op op,      \
            MPI_Comm comm, MPI_Request *request),                                                  \
           (in, res, recvcounts, type, op, comm, request))                                         \
    define(Ireduce_scatter_block,                                                                  \
           (const void *in, void *res, many recvcount, MPI_Datatype type, MPI_Op op,               \
            MPI_Comm comm, MPI_Request *request),                                                  \
           (in, res, recvcount, type, op, comm, request))                                          \
    define(Iscan,                                                                                  \
           (const void *in, void *res, many count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,    \
            MPI_Request *request),                                                                 \
           (in, res, count, type, op, comm, request))                                              \
    define(Iexscan,                                                                                \
           (const void *in, void *res, many count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,    \
            MPI_Request *request),                                                                 \
           (in, res, count, type, op, comm, request))                                              \
    define(Neighbor_allgatherv,                                                                    \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res,                      \
            const many recvcounts[], const place displs[], MPI_Datatype recvtype,                  \
            MPI_Comm comm),                                                                        \
           (in, sendcount, sendtype, res, recvcounts, displs, recvtype, comm))                     \
    define(Neighbor_alltoallv,                                                                     \
           (const void *in, const many sendcounts[], const place sdispls[],                        \
            MPI_Datatype sendtype, void *res, const many recvcounts[], const place rdispls[],      \
            MPI_Datatype recvtype, MPI_Comm comm),                                                 \
           (in, sendcounts, sdispls, sendtype, res, recvcounts, rdispls, recvtype, comm))          \
    define(Neighbor_alltoallw,                                                                     \
           (const void *in, const many sendcounts[], const MPI_Aint sdispls[],                     \
            const MPI_Datatype sendtypes[], void *res, const many recvcounts[],                    \
            const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm),              \
           (in, sendcounts, sdispls, sendtypes, res, recvcounts, rdispls, recvtypes, comm))        \
    define(Ineighbor_allgather,                                                                    \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),                           \
           (in, sendcount, sendtype, res, recvcount, recvtype, comm, request))                     \
    define(Ineighbor_allgatherv,                                                                   \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res,                      \
            const many recvcounts[], const place displs[], MPI_Datatype recvtype, MPI_Comm comm,   \
            MPI_Request *request),                                                                 \
           (in, sendcount, sendtype, res, recvcounts, displs, recvtype, comm, request))            \
    define(Ineighbor_alltoall,                                                                     \
           (const void *in, many sendcount, MPI_Datatype sendtype, void *res, many recvcount,      \
            MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),                           \
           (in, sendcount, sendtype, res, recvcount, recvtype, comm, request))                     \
    define(Ineighbor_alltoallv,                                                                    \
           (const void *in, const many sendcounts[], const place sdispls[],                        \
            MPI_Datatype sendtype, void *res, const many recvcounts[], const place rdispls[],      \
            MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request),                           \
           (in, sendcounts, sdispls, sendtype, res, recvcounts, rdispls, recvtype, comm,           \
            request))                                                                              \
    define(Ineighbor_alltoallw,                                                                    \
           (const void *in, const many sendcounts[], const MPI_Aint sdispls[],                     \
            const MPI_Datatype sendtypes[], void *res, const many recvcounts[],                    \
            const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm,               \
            MPI_Request *request),                                                                 \
           (in, sendcounts, sdispls, sendtypes, res, recvcounts, rdispls, recvtypes, comm,         \
            request))                                                                              \
    define(Ssend_init,                                                                             \
           (const void *buf, many count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,      \
            MPI_Request *request),                                                                 \
           (buf, count, type, dest, tag, comm, request))                                           \
    define(Bsend_init,                                                                             \
           (const void *buf, many count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,      \
            MPI_Request *request),                                                                 \
           (buf, count, type, dest, tag, comm, request))                                           \
    define(Rsend_init,                                                                             \
           (const void *buf, many count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,      \
            MPI_Request *request),                                                                 \
           (buf, count, type, dest, tag, comm, request))                                           \
    define(Rput,                                                                                   \
           (const void *buf, many count, MPI_Datatype type, int target_rank,                       \
            MPI_Aint target_disp, many target_count, MPI_Datatype target_datatype, MPI_Win win,    \
            MPI_Request *request),                                                                 \
           (buf, count, type, target_rank, target_disp, target_count, target_datatype, win,        \
            request))                                                                              \
    define(Rget,                                                                                   \
           (void *buf, many count, MPI_Datatype type, int target_rank, MPI_Aint target_disp,       \
            many target_count, MPI_Datatype target_datatype, MPI_Win win, MPI_Request *request),   \
           (buf, count, type, target_rank, target_disp, target_count, target_datatype, win,        \
            request))                                                                              \
    define(Raccumulate,                                                                            \
           (const void *buf, many count, MPI_Datatype type, int target_rank,                       \
            MPI_Aint target_disp, many target_count, MPI_Datatype target_datatype, MPI_Op op,      \
            MPI_Win win, MPI_Request *request),                                                    \
           (buf, count, type, target_rank, target_disp, target_count, target_datatype, op, win,    \
            request))                                                                              \
    define(Get_accumulate,                                                                         \
           (const void *buf, many count, MPI_Datatype type, void *res, many result_count,          \
            MPI_Datatype result_datatype, int target_rank, MPI_Aint target_disp,                   \
            many target_count, MPI_Datatype target_datatype, MPI_Op op, MPI_Win win),              \
           (buf, count, type, res, result_count, result_datatype, target_rank, target_disp,        \
            target_count, target_datatype, op, win))
OMITTED_WITH_COUNTS(OMITTED, int, int)

#if MPI_VERSION >= 4
#define OMITTED_LARGE(name, parameters, arguments) OMITTED(name##_c, parameters, arguments)
OMITTED_WITH_COUNTS(OMITTED_LARGE, MPI_Count, MPI_Aint)
#define OMITTED_SINCE_4(define, many)                                                              \
    define(Isendrecv,                                                                              \
           (const void *in, many sendcount, MPI_Datatype sendtype, int dest, int sendtag,          \
            void *res, many recvcount, MPI_Datatype recvtype, int source, int recvtag,             \
            MPI_Comm comm, MPI_Request *request),                                                  \
           (in, sendcount, sendtype, dest, sendtag, res, recvcount, recvtype, source, recvtag,     \
            comm, request))                                                                        \
    define(Isendrecv_replace,                                                                      \
           (void *buf, many count, MPI_Datatype type, int dest, int sendtag, int source,           \
            int recvtag, MPI_Comm comm, MPI_Request *request),                                     \
           (buf, count, type, dest, sendtag, source, recvtag, comm, request))
OMITTED_SINCE_4(OMITTED, int)
OMITTED_SINCE_4(OMITTED_LARGE, MPI_Count)
OMITTED(Session_init, (MPI_Info info, MPI_Errhandler handler, MPI_Session *session),
        (info, handler, session))
OMITTED(Bcast_c,
        (void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm),
        (buf, count, type, root, comm))
OMITTED(Reduce_c,
        (const void *in, void *res, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
         MPI_Comm comm),
        (in, res, count, type, op, root, comm))
OMITTED(Allreduce_c,
        (const void *in, void *res, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (in, res, count, type, op, comm))
OMITTED(Reduce_scatter_block_c,
        (const void *in, void *res, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (in, res, count, type, op, comm))
OMITTED(Reduce_scatter_c,
        (const void *in, void *res, const MPI_Count counts[], MPI_Datatype type, MPI_Op op,
         MPI_Comm comm),
        (in, res, counts, type, op, comm))
OMITTED(Exscan_c,
        (const void *in, void *res, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (in, res, count, type, op, comm))
OMITTED(Scan_c,
        (const void *in, void *res, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
        (in, res, count, type, op, comm))
OMITTED(Allgather_c,
        (const void *in, MPI_Count sendcount, MPI_Datatype sendtype, void *res, MPI_Count recvcount,
         MPI_Datatype recvtype, MPI_Comm comm),
        (in, sendcount, sendtype, res, recvcount, recvtype, comm))
OMITTED(Allgatherv_c,
        (const void *in, MPI_Count sendcount, MPI_Datatype sendtype, void *res,
         const MPI_Count counts[], const MPI_Aint displs[], MPI_Datatype recvtype, MPI_Comm comm),
        (in, sendcount, sendtype, res, counts, displs, recvtype, comm))
OMITTED(Alltoall_c,
        (const void *in, MPI_Count sendcount, MPI_Datatype sendtype, void *res, MPI_Count recvcount,
         MPI_Datatype recvtype, MPI_Comm comm),
        (in, sendcount, sendtype, res, recvcount, recvtype, comm))
OMITTED(Alltoallv_c,
        (const void *in, const MPI_Count sendcounts[], const MPI_Aint sdispls[],
         MPI_Datatype sendtype, void *res, const MPI_Count recvcounts[], const MPI_Aint rdispls[],
         MPI_Datatype recvtype, MPI_Comm comm),
        (in, sendcounts, sdispls, sendtype, res, recvcounts, rdispls, recvtype, comm))
OMITTED(Alltoallw_c,
        (const void *in, const MPI_Count sendcounts[], const MPI_Aint sdispls[],
         const MPI_Datatype sendtypes[], void *res, const MPI_Count recvcounts[],
         const MPI_Aint rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm),
        (in, sendcounts, sdispls, sendtypes, res, recvcounts, rdispls, recvtypes, comm))
OMITTED(Gather_c,
        (const void *in, MPI_Count sendcount, MPI_Datatype sendtype, void *res, MPI_Count recvcount,
         MPI_Datatype recvtype, int root, MPI_Comm comm),
        (in, sendcount, sendtype, res, recvcount, recvtype, root, comm))
OMITTED(Gatherv_c,
        (const void *in, MPI_Count sendcount, MPI_Datatype sendtype, void *res,
         const MPI_Count counts[], const MPI_Aint displs[], MPI_Datatype recvtype, int root,
         MPI_Comm comm),
        (in, sendcount, sendtype, res, counts, displs, recvtype, root, comm))
OMITTED(Scatter_c,
        (const void *in, MPI_Count sendcount, MPI_Datatype sendtype, void *res, MPI_Count recvcount,
         MPI_Datatype recvtype, int root, MPI_Comm comm),
        (in, sendcount, sendtype, res, recvcount, recvtype, root, comm))
OMITTED(Scatterv_c,
        (const void *in, const MPI_Count counts[], const MPI_Aint displs[], MPI_Datatype sendtype,
         void *res, MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
        (in, counts, displs, sendtype, res, recvcount, recvtype, root, comm))
OMITTED(Psend_init,
        (const void *buf, int partitions, MPI_Count count, MPI_Datatype type, int dest, int tag,
         MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (buf, partitions, count, type, dest, tag, comm, info, request))
OMITTED(Precv_init,
        (void *buf, int partitions, MPI_Count count, MPI_Datatype type, int dest, int tag,
         MPI_Comm comm, MPI_Info info, MPI_Request *request),
        (buf, partitions, count, type, dest, tag, comm, info, request))
#endif
