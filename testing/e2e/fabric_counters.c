/* Counters and waits of the provider of libfabric: rank 0 sends messages to rank 1, and both wait
 * until their counters have counted each of them once.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 6
#define PATIENCE_MS 20000

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "rank %s: %s\n", getenv("FARCALL_RANK"), what);
        exit(1);
    }
}

static struct fid_domain *domain;
static struct fid_ep *endpoint;
static struct fid_cq *queue;
static struct fid_cntr *sent, *received;

static struct fid_cntr *counter(uint64_t flags) {
    struct fi_cntr_attr attributes = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC};
    struct fid_cntr *made;

    check(fi_cntr_open(domain, &attributes, &made, NULL) == 0, "a counter");
    check(fi_ep_bind(endpoint, &made->fid, flags) == 0, "its endpoint");
    return made;
}

static void begin(void) {
    struct fi_cq_attr entries = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC};
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    struct fi_info *hints = fi_allocinfo(), *info;
    struct { uint32_t magic, rank; } address;
    size_t length = sizeof address, least = 1;
    struct fid_fabric *fabric;
    struct fid_av *vector;

    hints->caps = FI_MSG | FI_MULTI_RECV;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("farcall");
    check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == 0, "the provider");
    check(fi_fabric(info->fabric_attr, &fabric, NULL) == 0, "a fabric");
    check(fi_domain(fabric, info, &domain, NULL) == 0, "a domain");
    check(fi_av_open(domain, &table, &vector, NULL) == 0, "addresses");
    check(fi_cq_open(domain, &entries, &queue, NULL) == 0, "completions");
    check(fi_endpoint(domain, info, &endpoint, NULL) == 0, "an endpoint");
    check(fi_ep_bind(endpoint, &vector->fid, 0) == 0, "its addresses");
    check(fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV) == 0, "its completions");
    sent = counter(FI_SEND);
    received = counter(FI_RECV);
    fi_setopt(&endpoint->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof least);
    check(fi_enable(endpoint) == 0, "an endpoint that works");
    check(fi_getname(&endpoint->fid, &address, &length) == 0, "an address");
    for (address.rank = 0; address.rank < 2; address.rank++)
        check(fi_av_insert(vector, &address, 1, NULL, 0, NULL) == 1, "both addresses");
}

int main(void) {
    static char bytes[100], room[5 * sizeof bytes];
    struct iovec place = {.iov_base = room, .iov_len = sizeof room};
    struct fi_msg many = {.msg_iov = &place, .iov_count = 1, .addr = FI_ADDR_UNSPEC};
    struct fi_cq_tagged_entry entry = {0};

    begin();
    if (strcmp(getenv("FARCALL_RANK"), "0") == 0) {
        for (int number = 0; number < MESSAGES; number++)
            check(fi_inject(endpoint, bytes, sizeof bytes, 1) == 0, "an injected message");
        check(fi_cntr_wait(sent, MESSAGES, PATIENCE_MS) == 0, "each message is counted");
        check(fi_cntr_read(sent) == MESSAGES, "once");
        check(fi_cq_sread(queue, &entry, 1, NULL, 10) == -FI_EAGAIN, "and completes silently");
        return 0;
    }
    /* The buffer has room for four of them, and its end is no message. */
    check(fi_recvmsg(endpoint, &many, FI_MULTI_RECV) == 0, "a buffer for messages");
    while ((entry.flags & FI_MULTI_RECV) == 0)
        check(fi_cq_sread(queue, &entry, 1, NULL, PATIENCE_MS) == 1, "a completion");
    check(fi_cntr_read(received) == 4, "each message is counted once, and the buffer is not");
    for (int number = 4; number < MESSAGES; number++)
        check(fi_recv(endpoint, room, sizeof room, NULL, FI_ADDR_UNSPEC, NULL) == 0, "a receive");
    check(fi_cntr_wait(received, MESSAGES, PATIENCE_MS) == 0, "the others are counted too");
    return 0;
}
