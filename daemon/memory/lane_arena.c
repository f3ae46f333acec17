/* A lane's activation memory: two marks, `used` and `high`, over a range of addresses.
 *
 * Only the batch that runs in the lane raises `high`, any thread may lower it down to `used`.  So a
 * begin first raises `used` under the lock (from then on nobody takes anything below it), then
 * books and commits what is missing without the lock: booking may have to trim other lanes, and a
 * commit takes as long as the device likes.  A trim lowers `high` under the lock and unmaps without
 * it; a begin that must grow into the part being unmapped waits for it.
 */
#include "memory/lane_arena.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"

struct lane_arena {
    struct mem_source *source;
    struct ledger *ledger;
    struct ledger_account *account;
    char *base;
    size_t range; /* whole pages */
    pthread_mutex_t lock;
    pthread_cond_t trimmed;      /* is_trimming fell */
    size_t used;                 /* bytes the running batch asked for; 0: none runs */
    size_t high;                 /* committed bytes, whole pages */
    uint64_t requested;          /* of `used`, for statistics */
    struct ledger_account *user; /* whose batch it is */
    bool is_trimming;            /* somebody unmaps what lies behind `high` */
    _Atomic int64_t last_use_us;
};

static size_t to_pages(const struct lane_arena *arena, size_t bytes)
{
    size_t page = arena->source->page_bytes;

    return (bytes + page - 1) / page * page;
}

static uint64_t give_back(void *arg, uint64_t bytes)
{
    struct lane_arena *arena = arg;
    size_t high = lane_arena_committed(arena);

    return lane_arena_trim(arena, bytes < high ? high - (size_t)bytes : 0);
}

enum status lane_arena_create(struct mem_source *source, struct ledger *ledger, const char *owner,
                              size_t range_bytes, struct lane_arena **out_arena)
{
    return lane_arena_create_for(MEM_ACTIVATION, source, ledger, owner, range_bytes, out_arena);
}

enum status lane_arena_create_for(enum mem_kind kind, struct mem_source *source,
                                  struct ledger *ledger, const char *owner, size_t range_bytes,
                                  struct lane_arena **out_arena)
{
    struct lane_arena *arena;
    enum status status = STATUS_NO_MEMORY;
    void *base;

    if (range_bytes > SIZE_MAX - source->page_bytes)
        return STATUS_NO_MEMORY;
    arena = calloc(1, sizeof(*arena));
    if (arena == NULL)
        return STATUS_NO_MEMORY;
    arena->source = source;
    arena->ledger = ledger;
    pthread_mutex_init(&arena->lock, NULL);
    pthread_cond_init(&arena->trimmed, NULL);
    atomic_init(&arena->last_use_us, clock_now_us());

    status = ledger_open_arena(ledger, owner, kind, &arena->account);
    if (status != STATUS_OK)
        goto fail;
    arena->range = to_pages(arena, range_bytes);
    if (!source->moves) {
        status = source->ops->reserve(source, arena->range, &base);
        if (status != STATUS_OK)
            goto fail;
        arena->base = base;
        ledger_set_address(arena->account, (uintptr_t)base);
    }
    ledger_set_page(ledger, source->page_bytes);
    ledger_set_reclaim(arena->account, give_back, arena);
    *out_arena = arena;
    return STATUS_OK;
fail:
    lane_arena_destroy(arena);
    return status;
}

void lane_arena_destroy(struct lane_arena *arena)
{
    if (arena == NULL)
        return;
    assert(arena->used == 0);
    if (arena->account != NULL)
        ledger_set_reclaim(arena->account, NULL, NULL);
    if (arena->base != NULL)
        arena->source->ops->release(arena->source, arena->base,
                                    arena->source->moves ? arena->high : arena->range);
    ledger_close(arena->account);
    pthread_cond_destroy(&arena->trimmed);
    pthread_mutex_destroy(&arena->lock);
    free(arena);
}

/* Commits [from, to); what the device refuses it may grant once other lanes gave back their cache.
 */
