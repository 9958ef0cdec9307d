/* Tests endpoints against each other in one process, over the channels of channels.h: what is
 * delivered, to which receive, in which order, and in how much memory. The sanitizers watch. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "channels.h"
#include "endpoint.h"
#include "internal.h"

#define CHECK(holds) check(holds, #holds, __LINE__)

static const char *test = "";

static void check(bool holds, const char *what, int line) {
  if (holds)
    return;
  printf("%s, line %d: %s\n", test, line, what);
  exit(1);
}

/* ---- The ranks ---- */

#define MOST_COMPLETIONS 100000

struct rank {
  struct endpoint *endpoint;
  /* The completions since the last `forget`. */
  struct completion *completions;
  size_t count;
  size_t silent;
};

static struct rank ranks[MOST_RANKS];
static uint32_t size;

static void note(void *owner, const struct completion *completion) {
  struct rank *rank = owner;

  if (completion->is_silent) {
    rank->silent++;
    return;
  }
  CHECK(rank->count < MOST_COMPLETIONS);
  rank->completions[rank->count++] = *completion;
}

static void begin(const char *name, const struct settings *settings) {
  test = name;
  size = settings->size;
  channels_begin(settings);
  for (uint32_t number = 0; number < size; number++) {
    struct rank *rank = &ranks[number];

    if (rank->completions == NULL)
      rank->completions = malloc(MOST_COMPLETIONS * sizeof *rank->completions);
    CHECK(rank->completions != NULL);
    rank->count = rank->silent = 0;
    rank->endpoint = endpoint_open(channel_of(number), note, rank);
    CHECK(rank->endpoint != NULL);
  }
}

static void progress(void) {
  for (uint32_t number = 0; number < size; number++)
    CHECK(endpoint_progress(ranks[number].endpoint) == 0);
}

/* Until nothing moves any more. */
static void settle(void) {
  for (int turn = 0; turn < 2000; turn++)
    progress();
}

static void finish(void) {
  settle();
  for (uint32_t number = 0; number < size; number++)
    endpoint_close(ranks[number].endpoint);
}

static const struct completion *last(uint32_t rank) {
  CHECK(ranks[rank].count > 0);
  return &ranks[rank].completions[ranks[rank].count - 1];
}

static int send_to(uint32_t from, uint32_t to, const void *bytes, size_t count, uint64_t tag) {
  struct outgoing message = {
      .bytes = bytes, .count = count, .target = to, .is_tagged = true, .tag = tag};

  return endpoint_send(ranks[from].endpoint, &message);
}

static int inject_to(uint32_t from, uint32_t to, const void *bytes, size_t count, uint64_t tag) {
  struct outgoing message = {.bytes = bytes,
                             .count = count,
                             .target = to,
                             .is_tagged = true,
                             .must_copy = true,
                             .is_silent = true,
                             .tag = tag};

  return endpoint_send(ranks[from].endpoint, &message);
}

static struct incoming receive_of(void *buffer, size_t room, uint32_t source, uint64_t tag) {
  struct incoming receive = {
      .buffer = buffer, .room = room, .source = source, .is_tagged = true, .tag = tag};

  return receive;
}

static void receive_at(uint32_t rank, void *buffer, size_t room, uint32_t source, uint64_t tag) {
  struct incoming receive = receive_of(buffer, room, source, tag);

  receive.context = buffer;
  CHECK(endpoint_receive(ranks[rank].endpoint, &receive) == 0);
}

/* ---- Random traffic ---- */

#define MESSAGES 300
#define LONGEST 100000

/* Receives of a group match the same messages, so that each of them gets one: those from one rank
 * with one tag, those from any rank with one tag, and those from any rank with any of four tags. */
enum group { OF_RANK, OF_TAG, OF_TAGS, GROUPS };

struct wanted {
  uint32_t rank;
  enum group group;
  char *buffer;
  bool is_done;
  struct completion done;
};

