/* Quantised operators of com.microsoft as what they mean: DequantizeLinear of their inputs, the
 * operator of ai.onnx, QuantizeLinear.  A pass makes steps on bytes of it again, one for all ways
 * in which models say it (graph/pass_fuse_quantized.c). */
#include <string.h>

#include "onnx/upgrade.h"

static enum status check_inputs(const struct form *form, size_t least, struct error *err)
{
    if (form->inputs < least)
        return error_set(err, STATUS_INVALID, "there are %zu inputs; %zu are needed", form->inputs,
                         least);
    return STATUS_OK;
}

static struct value *input(const struct form *form, size_t index)
{
    return index < form->inputs ? form->in[index] : NULL;
}

/* Real numbers of bytes at `index`, scale and zero point behind them (which may be left out). */
static enum status dequantized(struct form *form, size_t index, struct value **out_value,
                               struct error *err)
{
    struct upgrade_node node = {
        .op = "DequantizeLinear",
        .inputs = input(form, index + 2) != NULL ? 3 : 2,
        .in = {input(form, index), input(form, index + 1), input(form, index + 2)}};

    if (node.in[0] == NULL || node.in[1] == NULL)
        return error_set(err, STATUS_INVALID, "input %zu or its scale is missing", index);
    return upgrade_add(form, &node, out_value, err);
}

/* The form itself becomes the QuantizeLinear of `real`. */
static void end_in_bytes(struct form *form, struct value *real, struct value *scale,
                         struct value *zero)
{
    form->op = "QuantizeLinear";
    form->domain = "";
    form->opset = OPSET_NEWEST;
    form->in[0] = real;
    form->in[1] = scale;
    form->in[2] = zero;
    form->inputs = zero != NULL ? 3 : 2;
    form->attrs.count = 0;
}

/* Inputs: y_scale, y_zero_point, then x, scale, zero point of each part. */
static enum status lower_concat(struct form *form, struct error *err)
{
    const struct raw_attr *axis = attrs_find(&form->attrs, "axis");
    struct upgrade_node concat = {.op = "Concat", .attrs = 1};
    struct value *real, *scale = input(form, 0), *zero = input(form, 1);

    TRY(check_inputs(form, 5, err));
    concat.inputs = (form->inputs - 2) / 3;
    if (axis == NULL || scale == NULL || (form->inputs - 2) % 3 != 0)
        return error_set(err, STATUS_INVALID, "it must have an axis, and three inputs a part");
    if (concat.inputs > UPGRADE_INPUTS)
        return error_set(err, STATUS_UNSUPPORTED, "it has %zu parts; %d are supported",
                         concat.inputs, UPGRADE_INPUTS);
    concat.attr[0] = upgrade_attr_int("axis", axis->i);
    for (size_t i = 0; i < concat.inputs; i++)
        TRY(dequantized(form, 2 + 3 * i, &concat.in[i], err));
    TRY(upgrade_add(form, &concat, &real, err));
    end_in_bytes(form, real, scale, zero);
    return STATUS_OK;
}

/* Inputs: x, scale, zero point, y_scale, y_zero_point. */
static enum status lower_function(struct form *form, const char *op, struct error *err)
{
    struct upgrade_node node = {.op = op, .inputs = 1};
    const struct raw_attr *alpha = attrs_find(&form->attrs, "alpha");
    struct value *real;

    TRY(check_inputs(form, 4, err));
    if (input(form, 3) == NULL)
        return error_set(err, STATUS_INVALID, "the result's scale is missing");
    TRY(dequantized(form, 0, &node.in[0], err));
    if (alpha != NULL)
        node.attr[node.attrs++] = *alpha;
    TRY(upgrade_add(form, &node, &real, err));
    end_in_bytes(form, real, input(form, 3), input(form, 4));
    return STATUS_OK;
}

static enum status lower_sigmoid(struct form *form, struct error *err)
{
    return lower_function(form, "Sigmoid", err);
}

static enum status lower_leaky_relu(struct form *form, struct error *err)
{
    return lower_function(form, "LeakyRelu", err);
}

/* QGemm: A, its scale and zero point, B alike, C in units of the products, y_scale, y_zero_point.
 */
enum {
    QGEMM_A,
    QGEMM_A_SCALE,
    QGEMM_B = 3,
    QGEMM_B_SCALE,
    QGEMM_C = 6,
    QGEMM_Y_SCALE,
    QGEMM_Y_ZERO
};

static const float *constant_scales(const struct value *value, size_t *out_count)
{
    if (value->constant == NULL || value->dtype != DTYPE_FLOAT ||
        value->constant->tensor.data == NULL)
        return NULL;
    *out_count = (size_t)shape_count(&value->shape);
    return value->constant->tensor.data;
}

