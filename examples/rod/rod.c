/* The temperature of a heated rod, -u'' = pi^2 sin(pi x), u(0) = u(1) = 0, by finite differences:
 * LAPACK on another machine solves the system. The server is the first argument, or
 * FARCALL_SERVER. */
#include "farcall.h"

#include <math.h>
#include <stdio.h>

enum { N = 200 };

int main(int argc, char **argv) {
  static double a[N][N], u[N];
  static int32_t pivots[N];
  const double pi = acos(-1), h = 1.0 / (N + 1);
  double error = 0;
  int32_t info;
  int i;

  farcall_server *server = farcall_connect(argc > 1 ? argv[1] : NULL);
  if (server == NULL) {
    fprintf(stderr, "%s\n", farcall_error_message());
    return 1;
  }
  for (i = 0; i < N; i++) {
    a[i][i] = 2;
    if (i > 0)
      a[i][i - 1] = a[i - 1][i] = -1;
    u[i] = h * h * pi * pi * sin(pi * (i + 1) * h);
  }
  if (farcall_call(server, "lapack/dgesv", N, 1, a, N, pivots, u, N, &info) != FARCALL_OK) {
    fprintf(stderr, "%s\n", farcall_error_message());
    return 1;
  }
  for (i = 0; i < N; i++)
    error = fmax(error, fabs(u[i] - sin(pi * (i + 1) * h)));
  printf("%d points: info %d, largest error %.3e\n", N, info, error);
  farcall_disconnect(server);
  return 0;
}
