/* Messages, receives and completions, as libfabric calls them. `endpoint.h` does the work. */
#define _GNU_SOURCE
#include "provider.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Completions ---- */

/* The place for one more completion. Returns NULL if there is not enough memory. */
static struct completion *place_for(struct completions *completions) {
  if (completions->count == completions->room) {
    /* A power of two. */
    size_t room = completions->room == 0 ? 256 : completions->room * 2;
    struct completion *items = malloc(room * sizeof *items);

    if (items == NULL)
      return NULL;
    for (size_t number = 0; number < completions->count; number++)
      items[number] = completions->items[(completions->first + number) & (completions->room - 1)];
    free(completions->items);
    completions->items = items;
    completions->room = room;
    completions->first = 0;
  }
  return &completions->items[(completions->first + completions->count++) &
                             (completions->room - 1)];
}

/* The first completion is read. */
static void remove_first(struct completions *completions) {
  completions->first = (completions->first + 1) & (completions->room - 1);
  completions->count--;
}

static uint64_t flags_of(const struct completion *completion) {
  uint64_t flags = completion->is_tagged ? FI_TAGGED : FI_MSG;

  if (completion->is_send)
    return flags | FI_SEND;
  if (completion->is_released && !completion->is_message && completion->error == 0)
    return FI_MULTI_RECV;
  if (completion->has_data)
    flags |= FI_REMOTE_CQ_DATA;
  if (completion->is_released)
    flags |= FI_MULTI_RECV;
  return flags | FI_RECV;
}

void farcall_completed(void *owner, const struct completion *completion) {
  struct end *end = owner;
  struct report *report = completion->is_send ? &end->sends : &end->receives;
  bool is_wanted = !completion->is_silent &&
                   (!report->is_selective || (completion->flags & FI_COMPLETION) != 0);
  struct completion *place;

  /* Counters count messages, also silent ones, and no buffers that are free again. */
  if (report->counter != NULL &&
      (completion->is_send || completion->is_message || completion->error != 0)) {
    if (completion->error != 0)
      report->counter->errors++;
    else
      report->counter->value++;
  }
  if (report->completions == NULL || (!is_wanted && completion->error == 0))
    return;
  place = place_for(report->completions);
  if (place == NULL)
    abort();
  *place = *completion;
  place->flags = flags_of(completion);
}

/* Writes a completion in the format of its queue. Returns the bytes. */
static size_t write_entry(enum fi_cq_format format, const struct completion *completion,
                          void *place) {
  struct fi_cq_tagged_entry entry = {
      .op_context = completion->context,
      .flags = completion->flags,
      .len = completion->count,
      .buf = completion->buffer,
      .data = completion->data,
      .tag = completion->tag,
  };

  /* Copies of a known size take no call. */
  switch (format) {
  case FI_CQ_FORMAT_MSG:
    memcpy(place, &entry, sizeof(struct fi_cq_msg_entry));
    return sizeof(struct fi_cq_msg_entry);
  case FI_CQ_FORMAT_DATA:
    memcpy(place, &entry, sizeof(struct fi_cq_data_entry));
    return sizeof(struct fi_cq_data_entry);
  case FI_CQ_FORMAT_TAGGED:
    memcpy(place, &entry, sizeof entry);
    return sizeof entry;
  default:
    memcpy(place, &entry, sizeof(struct fi_cq_entry));
    return sizeof(struct fi_cq_entry);
  }
}

static int progress(struct domain *domain) {
  if (domain->end == NULL || domain->end->endpoint == NULL)
    return 0;
  return endpoint_progress(domain->end->endpoint);
}

static fi_addr_t address_of(const struct domain *domain, const struct completion *completion) {
  const struct vector *vector = domain->end != NULL ? domain->end->vector : NULL;
  uint32_t rank = completion->source;

  if (completion->is_send || vector == NULL)
    return FI_ADDR_NOTAVAIL;
  /* Programs mostly insert the addresses in the order of the ranks. */
  if (rank < vector->count && vector->ranks[rank] == rank)
    return rank;
  for (size_t place = 0; place < vector->count; place++)
    if (vector->ranks[place] == rank)
      return place;
  return FI_ADDR_NOTAVAIL;
}

