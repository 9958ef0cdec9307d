/*
 * Calls functions of a Farcall server. Link with -lfarcall.
 *
 *     farcall_server *server = farcall_connect("farcall://host:3717");
 *     int info, n = 500, pivots[500];
 *     if (farcall_call(server, "lapack/dgesv", n, 1, a, n, pivots, b, n, &info) != FARCALL_OK)
 *         fprintf(stderr, "%s\n", farcall_error_message());
 *     farcall_disconnect(server);
 *
 * Any thread may use a server and its functions. Calls of several threads run at the same time.
 *
 * The functions are in the order in which a program needs them: connect, errors, call, interfaces,
 * sessions, memory and output, stored arrays, durable calls, transactions, objects, reservations,
 * channels.
 *
 * One rule for the end of things (a NULL pointer instead of a thing does nothing):
 *   farcall_free...        frees what this program has. Nothing changes at the server.
 *   farcall_drop_...       removes a thing at the server, and frees what this program has of it.
 *   farcall_release_...    ends a reservation before its time.
 *   farcall_disconnect     closes a connection, farcall_channel_close closes a channel.
 *
 * Made by `cargo xtask generate`: do not edit.
 */

#ifndef FARCALL_H
#define FARCALL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// The `kind` of a value whose type no argument can have.
#define FARCALL_REFUSED -1

// The `kind` of an array that is not contiguous.
#define FARCALL_SCATTERED -2

// The `kind` of a callback with data of its own. `data` points to two pointers: a function `const
// char *f(void *user, void *const *arguments)` and its `user`. The function gets the address of
// each argument, and returns NULL, or a text that says why it failed.
#define FARCALL_CLOSURE 12

// The kind of texts in rows of characters, for Fortran. `data` points to two words: the address of
// the first row, and the number of rows. `bytes` is the size of all rows.
#define FARCALL_ROWS 13

// Bytes of a job id as text, with the NUL at its end.
#define FARCALL_JOB_ID_BYTES 33

// The result of an operation. Later versions may have more values.
typedef enum {
  // The operation succeeded.
  FARCALL_OK = 0,
  // The caller's fault: a wrong argument, name or address.
  FARCALL_ARGUMENT = 1,
  // The server has no function of that name.
  FARCALL_UNKNOWN_FUNCTION = 2,
  // The server cannot be reached, or the connection was lost.
  FARCALL_CONNECTION = 3,
  // The server did not answer in time.
  FARCALL_TIMEOUT = 4,
  // The called library crashed, ended its process, or exceeded a limit.
  FARCALL_LIBRARY = 5,
  // The server refused the call or failed.
  FARCALL_SERVER = 6,
  // This library has a fault.
  FARCALL_INTERNAL = 7,
  // The call has not ended.
  FARCALL_RUNNING = 8,
  // The call was cancelled.
  FARCALL_CANCELLED = 9,
  // There is no such session, or the library has forgotten it.
  FARCALL_UNKNOWN_SESSION = 10,
} farcall_status;

// How far a call has come.
typedef enum {
  // Its arguments are on their way, or wait for memory.
  FARCALL_ARRIVING = 1,
  // It has its arguments and waits to compute.
  FARCALL_WAITING = 2,
  // The library computes.
  FARCALL_COMPUTING = 3,
  // Its results are on their way.
  FARCALL_RETURNING = 4,
  // It has ended.
  FARCALL_OVER = 5,
} farcall_phase;

// The kind of an argument, or of the elements of an array.
typedef enum {
  // A pointer to the first element.
  FARCALL_ARRAY = 0,
  // char
  FARCALL_CHAR = 1,
  // int16_t
  FARCALL_SHORT = 2,
  // int32_t
  FARCALL_INT = 3,
  // int64_t
  FARCALL_LONG = 4,
  // float
  FARCALL_FLOAT = 5,
  // double
  FARCALL_DOUBLE = 6,
  // farcall_scomplex
  FARCALL_SCOMPLEX = 7,
  // farcall_dcomplex
  FARCALL_DCOMPLEX = 8,
  // const char *
  FARCALL_TEXT = 9,
  // A callback; see docs/languages.md
  FARCALL_FUNCTION = 10,
  // An array of char *, for an array of texts with a length limit. The call reads these texts;
  // NULL is an empty text. It replaces them by the texts that it returns; free them with
  // `farcall_free_texts`
  FARCALL_TEXTS = 11,
} farcall_kind;

// The state of a durable call. Later versions may have more values.
typedef enum {
  // The server did not answer, or has no such call.
  FARCALL_JOB_UNKNOWN = 0,
  // The call waits.
  FARCALL_JOB_QUEUED = 1,
  // The call runs.
  FARCALL_JOB_RUNNING = 2,
  // The call has ended; fetch its results.
  FARCALL_JOB_DONE = 3,
  // The call has failed; `farcall_fetch` gives the error.
  FARCALL_JOB_FAILED = 4,
  // The call was cancelled.
  FARCALL_JOB_CANCELLED = 5,
} farcall_state;

// The end of a channel in this process. Only one thread may use it at a time.
typedef struct farcall_channel farcall_channel;

// A function of a server.
typedef struct farcall_function farcall_function;

// The handle of a stored array, of named data or of an address, which calls take as an array.
typedef struct farcall_handle farcall_handle;

// An object at a server.
typedef struct farcall_object farcall_object;

// A connection to a server, or to all servers behind a metaserver.
typedef struct farcall_server farcall_server;

