/* The wakers bring models back to the device, each one at a time: one those whose way back is
 * short, one the others, so that nobody waits behind a slow one for whom it would be a moment.
 *
 * A model that does not fit beside those in use waits (RETRY_US later the keeper sends it again)
 * for as long as its requests do; one that cannot fit whatever leaves fails at once.  While the
 * device refuses what the budget allows, each attempt packs weights in vain: they come twice as
 * seldom each time, up to 32 x.
 */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "device/host_source.h"
#include "models/internal.h"
#include "observe/log.h"

enum { RETRY_US = 20000, ATTEMPTS = 3, MOST_DOUBLINGS = 5 };
/* What took no longer the last time is short. */
enum { SHORT_US = 200000 };

/* The table says of a READY model that it cannot come back. */
static void note_outcome(struct model *model, const struct error *err)
{
    struct repository *repository = model->resident.repository;
    struct entry *entry;
    struct slot *slot;

    pthread_mutex_lock(&repository->lock);
    entry = entry_find(repository, model->name);
    slot = entry == NULL ? NULL : slot_find(entry, model->version);
    if (slot != NULL && slot->model == model)
        (void)snprintf(slot->reason, sizeof(slot->reason), "%.511s",
                       err->status == STATUS_OK ? "" : err->text);
    model->resident.is_wanted = false;
    model->resident.failed_reloads += err->status != STATUS_OK;
    model->resident.needy_since_us = 0;
    model->resident.vain_returns = 0;
    model->resident.last_error = *err;
    pthread_mutex_unlock(&repository->lock);
}

/* A load of the same version is under way: who waits, waits for that. */
static bool is_replaced_soon(struct model *model)
{
    struct repository *repository = model->resident.repository;
    struct entry *entry;
    struct slot *slot;
    bool soon;

    pthread_mutex_lock(&repository->lock);
    entry = entry_find(repository, model->name);
    slot = entry == NULL ? NULL : slot_find(entry, model->version);
    soon = slot != NULL && slot->is_loading;
    if (soon)
        model->resident.retry_us = clock_now_us() + RETRY_US;
    pthread_mutex_unlock(&repository->lock);
    return soon;
}

static void fail(struct model *model, const struct error *err)
{
    log_error("model '%s' version %s does not come back: %s", model->name, model->version_text,
              err->text);
    note_outcome(model, err);
    queue_pass_on(model->queue);
    queue_refuse(model->queue, err); /* before the keeper may see them wait again */
    resident_end_move(model);
}

/* What the smallest batch needs beside the weights: without it a model were back for nothing. */
static uint64_t first_batch_bytes(const struct model *model)
{
    uint64_t page = model->resident.repository->config.device->memory->page_bytes;

    return (network_least_run_bytes(model->network) + page - 1) / page * page;
}

static uint64_t needed_bytes(const struct model *model)
{
    return model->resident.device_bytes + first_batch_bytes(model);
}

/* Its requests may wait; a wake does not, and hears why. */
static void postpone(struct model *model, bool in_vain, uint64_t available_bytes,
                     const struct error *err)
{
    struct repository *repository = model->resident.repository;
    unsigned doublings = 0;
    struct queue_use use;

    queue_blame(model->queue, needed_bytes(model),
                in_vain ? batcher_device_free(repository->config.batcher, available_bytes)
                        : available_bytes);
    pthread_mutex_lock(&repository->lock);
    if (model->resident.is_wanted)
        model->resident.last_error = *err;
    model->resident.is_wanted = false;
    if (in_vain && model->resident.vain_returns < MOST_DOUBLINGS)
        model->resident.vain_returns++;
    if (in_vain)
        doublings = model->resident.vain_returns;
    queue_read_use(model->queue, &use);
    model->resident.retry_us = clock_now_us() + ((int64_t)RETRY_US << doublings);
    if (use.waiting == 0) {
        model->resident.failed_reloads++; /* else it is tried again */
        model->resident.needy_since_us = 0;
    } else if (model->resident.needy_since_us == 0) {
        model->resident.needy_since_us = clock_now_us();
    }
    pthread_mutex_unlock(&repository->lock);
    resident_end_move(model);
}

