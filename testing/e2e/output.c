/* Prints here what a remote library prints. `output SERVER`; the server has faults.idl. */
#include "farcall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int line, int good) {
  if (good)
    return;
  fprintf(stderr, "line %d: %s\n", line, farcall_error_message());
  exit(1);
}
#define CHECK(condition) check(__LINE__, (condition))

static void keep(void *user, const char *text, size_t bytes) { strncat(user, text, bytes); }

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argc > 1 ? argv[1] : NULL);
  farcall_function *prints = farcall_function_of(server, "faults/prints");
  char kept[100] = "";

  CHECK(prints != NULL);
  CHECK(farcall_forward_output(prints, keep, kept) == FARCALL_OK);
  CHECK(farcall_invoke(prints, "one\n", "two\n") == FARCALL_OK);
  CHECK(strstr(kept, "one\n") != NULL && strstr(kept, "two\n") != NULL);
  CHECK(farcall_forward_output(prints, NULL, NULL) == FARCALL_OK);
  printf("here\n");
  CHECK(farcall_invoke(prints, "three\n", "") == FARCALL_OK);
  printf("here again\n");
  CHECK(farcall_invoke(prints, "no end", "") == FARCALL_OK);
  CHECK(farcall_keep_output(prints) == FARCALL_OK);
  CHECK(farcall_invoke(prints, "four\n", "") == FARCALL_OK);
  CHECK(farcall_forward_output(NULL, NULL, NULL) == FARCALL_ARGUMENT);
  farcall_disconnect(server);
  return 0;
}
