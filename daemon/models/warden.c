/* The warden: ledger, device and batcher into the governor; its verdict into trims and caps. */
#define LOG_COMPONENT "govern"

#include "models/warden.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "device/host_source.h"
#include "models/reclaimer.h"
#include "observe/log.h"

enum { EVICT_PAUSE_US = 1000000, HOLDS_MOST = 16 };

#define OPERATOR_SHARE 0.25 /* of wall time, for an empty_cache that somebody asked for */

struct warden {
    pthread_mutex_t lock;
    struct device *device;
    struct ledger *ledger;
    struct host_pool *host_pool;
    struct batcher *batcher;
    struct reclaimer *reclaimer;
    warden_evict_fn evict; /* NULL: no models to evict */
    warden_evictable_fn evictable;
    void *evict_arg;
    _Atomic uint64_t may_hold_bytes;
    int64_t evict_again_us; /* nothing was idle: ask again then (the ticking thread's) */
    /* under lock */
    struct governor governor;
    struct govern_config config; /* as configured: without what is held for others */
    struct hold {
        uint64_t bytes; /* 0: none */
        int64_t until_us;
    } holds[HOLDS_MOST];
    size_t newest_hold;
    bool pinned;
    struct govern_verdict verdict; /* the last */
    struct seen {                  /* totals at the last tick */
        int64_t stall_us;
        uint64_t refused, admitted, taken_bytes;
    } seen;
    uint64_t free_bytes, total_bytes; /* of the device at the last tick; 0: unknown */
    atomic_uint presses;              /* the system pressed since the last tick */
    uint64_t presses_total;
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
    atomic_init(&warden->may_hold_bytes, UINT64_MAX);
    warden->config = *config;
    governor_init(&warden->governor, config, clock_now_us());
    if (reclaimer_create(ledger, batcher, host_pool, &warden->reclaimer) != STATUS_OK) {
        warden_destroy(warden);
        return STATUS_NO_MEMORY;
    }
    *out_warden = warden;
    return STATUS_OK;
}

