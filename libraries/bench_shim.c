/* The functions of libraries/bench.idl. */
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
