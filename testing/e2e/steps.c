/* A program in steps: each process adds what its neighbour has sent. The job can be moved. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "farcall.h"

#define NUMBERS 1000

typedef struct {
    double numbers[NUMBERS];
    int64_t count;
    int64_t steps;
} work;

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, farcall_error_message());
        exit(1);
    }
}

static int32_t step(farcall_channel *channel, uint64_t number, void *user) {
    work *mine = user;
    size_t rank = farcall_channel_rank(channel), size = farcall_channel_size(channel), count = 0;
    int64_t source = (int64_t)((rank + size - 1) % size);
    double arrived[NUMBERS];
    size_t next = (rank + 1) % size;
    int sent = farcall_channel_send(channel, next, mine->numbers, sizeof mine->numbers);
    check(sent == FARCALL_OK, "send");
    int got = farcall_channel_receive(channel, &source, arrived, sizeof arrived, &count);
    check(got == FARCALL_OK && count == sizeof arrived, "receive");
    for (int i = 0; i < NUMBERS; i++) mine->numbers[i] = mine->numbers[i] / 3 + arrived[i] / 7 + i;
    mine->count++;
    return (int64_t)number + 1 < mine->steps;
}

static int32_t wrong(farcall_channel *channel, uint64_t number, void *user) {
    (void)channel, (void)number, (void)user;
    return 5;
}

int main(int argc, char **argv) {
    farcall_channel *channel = farcall_channel_open(0);
    check(channel != NULL, "open");
    work mine = {.count = 0, .steps = argc > 1 ? atoll(argv[1]) : 0};
    for (int i = 0; i < NUMBERS; i++) mine.numbers[i] = (double)farcall_channel_rank(channel);
    if (mine.steps == 0) {
        /* Wrong use gets an error. */
        check(farcall_channel_run(channel, step, &mine) == FARCALL_ARGUMENT, "not registered");
        check(strstr(farcall_error_message(), "register") != NULL, "what to call");
        check(farcall_channel_register(channel, NULL, 1, NULL) == FARCALL_ARGUMENT, "NULL");
        check(farcall_channel_register(channel, NULL, 0, NULL) == FARCALL_OK, "no arrays");
        check(farcall_channel_run(channel, NULL, &mine) == FARCALL_ARGUMENT, "no step");
        check(farcall_channel_run(channel, wrong, &mine) == FARCALL_ARGUMENT, "a wrong result");
        check(strstr(farcall_error_message(), "returned 5") != NULL, "the wrong result");
        puts("all is well");
        return 0;
    }
    farcall_array arrays[] = {{mine.numbers, sizeof mine.numbers},
                              {&mine.count, sizeof mine.count}};
    int32_t is_restored = 7;
    check(farcall_channel_register(channel, arrays, 2, &is_restored) == FARCALL_OK, "register");
    check(is_restored == 0 || is_restored == 1, "whether it was restored");
    check(farcall_channel_run(channel, step, &mine) == FARCALL_OK, "run");
    check(mine.count == mine.steps, "each step was done once");
    double sum = 0;
    for (int i = 0; i < NUMBERS; i++) sum += mine.numbers[i];
    printf("rank %zu: %a\n", farcall_channel_rank(channel), sum);
    if (is_restored) fprintf(stderr, "rank %zu was restored\n", farcall_channel_rank(channel));
    farcall_channel_close(channel);
    return 0;
}
