/* Sessions, sets of sessions, executables, groups, streams and texts of ninf_stub.h, with the
 * functions of ninf_more.idl: `ninf_more -server HOST -port PORT -map FILE`. */
#define _DEFAULT_SOURCE
#include "ninf_stub.h"

#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(what)                                                                                \
  do {                                                                                             \
    if (!(what)) {                                                                                 \
      failures++;                                                                                  \
      fprintf(stderr, "line %d: %s: ", __LINE__, #what);                                           \
      Ninf_perror("last error");                                                                   \
    }                                                                                              \
  } while (0)

static void test_sessions(void) {
  int id = Ninf_call_async("nap", 60);

  CHECK(id > 0);
  CHECK(Ninf_session_probe(id) == 1);
  CHECK(Ninf_session_cancel(id) == 1);
  CHECK(Ninf_session_probe(id) == 0);
  CHECK(Ninf_wait(id) == NINF_ERROR);
  CHECK(ninf_error_code == NINF_ERROR_SESSION_CANCELED);
  CHECK(strstr(Ninf_perror_string(), "cancelled") != NULL);
  id = Ninf_call_async("nap", 60);
  CHECK(Ninf_session_remove(id) == 1);
  CHECK(Ninf_wait_any(&id) == 0 && id == 0);
  CHECK(Ninf_call("crash", 11) == NINF_ERROR && ninf_error_code == STUB_ERROR_SIGSEGV);
  CHECK(Ninf_call("crash", 8) == NINF_ERROR && ninf_error_code == STUB_ERROR_SIGFPE);
  CHECK(Ninf_call("none") == NINF_ERROR && ninf_error_code == NINF_ERROR_CANTFINDSTUB);
  ninf_debug_flag = 0;
}

static void test_sets(void) {
  id_set *set = new_id_set(), *over;
  int x[3] = {1, 2, 3}, y[3], id, slow;

  CHECK(id_set_get_id(set, 0) == -1 && id_set_rm(set, 0) == FALSE);
  CHECK(id_set_add(NULL, 1) == FALSE);
  for (id = 0; id < 3; id++)
    CHECK(id_set_add(set, Ninf_call_async("copy", 1, x + id, y + id)) == TRUE);
  CHECK(id_set_length(set) == 3 && id_set_content(set)[1] == id_set_get_id(set, 1));
  over = Ninf_wait_and_set(set);
  CHECK(id_set_length(over) == 3 && id_set_length(set) == 0);
  CHECK(y[0] == 1 && y[1] == 2 && y[2] == 3);
  slow = Ninf_call_async("nap", 60);
  id_set_add(set, slow);
  id_set_add(set, Ninf_call_async("copy", 1, x, y));
  free_id_set(over);
  over = Ninf_wait_or_set(set, &id);
  CHECK(id_set_length(over) == 1 && id_set_get_id(over, 0) == id && id != slow);
  CHECK(id_set_length(set) == 1 && id_set_get_id(set, 0) == slow);
  id_set_dump(over, stderr);
  CHECK(id_set_rm(set, 0) == TRUE);
  clear_id_set(over);
  CHECK(id_set_length(over) == 0);
  free_id_set(set);
  free_id_set(over);
  Ninf_session_remove(slow);
}

static void test_executables(void) {
  Ninf_executable_t *two[2], *found;
  int x[10], y[10], next, id, got;

  CHECK(Ninf_get_executable("none") == NULL);
  for (next = 0; next < 10; next++)
    x[next] = next * next;
  two[0] = Ninf_get_executable("ninfs/copy");
  two[1] = Ninf_get_executable("copy");
  CHECK(two[0] != NULL && two[1] != NULL);
  CHECK(Ninf_call_executable(two[0], 1, x, y) == NINF_OK && y[0] == 0);
  for (next = 0; next < 2; next++)
    CHECK(Ninf_call_executable_async(two[next], 1, x + next, y + next) > 0);
  while ((got = Ninf_wait_any(&id)) > 0) {
    found = Ninf_get_executable_from_session(id);
    CHECK(found == two[0] || found == two[1]);
    if (next < 10) {
      CHECK(Ninf_call_executable_async(found, 1, x + next, y + next) > 0);
      next++;
    }
  }
  CHECK(got == NINF_OK && next == 10 && memcmp(x, y, sizeof x) == 0);
  CHECK(Ninf_get_executable_from_session(0) == NULL);
  CHECK(Ninf_executable_finalize(two[0]) == NINF_OK);
  CHECK(Ninf_executable_finalize(two[1]) == NINF_OK);
  CHECK(Ninf_executable_finalize(NULL) == NINF_ERROR);
  CHECK(Ninf_executable_finalize(two[0]) == NINF_ERROR);
}

/* Each process of `often` crashes in its third call. */
static void test_groups(void) {
  Ninf_group_t *group = Ninf_group_init("often");
  int x[9], y[9] = {0}, i;

  CHECK(group != NULL && Ninf_group_init("none") == NULL);
  for (i = 0; i < 9; i++) {
    x[i] = i + 1;
    CHECK(Ninf_group_call_async(group, 1, x + i, y + i) > 0);
  }
  CHECK(Ninf_group_wait_all(group) == NINF_OK);
  CHECK(memcmp(x, y, sizeof x) == 0);
  CHECK(Ninf_group_call_async(group, 1, x, NULL) == NINF_ERROR);
  CHECK(Ninf_group_wait_all(group) == NINF_OK);
  group = Ninf_group_init("crash");
  CHECK(Ninf_group_call_async(group, 11) > 0);
  CHECK(Ninf_group_wait_all(group) == NINF_ERROR);
}

static void test_streams(void) {
  FILE *in = tmpfile(), *out[2] = {tmpfile(), tmpfile()};
  char text[20] = "";
  int i;

  fputs("skipped rest", in);
  for (i = 0; i < 2; i++) {
    fseek(in, 8, SEEK_SET);
    fputs("<", out[i]);
    if (i == 0)
      CHECK(Ninf_call("upper", in, out[i]) == NINF_OK);
    else
      CHECK(Ninf_wait(Ninf_call_async("upper", in, out[i])) == NINF_OK);
    fputs(">", out[i]);
    rewind(out[i]);
    CHECK(fgets(text, sizeof text, out[i]) != NULL && strcmp(text, "<REST>") == 0);
  }
  CHECK(Ninf_call("upper", NULL, out[0]) == NINF_ERROR);
  /* A call that runs again would find the stream at its end. */
  CHECK(Ninf_group_call_async(Ninf_group_init("upper"), in, out[0]) == NINF_ERROR);
  CHECK(strstr(Ninf_perror_string(), "a group takes no `FILE *`") != NULL);
  Ninf_transaction_begin();
  CHECK(Ninf_call("upper", in, out[0]) == NINF_ERROR);
  Ninf_transaction_end();
}

/* Starts a call that writes to a stream. */
static int start_upper(FILE *in, FILE *out) {
  rewind(in);
  return Ninf_call_async("upper", in, out);
}

/* Results that a stream does not take are not reported as there. */
static void test_full_streams(void) {
  FILE *in = tmpfile(), *out = tmpfile(), *full = fopen("/dev/full", "w");
  int session, other;

  fputs("text", in);
  rewind(in);
  CHECK(full != NULL && Ninf_call("upper", in, full) == NINF_ERROR);
  session = start_upper(in, full);
  CHECK(Ninf_wait(session) == NINF_ERROR && Ninf_wait(session) == NINF_ERROR);
  CHECK(strstr(Ninf_perror_string(), "the stream of argument `to`") != NULL);
  other = start_upper(in, out);
  session = start_upper(in, full);
  CHECK(Ninf_wait_all() == NINF_ERROR && Ninf_wait_all() == NINF_OK);
  CHECK(Ninf_wait_and(&other, 1) == NINF_OK && Ninf_wait_and(&session, 1) == NINF_ERROR);
}

static void test_transactions(void) {
  CHECK(Ninf_transaction_begin() == NINF_OK && Ninf_call("crash", 11) == NINF_OK);
  CHECK(Ninf_transaction_end() == NINF_ERROR && ninf_error_code == STUB_ERROR_SIGSEGV);
  CHECK(Ninf_transaction_end() == NINF_ERROR && ninf_error_code == NINF_INTERNAL_ERROR);
}

static void test_texts(void) {
  char *made = NULL, *own;

  CHECK(Ninf_call("echo", "hello", &made) == NINF_OK);
  CHECK(made != NULL && strcmp(made, "hello") == 0);
  free(made);
  own = malloc(5000);
  made = own;
  CHECK(Ninf_call("echo", "again", &made) == NINF_OK);
  CHECK(made == own && strcmp(own, "again") == 0);
  free(own);
}

/* No wait follows, and the files of the streams go all the same. */
static void test_cancelled_streams(void) {
  FILE *in = tmpfile(), *out = tmpfile();

  CHECK(Ninf_cancel(start_upper(in, out)) == NINF_OK);
  CHECK(start_upper(in, out) > 0 && Ninf_cancel_all() == NINF_OK);
}

int main(int argc, char **argv) {
  CHECK(Ninf_parse_arg(argc, argv) == 1);
  Ninf_set_server(NULL, NULL);
  test_sessions();
  test_sets();
  test_executables();
  test_groups();
  test_streams();
  test_full_streams();
  test_transactions();
  test_texts();
  test_cancelled_streams();
  return failures != 0;
}