static ssize_t read_from(struct fid_cq *fid, void *entries, size_t count, fi_addr_t *sources) {
  struct completions *completions = (struct completions *)fid;
  char *place = entries;
  ssize_t found = 0;
  int error = 0;

  enter(completions->domain);
  /* Programs read no entries for the sake of progress. */
  if (completions->count == 0 || count == 0)
    error = progress(completions->domain);
  while (completions->count > 0 && (size_t)found < count) {
    struct completion *completion = &completions->items[completions->first];

    if (completion->error != 0)
      break;
    place += write_entry(completions->format, completion, place);
    if (sources != NULL)
      sources[found] = address_of(completions->domain, completion);
    remove_first(completions);
    found++;
  }
  if (found == 0 && completions->count > 0 && count > 0)
    found = -FI_EAVAIL;
  leave(completions->domain);
  if (found != 0)
    return found;
  return error < 0 ? error : -FI_EAGAIN;
}

static ssize_t read_entries(struct fid_cq *fid, void *entries, size_t count) {
  return read_from(fid, entries, count, NULL);
}

static ssize_t read_error(struct fid_cq *fid, struct fi_cq_err_entry *entry, uint64_t flags) {
  struct completions *completions = (struct completions *)fid;
  struct completion *completion;
  ssize_t found = -FI_EAGAIN;

  (void)flags;
  enter(completions->domain);
  if (completions->count > 0 && completions->items[completions->first].error != 0) {
    completion = &completions->items[completions->first];
    entry->op_context = completion->context;
    entry->flags = completion->flags;
    entry->len = completion->count;
    entry->buf = completion->buffer;
    entry->data = completion->data;
    entry->tag = completion->tag;
    entry->olen = completion->excess;
    entry->err = completion->error == EMSGSIZE ? FI_ETRUNC : completion->error;
    entry->prov_errno = completion->error;
    entry->err_data_size = 0;
    remove_first(completions);
    found = 1;
  }
  leave(completions->domain);
  return found;
}

/* Whether so many milliseconds have passed since `start`. Below 0: never. */
static bool has_passed(const struct timespec *start, int milliseconds) {
  struct timespec now;

  if (milliseconds < 0)
    return false;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000 >=
         milliseconds;
}

static ssize_t wait_and_read_from(struct fid_cq *fid, void *entries, size_t count,
                                  fi_addr_t *sources, const void *condition, int timeout) {
  struct timespec start;
  ssize_t found;

  (void)condition;
  clock_gettime(CLOCK_MONOTONIC, &start);
  while ((found = read_from(fid, entries, count, sources)) == -FI_EAGAIN) {
    if (has_passed(&start, timeout))
      break;
    sched_yield();
  }
  return found;
}

static ssize_t wait_and_read(struct fid_cq *fid, void *entries, size_t count, const void *condition,
                             int timeout) {
  return wait_and_read_from(fid, entries, count, NULL, condition, timeout);
}

static int cannot_signal(struct fid_cq *fid) {
  (void)fid;
  return -FI_ENOSYS;
}

static const char *error_text(struct fid_cq *fid, int error, const void *data, char *text,
                              size_t bytes) {
  const char *found = strerror(error);

  (void)fid;
  (void)data;
  if (text != NULL && bytes > 0) {
    strncpy(text, found, bytes - 1);
    text[bytes - 1] = '\0';
  }
  return found;
}

struct fi_ops_cq farcall_cq_ops = {.size = sizeof(struct fi_ops_cq),
                                   .read = read_entries,
                                   .readfrom = read_from,
                                   .readerr = read_error,
                                   .sread = wait_and_read,
                                   .sreadfrom = wait_and_read_from,
                                   .signal = cannot_signal,
                                   .strerror = error_text};

/* ---- Counters ---- */

static uint64_t read_counter(struct fid_cntr *fid) {
  struct counter *counter = (struct counter *)fid;
  uint64_t value;

  enter(counter->domain);
  progress(counter->domain);
  value = counter->value;
  leave(counter->domain);
  return value;
}

static uint64_t read_counter_errors(struct fid_cntr *fid) {
  struct counter *counter = (struct counter *)fid;
  uint64_t errors;

  enter(counter->domain);
  progress(counter->domain);
  errors = counter->errors;
  leave(counter->domain);
  return errors;
}

/* Changes a number of a counter: by `value`, or to it. */
static int change(struct fid_cntr *fid, bool is_error, bool is_sum, uint64_t value) {
  struct counter *counter = (struct counter *)fid;
  uint64_t *number = is_error ? &counter->errors : &counter->value;

  enter(counter->domain);
  *number = is_sum ? *number + value : value;
  leave(counter->domain);
  return 0;
}

static int add_to_counter(struct fid_cntr *fid, uint64_t value) {
  return change(fid, false, true, value);
}

