/*
 * The names of the Ninf client library, over libfarcall. Link with -lfarcall.
 *
 *     argc = Ninf_parse_arg(argc, argv);
 *     if (Ninf_call("ninf://host:3717/lapack/dgesv", n, 1, a, n, pivots, b, n, &info) < 0)
 *         Ninf_perror("dgesv");
 *
 * A function is `ninf://host:port/name` or a bare name, where the name is `module/function` or
 * `function`. The server of a bare name is that of Ninf_parse_arg(), else that of the environment:
 * FARCALL_SERVER, else NINF_SERVER and NINF_SERVER_PORT. The port is 3717 unless it is given; the
 * protocol is that of Farcall, not the old one.
 *
 * Arguments are passed as farcall_call() of farcall.h takes them. Every function but
 * Ninf_parse_arg() may be called by any number of threads at once.
 */
#ifndef FARCALL_NINF_H
#define FARCALL_NINF_H

#ifdef __cplusplus
extern "C" {
#endif

enum { NINF_OK = 0, NINF_ERROR = -1 };

/* Calls a function. NINF_OK or NINF_ERROR. */
int Ninf_call(const char *name, ...);

/* Begins a call. Its session, above 0, or NINF_ERROR. */
int Ninf_call_async(const char *name, ...);

/* Waits for a session. NINF_ERROR if it failed. An unknown session is ignored. */
int Ninf_wait(int session);

/* Waits for all sessions that no wait has reported. NINF_ERROR if one failed. */
int Ninf_wait_all(void);

/* Waits for one of them and returns it, failed or not; Ninf_wait() tells. 0 when none is left. */
int Ninf_wait_any(void);

/* Waits for all of these. NINF_ERROR if one failed. Unknown ones are ignored. */
int Ninf_wait_and(const int *sessions, int count);

/* Waits for one of these and returns it. 0 when none of them is known. */
int Ninf_wait_or(const int *sessions, int count);

/* Gives up a session, or all; the arrays are the caller's again. */
int Ninf_cancel(int session);
int Ninf_cancel_all(void);

/* Between the two the calls of this thread are recorded and return at once; the second runs them as
 * a data-flow graph, on the servers of the functions that were called: calls that do not need each
 * other at the same time, and what one writes and another reads from server to server. Arrays are
 * told apart by their addresses. NINF_ERROR names the call that failed in Ninf_perror(). */
int Ninf_transaction_begin(void);
int Ninf_transaction_end(void);

/* Takes `-server HOST` and `-port NUMBER` out of the arguments of the program, for all calls to
 * come, and returns how many are left. */
int Ninf_parse_arg(int argc, char **argv);

/* Prints `what`, a colon, and what went wrong in the last function of this thread that failed. */
void Ninf_perror(const char *what);

/* The farcall_status of it, see farcall.h. */
int Ninf_error_code(void);
#define Ninf_error (Ninf_error_code())

#ifdef __cplusplus
}
#endif

#endif
