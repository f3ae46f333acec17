#include <inttypes.h>

#include "ops/indexing.h"

static int64_t or_one(const struct ints *list, size_t i)
{
    return list->values != NULL ? list->values[i] : 1;
}

/* Lists of the attributes are complete, and no number is out of all measure. */
static enum status check_lists(const struct col2im_attrs *attrs, size_t axes, struct error *err)
{
    if ((attrs->dilations.values != NULL && attrs->dilations.count != axes) ||
        (attrs->strides.values != NULL && attrs->strides.count != axes) ||
        (attrs->pads.values != NULL && attrs->pads.count != 2 * axes))
        return error_set(err, STATUS_INVALID, "dilations, strides or pads do not suit %zu axes",
                         axes);
    for (size_t i = 0; i < axes; i++)
        if (or_one(&attrs->dilations, i) < 1 || or_one(&attrs->strides, i) < 1 ||
            or_one(&attrs->dilations, i) > INT32_MAX || or_one(&attrs->strides, i) > INT32_MAX)
            return error_set(err, STATUS_INVALID, "dilation or stride of axis %zu", i);
    for (size_t i = 0; i < attrs->pads.count; i++)
        if (attrs->pads.values[i] < 0 || attrs->pads.values[i] > INT32_MAX)
            return error_set(err, STATUS_INVALID, "pads are %" PRId64, attrs->pads.values[i]);
    return STATUS_OK;
}

/* in [n, c * block, places], image shape, block shape: out [n, c, image…] */
static enum status infer_col2im(const struct op_call *call, struct error *err)
{
    const struct col2im_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    int64_t image[SHAPE_MAX_RANK], block[SHAPE_MAX_RANK];
    int64_t block_size = 1, places = 1;
    size_t axes, block_axes;
    struct shape out;

    TRY(op_read_ints(call->in[1], "image_shape", SHAPE_MAX_RANK - 2, image, &axes, err));
    TRY(op_read_ints(call->in[2], "block_shape", SHAPE_MAX_RANK - 2, block, &block_axes, err));
    if (in->rank != 3 || axes != block_axes || axes == 0)
        return error_set(err, STATUS_INVALID,
                         "the input has rank %zu, image and block have %zu and %zu axes", in->rank,
                         axes, block_axes);
    TRY(check_lists(attrs, axes, err));
    out = (struct shape){.rank = axes + 2, .dims = {in->dims[0]}};
    for (size_t i = 0; i < axes; i++) {
        int64_t pads =
            attrs->pads.values != NULL ? attrs->pads.values[i] + attrs->pads.values[i + axes] : 0;
        int64_t reach;

        if (image[i] < 1 || block[i] < 1 || image[i] > INT32_MAX || block[i] > INT32_MAX)
            return error_set(err, STATUS_INVALID, "image or block of axis %zu is empty", i);
        reach = or_one(&attrs->dilations, i) * (block[i] - 1) + 1;
        if (image[i] + pads < reach)
            return error_set(err, STATUS_INVALID, "the block is larger than axis %zu", i);
        if (__builtin_mul_overflow(
                places, (image[i] + pads - reach) / or_one(&attrs->strides, i) + 1, &places) ||
            __builtin_mul_overflow(block_size, block[i], &block_size))
            return error_set(err, STATUS_INVALID, "image or block is too large");
        out.dims[i + 2] = image[i];
    }
    if (in->dims[1] % block_size != 0 || in->dims[2] != places)
        return error_set(err, STATUS_INVALID,
                         "the input has %" PRId64 " x %" PRId64 ", the block %" PRId64
                         " elements and %" PRId64 " places",
                         in->dims[1], in->dims[2], block_size, places);
    out.dims[1] = in->dims[1] / block_size;
    call->out[0]->dtype = call->in[0]->dtype;
    call->out[0]->shape = out;
    return STATUS_OK;
}

static const struct attr_def attrs_of[] = {
    OP_ATTR_INTS(struct col2im_attrs, dilations),
    OP_ATTR_INTS(struct col2im_attrs, pads),
    OP_ATTR_INTS(struct col2im_attrs, strides),
    OP_ATTR_END,
};

const struct op_def op_col2im = {
    .name = "col2im",
    .onnx = {"Col2Im", .since = 18},
    .inputs = 3,
    .outputs = 1,
    .dtypes = DTYPE_FLOATS,
    .value_inputs = 1 << 1 | 1 << 2,
    .attrs = attrs_of,
    .attrs_size = sizeof(struct col2im_attrs),
    .infer = infer_col2im,
};
