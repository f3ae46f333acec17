/* Resize.  All numbers of the coordinate rules are settled when the plan is made: for each axis,
 * which source indices every output index takes (one, two or four) and with what weight.
 *
 * Axes are handled in the order of memory, whatever the layout; `row` is the last axis that changes
 * and `inner` what lies behind it (a block of channels, all channels of NHWC, or one element).
 * An output row is first the weighted sum of source rows, then resized along itself.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "device/cpu/team.h"
#include "ops/indexing.h"

enum { MAX_TAPS = 4, OUTSIDE = -1 };

struct axis {
    int64_t in, out;
    int64_t stride; /* of the source, elements */
    unsigned taps;
    bool same; /* out[i] is in[i] */
    const int32_t *index;
    const float *weight; /* nearest has none */
};

struct resize_state {
    size_t outer; /* axes before the row */
    struct axis axes[SHAPE_MAX_RANK + 1];
    int64_t rows;           /* of the output */
    int64_t inner;          /* elements behind the row axis */
    size_t bytes;           /* of an element */
    bool doubles_row;       /* nearest: exactly twice as long */
    uint64_t extrapolation; /* the value in the type's bytes */
    int32_t *table;
    float *weights;
};

static enum resize_mode mode_of(const struct kernel_call *call)
{
    return (enum resize_mode)((const struct resize_attrs *)call->attrs)->mode;
}

static enum status axes_of(const struct kernel_call *call, struct resize_axis axes[SHAPE_MAX_RANK],
                           struct error *err)
{
    struct tensor tensors[4];
    const struct tensor *in[4] = {NULL};

    call_tensors(call, tensors, in);
    return resize_axes(call->attrs, in, axes, err);
}

/* ---- which source elements, by what weight ---- */

static int64_t round_source(float x, enum resize_nearest mode)
{
    switch (mode) {
    case RESIZE_ROUND_PREFER_FLOOR:
        return (int64_t)(x == floorf(x) + 0.5f ? floorf(x) : roundf(x));
    case RESIZE_ROUND_PREFER_CEIL:
        return (int64_t)(x == floorf(x) + 0.5f ? ceilf(x) : roundf(x));
    case RESIZE_FLOOR:
        return (int64_t)floorf(x);
    case RESIZE_CEIL:
        break;
    }
    return (int64_t)ceilf(x);
}

static int64_t clamp(int64_t i, int64_t length)
{
    return i < 0 ? 0 : i >= length ? length - 1 : i;
}

static void cubic_weights(float s, float a, float w[4])
{
    w[0] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
    w[1] = ((a + 2) * s - (a + 3)) * s * s + 1;
    w[2] = ((a + 2) * (1 - s) - (a + 3)) * (1 - s) * (1 - s) + 1;
    w[3] = ((a * (2 - s) - 5 * a) * (2 - s) + 8 * a) * (2 - s) - 4 * a;
}

static void exclude(int64_t first, int64_t length, float w[4])
{
    float sum = 0;

    for (int64_t t = 0; t < 4; t++) {
        if (first + t < 0 || first + t >= length)
            w[t] = 0;
        sum += w[t];
    }
    for (int t = 0; t < 4; t++)
        w[t] /= sum;
}

static void set_taps(const struct resize_attrs *attrs, int64_t length, float x, int32_t *index,
                     float *weight)
{
    int64_t first;

    switch (attrs->mode) {
    case RESIZE_NEAREST:
        index[0] =
            (int32_t)clamp(round_source(x, (enum resize_nearest)attrs->nearest_mode), length);
        break;
    case RESIZE_LINEAR:
        x = x < 0 ? 0 : x > (float)(length - 1) ? (float)(length - 1) : x;
        first = (int64_t)x;
        index[0] = (int32_t)first;
        index[1] = (int32_t)clamp(first + 1, length);
        weight[1] = x - (float)first;
        weight[0] = 1 - weight[1];
        break;
    default:
        first = (int64_t)floorf(x) - 1;
        cubic_weights(x - floorf(x), attrs->cubic_coeff_a, weight);
        if (attrs->exclude_outside)
            exclude(first, length, weight);
        for (int64_t t = 0; t < 4; t++)
            index[t] = (int32_t)clamp(first + t, length);
    }
}

