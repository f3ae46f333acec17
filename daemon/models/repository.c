/* The table of models, and lookups in it.  All changes come from the loader thread (loader.c); one
 * short lock guards the table, and a lookup takes a reference under it. */
#include "models/repository.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "models/folder.h"
#include "models/internal.h"

const char *model_state_name(enum model_state state)
{
    static const char *const names[] = {"UNKNOWN", "READY", "UNAVAILABLE", "LOADING", "UNLOADING"};

    return names[state];
}

/* ---- the table; lock held ---- */

/* Where the name is, or where it belongs. */
static size_t position_of(const struct repository *repository, const char *name)
{
    size_t low = 0, high = repository->entries;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(repository->entry[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct entry *entry_find(struct repository *repository, const char *name)
{
    size_t at = position_of(repository, name);

    if (at == repository->entries || strcmp(repository->entry[at]->name, name) != 0)
        return NULL;
    return repository->entry[at];
}

static bool grow_entries(struct repository *repository)
{
    size_t room = repository->room == 0 ? 16 : repository->room * 2;
    struct entry **grown;

    if (repository->entries < repository->room)
        return true;
    grown = realloc(repository->entry, room * sizeof(*grown));
    if (grown == NULL)
        return false;
    repository->entry = grown;
    repository->room = room;
    return true;
}

struct entry *entry_add(struct repository *repository, const char *name)
{
    struct entry *entry = entry_find(repository, name);
    size_t at = position_of(repository, name);

    if (entry != NULL)
        return entry;
    if (!grow_entries(repository))
        return NULL;
    entry = calloc(1, sizeof(*entry));
    if (entry != NULL)
        entry->name = strdup(name);
    if (entry == NULL || entry->name == NULL) {
        free(entry);
        return NULL;
    }
    memmove(&repository->entry[at + 1], &repository->entry[at],
            (repository->entries - at) * sizeof(repository->entry[0]));
    repository->entry[at] = entry;
    repository->entries++;
    return entry;
}

static void free_entry(struct entry *entry)
{
    free(entry->slot);
    free(entry->name);
    free(entry);
}

void entry_remove(struct repository *repository, struct entry *entry)
{
    size_t at = position_of(repository, entry->name);

    repository->entries--;
    memmove(&repository->entry[at], &repository->entry[at + 1],
            (repository->entries - at) * sizeof(repository->entry[0]));
    free_entry(entry);
}

bool entry_serves(const struct entry *entry)
{
    for (size_t i = 0; i < entry->slots; i++)
        if (entry->slot[i].state == MODEL_READY)
            return true;
    return false;
}

struct slot *slot_find(struct entry *entry, int64_t version)
{
    for (size_t i = 0; i < entry->slots; i++)
        if (entry->slot[i].version == version)
            return &entry->slot[i];
    return NULL;
}

struct slot *slot_add(struct entry *entry, int64_t version)
{
    struct slot *slot = slot_find(entry, version), *grown;
    size_t at = 0;

    if (slot != NULL)
        return slot;
    grown = realloc(entry->slot, (entry->slots + 1) * sizeof(*grown));
    if (grown == NULL)
        return NULL;
    entry->slot = grown;
    while (at < entry->slots && entry->slot[at].version < version)
        at++;
    memmove(&grown[at + 1], &grown[at], (entry->slots - at) * sizeof(*grown));
    entry->slots++;
    grown[at] = (struct slot){.version = version, .state = MODEL_UNKNOWN};
    return &grown[at];
}

/* ---- made and destroyed ---- */

static const char *copy_text(struct arena *arena, const char *text)
{
    return arena_copy_string(arena, text, strlen(text));
}

/* Copies what the configuration only lent. */
static enum status copy_config(struct repository *repository,
                               const struct repository_config *config)
{
    struct text_list list = {.count = config->load.count};
    const char **items = arena_take_array(&repository->arena, config->load.count, sizeof(*items));

    if (items == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < list.count; i++) {
        items[i] = copy_text(&repository->arena, config->load.items[i]);
        if (items[i] == NULL)
            return STATUS_NO_MEMORY;
    }
    list.items = items;
    repository->config = *config;
    repository->config.load = list;
    repository->config.path = copy_text(&repository->arena, config->path);
    return repository->config.path == NULL ? STATUS_NO_MEMORY : STATUS_OK;
}

bool thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    bool started;

    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS); /* a model's file that is cut is met where it is read */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(thread, NULL, run, arg) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started)
        (void)pthread_setname_np(*thread, name);
    return started;
}

