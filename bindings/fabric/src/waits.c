/* What this process looks for, and how often it has looked and found nothing. The gang daemon reads
 * it to tell who waits for whom. It is said only after some polls in which nothing has changed, so
 * that messages that come soon cost nothing. */
#include "internal.h"

/* What the channel is told. */
struct said {
  farcall_wanted all[SAID_MOST];
  size_t count;
  /* Whether there is more than that. */
  bool has_others;
};

static void add(struct said *said, farcall_wanted wanted) {
  if (said->count < SAID_MOST)
    said->all[said->count++] = wanted;
  else
    said->has_others = true;
}

/* MPICH, Intel MPI and Open MPI have their tag in the lower bits of that of libfabric. */
static void add_receive(struct said *said, const struct incoming *what) {
  farcall_wanted wanted = {.rank = what->source == ANY_RANK ? -1 : (int64_t)what->source,
                           .has_tag = what->is_tagged && (uint32_t)what->ignore == 0,
                           .tag = (uint32_t)what->tag};

  add(said, wanted);
}

static void add_send(struct said *said, const struct outgoing *what) {
  farcall_wanted wanted = {.is_send = 1,
                           .rank = what->target,
                           .has_tag = what->is_tagged,
                           .tag = (uint32_t)what->tag};

  add(said, wanted);
}

/* Receives that no message has matched. A buffer of `is_multi` is for messages that MPI sends of
 * its own accord, from anybody. */
static void add_posted(struct said *said, const struct queue *posted) {
  for (const struct link *link = posted->first; link != NULL; link = link->next) {
    const struct incoming *what = &((const struct receive *)link)->what;

    if (what->is_multi)
      said->has_others = true;
    else if (said->has_others && said->count == SAID_MOST)
      return;
    else
      add_receive(said, what);
  }
}

/* Messages of which parts have still to come, and messages that no receive has matched. */
static void add_tables(struct said *said, const struct endpoint *endpoint) {
  for (uint32_t number = 0; number < endpoint->accepted.room; number++) {
    const struct stream *stream = endpoint->accepted.items[number];

    if (stream != NULL)
      add(said, (farcall_wanted){.rank = stream->completion.source,
                                 .has_tag = stream->completion.is_tagged,
                                 .tag = (uint32_t)stream->completion.tag});
  }
  for (uint32_t number = 0; number < endpoint->offered.room; number++) {
    const struct send *send = endpoint->offered.items[number];

    if (send != NULL)
      add_send(said, &send->what);
    if (said->has_others && said->count == SAID_MOST)
      return;
  }
}

/* Everything for which a peer had no space. */
static void add_active(struct said *said, const struct endpoint *endpoint) {
  for (const struct link *link = endpoint->active.first; link != NULL; link = link->next) {
    const struct peer *peer = (const struct peer *)link;
    const struct send *send = (const struct send *)peer->sends.first;

    if (send != NULL)
      add_send(said, &send->what);
    else
      add(said, (farcall_wanted){.is_send = 1, .rank = peer - endpoint->peers});
  }
}

void say_nothing(struct endpoint *endpoint) {
  endpoint->is_said = false;
  farcall_channel_say_wanted(endpoint->channel, NULL, 0, 0);
}

void say_polls(struct endpoint *endpoint) {
  if (!endpoint->is_said) {
    struct said said = {.count = 0};

    if (endpoint->has_peeked)
      add_receive(&said, &endpoint->peeked);
    for (int is_tagged = 1; is_tagged >= 0; is_tagged--)
      add_posted(&said, &endpoint->posted[is_tagged]);
    add_tables(&said, endpoint);
    add_active(&said, endpoint);
    farcall_channel_say_wanted(endpoint->channel, said.all, said.count, said.has_others);
    endpoint->is_said = true;
  }
  endpoint->polls += QUIET_POLLS;
  farcall_channel_say_polls(endpoint->channel, endpoint->polls);
}

void note_peek(struct endpoint *endpoint, const struct incoming *what) {
  const struct incoming *last = &endpoint->peeked;

  if (endpoint->has_peeked && last->source == what->source && last->tag == what->tag &&
      last->ignore == what->ignore && last->is_tagged == what->is_tagged)
    return;
  changed(endpoint);
  endpoint->has_peeked = true;
  endpoint->peeked = *what;
}