static int set_counter(struct fid_cntr *fid, uint64_t value) {
  return change(fid, false, false, value);
}

static int add_to_errors(struct fid_cntr *fid, uint64_t value) {
  return change(fid, true, true, value);
}

static int set_errors(struct fid_cntr *fid, uint64_t value) {
  return change(fid, true, false, value);
}

/* Returns 1 if the counter has reached the threshold, 0 if not, or a negative number if an
 * operation has failed or none can end any more. */
static int has_reached(struct counter *counter, uint64_t threshold, uint64_t errors) {
  int done;

  enter(counter->domain);
  done = progress(counter->domain);
  if (counter->value >= threshold)
    done = 1;
  else if (counter->errors != errors)
    done = -FI_EAVAIL;
  leave(counter->domain);
  return done;
}

static int wait_for_counter(struct fid_cntr *fid, uint64_t threshold, int timeout) {
  struct counter *counter = (struct counter *)fid;
  uint64_t errors = read_counter_errors(fid);
  struct timespec start;
  int done;

  clock_gettime(CLOCK_MONOTONIC, &start);
  while ((done = has_reached(counter, threshold, errors)) == 0) {
    if (has_passed(&start, timeout))
      return -FI_ETIMEDOUT;
    sched_yield();
  }
  return done < 0 ? done : 0;
}

struct fi_ops_cntr farcall_cntr_ops = {.size = sizeof(struct fi_ops_cntr),
                                       .read = read_counter,
                                       .readerr = read_counter_errors,
                                       .add = add_to_counter,
                                       .set = set_counter,
                                       .wait = wait_for_counter,
                                       .adderr = add_to_errors,
                                       .seterr = set_errors};

/* ---- Messages that go ---- */

