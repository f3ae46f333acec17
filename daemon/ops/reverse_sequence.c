#include <inttypes.h>

#include "ops/indexing.h"

static enum status infer_reverse_sequence(const struct op_call *call, struct error *err)
{
    const struct reverse_sequence_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape, *lengths = &call->in[1]->shape;

    if (in->rank < 2 || attrs->batch_axis < 0 || attrs->batch_axis > 1 || attrs->time_axis < 0 ||
        attrs->time_axis > 1 || attrs->batch_axis == attrs->time_axis)
        return error_set(err, STATUS_INVALID,
                         "batch_axis %" PRId64 " and time_axis %" PRId64
                         " must be 0 and 1 of rank 2 or more",
                         attrs->batch_axis, attrs->time_axis);
    if (call->in[1]->dtype != DTYPE_INT64 || lengths->rank != 1 ||
        lengths->dims[0] != in->dims[attrs->batch_axis])
        return error_set(err, STATUS_INVALID, "sequence_lens must be int64 [%" PRId64 "]",
                         in->dims[attrs->batch_axis]);
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = *in;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct reverse_sequence_attrs, batch_axis, 1),
    OP_ATTR_INT(struct reverse_sequence_attrs, time_axis, 0),
    OP_ATTR_END,
};

const struct op_def op_reverse_sequence = {
    .name = "reverse_sequence",
    .onnx = {"ReverseSequence", .since = 10},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct reverse_sequence_attrs),
    .infer = infer_reverse_sequence,
};
