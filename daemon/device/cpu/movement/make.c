/* Operators that make their result out of attributes, shapes or a few numbers. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"
#include "ops/movement.h"
#include "tensor/element.h"

/* Fills `count` elements with the one at `value` (NULL: zeros). */
static void fill(void *to, int64_t count, const void *value, size_t bytes)
{
    struct move move;
    struct move_box box = {.rank = 1, .dims = {count}, .from = {0}, .to = {1}, .bytes = bytes};

    if (value == NULL) {
        if (count > 0)
            memset(to, 0, (size_t)count * bytes);
        return;
    }
    move_plan(&move, &box);
    move_run(&move, value, to, 1);
}

/* ---- Constant ---- */

static enum status run_constant(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct constant_attrs *attrs = call->attrs;
    const struct operand *out = call->out[0];
    size_t bytes = (size_t)shape_count(&out->shape) * dtype_bytes(out->dtype);
    struct bytes text;
    const void *from = NULL;

    (void)state;
    if (bytes == 0)
        return STATUS_OK;
    if (attrs->value.dtype != DTYPE_NONE) {
        from = attrs->value.data;
    } else if (out->shape.rank == 1) {
        from = out->dtype == DTYPE_FLOAT   ? (const void *)attrs->value_floats.values
               : out->dtype == DTYPE_INT64 ? (const void *)attrs->value_ints.values
                                           : (const void *)attrs->value_strings.values;
    } else if (out->dtype == DTYPE_STRING) {
        text = (struct bytes){attrs->value_string, strlen(attrs->value_string)};
        from = &text;
    } else {
        from = out->dtype == DTYPE_FLOAT ? (const void *)&attrs->value_float
                                         : (const void *)&attrs->value_int;
    }
    memcpy(run->out[0], from, bytes);
    return STATUS_OK;
}

const struct kernel kernel_constant_make = {.name = "cpu:make", .enqueue = run_constant};

/* ---- ConstantOfShape ---- */

static enum status run_constant_of_shape(const void *state, const struct kernel_call *call,
                                         const struct kernel_run *run)
{
    const struct constant_of_shape_attrs *attrs = call->attrs;

    (void)state;
    fill(run->out[0], shape_count(&call->out[0]->shape),
         attrs->value.dtype != DTYPE_NONE ? attrs->value.data : NULL,
         dtype_bytes(call->out[0]->dtype));
    return STATUS_OK;
}

const struct kernel kernel_constant_of_shape_make = {.name = "cpu:make",
                                                     .enqueue = run_constant_of_shape};

/* ---- Shape, Size: the data is never looked at ---- */

static enum status run_shape(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    const struct shape_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    int64_t start = attrs->start < 0 ? attrs->start + (int64_t)in->rank : attrs->start;
    int64_t *out = run->out[0];

    (void)state;
    start = start < 0 ? 0 : start;
    for (int64_t i = 0; i < call->out[0]->shape.dims[0]; i++)
        out[i] = in->dims[start + i];
    return STATUS_OK;
}

static enum status run_size(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    (void)state;
    *(int64_t *)run->out[0] = shape_count(&call->in[0]->shape);
    return STATUS_OK;
}

static enum status prepare_nothing(struct kernel_prepare *prepare, struct error *err)
{
    (void)prepare;
    (void)err;
    return STATUS_OK;
}

const struct kernel kernel_shape_make = {
    .name = "cpu:make", .prepare = prepare_nothing, .enqueue = run_shape};
const struct kernel kernel_size_make = {
    .name = "cpu:make", .prepare = prepare_nothing, .enqueue = run_size};

/* ---- Range: start + i * delta, each in the type's own arithmetic ---- */

#define RANGE(type)                                                                                \
    {                                                                                              \
        type start, delta;                                                                         \
                                                                                                   \
        memcpy(&start, run->in[0], sizeof(start));                                                 \
        memcpy(&delta, run->in[2], sizeof(delta));                                                 \
        for (int64_t i = 0; i < count; i++)                                                        \
            ((type *)run->out[0])[i] = (type)(start + (type)i * delta);                            \
        break;                                                                                     \
    }

