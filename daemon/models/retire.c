/* Models leave the table.
 *
 * To retire a model: take it out of the table, close its queue; when the queue has drained the
 * keeper lets it leave the device, for the loader may be waiting for just that memory, and the
 * published reference goes; when the last user's goes too the model comes back to the loader's
 * thread by mail and is destroyed.  Nothing ever waits for that but the reply to `unload`.
 *
 * A user may be a model that was replaced by this one before and has work left: however many are
 * loaded one after the other meanwhile, only the last holds device memory.
 */
#define LOG_COMPONENT "models"

#include <stdio.h>

#include "device/host_source.h"
#include "models/internal.h"
#include "models/versions.h"
#include "observe/log.h"

static void on_drained(void *arg)
{
    struct model *model = arg;

    keeper_send(model->resident.repository, &model->drained);
}

static void run_drained(struct repository *repository, struct errand *errand)
{
    struct model *model = CONTAINER_OF(errand, struct model, drained);

    (void)repository;
    resident_clear(model);
    model_unref(model);
}

void retire_model(struct repository *repository, struct model *model, struct model *heir,
                  struct command *waiter)
{
    atomic_fetch_add(&repository->leaving, 1);
    if (heir != NULL)
        model_bequeath(model, heir);
    if (waiter != NULL)
        waiter->remaining++;
    model->waiter = waiter;
    model->drained.run = run_drained;
    (void)model_ref(model); /* it may be gone as soon as its queue has drained */
    queue_close(model->queue, on_drained, model);
    resident_retire(model);
    model_unref(model);
}

/* Takes the published model out of slot `index`; NULL: there is none. */
static struct model *unpublish(struct repository *repository, struct entry *entry, size_t index)
{
    struct slot *slot = &entry->slot[index];
    struct model *model;

    pthread_mutex_lock(&repository->lock);
    model = slot->model;
    slot->model = NULL;
    slot->wanted = false;
    slot->state = model == NULL ? MODEL_UNAVAILABLE : MODEL_UNLOADING;
    (void)snprintf(slot->reason, sizeof(slot->reason), "unloaded");
    pthread_mutex_unlock(&repository->lock);
    return model;
}

size_t loader_retire(struct repository *repository, const char *name, struct command *waiter)
{
    struct entry *entry;
    size_t count = 0;

    pthread_mutex_lock(&repository->lock);
    entry = entry_find(repository, name);
    if (entry != NULL) {
        entry->wanted = false;
        entry->reason[0] = '\0';
    }
    pthread_mutex_unlock(&repository->lock);
    for (size_t i = 0; entry != NULL && i < entry->slots; i++) {
        struct model *model = unpublish(repository, entry, i);

        if (model == NULL)
            continue;
        count++;
        retire_model(repository, model, NULL, waiter);
    }
    loader_notify(repository);
    return count;
}

static bool is_wanted(const Inference__ModelConfig *config, const int64_t *versions, size_t count,
                      int64_t version)
{
    size_t newer = 0;

    for (size_t i = 0; i < count; i++)
        newer += versions[i] > version ? 1 : 0;
    return versions_contain(versions, count, version) &&
           versions_wanted(config->version_policy, version, newer);
}

void retire_unwanted(struct repository *repository, struct entry *entry,
                     const Inference__ModelConfig *config, const int64_t *versions, size_t count)
{
    struct model *newest = NULL; /* that stays; this thread alone takes models out */

    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < entry->slots; i++)
        if (entry->slot[i].state == MODEL_READY &&
            is_wanted(config, versions, count, entry->slot[i].version))
            newest = entry->slot[i].model;
    pthread_mutex_unlock(&repository->lock);
    for (size_t i = 0; i < entry->slots; i++) {
        struct model *model;

        if (is_wanted(config, versions, count, entry->slot[i].version))
            continue;
        model = unpublish(repository, entry, i);
        if (model != NULL)
            retire_model(repository, model, newest, NULL);
    }
}

/* The version it was, if nothing took its place, is unavailable now. */
static void note_gone(struct repository *repository, const struct model *model)
{
    struct entry *entry;
    struct slot *slot;

    pthread_mutex_lock(&repository->lock);
    entry = entry_find(repository, model->name);
    slot = entry == NULL ? NULL : slot_find(entry, model->version);
    if (slot != NULL && slot->state == MODEL_UNLOADING)
        slot->state = MODEL_UNAVAILABLE;
    pthread_mutex_unlock(&repository->lock);
}

void retire_end(struct repository *repository, struct model *model)
{
    struct command *waiter = model->waiter;
    uint64_t freed;

    note_gone(repository, model);
    log_debug("model '%s' version %s is gone", model->name, model->version_text);
    freed = model->resident.cleared_bytes;
    freed += model_destroy(model);
    /* Activations are shared by all models, and cached ones are cheap to get back: what this model
     * made the lanes grow to goes with it. */
    (void)batcher_trim(repository->config.batcher, 0);
    host_trim();
    atomic_fetch_sub(&repository->leaving, 1);
    if (waiter != NULL) {
        waiter->freed_bytes += freed;
        if (--waiter->remaining == 0)
            command_finish(waiter, STATUS_OK, NULL);
    }
    loader_notify(repository);
}