static bool keeps_all(const struct resize_attrs *attrs, const struct resize_axis *axis)
{
    if (axis->in != axis->out)
        return false;
    for (int64_t i = 0; i < axis->out; i++)
        if (resize_source(axis, (enum resize_coordinates)attrs->coordinate_transformation_mode,
                          i) != (float)i)
            return false;
    return true;
}

static void fill_axis(struct axis *to, const struct resize_attrs *attrs,
                      const struct resize_axis *axis, int32_t *index, float *weight)
{
    bool crops = attrs->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;

    to->index = index;
    to->weight = weight;
    for (int64_t i = 0; i < axis->out; i++) {
        float x =
            resize_source(axis, (enum resize_coordinates)attrs->coordinate_transformation_mode, i);

        if (to->same) {
            index[i] = (int32_t)i;
            weight[i] = 1;
        } else if (crops && !(x >= 0 && x <= (float)(axis->in - 1))) {
            index[i * to->taps] = OUTSIDE;
        } else {
            set_taps(attrs, axis->in, x, index + i * to->taps, weight + i * to->taps);
        }
    }
}

/* ---- planning ---- */

static unsigned taps_of(int mode)
{
    return mode == RESIZE_NEAREST ? 1 : mode == RESIZE_LINEAR ? 2 : 4;
}

/* Logical axes in the order of memory; a blocked channel axis counts blocks. */
static size_t memory_order(const struct kernel_call *call, size_t order[SHAPE_MAX_RANK])
{
    size_t rank = call->in[0]->shape.rank, count = 0;

    for (size_t i = 0; i < rank; i++)
        if (call->in[0]->layout != LAYOUT_NHWC || i != 1)
            order[count++] = i;
    if (call->in[0]->layout == LAYOUT_NHWC)
        order[count++] = 1;
    return count;
}

static uint64_t extrapolation_bits(enum dtype dtype, float value)
{
    uint64_t bits = 0;
    double wide = (double)value;
    uint16_t half;

    switch (dtype) {
    case DTYPE_FLOAT:
        memcpy(&bits, &value, sizeof(value));
        break;
    case DTYPE_DOUBLE:
        memcpy(&bits, &wide, sizeof(wide));
        break;
    default:
        half = dtype == DTYPE_FLOAT16 ? half_from_float(value) : bfloat16_from_float(value);
        bits = half;
    }
    return bits;
}

static void destroy(void *opaque)
{
    struct resize_state *state = opaque;

    if (state == NULL)
        return;
    free(state->table);
    free(state->weights);
    free(state);
}

static enum status fill_tables(struct resize_state *state, const struct resize_attrs *attrs,
                               const struct resize_axis *axes, const size_t *order, size_t count)
{
    size_t room = 0;

    for (size_t i = 0; i < count; i++)
        room += (size_t)state->axes[i].out * state->axes[i].taps;
    state->table = calloc(room + 1, sizeof(*state->table));
    state->weights = calloc(room + 1, sizeof(*state->weights));
    if (state->table == NULL || state->weights == NULL)
        return STATUS_NO_MEMORY;
    room = 0;
    for (size_t i = 0; i < count; i++) {
        struct resize_axis axis = axes[order[i]];

        if (state->axes[i].same) /* blocks of channels among them */
            axis.in = axis.out = state->axes[i].out;
        fill_axis(&state->axes[i], attrs, &axis, state->table + room, state->weights + room);
        room += (size_t)state->axes[i].out * state->axes[i].taps;
    }
    return STATUS_OK;
}

