/* Opens the objects of libfabric, binds them to each other, and closes them. libfabric finds
 * `fi_prov_ini` in this library and calls it. Nothing of libfabric is linked, so that any version
 * of it can load this. */
#define _GNU_SOURCE
#include "provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static int cannot_bind(struct fid *fid, struct fid *other, uint64_t flags) {
  (void)fid;
  (void)other;
  (void)flags;
  return -FI_ENOSYS;
}

static int cannot_control(struct fid *fid, int command, void *argument) {
  (void)fid;
  (void)command;
  (void)argument;
  return -FI_ENOSYS;
}

static int cannot_open_ops(struct fid *fid, const char *name, uint64_t flags, void **ops,
                           void *context) {
  (void)fid;
  (void)name;
  (void)flags;
  (void)ops;
  (void)context;
  return -FI_ENOSYS;
}

/* ---- Address vectors ---- */

static int close_vector(struct fid *fid) {
  struct vector *vector = (struct vector *)fid;

  free(vector->ranks);
  free(vector);
  return 0;
}

static int insert(struct fid_av *av, const void *addresses, size_t count, fi_addr_t *found,
                  uint64_t flags, void *context) {
  struct vector *vector = (struct vector *)av;
  const char *next = addresses;
  int inserted = 0;

  (void)context;
  enter(vector->domain);
  for (size_t number = 0; number < count; number++, next += sizeof(struct address)) {
    struct address address;
    int error = 0;

    memcpy(&address, next, sizeof address);
    if (vector->count == vector->room) {
      size_t room = vector->room == 0 ? 64 : vector->room * 2;
      uint32_t *ranks = realloc(vector->ranks, room * sizeof *ranks);

      if (ranks != NULL) {
        vector->ranks = ranks;
        vector->room = room;
      } else {
        error = FI_ENOMEM;
      }
    }
    if (address.magic != WIRE_MAGIC)
      error = FI_EINVAL;
    if (found != NULL)
      found[number] = error == 0 ? vector->count : FI_ADDR_NOTAVAIL;
    if ((flags & FI_SYNC_ERR) != 0 && context != NULL)
      ((int *)context)[number] = error;
    if (error == 0) {
      vector->ranks[vector->count++] = address.rank;
      inserted++;
    }
  }
  leave(vector->domain);
  return inserted;
}

static int remove_addresses(struct fid_av *av, fi_addr_t *addresses, size_t count, uint64_t flags) {
  (void)av;
  (void)addresses;
  (void)count;
  (void)flags;
  return 0;
}

static int lookup(struct fid_av *av, fi_addr_t which, void *address, size_t *bytes) {
  struct vector *vector = (struct vector *)av;
  struct address found = {.magic = WIRE_MAGIC};

  if (which >= vector->count)
    return -FI_EINVAL;
  found.rank = vector->ranks[which];
  memcpy(address, &found, *bytes < sizeof found ? *bytes : sizeof found);
  *bytes = sizeof found;
  return 0;
}

static const char *address_text(struct fid_av *av, const void *address, char *text, size_t *bytes) {
  struct address found;

  (void)av;
  memcpy(&found, address, sizeof found);
  *bytes = (size_t)snprintf(text, *bytes, "farcall rank %u", found.rank) + 1;
  return text;
}

static struct fi_ops vector_fid = {.size = sizeof(struct fi_ops),
                                   .close = close_vector,
                                   .bind = cannot_bind,
                                   .control = cannot_control,
                                   .ops_open = cannot_open_ops};
static struct fi_ops_av vector_ops = {.size = sizeof(struct fi_ops_av),
                                      .insert = insert,
                                      .remove = remove_addresses,
                                      .lookup = lookup,
                                      .straddr = address_text};

static int open_vector(struct fid_domain *domain, struct fi_av_attr *attr, struct fid_av **av,
                       void *context) {
  struct vector *vector;

  if (attr != NULL && attr->name != NULL)
    return -FI_ENOSYS;
  vector = calloc(1, sizeof *vector);
  if (vector == NULL)
    return -FI_ENOMEM;
  vector->fid.fid = (struct fid){.fclass = FI_CLASS_AV, .context = context, .ops = &vector_fid};
  vector->fid.ops = &vector_ops;
  vector->domain = (struct domain *)domain;
  if (attr != NULL && attr->type == FI_AV_UNSPEC)
    attr->type = FI_AV_TABLE;
  *av = &vector->fid;
  return 0;
}

