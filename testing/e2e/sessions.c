/* Sessions of farcall.h: two servers, several threads, time-outs, cancelling, values that say what
 * they are. `sessions SERVER OTHER` serve languages.idl. */
#include "farcall.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, MANY = 200, LONG_NAP = 60000 };

static farcall_server *one, *other;
static atomic_int failures, ended;

static void expect(int line, const char *what, long found, long wanted) {
  if (found == wanted)
    return;
  failures++;
  fprintf(stderr, "line %d: %s is %ld, not %ld; last error: %s\n", line, what, found, wanted,
          farcall_error_message());
}
#define EXPECT(call, wanted) expect(__LINE__, #call, (long)(call), (long)(wanted))

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* A wait for one of the calls of two servers. */
static void *two_servers(void *unused) {
  farcall_session ids[2], which;
  int32_t slept[2];
  double start = now();

  ids[0] = farcall_call_async(one, "nap", LONG_NAP, &slept[0]);
  ids[1] = farcall_call_async(other, "nap", 20, &slept[1]);
  EXPECT(ids[0] != 0 && ids[1] != 0, 1);
  EXPECT(farcall_probe(ids[0]), FARCALL_RUNNING);
  EXPECT(farcall_wait_or(ids, 1, 0, &which), FARCALL_RUNNING);
  EXPECT(which, 0);
  EXPECT(farcall_wait_or(ids, 2, 30, &which), FARCALL_OK);
  EXPECT(which, ids[1]);
  EXPECT(slept[1], 20);
  EXPECT(farcall_session_times(ids[1]).exec >= 0.02, 1);
  EXPECT(farcall_session_times(ids[0]).total == 0, 1);
  EXPECT(farcall_wait_and(ids, 2, 0.01), FARCALL_RUNNING);
  EXPECT(farcall_wait_and(ids, (size_t)-1, 0.01), FARCALL_ARGUMENT);
  EXPECT(farcall_cancel(ids[0]), FARCALL_OK);
  EXPECT(farcall_wait_and(ids, 2, 30), FARCALL_CANCELLED);
  EXPECT(strstr(farcall_error_message(), "conformance/nap") != NULL, 1);
  EXPECT(farcall_next_failed(), ids[0]);
  EXPECT(farcall_next_failed(), 0);
  EXPECT(farcall_probe(ids[0]), FARCALL_CANCELLED);
  EXPECT(now() - start < 30, 1);
  return unused;
}

/* A call whose end nobody waits for. */
static void *only_probed(void *unused) {
  enum { LENGTH = 1 << 15 };
  double *x = malloc(LENGTH * sizeof *x), *y = malloc(LENGTH * sizeof *y);
  farcall_session id;
  int i;

  for (i = 0; i < LENGTH; i++)
    x[i] = y[i] = 1;
  id = farcall_call_async(one, "axpy", LENGTH, 2.0, x, y);
  EXPECT(id != 0, 1);
  while (farcall_probe(id) == FARCALL_RUNNING)
    ;
  EXPECT(farcall_probe(id), FARCALL_OK);
  EXPECT(y[0] == 3 && y[LENGTH - 1] == 3, 1);
  EXPECT(farcall_wait(id, 30), FARCALL_OK);
  free(x);
  free(y);
  return unused;
}

