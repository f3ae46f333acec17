/* An admitted batch: gather rows, run the plan, hand every request its slice.
 *
 * A batch of one binds the request's own bytes, and writes outputs where the client wants them if
 * that may be (admit.c).  Padding repeats the first row: it costs the same
 * as zeros and cannot be an index out of range where the data is none.  When a run fails because of
 * what one request sent (an index out of range), the others must not pay for it: they run again one
 * by one.
 */
#include <string.h>

#include "base/clock.h"
#include "batch/internal.h"

enum { IO_ALIGNMENT = 64 };

static uint64_t align_io(uint64_t bytes)
{
    return (bytes + IO_ALIGNMENT - 1) & ~(uint64_t)(IO_ALIGNMENT - 1);
}

void batch_fail(struct batch *batch, const struct error *err)
{
    struct request *request;

    LIST_FOR_EACH (request, &batch->requests, struct request, link) {
        request->status = err->status;
        request->error = *err;
    }
}

/* ---- in ---- */

static void copy_in(struct lane *lane, void *to, const void *from, size_t bytes,
                    enum request_memory memory)
{
    const struct device_ops *ops = lane->batcher->device->ops;

    if (bytes == 0)
        return;
    /* A lost device shows in plan_run. */
    if (ops->host_memory)
        memcpy(to, from, bytes);
    else if (memory == MEMORY_DEVICE)
        (void)ops->copy(lane->device_lane, to, from, bytes);
    else
        (void)ops->copy_in(lane->device_lane, to, from, bytes);
}

/* Writes input `index` of every request behind one another, then rows of padding. */
static void gather_input(struct lane *lane, struct batch *batch, size_t index, char *to)
{
    size_t row_bytes = batch->plan_rows > 0 ? batch->in[index].bytes / (size_t)batch->plan_rows : 0;
    const struct request_input *first = NULL;
    struct request *request;
    char *at = to;

    LIST_FOR_EACH (request, &batch->requests, struct request, link) {
        const struct request_input *in = &request->in[index];

        copy_in(lane, at, in->data, in->bytes, in->memory);
        at += in->bytes;
        if (first == NULL)
            first = in;
    }
    while (row_bytes > 0 && at + row_bytes <= to + batch->in[index].bytes) {
        copy_in(lane, at, first->data, row_bytes, first->memory);
        at += row_bytes;
    }
    batch->in[index].data = to;
}

static enum status bind_inputs(struct lane *lane, struct batch *batch, char **out_rest)
{
    const struct request *first = LIST_FIRST(&batch->requests, struct request, link);
    const struct arena_use use = {.bytes = batch->io_bytes,
                                  .requested = batch->io_bytes,
                                  .user = network_account(batch->queue->network)};
    void *base = NULL;
    char *at;

    if (batch->io_bytes > 0)
        TRY(lane_arena_begin_for(lane->io, &use, &base));
    batch->io_base = at = base;
    for (size_t i = 0; i < batch->queue->inputs; i++) {
        if (batch->binds[i]) {
            /* The run only reads it. */
            batch->in[i].data = (void *)(uintptr_t)first->in[i].data;
            continue;
        }
        gather_input(lane, batch, i, at);
        at += align_io(batch->in[i].bytes);
    }
    *out_rest = at;
    return STATUS_OK;
}

static void bind_outputs(struct lane *lane, struct batch *batch, char *device_outputs)
{
    const struct request *first = LIST_FIRST(&batch->requests, struct request, link);
    char *host = response_data(batch->response);
    bool is_host = lane->batcher->device->ops->host_memory;

    for (size_t i = 0; i < batch->queue->outputs; i++) {
        if (batch->out_offset[i] == OUTPUT_PASSED)
            batch->out[i].data = batch->out_base[i] =
                batch->in[plan_passed_input(batch->plan, i)].data;
        if (batch->out_offset[i] == OUTPUT_ROOM)
            batch->out[i].data = batch->out_base[i] = first->out[i].room.data;
        if (batch->out_offset[i] >= OUTPUT_SPECIAL)
            continue;
        batch->out_base[i] = host + batch->out_offset[i];
        batch->out[i].data = (is_host ? host : device_outputs) + batch->out_offset[i];
    }
}

/* More io memory of the device behind what the batch has; its admission goes by what the plan told,
 * so this is asked for now.  NULL: there is none. */
