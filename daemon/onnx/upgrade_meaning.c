/* Forms that meant something else in old opsets, and what only training would want. */
#include "onnx/upgrade.h"

#include <inttypes.h>
#include <string.h>

/* value → Reshape(value, Shape(like)) in the place of the form itself. */
static enum status end_in_shape_of(struct form *form, struct value *value, struct value *like,
                                   struct error *err)
{
    struct value *shape;

    TRY(upgrade_add(form, &(struct upgrade_node){.op = "Shape", .inputs = 1, .in = {like}}, &shape,
                    err));
    form->op = "Reshape";
    form->inputs = 2;
    form->in[0] = value;
    form->in[1] = shape;
    form->attrs.count = 0;
    return STATUS_OK;
}

/* Below opset 13 the input is taken as a matrix, cut before `axis`, and each row is normalised as a
 * whole; today along one axis.  With the last axis both are the same. */
enum status upgrade_softmax(struct form *form, struct error *err)
{
    int64_t axis = upgrade_take_int(form, "axis", 1);
    struct value *x, *flat, *rows;

    if (form->inputs != 1 || form->outputs != 1 || form->in[0] == NULL)
        return error_set(err, STATUS_INVALID, "it must have one input and one output");
    x = form->in[0];
    if (axis == -1 || (x->is_input && x->shape_known && x->shape.rank > 0 &&
                       axis == (int64_t)x->shape.rank - 1)) {
        upgrade_set(form, upgrade_attr_int("axis", -1));
        return STATUS_OK;
    }
    TRY(upgrade_add(form,
                    &(struct upgrade_node){.op = "Flatten",
                                           .inputs = 1,
                                           .in = {x},
                                           .attrs = 1,
                                           .attr = {upgrade_attr_int("axis", axis)}},
                    &flat, err));
    TRY(upgrade_add(form,
                    &(struct upgrade_node){.op = form->op,
                                           .inputs = 1,
                                           .in = {flat},
                                           .attrs = 1,
                                           .attr = {upgrade_attr_int("axis", -1)}},
                    &rows, err));
    return end_in_shape_of(form, rows, x, err);
}

/* x → [its first `kept` dimensions, middle, the rest]; middle is a value of shape [1]. */
static enum status regroup(struct form *form, struct value *x, size_t kept, struct value *middle,
                           struct value **out_value, struct error *err)
{
    static const int64_t zeros[SHAPE_MAX_RANK], rest[] = {-1};
    struct value *shape;

    TRY(upgrade_add(form,
                    &(struct upgrade_node){.op = "Concat",
                                           .inputs = 3,
                                           .in = {upgrade_ints(form, kept, zeros), middle,
                                                  upgrade_ints(form, 1, rest)},
                                           .attrs = 1,
                                           .attr = {upgrade_attr_int("axis", 0)}},
                    &shape, err));
    return upgrade_add(form, &(struct upgrade_node){.op = "Reshape", .inputs = 2, .in = {x, shape}},
                       out_value, err);
}

static enum status reshape_to(struct form *form, struct value *x, size_t rank, const int64_t *dims,
                              struct value **out_value, struct error *err)
{
    return upgrade_add(form,
                       &(struct upgrade_node){
                           .op = "Reshape", .inputs = 2, .in = {x, upgrade_ints(form, rank, dims)}},
                       out_value, err);
}

/* Opset 6: B's dimensions meet those of A from `axis` on.  A is regrouped into three dimensions of
 * which the middle one is all of B, B gets a dimension of one behind. */
static enum status broadcast_from(struct form *form, int64_t axis, struct error *err)
{
    static const int64_t one[] = {1}, column[] = {-1, 1};
    struct value *a = form->in[0], *b = form->in[1], *size, *groups, *columns, *result;
    struct value *middle;

    TRY(upgrade_add(form, &(struct upgrade_node){.op = "Size", .inputs = 1, .in = {b}}, &size,
                    err));
    TRY(reshape_to(form, size, 1, one, &middle, err));
    TRY(regroup(form, a, (size_t)axis, middle, &groups, err));
    TRY(reshape_to(form, b, 2, column, &columns, err));
    TRY(upgrade_add(form,
                    &(struct upgrade_node){.op = form->op, .inputs = 2, .in = {groups, columns}},
                    &result, err));
    return end_in_shape_of(form, result, a, err);
}

