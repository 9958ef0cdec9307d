/* What the C files and the Rust part have in common. No other program calls these functions. */
#ifndef FARCALL_INTERNAL_H
#define FARCALL_INTERNAL_H

#include "farcall.h"
#include "ninf.h"
#include "ninfg/grpc.h"

/* A call of a group, and the next one of it. variadic.c has its arguments. */
typedef struct farcall_internal_member {
  int session;
  struct farcall_internal_member *next;
} farcall_internal_member;

farcall_status farcall_internal_out_of_memory(void);

/* Drops a share of a function that a call does not take over. */
void farcall_internal_give_back(const farcall_function *function);

/* The kind of the placeholder that a caller of Ninf-G passes at a position of the interface, or
 * -1. */
int farcall_internal_placeholder(const farcall_function *function, size_t position);

/* 1 if the argument is a character or an array of them, and no integer of 8 bits, else 0. */
int farcall_internal_is_character(const farcall_function *function, size_t index);
/* 1 if Fortran passes a length with the placeholder at a position of the interface, else 0. */
int farcall_internal_placeholder_has_length(const farcall_function *function, size_t position);
/* Records as the last error that Fortran cannot pass the arguments of the function. */
void farcall_internal_not_for_fortran(const farcall_function *function);

/* A share of the function of a handle, and the calls that take it over. */
grpc_error_t farcall_internal_grpc_function(const grpc_function_handle_t *handle,
                                            const farcall_function **function);
grpc_error_t farcall_internal_grpc_call(const farcall_function *function, void *const *arguments,
                                        size_t count);
grpc_error_t farcall_internal_grpc_start(const farcall_function *function,
                                         const grpc_function_handle_t *handle,
                                         grpc_sessionid_t *session, void *const *arguments,
                                         size_t count);

/* A share of a function, which a call takes over; NULL if there is no such function. The second
 * looks at the next host of `-map`, if the name has no server. */
const farcall_function *farcall_internal_ninf_function(const char *name);
const farcall_function *farcall_internal_ninf_on_next_host(const char *name);

/* The name of the function, or NULL; remembers the session of the last call. */
const char *farcall_internal_ninf_name(const Ninf_executable_t *executable);
int farcall_internal_ninf_called(Ninf_executable_t *executable, int session);

const char *farcall_internal_ninf_group_name(const Ninf_group_t *group);
void farcall_internal_ninf_join(Ninf_group_t *group, farcall_internal_member *member);

/* Starts the call of a member again, and returns its session; frees a member. */
int farcall_internal_ninf_again(const farcall_function *function, farcall_internal_member *member);
void farcall_internal_ninf_leave(farcall_internal_member *member);

#endif
