/* Ranges of addresses in order, none overlapping: what an account holds, and the pieces in it.
 *
 * Ownership: owns its array.  Threads: none; the ledger calls it under its lock.
 */
#ifndef MEMORY_BLOCKS_H
#define MEMORY_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct mem_block {
    uint64_t address;
    uint64_t bytes;
    uint64_t requested; /* the part of `bytes` that was asked for */
};

struct blocks {
    struct mem_block *items; /* by address */
    size_t count, room;
};

/* The place of the first block that ends behind `address`; count: none does. */
size_t blocks_find(const struct blocks *blocks, uint64_t address);
/* STATUS_NO_MEMORY leaves the list as it was. */
MUST_CHECK enum status blocks_add(struct blocks *blocks, const struct mem_block *block);
/* A block that ends where this one begins grows by it; false: there is none. */
bool blocks_join(struct blocks *blocks, const struct mem_block *block);
void blocks_remove(struct blocks *blocks, size_t first, size_t count);
void blocks_deinit(struct blocks *blocks);

#endif
