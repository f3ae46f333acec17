/* The loader thread: loads, follows the folder, carries out commands; retire.c takes models out.
 *
 * A load reads and proves a version without touching the table, then publishes it in one step; the
 * version it replaces is retired.  At the start of the daemon the proof may come behind that
 * (late_proof.c).
 */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "device/host_source.h"
#include "models/folder.h"
#include "models/internal.h"
#include "models/versions.h"
#include "observe/log.h"

enum { PATH_ROOM = 4096 };
/* A folder that looked half written is looked at again after so long. */
#define SETTLE_US INT64_C(500000)

void loader_notify(struct repository *repository)
{
    pthread_mutex_lock(&repository->changed_lock);
    if (repository->changed != NULL)
        repository->changed(repository->changed_arg);
    pthread_mutex_unlock(&repository->changed_lock);
}

static bool model_path(const struct repository *repository, const char *name, char path[PATH_ROOM])
{
    return (size_t)snprintf(path, PATH_ROOM, "%s/%s", repository->config.path, name) < PATH_ROOM;
}

/* ---- loading ---- */

static void set_reason(struct repository *repository, const char *name, const char *reason)
{
    struct entry *entry;

    pthread_mutex_lock(&repository->lock);
    entry = entry_find(repository, name);
    if (entry != NULL)
        (void)snprintf(entry->reason, sizeof(entry->reason), "%.511s", reason);
    pthread_mutex_unlock(&repository->lock);
}

static void count_load(struct repository *repository, enum status status)
{
    atomic_fetch_add(status == STATUS_OK ? &repository->loads_ok : &repository->loads_failed, 1);
}

