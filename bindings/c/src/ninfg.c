/* The names of Ninf-G that need only other functions of this library. `variadic.c` has those with a
 * list of arguments, and `gridrpc/ninfg.rs` has the objects. */
#define _DEFAULT_SOURCE
#include "farcall.h"
#include "ninfg/grpc.h"

#include <signal.h>

#undef grpc_initialize
#undef grpc_error_string

/* Functions of the Rust part for this file only. */
void farcall_internal_ninfg_begin(void);
void farcall_internal_no_attributes(void);
void farcall_internal_wrong_attribute(void);
grpc_error_t farcall_internal_grpc_object(grpc_object_handle_t_np *handle, const char *server,
                                          const char *class_name);
grpc_error_t farcall_internal_grpc_drop_object(grpc_object_handle_t_np *handle);
int farcall_internal_grpc_times(grpc_sessionid_t session, farcall_times *times);
grpc_error_t farcall_internal_grpc_function(const grpc_function_handle_t *handle,
                                            const farcall_function **function);
void farcall_internal_give_back(const farcall_function *function);
grpc_error_t farcall_internal_grpc_has_object(const grpc_object_handle_t_np *handle);
/* For the Rust part, whose functions fail, too. */
void farcall_internal_grpc_failed(int error);

/* The last error of the thread. */
static _Thread_local grpc_error_t last_error;

void farcall_internal_grpc_failed(int error) { last_error = error; }

static grpc_error_t result(grpc_error_t error) {
  if (error != GRPC_NO_ERROR)
    last_error = error;
  return error;
}

/* NULL in the place of attributes is an error, as in the place of a handle. */
static grpc_error_t no_attributes(void) {
  farcall_internal_no_attributes();
  return result(GRPC_OTHER_ERROR_CODE);
}

/* So is an attribute that does not exist, and NULL in the place of its value. */
static grpc_error_t wrong_attribute(void) {
  farcall_internal_wrong_attribute();
  return result(GRPC_OTHER_ERROR_CODE);
}

grpc_error_t grpc_initialize_np(const char *config_file_name) {
  farcall_internal_ninfg_begin();
  return result(grpc_initialize(config_file_name));
}

grpc_error_t grpc_config_file_read_np(const char *config_file_name) {
  grpc_error_t error = grpc_finalize();

  if (error != GRPC_NO_ERROR && error != GRPC_NOT_INITIALIZED)
    return result(error);
  return grpc_initialize_np(config_file_name);
}

/* `host:port` without a job manager, in memory that the caller frees; NULL for the default. */
static char *server_of(const char *host, int port) {
  size_t length;
  char *server;

  if (host == NULL)
    return NULL;
  length = strstr(host, "://") != NULL ? strlen(host) : strcspn(host, "/");
  server = malloc(length + 16);
  if (server == NULL)
    return NULL;
  memcpy(server, host, length);
  server[length] = '\0';
  if (port > 0)
    sprintf(server + length, ":%d", port);
  return server;
}

static grpc_error_t bind_function(grpc_function_handle_t *handle, const char *host, int port,
                                  const char *name) {
  char *server = server_of(host, port);
  grpc_error_t error = server == NULL ? grpc_function_handle_default(handle, name)
                                      : grpc_function_handle_init(handle, server, name);

  free(server);
  return result(error);
}

static grpc_error_t bind_object(grpc_object_handle_t_np *handle, const char *host, int port,
                                const char *name) {
  char *server = server_of(host, port);
  grpc_error_t error = farcall_internal_grpc_object(handle, server, name);

  free(server);
  return result(error);
}

/* Binds each handle of an array, or none. */
#define ARRAY(bind, destruct)                                                                      \
  size_t index;                                                                                    \
                                                                                                   \
  for (index = 0; index < count; index++) {                                                        \
    grpc_error_t error = bind;                                                                     \
    if (error != GRPC_NO_ERROR) {                                                                  \
      while (index-- > 0)                                                                          \
        destruct(&handles[index]);                                                                 \
      return result(error);                                                                        \
    }                                                                                              \
  }                                                                                                \
  return GRPC_NO_ERROR

#define ATTRIBUTES(attr)                                                                           \
  (attr)->texts[GRPC_HANDLE_ATTR_HOSTNAME], (attr)->numbers[GRPC_HANDLE_ATTR_PORT],                \
      (attr)->texts[GRPC_HANDLE_ATTR_FUNCNAME]

grpc_error_t grpc_function_handle_init_with_attr_np(grpc_function_handle_t *handle,
                                                    grpc_handle_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  return bind_function(handle, ATTRIBUTES(attr));
}

grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t *handles, size_t count,
                                                   const char *func_name) {
  ARRAY(bind_function(&handles[index], NULL, 0, func_name), grpc_function_handle_destruct);
}

grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t *handles, size_t count,
                                                const char *server_name, const char *func_name) {
  ARRAY(bind_function(&handles[index], server_name, 0, func_name), grpc_function_handle_destruct);
}

grpc_error_t grpc_function_handle_array_init_with_attr_np(grpc_function_handle_t *handles,
                                                          size_t count,
                                                          grpc_handle_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  ARRAY(bind_function(&handles[index], ATTRIBUTES(attr)), grpc_function_handle_destruct);
}

grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t *handles,
                                                    size_t count) {
  grpc_error_t error = GRPC_NO_ERROR;

  while (count-- > 0) {
    grpc_error_t failed = grpc_function_handle_destruct(&handles[count]);
    error = failed != GRPC_NO_ERROR ? failed : error;
  }
  return result(error);
}

grpc_error_t grpc_function_handle_get_from_session_np(grpc_function_handle_t **handle,
                                                      grpc_sessionid_t session) {
  return result(grpc_get_handle(handle, session));
}

grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np *handle,
                                           const char *class_name) {
  return bind_object(handle, NULL, 0, class_name);
}

grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np *handle, const char *server_name,
                                        const char *class_name) {
  return bind_object(handle, server_name, 0, class_name);
}

grpc_error_t grpc_object_handle_init_with_attr_np(grpc_object_handle_t_np *handle,
                                                  grpc_handle_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  return bind_object(handle, ATTRIBUTES(attr));
}

grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np *handle) {
  return result(farcall_internal_grpc_drop_object(handle));
}

grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np *handles, size_t count,
                                                 const char *class_name) {
  ARRAY(bind_object(&handles[index], NULL, 0, class_name), grpc_object_handle_destruct_np);
}

grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np *handles, size_t count,
                                              const char *server_name, const char *class_name) {
  ARRAY(bind_object(&handles[index], server_name, 0, class_name), grpc_object_handle_destruct_np);
}

grpc_error_t grpc_object_handle_array_init_with_attr_np(grpc_object_handle_t_np *handles,
                                                        size_t count,
                                                        grpc_handle_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  ARRAY(bind_object(&handles[index], ATTRIBUTES(attr)), grpc_object_handle_destruct_np);
}

grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np *handles, size_t count) {
  grpc_error_t error = GRPC_NO_ERROR;

  while (count-- > 0) {
    grpc_error_t failed = grpc_object_handle_destruct_np(&handles[count]);
    error = failed != GRPC_NO_ERROR ? failed : error;
  }
  return result(error);
}

grpc_error_t grpc_object_handle_get_from_session_np(grpc_object_handle_t_np **handle,
                                                    grpc_sessionid_t session) {
  return result(grpc_get_handle((grpc_function_handle_t **)handle, session));
}

/* A handle that was bound is ready; what fails is a call, whose error belongs to its session. */
grpc_error_t grpc_function_handle_get_error_np(grpc_function_handle_t *handle) {
  const farcall_function *function;
  grpc_error_t error = farcall_internal_grpc_function(handle, &function);

  if (error == GRPC_NO_ERROR)
    farcall_internal_give_back(function);
  return error;
}

grpc_error_t grpc_object_handle_get_error_np(grpc_object_handle_t_np *handle) {
  return farcall_internal_grpc_has_object(handle);
}

grpc_error_t grpc_function_handle_is_ready_np(grpc_function_handle_t *handle) {
  return grpc_function_handle_get_error_np(handle);
}

grpc_error_t grpc_object_handle_is_ready_np(grpc_object_handle_t_np *handle) {
  return grpc_object_handle_get_error_np(handle);
}

