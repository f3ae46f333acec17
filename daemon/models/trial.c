#define LOG_COMPONENT "models"
#include "models/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/log.h"

/* Where a port leaves a dimension open, what the graph asks for. */
static void fill_open(struct shape *shape, const struct shape *demanded)
{
    for (size_t axis = 0; axis < shape->rank && shape->rank == demanded->rank; axis++)
        if (shape->dims[axis] == SHAPE_UNKNOWN)
            shape->dims[axis] = demanded->dims[axis];
}

/* Shapes of the inputs as the ports say, batch dimension included. */
static const struct shape *port_shapes(struct model *model)
{
    struct shape *shapes = arena_take_array(&model->arena, model->inputs, sizeof(*shapes));

    for (size_t i = 0; shapes != NULL && i < model->inputs; i++) {
        shapes[i] = model->in[i].shape;
        fill_open(&shapes[i], &model->demands[i]);
    }
    return shapes;
}

enum status trial_open(const struct load_context *context, struct model *model,
                       struct trial **out_trial, struct error *err)
{
    struct trial *trial = calloc(1, sizeof(*trial));
    enum status status;

    if (trial != NULL)
        trial->ports = port_shapes(model);
    if (trial == NULL || trial->ports == NULL) {
        free(trial);
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model->name);
    }
    status = probe_init(&trial->probe, context->batcher, model->network, model->name,
                        model->config->max_batch_size > 0, err);
    if (status != STATUS_OK) {
        free(trial);
        return status;
    }
    trial->probe.give_up = context->give_up;
    trial->is_derived = !context->batch_given;
    *out_trial = trial;
    return STATUS_OK;
}

void trial_close(struct trial *trial)
{
    if (trial == NULL)
        return;
    if (trial->has_answer)
        proof_first_deinit(&trial->first);
    probe_deinit(&trial->probe);
    free(trial);
}

/* ---- the first row ---- */

static bool is_fixed(const struct model *model)
{
    for (size_t i = 0; i < model->inputs; i++) {
        const struct shape *shape = &model->in[i].shape;

        for (size_t axis = model->config->max_batch_size > 0 ? 1 : 0; axis < shape->rank; axis++)
            if (shape->dims[axis] == SHAPE_UNKNOWN)
                return false;
    }
    return true;
}

/* Whether a plan can be made for the shapes that a probe tries first. */
static enum status plan_once(struct model *model, const struct trial *trial, struct error *err)
{
    struct shape *shapes = arena_take_array(&model->arena, model->inputs, sizeof(*shapes));
    struct plan *plan = NULL;
    enum status status;

    if (shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "model '%s': no memory", model->name);
    proof_shapes(&trial->probe, trial->ports, 1, 0, shapes);
    status = network_plan(model->network, shapes, &plan, err);
    plan_unref(plan);
    return status;
}

/* What the failure of a probe says of the model.  Its weights must fit, packed as a plan wants
 * them, whatever a batch needs beside them.  With open dimensions, or data that it does not like,
 * other failures are none of the model's; with shapes that are fixed, a plan that cannot be made
 * is. */
static enum status blame_model(struct model *model, const struct trial *trial, struct error *err)
{
    const struct error *why = &trial->why;
    enum status status;

    if (why->status != STATUS_NO_MEMORY && !is_fixed(model))
        return STATUS_OK;
    if (why->status == STATUS_UNSUPPORTED) {
        if (err != NULL)
            *err = *why;
        return why->status;
    }
    if (why->status != STATUS_NO_MEMORY && why->status != STATUS_INVALID)
        return STATUS_OK;
    status = plan_once(model, trial, err);
    return why->status == STATUS_NO_MEMORY && status != STATUS_NO_MEMORY ? STATUS_OK : status;
}

enum status trial_begin(struct trial *trial, struct model *model, struct error *err)
{
    enum status found =
        proof_find_size(&trial->probe, trial->ports, &trial->size, &trial->first, &trial->why);

    trial->has_answer = found == STATUS_OK;
    if (trial->has_answer)
        return STATUS_OK;
    TRY(blame_model(model, trial, err));
    log_debug("model '%s': no probe ran: %s", model->name, trial->why.text);
    return STATUS_OK;
}

/* ---- batching ---- */

static bool computes(const struct device *device)
{
    return strcmp(device->ops->name, "null") != 0;
}

/* Batching is asked for and will not be. */
static void refuse_batching(const struct model *model, const char *reason, char *text, size_t room)
{
    (void)snprintf(text, room, "off: %s", reason);
    log_warn("model '%s' version %s is served one by one: %s", model->name, model->version_text,
             reason);
}

static void explain_no_batch(const struct load_context *context, const struct model *model,
                             char *text, size_t room)
{
    char why[160];

    model_config_explain_no_batch(model->config, context->batch_given, model->network, why,
                                  sizeof(why));
    (void)snprintf(text, room, "off: %s", why);
    if (model_config_asks_for_batching(model->config))
        log_warn("model '%s': field 'dynamic_batching' batches nothing (%s), ignoring", model->name,
                 why);
}

bool trial_is_due(const struct load_context *context, const struct model *model, char *text,
                  size_t room, bool *out_batching)
{
    *out_batching = false;
    if (model->config->max_batch_size == 0) {
        explain_no_batch(context, model, text, room);
        return false;
    }
    if (!model_config_asks_for_batching(model->config)) {
        (void)snprintf(text, room, "off: its configuration has no dynamic_batching");
        return false;
    }
    if (model->row_mixer != NULL) {
        refuse_batching(model, model->row_mixer, text, room);
        return false;
    }
    if (computes(context->device))
        return true;
    (void)snprintf(text, room, "on");
    *out_batching = true;
    return false;
}

bool trial_may_wait(const struct trial *trial, const struct model *model)
{
    if (!trial->has_answer || model->may_mix_rows)
        return false;
    for (size_t i = 0; i < trial->first.answer.request.outputs; i++) {
        const struct shape *shape = &trial->first.answer.request.out[i].shape;

        if (shape->rank == 0 || shape->dims[0] != 1)
            return false;
    }
    return true;
}

bool trial_prove(struct trial *trial, const struct model *model, char *text, size_t room)
{
    int64_t most_rows = model->may_mix_rows ? model->config->max_batch_size : 2;
    char reason[200] = "";

    if (!trial->has_answer)
        (void)snprintf(reason, sizeof(reason), "it could not be run to prove it: %.140s",
                       trial->why.text);
    else if (proof_of_batching(&trial->probe, trial->ports, trial->size, most_rows, &trial->first,
                               reason, sizeof(reason))) {
        (void)snprintf(text, room, "on");
        return true;
    }
    if (probe_is_given_up(&trial->probe))
        return false;
    refuse_batching(model, reason, text, room);
    return false;
}
