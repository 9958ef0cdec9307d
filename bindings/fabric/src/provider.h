/* The objects that libfabric knows of this provider. `info.c` says what the provider can do, and
 * `provider.c` opens objects. `transfer.c` has messages and their completions.
 *
 * A process has one end: an endpoint of libfabric over the channel of the gang job that is set
 * aside for the network. The tables of functions say their size, as libfabric wants it, so that
 * versions of libfabric with more functions know which ones are not there. */
#ifndef FARCALL_FABRIC_PROVIDER_H
#define FARCALL_FABRIC_PROVIDER_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#include "endpoint.h"
#include "wire.h"

#define PROVIDER_NAME "farcall"
#define PROVIDER_VERSION FI_VERSION(1, 0)

/* The variable with the number of the channel for the network. */
#define CHANNEL_VARIABLE "FARCALL_FABRIC_CHANNEL"

/* The longest message that a program can inject. */
#define LONGEST_COPY 4096
/* The most places with the bytes of one message to send. */
#define MOST_PARTS 8

/* How a process is found: its rank. */
struct address {
  uint32_t magic;
  uint32_t rank;
};

struct fabric {
  struct fid_fabric fid;
};

struct domain {
  struct fid_domain fid;
  /* Whether several threads may use it at the same time. */
  bool is_shared;
  pthread_mutex_t lock;
  /* The end in it, if there is one. */
  struct end *end;
};

/* The ranks of addresses. The place in the table is the address. */
struct vector {
  struct fid_av fid;
  struct domain *domain;
  uint32_t *ranks;
  size_t count;
  size_t room;
};

/* Completions that the program has not read, as a ring that grows. */
struct completions {
  struct fid_cq fid;
  struct domain *domain;
  enum fi_cq_format format;
  struct completion *items;
  size_t room;
  size_t first;
  size_t count;
};

struct counter {
  struct fid_cntr fid;
  struct domain *domain;
  uint64_t value;
  uint64_t errors;
};

/* Where operations of one direction report. */
struct report {
  struct completions *completions;
  struct counter *counter;
  /* Whether an operation reports only if it asks to. */
  bool is_selective;
  /* Flags of operations that do not say theirs. */
  uint64_t flags;
};

struct end {
  struct fid_ep fid;
  struct domain *domain;
  struct vector *vector;
  struct report sends;
  struct report receives;
  /* Whether receives choose their source. */
  bool is_directed;
  size_t min_multi;
  farcall_channel *channel;
  struct endpoint *endpoint;
};

extern struct fi_ops_msg farcall_msg_ops;
extern struct fi_ops_tagged farcall_tagged_ops;
extern struct fi_ops_cq farcall_cq_ops;
extern struct fi_ops_cntr farcall_cntr_ops;

int farcall_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **info);
/* The channel for the network, or -1 if the process has none. */
int farcall_channel_number(void);
/* Called by the endpoint at the end of an operation. */
void farcall_completed(void *owner, const struct completion *completion);

static inline void enter(struct domain *domain) {
  if (domain->is_shared)
    pthread_mutex_lock(&domain->lock);
}

static inline void leave(struct domain *domain) {
  if (domain->is_shared)
    pthread_mutex_unlock(&domain->lock);
}

#endif
