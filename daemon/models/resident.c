/* The moves of one model. */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "device/host_source.h"
#include "models/folder.h"
#include "models/internal.h"
#include "observe/log.h"
#include "onnx/reader.h"

const char *residency_name(enum residency residency)
{
    static const char *const names[] = {"resident", "host", "dropped"};

    return names[residency];
}

/* ---- configuration ---- */

static const char *parameter(const Inference__ModelConfig *config, const char *name)
{
    for (size_t i = 0; i < config->n_parameters; i++)
        if (strcmp(config->parameters[i]->key, name) == 0 && config->parameters[i]->value != NULL)
            return config->parameters[i]->value->string_value;
    return NULL;
}

/* Ours must be right to the letter; those of other backends mean nothing here. */
static enum status check_parameters(const struct model *model, struct error *err)
{
    static const char *const known[] = {"sluice.pin", "sluice.keep_alive"};

    for (size_t i = 0; i < model->config->n_parameters; i++) {
        const char *key = model->config->parameters[i]->key;

        if (strcmp(key, known[0]) == 0 || strcmp(key, known[1]) == 0)
            continue;
        if (strncmp(key, "sluice.", 7) == 0)
            return error_set(err, STATUS_INVALID,
                             "model '%s': there is no parameter '%.60s', only '%s' and '%s'",
                             model->name, key, known[0], known[1]);
        log_warn("model '%s': parameter '%s' has no effect here, ignoring", model->name, key);
    }
    return STATUS_OK;
}

enum status resident_configure(struct model *model, struct error *err)
{
    const char *pin = parameter(model->config, "sluice.pin");
    const char *keep = parameter(model->config, "sluice.keep_alive");
    struct resident *resident = &model->resident;

    TRY(check_parameters(model, err));
    resident->own_keep_us = KEEP_ALIVE_DEFAULT;
    atomic_init(&resident->keep_us, KEEP_ALIVE_DEFAULT);
    resident->is_pinned = pin != NULL && strcmp(pin, "true") == 0;
    if (pin != NULL && !resident->is_pinned && strcmp(pin, "false") != 0)
        return error_set(err, STATUS_INVALID,
                         "model '%s': parameter 'sluice.pin' is '%.40s', true or false is allowed",
                         model->name, pin);
    if (keep != NULL && !keep_alive_parse(keep, strlen(keep), &resident->own_keep_us))
        return error_set(
            err, STATUS_INVALID,
            "model '%s': parameter 'sluice.keep_alive' is '%.40s', allowed is " KEEP_ALIVE_WORDS,
            model->name, keep);
    return STATUS_OK;
}

void resident_start(struct model *model, struct repository *repository)
{
    struct resident *resident = &model->resident;

    resident->repository = repository;
    resident->where = RESIDENCY_DEVICE;
    resident->born_us = resident->since_us = clock_now_us();
    resident->device_bytes = network_resident_bytes(model->network);
    queue_set_patience(model->queue, resident_patience(model));
}

int64_t resident_patience(const struct model *model)
{
    const struct resident *resident = &model->resident;
    int64_t keep_us = atomic_load_explicit(&resident->keep_us, memory_order_relaxed);

    if (resident->is_pinned)
        return CLOCK_NEVER;
    if (keep_us == KEEP_ALIVE_DEFAULT)
        keep_us = resident->own_keep_us;
    if (keep_us == KEEP_ALIVE_DEFAULT) {
        keep_us = atomic_load_explicit(&resident->repository->model_idle_us, memory_order_relaxed);
        keep_us = keep_us == 0 ? CLOCK_NEVER : keep_us;
    }
    return keep_us;
}

void model_keep_alive(struct model *model, int64_t keep_us)
{
    struct resident *resident = &model->resident;

    if (atomic_load_explicit(&resident->drops, memory_order_relaxed))
        atomic_store_explicit(&resident->drops, false, memory_order_relaxed);
    if (atomic_load_explicit(&resident->keep_us, memory_order_relaxed) == keep_us)
        return;
    atomic_store_explicit(&resident->keep_us, keep_us, memory_order_relaxed);
    queue_set_patience(model->queue, resident_patience(model));
}

