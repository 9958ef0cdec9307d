/*
 * GridRPC, the end-user interface of GFD-R-P.052, over libfarcall. Link with -lfarcall.
 *
 *     grpc_function_handle_t dgesv;
 *     grpc_sessionid_t id;
 *     grpc_initialize(NULL);
 *     grpc_function_handle_init(&dgesv, "farcall://host:3717", "lapack/dgesv");
 *     grpc_call_async(&dgesv, &id, n, 1, a, n, pivots, b, n, &info);
 *     if (grpc_wait(id) != GRPC_NO_ERROR)
 *         fprintf(stderr, "%s\n", farcall_error_message());
 *     grpc_finalize();
 *
 * Any number of threads may call these functions at the same time. Pass arguments as to
 * farcall_call() of farcall.h: scalars by value in the C type of the interface (long is int64_t),
 * arrays as pointers. Do not use the arrays of an asynchronous call until a wait has reported its
 * session, or grpc_cancel() has returned.
 *
 * farcall_error_message() of farcall.h returns the error of the last function of the calling thread
 * that failed.
 */
#ifndef FARCALL_GRPC_H
#define FARCALL_GRPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The return value of a function. */
typedef int grpc_error_t;

enum {
  /* Success. */
  GRPC_NO_ERROR = 0,
  /* grpc_initialize() has not been called. */
  GRPC_NOT_INITIALIZED = 1,
  /* The configuration file cannot be read. */
  GRPC_CONFIGFILE_NOT_FOUND = 2,
  /* The configuration file is wrong. */
  GRPC_CONFIGFILE_ERROR = 3,
  /* The server cannot be reached. */
  GRPC_SERVER_NOT_FOUND = 4,
  /* The server has no function of that name. */
  GRPC_FUNCTION_NOT_FOUND = 5,
  /* The handle was never bound, or was destructed. */
  GRPC_INVALID_FUNCTION_HANDLE = 6,
  /* There is no session of that number, or the library has forgotten it. */
  GRPC_INVALID_SESSION_ID = 7,
  /* The server refused the call: it is stopping, or the call is too large. */
  GRPC_RPC_REFUSED = 8,
  /* The connection was lost, or the server did not answer in time. */
  GRPC_COMMUNICATION_FAILED = 9,
  /* The library crashed or exceeded a limit, or the session was cancelled. From a wait: a session
   * failed, and grpc_get_error() says why. */
  GRPC_SESSION_FAILED = 10,
  /* The session has not completed. */
  GRPC_NOT_COMPLETED = 11,
  /* None of the sessions has completed. */
  GRPC_NONE_COMPLETED = 12,
  /* Another error: an argument does not match the interface, or a pointer is NULL. */
  GRPC_OTHER_ERROR_CODE = 13,
  /* For grpc_error_string(): the number is not an error code. */
  GRPC_UNKNOWN_ERROR_CODE = 14,
  /* grpc_initialize() has been called before. */
  GRPC_ALREADY_INITIALIZED = 15,
  /* The highest error code. */
  GRPC_LAST_ERROR_CODE = 16
};

/* The number of a session, greater than 0. The library remembers the last 65536 sessions that a
 * wait has reported. */
typedef int grpc_sessionid_t;
#define GRPC_SESSIONID_VOID (-1)

/* A function on a server. A copy is the same handle. */
typedef struct {
  uint64_t farcall_private[4];
} grpc_function_handle_t;

/* Arguments that are collected at run time. Only one thread may use a stack at a time. */
typedef struct grpc_arg_stack grpc_arg_stack_t;

/*
 * Reads the configuration file, TOML:
 *
 *     [client]
 *     server = "farcall://host:3717"   # used if the environment names none
 *     connect_timeout = 10             # seconds
 *     timeout = 60                     # seconds for a call; 0, the default, for no limit
 *
 * NULL reads the file that FARCALL_CONFIG names, if it is set. The environment has priority:
 * FARCALL_SERVER, or NINF_SERVER and NINF_SERVER_PORT.
 */
