/*
 * Calls functions of a Farcall server. Link with -lfarcall.
 *
 *     farcall_server *server = farcall_connect("farcall://host:3717");
 *     int info, n = 500, pivots[500];
 *     if (farcall_call(server, "lapack/dgesv", n, 1, a, n, pivots, b, n, &info) != FARCALL_OK)
 *         fprintf(stderr, "%s\n", farcall_error_message());
 *     farcall_disconnect(server);
 *
 * Any thread may use a server and its functions; calls of several threads run at the same time.
 * Made by `cargo xtask generate`: do not edit.
 */

#ifndef FARCALL_H
#define FARCALL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// `kind` of a value of a type that no argument has.
#define FARCALL_REFUSED -1

// `kind` of an array that does not lie in one piece of memory.
#define FARCALL_SCATTERED -2

// Bytes of the id of a submitted call as text, with the NUL at its end.
#define FARCALL_JOB_ID_BYTES 33

// What became of an operation, and whose fault it was. More may be added.
typedef enum {
  // Done.
  FARCALL_OK = 0,
  // The caller's: an argument, a name or an address.
  FARCALL_ARGUMENT = 1,
  // The server has no function of that name.
  FARCALL_UNKNOWN_FUNCTION = 2,
  // The server cannot be reached, or the connection was lost.
  FARCALL_CONNECTION = 3,
  // The server did not answer in time.
  FARCALL_TIMEOUT = 4,
  // The called library crashed, ended its process, or ran past a limit.
  FARCALL_LIBRARY = 5,
  // The server refused the call or failed.
  FARCALL_SERVER = 6,
  // A fault of this library.
  FARCALL_INTERNAL = 7,
  // The call has not ended.
  FARCALL_RUNNING = 8,
  // The call was cancelled.
  FARCALL_CANCELLED = 9,
  // There is no such session, or it was forgotten.
  FARCALL_UNKNOWN_SESSION = 10,
} farcall_status;

// How an argument is passed.
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
  // A function that the called function calls; see docs/languages.md
  FARCALL_FUNCTION = 10,
  // char *, as many as there are texts, in an array of texts that have a longest one: what the
  // call reads, or NULL for an empty text. What it returns is put in their place, to be freed by
  // `farcall_free_texts`
  FARCALL_TEXTS = 11,
} farcall_kind;

// Where a submitted call is. More may be added.
typedef enum {
  // The server could not be asked, or has no such call.
  FARCALL_JOB_UNKNOWN = 0,
  // It waits to run.
  FARCALL_JOB_QUEUED = 1,
  // The library computes.
  FARCALL_JOB_RUNNING = 2,
  // Its results can be fetched.
  FARCALL_JOB_DONE = 3,
  // It failed; `farcall_fetch` says why.
  FARCALL_JOB_FAILED = 4,
  // It was cancelled.
  FARCALL_JOB_CANCELLED = 5,
} farcall_state;

// One element's end of a channel. One thread at a time may use it.
typedef struct farcall_channel farcall_channel;

// A function of a server.
typedef struct farcall_function farcall_function;

// An array that stays at a server. It is passed to calls where they take an array.
typedef struct farcall_handle farcall_handle;

// An object on a server.
typedef struct farcall_object farcall_object;

// A server.
typedef struct farcall_server farcall_server;

// A call under way; 0 is none.
typedef uint64_t farcall_session;

// An argument that says what it is.
typedef struct {
  // The scalar, the first element of the array, the first character of the text, which need not
  // end with NUL, or the function itself.
  void *data;
  // Size of the scalar, of the whole array, or of the text.
  size_t bytes;
  // `farcall_kind` of the scalar or of the elements, but `FARCALL_ARRAY`; or why the library is
  // to refuse it: `FARCALL_REFUSED`, `FARCALL_SCATTERED`.
  int32_t kind;
  // Not 0 where the call may not write to it.
  int32_t read_only;
} farcall_value;

