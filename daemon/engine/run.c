/* One batch on one lane: the steps of a plan, and of the plans behind its cuts.
 *
 * Memory of a run, from the arena's base:
 *
 *     outputs nobody wants │ plan: what is carried │ plan behind the cut: … │
 *                          └── its peak ───────────┴── may overlap what is dead ──┘
 *
 * The steps allocate nothing and wait for nothing; the plan behind a cut comes from the cache, or
 * is made there and then.
 */
#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/internal.h"

/* State of a run that all its plans share. */
struct running {
    struct run *run;
    bool copies_pending; /* between host and device: the host must wait before it goes on */
    char *arena;         /* base of the lane's arena */
    uint64_t used_bytes; /* asked for so far */
    struct string_heap *strings;
    struct error *err;
};

/* Bases of one plan's slots. */
struct frame {
    struct plan *plan;
    char **bases;
    char **guard_bases; /* the same where a step's guards lie; NULL: there is no room for one */
    struct shape *found;
};

static void *resolve(const struct frame *frame, const struct slot *slot)
{
    return frame->bases[slot->base] + slot->offset;
}

static bool is_cancelled(const struct running *running)
{
    return running->run->cancelled != NULL &&
           atomic_load_explicit(running->run->cancelled, memory_order_relaxed);
}

static enum status run_step(struct running *running, const struct frame *frame, struct step *step,
                            const void **in, void **out)
{
    struct device_lane *lane = running->run->lane;
    struct kernel_run run = {.in = in,
                             .out = out,
                             .lane = step->place == STEP_HOST ? lane->host : lane,
                             .strings = running->strings};

    for (size_t i = 0; i < step->call.inputs; i++)
        in[i] = step->in[i].base == BASE_NONE ? NULL : resolve(frame, &step->in[i]);
    for (size_t i = 0; i < step->call.outputs; i++)
        out[i] = step->out[i].base == BASE_NONE ? NULL : resolve(frame, &step->out[i]);
    if (step->scratch_bytes > 0)
        run.scratch = resolve(frame, &step->scratch);
    if (step->has_bound) {
        run.out_shapes = frame->found + step->found_first;
        for (size_t i = 0; i < step->call.outputs; i++)
            if (step->call.out[i] != NULL)
                run.out_shapes[i] = step->call.out[i]->shape;
    }
    if (step->place == STEP_HOST && running->copies_pending)
        TRY(lane->device->ops->lane_wait(lane));
    running->copies_pending =
        step->place == STEP_COPY || (running->copies_pending && step->place == STEP_DEVICE);
    return step->kernel->enqueue(step->state, &step->call, &run);
}

static enum status wait_for_lane(const struct running *running)
{
    struct device_lane *lane = running->run->lane;

    return lane->device->ops->lane_wait(lane);
}

static enum status step_failed(const struct running *running, const struct step *step,
                               enum status status)
{
    /* Shapes and types were checked when the plan was made: only a value can be wrong now. */
    const char *why = status == STATUS_INVALID
                          ? "a value in its data (an index, a length) is out of range"
                          : status_words(status);

    return error_set(running->err, status, "node '%s' (%s): %s", step->name,
                     step->call.op->onnx.name, why);
}

/* step_ns: room for each step's time, or NULL. */
static enum status run_steps(struct running *running, const struct frame *frame, int64_t *step_ns)
{
    const struct plan *plan = frame->plan;
    const void *in[plan->max_operands + 1];
    void *out[plan->max_operands + 1];

