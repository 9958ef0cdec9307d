/* A matrix that stays at the server named by the first argument: put, used, got, dropped. */
#include "farcall.h"

#include <math.h>
#include <stdio.h>

enum { N = 2 };

static int failed(const char *what) {
  printf("%s: %s\n", what, farcall_error_message());
  return 1;
}

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argc > 1 ? argv[1] : NULL);
  double a[N * N] = {2, 1, 1, 3}, b[N] = {4, 7}, factors[N * N];
  size_t shape[] = {N, N};
  int32_t pivots[N], info = -1;
  farcall_handle *matrix, *same, *product, *rows;

  if (server == NULL)
    return failed("connect");
  matrix = farcall_put(server, FARCALL_DOUBLE, shape, 2, 1, a);
  product = farcall_put(server, FARCALL_DOUBLE, shape, 2, 1, NULL);
  rows = farcall_put(server, FARCALL_DOUBLE, shape, 2, 0, a);
  if (matrix == NULL || product == NULL || rows == NULL)
    return failed("put");
  if (farcall_call(server, "dgemm", 'N', 'N', N, N, N, 1.0, matrix, N, matrix, N, 0.0, product,
                   N) != FARCALL_OK)
    return failed("product");
  if (farcall_call(server, "dgesv", N, 1, matrix, N, pivots, b, N, &info) != FARCALL_OK)
    return failed("solve");
  if (info != 0 || fabs(b[0] - 1) > 1e-12 || fabs(b[1] - 2) > 1e-12)
    return failed("another solution");
  if (farcall_get(matrix, factors, sizeof factors) != FARCALL_OK || factors[1] != 0.5)
    return failed("get");
  same = farcall_handle_of(server, farcall_handle_id(product));
  if (same == NULL || farcall_get(same, factors, sizeof factors) != FARCALL_OK || factors[0] != 5)
    return failed("the product");
  if (farcall_call(server, "dgesv", N, 1, rows, N, pivots, b, N, &info) != FARCALL_ARGUMENT)
    return failed("rows were taken for columns");
  puts(farcall_error_message());
  if (farcall_get_typed(same, FARCALL_DOUBLE, factors, sizeof factors) != FARCALL_OK ||
      farcall_get_typed(same, FARCALL_LONG, factors, sizeof factors) != FARCALL_ARGUMENT)
    return failed("another type was taken");
  if (farcall_get(same, factors, 1) != FARCALL_ARGUMENT)
    return failed("another length was taken");
  puts(farcall_error_message());
  if (farcall_drop_array(matrix) != FARCALL_OK || farcall_drop(product) != FARCALL_OK)
    return failed("drop");
  if (farcall_get(same, factors, sizeof factors) != FARCALL_ARGUMENT)
    return failed("got what was dropped");
  puts(farcall_error_message());
  for (int kind = -1; kind < 100; kind += 50) {
    if (farcall_put(server, (farcall_kind)kind, shape, 2, 1, a) != NULL)
      return failed("an unknown kind was taken");
    puts(farcall_error_message());
  }
  if (farcall_wait((farcall_session)-5, -1) != FARCALL_UNKNOWN_SESSION)
    return failed("waited for no session");
  puts(farcall_error_message());
  farcall_drop(same);
  farcall_drop(rows);
  farcall_disconnect(server);
  return 0;
}
