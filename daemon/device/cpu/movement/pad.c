/* Pad.  The constant mode is boxes: the inside copied, and for each axis one box before and one
 * behind filled with the value.  The other modes look up, axis by axis, where an index comes from.
 */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "device/cpu/team.h"
#include "ops/movement.h"

static enum status amounts_of(const struct kernel_call *call, int64_t before[SHAPE_MAX_RANK],
                              int64_t after[SHAPE_MAX_RANK], struct error *err)
{
    struct tensor tensors[4];
    const struct tensor *in[4] = {NULL};

    call_tensors(call, tensors, in);
    return pad_amounts(in, before, after, err);
}

static enum pad_mode mode_of(const struct kernel_call *call)
{
    return (enum pad_mode)((const struct pad_attrs *)call->attrs)->mode;
}

/* ---- constant ---- */

struct fill_box {
    struct move move;
    int64_t to_bytes;
};

struct boxes_state {
    struct move inside;
    int64_t from_bytes, to_bytes;
    bool zero; /* no value was given */
    size_t fills;
    struct fill_box fill[2 * SHAPE_MAX_RANK];
};

/* All of the padding may be written only when its value is zero, as that of the blocks must be. */
static bool value_is_zero(const struct kernel_call *call)
{
    static const char zeros[16];

    if (call->inputs < 3 || call->in[2] == NULL)
        return true;
    return call->in[2]->constant != NULL &&
           memcmp(call->in[2]->constant, zeros, dtype_bytes(call->in[2]->dtype)) == 0;
}

static const char *refuse_constant(const struct kernel_call *call)
{
    const struct operand *in = call->in[0];
    int64_t before[SHAPE_MAX_RANK], after[SHAPE_MAX_RANK];
    int64_t block = call->device->channel_block;
    const char *unknown = refuse_unknown_values(call, 1 << 1 | 1 << 3);

    if (unknown != NULL)
        return unknown;
    if (mode_of(call) != PAD_CONSTANT)
        return "pads by a constant only";
    if (in->layout != LAYOUT_BLOCKED)
        return NULL;
    if (amounts_of(call, before, after, NULL) != STATUS_OK)
        return "its pads are not valid";
    if (before[1] != 0 || after[1] != 0)
        return "channels are padded";
    if (in->shape.dims[1] % block != 0 && !value_is_zero(call))
        return "the padding of a block must stay zero";
    return NULL;
}

static void add_fill(struct boxes_state *state, const struct move_box *box, int64_t start)
{
    struct fill_box *fill = &state->fill[state->fills++];

    move_plan(&fill->move, box);
    fill->to_bytes = start * (int64_t)box->bytes;
}

/* The slab of axis `axis` from `at` on; axes before it are narrowed to the inside. */
static void fill_slab(struct boxes_state *state, const struct geometry *out,
                      const struct move_box *inside, const int64_t *starts, size_t axis, int64_t at,
                      int64_t length)
{
    struct move_box box = *inside;
    int64_t start = at * out->strides[axis];

    if (length <= 0)
        return;
    for (size_t i = 0; i < out->rank; i++) {
        box.from[i] = 0;
        if (i < axis)
            start += starts[i] * out->strides[i];
        else
            box.dims[i] = i == axis ? length : out->dims[i];
    }
    add_fill(state, &box, start);
}

static enum status prepare_constant(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    int64_t before[SHAPE_MAX_RANK + 1] = {0}, after[SHAPE_MAX_RANK + 1] = {0};
    struct geometry in, out;
    struct move_box box = {.bytes = dtype_bytes(call->in[0]->dtype)};
    struct boxes_state *state;
    int64_t from = 0, to = 0, starts[SHAPE_MAX_RANK + 1];

    TRY(amounts_of(call, before, after, err));
    geometry_of(call->in[0], call->device, &in);
    geometry_of(call->out[0], call->device, &out);
    state = calloc(1, sizeof(*state));
    if (state == NULL)
        return STATUS_NO_MEMORY;
    box.rank = out.rank;
    for (size_t i = 0; i < out.rank; i++) {
        int64_t cut = before[i] < 0 ? -before[i] : 0, cut_after = after[i] < 0 ? -after[i] : 0;

        starts[i] = before[i] > 0 ? before[i] : 0;
        box.dims[i] = in.dims[i] - cut - cut_after;
        box.from[i] = in.strides[i];
        box.to[i] = out.strides[i];
        from += cut * in.strides[i];
        to += starts[i] * out.strides[i];
    }
    for (size_t i = 0; i < out.rank; i++) {
        int64_t behind = starts[i] + box.dims[i];

        fill_slab(state, &out, &box, starts, i, 0, starts[i]);
        fill_slab(state, &out, &box, starts, i, behind, out.dims[i] - behind);
    }
    move_plan(&state->inside, &box);
    state->from_bytes = from * (int64_t)box.bytes;
    state->to_bytes = to * (int64_t)box.bytes;
    state->zero = call->inputs < 3 || call->in[2] == NULL;
    prepare->state = state;
    prepare->constants_used = 1 << 0 | 1 << 2;
    return STATUS_OK;
}

static enum status run_constant(const void *opaque, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    static const char zeros[16];
    const struct boxes_state *state = opaque;
    const void *value = state->zero ? zeros : run->in[2];

    for (size_t i = 0; i < state->fills; i++)
        move_run(&state->fill[i].move, value, (char *)run->out[0] + state->fill[i].to_bytes,
                 call->threads);
    if (state->inside.total_bytes > 0)
        move_run(&state->inside, (const char *)run->in[0] + state->from_bytes,
                 (char *)run->out[0] + state->to_bytes, call->threads);
    return STATUS_OK;
}

