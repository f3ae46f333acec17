#include "models/reclaimer.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

enum {
    SLICE_US = 500,
    FIRST_SLICE_BYTES = 4 << 20,
    LEAST_SLICE_BYTES = 256 << 10,
    MOST_SLICE_BYTES = 1 << 30,
};

struct reclaimer {
    struct ledger *ledger;
    struct batcher *batcher;
    struct host_pool *host_pool;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;    /* there is some, or it must stop */
    pthread_cond_t settled; /* there is none */
    /* under lock */
    struct list orders;
    bool has_goal, stopping, busy;
    uint64_t goal_number; /* changes with every goal */
    struct reclaim_goal goal;
    uint64_t goal_freed_bytes;
    struct reclaim_counts counts;
    /* the thread's */
    uint64_t slice_bytes;
};

/* ---- counting; lock held ---- */

static void count(struct reclaimer *reclaimer, const struct reclaim_goal *goal, uint64_t freed)
{
    static const char *const askers[ASKERS] = {"governor", "decay", "operator"};

    reclaimer->counts.times[goal->asker]++;
    reclaimer->counts.freed_bytes += freed;
    ledger_note(reclaimer->ledger, &(struct mem_note){.kind = MEM_EVENT_EMPTY_CACHE,
                                                      .bytes = freed,
                                                      .other = goal->keep_bytes,
                                                      .note = askers[goal->asker]});
}

/* The goal is served or replaced. */
static void close_goal(struct reclaimer *reclaimer)
{
    if (reclaimer->goal_freed_bytes > 0)
        count(reclaimer, &reclaimer->goal, reclaimer->goal_freed_bytes);
    reclaimer->goal_freed_bytes = 0;
    reclaimer->has_goal = false;
    reclaimer->goal_number++;
}

/* ---- slices ---- */

/* Kept bodies go like lanes' memory, some at a time, and beside it: whoever needs none of the one
 * needs none of the other. */
static uint64_t trim_bodies(struct reclaimer *reclaimer, uint64_t keep_bytes)
{
    struct host_pool_stats host;
    uint64_t slice = reclaimer->slice_bytes;

    host_pool_read(reclaimer->host_pool, &host);
    if (host.cached_bytes <= keep_bytes)
        return 0;
    return host_pool_trim(reclaimer->host_pool, host.cached_bytes - keep_bytes > slice
                                                    ? host.cached_bytes - slice
                                                    : keep_bytes);
}

/* As much the next time as SLICE_US would have been enough for. */
static void adapt(struct reclaimer *reclaimer, uint64_t freed, int64_t spent_us)
{
    uint64_t slice = freed * SLICE_US / (uint64_t)(spent_us > 0 ? spent_us : 1);

    if (freed < reclaimer->slice_bytes / 2 && spent_us < SLICE_US)
        return; /* the last bit of a lane tells nothing */
    slice = (reclaimer->slice_bytes + slice) / 2;
    reclaimer->slice_bytes = slice < LEAST_SLICE_BYTES  ? LEAST_SLICE_BYTES
                             : slice > MOST_SLICE_BYTES ? MOST_SLICE_BYTES
                                                        : slice;
}

/* Returns false when nothing was left to do; *out_freed: bytes of the device. */
static bool do_slice(struct reclaimer *reclaimer, const struct reclaim_goal *goal,
                     uint64_t *out_freed, int64_t *out_spent_us)
{
    int64_t from_us = clock_now_us();
    uint64_t freed =
        batcher_trim_some(reclaimer->batcher, goal->keep_bytes, reclaimer->slice_bytes);
    uint64_t bodies = trim_bodies(reclaimer, goal->keep_bytes);

    *out_freed = freed;
    *out_spent_us = clock_now_us() - from_us;
    adapt(reclaimer, freed + bodies, *out_spent_us);
    return freed + bodies > 0;
}

/* ---- the thread; lock held but for the slices themselves ---- */

/* `served`: the order at whose behest it is, NULL: the goal's. */
static void rest(struct reclaimer *reclaimer, const struct reclaim_order *served, double share,
                 int64_t spent_us)
{
    int64_t until_us = clock_now_us() + (int64_t)((double)spent_us * (1 / share - 1));
    uint64_t number = reclaimer->goal_number;

    while (!reclaimer->stopping && (served != NULL || number == reclaimer->goal_number) &&
           clock_now_us() < until_us &&
           (LIST_FIRST(&reclaimer->orders, struct reclaim_order, link) == served))
        clock_cond_wait(&reclaimer->work, &reclaimer->lock, until_us);
}

static void serve_order(struct reclaimer *reclaimer, struct reclaim_order *order)
{
    bool more = true;

    while (more) {
        uint64_t freed;
        int64_t spent_us;

        pthread_mutex_unlock(&reclaimer->lock);
        more = do_slice(reclaimer, &order->goal, &freed, &spent_us);
        pthread_mutex_lock(&reclaimer->lock);
        order->freed_bytes += freed;
        if (more)
            rest(reclaimer, order, order->goal.share, spent_us);
    }
    list_remove(&order->link);
    count(reclaimer, &order->goal, order->freed_bytes);
    pthread_mutex_unlock(&reclaimer->lock);
    order->done(order);
    pthread_mutex_lock(&reclaimer->lock);
}

