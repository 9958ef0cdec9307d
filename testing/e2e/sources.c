/* Arrays at addresses: the second argument is read, and the third one is written. */
#include "farcall.h"

#include <stdio.h>

static int failed(const char *what) {
  printf("%s: %s\n", what, farcall_error_message());
  return 1;
}

int main(int argc, char **argv) {
  farcall_server *server = farcall_connect(argv[1]);
  farcall_handle *from = farcall_url(argv[2]), *to = farcall_url(argv[3]);
  double sum, x[1];
  int n = 3;

  if (argc < 5 || server == NULL || from == NULL || to == NULL)
    return failed("start");
  if (farcall_call(server, "total", n, from, &sum) != FARCALL_OK)
    return failed("total");
  printf("%.1f\n", sum);
  if (farcall_call(server, "copy", n, from, to) != FARCALL_OK)
    return failed("copy");
  if (farcall_get(from, x, sizeof x) == FARCALL_OK)
    return failed("got an address");
  if (farcall_handle_id(from)[0] != '\0' || farcall_data_version(from) != 0)
    return failed("an address has an id");
  farcall_free_handle(from);
  from = farcall_url(argv[4]);
  if (farcall_call(server, "total", n, from, &sum) == FARCALL_OK)
    return failed("read what is not allowed");
  puts(farcall_error_message());
  if (farcall_url("https://a.org/b#nothing=1") != NULL)
    return failed("took an unknown option");
  farcall_free_handle(from);
  farcall_drop_array(to);
  farcall_disconnect(server);
  return 0;
}
