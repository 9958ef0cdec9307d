/* A client of a server that may do anything: `hostile SERVER TIMEOUT`. Prints the status of each
 * step, and never waits much longer than the time-out. */
#include "farcall.h"
#include "grpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 16 };

static void say(const char *step, farcall_status status) {
  printf("%s: %d %s\n", step, status, status == FARCALL_OK ? "" : farcall_error_message());
}

static void gridrpc(const char *address) {
  static double x[N], y[N];
  grpc_function_handle_t axpy;
  grpc_error_t error = grpc_initialize(NULL);

  if (error == GRPC_NO_ERROR)
    error = grpc_function_handle_init(&axpy, address, "conformance/axpy");
  if (error == GRPC_NO_ERROR)
    error = grpc_call(&axpy, N, 1.0, x, y);
  printf("gridrpc: %s\n", grpc_error_string(error));
  grpc_finalize();
}

int main(int argc, char **argv) {
  static double x[N], y[N], copy[N];
  farcall_options options = {sizeof options, 0, 0, 0};
  farcall_server *server;
  farcall_function *axpy;
  farcall_session sessions[2], which;

  if (argc != 3)
    return 2;
  options.connect_timeout = options.timeout = atof(argv[2]);
  if (options.timeout == 0)
    return gridrpc(argv[1]), 0;
  server = farcall_connect_with(argv[1], &options);
  say("connect", server == NULL ? farcall_error_status() : FARCALL_OK);
  if (server == NULL)
    return 0;
  axpy = farcall_function_of(server, "conformance/axpy");
  say("function", axpy == NULL ? farcall_error_status() : FARCALL_OK);
  if (axpy != NULL) {
    say("call", farcall_invoke(axpy, N, 1.0, x, y));
    sessions[0] = farcall_invoke_async(axpy, N, 1.0, x, y);
    sessions[1] = farcall_invoke_async(axpy, N, 1.0, x, copy);
    say("start", sessions[0] == 0 || sessions[1] == 0 ? farcall_error_status() : FARCALL_OK);
    if (sessions[0] != 0 && sessions[1] != 0) {
      say("wait or", farcall_wait_or(sessions, 2, -1, &which));
      say("wait and", farcall_wait_and(sessions, 2, -1));
    }
    say("wait all", farcall_wait_all(server, -1));
  }
  farcall_disconnect(server);
  return 0;
}
