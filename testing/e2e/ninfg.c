/* A client as those of Ninf-G 5 are; `ninfg.idl` has the functions. */
#include "grpc.h"
#include <signal.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      printf("line %d: %s\n", __LINE__, #condition);                                               \
      grpc_perror_np("last error");                                                                \
      failures++;                                                                                  \
    }                                                                                              \
  } while (0)

static int failures;

/* That of farcall.h, which these clients do not include. */
const char *farcall_error_message(void);

static void twice(double *c, double *d) {
  int i;

  for (i = 0; i < 4; i++)
    d[i] = 2 * c[i];
}

static char told_first[20], told_second[20];

static void told(char **both) {
  strcpy(told_first, both[0]);
  strcpy(told_second, both[1]);
}

static void test_functions(void) {
  grpc_function_handle_t handle;
  double a[4] = {1, 2, 3, 4}, b[4] = {0};
  char *in[] = {"one", "two", "three"}, *out[2] = {NULL, NULL}, *first = NULL;
  char *texts[] = {NULL, "text"};
  char pair[2] = "ab";
  int seen[5] = {0}, none[5] = {0};
  scomplex c = {1, 2}, swapped;
  dcomplex d[2] = {{1, 2}, {3, 4}}, e[2];

  CHECK(grpc_function_handle_default(&handle, "ninfg/doubled") == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_is_ready_np(&handle) == GRPC_NO_ERROR);
  CHECK(grpc_call(&handle, 4, a, NULL, 0, b, twice) == GRPC_NO_ERROR);
  CHECK(b[0] == 2 && b[3] == 8);
  CHECK(grpc_function_handle_destruct(&handle) == GRPC_NO_ERROR);

  CHECK(grpc_function_handle_default(&handle, "ninfg/words") == GRPC_NO_ERROR);
  CHECK(grpc_call(&handle, in, out, &first, told) == GRPC_NO_ERROR);
  CHECK(strcmp(out[0], "constant") == 0 && strcmp(out[1], "two") == 0);
  CHECK(strcmp(first, "one") == 0);
  CHECK(strcmp(told_first, "one") == 0 && strcmp(told_second, "and") == 0);
  free(out[0]);
  free(out[1]);
  free(first);
  grpc_function_handle_destruct(&handle);

  CHECK(grpc_function_handle_default(&handle, "ninfg/nothing") == GRPC_NO_ERROR);
  CHECK(grpc_call(&handle, 0, NULL, texts, NULL, NULL, NULL, seen) == GRPC_NO_ERROR);
  CHECK(seen[0] && seen[1] && seen[2]);
  grpc_function_handle_destruct(&handle);

  CHECK(grpc_function_handle_init(&handle, "127.0.0.1", "ninfg/empty") == GRPC_NO_ERROR);
  CHECK(grpc_call(&handle, 0, a, NULL, texts, texts, NULL, none) == GRPC_NO_ERROR);
  CHECK(none[0] && none[1] && none[2] && none[3] && none[4] && a[0] == 1);
  CHECK(grpc_call(&handle, 1, a, pair, texts + 1, out, a, none) == GRPC_NO_ERROR);
  CHECK(!none[0] && !none[1] && !none[2] && !none[3] && none[4]);
  free(out[0]);
  grpc_function_handle_destruct(&handle);

  CHECK(grpc_function_handle_default(&handle, "ninfg/numbers") == GRPC_NO_ERROR);
  CHECK(grpc_call(&handle, c, d, &swapped, e) == GRPC_NO_ERROR);
  CHECK(swapped.r == 2 && swapped.i == 1);
  CHECK(e[0].r == 2 && e[1].r == 4 && e[1].i == 30);
  grpc_function_handle_destruct(&handle);
}

static void test_files(void) {
  grpc_function_handle_t handle;
  char *from[] = {"from-0", "from-1"}, *to[] = {"to-0", "to-1"};

  CHECK(grpc_function_handle_default(&handle, "ninfg/files") == GRPC_NO_ERROR);
  CHECK(grpc_call(&handle, 2, from, to) == GRPC_NO_ERROR);
  grpc_function_handle_destruct(&handle);
}

