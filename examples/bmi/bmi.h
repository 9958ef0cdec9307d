/* The largest eigenvalue of F(x, y) = sum of x_i y_j F_ij over i = 0..nx and j = 0..ny, where
 * x_0 = y_0 = 1 and each F_ij is a symmetric matrix of order m. `f` has the matrices one after the
 * other: f[nx + 1][ny + 1][m][m].
 *
 * A box has the least and the greatest value of each variable, first x, then y: box[nx + ny][2]. */
#ifndef BMI_H
#define BMI_H

#include <stdint.h>

/* Bounds of that eigenvalue in each of `count` boxes: no point of a box has less than `lower`, and
 * the point in `points` has `upper`. `info` is 0, or -1 if it refuses the sizes: 1 <= nx <= 16,
 * 1 <= ny, 1 <= m. */
void bmi_bound(int32_t count, int32_t nx, int32_t ny, int32_t m, const double *f,
               const double *boxes, double *lower, double *upper, double *points, int32_t *info);

/* The whole solver: `upper - lower` is at most `tolerance` in the end, unless `most` boxes were not
 * enough (info 1). `bounded` is the number of boxes that were bounded. */
void bmi_solve(int32_t nx, int32_t ny, int32_t m, const double *f, const double *box,
               double tolerance, int32_t most, double *lower, double *upper, double *point,
               int32_t *bounded, int32_t *info);

/* A problem with random matrices from a seed. */
void bmi_example(int32_t seed, int32_t nx, int32_t ny, int32_t m, double *f);

#endif
