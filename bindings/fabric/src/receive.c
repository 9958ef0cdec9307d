/* Messages that come, and the receives that want them. A message goes to the first receive that
 * matches it, and a receive takes the first message that it matches, in the order in which they
 * came. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <sys/uio.h>

/* Bytes that one system call reads from another process. A process cannot be stopped during it. */
#define READ_MOST (1u << 20)
/* Messages in a buffer of `is_multi` begin at multiples of this. */
#define MULTI_ALIGNMENT 16

static bool wants(const struct incoming *what, const struct message *message) {
  return (what->source == ANY_RANK || what->source == message->source) &&
         ((what->tag ^ message->tag) & ~what->ignore) == 0;
}

static struct receive *make_receive(struct endpoint *endpoint, const struct incoming *what) {
  struct receive *receive = (struct receive *)endpoint->spare_receives;

  if (receive != NULL)
    endpoint->spare_receives = receive->link.next;
  else
    receive = malloc(sizeof *receive);
  if (receive == NULL)
    return NULL;
  memset(receive, 0, sizeof *receive);
  receive->what = *what;
  return receive;
}

static void spare(struct endpoint *endpoint, struct receive *receive) {
  receive->link.next = endpoint->spare_receives;
  endpoint->spare_receives = &receive->link;
}

static size_t room_of(const struct receive *receive) {
  return receive->what.room - receive->used;
}

static struct completion completion_of(const struct incoming *what, const struct message *message) {
  struct completion completion = {
      .context = what->context,
      .flags = what->flags,
      .is_tagged = what->is_tagged,
      .has_data = message->has_data,
      .is_message = true,
      .source = message->source,
      .buffer = what->buffer,
      .count = message->count,
      .tag = message->tag,
      .data = message->data,
  };

  return completion;
}

static struct completion completion_without(const struct incoming *what, int error) {
  struct completion completion = {
      .context = what->context,
      .flags = what->flags,
      .is_tagged = what->is_tagged,
      .is_released = what->is_multi,
      .error = error,
      .tag = what->tag,
  };

  return completion;
}

/* Completes a receive without a message. */
static void end(struct endpoint *endpoint, const struct incoming *what, int error) {
  struct completion completion = completion_without(what, error);

  report(endpoint, &completion);
}

/* Completes a receive with a message. A receive that needs no more is no longer there afterwards.
 */
static void finish(struct endpoint *endpoint, struct receive *receive,
                   struct completion *completion) {
  bool is_over = !receive->what.is_multi || (receive->is_retired && receive->streams == 0);

  completion->is_released = receive->what.is_multi && is_over;
  if (is_over)
    spare(endpoint, receive);
  report(endpoint, completion);
}

/* A buffer of `is_multi` that takes no more messages. It is no longer posted. */
static void retire(struct endpoint *endpoint, struct receive *receive) {
  receive->is_retired = true;
  if (receive->streams > 0)
    return;
  end(endpoint, &receive->what, 0);
  spare(endpoint, receive);
}

static void unlink_receive(struct endpoint *endpoint, struct receive *receive) {
  struct queue *posted = &endpoint->posted[receive->what.is_tagged];

  for (struct link **place = &posted->first; *place != NULL; place = &(*place)->next)
    if (*place == &receive->link)
      return queue_remove(posted, place);
}

/* An eager message was matched, so that its sender can send more. */
static void give_back(struct endpoint *endpoint, const struct message *message) {
  struct peer *peer = &endpoint->peers[message->source];

  peer->freed += (uint32_t)message->count + WIRE_COST;
  if (peer->freed - peer->told > endpoint->window / 4)
    activate(endpoint, peer);
}

static int take(struct endpoint *endpoint, const struct message *message) {
  struct wire_control wire = {.header.kind = WIRE_TAKEN, .offer = message->offer.number};

  return send_control(endpoint, message->source, &wire);
}

