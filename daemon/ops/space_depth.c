/* DepthToSpace and SpaceToDepth. */
#include <inttypes.h>

#include "ops/movement.h"

static enum status check(const struct op_call *call, struct error *err)
{
    const struct space_depth_attrs *attrs = call->attrs;

    if (call->in[0]->shape.rank != 4)
        return error_set(err, STATUS_INVALID, "the input has rank %zu, must have 4",
                         call->in[0]->shape.rank);
    if (attrs->blocksize < 1 || attrs->blocksize > 65536)
        return error_set(err, STATUS_INVALID, "blocksize is %" PRId64, attrs->blocksize);
    call->out[0]->dtype = call->in[0]->dtype;
    return STATUS_OK;
}

static enum status infer_depth_to_space(const struct op_call *call, struct error *err)
{
    const struct space_depth_attrs *attrs = call->attrs;
    const int64_t *in = call->in[0]->shape.dims;
    int64_t size = attrs->blocksize;

    TRY(check(call, err));
    if (in[1] % (size * size) != 0)
        return error_set(err, STATUS_INVALID,
                         "%" PRId64 " channels are no multiple of blocksize squared", in[1]);
    call->out[0]->shape = (struct shape){
        .rank = 4, .dims = {in[0], in[1] / (size * size), in[2] * size, in[3] * size}};
    return STATUS_OK;
}

static enum status infer_space_to_depth(const struct op_call *call, struct error *err)
{
    const struct space_depth_attrs *attrs = call->attrs;
    const int64_t *in = call->in[0]->shape.dims;
    int64_t size = attrs->blocksize;

    TRY(check(call, err));
    if (in[2] % size != 0 || in[3] % size != 0)
        return error_set(err, STATUS_INVALID,
                         "%" PRId64 " x %" PRId64 " are no multiples of blocksize", in[2], in[3]);
    call->out[0]->shape =
        (struct shape){.rank = 4, .dims = {in[0], in[1] * size * size, in[2] / size, in[3] / size}};
    return STATUS_OK;
}

static const char *const modes[] = {"DCR", "CRD", NULL};

static const struct attr_def depth_attrs[] = {
    {ATTR_INT, "blocksize", offsetof(struct space_depth_attrs, blocksize), .required = true},
    OP_ATTR_ENUM(struct space_depth_attrs, mode, modes, DEPTH_DCR),
    OP_ATTR_END,
};

static const struct attr_def space_attrs[] = {
    {ATTR_INT, "blocksize", offsetof(struct space_depth_attrs, blocksize), .required = true},
    OP_ATTR_END,
};

const struct op_def op_depth_to_space = {
    .name = "depth_to_space",
    .onnx = {"DepthToSpace", .since = 13},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = depth_attrs,
    .attrs_size = sizeof(struct space_depth_attrs),
    .infer = infer_depth_to_space,
};

const struct op_def op_space_to_depth = {
    .name = "space_to_depth",
    .onnx = {"SpaceToDepth", .since = 13},
    .inputs = 1,
    .outputs = 1,
    .dtypes = DTYPE_ANY,
    .attrs = space_attrs,
    .attrs_size = sizeof(struct space_depth_attrs),
    .infer = infer_space_to_depth,
};