static enum status commit(struct lane_arena *arena, size_t from, size_t to)
{
    struct mem_source *source = arena->source;
    enum status status = source->ops->commit(source, arena->base + from, to - from);

    if (status == STATUS_NO_MEMORY && ledger_reclaim(arena->ledger, to - from) > 0) {
        ledger_count_retry(arena->account);
        status = source->ops->commit(source, arena->base + from, to - from);
    }
    if (status == STATUS_NO_MEMORY)
        ledger_count_oom(arena->ledger, arena->user, to - from, 0, "the device");
    return status;
}

/* Books and commits [from, to), `from` being the high mark that nobody lowers any more. */
static enum status grow(struct lane_arena *arena, size_t from, size_t to)
{
    const struct ledger_piece piece = {.bytes = to - from,
                                       .address = (uintptr_t)(arena->base + from)};
    enum status status = ledger_add_at(arena->account, &piece);

    if (status != STATUS_OK)
        return status;
    status = commit(arena, from, to);
    if (status != STATUS_OK)
        ledger_undo_add(arena->account, &piece);
    return status;
}

/* The same where memory cannot grow in place: another block takes the old one's place.  Only what
 * is idle can move; without memory for the larger one the arena has none. */
static enum status move(struct lane_arena *arena, size_t from, size_t to)
{
    struct mem_source *source = arena->source;
    enum status status;
    void *base = NULL;

    if (arena->base != NULL) {
        const struct ledger_piece old = {.bytes = from, .address = (uintptr_t)arena->base};

        source->ops->release(source, arena->base, from);
        ledger_sub_at(arena->account, &old);
        arena->base = NULL;
    }
    status = ledger_add_at(arena->account, &(struct ledger_piece){.bytes = to});
    if (status != STATUS_OK)
        return status;
    status = source->ops->reserve(source, to, &base);
    if (status == STATUS_NO_MEMORY && ledger_reclaim(arena->ledger, to) > 0)
        status = source->ops->reserve(source, to, &base);
    if (status != STATUS_OK) {
        ledger_undo_add(arena->account, &(struct ledger_piece){.bytes = to});
        return status;
    }
    arena->base = base;
    ledger_set_address(arena->account, (uintptr_t)base);
    return STATUS_OK;
}

/* Tells the ledger that `bytes` (whole pages) are in use. */
static void tell_use(struct lane_arena *arena, size_t bytes, bool grows)
{
    const struct ledger_use use = {
        .bytes = bytes,
        .requested = arena->requested < bytes ? arena->requested : bytes,
        .user = arena->user,
        .grows = grows,
    };

    ledger_set_use(arena->account, &use, clock_now_us());
}

/* Raises `used` to `bytes`; on failure it is what it was. */
static enum status raise_used(struct lane_arena *arena, size_t bytes)
{
    size_t need = to_pages(arena, bytes);
    enum status status;
    size_t before, from;

    pthread_mutex_lock(&arena->lock);
    before = arena->used;
    arena->used = bytes;
    while (arena->is_trimming && need > arena->high)
        pthread_cond_wait(&arena->trimmed, &arena->lock);
    from = arena->high;
    tell_use(arena, need < from ? need : from, need > from);
    pthread_mutex_unlock(&arena->lock);
    if (need <= from)
        return STATUS_OK;

    if (!arena->source->moves)
        status = grow(arena, from, need);
    else
        status = before == 0 ? move(arena, from, need) : STATUS_NO_MEMORY;

    pthread_mutex_lock(&arena->lock);
    if (status != STATUS_OK)
        arena->used = before;
    else
        arena->high = need;
    if (arena->base == NULL)
        arena->high = 0;
    tell_use(arena, to_pages(arena, arena->used), false);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

enum status lane_arena_begin_for(struct lane_arena *arena, const struct arena_use *use,
                                 void **out_base)
{
    enum status status = STATUS_OK;

    assert(arena->used == 0 && use->requested <= use->bytes);
    if (use->bytes > arena->range)
        return STATUS_NO_MEMORY;
    arena->requested = use->requested;
    arena->user = use->user;
    if (use->bytes > 0)
        status = raise_used(arena, use->bytes);
    if (status == STATUS_OK)
        *out_base = arena->base;
    return status;
}

enum status lane_arena_begin(struct lane_arena *arena, size_t bytes, void **out_base)
{
    const struct arena_use use = {.bytes = bytes, .requested = bytes};