static void serve_goal(struct reclaimer *reclaimer)
{
    struct reclaim_goal goal = reclaimer->goal;
    uint64_t freed, number = reclaimer->goal_number;
    int64_t spent_us;
    bool more;

    pthread_mutex_unlock(&reclaimer->lock);
    more = do_slice(reclaimer, &goal, &freed, &spent_us);
    pthread_mutex_lock(&reclaimer->lock);
    if (number != reclaimer->goal_number && freed > 0)
        count(reclaimer, &goal, freed); /* replaced meanwhile */
    if (number != reclaimer->goal_number)
        return;
    reclaimer->goal_freed_bytes += freed;
    if (!more)
        close_goal(reclaimer);
    else
        rest(reclaimer, NULL, goal.share, spent_us);
}

static void *reclaim(void *arg)
{
    struct reclaimer *reclaimer = arg;

    pthread_mutex_lock(&reclaimer->lock);
    for (;;) {
        struct reclaim_order *order = LIST_FIRST(&reclaimer->orders, struct reclaim_order, link);

        reclaimer->busy = order != NULL || (reclaimer->has_goal && !reclaimer->stopping);
        if (order != NULL) {
            serve_order(reclaimer, order);
        } else if (reclaimer->busy) {
            serve_goal(reclaimer);
        } else if (reclaimer->stopping) {
            break;
        } else {
            pthread_cond_broadcast(&reclaimer->settled);
            pthread_cond_wait(&reclaimer->work, &reclaimer->lock);
        }
    }
    pthread_mutex_unlock(&reclaimer->lock);
    return NULL;
}

/* ---- what others ask ---- */

void reclaimer_aim(struct reclaimer *reclaimer, const struct reclaim_goal *goal)
{
    pthread_mutex_lock(&reclaimer->lock);
    close_goal(reclaimer);
    reclaimer->goal = *goal;
    reclaimer->has_goal = true;
    pthread_cond_signal(&reclaimer->work);
    pthread_mutex_unlock(&reclaimer->lock);
}

void reclaimer_drop_goal(struct reclaimer *reclaimer)
{
    pthread_mutex_lock(&reclaimer->lock);
    close_goal(reclaimer);
    pthread_mutex_unlock(&reclaimer->lock);
}

void reclaimer_order(struct reclaimer *reclaimer, struct reclaim_order *order)
{
    order->freed_bytes = 0;
    pthread_mutex_lock(&reclaimer->lock);
    list_append(&reclaimer->orders, &order->link);
    pthread_cond_signal(&reclaimer->work);
    pthread_mutex_unlock(&reclaimer->lock);
}

void reclaimer_settle(struct reclaimer *reclaimer)
{
    pthread_mutex_lock(&reclaimer->lock);
    while (reclaimer->busy || reclaimer->has_goal || !list_is_empty(&reclaimer->orders))
        pthread_cond_wait(&reclaimer->settled, &reclaimer->lock);
    pthread_mutex_unlock(&reclaimer->lock);
}

void reclaimer_read(struct reclaimer *reclaimer, struct reclaim_counts *out_counts)
{
    pthread_mutex_lock(&reclaimer->lock);
    *out_counts = reclaimer->counts;
    pthread_mutex_unlock(&reclaimer->lock);
}

/* ---- life ---- */

static enum status start_thread(struct reclaimer *reclaimer)
{
    sigset_t all, before;
    int failure;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(&reclaimer->thread, NULL, reclaim, reclaimer);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0)
        return STATUS_NO_MEMORY;
    (void)pthread_setname_np(reclaimer->thread, "reclaimer");
    return STATUS_OK;
}

static void deinit(struct reclaimer *reclaimer)
{
    pthread_cond_destroy(&reclaimer->settled);
    pthread_cond_destroy(&reclaimer->work);
    pthread_mutex_destroy(&reclaimer->lock);
    free(reclaimer);
}

enum status reclaimer_create(struct ledger *ledger, struct batcher *batcher,
                             struct host_pool *host_pool, struct reclaimer **out_reclaimer)
{
    struct reclaimer *reclaimer = calloc(1, sizeof(*reclaimer));
    enum status status;

    if (reclaimer == NULL)
        return STATUS_NO_MEMORY;
    reclaimer->ledger = ledger;
    reclaimer->batcher = batcher;
    reclaimer->host_pool = host_pool;
    reclaimer->slice_bytes = FIRST_SLICE_BYTES;
    list_init(&reclaimer->orders);
    pthread_mutex_init(&reclaimer->lock, NULL);
    clock_cond_init(&reclaimer->work);
    (void)pthread_cond_init(&reclaimer->settled, NULL);
    status = start_thread(reclaimer);
    if (status != STATUS_OK) {
        deinit(reclaimer);
        return status;
    }
    *out_reclaimer = reclaimer;
    return STATUS_OK;
}

void reclaimer_destroy(struct reclaimer *reclaimer)
{
    if (reclaimer == NULL)
        return;
    pthread_mutex_lock(&reclaimer->lock);
    reclaimer->stopping = true;
    pthread_cond_signal(&reclaimer->work);
    pthread_mutex_unlock(&reclaimer->lock);
    (void)pthread_join(reclaimer->thread, NULL);
    deinit(reclaimer);
}
