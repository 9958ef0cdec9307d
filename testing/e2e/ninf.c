/* The names of ninf.h: `ninf URL [-server HOST -port PORT]`, where URL/NAME is a function of
 * languages.idl, and a bare name is one of the server of the options or of the environment. */
#include "ninf_stub.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *url;
static int failures;

static void expect(int line, const char *what, int found, int wanted) {
  if (found == wanted)
    return;
  __atomic_fetch_add(&failures, 1, __ATOMIC_SEQ_CST);
  fprintf(stderr, "line %d: %s is %d, not %d: ", line, what, found, wanted);
  Ninf_perror("last error");
}
#define EXPECT(call, wanted) expect(__LINE__, #call, (call), (wanted))

static const char *named(const char *function, char *room) {
  strcpy(room, url);
  strcat(room, "/");
  return strcat(room, function);
}

static void *calls(void *unused) {
  char room[200];
  double x[] = {1, 2, 3}, y[] = {4, 5, 6}, r = 0;
  int ids[4], slept[3], which, i;

  EXPECT(Ninf_call(named("dot", room), 3, x, y, &r), NINF_OK);
  EXPECT(r == 32, 1);
  r = 0;
  EXPECT(Ninf_call("conformance/dot", 3, x, y, &r), NINF_OK);
  EXPECT(Ninf_call("dot", 3, x, y, &r), NINF_OK);
  EXPECT(r == 32, 1);
  EXPECT(Ninf_call("dot", 3, NULL, y, &r), NINF_ERROR);
  EXPECT(Ninf_error, 1);
  EXPECT(Ninf_error_code(), 1);
  EXPECT(Ninf_call("nothing", 1), NINF_ERROR);
  EXPECT(Ninf_error, 2);
  EXPECT(Ninf_call("ninf://127.0.0.1:1/dot", 1), NINF_ERROR);
  EXPECT(Ninf_error, 3);
  EXPECT(Ninf_call("ninf://nowhere", 1), NINF_ERROR);
  EXPECT(Ninf_call_async("nothing", 1), NINF_ERROR);

  for (i = 0; i < 3; i++)
    EXPECT((ids[i] = Ninf_call_async("nap", i, &slept[i])) > 0, 1);
  ids[3] = 1 << 30;
  which = Ninf_wait_or(ids, 4);
  EXPECT(which == ids[0] || which == ids[1] || which == ids[2], 1);
  EXPECT(Ninf_wait_and(ids, 4), NINF_OK);
  EXPECT(slept[0] == 0 && slept[1] == 1 && slept[2] == 2, 1);
  EXPECT(Ninf_wait(ids[3]), NINF_OK);
  EXPECT(Ninf_wait_or(&ids[3], 1), 0);
  EXPECT(Ninf_cancel(ids[3]), NINF_OK);

  ids[0] = Ninf_call_async(named("nap", room), 60000, &slept[0]);
  EXPECT(Ninf_cancel(ids[0]), NINF_OK);
  EXPECT(Ninf_wait(ids[0]), NINF_ERROR);
  ids[0] = Ninf_call_async("crash", 1);
  ids[1] = Ninf_call_async("nap", 1, &slept[1]);
  EXPECT(Ninf_wait_and(ids, 2), NINF_ERROR);
  EXPECT(Ninf_wait(ids[1]), NINF_OK);
  EXPECT(Ninf_wait(ids[0]), NINF_ERROR);
  return unused;
}

static void all(void) {
  int ids[3], slept[3], which, found = 0, i;

  for (i = 0; i < 3; i++)
    ids[i] = Ninf_call_async("nap", i, &slept[i]);
  while ((which = Ninf_wait_any()) > 0)
    found += which == ids[0] || which == ids[1] || which == ids[2];
  EXPECT(which, 0);
  EXPECT(found, 3);
  /* The forms of Ninf put the session behind a pointer. */
  for (i = 0; i < 3; i++)
    ids[i] = Ninf_call_async("nap", i, &slept[i]);
  EXPECT(Ninf_wait_or(ids, 3, &which), NINF_OK);
  EXPECT(which == ids[0] || which == ids[1] || which == ids[2], 1);
  for (found = 1; (i = Ninf_wait_any(&which)) > 0; found++)
    EXPECT(i == which && (which == ids[0] || which == ids[1] || which == ids[2]), 1);
  EXPECT(found, 3);
  EXPECT(which, 0);
  Ninf_call_async("crash", 1);
  EXPECT(Ninf_wait_any(&which), NINF_ERROR);
  EXPECT(which > 0, 1);
  for (i = 0; i < 3; i++)
    Ninf_call_async("nap", i, &slept[i]);
  EXPECT(Ninf_wait_all(), NINF_OK);
  EXPECT(slept[0] + slept[1] + slept[2], 3);
  Ninf_call_async("crash", 1);
  Ninf_call_async("nap", 5, &slept[0]);
  EXPECT(Ninf_wait_all(), NINF_ERROR);
  EXPECT(slept[0], 5);
  for (i = 0; i < 3; i++)
    ids[i] = Ninf_call_async("nap", 60000, &slept[i]);
  EXPECT(Ninf_cancel_all(), NINF_OK);
  EXPECT(Ninf_wait_all(), NINF_ERROR);
  EXPECT(Ninf_wait_all(), NINF_OK);
}

int main(int argc, char **argv) {
  pthread_t threads[4];
  char *few[] = {"program", "-port", NULL};
  char *unread[] = {"program", "-map", "/dev/null", "kept", "-map", "/not/there", NULL};
  int left = Ninf_parse_arg(argc, argv), i;

  EXPECT(left, 3);
  EXPECT(argv[left] == NULL, 1);
  EXPECT(Ninf_parse_arg(2, few), 2);
  /* The arguments stay as they are if a map cannot be read. */
  EXPECT(Ninf_parse_arg(6, unread), 6);
  EXPECT(strcmp(unread[1], "-map") == 0 && strcmp(unread[3], "kept") == 0, 1);
  /* Nor if it has a line without a port. */
  unread[5] = argv[2];
  EXPECT(Ninf_parse_arg(6, unread), 6);
  Ninf_perror("map");
  EXPECT(strcmp(few[1], "-port"), 0);
  url = argv[1];
  calls(NULL);
  for (i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, calls, NULL);
  for (i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  all();
  Ninf_call("dot", 3, NULL, NULL, NULL);
  Ninf_perror("dot");
  printf("%d failures\n", failures);
  return failures != 0;
}