// The session of a call that was started; 0 means no session.
typedef uint64_t farcall_session;

// An argument with its type and size.
typedef struct {
  // A pointer to the scalar, to the first element of the array or to the first character of the
  // text, which needs no NUL at its end; or the callback.
  void *data;
  // Size of the scalar, of the whole array, or of the text.
  size_t bytes;
  // The `farcall_kind` of the scalar or of the elements, but not `FARCALL_ARRAY`. Or the reason
  // to refuse it: `FARCALL_REFUSED`, `FARCALL_SCATTERED`.
  int32_t kind;
  // Not 0 if the call must not write to it.
  int32_t read_only;
} farcall_value;

// How a call fares. Times are in seconds from now, and negative if they are not known: one of ten
// is earlier than `low`, one of ten later than `high`, and half are earlier than `likely`. Since
// `FARCALL_1.6`.
typedef struct {
  // `sizeof(farcall_call_status)`, which the caller sets: later versions may have more members.
  size_t size;
  // How far it has come.
  farcall_phase phase;
  // What it does or waits for, in words, with a NUL at the end.
  char reason[256];
  // When it will start to compute.
  double starts_low;
  // The same.
  double starts_likely;
  // The same.
  double starts_high;
  // When it will have computed.
  double ends_low;
  // The same.
  double ends_likely;
  // The same.
  double ends_high;
} farcall_call_status;

// What a process looks for that never sleeps: a message, or that a process takes a message from
// it. Since `FARCALL_1.8`.
typedef struct {
  // 1 for a message that this process wants to send, 0 for one that it wants to receive.
  int32_t is_send;
  // Whether the tag is known: 1 or 0.
  int32_t has_tag;
  // The rank of the other process; negative for any, of a message to receive.
  int64_t rank;
  uint32_t tag;
} farcall_wanted;

// Options of a connection. Zeros are the defaults.
typedef struct {
  // `sizeof(farcall_options)`: later versions may have more members.
  size_t size;
  // Longest time to wait for a connection, in seconds; 0 for the default, 10.
  double connect_timeout;
  // Longest time for one call, from its start to its end, in seconds; 0 for no limit. It also
  // limits `farcall_function_of`.
  double timeout;
  // Not 0 to treat a server on this host like one on another host: without a Unix socket and
  // shared memory, if the address is one of TCP.
  int32_t other_host;
} farcall_options;

// The estimated cost of a call. Times are in seconds; NaN means that nobody knows yet.
typedef struct {
  // Round trip to the server without data.
  double latency;
  // Transfer of the arguments.
  double send;
  // Wait for processor elements.
  double wait;
  // In the library.
  double exec;
  // Transfer of the results.
  double recv;
  // The sum of the times above.
  double total;
  // Operations, by the interface.
  double operations;
  // Bytes of arrays that travel to the server.
  uint64_t sent_bytes;
  // Bytes of arrays that travel back.
  uint64_t returned_bytes;
} farcall_estimate;

// The times of a call in seconds.
typedef struct {
  // Until the server had the arguments.
  double send;
  // In the library.
  double exec;
  // Until the server had sent the results.
  double recv;
  // The rest of `total`.
  double other;
  // From the start of the call to its return.
  double total;
} farcall_times;

// A function of the program that gets a line which a called function has printed: `bytes` bytes
// with the end of the line, without a NUL. It runs on the thread that waits for the call.
typedef void (*farcall_output_writer)(void *user, const char *text, size_t bytes);

// A reservation: what a program asks for, and what the server has reserved. Set the members that
// are not needed to 0.
typedef struct {
  // `sizeof(farcall_reservation)`: later versions may have more members.
  size_t size;
  // The id of the reservation at its server, from 1; `farcall_reserve` sets it.
  uint64_t id;
  // Bytes per second to the server; 0 for none.
  uint64_t up;
  // Bytes per second from the server; 0 for none.
  uint64_t down;
  // Processor elements; 0 for bandwidth alone.
  uint32_t pes;
  // Seconds from now until the reservation begins.
  double begins;
  // Seconds from now until the reservation ends.
  double ends;
  // Seconds from now until the reservation must begin, if too little is free at `begins`;
  // `INFINITY` for no limit, 0 for no later than `begins`.
  double latest;
  // `farcall_reserve` sets it on failure: seconds from then until enough is free; 0 if no time
  // is known.
  double earliest;
} farcall_reservation;

// An array of a program: where it is, and its size in bytes.
typedef struct {
  void *data;
  size_t bytes;
} farcall_array;

// One step of a program: its number, from 0, and what the program has passed to
// `farcall_channel_run`. It returns 1 if another step follows, 0 if this was the last one, and
// another number if it failed.
typedef int32_t (*farcall_step)(farcall_channel *channel, uint64_t step, void *user);

// The figures of a transaction.
typedef struct {
  // Calls that were made, including those that were repeated after a fault.
  uint64_t calls;
  // Servers that have made at least one call.
  uint64_t servers;
  // Bytes of arrays that this program has sent.
  uint64_t sent_bytes;
  // Bytes of arrays that this program has received.
  uint64_t returned_bytes;
  // Bytes of arrays that went from server to server.
  uint64_t passed_bytes;
  // Seconds from start to end.
  double total;
} farcall_report;

// A complex number passed by value.
#ifdef __cplusplus
typedef struct {
  float re, im;
} farcall_scomplex;
typedef struct {
  double re, im;
} farcall_dcomplex;
#else
typedef float _Complex farcall_scomplex;
typedef double _Complex farcall_dcomplex;
#endif

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * ---- Connect ----
 */