    return lane_arena_begin_for(arena, &use, out_base);
}

enum status lane_arena_extend(struct lane_arena *arena, size_t bytes)
{
    enum status status;
    size_t more;

    if (bytes > arena->range)
        return STATUS_NO_MEMORY;
    if (bytes <= arena->used)
        return STATUS_OK;
    more = bytes - arena->used;
    arena->requested += more;
    status = raise_used(arena, bytes);
    if (status != STATUS_OK)
        arena->requested -= more;
    return status;
}

void lane_arena_end(struct lane_arena *arena)
{
    int64_t now_us = clock_now_us();

    pthread_mutex_lock(&arena->lock);
    arena->used = 0;
    ledger_set_use(arena->account, &(struct ledger_use){.user = arena->user}, now_us);
    arena->user = NULL;
    pthread_mutex_unlock(&arena->lock);
    atomic_store_explicit(&arena->last_use_us, now_us, memory_order_relaxed);
}

size_t lane_arena_trim(struct lane_arena *arena, size_t keep_bytes)
{
    return lane_arena_trim_some(arena, keep_bytes, arena->range);
}

size_t lane_arena_trim_some(struct lane_arena *arena, size_t keep_bytes, size_t most_bytes)
{
    size_t most = to_pages(arena, most_bytes < arena->range ? most_bytes : arena->range);
    size_t keep = to_pages(arena, keep_bytes < arena->range ? keep_bytes : arena->range);
    size_t from, freed;

    pthread_mutex_lock(&arena->lock);
    while (arena->is_trimming)
        pthread_cond_wait(&arena->trimmed, &arena->lock);
    from = to_pages(arena, arena->used);
    if (from < keep)
        from = keep;
    if (arena->source->moves) { /* all of it or nothing */
        from = arena->used > 0 || keep > 0 ? arena->high : 0;
        most = arena->range;
    }
    freed = arena->high > from ? arena->high - from : 0;
    if (most == 0)
        most = arena->source->page_bytes;
    if (freed > most) {
        from = arena->high - most;
        freed = most;
    }
    if (freed > 0) {
        arena->high = from;
        arena->is_trimming = true;
    }
    pthread_mutex_unlock(&arena->lock);
    if (freed == 0)
        return 0;

    if (arena->source->moves)
        arena->source->ops->release(arena->source, arena->base, freed);
    else
        arena->source->ops->decommit(arena->source, arena->base + from, freed);
    ledger_sub_at(arena->account, &(struct ledger_piece){
                                      .bytes = freed, .address = (uintptr_t)(arena->base + from)});

    pthread_mutex_lock(&arena->lock);
    if (arena->source->moves)
        arena->base = NULL;
    arena->is_trimming = false;
    pthread_cond_broadcast(&arena->trimmed);
    pthread_mutex_unlock(&arena->lock);
    return freed;
}

size_t lane_arena_committed(const struct lane_arena *arena)
{
    struct lane_arena *mutable = (struct lane_arena *)arena;
    size_t high;

    pthread_mutex_lock(&mutable->lock);
    high = arena->high;
    pthread_mutex_unlock(&mutable->lock);
    return high;
}

size_t lane_arena_used(const struct lane_arena *arena)
{
    struct lane_arena *mutable = (struct lane_arena *)arena;
    size_t used;

    pthread_mutex_lock(&mutable->lock);
    used = arena->used;
    pthread_mutex_unlock(&mutable->lock);
    return used;
}

int64_t lane_arena_last_use_us(const struct lane_arena *arena)
{
    return atomic_load_explicit(&arena->last_use_us, memory_order_relaxed);
}
