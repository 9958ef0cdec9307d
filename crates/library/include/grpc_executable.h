/*
 * What interface files of Ninf-G include on the server. The names are those of Ninf-G's API.
 *
 * A server of Farcall ends the process of a cancelled call, so a function that runs is not
 * cancelled.
 */
#ifndef FARCALL_GRPC_EXECUTABLE_H
#define FARCALL_GRPC_EXECUTABLE_H

typedef int grpc_error_t;
enum { GRPC_NO_ERROR = 0 };

static inline int grpc_is_canceled_np(grpc_error_t *error) {
  if (error != 0)
    *error = GRPC_NO_ERROR;
  return 0;
}

#endif
