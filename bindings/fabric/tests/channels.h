/* Channels between endpoints of one process, for tests of endpoints. They keep the order of
 * messages and lose none, and are as full as the test wants. */
#ifndef FARCALL_FABRIC_TESTS_CHANNELS_H
#define FARCALL_FABRIC_TESTS_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "farcall.h"

#define MOST_RANKS 4
/* The longest message. */
#define EAGER_BYTES 24000

struct settings {
  uint32_t size;
  /* Bytes that can wait for a rank. */
  size_t room;
  bool is_local;
  /* In so many of 100 cases there is no room. */
  unsigned refused;
  uint64_t seed;
};

/* What a rank has said that it looks for. */
struct said {
  farcall_wanted wanted[16];
  size_t count;
  bool has_others;
  uint64_t polls;
};

/* Ends all channels, and begins others. */
void channels_begin(const struct settings *settings);
farcall_channel *channel_of(uint32_t rank);
/* Puts any bytes into a channel, as a faulty process could. */
void channels_forge(uint32_t source, uint32_t target, const void *bytes, size_t count);
/* Bytes that wait for a rank. */
size_t channels_waiting(uint32_t rank);
const struct said *channels_said(uint32_t rank);
/* The next random number, which depends on the seed alone. */
uint64_t below(uint64_t bound);

#endif