    for (size_t i = 0; i < plan->step_count; i++) {
        struct step *step = &plan->steps[i];
        int64_t start = step_ns != NULL ? clock_now_ns() : 0;
        enum status status;

        if (is_cancelled(running))
            return error_set(running->err, STATUS_CANCELLED, "cancelled before node '%s'",
                             step->name);
        guards_set(step, frame->guard_bases);
        status = run_step(running, frame, step, in, out);
        if (step_ns != NULL && status == STATUS_OK)
            status = wait_for_lane(running); /* the time of what it does, not of asking for it */
        if (running->run->progress != NULL)
            atomic_fetch_add_explicit(running->run->progress, 1, memory_order_relaxed);
        if (!guards_are_whole(step, frame->guard_bases))
            return guards_broken(frame->plan, step, running->err);
        if (status != STATUS_OK)
            return step_failed(running, step, status);
        if (step_ns != NULL)
            step_ns[i] = clock_now_ns() - start;
    }
    return STATUS_OK;
}

/* ---- recordings ---- */

static enum status record_steps(struct running *running, const struct frame *frame)
{
    struct device_lane *lane = running->run->lane;
    struct recordings *recordings = frame->plan->recordings;
    enum status status = recordings_begin(recordings, lane);

    if (status == STATUS_OK)
        status = recordings_end(recordings, lane, run_steps(running, frame, NULL));
    if (status == STATUS_OK)
        return recordings_replay(recordings, lane);
    return status == STATUS_DEVICE_LOST ? status : run_steps(running, frame, NULL);
}

static enum status replay_steps(struct running *running, const struct frame *frame)
{
    if (is_cancelled(running))
        return error_set(running->err, STATUS_CANCELLED, "cancelled");
    if (running->run->progress != NULL)
        atomic_fetch_add_explicit(running->run->progress, 1, memory_order_relaxed);
    return recordings_replay(frame->plan->recordings, running->run->lane);
}

static enum status compute(struct running *running, const struct frame *frame)
{
    struct profile *profile = running->run->profile;
    enum recording_use use;
    enum status status;

    if (profile != NULL)
        return run_steps(running, frame, profile_times(profile, frame->plan));
    use = recordings_use(frame->plan->recordings, running->run->lane, frame->bases);
    if (use == RECORDING_NONE)
        return run_steps(running, frame, NULL);
    status = use == RECORDING_RECORD ? record_steps(running, frame) : replay_steps(running, frame);
    if (status != STATUS_OK && running->err != NULL && running->err->text[0] == '\0')
        (void)error_set(running->err, status, "the recorded plan: %s", status_words(status));
    return status;
}

/* ---- memory ---- */

static enum status want_bytes(struct running *running, uint64_t total)
{
    struct run *run = running->run;

    if (total <= running->used_bytes)
        return STATUS_OK;
    if (run->admit != NULL && run->admit(run->admit_arg, total) != STATUS_OK)
        return error_set(running->err, STATUS_NO_MEMORY,
                         "the run needs %llu bytes of activations, more than are free",
                         (unsigned long long)total);
    if (lane_arena_extend(run->arena, total) != STATUS_OK)
        return error_set(running->err, STATUS_NO_MEMORY,
                         "the run needs %llu bytes of activations, more than are free",
                         (unsigned long long)total);
    running->used_bytes = total;
    return STATUS_OK;
}

/* The lane's host memory for the plan's steps on the host.  What an earlier plan of the run had
 * there is dead, and was waited for. */
static enum status enter_host(struct running *running, const struct plan *plan, char **out_base)
{
    void *base;

    *out_base = NULL;
    if (plan->host_bytes == 0)
        return STATUS_OK;
    if (device_lane_host_memory(running->run->lane, plan->host_bytes, &base) != STATUS_OK)
        return error_set(running->err, STATUS_NO_MEMORY,
                         "steps on the host need %llu bytes of host memory, more than are free "
                         "(HostLimit=)",
                         (unsigned long long)plan->host_bytes);
    *out_base = base;
    return STATUS_OK;
}

/* ---- outputs ---- */

