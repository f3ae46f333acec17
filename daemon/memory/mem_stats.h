/* Statistics of memory under the names of PyTorch's memory_stats().
 *
 *   here              PyTorch                what it counts
 *   reserved_bytes    reserved_bytes         held from the device
 *   allocated_bytes   allocated_bytes        in use by something alive, whole pages and alignment
 *                                            included
 *   active_bytes      active_bytes           the same as allocated: a batch gives its memory back
 *                                            when its lane has finished, nothing is pending
 *   requested_bytes   requested_bytes        the part of allocated that was asked for: sizes of
 *                                            tensors before alignment and pages
 *   inactive_bytes    (inactive_split_bytes) reserved − allocated: cached, all of it reclaimable.
 *                                            PyTorch's counts what can not be given back, and that
 *                                            is never any: arenas are cut at their end only
 *
 * each as current, peak, allocated (sum of all rises) and freed (sum of all falls), in bytes, with
 * current = allocated − freed.  PyTorch's counts of blocks (allocation, segment, active,
 * inactive_split, oversize_*) have no meaning here: a plan has offsets, no tensor is allocated.
 * Threads: none; whoever owns a struct mem_stats locks it (the ledger does).
 */
#ifndef MEMORY_MEM_STATS_H
#define MEMORY_MEM_STATS_H

#include <stdint.h>

struct mem_stat {
    uint64_t current, peak, allocated, freed;
};

enum mem_measure {
    MEASURE_RESERVED,
    MEASURE_ALLOCATED,
    MEASURE_ACTIVE,
    MEASURE_REQUESTED,
    MEASURE_INACTIVE,
    MEM_MEASURES
};
const char *mem_measure_name(enum mem_measure measure); /* "reserved_bytes" … */

struct mem_stats {
    struct mem_stat reserved, allocated, requested, inactive;
    uint64_t alloc_retries;               /* room was made of others' cache, and asked again */
    uint64_t ooms;                        /* refused for good */
    uint64_t device_allocs, device_frees; /* times memory was taken from the device, given back */
};

/* A change, in bytes. */
struct mem_change {
    int64_t reserved, allocated, requested;
};

/* The numbers of one measure; borrowed. */
const struct mem_stat *mem_stats_measure(const struct mem_stats *stats, enum mem_measure measure);
void mem_stats_apply(struct mem_stats *stats, const struct mem_change *change);
/* Takes back what mem_stats_apply() counted for memory that was booked, but that the device then
 * refused: it never was allocated. */
void mem_stats_undo(struct mem_stats *stats, const struct mem_change *change);
/* Every peak becomes what is current. */
void mem_stats_reset_peaks(struct mem_stats *stats);

#endif