static void no_room(struct model *model, uint64_t available_bytes, struct error *err)
{
    char obstacles[ERROR_TEXT_BYTES / 2];

    room_explain(model->resident.repository, model, obstacles, sizeof(obstacles));
    (void)error_set(err, STATUS_NO_MEMORY,
                    "model '%s' version %s needs %" PRIu64 " bytes of the device and %" PRIu64
                    " for its first batch, %" PRIu64 " are available; in the way: %s",
                    model->name, model->version_text, model->resident.device_bytes,
                    first_batch_bytes(model), available_bytes, obstacles);
}

/* With room for its first batch, which nobody gets meanwhile. */
static enum status return_with_room(struct model *model, struct error *err)
{
    struct ledger *ledger = model->resident.repository->config.ledger;
    uint64_t first = first_batch_bytes(model), available = 0;
    enum status status = ledger_reserve(ledger, first, &available);

    if (status != STATUS_OK) {
        no_room(model, available, err);
        return status;
    }
    status = resident_return(model, err);
    ledger_unreserve(ledger, first);
    return status;
}

/* Somebody else may take the room between room_make() and the reload. */
static enum status try_return(struct model *model, bool *out_never, uint64_t *out_available,
                              struct error *err)
{
    struct repository *repository = model->resident.repository;
    enum status status = STATUS_NO_MEMORY;

    for (int i = 0; i < ATTEMPTS && status == STATUS_NO_MEMORY; i++) {
        if (!room_make(repository, needed_bytes(model), model, out_never, out_available)) {
            no_room(model, *out_available, err);
            return STATUS_NO_MEMORY;
        }
        status = return_with_room(model, err);
    }
    host_trim();
    return status;
}

static void wake(struct model *model)
{
    struct error err = {.status = STATUS_OK};
    uint64_t available = 0;
    bool never = false;
    enum status status = try_return(model, &never, &available, &err);
    if (status == STATUS_OK) {
        err.status = STATUS_OK; /* whatever an attempt before said */
        note_outcome(model, &err);
        resident_end_move(model);
    } else if (status == STATUS_NO_MEMORY && !never) {
        postpone(model, available >= needed_bytes(model), available, &err);
    } else if (is_replaced_soon(model)) {
        resident_end_move(model);
    } else {
        fail(model, &err);
    }
    model_unref(model);
}

/* ---- the thread ---- */

static void *waker_main(void *arg)
{
    struct waker *waker = arg;
    bool stopping = false;

    while (!stopping) {
        struct mail *next;

        mailbox_wait(&waker->box, CLOCK_NEVER);
        for (struct mail *mail = mailbox_take_all(&waker->box); mail != NULL; mail = next) {
            next = mail->next;
            if (mail == &waker->stop)
                stopping = true;
            else
                wake(CONTAINER_OF(mail, struct model, resident.mail));
        }
    }
    return NULL;
}

static bool is_short(const struct model *model)
{
    const struct resident *resident = &model->resident;

    return (resident->reload_us > 0 ? resident->reload_us : model->load_us) <= SHORT_US;
}

void waker_send(struct repository *repository, struct model *model)
{
    mailbox_put(&repository->waker[is_short(model) ? WAKER_SHORT : WAKER_LONG].box,
                &model->resident.mail);
}

static enum status start(struct waker *waker, const char *name)
{
    TRY(mailbox_init(&waker->box));
    waker->has_thread = thread_start(&waker->thread, name, waker_main, waker);
    if (waker->has_thread)
        return STATUS_OK;
    mailbox_deinit(&waker->box);
    return STATUS_NO_MEMORY;
}

enum status waker_start(struct repository *repository)
{
    static const char *const names[WAKERS] = {"waker", "long waker"};

    for (size_t i = 0; i < WAKERS; i++)
        TRY(start(&repository->waker[i], names[i]));
    return STATUS_OK;
}

static void stop(struct waker *waker)
{
    if (!waker->has_thread)
        return;
    mailbox_put(&waker->box, &waker->stop);
    (void)pthread_join(waker->thread, NULL);
    mailbox_deinit(&waker->box);
}

void waker_stop(struct repository *repository)
{
    for (size_t i = 0; i < WAKERS; i++)
        stop(&repository->waker[i]);
}