static uint64_t make_way(void *arg, uint64_t bytes)
{
    return room_evict(arg, bytes, NULL);
}

static enum status start_threads(struct repository *repository)
{
    TRY(waker_start(repository));
    TRY(keeper_start(repository));
    ledger_set_make_way(repository->config.ledger, make_way, repository);
    repository->has_thread = thread_start(&repository->thread, "loader", loader_main, repository);
    return repository->has_thread ? STATUS_OK : STATUS_NO_MEMORY;
}

/* A daemon that could not look for models would say that it serves all of them. */
static enum status open_parts(struct repository *repository, const struct repository_config *config,
                              struct error *err)
{
    enum status status = copy_config(repository, config);

    if (status == STATUS_OK)
        TRY(start_look(repository, err));
    if (status == STATUS_OK)
        status = fixed_open(&repository->fixed, config->device, config->ledger);
    if (status == STATUS_OK)
        status = start_threads(repository);
    return status == STATUS_OK ? status
                               : error_set(err, status, "no memory for the model repository");
}

enum status repository_create(const struct repository_config *config,
                              struct repository **out_repository, struct error *err)
{
    struct repository *repository;
    enum status status;

    if (!folder_exists(config->path))
        return error_set(err, STATUS_NOT_FOUND, "the model repository '%s' is no folder",
                         config->path);
    repository = calloc(1, sizeof(*repository));
    if (repository == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the model repository");
    if (mailbox_init(&repository->loader) != STATUS_OK) {
        free(repository);
        return error_set(err, STATUS_IO, "no eventfd for the loader");
    }
    arena_init(&repository->arena);
    pthread_mutex_init(&repository->lock, NULL);
    clock_cond_init(&repository->rested);
    pthread_mutex_init(&repository->changed_lock, NULL);
    repository->stop.kind = MESSAGE_STOP;
    repository->prove.kind = MESSAGE_PROVE;
    atomic_init(&repository->poll_interval_us, config->poll_interval_us);
    repository_set_residency(repository, config->model_idle_us, config->model_drop_us,
                             config->host_cache_bytes);
    status = open_parts(repository, config, err);
    if (status != STATUS_OK) {
        repository_destroy(repository);
        return status;
    }
    *out_repository = repository;
    return STATUS_OK;
}

void repository_stop_loading(struct repository *repository)
{
    atomic_store(&repository->stopping, true);
}

void repository_destroy(struct repository *repository)
{
    if (repository == NULL)
        return;
    repository_stop_loading(repository);
    if (repository->has_thread) {
        mailbox_put(&repository->loader, &repository->stop.mail);
        (void)pthread_join(repository->thread, NULL);
    }
    if (repository->keeper.has_thread)
        ledger_set_make_way(repository->config.ledger, NULL, NULL);
    keeper_stop(repository);
    waker_stop(repository);
    for (size_t i = 0; i < repository->entries; i++)
        free_entry(repository->entry[i]);
    free(repository->entry);
    fixed_close(&repository->fixed);
    mailbox_deinit(&repository->loader);
    pthread_mutex_destroy(&repository->changed_lock);
    pthread_cond_destroy(&repository->rested);
    pthread_mutex_destroy(&repository->lock);
    arena_deinit(&repository->arena);
    free(repository);
}

void repository_set_poll_interval(struct repository *repository, int64_t interval_us)
{
    atomic_store(&repository->poll_interval_us, interval_us);
}

void repository_on_change(struct repository *repository, void (*changed)(void *arg), void *arg)
{
    pthread_mutex_lock(&repository->changed_lock);
    repository->changed = changed;
    repository->changed_arg = arg;
    pthread_mutex_unlock(&repository->changed_lock);
}

/* ---- readiness ---- */

bool repository_is_settled(struct repository *repository)
{
    return atomic_load(&repository->settled);
}

struct load_counts repository_load_counts(struct repository *repository)
{
    return (struct load_counts){.ok = atomic_load(&repository->loads_ok),
                                .failed = atomic_load(&repository->loads_failed)};
}

/* A model that serves is ready, whatever became of an attempt to load it anew. */
static bool entry_is_ready(const struct entry *entry)
{
    for (size_t i = 0; i < entry->slots; i++)
        if (entry->slot[i].wanted && entry->slot[i].state != MODEL_READY)
            return false;
    return entry_serves(entry) || entry->reason[0] == '\0';
}

bool repository_is_ready(struct repository *repository, bool strict)
{
    bool ready = repository_is_settled(repository);

    if (!ready || !strict)
        return ready;
    pthread_mutex_lock(&repository->lock);
    for (size_t i = 0; i < repository->entries && ready; i++)
        ready = !repository->entry[i]->wanted || entry_is_ready(repository->entry[i]);
    pthread_mutex_unlock(&repository->lock);
    return ready;
}

/* ---- lookups ---- */

/* -1: none was asked for. */
static enum status parse_version(const char *name, const char *text, int64_t *out_version,
                                 struct error *err)
{
    char *end;