/* Memory for an output that was not bound with room: asked for, or the run's own. */
static enum status place_output(struct running *running, size_t output, const struct shape *shape,
                                uint64_t bytes, struct run_buffer *buffer)
{
    struct run *run = running->run;

    if (run->place == NULL)
        return error_set(running->err, STATUS_INVALID, "output %zu was given no room", output);
    buffer->data = run->place(run->place_arg, output, shape, bytes);
    if (buffer->data == NULL)
        return error_set(running->err, STATUS_NO_MEMORY,
                         "no memory for the %llu bytes of output %zu", (unsigned long long)bytes,
                         output);
    buffer->bytes = bytes;
    return STATUS_OK;
}

static bool is_unwanted(const struct run_buffer *out)
{
    return out->data == NULL && out->bytes == 0;
}

/* Gives every output of the plan an address; what nobody wants stands at *io_base in the arena. */
static enum status bind_outputs(struct running *running, const struct frame *frame,
                                struct run_buffer *out, const size_t *names, uint64_t *io_base)
{
    const struct plan *plan = frame->plan;
    bool guards = guards_apply(running->run->lane->device);

    for (size_t i = 0; i < plan->outputs; i++) {
        char **base = &frame->bases[BASE_FIRST_BOUND + plan->inputs + i];
        uint64_t bytes;

        if (plan->out_deferred[i])
            continue;
        bytes = plan->out_bytes[i];
        if (out[i].data == NULL && out[i].bytes == RUN_PLACE) {
            TRY(place_output(running, names == NULL ? i : names[i], &plan->out_shapes[i], bytes,
                             &out[i]));
        } else if (is_unwanted(&out[i])) {
            *base = running->arena + *io_base;
            *io_base += round_up(bytes) + GUARD_BYTES;
            frame->guard_bases[BASE_FIRST_BOUND + plan->inputs + i] = guards ? *base : NULL;
            continue;
        } else if (out[i].data == NULL || out[i].bytes < bytes) {
            return error_set(running->err, STATUS_INVALID,
                             "output %zu needs %llu bytes, the buffer has %zu", i,
                             (unsigned long long)bytes, out[i].data == NULL ? 0 : out[i].bytes);
        }
        *base = out[i].data;
        if (guards && out[i].bytes >= round_up(bytes) + GUARD_BYTES)
            frame->guard_bases[BASE_FIRST_BOUND + plan->inputs + i] = *base;
    }
    return STATUS_OK;
}

static uint64_t unwanted_bytes(const struct plan *plan, const struct run_buffer *out)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < plan->outputs; i++)
        if (!plan->out_deferred[i] && is_unwanted(&out[i]))
            bytes += round_up(plan->out_bytes[i]) + GUARD_BYTES;
    return bytes;
}

uint64_t plan_run_bytes(const struct plan *plan, const struct run_buffer *out)
{
    return unwanted_bytes(plan, out) + plan->peak_bytes +
           atomic_load_explicit(&plan->overrun_bytes, memory_order_relaxed);
}

static void tell_shapes(const struct frame *frame, struct shape *out_shapes)
{
    const struct plan *plan = frame->plan;

    for (size_t i = 0; out_shapes != NULL && i < plan->outputs; i++)
        if (!plan->out_deferred[i])
            out_shapes[i] =
                plan->out_found[i] < 0 ? plan->out_shapes[i] : frame->found[plan->out_found[i]];
}

/* ---- segments ---- */

/* Buffers of one plan's run: the caller's, or what the plan before the cut carried over. */
struct borders {
    const struct run_buffer *in;
    struct run_buffer *out;
    struct shape *out_shapes;
    const size_t *names; /* per output: its index in the whole model; NULL: the same */
};

static enum status run_plan(struct running *running, struct plan *plan,
                            const struct borders *borders, uint64_t base);

static struct shape carry_shape(const struct frame *frame, const struct carry *carry)
{
    return carry->found < 0 ? carry->shape : frame->found[carry->found];
}