static void *extend_io(struct lane *lane, struct batch *batch, size_t bytes)
{
    uint64_t page = lane->batcher->device->memory->page_bytes;
    uint64_t at = align_io(batch->io_bytes), end = at + (bytes > 0 ? bytes : 1);
    uint64_t more = whole_pages(end, page) - whole_pages(batch->io_bytes, page);
    void *base = batch->io_base;
    enum status status;

    if (more > 0 && batch_reserve_more(lane, batch, more) != STATUS_OK)
        return NULL;
    status = batch->io_bytes == 0 ? lane_arena_begin(lane->io, end, &base)
                                  : lane_arena_extend(lane->io, end);
    if (status != STATUS_OK)
        return NULL;
    batch->io_base = base;
    batch->io_bytes = end;
    return batch->io_base + at;
}

static void *place_output(void *arg, size_t output, const struct shape *shape, size_t bytes)
{
    struct lane *lane = arg;
    struct batch *batch = &lane->batch;

    (void)shape;
    batch->out_base[output] = response_extend(batch->response, bytes);
    if (batch->out_base[output] == NULL)
        batch_lacks_host(batch, lane->batcher->host_pool, bytes, response_charge(bytes));
    if (lane->batcher->device->ops->host_memory || batch->out_base[output] == NULL)
        return batch->out_base[output];
    return extend_io(lane, batch, bytes);
}

/* ---- run ---- */

static bool is_wanted_still(const struct request *request, int64_t now_us)
{
    return !atomic_load_explicit(&request->cancelled, memory_order_relaxed) &&
           request->deadline_us > now_us;
}

static bool anyone_waits(const struct batch *batch)
{
    int64_t now_us = clock_now_us();
    struct request *request;

    LIST_FOR_EACH (request, &batch->requests, struct request, link)
        if (is_wanted_still(request, now_us))
            return true;
    return false;
}

/* A later segment: admission again, and a look at who still waits. */
static enum status admit_segment(void *arg, uint64_t total_bytes)
{
    struct lane *lane = arg;

    if (!anyone_waits(&lane->batch))
        return STATUS_CANCELLED;
    return batch_admit_segment(lane, &lane->batch, total_bytes);
}

static bool makes_text(const struct model_queue *queue)
{
    for (size_t i = 0; i < queue->outputs; i++)
        if (queue->out_port[i].dtype == DTYPE_STRING)
            return true;
    return false;
}

/* Whether some request wants the output on the host. */
static bool is_fetched(const struct batch *batch, size_t output)
{
    const struct request *request;

    if (batch->out_offset[output] >= OUTPUT_SPECIAL && batch->out_offset[output] != OUTPUT_PLACED)
        return false;
    LIST_FOR_EACH (request, &batch->requests, struct request, link)
        if (request->out[output].wanted && request->out[output].room.memory != MEMORY_DEVICE)
            return true;
    return false;
}

/* Outputs on their way to the response; the run waits for them. */
static enum status fetch_outputs(void *arg)
{
    struct lane *lane = arg;
    struct batch *batch = &lane->batch;
    const struct device_ops *ops = lane->batcher->device->ops;

    if (ops->host_memory)
        return STATUS_OK;
    for (size_t i = 0; i < batch->queue->outputs; i++)
        if (is_fetched(batch, i))
            TRY(ops->copy_out(lane->device_lane, batch->out_base[i], batch->out[i].data,
                              batch->out[i].bytes));
    return STATUS_OK;
}

static enum status run_plan(struct lane *lane, struct batch *batch, struct error *err)
{
    struct request *first = LIST_FIRST(&batch->requests, struct request, link);
    struct run run = {
        .lane = lane->device_lane,
        .arena = lane->arena,
        .inputs = batch->queue->inputs,
        .in = batch->in,
        .outputs = batch->queue->outputs,
        .out = batch->out,
        .out_shapes = batch->true_shapes,
        .cancelled = batch->count == 1 ? &first->cancelled : NULL,
        .admit = admit_segment,
        .admit_arg = lane,
        .place = place_output,
        .place_arg = lane,
        .finish = fetch_outputs,
        .finish_arg = lane,
        .progress = &lane->batcher->progress,
        .profile = batch->count == 1 ? first->profile : NULL,
    };

    if (makes_text(batch->queue) && (run.strings = response_strings(batch->response)) == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no host memory for text outputs");
    memcpy(batch->true_shapes, batch->out_shapes, run.outputs * sizeof(*batch->true_shapes));
    return plan_run(batch->plan, &run, err);
}

/* Cached bytes of other lanes may stand in the way of a reservation that is good: give them back
 * once. */
static enum status run_or_trim(struct lane *lane, struct batch *batch, struct error *err)
{
    enum status status = run_plan(lane, batch, err);

    if (status != STATUS_NO_MEMORY || batch->needed_bytes > batch->available_bytes)
        return status; /* what the books refuse, a trim does not bring */
    (void)batcher_recycle(lane->batcher);
    (void)host_pool_trim(lane->batcher->host_pool, 0);
    return run_plan(lane, batch, err);
}

static enum status bind_or_trim(struct lane *lane, struct batch *batch, char **out_rest)
{
    enum status status = bind_inputs(lane, batch, out_rest);