static enum status begin_version(struct repository *repository, struct entry *entry,
                                 int64_t version, struct error *err)
{
    struct slot *slot;

    pthread_mutex_lock(&repository->lock);
    slot = slot_add(entry, version);
    if (slot != NULL) {
        slot->wanted = true;
        slot->is_loading = true;
        if (slot->model == NULL)
            slot->state = MODEL_LOADING;
    }
    pthread_mutex_unlock(&repository->lock);
    if (slot == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", entry->name);
    loader_notify(repository);
    return STATUS_OK;
}

/* Returns the model that was there before. */
static struct model *publish(struct repository *repository, struct entry *entry,
                             struct model *model)
{
    struct model *old;
    struct slot *slot;

    pthread_mutex_lock(&repository->lock);
    slot = slot_find(entry, model->version);
    old = slot->model;
    slot->model = model;
    slot->is_loading = false;
    slot->state = MODEL_READY;
    slot->reason[0] = '\0';
    pthread_mutex_unlock(&repository->lock);
    return old;
}

/* Who is told the model's name anyway need not read it twice. */
static const char *without_name(const char *text, const char *name)
{
    size_t length = strlen(name);

    if (strncmp(text, "model '", 7) != 0 || strncmp(text + 7, name, length) != 0 ||
        strncmp(text + 7 + length, "': ", 3) != 0)
        return text;
    return text + 7 + length + 3;
}

/* Before any version of it could be tried.  What was loaded before goes on serving. */
static void note_refusal(struct repository *repository, struct entry *entry,
                         const struct error *err)
{
    bool serves;

    count_load(repository, err->status);
    set_reason(repository, entry->name, err->text);
    pthread_mutex_lock(&repository->lock);
    serves = entry_serves(entry);
    pthread_mutex_unlock(&repository->lock);
    log_error("model '%s' is not loaded%s: %s", entry->name,
              serves ? " anew, what was loaded before still serves" : "",
              without_name(err->text, entry->name));
}

static void note_failure(struct repository *repository, struct entry *entry, int64_t version,
                         const struct error *err)
{
    struct slot *slot;
    bool serves;

    pthread_mutex_lock(&repository->lock);
    slot = slot_find(entry, version);
    slot->is_loading = false;
    serves = slot->model != NULL;
    (void)snprintf(slot->reason, sizeof(slot->reason), "%.511s", err->text);
    if (!serves)
        slot->state = MODEL_UNAVAILABLE; /* else the one from before goes on serving */
    pthread_mutex_unlock(&repository->lock);
    LOG_AT(atomic_load(&repository->stopping) ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR,
           "model '%s' version %" PRId64 " is not loaded%s: %s", entry->name, version,
           serves ? " anew, the one from before still serves" : "",
           without_name(err->text, entry->name));
}

/* At level evict a version is published only if it can stay, in the place of the one it replaces.
 */
static bool wish_for(struct repository *repository, const struct model *model,
                     struct room_wish *out_wish)
{
    const struct slot *slot;

    *out_wish = (struct room_wish){.name = model->name, .spared = model, .evicts = true};
    if (model->resident.is_pinned)
        return false;
    pthread_mutex_lock(&repository->lock);
    slot = slot_find(entry_find(repository, model->name), model->version);
    if (slot->model != NULL) {
        out_wish->spared = slot->model;
        out_wish->leaving_bytes = network_resident_bytes(slot->model->network);
    }
    pthread_mutex_unlock(&repository->lock);
    return true;
}

/* Read, not packed yet: what has no chance is refused before it costs anybody anything. */
static enum status may_stay(void *arg, const struct model *model, struct error *err)
{
    uint64_t there = network_resident_bytes(model->network);
    uint64_t packed = network_constant_bytes(model->network);
    struct repository *repository = arg;
    struct room_wish wish;

    if (!wish_for(repository, model, &wish))
        return STATUS_OK;
    wish.bytes = packed > there ? packed - there : 0;
    return room_may_keep(repository, &wish, err);
}

/* The version is on the device. */
static enum status check_room(struct repository *repository, const struct model *model,
                              struct error *err)
{
    struct room_wish wish;

    return wish_for(repository, model, &wish) ? room_to_keep(repository, &wish, err) : STATUS_OK;
}

static enum status load_model(struct repository *repository, const struct load_context *context,
                              struct model **out_model, struct error *err)
{
    enum status status = model_load(context, out_model, err);

    if (status == STATUS_NO_MEMORY && !room_is_taken(repository))
        status = model_load(context, out_model, err); /* who was in the way has gone meanwhile */
    if (status != STATUS_OK)
        return status;
    status = check_room(repository, *out_model, err);
    if (status != STATUS_OK)
        (void)model_destroy(*out_model);
    return status;
}

/* What its probes made the lanes grow to was for batches that may never come, but for one row,
 * which will. */
static void trim_after_load(struct repository *repository, uint64_t cached_bytes)
{
    (void)batcher_trim(repository->config.batcher, cached_bytes);
    fixed_after_load(&repository->fixed);
}

static enum status load_version(struct repository *repository, struct entry *entry,
                                const struct load_context *context, struct error *err)
{
    uint64_t cached = batcher_cached_bytes(context->batcher);
    struct model *model, *old;
    enum status status;

    TRY(begin_version(repository, entry, context->version, err));
    fixed_before_load(&repository->fixed);
    status = load_model(repository, context, &model, err);
    count_load(repository, status);
    if (status != STATUS_OK) {
        trim_after_load(repository, cached);
        if (status == STATUS_NO_MEMORY)
            room_name_obstacles(repository, NULL, err);
        note_failure(repository, entry, context->version, err);
        loader_notify(repository);
        return status;
    }
    model->loader = &repository->loader;
    model->message.kind = MESSAGE_GONE;
    resident_start(model, repository);
    model->resident.is_unproven = model->trial != NULL;
    old = publish(repository, entry, model);
    keeper_nudge(repository);
    if (model->row_cached_bytes > cached)
        cached = model->row_cached_bytes;
    trim_after_load(repository, cached);
    log_info("model '%s' version %s is ready: batching %s, %zu bytes, %" PRId64 " ms", model->name,
             model->version_text, model->batching, network_resident_bytes(model->network),
             model->load_us / 1000);
    if (old != NULL)
        retire_model(repository, old, model, NULL);
    loader_notify(repository);
    return STATUS_OK;
}

/* ---- all wanted versions ---- */

/* Loads the wanted versions, newest first, and retires the others.  The first failure counts. */
static enum status load_versions(struct repository *repository, struct entry *entry,
                                 struct load_context *context, const int64_t *versions,
                                 size_t count, struct error *err)
{
    enum status result = STATUS_OK;

    for (size_t rank = 0; rank < count; rank++) {
        struct error inner = {.status = STATUS_OK};
        enum status status;

        context->version = versions[count - 1 - rank];
        if (!versions_wanted(context->config->version_policy, context->version, rank))
            continue;
        status = load_version(repository, entry, context, &inner);
        if (status != STATUS_OK && result == STATUS_OK) {
            result = status;
            if (err != NULL)
                *err = inner;
        }
    }
    return result;
}

static enum status load_with_config(struct repository *repository, struct entry *entry,
                                    const char *folder, const Inference__ModelConfig *config,
                                    bool batch_given, enum load_manner manner, struct error *err)
{
    struct load_context context = {
        .folder = folder,
        .name = entry->name,
        .config = config,
        .batch_given = batch_given,
        .device = repository->config.device,
        .ledger = repository->config.ledger,
        .batcher = repository->config.batcher,
        .plan_cache_bytes = repository->config.plan_cache_bytes,
        .planning = repository->config.planning,
        .may_prove_later = manner == LOAD_PROVEN_LATER,
        .give_up = &repository->stopping,
        .may_stay = may_stay,
        .may_stay_arg = repository,
    };
    int64_t *versions = NULL;
    size_t count = 0;
    enum status status;

    TRY(folder_versions(folder, &versions, &count, err));
    status = versions_check(config, entry->name, versions, count, err);
    if (status == STATUS_OK) {
        set_reason(repository, entry->name, "");
        status = load_versions(repository, entry, &context, versions, count, err);
        retire_unwanted(repository, entry, config, versions, count);
    } else {
        note_refusal(repository, entry, err);
    }
    free(versions);
    return status;
}

static struct entry *want_entry(struct repository *repository, const char *name)
{
    struct entry *entry;

    pthread_mutex_lock(&repository->lock);
    entry = entry_add(repository, name);
    if (entry != NULL)
        entry->wanted = entry->is_loading = true;
    pthread_mutex_unlock(&repository->lock);
    return entry;
}

static void end_loading(struct repository *repository, struct entry *entry)
{
    pthread_mutex_lock(&repository->lock);
    entry->is_loading = false;
    pthread_mutex_unlock(&repository->lock);
    loader_notify(repository);
}

static enum status load_entry(struct repository *repository, struct entry *entry,
                              const char *config_json, enum load_manner manner, struct error *err)
{
    Inference__ModelConfig *config;
    char folder[PATH_ROOM];
    enum status status;
    bool batch_given;

    if (!model_path(repository, entry->name, folder))
        return error_set(err, STATUS_INVALID, "model '%s': its path is too long", entry->name);
    entry->loaded_signature = entry->seen_signature = folder_signature(folder);
    status = model_config_read(folder, entry->name, config_json, &config, &batch_given, err);
    if (status != STATUS_OK) {
        note_refusal(repository, entry, err);
        return status;
    }
    status = load_with_config(repository, entry, folder, config, batch_given, manner, err);
    model_config_destroy(config);
    return status;
}

enum status loader_load(struct repository *repository, const char *name, const char *config_json,
                        enum load_manner manner, struct error *err)
{
    struct entry *entry = want_entry(repository, name);
    enum status status;

    if (entry == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", name);
    status = load_entry(repository, entry, config_json, manner, err);
    if (manner == LOAD_PROVEN) /* else when all are loaded: each would fetch its pages again */
        host_trim();
    end_loading(repository, entry);
    return status;
}

/* ---- what is on disk ---- */

enum status loader_scan(struct repository *repository, struct error *err)
{
    enum status status = STATUS_OK;
    char **names;
    size_t count;

    TRY(folder_models(repository->config.path, &names, &count, err));
    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries; i++)
        repository->entry[i]->on_disk = false;
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        struct entry *entry = entry_add(repository, names[i]);

        if (entry == NULL)
            status = error_set(err, STATUS_NO_MEMORY, "no memory for the list of models");
        else
            entry->on_disk = true;
    }
    pthread_mutex_unlock(&repository->lock);
    folder_free_names(names, count);
    return status;
}

