/* Named data at the server that the first argument names: put twice, used, dropped. */
#include "farcall.h"

#include <stdio.h>

enum { N = 3 };

static int failed(const char *what) {
  printf("%s: %s\n", what, farcall_error_message());
  return 1;
}

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argc > 1 ? argv[1] : NULL);
  double x[N] = {1, 2, 3}, twice[N] = {2, 4, 6}, sum;
  size_t shape[] = {N};
  farcall_handle *first, *second, *found;

  if (server == NULL)
    return failed("connect");
  first = farcall_put_named(server, FARCALL_DOUBLE, shape, 1, 0, x, "c/x", 0);
  if (first == NULL)
    return failed("put");
  printf("%d\n", (int)farcall_data_version(first));
  found = farcall_data(server, "c/x");
  if (found == NULL || farcall_call(server, "total", N, found, &sum) != FARCALL_OK)
    return failed("total");
  second = farcall_put_named(server, FARCALL_DOUBLE, shape, 1, 0, twice, "c/x", 1);
  if (second == NULL)
    return failed("has a new version");
  printf("%d\n%.1f\n", (int)farcall_data_version(second), sum);
  farcall_release(found);
  farcall_free_handle(first);
  found = farcall_data(server, "c/x");
  if (found == NULL || farcall_call(server, "total", N, found, &sum) != FARCALL_OK)
    return failed("total again");
  printf("%.1f\n", sum);
  if (farcall_call(server, "twice", N, found) == FARCALL_OK)
    return failed("named data were written");
  farcall_release(second);
  farcall_drop_array(found);
  if (farcall_data(server, "c/x") != NULL || farcall_data(server, "../x") != NULL)
    return failed("found what is gone");
  puts("gone");
  farcall_disconnect(server);
  return 0;
}
