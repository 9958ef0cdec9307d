/* Functions that a remote function calls: `callbacks SERVER` serves callbacks.idl. */
#include "farcall.h"
#include "grpc.h"
#include "ninf.h"

#include <complex.h>
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

static int steps, seen_in_order = 1;

static void report(int32_t step, int32_t of) {
  seen_in_order &= step == steps + 1 && of == 9;
  steps = step;
}

static void monitor(int32_t k, double residual, int32_t n, const double *x, int32_t *stop) {
  CHECK(x[n - 1] == k + n - 1);
  *stop = residual < 0.1;
}

static void everything(char c, int16_t s, int64_t l, float f, double complex z, const char *text,
                       int32_t n, float *x, double *sum) {
  CHECK(c == 'A' && s == -2 && l == 1LL << 40 && f == 0.5f && strcmp(text, "text") == 0);
  CHECK(creal(z) == 1 && cimag(z) == 2 && n == 2 && x[3] == 3 && x[5] == 0);
  x[0] = 100;
  *sum = 0.25;
}

static void square(double x, double *y) { *y = x * x; }

static farcall_session own;

static void waiting(double x, double *y) {
  CHECK(farcall_probe(own) == FARCALL_RUNNING);
  CHECK(farcall_wait(own, -1) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "a callback waits for its own call") != NULL);
  CHECK(farcall_wait_all(NULL, -1) == FARCALL_ARGUMENT);
  CHECK(farcall_wait_any(NULL, -1, NULL) == FARCALL_ARGUMENT);
  square(x, y);
}

static void giving_up(double x, double *y) {
  square(x, y);
  CHECK(farcall_cancel(own) == FARCALL_OK);
  CHECK(farcall_wait(own, -1) == FARCALL_CANCELLED);
}

static void handler(const char *name, int32_t info) {
  CHECK(strcmp(name, "DGETRF") == 0 && info == 4);
  steps = -info;
}

int main(int argc, char **argv) {
  const char *address = argc > 1 ? argv[1] : NULL;
  farcall_server *server = farcall_connect(address);
  farcall_function *evaluate = farcall_function_of(server, "evaluate");
  farcall_session sessions[3], which = 0;
  double x[3], sum = 0, values[3][4];
  int32_t seen = 0, done = 0, i;
  grpc_function_handle_t handle;
  char name[200];

  CHECK(evaluate != NULL);
  CHECK(farcall_call(server, "progress", 9, &seen, report) == FARCALL_OK);
  CHECK(seen == 9 && steps == 9 && seen_in_order);
  CHECK(farcall_call(server, "iterate", 3, x, &done, monitor) == FARCALL_OK && done == 5);
  CHECK(farcall_call(server, "types", 2, &sum, everything) == FARCALL_OK);
  CHECK(sum == 100 + 1 + 2 + 3 + 4 + 5 + 0.25);
  CHECK(farcall_call(server, "faulty", 4, handler) == FARCALL_OK && steps == -4);

  CHECK(farcall_argument_count(evaluate) == 3);
  CHECK(farcall_argument_kind(evaluate, 2) == FARCALL_FUNCTION);
  CHECK(farcall_argument_type(evaluate, 2) == FARCALL_FUNCTION);
  CHECK(strcmp(farcall_argument_name(evaluate, 2), "f") == 0);
  CHECK(farcall_call(server, "evaluate", 4, values[0], NULL) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "`f`: expected a function, given NULL") != NULL);

  /* Each is answered while this thread waits for any of them. */
  for (i = 0; i < 3; i++)
    CHECK((sessions[i] = farcall_invoke_async(evaluate, 4, values[i], square)) != 0);
  CHECK(farcall_wait_or(sessions, 3, 30, &which) == FARCALL_OK && which != 0);
  CHECK(farcall_wait_and(sessions, 3, 30) == FARCALL_OK);
  for (i = 0; i < 3; i++)
    CHECK(values[i][3] == 9 && values[i][2] == 4);

  /* A probe answers what has come. */
  CHECK((sessions[0] = farcall_invoke_async(evaluate, 4, values[0], square)) != 0);
  values[0][3] = 0;
  while (farcall_probe(sessions[0]) == FARCALL_RUNNING)
    ;
  CHECK(farcall_probe(sessions[0]) == FARCALL_OK && values[0][3] == 9);

  CHECK((own = farcall_invoke_async(evaluate, 4, values[0], waiting)) != 0);
  CHECK(farcall_wait(own, -1) == FARCALL_OK && values[0][3] == 9);
  CHECK((own = farcall_invoke_async(evaluate, 4, values[0], giving_up)) != 0);
  CHECK(farcall_wait(own, -1) == FARCALL_CANCELLED);

  /* The other names. */
  CHECK(setenv("FARCALL_SERVER", address, 1) == 0);
  CHECK(grpc_initialize(NULL) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_default(&handle, "callbacks/evaluate") == GRPC_NO_ERROR);
  CHECK(grpc_call(&handle, 4, values[0], square) == GRPC_NO_ERROR && values[0][3] == 9);
  CHECK(grpc_function_handle_destruct(&handle) == GRPC_NO_ERROR);
  CHECK(grpc_finalize() == GRPC_NO_ERROR);
  snprintf(name, sizeof name, "%s/callbacks/evaluate", address);
  values[1][3] = 0;
  CHECK(Ninf_call(name, 4, values[1], square) == NINF_OK && values[1][3] == 9);
  farcall_disconnect(server);
  return 0;
}