enum residency resident_refuge(const struct model *model)
{
    return atomic_load_explicit(&model->resident.drops, memory_order_relaxed) ? RESIDENCY_DROPPED
                                                                              : RESIDENCY_HOST;
}

void resident_dismiss(struct model *model, enum residency to)
{
    model_keep_alive(model, 0);
    atomic_store_explicit(&model->resident.drops, to == RESIDENCY_DROPPED, memory_order_relaxed);
}

/* ---- moving ---- */

const char *resident_obstacle(struct model *model)
{
    struct queue_use use;

    if (model->resident.is_pinned)
        return "pinned";
    if (model->resident.is_moving)
        return "moving";
    queue_read_use(model->queue, &use);
    return use.is_busy ? "in use" : NULL;
}

/* Takes the move; false: somebody else has it, or there is nothing to move. */
static bool begin_leaving(struct model *model, enum residency to, enum park park)
{
    struct repository *repository = model->resident.repository;
    struct resident *resident = &model->resident;
    bool begun;

    pthread_mutex_lock(&repository->lock);
    begun = !resident->is_moving && !resident->is_pinned && resident->where < to;
    if (begun && resident->where == RESIDENCY_DEVICE)
        begun = queue_park(model->queue, park) == STATUS_OK;
    resident->is_moving = resident->is_moving || begun;
    pthread_mutex_unlock(&repository->lock);
    return begun;
}

static enum residency place_of(const struct model *model)
{
    switch (network_place(model->network)) {
    case NETWORK_DEVICE:
        return RESIDENCY_DEVICE;
    case NETWORK_HOST:
        return RESIDENCY_HOST;
    default:
        return RESIDENCY_DROPPED;
    }
}

void resident_end_move(struct model *model)
{
    struct repository *repository = model->resident.repository;
    struct resident *resident = &model->resident;
    bool is_lost, is_back, is_over, is_unproven;
    struct queue_use use;

    pthread_mutex_lock(&repository->lock);
    is_back = resident->where != RESIDENCY_DEVICE && place_of(model) == RESIDENCY_DEVICE;
    if (resident->where != place_of(model))
        resident->since_us = clock_now_us();
    resident->where = place_of(model);
    pthread_mutex_unlock(&repository->lock);
    if (is_back)
        queue_resume(model->queue); /* whoever sees that it does not move can let it leave again */
    pthread_mutex_lock(&repository->lock);
    resident->is_moving = false;
    pthread_cond_broadcast(&repository->rested);
    is_lost = resident->is_retired && resident->where != RESIDENCY_DEVICE;
    queue_read_use(model->queue, &use);
    is_over = resident->is_retired && resident->where == RESIDENCY_DEVICE && use.pending == 0;
    is_unproven = resident->is_unproven && is_back;
    pthread_mutex_unlock(&repository->lock);
    if (is_lost)
        resident_retire(model);
    if (is_over) /* those who waited have gone */
        resident_clear(model);
    if (is_unproven)
        late_proofs_nudge(repository);
    keeper_nudge(repository);
}

void resident_retire(struct model *model)
{
    struct repository *repository = model->resident.repository;
    struct resident *resident = &model->resident;
    struct error err;
    bool is_away;

    pthread_mutex_lock(&repository->lock);
    resident->is_retired = true;
    is_away = !resident->is_moving && resident->where != RESIDENCY_DEVICE;
    pthread_mutex_unlock(&repository->lock);
    if (!is_away)
        return;
    queue_pass_on(model->queue);
    (void)error_set(&err, STATUS_UNAVAILABLE,
                    "model '%s' version %s was unloaded before it was back on the device",
                    model->name, model->version_text);
    queue_refuse(model->queue, &err);
}

/* A copy of the packed weights, if HostCache= has room for it. */
static void keep_packed(struct model *model)
{
    uint64_t bytes = network_copy_bytes(model->network);

    if (bytes > 0 && room_on_host(model->resident.repository, model, bytes) &&
        network_copy(model->network) != STATUS_OK)
        log_warn(
            "model '%s' version %s: its packed weights cannot be kept in host memory, ignoring",
            model->name, model->version_text);
}

