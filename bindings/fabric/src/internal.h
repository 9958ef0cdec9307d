/* What the files of the endpoint share: `send.c` has messages that go, `receive.c` has messages
 * that come and their receives, `waits.c` says what the process waits for, and `endpoint.c` has the
 * channel. */
#ifndef FARCALL_FABRIC_INTERNAL_H
#define FARCALL_FABRIC_INTERNAL_H

#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "wire.h"

/* The longest eager message. Longer ones cost less as offers. */
#define EAGER_LONGEST 16384
/* Bytes of a part of an offer. The receiver copies one while the sender copies the next. */
#define PART_BYTES 8000
/* The most sends to one peer that wait or are offered. More must wait in the program. */
#define HELD_MOST 65536
/* The most bytes that all sends with copies hold. */
#define COPIES_MOST (64u << 20)
/* The most things that a process says it looks for, and the polls after which it says them. */
#define SAID_MOST 16
#define QUIET_POLLS 256
/* The memory for eager messages from all peers that no receive has matched. */
#define UNEXPECTED_MOST (64u << 20)

struct link {
  struct link *next;
};

/* A list to which items are appended. */
struct queue {
  struct link *first;
  struct link **end;
};

static inline void queue_open(struct queue *queue) {
  queue->first = NULL;
  queue->end = &queue->first;
}

static inline void queue_push(struct queue *queue, struct link *link) {
  link->next = NULL;
  *queue->end = link;
  queue->end = &link->next;
}

/* Removes the item to which `place` points: `first`, or `next` of the item before. */
static inline void queue_remove(struct queue *queue, struct link **place) {
  if (queue->end == &(*place)->next)
    queue->end = place;
  *place = (*place)->next;
}

static inline struct link *queue_pop(struct queue *queue) {
  struct link *first = queue->first;

  if (first != NULL)
    queue_remove(queue, &queue->first);
  return first;
}

/* Things with a number by which the peer names them. */
struct table {
  void **items;
  /* The numbers that are free, as a stack. */
  uint32_t *spare;
  uint32_t spares;
  uint32_t room;
};

/* A message that goes. `bytes` of `what` points to `copy` if it was copied. */
struct send {
  struct link link;
  struct outgoing what;
  /* Its number, if it is offered. */
  uint32_t number;
  /* How its receiver calls it, if that has accepted it, and the bytes that it wants. */
  uint32_t accepted;
  size_t wanted;
  size_t moved;
  char copy[];
};

/* A message that comes, or has come and waits for its receive. */
struct message {
  struct link link;
  uint32_t source;
  bool is_tagged;
  bool has_data;
  bool is_offer;
  uint64_t tag;
  uint64_t data;
  size_t count;
  /* What claimed it. */
  void *context;
  /* Set only if the message is one. */
  struct wire_offer offer;
  char bytes[];
};

struct receive {
  struct link link;
  struct incoming what;
  /* The bytes of a buffer of `is_multi` that have messages, and the offers that write into it. */
  size_t used;
  unsigned streams;
  bool is_retired;
};

/* An accepted offer, whose bytes come over the channel. */
struct stream {
  struct receive *receive;
  struct completion completion;
  size_t moved;
  size_t wanted;
};

/* A control that could not be sent at once. */
struct control {
  struct link link;
  struct wire_control wire;
};

/* A message in the channel, of which only the head was read. */
struct arrival {
  uint32_t source;
  size_t head;
  size_t count;
};

/* What this end knows about another rank. */
struct peer {
  /* Among the active peers. */
  struct link link;
  bool is_active;
  bool is_local;
  /* Whether its memory can be read, and whether it has proved which process it is. */
  bool is_readable;
  bool is_proven;
  /* The cost of eager messages to it, and what it has told of them to have matched. */
  uint32_t sent;
  uint32_t credited;
  /* The cost of eager messages from it that this end has matched, and what it was told. */
  uint32_t freed;
  uint32_t told;
  /* What this end keeps of its messages. */
  uint32_t kept;
  uint32_t offers;
  uint32_t held;
  struct queue controls;
  struct queue sends;
  struct queue streams;
};