grpc_error_t grpc_initialize(const char *config_file_name);

/* Cancels the sessions that have not completed, ends all handles, and closes the connections. */
grpc_error_t grpc_finalize(void);

/* Binds a handle to a function of the default server: connects, and fetches the interface. */
grpc_error_t grpc_function_handle_default(grpc_function_handle_t *handle, const char *func_name);

/* Binds a handle to a function of a server, `farcall://host:port`, `host:port`, `unix:///path`. */
grpc_error_t grpc_function_handle_init(grpc_function_handle_t *handle, const char *server_name,
                                       const char *func_name);

/* Ends a handle. Its sessions continue. */
grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t *handle);

/* The handle of a session: the pointer that the program passed to grpc_call_async(). */
grpc_error_t grpc_get_handle(grpc_function_handle_t **handle, grpc_sessionid_t session);

/* Calls the function, and returns when it has ended. */
grpc_error_t grpc_call(grpc_function_handle_t *handle, ...);

/* Starts a call. `*session` is GRPC_SESSIONID_VOID on failure. */
grpc_error_t grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session, ...);

/* Argument stacks: each argument is a pointer to the scalar or to the first element. */
grpc_arg_stack_t *grpc_arg_stack_new(int max);
grpc_error_t grpc_arg_stack_push_arg(grpc_arg_stack_t *stack, void *argument);
void *grpc_arg_stack_pop_arg(grpc_arg_stack_t *stack);
grpc_error_t grpc_arg_stack_destruct(grpc_arg_stack_t *stack);
grpc_error_t grpc_call_argstack(const grpc_function_handle_t *handle,
                                const grpc_arg_stack_t *stack);
grpc_error_t grpc_call_argstack_async(const grpc_function_handle_t *handle,
                                      grpc_sessionid_t *session, const grpc_arg_stack_t *stack);

/* GRPC_NO_ERROR if the session has completed, also with a failure, else GRPC_NOT_COMPLETED. */
grpc_error_t grpc_probe(grpc_sessionid_t session);

/* GRPC_NO_ERROR and a session that has completed, else GRPC_NONE_COMPLETED. */
grpc_error_t grpc_probe_or(const grpc_sessionid_t *sessions, size_t length,
                           grpc_sessionid_t *which);

/* Cancels a session, for which waits then return a failure. A session that has completed keeps its
 * result. */
grpc_error_t grpc_cancel(grpc_sessionid_t session);
grpc_error_t grpc_cancel_all(void);

/* Waits for a session. Returns GRPC_SESSION_FAILED if it failed, also when called again. */
grpc_error_t grpc_wait(grpc_sessionid_t session);

/* Waits for all of the sessions. Returns GRPC_SESSION_FAILED if at least one failed. */
grpc_error_t grpc_wait_and(const grpc_sessionid_t *sessions, size_t length);

/* Waits for one of the sessions, `*which`. Returns GRPC_SESSION_FAILED if that one failed. */
grpc_error_t grpc_wait_or(const grpc_sessionid_t *sessions, size_t length,
                          grpc_sessionid_t *which);

/* The same for all sessions that no wait has reported when this begins. */
grpc_error_t grpc_wait_all(void);

/* The same for one of them; each is reported once. GRPC_SESSIONID_VOID if none is left. */
grpc_error_t grpc_wait_any(grpc_sessionid_t *which);

/* The meaning of an error code. It is valid until the program ends. */
const char *grpc_error_string(grpc_error_t error);

/* Why a session failed, or GRPC_NO_ERROR: it has succeeded, or still runs. */
grpc_error_t grpc_get_error(grpc_sessionid_t session);

/* The sessions that failed in the last wait of this thread, one at a time, and then
 * GRPC_SESSIONID_VOID. */
grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t *session);

#ifdef __cplusplus
}
#endif

#endif