static bool read_memory(int process, uint64_t address, void *target, size_t count) {
  char *next = target;

  while (count > 0) {
    struct iovec here = {next, count < READ_MOST ? count : READ_MOST};
    struct iovec there = {(void *)(uintptr_t)address, here.iov_len};
    ssize_t got = process_vm_readv(process, &here, 1, &there, 1, 0);

    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    next += got;
    address += (uint64_t)got;
    count -= (size_t)got;
  }
  return true;
}

/* Copies an offered message from the memory of its sender, which may be stopped. */
static bool read_offer(struct endpoint *endpoint, const struct message *message, void *target,
                       size_t count) {
  struct peer *peer = &endpoint->peers[message->source];
  const struct wire_offer *offer = &message->offer;

  if (peer->is_readable && !peer->is_proven) {
    uint64_t proof = 0;

    /* The number of a process means another one in another namespace. */
    peer->is_proven = read_memory(offer->process, offer->proof_address, &proof, sizeof proof) &&
                      proof == offer->proof;
    peer->is_readable = peer->is_proven;
  }
  return peer->is_readable && read_memory(offer->process, offer->address, target, count);
}

/* Asks for the bytes of an offer over the channel. */
static int accept_offer(struct endpoint *endpoint, const struct message *message,
                        struct receive *receive, const struct completion *completion) {
  struct wire_control wire = {.header.kind = WIRE_ACCEPT, .offer = message->offer.number};
  struct stream *stream = calloc(1, sizeof *stream);

  if (stream == NULL || !table_add(&endpoint->accepted, stream, &wire.accepted)) {
    free(stream);
    return broken(endpoint, message->source, "not enough memory");
  }
  stream->receive = receive;
  stream->completion = *completion;
  stream->wanted = completion->count;
  receive->streams++;
  wire.wanted = stream->wanted;
  return send_control(endpoint, message->source, &wire);
}

/* Gives a message to a receive that wants it. Its bytes, if it is no offer, are at `bytes`, or
 * those of the arrival if that is NULL. */
static int deliver(struct endpoint *endpoint, struct receive *receive,
                   const struct message *message, const char *bytes) {
  struct completion completion = completion_of(&receive->what, message);
  size_t room = room_of(receive);

  completion.buffer = (char *)receive->what.buffer + receive->used;
  if (message->count > room) {
    completion.error = EMSGSIZE;
    completion.excess = message->count - room;
    completion.count = room;
  }
  if (receive->what.is_multi) {
    size_t used = (completion.count + MULTI_ALIGNMENT - 1) / MULTI_ALIGNMENT * MULTI_ALIGNMENT;

    receive->used += used < room ? used : room;
    if (room_of(receive) < endpoint->min_multi) {
      unlink_receive(endpoint, receive);
      receive->is_retired = true;
    }
  }
  if (!message->is_offer) {
    if (bytes == NULL && take_bytes(endpoint, completion.buffer, completion.count) < 0)
      return -endpoint->error;
    if (bytes != NULL && completion.count > 0)
      memcpy(completion.buffer, bytes, completion.count);
    give_back(endpoint, message);
  } else if (completion.count > 0 &&
             !read_offer(endpoint, message, completion.buffer, completion.count)) {
    return accept_offer(endpoint, message, receive, &completion);
  } else if (take(endpoint, message) < 0) {
    return -endpoint->error;
  }
  finish(endpoint, receive, &completion);
  return 0;
}

/* Returns the receive for a message, and removes it if it takes no more. */
static struct receive *find_receive(struct endpoint *endpoint, const struct message *message) {
  struct queue *posted = &endpoint->posted[message->is_tagged];

  for (struct link **place = &posted->first; *place != NULL;) {
    struct receive *receive = (struct receive *)*place;

    if (!wants(&receive->what, message)) {
      place = &receive->link.next;
    } else if (!receive->what.is_multi) {
      queue_remove(posted, place);
      return receive;
    } else if (message->count <= room_of(receive) || receive->used == 0) {
      return receive;
    } else {
      queue_remove(posted, place);
      retire(endpoint, receive);
    }
  }
  return NULL;
}