    *out_version = -1;
    if (text == NULL || text[0] == '\0')
        return STATUS_OK;
    errno = 0;
    *out_version = strtoll(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0)
        return error_set(err, STATUS_INVALID,
                         "failed to get model version from specified version string '%s' for model "
                         "'%s': it is no number",
                         text, name);
    return STATUS_OK;
}

static struct slot *newest_ready(struct entry *entry)
{
    for (size_t i = entry->slots; i > 0; i--)
        if (entry->slot[i - 1].state == MODEL_READY)
            return &entry->slot[i - 1];
    return NULL;
}

static struct slot *choose(struct entry *entry, int64_t version)
{
    return version < 0 ? newest_ready(entry) : slot_find(entry, version);
}

/* Nobody can say yet what there will be of it. */
static bool is_coming(const struct entry *entry)
{
    return entry->is_loading && !entry_serves(entry);
}

static enum status find_locked(struct repository *repository, const char *name, int64_t version,
                               struct model **out_model, struct error *err)
{
    struct entry *entry = entry_find(repository, name);
    struct slot *slot = entry == NULL ? NULL : choose(entry, version);

    if (entry == NULL)
        return error_set(err, STATUS_NOT_FOUND, "Request for unknown model: '%s' is not found",
                         name);
    if (slot == NULL && is_coming(entry))
        return error_set(err, STATUS_UNAVAILABLE, "model '%s' is being loaded, it is not ready yet",
                         name);
    if (slot == NULL && version < 0)
        return error_set(err, STATUS_NOT_FOUND,
                         "Request for unknown model: '%s' has no available versions", name);
    if (slot == NULL)
        return error_set(err, STATUS_NOT_FOUND,
                         "Request for unknown model: '%s' version %" PRId64 " is not found", name,
                         version);
    if (slot->state != MODEL_READY)
        return error_set(err, STATUS_UNAVAILABLE,
                         "Request for unknown model: '%s' version %" PRId64
                         " is not at ready state",
                         name, version);
    *out_model = model_ref(slot->model);
    return STATUS_OK;
}

enum status repository_find(struct repository *repository, const char *name, const char *version,
                            struct model **out_model, struct error *err)
{
    enum status status;
    int64_t number;

