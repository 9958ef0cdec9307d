/* The errors of Ninf. */
#ifndef FARCALL_NINF_ERROR_H
#define FARCALL_NINF_ERROR_H

#include "ninf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ninf's codes, of which Farcall uses those with a comment. */
typedef enum _ninf_error_code {
  NINF_ERROR_NOERROR,
  NINF_ERROR_CANTFINDSTUB, /* the server has no such function */
  NINF_ERROR_CANTEXECUTESTUB,
  NINF_ERROR_STUBREMOVED,
  NINF_ERROR_STUBALREADY,
  NINF_ERROR_STUBREADFAIL, /* the library failed, other than by the signals below */
  NINF_ERROR_DATASENDFAIL,
  NINF_ERROR_DATARECVFAIL,      /* no answer in time */
  NINF_ERROR_CANTCONNECTSERVER, /* the server cannot be reached, or was lost */
  NINF_ERROR_CANTFINDSESSION,
  NINF_ERROR_CANTALLOCSESSION,
  SERVER_CANNOT_ALLOC,
  HTTP_CANNOT_CONNECT,
  HTTP_NOT_FOUND,
  HTTP_HEADER_READ_ERROR,
  HTTP_UNKNOWN_FORMAT,
  HTTP_FORMAT_ERROR,
  HTTP_TYPE_MISMATCH,
  NINF_PROTOCOL_ERROR,
  NINF_INTERNAL_ERROR, /* an argument is wrong, or this library has a fault */
  NINF_AUTHENTICATION_FAILED,
  NINF_ERROR_SESSION_ISNOT_DONE,
  NINF_ERROR_SESSION_CANCELED, /* the session was given up */
  NINF_ERROR_SESSION_FINISHED,
  NINF_FILE_CANNOT_OPEN,
  NINF_FILE_CANNOT_WRITE,
  MALFORMED_URL,
  UNKNOWN_URL_PROTOCOL,
  CIM_OK,
  CIM_ERROR_NOT_DEFINED,
  CIM_ERROR_TYPE_MISMATCH,
  CIM_ERROR_CANNOT_ALLOC,
  CIM_ERROR_ARRAY_BOUND,
  CPROXY_CANNOT_SCHEDULE,
  CPROXY_CANNOT_MAKE_COMPOUND,
  STORAGE_CANNOT_OPEN,
  STORAGE_CANNOT_UNLINK,
  STORAGE_TRANSFER_ERROR,
  STORAGE_CANNOT_CONNECT,
  STUB_ERROR_SIGFPE,  /* the library was ended by SIGFPE */
  STUB_ERROR_SIGSEGV, /* by SIGSEGV */
  NINF_ERROR_COMPUTATION_REFUSED /* the server refused the call */
} NINF_ERROR_CODE;

/* The code of the last error of any thread. Ninf_error_code() has that of this thread. */
extern int ninf_error_code;

/* Has no effect: FARCALL_LOG=debug prints what happens. */
extern int ninf_debug_flag;

#ifdef __cplusplus
}
#endif

#endif