struct traffic {
  /* The number that the next message of each pair and group has in its data. */
  uint32_t sent[MOST_RANKS][MOST_RANKS][GROUPS];
  uint32_t matched[MOST_RANKS][MOST_RANKS][GROUPS];
  char *sources[MESSAGES];
  struct wanted wanted[MESSAGES];
  size_t received;
  size_t completed_sends;
};

/* The bytes of a message follow from its number, so that each can be checked. */
static void fill(char *bytes, size_t count, uint64_t number) {
  for (size_t place = 0; place < count; place++)
    bytes[place] = (char)(number * 31 + place * 7 + (place >> 8));
}

static char *allocate(size_t bytes) {
  char *made = malloc(bytes + 1);

  CHECK(made != NULL);
  return made;
}

/* Sends a message with its number. Returns whether its send has a completion. */
static bool send_one(struct traffic *traffic, int number, uint32_t from, uint32_t to,
                     enum group group) {
  size_t count = below(4) == 0 ? below(LONGEST) : below(300);
  struct outgoing message = {.count = count,
                             .target = to,
                             .is_tagged = true,
                             .has_data = true,
                             .must_copy = count < 200 && below(2) == 0,
                             .must_match = below(10) == 0,
                             .tag = group * 16 + (group == OF_TAGS ? below(4) : 0),
                             .data = traffic->sent[from][to][group]++};

  message.is_silent = message.must_copy;
  traffic->sources[number] = allocate(count);
  fill(traffic->sources[number], count, message.data);
  message.bytes = traffic->sources[number];
  CHECK(endpoint_send(ranks[from].endpoint, &message) == 0);
  if (message.must_copy)
    memset(traffic->sources[number], 0, count);
  return !message.is_silent;
}

static void want_one(struct traffic *traffic, int number, uint32_t from, uint32_t to,
                     enum group group) {
  struct wanted *wanted = &traffic->wanted[number];
  struct incoming receive = {.room = LONGEST,
                             .source = group == OF_RANK ? from : ANY_RANK,
                             .is_tagged = true,
                             .tag = group * 16,
                             .ignore = group == OF_TAGS ? 3 : 0,
                             .context = wanted};

  wanted->rank = to;
  wanted->group = group;
  wanted->buffer = allocate(LONGEST);
  receive.buffer = wanted->buffer;
  CHECK(endpoint_receive(ranks[to].endpoint, &receive) == 0);
}

static void read_completions(struct traffic *traffic) {
  for (uint32_t rank = 0; rank < size; rank++) {
    for (size_t place = 0; place < ranks[rank].count; place++) {
      const struct completion *done = &ranks[rank].completions[place];
      struct wanted *wanted = done->context;

      CHECK(done->error == 0);
      if (done->is_send) {
        traffic->completed_sends++;
        continue;
      }
      CHECK(wanted->rank == rank && !wanted->is_done && done->is_message && done->has_data);
      wanted->is_done = true;
      wanted->done = *done;
      traffic->received++;
    }
    ranks[rank].count = 0;
  }
}

/* Receives of a group have got the messages of each rank in their order, and all bytes. */
static void check_traffic(struct traffic *traffic) {
  char *bytes = allocate(LONGEST);

  for (int number = 0; number < MESSAGES; number++) {
    struct wanted *wanted = &traffic->wanted[number];
    const struct completion *done = &wanted->done;

    CHECK(done->source < size && done->tag / 16 == wanted->group);
    CHECK(done->data == traffic->matched[done->source][wanted->rank][wanted->group]++);
    fill(bytes, done->count, done->data);
    CHECK(memcmp(bytes, wanted->buffer, done->count) == 0);
    free(wanted->buffer);
    free(traffic->sources[number]);
  }
  free(bytes);
}