void warden_destroy(struct warden *warden)
{
    if (warden == NULL)
        return;
    reclaimer_destroy(warden->reclaimer);
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

uint64_t warden_may_hold(struct warden *warden)
{
    return atomic_load_explicit(&warden->may_hold_bytes, memory_order_relaxed);
}

/* Of all that is held for others.  Lock held; *out_first_us and *out_last_us: when the first and
 * the last hold end, CLOCK_NEVER and 0 without any. */
static uint64_t sum_of_holds(const struct warden *warden, int64_t *out_first_us,
                             int64_t *out_last_us)
{
    uint64_t bytes = 0;

    *out_first_us = CLOCK_NEVER;
    *out_last_us = 0;
    for (size_t i = 0; i < HOLDS_MOST; i++) {
        const struct hold *hold = &warden->holds[i];

        if (hold->bytes == 0)
            continue;
        bytes += hold->bytes;
        *out_first_us = hold->until_us < *out_first_us ? hold->until_us : *out_first_us;
        *out_last_us = hold->until_us > *out_last_us ? hold->until_us : *out_last_us;
    }
    return bytes;
}

/* The configuration, less what is held for others.  Lock held. */
static void apply_config(struct warden *warden)
{
    struct govern_config config = warden->config;
    int64_t first_us, last_us;
    uint64_t held = sum_of_holds(warden, &first_us, &last_us);

    held = held < config.budget_bytes ? held : config.budget_bytes;
    config.budget_bytes -= held;
    governor_configure(&warden->governor, &config);
    ledger_set_budget_for_now(warden->ledger, config.budget_bytes, held);
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
    struct hold *hold;
    size_t at = 0;

    pthread_mutex_lock(&warden->lock);
    for (size_t i = 0; i < HOLDS_MOST && warden->holds[at].bytes > 0; i++)
        if (warden->holds[i].bytes == 0 || warden->holds[i].until_us > warden->holds[at].until_us)
            at = i;
    hold = &warden->holds[at]; /* a free one, or that which ends last */
    hold->until_us = hold->bytes > 0 && hold->until_us > until_us ? hold->until_us : until_us;
    hold->bytes += bytes;
    warden->newest_hold = at;
    apply_config(warden);
    pthread_mutex_unlock(&warden->lock);
}

void warden_unhold(struct warden *warden, uint64_t bytes)
{
    struct hold *hold;

    pthread_mutex_lock(&warden->lock);
    hold = &warden->holds[warden->newest_hold];
    hold->bytes -= bytes < hold->bytes ? bytes : hold->bytes;
    apply_config(warden);
    pthread_mutex_unlock(&warden->lock);
}

/* What was held for others is ours again.  Lock held. */
static void end_holds(struct warden *warden, int64_t now_us)
{
    uint64_t ended = 0;

    for (size_t i = 0; i < HOLDS_MOST; i++) {
        struct hold *hold = &warden->holds[i];

        if (hold->bytes == 0 || now_us < hold->until_us)
            continue;
        ended += hold->bytes;
        hold->bytes = 0;
    }
    if (ended == 0)
        return;
    log_info("%" PRIu64 " bytes held for others are in the budget again", ended);
    apply_config(warden);
}

/* ---- sampling ---- */

static bool query_device(const struct warden *warden, uint64_t *out_free, uint64_t *out_total)
{
    struct mem_source *memory = warden->device->memory;

    return memory->ops->query != NULL &&
           memory->ops->query(memory, out_free, out_total) == STATUS_OK;
}

/* Bytes that arenas ever took from the device. */
static uint64_t taken_bytes(const struct warden *warden)
{
    struct ledger_stats_view view;

    ledger_read_stats(warden->ledger, &view);
    return view.kinds[MEM_ACTIVATION].reserved.allocated + view.kinds[MEM_IO].reserved.allocated;
}

/* Lock held. */
static struct govern_input sample(struct warden *warden, int64_t now_us, uint64_t evictable,
                                  bool presses)
{
    struct govern_input input = {.now_us = now_us, .evictable_bytes = evictable};
    struct batch_pressure pressure;
    struct ledger_stats stats;
    struct seen seen;

    batcher_read_pressure(warden->batcher, now_us, &pressure);
    ledger_read(warden->ledger, &stats);
    seen = (struct seen){.stall_us = pressure.stall_us,
                         .refused = pressure.refused_total,
                         .admitted = stats.reservations_ok,
                         .taken_bytes = taken_bytes(warden)};
    warden->free_bytes = warden->total_bytes = 0;
    input.free_known = query_device(warden, &warden->free_bytes, &warden->total_bytes);
    input.free_bytes = warden->free_bytes;
    input.reserved_bytes = stats.reserved_bytes;
    input.cached_bytes = stats.cached_bytes;
    input.planned_bytes = stats.planned_bytes;
    input.last_batch_us =
        batcher_running(warden->batcher) > 0 ? now_us : batcher_last_batch_us(warden->batcher);
    input.wanted_bytes = pressure.wanted_bytes;
    input.capped = pressure.capped;
    input.stall_us = seen.stall_us - warden->seen.stall_us;
    input.refused = seen.refused - warden->seen.refused;
    input.admitted = seen.admitted - warden->seen.admitted;
    input.regrown_bytes = seen.taken_bytes - warden->seen.taken_bytes;
    input.system_presses = presses && warden->device->ops->host_memory;
    warden->presses_total += presses;
    warden->seen = seen;
    return input;
}

void warden_system_presses(struct warden *warden)
{
    atomic_store(&warden->presses, 1);
}

/* ---- acting ---- */

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
    const struct reclaim_goal goal = {.asker = verdict->is_decay ? ASKER_DECAY : ASKER_GOVERNOR,
                                      .keep_bytes = verdict->keep_bytes,
                                      .share = verdict->share};

    if (verdict->trim)
        reclaimer_aim(warden->reclaimer, &goal);
    else
        reclaimer_drop_goal(warden->reclaimer);
    if (verdict->caps == CAPS_HALVE)
        batcher_halve_caps(warden->batcher);
    else if (verdict->caps == CAPS_RAISE)
        batcher_raise_caps(warden->batcher);
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
    uint64_t evictable = warden->evictable != NULL ? warden->evictable(warden->evict_arg) : 0;
    bool presses = atomic_exchange(&warden->presses, 0) > 0;
    struct govern_verdict verdict;
    struct govern_input input;
    enum govern_level before;
    int64_t hold_first_us, hold_last_us;

    pthread_mutex_lock(&warden->lock);
    end_holds(warden, now_us);
    input = sample(warden, now_us, evictable, presses);
    before = warden->governor.level;
    governor_tick(&warden->governor, &input, &verdict);
    warden->verdict = verdict;
    warden->pinned = verdict.pinned;
    if (verdict.level_changed)
        say_level(warden, &input, before, &verdict);
    carry_out(warden, &verdict);
    (void)sum_of_holds(warden, &hold_first_us, &hold_last_us);
    if (hold_first_us < verdict.next_tick_us)
        verdict.next_tick_us = hold_first_us;
    pthread_mutex_unlock(&warden->lock);
    atomic_store_explicit(&warden->may_hold_bytes, verdict.may_hold_bytes, memory_order_relaxed);
    evict(warden, verdict.evict_bytes, now_us);
    device_give_back(warden->device); /* of models that went */
    if (presses) {                    /* what is kept beside the device is the system's too */
        (void)host_pool_trim(warden->host_pool, 0);
        host_trim();
    }
    return verdict.next_tick_us;
}

/* ---- empty_cache ---- */

struct emptying {
    struct reclaim_order order;
    struct warden *warden;
    int64_t from_us;
    warden_emptied_fn done;
    void *arg;
};