/* If need be without that copy. */
static bool fits_on_host(struct model *model)
{
    struct repository *repository = model->resident.repository;
    uint64_t bytes = network_host_bytes(model->network);

    if (room_on_host(repository, model, bytes))
        return true;
    network_drop_copy(model->network);
    return network_host_bytes(model->network) < bytes &&
           room_on_host(repository, model, network_host_bytes(model->network));
}

static void say_left(const struct model *model, const char *from, uint64_t bytes)
{
    char held[48] = "where it held nothing";

    if (bytes > 0)
        (void)snprintf(held, sizeof(held), "%" PRIu64 " bytes", bytes);
    log_info("model '%s' version %s left %s%s%s, now %s", model->name, model->version_text, from,
             bytes > 0 ? ": " : ", ", held, residency_name(place_of(model)));
}

uint64_t resident_leave(struct model *model, enum residency to, enum park park,
                        uint64_t *out_host_bytes)
{
    struct repository *repository = model->resident.repository;
    uint64_t freed = 0, host = 0;
    bool was_there;

    if (!begin_leaving(model, to, park))
        return 0;
    was_there = network_place(model->network) == NETWORK_DEVICE;
    if (was_there) {
        if (to == RESIDENCY_HOST)
            keep_packed(model);
        freed = network_leave(model->network);
        pthread_mutex_lock(&repository->lock);
        model->resident.device_bytes = freed;
        model->resident.evictions++;
        pthread_mutex_unlock(&repository->lock);
    }
    if (to == RESIDENCY_DROPPED || !fits_on_host(model))
        host = network_strip(model->network);
    host_trim();
    ledger_note(repository->config.ledger,
                &(struct mem_note){.kind = MEM_EVENT_EVICT,
                                   .bytes = freed,
                                   .model = model->name,
                                   .note = residency_name(place_of(model))});
    say_left(model, was_there ? "the device" : "host memory", was_there ? freed : host);
    if (place_of(model) == RESIDENCY_HOST) /* two that leave at once do not see each other */
        atomic_store(&repository->keeper.host_changed, true);
    resident_end_move(model);
    if (out_host_bytes != NULL)
        *out_host_bytes = host;
    return freed;
}

uint64_t resident_drop_plans(struct model *model)
{
    uint64_t bytes;

    if (!begin_leaving(model, RESIDENCY_HOST, PARK_IDLE))
        return 0;
    bytes = network_drop_plans(model->network);
    queue_resume(model->queue);
    resident_end_move(model);
    return bytes;
}

void resident_clear(struct model *model)
{
    struct repository *repository = model->resident.repository;
    struct resident *resident = &model->resident;
    uint64_t freed;
    bool begun;

    pthread_mutex_lock(&repository->lock);
    begun = !resident->is_moving && (resident->where != RESIDENCY_DEVICE ||
                                     queue_park(model->queue, PARK_IDLE) == STATUS_OK);
    resident->is_moving = resident->is_moving || begun;
    pthread_mutex_unlock(&repository->lock);
    if (!begun)
        return;
    freed = network_leave(model->network);
    (void)network_strip(model->network);
    pthread_mutex_lock(&repository->lock);
    resident->cleared_bytes += freed;
    pthread_mutex_unlock(&repository->lock);
    resident_end_move(model);
}

/* ---- coming back ---- */

static enum status check_file(const struct model *model, struct error *err)
{
    const struct resident *resident = &model->resident;
    bool polls = resident->repository->config.control == CONTROL_POLL;

    if (folder_signature(resident->folder) == resident->signature)
        return STATUS_OK;
    return error_set(err, polls ? STATUS_UNAVAILABLE : STATUS_PRECONDITION,
                     "model '%s' version %s: %s changed on disk since it was loaded: %s",
                     model->name, model->version_text, resident->folder,
                     polls ? "it is loaded again by the next poll of the repository"
                           : "load the model again");
}