static void random_traffic(const struct settings *settings) {
  struct traffic *traffic = calloc(1, sizeof *traffic);
  struct {
    uint32_t from, to;
    enum group group;
  } plan[MESSAGES];
  int sent = 0, wanted = 0;
  size_t sends = 0;

  CHECK(traffic != NULL);
  begin("random traffic", settings);
  for (int number = 0; number < MESSAGES; number++) {
    plan[number].from = (uint32_t)below(size);
    plan[number].to = (uint32_t)below(size);
    plan[number].group = (enum group)below(GROUPS);
  }
  while (sent < MESSAGES || wanted < MESSAGES) {
    if (sent < MESSAGES && (wanted == MESSAGES || below(2) == 0)) {
      sends += send_one(traffic, sent, plan[sent].from, plan[sent].to, plan[sent].group);
      sent++;
    } else {
      want_one(traffic, wanted, plan[wanted].from, plan[wanted].to, plan[wanted].group);
      wanted++;
    }
    if (below(3) == 0)
      progress();
  }
  for (int turn = 0; turn < 200000; turn++) {
    progress();
    read_completions(traffic);
    if (traffic->received == MESSAGES && traffic->completed_sends == sends)
      break;
  }
  CHECK(traffic->received == MESSAGES && traffic->completed_sends == sends);
  check_traffic(traffic);
  for (uint32_t rank = 0; rank < size; rank++)
    CHECK(endpoint_unexpected(ranks[rank].endpoint) == 0);
  finish();
  free(traffic);
}

/* ---- One thing each ---- */

static const struct settings near = {.size = 2, .room = 65536, .is_local = true, .seed = 1};
static const struct settings far = {.size = 2, .room = 65536, .seed = 1};

static void a_buffer_takes_many_messages(void) {
  static char buffer[4096], bytes[1000];
  struct incoming receive = {
      .buffer = buffer, .room = sizeof buffer, .source = ANY_RANK, .is_multi = true, .ignore = ~0u};
  struct outgoing message = {.bytes = bytes, .count = sizeof bytes, .target = 1};
  size_t got = 0, released = 0;

  begin("multi receive", &near);
  endpoint_set_min_multi(ranks[1].endpoint, 1000);
  /* The first message is there before the buffer. */
  for (int number = 0; number < 5; number++) {
    memset(bytes, number + 1, sizeof bytes);
    message.must_match = number == 2;
    CHECK(endpoint_send(ranks[0].endpoint, &message) == 0);
    settle();
    if (number == 0)
      CHECK(endpoint_receive(ranks[1].endpoint, &receive) == 0);
  }
  for (size_t place = 0; place < ranks[1].count; place++) {
    const struct completion *done = &ranks[1].completions[place];

    released += done->is_released;
    if (!done->is_message)
      continue;
    got++;
    CHECK(done->count == sizeof bytes && ((char *)done->buffer)[999] == (char)got);
  }
  /* The buffer has no room for the fifth. */
  CHECK(got == 4 && released == 1 && endpoint_unexpected(ranks[1].endpoint) > 0);
  CHECK(endpoint_receive(ranks[1].endpoint, &receive) == 0);
  CHECK(last(1)->is_message && last(1)->count == sizeof bytes && buffer[0] == 5);
  finish();
}

static void a_message_is_found_and_claimed(void) {
  char bytes[] = "hello", buffer[16] = "";
  struct incoming receive = receive_of(NULL, 0, ANY_RANK, 7);

  begin("peek", &near);
  receive.context = buffer;
  CHECK(endpoint_peek(ranks[1].endpoint, &receive, PEEK_LOOK) == 0 && last(1)->error == ENOMSG);
  CHECK(inject_to(0, 1, bytes, sizeof bytes, 7) == 0 && inject_to(0, 1, "x", 2, 7) == 0);
  CHECK(endpoint_peek(ranks[1].endpoint, &receive, PEEK_LOOK) == 0);
  CHECK(last(1)->error == 0 && last(1)->count == sizeof bytes && last(1)->source == 0);
  CHECK(endpoint_peek(ranks[1].endpoint, &receive, PEEK_CLAIM) == 0);
  CHECK(last(1)->count == sizeof bytes);
  /* A claimed message is only for its claim. */
  receive_at(1, buffer + 8, 8, 0, 7);
  CHECK(last(1)->count == 2 && buffer[8] == 'x');
  receive.buffer = buffer;
  receive.room = 8;
  CHECK(endpoint_receive_claimed(ranks[1].endpoint, &receive, false) == 0);
  CHECK(strcmp(buffer, "hello") == 0);
  CHECK(endpoint_receive_claimed(ranks[1].endpoint, &receive, false) == -EINVAL);
  CHECK(inject_to(0, 1, bytes, sizeof bytes, 7) == 0);
  CHECK(endpoint_peek(ranks[1].endpoint, &receive, PEEK_DISCARD) == 0);
  CHECK(endpoint_unexpected(ranks[1].endpoint) == 0);
  finish();
}

