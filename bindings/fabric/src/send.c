/* Messages that go: short ones at once, as far as their receiver has credit for them, and others as
 * offers. Those to one peer go in the order in which the program sent them. */
#include "internal.h"

#include <errno.h>
#include <unistd.h>

static void complete(struct endpoint *endpoint, const struct outgoing *what) {
  struct completion completion = {
      .context = what->context,
      .flags = what->flags,
      .is_send = true,
      .is_tagged = what->is_tagged,
      .is_silent = what->is_silent,
      .tag = what->tag,
      .count = what->count,
  };

  report(endpoint, &completion);
}

static void fill(struct wire_header *header, enum wire_kind kind, const struct outgoing *what) {
  header->kind = (uint8_t)kind;
  header->flags =
      (uint8_t)((what->is_tagged ? WIRE_TAGGED : 0) | (what->has_data ? WIRE_HAS_DATA : 0));
  header->tag = what->tag;
  header->data = what->data;
}

static bool is_eager(const struct endpoint *endpoint, const struct outgoing *what) {
  const struct peer *peer = &endpoint->peers[what->target];

  return what->count <= endpoint->eager && !what->must_match &&
         peer->sent - peer->credited + what->count + WIRE_COST <= endpoint->window;
}

/* Sends an eager message. Returns what `put` returns. */
static int put_eager(struct endpoint *endpoint, const struct outgoing *what) {
  struct wire_header header = {0};
  int done;

  fill(&header, WIRE_EAGER, what);
  done = put(endpoint, what->target, &header, sizeof header, what->bytes, what->count);
  if (done > 0)
    endpoint->peers[what->target].sent += (uint32_t)what->count + WIRE_COST;
  return done;
}

/* Offers a message, which stays in the table until its receiver has taken it. */
static int put_offer(struct endpoint *endpoint, struct send *send) {
  struct wire_offer offer = {
      .bytes = send->what.count,
      .address = (uintptr_t)send->what.bytes,
      .proof = endpoint->proof,
      .proof_address = (uintptr_t)&endpoint->proof,
      .process = getpid(),
  };
  int done;

  if (!table_add(&endpoint->offered, send, &send->number))
    return broken(endpoint, send->what.target, "not enough memory");
  offer.number = send->number;
  fill(&offer.header, WIRE_OFFER, &send->what);
  done = put(endpoint, send->what.target, &offer, sizeof offer, NULL, 0);
  if (done <= 0)
    table_remove(&endpoint->offered, send->number);
  return done;
}

static void free_send(struct endpoint *endpoint, struct send *send) {
  endpoint->peers[send->what.target].held--;
  if (send->what.must_copy)
    endpoint->copied -= send->what.count;
  free(send);
}

/* A send that cannot go at once. */
static struct send *keep(struct endpoint *endpoint, const struct outgoing *what) {
  size_t copied = what->must_copy ? what->count : 0;
  struct send *send = malloc(sizeof *send + copied);

  if (send == NULL)
    return NULL;
  memset(send, 0, sizeof *send);
  send->what = *what;
  if (what->must_copy) {
    if (copied > 0)
      memcpy(send->copy, what->bytes, copied);
    send->what.bytes = send->copy;
    endpoint->copied += copied;
  }
  endpoint->peers[what->target].held++;
  return send;
}

int endpoint_send(struct endpoint *endpoint, const struct outgoing *what) {
  struct peer *peer;
  struct send *send;

  if (endpoint->error != 0)
    return -endpoint->error;
  changed(endpoint);
  if (what->target >= endpoint->size)
    return -EINVAL;
  peer = &endpoint->peers[what->target];
  if (peer->sends.first == NULL && is_eager(endpoint, what)) {
    int done = put_eager(endpoint, what);

    if (done != 0) {
      if (done > 0)
        complete(endpoint, what);
      return done < 0 ? done : 0;
    }
  }
  if (peer->held >= HELD_MOST || (what->must_copy && endpoint->copied > COPIES_MOST))
    return -EAGAIN;
  send = keep(endpoint, what);
  if (send == NULL)
    return -ENOMEM;
  queue_push(&peer->sends, &send->link);
  if (!peer->is_active && push(endpoint, what->target) == 0)
    activate(endpoint, peer);
  return -endpoint->error;
}

