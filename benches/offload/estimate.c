/* Nanoseconds of farcall_estimate_array for a dgesv of 1000 rows: the least mean of many batches.
   The argument is the address of a server. */
#include <farcall.h>
#include <stdio.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * time.tv_sec + time.tv_nsec;
}

int main(int count, char **words)
{
    enum { BATCHES = 200, CALLS = 2000 };
    farcall_server *server = count == 2 ? farcall_connect(words[1]) : NULL;
    farcall_function *dgesv = server ? farcall_function_of(server, "lapack/dgesv") : NULL;
    int n = 1000, nrhs = 1;
    void *sizes[] = {&n, &nrhs, NULL, &n, NULL, NULL, &n, NULL};
    farcall_estimate estimate;
    double least = 1e9;
    if (!dgesv || farcall_estimate_array(dgesv, sizes, 8, &estimate) != FARCALL_OK)
        return 1;
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now();
        for (int i = 0; i < CALLS; i++)
            if (farcall_estimate_array(dgesv, sizes, 8, &estimate) != FARCALL_OK)
                return 1;
        double each = (now() - start) / CALLS;
        least = each < least ? each : least;
    }
    printf("%.3f\n", least);
    farcall_disconnect(server);
    return 0;
}
