/* ScatterElements and ScatterND: a copy of the input, then the updates in their order. */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "ops/indexing.h"

/* Reduces `count` elements of `to` with those of `from`. */
typedef void (*combine_fn)(void *to, const void *from, int64_t count);

#define COMBINE(name, type, expression)                                                            \
    static void name(void *to, const void *from, int64_t count)                                    \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            type a, b;                                                                             \
                                                                                                   \
            memcpy(&a, (const type *)to + i, sizeof(a));                                           \
            memcpy(&b, (const char *)from + (size_t)i * sizeof(b), sizeof(b));                     \
            ((type *)to)[i] = (type)(expression);                                                  \
        }                                                                                          \
    }

/* A NaN on either side stays. */
#define COMBINE_FLOAT(name, type)                                                                  \
    COMBINE(add_##name, type, a + b)                                                               \
    COMBINE(mul_##name, type, a *b)                                                                \
    COMBINE(max_##name, type, b > a || b != b ? b : a)                                             \
    COMBINE(min_##name, type, b < a || b != b ? b : a)
/* Sums wrap around; they are made unsigned, where that is defined. */
#define COMBINE_INT(name, type, wrap)                                                              \
    COMBINE(add_##name, type, (wrap)a + (wrap)b)                                                   \
    COMBINE(mul_##name, type, (wrap)a *(wrap)b)                                                    \
    COMBINE(max_##name, type, b > a ? b : a)                                                       \
    COMBINE(min_##name, type, b < a ? b : a)
#define COMBINE_HALF(name, widen, narrow)                                                          \
    COMBINE(add_##name, uint16_t, narrow(widen(a) + widen(b)))                                     \
    COMBINE(mul_##name, uint16_t, narrow(widen(a) * widen(b)))                                     \
    COMBINE(max_##name, uint16_t, widen(b) > widen(a) || widen(b) != widen(b) ? b : a)             \
    COMBINE(min_##name, uint16_t, widen(b) < widen(a) || widen(b) != widen(b) ? b : a)

COMBINE_FLOAT(float, float)
COMBINE_FLOAT(double, double)
COMBINE_HALF(half, float_from_half, half_from_float)
COMBINE_HALF(bfloat16, float_from_bfloat16, bfloat16_from_float)
COMBINE_INT(int8, int8_t, uint32_t)
COMBINE_INT(int16, int16_t, uint32_t)
COMBINE_INT(int32, int32_t, uint32_t)
COMBINE_INT(int64, int64_t, uint64_t)
COMBINE_INT(uint8, uint8_t, uint32_t)
COMBINE_INT(uint16, uint16_t, uint32_t)
COMBINE_INT(uint32, uint32_t, uint32_t)
COMBINE_INT(uint64, uint64_t, uint64_t)

#define ROW(name)                                                                                  \
    {                                                                                              \
        NULL, add_##name, mul_##name, max_##name, min_##name                                       \
    }

static const combine_fn combines[DTYPE_COUNT][SCATTER_MIN + 1] = {
    [DTYPE_FLOAT] = ROW(float),       [DTYPE_DOUBLE] = ROW(double), [DTYPE_FLOAT16] = ROW(half),
    [DTYPE_BFLOAT16] = ROW(bfloat16), [DTYPE_INT8] = ROW(int8),     [DTYPE_INT16] = ROW(int16),
    [DTYPE_INT32] = ROW(int32),       [DTYPE_INT64] = ROW(int64),   [DTYPE_UINT8] = ROW(uint8),
    [DTYPE_UINT16] = ROW(uint16),     [DTYPE_UINT32] = ROW(uint32), [DTYPE_UINT64] = ROW(uint64),
};

static combine_fn combine_of(const struct kernel_call *call)
{
    const struct scatter_attrs *attrs = call->attrs;

    return combines[call->in[0]->dtype][attrs->reduction];
}

static void copy_input(const struct kernel_call *call, const struct kernel_run *run)
{
    size_t bytes = (size_t)shape_count(&call->in[0]->shape) * dtype_bytes(call->in[0]->dtype);

    if (bytes > 0 && run->out[0] != run->in[0])
        memcpy(run->out[0], run->in[0], bytes);
}

/* ---- ScatterElements ---- */

static enum status run_elements(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct scatter_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    size_t axis = shape_axis(in, attrs->axis);
    size_t bytes = dtype_bytes(call->in[0]->dtype);
    combine_fn combine = combine_of(call);
    int64_t count = shape_count(indices);

    (void)state;
    copy_input(call, run);
    for (int64_t i = 0; i < count; i++) {
        int64_t offset = 0, stride = 1, rest = i;
        const char *from = (const char *)run->in[2] + (size_t)i * bytes;
        char *to;

        for (size_t k = in->rank; k-- > 0; rest /= indices->dims[k], stride *= in->dims[k]) {
            int64_t at = rest % indices->dims[k];

            if (k == axis) {
                at = read_index(call->in[1]->dtype, run->in[1], i);
                at += at < 0 ? in->dims[k] : 0;
                if (at < 0 || at >= in->dims[k])
                    return STATUS_INVALID;
            }
            offset += at * stride;
        }
        to = (char *)run->out[0] + (size_t)offset * bytes;
        if (combine != NULL)
            combine(to, from, 1);
        else
            memcpy(to, from, bytes);
    }
    return STATUS_OK;
}

const struct kernel kernel_scatter_elements_loop = {
    .name = "cpu:loop", .flags = KERNEL_IN_PLACE, .enqueue = run_elements};

/* ---- ScatterND ---- */

static enum status run_nd(const void *state, const struct kernel_call *call,
                          const struct kernel_run *run)
{
    const struct shape *in = &call->in[0]->shape, *indices = &call->in[1]->shape;
    int64_t depth = indices->dims[indices->rank - 1];
    int64_t picks = shape_product(indices, 0, indices->rank - 1);
    int64_t slice = shape_product(in, (size_t)depth, in->rank);
    size_t bytes = dtype_bytes(call->in[0]->dtype);
    combine_fn combine = combine_of(call);

    (void)state;
    copy_input(call, run);
    for (int64_t i = 0; i < picks; i++) {
        int64_t offset = 0;
        const char *from = (const char *)run->in[2] + (size_t)(i * slice) * bytes;
        char *to;

        for (int64_t k = 0; k < depth; k++) {
            int64_t at = read_index(DTYPE_INT64, run->in[1], i * depth + k);

            at += at < 0 ? in->dims[k] : 0;
            if (at < 0 || at >= in->dims[k])
                return STATUS_INVALID;
            offset = offset * in->dims[k] + at;
        }
        to = (char *)run->out[0] + (size_t)(offset * slice) * bytes;
        if (combine != NULL)
            combine(to, from, slice);
        else
            memcpy(to, from, (size_t)slice * bytes);
    }
    return STATUS_OK;
}

const struct kernel kernel_scatter_nd_loop = {
    .name = "cpu:loop", .flags = KERNEL_IN_PLACE, .enqueue = run_nd};
