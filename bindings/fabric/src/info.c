/* What the provider can do, and whether that is what a program asks for. */
#define _GNU_SOURCE
#include "provider.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* What a program must ask for to get it, and what it gets with it. */
#define PRIMARY (FI_MSG | FI_TAGGED | FI_SEND | FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV)
#define SECONDARY (FI_SOURCE | FI_LOCAL_COMM | FI_REMOTE_COMM)
#define RECEIVING (FI_RECV | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE)
#define TX_FLAGS                                                                                   \
  (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |  \
   FI_MATCH_COMPLETE)
/* There are no remote reads and writes, so that every order of them holds. */
#define ORDER (FI_ORDER_STRICT | FI_ORDER_DATA)
/* All bits of a tag are the program's. */
#define TAG_FORMAT 0xaaaaaaaaaaaaaaaaULL
/* Later versions of libfabric copy longer structures. What ours lack is zero there. */
#define LATER 256

int farcall_channel_number(void) {
  const char *text = getenv(CHANNEL_VARIABLE);
  char *end;
  long number;

  if (text == NULL || getenv("FARCALL_CHANNEL") == NULL)
    return -1;
  number = strtol(text, &end, 10);
  return *text != '\0' && *end == '\0' && number >= 0 && number <= UCHAR_MAX ? (int)number : -1;
}

static void *allocate(size_t bytes) {
  return calloc(1, bytes + LATER);
}

/* libfabric frees it. */
static struct fi_info *make_info(void) {
  struct fi_info *info = allocate(sizeof *info);

  if (info == NULL)
    return NULL;
  info->tx_attr = allocate(sizeof *info->tx_attr);
  info->rx_attr = allocate(sizeof *info->rx_attr);
  info->ep_attr = allocate(sizeof *info->ep_attr);
  info->domain_attr = allocate(sizeof *info->domain_attr);
  info->fabric_attr = allocate(sizeof *info->fabric_attr);
  if (info->domain_attr != NULL)
    info->domain_attr->name = strdup(PROVIDER_NAME);
  if (info->fabric_attr != NULL) {
    info->fabric_attr->name = strdup(PROVIDER_NAME);
    info->fabric_attr->prov_name = strdup(PROVIDER_NAME);
  }
  return info;
}

static bool is_whole(const struct fi_info *info) {
  return info->tx_attr != NULL && info->rx_attr != NULL && info->ep_attr != NULL &&
         info->domain_attr != NULL && info->fabric_attr != NULL &&
         info->domain_attr->name != NULL && info->fabric_attr->name != NULL &&
         info->fabric_attr->prov_name != NULL;
}

static void free_info(struct fi_info *info) {
  if (info->domain_attr != NULL)
    free(info->domain_attr->name);
  if (info->fabric_attr != NULL) {
    free(info->fabric_attr->name);
    free(info->fabric_attr->prov_name);
  }
  free(info->tx_attr);
  free(info->rx_attr);
  free(info->ep_attr);
  free(info->domain_attr);
  free(info->fabric_attr);
  free(info);
}

static void fill_transfers(struct fi_info *info) {
  info->caps = PRIMARY | SECONDARY;
  info->addr_format = FI_FORMAT_UNSPEC;
  info->tx_attr->caps = FI_MSG | FI_TAGGED | FI_SEND;
  info->tx_attr->msg_order = ORDER;
  info->tx_attr->comp_order = FI_ORDER_NONE;
  info->tx_attr->inject_size = LONGEST_COPY;
  info->tx_attr->size = 65536;
  info->tx_attr->iov_limit = MOST_PARTS;
  info->rx_attr->caps = FI_MSG | FI_TAGGED | RECEIVING;
  info->rx_attr->msg_order = ORDER;
  info->rx_attr->comp_order = FI_ORDER_NONE;
  info->rx_attr->size = 65536;
  info->rx_attr->iov_limit = 1;
}

