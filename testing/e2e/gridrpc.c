/* Every function and error code of grpc.h, alone and from several threads at once.
 *
 *     gridrpc SERVER DOOMED-SERVER ITS-PID CONFIG WRONG-CONFIG
 *
 * serve languages.idl; the doomed server is killed on the way. */
#include "farcall.h"
#include "grpc.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 4, EACH = 8, LONG_NAP = 60000, LARGE = 1 << 20 };

static const char *server, *doomed, *config, *wrong_config;
static pid_t doomed_pid;
static atomic_int failures, winners, collected;
static pthread_barrier_t barrier;
static atomic_uchar seen[1 << 16];

static void expect(int line, const char *what, int found, int wanted) {
  if (found == wanted)
    return;
  failures++;
  fprintf(stderr, "line %d: %s is %d, not %d; last error: %s\n", line, what, found, wanted,
          farcall_error_message());
}
#define EXPECT(call, wanted) expect(__LINE__, #call, (call), (wanted))

static void in_threads(void *(*body)(void *)) {
  pthread_t threads[THREADS];
  int i;
  for (i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, body, NULL);
  for (i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Before grpc_initialize and after grpc_finalize. */
static void *uninitialized(void *unused) {
  grpc_function_handle_t handle = {{0}}, *pointer;
  grpc_arg_stack_t *stack = grpc_arg_stack_new(1);
  grpc_sessionid_t id = 1;

  EXPECT(grpc_finalize(), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_function_handle_default(&handle, "nap"), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_function_handle_init(&handle, server, "nap"), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_function_handle_destruct(&handle), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_get_handle(&pointer, 1), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_call(&handle, 1), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_call_async(&handle, &id, 1), GRPC_NOT_INITIALIZED);
  EXPECT(id, GRPC_SESSIONID_VOID);
  EXPECT(grpc_call_argstack(&handle, stack), GRPC_NOT_INITIALIZED);
  id = 1;
  EXPECT(grpc_call_argstack_async(&handle, &id, stack), GRPC_NOT_INITIALIZED);
  EXPECT(id, GRPC_SESSIONID_VOID);
  EXPECT(grpc_probe(1), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_probe_or(&id, 1, &id), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_cancel(1), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_cancel_all(), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_wait(1), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_wait_and(&id, 1), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_wait_or(&id, 1, &id), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_wait_all(), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_wait_any(&id), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_get_error(1), GRPC_NOT_INITIALIZED);
  EXPECT(grpc_get_failed_sessionid(&id), GRPC_NOT_INITIALIZED);
  grpc_arg_stack_destruct(stack);
  return unused;
}

static void *wrong_configurations(void *unused) {
  EXPECT(grpc_initialize("/nowhere/farcall.toml"), GRPC_CONFIGFILE_NOT_FOUND);
  EXPECT(grpc_initialize(wrong_config), GRPC_CONFIGFILE_ERROR);
  return unused;
}

/* One of the threads wins. */
static void *initialize(void *unused) {
  grpc_error_t error = grpc_initialize(config);
  if (error == GRPC_NO_ERROR)
    winners++;
  else
    EXPECT(error, GRPC_ALREADY_INITIALIZED);
  return unused;
}

static void *strings(void *unused) {
  static const char *const names[] = {
      "GRPC_NO_ERROR",         "GRPC_NOT_INITIALIZED",         "GRPC_CONFIGFILE_NOT_FOUND",
      "GRPC_CONFIGFILE_ERROR", "GRPC_SERVER_NOT_FOUND",        "GRPC_FUNCTION_NOT_FOUND",
      "GRPC_INVALID_FUNCTION_HANDLE", "GRPC_INVALID_SESSION_ID", "GRPC_RPC_REFUSED",
      "GRPC_COMMUNICATION_FAILED",    "GRPC_SESSION_FAILED",     "GRPC_NOT_COMPLETED",
      "GRPC_NONE_COMPLETED",   "GRPC_OTHER_ERROR_CODE",        "GRPC_UNKNOWN_ERROR_CODE",
      "GRPC_ALREADY_INITIALIZED", "GRPC_LAST_ERROR_CODE"};
  int code;
  for (code = 0; code <= GRPC_LAST_ERROR_CODE; code++)
    EXPECT(strncmp(grpc_error_string(code), names[code], strlen(names[code])), 0);
  EXPECT(strcmp(grpc_error_string(GRPC_LAST_ERROR_CODE + 1), "GRPC_UNKNOWN_ERROR_CODE"), 0);
  EXPECT(strcmp(grpc_error_string(-1), "GRPC_UNKNOWN_ERROR_CODE"), 0);
  return unused;
}

static void *handles(void *unused) {
  grpc_function_handle_t handle, copy, never = {{1, 2, 3, 4}};

  EXPECT(grpc_function_handle_default(&handle, "conformance/dot"), GRPC_NO_ERROR);
  copy = handle;
  EXPECT(grpc_function_handle_destruct(&handle), GRPC_NO_ERROR);
  EXPECT(grpc_function_handle_destruct(&handle), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT(grpc_call(&copy), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT(grpc_call(&never), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT(grpc_call(NULL), GRPC_INVALID_FUNCTION_HANDLE);
  EXPECT(grpc_function_handle_init(&handle, server, "nothing"), GRPC_FUNCTION_NOT_FOUND);
  EXPECT(grpc_function_handle_init(&handle, "127.0.0.1:1", "dot"), GRPC_SERVER_NOT_FOUND);
  EXPECT(grpc_function_handle_init(&handle, "no such://server", "dot"), GRPC_SERVER_NOT_FOUND);
  EXPECT(grpc_function_handle_init(&handle, NULL, "dot"), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_function_handle_default(NULL, "dot"), GRPC_OTHER_ERROR_CODE);
  return unused;
}

static void *calls(void *unused) {
  grpc_function_handle_t dot, axpy;
  grpc_arg_stack_t *stack = grpc_arg_stack_new(4);
  grpc_sessionid_t id;
  double x[] = {1, 2, 3}, y[] = {4, 5, 6}, r = 0, *large = calloc(LARGE, sizeof *large);
  int32_t n = 3;

  EXPECT(grpc_function_handle_init(&dot, server, "conformance/dot"), GRPC_NO_ERROR);
  EXPECT(grpc_function_handle_default(&axpy, "axpy"), GRPC_NO_ERROR);
  EXPECT(grpc_call(&dot, 3, x, y, &r), GRPC_NO_ERROR);
  EXPECT(r == 32, 1);
  EXPECT(grpc_call(&dot, 3, NULL, y, &r), GRPC_OTHER_ERROR_CODE);
  EXPECT(strstr(farcall_error_message(), "argument `x`") != NULL, 1);
  EXPECT(grpc_call(&axpy, LARGE, 1.0, large, large), GRPC_RPC_REFUSED);
  EXPECT(grpc_call_async(&dot, NULL, 3, x, y, &r), GRPC_OTHER_ERROR_CODE);

  EXPECT(grpc_arg_stack_push_arg(stack, &n), GRPC_NO_ERROR);
  EXPECT(grpc_arg_stack_push_arg(stack, x), GRPC_NO_ERROR);
  EXPECT(grpc_arg_stack_push_arg(stack, y), GRPC_NO_ERROR);
  EXPECT(grpc_call_argstack(&dot, stack), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_arg_stack_push_arg(stack, &r), GRPC_NO_ERROR);
  EXPECT(grpc_arg_stack_push_arg(stack, &r), GRPC_OTHER_ERROR_CODE);
  r = 0;
  EXPECT(grpc_call_argstack(&dot, stack), GRPC_NO_ERROR);
  EXPECT(r == 32, 1);
  r = 0;
  EXPECT(grpc_call_argstack_async(&dot, &id, stack), GRPC_NO_ERROR);
  EXPECT(grpc_wait(id), GRPC_NO_ERROR);
  EXPECT(r == 32, 1);
  EXPECT(grpc_arg_stack_pop_arg(stack) == &r, 1);
  EXPECT(grpc_arg_stack_pop_arg(stack) == y, 1);
  EXPECT(grpc_arg_stack_pop_arg(stack) == x, 1);
  EXPECT(grpc_arg_stack_pop_arg(stack) == &n, 1);
  EXPECT(grpc_arg_stack_pop_arg(stack) == NULL, 1);
  EXPECT(grpc_arg_stack_new(-1) == NULL, 1);
  EXPECT(grpc_arg_stack_destruct(stack), GRPC_NO_ERROR);
  EXPECT(grpc_function_handle_destruct(&axpy), GRPC_NO_ERROR);
  EXPECT(grpc_function_handle_destruct(&dot), GRPC_NO_ERROR);
  free(large);
  return unused;
}

static void *sessions(void *unused) {
  grpc_function_handle_t nap, crash, *handle = NULL;
  grpc_sessionid_t ids[3], which, wrong[2];
  int32_t slept[3] = {0, 0, 0};
  double start;

  EXPECT(grpc_function_handle_default(&nap, "nap"), GRPC_NO_ERROR);
  EXPECT(grpc_function_handle_default(&crash, "crash"), GRPC_NO_ERROR);

  /* A call that has not completed, one that has, and the same questions again. */
  EXPECT(grpc_call_async(&nap, &ids[0], LONG_NAP, &slept[0]), GRPC_NO_ERROR);
  EXPECT(grpc_call_async(&nap, &ids[1], 1, &slept[1]), GRPC_NO_ERROR);
  EXPECT(grpc_probe(ids[0]), GRPC_NOT_COMPLETED);
  EXPECT(grpc_get_error(ids[0]), GRPC_NO_ERROR);
  EXPECT(grpc_probe_or(ids, 1, &which), GRPC_NONE_COMPLETED);
  EXPECT(which, GRPC_SESSIONID_VOID);
  EXPECT(grpc_wait_or(ids, 2, &which), GRPC_NO_ERROR);
  EXPECT(which, ids[1]);
  EXPECT(slept[1], 1);
  EXPECT(grpc_probe(ids[1]), GRPC_NO_ERROR);
  EXPECT(grpc_probe_or(ids, 2, &which), GRPC_NO_ERROR);
  EXPECT(which, ids[1]);
  EXPECT(grpc_wait(ids[1]), GRPC_NO_ERROR);
  EXPECT(grpc_get_error(ids[1]), GRPC_NO_ERROR);
  EXPECT(grpc_get_handle(&handle, ids[0]), GRPC_NO_ERROR);
  EXPECT(handle == &nap, 1);

  /* A cancelled session fails, at once. */
  start = now();
  EXPECT(grpc_cancel(ids[0]), GRPC_NO_ERROR);
  EXPECT(grpc_wait(ids[0]), GRPC_SESSION_FAILED);
  EXPECT(grpc_get_failed_sessionid(&which), GRPC_NO_ERROR);
  EXPECT(which, ids[0]);
  EXPECT(grpc_get_error(ids[0]), GRPC_SESSION_FAILED);
  EXPECT(grpc_cancel(ids[0]), GRPC_NO_ERROR);
  EXPECT(grpc_cancel(ids[1]), GRPC_NO_ERROR);
  EXPECT(grpc_wait(ids[1]), GRPC_NO_ERROR);
  EXPECT(now() - start < 30, 1);

  /* No failure is lost. */
  EXPECT(grpc_call_async(&crash, &ids[0], 1), GRPC_NO_ERROR);
  EXPECT(grpc_call_async(&nap, &ids[1], 2, &slept[1]), GRPC_NO_ERROR);
  EXPECT(grpc_call_async(&crash, &ids[2], 2), GRPC_NO_ERROR);
  EXPECT(grpc_wait_and(ids, 3), GRPC_SESSION_FAILED);
  EXPECT(slept[1], 2);
  EXPECT(grpc_get_failed_sessionid(&which), GRPC_NO_ERROR);
  EXPECT(which == ids[0] || which == ids[2], 1);
  wrong[0] = which;
  EXPECT(grpc_get_failed_sessionid(&which), GRPC_NO_ERROR);
  EXPECT(which != wrong[0] && (which == ids[0] || which == ids[2]), 1);
  EXPECT(grpc_get_failed_sessionid(&which), GRPC_NO_ERROR);
  EXPECT(which, GRPC_SESSIONID_VOID);
  EXPECT(grpc_wait_and(ids, 3), GRPC_SESSION_FAILED);
  EXPECT(grpc_wait_and(&ids[1], 1), GRPC_NO_ERROR);
  EXPECT(grpc_wait_and(NULL, 0), GRPC_NO_ERROR);
  EXPECT(grpc_get_failed_sessionid(&which), GRPC_NO_ERROR);
  EXPECT(which, GRPC_SESSIONID_VOID);
  EXPECT(grpc_wait_or(ids, 1, &which), GRPC_SESSION_FAILED);
  EXPECT(which, ids[0]);
  EXPECT(grpc_get_error(ids[0]), GRPC_SESSION_FAILED);
  EXPECT(grpc_probe(ids[0]), GRPC_NO_ERROR);

  /* Numbers that are not sessions. */
  wrong[0] = 0, wrong[1] = 1 << 30;
  EXPECT(grpc_wait(GRPC_SESSIONID_VOID), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_wait(wrong[1]), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_wait_and(wrong, 2), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_wait_or(&wrong[1], 1, &which), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_wait_or(NULL, 0, &which), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_probe(wrong[0]), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_probe_or(wrong, 2, &which), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_cancel(wrong[1]), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_get_error(wrong[1]), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_get_handle(&handle, wrong[1]), GRPC_INVALID_SESSION_ID);

  EXPECT(grpc_wait_or(ids, 1, NULL), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_probe_or(ids, 1, NULL), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_wait_and(NULL, 1), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_wait_any(NULL), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_get_failed_sessionid(NULL), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_get_handle(NULL, ids[0]), GRPC_OTHER_ERROR_CODE);
  EXPECT(grpc_function_handle_destruct(&crash), GRPC_NO_ERROR);
  EXPECT(grpc_function_handle_destruct(&nap), GRPC_NO_ERROR);
  return unused;
}

/* Sessions of all threads together: each is reported once by one of the waits for any. */
static void *any(void *unused) {
  grpc_function_handle_t nap;
  grpc_sessionid_t ids[EACH], which;
  int32_t slept[EACH];
  int i;

  EXPECT(grpc_function_handle_default(&nap, "nap"), GRPC_NO_ERROR);
  for (i = 0; i < EACH; i++)
    EXPECT(grpc_call_async(&nap, &ids[i], i % 3, &slept[i]), GRPC_NO_ERROR);
  pthread_barrier_wait(&barrier);
  for (;;) {
    EXPECT(grpc_wait_any(&which), GRPC_NO_ERROR);
    if (which == GRPC_SESSIONID_VOID)
      break;
    collected++;
    EXPECT(seen[which]++, 0);
  }
  /* Other threads may still be collecting sessions of this thread. */
  EXPECT(grpc_wait_and(ids, EACH), GRPC_NO_ERROR);
  for (i = 0; i < EACH; i++)
    EXPECT(slept[i], i % 3);
  EXPECT(grpc_function_handle_destruct(&nap), GRPC_NO_ERROR);
  pthread_barrier_wait(&barrier);
  return unused;
}

static void *all(void *unused) {
  grpc_function_handle_t nap, crash;
  grpc_sessionid_t ids[EACH], failing;
  int32_t slept[EACH];
  int i;

  EXPECT(grpc_function_handle_default(&nap, "nap"), GRPC_NO_ERROR);
  EXPECT(grpc_function_handle_default(&crash, "crash"), GRPC_NO_ERROR);
  for (i = 0; i < EACH; i++)
    EXPECT(grpc_call_async(&nap, &ids[i], i % 3, &slept[i]), GRPC_NO_ERROR);
  pthread_barrier_wait(&barrier);
  EXPECT(grpc_wait_all(), GRPC_NO_ERROR);
  for (i = 0; i < EACH; i++) {
    EXPECT(grpc_get_error(ids[i]), GRPC_NO_ERROR);
    EXPECT(slept[i], i % 3);
  }
  pthread_barrier_wait(&barrier);

  EXPECT(grpc_call_async(&crash, &failing, 1), GRPC_NO_ERROR);
  EXPECT(grpc_wait_all(), GRPC_SESSION_FAILED);
  EXPECT(grpc_get_error(failing), GRPC_SESSION_FAILED);
  pthread_barrier_wait(&barrier);

  for (i = 0; i < EACH; i++)
    EXPECT(grpc_call_async(&nap, &ids[i], LONG_NAP, &slept[i]), GRPC_NO_ERROR);
  pthread_barrier_wait(&barrier);
  EXPECT(grpc_cancel_all(), GRPC_NO_ERROR);
  EXPECT(grpc_wait_and(ids, EACH), GRPC_SESSION_FAILED);
  for (i = 0; i < EACH; i++)
    EXPECT(grpc_get_error(ids[i]), GRPC_SESSION_FAILED);
  pthread_barrier_wait(&barrier);
  return unused;
}

/* A server that dies. */
static void *death(void *unused) {
  grpc_function_handle_t nap;
  grpc_sessionid_t id, which;
  int32_t slept;

  EXPECT(grpc_function_handle_init(&nap, doomed, "nap"), GRPC_NO_ERROR);
  EXPECT(grpc_call_async(&nap, &id, LONG_NAP, &slept), GRPC_NO_ERROR);
  if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
    kill(doomed_pid, SIGKILL);
  EXPECT(grpc_wait(id), GRPC_SESSION_FAILED);
  EXPECT(grpc_get_error(id), GRPC_COMMUNICATION_FAILED);
  EXPECT(grpc_get_failed_sessionid(&which), GRPC_NO_ERROR);
  EXPECT(which, id);
  EXPECT(grpc_call(&nap, 1, &slept), GRPC_COMMUNICATION_FAILED);
  EXPECT(grpc_function_handle_destruct(&nap), GRPC_NO_ERROR);
  return unused;
}

/* A session that waits while GridRPC ends. */
static void *end(void *unused) {
  grpc_function_handle_t nap;
  grpc_sessionid_t id;
  int32_t slept;
  grpc_error_t error;

  EXPECT(grpc_function_handle_default(&nap, "nap"), GRPC_NO_ERROR);
  EXPECT(grpc_call_async(&nap, &id, LONG_NAP, &slept), GRPC_NO_ERROR);
  if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
    EXPECT(grpc_finalize(), GRPC_NO_ERROR);
  } else {
    /* It began to wait before, or after. */
    error = grpc_wait(id);
    EXPECT(error == GRPC_SESSION_FAILED || error == GRPC_NOT_INITIALIZED ||
               error == GRPC_INVALID_SESSION_ID,
           1);
  }
  return unused;
}

int main(int argc, char **argv) {
  double start = now();
  if (argc != 6)
    return 2;
  server = argv[1], doomed = argv[2], doomed_pid = atoi(argv[3]);
  config = argv[4], wrong_config = argv[5];
  pthread_barrier_init(&barrier, NULL, THREADS);

  uninitialized(NULL), in_threads(uninitialized);
  wrong_configurations(NULL), in_threads(wrong_configurations);
  in_threads(initialize);
  EXPECT(winners, 1);
  strings(NULL), in_threads(strings);
  handles(NULL), in_threads(handles);
  calls(NULL), in_threads(calls);
  sessions(NULL), in_threads(sessions);
  EXPECT(grpc_wait_all(), GRPC_NO_ERROR);
  in_threads(any);
  EXPECT(collected, THREADS * EACH);
  in_threads(all);
  EXPECT(grpc_wait_all(), GRPC_NO_ERROR);
  in_threads(death);
  in_threads(end);
  uninitialized(NULL), in_threads(uninitialized);
  EXPECT(grpc_initialize(config), GRPC_NO_ERROR);
  EXPECT(grpc_wait(1), GRPC_INVALID_SESSION_ID);
  EXPECT(grpc_finalize(), GRPC_NO_ERROR);
  pthread_barrier_destroy(&barrier);
  printf("%d failures in %.1f s\n", failures, now() - start);
  return failures != 0;
}