// How to talk to a server. Zeros are the defaults.
typedef struct {
  // `sizeof(farcall_options)`: later versions may have more members.
  size_t size;
  // Longest time to wait for a connection, in seconds; 0 for the default, 10.
  double connect_timeout;
  // Longest time for one call, from its start to its end, in seconds; 0 waits for ever. It
  // holds for `farcall_function_of` as well.
  double timeout;
  // Not 0 to talk to a server on this host as to one on another: over TCP, where the address
  // says so, and without shared memory.
  int32_t other_host;
} farcall_options;

// How long a call took, in seconds.
typedef struct {
  // Until the server had the arguments.
  double send;
  // In the library.
  double exec;
  // Until the server had sent the results.
  double recv;
  // The rest of the total.
  double other;
  // From the start of the call to its return.
  double total;
} farcall_times;

// Takes a line that a called function has printed: `bytes` bytes, with the end of the line, not
// ended by NUL. It runs on the thread that waits for the call.
typedef void (*farcall_output_writer)(void *user, const char *text, size_t bytes);

// What is wanted of a server for a while, and what was reserved. All members that are not set are
// 0.
typedef struct {
  // `sizeof(farcall_reservation)`: later versions may have more members.
  size_t size;
  // Its number at the server, from 1; set by `farcall_reserve`.
  uint64_t id;
  // Bytes per second to the server; 0 for none.
  uint64_t up;
  // Bytes per second from the server; 0 for none.
  uint64_t down;
  // Processor elements; 0 for bandwidth alone.
  uint32_t pes;
  // Seconds from now until it begins.
  double begins;
  // Seconds from now until it is over.
  double ends;
  // Seconds from now until it begins at the latest, where it is not free at `begins`; `INFINITY`
  // for whenever it is, and 0 for no later.
  double latest;
  // Set by `farcall_reserve` where it cannot be had: seconds from then on after which it can; 0
  // where no time is known.
  double earliest;
} farcall_reservation;

// What a transaction came to.
typedef struct {
  // Calls that were made, again after a fault included.
  uint64_t calls;
  // Servers that have made at least one call.
  uint64_t servers;
  // Bytes of arrays that this program has sent.
  uint64_t sent_bytes;
  // Bytes of arrays that this program has received.
  uint64_t returned_bytes;
  // Bytes of arrays that went from server to server.
  uint64_t passed_bytes;
  // Seconds.
  double total;
} farcall_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the interface between programs and this library: programs made for one work
// with every library of the same.
uint32_t farcall_abi_version(void);

// The version of the library, `0.1.0`.
const char *farcall_version(void);

// Calls a function with `count` arguments in the order of the interface: each points to its
// scalar, in the type of `farcall_argument_kind`, or to the first element of its array, or is the
// address of a function. OUT and INOUT arrays are filled in place; after a failure their contents
// are undefined. Functions are called on the thread that waits for the call.
//
// `function` is from `farcall_function_of`; every argument points to what the interface declares,
// arrays to their whole declared size; nothing else writes to them, and nothing else reads those
// that are written, until the call returns.
farcall_status farcall_call_array(const farcall_function *function,
                                  void *const *arguments,
                                  size_t count);

// Begins a call as `farcall_call_array` does, and returns its session; 0 where that fails.
// Arguments and results travel while some thread waits for a call to that server.
//
// As for `farcall_call_array`, but until a wait has reported the end of the session, or
// `farcall_cancel` or `farcall_disconnect` has returned. Scalars and text are copied at once.
farcall_session farcall_call_array_async(const farcall_function *function,
                                         void *const *arguments,
                                         size_t count);

// Calls a function with arguments that say their own type and size: each is checked against the
// interface, and integers and floating-point scalars are widened where nothing is lost. Made for
// languages above C.
//
// As for `farcall_call_array`; `values` points to `count` arguments.
farcall_status farcall_call_values(const farcall_function *function,
                                   const farcall_value *values,
                                   size_t count);