/* Each thread has objects of its own, which keep apart what they count. */
static void *objects(void *unused) {
  farcall_object *counter = farcall_object_new(one, "conformance/Counter");
  farcall_object *other = farcall_object_new(one, "Counter");
  farcall_function *add = farcall_object_method(counter, "add");
  farcall_session ids[4];
  int32_t values[4], i;

  EXPECT(counter != NULL && other != NULL && add != NULL, 1);
  EXPECT(add == farcall_object_method(counter, "add"), 1);
  for (i = 0; i < 4; i++)
    ids[i] = farcall_invoke_async(add, 10, &values[i]);
  EXPECT(farcall_wait_and(ids, 4, 30), FARCALL_OK);
  EXPECT(values[0] == 10 && values[1] == 20 && values[2] == 30 && values[3] == 40, 1);
  EXPECT(farcall_invoke(farcall_object_method(other, "add"), 1, &values[0]), FARCALL_OK);
  EXPECT(values[0], 1);
  EXPECT(farcall_object_method(counter, "nothing") == NULL, 1);
  EXPECT(farcall_error_status(), FARCALL_UNKNOWN_FUNCTION);
  EXPECT(farcall_object_new(one, "Nothing") == NULL, 1);
  EXPECT(farcall_error_status(), FARCALL_UNKNOWN_FUNCTION);
  EXPECT(farcall_object_new(NULL, "Counter") == NULL, 1);
  EXPECT(farcall_object_method(NULL, "add") == NULL, 1);
  EXPECT(farcall_call(one, "Counter.add", 1, &values[0]), FARCALL_ARGUMENT);
  farcall_drop_object(other);
  farcall_object_free(counter);
  farcall_drop_object(NULL);
  return unused;
}

/* Sessions of other threads: each is reported once. */
static void *collect(void *unused) {
  farcall_session which;
  for (;;) {
    EXPECT(farcall_wait_any(NULL, 30, &which), FARCALL_OK);
    if (which == 0)
      return unused;
    ended++;
  }
}

/* Waits for one session while another thread cancels it. */
static void *wait_for(void *session) {
  EXPECT(farcall_wait(*(farcall_session *)session, 30), FARCALL_CANCELLED);
  return NULL;
}

