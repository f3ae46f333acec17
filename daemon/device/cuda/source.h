/* A mem_source over the device's memory.
 *
 *   vmm     ranges of addresses without memory, and handles of physical memory mapped into them
 *           page by page: what one lane or model gives back another maps, before the driver is
 * asked blocks  where the driver has no virtual memory management: a range is one block of the
 *           runtime's pool (cudaMallocAsync) and moves when it grows (mem_source.moves)
 *
 * Ownership: the device's; every range must be released before source_destroy().
 * Threads:   any.
 */
#ifndef DEVICE_CUDA_SOURCE_H
#define DEVICE_CUDA_SOURCE_H

#include <stdbool.h>

#include "base/error.h"
#include "memory/mem_source.h"

struct cuda_source_facts { /* for describe() and tests */
    bool is_vmm;
    uint64_t held_bytes;    /* from the driver: mapped and kept */
    uint64_t kept_bytes;    /* of those: unmapped, for the next commit() */
    uint64_t created_total; /* handles asked of the driver so far */
};

/* `ordinal` is current or will be made so by every call.  `bus` ("0000:81:00.0") finds the cgroup's
 * limit of device memory. */
MUST_CHECK enum status cuda_source_create(int ordinal, const char *bus,
                                          struct mem_source **out_source, struct error *err);
void cuda_source_destroy(struct mem_source *source); /* NULL is fine */
void cuda_source_read(struct mem_source *source, struct cuda_source_facts *out_facts);

#endif
