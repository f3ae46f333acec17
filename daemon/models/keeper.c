/* The keeper's thread lets models leave: those that were idle for too long, those that the governor
 * asks for, those that are told to sleep.  Nothing that it does takes long: what does is the
 * waker's.
 *
 * It looks at all models when something is due by time, and when it is nudged: a request waits for
 * a model that is away, a queue became idle that may not be so for long, a move ended.
 */
#include "base/clock.h"
#include "models/internal.h"

enum { DUE_AT_ONCE = 32 };

/* ---- what is due ---- */

struct due {
    size_t count;
    struct model *model[DUE_AT_ONCE]; /* referenced */
    enum residency to[DUE_AT_ONCE];
    int64_t next_us; /* when to look again */
};

static void note_time(struct due *due, int64_t at_us)
{
    if (at_us < due->next_us)
        due->next_us = at_us;
}

static int64_t later(int64_t at_us, int64_t by_us)
{
    return by_us > CLOCK_NEVER - at_us ? CLOCK_NEVER : at_us + by_us;
}

/* Idle since `from_us`, may be for `patience_us`, then goes to `to`. */
static void look_at_time(struct due *due, struct model *model, int64_t from_us, int64_t patience_us,
                         enum residency to, int64_t now_us)
{
    int64_t at_us = later(from_us, patience_us);

    if (at_us > now_us || due->count == DUE_AT_ONCE) {
        note_time(due, at_us > now_us ? at_us : now_us);
        return;
    }
    due->model[due->count] = model_ref(model);
    due->to[due->count++] = to;
}

static void look_at_absent(struct repository *repository, struct due *due, struct model *model,
                           const struct queue_use *use, int64_t now_us)
{
    int64_t drop_us = atomic_load(&repository->model_drop_us);
    struct resident *resident = &model->resident;

    if (use->waiting > 0 || resident->is_wanted) {
        if (resident->retry_us > now_us) {
            note_time(due, resident->retry_us);
            return;
        }
        resident->is_moving = true;
        waker_send(repository, model_ref(model));
        return;
    }
    resident->failed_reloads += resident->needy_since_us > 0; /* nobody waits any more */
    resident->needy_since_us = 0;
    if (resident->where == RESIDENCY_HOST && drop_us > 0 && use->idle_since_us != CLOCK_NEVER) {
        look_at_time(due, model, use->idle_since_us, drop_us, RESIDENCY_DROPPED, now_us);
    }
}

/* Lock held. */
static void look_at_model(struct repository *repository, struct due *due, struct model *model,
                          int64_t now_us)
{
    struct resident *resident = &model->resident;
    int64_t patience_us = resident_patience(model);
    struct queue_use use;

    if (resident->is_moving)
        return;
    queue_read_use(model->queue, &use);
    if (resident->where != RESIDENCY_DEVICE) {
        look_at_absent(repository, due, model, &use, now_us);
        return;
    }
    resident->is_wanted = false;
    queue_set_patience(model->queue, patience_us); /* its configuration may have changed */
    if (patience_us != CLOCK_NEVER && use.idle_since_us != CLOCK_NEVER)
        look_at_time(due, model,
                     use.idle_since_us > resident->since_us ? use.idle_since_us
                                                            : resident->since_us,
                     patience_us, resident_refuge(model), now_us);
}

static void look(struct repository *repository, struct due *due)
{
    int64_t now_us = clock_now_us();

    *due = (struct due){.next_us = CLOCK_NEVER};
    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        for (size_t j = 0; j < repository->entry[i]->slots; j++) {
            struct slot *slot = &repository->entry[i]->slot[j];

            if (slot->model != NULL && slot->state == MODEL_READY)
                look_at_model(repository, due, slot->model, now_us);
        }
    pthread_mutex_unlock(&repository->lock);
}

static void let_leave(struct due *due)
{
    for (size_t i = 0; i < due->count; i++) {
        (void)resident_leave(due->model[i], due->to[i], PARK_IDLE, NULL);
        model_unref(due->model[i]);
    }
}

/* ---- the thread ---- */

void keeper_send(struct repository *repository, struct errand *errand)
{
    mailbox_put(&repository->keeper.box, &errand->mail);
}

static void run_nudge(struct repository *repository, struct errand *errand)
{
    (void)errand;
    atomic_store(&repository->keeper.nudged, false);
}

static void run_stop(struct repository *repository, struct errand *errand)
{
    (void)errand;
    repository->keeper.is_stopping = true;
}

void keeper_nudge(void *arg)
{
    struct repository *repository = arg;

    if (!atomic_exchange(&repository->keeper.nudged, true))
        keeper_send(repository, &repository->keeper.nudge);
}

static void run_errands(struct repository *repository)
{
    struct mail *next;

    for (struct mail *mail = mailbox_take_all(&repository->keeper.box); mail != NULL; mail = next) {
        struct errand *errand = CONTAINER_OF(mail, struct errand, mail);

        next = mail->next;
        errand->run(repository, errand);
    }
}

static void *keeper_main(void *arg)
{
    struct repository *repository = arg;
    struct keeper *keeper = &repository->keeper;
    struct batcher *batcher = repository->config.batcher;
    struct due due = {.next_us = CLOCK_NEVER};

    while (!keeper->is_stopping) {
        uint64_t bytes;

        mailbox_wait(&keeper->box, due.next_us);
        /* While it looks it wants to hear of everything. */
        batcher_attend_at(batcher, CLOCK_NEVER);
        run_errands(repository);
        bytes = atomic_exchange(&keeper->evict_bytes, 0);
        if (bytes > 0)
            (void)room_evict(repository, bytes, NULL);
        room_serve_need(repository);
        if (atomic_exchange(&keeper->host_changed, false))
            room_fit_host(repository);
        if (atomic_exchange(&keeper->pressed, false))
            (void)room_drop_coldest(repository);
        look(repository, &due);
        let_leave(&due);
        sleep_finish_woken(repository);
        batcher_attend_at(batcher, due.next_us);
    }
    return NULL;
}

enum status keeper_start(struct repository *repository)
{
    struct keeper *keeper = &repository->keeper;

    list_init(&keeper->waking);
    keeper->nudge.run = run_nudge;
    keeper->stop.run = run_stop;
    TRY(mailbox_init(&keeper->box));
    batcher_attend_at(repository->config.batcher, CLOCK_NEVER);
    batcher_set_attend(repository->config.batcher, keeper_nudge, repository);
    batcher_set_make_way(repository->config.batcher, room_make_way, repository);
    keeper->has_thread = thread_start(&keeper->thread, "keeper", keeper_main, repository);
    if (keeper->has_thread)
        return STATUS_OK;
    batcher_set_attend(repository->config.batcher, NULL, NULL);
    batcher_set_make_way(repository->config.batcher, NULL, NULL);
    mailbox_deinit(&keeper->box);
    return STATUS_NO_MEMORY;
}

void keeper_stop(struct repository *repository)
{
    struct keeper *keeper = &repository->keeper;

    if (!keeper->has_thread)
        return;
    batcher_set_attend(repository->config.batcher, NULL, NULL);
    batcher_set_make_way(repository->config.batcher, NULL, NULL);
    keeper_send(repository, &keeper->stop);
    (void)pthread_join(keeper->thread, NULL);
    mailbox_deinit(&keeper->box);
}