struct endpoint {
  farcall_channel *channel;
  completed *completed;
  void *owner;
  uint32_t rank;
  uint32_t size;
  /* 0, or the error because of which nothing works any more. */
  int error;
  /* Operations that have ended with a completion. */
  uint64_t completions;
  struct peer *peers;
  struct queue active;
  /* By `is_tagged`. */
  struct queue posted[2];
  struct queue unexpected[2];
  struct queue claimed;
  struct link *spare_receives;
  struct table offered;
  struct table accepted;
  size_t min_multi;
  size_t copied;
  size_t unexpected_bytes;
  uint32_t window;
  size_t longest;
  size_t eager;
  size_t part;
  /* The message that is handled, if its bytes are still in the channel. */
  struct arrival arrival;
  /* For a message that does not fit where it should go. */
  char *inbox;
  uint64_t proof;
  /* Polls since anything changed, and those in all that the channel was told. */
  uint32_t quiet;
  uint64_t polls;
  /* Whether the channel was told what this process looks for, and nothing has changed since. */
  bool is_said;
  /* The last peek that found nothing, if nothing has changed since. */
  bool has_peeked;
  struct incoming peeked;
};

/* waits.c */

/* The channel was told what this process looks for, and that may be wrong now. */
void say_nothing(struct endpoint *endpoint);
/* Tells the channel how often this process has polled, and what it looks for. */
void say_polls(struct endpoint *endpoint);
/* A peek has found nothing. */
void note_peek(struct endpoint *endpoint, const struct incoming *what);

/* Call this whenever what the process looks for may have changed. */
static inline void changed(struct endpoint *endpoint) {
  endpoint->quiet = 0;
  endpoint->has_peeked = false;
  if (endpoint->is_said)
    say_nothing(endpoint);
}

/* Call this after each look for messages. */
static inline void count_poll(struct endpoint *endpoint) {
  if (++endpoint->quiet % QUIET_POLLS == 0)
    say_polls(endpoint);
}

/* Reports the end of an operation that changes nothing else. */
static inline void tell(struct endpoint *endpoint, const struct completion *completion) {
  endpoint->completions += !completion->is_silent;
  endpoint->completed(endpoint->owner, completion);
}

static inline void report(struct endpoint *endpoint, const struct completion *completion) {
  changed(endpoint);
  tell(endpoint, completion);
}

/* endpoint.c */

/* Gives up: prints why, and returns a negative number. */
int broken(struct endpoint *endpoint, uint32_t rank, const char *why);
/* Returns 1 if a message is in the channel, 0 if it does not fit now, or a negative number. `head`
 * begins with a header. */
int put(struct endpoint *endpoint, uint32_t rank, void *head, size_t head_count, const void *bytes,
        size_t count);
/* Takes the first `count` bytes after the head of the arrival, and forgets the others. */
int take_bytes(struct endpoint *endpoint, void *target, size_t count);
void activate(struct endpoint *endpoint, struct peer *peer);
int send_control(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire);
/* Returns false if there is not enough memory. */
bool table_add(struct table *table, void *item, uint32_t *number);
void *table_get(const struct table *table, uint32_t number);
void table_remove(struct table *table, uint32_t number);
void table_free(struct table *table);

/* send.c */

/* Sends what waits for a peer. Returns 1 if nothing is left, 0 if something is, or a negative
 * number. */
int push(struct endpoint *endpoint, uint32_t rank);
int handle_accept(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire);
int handle_taken(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire);
void free_sends(struct queue *queue);

/* receive.c */

/* Handles a message whose bytes, if it is no offer, are those of the arrival. */
int handle_message(struct endpoint *endpoint, const struct message *message);
/* Handles a part whose bytes are those of the arrival. */
int handle_part(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire);
void free_receives(struct endpoint *endpoint);

#endif
