/* The endpoint and its channel: what comes is checked and handed on, and what could not be sent at
 * once is sent. `internal.h` says what the other files do. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

/* Messages that one call of `endpoint_progress` receives. */
#define BATCH 64
/* Seconds of processor time for which `endpoint_close` tries to give away what was sent. */
#define CLOSING 2

int broken(struct endpoint *endpoint, uint32_t rank, const char *why) {
  fprintf(stderr, "farcall: rank %u, messages with rank %u: %s\n", endpoint->rank, rank, why);
  endpoint->error = EIO;
  return -EIO;
}

bool table_add(struct table *table, void *item, uint32_t *number) {
  if (table->spares == 0) {
    uint32_t room = table->room == 0 ? 64 : table->room * 2;
    void **items = realloc(table->items, room * sizeof *items);
    uint32_t *spare;

    if (items == NULL)
      return false;
    table->items = items;
    spare = realloc(table->spare, room * sizeof *spare);
    if (spare == NULL)
      return false;
    table->spare = spare;
    for (uint32_t next = room; next > table->room; next--) {
      items[next - 1] = NULL;
      spare[table->spares++] = next - 1;
    }
    table->room = room;
  }
  *number = table->spare[--table->spares];
  table->items[*number] = item;
  return true;
}

void *table_get(const struct table *table, uint32_t number) {
  return number < table->room ? table->items[number] : NULL;
}

void table_remove(struct table *table, uint32_t number) {
  table->items[number] = NULL;
  table->spare[table->spares++] = number;
}

void table_free(struct table *table) {
  free(table->items);
  free(table->spare);
}

static bool is_table_empty(const struct table *table) {
  return table->spares == table->room;
}

struct endpoint *endpoint_open(farcall_channel *channel, completed *completed, void *owner) {
  struct endpoint *endpoint = calloc(1, sizeof *endpoint);
  size_t share;

  if (endpoint == NULL)
    return NULL;
  endpoint->channel = channel;
  endpoint->completed = completed;
  endpoint->owner = owner;
  endpoint->rank = (uint32_t)farcall_channel_rank(channel);
  endpoint->size = (uint32_t)farcall_channel_size(channel);
  endpoint->longest = farcall_channel_eager_bytes(channel);
  share = UNEXPECTED_MOST / endpoint->size;
  endpoint->window = share > 1u << 20 ? 1u << 20 : (uint32_t)share;
  endpoint->eager = endpoint->longest - sizeof(struct wire_header);
  if (endpoint->eager > EAGER_LONGEST)
    endpoint->eager = EAGER_LONGEST;
  if (endpoint->eager > endpoint->window / 8)
    endpoint->eager = endpoint->window / 8;
  endpoint->min_multi = 1024;
  for (int is_tagged = 0; is_tagged < 2; is_tagged++) {
    queue_open(&endpoint->posted[is_tagged]);
    queue_open(&endpoint->unexpected[is_tagged]);
  }
  queue_open(&endpoint->claimed);
  queue_open(&endpoint->active);
  endpoint->inbox = malloc(endpoint->longest);
  endpoint->outbox = malloc(endpoint->longest);
  endpoint->peers = calloc(endpoint->size, sizeof *endpoint->peers);
  if (endpoint->inbox == NULL || endpoint->outbox == NULL || endpoint->peers == NULL ||
      getrandom(&endpoint->proof, sizeof endpoint->proof, 0) != (ssize_t)sizeof endpoint->proof) {
    endpoint->size = 0;
    endpoint_close(endpoint);
    return NULL;
  }
  for (uint32_t rank = 0; rank < endpoint->size; rank++) {
    struct peer *peer = &endpoint->peers[rank];

    peer->is_local = farcall_channel_is_local(channel, rank) == 1;
    peer->is_readable = peer->is_local;
    queue_open(&peer->controls);
    queue_open(&peer->sends);
    queue_open(&peer->streams);
  }
  return endpoint;
}

