/* Shares of the configuration made into bytes, once the device and the machine can be asked. */
#ifndef LIFECYCLE_BUDGET_H
#define LIFECYCLE_BUDGET_H

#include "config/config.h"
#include "govern/governor.h"
#include "memory/mem_source.h"

struct budget {
    uint64_t total_bytes;    /* of the device; 0: it cannot tell */
    uint64_t asked_bytes;    /* Limit= itself */
    uint64_t limit_bytes;    /* the ledger's: cut to what the device has beside the headroom */
    uint64_t headroom_bytes; /* to leave free for others */
    uint64_t host_bytes;     /* the host pool's */
};

/* HostLimit= in bytes, against the machine (or its cgroup).  STATUS_INVALID when it is a share and
 * the machine cannot tell its size, or when the largest request of MaxMessageBytes= could never be
 * held. */
MUST_CHECK enum status budget_host_bytes(const struct config *config,
                                         struct mem_source *host_memory, uint64_t *out_bytes,
                                         struct error *err);
/* Limit= and Headroom= against the device, HostLimit= against the machine (or its cgroup).
 * STATUS_INVALID as above, when a share is asked of a device that cannot tell its size, or when
 * limit and headroom leave nothing. */
MUST_CHECK enum status budget_compute(const struct config *config, struct mem_source *device_memory,
                                      struct mem_source *host_memory, struct budget *out_budget,
                                      struct error *err);
struct govern_config budget_govern_config(const struct config *config, const struct budget *budget);

#endif