static void a_receive_is_cancelled(void) {
  char buffer[8];

  begin("cancel", &near);
  receive_at(1, buffer, sizeof buffer, ANY_RANK, 1);
  CHECK(endpoint_cancel(ranks[1].endpoint, buffer) == 0);
  CHECK(last(1)->error == ECANCELED && last(1)->context == buffer);
  CHECK(endpoint_cancel(ranks[1].endpoint, buffer) == -ENOENT);
  CHECK(inject_to(0, 1, "abc", 4, 1) == 0);
  settle();
  CHECK(ranks[1].count == 1 && endpoint_unexpected(ranks[1].endpoint) > 0);
  finish();
}

static void a_long_message_is_cut_to_its_buffer(const struct settings *settings) {
  static char bytes[50000], buffer[50000];

  begin("truncation", settings);
  memset(bytes, 3, sizeof bytes);
  memset(buffer, 0, sizeof buffer);
  for (size_t count = 100; count <= sizeof bytes; count += sizeof bytes - 100) {
    receive_at(1, buffer, 60, 0, 1);
    CHECK(send_to(0, 1, bytes, count, 1) == 0);
    settle();
    CHECK(last(1)->error == EMSGSIZE && last(1)->count == 60 && last(1)->excess == count - 60);
    CHECK(buffer[59] == 3 && buffer[60] == 0 && last(0)->is_send);
  }
  CHECK(ranks[0].count == 2);
  finish();
}

static void a_send_completes_at_its_match_if_it_must(void) {
  char buffer[8];
  struct outgoing message = {
      .bytes = "abc", .count = 4, .target = 1, .is_tagged = true, .must_match = true, .tag = 1};

  begin("match", &near);
  CHECK(endpoint_send(ranks[0].endpoint, &message) == 0);
  settle();
  CHECK(ranks[0].count == 0);
  receive_at(1, buffer, sizeof buffer, ANY_RANK, 1);
  settle();
  CHECK(ranks[0].count == 1 && strcmp(buffer, "abc") == 0);
  finish();
}

/* However much a rank sends, its receiver keeps a bounded part, and what the sender must keep is
 * bounded too. All of it arrives in order when it is wanted. */
static void a_flood_is_bounded(const struct settings *settings) {
  static char bytes[1000], buffer[1000];
  uint32_t sent = 0, done = 0;

  begin("flood", settings);
  for (int refused = 0; refused < 3; sent++) {
    int result;

    memcpy(bytes, &sent, sizeof sent);
    result = inject_to(0, 1, bytes, sizeof bytes, 1);
    CHECK(result == 0 || result == -EAGAIN);
    if (result == -EAGAIN) {
      sent--;
      refused++;
    }
    progress();
    CHECK(sent < 10000000);
  }
  CHECK(sent > 60000);
  CHECK(endpoint_unexpected(ranks[1].endpoint) < (32u << 20));
  while (done < sent) {
    uint32_t number;

    receive_at(1, buffer, sizeof buffer, 0, 1);
    for (int turn = 0; turn < 100000 && ranks[1].count == 0; turn++)
      progress();
    CHECK(ranks[1].count == 1 && last(1)->error == 0 && last(1)->count == sizeof buffer);
    memcpy(&number, buffer, sizeof number);
    CHECK(number == done++);
    ranks[1].count = 0;
  }
  settle();
  CHECK(endpoint_unexpected(ranks[1].endpoint) == 0 && ranks[0].endpoint->copied == 0);
  /* They have no completions, but counters count them. */
  CHECK(ranks[0].silent == sent && ranks[0].count == 0);
  finish();
}