    if (status != STATUS_NO_MEMORY)
        return status;
    (void)batcher_recycle(lane->batcher);
    return bind_inputs(lane, batch, out_rest);
}

/* ---- out ---- */

/* Whether every output has one row for each row of the batch, so that it may be cut. */
static enum status check_rows(const struct batch *batch, struct error *err)
{
    const struct model_queue *queue = batch->queue;

    if (batch->is_whole)
        return STATUS_OK;
    for (size_t i = 0; i < queue->outputs; i++) {
        const struct shape *shape = &batch->true_shapes[i];
        char text[SHAPE_TEXT_BYTES];

        if (batch->out_offset[i] == OUTPUT_UNWANTED ||
            (shape->rank > 0 && shape->dims[0] == batch->plan_rows))
            continue;
        return error_set(err, STATUS_INTERNAL,
                         "model '%s': output '%s' came as %s from a batch of %lld rows, its first "
                         "dimension is not the batch",
                         queue->name, queue->out_port[i].name, shape_format(shape, text),
                         (long long)batch->plan_rows);
    }
    return STATUS_OK;
}

/* Where the request's rows of an output begin. */
static size_t slice_offset(const struct request_output *out, const struct request *request,
                           int64_t first_row)
{
    return first_row > 0 ? out->bytes / (size_t)request->rows * (size_t)first_row : 0;
}

static void slice(struct batch *batch, struct request *request, int64_t first_row)
{
    const struct model_queue *queue = batch->queue;

    for (size_t i = 0; i < queue->outputs; i++) {
        struct request_output *out = &request->out[i];
        struct tensor tensor = {.dtype = queue->out_port[i].dtype, .shape = batch->true_shapes[i]};

        if (!batch->is_whole && tensor.shape.rank > 0)
            tensor.shape.dims[0] = request->rows;
        out->shape = tensor.shape;
        out->data = NULL;
        out->bytes = 0;
        if (!out->wanted)
            continue;
        out->bytes = tensor_bytes(&tensor);
        if (out->room.memory != MEMORY_DEVICE || batch->out_offset[i] == OUTPUT_ROOM)
            out->data = batch->out_base[i] + slice_offset(out, request, first_row);
    }
}

/* Brings slices to where the client wants them, unless they are there or do not fit. */
static enum status deliver(struct lane *lane, struct batch *batch, struct request *request,
                           int64_t first_row, bool *out_waits)
{
    const struct device_ops *ops = lane->batcher->device->ops;

    for (size_t i = 0; i < batch->queue->outputs; i++) {
        struct request_output *out = &request->out[i];
        const char *from = batch->out[i].data;

        if (!out->wanted || out->room.data == NULL || out->data == out->room.data ||
            out->bytes > out->room.bytes)
            continue;
        if (out->bytes > 0 && out->room.memory == MEMORY_DEVICE) {
            TRY(ops->copy(lane->device_lane, out->room.data,
                          from + slice_offset(out, request, first_row), out->bytes));
            *out_waits = true;
        } else if (out->bytes > 0) {
            memcpy(out->room.data, out->data, out->bytes);
        }
        out->data = out->room.data;
    }
    return STATUS_OK;
}

static enum status slice_all(struct lane *lane, struct batch *batch)
{
    struct request *request;
    bool waits = false;
    int64_t row = 0;

    LIST_FOR_EACH (request, &batch->requests, struct request, link) {
        slice(batch, request, row);
        TRY(deliver(lane, batch, request, row, &waits));
        row += request->rows;
    }
    if (waits)
        TRY(lane->batcher->device->ops->lane_wait(lane->device_lane));
    LIST_FOR_EACH (request, &batch->requests, struct request, link) {
        request->response = response_ref(batch->response);
        request->status = STATUS_OK;
        request->batch_rows = batch->rows;
    }
    return STATUS_OK;
}

/* ---- the whole ---- */

static void say_lack(const struct batch *batch, struct error *err)
{
    struct memory_lack lack = batch_lack(batch);

    memory_error(err, batch->queue, batch->rows, &lack);
}

/* It ended for want of memory: a matter of levels only where others have what it lacks. */
static void count_lack(struct batcher *batcher, const struct batch *batch)
{
    if (batch->lacks_host)
        return;
    atomic_fetch_add(batch->fits_never ? &batcher->never : &batcher->refused, batch->count);
    if (batch->fits_never)
        ledger_count_oom(batcher->ledger, network_account(batch->queue->network),
                         batch->needed_bytes, batch->available_bytes,
                         "no run that needs as much ever fits");
}

static enum status run_once(struct lane *lane, struct batch *batch, struct error *err)
{
    enum status status;
    char *rest = NULL;

