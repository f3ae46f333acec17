/* The lanes: threads that take the next batch.
 *
 *   lane thread:  sweep ─> pick ─> admit ─> run ─> answer ─> again
 *                   └ nothing to do: sleep on the lane's futex until the next event or wake
 *
 * One lock guards queues and lane states; it is never held while something is planned, run or
 * answered.  A lane is `taken` by whoever runs a batch in it: its own thread, or a submitter whose
 * request is so short that handing it over would cost more.  Nobody spins: a submitter wakes one
 * sleeping lane if the lane would otherwise sleep past the work, and a lane that took work while
 * more is ready wakes the next.
 */
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch/lanes.h"
#include "batch/pick.h"

/* ---- sleeping ---- */

static void futex_wait(atomic_uint *word, unsigned seen, int64_t until_us)
{
    struct timespec until = {.tv_sec = until_us / 1000000, .tv_nsec = until_us % 1000000 * 1000};

    (void)syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, seen,
                  until_us == CLOCK_NEVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void futex_wake(atomic_uint *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Marks the lane as woken; the caller calls futex_wake() once the lock is free. */
static void mark_woken(struct lane *lane)
{
    lane->asleep = false;
    atomic_fetch_add(&lane->wakes, 1);
}

/* A free lane whose thread sleeps; NULL: none.  Lock held. */
struct lane *lanes_sleeping(struct batcher *batcher)
{
    for (unsigned i = 0; i < batcher->lanes; i++)
        if (batcher->lane[i].asleep && !batcher->lane[i].taken)
            return &batcher->lane[i];
    return NULL;
}

/* Lock held; the result is for futex_wake() after it. */
struct lane *lanes_wake_one(struct batcher *batcher)
{
    struct lane *lane = lanes_sleeping(batcher);

    if (lane != NULL)
        mark_woken(lane);
    return lane;
}

void lanes_finish_wake(struct lane *lane)
{
    if (lane != NULL)
        futex_wake(&lane->wakes);
}

void lanes_wake_all(struct batcher *batcher)
{
    for (unsigned i = 0; i < batcher->lanes; i++) {
        pthread_mutex_lock(&batcher->lock);
        mark_woken(&batcher->lane[i]);
        pthread_mutex_unlock(&batcher->lock);
        futex_wake(&batcher->lane[i].wakes);
    }
}

/* Moves everything to the end of `to`. */
static void move_all(struct list *from, struct list *to)
{
    while (!list_is_empty(from)) {
        struct list *link = from->next;

        list_remove(link);
        list_append(to, link);
    }
}

/* ---- queues; lock held ---- */

void queue_note_active(struct batcher *batcher, struct model_queue *queue)
{
    if (!list_is_empty(&queue->active_link))
        return;
    list_append(&batcher->active, &queue->active_link);
    queue->used_us = pick_used_after_idle(queue->used_us, batcher->virtual_us);
}

void queue_note_idle(struct model_queue *queue, int64_t now_us)
{
    if (queue->waiting.count > 0)
        return;
    list_remove(&queue->active_link);
    hold_end(queue, now_us); /* nobody is left who would wait */
}

static void sweep(struct batcher *batcher, int64_t now_us, bool all, struct list *leaving)
{
    struct model_queue *queue;

    LIST_FOR_EACH (queue, &batcher->active, struct model_queue, active_link) {
        wait_queue_sweep(&queue->waiting, now_us, all, leaving);
        hold_blame(queue, leaving);
        hold_sweep(queue, now_us, leaving);
        queue_note_idle(queue, now_us);
    }
}

int64_t queue_next_expiry(const struct model_queue *queue)
{
    int64_t expiry_us = wait_queue_next_expiry(&queue->waiting), held_us = hold_expiry(queue);

    return held_us < expiry_us ? held_us : expiry_us;
}

void queue_note_expiry(struct batcher *batcher, const struct model_queue *queue)
{
    int64_t expiry_us = queue_next_expiry(queue);

    if (expiry_us < atomic_load_explicit(&batcher->expiry_us, memory_order_relaxed))
        atomic_store_explicit(&batcher->expiry_us, expiry_us, memory_order_relaxed);
}

int64_t queue_cap_rows(const struct model_queue *queue)
{
    int64_t cap = queue->cap_rows < queue->max_batch_size ? queue->cap_rows : queue->max_batch_size;
    bool is_free = queue->waiting.delay_us == 0 && queue->waiting.preferred_count == 0;
    int64_t worth = is_free ? size_limit(&queue->sizes, (int64_t)queue->waiting.count) : INT64_MAX;

    cap = cap < worth ? cap : worth;
    return cap > 0 ? cap : 1;
}

bool queue_may_start(const struct model_queue *queue)
{
    if (queue->parked || (queue->stop_until_us > 0 && clock_now_us() < queue->stop_until_us))
        return false;
    if (queue->answering)
        return false;
    return queue->instances == 0 || queue->running < queue->instances;
}

/* Lists the queues that could start a batch now; returns how many.  *out_next_us: when that may
 * change by itself. */
static size_t list_candidates(struct batcher *batcher, int64_t now_us, int64_t *out_next_us)
{
    const struct model_queue *in_need = hold_first_in_need(batcher, now_us);
    int64_t next_us = CLOCK_NEVER;
    struct model_queue *queue;
    size_t count = 0;

    LIST_FOR_EACH (queue, &batcher->active, struct model_queue, active_link) {
        int64_t expiry_us = queue_next_expiry(queue);
        struct wait_offer offer;

        next_us = expiry_us < next_us ? expiry_us : next_us;
        if (now_us < queue->stop_until_us && queue->stop_until_us < next_us)
            next_us = queue->stop_until_us;
        if (!queue_may_start(queue) || (in_need != NULL && in_need != queue))
            continue;
        if (queue->hold.since_us != CLOCK_NEVER && queue->hold.retry_us > now_us) {
            next_us = queue->hold.retry_us < next_us ? queue->hold.retry_us : next_us;
            continue;
        }
        offer = wait_queue_offer(&queue->waiting, now_us, queue_cap_rows(queue));
        next_us = offer.at_us < next_us ? offer.at_us : next_us;
        if (offer.rows == 0)
            continue;
        batcher->candidate_queues[count] = queue;
        batcher->candidates[count++] = (struct pick_candidate){.rank = offer.rank,
                                                               .deadline_us = offer.deadline_us,
                                                               .predicted_us = queue->predicted_us,
                                                               .used_us = queue->used_us};
    }
    *out_next_us = next_us;
    return count;
}

void lane_start_batch(struct lane *lane, struct model_queue *queue)
{
    struct batcher *batcher = lane->batcher;

    lane->batch =
        (struct batch){.queue = queue, .ticket_us = queue->hold.since_us, .may_restart = true};
    list_init(&lane->batch.requests);
    list_init(&lane->batch.surplus);
    arena_reset(&lane->scratch);
    lane->taken = true;
    queue->running++;
    atomic_fetch_add(&batcher->running, 1);
    if (queue->used_us > batcher->virtual_us)
        batcher->virtual_us = queue->used_us;
}

/* Takes the next batch into the lane; *out_more: others are ready too. */
static bool take_batch(struct lane *lane, int64_t now_us, int64_t *out_next_us, bool *out_more)
{
    struct batcher *batcher = lane->batcher;
    size_t count = list_candidates(batcher, now_us, out_next_us);
    struct model_queue *queue;
    struct wait_offer offer;
    struct request *request;

    if (count == 0)
        return false;
    queue = batcher->candidate_queues[pick_next(batcher->candidates, count, now_us)];
    lane_start_batch(lane, queue);
    offer = wait_queue_offer(&queue->waiting, now_us, queue_cap_rows(queue));
    lane->batch.count = wait_queue_take(&queue->waiting, &offer, &lane->batch.requests);
    LIST_FOR_EACH (request, &lane->batch.requests, struct request, link)
        lane->batch.rows += request->rows;
    *out_more = count > 1 || queue->waiting.count > 0;
    if (lane->batch.rows > queue->largest_rows)
        queue->largest_rows = lane->batch.rows;
    if (queue->waiting.count == 0)
        list_remove(&queue->active_link); /* its ticket stays until this batch is admitted */
    return true;
}

/* ---- one batch in a lane ---- */

static void put_back(struct lane *lane, struct list *requests)
{
    struct model_queue *queue = lane->batch.queue;

    if (list_is_empty(requests))
        return;
    wait_queue_put_back(&queue->waiting, requests);
    queue_note_active(lane->batcher, queue);
}

/* Ends what lane_start_batch() began: the lane is free again. */
static void end_batch(struct lane *lane, int64_t busy_us)
{
    struct batcher *batcher = lane->batcher;
    struct model_queue *queue = lane->batch.queue;

    lane->taken = false;
    queue->running--;
    atomic_fetch_sub(&batcher->running, 1);
    atomic_fetch_add(&batcher->progress, 1);
    if (busy_us > 0) {
        queue->used_us += busy_us;
        queue->predicted_us = busy_us;
        if (lane->batch.ran_whole)
            size_learn(&queue->sizes, lane->batch.rows, busy_us);
        queue->waiting.lead_us = 2 * busy_us + 1000;
        atomic_store(&batcher->last_batch_us, clock_now_us());
        hold_retry_all(batcher);
    }
}

/* Those that were cancelled or expired while the batch was made ready. */
static void drop_unwanted(struct batch *batch, struct list *leaving)
{
    int64_t now_us = clock_now_us();
    struct request *request;

    LIST_FOR_EACH (request, &batch->requests, struct request, link) {
        bool cancelled = atomic_load_explicit(&request->cancelled, memory_order_relaxed);

        if (!cancelled && request->deadline_us > now_us)
            continue;
        request->status = error_set(&request->error, cancelled ? STATUS_CANCELLED : STATUS_DEADLINE,
                                    cancelled ? "request cancelled"
                                              : "Deadline expired before the request could run");
        list_remove(&request->link);
        list_append(leaving, &request->link);
        batch->rows -= request->rows;
        batch->count--;
    }
}

/* What was taken but did not fit may run elsewhere at once. */
static void return_surplus(struct lane *lane)
{
    struct lane *other;

    if (list_is_empty(&lane->batch.surplus))
        return;
    pthread_mutex_lock(&lane->batcher->lock);
    put_back(lane, &lane->batch.surplus);
    other = lanes_wake_one(lane->batcher);
    pthread_mutex_unlock(&lane->batcher->lock);
    lanes_finish_wake(other);
}

/* The batch that its queue waited for is admitted, or never will be: others may start again. */
static void end_ticket(struct lane *lane)
{
    struct batch *batch = &lane->batch;
    struct lane *other = NULL;

    if (batch->ticket_us == CLOCK_NEVER)
        return;
    pthread_mutex_lock(&lane->batcher->lock);
    if (batch->queue->hold.since_us == batch->ticket_us)
        hold_end(batch->queue, clock_now_us());
    if (!list_is_empty(&lane->batcher->active))
        other = lanes_wake_one(lane->batcher);
    pthread_mutex_unlock(&lane->batcher->lock);
    lanes_finish_wake(other);
}

/* Returns how long the lane was busy, 1 µs at least. */
static int64_t execute_timed(struct lane *lane)
{
    int64_t from_us = clock_now_us(), busy_us;

    if (lane->batch.count > 0)
        batch_execute(lane, &lane->batch);
    else
        batch_release(lane, &lane->batch);
    busy_us = clock_now_us() - from_us;
    return busy_us > 0 ? busy_us : 1;
}

/* Runs lane->batch, which is taken; answers everybody.  Lock not held. */
void lane_run_taken(struct lane *lane, enum admission admission, bool is_inline, struct error *err)
{
    struct batcher *batcher = lane->batcher;
    struct batch *batch = &lane->batch;
    struct model_queue *queue = batch->queue;
    int64_t busy_us = 0;
    struct lane *other = NULL;
    struct list done, leaving;
    struct memory_lack lack;
    bool waits = false;

    list_init(&done);
    list_init(&leaving);
    if (admission != ADMIT_WAIT)
        end_ticket(lane);
    if (admission == ADMIT_RUN) {
        return_surplus(lane);
        drop_unwanted(batch, &leaving);
        busy_us = execute_timed(lane);
    } else if (admission == ADMIT_FAIL) {
        batch_fail(batch, err);
    }
    if (batch->restart_bytes > 0)
        admission = ADMIT_WAIT;
    pthread_mutex_lock(&batcher->lock);
    put_back(lane, &batch->surplus);
    if (admission == ADMIT_WAIT) {
        put_back(lane, &batch->requests);
        lack = batch_lack(batch);
        waits = hold_begin(queue, &lack, clock_now_us());
        queue_note_expiry(batcher, queue);
    }
    move_all(&batch->requests, &done);
    queue->answering = queue->keeps_order && !list_is_empty(&done);
    end_batch(lane, busy_us);
    if (is_inline && !list_is_empty(&batcher->active))
        other = lanes_wake_one(batcher); /* what came meanwhile; a lane thread looks by itself */
    pthread_mutex_unlock(&batcher->lock);
    lanes_finish_wake(other);
    if (waits && batcher->on_wait != NULL)
        batcher->on_wait(batcher->on_wait_arg);
    lanes_answer_all(&leaving);
    lanes_answer_batch(&done);
}

/* ---- the thread ---- */

static void run_next(struct lane *lane)
{
    struct error err = {.status = STATUS_OK};
    enum admission admission;

    lane->batcher->device->ops->lane_enter(lane->device_lane);
    admission = batch_admit(lane, &lane->batch, &err);
    lane_run_taken(lane, admission, false, &err);
}

/* Sleeps until woken or `until_us`.  Lock held before and after, not between. */
static void sleep_until(struct lane *lane, int64_t until_us)
{
    unsigned seen = atomic_load(&lane->wakes);

    lane->asleep = true;
    lane->until_us = until_us;
    pthread_mutex_unlock(&lane->batcher->lock);
    futex_wait(&lane->wakes, seen, until_us);
    pthread_mutex_lock(&lane->batcher->lock);
    lane->asleep = false;
}

static void *lane_main(void *arg)
{
    struct lane *lane = arg;
    struct batcher *batcher = lane->batcher;

    pthread_mutex_lock(&batcher->lock);
    while (!batcher->stopping) {
        int64_t now_us = clock_now_us(), next_us = CLOCK_NEVER;
        struct lane *other = NULL;
        struct list leaving;
        bool more = false, took;

        list_init(&leaving);
        sweep(batcher, now_us, false, &leaving);
        took = !lane->taken && take_batch(lane, now_us, &next_us, &more);
        if (!took && list_is_empty(&leaving)) {
            sleep_until(lane, next_us);
            continue;
        }
        if (took && more)
            other = lanes_wake_one(batcher);
        pthread_mutex_unlock(&batcher->lock);
        lanes_finish_wake(other);
        lanes_answer_all(&leaving);
        if (took)
            run_next(lane);
        pthread_mutex_lock(&batcher->lock);
    }
    pthread_mutex_unlock(&batcher->lock);
    return NULL;
}

enum status lanes_start(struct batcher *batcher)
{
    sigset_t all, before;
    enum status status = STATUS_OK;

    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* a fault in a client's memory is answered where it is met */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 0; i < batcher->lanes && status == STATUS_OK; i++) {
        struct lane *lane = &batcher->lane[i];
        char name[16];

        if (pthread_create(&lane->thread, NULL, lane_main, lane) != 0) {
            status = STATUS_NO_MEMORY;
            break;
        }
        lane->has_thread = true;
        (void)snprintf(name, sizeof(name), "lane %u", i);
        (void)pthread_setname_np(lane->thread, name);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

void lanes_stop(struct batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->stopping = true;
    pthread_mutex_unlock(&batcher->lock);
    lanes_wake_all(batcher);
    for (unsigned i = 0; i < batcher->lanes; i++)
        if (batcher->lane[i].has_thread)
            (void)pthread_join(batcher->lane[i].thread, NULL);
}

void batcher_wake(struct batcher *batcher)
{
    struct model_queue *queue;
    struct lane *lane = NULL;
    struct list leaving;

    list_init(&leaving);
    pthread_mutex_lock(&batcher->lock);
    sweep(batcher, clock_now_us(), true, &leaving);
    atomic_store_explicit(&batcher->expiry_us, CLOCK_NEVER, memory_order_relaxed);
    LIST_FOR_EACH (queue, &batcher->active, struct model_queue, active_link)
        queue_note_expiry(batcher, queue);
    hold_retry_all(batcher);
    if (!list_is_empty(&batcher->active))
        lane = lanes_wake_one(batcher);
    pthread_mutex_unlock(&batcher->lock);
    lanes_finish_wake(lane);
    lanes_answer_all(&leaving);
}
