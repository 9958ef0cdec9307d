/* The functions with a list of arguments, which they read by the interface of the function. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>

/* For `output.rs`, which has no `stdout`. */
int farcall_internal_print(const char *text, size_t bytes);

/* Functions of the Rust part for this file only. */
int farcall_internal_ninf_call(const farcall_function *function, void *const *arguments,
                               size_t count);
int farcall_internal_ninf_start(const farcall_function *function, void *const *arguments,
                                size_t count, int is_in_group);
/* The arrays that a call changes, as they are before it; 0 if there is no memory. */
typedef struct farcall_internal_kept farcall_internal_kept;
int farcall_internal_ninf_keep(const farcall_function *function, void *const *arguments,
                               size_t count, farcall_internal_kept **kept);
void farcall_internal_ninf_restore(const farcall_internal_kept *kept);
void farcall_internal_ninf_forget(farcall_internal_kept *kept);
void farcall_internal_ninfg_begin(void);
grpc_error_t farcall_internal_grpc_method(const grpc_object_handle_t_np *handle, const char *name,
                                          const farcall_function **function);

/* Memory for any scalar. */
typedef union {
  char c;
  int16_t s;
  int32_t i;
  int64_t l;
  float f;
  double d;
  farcall_scomplex sc;
  farcall_dcomplex dc;
  const char *t;
} scalar_t;

enum { MOST_ON_STACK = 32 };

/* Pointers to the arguments of one call. */
typedef struct {
  size_t count;
  void **pointers;
  scalar_t *scalars;
  void *pointers_here[MOST_ON_STACK];
  scalar_t scalars_here[MOST_ON_STACK];
} arguments_t;

static void *take(farcall_kind kind, scalar_t *scalar, va_list *list) {
  switch (kind) {
  case FARCALL_CHAR:
    scalar->c = (char)va_arg(*list, int);
    return scalar;
  case FARCALL_SHORT:
    scalar->s = (int16_t)va_arg(*list, int);
    return scalar;
  case FARCALL_INT:
    scalar->i = va_arg(*list, int32_t);
    return scalar;
  case FARCALL_LONG:
    scalar->l = va_arg(*list, int64_t);
    return scalar;
  case FARCALL_FLOAT:
    scalar->f = (float)va_arg(*list, double);
    return scalar;
  case FARCALL_DOUBLE:
    scalar->d = va_arg(*list, double);
    return scalar;
  case FARCALL_SCOMPLEX:
    scalar->sc = va_arg(*list, farcall_scomplex);
    return scalar;
  case FARCALL_DCOMPLEX:
    scalar->dc = va_arg(*list, farcall_dcomplex);
    return scalar;
  case FARCALL_TEXT:
    scalar->t = va_arg(*list, const char *);
    return scalar;
  default:
    return va_arg(*list, void *);
  }
}

static void release(arguments_t *arguments) {
  if (arguments->pointers != arguments->pointers_here)
    free(arguments->pointers);
  if (arguments->scalars != arguments->scalars_here)
    free(arguments->scalars);
}

/* Reads the placeholders for WORK parameters from this position of the interface on, and returns
 * the position of the next parameter that is passed. */
static size_t skip(const farcall_function *function, size_t position, va_list *list) {
  scalar_t unused;
  int kind;

  while ((kind = farcall_internal_placeholder(function, position)) >= 0) {
    take((farcall_kind)kind, &unused, list);
    position++;
  }
  return position;
}

/* Reads the list, which may have placeholders; false if there is no memory for it. */
static int collect(arguments_t *arguments, const farcall_function *function, int placeholders,
                   va_list *list) {
  size_t index, position, count = farcall_argument_count(function);

  arguments->count = count;
  arguments->pointers = arguments->pointers_here;
  arguments->scalars = arguments->scalars_here;
  if (count > MOST_ON_STACK) {
    arguments->pointers = malloc(count * sizeof *arguments->pointers);
    arguments->scalars = malloc(count * sizeof *arguments->scalars);
    if (arguments->pointers == NULL || arguments->scalars == NULL) {
      release(arguments);
      farcall_internal_out_of_memory();
      return 0;
    }
  }
  for (index = 0, position = 0; index < count; index++, position++) {
    if (placeholders)
      position = skip(function, position, list);
    arguments->pointers[index] =
        take(farcall_argument_kind(function, index), &arguments->scalars[index], list);
  }
  if (placeholders)
    skip(function, position, list);
  return 1;
}