static void test_objects(void) {
  grpc_object_handle_t_np handles[2];
  grpc_handle_attr_t_np attr;
  grpc_session_attr_t_np session_attr;
  grpc_sessionid_t id;
  grpc_exec_info_t_np info;
  int each[] = {1, 2, 3}, status, port = 0, *kept;
  long sum = 0, count = 0;
  char *name;

  CHECK(grpc_object_handle_array_default_np(handles, 2, "ninfg/account") == GRPC_NO_ERROR);
  CHECK(grpc_invoke_np(&handles[0], "add", 3, each, &sum) == GRPC_NO_ERROR && sum == 6);
  CHECK(grpc_invoke_async_np(&handles[0], "add", &id, 3, each, &sum) == GRPC_NO_ERROR);
  CHECK(grpc_wait(id) == GRPC_NO_ERROR && sum == 12);
  CHECK(grpc_get_info_np(id, &info, &status) == GRPC_NO_ERROR && status == GRPC_SESSION_DONE);
  CHECK(grpc_invoke_np(&handles[0], "count", &count) == GRPC_NO_ERROR && count == 2);
  CHECK(grpc_invoke_np(&handles[1], "count", &count) == GRPC_NO_ERROR && count == 0);
  CHECK(grpc_invoke_np(&handles[1], "missing", &count) == GRPC_FUNCTION_NOT_FOUND);
  CHECK(grpc_object_handle_array_destruct_np(handles, 2) == GRPC_NO_ERROR);
  CHECK(grpc_invoke_np(&handles[1], "count", &count) == GRPC_INVALID_OBJECT_HANDLE_NP);

  CHECK(grpc_handle_attr_initialize_np(NULL) == GRPC_OTHER_ERROR_CODE);
  CHECK(grpc_handle_attr_set_np(NULL, GRPC_HANDLE_ATTR_PORT, &port) == GRPC_OTHER_ERROR_CODE);
  CHECK(grpc_handle_attr_get_np(&attr, GRPC_HANDLE_ATTR_PORT, NULL) == GRPC_OTHER_ERROR_CODE);
  CHECK(strstr(farcall_error_message(), "the pointer to its value is NULL") != NULL);
  CHECK(grpc_object_handle_init_with_attr_np(&handles[0], NULL) == GRPC_OTHER_ERROR_CODE);
  CHECK(grpc_session_attr_initialize_np(NULL, NULL) == GRPC_OTHER_ERROR_CODE);
  CHECK(grpc_handle_attr_initialize_np(&attr) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, "ninfg/account") ==
        GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_PORT, &port) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_get_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, (void **)&name) ==
        GRPC_NO_ERROR);
  CHECK(strcmp(name, "ninfg/account") == 0);
  grpc_handle_attr_release_np(name);
  CHECK(grpc_handle_attr_get_np(&attr, GRPC_HANDLE_ATTR_PORT, (void **)&kept) == GRPC_NO_ERROR);
  CHECK(*kept == 0);
  grpc_handle_attr_release_np(kept);
  CHECK(grpc_object_handle_init_with_attr_np(&handles[0], &attr) == GRPC_NO_ERROR);
  CHECK(grpc_session_attr_initialize_with_object_handle_np(&handles[0], &session_attr) ==
        GRPC_NO_ERROR);
  CHECK(grpc_invoke_with_attr_np(&handles[0], "add", &session_attr, 3, each, &sum) ==
            GRPC_NO_ERROR &&
        sum == 6);
  CHECK(grpc_object_handle_destruct_np(&handles[0]) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_destruct_np(&attr) == GRPC_NO_ERROR);
  CHECK(grpc_object_handle_default_np(&handles[0], "ninfg/none") == GRPC_CLASS_NOT_FOUND_NP);
  CHECK(grpc_last_error_get_np() == GRPC_CLASS_NOT_FOUND_NP);
  memset(&handles[0], 7, sizeof handles[0]);
  CHECK(grpc_object_handle_is_ready_np(&handles[0]) == GRPC_INVALID_OBJECT_HANDLE_NP);
  CHECK(grpc_last_error_get_np() == GRPC_INVALID_OBJECT_HANDLE_NP);
}

static void test_cancel(void) {
  grpc_function_handle_t handle, *found;
  grpc_sessionid_t id;
  char *text;

  CHECK(grpc_function_handle_default(&handle, "ninfg/wait") == GRPC_NO_ERROR);
  CHECK(grpc_call_async(&handle, &id, 100) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_get_from_session_np(&found, id) == GRPC_NO_ERROR);
  CHECK(found == &handle);
  CHECK(grpc_cancel(id) == GRPC_NO_ERROR);
  CHECK(grpc_wait(id) == GRPC_SESSION_FAILED);
  CHECK(grpc_get_error(id) == GRPC_CANCELED_NP);
  CHECK(grpc_last_error_get_np() == GRPC_SESSION_FAILED);
  CHECK(grpc_wait(0) == GRPC_INVALID_SESSION_ID);
  CHECK(grpc_last_error_get_np() == GRPC_INVALID_SESSION_ID);
  text = grpc_error_string(GRPC_CANCELED_NP);
  CHECK(strstr(text, "CANCELED") != NULL);
  grpc_function_handle_destruct(&handle);
}

