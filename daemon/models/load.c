/* Loading one version: file -> graph -> network -> configuration -> proof -> warm-up -> queue. */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "graph/demand.h"
#include "graph/rows.h"
#include "models/folder.h"
#include "models/model.h"
#include "models/trial.h"
#include "models/warmup.h"
#include "observe/log.h"
#include "onnx/reader.h"

/* What a model says of itself once this has happened is nothing of the model. */
static enum status check_given_up(const struct load_context *context, struct error *err)
{
    if (batcher_lost_device(context->batcher))
        return error_set(err, STATUS_DEVICE_LOST, "model '%s': the device is lost", context->name);
    if (context->give_up == NULL || !atomic_load(context->give_up))
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE, "the daemon is stopping");
}

/* What the graph gives away about the rows of a batch. */
static enum status look_at_rows(struct model *model, const struct graph *graph, struct error *err)
{
    const struct node *mixer = graph_find_row_mixer(graph);

    model->may_mix_rows = graph_may_mix_rows(graph);
    if (mixer == NULL)
        return STATUS_OK;
    model->row_mixer =
        arena_format(&model->arena, "node '%.100s' (%s) works across the rows of a batch",
                     mixer->name, mixer->op->onnx.name);
    return model->row_mixer != NULL
               ? STATUS_OK
               : error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model->name);
}

/* What it asks of the dimensions of inputs that its file leaves open. */
static enum status look_at_demands(struct model *model, const struct graph *graph,
                                   struct error *err)
{
    model->demands = arena_take_array(&model->arena, graph->inputs, sizeof(*model->demands));
    if (model->demands == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model->name);
    for (size_t i = 0; i < graph->inputs; i++)
        if (graph->in[i]->shape_known)
            model->demands[i] = graph->in[i]->shape;
    graph_fill_demands(graph, model->demands);
    return STATUS_OK;
}

static enum status load_network(const struct load_context *context, struct model *model,
                                struct error *err)
{
    const char *file = context->config->default_model_filename;
    struct network_config config = {.plan_cache_bytes = context->plan_cache_bytes,
                                    .planning = context->planning};
    struct graph *graph;
    enum status status;
    char path[4096];

    config.planning.cancelled = context->give_up;
    if ((size_t)snprintf(path, sizeof(path), "%s/%" PRId64 "/%s", context->folder, context->version,
                         file[0] == '\0' ? "model.onnx" : file) >= sizeof(path))
        return error_set(err, STATUS_INVALID, "model '%s': its path is too long", context->name);
    model->resident.file = arena_copy_string(&model->arena, path, strlen(path));
    model->resident.folder =
        arena_format(&model->arena, "%s/%" PRId64, context->folder, context->version);
    if (model->resident.file == NULL || model->resident.folder == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    model->resident.signature = folder_signature(model->resident.folder);
    TRY(onnx_read_file(path, &graph, NULL, err));
    status = look_at_rows(model, graph, err);
    if (status == STATUS_OK)
        status = look_at_demands(model, graph, err);
    config.name = arena_format(&model->arena, "%s/%" PRId64, context->name, context->version);
    if (status == STATUS_OK && config.name == NULL)
        status = error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    TRY(network_create(graph, context->device, context->ledger, &config, &model->network, err));
    network_set_ahead(model->network, true); /* until it is open to requests */
    return STATUS_OK;
}

/* The device is the daemon's to choose. */
static void warn_of_kinds(const struct load_context *context)
{
    bool is_cpu = strcmp(context->device->ops->name, "cpu") == 0;

    for (size_t i = 0; i < context->config->n_instance_group; i++) {
        Inference__ModelInstanceGroup__Kind kind = context->config->instance_group[i]->kind;

        if (kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU   ? is_cpu
            : kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_CPU ? !is_cpu
                                                                      : false)
            log_warn("model '%s': instance_group kind %s has no effect, the model runs on the "
                     "device '%s', ignoring",
                     context->name, is_cpu ? "KIND_GPU" : "KIND_CPU", context->device->ops->name);
    }
}

static enum status load_config(const struct load_context *context, struct model *model,
                               struct error *err)
{
    warn_of_kinds(context);
    model->config = model_config_copy(context->config);
    if (model->config == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    return model_config_complete(model->config, context->batch_given, context->name, model->network,
                                 err);
}

/* Runs the model and decides about batching, or leaves the proof to whoever has the model then. */
static enum status run_trial(const struct load_context *context, struct model *model,
                             struct trial *trial, bool *out_batching, struct error *err)
{
    bool is_due;

