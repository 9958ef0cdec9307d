/* A sum goes around a ring, from C.
 *
 *     built=$PWD/target/release
 *     cc examples/channels/ring.c -Ibindings/c/include -L$built -Wl,-rpath,$built -lfarcall -o ring
 *     farcall gang run -n 3 ./ring
 */
#include <stdio.h>
#include <stdlib.h>

#include "farcall.h"

static void check(farcall_status status) {
    if (status != FARCALL_OK) {
        fprintf(stderr, "%s\n", farcall_error_message());
        exit(1);
    }
}

int main(void) {
    farcall_channel *channel = farcall_channel_open(0);
    if (channel == NULL) check(farcall_error_status());
    size_t rank = farcall_channel_rank(channel), size = farcall_channel_size(channel), count = 0;
    int64_t source = (int64_t)((rank + size - 1) % size), sum = 0;
    if (rank > 0) check(farcall_channel_receive(channel, &source, &sum, sizeof sum, &count));
    sum += (int64_t)rank;
    check(farcall_channel_send(channel, (rank + 1) % size, &sum, sizeof sum));
    if (rank == 0) check(farcall_channel_receive(channel, &source, &sum, sizeof sum, &count));
    check(farcall_channel_barrier(channel));
    double all = (double)rank;
    check(farcall_channel_sum(channel, &all, 1));
    if (rank == 0) printf("ring %lld, sum %g\n", (long long)sum, all);
    farcall_channel_close(channel);
    return 0;
}
