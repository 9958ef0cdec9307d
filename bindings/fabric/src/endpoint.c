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
/* `endpoint_close` gives up if nothing has moved for so many seconds. Between two tries, at most
 * so many of them count: the process may be stopped, or wait for a processor. */
#define CLOSING 1.0
#define LONGEST_TRY 0.01
/* Tries in which nothing has moved, after which it sleeps before each one. */
#define BUSY_TRIES 1000

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
  endpoint->part = endpoint->longest - sizeof(struct wire_control);
  if (endpoint->part > PART_BYTES)
    endpoint->part = PART_BYTES;
  endpoint->min_multi = 1024;
  for (int is_tagged = 0; is_tagged < 2; is_tagged++) {
    queue_open(&endpoint->posted[is_tagged]);
    queue_open(&endpoint->unexpected[is_tagged]);
  }
  queue_open(&endpoint->claimed);
  queue_open(&endpoint->active);
  endpoint->inbox = malloc(endpoint->longest);
  endpoint->peers = calloc(endpoint->size, sizeof *endpoint->peers);
  if (endpoint->inbox == NULL || endpoint->peers == NULL ||
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
  say_nothing(endpoint);
  return endpoint;
}

static double seconds(void) {
  struct timespec now;

  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Sends what waits to be sent, until nothing moves any more. */
static void give_away(struct endpoint *endpoint) {
  const struct timespec pause = {.tv_nsec = 1000000};
  double last = seconds(), waited = 0;

  endpoint->quiet = 0;
  while (endpoint->error == 0 && waited < CLOSING &&
         (endpoint->active.first != NULL || !is_table_empty(&endpoint->offered))) {
    double now, passed;

    endpoint_progress(endpoint);
    if (endpoint->quiet < BUSY_TRIES)
      sched_yield();
    else
      nanosleep(&pause, NULL);
    now = seconds();
    passed = now - last < LONGEST_TRY ? now - last : LONGEST_TRY;
    /* The count of quiet tries began anew if anything moved. */
    waited = endpoint->quiet <= 1 ? 0 : waited + passed;
    last = now;
  }
}

void endpoint_close(struct endpoint *endpoint) {
  if (endpoint->size > 0)
    give_away(endpoint);
  changed(endpoint);
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
  free(endpoint);
}

int put(struct endpoint *endpoint, uint32_t rank, void *head, size_t head_count, const void *bytes,
        size_t count) {
  struct peer *peer = &endpoint->peers[rank];
  struct wire_header *header = head;
  int done;

  header->unused = 0;
  header->freed = peer->freed;
  done = farcall_channel_try_send_parts(endpoint->channel, rank, head, head_count, bytes, count);
  if (done < 0)
    return broken(endpoint, rank, farcall_error_message());
  if (done > 0) {
    peer->told = peer->freed;
    changed(endpoint);
  }
  return done;
}

int take_bytes(struct endpoint *endpoint, void *target, size_t count) {
  const struct arrival *arrival = &endpoint->arrival;
  char head[sizeof(struct wire_offer)];
  bool is_whole = count == arrival->count;
  size_t got = 0;

  if (farcall_channel_receive_parts(endpoint->channel, arrival->source, head, arrival->head,
                                    is_whole ? target : endpoint->inbox, arrival->count,
                                    &got) != FARCALL_OK)
    return broken(endpoint, arrival->source, farcall_error_message());
  if (got != arrival->head + arrival->count)
    return broken(endpoint, arrival->source, "a message that has changed");
  if (!is_whole && count > 0)
    memcpy(target, endpoint->inbox, count);
  return 0;
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
    int done = put(endpoint, rank, &now, sizeof now, NULL, 0);

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

static int handle_of_program(struct endpoint *endpoint, uint32_t rank, const union wire *wire) {
  const struct wire_header *header = &wire->header;
  struct message message;

  message.source = rank;
  message.is_tagged = (header->flags & WIRE_TAGGED) != 0;
  message.has_data = (header->flags & WIRE_HAS_DATA) != 0;
  message.is_offer = header->kind == WIRE_OFFER;
  message.tag = header->tag;
  message.data = header->data;
  message.count = message.is_offer ? wire->offer.bytes : endpoint->arrival.count;
  if (message.is_offer)
    message.offer = wire->offer;
  return handle_message(endpoint, &message);
}

/* Bytes of the head of a message, and whether others follow. Returns 0 for an unknown kind. */
static size_t head_of(uint8_t kind, bool *has_more) {
  *has_more = kind == WIRE_EAGER || kind == WIRE_PART;
  switch (kind) {
  case WIRE_EAGER:
  case WIRE_CREDIT:
    return sizeof(struct wire_header);
  case WIRE_OFFER:
    return sizeof(struct wire_offer);
  case WIRE_ACCEPT:
  case WIRE_PART:
  case WIRE_TAKEN:
    return sizeof(struct wire_control);
  default:
    return 0;
  }
}

/* Handles a message of `count` bytes in the channel, whose first bytes are in `wire`. */
static int handle(struct endpoint *endpoint, uint32_t rank, const union wire *wire, size_t count) {
  bool has_more;
  size_t head_count = count < sizeof wire->header ? 0 : head_of(wire->header.kind, &has_more);

  if (head_count == 0 || count < head_count || (!has_more && count != head_count) ||
      count > endpoint->longest)
    return broken(endpoint, rank, "a message of an unknown kind or a wrong size");
  endpoint->arrival =
      (struct arrival){.source = rank, .head = head_count, .count = count - head_count};
  if (handle_freed(endpoint, rank, wire->header.freed) < 0 ||
      (!has_more && take_bytes(endpoint, NULL, 0) < 0))
    return -endpoint->error;
  switch (wire->header.kind) {
  case WIRE_EAGER:
  case WIRE_OFFER:
    return handle_of_program(endpoint, rank, wire);
  case WIRE_ACCEPT:
    return handle_accept(endpoint, rank, &wire->control);
  case WIRE_PART:
    return handle_part(endpoint, rank, &wire->control);
  case WIRE_TAKEN:
    return handle_taken(endpoint, rank, &wire->control);
  default:
    return 0;
  }
}

int endpoint_progress(struct endpoint *endpoint) {
  uint64_t before = endpoint->completions;
  struct queue active;

  /* The program learns at once of an operation that has ended. */
  for (int received = 0;
       received < BATCH && endpoint->error == 0 && endpoint->completions == before; received++) {
    union wire wire;
    int64_t source = -1;
    size_t count = 0;
    int done = farcall_channel_peek(endpoint->channel, &source, &wire, sizeof wire, &count);

    if (done < 0)
      return broken(endpoint, endpoint->rank, farcall_error_message());
    if (done == 0)
      break;
    changed(endpoint);
    handle(endpoint, (uint32_t)source, &wire, count);
  }
  if (endpoint->error != 0)
    return -endpoint->error;
  count_poll(endpoint);
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
