/* GatherElements, GatherND, OneHot, ReverseSequence. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "ops/indexing.h"

/* Counts from the end when negative; -1 when outside. */
static int64_t resolve(int64_t index, int64_t length)
{
    if (index < 0)
        index += length;
    return index < 0 || index >= length ? -1 : index;
}

/* ---- GatherElements ---- */

struct elements {
    const char *from;
    const void *indices;
    char *to;
    enum dtype index_dtype;
    int64_t length; /* of the axis */
    int64_t stride; /* of the axis in the source, elements */
};

/* A row along the last axis; `first` is its first element, `base` where its place is in the source
 * with index 0 along the axis.  The last axis itself advances by `step`. */
static inline __attribute__((always_inline)) bool pick_row(const struct elements *job,
                                                           int64_t first, int64_t count,
                                                           int64_t base, int64_t step, size_t bytes)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t index = resolve(read_index(job->index_dtype, job->indices, first + i), job->length);

        if (index < 0)
            return false;
        memcpy(job->to + (size_t)(first + i) * bytes,
               job->from + (size_t)(base + i * step + index * job->stride) * bytes, bytes);
    }
    return true;
}

/* Offset in `in` of row `row` of `shape` (all axes but the last), leaving out axis `skip`. */
static int64_t row_base(const struct shape *shape, const struct shape *in, int64_t row, size_t skip)
{
    int64_t base = 0;

    for (size_t axis = shape->rank - 1; axis-- > 0; row /= shape->dims[axis])
        if (axis != skip)
            base += row % shape->dims[axis] * shape_product(in, axis + 1, in->rank);
    return base;
}

static enum status run_gather_elements(const void *state, const struct kernel_call *call,
                                       const struct kernel_run *run)
{
    const struct axis_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *out = &call->out[0]->shape;
    size_t axis = shape_axis(in, attrs->axis), last = in->rank - 1;
    size_t bytes = dtype_bytes(call->in[0]->dtype);
    int64_t count = shape_count(out), columns = out->dims[last];
    struct elements job = {
        .from = run->in[0],
        .indices = run->in[1],
        .to = run->out[0],
        .index_dtype = call->in[1]->dtype,
        .length = in->dims[axis],
        .stride = shape_product(in, axis + 1, in->rank),
    };

    (void)state;
    for (int64_t first = 0; first < count; first += columns) {
        int64_t base = row_base(out, in, first / columns, axis);
        int64_t step = axis == last ? 0 : 1;
        bool inside = bytes == 4 ? pick_row(&job, first, columns, base, step, 4)
                                 : pick_row(&job, first, columns, base, step, bytes);

        if (!inside)
            return STATUS_INVALID;
    }
    return STATUS_OK;
}

const struct kernel kernel_gather_elements_loop = {.name = "cpu:loop",
                                                   .enqueue = run_gather_elements};

/* ---- GatherND ---- */

static enum status run_gather_nd(const void *state, const struct kernel_call *call,
                                 const struct kernel_run *run)
{
    const struct gather_nd_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    size_t batch_axes = (size_t)attrs->batch_dims;
    int64_t depth = indices->dims[indices->rank - 1];
    int64_t picks = shape_product(indices, batch_axes, indices->rank - 1);
    int64_t batches = shape_product(in, 0, batch_axes);
    int64_t batch_elements = shape_product(in, batch_axes, in->rank);
    int64_t slice = shape_product(in, batch_axes + (size_t)depth, in->rank);
    size_t bytes = dtype_bytes(call->in[0]->dtype);

    (void)state;
    for (int64_t i = 0; i < batches * picks; i++) {
        int64_t offset = i / picks * batch_elements, stride = batch_elements;

        for (int64_t k = 0; k < depth; k++) {
            int64_t length = in->dims[batch_axes + (size_t)k];
            int64_t index = resolve(read_index(DTYPE_INT64, run->in[1], i * depth + k), length);

            if (index < 0)
                return STATUS_INVALID;
            stride /= length;
            offset += index * stride;
        }
        memcpy((char *)run->out[0] + (size_t)(i * slice) * bytes,
               (const char *)run->in[0] + (size_t)offset * bytes, (size_t)slice * bytes);
    }
    return STATUS_OK;
}

const struct kernel kernel_gather_nd_loop = {.name = "cpu:loop", .enqueue = run_gather_nd};

/* ---- OneHot ---- */