static enum status run_range(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    int64_t count = call->out[0]->shape.dims[0];

    (void)state;
    switch (call->out[0]->dtype) {
    case DTYPE_FLOAT:
        RANGE(float)
    case DTYPE_DOUBLE:
        RANGE(double)
    case DTYPE_INT16: /* unsigned: what lies beyond the last element may not overflow */
        RANGE(uint16_t)
    case DTYPE_INT32:
        RANGE(uint32_t)
    case DTYPE_INT64:
        RANGE(uint64_t)
    default: {
        bool half = call->out[0]->dtype == DTYPE_FLOAT16;
        uint16_t bits[2];
        float start, delta;

        memcpy(&bits[0], run->in[0], sizeof(bits[0]));
        memcpy(&bits[1], run->in[2], sizeof(bits[1]));
        start = half ? float_from_half(bits[0]) : float_from_bfloat16(bits[0]);
        delta = half ? float_from_half(bits[1]) : float_from_bfloat16(bits[1]);
        for (int64_t i = 0; i < count; i++) {
            float value = start + (float)i * delta;

            ((uint16_t *)run->out[0])[i] =
                half ? half_from_float(value) : bfloat16_from_float(value);
        }
    }
    }
    return STATUS_OK;
}

const struct kernel kernel_range_make = {.name = "cpu:make", .enqueue = run_range};

/* ---- EyeLike ---- */

static enum status run_eye_like(const void *state, const struct kernel_call *call,
                                const struct kernel_run *run)
{
    const struct eye_like_attrs *attrs = call->attrs;
    const struct shape *shape = &call->out[0]->shape;
    int64_t rows = shape->dims[0], columns = shape->dims[1];
    enum dtype dtype = call->out[0]->dtype;
    int64_t first = attrs->k < 0 ? (attrs->k < -rows ? rows : -attrs->k) : 0;

    (void)state;
    if (rows * columns == 0)
        return STATUS_OK;
    memset(run->out[0], 0, (size_t)(rows * columns) * dtype_bytes(dtype));
    for (int64_t row = first; row < rows && attrs->k < columns - row; row++)
        element_write(dtype, run->out[0], (size_t)(row * columns + row + attrs->k), 1);
    return STATUS_OK;
}

const struct kernel kernel_eye_like_make = {
    .name = "cpu:make", .prepare = prepare_nothing, .enqueue = run_eye_like};

/* ---- Trilu ---- */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Row by row: one part is copied, the other is zero. */
static enum status run_trilu(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    const struct trilu_attrs *attrs = call->attrs;
    const struct shape *shape = &call->in[0]->shape;
    int64_t rows = shape->dims[shape->rank - 2], columns = shape->dims[shape->rank - 1];
    int64_t count = columns > 0 ? shape_count(shape) / columns : 0;
    size_t bytes = dtype_bytes(call->in[0]->dtype);
    int64_t k =
        call->inputs > 1 && call->in[1] != NULL ? read_index(DTYPE_INT64, run->in[1], 0) : 0;

    (void)state;
    k = clamp(k, -rows - columns, rows + columns);
    for (int64_t i = 0; i < count; i++) {
        const char *in = (const char *)run->in[0] + (size_t)(i * columns) * bytes;
        char *out = (char *)run->out[0] + (size_t)(i * columns) * bytes;
        int64_t edge = clamp(i % rows + k + (attrs->upper ? 0 : 1), 0, columns);
        int64_t from = attrs->upper ? edge : 0, to = attrs->upper ? columns : edge;

        memset(out, 0, (size_t)from * bytes);
        if (in != out)
            memcpy(out + (size_t)from * bytes, in + (size_t)from * bytes,
                   (size_t)(to - from) * bytes);
        memset(out + (size_t)to * bytes, 0, (size_t)(columns - to) * bytes);
    }
    return STATUS_OK;
}

const struct kernel kernel_trilu_make = {
    .name = "cpu:make", .flags = KERNEL_IN_PLACE, .enqueue = run_trilu};