int handle_message(struct endpoint *endpoint, const struct message *message) {
  struct receive *receive = find_receive(endpoint, message);
  struct peer *peer = &endpoint->peers[message->source];
  size_t count = message->is_offer ? 0 : message->count;
  struct message *kept;

  if (receive != NULL)
    return deliver(endpoint, receive, message, NULL);
  if (message->is_offer ? peer->offers >= HELD_MOST
                        : peer->kept + count + WIRE_COST > endpoint->window)
    return broken(endpoint, message->source, "it sends more than it can");
  kept = malloc(sizeof *kept + count);
  if (kept == NULL)
    return broken(endpoint, message->source, "not enough memory");
  memcpy(kept, message, message->is_offer ? sizeof *kept : offsetof(struct message, offer));
  if (!message->is_offer && take_bytes(endpoint, kept->bytes, count) < 0) {
    free(kept);
    return -endpoint->error;
  }
  if (message->is_offer)
    peer->offers++;
  else
    peer->kept += (uint32_t)count + WIRE_COST;
  endpoint->unexpected_bytes += sizeof *kept + count;
  queue_push(&endpoint->unexpected[message->is_tagged], &kept->link);
  return 0;
}

int handle_part(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire) {
  struct stream *stream = table_get(&endpoint->accepted, wire->accepted);
  size_t count = endpoint->arrival.count;

  if (stream == NULL || stream->completion.source != rank || count == 0 ||
      count > stream->wanted - stream->moved)
    return broken(endpoint, rank, "a part of what was not accepted");
  if (take_bytes(endpoint, (char *)stream->completion.buffer + stream->moved, count) < 0)
    return -endpoint->error;
  stream->moved += count;
  if (stream->moved == stream->wanted) {
    table_remove(&endpoint->accepted, wire->accepted);
    stream->receive->streams--;
    finish(endpoint, stream->receive, &stream->completion);
    free(stream);
  }
  return 0;
}

/* The place of the first unexpected message for a receive, or NULL. */
static struct link **find_message(struct endpoint *endpoint, const struct incoming *what) {
  struct link **place = &endpoint->unexpected[what->is_tagged].first;

  for (; *place != NULL; place = &(*place)->next)
    if (wants(what, (struct message *)*place))
      return place;
  return NULL;
}

/* Takes a message out of the unexpected ones. */
static struct message *remove_message(struct endpoint *endpoint, struct link **place) {
  struct message *message = (struct message *)*place;
  struct peer *peer = &endpoint->peers[message->source];

  queue_remove(&endpoint->unexpected[message->is_tagged], place);
  if (message->is_offer) {
    peer->offers--;
    endpoint->unexpected_bytes -= sizeof *message;
  } else {
    peer->kept -= (uint32_t)message->count + WIRE_COST;
    endpoint->unexpected_bytes -= sizeof *message + message->count;
  }
  return message;
}

/* Forgets a message that nobody wants. */
static int discard(struct endpoint *endpoint, struct message *message) {
  int done = 0;

  if (message->is_offer)
    done = take(endpoint, message);
  else
    give_back(endpoint, message);
  free(message);
  return done;
}

int endpoint_receive(struct endpoint *endpoint, const struct incoming *what) {
  struct receive *receive;
  struct link **place;

  if (endpoint->error != 0)
    return -endpoint->error;
  changed(endpoint);
  receive = make_receive(endpoint, what);
  if (receive == NULL)
    return -ENOMEM;
  if (!what->is_multi) {
    struct message *message;
    int done;

    place = find_message(endpoint, what);
    if (place == NULL) {
      queue_push(&endpoint->posted[what->is_tagged], &receive->link);
      return 0;
    }
    message = remove_message(endpoint, place);
    done = deliver(endpoint, receive, message, message->bytes);
    free(message);
    return done;
  }
  queue_push(&endpoint->posted[what->is_tagged], &receive->link);
  while ((place = find_message(endpoint, what)) != NULL) {
    struct message *message = (struct message *)*place;
    /* Earlier receives do not want it, or it would have gone to them. */
    struct receive *taker = find_receive(endpoint, message);
    int done;

    if (taker == NULL)
      break;
    remove_message(endpoint, place);
    done = deliver(endpoint, taker, message, message->bytes);
    free(message);
    if (done < 0)
      return done;
  }
  return 0;
}

