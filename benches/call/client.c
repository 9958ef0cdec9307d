/* The C side of `farcall bench call`, `client ADDRESS [tcp]`: answers each line
 * `BYTES COUNT OUTSTANDING` of standard input as benches/contenders.py does, with the seconds of a
 * call. With 1 outstanding, this is the median of COUNT calls that send BYTES bytes and receive as
 * many, where 0 bytes is the null call. With more, it is the time of COUNT null calls divided by
 * COUNT; OUTSTANDING of them are under way at any time. With `tcp` it uses TCP only. */
#include "farcall.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST_OUTSTANDING = 64 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(int good) {
  if (good)
    return;
  printf("%s\n", farcall_error_message());
  exit(1);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double single(farcall_server *server, long bytes, long count) {
  farcall_function *null = farcall_function_of(server, "bench/null");
  farcall_function *echo = farcall_function_of(server, "bench/echo");
  long elements = bytes / 8, call;
  double *source = calloc((size_t)elements + 1, sizeof *source);
  double *result = calloc((size_t)elements + 1, sizeof *result);
  double *times = calloc((size_t)count, sizeof *times), median;

  check(null != NULL && echo != NULL && source != NULL && result != NULL && times != NULL);
  for (call = 0; call < elements; call++)
    source[call] = 1, result[call] = 0;
  for (call = 0; call < count; call++) {
    double start = now();
    if (bytes == 0)
      check(farcall_invoke(null, 1) == FARCALL_OK);
    else
      check(farcall_invoke(echo, (int64_t)elements, source, result) == FARCALL_OK);
    times[call] = now() - start;
  }
  qsort(times, (size_t)count, sizeof *times, ascending);
  median = times[count / 2];
  free(times), free(result), free(source);
  return median;
}

static double several(farcall_server *server, long count, long outstanding) {
  farcall_function *null = farcall_function_of(server, "bench/null");
  farcall_session sessions[MOST_OUTSTANDING];
  double start = now();
  long call;

  check(null != NULL && outstanding <= MOST_OUTSTANDING);
  for (call = 0; call < count + outstanding; call++) {
    farcall_session *oldest = &sessions[call % outstanding];
    check(call < outstanding || farcall_wait(*oldest, -1) == FARCALL_OK);
    if (call < count)
      check((*oldest = farcall_invoke_async(null, 1)) != 0);
  }
  return (now() - start) / (double)count;
}

int main(int argc, char **argv) {
  const farcall_options options = {sizeof options, 0, 0, argc > 2};
  farcall_server *server = farcall_connect_with(argc > 1 ? argv[1] : NULL, &options);
  long bytes, count, outstanding;

  check(server != NULL);
  printf("ready\n"), fflush(stdout);
  while (scanf("%ld %ld %ld", &bytes, &count, &outstanding) == 3 && count > 0) {
    double seconds =
        outstanding > 1 ? several(server, count, outstanding) : single(server, bytes, count);
    printf("%.9f\n", seconds), fflush(stdout);
  }
  farcall_disconnect(server);
  return 0;
}
