/*
 * GridRPC for programs that were written for Ninf-G, over libfarcall. Compile them with this folder
 * first in the list of include folders, and link with -lfarcall:
 *
 *     cc -I/usr/local/include/farcall/ninfg client.c -lfarcall
 *
 * The names and their meaning are those of Ninf-G's API. As there,
 *
 * - a caller passes a placeholder, such as NULL, for each WORK parameter;
 * - a text may be NULL, and so may an array without elements;
 * - a text that a function returns is memory of malloc(), which the program frees.
 *
 * Servers are those of Farcall: `host`, `host:port`, or `farcall://host:port`. Settings about job
 * managers, queues and the transfer of arguments are kept and have no effect, and neither have the
 * time limits of session attributes.
 */
#ifndef FARCALL_NINFG_GRPC_H
#define FARCALL_NINFG_GRPC_H

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/types.h>
#include <unistd.h>

#include "../grpc.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  GRPC_CLASS_NOT_FOUND_NP = 17,
  GRPC_CANCELED_NP = 18,
  GRPC_TIMEOUT_NP = 19,
  GRPC_INVALID_OBJECT_HANDLE_NP = 20
};

/* States of a session. */
enum {
  GRPC_SESSION_DONE = 1,
  GRPC_SESSION_ARG_IS_NOT_TRANSMITED = 2,
  GRPC_SESSION_EXECUTING = 3,
  GRPC_SESSION_DOWN = 4,
  GRPC_SESSION_UNKNOWN_STATUS = 5
};

#ifndef FARCALL_COMPLEX_STRUCTURES
#define FARCALL_COMPLEX_STRUCTURES
/* Complex numbers. */
typedef struct {
  float r, i;
} scomplex;
typedef struct {
  double r, i;
} dcomplex;
#endif

/* An object of a class at a server. A copy is the same handle. */
typedef struct {
  uint64_t farcall_private[4];
} grpc_object_handle_t_np;

typedef enum {
  GRPC_ARGUMENT_TRANSFER_WAIT,
  GRPC_ARGUMENT_TRANSFER_NOWAIT,
  GRPC_ARGUMENT_TRANSFER_COPY
} grpc_argument_transfer_t_np;

typedef enum {
  GRPC_HANDLE_ATTR_HOSTNAME,
  GRPC_HANDLE_ATTR_PORT,
  GRPC_HANDLE_ATTR_JOBMANAGER,
  GRPC_HANDLE_ATTR_SUBJECT,
  GRPC_HANDLE_ATTR_FUNCNAME,
  GRPC_HANDLE_ATTR_JOBSTARTTIMEOUT,
  GRPC_HANDLE_ATTR_JOBSTOPTIMEOUT,
  GRPC_HANDLE_ATTR_WAIT_ARG_TRANSFER,
  GRPC_HANDLE_ATTR_QUEUENAME,
  GRPC_HANDLE_ATTR_MPI_NCPUS
} grpc_handle_attr_name_t_np;

/* Where a function or a class is. */
typedef struct {
  char *texts[10];
  int numbers[10];
} grpc_handle_attr_t_np;

typedef enum {
  GRPC_SESSION_ATTR_WAIT_ARG_TRANSFER,
  GRPC_SESSION_ATTR_SESSION_TIMEOUT,
  GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_ARGUMENT,
  GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_RESULT,
  GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_ARGUMENT,
  GRPC_SESSION_ATTR_TRANSFER_TIMEOUT_CALLBACK_RESULT
} grpc_session_attr_name_t_np;

typedef struct {
  int numbers[6];
} grpc_session_attr_t_np;

/* The times of a session. Farcall measures these, and the others are 0. */
typedef struct {
  int callbackNtimesCalled;
  struct timeval transferArgumentToRemoteRealTime, transferArgumentToRemoteCpuTime;
  struct timeval transferFileToRemoteRealTime, transferFileToRemoteCpuTime;
  struct timeval calculationRealTime, calculationCpuTime;
  struct timeval transferResultToClientRealTime, transferResultToClientCpuTime;
  struct timeval transferFileToClientRealTime, transferFileToClientCpuTime;
} grpc_exec_info_executable_t_np;

typedef struct {
  int callbackNtimesCalled;
  struct timeval transferArgumentToRemoteRealTime, transferArgumentToRemoteCpuTime;
  struct timeval calculationRealTime, calculationCpuTime;
  struct timeval transferResultToClientRealTime, transferResultToClientCpuTime;
} grpc_exec_info_client_t_np;

typedef struct {
  grpc_exec_info_executable_t_np gei_measureExecutable;
  grpc_exec_info_client_t_np gei_measureClient;
} grpc_session_info_t_np;
typedef grpc_session_info_t_np grpc_exec_info_t_np;

/* The mode of Ninf-G, and grpc_initialize() of grpc.h. */
grpc_error_t grpc_initialize_np(const char *config_file_name);
#define grpc_initialize(file) grpc_initialize_np(file)
#define grpc_error_string(error) ((char *)(uintptr_t)(grpc_error_string)(error))

/* Reads a configuration file, in place of the one that was read. */
grpc_error_t grpc_config_file_read_np(const char *config_file_name);

/* Function handles. */
grpc_error_t grpc_function_handle_init_with_attr_np(grpc_function_handle_t *handle,
                                                    grpc_handle_attr_t_np *attr);
grpc_error_t grpc_function_handle_array_default_np(grpc_function_handle_t *handles, size_t count,
                                                   const char *func_name);
grpc_error_t grpc_function_handle_array_init_np(grpc_function_handle_t *handles, size_t count,
                                                const char *server_name, const char *func_name);
