/* GridRPC for Fortran, with the names and arguments of Ninf-G 5, as gfortran calls them: everything
 * by reference, and the lengths of texts after all other arguments. A handle is an INTEGER(8),
 * which holds the number of a handle of C: a variable without a handle is none, and is not
 * followed. */
#define _DEFAULT_SOURCE
#include "internal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ARGUMENTS = 256 };

/* A text of C without the blanks at the end, in memory that the caller frees. */
static char *c_text(const char *text, size_t length) {
  char *made;

  while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\0'))
    length--;
  made = malloc(length + 1);
  if (made != NULL) {
    memcpy(made, text, length);
    made[length] = '\0';
  }
  return made;
}

/* The handle of C with this number. */
static grpc_function_handle_t handle_of(const int64_t *number) {
  grpc_function_handle_t handle = {{(uint64_t)*number, 0, 0, 0}};

  return handle;
}

/* Calls. */

typedef struct {
  size_t count;
  void *pointers[MOST_ARGUMENTS];
  char *texts[MOST_ARGUMENTS];
} fortran_t;

static void release(fortran_t *given) {
  size_t index;

  for (index = 0; index < given->count; index++)
    free(given->texts[index]);
}

/* Reads the placeholders for WORK parameters from this position of the interface on, or their
 * lengths, and returns the position of the next parameter that is passed. */
static size_t skip(const farcall_function *function, size_t position, va_list *list, int lengths) {
  for (; farcall_internal_placeholder(function, position) >= 0; position++)
    if (!lengths)
      (void)va_arg(*list, void *);
    else if (farcall_internal_placeholder_has_length(function, position))
      (void)va_arg(*list, size_t);
  return position;
}

/* Reads the addresses of the arguments by the interface of the function; 0 if there is one that
 * Fortran cannot pass, such as an array of texts. */
static int collect_addresses(fortran_t *given, const farcall_function *function, va_list *list) {
  size_t index, position = 0;
  farcall_kind kind;

  for (index = 0; index < given->count; index++, position++) {
    position = skip(function, position, list, 0);
    kind = farcall_argument_kind(function, index);
    given->pointers[index] = va_arg(*list, void *);
    if (kind == FARCALL_FUNCTION ||
        (kind == FARCALL_ARRAY && farcall_argument_type(function, index) == FARCALL_TEXT)) {
      farcall_internal_not_for_fortran(function);
      return 0;
    }
  }
  skip(function, position, list, 0);
  return 1;
}

/* Reads the arguments. If there is one that Fortran cannot pass, or no memory, it returns 0 and
 * records why. */
static int collect(fortran_t *given, const farcall_function *function, va_list *list) {
  size_t index, position = 0, length;

  given->count = farcall_argument_count(function);
  if (given->count > MOST_ARGUMENTS) {
    given->count = 0;
    farcall_internal_not_for_fortran(function);
    return 0;
  }
  memset(given->texts, 0, given->count * sizeof *given->texts);
  if (!collect_addresses(given, function, list))
    return 0;
  for (index = 0; index < given->count; index++, position++) {
    position = skip(function, position, list, 1);
    if (farcall_argument_kind(function, index) == FARCALL_TEXT) {
      length = va_arg(*list, size_t);
      given->texts[index] = c_text(given->pointers[index], length);
      if (given->texts[index] == NULL) {
        farcall_internal_out_of_memory();
        return 0;
      }
      given->pointers[index] = &given->texts[index];
    } else if (farcall_internal_is_character(function, index)) {
      (void)va_arg(*list, size_t);
    }
  }
  return 1;
}

/* Makes a call with the rest of the list, or starts one if there is a place for its session. */
static grpc_error_t call(const int64_t *handle, int *session, va_list *list) {
  const grpc_function_handle_t named = handle_of(handle);
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_function(&named, &function);
  fortran_t given;

  if (session != NULL)
    *session = GRPC_SESSIONID_VOID;
  if (error != GRPC_NO_ERROR)
    return error;
  if (!collect(&given, function, list)) {
    farcall_internal_give_back(function);
    error = GRPC_OTHER_ERROR_CODE;
  } else if (session == NULL) {
    error = farcall_internal_grpc_call(function, given.pointers, given.count);
  } else {
    /* GRPC_GET_HANDLE gives the number back. */
    error = farcall_internal_grpc_start(function, (grpc_function_handle_t *)(intptr_t)*handle,
                                        session, given.pointers, given.count);
  }
  release(&given);
  return error;
}

grpc_error_t grpc_call_(int64_t *handle, ...) {
  va_list list;
  grpc_error_t error;

  va_start(list, handle);
  error = call(handle, NULL, &list);
  va_end(list);
  return error;
}

grpc_error_t grpc_call_async_(int64_t *handle, int *session, ...) {
  va_list list;
  grpc_error_t error;

  va_start(list, session);
  error = call(handle, session, &list);
  va_end(list);
  return error;
}

/* Handles. */

/* Makes handles, for the default server if `server` is NULL. The texts have been made for this
 * function, which frees them. */