/* The rest of a function of this file: `begin` starts `list`, and the result is that of `run` with
 * the arguments GIVEN, or `failed` if there is no memory for them. Only callers of GridRPC pass
 * placeholders. */
#define RUN(...) RUN_WITH(0, __VA_ARGS__)
#define RUN_GRPC(...) RUN_WITH(1, __VA_ARGS__)
#define RUN_WITH(placeholders, type, begin, function, run, failed)                                 \
  arguments_t arguments;                                                                           \
  va_list list;                                                                                    \
  type result;                                                                                     \
                                                                                                   \
  begin;                                                                                           \
  if (collect(&arguments, function, placeholders, &list)) {                                        \
    result = run;                                                                                  \
    release(&arguments);                                                                           \
  } else {                                                                                         \
    result = failed;                                                                               \
  }                                                                                                \
  va_end(list);                                                                                    \
  return result

#define GIVEN arguments.pointers, arguments.count

farcall_status farcall_call_list(farcall_function *function, va_list given) {
  RUN(farcall_status, va_copy(list, given), function, farcall_call_array(function, GIVEN),
      FARCALL_INTERNAL);
}

farcall_session farcall_call_list_async(farcall_function *function, va_list given) {
  RUN(farcall_session, va_copy(list, given), function, farcall_call_array_async(function, GIVEN),
      0);
}

farcall_status farcall_invoke(farcall_function *function, ...) {
  RUN(farcall_status, va_start(list, function), function, farcall_call_array(function, GIVEN),
      FARCALL_INTERNAL);
}

farcall_session farcall_invoke_async(farcall_function *function, ...) {
  RUN(farcall_session, va_start(list, function), function,
      farcall_call_array_async(function, GIVEN), 0);
}

farcall_status farcall_call(farcall_server *server, const char *name, ...) {
  farcall_function *function = farcall_function_of(server, name);

  if (function == NULL)
    return farcall_error_status();
  RUN(farcall_status, va_start(list, name), function, farcall_call_array(function, GIVEN),
      FARCALL_INTERNAL);
}

farcall_session farcall_call_async(farcall_server *server, const char *name, ...) {
  farcall_function *function = farcall_function_of(server, name);

  if (function == NULL)
    return 0;
  RUN(farcall_session, va_start(list, name), function, farcall_call_array_async(function, GIVEN),
      0);
}

farcall_status farcall_submit(farcall_server *server, const char *name, char *id, ...) {
  farcall_function *function = farcall_function_of(server, name);

  if (function == NULL)
    return farcall_error_status();
  RUN(farcall_status, va_start(list, id), function, farcall_submit_array(function, id, GIVEN),
      FARCALL_INTERNAL);
}

farcall_status farcall_fetch(farcall_server *server, const char *name, const char *id, ...) {
  farcall_function *function = farcall_function_of(server, name);

  if (function == NULL)
    return farcall_error_status();
  RUN(farcall_status, va_start(list, id), function, farcall_fetch_array(function, id, GIVEN),
      FARCALL_INTERNAL);
}

/* Drops the share of a function if the call that would take it over does not happen. */
#define GIVEN_BACK(function, error) (farcall_internal_give_back(function), error)

/* What a program has of a session that could not start. */
static void no_session(grpc_sessionid_t *session) {
  if (session != NULL)
    *session = GRPC_SESSIONID_VOID;
}

grpc_error_t grpc_call(grpc_function_handle_t *handle, ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_function(handle, &function);

  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, handle), function,
           farcall_internal_grpc_call(function, GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

grpc_error_t grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session, ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_function(handle, &function);

  no_session(session);
  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, session), function,
           farcall_internal_grpc_start(function, handle, session, GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

grpc_error_t grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method, ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_method(handle, method, &function);

  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, method), function,
           farcall_internal_grpc_call(function, GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method,
                                  grpc_sessionid_t *session, ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_method(handle, method, &function);

  no_session(session);
  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, session), function,
           farcall_internal_grpc_start(function, (const grpc_function_handle_t *)handle, session,
                                       GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

grpc_error_t grpc_call_with_attr_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr,
                                    ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_function(handle, &function);

  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, attr), function,
           farcall_internal_grpc_call(function, GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

grpc_error_t grpc_call_async_with_attr_np(grpc_function_handle_t *handle, grpc_sessionid_t *session,
                                          grpc_session_attr_t_np *attr, ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_function(handle, &function);

  no_session(session);
  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, attr), function,
           farcall_internal_grpc_start(function, handle, session, GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

grpc_error_t grpc_invoke_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                      grpc_session_attr_t_np *attr, ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_method(handle, method, &function);

  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, attr), function,
           farcall_internal_grpc_call(function, GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

grpc_error_t grpc_invoke_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                            grpc_sessionid_t *session,
                                            grpc_session_attr_t_np *attr, ...) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_method(handle, method, &function);

  no_session(session);
  if (error != GRPC_NO_ERROR)
    return error;
  RUN_GRPC(grpc_error_t, va_start(list, attr), function,
           farcall_internal_grpc_start(function, (const grpc_function_handle_t *)handle, session,
                                       GIVEN),
           GIVEN_BACK(function, GRPC_OTHER_ERROR_CODE));
}