    TRY(parse_version(name, version, &number, err));
    pthread_mutex_lock(&repository->lock);
    status = find_locked(repository, name, number, out_model, err);
    pthread_mutex_unlock(&repository->lock);
    return status;
}

enum status repository_is_model_ready(struct repository *repository, const char *name,
                                      const char *version, bool *out_ready, struct error *err)
{
    enum status status = STATUS_OK;
    struct entry *entry;
    int64_t number;

    TRY(parse_version(name, version, &number, err));
    pthread_mutex_lock(&repository->lock);
    entry = entry_find(repository, name);
    if (entry == NULL) {
        status =
            error_set(err, STATUS_NOT_FOUND, "Request for unknown model: '%s' is not found", name);
    } else {
        const struct slot *slot = choose(entry, number);

        *out_ready = slot != NULL && slot->state == MODEL_READY;
    }
    pthread_mutex_unlock(&repository->lock);
    return status;
}

/* ---- the index ---- */

struct row {
    struct model_info info;
    struct model *model;
};

static void fill_row(struct row *row, const struct entry *entry, const struct slot *slot)
{
    struct model_info *info = &row->info;

    *row = (struct row){.model = NULL};
    (void)snprintf(info->name, sizeof(info->name), "%s", entry->name);
    if (slot == NULL) {
        info->state = entry->is_loading          ? MODEL_LOADING
                      : entry->reason[0] == '\0' ? MODEL_UNKNOWN
                                                 : MODEL_UNAVAILABLE;
        (void)snprintf(info->reason, sizeof(info->reason), "%s", entry->reason);
        return;
    }
    (void)snprintf(info->version, sizeof(info->version), "%" PRId64, slot->version);
    (void)snprintf(info->reason, sizeof(info->reason), "%s", slot->reason);
    info->state = slot->state;
    if (slot->model == NULL)
        return;
    (void)snprintf(info->batching, sizeof(info->batching), "%s", slot->model->batching);
    info->resident_bytes = network_resident_bytes(slot->model->network);
    info->load_us = slot->model->load_us;
    resident_describe(slot->model, &info->residency);
    if (slot->state == MODEL_READY)
        row->model = model_ref(slot->model);
}

static size_t count_rows(const struct repository *repository)
{
    size_t count = 0;

    for (size_t i = 0; i < repository->entries; i++)
        count += repository->entry[i]->slots == 0 ? 1 : repository->entry[i]->slots;
    return count;
}

/* Copies the table, so that `each` runs without the lock.  NULL: no memory. */
static struct row *copy_rows(struct repository *repository, size_t *out_count)
{
    struct row *rows;
    size_t count = 0;

    pthread_mutex_lock(&repository->lock);
    rows = calloc(count_rows(repository) + 1, sizeof(*rows));
    for (size_t i = 0; rows != NULL && i < repository->entries; i++) {
        const struct entry *entry = repository->entry[i];

        if (entry->slots == 0)
            fill_row(&rows[count++], entry, NULL);
        for (size_t j = 0; j < entry->slots; j++)
            fill_row(&rows[count++], entry, &entry->slot[j]);
    }
    pthread_mutex_unlock(&repository->lock);
    *out_count = count;
    return rows;
}

void repository_for_each(struct repository *repository, repository_each_fn each, void *arg)
{
    struct row *rows;
    size_t count;

    rows = copy_rows(repository, &count);
    for (size_t i = 0; rows != NULL && i < count; i++) {
        each(arg, &rows[i].info, rows[i].model);
        model_unref(rows[i].model);
    }
    free(rows);
}

/* ---- control ---- */

static void send_command(struct repository *repository, bool is_unload, const char *name,
                         const char *config_json, repository_done_fn done, void *arg)
{
    struct command *command = calloc(1, sizeof(*command));
    struct error err;

    if (command != NULL) {
        command->name = strdup(name);
        command->config_json = config_json == NULL ? NULL : strdup(config_json);
    }
    if (command == NULL || command->name == NULL ||
        (config_json != NULL && command->config_json == NULL)) {
        if (command != NULL) {
            free(command->name);
            free(command->config_json);
        }
        free(command);
        (void)error_set(&err, STATUS_NO_MEMORY, "no memory for the request");
        done(arg, STATUS_NO_MEMORY, &err, 0);
        return;
    }
    command->message.kind = MESSAGE_COMMAND;
    command->is_unload = is_unload;
    command->done = done;
    command->arg = arg;
    mailbox_put(&repository->loader, &command->message.mail);
}

void repository_load(struct repository *repository, const char *name, const char *config_json,
                     repository_done_fn done, void *arg)
{
    send_command(repository, false, name, config_json, done, arg);
}

void repository_unload(struct repository *repository, const char *name, repository_done_fn done,
                       void *arg)
{
    send_command(repository, true, name, NULL, done, arg);
}

void repository_note_fixed(struct repository *repository)
{
    fixed_note(&repository->fixed);
}