// Begins a call as `farcall_call_values` does, and returns its session; 0 where that fails.
//
// As for `farcall_call_array_async`; `values` points to `count` arguments, which are copied.
farcall_session farcall_call_values_async(const farcall_function *function,
                                          const farcall_value *values,
                                          size_t count);

// Opens the channel of that number, from 0, in an element of a job. NULL where that fails.
farcall_channel *farcall_channel_open(uint8_t number);

// Closes a channel. NULL is let pass.
//
// `channel` is from `farcall_channel_open` and is not used from now on.
void farcall_channel_close(farcall_channel *channel);

// This element's rank, from 0.
//
// `channel` is from `farcall_channel_open`, or NULL.
size_t farcall_channel_rank(const farcall_channel *channel);

// Elements of the job.
//
// `channel` is from `farcall_channel_open`, or NULL.
size_t farcall_channel_size(const farcall_channel *channel);

// Sends a message. It returns when the message is in the FIFO, and sleeps while that is full.
//
// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
farcall_status farcall_channel_send(farcall_channel *channel,
                                    size_t target,
                                    const void *bytes,
                                    size_t count);

// Receives a message from the rank `*source`, or from any where that is negative, into `buffer`
// of `room` bytes, and sleeps until there is one. `*source` becomes who sent it, `*count` its
// length. A message that is too long stays where it is.
//
// `channel` is from `farcall_channel_open`; `buffer` points to `room` bytes, `source` and `count`
// to a number each.
farcall_status farcall_channel_receive(farcall_channel *channel,
                                       int64_t *source,
                                       void *buffer,
                                       size_t room,
                                       size_t *count);

// Says whether a message from the rank `source`, or from any where that is negative, could be
// received without sleeping: 1 or 0, and -1 for an error.
//
// `channel` is from `farcall_channel_open`.
int32_t farcall_channel_poll(farcall_channel *channel, int64_t source);

// Returns when every element has come here.
//
// `channel` is from `farcall_channel_open`.
farcall_status farcall_channel_barrier(farcall_channel *channel);

// Gives every element the `count` bytes of `root`.
//
// `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
farcall_status farcall_channel_broadcast(farcall_channel *channel,
                                         size_t root,
                                         void *bytes,
                                         size_t count);

// Adds the numbers of all elements, place by place, and gives every element the sums.
//
// `channel` is from `farcall_channel_open`; `numbers` points to `count` numbers.
farcall_status farcall_channel_sum(farcall_channel *channel, double *numbers, size_t count);

// Connects to `farcall://host:port` or `unix:///path`, or by `meta://host:port` to all servers
// behind a metaserver; NULL means the server that the environment names (`FARCALL_SERVER`, else
// `NINF_SERVER` and `NINF_SERVER_PORT`, else the metaserver of `FARCALL_METASERVER`), else this
// machine. NULL where that fails.
//
// `address` is NULL or a string ended by NUL.
farcall_server *farcall_connect(const char *address);

// The same with options; NULL for the defaults.
//
// `address` is NULL or a string ended by NUL; `options` is NULL or has the size it says.
farcall_server *farcall_connect_with(const char *address, const farcall_options *options);

// Closes the connections and ends the functions of the server; calls under way are cancelled.
// NULL is let pass.
//
// `server` is from `farcall_connect`; neither it nor its functions are used from now on.
void farcall_disconnect(farcall_server *server);

// The status of the last operation of this thread that failed; `FARCALL_OK` before the first.
farcall_status farcall_error_status(void);

// What went wrong in the last operation of this thread that failed, for people; valid until the
// next one that fails.
const char *farcall_error_message(void);

// A name for people of a status, `connection`; lives for ever.
const char *farcall_status_text(int32_t status);

// The function of that name, `module/name` or `name` alone; it lives as long as the server.
// Its interface is fetched once. NULL where there is none.
//
// `server` is from `farcall_connect`, `name` a string ended by NUL.
farcall_function *farcall_function_of(farcall_server *server, const char *name);

