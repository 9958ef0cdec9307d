/* Asks how calls fare: two asynchronous ones, and a durable one whose id is the second argument. */
#include "farcall.h"

#include <stdio.h>
#include <string.h>

static int failed(const char *what) {
  printf("%s: %s\n", what, farcall_error_message());
  return 1;
}

int main(int count, char **words) {
  farcall_server *server = farcall_connect(words[1]);
  farcall_call_status status = {.size = sizeof status}, wrong = {.size = 1};
  int slept[2];
  farcall_session first, second;

  if (!server)
    return failed("connect");
  if (count > 2) {
    if (farcall_job_status(server, words[2], &status) != FARCALL_OK)
      return failed("durable call");
    printf("%d %s\n", status.phase, status.reason);
    return 0;
  }
  first = farcall_call_async(server, "nap", 2000, &slept[0]);
  second = farcall_call_async(server, "nap", 2000, &slept[1]);
  if (!first || !second)
    return failed("call");
  do {
    if (farcall_session_status(first, &status) != FARCALL_OK)
      return failed("status");
  } while (status.phase < FARCALL_COMPUTING);
  if (status.phase != FARCALL_COMPUTING || status.starts_likely >= 0)
    return printf("%d: %s\n", status.phase, status.reason), 1;
  if (farcall_session_status(second, &status) != FARCALL_OK)
    return failed("status");
  printf("%d %s\n", status.phase, status.reason);
  if (!(0 <= status.starts_low && status.starts_low <= status.starts_likely &&
        status.starts_likely <= status.starts_high && status.starts_high <= status.ends_high))
    return printf("starts in %g, ends in %g\n", status.starts_likely, status.ends_likely), 1;
  if (farcall_wait(second, 60) != FARCALL_OK ||
      farcall_session_status(second, &status) != FARCALL_OK)
    return failed("wait");
  printf("%d %s\n", status.phase, status.reason);
  if (farcall_session_status(second, &wrong) == FARCALL_OK ||
      !strstr(farcall_error_message(), "sizeof(farcall_call_status)"))
    return failed("a wrong size");
  if (farcall_session_status(12345, &status) == FARCALL_OK)
    return failed("an unknown session");
  farcall_disconnect(server);
  return 0;
}
