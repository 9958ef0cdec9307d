/* The function of libraries/ep.idl. */
#include <math.h>
#include <stdint.h>

/* x' = 5^13 x mod 2^46; multiplication mod 2^64 has the same lowest 46 bits. */
#define MULTIPLIER 1220703125u
#define SEED 271828183u
#define MASK ((UINT64_C(1) << 46) - 1)

static double next(uint64_t *x)
{
    *x = *x * MULTIPLIER & MASK;
    return 2 * ldexp((double)*x, -46) - 1;
}

void farcall_ep(int m, double *sums, double *counts)
{
    uint64_t x = SEED;
    sums[0] = sums[1] = 0;
    for (int i = 0; i < 10; i++)
        counts[i] = 0;
    if (m < 0 || m > 62)
        return;
    for (uint64_t trial = 0; trial < UINT64_C(1) << m; trial++) {
        double u = next(&x), v = next(&x);
        double t = u * u + v * v;
        if (t > 1)
            continue;
        double scale = sqrt(-2 * log(t) / t);
        double first = u * scale, second = v * scale;
        int annulus = (int)fmax(fabs(first), fabs(second));
        sums[0] += first;
        sums[1] += second;
        if (annulus < 10)
            counts[annulus]++;
    }
}
