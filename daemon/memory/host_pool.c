/* Buffers by class: 64 KiB, 96 KiB, 128 KiB, 192 KiB, … each power of two and half-way to the next.
 *
 * A buffer is charged by its class, for that is what it may hold resident.  Below the first class
 * malloc does well and nothing is kept.  From there on every buffer is a mapping of its own; given
 * back, it goes on the list of its class (the link lies in its first bytes) unless that is long or
 * the lists hold their share of the budget.  Lent and kept bytes together stay within the budget:
 * a take that lacks room first drops kept buffers.
 */
#include "memory/host_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    SMALL_BYTES = 64 << 10, /* up to here: malloc */
    ALIGNMENT = 64,
    CLASSES = 2 * 47, /* up to 2^63 */
    KEPT_PER_CLASS = 64,
    KEPT_SHARE = 4, /* kept buffers take at most 1 / KEPT_SHARE of the budget */
};

struct kept { /* lies in the buffer itself */
    struct kept *next;
    size_t bytes;
};

struct class
{
    struct kept *first;
    unsigned count;
};

struct host_pool {
    pthread_mutex_t lock;
    uint64_t limit;
    uint64_t in_use;
    uint64_t cached;
    uint64_t refused;
    struct host_pool_pins pins; /* all NULL: pages are not locked */
    struct class classes[CLASSES];
};

static size_t class_bytes(size_t index)
{
    return ((size_t)SMALL_BYTES << (index / 2)) / 2 * (2 + index % 2);
}

/* The smallest class that holds `bytes`; CLASSES when there is none. */
static size_t class_of(size_t bytes)
{
    size_t index = 0;

    while (index < CLASSES && class_bytes(index) < bytes)
        index++;
    return index;
}

/* What a buffer of `bytes` is charged; 0: no such buffer exists. */
static size_t charge_of(size_t bytes)
{
    size_t index;

    if (bytes <= SMALL_BYTES)
        return bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    index = class_of(bytes);
    return index < CLASSES ? class_bytes(index) : 0;
}

uint64_t host_pool_charge(uint64_t bytes)
{
    size_t charge = charge_of(bytes);

    return charge > 0 ? charge : UINT64_MAX;
}

static void *map(struct host_pool *pool, size_t bytes)
{
    void *buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (buffer == MAP_FAILED)
        return NULL;
    if (pool->pins.pin != NULL)
        (void)pool->pins.pin(pool->pins.arg, buffer, bytes);
    return buffer;
}

static void unmap(struct host_pool *pool, void *buffer, size_t bytes)
{
    if (pool->pins.unpin != NULL)
        pool->pins.unpin(pool->pins.arg, buffer);
    munmap(buffer, bytes);
}

void host_pool_set_pins(struct host_pool *pool, const struct host_pool_pins *pins)
{
    assert(pool->in_use == 0 && pool->cached == 0);
    pool->pins = *pins;
}

enum status host_pool_create(uint64_t limit_bytes, struct host_pool **out_pool)
{
    struct host_pool *pool = calloc(1, sizeof(*pool));

    if (pool == NULL)
        return STATUS_NO_MEMORY;
    pool->limit = limit_bytes;
    pthread_mutex_init(&pool->lock, NULL);
    *out_pool = pool;
    return STATUS_OK;
}

