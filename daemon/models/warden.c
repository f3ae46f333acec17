/* The warden: ledger, device and batcher into the governor; its verdict into trims and caps. */
#define LOG_COMPONENT "govern"

#include "models/warden.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "observe/log.h"

enum { EVICT_PAUSE_US = 1000000 };

enum asker { ASKER_GOVERNOR, ASKER_DECAY, ASKER_OPERATOR, ASKERS };
static const char *const askers[ASKERS] = {"governor", "decay", "operator"}; /* in the history */

struct warden {
    pthread_mutex_t lock;
    struct device *device;
    struct ledger *ledger;
    struct host_pool *host_pool;
    struct batcher *batcher;
    warden_evict_fn evict; /* NULL: no models to evict */
    warden_evictable_fn evictable;
    void *evict_arg;
    atomic_bool may_load;
    int64_t evict_again_us; /* nothing was idle: ask again then (the ticking thread's) */
    /* under lock */
    struct governor governor;
    struct govern_config config; /* as configured: without what is held for others */
    uint64_t held_bytes;
    int64_t held_until_us;
    bool pinned;
    uint64_t refused_seen; /* of batcher_refused() */
    unsigned cap_shift;
    uint64_t empty_cache_by[ASKERS];
    uint64_t empty_cache_freed_bytes;
};

enum status warden_create(const struct govern_config *config, struct device *device,
                          struct ledger *ledger, struct host_pool *host_pool,
                          struct batcher *batcher, struct warden **out_warden)
{
    struct warden *warden = calloc(1, sizeof(*warden));

    if (warden == NULL)
        return STATUS_NO_MEMORY;
    pthread_mutex_init(&warden->lock, NULL);
    warden->device = device;
    warden->ledger = ledger;
    warden->host_pool = host_pool;
    warden->batcher = batcher;
    atomic_init(&warden->may_load, true);
    warden->config = *config;
    governor_init(&warden->governor, config, clock_now_us());
    *out_warden = warden;
    return STATUS_OK;
}

void warden_destroy(struct warden *warden)
{
    if (warden == NULL)
        return;
    pthread_mutex_destroy(&warden->lock);
    free(warden);
}

void warden_set_evict(struct warden *warden, warden_evict_fn evict, warden_evictable_fn evictable,
                      void *arg)
{
    warden->evict = evict;
    warden->evictable = evictable;
    warden->evict_arg = arg;
}

bool warden_may_load(struct warden *warden)
{
    return atomic_load_explicit(&warden->may_load, memory_order_relaxed);
}

/* The configuration, less what is held for others.  Lock held. */
static void apply_config(struct warden *warden)
{
    struct govern_config config = warden->config;

    config.budget_bytes -=
        warden->held_bytes < config.budget_bytes ? warden->held_bytes : config.budget_bytes;
    governor_configure(&warden->governor, &config);
    ledger_set_budget(warden->ledger, config.budget_bytes);
}

void warden_configure(struct warden *warden, const struct govern_config *config)
{
    pthread_mutex_lock(&warden->lock);
    warden->config = *config;
    apply_config(warden);
    pthread_mutex_unlock(&warden->lock);
}

void warden_hold(struct warden *warden, uint64_t bytes, int64_t until_us)
{
    pthread_mutex_lock(&warden->lock);
    warden->held_bytes += bytes;
    if (until_us > warden->held_until_us)
        warden->held_until_us = until_us;
    apply_config(warden);
    pthread_mutex_unlock(&warden->lock);
}

void warden_unhold(struct warden *warden, uint64_t bytes)
{
    pthread_mutex_lock(&warden->lock);
    warden->held_bytes -= bytes < warden->held_bytes ? bytes : warden->held_bytes;
    apply_config(warden);
    pthread_mutex_unlock(&warden->lock);
}

/* What was held for others is ours again.  Lock held. */
static void end_hold(struct warden *warden, int64_t now_us)
{
    if (warden->held_bytes == 0 || now_us < warden->held_until_us)
        return;
    log_info("%" PRIu64 " bytes held for others are in the budget again", warden->held_bytes);
    warden->held_bytes = 0;
    apply_config(warden);
}