static int push_controls(struct endpoint *endpoint, uint32_t rank) {
  struct queue *controls = &endpoint->peers[rank].controls;

  while (controls->first != NULL) {
    struct control *control = (struct control *)controls->first;
    int done = put(endpoint, rank, &control->wire, sizeof control->wire, NULL, 0);

    if (done <= 0)
      return done;
    free(queue_pop(controls));
  }
  return 1;
}

static int push_sends(struct endpoint *endpoint, uint32_t rank) {
  struct queue *sends = &endpoint->peers[rank].sends;

  while (sends->first != NULL) {
    struct send *send = (struct send *)sends->first;
    bool now = is_eager(endpoint, &send->what);
    int done = now ? put_eager(endpoint, &send->what) : put_offer(endpoint, send);

    if (done <= 0)
      return done;
    queue_pop(sends);
    if (now) {
      complete(endpoint, &send->what);
      free_send(endpoint, send);
    }
  }
  return 1;
}

static int push_streams(struct endpoint *endpoint, uint32_t rank) {
  struct queue *streams = &endpoint->peers[rank].streams;

  while (streams->first != NULL) {
    struct send *send = (struct send *)streams->first;
    size_t rest = send->wanted - send->moved, now = rest < endpoint->part ? rest : endpoint->part;
    struct wire_control wire = {
        .header.kind = WIRE_PART, .offer = send->number, .accepted = send->accepted};
    const char *bytes = (const char *)send->what.bytes + send->moved;
    int done = put(endpoint, rank, &wire, sizeof wire, bytes, now);

    if (done <= 0)
      return done;
    send->moved += now;
    if (send->moved == send->wanted) {
      queue_pop(streams);
      complete(endpoint, &send->what);
      free_send(endpoint, send);
    }
  }
  return 1;
}

int push(struct endpoint *endpoint, uint32_t rank) {
  struct peer *peer = &endpoint->peers[rank];
  int done = push_controls(endpoint, rank);

  if (done > 0)
    done = push_sends(endpoint, rank);
  if (done > 0)
    done = push_streams(endpoint, rank);
  if (done > 0 && peer->freed - peer->told > endpoint->window / 4) {
    struct wire_header header = {.kind = WIRE_CREDIT};

    done = put(endpoint, rank, &header, sizeof header, NULL, 0);
  }
  return done;
}

/* The offer that a peer names, if it is one to that peer. */
static struct send *offered(struct endpoint *endpoint, uint32_t rank, uint32_t number) {
  struct send *send = table_get(&endpoint->offered, number);

  return send != NULL && send->what.target == rank ? send : NULL;
}

int handle_accept(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire) {
  struct send *send = offered(endpoint, rank, wire->offer);
  struct peer *peer = &endpoint->peers[rank];

  if (send == NULL || wire->wanted == 0 || wire->wanted > send->what.count)
    return broken(endpoint, rank, "it accepts what was not offered");
  table_remove(&endpoint->offered, send->number);
  send->accepted = wire->accepted;
  send->wanted = wire->wanted;
  queue_push(&peer->streams, &send->link);
  activate(endpoint, peer);
  return 0;
}

int handle_taken(struct endpoint *endpoint, uint32_t rank, const struct wire_control *wire) {
  struct send *send = offered(endpoint, rank, wire->offer);

  if (send == NULL)
    return broken(endpoint, rank, "it has taken what was not offered");
  table_remove(&endpoint->offered, send->number);
  complete(endpoint, &send->what);
  free_send(endpoint, send);
  return 0;
}

void free_sends(struct queue *queue) {
  for (struct link *link; (link = queue_pop(queue)) != NULL;)
    free(link);
}