/* Looked at before and after the reading: what was read is what was loaded before. */
static enum status read_again(struct model *model, struct error *err)
{
    struct graph *graph;
    enum status status;

    TRY(check_file(model, err));
    TRY(onnx_read_file(model->resident.file, &graph, NULL, err));
    status = check_file(model, err);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    return network_refill(model->network, graph, err);
}

static void count_attempt(struct model *model)
{
    pthread_mutex_lock(&model->resident.repository->lock);
    model->resident.reload_attempts++;
    pthread_mutex_unlock(&model->resident.repository->lock);
}

static void count_return(struct model *model, int64_t took_us)
{
    struct repository *repository = model->resident.repository;
    struct resident *resident = &model->resident;

    pthread_mutex_lock(&repository->lock);
    resident->device_bytes = network_resident_bytes(model->network);
    resident->reload_us = took_us;
    resident->reloads_us += took_us;
    resident->reloads++;
    pthread_mutex_unlock(&repository->lock);
}

enum status resident_return(struct model *model, struct error *err)
{
    uint64_t host_bytes = network_host_bytes(model->network);
    int64_t from_us = clock_now_us();
    enum status status = STATUS_OK;

    count_attempt(model);
    if (network_place(model->network) == NETWORK_GONE)
        status = read_again(model, err);
    if (status == STATUS_OK)
        status = network_return(model->network, err);
    if (status != STATUS_OK)
        return status; /* perhaps not for the last time: who gives up counts it */
    count_return(model, clock_now_us() - from_us);
    log_info("model '%s' version %s is back on the device: %" PRIu64 " bytes, %" PRId64
             " ms (from %" PRIu64 " bytes in host memory)",
             model->name, model->version_text, network_resident_bytes(model->network),
             (clock_now_us() - from_us) / 1000, host_bytes);
    return STATUS_OK;
}

/* ---- what others are told, and tell ---- */

void resident_describe(struct model *model, struct model_residency *out_residency)
{
    const struct resident *resident = &model->resident;
    struct queue_use use;

    queue_read_use(model->queue, &use);
    *out_residency = (struct model_residency){
        .where = resident->where,
        .is_moving = resident->is_moving,
        .is_pinned = resident->is_pinned,
        .since_us = resident->since_us,
        .last_use_us = use.pending > 0     ? clock_now_us()
                       : use.requests == 0 ? 0
                                           : use.idle_since_us,
        .keep_alive_us = resident_patience(model),
        .reload_us = resident->reload_us,
        .reloads_us = resident->reloads_us,
        .device_bytes = resident->where == RESIDENCY_DEVICE ? network_resident_bytes(model->network)
                                                            : resident->device_bytes,
        .host_bytes = network_host_bytes(model->network),
        .evictions = resident->evictions,
        .reloads = resident->reloads,
        .failed_reloads = resident->failed_reloads,
        .reload_attempts = resident->reload_attempts,
    };
}

void model_read_residency(struct model *model, struct model_residency *out_residency)
{
    struct repository *repository = model->resident.repository;

    pthread_mutex_lock(&repository->lock);
    resident_describe(model, out_residency);
    pthread_mutex_unlock(&repository->lock);
}

bool model_await_rest(struct model *model, int64_t until_us, enum residency *out_where)
{
    struct repository *repository = model->resident.repository;
    bool rests;

    pthread_mutex_lock(&repository->lock);
    while (model->resident.is_moving && clock_now_us() < until_us)
        clock_cond_wait(&repository->rested, &repository->lock, until_us);
    rests = !model->resident.is_moving;
    *out_where = model->resident.where;
    pthread_mutex_unlock(&repository->lock);
    return rests;
}

void repository_set_residency(struct repository *repository, int64_t model_idle_us,
                              int64_t model_drop_us, uint64_t host_cache_bytes)
{
    atomic_store(&repository->model_idle_us, model_idle_us);
    atomic_store(&repository->model_drop_us, model_drop_us);
    atomic_store(&repository->host_cache_bytes, host_cache_bytes);
    atomic_store(&repository->keeper.host_changed, true);
    if (repository->keeper.has_thread)
        keeper_nudge(repository);
}