grpc_error_t grpc_function_handle_array_init_with_attr_np(grpc_function_handle_t *handles,
                                                          size_t count,
                                                          grpc_handle_attr_t_np *attr);
grpc_error_t grpc_function_handle_array_destruct_np(grpc_function_handle_t *handles, size_t count);
grpc_error_t grpc_function_handle_get_from_session_np(grpc_function_handle_t **handle,
                                                      grpc_sessionid_t session);
grpc_error_t grpc_function_handle_perror_np(grpc_function_handle_t *handle, const char *text);
grpc_error_t grpc_function_handle_get_error_np(grpc_function_handle_t *handle);
grpc_error_t grpc_function_handle_is_ready_np(grpc_function_handle_t *handle);

/* Object handles. */
grpc_error_t grpc_object_handle_default_np(grpc_object_handle_t_np *handle,
                                           const char *class_name);
grpc_error_t grpc_object_handle_init_np(grpc_object_handle_t_np *handle, const char *server_name,
                                        const char *class_name);
grpc_error_t grpc_object_handle_init_with_attr_np(grpc_object_handle_t_np *handle,
                                                  grpc_handle_attr_t_np *attr);
grpc_error_t grpc_object_handle_destruct_np(grpc_object_handle_t_np *handle);
grpc_error_t grpc_object_handle_array_default_np(grpc_object_handle_t_np *handles, size_t count,
                                                 const char *class_name);
grpc_error_t grpc_object_handle_array_init_np(grpc_object_handle_t_np *handles, size_t count,
                                              const char *server_name, const char *class_name);
grpc_error_t grpc_object_handle_array_init_with_attr_np(grpc_object_handle_t_np *handles,
                                                        size_t count, grpc_handle_attr_t_np *attr);
grpc_error_t grpc_object_handle_array_destruct_np(grpc_object_handle_t_np *handles, size_t count);
grpc_error_t grpc_object_handle_get_from_session_np(grpc_object_handle_t_np **handle,
                                                    grpc_sessionid_t session);
grpc_error_t grpc_object_handle_perror_np(grpc_object_handle_t_np *handle, const char *text);
grpc_error_t grpc_object_handle_get_error_np(grpc_object_handle_t_np *handle);
grpc_error_t grpc_object_handle_is_ready_np(grpc_object_handle_t_np *handle);

/* Attributes of handles. A value of grpc_handle_attr_get_np() is given back with
 * grpc_handle_attr_release_np(). */
grpc_error_t grpc_handle_attr_initialize_np(grpc_handle_attr_t_np *attr);
grpc_error_t grpc_handle_attr_destruct_np(grpc_handle_attr_t_np *attr);
grpc_error_t grpc_handle_attr_set_np(grpc_handle_attr_t_np *attr, grpc_handle_attr_name_t_np name,
                                     const void *value);
grpc_error_t grpc_handle_attr_get_np(grpc_handle_attr_t_np *attr, grpc_handle_attr_name_t_np name,
                                     void **value);
grpc_error_t grpc_handle_attr_release_np(void *value);

/* Attributes of sessions. */
grpc_error_t grpc_session_attr_initialize_np(grpc_function_handle_t *handle,
                                             grpc_session_attr_t_np *attr);
grpc_error_t
grpc_session_attr_initialize_with_object_handle_np(grpc_object_handle_t_np *handle,
                                                   grpc_session_attr_t_np *attr);
grpc_error_t grpc_session_attr_destruct_np(grpc_session_attr_t_np *attr);
grpc_error_t grpc_session_attr_set_np(grpc_session_attr_t_np *attr,
                                      grpc_session_attr_name_t_np name, const void *value);
grpc_error_t grpc_session_attr_get_np(grpc_session_attr_t_np *attr,
                                      grpc_session_attr_name_t_np name, void **value);
grpc_error_t grpc_session_attr_release_np(void *value);

/* Calls. */
grpc_error_t grpc_call_with_attr_np(grpc_function_handle_t *handle, grpc_session_attr_t_np *attr,
                                    ...);
grpc_error_t grpc_call_async_with_attr_np(grpc_function_handle_t *handle, grpc_sessionid_t *session,
                                          grpc_session_attr_t_np *attr, ...);
grpc_error_t grpc_invoke_np(grpc_object_handle_t_np *handle, const char *method, ...);
grpc_error_t grpc_invoke_async_np(grpc_object_handle_t_np *handle, const char *method,
                                  grpc_sessionid_t *session, ...);
grpc_error_t grpc_invoke_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                      grpc_session_attr_t_np *attr, ...);
grpc_error_t grpc_invoke_async_with_attr_np(grpc_object_handle_t_np *handle, const char *method,
                                            grpc_sessionid_t *session,
                                            grpc_session_attr_t_np *attr, ...);

/* The times and the state of a session. */
grpc_error_t grpc_get_info_np(grpc_sessionid_t session, grpc_exec_info_t_np *info, int *status);
grpc_error_t grpc_session_info_get_np(grpc_sessionid_t session, grpc_session_info_t_np **info,
                                      int *status);
grpc_error_t grpc_session_info_release_np(grpc_session_info_t_np *info);
grpc_error_t grpc_session_info_remove_np(grpc_sessionid_t session);
grpc_error_t grpc_session_info_set_threshold_np(int threshold);

/* Errors. */
grpc_error_t grpc_perror_np(const char *text);
grpc_error_t grpc_last_error_get_np(void);
#define grpc_get_last_error_np grpc_last_error_get_np

/* A handler of the program for a signal. */
grpc_error_t grpc_signal_handler_set_np(int number, void (*handler)(int));

#ifdef __cplusplus
}
#endif

#endif