/* Values that the plans of the rest are told apart by, on the host. */
static enum status fetch_values(struct running *running, const struct frame *frame,
                                const struct shape *shapes, const void **values,
                                unsigned char (*room)[VALUE_BYTES_MAX])
{
    const struct plan *plan = frame->plan;
    struct device_lane *lane = running->run->lane;

    for (size_t i = 0; i < plan->rest->graph->inputs; i++) {
        const struct carry *carry = &plan->carries[i];
        size_t bytes = (size_t)shape_count(&shapes[i]) * dtype_bytes(carry->dtype);

        values[i] = NULL;
        if (!plan->rest->wants_value[i])
            continue;
        if (bytes > VALUE_BYTES_MAX)
            return error_set(running->err, STATUS_UNSUPPORTED,
                             "'%s' decides a shape and has %zu bytes, at most %d are allowed",
                             plan->rest->graph->in[i]->name, bytes, VALUE_BYTES_MAX);
        values[i] = resolve(frame, &carry->slot);
        if (lane->device->ops->host_memory || carry->slot.base == BASE_ABSOLUTE)
            continue;
        TRY(lane->device->ops->copy_out(lane, room[i], values[i], bytes));
        values[i] = room[i];
    }
    return lane->device->ops->lane_wait(lane);
}

/* Constants of this plan that the rest takes as inputs, beside each other at `base` in the arena of
 * a device that cannot read them where they are. */
static enum status carry_constants(struct running *running, const struct plan *plan,
                                   struct run_buffer *in, uint64_t base)
{
    struct device_lane *lane = running->run->lane;

    for (size_t i = 0; i < plan->carry_count; i++) {
        char *to = running->arena + base;

        if (plan->carries[i].slot.base != BASE_ABSOLUTE)
            continue;
        TRY(lane->device->ops->copy_in(lane, to, in[i].data, in[i].bytes));
        in[i].data = to;
        base += round_up(in[i].bytes);
    }
    return STATUS_OK;
}

static uint64_t carried_constant_bytes(const struct plan *plan, const struct run_buffer *in)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < plan->carry_count; i++)
        if (plan->carries[i].slot.base == BASE_ABSOLUTE)
            bytes += round_up(in[i].bytes);
    return bytes;
}

static enum status run_rest(struct running *running, const struct frame *frame,
                            const struct borders *borders, uint64_t base)
{
    const struct plan *plan = frame->plan;
    const struct graph *rest = plan->rest->graph;
    bool copies = !running->run->lane->device->ops->host_memory;
    struct shape shapes[rest->inputs + 1], out_shapes[rest->outputs + 1];
    const void *values[rest->inputs + 1];
    unsigned char room[copies ? rest->inputs + 1 : 1][VALUE_BYTES_MAX];
    struct run_buffer in[rest->inputs + 1], out[rest->outputs + 1];
    size_t names[rest->outputs + 1];
    struct borders inner = {.in = in, .out = out, .out_shapes = out_shapes, .names = names};
    struct plan *next;
    enum status status;

    for (size_t i = 0; i < rest->inputs; i++) {
        shapes[i] = carry_shape(frame, &plan->carries[i]);
        in[i].data = resolve(frame, &plan->carries[i].slot);
        in[i].bytes = (size_t)shape_count(&shapes[i]) * dtype_bytes(plan->carries[i].dtype);
    }
    for (size_t i = 0; i < rest->outputs; i++) {
        size_t output = plan->rest_outputs[i];

        out[i] = borders->out[output];
        names[i] = borders->names == NULL ? output : borders->names[output];
    }
    TRY(fetch_values(running, frame, shapes, values, room));
    TRY(program_plan(plan->network, plan->rest, shapes, values, &next, running->err));
    running->run->lane->device->ops->lane_enter(running->run->lane);
    status = STATUS_OK;
    base += plan->carried_bytes;
    if (copies) {
        uint64_t end = base + carried_constant_bytes(plan, in);

        status = want_bytes(running, end);
        if (status == STATUS_OK)
            status = carry_constants(running, plan, in, base);
        base = end;
    }
    if (status == STATUS_OK)
        status = run_plan(running, next, &inner, base);
    plan_unref(next);
    for (size_t i = 0; status == STATUS_OK && i < rest->outputs; i++) {
        borders->out[plan->rest_outputs[i]] = out[i];
        if (borders->out_shapes != NULL)
            borders->out_shapes[plan->rest_outputs[i]] = out_shapes[i];
    }
    return status;
}