static grpc_error_t print_error(const char *text, grpc_error_t error) {
  fprintf(stderr, "%s: %s\n", text == NULL ? "" : text, grpc_error_string(error));
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_function_handle_perror_np(grpc_function_handle_t *handle, const char *text) {
  return print_error(text, grpc_function_handle_get_error_np(handle));
}

grpc_error_t grpc_object_handle_perror_np(grpc_object_handle_t_np *handle, const char *text) {
  return print_error(text, grpc_object_handle_get_error_np(handle));
}

grpc_error_t grpc_perror_np(const char *text) {
  fprintf(stderr, "%s: %s\n", text == NULL ? "" : text, farcall_error_message());
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_last_error_get_np(void) { return last_error; }

static int is_text(grpc_handle_attr_name_t_np name) {
  return name == GRPC_HANDLE_ATTR_HOSTNAME || name == GRPC_HANDLE_ATTR_JOBMANAGER ||
         name == GRPC_HANDLE_ATTR_SUBJECT || name == GRPC_HANDLE_ATTR_FUNCNAME ||
         name == GRPC_HANDLE_ATTR_QUEUENAME;
}

grpc_error_t grpc_handle_attr_initialize_np(grpc_handle_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  memset(attr, 0, sizeof *attr);
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_handle_attr_destruct_np(grpc_handle_attr_t_np *attr) {
  size_t index;

  if (attr == NULL)
    return no_attributes();
  for (index = 0; index < sizeof attr->texts / sizeof *attr->texts; index++)
    free(attr->texts[index]);
  return grpc_handle_attr_initialize_np(attr);
}

grpc_error_t grpc_handle_attr_set_np(grpc_handle_attr_t_np *attr, grpc_handle_attr_name_t_np name,
                                     const void *value) {
  if (attr == NULL)
    return no_attributes();
  if ((unsigned)name > GRPC_HANDLE_ATTR_MPI_NCPUS || value == NULL)
    return wrong_attribute();
  if (!is_text(name)) {
    attr->numbers[name] = *(const int *)value;
    return GRPC_NO_ERROR;
  }
  free(attr->texts[name]);
  attr->texts[name] = strdup(value);
  return attr->texts[name] == NULL ? result(GRPC_OTHER_ERROR_CODE) : GRPC_NO_ERROR;
}

/* A copy of a number in memory that the caller frees. */
static grpc_error_t give_number(int number, void **value) {
  int *copy = malloc(sizeof *copy);

  *value = copy;
  if (copy == NULL)
    return result(GRPC_OTHER_ERROR_CODE);
  *copy = number;
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_handle_attr_get_np(grpc_handle_attr_t_np *attr, grpc_handle_attr_name_t_np name,
                                     void **value) {
  if (attr == NULL)
    return no_attributes();
  if ((unsigned)name > GRPC_HANDLE_ATTR_MPI_NCPUS || value == NULL)
    return wrong_attribute();
  if (!is_text(name))
    return give_number(attr->numbers[name], value);
  *value = attr->texts[name] == NULL ? NULL : strdup(attr->texts[name]);
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_handle_attr_release_np(void *value) {
  free(value);
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_session_attr_initialize_np(grpc_function_handle_t *handle,
                                             grpc_session_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  memset(attr, 0, sizeof *attr);
  return grpc_function_handle_get_error_np(handle);
}

grpc_error_t
grpc_session_attr_initialize_with_object_handle_np(grpc_object_handle_t_np *handle,
                                                   grpc_session_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  memset(attr, 0, sizeof *attr);
  return grpc_object_handle_get_error_np(handle);
}

grpc_error_t grpc_session_attr_destruct_np(grpc_session_attr_t_np *attr) {
  if (attr == NULL)
    return no_attributes();
  memset(attr, 0, sizeof *attr);
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_session_attr_set_np(grpc_session_attr_t_np *attr,
                                      grpc_session_attr_name_t_np name, const void *value) {
  if (attr == NULL)
    return no_attributes();
  if ((unsigned)name > GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_RESULT || value == NULL)
    return wrong_attribute();
  attr->numbers[name] = *(const int *)value;
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_session_attr_get_np(grpc_session_attr_t_np *attr,
                                      grpc_session_attr_name_t_np name, void **value) {
  if (attr == NULL)
    return no_attributes();
  if ((unsigned)name > GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_RESULT || value == NULL)
    return wrong_attribute();
  return give_number(attr->numbers[name], value);
}

grpc_error_t grpc_session_attr_release_np(void *value) {
  free(value);
  return GRPC_NO_ERROR;
}

static struct timeval time_of(double seconds) {
  struct timeval time;

  time.tv_sec = (time_t)seconds;
  time.tv_usec = (int)((seconds - (double)time.tv_sec) * 1e6);
  return time;
}

grpc_error_t grpc_get_info_np(grpc_sessionid_t session, grpc_exec_info_t_np *info, int *status) {
  farcall_times times = {0};
  int ended = farcall_internal_grpc_times(session, &times);

  if (ended < 0)
    return result(GRPC_INVALID_SESSION_ID);
  if (status != NULL)
    *status = ended ? GRPC_SESSION_DONE : GRPC_SESSION_EXECUTING;
  if (info != NULL) {
    memset(info, 0, sizeof *info);
    info->gei_measureExecutable.calculationRealTime = time_of(times.exec);
    info->gei_measureClient.transferArgumentToRemoteRealTime = time_of(times.send);
    info->gei_measureClient.calculationRealTime = time_of(times.total);
    info->gei_measureClient.transferResultToClientRealTime = time_of(times.recv);
  }
  return GRPC_NO_ERROR;
}

grpc_error_t grpc_session_info_get_np(grpc_sessionid_t session, grpc_session_info_t_np **info,
                                      int *status) {
  grpc_session_info_t_np *made = NULL;
  grpc_error_t error;

  if (info != NULL && (made = malloc(sizeof *made)) == NULL)
    return result(GRPC_OTHER_ERROR_CODE);
  error = grpc_get_info_np(session, made, status);
  if (error != GRPC_NO_ERROR) {
    free(made);
    made = NULL;
  }
  if (info != NULL)
    *info = made;
  return error;
}

grpc_error_t grpc_session_info_release_np(grpc_session_info_t_np *info) {
  free(info);
  return GRPC_NO_ERROR;
}

/* The library forgets old sessions by itself. */
grpc_error_t grpc_session_info_remove_np(grpc_sessionid_t session) {
  return grpc_get_info_np(session, NULL, NULL);
}

grpc_error_t grpc_session_info_set_threshold_np(int threshold) {
  return threshold < 0 ? result(GRPC_OTHER_ERROR_CODE) : GRPC_NO_ERROR;
}

grpc_error_t grpc_signal_handler_set_np(int number, void (*handler)(int)) {
  return signal(number, handler) == SIG_ERR ? result(GRPC_OTHER_ERROR_CODE) : GRPC_NO_ERROR;
}
