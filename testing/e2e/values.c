/* What small integers become, and what a forked child can do: `values SERVER`. */
#include "farcall.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls a function of one scalar, whose value is a `long`. */
static void show(farcall_server *server, const char *name, void *data, size_t bytes, int kind) {
  int64_t out = 0;
  farcall_value values[2] = {{data, bytes, kind, 1}, {&out, sizeof out, FARCALL_LONG, 0}};
  const farcall_function *function = farcall_function_of(server, name);
  const farcall_status status = farcall_call_values(function, values, 2);

  if (status == FARCALL_OK)
    printf("%s %lld\n", name, (long long)out);
  else
    printf("%s: %s\n", name, farcall_error_message());
}

static int fork_with_a_call(farcall_server *server) {
  int slept = 0, own = 0;
  const farcall_session session = farcall_call_async(server, "values/nap", 500, &slept);
  int status;
  pid_t child;

  fflush(stdout);
  child = fork();
  if (child == 0) {
    printf("child waits: %d\n", farcall_wait(session, -1));
    printf("child calls: %d\n", farcall_call(server, "values/nap", 1, &own));
    printf("child has %d\n", own);
    farcall_disconnect(server);
    fflush(stdout);
    _exit(0);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    return 1;
  printf("parent waits: %d\n", farcall_wait(session, 30));
  printf("parent has %d\n", slept);
  return 0;
}

int main(int argc, char **argv) {
  signed char minus = -1;
  int64_t whole = (1 << 24) + 1;
  farcall_server *server = argc == 2 ? farcall_connect(argv[1]) : NULL;

  if (server == NULL)
    return 2;
  show(server, "of_signed", &minus, 1, FARCALL_CHAR);
  show(server, "of_unsigned", &minus, 1, FARCALL_CHAR);
  show(server, "of_int", &minus, 1, FARCALL_CHAR);
  show(server, "of_double", &minus, 1, FARCALL_CHAR);
  show(server, "of_float", &whole, 8, FARCALL_LONG);
  if (fork_with_a_call(server) != 0)
    return 1;
  farcall_disconnect(server);
  return 0;
}
