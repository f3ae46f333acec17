/* Lifetimes that fill a number of bytes at every step, for tests of the planner. */
#ifndef TESTS_SUPPORT_FULL_STEPS_H
#define TESTS_SUPPORT_FULL_STEPS_H

#include "graph/planner.h"

/* At every step but the first, two buffers end and others of the same sum begin; none is larger
 * than `largest`.  At most 256 are alive at once.  Returns how many there are. */
static inline size_t full_steps(struct plan_buffer *buffers, uint32_t steps, uint64_t bytes,
                                uint32_t largest, uint32_t seed)
{
    uint32_t rng = seed * 2654435761U, alive[256], alive_count = 0;
    size_t count = 0;

    for (uint32_t step = 0; step < steps; step++) {
        uint64_t open = step == 0 ? bytes : 0;

        for (unsigned i = 0; i < 2 && alive_count > 0; i++) {
            uint32_t at;

            rng ^= rng << 13;
            rng ^= rng >> 17;
            rng ^= rng << 5;
            at = rng % alive_count;
            open += buffers[alive[at]].bytes;
            buffers[alive[at]].last = step - 1;
            alive[at] = alive[--alive_count];
        }
        while (open > 0) {
            uint64_t size;

            rng ^= rng << 13;
            rng ^= rng >> 17;
            rng ^= rng << 5;
            size = 1 + rng % largest;
            size = size < open ? size : open;
            buffers[count] = (struct plan_buffer){.bytes = size, .first = step, .last = steps - 1};
            alive[alive_count++] = (uint32_t)count++;
            open -= size;
        }
    }
    return count;
}

#endif
