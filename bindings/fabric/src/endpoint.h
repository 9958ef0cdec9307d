/* One end of the messages of a process: it matches messages with receives by tag and source, and
 * carries them over a channel. It knows nothing of libfabric: `provider.c` translates.
 *
 * A short message goes at once (eager). Of a long one, the receiver gets an offer and takes the
 * bytes when a receive wants them: from the memory of the sender on the same node, otherwise over
 * the channel. Messages that no receive has matched yet are bounded: each sender has a credit at
 * each receiver, and keeps further messages until there is credit again.
 *
 * One thread at a time may use an endpoint. Nothing here waits, except `endpoint_close`. */
#ifndef FARCALL_FABRIC_ENDPOINT_H
#define FARCALL_FABRIC_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farcall.h"

/* Any rank, as the source of a receive. */
#define ANY_RANK UINT32_MAX

/* A message to send. */
struct outgoing {
  const void *bytes;
  size_t count;
  uint32_t target;
  bool is_tagged;
  bool has_data;
  /* The bytes are the caller's again when `endpoint_send` returns. */
  bool must_copy;
  /* The completion is silent. */
  bool is_silent;
  /* The send completes only when a receive has matched it. */
  bool must_match;
  uint64_t tag;
  uint64_t data;
  void *context;
  /* For the completion. */
  uint64_t flags;
};

/* A buffer in which messages are received. */
struct incoming {
  void *buffer;
  size_t room;
  uint32_t source;
  bool is_tagged;
  /* The buffer takes one message after another, until less than `min_multi` bytes are free. */
  bool is_multi;
  uint64_t tag;
  /* Bits of the tag that do not matter. */
  uint64_t ignore;
  void *context;
  /* For the completion. */
  uint64_t flags;
};

/* The end of an operation. */
struct completion {
  void *context;
  uint64_t flags;
  bool is_send;
  bool is_tagged;
  bool has_data;
  /* The buffer of `is_multi` is the caller's again. */
  bool is_released;
  /* Whether a message came, so that what follows says something. */
  bool is_message;
  /* The program wants to know of this only in numbers. */
  bool is_silent;
  /* 0, or the positive number of an error. */
  int error;
  uint32_t source;
  void *buffer;
  size_t count;
  /* Bytes that did not fit, if the error is EMSGSIZE. */
  size_t excess;
  uint64_t tag;
  uint64_t data;
};

/* What to do with a message that `endpoint_peek` finds. */
enum peek { PEEK_LOOK, PEEK_CLAIM, PEEK_DISCARD };

struct endpoint;

/* Called at the end of each operation. */
typedef void completed(void *owner, const struct completion *completion);

/* Returns NULL if there is not enough memory. The channel stays the caller's. */
struct endpoint *endpoint_open(farcall_channel *channel, completed *completed, void *owner);

/* Gives away what was sent, as far as the receivers take it, and frees the endpoint. */
void endpoint_close(struct endpoint *endpoint);

/* All of these return 0, or a negative number of an error. */

/* EAGAIN: call `endpoint_progress`, and try again. */
int endpoint_send(struct endpoint *endpoint, const struct outgoing *message);
int endpoint_receive(struct endpoint *endpoint, const struct incoming *receive);
/* Looks for a message for `receive`, whose buffer does not matter. It completes with the message,
 * or with ENOMSG. A claimed message waits for `endpoint_receive_claimed` with the same context. */
int endpoint_peek(struct endpoint *endpoint, const struct incoming *receive, enum peek what);
int endpoint_receive_claimed(struct endpoint *endpoint, const struct incoming *receive,
                             bool must_discard);
/* Ends a receive that has no message yet with ECANCELED. */
int endpoint_cancel(struct endpoint *endpoint, void *context);

/* Moves messages as far as is possible without waiting. */
int endpoint_progress(struct endpoint *endpoint);

void endpoint_set_min_multi(struct endpoint *endpoint, size_t bytes);
size_t endpoint_min_multi(const struct endpoint *endpoint);

/* Bytes of messages that no receive has matched. */
size_t endpoint_unexpected(const struct endpoint *endpoint);

#endif