// Connects to `farcall://host:port`, `unix:///path` or `ssh://host`, or by `meta://host:port` to
// all servers behind a metaserver. NULL means the server that the environment names:
// `FARCALL_SERVER`, or `NINF_SERVER` and `NINF_SERVER_PORT`, or the metaserver of
// `FARCALL_METASERVER`, or else this machine. Returns NULL on failure.
//
// `address` is NULL or a string ended by NUL.
farcall_server *farcall_connect(const char *address);

// Connects with options; NULL means the defaults. Otherwise as `farcall_connect`.
//
// `address` is NULL or a string ended by NUL; `options` is NULL or has the size that it states.
farcall_server *farcall_connect_with(const char *address, const farcall_options *options);

// Closes a connection and frees its functions. Asynchronous calls under way are cancelled; a call
// in which another thread is goes on to its end. NULL does nothing.
//
// `server` is from `farcall_connect`; the program does not use it or its functions afterwards.
void farcall_disconnect(farcall_server *server);

/*
 * ---- Errors and versions ----
 */

// The status of the last operation of this thread that failed; `FARCALL_OK` before the first
// failure.
farcall_status farcall_error_status(void);

// The message of the last operation of this thread that failed. It is valid until the next
// failure.
const char *farcall_error_message(void);

// The text of a status, such as `unknown function`. It is valid until the program ends.
const char *farcall_status_text(int32_t status);

// The version of the library, such as `0.1.0`.
const char *farcall_version(void);

// The version of the binary interface. A program works with every library that has the same
// version.
uint32_t farcall_abi_version(void);

/*
 * ---- Call ----
 *
 * The simplest call names its function. A program that calls a function many times gets it once
 * with farcall_function_of(), and calls it with farcall_invoke().
 */

// Calls a function by name, with its arguments in the order of the interface: scalars by value in
// the C type of their declaration (long is int64_t), arrays as pointers, texts as const char *.
// An integer must have the declared width: pass (int64_t)n if the interface says long.
farcall_status farcall_call(farcall_server *server, const char *name, ...);

// The function with this name, `module/name` or just `name`. It is valid until the server is
// disconnected. The client fetches its interface once. Returns NULL if there is no such function.
//
// `server` is from `farcall_connect`, `name` is a string ended by NUL.
farcall_function *farcall_function_of(farcall_server *server, const char *name);

// Calls a function; arguments are as for `farcall_call`.
farcall_status farcall_invoke(farcall_function *function, ...);

// As `farcall_invoke`, with the arguments in a list.
farcall_status farcall_call_list(farcall_function *function, va_list list);

// Calls a function with `count` arguments in the order of the interface. Each is a pointer to a
// scalar of the type of `farcall_argument_kind`, or to the first element of an array, or the
// address of a callback. The call fills OUT and INOUT arrays in place; after a failure their
// contents are undefined. Callbacks run on the thread that waits for the call.
//
// `function` is from `farcall_function_of`. Each argument points to what the interface declares,
// and an array has its whole declared size. Until the call returns, nothing else writes to the
// arrays, and nothing else reads the arrays that the call writes.
farcall_status farcall_call_array(const farcall_function *function,
                                  void *const *arguments,
                                  size_t count);

// Calls a function with arguments that state their own type and size. The call checks each of them
// against the interface, and widens integers and floating-point scalars if that loses nothing.
// This is for languages above C.
//
// As for `farcall_call_array`; `values` points to `count` arguments.
farcall_status farcall_call_values(const farcall_function *function,
                                   const farcall_value *values,
                                   size_t count);

// The times of the last call of a function, in any thread; zeros before the first call.
//
// `function` is from `farcall_function_of`, or NULL.
farcall_times farcall_times_of(const farcall_function *function);

// Estimates a call with these arguments, which are as for `farcall_call_array`. This reads only
// scalars, arrays of texts without a length limit, and arrays whose elements decide the sizes of
// others; other arrays may be NULL. The server is asked once a second at most for calls of about
// the same size, so that a program can compare the estimate with its own time before every call.
// Since `FARCALL_1.7`.
//
// `function` is from `farcall_function_of`, `arguments` points to `count` addresses, and
// `estimate` to memory for the estimate. The scalars are of the types of the interface.
farcall_status farcall_estimate_array(const farcall_function *function,
                                      void *const *arguments,
                                      size_t count,
                                      farcall_estimate *estimate);

// The library that computed the last call of a function, in any thread, with its version and its
// kernel if it states them; empty before the first call. It is valid as long as the function.
//
// `function` is from `farcall_function_of`, or NULL.
const char *farcall_library_of(const farcall_function *function);

/*
 * ---- Ask for the interface of a function ----
 */

// The full name of a function, `module/name`. It is valid as long as the function.
//
// `function` is from `farcall_function_of`, or NULL, whose name is empty.
const char *farcall_function_name(const farcall_function *function);

// The interface of a function, in the interface language. It is valid as long as the function.
//
// `function` is from `farcall_function_of`, or NULL, whose interface is empty.
const char *farcall_function_interface(const farcall_function *function);

// The number of arguments of a function.
//
// `function` is from `farcall_function_of`, or NULL, which has none.
size_t farcall_argument_count(const farcall_function *function);

// The name of an argument; NULL if there is no such argument. It is valid as long as the function.
//
// `function` is from `farcall_function_of`, or NULL.
const char *farcall_argument_name(const farcall_function *function, size_t index);