const struct kernel kernel_pad_boxes = {
    .name = "cpu:boxes",
    .flags = KERNEL_STRIDED,
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_constant,
    .prepare = prepare_constant,
    .enqueue = run_constant,
    .release = free,
};

/* ---- reflect, edge, wrap ---- */

struct lookup_state {
    struct shape out;
    int64_t strides[SHAPE_MAX_RANK];       /* of the source, elements */
    const int64_t *source[SHAPE_MAX_RANK]; /* source index of each index of the axis */
    size_t bytes;
    int64_t rows;
    int64_t inside_from, inside_to; /* of the last axis: a plain run */
    int64_t table[];
};

/* Where index `i` of the kept part, counted from its start, comes from. */
static int64_t source_index(enum pad_mode mode, int64_t i, int64_t kept)
{
    int64_t period = 2 * (kept - 1);

    if (mode == PAD_EDGE)
        return i < 0 ? 0 : i >= kept ? kept - 1 : i;
    if (mode == PAD_WRAP)
        return (i % kept + kept) % kept;
    if (kept == 1)
        return 0;
    i = (i % period + period) % period;
    return i < kept ? i : period - i;
}

static const char *refuse_lookup(const struct kernel_call *call)
{
    if (mode_of(call) == PAD_CONSTANT)
        return "repeats the input only";
    return refuse_unknown_values(call, 1 << 1 | 1 << 3);
}

static enum status prepare_lookup(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    const struct shape *in = &call->in[0]->shape, *out = &call->out[0]->shape;
    int64_t before[SHAPE_MAX_RANK], after[SHAPE_MAX_RANK];
    int64_t total = 0, used = 0;
    struct lookup_state *state;

    TRY(amounts_of(call, before, after, err));
    for (size_t i = 0; i < out->rank; i++)
        total += out->dims[i];
    state = calloc(1, sizeof(*state) + (size_t)total * sizeof(state->table[0]));
    if (state == NULL)
        return STATUS_NO_MEMORY;
    state->out = *out;
    state->bytes = dtype_bytes(call->in[0]->dtype);
    for (size_t i = 0; i < out->rank; i++) {
        int64_t cut = before[i] < 0 ? -before[i] : 0;
        int64_t kept = in->dims[i] - cut + (after[i] < 0 ? after[i] : 0);

        state->strides[i] = shape_product(in, i + 1, in->rank);
        state->source[i] = state->table + used;
        for (int64_t k = 0; k < out->dims[i]; k++)
            state->table[used++] =
                cut + source_index(mode_of(call), k - (before[i] > 0 ? before[i] : 0), kept);
        if (i + 1 == out->rank) {
            state->inside_from = before[i] > 0 ? before[i] : 0;
            state->inside_to = state->inside_from + kept;
        }
    }
    state->rows = out->rank > 0 && out->dims[out->rank - 1] > 0
                      ? shape_count(out) / out->dims[out->rank - 1]
                      : 0;
    prepare->state = state;
    prepare->constants_used = 1 << 0;
    return STATUS_OK;
}

struct lookup_job {
    const struct lookup_state *state;
    const char *from;
    char *to;
};

static void lookup_row(const struct lookup_state *state, const char *from, char *to)
{
    size_t bytes = state->bytes;
    size_t last = state->out.rank - 1;
    const int64_t *source = state->source[last];

    for (int64_t i = 0; i < state->inside_from; i++)
        memcpy(to + (size_t)i * bytes, from + (size_t)source[i] * bytes, bytes);
    memcpy(to + (size_t)state->inside_from * bytes,
           from + (size_t)source[state->inside_from] * bytes,
           (size_t)(state->inside_to - state->inside_from) * bytes);
    for (int64_t i = state->inside_to; i < state->out.dims[last]; i++)
        memcpy(to + (size_t)i * bytes, from + (size_t)source[i] * bytes, bytes);
}

static void lookup_share(void *arg, unsigned member, unsigned members)
{
    const struct lookup_job *job = arg;
    const struct lookup_state *state = job->state;
    size_t last = state->out.rank - 1;
    size_t first, end;

    team_share((size_t)state->rows, member, members, &first, &end);
    for (int64_t row = (int64_t)first; row < (int64_t)end; row++) {
        int64_t rest = row, offset = 0;

        for (size_t axis = last; axis-- > 0; rest /= state->out.dims[axis])
            offset += state->source[axis][rest % state->out.dims[axis]] * state->strides[axis];
        lookup_row(state, job->from + (size_t)offset * state->bytes,
                   job->to + (size_t)(row * state->out.dims[last]) * state->bytes);
    }
}

static enum status run_lookup(const void *opaque, const struct kernel_call *call,
                              const struct kernel_run *run)
{
    const struct lookup_state *state = opaque;
    struct lookup_job job = {state, run->in[0], run->out[0]};

    if (state->out.rank == 0) {
        memcpy(run->out[0], run->in[0], state->bytes);
        return STATUS_OK;
    }
    if (state->rows > 0)
        team_run(team_size(call->threads, (double)shape_count(&state->out)), lookup_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_pad_lookup = {
    .name = "cpu:lookup",
    .refuses = refuse_lookup,
    .prepare = prepare_lookup,
    .enqueue = run_lookup,
    .release = free,
};
