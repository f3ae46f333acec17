/* Packed weights of one model: found by (constant, format), made once, shared by all its plans.
 *
 * Memory comes from the device's mem_source in chunks that are committed page by page as they fill,
 * and is booked in the account given.  Pieces are never given back one by one: they live as long as
 * the model.
 *
 * Threads: any for weights_share() itself; but a piece that is new must be filled before another
 * plan of the same model is prepared, so the network prepares one plan at a time, and on several
 * threads only kernels that may be (engine/groups.c).  For the same reason a kernel fills a new
 * piece at once, before anything that may fail.
 */
#ifndef DEVICE_WEIGHTS_H
#define DEVICE_WEIGHTS_H

#include "device/kernel.h"
#include "memory/ledger.h"

/* `source` and `account` must outlive it.  `account` may be NULL: nothing is booked. */
MUST_CHECK enum status weights_cache_create(struct mem_source *source,
                                            struct ledger_account *account,
                                            struct weights_cache **out_cache);
/* Gives every byte back.  NULL is fine. */
void weights_cache_destroy(struct weights_cache *cache);
/* Whether a packed form of the constant was made. */
bool weights_cache_has(struct weights_cache *cache, const void *key);
/* Of the pieces whose format begins with `what`. */
uint64_t weights_cache_bytes(struct weights_cache *cache, const char *what);
/* While frozen, by the calling thread and for it, weights_share() only finds what there is; it
 * answers STATUS_UNSUPPORTED for the rest.  A kernel that is prepared so reads no elements of large
 * constants: it would only to fill a piece. */
void weights_cache_freeze(struct weights_cache *cache, bool frozen);

/* What a cache held, in host memory (page-locked where the device can), while its model is away
 * from a device with memory of its own: the way back copies instead of packing. */
struct weights_copy;
/* Whether a piece is found again by its key when the model comes back. */
typedef bool (*weights_keep_fn)(void *arg, const void *key);
/* Bytes of the copy that weights_copy_create() would make: of the pieces that `keep` names. */
size_t weights_copyable(struct weights_cache *cache, weights_keep_fn keep, void *arg);
/* Nobody may use the cache meanwhile.  STATUS_NO_MEMORY, and what a copy from the device says. */
MUST_CHECK enum status weights_copy_create(struct weights_cache *cache, struct device *device,
                                           weights_keep_fn keep, void *arg,
                                           struct weights_copy **out_copy);
void weights_copy_destroy(struct weights_copy *copy); /* NULL is fine */
size_t weights_copy_bytes(const struct weights_copy *copy);
/* From now on (until called with NULL) what the copy has is not new: weights_share() makes the
 * piece and fills it from there.  Borrowed. */
void weights_cache_fill_from(struct weights_cache *cache, const struct weights_copy *copy);

#endif
