/* The rod of rod.c with the names of the Ninf client library:
 * `rod_ninf [-server HOST -port PORT]`. */
#include "ninf.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { N = 200 };

int main(int argc, char **argv) {
  static double a[N][N], u[N];
  static int32_t pivots[N];
  const double pi = acos(-1), h = 1.0 / (N + 1);
  double error = 0;
  int32_t info;
  int i;

  Ninf_parse_arg(argc, argv);
  for (i = 0; i < N; i++) {
    a[i][i] = 2;
    if (i > 0)
      a[i][i - 1] = a[i - 1][i] = -1;
    u[i] = h * h * pi * pi * sin(pi * (i + 1) * h);
  }
  if (Ninf_call("lapack/dgesv", N, 1, a, N, pivots, u, N, &info) == NINF_ERROR) {
    Ninf_perror("dgesv");
    return 1;
  }
  for (i = 0; i < N; i++)
    error = fmax(error, fabs(u[i] - sin(pi * (i + 1) * h)));
  printf("%d points: info %d, largest error %.3e\n", N, info, error);
  return 0;
}