enum status upgrade_broadcast(struct form *form, struct error *err)
{
    bool has_axis = attrs_find(&form->attrs, "axis") != NULL;
    int64_t axis = upgrade_take_int(form, "axis", 0);
    bool broadcast = upgrade_take_int(form, "broadcast", 0) != 0;

    if (!broadcast || !has_axis)
        return STATUS_OK; /* equal shapes, or B meets the last dimensions: as today */
    if (form->inputs != 2 || form->in[0] == NULL || form->in[1] == NULL)
        return error_set(err, STATUS_INVALID, "it must have two inputs");
    if (axis < 0 || axis >= SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNSUPPORTED,
                         "attribute 'axis' is %" PRId64 ", supported are 0 to %d", axis,
                         SHAPE_MAX_RANK - 1);
    return broadcast_from(form, axis, err);
}

/* Opset 6: one slope for all, or one a channel (dimension 1). */
enum status upgrade_prelu(struct form *form, struct error *err)
{
    static const int64_t three[] = {0, 0, -1}, column[] = {-1, 1};
    struct value *x, *slope, *result;

    if (form->inputs != 2 || form->in[0] == NULL || form->in[1] == NULL)
        return error_set(err, STATUS_INVALID, "it must have two inputs");
    if (form->in[1]->constant != NULL && shape_count(&form->in[1]->constant->tensor.shape) == 1)
        return STATUS_OK;
    TRY(reshape_to(form, form->in[0], 3, three, &x, err));
    TRY(reshape_to(form, form->in[1], 2, column, &slope, err));
    TRY(upgrade_add(form, &(struct upgrade_node){.op = "PRelu", .inputs = 2, .in = {x, slope}},
                    &result, err));
    return end_in_shape_of(form, result, form->in[0], err);
}

static bool wants_output_behind(const struct form *form, size_t first)
{
    for (size_t i = first; i < form->outputs; i++)
        if (form->out[i] != NULL)
            return true;
    return false;
}

enum status upgrade_batch_normalization(struct form *form, struct error *err)
{
    bool trains = upgrade_take_int(form, "training_mode", 0) != 0;

    attrs_remove(&form->attrs, "momentum"); /* only training reads it */
    attrs_remove(&form->attrs, "consumed_inputs");
    if (form->opset < 7)
        trains |= upgrade_take_int(form, "is_test", 1) == 0;
    if (trains || wants_output_behind(form, 1))
        return error_set(err, STATUS_UNSUPPORTED,
                         "it is in training mode; this program only does inference");
    if (form->opset < 9 && upgrade_take_int(form, "spatial", 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "attribute 'spatial' is 0, supported is 1");
    return STATUS_OK;
}

static bool is_false(const struct value *value)
{
    const struct tensor *tensor = value->constant == NULL ? NULL : &value->constant->tensor;

    return tensor != NULL && tensor->dtype == DTYPE_BOOL && shape_count(&tensor->shape) == 1 &&
           *(const unsigned char *)tensor->data == 0;
}

/* The mask of a Dropout that drops nothing: true everywhere, of the data's type below opset 10. */
static enum status make_mask(struct form *form, struct error *err)
{
    /* TensorProto { dims: 1  data_type: BOOL  int32_data: 1 } */
    static const char proto[] = {0x08, 0x01, 0x10, 0x09, 0x2a, 0x01, 0x01};
    struct upgrade_node ones = {.op = "ConstantOfShape", .inputs = 1, .attrs = 1};
    struct value *shape, *mask;

    TRY(upgrade_add(form, &(struct upgrade_node){.op = "Shape", .inputs = 1, .in = {form->in[0]}},
                    &shape, err));
    ones.in[0] = shape;
    ones.attr[0] = (struct raw_attr){
        .name = {"value", 5}, .type = RAW_TENSOR, .tensor = {proto, sizeof(proto)}};
    ones.out = form->opset < 10 ? NULL : form->out[1];
    TRY(upgrade_add(form, &ones, &mask, err));
    if (form->opset >= 10)
        return STATUS_OK;
    return upgrade_add(
        form,
        &(struct upgrade_node){
            .op = "CastLike", .inputs = 2, .in = {mask, form->in[0]}, .out = form->out[1]},
        &mask, err);
}

/* Inference drops nothing. */
enum status upgrade_dropout(struct form *form, struct error *err)
{
    if (form->opset < 7 && upgrade_take_int(form, "is_test", 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "it is in training mode; this program only does inference");
    if (form->inputs > 2 && form->in[2] != NULL && !is_false(form->in[2]))
        return error_set(err, STATUS_UNSUPPORTED,
                         "its training mode is not fixed to false; this program only does "
                         "inference");
    if (form->inputs < 1 || form->in[0] == NULL || form->outputs > 2)
        return error_set(err, STATUS_INVALID, "it must have an input and at most two outputs");
    if (form->outputs > 1 && form->out[1] != NULL)
        TRY(make_mask(form, err));
    form->op = "Identity";
    form->inputs = 1;
    form->outputs = form->outputs > 1 ? 1 : form->outputs;
    form->attrs.count = 0;
    return STATUS_OK;
}

/* Below opset 21 scale and bias are given per group, today per channel: each is repeated. */
static enum status repeat_per_channel(struct form *form, size_t index, struct value *shape,
                                      struct error *err)
{
    static const int64_t behind[] = {1}, flat[] = {-1};
    struct value *value;