/* Sends `message` to an address with these flags of libfabric. */
static ssize_t transmit(struct fid_ep *fid, struct outgoing *message, fi_addr_t target,
                        uint64_t flags) {
  struct end *end = (struct end *)fid;
  bool is_injected = (flags & FI_INJECT) != 0;
  int done;

  if (end->endpoint == NULL)
    return -FI_EOPBADSTATE;
  if (is_injected && message->count > LONGEST_COPY)
    return -FI_EMSGSIZE;
  enter(end->domain);
  if (target >= end->vector->count) {
    leave(end->domain);
    return -FI_EINVAL;
  }
  message->target = end->vector->ranks[target];
  message->flags = flags;
  message->must_match = (flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
  message->must_copy |= is_injected;
  done = endpoint_send(end->endpoint, message);
  leave(end->domain);
  return done;
}

static uint64_t send_flags(struct fid_ep *fid) {
  return ((struct end *)fid)->sends.flags;
}

static ssize_t tagged_send(struct fid_ep *fid, const void *bytes, size_t count, void *descriptor,
                           fi_addr_t target, uint64_t tag, void *context) {
  struct outgoing message = {
      .bytes = bytes, .count = count, .is_tagged = true, .tag = tag, .context = context};

  (void)descriptor;
  return transmit(fid, &message, target, send_flags(fid));
}

static ssize_t tagged_send_data(struct fid_ep *fid, const void *bytes, size_t count,
                                void *descriptor, uint64_t data, fi_addr_t target, uint64_t tag,
                                void *context) {
  struct outgoing message = {.bytes = bytes,
                             .count = count,
                             .is_tagged = true,
                             .has_data = true,
                             .tag = tag,
                             .data = data,
                             .context = context};

  (void)descriptor;
  return transmit(fid, &message, target, send_flags(fid));
}

static ssize_t tagged_inject(struct fid_ep *fid, const void *bytes, size_t count, fi_addr_t target,
                             uint64_t tag) {
  struct outgoing message = {
      .bytes = bytes, .count = count, .is_silent = true, .is_tagged = true, .tag = tag};

  return transmit(fid, &message, target, FI_INJECT);
}

static ssize_t tagged_inject_data(struct fid_ep *fid, const void *bytes, size_t count,
                                  uint64_t data, fi_addr_t target, uint64_t tag) {
  struct outgoing message = {.bytes = bytes,
                             .count = count,
                             .is_silent = true,
                             .is_tagged = true,
                             .has_data = true,
                             .tag = tag,
                             .data = data};

  return transmit(fid, &message, target, FI_INJECT);
}

/* Sends a message whose bytes are in several places. If there are more than one, it copies them. */
static ssize_t transmit_parts(struct fid_ep *fid, struct outgoing *message,
                              const struct iovec *parts, size_t count, fi_addr_t target,
                              uint64_t flags) {
  char *bytes, *next;
  ssize_t done;

  if (count > MOST_PARTS)
    return -FI_EINVAL;
  if (count == 1) {
    message->bytes = parts[0].iov_base;
    message->count = parts[0].iov_len;
  }
  if (count <= 1)
    return transmit(fid, message, target, flags);
  for (size_t part = 0; part < count; part++)
    message->count += parts[part].iov_len;
  bytes = next = malloc(message->count + 1);
  if (bytes == NULL)
    return -FI_ENOMEM;
  for (size_t part = 0; part < count; part++) {
    if (parts[part].iov_len > 0)
      memcpy(next, parts[part].iov_base, parts[part].iov_len);
    next += parts[part].iov_len;
  }
  message->bytes = bytes;
  message->must_copy = true;
  done = transmit(fid, message, target, flags);
  free(bytes);
  return done;
}

static ssize_t tagged_send_message(struct fid_ep *fid, const struct fi_msg_tagged *from,
                                   uint64_t flags) {
  struct outgoing message = {.is_tagged = true,
                             .has_data = (flags & FI_REMOTE_CQ_DATA) != 0,
                             .tag = from->tag,
                             .data = from->data,
                             .context = from->context};

  return transmit_parts(fid, &message, from->msg_iov, from->iov_count, from->addr, flags);
}

static ssize_t tagged_send_vector(struct fid_ep *fid, const struct iovec *parts, void **descriptors,
                                  size_t count, fi_addr_t target, uint64_t tag, void *context) {
  struct fi_msg_tagged message = {.msg_iov = parts,
                                  .desc = descriptors,
                                  .iov_count = count,
                                  .addr = target,
                                  .tag = tag,
                                  .context = context};

  return tagged_send_message(fid, &message, send_flags(fid));
}

static ssize_t send_bytes(struct fid_ep *fid, const void *bytes, size_t count, void *descriptor,
                          fi_addr_t target, void *context) {
  struct outgoing message = {.bytes = bytes, .count = count, .context = context};

  (void)descriptor;
  return transmit(fid, &message, target, send_flags(fid));
}

static ssize_t send_data(struct fid_ep *fid, const void *bytes, size_t count, void *descriptor,
                         uint64_t data, fi_addr_t target, void *context) {
  struct outgoing message = {
      .bytes = bytes, .count = count, .has_data = true, .data = data, .context = context};

  (void)descriptor;
  return transmit(fid, &message, target, send_flags(fid));
}

static ssize_t inject_bytes(struct fid_ep *fid, const void *bytes, size_t count, fi_addr_t target) {
  struct outgoing message = {.bytes = bytes, .count = count, .is_silent = true};

  return transmit(fid, &message, target, FI_INJECT);
}

static ssize_t inject_data(struct fid_ep *fid, const void *bytes, size_t count, uint64_t data,
                           fi_addr_t target) {
  struct outgoing message = {
      .bytes = bytes, .count = count, .is_silent = true, .has_data = true, .data = data};

  return transmit(fid, &message, target, FI_INJECT);
}

static ssize_t send_message(struct fid_ep *fid, const struct fi_msg *from, uint64_t flags) {
  struct outgoing message = {
      .has_data = (flags & FI_REMOTE_CQ_DATA) != 0, .data = from->data, .context = from->context};

  return transmit_parts(fid, &message, from->msg_iov, from->iov_count, from->addr, flags);
}

static ssize_t send_vector(struct fid_ep *fid, const struct iovec *parts, void **descriptors,
                           size_t count, fi_addr_t target, void *context) {
  struct fi_msg message = {.msg_iov = parts,
                           .desc = descriptors,
                           .iov_count = count,
                           .addr = target,
                           .context = context};

  return send_message(fid, &message, send_flags(fid));
}

/* ---- Messages that come ---- */

/* Posts a receive, or looks for its message, as the flags say. */
static ssize_t want(struct fid_ep *fid, struct incoming *receive, fi_addr_t source,
                    uint64_t flags) {
  struct end *end = (struct end *)fid;
  int done = -FI_EINVAL;

  if (end->endpoint == NULL)
    return -FI_EOPBADSTATE;
  receive->source = ANY_RANK;
  receive->flags = flags;
  receive->is_multi = (flags & FI_MULTI_RECV) != 0;
  enter(end->domain);
  if (end->is_directed && source != FI_ADDR_UNSPEC) {
    if (source >= end->vector->count)
      goto out;
    receive->source = end->vector->ranks[source];
  }
  if ((flags & FI_PEEK) != 0)
    done = endpoint_peek(end->endpoint, receive,
                         (flags & FI_DISCARD) != 0 ? PEEK_DISCARD
                         : (flags & FI_CLAIM) != 0 ? PEEK_CLAIM
                                                   : PEEK_LOOK);
  else if ((flags & FI_CLAIM) != 0)
    done = endpoint_receive_claimed(end->endpoint, receive, (flags & FI_DISCARD) != 0);
  else
    done = endpoint_receive(end->endpoint, receive);
out:
  leave(end->domain);
  return done;
}

static uint64_t receive_flags(struct fid_ep *fid) {
  return ((struct end *)fid)->receives.flags;
}

static ssize_t tagged_receive(struct fid_ep *fid, void *buffer, size_t room, void *descriptor,
                              fi_addr_t source, uint64_t tag, uint64_t ignore, void *context) {
  struct incoming receive = {.buffer = buffer,
                             .room = room,
                             .is_tagged = true,
                             .tag = tag,
                             .ignore = ignore,
                             .context = context};

  (void)descriptor;
  return want(fid, &receive, source, receive_flags(fid) & ~FI_MULTI_RECV);
}

static ssize_t tagged_receive_message(struct fid_ep *fid, const struct fi_msg_tagged *from,
                                      uint64_t flags) {
  struct incoming receive = {
      .is_tagged = true, .tag = from->tag, .ignore = from->ignore, .context = from->context};

  if (from->iov_count > 1)
    return -FI_EINVAL;
  if (from->iov_count == 1 && from->msg_iov != NULL) {
    receive.buffer = from->msg_iov[0].iov_base;
    receive.room = from->msg_iov[0].iov_len;
  }
  return want(fid, &receive, from->addr, flags & ~FI_MULTI_RECV);
}

static ssize_t tagged_receive_vector(struct fid_ep *fid, const struct iovec *parts,
                                     void **descriptors, size_t count, fi_addr_t source,
                                     uint64_t tag, uint64_t ignore, void *context) {
  struct fi_msg_tagged message = {.msg_iov = parts,
                                  .desc = descriptors,
                                  .iov_count = count,
                                  .addr = source,
                                  .tag = tag,
                                  .ignore = ignore,
                                  .context = context};

  return tagged_receive_message(fid, &message, receive_flags(fid));
}

static ssize_t receive_bytes(struct fid_ep *fid, void *buffer, size_t room, void *descriptor,
                             fi_addr_t source, void *context) {
  struct incoming receive = {.buffer = buffer, .room = room, .ignore = ~0ULL, .context = context};

  (void)descriptor;
  return want(fid, &receive, source, receive_flags(fid));
}

static ssize_t receive_message(struct fid_ep *fid, const struct fi_msg *from, uint64_t flags) {
  struct incoming receive = {.ignore = ~0ULL, .context = from->context};

  if (from->iov_count > 1)
    return -FI_EINVAL;
  if (from->iov_count == 1 && from->msg_iov != NULL) {
    receive.buffer = from->msg_iov[0].iov_base;
    receive.room = from->msg_iov[0].iov_len;
  }
  return want(fid, &receive, from->addr, flags);
}

static ssize_t receive_vector(struct fid_ep *fid, const struct iovec *parts, void **descriptors,
                              size_t count, fi_addr_t source, void *context) {
  struct fi_msg message = {.msg_iov = parts,
                           .desc = descriptors,
                           .iov_count = count,
                           .addr = source,
                           .context = context};

  return receive_message(fid, &message, receive_flags(fid));
}

struct fi_ops_msg farcall_msg_ops = {.size = sizeof(struct fi_ops_msg),
                                     .recv = receive_bytes,
                                     .recvv = receive_vector,
                                     .recvmsg = receive_message,
                                     .send = send_bytes,
                                     .sendv = send_vector,
                                     .sendmsg = send_message,
                                     .inject = inject_bytes,
                                     .senddata = send_data,
                                     .injectdata = inject_data};

struct fi_ops_tagged farcall_tagged_ops = {.size = sizeof(struct fi_ops_tagged),
                                           .recv = tagged_receive,
                                           .recvv = tagged_receive_vector,
                                           .recvmsg = tagged_receive_message,
                                           .send = tagged_send,
                                           .sendv = tagged_send_vector,
                                           .sendmsg = tagged_send_message,
                                           .inject = tagged_inject,
                                           .senddata = tagged_send_data,
                                           .injectdata = tagged_inject_data};
