/* Pooled host buffers for request and response bodies, under one byte budget (HostLimit=).
 *
 * Big buffers come from mmap, never from malloc (glibc trims and refaults them), in power-of-two
 * and 1.5 x classes; a few of each are kept.  Waiting for room is the caller's affair. Threads:
 * any.
 */
#ifndef MEMORY_HOST_POOL_H
#define MEMORY_HOST_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct host_pool;

struct host_pool_stats {
    uint64_t limit_bytes;
    uint64_t in_use_bytes; /* lent out */
    uint64_t cached_bytes; /* kept for reuse */
    uint64_t refused_total;
};

MUST_CHECK enum status host_pool_create(uint64_t limit_bytes, struct host_pool **out_pool);
void host_pool_destroy(struct host_pool *pool); /* every buffer must be back; NULL is fine */
/* How the pages of large buffers are locked, so that a device copies from and to them by itself;
 * `pin` may fail, the buffer does without.  Before the first take; for good. */
struct host_pool_pins {
    enum status (*pin)(void *arg, void *buffer, size_t bytes);
    void (*unpin)(void *arg, void *buffer);
    void *arg;
};
void host_pool_set_pins(struct host_pool *pool, const struct host_pool_pins *pins);
void host_pool_set_limit(struct host_pool *pool, uint64_t limit_bytes);
/* 64-byte aligned.  STATUS_NO_MEMORY when the budget or the system refuses: nothing changed. */
MUST_CHECK enum status host_pool_take(struct host_pool *pool, size_t bytes, void **out_buffer);
void host_pool_give(struct host_pool *pool, void *buffer,
                    size_t bytes); /* `bytes` as taken; NULL is fine */
/* What a buffer of `bytes` counts against the limit: those of a class, rounded up; UINT64_MAX when
 * there is no such buffer. */
uint64_t host_pool_charge(uint64_t bytes);
/* Gives kept buffers back to the system; returns bytes freed. */
size_t host_pool_trim(struct host_pool *pool, size_t keep_bytes);
void host_pool_read(struct host_pool *pool, struct host_pool_stats *out_stats);

#endif