// `module/name`; lives as long as the function.
//
// `function` is from `farcall_function_of`, or NULL, whose name is empty.
const char *farcall_function_name(const farcall_function *function);

// The interface as IDL text; lives as long as the function.
//
// `function` is from `farcall_function_of`, or NULL, which has none.
const char *farcall_function_interface(const farcall_function *function);

// How many arguments the function takes.
//
// `function` is from `farcall_function_of`, or NULL, which takes none.
size_t farcall_argument_count(const farcall_function *function);

// How the argument at `index` is passed, from 0.
//
// `function` is from `farcall_function_of`, or NULL.
farcall_kind farcall_argument_kind(const farcall_function *function, size_t index);

// The type of a scalar argument, or of the elements of an array; `FARCALL_ARRAY` where there is no
// such argument.
//
// `function` is from `farcall_function_of`, or NULL.
farcall_kind farcall_argument_type(const farcall_function *function, size_t index);

// 1 where a call writes to the argument (OUT and INOUT), else 0.
//
// `function` is from `farcall_function_of`, or NULL.
int32_t farcall_argument_written(const farcall_function *function, size_t index);

// 1 where a call reads the argument (IN and INOUT), else 0.
//
// `function` is from `farcall_function_of`, or NULL.
int32_t farcall_argument_read(const farcall_function *function, size_t index);

// The name of the argument; NULL where there is none. It lives as long as the function.
//
// `function` is from `farcall_function_of`, or NULL.
const char *farcall_argument_name(const farcall_function *function, size_t index);

// How long the last call of the function took, in any thread; zeros before the first.
//
// `function` is from `farcall_function_of`, or NULL.
farcall_times farcall_times_of(const farcall_function *function);

// The library that has computed the last call of the function, in any thread, with its version and
// its kernel, as far as it says; empty before the first. It lives as long as the function.
//
// `function` is from `farcall_function_of`, or NULL.
const char *farcall_library_of(const farcall_function *function);

// Puts an array at the server, to be used in calls: pass the handle where a call takes an array.
// Its `rank` lengths are at `shape`; `column_major` is not 0 where its first index varies fastest,
// as functions of Fortran want it. NULL for `data` makes all of it zero, for results that are to
// stay. The array goes with `farcall_drop`, when the connection ends, or when it was not used for
// long. NULL where that fails.
//
// `server` is from `farcall_connect`, `shape` points to `rank` lengths, and `data` is NULL or
// points to as many elements as they say.
farcall_handle *farcall_put(farcall_server *server,
                            farcall_kind element,
                            const size_t *shape,
                            size_t rank,
                            int32_t column_major,
                            const void *data);

// Puts an array at the server as `farcall_put`, under a name: words with `/` between. It stays
// when the connection ends; calls read it and do not write it, and another array put under the
// name is its next version. Behind a metaserver it goes to the server that has data of that
// name, or else most memory free. All users may read it where `shared` is not 0. NULL where
// that fails.
//
// As for `farcall_put`; `name` is a string ended by NUL.
farcall_handle *farcall_put_named(farcall_server *server,
                                  farcall_kind element,
                                  const size_t *shape,
                                  size_t rank,
                                  int32_t column_major,
                                  const void *data,
                                  const char *name,
                                  int32_t shared);

// The array that is at the server, or behind the metaserver, under that name: `atoms`, or
// `atoms@alice` for what another user shares, or the path of a file in a server's data folder.
// Pass the handle where a call takes an array; give it back with `farcall_release`. NULL where
// there is none.
//
// `server` is from `farcall_connect`, `name` a string ended by NUL.
farcall_handle *farcall_data(farcall_server *server, const char *name);

// Which version of the data of its name it is, from 1 on; 0 where it has none.
//
// `handle` is from `farcall_put_named` or `farcall_data`, or NULL.
uint64_t farcall_data_version(const farcall_handle *handle);

