/* The functions of libraries/bench.idl. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

void farcall_null(int n)
{
    (void)n;
}

void farcall_echo(long n, const double *x, double *y)
{
    memcpy(y, x, n * sizeof *x);
}

void farcall_nap(long us)
{
    const struct timespec time = {us / 1000000, us % 1000000 * 1000};

    nanosleep(&time, NULL);
}

void farcall_task(long us, long n, const double *x, double *y)
{
    const char *slower = getenv("FARCALL_BENCH_SLOWER");

    farcall_nap(slower ? us * atol(slower) : us);
    farcall_echo(n, x, y);
}
