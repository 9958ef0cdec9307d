/* The library of docs/tutorial.md: the steady temperature of a square plate. It is plain C and
 * knows nothing about Farcall. */
#include <math.h>

/* Replaces each inner temperature by the mean of its four neighbours until no temperature changes
 * by more than `tolerance`. The edges of `u`, an n x n matrix in rows, stay as they are. After each
 * sweep the function calls `monitor`, which can set `*stop` to end the computation. */
void plate_relax(int n, double tolerance, double *u, int *sweeps,
                 void (*monitor)(int sweep, double change, int *stop))
{
    double change = tolerance + 1;
    int stop = 0;

    for (*sweeps = 0; change > tolerance && !stop; monitor(++*sweeps, change, &stop)) {
        change = 0;
        for (int i = 1; i < n - 1; i++)
            for (int j = 1; j < n - 1; j++) {
                double *at = &u[i * n + j];
                double mean = (at[-n] + at[-1] + at[1] + at[n]) / 4;
                change = fmax(change, fabs(mean - *at));
                *at = mean;
            }
    }
}
