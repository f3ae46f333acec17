/* Old forms of operators → the newest, one row an operator and change.
 *
 * Only changes that alter what a node of the old form says are listed; most new opsets only allow
 * more types, or add attributes whose absence means what it always meant.
 */
#include "onnx/upgrade.h"

#include <string.h>

const struct upgrade upgrade_table[] = {
    {"Add", 7, upgrade_broadcast},
    {"And", 7, upgrade_broadcast},
    {"BatchNormalization", UPGRADE_ALWAYS, upgrade_batch_normalization},
    {"Clip", 11, upgrade_clip},
    {"DFT", 20, upgrade_dft},
    {"Div", 7, upgrade_broadcast},
    {"Dropout", UPGRADE_ALWAYS, upgrade_dropout},
    {"Equal", 7, upgrade_broadcast},
    {"GRU", 7, upgrade_recurrent},
    {"Gemm", 7, upgrade_gemm},
    {"Greater", 7, upgrade_broadcast},
    {"GridSample", 20, upgrade_grid_sample},
    {"GroupNormalization", 21, upgrade_group_normalization},
    {"Hardmax", 13, upgrade_softmax},
    {"LSTM", 7, upgrade_recurrent},
    {"Less", 7, upgrade_broadcast},
    {"LogSoftmax", 13, upgrade_softmax},
    {"Mul", 7, upgrade_broadcast},
    {"Or", 7, upgrade_broadcast},
    {"PRelu", 7, upgrade_prelu},
    {"Pad", 11, upgrade_pad},
    {"Pow", 7, upgrade_broadcast},
    {"RNN", 7, upgrade_recurrent},
    {"ReduceL1", 18, upgrade_axes},
    {"ReduceL2", 18, upgrade_axes},
    {"ReduceLogSum", 18, upgrade_axes},
    {"ReduceLogSumExp", 18, upgrade_axes},
    {"ReduceMax", 18, upgrade_axes},
    {"ReduceMean", 18, upgrade_axes},
    {"ReduceMin", 18, upgrade_axes},
    {"ReduceProd", 18, upgrade_axes},
    {"ReduceSum", 13, upgrade_axes},
    {"ReduceSumSquare", 18, upgrade_axes},
    {"Resize", 11, upgrade_resize_10},
    {"Resize", UPGRADE_ALWAYS, upgrade_resize},
    {"RoiAlign", 16, upgrade_roi_align},
    {"Scan", 9, upgrade_scan},
    {"Scatter", UPGRADE_ALWAYS, upgrade_scatter},
    {"Slice", 10, upgrade_slice},
    {"Softmax", 13, upgrade_softmax},
    {"Split", 13, upgrade_split_attr},
    {"Split", 18, upgrade_split_count},
    {"Squeeze", 13, upgrade_axes},
    {"Sub", 7, upgrade_broadcast},
    {"TopK", 10, upgrade_top_k},
    {"Unsqueeze", 13, upgrade_axes},
    {"Upsample", UPGRADE_ALWAYS, upgrade_upsample},
    {"Xor", 7, upgrade_broadcast},
    {NULL, 0, NULL},
};

enum status upgrade_form(struct form *form, struct error *err)
{
    if (strcmp(form->domain, "com.microsoft") == 0)
        return upgrade_quantized(form, err);
    if (strcmp(form->domain, "ai.onnx.ml") == 0 && strcmp(form->op, "ZipMap") == 0)
        return upgrade_zip_map(form, err);
    if (form->domain[0] != '\0')
        return STATUS_OK;
    /* A rewrite that changes the operator gives its newest form, so rows of the new one must not
     * see the old opset: rows are found by the operator that the file named. */
    const char *op = form->op;

    for (const struct upgrade *row = upgrade_table; row->op != NULL; row++)
        if (form->opset < row->before && strcmp(row->op, op) == 0)
            TRY(row->fn(form, err));
    return STATUS_OK;
}

/* --- tools --------------------------------------------------------------------------------------
 */

