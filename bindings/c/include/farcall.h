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

/**
 * How an argument is passed.
 */
typedef enum {
  /**
   * A pointer to the first element.
   */
  FARCALL_ARRAY = 0,
  /**
   * char
   */
  FARCALL_CHAR = 1,
  /**
   * int16_t
   */
  FARCALL_SHORT = 2,
  /**
   * int32_t
   */
  FARCALL_INT = 3,
  /**
   * int64_t
   */
  FARCALL_LONG = 4,
  /**
   * float
   */
  FARCALL_FLOAT = 5,
  /**
   * double
   */
  FARCALL_DOUBLE = 6,
  /**
   * farcall_scomplex
   */
  FARCALL_SCOMPLEX = 7,
  /**
   * farcall_dcomplex
   */
  FARCALL_DCOMPLEX = 8,
  /**
   * const char *
   */
  FARCALL_TEXT = 9,
} farcall_kind;

/**
 * What became of an operation, and whose fault it was.
 */
typedef enum {
  /**
   * Done.
   */
  FARCALL_OK = 0,
  /**
   * The caller's: an argument, a name or an address.
   */
  FARCALL_ARGUMENT = 1,
  /**
   * The server has no function of that name.
   */
  FARCALL_UNKNOWN_FUNCTION = 2,
  /**
   * The server cannot be reached, or the connection was lost.
   */
  FARCALL_CONNECTION = 3,
  /**
   * The server did not answer in time.
   */
  FARCALL_TIMEOUT = 4,
  /**
   * The called library crashed, ended its process, or ran past a limit.
   */
  FARCALL_LIBRARY = 5,
  /**
   * The server refused the call or failed.
   */
  FARCALL_SERVER = 6,
  /**
   * A fault of this library.
   */
  FARCALL_INTERNAL = 7,
} farcall_status;

/**
 * One element's end of a channel. One thread at a time may use it.
 */
typedef struct farcall_channel farcall_channel;

/**
 * A function of a server.
 */
typedef struct farcall_function farcall_function;

/**
 * A server.
 */
typedef struct farcall_server farcall_server;

/**
 * How long a call took, in seconds.
 */
typedef struct {
  /**
   * Until the server had the arguments.
   */
  double send;
  /**
   * In the library.
   */
  double exec;
  /**
   * Until the server had sent the results.
   */
  double recv;
  /**
   * The rest of the total.
   */
  double other;
  /**
   * From the start of the call to its return.
   */
  double total;
} farcall_times;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Connects to `farcall://host:port` or `unix:///path`. NULL where that fails.
 *
 * `address` is a string ended by NUL.
 */
farcall_server *farcall_connect(const char *address);

/**
 * Closes the connections and ends the functions of the server. NULL is let pass.
 *
 * `server` is from `farcall_connect`; neither it nor its functions are used from now on.
 */
void farcall_disconnect(farcall_server *server);

/**
 * The function of that name, `module/name` or `name` alone; it lives as long as the server.
 * Its interface is fetched once. NULL where there is none.
 *
 * `server` is from `farcall_connect`, `name` a string ended by NUL.
 */
farcall_function *farcall_function_of(farcall_server *server, const char *name);

/**
 * How many arguments the function takes.
 *
 * `function` is from `farcall_function_of`, or NULL, which takes none.
 */
size_t farcall_argument_count(const farcall_function *function);

/**
 * How the argument at `index` is passed, from 0.
 *
 * `function` is from `farcall_function_of`, or NULL.
 */
farcall_kind farcall_argument_kind(const farcall_function *function, size_t index);

/**
 * Calls a function with `count` arguments in the order of the interface: each points to its
 * scalar, in the type of `farcall_argument_kind`, or to the first element of its array. OUT and
 * INOUT arrays are filled in place; after a failure their contents are undefined.
 *
 * `function` is from `farcall_function_of`; every argument points to what the interface declares,
 * arrays to their whole declared size; nothing else writes to them, and nothing else reads those
 * that are written, until the call returns.
 */
farcall_status farcall_call_array(const farcall_function *function,
                                  void *const *arguments,
                                  size_t count);

/**
 * How long the last call of the function took, in any thread; zeros before the first.
 *
 * `function` is from `farcall_function_of`, or NULL.
 */
farcall_times farcall_times_of(const farcall_function *function);

/**
 * Opens the channel of that number, from 0, in an element of a job. NULL where that fails.
 */
farcall_channel *farcall_channel_open(uint8_t number);

/**
 * Closes a channel. NULL is let pass.
 *
 * `channel` is from `farcall_channel_open` and is not used from now on.
 */
void farcall_channel_close(farcall_channel *channel);

/**
 * This element's rank, from 0.
 *
 * `channel` is from `farcall_channel_open`, or NULL.
 */
size_t farcall_channel_rank(const farcall_channel *channel);

/**
 * Elements of the job.
 *
 * `channel` is from `farcall_channel_open`, or NULL.
 */
size_t farcall_channel_size(const farcall_channel *channel);

/**
 * Sends a message. It returns when the message is in the FIFO, and sleeps while that is full.
 *
 * `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
 */
