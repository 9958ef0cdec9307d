/* Solves a system through the server named by the first argument, in all ways C has. */
#include "farcall.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 4 };

static const double A[N * N] = {4, 1, 0, 0, 2, 5, 1, 0, 0, 1, 6, 2, 1, 0, 1, 7};

/* b = A (1, 2, 3, 4), columns one after the other. */
static void right_side(double *b) {
  int i, j;
  for (i = 0; i < N; i++)
    for (b[i] = 0, j = 0; j < N; j++)
      b[i] += A[j * N + i] * (j + 1);
}

static int check(const char *what, farcall_status status, const double *b,
                 const int32_t *info) {
  int i;
  if (status != FARCALL_OK) {
    printf("%s: %s\n", what, farcall_error_message());
    return 1;
  }
  for (i = 0; i < N; i++)
    if (fabs(b[i] - (i + 1)) > 1e-12 || *info != 0) {
      printf("%s: x[%d] = %g, info %d\n", what, i, b[i], (int)*info);
      return 1;
    }
  printf("%s: solved\n", what);
  return 0;
}

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argc > 1 ? argv[1] : NULL);
  farcall_function *dgesv;
  farcall_times times;
  double a[N * N], b[N];
  int32_t pivots[N], info = -1, n = N, one = 1;
  void *arguments[] = {&n, &one, a, &n, pivots, b, &n, &info};
  int failed = 0;

  if (server == NULL) {
    printf("connect: %s\n", farcall_error_message());
    return 1;
  }
  memcpy(a, A, sizeof a), right_side(b);
  failed += check("by name",
                  farcall_call(server, "lapack/dgesv", N, 1, a, N, pivots, b, N, &info), b, &info);

  dgesv = farcall_function_of(server, "lapack/dgesv");
  memcpy(a, A, sizeof a), right_side(b);
  failed += check("by handle", farcall_invoke(dgesv, N, 1, a, N, pivots, b, N, &info), b, &info);

  memcpy(a, A, sizeof a), right_side(b);
  failed += check("by array", farcall_call_array(dgesv, arguments, 8), b, &info);

  times = farcall_times_of(dgesv);
  failed += !(times.total > 0 && times.exec <= times.total);

  if (farcall_call(server, "lapack/dgesv", N, 1, NULL, N, pivots, b, N, &info) != FARCALL_ARGUMENT)
    failed++;
  printf("wrong argument: %s\n", farcall_error_message());
  if (farcall_call(server, "lapack/dgesv", N, N, a, N, pivots, a, N, &info) != FARCALL_ARGUMENT)
    failed++;
  printf("one array for two: %s\n", farcall_error_message());
  if (farcall_call(server, "lapack/nothing") != FARCALL_UNKNOWN_FUNCTION)
    failed++;
  printf("wrong name: %s\n", farcall_error_message());
  farcall_disconnect(server);

  if (farcall_connect("farcall://127.0.0.1:1") != NULL ||
      farcall_error_status() != FARCALL_CONNECTION)
    failed++;
  printf("no server: %s\n", farcall_error_message());
  if (farcall_invoke(farcall_function_of(NULL, "lapack/dgesv")) != FARCALL_ARGUMENT)
    failed++;
  printf("no function: %s\n", farcall_error_message());
  return failed;
}