/* Handles and sessions with attributes, in arrays, and what they tell. */
static void test_attributes(void) {
  grpc_function_handle_t handles[2];
  grpc_handle_attr_t_np attr;
  grpc_session_attr_t_np session;
  grpc_session_info_t_np *info;
  grpc_sessionid_t id;
  int kept = 5, status = -1, *read = NULL;

  CHECK(grpc_function_handle_array_default_np(handles, 2, "ninfg/wait") == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_is_ready_np(&handles[1]) == GRPC_NO_ERROR);
  CHECK(grpc_session_attr_initialize_np(&handles[0], &session) == GRPC_NO_ERROR);
  CHECK(grpc_session_attr_set_np(&session, GRPC_SESSION_ATTR_SESSION_TIMEOUT, &kept) ==
        GRPC_NO_ERROR);
  CHECK(grpc_session_attr_get_np(&session, GRPC_SESSION_ATTR_SESSION_TIMEOUT, (void **)&read) ==
        GRPC_NO_ERROR);
  CHECK(read != NULL && *read == 5);
  CHECK(grpc_session_attr_release_np(read) == GRPC_NO_ERROR);
  CHECK(grpc_call_with_attr_np(&handles[0], &session, 1) == GRPC_NO_ERROR);
  CHECK(grpc_call_async_with_attr_np(&handles[1], &id, &session, 1) == GRPC_NO_ERROR);
  CHECK(grpc_wait(id) == GRPC_NO_ERROR);
  CHECK(grpc_session_info_set_threshold_np(8) == GRPC_NO_ERROR);
  CHECK(grpc_session_info_get_np(id, &info, &status) == GRPC_NO_ERROR);
  CHECK(status == GRPC_SESSION_DONE);
  CHECK(grpc_session_info_release_np(info) == GRPC_NO_ERROR);
  CHECK(grpc_session_info_remove_np(id) == GRPC_NO_ERROR);
  CHECK(grpc_session_attr_destruct_np(&session) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_get_error_np(&handles[0]) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_perror_np(&handles[0], "no error") == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_array_destruct_np(handles, 2) == GRPC_NO_ERROR);

  CHECK(grpc_function_handle_array_init_np(handles, 2, NULL, "ninfg/wait") == GRPC_NO_ERROR);
  CHECK(grpc_call(&handles[1], 1) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_array_destruct_np(handles, 2) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_initialize_np(&attr) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, "ninfg/wait") == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_init_with_attr_np(&handles[0], &attr) == GRPC_NO_ERROR);
  CHECK(grpc_call(&handles[0], 1) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_destruct(&handles[0]) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_array_init_with_attr_np(handles, 2, &attr) == GRPC_NO_ERROR);
  CHECK(grpc_call(&handles[1], 1) == GRPC_NO_ERROR);
  CHECK(grpc_function_handle_array_destruct_np(handles, 2) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_destruct_np(&attr) == GRPC_NO_ERROR);
}

static void test_more_objects(void) {
  grpc_object_handle_t_np handles[2], *found;
  grpc_handle_attr_t_np attr;
  grpc_session_attr_t_np session;
  grpc_sessionid_t id;
  int each[] = {1, 2, 3};
  long sum = 0;

  CHECK(grpc_object_handle_init_np(&handles[0], NULL, "ninfg/account") == GRPC_NO_ERROR);
  CHECK(grpc_object_handle_is_ready_np(&handles[0]) == GRPC_NO_ERROR);
  CHECK(grpc_session_attr_initialize_with_object_handle_np(&handles[0], &session) ==
        GRPC_NO_ERROR);
  CHECK(grpc_invoke_async_with_attr_np(&handles[0], "add", &id, &session, 3, each, &sum) ==
        GRPC_NO_ERROR);
  CHECK(grpc_object_handle_get_from_session_np(&found, id) == GRPC_NO_ERROR);
  CHECK(found == &handles[0]);
  CHECK(grpc_wait(id) == GRPC_NO_ERROR && sum == 6);
  CHECK(grpc_object_handle_get_error_np(&handles[0]) == GRPC_NO_ERROR);
  CHECK(grpc_object_handle_perror_np(&handles[0], "no error") == GRPC_NO_ERROR);
  CHECK(grpc_object_handle_destruct_np(&handles[0]) == GRPC_NO_ERROR);
  CHECK(grpc_object_handle_array_init_np(handles, 2, NULL, "ninfg/account") == GRPC_NO_ERROR);
  CHECK(grpc_object_handle_array_destruct_np(handles, 2) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_initialize_np(&attr) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_set_np(&attr, GRPC_HANDLE_ATTR_FUNCNAME, "ninfg/account") ==
        GRPC_NO_ERROR);
  CHECK(grpc_object_handle_array_init_with_attr_np(handles, 2, &attr) == GRPC_NO_ERROR);
  CHECK(grpc_invoke_np(&handles[1], "add", 3, each, &sum) == GRPC_NO_ERROR && sum == 6);
  CHECK(grpc_object_handle_array_destruct_np(handles, 2) == GRPC_NO_ERROR);
  CHECK(grpc_handle_attr_destruct_np(&attr) == GRPC_NO_ERROR);
}

static volatile sig_atomic_t heard;

static void hear(int number) { heard = number; }

int main(int argc, char **argv) {
  assert(argc == 2);
  CHECK(grpc_initialize_np(argv[1]) == GRPC_NO_ERROR);
  CHECK(grpc_config_file_read_np(argv[1]) == GRPC_NO_ERROR);
  CHECK(grpc_signal_handler_set_np(SIGUSR1, hear) == GRPC_NO_ERROR);
  raise(SIGUSR1);
  CHECK(heard == SIGUSR1);
  test_attributes();
  test_more_objects();
  test_functions();
  test_files();
  test_objects();
  test_cancel();
  CHECK(grpc_finalize() == GRPC_NO_ERROR);
  return failures != 0;
}