/* Of C: alpha times A's scale times B's, known here when those are. */
static enum status scale_of_c(struct form *form, float alpha, struct value **out_scale,
                              struct error *err)
{
    struct value *a = input(form, QGEMM_A_SCALE), *b = input(form, QGEMM_B_SCALE);
    size_t count_a = 0, count_b = 0;
    const float *scale_a = constant_scales(a, &count_a), *scale_b = constant_scales(b, &count_b);
    struct upgrade_node product = {.op = "Mul", .inputs = 2, .in = {a, b}};
    float *scales;

    if (scale_a == NULL || scale_b == NULL || count_a != 1) {
        TRY(upgrade_add(form, &product, &product.in[0], err));
        TRY(upgrade_scalar_like(form, alpha, NULL, &product.in[1], err));
        return upgrade_add(form, &product, out_scale, err);
    }
    scales = arena_take_array(&form->scope->reader->arena, count_b, sizeof(*scales));
    if (scales == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < count_b; i++)
        scales[i] = alpha * scale_a[0] * scale_b[i];
    if (count_b == 1)
        return upgrade_scalar_like(form, scales[0], NULL, out_scale, err);
    *out_scale = upgrade_floats(form, count_b, scales);
    return *out_scale != NULL ? STATUS_OK : reader_no_memory(err);
}

static enum status qgemm_inputs(struct form *form, float alpha, bool trans_b,
                                struct upgrade_node *gemm, struct error *err)
{
    struct upgrade_node b = {
        .op = "DequantizeLinear",
        .inputs = input(form, QGEMM_B + 2) != NULL ? 3 : 2,
        .in = {input(form, QGEMM_B), input(form, QGEMM_B_SCALE), input(form, QGEMM_B + 2)},
        .attrs = 1,
        .attr = {upgrade_attr_int("axis", trans_b ? 0 : 1)}};
    struct upgrade_node c = {.op = "DequantizeLinear",
                             .inputs = 2,
                             .in = {input(form, QGEMM_C)},
                             .attrs = 1,
                             .attr = {upgrade_attr_int("axis", -1)}};

    TRY(dequantized(form, QGEMM_A, &gemm->in[0], err));
    if (b.in[0] == NULL || b.in[1] == NULL)
        return error_set(err, STATUS_INVALID, "B or its scale is missing");
    TRY(upgrade_add(form, &b, &gemm->in[1], err));
    gemm->inputs = 2;
    if (c.in[0] == NULL)
        return STATUS_OK;
    TRY(scale_of_c(form, alpha, &c.in[1], err));
    gemm->inputs = 3;
    return upgrade_add(form, &c, &gemm->in[2], err);
}

/* Without y_scale the result is real. */
static enum status lower_gemm(struct form *form, struct error *err)
{
    const struct raw_attr *alpha = attrs_find(&form->attrs, "alpha");
    const struct raw_attr *trans_a = attrs_find(&form->attrs, "transA");
    const struct raw_attr *trans_b = attrs_find(&form->attrs, "transB");
    struct upgrade_node gemm = {.op = "Gemm"};
    struct value *real;

    TRY(check_inputs(form, QGEMM_B_SCALE + 1, err));
    TRY(qgemm_inputs(form, alpha != NULL ? alpha->f : 1, trans_b != NULL && trans_b->i != 0, &gemm,
                     err));
    if (input(form, QGEMM_Y_SCALE) == NULL) {
        form->op = "Gemm";
        form->domain = "";
        form->opset = OPSET_NEWEST;
        form->inputs = gemm.inputs;
        memcpy((void *)form->in, (const void *)gemm.in, gemm.inputs * sizeof(struct value *));
        return STATUS_OK;
    }
    if (alpha != NULL)
        gemm.attr[gemm.attrs++] = *alpha;
    if (trans_a != NULL)
        gemm.attr[gemm.attrs++] = *trans_a;
    if (trans_b != NULL)
        gemm.attr[gemm.attrs++] = *trans_b;
    TRY(upgrade_add(form, &gemm, &real, err));
    end_in_bytes(form, real, input(form, QGEMM_Y_SCALE), input(form, QGEMM_Y_ZERO));
    return STATUS_OK;
}

enum status upgrade_quantized(struct form *form, struct error *err)
{
    static const struct {
        const char *op;
        upgrade_fn fn;
    } rows[] = {
        {"QGemm", lower_gemm},
        {"QLinearConcat", lower_concat},
        {"QLinearLeakyRelu", lower_leaky_relu},
        {"QLinearSigmoid", lower_sigmoid},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(form->op, rows[i].op) == 0)
            return rows[i].fn(form, err);
    return STATUS_OK;
}
