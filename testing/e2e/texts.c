/* Arrays of strings as results, in the ways that script.c does not use: asynchronous calls, values
 * with a kind, and rows of characters. Also wrong arguments, which are refused. The first argument
 * is a server of languages.idl. */
#include "farcall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, farcall_error_message());         \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
#define VALUE(data, bytes, kind) {(void *)(data), (bytes), (kind), 0}

static farcall_function *split, *capitals;

static void asynchronous(void) {
  char rooms[2][13] = {"?", "?"}, *words[] = {rooms[0], rooms[1]};
  int32_t count = 0;
  farcall_session session = farcall_invoke_async(split, "one,two,three", ',', 2, words, &count);

  CHECK(session != 0);
  CHECK(farcall_wait(session, 30) == FARCALL_OK);
  CHECK(farcall_wait(session, 30) == FARCALL_OK);
  CHECK(count == 2 && strcmp(rooms[0], "one") == 0 && strcmp(rooms[1], "two") == 0);
}

/* The library makes the texts. */
static void made(void) {
  char *words[3] = {"zero", "", NULL};
  const int32_t n = 3, length = 8;
  farcall_value values[] = {VALUE(&n, sizeof n, FARCALL_INT), VALUE(&length, 4, FARCALL_INT),
                            VALUE(words, sizeof words, FARCALL_TEXTS)};
  farcall_session session;

  CHECK(farcall_call_values(capitals, values, 3) == FARCALL_OK);
  CHECK(strcmp(words[0], "ZERO") == 0 && *words[1] == '\0' && *words[2] == '\0');
  farcall_free_texts(words, 3);
  CHECK(words[0] == NULL && words[2] == NULL);
  farcall_free_texts(words, 3);
  farcall_free_texts(NULL, 3);

  words[1] = "one";
  session = farcall_call_values_async(capitals, values, 3);
  CHECK(farcall_wait(session, 30) == FARCALL_OK);
  CHECK(*words[0] == '\0' && strcmp(words[1], "ONE") == 0);
  farcall_free_texts(words, 3);

  /* A call that fails, or was given up, makes no texts. */
  words[0] = "more than eight";
  CHECK(farcall_call_values(capitals, values, 3) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "at most 8 bytes, given string 0 of 15") != NULL);
  CHECK(strcmp(words[0], "more than eight") == 0);
  words[0] = "eight";
  session = farcall_call_values_async(capitals, values, 3);
  CHECK(farcall_cancel(session) == FARCALL_OK);
  if (farcall_wait(session, 30) == FARCALL_OK)
    farcall_free_texts(words, 3);
  else
    CHECK(strcmp(words[0], "eight") == 0);
}

/* Rows of characters, blanks behind each text. */
static void rows(void) {
  char words[2][10] = {"a text   ", "eight ch  "};
  const int32_t n = 2, length = 8;
  farcall_value values[] = {VALUE(&n, sizeof n, FARCALL_INT), VALUE(&length, 4, FARCALL_INT),
                            VALUE(words, sizeof words, FARCALL_CHAR)};

  CHECK(farcall_call_values(capitals, values, 3) == FARCALL_OK);
  CHECK(memcmp(words, "A TEXT    EIGHT CH  ", sizeof words) == 0);
  values[2].bytes = 14;
  CHECK(farcall_call_values(capitals, values, 3) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "given 14 characters for 2 of 8") != NULL);
  values[2].bytes = sizeof words, values[2].read_only = 1;
  CHECK(farcall_call_values(capitals, values, 3) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "may not be written to") != NULL);
}

static void refused(void) {
  char room[13], *words[] = {room, NULL};
  int32_t count;
  const int32_t n = 2, length = 8;
  farcall_value values[] = {VALUE(&n, sizeof n, FARCALL_INT), VALUE(&length, 4, FARCALL_INT),
                            VALUE(words, sizeof words[0], FARCALL_TEXTS)};

  CHECK(farcall_invoke(split, "a", ',', 2, words, &count) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "given NULL as string 1") != NULL);
  CHECK(farcall_invoke(split, "a", ',', 2, NULL, &count) == FARCALL_ARGUMENT);
  CHECK(farcall_call_values(capitals, values, 3) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "given 1 of them") != NULL);
  CHECK(farcall_transaction_begin(NULL, 0) == FARCALL_OK);
  CHECK(farcall_invoke(split, "a", ',', 1, words, &count) == FARCALL_ARGUMENT);
  CHECK(strstr(farcall_error_message(), "no strings come back") != NULL);
  CHECK(farcall_transaction_cancel() == FARCALL_OK);
}

int main(int argc, char **argv) {
  farcall_server *server = argc == 2 ? farcall_connect(argv[1]) : NULL;

  CHECK(server != NULL);
  split = farcall_function_of(server, "split"), capitals = farcall_function_of(server, "capitals");
  CHECK(split != NULL && capitals != NULL);
  CHECK(*farcall_library_of(split) == '\0' && *farcall_library_of(NULL) == '\0');
  asynchronous();
  CHECK(strstr(farcall_library_of(split), "libconformance.so") != NULL);
  made();
  rows();
  refused();
  farcall_disconnect(server);
  return 0;
}