// The handle is good for nothing any more; the array stays where it is.
//
// `handle` is from one of the functions that give handles, or NULL; nobody uses it any more.
farcall_status farcall_release(farcall_handle *handle);

// The handle of an array that is at the server by now, by its id; NULL where there is none.
//
// `server` is from `farcall_connect`, `id` a string ended by NUL.
farcall_handle *farcall_handle_of(farcall_server *server, const char *id);

// Its id, 32 hexadecimal digits; lives as long as the handle.
//
// `handle` is from `farcall_put` or `farcall_handle_of`, or NULL, whose id is empty.
const char *farcall_handle_id(const farcall_handle *handle);

// Gets the array, in its own order, after the calls that were made before. `bytes` is its length.
//
// `handle` is from `farcall_put` or `farcall_handle_of`; `data` points to `bytes` bytes.
farcall_status farcall_get(const farcall_handle *handle, void *data, size_t bytes);

// The server need not keep the array any more, and the handle is good for nothing. Calls that use
// the array go on.
//
// `handle` is from `farcall_put` or `farcall_handle_of`, or NULL; nobody uses it any more.
farcall_status farcall_drop(farcall_handle *handle);

// Submits a call: once this returns `FARCALL_OK`, the server runs it whatever happens to this
// program or to the server, and keeps what it comes to. Arguments are as for
// `farcall_call_array`; INOUT arrays are only read, OUT arrays may be NULL. The id of the call is
// written to `id`, with a NUL at its end.
//
// As for `farcall_call_array`; `id` points to `FARCALL_JOB_ID_BYTES` bytes.
farcall_status farcall_submit_array(const farcall_function *function,
                                    char *id,
                                    void *const *arguments,
                                    size_t count);

// The same with arguments as for `farcall_call_values`.
//
// As for `farcall_submit_array`; `values` points to `count` arguments.
farcall_status farcall_submit_values(const farcall_function *function,
                                     char *id,
                                     const farcall_value *values,
                                     size_t count);

// Waits for the end of a submitted call and fills OUT and INOUT arrays with its results.
// Arguments are those of the call, with the same scalars; IN arrays may be NULL. What the call has
// failed with is what this fails with. The server keeps the results until they expire.
//
// As for `farcall_call_array`; `id` is a string ended by NUL.
farcall_status farcall_fetch_array(const farcall_function *function,
                                   const char *id,
                                   void *const *arguments,
                                   size_t count);

// The same with arguments as for `farcall_call_values`.
//
// As for `farcall_fetch_array`; `values` points to `count` arguments.
farcall_status farcall_fetch_values(const farcall_function *function,
                                    const char *id,
                                    const farcall_value *values,
                                    size_t count);

// Where a submitted call is, asked of the server; `FARCALL_JOB_UNKNOWN` where that fails.
//
// `server` is from `farcall_connect`, `id` a string ended by NUL.
farcall_state farcall_job_state(farcall_server *server, const char *id);

// Ends a submitted call that has not ended; a library that runs is stopped. What it has come to
// before stays.
//
// As for `farcall_job_state`.
farcall_status farcall_cancel_job(farcall_server *server, const char *id);

// The same, and the server keeps nothing of the call.
//
// As for `farcall_job_state`.
farcall_status farcall_forget_job(farcall_server *server, const char *id);

// Memory of zeros for arrays, at a multiple of 64 bytes. Where the server is on this host it is
// shared with it, and arrays in it are not copied when they are arguments of calls to that server;
// elsewhere it is memory as any other. NULL where there is none to be had.
//
// `server` is from `farcall_connect`.
void *farcall_allocate(const farcall_server *server, size_t bytes);

// Gives memory back that is from `farcall_allocate`, and that no call under way uses. NULL is let
// pass. The server may have been disconnected from meanwhile.
void farcall_free(void *memory);

