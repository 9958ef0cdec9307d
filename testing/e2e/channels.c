/* Every function of the channels in farcall.h, in a job of three processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "farcall.h"

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, farcall_error_message());
        exit(1);
    }
}

static void receive(farcall_channel *channel, int64_t *source, int64_t *number) {
    size_t count = 0;
    int got = farcall_channel_receive(channel, source, number, sizeof *number, &count);
    check(got == FARCALL_OK && count == sizeof *number, "receive");
}

/* Rank 0 sends until there is no space, and the next rank receives it all. */
static void try_both(farcall_channel *channel, size_t rank, size_t size) {
    static char bytes[1 << 16];
    size_t longest = farcall_channel_eager_bytes(channel), count = 0;
    int64_t source = 0, sent = 0, received = 0;
    check(longest > 1000 && longest < sizeof bytes, "eager_bytes");
    check(farcall_channel_is_local(channel, size - 1) == 1, "a rank on this node");
    check(farcall_channel_is_local(channel, size) == 0, "no rank");
    check(farcall_channel_try_send(channel, 1, bytes, longest + 1) == -1, "a long message");
    check(farcall_channel_try_receive(channel, &source, bytes, sizeof bytes, &count) == 0, "none");
    check(farcall_channel_barrier(channel) == FARCALL_OK, "barrier");
    if (rank == 0) {
        for (;; sent++) {
            bytes[0] = (char)sent;
            int done = farcall_channel_try_send(channel, 1, bytes, longest);
            check(done >= 0 && sent < 1000, "try_send");
            if (done == 0) break;
        }
        check(sent > 0, "some space");
    }
    if (rank == 2) {
        char part[5000];

        memset(part, 7, sizeof part);
        int went = farcall_channel_try_send_parts(channel, 0, "head", 4, part, sizeof part);
        check(went == 1, "parts");
        check(farcall_channel_try_send_parts(channel, 0, bytes, 65, part, 1) == -1, "a long head");
    }
    double numbers[1] = {(double)sent};
    check(farcall_channel_sum(channel, numbers, 1) == FARCALL_OK, "sum");
    if (rank == 0) {
        char head[4], part[5000];

        source = -1;
        check(farcall_channel_peek(channel, &source, head, 4, &count) == 1, "peek");
        check(source == 2 && count == 5004 && memcmp(head, "head", 4) == 0, "what was peeked at");
        int got = farcall_channel_receive_parts(channel, 2, head, 4, part, sizeof part, &count);
        check(got == FARCALL_OK && count == 5004 && part[4999] == 7, "receive_parts");
        check(farcall_channel_peek(channel, &source, head, 4, &count) == 0, "nothing to peek at");
    }
    if (rank == 1) {
        check(farcall_channel_try_receive(channel, &source, bytes, 8, &count) == -1, "no room");
        for (source = -1;; received++, source = -1) {
            int done = farcall_channel_try_receive(channel, &source, bytes, sizeof bytes, &count);
            check(done >= 0, "try_receive");
            if (done == 0) break;
            check(source == 0 && count == longest && bytes[0] == (char)received, "what came");
        }
        check(received == (int64_t)numbers[0], "all came");
    }
}

/* What a process says that polls. */
static void say(farcall_channel *channel, size_t size) {
    farcall_wanted wanted[2] = {
        {.rank = -1}, {.is_send = 1, .has_tag = 1, .rank = (int64_t)size - 1, .tag = 7}};
    check(farcall_channel_say_wanted(channel, wanted, 2, 0) == FARCALL_OK, "say_wanted");
    check(farcall_channel_say_polls(channel, 1000) == FARCALL_OK, "say_polls");
    wanted[1].rank = -1;
    check(farcall_channel_say_wanted(channel, wanted, 2, 0) != FARCALL_OK, "a send to no rank");
    check(farcall_channel_say_wanted(channel, NULL, 1, 0) != FARCALL_OK, "no memory");
    check(farcall_channel_say_wanted(channel, NULL, 0, 0) == FARCALL_OK, "nothing");
}

int main(void) {
    farcall_channel *channel = farcall_channel_open(0);
    check(channel != NULL, "open");
    size_t rank = farcall_channel_rank(channel), size = farcall_channel_size(channel);
    check(size == 3 && rank < size, "rank and size");

    /* A message goes around a ring. Rank 0 sends it first and receives it last. */
    int64_t source = (int64_t)((rank + size - 1) % size), sum = 0;
    check(farcall_channel_poll(channel, -1) == 0 || rank > 0, "nothing has come yet");
    if (rank > 0) {
        receive(channel, &source, &sum);
    }
    sum += (int64_t)rank;
    check(farcall_channel_send(channel, (rank + 1) % size, &sum, sizeof sum) == FARCALL_OK, "send");
    if (rank == 0) {
        while (farcall_channel_poll(channel, source) == 0) continue;
        receive(channel, &source, &sum);
        check(source == 2 && sum == 3, "what came around");
    }
    check(farcall_channel_barrier(channel) == FARCALL_OK, "barrier");
    try_both(channel, rank, size);
    say(channel, size);

    char word[8] = "";
    if (rank == 1) strcpy(word, "hello");
    check(farcall_channel_broadcast(channel, 1, word, sizeof word) == FARCALL_OK, "broadcast");
    check(strcmp(word, "hello") == 0, "what was broadcast");
    double numbers[2] = {(double)rank, 1.0};
    check(farcall_channel_sum(channel, numbers, 2) == FARCALL_OK, "sum");
    check(numbers[0] == 3.0 && numbers[1] == 3.0, "the sums");

    check(farcall_channel_send(channel, size, word, 1) != FARCALL_OK, "a rank that is not there");
    size_t negative = (size_t)-1;
    check(farcall_channel_broadcast(channel, 1, word, negative) != FARCALL_OK, "too many bytes");
    check(farcall_channel_sum(channel, numbers, negative) != FARCALL_OK, "too many numbers");
    farcall_array array = {word, sizeof word};
    check(farcall_channel_register(channel, &array, negative, NULL) != FARCALL_OK, "too many");
    if (rank == 0) printf("all is well\n");
    farcall_channel_close(channel);
    farcall_channel_close(NULL);
    return 0;
}
