/* Where bytes come from: address ranges whose pages can be given and taken back.
 *
 * The CPU device fills it with mmap and madvise, CUDA with cuMem handles, tests with one that
 * refuses.  Everything above (arenas, ledger) is the same for all.
 * Threads: any.
 */
#ifndef MEMORY_MEM_SOURCE_H
#define MEMORY_MEM_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct mem_source {
    const struct mem_source_ops *ops;
    size_t page_bytes; /* granularity of commit and decommit */
    /* A range has memory from reserve() to release(): commit() and decommit() do nothing, and who
     * wants more or less reserves another range. */
    bool moves;
};

struct mem_source_ops {
    /* An address range without memory behind it. */
    enum status (*reserve)(struct mem_source *source, size_t bytes, void **out_base);
    void (*release)(struct mem_source *source, void *base,
                    size_t bytes); /* decommits what is left */
    /* Puts memory behind [base, base + bytes), both multiples of page_bytes.  STATUS_NO_MEMORY
     * leaves the range without memory. */
    enum status (*commit)(struct mem_source *source, void *base, size_t bytes);
    /* What is committed is about to be written, all of it: the pages come at once and not one by
     * one.  Any range, any number of threads.  NULL: they are there. */
    void (*populate)(struct mem_source *source, void *base, size_t bytes);
    /* Gives it back to the device: resident memory really falls. */
    void (*decommit)(struct mem_source *source, void *base, size_t bytes);
    /* What the device has free for anyone, and in all.  STATUS_UNSUPPORTED where it cannot be told.
     */
    enum status (*query)(struct mem_source *source, uint64_t *out_free, uint64_t *out_total);
    /* Copies host bytes to committed addresses and waits for it.  NULL: the addresses are the
     * host's own, write to them. */
    enum status (*write)(struct mem_source *source, void *to, const void *from, size_t bytes);
    /* The way back; NULL together with `write`. */
    enum status (*read)(struct mem_source *source, void *to, const void *from, size_t bytes);
    /* Memory that decommit() kept for the next commit() goes back to the device, but for
     * `keep_bytes`; returns how much did.  NULL: decommit() keeps nothing. */
    uint64_t (*trim)(struct mem_source *source, uint64_t keep_bytes);
};

#endif