/* ---- sampling ---- */

static bool query_device(const struct warden *warden, uint64_t *out_free, uint64_t *out_total)
{
    struct mem_source *memory = warden->device->memory;

    return memory->ops->query != NULL &&
           memory->ops->query(memory, out_free, out_total) == STATUS_OK;
}

static struct govern_input sample(struct warden *warden, int64_t now_us)
{
    uint64_t refused = batcher_refused(warden->batcher), free_bytes = 0, total_bytes = 0;
    struct govern_input input = {.now_us = now_us};
    struct ledger_stats stats;

    ledger_read(warden->ledger, &stats);
    input.reserved_bytes = stats.reserved_bytes;
    input.cached_bytes = stats.cached_bytes;
    input.planned_bytes = stats.planned_bytes;
    input.free_known = query_device(warden, &free_bytes, &total_bytes);
    input.free_bytes = free_bytes;
    input.last_batch_us =
        batcher_running(warden->batcher) > 0 ? now_us : batcher_last_batch_us(warden->batcher);
    input.refused = refused - warden->refused_seen;
    warden->refused_seen = refused;
    return input;
}

/* ---- acting ---- */

/* Trims lanes, and the pool of request bodies when nothing is to be kept. */
static uint64_t give_back(struct warden *warden, uint64_t keep_bytes, enum asker asker)
{
    uint64_t freed = batcher_trim(warden->batcher, keep_bytes);

    if (keep_bytes == 0)
        (void)host_pool_trim(warden->host_pool, 0);
    if (freed > 0 || asker == ASKER_OPERATOR) {
        ledger_note(warden->ledger, &(struct mem_note){.kind = MEM_EVENT_EMPTY_CACHE,
                                                       .bytes = freed,
                                                       .other = keep_bytes,
                                                       .note = askers[asker]});
        warden->empty_cache_by[asker]++;
        warden->empty_cache_freed_bytes += freed;
    }
    return freed;
}

static void say_level(const struct warden *warden, const struct govern_input *input,
                      enum govern_level from, const struct govern_verdict *verdict)
{
    enum log_level level =
        verdict->level > from && verdict->level >= LEVEL_RECLAIM ? LOG_LEVEL_WARN : LOG_LEVEL_INFO;

    ledger_note(warden->ledger, &(struct mem_note){.kind = MEM_EVENT_LEVEL,
                                                   .bytes = input->reserved_bytes,
                                                   .other = verdict->level,
                                                   .note = govern_level_name(verdict->level)});
    LOG_AT(level,
           "memory level %s, was %s: %" PRIu64 " of %" PRIu64 " bytes reserved, %" PRIu64
           " cached%s",
           govern_level_name(verdict->level), govern_level_name(from), input->reserved_bytes,
           warden->governor.config.budget_bytes, input->cached_bytes,
           verdict->pinned ? ", nothing worth giving back" : "");
}

static void carry_out(struct warden *warden, const struct govern_verdict *verdict)
{
    if (verdict->trim) {
        uint64_t freed = give_back(warden, verdict->keep_bytes,
                                   verdict->is_decay ? ASKER_DECAY : ASKER_GOVERNOR);

        log_debug("gave back %" PRIu64 " bytes, %" PRIu64 " may stay%s", freed, verdict->keep_bytes,
                  verdict->is_decay ? " (idle)" : "");
    }
    if (verdict->batch_cap_shift != warden->cap_shift) {
        warden->cap_shift = verdict->batch_cap_shift;
        batcher_set_cap_shift(warden->batcher, warden->cap_shift);
    }
}

/* Idle models go; when none was idle, nobody asks again for a second. */
static void evict(struct warden *warden, uint64_t bytes, int64_t now_us)
{
    uint64_t freed;

    if (bytes == 0 || warden->evict == NULL || now_us < warden->evict_again_us)
        return;
    freed = warden->evict(warden->evict_arg, bytes);
    log_debug("asked idle models for %" PRIu64 " bytes, %" PRIu64 " come", bytes, freed);
    if (freed == 0)
        warden->evict_again_us = now_us + EVICT_PAUSE_US;
}