/* ---- commands ---- */

void command_finish(struct command *command, enum status status, const struct error *err)
{
    command->done(command->arg, status, status == STATUS_OK ? NULL : err, command->freed_bytes);
    free(command->config_json);
    free(command->name);
    free(command);
}

static enum status command_load(struct repository *repository, const struct command *command,
                                struct error *err)
{
    struct error why = {.status = STATUS_OK};
    struct entry *entry = NULL;
    bool on_disk;

    if (loader_scan(repository, &why) == STATUS_OK && folder_is_model_name(command->name)) {
        pthread_mutex_lock(&repository->lock);
        entry = entry_find(repository, command->name);
        pthread_mutex_unlock(&repository->lock);
    }
    on_disk = entry != NULL && entry->on_disk;
    if (!on_disk)
        return error_set(
            err, STATUS_INTERNAL, "failed to load '%s', failed to poll from model repository: %s",
            command->name, why.status != STATUS_OK ? why.text : "it has no folder of that name");
    return loader_load(repository, command->name, command->config_json, LOAD_PROVEN, err);
}

static enum status check_control(const struct repository *repository, struct error *err)
{
    if (repository->config.control == CONTROL_EXPLICIT)
        return STATUS_OK;
    if (repository->config.control == CONTROL_POLL)
        return error_set(err, STATUS_UNAVAILABLE,
                         "explicit model load / unload is not allowed if polling is enabled");
    return error_set(err, STATUS_UNAVAILABLE,
                     "explicit model load / unload is not allowed unless ControlMode=explicit");
}

