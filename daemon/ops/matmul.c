#include "ops/matmul.h"

#include <inttypes.h>

#include "ops/conv.h"

/* Leading dimensions of an operand: everything before its matrix. */
static struct shape leading(const struct shape *shape)
{
    return shape_make(shape->rank > 2 ? shape->rank - 2 : 0, shape->dims);
}

enum status matmul_resolve(const struct shape *a, const struct shape *b, bool trans_a, bool trans_b,
                           struct matmul_geometry *out_geometry, struct error *err)
{
    struct matmul_geometry geometry = {.a_is_vector = a->rank == 1, .b_is_vector = b->rank == 1};
    struct shape a_leading = leading(a), b_leading = leading(b);
    char a_text[SHAPE_TEXT_BYTES], b_text[SHAPE_TEXT_BYTES];
    int64_t b_k;

    if (a->rank < 1 || b->rank < 1 || (geometry.a_is_vector && trans_a) ||
        (geometry.b_is_vector && trans_b))
        return error_set(err, STATUS_INVALID, "shapes %s and %s cannot be multiplied",
                         shape_format(a, a_text), shape_format(b, b_text));
    geometry.k = a->dims[a->rank - (trans_a ? 2 : 1)];
    geometry.m = geometry.a_is_vector ? 1 : a->dims[a->rank - (trans_a ? 1 : 2)];
    b_k = geometry.b_is_vector ? b->dims[0] : b->dims[b->rank - (trans_b ? 1 : 2)];
    geometry.n = geometry.b_is_vector ? 1 : b->dims[b->rank - (trans_b ? 2 : 1)];
    if (geometry.k != b_k || shape_broadcast(&a_leading, &b_leading, &geometry.batch) != STATUS_OK)
        return error_set(err, STATUS_INVALID, "shapes %s and %s cannot be multiplied",
                         shape_format(a, a_text), shape_format(b, b_text));
    geometry.batches = shape_count(&geometry.batch);
    *out_geometry = geometry;
    return STATUS_OK;
}

struct shape matmul_output_shape(const struct matmul_geometry *geometry)
{
    struct shape shape = geometry->batch;

    if (!geometry->a_is_vector)
        shape.dims[shape.rank++] = geometry->m;
    if (!geometry->b_is_vector)
        shape.dims[shape.rank++] = geometry->n;
    return shape;
}

uint64_t matmul_flops(const struct shape *out, int64_t k)
{
    return 2 * (uint64_t)shape_count(out) * (uint64_t)k;
}

int64_t matmul_operand_index(const struct matmul_geometry *geometry, const struct shape *operand,
                             int64_t index)
{
    struct shape own = leading(operand);
    int64_t result = 0, unit = 1;

    for (size_t i = 0; i < own.rank; i++) {
        int64_t dim = own.dims[own.rank - 1 - i];
        int64_t of_batch = geometry->batch.dims[geometry->batch.rank - 1 - i];
        int64_t at = index % of_batch;

        index /= of_batch;
        result += (dim == 1 ? 0 : at) * unit;
        unit *= dim;
    }
    return result;
}

static enum status check_bias(const struct op_call *call, bool has_bias, int64_t n,
                              struct error *err)
{
    const struct tensor *bias = call->inputs > MATMUL_BIAS ? call->in[MATMUL_BIAS] : NULL;

    if (!has_bias && bias == NULL)
        return STATUS_OK;
    if (!has_bias)
        return error_set(err, STATUS_INVALID, "it has %zu inputs; 2 are allowed", call->inputs);
    if (bias == NULL || bias->dtype != call->in[0]->dtype || bias->shape.rank != 1 ||
        bias->shape.dims[0] != n)
        return error_set(err, STATUS_INVALID, "the fused bias is not a vector of %" PRId64, n);
    return STATUS_OK;
}

static enum status infer_matmul(const struct op_call *call, struct error *err)
{
    const struct matmul_attrs *attrs = call->attrs;
    const struct tensor *a = call->in[MATMUL_A], *b = call->in[MATMUL_B];
    struct matmul_geometry geometry;

    if (b->dtype != a->dtype)
        return error_set(err, STATUS_INVALID, "input 1 is of type %s where input 0 is of type %s",
                         dtype_name(b->dtype), dtype_name(a->dtype));
    TRY(matmul_resolve(&a->shape, &b->shape, attrs->trans_a, attrs->trans_b, &geometry, err));
    TRY(check_bias(call, attrs->has_bias, geometry.n, err));
    call->out[0]->dtype = a->dtype;
    call->out[0]->shape = matmul_output_shape(&geometry);
    return epilogue_check(call, attrs->epilogue.has_residual, MATMUL_RESIDUAL, err);
}

static uint64_t flops(const struct op_call *call)
{
    const struct matmul_attrs *attrs = call->attrs;
    const struct shape *a = &call->in[MATMUL_A]->shape;

    return matmul_flops(&call->out[0]->shape, a->dims[a->rank - (attrs->trans_a ? 2 : 1)]);
}

const struct op_def op_matmul = {
    .name = "matmul",
    .onnx = {"MatMul", .since = 13},
    .inputs = 4,
    .min_inputs = 2,
    .outputs = 1,
    .dtypes =
        DTYPE_FLOATS | DTYPE_BIT(INT32) | DTYPE_BIT(INT64) | DTYPE_BIT(UINT32) | DTYPE_BIT(UINT64),
    .attrs_size = sizeof(struct matmul_attrs),
    .infer = infer_matmul,
    .flops = flops,
};