static bool is_doubling(const struct axis *axis)
{
    if (axis->out != 2 * axis->in)
        return false;
    for (int64_t i = 0; i < axis->out; i++)
        if (axis->index[i] != i / 2)
            return false;
    return true;
}

static void set_strides(struct resize_state *state, size_t count, int64_t innermost)
{
    int64_t stride = innermost;

    for (size_t i = count; i-- > 0;) {
        state->axes[i].stride = stride;
        stride *= state->axes[i].in;
    }
}

/* Axes, tables and the split into outer axes, row and inner part. */
static enum status plan(struct resize_state *state, const struct kernel_call *call,
                        struct error *err)
{
    const struct resize_attrs *attrs = call->attrs;
    bool blocked = call->in[0]->layout == LAYOUT_BLOCKED;
    int64_t block = blocked ? call->device->channel_block : 1;
    struct resize_axis axes[SHAPE_MAX_RANK];
    size_t order[SHAPE_MAX_RANK], count = memory_order(call, order), row = 0;

    TRY(axes_of(call, axes, err));
    for (size_t i = 0; i < count; i++) {
        const struct resize_axis *axis = &axes[order[i]];
        bool channels = blocked && order[i] == 1;

        state->axes[i].same = channels || keeps_all(attrs, axis);
        state->axes[i].in = channels ? (axis->in + block - 1) / block : axis->in;
        state->axes[i].out = channels ? state->axes[i].in : axis->out;
        state->axes[i].taps = state->axes[i].same ? 1 : taps_of(attrs->mode);
        if (!state->axes[i].same)
            row = i;
    }
    TRY(fill_tables(state, attrs, axes, order, count));
    set_strides(state, count, block);
    state->outer = row;
    state->inner = block;
    state->rows = 1;
    for (size_t i = 0; i < row; i++)
        state->rows *= state->axes[i].out;
    for (size_t i = row + 1; i < count; i++)
        state->inner *= state->axes[i].in;
    state->bytes = dtype_bytes(call->in[0]->dtype);
    state->doubles_row = count > 0 && state->axes[row].taps == 1 && is_doubling(&state->axes[row]);
    if (attrs->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE)
        state->extrapolation = extrapolation_bits(call->in[0]->dtype, attrs->extrapolation_value);
    return STATUS_OK;
}

static enum status make_state(struct kernel_prepare *prepare, struct resize_state **out_state,
                              struct error *err)
{
    struct resize_state *state = calloc(1, sizeof(*state));
    enum status status;

    if (state == NULL)
        return STATUS_NO_MEMORY;
    status = plan(state, &prepare->call, err);
    if (status != STATUS_OK) {
        destroy(state);
        return status;
    }
    prepare->constants_used = 1 << 0;
    prepare->state = state;
    *out_state = state;
    return STATUS_OK;
}

static const char *refuse_any(const struct kernel_call *call)
{
    const struct resize_attrs *attrs = call->attrs;
    const struct operand *in = call->in[0];
    bool crops = attrs->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE;
    const char *unknown = refuse_unknown_values(call, (crops ? 1 << 1 : 0) | 1 << 2 | 1 << 3);

    if (unknown != NULL)
        return unknown;
    if (in->shape.rank == 0)
        return "a scalar";
    for (size_t i = 0; i < in->shape.rank; i++)
        if (in->shape.dims[i] > INT32_MAX)
            return "an axis is too long";
    if (crops && !dtype_is_float(in->dtype))
        return "tf_crop_and_resize of integers";
    if (in->layout != LAYOUT_BLOCKED)
        return NULL;
    if (crops)
        return "the padding of a block must stay zero";
    if (call->out[0]->shape.dims[1] != in->shape.dims[1])
        return "channels are resized";
    return NULL;
}

/* The source row of output row `row`, as an offset in elements; OUTSIDE when there is none.  Tap
 * numbers of the outer axes come out of `combination`; *weight is multiplied by theirs. */
