#include <inttypes.h>

#include "ops/movement.h"

/* Equal parts; the last is smaller when the length does not divide. */
static enum status equal_lengths(const struct split_attrs *attrs, int64_t length, size_t outputs,
                                 int64_t *out_lengths, struct error *err)
{
    int64_t parts = attrs->num_outputs > 0 ? attrs->num_outputs : (int64_t)outputs;
    int64_t each = (length + parts - 1) / parts;

    if (parts != (int64_t)outputs)
        return error_set(err, STATUS_INVALID, "num_outputs is %" PRId64 ", the node has %zu", parts,
                         outputs);
    for (size_t i = 0; i < outputs; i++) {
        int64_t left = length - each * (int64_t)i;

        out_lengths[i] = left < 0 ? 0 : left < each ? left : each;
    }
    return STATUS_OK;
}

enum status split_lengths(const struct split_attrs *attrs, int64_t length,
                          const struct tensor *sizes, size_t outputs, int64_t *out_lengths,
                          struct error *err)
{
    size_t count;
    int64_t left = length;

    if (outputs == 0)
        return error_set(err, STATUS_INVALID, "there are no outputs");
    if (sizes == NULL)
        return equal_lengths(attrs, length, outputs, out_lengths, err);
    if (attrs->num_outputs != 0)
        return error_set(err, STATUS_INVALID, "both split and num_outputs are given");
    TRY(op_read_ints(sizes, "split", outputs, out_lengths, &count, err));
    if (count != outputs)
        return error_set(err, STATUS_INVALID, "split has %zu lengths for %zu outputs", count,
                         outputs);
    for (size_t i = 0; i < outputs; i++) {
        if (out_lengths[i] < 0 || out_lengths[i] > left)
            return error_set(err, STATUS_INVALID,
                             "part %zu of length %" PRId64 " does not fit into %" PRId64, i,
                             out_lengths[i], length);
        left -= out_lengths[i];
    }
    if (left != 0)
        return error_set(err, STATUS_INVALID, "the parts leave %" PRId64 " of %" PRId64 " over",
                         left, length);
    return STATUS_OK;
}

enum { MAX_PARTS = 1024 };

static enum status infer_split(const struct op_call *call, struct error *err)
{
    const struct split_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    int64_t lengths[MAX_PARTS];
    size_t axis;

    if (!shape_has_axis(in, attrs->axis))
        return error_set(err, STATUS_INVALID, "axis %" PRId64 " is outside rank %zu", attrs->axis,
                         in->rank);
    if (call->outputs > MAX_PARTS)
        return error_set(err, STATUS_UNSUPPORTED, "%zu parts are above %d", call->outputs,
                         MAX_PARTS);
    axis = shape_axis(in, attrs->axis);
    TRY(split_lengths(attrs, in->dims[axis], call->inputs > 1 ? call->in[1] : NULL, call->outputs,
                      lengths, err));
    for (size_t i = 0; i < call->outputs; i++) {
        if (call->out[i] == NULL)
            continue;
        call->out[i]->dtype = call->in[0]->dtype;
        call->out[i]->shape = *in;
        call->out[i]->shape.dims[axis] = lengths[i];
    }
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct split_attrs, axis, 0),
    OP_ATTR_INT(struct split_attrs, num_outputs, 0),
    OP_ATTR_END,
};

const struct op_def op_split = {
    .name = "split",
    .onnx = {"Split", .since = 18},
    .inputs = 2,
    .min_inputs = 1,
    .outputs = -1,
    .dtypes = DTYPE_ANY,
    .value_inputs = 1 << 1,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct split_attrs),
    .flags = OP_PICKS,
    .infer = infer_split,
};
