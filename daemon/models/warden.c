/* Samples, ticks, obeys.  The governor decides from numbers alone; everything that touches the
 * world is here: the ledger is read, the device asked, lanes trimmed, batch caps set. */
#define LOG_COMPONENT "models"
#include "models/warden.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "observe/log.h"

enum asker { BY_GOVERNOR, BY_DECAY, BY_OPERATOR };

struct warden {
    pthread_mutex_t lock;
    struct device *device;
    struct ledger *ledger;
    struct host_pool *host_pool;
    struct batcher *batcher;
    struct governor governor;
    bool pinned;
    unsigned cap_shift;
    uint64_t refused_before; /* reservations refused until the last tick */
    uint64_t free_bytes, total_bytes;
    uint64_t empty_cache_total, empty_cache_freed_bytes_total;
    uint64_t empty_cache_by[3];
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

void warden_configure(struct warden *warden, const struct govern_config *config)
{
    pthread_mutex_lock(&warden->lock);
    governor_configure(&warden->governor, config);
    pthread_mutex_unlock(&warden->lock);
}

/* Gives cached memory of the lanes back, down to `keep_bytes`; with it what the host pool and
 * malloc keep for later. */
static uint64_t give_back(struct warden *warden, uint64_t keep_bytes, enum asker asker)
{
    uint64_t freed = batcher_trim(warden->batcher, keep_bytes);

    if (keep_bytes == 0) {
        (void)host_pool_trim(warden->host_pool, 0);
        (void)malloc_trim(0);
    }
    warden->empty_cache_total++;
    warden->empty_cache_by[asker]++;
    warden->empty_cache_freed_bytes_total += freed;
    return freed;
}

static bool ask_device(struct warden *warden)
{
    struct mem_source *memory = warden->device->memory;

    if (memory->ops->query(memory, &warden->free_bytes, &warden->total_bytes) == STATUS_OK)
        return true;
    warden->free_bytes = warden->total_bytes = 0;
    return false;
}

static void sample(struct warden *warden, int64_t now_us, struct govern_input *input)
{
    struct ledger_stats stats;

    ledger_read(warden->ledger, &stats);
    *input = (struct govern_input){
        .now_us = now_us,
        .reserved_bytes = stats.reserved_bytes,
        .cached_bytes = stats.cached_bytes,
        .planned_bytes = stats.planned_bytes,
        .free_known = ask_device(warden),
        .last_batch_us = batcher_last_batch_us(warden->batcher),
        .refused = stats.reservations_refused - warden->refused_before,
    };
    input->free_bytes = warden->free_bytes;
    warden->refused_before = stats.reservations_refused;
}

static void obey(struct warden *warden, const struct govern_verdict *verdict)
{
    warden->pinned = verdict->pinned;
    if (verdict->level_changed)
        log_info("memory level %s%s", govern_level_name(verdict->level),
                 verdict->pinned ? " (pinned: nothing to give back)" : "");
    if (verdict->batch_cap_shift != warden->cap_shift)
        batcher_set_cap_shift(warden->batcher, verdict->batch_cap_shift);
    warden->cap_shift = verdict->batch_cap_shift;
    if (verdict->trim) {
        uint64_t freed =
            give_back(warden, verdict->keep_bytes, verdict->is_decay ? BY_DECAY : BY_GOVERNOR);

        log_debug("gave back %llu cached bytes (%s)", (unsigned long long)freed,
                  verdict->is_decay ? "idle" : govern_level_name(verdict->level));
    }
}

int64_t warden_tick(struct warden *warden, int64_t now_us)
{
    struct govern_verdict verdict;
    struct govern_input input;

    pthread_mutex_lock(&warden->lock);
    sample(warden, now_us, &input);
    governor_tick(&warden->governor, &input, &verdict);
    obey(warden, &verdict);
    pthread_mutex_unlock(&warden->lock);
    return verdict.next_tick_us;
}

void warden_empty_cache(struct warden *warden, bool forced, struct empty_cache_answer *out_answer)
{
    int64_t from_us = clock_now_us();
    struct empty_cache_answer answer = {0};
    struct ledger_stats stats;

    pthread_mutex_lock(&warden->lock);
    answer.freed_bytes =
        give_back(warden, governor_keep_bytes(&warden->governor, forced), BY_OPERATOR);
    ledger_read(warden->ledger, &stats);
    answer.kept_alive = stats.kind_bytes[MEM_ACTIVATION];
    answer.kept_floor = stats.cached_bytes;
    pthread_mutex_unlock(&warden->lock);
    answer.microseconds = clock_now_us() - from_us;
    *out_answer = answer;
}

static uint64_t share(uint64_t budget, double mark)
{
    return (uint64_t)((double)budget * mark);
}

void warden_read(struct warden *warden, struct warden_view *out_view)
{
    const struct governor *governor = &warden->governor;
    const struct govern_config *config = &governor->config;

    pthread_mutex_lock(&warden->lock);
    *out_view = (struct warden_view){
        .level = governor->level,
        .pinned = warden->pinned,
        .low_bytes = share(config->budget_bytes, config->low),
        .high_bytes = share(config->budget_bytes, config->high),
        .critical_bytes = share(config->budget_bytes, config->critical),
        .transitions_total = governor->transitions_total,
        .empty_cache_total = warden->empty_cache_total,
        .empty_cache_freed_bytes_total = warden->empty_cache_freed_bytes_total,
        .device_free_bytes = warden->free_bytes,
        .device_total_bytes = warden->total_bytes,
    };
    for (int i = 0; i < 5; i++)
        out_view->level_entries[i] = governor->level_entries[i];
    for (int i = 0; i < 3; i++)
        out_view->empty_cache_by[i] = warden->empty_cache_by[i];
    pthread_mutex_unlock(&warden->lock);
    ledger_read(warden->ledger, &out_view->ledger);
    host_pool_read(warden->host_pool, &out_view->host);
}

struct ledger *warden_ledger(struct warden *warden)
{
    return warden->ledger;
}
