/* Far more sessions than are remembered: `many SERVER` serves languages.idl. */
#include "farcall.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 16, ROUNDS = 2 * MOST + 1000, AT_ONCE = 100 };

static long resident_pages(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  long size, resident = -1;
  if (file == NULL || fscanf(file, "%ld %ld", &size, &resident) != 2)
    resident = -1;
  if (file != NULL)
    fclose(file);
  return resident;
}

static void check(int line, int good) {
  if (good)
    return;
  fprintf(stderr, "line %d: %s\n", line, farcall_error_message());
  exit(1);
}
#define CHECK(condition) check(__LINE__, (condition))

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argc > 1 ? argv[1] : NULL);
  farcall_function *dot = farcall_function_of(server, "conformance/dot");
  farcall_session sessions[AT_ONCE], first = 0, last = 0;
  static double r[AT_ONCE];
  double x = 3;
  long before = 0;
  int round, i;

  CHECK(dot != NULL);
  for (round = 0; round < ROUNDS; round += AT_ONCE) {
    for (i = 0; i < AT_ONCE; i++) {
      sessions[i] = farcall_invoke_async(dot, 1, &x, &x, &r[i]);
      CHECK(sessions[i] != 0);
    }
    CHECK(farcall_wait_and(sessions, AT_ONCE, 30) == FARCALL_OK);
    if (round == 0)
      first = sessions[0];
    last = sessions[AT_ONCE - 1];
    if (round <= ROUNDS - MOST)
      before = resident_pages();
  }
  CHECK(r[AT_ONCE - 1] == 9);
  /* The last ones are remembered, the first one is not, and memory is bounded. */
  CHECK(farcall_wait(last, 0) == FARCALL_OK);
  CHECK(farcall_wait(last - MOST / 2, 0) == FARCALL_OK);
  CHECK(farcall_wait(first, 0) == FARCALL_UNKNOWN_SESSION);
  CHECK(resident_pages() - before < 4096);

  /* Nobody waits for these: the number of results that are kept is bounded. */
  for (i = 0; farcall_invoke_async(dot, 1, &x, &x, &r[0]) != 0; i++)
    CHECK(i < MOST);
  CHECK(i == MOST && farcall_error_status() == FARCALL_ARGUMENT);
  CHECK(farcall_cancel_all(server) == FARCALL_OK);
  CHECK(farcall_wait_all(server, 30) != FARCALL_RUNNING);

  /* One that is cancelled needs no wait, and is remembered. */
  for (i = 0; i < MOST + 1000; i++) {
    last = farcall_invoke_async(dot, 1, &x, &x, &r[0]);
    CHECK(last != 0);
    CHECK(farcall_cancel(last) == FARCALL_OK);
  }
  CHECK(farcall_wait(last - MOST / 2, 0) != FARCALL_UNKNOWN_SESSION);
  CHECK(farcall_invoke(dot, 1, &x, &x, &r[0]) == FARCALL_OK);
  farcall_disconnect(server);
  return 0;
}