/* What the program has sent is given away at the end, although the channel is full. */
static void the_last_messages_arrive(void) {
  static char bytes[1000], buffer[1000];
  struct settings small = {.size = 2, .room = 3000, .is_local = true, .seed = 5};
  size_t sent = 20;

  begin("close", &small);
  for (size_t number = 0; number < sent; number++)
    CHECK(inject_to(0, 1, bytes, sizeof bytes, 1) == 0);
  /* Rank 1 does not move. Closing gives up after some time, but what is in the channel is there. */
  endpoint_close(ranks[0].endpoint);
  receive_at(1, buffer, sizeof buffer, 0, 1);
  for (int turn = 0; turn < 100; turn++)
    CHECK(endpoint_progress(ranks[1].endpoint) == 0);
  CHECK(ranks[1].count == 1);
  endpoint_close(ranks[1].endpoint);
}

/* A buffer for several messages has one that is still coming when its endpoint is closed. */
static void an_endpoint_is_closed_while_messages_come(void) {
  static char bytes[30000], buffer[70000];
  struct outgoing message = {.bytes = bytes, .count = sizeof bytes, .target = 1};
  struct incoming multi = {
      .buffer = buffer, .source = ANY_RANK, .is_multi = true, .ignore = UINT64_MAX};
  const size_t rooms[] = {sizeof buffer, sizeof bytes};

  for (size_t number = 0; number < 2; number++) {
    begin("close while messages come", &far);
    multi.room = rooms[number];
    CHECK(endpoint_receive(ranks[1].endpoint, &multi) == 0);
    CHECK(endpoint_send(ranks[0].endpoint, &message) == 0);
    CHECK(endpoint_progress(ranks[1].endpoint) == 0);
    CHECK(channels_waiting(0) > 0 && ranks[1].count == 0);
    for (uint32_t rank = 0; rank < size; rank++)
      endpoint_close(ranks[rank].endpoint);
  }
}

/* Whatever a faulty process writes into the channel, nothing crashes, and what does not make sense
 * is an error. */
static void forged_messages_do_no_harm(uint64_t seed) {
  struct settings settings = {.size = 3, .room = 65536, .is_local = seed % 2, .seed = seed};
  static char bytes[30000], buffer[30000], packet[EAGER_BYTES];
  struct outgoing message = {
      .bytes = bytes, .count = sizeof bytes, .target = 2, .must_match = true};
  int error = 0;

  begin("forgery", &settings);
  for (int number = 0; number < 50 && error == 0; number++) {
    struct wire_control *wire = (struct wire_control *)packet;
    size_t count = below(3) == 0 ? below(sizeof packet) : below(80);

    for (size_t place = 0; place < 80; place++)
      packet[place] = (char)below(256);
    if (below(10) != 0) {
      wire->header.kind = (uint8_t)(WIRE_EAGER + below(6));
      wire->header.freed = 0;
      wire->header.tag = below(4);
      wire->offer = (uint32_t)below(3);
      wire->accepted = (uint32_t)below(3);
      wire->wanted = below(40000);
      count = wire->header.kind == WIRE_OFFER  ? sizeof(struct wire_offer)
              : wire->header.kind == WIRE_PART ? sizeof *wire + below(20000)
                                               : sizeof *wire;
    }
    channels_forge((uint32_t)below(3), 2, packet, count);
    if (below(2) == 0) {
      struct incoming receive = receive_of(buffer, below(sizeof buffer), ANY_RANK, below(4));

      receive.is_tagged = below(2) == 0;
      error = endpoint_receive(ranks[2].endpoint, &receive);
    }
    if (error == 0 && below(2) == 0)
      error = endpoint_send(ranks[2].endpoint, &message);
    if (error == 0)
      error = endpoint_progress(ranks[2].endpoint);
  }
  CHECK(error == 0 || error == -EIO);
  CHECK(error == 0 || endpoint_send(ranks[2].endpoint, &message) == -EIO);
  for (uint32_t number = 0; number < size; number++) {
    ranks[number].endpoint->error = EIO;
    endpoint_close(ranks[number].endpoint);
  }
}

