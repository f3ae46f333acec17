#include <inttypes.h>

#include "ops/indexing.h"

/* Optional scalars: most boxes per class (int64), thresholds of overlap and score (float). */
static enum status check_scalar(const struct op_call *call, size_t index, enum dtype dtype,
                                struct error *err)
{
    if (index >= call->inputs || call->in[index] == NULL)
        return STATUS_OK;
    if (call->in[index]->dtype != dtype || shape_count(&call->in[index]->shape) != 1)
        return error_set(err, STATUS_INVALID, "input %zu must be one %s", index, dtype_name(dtype));
    return STATUS_OK;
}

static enum status infer_nms(const struct op_call *call, struct error *err)
{
    const struct shape *boxes = &call->in[0]->shape, *scores = &call->in[1]->shape;
    int64_t each, most;
    size_t count;

    if (call->in[1]->dtype != DTYPE_FLOAT || boxes->rank != 3 || scores->rank != 3 ||
        boxes->dims[2] != 4 || boxes->dims[0] != scores->dims[0] ||
        boxes->dims[1] != scores->dims[2])
        return error_set(err, STATUS_INVALID,
                         "boxes must be float [batch, n, 4] and scores float [batch, classes, n]");
    TRY(check_scalar(call, 2, DTYPE_INT64, err));
    TRY(check_scalar(call, 3, DTYPE_FLOAT, err));
    TRY(check_scalar(call, 4, DTYPE_FLOAT, err));
    each = boxes->dims[1];
    if (call->inputs > 2 && call->in[2] != NULL && call->in[2]->data != NULL) {
        TRY(op_read_ints(call->in[2], "max_output_boxes_per_class", 1, &most, &count, err));
        each = most < each ? (most > 0 ? most : 0) : each;
    }
    call->out[0]->dtype = DTYPE_INT64;
    call->out[0]->shape =
        (struct shape){.rank = 2, .dims = {scores->dims[0] * scores->dims[1] * each, 3}};
    call->out_bound[0] = true;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INT(struct nms_attrs, center_point_box, 0),
    OP_ATTR_END,
};

const struct op_def op_non_max_suppression = {
    .name = "non_max_suppression",
    .onnx = {"NonMaxSuppression", .since = 11},
    .inputs = 5,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_BIT(FLOAT),
    .flags = OP_DATA_DEPENDENT,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct nms_attrs),
    .infer = infer_nms,
};
