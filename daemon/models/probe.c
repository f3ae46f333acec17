#include "models/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* A probe may wait and run so long.  The loader waits with it, and is worth it: a model that is not
 * proven is served one by one for as long as it is loaded.  Nothing of what it waits for is the
 * loader's to give: batches that run (after 50 ms none starts before it), models in use (which are
 * pressed to leave), retired ones (the keeper's), room held for another program (10 s, unless told
 * otherwise).  Where only the load's own weights are in the way it does not wait at all. */
#define PROBE_PATIENCE_US INT64_C(20000000)
/* What is only measured goes behind everything else. */
enum { NORMAL_PRIORITY = 1, LAST_PRIORITY = 2 };
/* How often it is asked whether the load goes on. */
#define PROBE_LOOK_US INT64_C(20000)

enum status probe_init(struct probe *probe, struct batcher *batcher, struct network *network,
                       const char *name, bool has_rows, struct error *err)
{
    struct queue_config config = {.name = name,
                                  .network = network,
                                  .max_batch_size = has_rows ? INT32_MAX : 0,
                                  .priority_levels = LAST_PRIORITY,
                                  .default_priority = NORMAL_PRIORITY};
    enum status status;

    *probe =
        (struct probe){.batcher = batcher, .network = network, .name = name, .has_rows = has_rows};
    if (mailbox_init(&probe->answered) != STATUS_OK)
        return error_set(err, STATUS_IO, "model '%s': no eventfd for its probe", name);
    status = queue_create(batcher, &config, &probe->queue, err);
    if (status != STATUS_OK)
        mailbox_deinit(&probe->answered);
    return status;
}

struct drain {
    struct mailbox *box;
    struct mail mail;
};

static void on_drained(void *arg)
{
    struct drain *drain = arg;

    mailbox_put(drain->box, &drain->mail);
}

static void await_mail(struct mailbox *box)
{
    while (mailbox_take_all(box) == NULL)
        mailbox_wait(box, CLOCK_NEVER);
}

bool probe_is_given_up(const struct probe *probe)
{
    return probe->give_up != NULL && atomic_load(probe->give_up);
}

/* A probe that runs for too long, or whose load is given up, is cancelled: the run ends at its next
 * step. */
static void await_answer(struct probe *probe, struct request *request)
{
    int64_t until_us = request->deadline_us;

    while (mailbox_take_all(&probe->answered) == NULL) {
        int64_t now_us = clock_now_us();
        int64_t look_us = until_us == CLOCK_NEVER ? CLOCK_NEVER : now_us + PROBE_LOOK_US;

        if (now_us >= until_us || (until_us != CLOCK_NEVER && probe_is_given_up(probe))) {
            atomic_store(&request->cancelled, true);
            batcher_wake(probe->batcher);
            until_us = look_us = CLOCK_NEVER;
        }
        mailbox_wait(&probe->answered, look_us);
    }
}

void probe_deinit(struct probe *probe)
{
    struct drain drain = {.box = &probe->answered};

    queue_close(probe->queue, on_drained, &drain);
    await_mail(&probe->answered);
    queue_destroy(probe->queue);
    mailbox_deinit(&probe->answered);
}

static void on_done(struct request *request)
{
    struct probe_answer *answer = CONTAINER_OF(request, struct probe_answer, request);

    mailbox_put(&answer->probe->answered, &answer->mail);
}

static enum status want_all_outputs(struct probe *probe, struct request *request)
{
    const struct network_port *ports;

    request->outputs = network_outputs(probe->network, &ports);
    request->out = arena_take_array(&request->arena, request->outputs, sizeof(*request->out));
    if (request->out == NULL)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < request->outputs; i++)
        request->out[i].wanted = true;
    return STATUS_OK;
}

enum status probe_run(struct probe *probe, const struct probe_data *data,
                      struct probe_answer *answer, struct error *err)
{
    struct request *request = &answer->request;
    enum status status;

    *answer = (struct probe_answer){.probe = probe};
    arena_init(&request->arena);
    request->inputs = data->inputs;
    request->in = data->in;
    request->rows = probe->has_rows && data->inputs > 0 ? data->in[0].shape.dims[0] : 1;
    request->arrived_us = clock_now_us();
    request->deadline_us = request->arrived_us + PROBE_PATIENCE_US;
    request->no_inline = true;
    request->profile = probe->profile;
    if (probe->profile != NULL)
        request->priority = LAST_PRIORITY;
    request->done = on_done;
    status = want_all_outputs(probe, request);
    if (status != STATUS_OK) {
        (void)error_set(err, status, "model '%s': no host memory to run it with", probe->name);
    } else {
        batcher_submit(probe->batcher, probe->queue, request);
        await_answer(probe, request);
        status = request->status;
        if (err != NULL)
            *err = request->error;
    }
    if (status != STATUS_OK)
        probe_answer_deinit(answer);
    return status;
}

void probe_answer_deinit(struct probe_answer *answer)
{
    request_release(&answer->request);
    arena_deinit(&answer->request.arena);
}
