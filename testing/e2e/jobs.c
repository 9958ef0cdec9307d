/* Submits a call to the server named by the first argument; or, with an id as the second one,
 * fetches what it has come to. */
#include "farcall.h"

#include <math.h>
#include <stdio.h>

enum { N = 2 };

static int failed(const char *what) {
  printf("%s: %s\n", what, farcall_error_message());
  return 1;
}

/* The same call with its arguments in an array of pointers, and in one of values. */
static int by_arrays(farcall_server *server) {
  farcall_function *dgesv = farcall_function_of(server, "dgesv");
  double a[N * N] = {2, 1, 1, 3}, b[N] = {4, 7};
  int32_t n = N, one = 1, pivots[N], info = -1;
  void *arguments[] = {&n, &one, a, &n, pivots, b, &n, &info};
  farcall_value values[] = {
      {&n, sizeof n, FARCALL_INT, 1},      {&one, sizeof one, FARCALL_INT, 1},
      {a, sizeof a, FARCALL_DOUBLE, 0},    {&n, sizeof n, FARCALL_INT, 1},
      {pivots, sizeof pivots, FARCALL_INT, 0}, {b, sizeof b, FARCALL_DOUBLE, 0},
      {&n, sizeof n, FARCALL_INT, 1},      {&info, sizeof info, FARCALL_INT, 0}};
  char id[FARCALL_JOB_ID_BYTES];

  if (farcall_submit_array(dgesv, id, arguments, 8) != FARCALL_OK ||
      farcall_fetch_array(dgesv, id, arguments, 8) != FARCALL_OK)
    return failed("by pointers");
  if (info != 0 || fabs(b[0] - 1) > 1e-12 || fabs(b[1] - 2) > 1e-12)
    return failed("another solution by pointers");
  a[0] = 2, a[1] = a[2] = 1, a[3] = 3, b[0] = 4, b[1] = 7, info = -1;
  /* The submission only reads the arrays. */
  values[2].read_only = values[5].read_only = 1;
  if (farcall_submit_values(dgesv, id, values, 8) != FARCALL_OK ||
      farcall_fetch_values(dgesv, id, values, 8) != FARCALL_ARGUMENT)
    return failed("read-only arrays by values");
  values[2].read_only = values[5].read_only = 0;
  if (farcall_fetch_values(dgesv, id, values, 8) != FARCALL_OK)
    return failed("by values");
  if (info != 0 || fabs(b[0] - 1) > 1e-12 || fabs(b[1] - 2) > 1e-12)
    return failed("another solution by values");
  return farcall_submit_array(dgesv, id, arguments, 7) == FARCALL_ARGUMENT &&
                 farcall_fetch_values(dgesv, id, values, 7) == FARCALL_ARGUMENT
             ? 0
             : failed("too few arguments were taken");
}

/* The sizes depend on an array that the fetch does not have, and texts travel with the scalars. */
static int without_inputs(farcall_server *server) {
  farcall_function *total = farcall_function_of(server, "total");
  farcall_function *spelled = farcall_function_of(server, "spelled");
  int32_t n = 2, ends[] = {0, 1, 3};
  double x[] = {1, 2, 3}, sum = 0;
  void *arguments[] = {&n, ends, x, &sum};
  const char *words[] = {"one", "three"};
  int32_t length = 0;
  void *texts[] = {&n, words, &length};
  char id[FARCALL_JOB_ID_BYTES];

  if (farcall_submit_array(total, id, arguments, 4) != FARCALL_OK)
    return failed("submit with an element as a size");
  arguments[1] = arguments[2] = NULL;
  if (farcall_fetch_array(total, id, arguments, 4) != FARCALL_OK || sum != 6)
    return failed("fetch without the inputs");
  if (farcall_submit_array(spelled, id, texts, 3) != FARCALL_OK)
    return failed("submit with texts");
  texts[1] = NULL;
  if (farcall_fetch_array(spelled, id, texts, 3) != FARCALL_OK || length != 8)
    return failed("fetch without the texts");
  return 0;
}

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argv[1]);
  double a[N * N] = {2, 1, 1, 3}, b[N] = {4, 7};
  int32_t pivots[N], info = -1;
  char id[FARCALL_JOB_ID_BYTES], other[FARCALL_JOB_ID_BYTES];

  if (server == NULL)
    return failed("connect");
  if (argc < 3) {
    if (farcall_submit(server, "dgesv", id, N, 1, a, N, NULL, b, N, NULL) != FARCALL_OK)
      return failed("submit");
    if (b[0] != 4 || b[1] != 7)
      return failed("the arrays were written to");
    puts(id);
    return 0;
  }
  if (farcall_fetch(server, "dgesv", argv[2], N + 1, 1, a, N + 1, pivots, b, N + 1, &info) !=
      FARCALL_ARGUMENT)
    return failed("other scalars were taken");
  puts(farcall_error_message());
  b[0] = b[1] = 0;
  if (farcall_fetch(server, "dgesv", argv[2], N, 1, a, N, pivots, b, N, &info) != FARCALL_OK)
    return failed("fetch");
  if (info != 0 || fabs(b[0] - 1) > 1e-12 || fabs(b[1] - 2) > 1e-12)
    return failed("another solution");
  if (farcall_job_state(server, argv[2]) != FARCALL_JOB_DONE)
    return failed("state");
  if (farcall_submit(server, "dgesv", other, N, 1, a, N, NULL, b, N, NULL) != FARCALL_OK ||
      farcall_cancel_job(server, other) != FARCALL_OK ||
      farcall_forget_job(server, other) != FARCALL_OK)
    return failed("cancel");
  if (farcall_submit(server, "dgesv", other, N, 1, a, N, NULL, b, N, NULL) != FARCALL_OK ||
      farcall_drop_job(server, other) != FARCALL_OK)
    return failed("drop");
  if (farcall_job_state(server, other) != FARCALL_JOB_UNKNOWN)
    return failed("forgotten");
  puts(farcall_error_message());
  if (by_arrays(server) != 0 || without_inputs(server) != 0)
    return 1;
  farcall_disconnect(server);
  return 0;
}