/* ---- Completion queues and counters ---- */

static int close_completions(struct fid *fid) {
  struct completions *completions = (struct completions *)fid;

  free(completions->items);
  free(completions);
  return 0;
}

static struct fi_ops completions_fid = {.size = sizeof(struct fi_ops),
                                        .close = close_completions,
                                        .bind = cannot_bind,
                                        .control = cannot_control,
                                        .ops_open = cannot_open_ops};

static int open_completions(struct fid_domain *domain, struct fi_cq_attr *attr, struct fid_cq **cq,
                            void *context) {
  struct completions *completions;

  if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
    return -FI_ENOSYS;
  completions = calloc(1, sizeof *completions);
  if (completions == NULL)
    return -FI_ENOMEM;
  completions->fid.fid =
      (struct fid){.fclass = FI_CLASS_CQ, .context = context, .ops = &completions_fid};
  completions->fid.ops = &farcall_cq_ops;
  completions->domain = (struct domain *)domain;
  completions->format = attr->format == FI_CQ_FORMAT_UNSPEC ? FI_CQ_FORMAT_CONTEXT : attr->format;
  *cq = &completions->fid;
  return 0;
}

static int close_counter(struct fid *fid) {
  free(fid);
  return 0;
}

static struct fi_ops counter_fid = {.size = sizeof(struct fi_ops),
                                    .close = close_counter,
                                    .bind = cannot_bind,
                                    .control = cannot_control,
                                    .ops_open = cannot_open_ops};