void host_pool_destroy(struct host_pool *pool)
{
    if (pool == NULL)
        return;
    assert(pool->in_use == 0);
    host_pool_trim(pool, 0);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static struct kept *pop_kept(struct host_pool *pool, size_t index)
{
    struct kept *buffer = pool->classes[index].first;

    if (buffer != NULL) {
        pool->classes[index].first = buffer->next;
        pool->classes[index].count--;
        pool->cached -= class_bytes(index);
    }
    return buffer;
}

/* Unlinks kept buffers, largest class first, until at most `keep` bytes are kept; returns them as a
 * chain for unmap_chain() outside the lock. */
static struct kept *detach(struct host_pool *pool, uint64_t keep)
{
    struct kept *chain = NULL;

    for (size_t i = CLASSES; i-- > 0 && pool->cached > keep;) {
        while (pool->cached > keep && pool->classes[i].first != NULL) {
            struct kept *buffer = pop_kept(pool, i);

            buffer->next = chain;
            chain = buffer;
        }
    }
    return chain;
}

static size_t unmap_chain(struct host_pool *pool, struct kept *chain)
{
    size_t freed = 0;

    while (chain != NULL) {
        struct kept *buffer = chain;
        size_t bytes = buffer->bytes;

        chain = buffer->next;
        unmap(pool, buffer, bytes);
        freed += bytes;
    }
    return freed;
}

size_t host_pool_trim(struct host_pool *pool, size_t keep_bytes)
{
    struct kept *chain;

    pthread_mutex_lock(&pool->lock);
    chain = detach(pool, keep_bytes);
    pthread_mutex_unlock(&pool->lock);
    return unmap_chain(pool, chain);
}

void host_pool_set_limit(struct host_pool *pool, uint64_t limit_bytes)
{
    pthread_mutex_lock(&pool->lock);
    pool->limit = limit_bytes;
    pthread_mutex_unlock(&pool->lock);
    host_pool_trim(pool, (size_t)(limit_bytes / KEPT_SHARE));
}

/* Takes `charge` out of the budget, dropping kept buffers when that makes the difference. */
static bool charge_fits(struct host_pool *pool, size_t charge, struct kept **out_chain)
{
    uint64_t room = pool->limit > pool->in_use ? pool->limit - pool->in_use : 0;

    if (charge > room)
        return false;
    if (pool->cached > room - charge)
        *out_chain = detach(pool, room - charge);
    pool->in_use += charge;
    return true;
}

static void uncharge(struct host_pool *pool, size_t charge, bool is_refusal)
{
    pthread_mutex_lock(&pool->lock);
    assert(charge <= pool->in_use);
    pool->in_use -= charge;
    pool->refused += is_refusal;
    pthread_mutex_unlock(&pool->lock);
}

enum status host_pool_take(struct host_pool *pool, size_t bytes, void **out_buffer)
{
    struct kept *chain = NULL;
    bool is_small = bytes <= SMALL_BYTES;
    size_t charge = charge_of(bytes);
    void *buffer = NULL;
    bool fits;

    pthread_mutex_lock(&pool->lock);
    if (charge > 0 && !is_small && pool->limit >= charge && pool->limit - charge >= pool->in_use)
        buffer = pop_kept(pool, class_of(bytes));
    fits = charge > 0 && charge_fits(pool, charge, &chain);
    pool->refused += !fits;
    pthread_mutex_unlock(&pool->lock);
    unmap_chain(pool, chain);
    if (!fits)
        return STATUS_NO_MEMORY;

    if (buffer == NULL)
        buffer = is_small ? aligned_alloc(ALIGNMENT, charge) : map(pool, charge);
    if (buffer == NULL) {
        uncharge(pool, charge, true);
        return STATUS_NO_MEMORY;
    }
    *out_buffer = buffer;
    return STATUS_OK;
}

/* Whether the buffer, no longer in use, went on its list. */
static bool keep(struct host_pool *pool, struct kept *buffer, size_t index)
{
    struct class *class = &pool->classes[index];
    size_t bytes = class_bytes(index);

    if (class->count >= KEPT_PER_CLASS || pool->cached + bytes > pool->limit / KEPT_SHARE ||
        pool->in_use + pool->cached + bytes > pool->limit)
        return false;
    *buffer = (struct kept){.next = class->first, .bytes = bytes};
    class->first = buffer;
    class->count++;
    pool->cached += bytes;
    return true;
}

void host_pool_give(struct host_pool *pool, void *buffer, size_t bytes)
{
    size_t charge = charge_of(bytes);
    bool is_kept;

    if (buffer == NULL)
        return;
    if (bytes <= SMALL_BYTES) {
        uncharge(pool, charge, false);
        free(buffer);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    assert(charge <= pool->in_use);
    pool->in_use -= charge;
    is_kept = keep(pool, buffer, class_of(bytes));
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept)
        unmap(pool, buffer, charge);
}

void host_pool_read(struct host_pool *pool, struct host_pool_stats *out_stats)
{
    pthread_mutex_lock(&pool->lock);
    *out_stats = (struct host_pool_stats){
        .limit_bytes = pool->limit,
        .in_use_bytes = pool->in_use,
        .cached_bytes = pool->cached,
        .refused_total = pool->refused,
    };
    pthread_mutex_unlock(&pool->lock);
}
