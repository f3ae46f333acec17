#include <inttypes.h>

#include "ops/indexing.h"

/* X [n, c, spatial…], grid [n, out spatial…, axes]: out [n, c, out spatial…] */
static enum status infer_grid_sample(const struct op_call *call, struct error *err)
{
    const struct grid_sample_attrs *attrs = call->attrs;
    const struct shape *x = &call->in[0]->shape, *grid = &call->in[1]->shape;
    struct shape out = *x;

    if (x->rank < 3 || grid->rank != x->rank || grid->dims[0] != x->dims[0] ||
        grid->dims[grid->rank - 1] != (int64_t)x->rank - 2)
        return error_set(err, STATUS_INVALID,
                         "X of rank %zu needs a grid of the same rank, with %zu numbers a point",
                         x->rank, x->rank - 2);
    if (!dtype_is_float(call->in[1]->dtype))
        return error_set(err, STATUS_INVALID, "grid is %s", dtype_name(call->in[1]->dtype));
    if (attrs->mode % GRID_MODES == GRID_CUBIC && x->rank != 4)
        return error_set(err, STATUS_INVALID, "mode 'cubic' takes images only");
    for (size_t i = 2; i < x->rank; i++)
        out.dims[i] = grid->dims[i - 1];
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

/* Opset 20 renamed two of them. */
static const char *const modes[] = {"linear",  "nearest", "cubic", "bilinear",
                                    "nearest", "bicubic", NULL};
static const char *const paddings[] = {"zeros", "border", "reflection", NULL};

static const struct attr_def attrs_of[] = {
    OP_ATTR_ENUM(struct grid_sample_attrs, mode, modes, GRID_LINEAR),
    OP_ATTR_ENUM(struct grid_sample_attrs, padding_mode, paddings, GRID_ZEROS),
    OP_ATTR_INT(struct grid_sample_attrs, align_corners, 0),
    OP_ATTR_END,
};

const struct op_def op_grid_sample = {
    .name = "grid_sample",
    .onnx = {"GridSample", .since = 20},
    .inputs = 2,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct grid_sample_attrs),
    .infer = infer_grid_sample,
};