static double processor_time(void) {
  struct timespec now;

  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void endpoint_close(struct endpoint *endpoint) {
  /* The process may be stopped in between, so the time of the clock would say nothing. */
  double end = processor_time() + CLOSING;

  while (endpoint->error == 0 && endpoint->size > 0 && processor_time() < end) {
    if (endpoint->active.first == NULL && is_table_empty(&endpoint->offered))
      break;
    if (endpoint_progress(endpoint) == 0)
      sched_yield();
  }
  for (uint32_t number = 0; number < endpoint->offered.room; number++)
    free(endpoint->offered.items[number]);
  for (uint32_t rank = 0; rank < endpoint->size; rank++) {
    struct peer *peer = &endpoint->peers[rank];

    free_sends(&peer->sends);
    free_sends(&peer->streams);
    for (struct link *link; (link = queue_pop(&peer->controls)) != NULL;)
      free(link);
  }
  free_receives(endpoint);
  table_free(&endpoint->offered);
  table_free(&endpoint->accepted);
  free(endpoint->peers);
  free(endpoint->inbox);
  free(endpoint->outbox);
  free(endpoint);
}

int put(struct endpoint *endpoint, uint32_t rank, void *bytes, size_t count) {
  struct peer *peer = &endpoint->peers[rank];
  struct wire_header *header = bytes;
  int done;

  header->unused = 0;
  header->freed = peer->freed;
  done = farcall_channel_try_send(endpoint->channel, rank, bytes, count);
  if (done < 0)
    return broken(endpoint, rank, farcall_error_message());
  if (done > 0)
    peer->told = peer->freed;
  return done;
}

void activate(struct endpoint *endpoint, struct peer *peer) {
  if (!peer->is_active) {
    peer->is_active = true;
    queue_push(&endpoint->active, &peer->link);
  }
}

int send_control(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire) {
  struct peer *peer = &endpoint->peers[rank];
  struct wire_control now = *wire;
  struct control *control;

  if (peer->controls.first == NULL) {
    int done = put(endpoint, rank, &now, sizeof now);

    if (done != 0)
      return done < 0 ? done : 0;
  }
  control = malloc(sizeof *control);
  if (control == NULL)
    return broken(endpoint, rank, "not enough memory");
  control->wire = *wire;
  queue_push(&peer->controls, &control->link);
  activate(endpoint, peer);
  return 0;
}

/* Learns how much of what was sent the peer has matched. */
static int handle_freed(struct endpoint *endpoint, uint32_t rank, uint32_t freed) {
  struct peer *peer = &endpoint->peers[rank];

  if (freed - peer->credited > peer->sent - peer->credited)
    return broken(endpoint, rank, "it has matched more than was sent");
  peer->credited = freed;
  return 0;
}

static int handle_of_program(struct endpoint *endpoint, uint32_t rank, size_t count) {
  struct wire_header header;
  struct message message = {.source = rank};
  const char *bytes = endpoint->inbox + sizeof header;

  memcpy(&header, endpoint->inbox, sizeof header);
  message.is_tagged = (header.flags & WIRE_TAGGED) != 0;
  message.has_data = (header.flags & WIRE_HAS_DATA) != 0;
  message.tag = header.tag;
  message.data = header.data;
  message.count = count - sizeof header;
  if (header.kind == WIRE_OFFER) {
    if (count != sizeof message.offer)
      return broken(endpoint, rank, "an offer of a wrong size");
    memcpy(&message.offer, endpoint->inbox, sizeof message.offer);
    message.is_offer = true;
    message.count = message.offer.bytes;
  }
  return handle_message(endpoint, &message, bytes);
}

/* Handles the message in the inbox. */
static int handle(struct endpoint *endpoint, uint32_t rank, size_t count) {
  struct wire_header header;
  struct wire_control wire;

  if (count < sizeof header)
    return broken(endpoint, rank, "a message without a header");
  memcpy(&header, endpoint->inbox, sizeof header);
  if (handle_freed(endpoint, rank, header.freed) < 0)
    return -endpoint->error;
  switch (header.kind) {
  case WIRE_EAGER:
  case WIRE_OFFER:
    return handle_of_program(endpoint, rank, count);
  case WIRE_CREDIT:
    return 0;
  case WIRE_ACCEPT:
  case WIRE_PART:
  case WIRE_TAKEN:
    if (count < sizeof wire || (header.kind != WIRE_PART && count != sizeof wire))
      return broken(endpoint, rank, "a control of a wrong size");
    memcpy(&wire, endpoint->inbox, sizeof wire);
    if (header.kind == WIRE_ACCEPT)
      return handle_accept(endpoint, rank, &wire);
    if (header.kind == WIRE_TAKEN)
      return handle_taken(endpoint, rank, &wire);
    return handle_part(endpoint, rank, &wire, endpoint->inbox + sizeof wire, count - sizeof wire);
  default:
    return broken(endpoint, rank, "a message of an unknown kind");
  }
}

int endpoint_progress(struct endpoint *endpoint) {
  struct queue active;

  for (int received = 0; received < BATCH && endpoint->error == 0; received++) {
    int64_t source = -1;
    size_t count = 0;
    int done = farcall_channel_try_receive(endpoint->channel, &source, endpoint->inbox,
                                           endpoint->longest, &count);
    if (done < 0)
      return broken(endpoint, endpoint->rank, farcall_error_message());
    if (done == 0)
      break;
    handle(endpoint, (uint32_t)source, count);
  }
  if (endpoint->error != 0)
    return -endpoint->error;
  if (endpoint->active.first == NULL)
    return 0;
  active = endpoint->active;
  queue_open(&endpoint->active);
  /* The end of the copied list points into the copy. */
  for (struct link *link = active.first, *next; link != NULL; link = next) {
    struct peer *peer = (struct peer *)link;

    next = link->next;
    peer->is_active = false;
    if (push(endpoint, (uint32_t)(peer - endpoint->peers)) == 0)
      activate(endpoint, peer);
  }
  return -endpoint->error;
}

void endpoint_set_min_multi(struct endpoint *endpoint, size_t bytes) {
  endpoint->min_multi = bytes;
}

size_t endpoint_min_multi(const struct endpoint *endpoint) {
  return endpoint->min_multi;
}

size_t endpoint_unexpected(const struct endpoint *endpoint) {
  return endpoint->unexpected_bytes;
}