static int open_counter(struct fid_domain *domain, struct fi_cntr_attr *attr,
                        struct fid_cntr **cntr, void *context) {
  struct counter *counter;

  if (attr != NULL && attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
    return -FI_ENOSYS;
  counter = calloc(1, sizeof *counter);
  if (counter == NULL)
    return -FI_ENOMEM;
  counter->fid.fid = (struct fid){.fclass = FI_CLASS_CNTR, .context = context, .ops = &counter_fid};
  counter->fid.ops = &farcall_cntr_ops;
  counter->domain = (struct domain *)domain;
  *cntr = &counter->fid;
  return 0;
}

/* ---- The end ---- */

static int close_end(struct fid *fid) {
  struct end *end = (struct end *)fid;

  enter(end->domain);
  if (end->endpoint != NULL)
    endpoint_close(end->endpoint);
  farcall_channel_close(end->channel);
  end->domain->end = NULL;
  leave(end->domain);
  free(end);
  return 0;
}

static void bind_report(struct report *report, struct completions *completions, uint64_t flags) {
  report->completions = completions;
  report->is_selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
}

static int bind_end(struct fid *fid, struct fid *other, uint64_t flags) {
  struct end *end = (struct end *)fid;

  switch (other->fclass) {
  case FI_CLASS_AV:
    end->vector = (struct vector *)other;
    return 0;
  case FI_CLASS_CQ:
    if ((flags & FI_TRANSMIT) != 0)
      bind_report(&end->sends, (struct completions *)other, flags);
    if ((flags & FI_RECV) != 0)
      bind_report(&end->receives, (struct completions *)other, flags);
    return 0;
  case FI_CLASS_CNTR:
    if ((flags & FI_SEND) != 0)
      end->sends.counter = (struct counter *)other;
    if ((flags & FI_RECV) != 0)
      end->receives.counter = (struct counter *)other;
    return 0;
  default:
    return -FI_ENOSYS;
  }
}

static int enable(struct end *end) {
  int number = farcall_channel_number();

  if (end->vector == NULL)
    return -FI_ENOAV;
  end->channel = number < 0 ? NULL : farcall_channel_open((uint8_t)number);
  if (end->channel == NULL) {
    fprintf(stderr, "farcall: the network of MPI: %s\n", farcall_error_message());
    return -FI_ENODEV;
  }
  end->endpoint = endpoint_open(end->channel, farcall_completed, end);
  if (end->endpoint == NULL) {
    /* Otherwise the channel could not be opened again. */
    farcall_channel_close(end->channel);
    end->channel = NULL;
    return -FI_ENOMEM;
  }
  endpoint_set_min_multi(end->endpoint, end->min_multi);
  /* Where Yama restricts it, the other processes of the user may read this one's messages. */
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  return 0;
}

static int control_end(struct fid *fid, int command, void *argument) {
  struct end *end = (struct end *)fid;
  int done;

  (void)argument;
  if (command != FI_ENABLE)
    return -FI_ENOSYS;
  enter(end->domain);
  done = end->endpoint != NULL ? 0 : enable(end);
  leave(end->domain);
  return done;
}

static int get_name(fid_t fid, void *address, size_t *bytes) {
  struct end *end = (struct end *)fid;
  struct address own = {.magic = WIRE_MAGIC};
  size_t room = *bytes;

  *bytes = sizeof own;
  if (end->channel == NULL)
    return -FI_EOPBADSTATE;
  own.rank = (uint32_t)farcall_channel_rank(end->channel);
  if (address != NULL)
    memcpy(address, &own, room < sizeof own ? room : sizeof own);
  return room < sizeof own ? -FI_ETOOSMALL : 0;
}

static ssize_t cancel(fid_t fid, void *context) {
  struct end *end = (struct end *)fid;
  int done;

  if (end->endpoint == NULL)
    return -FI_ENOENT;
  enter(end->domain);
  done = endpoint_cancel(end->endpoint, context);
  leave(end->domain);
  return done;
}

static int get_option(fid_t fid, int level, int name, void *value, size_t *bytes) {
  struct end *end = (struct end *)fid;

  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
    return -FI_ENOPROTOOPT;
  if (*bytes < sizeof end->min_multi)
    return -FI_ETOOSMALL;
  memcpy(value, &end->min_multi, sizeof end->min_multi);
  *bytes = sizeof end->min_multi;
  return 0;
}

static int set_option(fid_t fid, int level, int name, const void *value, size_t bytes) {
  struct end *end = (struct end *)fid;

  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
    return -FI_ENOPROTOOPT;
  if (bytes != sizeof end->min_multi)
    return -FI_EINVAL;
  memcpy(&end->min_multi, value, bytes);
  if (end->endpoint != NULL)
    endpoint_set_min_multi(end->endpoint, end->min_multi);
  return 0;
}

static struct fi_ops end_fid = {.size = sizeof(struct fi_ops),
                                .close = close_end,
                                .bind = bind_end,
                                .control = control_end,
                                .ops_open = cannot_open_ops};
static struct fi_ops_ep end_ops = {
    .size = sizeof(struct fi_ops_ep), .cancel = cancel, .getopt = get_option, .setopt = set_option};
static struct fi_ops_cm cm_ops = {.size = sizeof(struct fi_ops_cm), .getname = get_name};

static int open_end(struct fid_domain *fid, struct fi_info *info, struct fid_ep **ep,
                    void *context) {
  struct domain *domain = (struct domain *)fid;
  struct end *end;

  if (domain->end != NULL)
    return -FI_EBUSY;
  end = calloc(1, sizeof *end);
  if (end == NULL)
    return -FI_ENOMEM;
  end->fid.fid = (struct fid){.fclass = FI_CLASS_EP, .context = context, .ops = &end_fid};
  end->fid.ops = &end_ops;
  end->fid.cm = &cm_ops;
  end->fid.msg = &farcall_msg_ops;
  end->fid.tagged = &farcall_tagged_ops;
  end->domain = domain;
  end->min_multi = 1024;
  end->is_directed = (info->caps & FI_DIRECTED_RECV) != 0;
  end->sends.flags = info->tx_attr != NULL ? info->tx_attr->op_flags : 0;
  end->receives.flags = info->rx_attr != NULL ? info->rx_attr->op_flags : 0;
  domain->end = end;
  *ep = &end->fid;
  return 0;
}

/* ---- Domains and fabrics ---- */

static int close_domain(struct fid *fid) {
  struct domain *domain = (struct domain *)fid;

  if (domain->end != NULL)
    return -FI_EBUSY;
  pthread_mutex_destroy(&domain->lock);
  free(domain);
  return 0;
}

static int cannot_register(struct fid *fid, const void *bytes, size_t count, uint64_t access,
                           uint64_t offset, uint64_t key, uint64_t flags, struct fid_mr **region,
                           void *context) {
  (void)fid;
  (void)bytes;
  (void)count;
  (void)access;
  (void)offset;
  (void)key;
  (void)flags;
  (void)region;
  (void)context;
  return -FI_ENOSYS;
}

static int cannot_register_attr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                                struct fid_mr **region) {
  (void)fid;
  (void)attr;
  (void)flags;
  (void)region;
  return -FI_ENOSYS;
}

