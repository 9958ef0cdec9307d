/* What small integers become, and what a forked child and a thread that ends can do:
 * `values SERVER`. */
#include "farcall.h"

#include <pthread.h>
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

static void end(void *server) {
  int slept = 0;
  const farcall_session session = farcall_call_async(server, "values/nap", 1, &slept);

  printf("ended thread waits: %d\n", farcall_wait(session, -1));
  printf("ended thread has %d\n", slept);
  printf("ended thread waits for nothing: %d\n", farcall_wait(0, -1));
  if (farcall_next_failed() != 0 || *farcall_error_message() == '\0')
    printf("ended thread knows too much\n");
}

static pthread_key_t key;

static void *run(void *server) {
  /* The library has an error for this thread, which goes before the destructor of the key comes. */
  farcall_wait(0, -1);
  return pthread_setspecific(key, server) == 0 ? NULL : server;
}

/* A destructor of a thread uses the library, as that of a `thread_local` of C++ does. */
static int end_a_thread(farcall_server *server) {
  pthread_t thread;
  void *failed = server;

  if (pthread_key_create(&key, end) != 0 || pthread_create(&thread, NULL, run, server) != 0)
    return 1;
  return pthread_join(thread, &failed) != 0 || failed != NULL;
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
  if (fork_with_a_call(server) != 0 || end_a_thread(server) != 0)
    return 1;
  farcall_disconnect(server);
  return 0;
}
