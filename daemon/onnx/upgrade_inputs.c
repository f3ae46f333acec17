/* Attributes that became inputs, in new opsets. */
#include "onnx/upgrade.h"

#include <string.h>

/* Turns a list of integers into input `index`; nothing when the attribute is not given.
 * *out_given may be NULL. */
static enum status ints_to_input(struct form *form, const char *name, size_t index, bool *out_given,
                                 struct error *err)
{
    const struct raw_attr *attr = attrs_find(&form->attrs, name);
    struct value *value;

    if (out_given != NULL)
        *out_given = attr != NULL;
    if (attr == NULL)
        return STATUS_OK;
    if (attr->type != RAW_INTS)
        return error_set(err, STATUS_INVALID, "attribute '%s' must be integers", name);
    value = upgrade_ints(form, attr->ints.count, attr->ints.values);
    if (value == NULL)
        return reader_no_memory(err);
    upgrade_grow(form, index + 1);
    form->in[index] = value;
    attrs_remove(&form->attrs, name);
    return STATUS_OK;
}

static enum status float_to_input(struct form *form, const char *name, size_t index,
                                  struct error *err)
{
    const struct raw_attr *attr = attrs_find(&form->attrs, name);

    if (attr == NULL)
        return STATUS_OK;
    if (attr->type != RAW_FLOAT)
        return error_set(err, STATUS_INVALID, "attribute '%s' must be a float", name);
    upgrade_grow(form, index + 1);
    TRY(upgrade_scalar_like(form, attr->f, form->in[0], &form->in[index], err));
    attrs_remove(&form->attrs, name);
    return STATUS_OK;
}

/* The old forms have exactly `inputs` inputs: what follows came with the new form. */
static enum status expect_inputs(const struct form *form, size_t inputs, struct error *err)
{
    if (form->inputs != inputs)
        return error_set(err, STATUS_INVALID, "it has %zu inputs, in its opset it must have %zu",
                         form->inputs, inputs);
    return STATUS_OK;
}

enum status upgrade_clip(struct form *form, struct error *err)
{
    TRY(expect_inputs(form, 1, err));
    TRY(float_to_input(form, "min", 1, err));
    return float_to_input(form, "max", 2, err);
}

enum status upgrade_pad(struct form *form, struct error *err)
{
    bool given;

    TRY(expect_inputs(form, 1, err));
    TRY(ints_to_input(form, "pads", 1, &given, err));
    if (!given)
        return error_set(err, STATUS_INVALID, "attribute 'pads' is missing");
    return float_to_input(form, "value", 2, err);
}

enum status upgrade_slice(struct form *form, struct error *err)
{
    bool starts, ends;

    TRY(expect_inputs(form, 1, err));
    TRY(ints_to_input(form, "starts", 1, &starts, err));
    TRY(ints_to_input(form, "ends", 2, &ends, err));
    if (!starts || !ends)
        return error_set(err, STATUS_INVALID, "attribute 'starts' or 'ends' is missing");
    return ints_to_input(form, "axes", 3, NULL, err);
}

enum status upgrade_split_attr(struct form *form, struct error *err)
{
    TRY(expect_inputs(form, 1, err));
    return ints_to_input(form, "split", 1, NULL, err);
}

/* Without sizes the parts are equal; how many there are became an attribute. */
enum status upgrade_split_count(struct form *form, struct error *err)
{
    (void)err;
    if (form->inputs < 2 || form->in[1] == NULL)
        upgrade_set(form, upgrade_attr_int("num_outputs", (int64_t)form->outputs));
    return STATUS_OK;
}

/* Reductions, Squeeze, Unsqueeze.  An empty list reduces everything, as none does. */
enum status upgrade_axes(struct form *form, struct error *err)
{
    const struct raw_attr *attr = attrs_find(&form->attrs, "axes");

    TRY(expect_inputs(form, 1, err));
    if (attr != NULL && attr->type == RAW_INTS && attr->ints.count == 0 &&
        strncmp(form->op, "Reduce", 6) == 0)
        attrs_remove(&form->attrs, "axes");
    return ints_to_input(form, "axes", 1, NULL, err);
}

enum status upgrade_top_k(struct form *form, struct error *err)
{
    int64_t k = upgrade_take_int(form, "k", -1);

    TRY(expect_inputs(form, 1, err));
    if (k < 0)
        return error_set(err, STATUS_INVALID, "attribute 'k' is missing or negative");
    upgrade_grow(form, 2);
    form->in[1] = upgrade_ints(form, 1, &k);
    return form->in[1] != NULL ? STATUS_OK : reader_no_memory(err);
}

enum status upgrade_dft(struct form *form, struct error *err)
{
    int64_t axis = upgrade_take_int(form, "axis", 1);

    if (form->inputs > 2)
        return expect_inputs(form, 2, err);
    upgrade_grow(form, 3);
    form->in[2] = upgrade_scalar_int(form, axis);
    return form->in[2] != NULL ? STATUS_OK : reader_no_memory(err);
}