static bool is_known(struct repository *repository, const char *name)
{
    bool known;

    pthread_mutex_lock(&repository->lock);
    known = entry_find(repository, name) != NULL;
    pthread_mutex_unlock(&repository->lock);
    return known;
}

/* An unload that has to wait is finished by retire_end(). */
static void run_command(struct repository *repository, struct command *command)
{
    struct error err = {.status = STATUS_OK};
    enum status status = check_control(repository, &err);

    if (status == STATUS_OK && !command->is_unload)
        status = command_load(repository, command, &err);
    else if (status == STATUS_OK && !is_known(repository, command->name))
        status = error_set(&err, STATUS_NOT_FOUND, "Request for unknown model: '%s' is not found",
                           command->name);
    else if (status == STATUS_OK && loader_retire(repository, command->name, command) > 0)
        return;
    command_finish(command, status, &err);
}

static void refuse_command(struct command *command)
{
    struct error err;

    (void)error_set(&err, STATUS_UNAVAILABLE, "Server exiting");
    command_finish(command, STATUS_UNAVAILABLE, &err);
}

/* ---- the thread ---- */

static void handle(struct repository *repository, struct message *message, bool *stopping)
{
    switch (message->kind) {
    case MESSAGE_COMMAND:
        if (*stopping)
            refuse_command(CONTAINER_OF(message, struct command, message));
        else
            run_command(repository, CONTAINER_OF(message, struct command, message));
        break;
    case MESSAGE_GONE:
        retire_end(repository, CONTAINER_OF(message, struct model, message));
        break;
    case MESSAGE_PROVE:
        atomic_store(&repository->prove_sent, false);
        if (!*stopping)
            late_proofs_run(repository);
        host_trim();
        break;
    case MESSAGE_STOP:
        *stopping = true;
        for (size_t i = 0; i < repository->entries; i++)
            (void)loader_retire(repository, repository->entry[i]->name, NULL);
        break;
    }
}

static void handle_mail(struct repository *repository, bool *stopping)
{
    struct mail *mail = mailbox_take_all(&repository->loader);

    while (mail != NULL) {
        struct mail *next = mail->next;

        handle(repository, CONTAINER_OF(mail, struct message, mail), stopping);
        mail = next;
    }
}

static int64_t next_poll(struct repository *repository, bool unsettled)
{
    int64_t interval_us = atomic_load(&repository->poll_interval_us);

    if (repository->config.control != CONTROL_POLL)
        return CLOCK_NEVER;
    if (unsettled && interval_us > SETTLE_US)
        interval_us = SETTLE_US;
    return clock_now_us() + interval_us;
}

void *loader_main(void *arg)
{
    struct repository *repository = arg;
    bool stopping = false;
    int64_t poll_us;

    start_load(repository);
    late_proofs_run(repository);
    if (repository->entries > 0)
        host_trim();
    atomic_store(&repository->settled, true);
    loader_notify(repository);
    poll_us = next_poll(repository, false);
    while (!stopping || atomic_load(&repository->leaving) > 0) {
        mailbox_wait(&repository->loader, stopping ? CLOCK_NEVER : poll_us);
        handle_mail(repository, &stopping);
        if (!stopping && clock_now_us() >= poll_us)
            poll_us = next_poll(repository, loader_poll(repository));
    }
    return NULL;
}