/* ---- What a rank says that it looks for ---- */

static void poll_quietly(uint32_t rank, int polls) {
  for (int poll = 0; poll < polls; poll++)
    CHECK(endpoint_progress(ranks[rank].endpoint) == 0);
}

static bool says(uint32_t rank, size_t place, farcall_wanted wanted) {
  const struct said *said = channels_said(rank);
  const farcall_wanted *found = &said->wanted[place];

  return place < said->count && found->is_send == wanted.is_send && found->rank == wanted.rank &&
         found->has_tag == wanted.has_tag && (wanted.has_tag == 0 || found->tag == wanted.tag);
}

static void a_rank_says_what_it_looks_for_while_it_is_quiet(void) {
  static char here[3][8];
  struct incoming any = receive_of(here[1], 8, ANY_RANK, 0);
  const struct said *said = channels_said(1);

  begin("said receives", &near);
  receive_at(1, here[0], 8, 0, 7);
  any.ignore = UINT64_MAX;
  CHECK(endpoint_receive(ranks[1].endpoint, &any) == 0);
  poll_quietly(1, QUIET_POLLS - 1);
  CHECK(said->count == 0 && said->polls == 0);
  poll_quietly(1, 1);
  CHECK(said->count == 2 && !said->has_others && said->polls == QUIET_POLLS);
  CHECK(says(1, 0, (farcall_wanted){.rank = 0, .has_tag = 1, .tag = 7}));
  CHECK(says(1, 1, (farcall_wanted){.rank = -1}));
  poll_quietly(1, 3 * QUIET_POLLS);
  CHECK(said->count == 2 && said->polls == 4 * QUIET_POLLS);
  /* Another receive, and a message that comes, end the silence at once. */
  receive_at(1, here[2], 8, 0, 9);
  CHECK(said->count == 0);
  poll_quietly(1, QUIET_POLLS);
  CHECK(said->count == 3 && says(1, 2, (farcall_wanted){.rank = 0, .has_tag = 1, .tag = 9}));
  CHECK(inject_to(0, 1, "x", 2, 7) == 0);
  poll_quietly(1, 1);
  CHECK(said->count == 0 && here[0][0] == 'x');
  poll_quietly(1, QUIET_POLLS);
  CHECK(said->count == 2 && endpoint_cancel(ranks[1].endpoint, here[2]) == 0 && said->count == 0);
  finish();
  CHECK(said->count == 0 && !said->has_others);
}

static void sends_that_nobody_takes_are_said(void) {
  static char bytes[LONGEST], here[LONGEST];
  const struct settings full = {.size = 2, .room = 65536, .refused = 100, .seed = 1};
  farcall_wanted send = {.is_send = 1, .rank = 1, .has_tag = 1, .tag = 5};

  begin("said sends", &far);
  CHECK(send_to(0, 1, bytes, sizeof bytes, 5) == 0);
  poll_quietly(0, QUIET_POLLS);
  CHECK(channels_said(0)->count == 1 && says(0, 0, send));
  /* Its receiver has accepted it, and waits for its parts. */
  receive_at(1, here, sizeof here, 0, 5);
  poll_quietly(1, QUIET_POLLS + 1);
  CHECK(says(1, 0, (farcall_wanted){.rank = 0, .has_tag = 1, .tag = 5}));
  settle();
  CHECK(last(1)->count == sizeof bytes && channels_said(0)->count == 0);
  finish();
  begin("said without space", &full);
  CHECK(inject_to(0, 1, bytes, 8, 5) == 0);
  poll_quietly(0, QUIET_POLLS);
  CHECK(channels_said(0)->count == 1 && says(0, 0, send));
  for (uint32_t rank = 0; rank < size; rank++)
    endpoint_close(ranks[rank].endpoint);
}