// The kind of the argument at `index`, from 0.
//
// `function` is from `farcall_function_of`, or NULL.
farcall_kind farcall_argument_kind(const farcall_function *function, size_t index);

// The type of a scalar argument, or of the elements of an array. `FARCALL_ARRAY` if there is no
// such argument.
//
// `function` is from `farcall_function_of`, or NULL.
farcall_kind farcall_argument_type(const farcall_function *function, size_t index);

// 1 if a call reads the argument (IN and INOUT, and an array of names of files), else 0.
//
// `function` is from `farcall_function_of`, or NULL.
int32_t farcall_argument_read(const farcall_function *function, size_t index);

// 1 if a call writes to the argument (OUT and INOUT), else 0. A call only reads an array of names
// of files, also of files that it writes.
//
// `function` is from `farcall_function_of`, or NULL.
int32_t farcall_argument_written(const farcall_function *function, size_t index);

// 1 if the scalar, or the elements of the array, are integers without a sign, else 0.
//
// `function` is from `farcall_function_of`, or NULL.
int32_t farcall_argument_unsigned(const farcall_function *function, size_t index);

// Stores the lengths of an array argument in a call with these arguments, which are as for
// `farcall_call_array`. This reads only scalars, arrays of texts without a length limit, and
// arrays whose elements decide sizes; other arrays may be NULL. Returns the number of dimensions,
// and stores the first `room` lengths; 0 for a scalar, -1 on failure. The order of the lengths is
// that of `farcall_column_major`. The room of texts is no dimension. Since `FARCALL_1.8`.
//
// `function` is from `farcall_function_of`, `arguments` points to `count` addresses, and `shape`
// to `room` lengths. The scalars are of the types of the interface.
int32_t farcall_argument_shape(const farcall_function *function,
                               void *const *arguments,
                               size_t count,
                               size_t index,
                               size_t *shape,
                               size_t room);

// 1 if the first index of the arrays of a function varies fastest (`Calls "FORTRAN"`), 0 if the
// last one does. Since `FARCALL_1.8`.
//
// `function` is from `farcall_function_of`, or NULL.
int32_t farcall_column_major(const farcall_function *function);

/*
 * ---- Start a call, and wait for it ----
 *
 * A call that was started has a session, until a wait reports its end.
 */

// Starts a call by name, and returns its session; 0 on failure. Do not use the arrays until a wait
// has reported the end of the call, or a cancel has returned. Scalars and texts are copied.
farcall_session farcall_call_async(farcall_server *server, const char *name, ...);

// Starts a call of a function, as `farcall_call_async`.
farcall_session farcall_invoke_async(farcall_function *function, ...);

// As `farcall_invoke_async`, with the arguments in a list.
farcall_session farcall_call_list_async(farcall_function *function, va_list list);

// Starts a call as `farcall_call_array` does, and returns its session; 0 on failure. Arguments and
// results travel while some thread waits for a call to this server.
//
// As for `farcall_call_array`, until a wait has reported the end of the session, or
// `farcall_cancel` or `farcall_disconnect` has returned. Scalars and texts are copied at once.
farcall_session farcall_call_array_async(const farcall_function *function,
                                         void *const *arguments,
                                         size_t count);

// Starts a call as `farcall_call_values` does, and returns its session; 0 on failure.
//
// As for `farcall_call_array_async`; `values` points to `count` arguments, which are copied.
farcall_session farcall_call_values_async(const farcall_function *function,
                                          const farcall_value *values,
                                          size_t count);

// Waits for the end of a call, at most `timeout` seconds; a negative number means no limit.
// Returns `FARCALL_RUNNING` if the time ends first, else the result of the call. A program may ask
// again: the library remembers the last 65536 sessions that a wait has reported.
farcall_status farcall_wait(farcall_session session, double timeout);

// The status of a call: `FARCALL_RUNNING` if it has not ended, else its result. It also moves
// arguments and results as far as it can without waiting, and runs a pending callback, so that a
// program can complete a call with probes alone.
farcall_status farcall_probe(farcall_session session);

// Waits until one of the calls has ended, stores its session in `which`, and returns its result.
// If the time ends first, returns `FARCALL_RUNNING` and stores 0.
//
// `sessions` points to `count` sessions, `which` to a session, or it is NULL.
farcall_status farcall_wait_or(const farcall_session *sessions,
                               size_t count,
                               double timeout,
                               farcall_session *which);

// Waits until all of the calls have ended. Returns `FARCALL_OK` if none has failed, else the
// result of the first that has failed; `farcall_next_failed` gives all of them. Returns
// `FARCALL_RUNNING` if the time ends first.
//
// `sessions` points to `count` sessions.
farcall_status farcall_wait_and(const farcall_session *sessions, size_t count, double timeout);

// Waits until one of the server's calls has ended that no wait has reported yet. Otherwise as
// `farcall_wait_or`. If no such call is left, returns `FARCALL_OK` and stores 0. NULL means all
// servers.
//
// `server` is from `farcall_connect` or is NULL; `which` points to a session or is NULL.
farcall_status farcall_wait_any(const farcall_server *server,
                                double timeout,
                                farcall_session *which);

// Waits until all of the server's calls have ended that no wait has reported yet. Otherwise as
// `farcall_wait_and`. If the time ends first, `farcall_next_failed` gives the calls that have
// failed until then, and the next wait does not report them again. NULL means all servers.
//
// `server` is from `farcall_connect` or is NULL.
farcall_status farcall_wait_all(const farcall_server *server, double timeout);