/* An index as a whole number, whatever its type; -1 is also what no index can be. */
static int64_t hot_index(enum dtype dtype, const void *data, int64_t i, int64_t depth)
{
    double real;
    float single;
    uint16_t half;
    uint64_t wide;
    int64_t index;

    switch (dtype) {
    case DTYPE_FLOAT:
        memcpy(&single, (const char *)data + i * 4, sizeof(single));
        real = (double)single;
        break;
    case DTYPE_DOUBLE:
        memcpy(&real, (const char *)data + i * 8, sizeof(real));
        break;
    case DTYPE_FLOAT16:
    case DTYPE_BFLOAT16:
        memcpy(&half, (const char *)data + i * 2, sizeof(half));
        real = (double)(dtype == DTYPE_FLOAT16 ? float_from_half(half) : float_from_bfloat16(half));
        break;
    case DTYPE_UINT64:
        memcpy(&wide, (const char *)data + i * 8, sizeof(wide));
        return wide < (uint64_t)depth ? (int64_t)wide : -1;
    case DTYPE_INT64:
    case DTYPE_INT32:
        index = read_index(dtype, data, i);
        return resolve(index < -depth ? -depth - 1 : index, depth);
    default:
        index = dtype == DTYPE_INT8     ? ((const int8_t *)data)[i]
                : dtype == DTYPE_UINT8  ? ((const uint8_t *)data)[i]
                : dtype == DTYPE_INT16  ? ((const int16_t *)data)[i]
                : dtype == DTYPE_UINT16 ? ((const uint16_t *)data)[i]
                                        : (int64_t)((const uint32_t *)data)[i];
        return resolve(index, depth);
    }
    if (!(real > -(double)depth - 1 && real < (double)depth))
        return -1;
    return resolve((int64_t)real, depth);
}

static enum status run_one_hot(const void *state, const struct kernel_call *call,
                               const struct kernel_run *run)
{
    const struct axis_attrs *attrs = call->attrs;
    const struct shape *out = &call->out[0]->shape;
    size_t axis = shape_axis(out, attrs->axis);
    int64_t depth = out->dims[axis], inner = shape_product(out, axis + 1, out->rank);
    int64_t outer = shape_product(out, 0, axis);
    size_t bytes = dtype_bytes(call->out[0]->dtype);
    const char *off = run->in[2], *on = off + bytes;
    char *to = run->out[0];
    struct move move;
    struct move_box box = {
        .rank = 1, .dims = {outer * depth * inner}, .from = {0}, .to = {1}, .bytes = bytes};

    (void)state;
    move_plan(&move, &box);
    move_run(&move, off, to, call->threads);
    for (int64_t i = 0; i < outer * inner && depth > 0; i++) {
        int64_t index = hot_index(call->in[0]->dtype, run->in[0], i, depth);

        if (index >= 0)
            memcpy(to + (size_t)((i / inner * depth + index) * inner + i % inner) * bytes, on,
                   bytes);
    }
    return STATUS_OK;
}

const struct kernel kernel_one_hot_loop = {.name = "cpu:loop", .enqueue = run_one_hot};

/* ---- ReverseSequence ---- */

static enum status run_reverse_sequence(const void *state, const struct kernel_call *call,
                                        const struct kernel_run *run)
{
    const struct reverse_sequence_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    int64_t times = in->dims[attrs->time_axis], batches = in->dims[attrs->batch_axis];
    size_t bytes = (size_t)shape_product(in, 2, in->rank) * dtype_bytes(call->in[0]->dtype);

    (void)state;
    for (int64_t batch = 0; batch < batches; batch++) {
        int64_t length = read_index(DTYPE_INT64, run->in[1], batch);

        if (length < 0 || length > times)
            return STATUS_INVALID;
        for (int64_t time = 0; time < times; time++) {
            int64_t from = time < length ? length - 1 - time : time;
            bool time_first = attrs->time_axis == 0;
            int64_t to_row = time_first ? time * batches + batch : batch * times + time;
            int64_t from_row = time_first ? from * batches + batch : batch * times + from;

            memcpy((char *)run->out[0] + (size_t)to_row * bytes,
                   (const char *)run->in[0] + (size_t)from_row * bytes, bytes);
        }
    }
    return STATUS_OK;
}

const struct kernel kernel_reverse_sequence_loop = {.name = "cpu:loop",
                                                    .enqueue = run_reverse_sequence};
