/* Proofs of batching behind the first answers.
 *
 * At the start of the daemon a model is published as soon as its first row has run, and served one
 * by one; what is left of the proof, some four times as much work, would only keep its first
 * clients waiting.  It begins when the lanes have been idle for as long as a row takes, so that
 * whoever was waiting for the model goes first, and not much later in any case.
 *
 * A model that is proven cannot leave the device.  One that has left before is proven when it is
 * back.  One that fails is served one by one for good; if its batch dimension was only guessed, it
 * is loaded again without.
 */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "models/internal.h"
#include "models/trial.h"
#include "observe/log.h"

enum { MOST_QUIET_US = 50000, MOST_WAIT_US = 200000 };

void late_proofs_nudge(struct repository *repository)
{
    if (!atomic_exchange(&repository->prove_sent, true))
        mailbox_put(&repository->loader, &repository->prove.mail);
}

/* One that is on the device, where it stays until queue_leave(); NULL: there is none. */
static struct model *visit_next(struct repository *repository)
{
    struct model *found = NULL;

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries && found == NULL; i++) {
        const struct entry *entry = repository->entry[i];

        for (size_t k = 0; k < entry->slots && found == NULL; k++) {
            struct model *model = entry->slot[k].model;

            if (model != NULL && model->resident.is_unproven && queue_visit(model->queue))
                found = model;
        }
    }
    pthread_mutex_unlock(&repository->lock);
    return found;
}

/* ---- when ---- */

struct pace {
    int64_t from_us;      /* all is loaded */
    int64_t own_batch_us; /* the last batch then, or of a proof since */
};

static int64_t quiet_us(const struct trial *trial)
{
    const struct request *first = &trial->first.answer.request;
    int64_t row_us = first->computed_us - first->started_us;

    return row_us < MOST_QUIET_US ? row_us : MOST_QUIET_US;
}

/* Until the lanes have been idle for so long, or somebody has work for this thread. */
static void await_quiet(struct repository *repository, const struct pace *pace, int64_t quiet)
{
    struct batcher *batcher = repository->config.batcher;
    int64_t latest_us = pace->from_us + MOST_WAIT_US;

    while (!atomic_load(&repository->stopping)) {
        int64_t batch_us = batcher_last_batch_us(batcher);
        int64_t until_us = (batcher_running(batcher) > 0    ? clock_now_us()
                            : batch_us > pace->own_batch_us ? batch_us
                                                            : pace->from_us) +
                           quiet;

        until_us = until_us < latest_us ? until_us : latest_us;
        if (clock_now_us() >= until_us)
            return;
        mailbox_wait(&repository->loader, until_us);
        if (clock_now_us() < until_us)
            return;
    }
}

/* ---- what ---- */

static void settle(struct repository *repository, struct model *model, bool batching,
                   const char *text)
{
    pthread_mutex_lock(&repository->lock);
    model->resident.is_unproven = false;
    (void)snprintf(model->batching, sizeof(model->batching), "%s", text);
    pthread_mutex_unlock(&repository->lock);
    if (batching)
        queue_begin_batching(model->queue);
    trial_close(model->trial);
    model->trial = NULL;
}

/* Memory is as it was before, but for a row's, which will be wanted. */
static void trim(struct repository *repository, const struct model *model, uint64_t cached_bytes)
{
    if (model->row_cached_bytes > cached_bytes)
        cached_bytes = model->row_cached_bytes;
    (void)batcher_trim(repository->config.batcher, cached_bytes);
}

/* Ends the visit. */
static void prove(struct repository *repository, struct model *model)
{
    uint64_t cached_bytes = batcher_cached_bytes(repository->config.batcher);
    bool is_derived = model->trial->is_derived, batching;
    int64_t from_us = clock_now_us();
    char text[sizeof(model->batching)];
    struct error err;

    fixed_before_load(&repository->fixed);
    batching = trial_prove(model->trial, model, text, sizeof(text));
    trim(repository, model, cached_bytes);
    fixed_after_load(&repository->fixed);
    if (!atomic_load(&repository->stopping))
        settle(repository, model, batching, text);
    queue_leave(model->queue);
    keeper_nudge(repository); /* it may leave again */
    if (atomic_load(&repository->stopping))
        return;
    log_info("model '%s' version %s: batching %s, %" PRId64 " ms", model->name, model->version_text,
             text, (clock_now_us() - from_us) / 1000);
    if (!batching && is_derived)
        (void)loader_load(repository, model->name, NULL, LOAD_PROVEN, &err);
    loader_notify(repository);
}

void late_proofs_run(struct repository *repository)
{
    struct batcher *batcher = repository->config.batcher;
    struct pace pace = {.from_us = clock_now_us(), .own_batch_us = batcher_last_batch_us(batcher)};

    while (!atomic_load(&repository->stopping)) {
        struct model *model = visit_next(repository);

        if (model == NULL)
            return;
        await_quiet(repository, &pace, quiet_us(model->trial));
        prove(repository, model);
        pace.own_batch_us = batcher_last_batch_us(batcher);
    }
}
