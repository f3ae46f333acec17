/* Type and shape rules that many operators share. */
#include <inttypes.h>
#include <string.h>

#include "ops/op.h"

static enum status infer_like(const struct op_call *call, const struct shape *shape,
                              enum dtype dtype)
{
    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL) {
            call->out[i]->dtype = dtype;
            call->out[i]->shape = *shape;
        }
    return STATUS_OK;
}

enum status op_infer_same(const struct op_call *call, struct error *err)
{
    (void)err;
    return infer_like(call, &call->in[0]->shape, call->in[0]->dtype);
}

enum status op_broadcast_shapes(const struct op_call *call, struct shape *out_shape,
                                struct error *err)
{
    struct shape shape = call->in[0]->shape;

    for (size_t i = 1; i < call->inputs; i++) {
        char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];

        if (call->in[i] == NULL)
            continue;
        if (shape_broadcast(&shape, &call->in[i]->shape, &shape) != STATUS_OK)
            return error_set(err, STATUS_INVALID,
                             "input %zu of shape %s does not broadcast with %s", i,
                             shape_format(&call->in[i]->shape, a), shape_format(&shape, b));
    }
    *out_shape = shape;
    return STATUS_OK;
}

static enum status one_dtype(const struct op_call *call, struct error *err)
{
    for (size_t i = 1; i < call->inputs; i++)
        if (call->in[i] != NULL && call->in[i]->dtype != call->in[0]->dtype)
            return error_set(err, STATUS_INVALID,
                             "input %zu is of type %s where input 0 is of type %s", i,
                             dtype_name(call->in[i]->dtype), dtype_name(call->in[0]->dtype));
    return STATUS_OK;
}

enum status op_infer_broadcast(const struct op_call *call, struct error *err)
{
    struct shape shape;

    TRY(one_dtype(call, err));
    TRY(op_broadcast_shapes(call, &shape, err));
    return infer_like(call, &shape, call->in[0]->dtype);
}

enum status op_infer_compare(const struct op_call *call, struct error *err)
{
    struct shape shape;

    TRY(one_dtype(call, err));
    TRY(op_broadcast_shapes(call, &shape, err));
    return infer_like(call, &shape, DTYPE_BOOL);
}

static int64_t read_int(const struct tensor *tensor, size_t index)
{
    if (tensor->dtype == DTYPE_INT64) {
        int64_t value;

        memcpy(&value, (const char *)tensor->data + index * sizeof(value), sizeof(value));
        return value;
    } else {
        int32_t value;

        memcpy(&value, (const char *)tensor->data + index * sizeof(value), sizeof(value));
        return value;
    }
}

enum status op_read_ints(const struct tensor *tensor, const char *what, size_t room,
                         int64_t *values, size_t *out_count, struct error *err)
{
    char text[SHAPE_TEXT_BYTES];
    int64_t count;

    if (tensor->dtype != DTYPE_INT64 && tensor->dtype != DTYPE_INT32)
        return error_set(err, STATUS_INVALID, "%s is of type %s; int64 is allowed", what,
                         dtype_name(tensor->dtype));
    if (tensor->shape.rank > 1)
        return error_set(err, STATUS_INVALID, "%s has shape %s; one dimension is allowed", what,
                         shape_format(&tensor->shape, text));
    if (shape_elements(&tensor->shape, &count) != STATUS_OK || (uint64_t)count > room)
        return error_set(err, STATUS_INVALID, "%s has shape %s; at most %zu elements are allowed",
                         what, shape_format(&tensor->shape, text), room);
    if (tensor->data == NULL && count > 0)
        return error_set(err, STATUS_UNSUPPORTED, "the value of %s is not known", what);
    for (size_t i = 0; i < (size_t)count; i++)
        values[i] = read_int(tensor, i);
    *out_count = (size_t)count;
    return STATUS_OK;
}

uint64_t op_flops_each_input(const struct op_call *call)
{
    return (uint64_t)shape_count(&call->in[0]->shape);
}

uint64_t op_flops_each_output(const struct op_call *call)
{
    return (uint64_t)shape_count(&call->out[0]->shape);
}