int Ninf_call(const char *name, ...) {
  const farcall_function *function = farcall_internal_ninf_function(name);

  if (function == NULL)
    return NINF_ERROR;
  RUN(int, va_start(list, name), function, farcall_internal_ninf_call(function, GIVEN),
      GIVEN_BACK(function, NINF_ERROR));
}

int Ninf_call_async(const char *name, ...) {
  const farcall_function *function = farcall_internal_ninf_function(name);

  if (function == NULL)
    return NINF_ERROR;
  RUN(int, va_start(list, name), function, farcall_internal_ninf_start(function, GIVEN, 0),
      GIVEN_BACK(function, NINF_ERROR));
}

int Ninf_call_executable(Ninf_executable_t *executable, ...) {
  const farcall_function *function =
      farcall_internal_ninf_function(farcall_internal_ninf_name(executable));

  if (function == NULL)
    return NINF_ERROR;
  RUN(int, va_start(list, executable), function, farcall_internal_ninf_call(function, GIVEN),
      GIVEN_BACK(function, NINF_ERROR));
}

int Ninf_call_executable_async(Ninf_executable_t *executable, ...) {
  const farcall_function *function =
      farcall_internal_ninf_function(farcall_internal_ninf_name(executable));

  if (function == NULL)
    return NINF_ERROR;
  RUN(int, va_start(list, executable), function,
      farcall_internal_ninf_called(executable, farcall_internal_ninf_start(function, GIVEN, 0)),
      GIVEN_BACK(function, NINF_ERROR));
}

/* A call of a group, which keeps its arguments until it succeeds. */
typedef struct {
  farcall_internal_member member;
  arguments_t arguments;
  farcall_internal_kept *arrays;
} kept_t;

static int start_member(const farcall_function *function, kept_t *kept) {
  return farcall_internal_ninf_start(function, kept->arguments.pointers, kept->arguments.count, 1);
}

int farcall_internal_ninf_again(const farcall_function *function, farcall_internal_member *member) {
  kept_t *kept = (kept_t *)member;

  /* Results that had begun to arrive have overwritten them. */
  farcall_internal_ninf_restore(kept->arrays);
  return start_member(function, kept);
}

void farcall_internal_ninf_leave(farcall_internal_member *member) {
  release(&((kept_t *)member)->arguments);
  farcall_internal_ninf_forget(((kept_t *)member)->arrays);
  free(member);
}

int Ninf_group_call_async(Ninf_group_t *group, ...) {
  const farcall_function *function =
      farcall_internal_ninf_on_next_host(farcall_internal_ninf_group_name(group));
  kept_t *kept;
  va_list list;
  int read, session;

  if (function == NULL)
    return NINF_ERROR;
  kept = calloc(1, sizeof *kept);
  if (kept == NULL) {
    farcall_internal_out_of_memory();
    return GIVEN_BACK(function, NINF_ERROR);
  }
  va_start(list, group);
  read = collect(&kept->arguments, function, 0, &list);
  va_end(list);
  if (!read) {
    free(kept);
    return GIVEN_BACK(function, NINF_ERROR);
  }
  if (!farcall_internal_ninf_keep(function, kept->arguments.pointers, kept->arguments.count,
                                  &kept->arrays)) {
    farcall_internal_ninf_leave(&kept->member);
    return GIVEN_BACK(function, NINF_ERROR);
  }
  session = start_member(function, kept);
  if (session == NINF_ERROR) {
    farcall_internal_ninf_leave(&kept->member);
    return NINF_ERROR;
  }
  kept->member.session = session;
  farcall_internal_ninf_join(group, &kept->member);
  return session;
}

int farcall_internal_print(const char *text, size_t bytes) {
  if (fwrite(text, 1, bytes, stdout) == bytes && fflush(stdout) == 0)
    return 1;
  /* A program without standard output has nobody who misses the text. */
  return errno == EBADF;
}
