/* Packing of lifetimes into one arena: each buffer has a size and a first and last step, and gets
 * an offset, so that no two buffers alive at one step overlap and the highest end is small. A pure
 * function: no graph, no device.  (reference: dynamic storage allocation; TFLite, MiniMalloc) */
#ifndef GRAPH_PLANNER_H
#define GRAPH_PLANNER_H

#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct plan_buffer {
    uint64_t bytes;  /* already rounded to the alignment wanted */
    uint32_t first;  /* step that writes it */
    uint32_t last;   /* last step that reads it, inclusive; ≥ first */
    uint64_t offset; /* out */
};

/* Sets every offset.  *out_peak_bytes: highest end; *out_lower_bound_bytes: the largest sum alive
 * at one step.  STATUS_NO_MEMORY leaves the offsets undefined. */
MUST_CHECK enum status planner_pack(struct plan_buffer *buffers, size_t count,
                                    uint64_t *out_peak_bytes, uint64_t *out_lower_bound_bytes);

#endif
