/* The call script in C: prints what script.txt says. The server is the first argument. */
#include "farcall.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static farcall_server *server;

static void check(farcall_status status) {
  if (status != FARCALL_OK) {
    fprintf(stderr, "%s\n", farcall_error_message());
    exit(1);
  }
}

/* Numbers times 100, so that every language prints them alike. */
static void show(const char *name, const double *values, int count) {
  int i;
  printf("%s:", name);
  for (i = 0; i < count; i++)
    printf(" %lld", llround(100 * values[i]));
  printf("\n");
}

static const char *word(farcall_status status) {
  switch (status) {
  case FARCALL_ARGUMENT:
    return "argument";
  case FARCALL_UNKNOWN_FUNCTION:
    return "unknown function";
  case FARCALL_LIBRARY:
    return "library";
  case FARCALL_RUNNING:
    return "running";
  case FARCALL_CANCELLED:
    return "cancelled";
  default:
    return farcall_status_text(status);
  }
}

static void arrays(void) {
  double values[6], x[] = {1, 2, 3}, y[] = {10, 20, 30}, sum;
  double data[] = {0, 1, 2, 3, 4, 5, 6, 7};
  int16_t shorts[] = {10, -20, 30};
  float floats[] = {1.5f, 2.5f, 3.5f};
  char chars[] = {64, 11, 96};
  int64_t sums[3];
  int32_t a[] = {1, 2, 3, 4, 5, 6};

  check(farcall_call(server, "conformance/scalars", 'A', -2, 300000, INT64_C(5000000000), 1.5,
                     -0.25, values));
  show("scalars", values, 6);
  check(farcall_call(server, "conformance/axpy", 3, 2.0, x, y));
  show("axpy", y, 3);
  check(farcall_call(server, "conformance/types", 3, shorts, floats, chars, sums));
  printf("types: %d %d %d\n", (int)sums[0], (int)sums[1], (int)sums[2]);
  check(farcall_call(server, "conformance/section", 2, 3, a));
  printf("section: %d %d %d %d %d %d\n", a[0], a[1], a[2], a[3], a[4], a[5]);
  check(farcall_call(server, "conformance/shrunk", 8, 1, 7, 2, data, &sum));
  show("shrunk", &sum, 1);
}

static void kinds(void) {
  const char *const words[] = {"one", "", "three"};
  char rooms[4][13], eight[3][9] = {"one", "two full", ""};
  char *parts[] = {rooms[0], rooms[1], rooms[2], rooms[3]};
  char *full[] = {eight[0], eight[1], eight[2]};
  char text[64];
  int32_t length;
  double complex z[] = {1, 2 * I};
  float complex conjugate;
  double unsorted[] = {5, -3, 2, 1}, sorted[4], x[] = {1, 2, 3}, y[] = {4, 5, 6}, dot, grid[6];

  check(farcall_call(server, "conformance/greet", "hello", "world", 32, text, &length));
  printf("greet: %s (%d)\n", text, length);
  check(farcall_call(server, "conformance/join", 3, words, "+", text, &length));
  printf("join: %s (%d)\n", text, length);
  check(farcall_call(server, "conformance/split", "one,,three,a dozen characters", ',', 4, parts,
                     &length));
  printf("split: %s|%s|%s|%s (%d)\n", parts[0], parts[1], parts[2], parts[3], length);
  check(farcall_call(server, "conformance/capitals", 3, 8, full));
  printf("capitals: %s|%s|%s\n", full[0], full[1], full[2]);
  check(farcall_call(server, "conformance/rotate", 2, (double complex)I, z,
                     (float complex)(1.5f + 2.5f * I), &conjugate));
  printf("rotate: %.0f %.0f %.0f %.0f / %.0f %.0f\n", 100 * creal(z[0]), 100 * cimag(z[0]),
         100 * creal(z[1]), 100 * cimag(z[1]), 100 * crealf(conjugate), 100 * cimagf(conjugate));
  check(farcall_call(server, "conformance/sort", 4, unsorted, sorted));
  show("sort", sorted, 4);
  check(farcall_call(server, "conformance/dot", 3, x, y, &dot));
  show("dot", &dot, 1);
  check(farcall_call(server, "conformance/grid", 3, 2, grid));
  show("grid", grid, 6);
}

static void files(void) {
  int64_t bytes;

  check(farcall_call(server, "conformance/upper", "text", "capitals", "tally", &bytes));
  printf("files: %d bytes\n", (int)bytes);
  printf("no such file: %s\n",
         word(farcall_call(server, "conformance/upper", "nothing", "new", "tally", &bytes)));
}

static void objects(void) {
  farcall_object *one = farcall_object_new(server, "conformance/Counter");
  farcall_object *other = farcall_object_new(server, "Counter");
  int32_t values[3];

  check(farcall_invoke(farcall_object_method(one, "add"), 3, &values[0]));
  check(farcall_invoke(farcall_object_method(other, "add"), 7, &values[1]));
  check(farcall_invoke(farcall_object_method(one, "add"), 7, &values[2]));
  printf("objects: %d %d %d\n", values[0], values[1], values[2]);
  farcall_object_free(one);
  farcall_drop_object(other);
  printf("method of no object: %s\n",
         word(farcall_call(server, "conformance/Counter.add", 1, &values[0])));
}

static void errors(void) {
  double x[] = {1, 2, 3}, y[] = {4, 5, 6}, dot;

  printf("wrong argument: %s\n",
         word(farcall_call(server, "conformance/dot", 3, NULL, y, &dot)));
  printf("unknown function: %s\n", word(farcall_call(server, "conformance/nothing")));
  printf("crash: %s\n", word(farcall_call(server, "conformance/crash", 1)));
  check(farcall_call(server, "conformance/dot", 3, x, y, &dot));
  show("after the crash", &dot, 1);
}

static void several(void) {
  farcall_function *nap = farcall_function_of(server, "conformance/nap");
  farcall_session sessions[3], session, which;
  int32_t slept[3], ended = 0;
  int i;

  for (i = 0; i < 3; i++)
    sessions[i] = farcall_invoke_async(nap, 10 * (i + 1), &slept[i]);
  check(farcall_wait_and(sessions, 3, 30));
  printf("several at once: %d %d %d\n", slept[0], slept[1], slept[2]);

  for (i = 0; i < 3; i++)
    farcall_invoke_async(nap, 1, &slept[i]);
  for (;;) {
    check(farcall_wait_any(server, 30, &which));
    if (which == 0)
      break;
    ended++;
  }
  printf("wait any: %d of 3\n", ended);

  session = farcall_invoke_async(nap, 300, &slept[0]);
  printf("time-out: %s, ", word(farcall_wait(session, 0.01)));
  check(farcall_wait(session, 30));
  printf("then %d\n", slept[0]);

  session = farcall_invoke_async(nap, 60000, &slept[0]);
  check(farcall_cancel(session));
  printf("cancel: %s\n", word(farcall_wait(session, 30)));
}

int main(int argc, char **argv) {
  server = farcall_connect(argc > 1 ? argv[1] : NULL);
  if (server == NULL) {
    fprintf(stderr, "%s\n", farcall_error_message());
    return 1;
  }
  arrays();
  kinds();
  files();
  objects();
  errors();
  several();
  farcall_disconnect(server);
  return 0;
}
