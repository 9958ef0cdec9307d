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

    char word[8] = "";
    if (rank == 1) strcpy(word, "hello");
    check(farcall_channel_broadcast(channel, 1, word, sizeof word) == FARCALL_OK, "broadcast");
    check(strcmp(word, "hello") == 0, "what was broadcast");
    double numbers[2] = {(double)rank, 1.0};
    check(farcall_channel_sum(channel, numbers, 2) == FARCALL_OK, "sum");
    check(numbers[0] == 3.0 && numbers[1] == 3.0, "the sums");

    check(farcall_channel_send(channel, size, word, 1) != FARCALL_OK, "a rank that is not there");
    if (rank == 0) printf("all is well\n");
    farcall_channel_close(channel);
    farcall_channel_close(NULL);
    return 0;
}