static struct value *add_constant(struct form *form, enum dtype dtype, size_t rank, size_t count,
                                  const void *data)
{
    int64_t dim = (int64_t)count;
    struct shape shape = shape_make(rank, &dim);
    struct constant *constant = constant_allocate(dtype, &shape);

    if (constant == NULL)
        return NULL;
    if (count > 0)
        memcpy((void *)(uintptr_t)constant->tensor.data, data, count * dtype_bytes(dtype));
    return graph_add_constant(form->scope->graph, "", constant);
}

struct value *upgrade_ints(struct form *form, size_t count, const int64_t *values)
{
    return add_constant(form, DTYPE_INT64, 1, count, values);
}

struct value *upgrade_scalar_int(struct form *form, int64_t value)
{
    return add_constant(form, DTYPE_INT64, 0, 1, &value);
}

struct value *upgrade_floats(struct form *form, size_t count, const float *values)
{
    return add_constant(form, DTYPE_FLOAT, 1, count, values);
}

enum status upgrade_scalar_like(struct form *form, float number, const struct value *like,
                                struct value **out_value, struct error *err)
{
    enum dtype dtype = like == NULL || like->dtype == DTYPE_NONE ? DTYPE_FLOAT : like->dtype;
    union {
        float f;
        double d;
        uint16_t h;
    } element = {0};

    switch (dtype) {
    case DTYPE_FLOAT:
        element.f = number;
        break;
    case DTYPE_DOUBLE:
        element.d = (double)number;
        break;
    case DTYPE_FLOAT16:
        element.h = half_from_float(number);
        break;
    case DTYPE_BFLOAT16:
        element.h = bfloat16_from_float(number);
        break;
    default:
        return error_set(err, STATUS_UNSUPPORTED, "this form of it does not take type %s",
                         dtype_name(dtype));
    }
    *out_value = add_constant(form, dtype, 0, 1, &element);
    return *out_value != NULL ? STATUS_OK : reader_no_memory(err);
}

struct raw_attr upgrade_attr_int(const char *name, int64_t value)
{
    return (struct raw_attr){
        .name = {name, strlen(name)},
        .type = RAW_INT,
        .i = value,
    };
}

struct raw_attr upgrade_attr_text(const char *name, const char *text)
{
    return (struct raw_attr){
        .name = {name, strlen(name)},
        .type = RAW_STRING,
        .s = {text, strlen(text)},
    };
}

void upgrade_set(struct form *form, struct raw_attr attr)
{
    for (size_t i = 0; i < form->attrs.count; i++) {
        if (bytes_same(form->attrs.items[i].name, attr.name)) {
            form->attrs.items[i] = attr;
            return;
        }
    }
    form->attrs.items[form->attrs.count++] = attr; /* within FORM_SPARE */
}

int64_t upgrade_take_int(struct form *form, const char *name, int64_t absent)
{
    const struct raw_attr *attr = attrs_find(&form->attrs, name);
    int64_t value = attr != NULL && attr->type == RAW_INT ? attr->i : absent;

    attrs_remove(&form->attrs, name);
    return value;
}

enum status upgrade_add(struct form *form, const struct upgrade_node *node,
                        struct value **out_value, struct error *err)
{
    struct value *in[UPGRADE_INPUTS];
    struct value *out = node->out != NULL ? node->out : graph_add_value(form->scope->graph, "");
    struct raw_attr attrs[UPGRADE_ATTRS];
    struct form added = {
        .scope = form->scope,
        .op = node->op,
        .domain = "",
        .opset = OPSET_NEWEST,
        .inputs = node->inputs,
        .in = in,
        .outputs = 1,
        .out = &out,
        .attrs = {node->attrs, attrs},
    };

    if (out == NULL)
        return reader_no_memory(err);
    memcpy((void *)in, (const void *)node->in, sizeof(in));
    memcpy(attrs, node->attr, sizeof(attrs));
    added.name = arena_format(&form->scope->reader->arena, "%s/%s", form->name, node->op);
    if (added.name == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < node->inputs; i++)
        if (in[i] == NULL) /* a constant that could not be made */
            return reader_no_memory(err);
    TRY(build_form(&added, err));
    *out_value = out;
    return STATUS_OK;
}

void upgrade_grow(struct form *form, size_t inputs)
{
    if (form->inputs < inputs) /* within FORM_SPARE, and zeroed */
        form->inputs = inputs;
}