// The next session that failed in the last wait of this thread; 0 if there are no more.
farcall_session farcall_next_failed(void);

// The times of a call; zeros if it has failed, has not ended, or is unknown.
farcall_times farcall_session_times(farcall_session session);

// Stores how an asynchronous call fares, which this asks the server: how far it has come, why it
// waits, and when it will start and end. Since `FARCALL_1.6`.
//
// `into` points to a `farcall_call_status` whose `size` is set.
farcall_status farcall_session_status(farcall_session session, farcall_call_status *into);

// Gives a call up. A call that has ended keeps its result. When this returns, nothing uses the
// arrays of the call, except those in memory of `farcall_allocate`, and the client has told the
// server to end it.
farcall_status farcall_cancel(farcall_session session);

// Gives up all calls to a server; NULL means all servers.
//
// `server` is from `farcall_connect` or is NULL.
farcall_status farcall_cancel_all(const farcall_server *server);

/*
 * ---- Memory and output of calls ----
 */

// Memory of zeros for arrays, at a multiple of 64 bytes. If the server is on this host, the memory
// is shared with it, and calls to the server do not copy arrays in it. Otherwise it is ordinary
// memory. Returns NULL if there is not enough memory.
//
// The function works in this memory. If a call is given up (`farcall_cancel`, a time-out), it may
// write there until the server has ended it: free the memory, and allocate other memory for the
// next call.
//
// `server` is from `farcall_connect`.
void *farcall_allocate(const farcall_server *server, size_t bytes);

// Frees memory from `farcall_allocate`. No call under way may use it. The program may have
// disconnected from the server before. NULL does nothing.
void farcall_free(void *memory);

// Frees the texts that a call has made for an argument of kind `FARCALL_TEXTS`, and sets the
// pointers to NULL.
//
// `texts` points to `count` pointers, which are NULL or were set by such a call.
void farcall_free_texts(char **texts, size_t count);

// From now on, calls of the function pass what the library prints to `writer`, line by line, with
// `user`. If `writer` is NULL, it goes to the standard output of this program. Since
// `FARCALL_1.1`.
//
// `function` is from `farcall_function_of`. Any thread that waits for a call of the function may
// call `writer`, until `farcall_keep_output` and the end of all calls that were started before it.
farcall_status farcall_forward_output(farcall_function *function,
                                      farcall_output_writer writer,
                                      void *user);

// From now on, what the library prints in calls of the function goes to the log of the server.
// This is the default. Since `FARCALL_1.1`.
//
// `function` is from `farcall_function_of`.
farcall_status farcall_keep_output(farcall_function *function);

/*
 * ---- Stored arrays and named data ----
 *
 * A stored array remains at the server from call to call. Named data are stored arrays with a name
 * that other programs and users can read.
 */

// Stores an array at the server and returns its handle. Pass the handle where a call takes an
// array. `element` is a kind of number, such as `FARCALL_DOUBLE`. The `rank` lengths of the array
// are at `shape`. `column_major` is not 0 if the first
// index varies fastest, as Fortran needs it. If `data` is NULL, all elements are zero: for results
// that remain at the server. The server keeps the array until `farcall_drop_array`, until the
// connection ends, or until a day after its last use. Returns NULL on failure.
//
// `server` is from `farcall_connect`, `shape` points to `rank` lengths, and `data` is NULL or
// points to all elements.
farcall_handle *farcall_put(farcall_server *server,
                            int element,
                            const size_t *shape,
                            size_t rank,
                            int32_t column_major,
                            const void *data);

// Gets a stored array, in its own order, after all earlier calls that use it. `bytes` is the size
// of the array.
//
// `handle` is from a function that returns handles; `data` points to `bytes` bytes.
farcall_status farcall_get(const farcall_handle *handle, void *data, size_t bytes);

// The same as `farcall_get` for an array whose elements must be of this kind, such as
// `FARCALL_DOUBLE`; with or without a sign makes no difference. Since `FARCALL_1.9`.
//
// As for `farcall_get`.
farcall_status farcall_get_typed(const farcall_handle *handle,
                                 int element,
                                 void *data,
                                 size_t bytes);

// The id of a stored array, 32 hexadecimal digits. It is valid as long as the handle.
//
// `handle` is from `farcall_put` or `farcall_handle_of`, or NULL, whose id is empty.
const char *farcall_handle_id(const farcall_handle *handle);

// The handle of a stored array, by its id. Returns NULL if there is no such array.
//
// `server` is from `farcall_connect`, `id` is a string ended by NUL.
farcall_handle *farcall_handle_of(farcall_server *server, const char *id);

// Stores an array at the server as `farcall_put` does, but as named data. A name is words with `/`
// between them. The server keeps named data after the connection ends. Calls can read named data
// but not write them; another array under the same name is the next version. Behind a metaserver,
// the array goes to the server that has data of that name, or else to the server with the most
// free memory. All users can read the data if `shared` is not 0. Returns NULL on failure.
//
// As for `farcall_put`; `name` is a string ended by NUL.
farcall_handle *farcall_put_named(farcall_server *server,
                                  int element,
                                  const size_t *shape,
                                  size_t rank,
                                  int32_t column_major,
                                  const void *data,
                                  const char *name,
                                  int32_t shared);