    batch->started_ns = clock_now_ns();
    status = bind_or_trim(lane, batch, &rest);
    batch->gathered_ns = batch->computed_ns = clock_now_ns();
    if (status == STATUS_OK) {
        bind_outputs(lane, batch, rest);
        status = run_or_trim(lane, batch, err);
        batch->computed_ns = clock_now_ns();
    } else {
        say_lack(batch, err);
    }
    if (status == STATUS_OK)
        status = check_rows(batch, err);
    if (status == STATUS_OK)
        status = slice_all(lane, batch);
    if (status != STATUS_OK && !lane->batcher->device->ops->host_memory)
        (void)lane->device_lane->device->ops->lane_wait(lane->device_lane); /* copies of inputs */
    device_lane_give_host_memory(lane->device_lane);
    if (batch->io_bytes > 0)
        lane_arena_end(lane->io);
    batch->sliced_ns = clock_now_ns();
    return status;
}

static void stamp(struct batch *batch)
{
    struct request *request;

    LIST_FOR_EACH (request, &batch->requests, struct request, link) {
        request->started_us = batch->started_ns / 1000;
        request->computed_us = batch->computed_ns / 1000;
    }
}

/* Says of a failure what the engine could not know. */
static void complete_error(struct batch *batch, enum status status, struct error *err)
{
    if (err->text[0] == '\0')
        (void)error_set(err, status, "%s", status_words(status));
    err->status = status;
    if (status == STATUS_NO_MEMORY && batch->needed_bytes > batch->available_bytes)
        say_lack(batch, err);
}

/* They go back to their queue, and start again only with what the run found to be missing. */
static void mark_for_restart(struct batch *batch)
{
    struct request *request;

    LIST_FOR_EACH (request, &batch->requests, struct request, link) {
        request->wait.least_bytes = batch->restart_bytes;
        request->wait.restarts++;
    }
}

static void lose_device(struct batcher *batcher)
{
    if (!atomic_exchange(&batcher->device_lost, true) && batcher->on_wait != NULL)
        batcher->on_wait(batcher->on_wait_arg);
}

static void run_batch(struct lane *lane, struct batch *batch, enum status *out_status)
{
    struct error err = {.status = STATUS_OK};

    *out_status = run_once(lane, batch, &err);
    if (*out_status == STATUS_NO_MEMORY && batch->restart_bytes > 0) {
        mark_for_restart(batch);
        batch_release(lane, batch);
        return;
    }
    batch->restart_bytes = 0;
    if (*out_status == STATUS_NO_MEMORY)
        count_lack(lane->batcher, batch);
    if (*out_status == STATUS_OK) {
        batch_learn_growth(batch);
    } else {
        complete_error(batch, *out_status, &err);
        batch_fail(batch, &err);
        if (*out_status == STATUS_DEVICE_LOST)
            lose_device(lane->batcher);
    }
    stamp(batch);
    stats_batch(&batch->queue->stats, batch, *out_status == STATUS_OK);
    batch_release(lane, batch);
}

/* Runs one request of a batch that failed as a whole. */
static void run_alone(struct lane *lane, struct batch *batch, struct request *request)
{
    struct error err = {.status = STATUS_OK};
    enum status status;

    list_init(&batch->requests);
    list_append(&batch->requests, &request->link);
    batch->count = 1;
    batch->rows = request->rows;
    batch->may_restart = false;
    if (batch_admit(lane, batch, &err) == ADMIT_RUN)
        run_batch(lane, batch, &status);
    else
        batch_fail(batch, &err);
    list_remove(&request->link);
}

static void run_each_alone(struct lane *lane, struct batch *batch)
{
    struct list all, done;
    struct request *request;

    list_init(&all);
    list_init(&done);
    while ((request = LIST_FIRST(&batch->requests, struct request, link)) != NULL) {
        list_remove(&request->link);
        list_append(&all, &request->link);
    }
    while ((request = LIST_FIRST(&all, struct request, link)) != NULL) {
        list_remove(&request->link);
        run_alone(lane, batch, request);
        list_append(&done, &request->link);
    }
    while ((request = LIST_FIRST(&done, struct request, link)) != NULL) {
        list_remove(&request->link);
        list_append(&batch->requests, &request->link);
    }
}

void batch_execute(struct lane *lane, struct batch *batch)
{
    enum status status;

    run_batch(lane, batch, &status);
    batch->ran_whole = status == STATUS_OK;
    if (status == STATUS_INVALID && batch->count > 1)
        run_each_alone(lane, batch);
}