farcall_status farcall_channel_send(farcall_channel *channel,
                                    size_t target,
                                    const void *bytes,
                                    size_t count);

/**
 * Receives a message from the rank `*source`, or from any where that is negative, into `buffer`
 * of `room` bytes, and sleeps until there is one. `*source` becomes who sent it, `*count` its
 * length. A message that is too long stays where it is.
 *
 * `channel` is from `farcall_channel_open`; `buffer` points to `room` bytes, `source` and `count`
 * to a number each.
 */
farcall_status farcall_channel_receive(farcall_channel *channel,
                                       int64_t *source,
                                       void *buffer,
                                       size_t room,
                                       size_t *count);

/**
 * Says whether a message from the rank `source`, or from any where that is negative, could be
 * received without sleeping: 1 or 0, and -1 for an error.
 *
 * `channel` is from `farcall_channel_open`.
 */
int32_t farcall_channel_poll(farcall_channel *channel, int64_t source);

/**
 * Returns when every element has come here.
 *
 * `channel` is from `farcall_channel_open`.
 */
farcall_status farcall_channel_barrier(farcall_channel *channel);

/**
 * Gives every element the `count` bytes of `root`.
 *
 * `channel` is from `farcall_channel_open`; `bytes` points to `count` bytes.
 */
farcall_status farcall_channel_broadcast(farcall_channel *channel,
                                         size_t root,
                                         void *bytes,
                                         size_t count);

/**
 * Adds the numbers of all elements, place by place, and gives every element the sums.
 *
 * `channel` is from `farcall_channel_open`; `numbers` points to `count` numbers.
 */
farcall_status farcall_channel_sum(farcall_channel *channel, double *numbers, size_t count);

/**
 * The status of the last operation of this thread that failed; `FARCALL_OK` before the first.
 */
farcall_status farcall_error_status(void);

/**
 * What went wrong in the last operation of this thread that failed, for people; valid until the
 * next one that fails.
 */
const char *farcall_error_message(void);

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

/* Room for any scalar. */
typedef union {
  char c;
  int16_t s;
  int32_t i;
  int64_t l;
  float f;
  double d;
  farcall_scomplex sc;
  farcall_dcomplex dc;
  const char *t;
} farcall_scalar;

/* Takes one argument from the list; returns where it is, for farcall_call_array(). */
static inline void *farcall_take(farcall_kind kind, farcall_scalar *scalar, va_list *list) {
  switch (kind) {
  case FARCALL_CHAR:
    scalar->c = (char)va_arg(*list, int);
    return scalar;
  case FARCALL_SHORT:
    scalar->s = (int16_t)va_arg(*list, int);
    return scalar;
  case FARCALL_INT:
    scalar->i = va_arg(*list, int32_t);
    return scalar;
  case FARCALL_LONG:
    scalar->l = va_arg(*list, int64_t);
    return scalar;
  case FARCALL_FLOAT:
    scalar->f = (float)va_arg(*list, double);
    return scalar;
  case FARCALL_DOUBLE:
    scalar->d = va_arg(*list, double);
    return scalar;
  case FARCALL_SCOMPLEX:
    scalar->sc = va_arg(*list, farcall_scomplex);
    return scalar;
  case FARCALL_DCOMPLEX:
    scalar->dc = va_arg(*list, farcall_dcomplex);
    return scalar;
  case FARCALL_TEXT:
    scalar->t = va_arg(*list, const char *);
    return scalar;
  default:
    return va_arg(*list, void *);
  }
}

static inline farcall_status farcall_call_list(farcall_function *function, va_list *list) {
  size_t index, count = farcall_argument_count(function);
  farcall_scalar *scalars;
  void **arguments;
  farcall_status status;

  if (function == NULL)
    return farcall_error_status();
  scalars = (farcall_scalar *)calloc(count + 1, sizeof *scalars);
  arguments = (void **)calloc(count + 1, sizeof *arguments);
  if (scalars == NULL || arguments == NULL)
    abort();
  for (index = 0; index < count; index++)
    arguments[index] = farcall_take(farcall_argument_kind(function, index), &scalars[index], list);
  status = farcall_call_array(function, arguments, count);
  free(arguments);
  free(scalars);
  return status;
}

/*
 * Calls a function by name, with its arguments in the order of the interface: scalars by value in
 * the C type of their declaration (long is int64_t), arrays as pointers, text as const char *.
 * An integer must have the declared width: pass (int64_t)n where the interface says long.
 */
static inline farcall_status farcall_call(farcall_server *server, const char *name, ...) {
  va_list list;
  farcall_status status;

  va_start(list, name);
  status = farcall_call_list(farcall_function_of(server, name), &list);
  va_end(list);
  return status;
}

/* Calls a function by its handle; arguments as for farcall_call(). */
static inline farcall_status farcall_invoke(farcall_function *function, ...) {
  va_list list;
  farcall_status status;

  va_start(list, function);
  status = farcall_call_list(function, &list);
  va_end(list);
  return status;
}

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FARCALL_H */