// The handle of named data, at the server or behind the metaserver: `atoms`, `atoms@alice` for
// data that the user alice shares, or the path of a file in a server's data folder. Pass the
// handle where a call takes an array, and free it with `farcall_free_handle`. Returns NULL if
// there are no such data.
//
// `server` is from `farcall_connect`, `name` is a string ended by NUL.
farcall_handle *farcall_data(farcall_server *server, const char *name);

// The version of named data, from 1; 0 if the array has no name.
//
// `handle` is from `farcall_put_named` or `farcall_data`, or NULL.
uint64_t farcall_data_version(const farcall_handle *handle);

// An array at an address outside of Farcall, such as `https://data.example.org/a.npy`. Pass the
// handle where a call takes an array: the server of the call reads the address, if its operator
// allows it. Where a call returns an array, the server writes it there. Options follow the
// address: `s3://BUCKET/KEY#columns=rain&format=csv`; the names are `format`, `type`, `shape`,
// `order`, `columns`, `rows`, `sha256`, and `query` at the end. Free the handle with
// `farcall_free_handle`. Returns NULL if an option is wrong. Since `FARCALL_1.6`.
//
// `address` is a string ended by NUL.
farcall_handle *farcall_url(const char *address);

// Frees the handle of a stored array or of named data. The array remains at the server. Since
// `FARCALL_1.5`.
//
// `handle` is from a function that returns handles, or NULL; the program does not use it
// afterwards.
farcall_status farcall_free_handle(farcall_handle *handle);

// Drops a stored array or named data at the server, and frees the handle. Calls that use the array
// complete. Since `FARCALL_1.5`.
//
// `handle` is from a function that returns handles, or NULL; the program does not use it
// afterwards.
farcall_status farcall_drop_array(farcall_handle *handle);

/*
 * ---- Durable calls ----
 *
 * The server records a durable call on disk, so that it survives a lost client and a restart.
 */

// Submits a durable call by name, with arguments as for `farcall_call`. Otherwise as
// `farcall_submit_array`.
farcall_status farcall_submit(farcall_server *server, const char *name, char *id, ...);

// Submits a durable call, which survives the end of this program and a restart of the server. When
// this returns `FARCALL_OK`, the server has recorded the call. Arguments are as for
// `farcall_call_array`; the call only reads INOUT arrays, and OUT arrays may be NULL. `id` gets
// the job id, with a NUL at its end.
//
// As for `farcall_call_array`; `id` points to `FARCALL_JOB_ID_BYTES` bytes.
farcall_status farcall_submit_array(const farcall_function *function,
                                    char *id,
                                    void *const *arguments,
                                    size_t count);

// As `farcall_submit_array`, with arguments as for `farcall_call_values`.
//
// As for `farcall_submit_array`; `values` points to `count` arguments.
farcall_status farcall_submit_values(const farcall_function *function,
                                     char *id,
                                     const farcall_value *values,
                                     size_t count);

// The state of a durable call, which this asks the server; `FARCALL_JOB_UNKNOWN` on failure.
//
// `server` is from `farcall_connect`, `id` is a string ended by NUL.
farcall_state farcall_job_state(farcall_server *server, const char *id);

// Stores how a durable call fares, which this asks the server. Otherwise as
// `farcall_session_status`. Since `FARCALL_1.6`.
//
// As for `farcall_job_state` and `farcall_session_status`.
farcall_status farcall_job_status(farcall_server *server,
                                  const char *id,
                                  farcall_call_status *into);

// Fetches the results of a durable call, with the arguments of the call. Otherwise as
// `farcall_fetch_array`.
farcall_status farcall_fetch(farcall_server *server, const char *name, const char *id, ...);

// Waits for the end of a durable call, and fills OUT and INOUT arrays with its results. Arguments
// are those of the call, with the same scalars; IN arrays may be NULL. If the call has failed,
// this fails with its error. The server keeps the results until their retention ends.
//
// As for `farcall_call_array`; `id` is a string ended by NUL.
farcall_status farcall_fetch_array(const farcall_function *function,
                                   const char *id,
                                   void *const *arguments,
                                   size_t count);

// As `farcall_fetch_array`, with arguments as for `farcall_call_values`.
//
// As for `farcall_fetch_array`; `values` points to `count` arguments.
farcall_status farcall_fetch_values(const farcall_function *function,
                                    const char *id,
                                    const farcall_value *values,
                                    size_t count);

// Cancels a durable call; the server stops the library. A call that has ended keeps its results.
//
// As for `farcall_job_state`.
farcall_status farcall_cancel_job(farcall_server *server, const char *id);

// Cancels a durable call, and drops it with its results at the server. Since `FARCALL_1.5`.
//
// As for `farcall_job_state`.
farcall_status farcall_drop_job(farcall_server *server, const char *id);

/*
 * ---- Transactions ----
 *
 * A transaction records calls, and runs them as one data-flow graph.
 */

// Begins a transaction: calls of this thread are recorded and return at once.
// `farcall_transaction_end` runs them as a data-flow graph, on these `count` servers and on the
// servers of the functions that are called. Calls that do not depend on each other run at the same
// time. An array that one call writes and another reads remains at a server, or goes from server
// to server. The memory of an array identifies it.
//
// `servers` points to `count` servers from `farcall_connect`. Until the transaction has ended, the
// arrays of the calls stay at their addresses, nothing uses arrays that calls write, and nothing
// writes the others.
farcall_status farcall_transaction_begin(const farcall_server *const *servers, size_t count);

// Says that the final contents of these bytes are not needed: they are not filled, if calls use
// them as one array.
//
// `start` points to `bytes` bytes.
farcall_status farcall_transaction_discard(const void *start, size_t bytes);