static void a_rank_that_peeks_says_so(void) {
  struct incoming peeks[] = {receive_of(NULL, 0, 0, 3), receive_of(NULL, 0, ANY_RANK, 4)};
  const struct said *said = channels_said(1);

  begin("said peeks", &near);
  for (int poll = 0; poll < 2 * QUIET_POLLS; poll++)
    CHECK(endpoint_peek(ranks[1].endpoint, &peeks[0], PEEK_LOOK) == 0);
  CHECK(said->count == 1 && says(1, 0, (farcall_wanted){.rank = 0, .has_tag = 1, .tag = 3}));
  /* Who looks for one message and another is not quiet. */
  for (int poll = 0; poll < 2 * QUIET_POLLS; poll++)
    CHECK(endpoint_peek(ranks[1].endpoint, &peeks[poll % 2], PEEK_LOOK) == 0);
  CHECK(said->count == 0);
  finish();
}

static void what_a_rank_says_is_bounded(void) {
  static char here[8];
  struct incoming multi = {
      .buffer = here, .room = 8, .source = ANY_RANK, .is_multi = true, .ignore = UINT64_MAX};
  const struct said *said = channels_said(1);

  begin("said others", &near);
  endpoint_set_min_multi(ranks[1].endpoint, 1);
  CHECK(endpoint_receive(ranks[1].endpoint, &multi) == 0);
  poll_quietly(1, QUIET_POLLS);
  CHECK(said->count == 0 && said->has_others);
  finish();
  begin("said too many", &near);
  for (int number = 0; number < SAID_MOST; number++)
    receive_at(1, here, 8, 0, (uint64_t)number);
  poll_quietly(1, QUIET_POLLS);
  CHECK(said->count == SAID_MOST && !said->has_others);
  receive_at(1, here, 8, 0, SAID_MOST);
  poll_quietly(1, QUIET_POLLS);
  CHECK(said->count == SAID_MOST && said->has_others);
  finish();
}

int main(void) {
  uint64_t seeds =
      getenv("FARCALL_SEEDS") != NULL ? strtoull(getenv("FARCALL_SEEDS"), NULL, 10) : 20;

  a_buffer_takes_many_messages();
  a_message_is_found_and_claimed();
  a_receive_is_cancelled();
  a_long_message_is_cut_to_its_buffer(&near);
  a_long_message_is_cut_to_its_buffer(&far);
  a_send_completes_at_its_match_if_it_must();
  a_flood_is_bounded(&near);
  a_flood_is_bounded(&far);
  the_last_messages_arrive();
  an_endpoint_is_closed_while_messages_come();
  a_rank_says_what_it_looks_for_while_it_is_quiet();
  sends_that_nobody_takes_are_said();
  a_rank_that_peeks_says_so();
  what_a_rank_says_is_bounded();
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    struct settings settings = {.size = 1 + (uint32_t)(seed % MOST_RANKS),
                                .room = seed % 3 == 0 ? 100 : 65536,
                                .is_local = seed % 2 == 0,
                                .refused = seed % 5 == 0 ? 60 : 0,
                                .seed = seed};

    random_traffic(&settings);
  }
  /* Each forgery prints why it is refused. */
  CHECK(getenv("FARCALL_SHOW") != NULL || freopen("/dev/null", "w", stderr) != NULL);
  for (uint64_t seed = 1; seed <= 100 * seeds; seed++)
    forged_messages_do_no_harm(seed);
  for (uint32_t number = 0; number < MOST_RANKS; number++)
    free(ranks[number].completions);
  channels_begin(&near);
  printf("all is well\n");
  return 0;
}