    TRY(upgrade_add(form,
                    &(struct upgrade_node){.op = "Unsqueeze",
                                           .inputs = 2,
                                           .in = {form->in[index], upgrade_ints(form, 1, behind)}},
                    &value, err));
    TRY(upgrade_add(form, &(struct upgrade_node){.op = "Expand", .inputs = 2, .in = {value, shape}},
                    &value, err));
    return reshape_to(form, value, 1, flat, &form->in[index], err);
}

enum status upgrade_group_normalization(struct form *form, struct error *err)
{
    const struct raw_attr *attr = attrs_find(&form->attrs, "num_groups");
    struct value *channels, *each, *shape;
    int64_t groups = attr == NULL ? 0 : attr->i;

    if (groups < 1 || form->inputs != 3 || form->in[0] == NULL || form->in[1] == NULL ||
        form->in[2] == NULL)
        return error_set(err, STATUS_INVALID, "it must have three inputs and groups");
    TRY(upgrade_add(
        form,
        &(struct upgrade_node){.op = "Shape",
                               .inputs = 1,
                               .in = {form->in[0]},
                               .attrs = 2,
                               .attr = {upgrade_attr_int("start", 1), upgrade_attr_int("end", 2)}},
        &channels, err));
    TRY(upgrade_add(form,
                    &(struct upgrade_node){
                        .op = "Div", .inputs = 2, .in = {channels, upgrade_ints(form, 1, &groups)}},
                    &each, err));
    TRY(upgrade_add(form,
                    &(struct upgrade_node){.op = "Concat",
                                           .inputs = 2,
                                           .in = {upgrade_ints(form, 1, &groups), each},
                                           .attrs = 1,
                                           .attr = {upgrade_attr_int("axis", 0)}},
                    &shape, err));
    TRY(repeat_per_channel(form, 1, shape, err));
    return repeat_per_channel(form, 2, shape, err);
}

/* Opset 20 renamed the modes for more dimensions than two. */
enum status upgrade_grid_sample(struct form *form, struct error *err)
{
    const struct raw_attr *mode = attrs_find(&form->attrs, "mode");

    (void)err;
    if (mode != NULL && bytes_equal(mode->s, "bilinear"))
        upgrade_set(form, upgrade_attr_text("mode", "linear"));
    else if (mode != NULL && bytes_equal(mode->s, "bicubic"))
        upgrade_set(form, upgrade_attr_text("mode", "cubic"));
    return STATUS_OK;
}

enum status upgrade_roi_align(struct form *form, struct error *err)
{
    (void)err;
    upgrade_set(form, upgrade_attr_text("coordinate_transformation_mode", "output_half_pixel"));
    return STATUS_OK;
}

/* C may be broadcast since opset 7 without saying so. */
enum status upgrade_gemm(struct form *form, struct error *err)
{
    (void)err;
    attrs_remove(&form->attrs, "broadcast");
    return STATUS_OK;
}

/* Whether Y is made is now said by whether it has a name. */
enum status upgrade_recurrent(struct form *form, struct error *err)
{
    (void)err;
    attrs_remove(&form->attrs, "output_sequence");
    return STATUS_OK;
}

enum status upgrade_scatter(struct form *form, struct error *err)
{
    (void)err;
    form->op = "ScatterElements";
    return STATUS_OK;
}

enum status upgrade_scan(struct form *form, struct error *err)
{
    (void)form;
    return error_set(err, STATUS_UNSUPPORTED, "its form below opset 9 is not supported");
}