int64_t warden_tick(struct warden *warden, int64_t now_us)
{
    struct govern_verdict verdict;
    struct govern_input input;
    enum govern_level before;

    pthread_mutex_lock(&warden->lock);
    end_hold(warden, now_us);
    input = sample(warden, now_us);
    before = warden->governor.level;
    governor_tick(&warden->governor, &input, &verdict);
    warden->pinned = verdict.pinned;
    if (verdict.level_changed)
        say_level(warden, &input, before, &verdict);
    carry_out(warden, &verdict);
    if (warden->held_bytes > 0 && warden->held_until_us < verdict.next_tick_us)
        verdict.next_tick_us = warden->held_until_us;
    pthread_mutex_unlock(&warden->lock);
    atomic_store_explicit(&warden->may_load, verdict.may_load, memory_order_relaxed);
    evict(warden, verdict.evict_bytes, now_us);
    return verdict.next_tick_us;
}

void warden_empty_cache(struct warden *warden, bool forced, struct empty_cache_answer *out_answer)
{
    int64_t from_us = clock_now_us();
    struct empty_cache_answer answer;
    struct ledger_stats stats;

    pthread_mutex_lock(&warden->lock);
    answer = (struct empty_cache_answer){
        .freed_bytes =
            give_back(warden, governor_keep_bytes(&warden->governor, forced), ASKER_OPERATOR)};
    pthread_mutex_unlock(&warden->lock);
    ledger_read(warden->ledger, &stats);
    /* On this device memory is back at once (nothing pending), and no graph of a device holds any.
     */
    answer.kept_alive = stats.allocated_bytes;
    answer.kept_floor = stats.cached_bytes;
    answer.microseconds = clock_now_us() - from_us;
    *out_answer = answer;
}

/* ---- reading ---- */

static uint64_t share(double part, uint64_t whole)
{
    return (uint64_t)(part * (double)whole);
}

void warden_read(struct warden *warden, struct warden_view *out_view)
{
    const struct govern_config *config = &warden->governor.config;
    struct warden_view view = {.level = LEVEL_NORMAL};

    ledger_read(warden->ledger, &view.ledger);
    host_pool_read(warden->host_pool, &view.host);
    (void)query_device(warden, &view.device_free_bytes, &view.device_total_bytes);
    view.last_batch_us = batcher_running(warden->batcher) > 0
                             ? clock_now_us()
                             : batcher_last_batch_us(warden->batcher);
    pthread_mutex_lock(&warden->lock);
    view.level = warden->governor.level;
    view.pinned = warden->pinned;
    view.held_bytes = warden->held_bytes;
    view.held_until_us = warden->held_bytes > 0 ? warden->held_until_us : 0;
    view.low_bytes = share(config->low, config->budget_bytes);
    view.high_bytes = share(config->high, config->budget_bytes);
    view.critical_bytes = share(config->critical, config->budget_bytes);
    view.idle_after_us = config->idle_after_us;
    view.idle_decay_us = config->idle_decay_us;
    view.floor_bytes = config->floor_bytes;
    view.transitions_total = warden->governor.transitions_total;
    for (size_t i = 0; i < sizeof(view.level_entries) / sizeof(view.level_entries[0]); i++)
        view.level_entries[i] = warden->governor.level_entries[i];
    for (size_t i = 0; i < ASKERS; i++) {
        view.empty_cache_by[i] = warden->empty_cache_by[i];
        view.empty_cache_total += warden->empty_cache_by[i];
    }
    view.empty_cache_freed_bytes_total = warden->empty_cache_freed_bytes;
    pthread_mutex_unlock(&warden->lock);
    *out_view = view;
}

struct ledger *warden_ledger(struct warden *warden)
{
    return warden->ledger;
}
