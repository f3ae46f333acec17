/* Loading one version: file -> graph -> network -> configuration -> proof -> warm-up -> queue. */
#define LOG_COMPONENT "models"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "graph/rows.h"
#include "models/folder.h"
#include "models/model.h"
#include "models/proof.h"
#include "models/warmup.h"
#include "observe/log.h"
#include "onnx/reader.h"

static enum status check_given_up(const struct load_context *context, struct error *err)
{
    if (context->give_up == NULL || !atomic_load(context->give_up))
        return STATUS_OK;
    return error_set(err, STATUS_UNAVAILABLE, "the daemon is stopping");
}

static enum status load_network(const struct load_context *context, struct model *model,
                                struct error *err)
{
    const char *file = context->config->default_model_filename;
    struct network_config config = {.plan_cache_bytes = context->plan_cache_bytes,
                                    .planning = context->planning};
    struct graph *graph;
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
    model->may_mix_rows = graph_may_mix_rows(graph);
    config.name = arena_format(&model->arena, "%s/%" PRId64, context->name, context->version);
    if (config.name == NULL) {
        graph_destroy(graph);
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    }
    TRY(network_create(graph, context->device, context->ledger, &config, &model->network, err));
    network_set_ahead(model->network, true); /* until it is open to requests */
    return STATUS_OK;
}

static enum status load_config(const struct load_context *context, struct model *model,
                               struct error *err)
{
    model->config = model_config_copy(context->config);
    if (model->config == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    return model_config_complete(model->config, context->config_given, context->name,
                                 model->network, err);
}

/* Shapes of the inputs as the ports say, batch dimension included. */
static const struct shape *port_shapes(struct model *model)
{
    struct shape *shapes = arena_take_array(&model->arena, model->inputs, sizeof(*shapes));

    for (size_t i = 0; shapes != NULL && i < model->inputs; i++)
        shapes[i] = model->in[i].shape;
    return shapes;
}

static bool computes(const struct device *device)
{
    return strcmp(device->ops->name, "null") != 0;
}

/* Decides about batching, which wants the model to have been run (`first`: the answer to the first
 * row; NULL: `why` it has none); model->batching says the outcome. */
static bool prove(const struct load_context *context, struct model *model, struct probe *probe,
                  const struct shape *ports, int64_t size, const struct proof_first *first,
                  const struct error *why)
{
    int64_t most_rows = model->may_mix_rows ? model->config->max_batch_size : 2;
    char reason[200] = "";

    if (model->config->max_batch_size == 0) {
        (void)snprintf(model->batching, sizeof(model->batching),
                       "off: the model has no batch dimension");
        return false;
    }
    if (!model_config_asks_for_batching(model->config)) {
        (void)snprintf(model->batching, sizeof(model->batching),
                       "off: its configuration has no dynamic_batching");
        return false;
    }
    if (!computes(context->device)) {
        (void)snprintf(model->batching, sizeof(model->batching), "on");
        return true;
    }
    if (first == NULL)
        (void)snprintf(reason, sizeof(reason), "it could not be run to prove it: %.140s",
                       why->text);
    else if (proof_of_batching(probe, ports, size, most_rows, first, reason, sizeof(reason))) {
        (void)snprintf(model->batching, sizeof(model->batching), "on");
        return true;
    }
    (void)snprintf(model->batching, sizeof(model->batching), "off: %s", reason);
    if (check_given_up(context, NULL) != STATUS_OK)
        return false;
    log_warn("model '%s' version %s is served one by one: %s", model->name, model->version_text,
             reason);
    return false;
}

static bool is_fixed(const struct model *model, const struct shape *ports)
{
    for (size_t i = 0; i < model->inputs; i++)
        for (size_t axis = model->config->max_batch_size > 0 ? 1 : 0; axis < ports[i].rank; axis++)
            if (ports[i].dims[axis] == SHAPE_UNKNOWN)
                return false;
    return true;
}

/* Whether a plan can be made for the shapes that a probe tries first. */
static enum status plan_once(struct model *model, const struct probe *probe,
                             const struct shape *ports, struct error *err)
{
    struct shape *shapes = arena_take_array(&model->arena, model->inputs, sizeof(*shapes));
    struct plan *plan = NULL;
    enum status status;

    if (shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model->name);
    proof_shapes(probe, ports, 1, 0, shapes);
    status = network_plan(model->network, shapes, &plan, err);
    plan_unref(plan);
    return status;
}

/* What the failure of a probe says of the model.  Its weights must fit, packed as a plan wants
 * them, whatever a batch needs beside them.  With open dimensions, or data that it does not like,
 * other failures are none of the model's; with shapes that are fixed, a plan that cannot be made
 * is. */
static enum status blame_model(struct model *model, const struct probe *probe,
                               const struct shape *ports, const struct error *why,
                               struct error *err)
{
    enum status status;

    if (why->status != STATUS_NO_MEMORY && !is_fixed(model, ports))
        return STATUS_OK;
    if (why->status == STATUS_UNSUPPORTED) {
        if (err != NULL)
            *err = *why;
        return why->status;
    }
    if (why->status != STATUS_NO_MEMORY && why->status != STATUS_INVALID)
        return STATUS_OK;
    status = plan_once(model, probe, ports, err);
    return why->status == STATUS_NO_MEMORY && status != STATUS_NO_MEMORY ? STATUS_OK : status;
}

static enum status run_probes(const struct load_context *context, struct model *model,
                              struct probe *probe, bool *out_batching, struct error *err)
{
    const struct shape *ports = port_shapes(model);
    struct error why = {.status = STATUS_OK};
    struct proof_first first;
    enum status found;
    int64_t size = 0;

    if (ports == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", context->name);
    found = proof_find_size(probe, ports, &size, &first, &why);
    if (found != STATUS_OK) {
        TRY(blame_model(model, probe, ports, &why, err));
        log_debug("model '%s': no probe ran: %s", context->name, why.text);
    }
    model->row_cached_bytes = batcher_cached_bytes(context->batcher);
    *out_batching =
        prove(context, model, probe, ports, size, found == STATUS_OK ? &first : NULL, &why);
    if (found == STATUS_OK)
        proof_first_deinit(&first);
    return warmup_run(probe, model->config, context->folder, err);
}

static enum status probe_model(const struct load_context *context, struct model *model,
                               bool *out_batching, struct error *err)
{
    struct probe probe;
    enum status status;

    TRY(probe_init(&probe, context->batcher, model->network, context->name,
                   model->config->max_batch_size > 0, err));
    probe.give_up = context->give_up;
    network_watch(model->network, context->give_up);
    status = run_probes(context, model, &probe, out_batching, err);
    network_watch(model->network, NULL);
    probe_deinit(&probe);
    TRY(check_given_up(context, err)); /* what the probes say is not of the model then */
    return status;
}

/* A derived batch dimension that did not hold is none: clients get the shapes of the file. */
static enum status settle_batching(const struct load_context *context, struct model *model,
                                   bool batching, struct error *err)
{
    if (batching || context->config_given || model->config->max_batch_size == 0)
        return STATUS_OK;
    TRY(model_config_drop_batch(model->config, model->network, err));
    return model_make_ports(model, context->folder, err);
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
    TRY(probe_model(context, model, &batching, err));
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
