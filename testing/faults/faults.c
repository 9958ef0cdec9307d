/* The functions of faults.idl. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void fault_segfault(int n)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = n;
}

void fault_divide(int n, int *quotient)
{
    if (n == 0)
        raise(SIGFPE); /* aarch64 divides by zero in silence */
    *quotient = 1 / n;
}

void fault_exit(int status)
{
    exit(status);
}

void fault_exit_at_once(int status)
{
    _exit(status);
}

void fault_abort(int n)
{
    (void)n;
    abort();
}

void fault_allocate(long chunk)
{
    for (;;) {
        char *memory = malloc(chunk > 0 ? chunk : 1);
        if (memory == NULL) {
            fputs("out of memory\n", stderr);
            abort();
        }
        memset(memory, 1, chunk);
        *(char *volatile *)&memory = memory;
    }
}

void fault_forever(int n)
{
    for (volatile long i = n;; i++)
        ;
}

static long deeper(volatile int depth)
{
    volatile char frame[4096];
    frame[0] = (char)depth;
    return depth == 0 ? 0 : deeper(depth - 1) + frame[0];
}

void fault_overflow(int depth)
{
    volatile long result = deeper(depth);
    (void)result;
}

void fault_close(int n)
{
    for (int descriptor = 3; descriptor < 3 + n; descriptor++)
        close(descriptor);
}

void fault_print(const char *out, const char *err)
{
    fputs(out, stdout);
    fflush(stdout);
    fputs(err, stderr);
}

void fault_sleep(int ms, int *slept)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0)
        ;
    *slept = ms;
}

void fault_fill(long n, double value, double *x)
{
    for (long i = 0; i < n; i++)
        x[i] = value;
}

double fault_sum(long n, const double *x)
{
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += x[i];
    return sum;
}