// Writes the graph of the calls that are recorded so far to an SVG file. This needs the Python
// package and matplotlib: `FARCALL_PYTHON` names an interpreter that has both; the default is
// `python3`.
//
// `path` is a string ended by NUL.
farcall_status farcall_transaction_draw(const char *path);

// Runs the recorded calls, and fills their arrays. The message of an error names the call that
// failed; the contents of arrays that calls write are then undefined.
//
// `report` is NULL or points to a report.
farcall_status farcall_transaction_end(farcall_report *report);

// Cancels a transaction: forgets the recorded calls.
farcall_status farcall_transaction_cancel(void);

/*
 * ---- Objects ----
 *
 * An object is state at a server, on which its methods work.
 */

// Makes an object of a class, `module/class` or `class` alone, at a server. The object has its own
// process there, which holds its state. Returns NULL on failure.
//
// `server` is from `farcall_connect`, `name` is a string ended by NUL.
farcall_object *farcall_object_new(farcall_server *server, const char *name);

// The method with this name. Call it like a function. It is valid as long as the object. The
// methods of an object run one after the other. Returns NULL if there is no such method.
//
// `object` is from `farcall_object_new`, `name` is a string ended by NUL.
farcall_function *farcall_object_method(farcall_object *object, const char *name);

// Drops an object at its server, and frees it and its methods. Calls of them that are under way
// fail. NULL does nothing. Since `FARCALL_1.5`.
//
// `object` is from `farcall_object_new`; the program does not use it or its methods afterwards.
void farcall_drop_object(farcall_object *object);

/*
 * ---- Reservations ----
 */

// Reserves processor elements and bandwidth of a server from `begins` to `ends`, or for the same
// length by `latest`. It sets the id and the times of the reservation. Calls that use it
// (`farcall_use_reservation`) then start at once, and their arrays travel at these rates over a
// connection of their own. If too little is free, `earliest` and `farcall_error_message` say when
// enough is free. Since `FARCALL_1.4`.
//
// `server` is from `farcall_connect`; `reservation` points to a reservation with its size.
farcall_status farcall_reserve(farcall_server *server, farcall_reservation *reservation);

// From now on, calls of the function use the reservation with this id; with 0 they use none, which
// is the default. Since `FARCALL_1.4`.
//
// `function` is from `farcall_function_of`.
farcall_status farcall_use_reservation(farcall_function *function, uint64_t id);

// Releases a reservation before its end. Calls that wait for it wait like all other calls from now
// on. Since `FARCALL_1.4`.
//
// `server` is from `farcall_connect`.
farcall_status farcall_release_reservation(farcall_server *server, uint64_t id);

// From now on, the server promises that a call of the function ends within so many seconds, or
// refuses it: `farcall_error_message` says what it can promise. With 0, calls have no deadline,
// which is the default. Since `FARCALL_1.7`.
//
// `function` is from `farcall_function_of`.
farcall_status farcall_set_deadline(farcall_function *function, double seconds);

/*
 * ---- Channels ----
 *
 * Messages between the processes of a gang job, which `farcall gang run` has started.
 */

// Opens the channel of a number, from 0, in a process of a gang job. Returns NULL on failure.
farcall_channel *farcall_channel_open(uint8_t number);

// Closes a channel. NULL does nothing.
//
// `channel` is from `farcall_channel_open`; the program does not use it afterwards.
void farcall_channel_close(farcall_channel *channel);

// The rank of this process, from 0.
//
// `channel` is from `farcall_channel_open`, or NULL.
size_t farcall_channel_rank(const farcall_channel *channel);

// The number of processes of the job.
//
// `channel` is from `farcall_channel_open`, or NULL.
size_t farcall_channel_size(const farcall_channel *channel);

// Sends a message. It returns when the message is in the FIFO, and sleeps while the FIFO is full.
//
// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
farcall_status farcall_channel_send(farcall_channel *channel,
                                    size_t target,
                                    const void *bytes,
                                    size_t count);

// Receives a message from the rank `*source`, or from any rank if that is negative, into `buffer`
// of `room` bytes. It sleeps until there is a message. It sets `*source` to the sender and
// `*count` to the size. A message that is larger than the buffer remains in the channel.
//
// `channel` is from `farcall_channel_open`; `buffer` points to `room` bytes, `source` and `count`
// to a number each.
farcall_status farcall_channel_receive(farcall_channel *channel,
                                       int64_t *source,
                                       void *buffer,
                                       size_t room,
                                       size_t *count);

// Sends a message if it fits into the FIFO now, and never sleeps. Returns 1 if the message was
// sent, 0 if there is no space for it now, and -1 for an error, such as a message of more than
// `farcall_channel_eager_bytes`. Since `FARCALL_1.8`.
//
// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
int32_t farcall_channel_try_send(farcall_channel *channel,
                                 size_t target,
                                 const void *bytes,
                                 size_t count);

// Receives a message as `farcall_channel_receive` does, if there is one. Returns 1 if a message
// was received, 0 if there is none, and -1 for an error. If only the first part of a message has
// come, it sleeps until the rest has. Since `FARCALL_1.8`.
//
// As for `farcall_channel_receive`.
int32_t farcall_channel_try_receive(farcall_channel *channel,
                                    int64_t *source,
                                    void *buffer,
                                    size_t room,
                                    size_t *count);