int endpoint_peek(struct endpoint *endpoint, const struct incoming *what, enum peek peek) {
  struct link **place = find_message(endpoint, what);
  struct completion completion;
  struct message *message;
  int done = 0;

  if (place == NULL) {
    done = endpoint_progress(endpoint);
    if (done < 0)
      return done;
    place = find_message(endpoint, what);
  }
  if (place == NULL) {
    completion = completion_without(what, ENOMSG);
    note_peek(endpoint, what);
    tell(endpoint, &completion);
    return 0;
  }
  changed(endpoint);
  message = (struct message *)*place;
  completion = completion_of(what, message);
  completion.buffer = NULL;
  if (peek == PEEK_CLAIM) {
    remove_message(endpoint, place);
    message->context = what->context;
    queue_push(&endpoint->claimed, &message->link);
  } else if (peek == PEEK_DISCARD) {
    done = discard(endpoint, remove_message(endpoint, place));
  }
  report(endpoint, &completion);
  return done;
}

int endpoint_receive_claimed(struct endpoint *endpoint, const struct incoming *what,
                             bool must_discard) {
  struct link **place = &endpoint->claimed.first;
  struct completion completion;
  struct receive *receive;
  struct message *message;
  int done;

  while (*place != NULL && ((struct message *)*place)->context != what->context)
    place = &(*place)->next;
  message = (struct message *)*place;
  if (message == NULL)
    return -EINVAL;
  receive = must_discard ? NULL : make_receive(endpoint, what);
  if (receive == NULL && !must_discard)
    return -ENOMEM;
  queue_remove(&endpoint->claimed, place);
  if (must_discard) {
    completion = completion_of(what, message);
    done = discard(endpoint, message);
    report(endpoint, &completion);
    return done;
  }
  done = deliver(endpoint, receive, message, message->bytes);
  free(message);
  return done;
}

int endpoint_cancel(struct endpoint *endpoint, void *context) {
  for (int is_tagged = 0; is_tagged < 2; is_tagged++) {
    struct queue *posted = &endpoint->posted[is_tagged];

    for (struct link **place = &posted->first; *place != NULL; place = &(*place)->next) {
      struct receive *receive = (struct receive *)*place;

      if (receive->what.context != context)
        continue;
      queue_remove(posted, place);
      if (receive->streams > 0) {
        retire(endpoint, receive);
        return 0;
      }
      end(endpoint, &receive->what, ECANCELED);
      spare(endpoint, receive);
      return 0;
    }
  }
  return -ENOENT;
}

void free_receives(struct endpoint *endpoint) {
  struct queue *queues[] = {&endpoint->posted[0], &endpoint->posted[1], &endpoint->unexpected[0],
                            &endpoint->unexpected[1], &endpoint->claimed};
  struct link *link;

  /* The receives of streams first: some of them are posted too, and freed with those. */
  for (uint32_t number = 0; number < endpoint->accepted.room; number++) {
    struct stream *stream = endpoint->accepted.items[number];
    struct receive *receive = stream != NULL ? stream->receive : NULL;

    if (receive != NULL && --receive->streams == 0 &&
        (!receive->what.is_multi || receive->is_retired))
      free(receive);
    free(stream);
  }
  for (size_t number = 0; number < sizeof queues / sizeof *queues; number++)
    while ((link = queue_pop(queues[number])) != NULL)
      free(link);
  while ((link = endpoint->spare_receives) != NULL) {
    endpoint->spare_receives = link->next;
    free(link);
  }
}