static enum status run_plan(struct running *running, struct plan *plan,
                            const struct borders *borders, uint64_t base)
{
    char *bases[BASE_FIRST_BOUND + plan->inputs + plan->outputs];
    struct shape found[plan->found_count + 1];
    char *guard_bases[BASE_FIRST_BOUND + plan->inputs + plan->outputs];
    struct frame frame = {.plan = plan, .bases = bases, .guard_bases = guard_bases, .found = found};
    uint64_t plan_base = base;

    TRY(want_bytes(running, base + plan_run_bytes(plan, borders->out)));
    memset(bases, 0, sizeof(bases));
    memset(guard_bases, 0, sizeof(guard_bases));
    for (size_t i = 0; i < plan->inputs; i++)
        bases[BASE_FIRST_BOUND + i] = borders->in[i].data;
    TRY(bind_outputs(running, &frame, borders->out, borders->names, &plan_base));
    bases[BASE_ARENA] = running->arena + plan_base;
    TRY(enter_host(running, plan, &bases[BASE_HOST]));
    if (guards_apply(running->run->lane->device))
        guard_bases[BASE_ARENA] = bases[BASE_ARENA];
    TRY(compute(running, &frame));
    tell_shapes(&frame, borders->out_shapes);
    if (plan->rest == NULL)
        return STATUS_OK;
    return run_rest(running, &frame, borders, plan_base);
}

static enum status check_inputs(const struct plan *plan, const struct run *run, struct error *err)
{
    if (run->inputs != plan->inputs || run->outputs != plan->outputs)
        return error_set(err, STATUS_INVALID,
                         "the run has %zu inputs and %zu outputs, the plan %zu and %zu",
                         run->inputs, run->outputs, plan->inputs, plan->outputs);
    for (size_t i = 0; i < plan->inputs; i++) {
        const struct value *value = plan->program->graph->in[i];
        uint64_t bytes = (uint64_t)shape_count(&plan->in_shapes[i]) * dtype_bytes(value->dtype);

        if (run->in[i].bytes < bytes)
            return error_set(err, STATUS_INVALID, "input '%s' has %zu bytes, the plan needs %llu",
                             value->name, run->in[i].bytes, (unsigned long long)bytes);
    }
    return STATUS_OK;
}

/* An average over some eight runs.  A run that lost its core for a time slice counts no more than
 * twice what was expected. */
static int64_t next_prediction(int64_t old_us, int64_t spent_us)
{
    int64_t most_us = 2 * old_us + 8;

    if (old_us < 0)
        return spent_us;
    return old_us + ((spent_us < most_us ? spent_us : most_us) - old_us) / 8;
}

static void learn_time(struct plan *plan, int64_t spent_us)
{
    int64_t old = atomic_load_explicit(&plan->predicted_us, memory_order_relaxed);

    atomic_store_explicit(&plan->predicted_us, next_prediction(old, spent_us),
                          memory_order_relaxed);
}

/* Whatever became of the run, nothing may touch its memory afterwards. */
static enum status finish_lane(const struct run *run, enum status status, struct error *err)
{
    enum status waited = run->lane->device->ops->lane_wait(run->lane);

    if (waited == STATUS_OK || (status != STATUS_OK && waited != STATUS_DEVICE_LOST))
        return status;
    return error_set(err, waited, "the device failed");
}

enum status plan_run(struct plan *plan, struct run *run, struct error *err)
{
    struct running running = {.run = run, .strings = run->strings, .err = err};
    const struct borders borders = {.in = run->in, .out = run->out, .out_shapes = run->out_shapes};
    const struct device_ops *ops = run->lane->device->ops;
    struct string_heap *own_strings = NULL;
    struct arena_use use = {.requested = plan->requested_bytes, .user = plan->network->account};
    int64_t start_ns, spent_ns;
    void *base;
    enum status status;