/* --- Resize and what it was before --------------------------------------------------------------
 */

/* The one rule of opsets below 11: x_in = x_out / scale. */
static void set_old_rule(struct form *form, const char *nearest_mode)
{
    upgrade_set(form, upgrade_attr_text("coordinate_transformation_mode", "asymmetric"));
    upgrade_set(form, upgrade_attr_text("nearest_mode", nearest_mode));
}

/* X, scales → X, (no roi), scales */
static void move_scales(struct form *form, struct value *scales)
{
    upgrade_grow(form, 3);
    form->in[1] = NULL;
    form->in[2] = scales;
}

static enum status old_scales(struct form *form, struct value **out_scales, struct error *err)
{
    const struct raw_attr *list = attrs_find(&form->attrs, "scales");
    const struct raw_attr *height = attrs_find(&form->attrs, "height_scale");
    const struct raw_attr *width = attrs_find(&form->attrs, "width_scale");

    if (form->opset >= 9) {
        TRY(expect_inputs(form, 2, err));
        *out_scales = form->in[1];
        return STATUS_OK;
    }
    TRY(expect_inputs(form, 1, err));
    if (form->opset >= 7 && list != NULL && list->type == RAW_FLOATS) {
        *out_scales = upgrade_floats(form, list->floats.count, list->floats.values);
        attrs_remove(&form->attrs, "scales");
    } else if (height != NULL && height->type == RAW_FLOAT && width != NULL &&
               width->type == RAW_FLOAT) {
        const float scales[] = {1, 1, height->f, width->f};

        *out_scales = upgrade_floats(form, 4, scales);
        attrs_remove(&form->attrs, "height_scale");
        attrs_remove(&form->attrs, "width_scale");
    } else {
        return error_set(err, STATUS_INVALID, "its scales are missing");
    }
    return *out_scales != NULL ? STATUS_OK : reader_no_memory(err);
}

enum status upgrade_upsample(struct form *form, struct error *err)
{
    struct raw_attr *mode = attrs_find(&form->attrs, "mode");
    struct value *scales;

    TRY(old_scales(form, &scales, err));
    if (mode != NULL && mode->type == RAW_STRING && bytes_equal(mode->s, "bilinear"))
        upgrade_set(form, upgrade_attr_text("mode", "linear")); /* opset 1's word */
    move_scales(form, scales);
    set_old_rule(form, "floor");
    form->op = "Resize";
    return STATUS_OK;
}

/* Opset 10 rounds down when it enlarges and up when it shrinks; one node of today does one of both.
 */
static enum status nearest_mode_10(const struct value *scales, const char **out_mode,
                                   struct error *err)
{
    const struct constant *constant = scales == NULL ? NULL : scales->constant;
    bool up = false, down = false;

    if (constant == NULL || constant->tensor.dtype != DTYPE_FLOAT)
        return error_set(err, STATUS_UNSUPPORTED,
                         "nearest with computed scales is not supported in opset 10");
    for (int64_t i = 0; i < shape_count(&constant->tensor.shape); i++) {
        float scale = ((const float *)constant->tensor.data)[i];

        up |= scale > 1;
        down |= scale < 1;
    }
    if (up && down)
        return error_set(err, STATUS_UNSUPPORTED,
                         "nearest that enlarges and shrinks at once is not supported in opset 10");
    *out_mode = down ? "ceil" : "floor";
    return STATUS_OK;
}

enum status upgrade_resize_10(struct form *form, struct error *err)
{
    const struct raw_attr *mode = attrs_find(&form->attrs, "mode");
    const char *nearest = "floor";

    TRY(expect_inputs(form, 2, err));
    if (mode == NULL || (mode->type == RAW_STRING && bytes_equal(mode->s, "nearest")))
        TRY(nearest_mode_10(form->in[1], &nearest, err));
    move_scales(form, form->in[1]);
    set_old_rule(form, nearest);
    return STATUS_OK;
}

static bool is_empty(const struct value *value)
{
    return value != NULL && value->constant != NULL &&
           shape_count(&value->constant->tensor.shape) == 0;
}

/* Opsets 11 and 12 say "none" by an empty tensor, later ones by leaving it out. */
enum status upgrade_resize(struct form *form, struct error *err)
{
    const struct raw_attr *rule = attrs_find(&form->attrs, "coordinate_transformation_mode");
    bool needs_roi =
        rule != NULL && rule->type == RAW_STRING && bytes_equal(rule->s, "tf_crop_and_resize");

    (void)err;
    if (form->inputs > 1 && !needs_roi)
        form->in[1] = NULL;
    if (form->inputs > 2 && is_empty(form->in[2]))
        form->in[2] = NULL;
    if (form->inputs > 3 && is_empty(form->in[3]))
        form->in[3] = NULL;
    return STATUS_OK;
}
