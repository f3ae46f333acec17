/* Quantised operators beside the products: com.microsoft's QLinearAdd, QLinearMul and
 * QLinearGlobalAveragePool, and tables of bytes. */
#include "ops/quantized.h"

/* One number of this type, or left out where it may be. */
static enum status check_number(const struct op_call *call, size_t index, enum dtype dtype,
                                struct error *err)
{
    const struct tensor *tensor = index < call->inputs ? call->in[index] : NULL;

    if (tensor == NULL)
        return STATUS_OK;
    if (tensor->dtype != dtype)
        return error_set(err, STATUS_INVALID, "input %zu is of type %s; %s is needed", index,
                         dtype_name(tensor->dtype), dtype_name(dtype));
    if (shape_count(&tensor->shape) != 1)
        return error_set(err, STATUS_UNSUPPORTED, "input %zu has more than one element", index);
    return STATUS_OK;
}

/* Bytes at `index`, their scale and zero point behind them. */
static enum status check_quantized(const struct op_call *call, size_t index, struct error *err)
{
    TRY(quantized_check_bytes(call, index, err));
    TRY(check_number(call, index + 1, DTYPE_FLOAT, err));
    return check_number(call, index + 2, call->in[index]->dtype, err);
}

static enum status infer_pair(const struct op_call *call, struct error *err)
{
    const struct tensor *a = call->in[QLINEAR_PAIR_A], *b = call->in[QLINEAR_PAIR_B];
    const struct tensor *zero =
        call->inputs > QLINEAR_PAIR_Y_ZERO ? call->in[QLINEAR_PAIR_Y_ZERO] : NULL;
    char a_text[SHAPE_TEXT_BYTES], b_text[SHAPE_TEXT_BYTES];

    TRY(check_quantized(call, QLINEAR_PAIR_A, err));
    TRY(check_quantized(call, QLINEAR_PAIR_B, err));
    TRY(check_number(call, QLINEAR_PAIR_Y_SCALE, DTYPE_FLOAT, err));
    call->out[0]->dtype = zero != NULL ? zero->dtype : a->dtype;
    if (zero != NULL) {
        TRY(quantized_check_bytes(call, QLINEAR_PAIR_Y_ZERO, err));
        TRY(check_number(call, QLINEAR_PAIR_Y_ZERO, zero->dtype, err));
    }
    if (shape_broadcast(&a->shape, &b->shape, &call->out[0]->shape) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "shapes %s and %s do not go together",
                         shape_format(&a->shape, a_text), shape_format(&b->shape, b_text));
    return STATUS_OK;
}

#define PAIR(stem, onnx_name)                                                                      \
    const struct op_def op_##stem = {                                                              \
        .name = #stem,                                                                             \
        .onnx = {onnx_name, 1, "com.microsoft"},                                                   \
        .inputs = 8,                                                                               \
        .min_inputs = 7,                                                                           \
        .outputs = 1,                                                                              \
        .attrs_size = sizeof(struct qlinear_pair_attrs),                                           \
        .infer = infer_pair,                                                                       \
    }
PAIR(qlinear_add, "QLinearAdd");
PAIR(qlinear_mul, "QLinearMul");

static enum status infer_global_average_pool(const struct op_call *call, struct error *err)
{
    const struct qlinear_pool_attrs *attrs = call->attrs;
    const struct tensor *x = call->in[QLINEAR_POOL_X], *zero = call->in[QLINEAR_POOL_Y_ZERO];

    if (attrs->channels_last != 0)
        return error_set(err, STATUS_UNSUPPORTED, "channels_last is %lld; 0 is supported",
                         (long long)attrs->channels_last);
    if (x->shape.rank < 3)
        return error_set(err, STATUS_INVALID, "there are no dimensions to average over");
    TRY(check_quantized(call, QLINEAR_POOL_X, err));
    TRY(quantized_check_bytes(call, QLINEAR_POOL_Y_ZERO, err));
    TRY(check_number(call, QLINEAR_POOL_Y_SCALE, DTYPE_FLOAT, err));
    TRY(check_number(call, QLINEAR_POOL_Y_ZERO, zero->dtype, err));
    call->out[0]->dtype = zero->dtype;
    call->out[0]->shape = x->shape;
    for (size_t i = 2; i < x->shape.rank; i++)
        call->out[0]->shape.dims[i] = 1;
    return STATUS_OK;
}

static const struct attr_def pool_attr_defs[] = {
    OP_ATTR_INT(struct qlinear_pool_attrs, channels_last, 0), OP_ATTR_END};

const struct op_def op_qlinear_global_average_pool = {
    .name = "qlinear_global_average_pool",
    .onnx = {"QLinearGlobalAveragePool", 1, "com.microsoft"},
    .inputs = 5,
    .min_inputs = 5,
    .outputs = 1,
    .attrs = pool_attr_defs,
    .attrs_size = sizeof(struct qlinear_pool_attrs),
    .infer = infer_global_average_pool,
};

static enum status infer_byte_table(const struct op_call *call, struct error *err)
{
    TRY(quantized_check_bytes(call, BYTE_TABLE_X, err));
    TRY(quantized_check_bytes(call, BYTE_TABLE_TABLE, err));
    if (shape_count(&call->in[BYTE_TABLE_TABLE]->shape) != 256)
        return error_set(err, STATUS_INVALID, "the table does not have 256 elements");
    call->out[0]->dtype = call->in[BYTE_TABLE_TABLE]->dtype;
    call->out[0]->shape = call->in[BYTE_TABLE_X]->shape;
    return STATUS_OK;
}

const struct op_def op_byte_table = {
    .name = "byte_table",
    .onnx = {"ByteTable", .since = 1, .domain = "sluice"},
    .inputs = 2,
    .outputs = 1,
    .flags = OP_INTERNAL,
    .infer = infer_byte_table,
};
