/* Resize.  All numbers of the coordinate rules are settled when the plan is made: for each axis,
 * which source indices every output index takes (one, two or four) and with what weight.
 *
 * Axes are handled in the order of memory, whatever the layout; `row` is the last axis that changes
 * and `inner` what lies behind it (a block of channels, all channels of NHWC, or one element).
 * An output row is first the weighted sum of source rows, then resized along itself.
 * resize_nearest.c and resize_weighted.c run what is planned here.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/move.h"
#include "device/cpu/movement/resize_internal.h"

enum { MAX_TAPS = 4 };

enum resize_mode resize_mode_of(const struct kernel_call *call)
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

static void fill_axis(struct resize_taps *to, const struct resize_attrs *attrs,
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

char *resize_row_out(const struct resize_state *state, void *out, int64_t row)
{
    const int64_t length = state->axes[state->outer].out * state->inner;

    return (char *)out +
           (row / state->image_rows * state->image_elements + row % state->image_rows * length) *
               (int64_t)state->bytes;
}

void resize_release(void *opaque)
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

static bool is_doubling(const struct resize_taps *axis)
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
    state->axes[0].stride = operand_stride(call->in[0], state->axes[0].stride);
    for (size_t i = row + 1; i < count; i++)
        state->inner *= state->axes[i].in;
    state->bytes = dtype_bytes(call->in[0]->dtype);
    state->image_rows = row > 0 && state->rows > 0 ? state->rows / state->axes[0].out : state->rows;
    state->image_elements =
        operand_stride(call->out[0], state->image_rows * state->axes[row].out * state->inner);
    state->doubles_row = count > 0 && state->axes[row].taps == 1 && is_doubling(&state->axes[row]);
    if (attrs->coordinate_transformation_mode == RESIZE_TF_CROP_AND_RESIZE)
        state->extrapolation = extrapolation_bits(call->in[0]->dtype, attrs->extrapolation_value);
    return STATUS_OK;
}

enum status resize_prepare(struct kernel_prepare *prepare, struct resize_state **out_state,
                           struct error *err)
{
    struct resize_state *state = calloc(1, sizeof(*state));
    enum status status;

    if (state == NULL)
        return STATUS_NO_MEMORY;
    status = plan(state, &prepare->call, err);
    if (status != STATUS_OK) {
        resize_release(state);
        return status;
    }
    prepare->constants_used = 1 << 0;
    prepare->state = state;
    *out_state = state;
    return STATUS_OK;
}

static bool is_strided(const struct kernel_call *call)
{
    return call->in[0]->outer_stride != 0 || call->out[0]->outer_stride != 0;
}

/* Whether what changes lies behind dimension 0: then images pass one by one. */
static bool changes_rows(const struct operand *in, const struct operand *out)
{
    for (size_t i = 1; i < in->shape.rank; i++)
        if (in->shape.dims[i] != out->shape.dims[i])
            return true;
    return false;
}

const char *resize_refuse(const struct kernel_call *call)
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
    if (is_strided(call) && !changes_rows(in, call->out[0]))
        return "images that lie apart, and none is resized";
    if (in->layout != LAYOUT_BLOCKED)
        return NULL;
    if (crops)
        return "the padding of a block must stay zero";
    if (call->out[0]->shape.dims[1] != in->shape.dims[1])
        return "channels are resized";
    return NULL;
}

int64_t resize_source_row(const struct resize_state *state, int64_t row, unsigned combination,
                          float *weight)
{
    int64_t offset = 0;

    for (size_t i = state->outer; i-- > 0;) {
        const struct resize_taps *axis = &state->axes[i];
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

bool resize_has_outside(const struct resize_taps *row)
{
    for (int64_t i = 0; i < row->out; i++)
        if (row->index[i * row->taps] == OUTSIDE)
            return true;
    return false;
}

void resize_fill_outside(const struct resize_state *state, char *to, int64_t elements)
{
    for (int64_t i = 0; i < elements; i++)
        memcpy(to + (size_t)i * state->bytes, &state->extrapolation, state->bytes);
}
