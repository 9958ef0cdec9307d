/* The messages that two ends of the provider send each other over a channel. A message begins with
 * a header, and only `endpoint.c` reads and writes it. Numbers are in the order of the machine:
 * addresses of ends contain WIRE_MAGIC, so that ends with another order or version refuse each
 * other. */
#ifndef FARCALL_FABRIC_WIRE_H
#define FARCALL_FABRIC_WIRE_H

#include <stdint.h>

/* The last digit is the version. */
#define WIRE_MAGIC 0x66616631u

/* What a short message counts beside its bytes, when its receiver has to keep it. */
#define WIRE_COST 128

enum wire_kind {
  /* A message of the program, which follows the header. It needs credit at its receiver. */
  WIRE_EAGER = 1,
  /* A message of the program that stays with its sender until a receive wants it. */
  WIRE_OFFER,
  /* The receiver wants the bytes of an offer as WIRE_PART. */
  WIRE_ACCEPT,
  /* The next bytes of an accepted offer, after the control. */
  WIRE_PART,
  /* The receiver has everything that it wants of an offer. */
  WIRE_TAKEN,
  /* Only the header, for the sake of `freed`. */
  WIRE_CREDIT,
};

/* Bits of `flags` of a message of the program. */
#define WIRE_TAGGED 1
#define WIRE_HAS_DATA 2

struct wire_header {
  uint8_t kind;
  uint8_t flags;
  uint16_t unused;
  /* The cost of all eager messages to the sender of this header that it has matched, modulo 2^32.
   * As much can be sent to it again. */
  uint32_t freed;
  uint64_t tag;
  uint64_t data;
};

struct wire_offer {
  struct wire_header header;
  uint64_t bytes;
  /* Where the message is in the process of the sender, for a receiver on the same node. */
  uint64_t address;
  /* A random number of the sender and its place there. It shows that the process is the sender. */
  uint64_t proof;
  uint64_t proof_address;
  int32_t process;
  /* The number of the offer at its sender. */
  uint32_t number;
};

/* WIRE_ACCEPT and WIRE_TAKEN, and the beginning of WIRE_PART. */
struct wire_control {
  struct wire_header header;
  /* The number of the offer at its sender. */
  uint32_t offer;
  /* The number of the accepted offer at its receiver. */
  uint32_t accepted;
  /* The bytes of the offer that its receiver wants. */
  uint64_t wanted;
};

/* The beginning of any message. */
union wire {
  struct wire_header header;
  struct wire_control control;
  struct wire_offer offer;
};

#endif