static int cannot_share_sends(struct fid_domain *domain, struct fi_tx_attr *attr,
                              struct fid_stx **stx, void *context) {
  (void)domain;
  (void)attr;
  (void)stx;
  (void)context;
  return -FI_ENOSYS;
}

static int cannot_share_receives(struct fid_domain *domain, struct fi_rx_attr *attr,
                                 struct fid_ep **ep, void *context) {
  (void)domain;
  (void)attr;
  (void)ep;
  (void)context;
  return -FI_ENOSYS;
}

static int cannot_open_scalable(struct fid_domain *domain, struct fi_info *info, struct fid_ep **ep,
                                void *context) {
  (void)domain;
  (void)info;
  (void)ep;
  (void)context;
  return -FI_ENOSYS;
}

static struct fi_ops domain_fid = {.size = sizeof(struct fi_ops),
                                   .close = close_domain,
                                   .bind = cannot_bind,
                                   .control = cannot_control,
                                   .ops_open = cannot_open_ops};
static struct fi_ops_domain domain_ops = {.size = sizeof(struct fi_ops_domain),
                                          .av_open = open_vector,
                                          .cq_open = open_completions,
                                          .endpoint = open_end,
                                          .scalable_ep = cannot_open_scalable,
                                          .cntr_open = open_counter,
                                          .stx_ctx = cannot_share_sends,
                                          .srx_ctx = cannot_share_receives};
static struct fi_ops_mr region_ops = {
    .size = sizeof(struct fi_ops_mr), .reg = cannot_register, .regattr = cannot_register_attr};

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **fid,
                       void *context) {
  struct domain *domain = calloc(1, sizeof *domain);

  (void)fabric;
  if (domain == NULL)
    return -FI_ENOMEM;
  domain->fid.fid = (struct fid){.fclass = FI_CLASS_DOMAIN, .context = context, .ops = &domain_fid};
  domain->fid.ops = &domain_ops;
  domain->fid.mr = &region_ops;
  domain->is_shared = info->domain_attr != NULL && info->domain_attr->threading != FI_THREAD_DOMAIN;
  pthread_mutex_init(&domain->lock, NULL);
  *fid = &domain->fid;
  return 0;
}

static int close_fabric(struct fid *fid) {
  free(fid);
  return 0;
}

static int cannot_open_events(struct fid_fabric *fabric, struct fi_eq_attr *attr,
                              struct fid_eq **eq, void *context) {
  (void)fabric;
  (void)attr;
  (void)eq;
  (void)context;
  return -FI_ENOSYS;
}

static struct fi_ops fabric_fid = {.size = sizeof(struct fi_ops),
                                   .close = close_fabric,
                                   .bind = cannot_bind,
                                   .control = cannot_control,
                                   .ops_open = cannot_open_ops};
static struct fi_ops_fabric fabric_ops = {
    .size = sizeof(struct fi_ops_fabric), .domain = open_domain, .eq_open = cannot_open_events};

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fid, void *context) {
  struct fabric *fabric;

  if (attr->name != NULL && strcmp(attr->name, PROVIDER_NAME) != 0)
    return -FI_ENODATA;
  fabric = calloc(1, sizeof *fabric);
  if (fabric == NULL)
    return -FI_ENOMEM;
  fabric->fid.fid = (struct fid){.fclass = FI_CLASS_FABRIC, .context = context, .ops = &fabric_fid};
  fabric->fid.ops = &fabric_ops;
  fabric->fid.api_version = attr->api_version;
  *fid = &fabric->fid;
  return 0;
}

static void clean_up(void) {}

/* libfabric asks only providers whose version is not before that for which a program is made. What
 * this provider uses has not changed since 1.5, so it follows each later version. */
#define NEWEST_VERSION FI_VERSION(2, 99)

static struct fi_provider provider = {.version = PROVIDER_VERSION,
                                      .fi_version = NEWEST_VERSION,
                                      .name = PROVIDER_NAME,
                                      .getinfo = farcall_getinfo,
                                      .fabric = open_fabric,
                                      .cleanup = clean_up};

FI_EXT_INI {
  return &provider;
}