// Makes an object of a class, `module/class` or `class` alone, on a server. It has a process of
// its own there, which holds its state. NULL where that fails.
//
// `server` is from `farcall_connect`, `name` a string ended by NUL.
farcall_object *farcall_object_new(farcall_server *server, const char *name);

// The method of that name, to be called as functions are; it lives as long as the object. Methods
// of an object run one after the other. NULL where there is none.
//
// `object` is from `farcall_object_new`, `name` a string ended by NUL.
farcall_function *farcall_object_method(farcall_object *object, const char *name);

// Destroys the object, and ends its methods; calls under way fail. NULL is let pass.
//
// `object` is from `farcall_object_new`; neither it nor its methods are used from now on.
void farcall_object_free(farcall_object *object);

// From now on, what the library prints in calls of the function is given to `writer`, line by
// line, with `user`; to this program's standard output where `writer` is NULL. It is in
// `FARCALL_1.1`.
//
// `function` is from `farcall_function_of`; `writer` may be called from any thread that waits for
// a call of the function, until `farcall_keep_output` and the end of all calls begun before it.
farcall_status farcall_forward_output(farcall_function *function,
                                      farcall_output_writer writer,
                                      void *user);

// From now on, what the library prints in calls of the function goes to the server's log, as it
// does at first. It is in `FARCALL_1.1`.
//
// `function` is from `farcall_function_of`.
farcall_status farcall_keep_output(farcall_function *function);

// Reserves processor elements and bandwidth of a server from `begins` to `ends`, or for as long by
// `latest`, and sets the id and when it is. Calls that use it (`farcall_use_reservation`) start at
// once then, and their arrays travel at these rates on a connection of their own. Where they are
// not free then, `earliest` and `farcall_error_message` say from when on they are. It is in
// `FARCALL_1.4`.
//
// `server` is from `farcall_connect`; `reservation` points to a reservation with its size.
farcall_status farcall_reserve(farcall_server *server, farcall_reservation *reservation);

// Ends a reservation before its time. Calls that use it and wait do so as all others from then on.
// It is in `FARCALL_1.4`.
//
// `server` is from `farcall_connect`.
farcall_status farcall_release_reservation(farcall_server *server, uint64_t id);

// From now on, calls of the function have what was reserved under that id; with 0 they wait as all
// others, as they do at first. It is in `FARCALL_1.4`.
//
// `function` is from `farcall_function_of`.
farcall_status farcall_use_reservation(farcall_function *function, uint64_t id);

// Whether a call has ended: `FARCALL_RUNNING` while it has not, else what became of it. Arguments
// and results travel as far as they can at once, and a callback that has come is run here: who
// only probes gets to the end, too.
farcall_status farcall_probe(farcall_session session);

// Waits for the end of a call, at most `timeout` seconds; below 0 without a bound. Returns
// `FARCALL_RUNNING` when the time is over before, else what became of the call. It may be asked
// again: the last 65536 sessions that were waited for are remembered.
farcall_status farcall_wait(farcall_session session, double timeout);

// Waits until one of the calls has ended, stores in `which` the session of one that has, and
// returns what became of it. When the time is over before, `FARCALL_RUNNING` and 0.
//
// `sessions` points to `count` sessions, `which` to a session or is NULL.
farcall_status farcall_wait_or(const farcall_session *sessions,
                               size_t count,
                               double timeout,
                               farcall_session *which);

// Waits until all of the calls have ended. Returns `FARCALL_OK` if none failed, else what became
// of the first that did; `farcall_next_failed` tells them all. `FARCALL_RUNNING` when the time is
// over before.
//
// `sessions` points to `count` sessions.
farcall_status farcall_wait_and(const farcall_session *sessions, size_t count, double timeout);

// Waits until one of the calls to the server has ended that no wait has reported yet: as
// `farcall_wait_or`. When none is left, `FARCALL_OK` and 0. A server that is NULL means all.
//
// `server` is from `farcall_connect` or NULL, `which` points to a session or is NULL.
farcall_status farcall_wait_any(const farcall_server *server,
                                double timeout,
                                farcall_session *which);

