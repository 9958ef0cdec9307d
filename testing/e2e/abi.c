/* What the binary interface of libfarcall.so.1 is made of: this file compiles as long as it is the
 * same. A change here breaks programs that exist; docs/languages.md says what may change. */
#include "farcall.h"
#include "grpc.h"
#include "ninf.h"

#include <stddef.h>

#define HOLDS(condition) _Static_assert(condition, #condition)

HOLDS(FARCALL_OK == 0 && FARCALL_ARGUMENT == 1 && FARCALL_UNKNOWN_FUNCTION == 2);
HOLDS(FARCALL_CONNECTION == 3 && FARCALL_TIMEOUT == 4 && FARCALL_LIBRARY == 5);
HOLDS(FARCALL_SERVER == 6 && FARCALL_INTERNAL == 7 && FARCALL_RUNNING == 8);
HOLDS(FARCALL_CANCELLED == 9 && FARCALL_UNKNOWN_SESSION == 10);
HOLDS(sizeof(farcall_status) == 4);

HOLDS(FARCALL_ARRAY == 0 && FARCALL_CHAR == 1 && FARCALL_SHORT == 2 && FARCALL_INT == 3);
HOLDS(FARCALL_LONG == 4 && FARCALL_FLOAT == 5 && FARCALL_DOUBLE == 6);
HOLDS(FARCALL_SCOMPLEX == 7 && FARCALL_DCOMPLEX == 8 && FARCALL_TEXT == 9);
HOLDS(FARCALL_FUNCTION == 10 && FARCALL_TEXTS == 11);
HOLDS(FARCALL_JOB_UNKNOWN == 0 && FARCALL_JOB_QUEUED == 1 && FARCALL_JOB_RUNNING == 2);
HOLDS(FARCALL_JOB_DONE == 3 && FARCALL_JOB_FAILED == 4 && FARCALL_JOB_CANCELLED == 5);
HOLDS(FARCALL_JOB_ID_BYTES == 33);
HOLDS(FARCALL_REFUSED == -1 && FARCALL_SCATTERED == -2);
HOLDS(sizeof(farcall_kind) == 4);

HOLDS(sizeof(farcall_session) == 8);
HOLDS(sizeof(farcall_scomplex) == 8 && sizeof(farcall_dcomplex) == 16);

HOLDS(sizeof(farcall_times) == 40);
HOLDS(offsetof(farcall_times, send) == 0 && offsetof(farcall_times, exec) == 8);
HOLDS(offsetof(farcall_times, recv) == 16 && offsetof(farcall_times, other) == 24);
HOLDS(offsetof(farcall_times, total) == 32);

/* 64-bit machines. */
HOLDS(sizeof(void *) != 8 || sizeof(farcall_value) == 24);
HOLDS(sizeof(void *) != 8 || offsetof(farcall_value, bytes) == 8);
HOLDS(sizeof(void *) != 8 || offsetof(farcall_value, kind) == 16);
HOLDS(sizeof(void *) != 8 || offsetof(farcall_value, read_only) == 20);
/* `size` lets this one grow. */
HOLDS(offsetof(farcall_options, size) == 0);
HOLDS(sizeof(void *) != 8 || offsetof(farcall_options, connect_timeout) == 8);
HOLDS(sizeof(void *) != 8 || offsetof(farcall_options, timeout) == 16);
HOLDS(sizeof(void *) != 8 || offsetof(farcall_options, other_host) == 24);

HOLDS(sizeof(grpc_function_handle_t) == 32);
HOLDS(sizeof(grpc_sessionid_t) == 4 && sizeof(grpc_error_t) == 4);
HOLDS(GRPC_NO_ERROR == 0 && GRPC_NOT_INITIALIZED == 1 && GRPC_CONFIGFILE_NOT_FOUND == 2);
HOLDS(GRPC_CONFIGFILE_ERROR == 3 && GRPC_SERVER_NOT_FOUND == 4);
HOLDS(GRPC_FUNCTION_NOT_FOUND == 5 && GRPC_INVALID_FUNCTION_HANDLE == 6);
HOLDS(GRPC_INVALID_SESSION_ID == 7 && GRPC_RPC_REFUSED == 8);
HOLDS(GRPC_COMMUNICATION_FAILED == 9 && GRPC_SESSION_FAILED == 10);
HOLDS(GRPC_NOT_COMPLETED == 11 && GRPC_NONE_COMPLETED == 12 && GRPC_OTHER_ERROR_CODE == 13);
HOLDS(GRPC_UNKNOWN_ERROR_CODE == 14 && GRPC_ALREADY_INITIALIZED == 15);
HOLDS(GRPC_LAST_ERROR_CODE == 16 && GRPC_SESSIONID_VOID == -1);
HOLDS(NINF_OK == 0 && NINF_ERROR == -1);

int main(void) {
  return farcall_abi_version() != 1;
}