static int64_t source_row(const struct resize_state *state, int64_t row, unsigned combination,
                          float *weight)
{
    int64_t offset = 0;

    for (size_t i = state->outer; i-- > 0;) {
        const struct axis *axis = &state->axes[i];
        int64_t at = row % axis->out * axis->taps;
        unsigned tap = combination % axis->taps;

        if (axis->index[at] == OUTSIDE)
            return OUTSIDE;
        offset += axis->index[at + tap] * axis->stride;
        *weight *= axis->weight[at + tap];
        row /= axis->out;
        combination /= axis->taps;
    }
    return offset;
}

struct job {
    const struct resize_state *state;
    const struct kernel_run *run;
    char *scratch;
    size_t scratch_each;
    enum dtype dtype;
};

static void fill_outside(const struct resize_state *state, char *to, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++)
        memcpy(to + (size_t)i * state->bytes, &state->extrapolation, state->bytes);
}

/* ---- nearest: bytes are moved ---- */

static void double_row(const float *from, float *to, int64_t length)
{
    for (int64_t i = 0; i < length; i++)
        to[2 * i] = to[2 * i + 1] = from[i];
}

static inline __attribute__((always_inline)) void pick_row(const struct axis *row, const char *from,
                                                           char *to, size_t bytes)
{
    for (int64_t i = 0; i < row->out; i++)
        memcpy(to + (size_t)i * bytes, from + (size_t)row->index[i] * bytes, bytes);
}

static void nearest_row(const struct resize_state *state, const char *from, char *to)
{
    const struct axis *row = &state->axes[state->outer];
    size_t bytes = (size_t)state->inner * state->bytes;

    if (row->same)
        memcpy(to, from, (size_t)row->out * bytes);
    else if (state->doubles_row && bytes == 4)
        double_row((const float *)(const void *)from, (float *)(void *)to, row->in);
    else if (bytes == 4)
        pick_row(row, from, to, 4);
    else if (bytes == 32)
        pick_row(row, from, to, 32);
    else if (bytes == 64)
        pick_row(row, from, to, 64);
    else
        pick_row(row, from, to, bytes);
}

static void crop_row(const struct resize_state *state, const char *from, char *to)
{
    const struct axis *row = &state->axes[state->outer];
    size_t bytes = (size_t)state->inner * state->bytes;

    for (int64_t i = 0; i < row->out; i++) {
        if (row->index[i] == OUTSIDE)
            fill_outside(state, to + (size_t)i * bytes, state->inner);
        else
            memcpy(to + (size_t)i * bytes, from + (size_t)row->index[i] * bytes, bytes);
    }
}

static bool has_outside(const struct axis *row)
{
    for (int64_t i = 0; i < row->out; i++)
        if (row->index[i * row->taps] == OUTSIDE)
            return true;
    return false;
}

static void nearest_share(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct resize_state *state = job->state;
    const struct axis *row = &state->axes[state->outer];
    size_t row_bytes = (size_t)(row->out * state->inner) * state->bytes;
    bool crops = has_outside(row);
    int64_t before = OUTSIDE;
    size_t first, last;

    team_share((size_t)state->rows, member, members, &first, &last);
    for (size_t i = first; i < last; i++) {
        float weight = 1;
        int64_t offset = source_row(state, (int64_t)i, 0, &weight);
        const char *from = (const char *)job->run->in[0] + offset * (int64_t)state->bytes;
        char *to = (char *)job->run->out[0] + i * row_bytes;

        if (offset == OUTSIDE)
            fill_outside(state, to, row->out * state->inner);
        else if (offset == before)
            memcpy(to, to - row_bytes, row_bytes);
        else if (crops)
            crop_row(state, from, to);
        else
            nearest_row(state, from, to);
        before = offset;
    }
}

static const char *refuse_nearest(const struct kernel_call *call)
{
    if (mode_of(call) != RESIZE_NEAREST)
        return "nearest only";
    return refuse_any(call);
}