    TRY(check_inputs(plan, run, err));
    if (plan->makes_strings && run->strings == NULL) {
        running.strings = own_strings = string_heap_create();
        if (own_strings == NULL)
            return error_set(err, STATUS_NO_MEMORY, "no memory for strings");
    }
    running.used_bytes = plan_run_bytes(plan, run->out);
    use.bytes = running.used_bytes;
    status = lane_arena_begin_for(run->arena, &use, &base);
    if (status != STATUS_OK) {
        string_heap_destroy(own_strings);
        return error_set(err, status, "the run needs %llu bytes of activations, more than are free",
                         (unsigned long long)running.used_bytes);
    }
    running.arena = base;
    ops->lane_enter(run->lane);
    if (run->profile != NULL)
        profile_enter(run->profile, run, plan);
    start_ns = clock_now_ns();
    status = run_plan(&running, plan, &borders, 0);
    if (status == STATUS_OK && run->finish != NULL)
        status = run->finish(run->finish_arg);
    status = finish_lane(run, status, err);
    spent_ns = clock_now_ns() - start_ns;
    lane_arena_end(run->arena);
    string_heap_destroy(own_strings);
    if (run->profile != NULL)
        profile_leave(run->profile, spent_ns, status == STATUS_OK);
    else if (status == STATUS_OK)
        learn_time(plan, spent_ns / 1000);
    return status;
}

void plan_read(const struct plan *plan, struct plan_facts *out_facts)
{
    *out_facts = (struct plan_facts){
        .peak_bytes = plan->peak_bytes,
        .requested_bytes = plan->requested_bytes,
        .lower_bound_bytes = plan->lower_bound_bytes,
        .host_bytes = plan->host_bytes,
        .order_saves_bytes = plan->order_saves_bytes,
        .peak_step = plan->peak_step,
        .steps = (uint32_t)plan->step_count,
        .exact = plan->rest == NULL,
        .batch_exact = plan->batch_exact,
        .predicted_us = atomic_load_explicit(&plan->predicted_us, memory_order_relaxed)};
}

const struct shape *plan_output_shapes(const struct plan *plan, const bool **out_bound)
{
    if (out_bound != NULL)
        *out_bound = plan->out_bound;
    return plan->out_shapes;
}

static bool touches(const struct step *step, uint32_t base)
{
    if (step->scratch_bytes > 0 && step->scratch.base == base)
        return true;
    for (size_t i = 0; i < step->call.outputs; i++)
        if (step->out[i].base == base)
            return true;
    return false;
}

static bool is_dense(const struct operand *operand)
{
    return operand != NULL && operand->outer_stride == 0;
}

size_t plan_passed_input(const struct plan *plan, size_t output)
{
    uint32_t base = (uint32_t)(BASE_FIRST_BOUND + plan->inputs + output);
    const struct step *maker = NULL;
    const struct slot *in;

    if (plan->rest != NULL || plan->out_bound[output])
        return SIZE_MAX;
    for (size_t i = 0; i < plan->step_count; i++) {
        if (!touches(&plan->steps[i], base))
            continue;
        if (maker != NULL)
            return SIZE_MAX;
        maker = &plan->steps[i];
    }
    if (maker == NULL || (maker->kernel->flags & KERNEL_PASSES) == 0 || maker->scratch_bytes > 0 ||
        maker->out[0].base != base || maker->out[0].offset != 0 || !is_dense(maker->call.in[0]) ||
        !is_dense(maker->call.out[0]))
        return SIZE_MAX;
    in = &maker->in[0];
    if (in->offset != 0 || in->base < BASE_FIRST_BOUND ||
        in->base >= BASE_FIRST_BOUND + plan->inputs)
        return SIZE_MAX;
    return in->base - BASE_FIRST_BOUND;
}