// The same for a message of two parts: `head_count` bytes at `head`, at most 64, and then `count`
// bytes at `bytes`. Since `FARCALL_1.8`.
//
// As for `farcall_channel_try_send`; `head` points to `head_count` bytes.
int32_t farcall_channel_try_send_parts(farcall_channel *channel,
                                       size_t target,
                                       const void *head,
                                       size_t head_count,
                                       const void *bytes,
                                       size_t count);

// Looks for a message from the rank `*source`, or from any rank if that is negative. If there is
// one, it sets `*source` to its sender and `*count` to its size, copies its first bytes to `head`,
// which has `head_room` bytes, at most 64, and returns 1. The message remains in the channel.
// Returns 0 if there is none, and -1 for an error. Since `FARCALL_1.8`.
//
// `channel` is from `farcall_channel_open`; `head` points to `head_room` bytes, `source` and
// `count` to a number each.
int32_t farcall_channel_peek(farcall_channel *channel,
                             int64_t *source,
                             void *head,
                             size_t head_room,
                             size_t *count);

// Receives the next message from the rank `source` in two parts: its first bytes fill `head`, of
// `head_room` bytes, at most 64, and the others go to `buffer`, which has `room` bytes. It sleeps
// until the whole message is there, and sets `*count` to its size. A larger message remains in the
// channel. Since `FARCALL_1.8`.
//
// `channel` is from `farcall_channel_open`; `head` points to `head_room` bytes, `buffer` to `room`
// bytes, `count` to a number.
farcall_status farcall_channel_receive_parts(farcall_channel *channel,
                                             size_t source,
                                             void *head,
                                             size_t head_room,
                                             void *buffer,
                                             size_t room,
                                             size_t *count);

// The most bytes of a message that `farcall_channel_try_send` accepts. Since `FARCALL_1.8`.
//
// `channel` is from `farcall_channel_open`, or NULL.
size_t farcall_channel_eager_bytes(const farcall_channel *channel);

// Whether the process of a rank runs on this node: 1 or 0, and 0 if the rank does not exist. Since
// `FARCALL_1.8`.
//
// `channel` is from `farcall_channel_open`, or NULL.
int32_t farcall_channel_is_local(const farcall_channel *channel, size_t rank);

// Says what this process looks for, `count` things, to those who judge the state of the job. Each
// of them lets it go on, and so does something else if `has_others` is not 0. It holds until the
// next call: call this with nothing (`NULL, 0, 0`) as soon as it may have changed. Since
// `FARCALL_1.8`.
//
// `channel` is from `farcall_channel_open`; `wanted` points to `count` things.
farcall_status farcall_channel_say_wanted(farcall_channel *channel,
                                          const farcall_wanted *wanted,
                                          size_t count,
                                          int32_t has_others);

// Says how often this process has looked for what it wants and has found nothing, in all. Since
// `FARCALL_1.8`.
//
// `channel` is from `farcall_channel_open`.
farcall_status farcall_channel_say_polls(farcall_channel *channel, uint64_t polls);

// Whether a message from the rank `source`, or from any rank if that is negative, can be received
// without sleeping: 1 or 0, or -1 for an error.
//
// `channel` is from `farcall_channel_open`.
int32_t farcall_channel_poll(farcall_channel *channel, int64_t source);

// Waits until every process has called this.
//
// `channel` is from `farcall_channel_open`.
farcall_status farcall_channel_barrier(farcall_channel *channel);

// Copies the `count` bytes of `root` to all processes.
//
// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
farcall_status farcall_channel_broadcast(farcall_channel *channel,
                                         size_t root,
                                         void *bytes,
                                         size_t count);

// Adds the numbers of all processes, place by place, and gives the sums to all of them.
//
// `channel` is from `farcall_channel_open`; `numbers` points to `count` numbers.
farcall_status farcall_channel_sum(farcall_channel *channel, double *numbers, size_t count);

// Registers the state of this process, `count` arrays, before it sends or receives the first
// message. The arrays must exist until `farcall_channel_run` returns. If the job was restarted or
// moved, this fills them and sets `*is_restored`, which may be NULL, to 1; otherwise to 0.
//
// `channel` is from `farcall_channel_open`; `arrays` points to `count` arrays, each with `bytes`
// bytes at `data`.
farcall_status farcall_channel_register(farcall_channel *channel,
                                        const farcall_array *arrays,
                                        size_t count,
                                        int32_t *is_restored);

// Does one step after another until `step` returns 0, then waits until all processes have done
// theirs. Between two steps the job can be moved, and its state can be taken. What a step receives
// should have been sent in a step with the same or a lower number.
//
// `channel` is from `farcall_channel_open`, and its arrays exist; `step` is a function.
farcall_status farcall_channel_run(farcall_channel *channel, farcall_step step, void *user);

/*
 * ---- Earlier names ----
 *
 * These functions do the same as those with the present names.
 */

// The earlier name of `farcall_drop_array`.
//
// As for `farcall_drop_array`.
farcall_status farcall_drop(farcall_handle *handle);

// The earlier name of `farcall_free_handle`. Since `FARCALL_1.4`.
//
// As for `farcall_free_handle`.
farcall_status farcall_release(farcall_handle *handle);

// The earlier name of `farcall_drop_job`.
//
// As for `farcall_job_state`.
farcall_status farcall_forget_job(farcall_server *server, const char *id);

// The earlier name of `farcall_drop_object`.
//
// As for `farcall_drop_object`.
void farcall_object_free(farcall_object *object);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARCALL_H */