static void in_threads(void *(*body)(void *), void *argument, void (*meanwhile)(void *)) {
  pthread_t threads[THREADS];
  int i;
  for (i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, body, argument);
  if (meanwhile != NULL)
    meanwhile(argument);
  for (i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
}

static void cancel(void *session) {
  EXPECT(farcall_wait(*(farcall_session *)session, 0.02) != FARCALL_OK, 1);
  EXPECT(farcall_cancel(*(farcall_session *)session), FARCALL_OK);
}

static void many(void) {
  static int32_t slept[MANY];
  farcall_session session;
  int i;

  for (i = 0; i < MANY; i++)
    EXPECT(farcall_call_async(i % 2 ? one : other, "nap", 0, &slept[i]) != 0, 1);
  in_threads(collect, NULL, NULL);
  EXPECT(ended, MANY);
  for (i = 0; i < MANY; i++)
    farcall_call_async(i % 2 ? one : other, "nap", 0, &slept[i]);
  EXPECT(farcall_wait_all(one, 30), FARCALL_OK);
  EXPECT(farcall_wait_all(NULL, 30), FARCALL_OK);
  session = farcall_call_async(one, "nap", LONG_NAP, &slept[0]);
  in_threads(wait_for, &session, cancel);
  EXPECT(farcall_wait_all(NULL, -1), FARCALL_OK);
  farcall_call_async(one, "nap", LONG_NAP, &slept[0]);
  farcall_call_async(other, "nap", LONG_NAP, &slept[1]);
  EXPECT(farcall_cancel_all(one), FARCALL_OK);
  EXPECT(farcall_wait_all(one, 30), FARCALL_CANCELLED);
  EXPECT(farcall_wait_all(other, 0), FARCALL_RUNNING);
  EXPECT(farcall_cancel_all(NULL), FARCALL_OK);
  EXPECT(farcall_wait_all(NULL, 30), FARCALL_CANCELLED);
  /* A later wait tells nothing of the failures of an earlier one. */
  EXPECT(farcall_wait_any(NULL, 30, &session), FARCALL_OK);
  EXPECT(session == 0 && farcall_next_failed() == 0, 1);
}

/* Waits for any call of each server, and waits for some of the calls themselves between them: each
 * call is reported once, by a wait for its own server. */
static void mixed(void) {
  static int32_t slept[MANY];
  static farcall_session ids[MANY];
  farcall_session which;
  int i, found[2] = {0, 0};

  for (i = 0; i < MANY; i++)
    ids[i] = farcall_call_async(i % 2 ? one : other, "nap", 0, &slept[i]);
  EXPECT(farcall_wait_any(one, 30, &which), FARCALL_OK);
  for (i = 0; i < MANY && ids[i] != which; i++)
    ;
  EXPECT(i < MANY && i % 2 == 1, 1);
  for (i = 0; i < MANY / 2; i++)
    EXPECT(farcall_wait(ids[i], 30), FARCALL_OK);
  for (;;) {
    EXPECT(farcall_wait_any(found[0] ? one : other, 30, &which), FARCALL_OK);
    if (which == 0 && found[0]++)
      break;
    for (i = MANY / 2; which != 0 && i < MANY && ids[i] != which; i++)
      ;
    EXPECT(which == 0 || (i < MANY && i % 2 == (found[0] ? 1 : 0)), 1);
    if (which != 0) {
      ids[i] = 0;
      found[1]++;
    }
  }
  /* The first one may have been of the second half. */
  EXPECT(found[1] == MANY / 2 || found[1] == MANY / 2 - 1, 1);
  EXPECT(farcall_wait_any(NULL, 30, &which), FARCALL_OK);
  EXPECT(which, 0);
}

static void values(void) {
  farcall_function *dot = farcall_function_of(one, "conformance/dot");
  double x[] = {1, 2, 3}, y[] = {4, 5, 6}, r = 0;
  int64_t n = 3;
  farcall_value list[] = {{&n, sizeof n, FARCALL_LONG, 1},
                          {x, sizeof x, FARCALL_DOUBLE, 1},
                          {y, sizeof y, FARCALL_DOUBLE, 1},
                          {&r, sizeof r, FARCALL_DOUBLE, 0}};

  EXPECT(farcall_call_values(dot, list, 4), FARCALL_OK);
  EXPECT(r, 32);
  r = 0;
  EXPECT(farcall_wait(farcall_call_values_async(dot, list, 4), 30), FARCALL_OK);
  EXPECT(r, 32);
  list[3].read_only = 1;
  EXPECT(farcall_call_values(dot, list, 4), FARCALL_ARGUMENT);
  list[3].read_only = 0, list[1].kind = FARCALL_FLOAT;
  EXPECT(farcall_call_values(dot, list, 4), FARCALL_ARGUMENT);
  EXPECT(strstr(farcall_error_message(), "argument `x`: expected 3 of double, given 6 of float") !=
             NULL,
         1);
  list[1].kind = FARCALL_DOUBLE, list[1].bytes = 16;
  EXPECT(farcall_call_values(dot, list, 4), FARCALL_ARGUMENT);
  list[1].bytes = sizeof x, n = INT64_C(1) << 40;
  EXPECT(farcall_call_values(dot, list, 4), FARCALL_ARGUMENT);
  list[0].kind = 77;
  EXPECT(farcall_call_values(dot, list, 4), FARCALL_ARGUMENT);
  EXPECT(farcall_call_values(dot, list, 3), FARCALL_ARGUMENT);
  EXPECT(farcall_call_values(dot, NULL, 4), FARCALL_ARGUMENT);
  EXPECT(farcall_call_values(NULL, list, 4), FARCALL_ARGUMENT);

  EXPECT(farcall_argument_count(dot), 4);
  EXPECT(farcall_argument_kind(dot, 0), FARCALL_INT);
  EXPECT(farcall_argument_kind(dot, 1), FARCALL_ARRAY);
  EXPECT(farcall_argument_type(dot, 1), FARCALL_DOUBLE);
  EXPECT(farcall_argument_written(dot, 1), 0);
  EXPECT(farcall_argument_written(dot, 3), 1);
  EXPECT(farcall_argument_unsigned(dot, 1), 0);
  EXPECT(farcall_argument_read(dot, 1), 1);
  EXPECT(farcall_argument_read(dot, 3), 0);
  EXPECT(strcmp(farcall_argument_name(dot, 3), "r"), 0);
  EXPECT(farcall_argument_name(dot, 4) == NULL, 1);
  EXPECT(strcmp(farcall_function_name(dot), "conformance/dot"), 0);
  EXPECT(strstr(farcall_function_interface(dot), "Define dot(") != NULL, 1);
}

static farcall_status call_list(farcall_function *function, ...) {
  va_list list;
  farcall_status status;
  va_start(list, function);
  status = farcall_call_list(function, list);
  va_end(list);
  return status;
}

static farcall_session start_list(farcall_function *function, ...) {
  va_list list;
  farcall_session session;
  va_start(list, function);
  session = farcall_call_list_async(function, list);
  va_end(list);
  return session;
}

/* All ways to begin a call. */
static void ways(void) {
  farcall_function *dot = farcall_function_of(one, "conformance/dot");
  double x[] = {1, 2, 3}, y[] = {4, 5, 6}, r[6] = {0};
  int32_t n = 3;
  void *arguments[] = {&n, x, y, &r[2]};
  int i;

  EXPECT(call_list(dot, 3, x, y, &r[0]), FARCALL_OK);
  EXPECT(farcall_wait(start_list(dot, 3, x, y, &r[1]), 30), FARCALL_OK);
  EXPECT(farcall_wait(farcall_call_array_async(dot, arguments, 4), 30), FARCALL_OK);
  EXPECT(farcall_wait(farcall_invoke_async(dot, 3, x, y, &r[3]), 30), FARCALL_OK);
  EXPECT(farcall_invoke(dot, 3, x, y, &r[4]), FARCALL_OK);
  EXPECT(farcall_wait(farcall_call_async(one, "dot", 3, x, y, &r[5]), 30), FARCALL_OK);
  for (i = 0; i < 6; i++)
    EXPECT(r[i], 32);
  EXPECT(call_list(NULL, 3, x, y, r), FARCALL_ARGUMENT);
  EXPECT(start_list(NULL, 3, x, y, r), 0);
  EXPECT(farcall_call_array_async(dot, arguments, 3), 0);
}

/* Arrays in memory that is shared with the server, where it can be. */
static void memory(void) {
  enum { N = 1 << 16 };
  double *x = farcall_allocate(one, N * sizeof *x), *y = farcall_allocate(one, N * sizeof *y);
  double *plain = farcall_allocate(other, sizeof *plain);
  farcall_options options = {sizeof options, 0, 0, 0};
  farcall_server *remote;
  farcall_session session;
  int i, wrong = 0;

  EXPECT(x != NULL && y != NULL && plain != NULL, 1);
  EXPECT((uintptr_t)x % 64 == 0 && (uintptr_t)y % 64 == 0 && (uintptr_t)plain % 64 == 0, 1);
  EXPECT(x[0] == 0 && x[N - 1] == 0 && *plain == 0, 1);
  for (i = 0; i < N; i++)
    x[i] = i, y[i] = 1;
  EXPECT(farcall_call(one, "axpy", N, 2.0, x, y), FARCALL_OK);
  session = farcall_call_async(other, "axpy", N, 1.0, x, y);
  EXPECT(farcall_wait(session, 30), FARCALL_OK);
  for (i = 0; i < N; i++)
    wrong += y[i] != 3.0 * i + 1;
  EXPECT(wrong, 0);
  options.other_host = 1;
  remote = farcall_connect_with(NULL, &options);
  y[0] = 7;
  EXPECT(farcall_call(remote, "axpy", N, 0.0, x, y), FARCALL_OK);
  EXPECT(y[0] == 7 && y[N - 1] == 3.0 * (N - 1) + 1, 1);
  farcall_disconnect(remote);
  farcall_free(plain), farcall_free(x), farcall_free(y), farcall_free(NULL);
  EXPECT(farcall_allocate(NULL, 1) == NULL, 1);
  farcall_free(&wrong);
  EXPECT(farcall_error_status(), FARCALL_ARGUMENT);
  EXPECT(strstr(farcall_error_message(), "not from farcall_allocate") != NULL, 1);
}

static void wrong(void) {
  farcall_session unknown[] = {INT64_C(1) << 60, 0}, which;
  farcall_options options = {sizeof options, 0.5, 0.1, 0}, broken = {3, 0, 0, 0};
  farcall_server *impatient;
  int32_t slept;

  EXPECT(farcall_wait(0, 1), FARCALL_UNKNOWN_SESSION);
  EXPECT(farcall_probe(unknown[0]), FARCALL_UNKNOWN_SESSION);
  EXPECT(farcall_wait_and(unknown, 2, 1), FARCALL_UNKNOWN_SESSION);
  EXPECT(farcall_wait_or(unknown, 2, 1, NULL), FARCALL_UNKNOWN_SESSION);
  EXPECT(farcall_wait_or(unknown, 0, 1, &which), FARCALL_ARGUMENT);
  EXPECT(farcall_cancel(unknown[0]), FARCALL_UNKNOWN_SESSION);
  EXPECT(farcall_wait_and(NULL, 1, 1), FARCALL_ARGUMENT);
  EXPECT(farcall_call_async(one, "nap", 1, NULL), 0);
  EXPECT(farcall_error_status(), FARCALL_ARGUMENT);
  EXPECT(farcall_call_async(NULL, "nap", 1, NULL), 0);

  EXPECT(farcall_connect_with("127.0.0.1:1", &broken) == NULL, 1);
  EXPECT(farcall_error_status(), FARCALL_ARGUMENT);
  options.timeout = -1;
  EXPECT(farcall_connect_with("127.0.0.1:1", &options) == NULL, 1);
  EXPECT(farcall_error_status(), FARCALL_ARGUMENT);
  /* The server's own time-out ends a call, whichever way it is waited for. */
  options.timeout = 0.1, options.connect_timeout = 30;
  impatient = farcall_connect_with(NULL, &options);
  EXPECT(impatient != NULL, 1);
  EXPECT(farcall_call(impatient, "nap", LONG_NAP, &slept), FARCALL_TIMEOUT);
  EXPECT(farcall_wait(farcall_call_async(impatient, "nap", LONG_NAP, &slept), -1),
         FARCALL_TIMEOUT);
  farcall_call_async(impatient, "nap", LONG_NAP, &slept);
  EXPECT(farcall_wait_all(impatient, -1), FARCALL_TIMEOUT);
  which = farcall_call_async(impatient, "nap", LONG_NAP, &slept);
  while (farcall_probe(which) == FARCALL_RUNNING)
    ;
  EXPECT(farcall_probe(which), FARCALL_TIMEOUT);
  which = farcall_call_async(impatient, "nap", LONG_NAP, &slept);
  farcall_disconnect(impatient);
  EXPECT(farcall_wait(which, 30), FARCALL_CANCELLED);
}

static int open_files(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;

  if (folder == NULL)
    return 0;
  while (readdir(folder) != NULL)
    count++;
  closedir(folder);
  return count;
}

/* A call that was given up, and that no wait has reported, keeps no connection open. */
static void disconnected(void) {
  enum { ROUNDS = 8 };
  static int32_t slept;
  int round, before = 0;

  for (round = 0; round < ROUNDS; round++) {
    farcall_server *server = farcall_connect(NULL);

    EXPECT(farcall_call_async(server, "nap", LONG_NAP, &slept) != 0, 1);
    if (round == 0)
      before = open_files();
    farcall_disconnect(server);
  }
  EXPECT(open_files() < before + ROUNDS / 2, 1);
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  one = farcall_connect(argv[1]), other = farcall_connect(argv[2]);
  if (one == NULL || other == NULL) {
    fprintf(stderr, "%s\n", farcall_error_message());
    return 1;
  }
  EXPECT(farcall_abi_version(), 1);
  EXPECT(strlen(farcall_version()) > 0, 1);
  EXPECT(strcmp(farcall_status_text(FARCALL_OK), "done"), 0);
  only_probed(NULL), in_threads(only_probed, NULL, NULL);
  objects(NULL), in_threads(objects, NULL, NULL);
  two_servers(NULL), in_threads(two_servers, NULL, NULL);
  many();
  mixed();
  values();
  memory();
  ways();
  wrong();
  disconnected();
  farcall_disconnect(one), farcall_disconnect(other);
  farcall_disconnect(NULL);
  printf("%d failures\n", failures);
  return failures != 0;
}
