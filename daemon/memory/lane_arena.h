/* The activation memory of one lane: a fixed range of addresses, memory behind its lower part.
 *
 *   base ├────── used ──────┤─── cached ───┤        nothing behind it         ┤ end
 *        0               used            high                              range
 *
 * A batch of any model runs at its plan's offsets from `base`.  So there is no fragmentation, and a
 * trim is: take the memory away behind [keep, high).  Addresses never move.
 *
 * Ownership: owned by the lane; its bytes are booked in the ledger account it is given.
 * Threads:   begin/end by whoever runs a batch in the lane; trim by any thread at any time, it
 * never touches bytes of a running batch.
 */
#ifndef MEMORY_LANE_ARENA_H
#define MEMORY_LANE_ARENA_H

#include "memory/ledger.h"
#include "memory/mem_source.h"

struct lane_arena;

/* STATUS_NO_MEMORY when the range cannot be had. `range_bytes` is only addresses. */
MUST_CHECK enum status lane_arena_create(struct mem_source *source, struct ledger *ledger,
                                         const char *owner, size_t range_bytes,
                                         struct lane_arena **out_arena);
/* The same for bytes of another kind than activations: MEM_IO. */
MUST_CHECK enum status lane_arena_create_for(enum mem_kind kind, struct mem_source *source,
                                             struct ledger *ledger, const char *owner,
                                             size_t range_bytes, struct lane_arena **out_arena);
void lane_arena_destroy(struct lane_arena *arena); /* NULL is fine; no batch may be running */

/* Makes [base, base + bytes) usable for a batch.  STATUS_NO_MEMORY (budget or device) leaves the
 * arena as it was. */
MUST_CHECK enum status lane_arena_begin(struct lane_arena *arena, size_t bytes, void **out_base);
/* The same for whom the statistics shall name. */
struct arena_use {
    size_t bytes;
    uint64_t requested;          /* ≤ bytes: sizes of tensors before alignment */
    struct ledger_account *user; /* the model's account, open until lane_arena_end(); may be NULL */
};
MUST_CHECK enum status lane_arena_begin_for(struct lane_arena *arena, const struct arena_use *use,
                                            void **out_base);
/* Grows a running batch's part (a later segment); the base does not move. */
MUST_CHECK enum status lane_arena_extend(struct lane_arena *arena, size_t bytes);
/* The batch is over: everything is cached now. */
void lane_arena_end(struct lane_arena *arena);
/* Gives memory back until at most `keep_bytes` (or what is in use) stay behind it; returns bytes
 * freed. */
size_t lane_arena_trim(struct lane_arena *arena, size_t keep_bytes);
/* At most about `most_bytes` of it (whole pages, at least one), the last first: a slice of a trim.
 */
size_t lane_arena_trim_some(struct lane_arena *arena, size_t keep_bytes, size_t most_bytes);
size_t lane_arena_committed(const struct lane_arena *arena);
size_t lane_arena_used(const struct lane_arena *arena);
int64_t lane_arena_last_use_us(const struct lane_arena *arena);

#endif
