/* See channels.h. Each rank has one queue of messages from all ranks. */
#include "channels.h"

#include <stdlib.h>
#include <string.h>

struct packet {
  struct packet *next;
  uint32_t source;
  size_t count;
  char bytes[];
};

struct farcall_channel {
  uint32_t rank;
  struct packet *first;
  struct packet **end;
  size_t waiting;
  struct said said;
};

static struct farcall_channel channels[MOST_RANKS];
static struct settings now;

uint64_t below(uint64_t bound) {
  now.seed += 0x9e3779b97f4a7c15u;
  uint64_t mixed = (now.seed ^ (now.seed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return (mixed ^ (mixed >> 31)) % bound;
}

void channels_begin(const struct settings *settings) {
  now = *settings;
  for (uint32_t rank = 0; rank < MOST_RANKS; rank++) {
    while (channels[rank].first != NULL) {
      struct packet *packet = channels[rank].first;

      channels[rank].first = packet->next;
      free(packet);
    }
    channels[rank] = (struct farcall_channel){.rank = rank, .end = &channels[rank].first};
  }
}

farcall_channel *channel_of(uint32_t rank) {
  return &channels[rank];
}

void channels_forge(uint32_t source, uint32_t target, const void *bytes, size_t count) {
  struct farcall_channel *channel = &channels[target];
  struct packet *packet = malloc(sizeof *packet + count);

  if (packet == NULL)
    abort();
  packet->next = NULL;
  packet->source = source;
  packet->count = count;
  if (count > 0)
    memcpy(packet->bytes, bytes, count);
  *channel->end = packet;
  channel->end = &packet->next;
  channel->waiting += count;
}

size_t channels_waiting(uint32_t rank) {
  return channels[rank].waiting;
}

const struct said *channels_said(uint32_t rank) {
  return &channels[rank].said;
}

farcall_status farcall_channel_say_wanted(farcall_channel *channel, const farcall_wanted *wanted,
                                          uintptr_t count, int32_t has_others) {
  struct said *said = &channel->said;

  if (count > sizeof said->wanted / sizeof *said->wanted)
    return FARCALL_ARGUMENT;
  said->count = count;
  said->has_others = has_others != 0;
  if (count > 0)
    memcpy(said->wanted, wanted, count * sizeof *wanted);
  return FARCALL_OK;
}

farcall_status farcall_channel_say_polls(farcall_channel *channel, uint64_t polls) {
  channel->said.polls = polls;
  return FARCALL_OK;
}

uintptr_t farcall_channel_rank(const farcall_channel *channel) {
  return channel->rank;
}

uintptr_t farcall_channel_size(const farcall_channel *channel) {
  (void)channel;
  return now.size;
}

uintptr_t farcall_channel_eager_bytes(const farcall_channel *channel) {
  (void)channel;
  return EAGER_BYTES;
}

int32_t farcall_channel_is_local(const farcall_channel *channel, uintptr_t rank) {
  (void)channel;
  return now.is_local && rank < now.size;
}

int32_t farcall_channel_try_send_parts(farcall_channel *channel, uintptr_t target, const void *head,
                                       uintptr_t head_count, const void *bytes, uintptr_t count) {
  static char whole[EAGER_BYTES];
  size_t all = head_count + count;

  if (target >= now.size || head_count > 64 || all > EAGER_BYTES)
    return -1;
  if (below(100) < now.refused)
    return 0;
  if (channels[target].waiting > 0 && channels[target].waiting + all > now.room)
    return 0;
  memcpy(whole, head, head_count);
  if (count > 0)
    memcpy(whole + head_count, bytes, count);
  channels_forge(channel->rank, (uint32_t)target, whole, all);
  return 1;
}

int32_t farcall_channel_peek(farcall_channel *channel, int64_t *source, void *head, uintptr_t room,
                             uintptr_t *count) {
  const struct packet *packet = channel->first;

  if (packet == NULL)
    return 0;
  *source = packet->source;
  *count = packet->count;
  memcpy(head, packet->bytes, packet->count < room ? packet->count : room);
  return 1;
}

farcall_status farcall_channel_receive_parts(farcall_channel *channel, uintptr_t source, void *head,
                                             uintptr_t head_room, void *buffer, uintptr_t room,
                                             uintptr_t *count) {
  struct packet *packet = channel->first;

  if (packet == NULL || packet->source != source || packet->count > head_room + room)
    return FARCALL_ARGUMENT;
  channel->first = packet->next;
  if (channel->first == NULL)
    channel->end = &channel->first;
  channel->waiting -= packet->count;
  *count = packet->count;
  memcpy(head, packet->bytes, head_room < packet->count ? head_room : packet->count);
  if (packet->count > head_room)
    memcpy(buffer, packet->bytes + head_room, packet->count - head_room);
  free(packet);
  return FARCALL_OK;
}

const char *farcall_error_message(void) {
  return "the channel of the test refuses";
}