static enum status prepare_nearest(struct kernel_prepare *prepare, struct error *err)
{
    struct resize_state *state;

    return make_state(prepare, &state, err);
}

static enum status run_nearest(const void *opaque, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct resize_state *state = opaque;
    struct job job = {.state = state, .run = run};
    double elements = (double)shape_count(&call->out[0]->shape);

    if (elements > 0)
        team_run(team_size(call->threads, elements / 2), nearest_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_resize_nearest = {
    .name = "cpu:nearest",
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_nearest,
    .prepare = prepare_nearest,
    .enqueue = run_nearest,
    .release = destroy,
};

/* ---- linear and cubic ---- */

#define SAME(x) (x)

/* For an element type: sum_NAME() adds a source row times a weight to the row being made,
 * stretch_NAME() resizes that row along itself.  Sums are kept in `sum`. */
#define WEIGHTED(name, type, sum, LOAD, STORE)                                                     \
    static void add_row_##name(const void *from, float weight, void *to, int64_t length,           \
                               bool first)                                                         \
    {                                                                                              \
        const type *source = from;                                                                 \
        sum *target = to;                                                                          \
                                                                                                   \
        if (first)                                                                                 \
            for (int64_t i = 0; i < length; i++)                                                   \
                target[i] = (sum)weight * (sum)LOAD(source[i]);                                    \
        else                                                                                       \
            for (int64_t i = 0; i < length; i++)                                                   \
                target[i] += (sum)weight * (sum)LOAD(source[i]);                                   \
    }                                                                                              \
                                                                                                   \
    static void stretch_##name(const struct axis *row, int64_t inner, const void *from, void *to)  \
    {                                                                                              \
        const sum *source = from;                                                                  \
        type *target = to;                                                                         \
                                                                                                   \
        for (int64_t i = 0; i < row->out; i++) {                                                   \
            const int32_t *index = row->index + i * row->taps;                                     \
            const float *weight = row->weight + i * row->taps;                                     \
                                                                                                   \
            if (row->taps == 2)                                                                    \
                for (int64_t k = 0; k < inner; k++)                                                \
                    target[i * inner + k] = STORE((sum)weight[0] * source[index[0] * inner + k] +  \
                                                  (sum)weight[1] * source[index[1] * inner + k]);  \
            else if (row->taps == 1)                                                               \
                for (int64_t k = 0; k < inner; k++)                                                \
                    target[i * inner + k] = STORE(source[index[0] * inner + k]);                   \
            else                                                                                   \
                for (int64_t k = 0; k < inner; k++)                                                \
                    target[i * inner + k] = STORE((sum)weight[0] * source[index[0] * inner + k] +  \
                                                  (sum)weight[1] * source[index[1] * inner + k] +  \
                                                  (sum)weight[2] * source[index[2] * inner + k] +  \
                                                  (sum)weight[3] * source[index[3] * inner + k]);  \
        }                                                                                          \
    }

WEIGHTED(float, float, float, SAME, SAME)
WEIGHTED(double, double, double, SAME, SAME)
WEIGHTED(half, uint16_t, float, float_from_half, half_from_float)
WEIGHTED(bfloat16, uint16_t, float, float_from_bfloat16, bfloat16_from_float)

static void add_row(enum dtype dtype, const void *from, float weight, void *to, int64_t length,
                    bool first)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        add_row_float(from, weight, to, length, first);
        break;
    case DTYPE_DOUBLE:
        add_row_double(from, weight, to, length, first);
        break;
    case DTYPE_FLOAT16:
        add_row_half(from, weight, to, length, first);
        break;
    default:
        add_row_bfloat16(from, weight, to, length, first);
    }
}

static void stretch(enum dtype dtype, const struct axis *row, int64_t inner, const void *from,
                    void *to)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        stretch_float(row, inner, from, to);
        break;
    case DTYPE_DOUBLE:
        stretch_double(row, inner, from, to);
        break;
    case DTYPE_FLOAT16:
        stretch_half(row, inner, from, to);
        break;
    default:
        stretch_bfloat16(row, inner, from, to);
    }
}

