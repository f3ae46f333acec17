/* sluice.v1.Admin: Plan.  Making a plan may take long, so a thread of its own does it; the loop
 * only hears of the end. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "serve/endpoints/admin.h"

struct plan_job {
    struct notice notice; /* first; holds the call, which holds the model */
    struct shape *shapes; /* in the call's arena */
    bool as_json;
    char *text; /* malloc's; NULL on failure */
    struct error err;
};

static void on_planned(struct notice *notice)
{
    struct plan_job *job = CONTAINER_OF(notice, struct plan_job, notice);
    struct call *call = notice->call;

    if (job->text != NULL)
        admin_reply_text(call, job->text);
    else
        call_fail_with(call, &job->err);
    call->server->planning = false;
    call_unref(call);
    free(job->text);
    free(job);
}

static void *make_plan(void *arg)
{
    struct plan_job *job = arg;
    struct call *call = job->notice.call;
    struct plan *plan = NULL;
    size_t size = 0;
    FILE *to;

    if (network_plan(model_network(call->model), job->shapes, &plan, &job->err) == STATUS_OK) {
        to = open_memstream(&job->text, &size);
        if (to != NULL) {
            plan_explain(plan, to, job->as_json);
            if (fclose(to) != 0) {
                free(job->text);
                job->text = NULL;
            }
        }
        if (job->text == NULL)
            (void)error_set(&job->err, STATUS_NO_MEMORY, "out of memory for the answer");
        plan_unref(plan);
    }
    server_notify(call->server, &job->notice);
    return NULL;
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
                         "input '%s' has the open shape %s: name its dimensions in `shapes`",
                         port->name, shape_format(&port->shape, text));
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

static bool start_thread(struct plan_job *job)
{
    pthread_attr_t detached;
    pthread_t thread;
    bool started;

    if (pthread_attr_init(&detached) != 0)
        return false;
    started = pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED) == 0 &&
              pthread_create(&thread, &detached, make_plan, job) == 0;
    (void)pthread_attr_destroy(&detached);
    return started;
}

void run_admin_plan(struct call *call)
{
    struct plan_job *job = calloc(1, sizeof(*job));
    struct error err = {0};

    if (job == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return;
    }
    if (call->server->planning) {
        free(job);
        call_fail(call, STATUS_UNAVAILABLE, "another plan is being made, try again");
        return;
    }
    if (prepare(call, job, &err) != STATUS_OK) {
        free(job);
        call_fail_with(call, &err);
        return;
    }
    job->as_json = !admin_request(call)->text;
    job->notice.run = on_planned;
    job->notice.call = call_ref(call);
    call->server->planning = true;
    if (!start_thread(job)) {
        call->server->planning = false;
        call_unref(call);
        free(job);
        call_fail(call, STATUS_NO_MEMORY, "no thread to make the plan");
    }
}
