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

enum status upgrade_quantized(struct form *form, struct error *err)
{
    static const struct {
        const char *op;
        upgrade_fn fn;
    } rows[] = {
        {"QLinearConcat", lower_concat},
        {"QLinearLeakyRelu", lower_leaky_relu},
        {"QLinearSigmoid", lower_sigmoid},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(form->op, rows[i].op) == 0)
            return rows[i].fn(form, err);
    return STATUS_OK;
}