// Waits until all calls to the server have ended that no wait has reported yet: as
// `farcall_wait_and`. A server that is NULL means all.
//
// `server` is from `farcall_connect` or NULL.
farcall_status farcall_wait_all(const farcall_server *server, double timeout);

// The next session that failed in the last wait of this thread; 0 when there is no more.
farcall_session farcall_next_failed(void);

// Gives a call up; one that has ended stays as it is. When this returns, the arrays of the call
// are not touched any more, and the server has been told to end it.
farcall_status farcall_cancel(farcall_session session);

// Gives up all calls to the server; to all servers, if it is NULL.
//
// `server` is from `farcall_connect` or NULL.
farcall_status farcall_cancel_all(const farcall_server *server);

// How long the call took; zeros if it failed, is unknown, or has not ended.
farcall_times farcall_session_times(farcall_session session);

// Frees texts that a call has made for an argument of the kind `FARCALL_TEXTS`, and makes the
// pointers NULL.
//
// `texts` points to `count` pointers, each NULL or set by such a call.
void farcall_free_texts(char **texts, size_t count);

// From here on calls of this thread are recorded and return at once; `farcall_transaction_end`
// runs them as a data-flow graph, on these `count` servers and on those of the functions that are
// called. Calls that do not need each other run at the same time; what one call writes and another
// reads stays at its server or goes from server to server. Arrays are told apart by their memory.
//
// `servers` points to `count` servers from `farcall_connect`. The arrays of the calls stay where
// they are until the transaction is over; those that are written are not touched, the others not
// written.
farcall_status farcall_transaction_begin(const farcall_server *const *servers, size_t count);

// What these bytes hold in the end is not needed: they are not filled, as far as calls use them as
// one array.
//
// `start` points to `bytes` bytes.
farcall_status farcall_transaction_discard(const void *start, size_t bytes);

// Writes the graph of the calls recorded so far to a file, as a picture in SVG. The Python package
// draws it, with matplotlib: `FARCALL_PYTHON` names an interpreter that has both, `python3` if it
// is not set.
//
// `path` is a string ended by NUL.
farcall_status farcall_transaction_draw(const char *path);

// Runs the calls that were recorded, and fills their arrays. The message of an error names the
// call; what calls were to write is undefined then. `report` may be NULL.
//
// `report` is NULL or points to a report.
farcall_status farcall_transaction_end(farcall_report *report);

// Forgets the calls that were recorded.
farcall_status farcall_transaction_cancel(void);

/* A complex number passed by value. */
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

/*
 * Calls a function by name, with its arguments in the order of the interface: scalars by value in
 * the C type of their declaration (long is int64_t), arrays as pointers, text as const char *.
 * An integer must have the declared width: pass (int64_t)n where the interface says long.
 */
farcall_status farcall_call(farcall_server *server, const char *name, ...);

/* Calls a function by its handle; arguments as for farcall_call(). */
farcall_status farcall_invoke(farcall_function *function, ...);

/* Begins a call by name, and returns its session; 0 where that fails. The arrays are left alone
 * until a wait has reported the end, or a cancel has returned; scalars and text are copied. */
farcall_session farcall_call_async(farcall_server *server, const char *name, ...);

/* Begins a call by its handle; as farcall_call_async(). */
farcall_session farcall_invoke_async(farcall_function *function, ...);

/* The same with the arguments in a list. */
farcall_status farcall_call_list(farcall_function *function, va_list list);
farcall_session farcall_call_list_async(farcall_function *function, va_list list);

/* Submits a call by name, with arguments as for farcall_call(); as farcall_submit_array(). */
farcall_status farcall_submit(farcall_server *server, const char *name, char *id, ...);

/* Fetches the results of a submitted call, with the arguments of the call; as
 * farcall_fetch_array(). */
farcall_status farcall_fetch(farcall_server *server, const char *name, const char *id, ...);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARCALL_H */