static void fill(struct fi_info *info) {
  fill_transfers(info);
  info->ep_attr->type = FI_EP_RDM;
  info->ep_attr->protocol = FI_PROTO_UNSPEC;
  info->ep_attr->protocol_version = WIRE_MAGIC & 0xf;
  info->ep_attr->max_msg_size = (size_t)1 << 40;
  info->ep_attr->mem_tag_format = TAG_FORMAT;
  info->ep_attr->tx_ctx_cnt = 1;
  info->ep_attr->rx_ctx_cnt = 1;
  info->domain_attr->threading = FI_THREAD_DOMAIN;
  info->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  info->domain_attr->resource_mgmt = FI_RM_ENABLED;
  info->domain_attr->av_type = FI_AV_TABLE;
  info->domain_attr->mr_key_size = sizeof(uint64_t);
  info->domain_attr->cq_data_size = sizeof(uint64_t);
  info->domain_attr->cq_cnt = 16;
  info->domain_attr->ep_cnt = 1;
  info->domain_attr->tx_ctx_cnt = 1;
  info->domain_attr->rx_ctx_cnt = 1;
  info->domain_attr->max_ep_tx_ctx = 1;
  info->domain_attr->max_ep_rx_ctx = 1;
  info->domain_attr->cntr_cnt = 16;
  info->domain_attr->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
  info->fabric_attr->prov_version = PROVIDER_VERSION;
}

static bool differs(const char *wanted, const char *name) {
  return wanted != NULL && strcmp(wanted, name) != 0;
}

static bool has_other(uint64_t wanted, uint64_t there) {
  return (wanted & ~there) != 0;
}

static bool can_transfer(const struct fi_info *hints, const struct fi_info *info) {
  const struct fi_tx_attr *tx = hints->tx_attr;
  const struct fi_rx_attr *rx = hints->rx_attr;

  if (tx != NULL &&
      (has_other(tx->caps, info->caps) || has_other(tx->msg_order, ORDER) ||
       has_other(tx->op_flags, TX_FLAGS) || tx->inject_size > info->tx_attr->inject_size ||
       tx->iov_limit > MOST_PARTS || tx->rma_iov_limit > 0 || tx->size > info->tx_attr->size))
    return false;
  return rx == NULL || !(has_other(rx->caps, info->caps) || has_other(rx->msg_order, ORDER) ||
                         has_other(rx->op_flags, FI_COMPLETION | FI_MULTI_RECV) ||
                         rx->iov_limit > 1 || rx->size > info->rx_attr->size);
}

static bool can(const struct fi_info *hints, const struct fi_info *info) {
  const struct fi_ep_attr *ep = hints->ep_attr;
  const struct fi_domain_attr *domain = hints->domain_attr;
  const struct fi_fabric_attr *fabric = hints->fabric_attr;

  if (has_other(hints->caps, info->caps) || hints->addr_format != FI_FORMAT_UNSPEC)
    return false;
  if (ep != NULL && ((ep->type != FI_EP_UNSPEC && ep->type != FI_EP_RDM) ||
                     ep->max_msg_size > info->ep_attr->max_msg_size || ep->tx_ctx_cnt > 1 ||
                     ep->rx_ctx_cnt > 1 || ep->auth_key_size > 0))
    return false;
  if (domain != NULL &&
      (differs(domain->name, PROVIDER_NAME) || domain->data_progress == FI_PROGRESS_AUTO ||
       domain->cq_data_size > info->domain_attr->cq_data_size || domain->auth_key_size > 0))
    return false;
  if (fabric != NULL && differs(fabric->name, PROVIDER_NAME))
    return false;
  return can_transfer(hints, info);
}

/* What the program has asked for replaces what it would get otherwise. */
static void follow(struct fi_info *info, const struct fi_info *hints) {
  if (hints->caps != 0)
    info->caps = hints->caps | SECONDARY;
  if (hints->tx_attr != NULL)
    info->tx_attr->op_flags = hints->tx_attr->op_flags;
  if (hints->rx_attr != NULL)
    info->rx_attr->op_flags = hints->rx_attr->op_flags;
  info->tx_attr->caps &= info->caps;
  info->rx_attr->caps &= info->caps;
  if (hints->domain_attr != NULL) {
    if (hints->domain_attr->threading != FI_THREAD_UNSPEC)
      info->domain_attr->threading = hints->domain_attr->threading;
    if (hints->domain_attr->av_type != FI_AV_UNSPEC)
      info->domain_attr->av_type = hints->domain_attr->av_type;
  }
  info->handle = hints->handle;
}

int farcall_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **info) {
  struct fi_info *made;

  (void)node;
  (void)service;
  (void)flags;
  if (farcall_channel_number() < 0)
    return -FI_ENODATA;
  made = make_info();
  if (made == NULL)
    return -FI_ENOMEM;
  if (!is_whole(made)) {
    free_info(made);
    return -FI_ENOMEM;
  }
  fill(made);
  made->fabric_attr->api_version = version;
  if (hints != NULL) {
    if (!can(hints, made)) {
      free_info(made);
      return -FI_ENODATA;
    }
    follow(made, hints);
  }
  *info = made;
  return 0;
}