/* The row's places outside the crop hold tap OUTSIDE; they were stretched from nowhere. */
static void patch_outside(const struct resize_state *state, char *to)
{
    const struct axis *row = &state->axes[state->outer];
    size_t bytes = (size_t)state->inner * state->bytes;

    for (int64_t i = 0; i < row->out; i++)
        if (row->index[i * row->taps] == OUTSIDE)
            fill_outside(state, to + (size_t)i * bytes, state->inner);
}

static void weighted_share(void *arg, unsigned member, unsigned members)
{
    const struct job *job = arg;
    const struct resize_state *state = job->state;
    const struct axis *row = &state->axes[state->outer];
    size_t sum_bytes = job->dtype == DTYPE_DOUBLE ? sizeof(double) : sizeof(float);
    /* one element before the row, zero: what OUTSIDE points at */
    char *sums = job->scratch + member * job->scratch_each + (size_t)state->inner * sum_bytes;
    size_t row_bytes = (size_t)(row->out * state->inner) * state->bytes;
    unsigned combinations = 1;
    bool crops = has_outside(row);
    size_t first, last;

    memset(sums - (size_t)state->inner * sum_bytes, 0, (size_t)state->inner * sum_bytes);
    for (size_t i = 0; i < state->outer; i++)
        combinations *= state->axes[i].taps;
    team_share((size_t)state->rows, member, members, &first, &last);
    for (size_t i = first; i < last; i++) {
        char *to = (char *)job->run->out[0] + i * row_bytes;
        int64_t offset = 0;

        for (unsigned c = 0; c < combinations && offset != OUTSIDE; c++) {
            float weight = 1;

            offset = source_row(state, (int64_t)i, c, &weight);
            if (offset != OUTSIDE)
                add_row(job->dtype, (const char *)job->run->in[0] + (size_t)offset * state->bytes,
                        weight, sums, row->in * state->inner, c == 0);
        }
        if (offset == OUTSIDE) {
            fill_outside(state, to, row->out * state->inner);
            continue;
        }
        stretch(job->dtype, row, state->inner, sums, to);
        if (crops)
            patch_outside(state, to);
    }
}

static const char *refuse_weighted(const struct kernel_call *call)
{
    if (mode_of(call) == RESIZE_NEAREST)
        return "linear and cubic only";
    return refuse_any(call);
}

static size_t scratch_each(const struct resize_state *state, enum dtype dtype)
{
    size_t sum_bytes = dtype == DTYPE_DOUBLE ? sizeof(double) : sizeof(float);
    size_t bytes = (size_t)((state->axes[state->outer].in + 1) * state->inner) * sum_bytes;

    return (bytes + 63) / 64 * 64;
}

static enum status prepare_weighted(struct kernel_prepare *prepare, struct error *err)
{
    struct resize_state *state;

    TRY(make_state(prepare, &state, err));
    prepare->scratch_bytes =
        scratch_each(state, prepare->call.in[0]->dtype) * prepare->call.threads;
    return STATUS_OK;
}

static enum status run_weighted(const void *opaque, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct resize_state *state = opaque;
    struct job job = {.state = state,
                      .run = run,
                      .scratch = run->scratch,
                      .scratch_each = scratch_each(state, call->in[0]->dtype),
                      .dtype = call->in[0]->dtype};
    double elements = (double)shape_count(&call->out[0]->shape);

    if (elements > 0)
        team_run(team_size(call->threads, elements * 2), weighted_share, &job);
    return STATUS_OK;
}

const struct kernel kernel_resize_weighted = {
    .name = "cpu:weighted",
    .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED | 1 << LAYOUT_NHWC,
    .refuses = refuse_weighted,
    .prepare = prepare_weighted,
    .enqueue = run_weighted,
    .release = destroy,
};
