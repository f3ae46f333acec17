#include "serve/control.h"

#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

struct control {
    struct notice notice;
    control_answer_fn answer;
    const char *model; /* in the call's arena */
    struct error err;
    uint64_t freed_bytes;
};

static void on_notice(struct notice *notice)
{
    struct control *control = CONTAINER_OF(notice, struct control, notice);
    struct call *call = notice->call;

    if (control->err.status != STATUS_OK)
        call_fail_with(call, &control->err);
    else
        control->answer(call, control->model, control->freed_bytes);
    call_unref(call);
    free(control);
}

/* On the loader thread. */
static void on_done(void *arg, enum status status, const struct error *err, uint64_t freed_bytes)
{
    struct control *control = arg;

    if (status != STATUS_OK && err != NULL)
        control->err = *err;
    control->err.status = status;
    control->freed_bytes = freed_bytes;
    server_notify(control->notice.call->server, &control->notice);
}

static struct control *control_create(struct call *call, const char *model,
                                      control_answer_fn answer)
{
    struct control *control = calloc(1, sizeof(*control));
    char *copy = arena_copy_string(&call->request.arena, model, strlen(model));

    if (control == NULL || copy == NULL) {
        free(control);
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return NULL;
    }
    control->notice.run = on_notice;
    control->notice.call = call_ref(call);
    control->answer = answer;
    control->model = copy;
    return control;
}

void control_load(struct call *call, const char *model, const char *config_json,
                  control_answer_fn answer)
{
    struct control *control = control_create(call, model, answer);

    if (control != NULL)
        repository_load(call->server->repository, model, config_json, on_done, control);
}

void control_unload(struct call *call, const char *model, control_answer_fn answer)
{
    struct control *control = control_create(call, model, answer);

    if (control != NULL)
        repository_unload(call->server->repository, model, on_done, control);
}