    TRY(trial_begin(trial, model, err));
    model->row_cached_bytes = batcher_cached_bytes(context->batcher);
    is_due = trial_is_due(context, model, model->batching, sizeof(model->batching), out_batching);
    if (is_due && context->may_prove_later && trial_may_wait(trial, model)) {
        (void)snprintf(model->batching, sizeof(model->batching), "off: it is being proven");
        model->trial = trial;
    } else if (is_due) {
        *out_batching = trial_prove(trial, model, model->batching, sizeof(model->batching));
    }
    return warmup_run(&trial->probe, model->config, context->folder, err);
}

static enum status try_model(const struct load_context *context, struct model *model,
                             bool *out_batching, struct error *err)
{
    struct trial *trial;
    enum status status;

    TRY(trial_open(context, model, &trial, err));
    network_watch(model->network, context->give_up);
    status = run_trial(context, model, trial, out_batching, err);
    network_watch(model->network, NULL);
    if (model->trial == NULL)
        trial_close(trial);
    TRY(check_given_up(context, err)); /* what the probes say is not of the model then */
    return status;
}

/* A derived batch dimension that did not hold is none: clients get the shapes of the file. */
static enum status settle_batching(const struct load_context *context, struct model *model,
                                   bool batching, struct error *err)
{
    if (batching || model->trial != NULL || context->batch_given ||
        model->config->max_batch_size == 0)
        return STATUS_OK;
    TRY(model_config_drop_batch(model->config, model->network, err));
    return model_make_ports(model, context->folder, err);
}

/* What cannot be read any more, or is not what was proven, serves nobody. */
static enum status check_file(const struct load_context *context, const struct model *model,
                              struct error *err)
{
    enum status status = network_check_file(model->network, err);

    return status == STATUS_OK ? status : error_prefix(err, status, "model '%s'", context->name);
}

static enum status open_queue(const struct load_context *context, struct model *model,
                              bool batching, struct error *err)
{
    struct queue_config config;

    TRY(model_config_queue(model->config, &model->arena, &config, err));
    config.network = model->network;
    config.batching = batching;
    return queue_create(context->batcher, &config, &model->queue, err);
}

static enum status fill(const struct load_context *context, struct model *model, struct error *err)
{
    bool batching = false;

    model->name = arena_copy_string(&model->arena, context->name, strlen(context->name));
    if (model->name == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    TRY(check_given_up(context, err));
    TRY(load_network(context, model, err));
    TRY(check_given_up(context, err));
    TRY(load_config(context, model, err));
    TRY(resident_configure(model, err));
    TRY(model_make_ports(model, context->folder, err));
    if (context->may_stay != NULL)
        TRY(context->may_stay(context->may_stay_arg, model, err));
    TRY(try_model(context, model, &batching, err));
    TRY(check_file(context, model, err));
    TRY(settle_batching(context, model, batching, err));
    network_set_ahead(model->network, false);
    return open_queue(context, model, batching, err);
}

enum status model_load(const struct load_context *context, struct model **out_model,
                       struct error *err)
{
    struct model *model = calloc(1, sizeof(*model));
    int64_t from_us = clock_now_us();
    enum status status;

    if (model == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    arena_init(&model->arena);
    atomic_init(&model->references, 1);
    model->version = context->version;
    (void)snprintf(model->version_text, sizeof(model->version_text), "%" PRId64, context->version);
    status = fill(context, model, err);
    if (status != STATUS_OK) {
        (void)model_destroy(model);
        return status;
    }
    model->load_us = clock_now_us() - from_us;
    *out_model = model;
    return STATUS_OK;
}