static grpc_error_t bind_all(int64_t *handles, int count, char *server, char *name) {
  grpc_error_t error = name == NULL ? GRPC_OTHER_ERROR_CODE : GRPC_NO_ERROR;
  grpc_function_handle_t made;
  int index;

  for (index = 0; index < count; index++)
    handles[index] = 0;
  for (index = 0; error == GRPC_NO_ERROR && index < count; index++) {
    error = server == NULL ? grpc_function_handle_default(&made, name)
                           : grpc_function_handle_init(&made, server, name);
    if (error == GRPC_NO_ERROR)
      handles[index] = (int64_t)made.farcall_private[0];
  }
  free(server);
  free(name);
  return error;
}

/* The same at a server that is named. */
static grpc_error_t bind_at(int64_t *handles, int count, char *server, char *name) {
  if (server == NULL) {
    free(name);
    return GRPC_OTHER_ERROR_CODE;
  }
  return bind_all(handles, count, server, name);
}

static grpc_error_t drop_all(int64_t *handles, int count) {
  grpc_error_t error, result = GRPC_NO_ERROR;
  int index;

  for (index = 0; index < count; index++) {
    grpc_function_handle_t handle = handle_of(handles + index);

    error = grpc_function_handle_destruct(&handle);
    if (error == GRPC_NO_ERROR)
      handles[index] = 0;
    else
      result = error;
  }
  return result;
}

grpc_error_t grpc_function_handle_default_(int64_t *handle, const char *name, size_t length) {
  return bind_all(handle, 1, NULL, c_text(name, length));
}

grpc_error_t grpc_function_handle_init_(int64_t *handle, const char *server, const char *name,
                                        size_t server_length, size_t length) {
  return bind_at(handle, 1, c_text(server, server_length), c_text(name, length));
}

grpc_error_t grpc_function_handle_destruct_(int64_t *handle) { return drop_all(handle, 1); }

grpc_error_t grpc_function_handle_array_default_np_(int64_t *handles, const int *count,
                                                    const char *name, size_t length) {
  return bind_all(handles, *count, NULL, c_text(name, length));
}

grpc_error_t grpc_function_handle_array_init_np_(int64_t *handles, const int *count,
                                                 const char *server, const char *name,
                                                 size_t server_length, size_t length) {
  return bind_at(handles, *count, c_text(server, server_length), c_text(name, length));
}

grpc_error_t grpc_function_handle_array_destruct_np_(int64_t *handles, const int *count) {
  return drop_all(handles, *count);
}

grpc_error_t grpc_function_handle_is_ready_np_(int64_t *handle) {
  grpc_function_handle_t named = handle_of(handle);

  return grpc_function_handle_is_ready_np(&named);
}

grpc_error_t grpc_function_handle_get_error_np_(int64_t *handle) {
  grpc_function_handle_t named = handle_of(handle);

  return grpc_function_handle_get_error_np(&named);
}

grpc_error_t grpc_perror_np_(const char *text, size_t length) {
  char *made = c_text(text, length);
  grpc_error_t error = grpc_perror_np(made);

  free(made);
  return error;
}

grpc_error_t grpc_function_handle_perror_np_(int64_t *handle, const char *text, size_t length) {
  grpc_function_handle_t named = handle_of(handle);
  char *made = c_text(text, length);
  grpc_error_t error = grpc_function_handle_perror_np(&named, made);

  free(made);
  return error;
}

grpc_error_t grpc_get_handle_(int64_t *handle, const int *session) {
  grpc_function_handle_t *found = NULL;
  grpc_error_t error = grpc_get_handle(&found, *session);

  *handle = (int64_t)(intptr_t)found;
  return error;
}

/* The rest has no texts, but for the configuration and the errors. */

grpc_error_t grpc_initialize_(const char *file, size_t length) {
  char *made = c_text(file, length);
  grpc_error_t error = grpc_initialize_np(made == NULL || *made == '\0' ? NULL : made);

  free(made);
  return error;
}

grpc_error_t grpc_config_file_read_np_(const char *file, size_t length) {
  char *made = c_text(file, length);
  grpc_error_t error = grpc_config_file_read_np(made);

  free(made);
  return error;
}

grpc_error_t grpc_finalize_(void) { return grpc_finalize(); }

void grpc_error_string_(const int *error, char *text, size_t length) {
  const char *words = grpc_error_string(*error);
  size_t used = strlen(words);

  if (used > length)
    used = length;
  memcpy(text, words, used);
  memset(text + used, ' ', length - used);
}

grpc_error_t grpc_get_error_(const int *session) { return grpc_get_error(*session); }

grpc_error_t grpc_get_failed_sessionid_(int *session) { return grpc_get_failed_sessionid(session); }

grpc_error_t grpc_probe_(const int *session) { return grpc_probe(*session); }

grpc_error_t grpc_probe_or_(int *sessions, const int *count, int *session) {
  return grpc_probe_or(sessions, (size_t)*count, session);
}

grpc_error_t grpc_cancel_(const int *session) { return grpc_cancel(*session); }

grpc_error_t grpc_cancel_all_(void) { return grpc_cancel_all(); }

grpc_error_t grpc_wait_(const int *session) { return grpc_wait(*session); }

grpc_error_t grpc_wait_and_(int *sessions, const int *count) {
  return grpc_wait_and(sessions, (size_t)*count);
}

grpc_error_t grpc_wait_or_(int *sessions, const int *count, int *session) {
  return grpc_wait_or(sessions, (size_t)*count, session);
}

grpc_error_t grpc_wait_all_(void) { return grpc_wait_all(); }

grpc_error_t grpc_wait_any_(int *session) { return grpc_wait_any(session); }