static void on_emptied(struct reclaim_order *order)
{
    struct emptying *emptying = CONTAINER_OF(order, struct emptying, order);
    struct empty_cache_answer answer = {.freed_bytes = order->freed_bytes};
    struct ledger_stats stats;

    ledger_read(emptying->warden->ledger, &stats);
    /* On this device memory is back at once (nothing pending), and no graph of a device holds any.
     */
    answer.kept_alive = stats.allocated_bytes;
    answer.kept_floor = stats.cached_bytes;
    answer.microseconds = clock_now_us() - emptying->from_us;
    emptying->done(emptying->arg, &answer);
    free(emptying);
}

enum status warden_empty_cache_then(struct warden *warden, bool forced, warden_emptied_fn done,
                                    void *arg)
{
    struct emptying *emptying = calloc(1, sizeof(*emptying));

    if (emptying == NULL)
        return STATUS_NO_MEMORY;
    *emptying = (struct emptying){
        .order = {.goal = {.asker = ASKER_OPERATOR, .share = OPERATOR_SHARE}, .done = on_emptied},
        .warden = warden,
        .from_us = clock_now_us(),
        .done = done,
        .arg = arg};
    pthread_mutex_lock(&warden->lock);
    emptying->order.goal.keep_bytes = governor_keep_bytes(&warden->governor, forced);
    pthread_mutex_unlock(&warden->lock);
    reclaimer_order(warden->reclaimer, &emptying->order);
    return STATUS_OK;
}

struct waiting {
    struct empty_cache_answer answer;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
};

static void on_waited(void *arg, const struct empty_cache_answer *answer)
{
    struct waiting *waiting = arg;

    pthread_mutex_lock(&waiting->lock);
    waiting->answer = *answer;
    waiting->is_done = true;
    pthread_cond_signal(&waiting->done);
    pthread_mutex_unlock(&waiting->lock);
}

enum status warden_empty_cache(struct warden *warden, bool forced,
                               struct empty_cache_answer *out_answer)
{
    struct waiting waiting = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

    TRY(warden_empty_cache_then(warden, forced, on_waited, &waiting));
    pthread_mutex_lock(&waiting.lock);
    while (!waiting.is_done)
        pthread_cond_wait(&waiting.done, &waiting.lock);
    pthread_mutex_unlock(&waiting.lock);
    *out_answer = waiting.answer;
    return STATUS_OK;
}

void warden_settle(struct warden *warden)
{
    reclaimer_settle(warden->reclaimer);
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
    struct reclaim_counts counts;
    uint64_t ours_or_free;
    int64_t hold_first_us;

    ledger_read(warden->ledger, &view.ledger);
    host_pool_read(warden->host_pool, &view.host);
    (void)query_device(warden, &view.device_free_bytes, &view.device_total_bytes);
    view.last_batch_us = batcher_running(warden->batcher) > 0
                             ? clock_now_us()
                             : batcher_last_batch_us(warden->batcher);
    pthread_mutex_lock(&warden->lock);
    view.level = warden->governor.level;
    view.pinned = warden->pinned;
    view.held_bytes = sum_of_holds(warden, &hold_first_us, &view.held_until_us);
    view.low_bytes = share(config->low, config->budget_bytes);
    view.high_bytes = share(config->high, config->budget_bytes);
    view.critical_bytes = share(config->critical, config->budget_bytes);
    view.idle_after_us = config->idle_after_us;
    view.idle_decay_us = config->idle_decay_us;
    view.floor_bytes = config->floor_bytes;
    view.headroom_bytes = config->headroom_bytes;
    view.transitions_total = warden->governor.transitions_total;
    for (size_t i = 0; i < sizeof(view.level_entries) / sizeof(view.level_entries[0]); i++)
        view.level_entries[i] = warden->governor.level_entries[i];
    view.stall_share = governor_stall_share(&warden->governor);
    view.stall_us_total = warden->seen.stall_us;
    view.refault_bytes_total = warden->governor.refault_bytes_total;
    view.evict_bytes_total = warden->governor.evict_bytes_total;
    view.system_presses_total = warden->presses_total;
    pthread_mutex_unlock(&warden->lock);
    reclaimer_read(warden->reclaimer, &counts);
    for (size_t i = 0; i < ASKERS; i++) {
        view.empty_cache_by[i] = counts.times[i];
        view.empty_cache_total += counts.times[i];
    }
    view.empty_cache_freed_bytes_total = counts.freed_bytes;
    ours_or_free = view.device_free_bytes + view.ledger.reserved_bytes;
    view.external_bytes =
        view.device_total_bytes > ours_or_free ? view.device_total_bytes - ours_or_free : 0;
    *out_view = view;
}

struct ledger *warden_ledger(struct warden *warden)
{
    return warden->ledger;
}
