/* sluice.v1.Admin: Plan.  Making a plan may take long, and so may runs of it: a thread of its own
 * does it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "models/profiling.h"
#include "serve/endpoints/admin_job.h"

/* A model on its way to or from the device is waited for so long. */
enum { MOVE_WAIT_US = 2000000 };

struct plan_job {
    struct admin_job job; /* first; its call holds the model */
    struct shape *shapes; /* in the call's arena */
    bool as_json;
    bool profile;
};

static enum status write_plan(const struct plan_job *job, struct model *model, FILE *to,
                              struct error *err)
{
    struct plan *plan = NULL;

    TRY(network_plan(model_network(model), job->shapes, &plan, err));
    plan_explain(plan, to, job->as_json);
    plan_unref(plan);
    return STATUS_OK;
}

static enum status write_profile(const struct plan_job *job, struct model *model, FILE *to,
                                 struct error *err)
{
    struct batcher *batcher = job->job.notice.call->server->batcher;
    struct profile *profile;

    TRY(profiling_run(batcher, model_network(model), model_name(model), job->shapes, &profile,
                      err));
    profile_write(profile, to, job->as_json);
    profile_destroy(profile);
    return STATUS_OK;
}

/* The model is the caller's until queue_leave(); false: *out_moves says whether it only moves. */
static bool visit(struct model *model, bool *out_moves)
{
    int64_t until_us = clock_now_us() + MOVE_WAIT_US;
    enum residency where = RESIDENCY_DEVICE;

    *out_moves = false;
    while (!*out_moves && where == RESIDENCY_DEVICE) {
        if (queue_visit(model_queue(model)))
            return true;
        *out_moves = !model_await_rest(model, until_us, &where);
    }
    return false;
}

static enum status make_plan(struct admin_job *job, FILE *to, struct error *err)
{
    struct plan_job *plan_job = CONTAINER_OF(job, struct plan_job, job);
    struct model *model = job->notice.call->model;
    enum status status;
    bool moves;

    if (!visit(model, &moves))
        return moves ? error_set(err, STATUS_UNAVAILABLE,
                                 "model '%s' is on its way to the device: ask again in a moment",
                                 model_name(model))
                     : error_set(err, STATUS_PRECONDITION,
                                 "model '%s' is not on the device: a request or `sluicectl wake` "
                                 "brings it back",
                                 model_name(model));
    status = plan_job->profile ? write_profile(plan_job, model, to, err)
                               : write_plan(plan_job, model, to, err);
    queue_leave(model_queue(model));
    return status;
}

static const Sluice__V1__InputShape *shape_of(const Sluice__V1__AdminRequest *request,
                                              const char *input)
{
    for (size_t i = 0; i < request->n_shapes; i++)
        if (strcmp(request->shapes[i]->name, input) == 0)
            return request->shapes[i];
    return NULL;
}

/* The shape asked for, or the port's with the batch in front. */
static enum status choose_shape(const struct call *call, const struct model_port *port,
                                struct shape *out_shape, struct error *err)
{
    const Sluice__V1__AdminRequest *request = admin_request(call);
    const Sluice__V1__InputShape *asked = shape_of(request, port->name);
    char text[SHAPE_TEXT_BYTES];

    *out_shape = port->shape;
    if (asked != NULL) {
        if (asked->n_shape > SHAPE_MAX_RANK)
            return error_set(err, STATUS_INVALID, "input '%s': at most %d dimensions", port->name,
                             SHAPE_MAX_RANK);
        *out_shape = shape_make(asked->n_shape, asked->shape);
    } else if (model_max_batch_size(call->model) > 0 && out_shape->rank > 0) {
        out_shape->dims[0] = request->batch > 0 ? request->batch : 1;
    }
    if (!shape_is_known(out_shape))
        return error_set(err, STATUS_INVALID,
                         "input '%s' has the open shape %s: give it one, as in --shape "
                         "%s=1x3x224x224 (`shapes` of the request)",
                         port->name, shape_format(&port->shape, text), port->name);
    return STATUS_OK;
}

static enum status prepare(struct call *call, struct plan_job *job, struct error *err)
{
    const Sluice__V1__AdminRequest *request = admin_request(call);
    const struct model_port *ports;
    size_t count;

    TRY(repository_find(call->server->repository, request->model, request->version, &call->model,
                        err));
    if (model_max_batch_size(call->model) > 0 && request->batch > model_max_batch_size(call->model))
        return error_set(err, STATUS_INVALID,
                         "batch %" PRId64 " is larger than max_batch_size %" PRId64 " of '%s'",
                         request->batch, model_max_batch_size(call->model),
                         model_name(call->model));
    count = model_inputs(call->model, &ports);
    job->shapes = arena_take_array(&call->request.arena, count, sizeof(*job->shapes));
    if (job->shapes == NULL)
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count; i++)
        TRY(choose_shape(call, &ports[i], &job->shapes[i], err));
    return STATUS_OK;
}

void run_admin_plan(struct call *call)
{
    struct plan_job *plan_job = calloc(1, sizeof(*plan_job));
    struct error err = {0};

    if (plan_job == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return;
    }
    if (call->server->planning) {
        free(plan_job);
        call_fail(call, STATUS_UNAVAILABLE, "another plan is being made, try again");
        return;
    }
    if (prepare(call, plan_job, &err) != STATUS_OK) {
        free(plan_job);
        call_fail_with(call, &err);
        return;
    }
    plan_job->as_json = !admin_request(call)->text;
    plan_job->profile = admin_request(call)->profile;
    plan_job->job.make = make_plan;
    plan_job->job.busy = &call->server->planning;
    admin_job_start(call, &plan_job->job);
}
