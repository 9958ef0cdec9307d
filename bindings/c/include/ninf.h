/*
 * The names of the Ninf client library, over libfarcall. Link with -lfarcall.
 *
 *     argc = Ninf_parse_arg(argc, argv);
 *     if (Ninf_call("ninf://host:3717/lapack/dgesv", n, 1, a, n, pivots, b, n, &info) < 0)
 *         Ninf_perror("dgesv");
 *
 * A function is `ninf://host:port/name` or a bare name, where the name is `module/function` or
 * `function`. The server of a bare name is that of Ninf_parse_arg(), or else that of the
 * environment: FARCALL_SERVER, or NINF_SERVER and NINF_SERVER_PORT. The default port is 3717. The
 * protocol is that of Farcall, not the old one of Ninf.
 *
 * Pass arguments as to farcall_call() of farcall.h, and a `FILE *` for a `filepointer`: the call
 * reads it from where it is to its end, or writes to it where it is. Any number of threads may call
 * these functions at the same time, except Ninf_parse_arg().
 */
#ifndef FARCALL_NINF_H
#define FARCALL_NINF_H

#ifdef __cplusplus
extern "C" {
#endif

enum { NINF_OK = 0, NINF_ERROR = -1 };

#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif

/* Calls a function. Returns NINF_OK or NINF_ERROR. */
int Ninf_call(const char *name, ...);

/* Starts a call. Returns its session, which is greater than 0, or NINF_ERROR. */
int Ninf_call_async(const char *name, ...);

/* Waits for a session. Returns NINF_ERROR if it failed. Ignores an unknown session. */
int Ninf_wait(int session);

/* Waits for all sessions that no wait has reported. Returns NINF_ERROR if one failed. */
int Ninf_wait_all(void);

/* Waits for one of them and returns it; Ninf_wait() says whether it failed. 0 if none is left. */
int Ninf_wait_any(void);

/* Waits for all of these sessions. Returns NINF_ERROR if one failed. Ignores unknown ones. */
int Ninf_wait_and(const int *sessions, int count);

/* Waits for one of these sessions and returns it; 0 if none of them is known. */
int Ninf_wait_or(const int *sessions, int count);

/* The forms of Ninf: the session goes to `*session`, 0 if there is none. They return NINF_ERROR if
 * it failed. Otherwise the first returns the session, and the second NINF_OK. */
static inline int ninf_wait_any_into(int *session) {
  int id = Ninf_wait_any();
  if (session)
    *session = id > 0 ? id : 0;
  return id > 0 && Ninf_wait(id) != NINF_OK ? NINF_ERROR : id;
}
static inline int ninf_wait_or_into(const int *sessions, int count, int *session) {
  int id = Ninf_wait_or(sessions, count);
  if (session)
    *session = id > 0 ? id : 0;
  return id > 0 ? Ninf_wait(id) : id;
}
#ifdef __cplusplus
}
inline int Ninf_wait_any(int *session) { return ninf_wait_any_into(session); }
inline int Ninf_wait_or(const int *sessions, int count, int *session) {
  return ninf_wait_or_into(sessions, count, session);
}
extern "C" {
#else
/* `given` begins with NULL, and has a second element if the program passes one. */
static inline int ninf_wait_any_form(int *const *given, int count) {
  return count > 1 ? ninf_wait_any_into(given[1]) : Ninf_wait_any();
}
#define Ninf_wait_any(...)                                                                         \
  ninf_wait_any_form((int *[]){0, __VA_ARGS__},                                                    \
                     (int)(sizeof((int *[]){0, __VA_ARGS__}) / sizeof(int *)))
#define FARCALL_NINF_THIRD(first, second, third, name, ...) name
#define Ninf_wait_or(...)                                                                          \
  FARCALL_NINF_THIRD(__VA_ARGS__, ninf_wait_or_into, (Ninf_wait_or), 0)(__VA_ARGS__)
#endif

/* Gives up a session, or all sessions. Nothing uses their arrays afterwards. */
int Ninf_cancel(int session);
int Ninf_cancel_all(void);

/* Whether a session is under way: 1 or 0. */
int Ninf_session_probe(int session);

/* Gives up a session; the second also forgets it, so that no wait reports it. They return 1. */
int Ninf_session_cancel(int session);
int Ninf_session_remove(int session);

/* A function that has been looked up. NULL if there is none; Ninf_perror() says why. The call
 * finds the session of the last call of an executable. */
typedef struct Ninf_executable Ninf_executable_t;
Ninf_executable_t *Ninf_get_executable(const char *name);
int Ninf_call_executable(Ninf_executable_t *executable, ...);
int Ninf_call_executable_async(Ninf_executable_t *executable, ...);
int Ninf_executable_finalize(Ninf_executable_t *executable);
Ninf_executable_t *Ninf_get_executable_from_session(int session);

/* Calls of one function that belong together. A call whose function crashes, or whose server is
 * lost, runs again, up to ten times, so the function must be one that may. Arrays and texts must
 * stay as they are until Ninf_group_wait_all() has returned, which returns NINF_ERROR if a call
 * failed. Ninf_parse_arg() takes `-map FILE`: a file with a host and a port in each line, over
 * which the calls of a name without a server go in turn. */
typedef struct Ninf_group Ninf_group_t;
Ninf_group_t *Ninf_group_init(const char *name);
int Ninf_group_call_async(Ninf_group_t *group, ...);
int Ninf_group_wait_all(Ninf_group_t *group);

/* A transaction. Ninf_transaction_begin() records the calls of this thread, which return at once.
 * Ninf_transaction_end() runs them as a data-flow graph on the servers of their functions: calls
 * that do not depend on each other run at the same time, and arrays go from server to server. The
 * address of an array identifies it. After NINF_ERROR, Ninf_perror() names the call that failed. */
int Ninf_transaction_begin(void);
int Ninf_transaction_end(void);

/* Uses this server and port for all later calls of names without a server. NULL changes nothing. */
void Ninf_set_server(const char *server, const char *port);

/* Removes `-server HOST`, `-port NUMBER` and `-map FILE` from the arguments of the program, uses
 * them for all later calls, and returns the number of arguments that are left. */
int Ninf_parse_arg(int argc, char **argv);

/* Prints `what`, a colon, and the error of the last function of this thread that failed. */
void Ninf_perror(const char *what);

/* That error, in memory of the library: valid until the next error of this thread. */
const char *Ninf_perror_string(void);

/* The farcall_status of that error; see farcall.h. */
int Ninf_error_code(void);
#define Ninf_error (Ninf_error_code())

#ifdef __cplusplus
}
#endif

#endif
