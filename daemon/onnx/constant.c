/* Constant nodes: one attribute of some type into a constant of the graph. */
#include <string.h>

#include "onnx/internal.h"

static struct constant *list_constant(enum dtype dtype, bool scalar, size_t count, const void *data)
{
    int64_t dim = (int64_t)count;
    struct shape shape = shape_make(scalar ? 0 : 1, &dim);
    struct constant *constant = constant_allocate(dtype, &shape);

    if (constant != NULL && count > 0)
        memcpy((void *)(uintptr_t)constant->tensor.data, data, count * dtype_bytes(dtype));
    return constant;
}

static enum status text_constant(bool scalar, const struct bytes_list *texts,
                                 struct constant **out_constant, struct error *err)
{
    int64_t dim = (int64_t)texts->count;
    struct shape shape = shape_make(scalar ? 0 : 1, &dim);

    return tensor_from_texts(&shape, texts, out_constant, err);
}

static enum status read_constant(struct reader *reader, const struct raw_attr *attr,
                                 struct constant **out_constant, struct error *err)
{
    struct constant *constant = NULL;

    switch (attr->type) {
    case RAW_TENSOR:
        return tensor_read(reader, reader->file, attr->tensor, out_constant, NULL, err);
    case RAW_SPARSE_TENSOR:
        return tensor_read_sparse(reader, attr->sparse_tensor, out_constant, NULL, err);
    case RAW_FLOAT:
        constant = list_constant(DTYPE_FLOAT, true, 1, &attr->f);
        break;
    case RAW_FLOATS:
        constant = list_constant(DTYPE_FLOAT, false, attr->floats.count, attr->floats.values);
        break;
    case RAW_INT:
        constant = list_constant(DTYPE_INT64, true, 1, &attr->i);
        break;
    case RAW_INTS:
        constant = list_constant(DTYPE_INT64, false, attr->ints.count, attr->ints.values);
        break;
    case RAW_STRING:
        return text_constant(true, &(struct bytes_list){1, &attr->s}, out_constant, err);
    case RAW_STRINGS:
        return text_constant(false, &attr->strings, out_constant, err);
    default:
        return error_set(err, STATUS_UNSUPPORTED, "a constant of this kind is not supported");
    }
    if (constant == NULL)
        return reader_no_memory(err);
    *out_constant = constant;
    return STATUS_OK;
}

/* Which attribute a Constant may have, and of which type. */
static const struct {
    const char *name;
    enum raw_attr_type type;
} constant_attrs[] = {
    {"value", RAW_TENSOR},        {"sparse_value", RAW_SPARSE_TENSOR},
    {"value_float", RAW_FLOAT},   {"value_floats", RAW_FLOATS},
    {"value_int", RAW_INT},       {"value_ints", RAW_INTS},
    {"value_string", RAW_STRING}, {"value_strings", RAW_STRINGS},
};

enum status build_constant(struct scope *scope, const struct source *source, struct error *err)
{
    const struct raw_node *raw = source->raw;
    struct constant *constant = NULL;
    struct attr_list attrs;
    struct value *value;
    bool known = false;

    TRY(attrs_read(scope, &raw->attributes, &attrs, err));
    if (raw->inputs.count != 0 || raw->outputs.count != 1 || attrs.count != 1)
        return error_set(err, STATUS_INVALID,
                         "a constant has one output, one attribute, no inputs");
    for (size_t i = 0; i < sizeof(constant_attrs) / sizeof(constant_attrs[0]); i++)
        known |= bytes_equal(attrs.items[0].name, constant_attrs[i].name) &&
                 (int64_t)constant_attrs[i].type == attrs.items[0].type;
    if (!known)
        return error_set(err, STATUS_INVALID, "attribute '%.*s' makes no constant",
                         (int)(attrs.items[0].name.size > 100 ? 100 : attrs.items[0].name.size),
                         attrs.items[0].name.data);
    TRY(read_constant(scope->reader, &attrs.items[0], &constant, err));
    value = graph_add_constant(scope->graph, "", constant);
    if (value == NULL)
        return reader_no_memory(err);
    return scope_bind(scope, raw->outputs.items[0], value, err);
}
