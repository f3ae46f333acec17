/* Attributes: from the wire to a list, from the list into an operator's attribute struct. */
#include "onnx/internal.h"

#include <inttypes.h>
#include <string.h>

static const char *const type_words[RAW_TYPE_COUNT] = {
    "nothing", "a float",         "an integer",     "a string", "a tensor",
    "a graph", "floats",          "integers",       "strings",  "tensors",
    "graphs",  "a sparse tensor", "sparse tensors", "a type",   "types",
};

/* Files of old IR versions have no `type`; then what is there tells. */
static int64_t guess_type(const struct raw_attr *attr)
{
    static const struct {
        uint32_t field;
        enum raw_attr_type type;
    } fields[] = {
        {ATTR_FIELD_F, RAW_FLOAT},
        {ATTR_FIELD_I, RAW_INT},
        {4, RAW_STRING},
        {5, RAW_TENSOR},
        {6, RAW_GRAPH},
        {7, RAW_FLOATS},
        {8, RAW_INTS},
        {9, RAW_STRINGS},
        {22, RAW_SPARSE_TENSOR},
    };

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if ((attr->present & UINT32_C(1) << fields[i].field) != 0)
            return fields[i].type;
    return RAW_NONE;
}

static int text_length(struct bytes text)
{
    return (int)(text.size > 100 ? 100 : text.size);
}

static enum status read_attr(struct scope *scope, struct bytes proto, struct raw_attr *attr,
                             bool *out_given, struct error *err)
{
    TRY(proto_read_attr(&scope->reader->arena, proto, attr, err));
    *out_given = true;
    if (attr->type == RAW_NONE)
        attr->type = guess_type(attr);
    if (attr->type < 0 || attr->type >= RAW_TYPE_COUNT)
        return error_set(err, STATUS_INVALID, "attribute '%.*s' has the unknown type %" PRId64,
                         text_length(attr->name), attr->name.data, attr->type);
    if (attr->reference.size == 0)
        return STATUS_OK;
    /* Inside a function: the call's attribute under this one's name; none given means none here. */
    *out_given = false;
    for (size_t i = 0; scope->call != NULL && i < scope->call->count; i++) {
        const struct raw_attr *given = &scope->call->items[i];

        if (bytes_same(given->name, attr->reference)) {
            struct bytes name = attr->name;

            *attr = *given;
            attr->name = name;
            *out_given = true;
        }
    }
    if (scope->call == NULL)
        return error_set(err, STATUS_INVALID,
                         "attribute '%.*s' refers to a function's attribute outside of functions",
                         text_length(attr->name), attr->name.data);
    return STATUS_OK;
}

enum status attrs_read(struct scope *scope, const struct bytes_list *protos,
                       struct attr_list *out_attrs, struct error *err)
{
    struct attr_list attrs = {0};

    attrs.items =
        arena_take_array(&scope->reader->arena, protos->count + FORM_SPARE, sizeof(*attrs.items));
    if (attrs.items == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < protos->count; i++) {
        struct raw_attr *attr = &attrs.items[attrs.count];
        bool given;

        TRY(read_attr(scope, protos->items[i], attr, &given, err));
        for (size_t k = 0; given && k < attrs.count; k++)
            if (bytes_same(attrs.items[k].name, attr->name))
                return error_set(err, STATUS_INVALID, "attribute '%.*s' is given twice",
                                 text_length(attr->name), attr->name.data);
        attrs.count += given;
    }
    *out_attrs = attrs;
    return STATUS_OK;
}

struct raw_attr *attrs_find(const struct attr_list *attrs, const char *name)
{
    for (size_t i = 0; i < attrs->count; i++)
        if (bytes_equal(attrs->items[i].name, name))
            return &attrs->items[i];
    return NULL;
}

void attrs_remove(struct attr_list *attrs, const char *name)
{
    struct raw_attr *attr = attrs_find(attrs, name);

    if (attr == NULL)
        return;
    attrs->count--;
    *attr = attrs->items[attrs->count];
}

/* --- into the attribute struct ------------------------------------------------------------------
 */

static enum status fill_enum(const struct raw_attr *attr, const struct attr_def *def, int *field,
                             struct error *err)
{
    for (int i = 0; def->words[i] != NULL; i++) {
        if (bytes_equal(attr->s, def->words[i])) {
            *field = i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_UNSUPPORTED, "attribute '%s' is '%.*s', which is not supported",
                     def->name, text_length(attr->s), attr->s.data);
}

static enum status fill_ints(struct graph *graph, const struct raw_attr *attr, struct ints *field,
                             struct error *err)
{
    /* Never NULL, so that "given but empty" and "not given" stay apart. */
    field->count = attr->ints.count;
    field->values =
        arena_copy(&graph->arena, attr->ints.values, attr->ints.count * sizeof(*attr->ints.values));
    return field->values != NULL ? STATUS_OK : reader_no_memory(err);
}

static enum status fill_floats(struct graph *graph, const struct raw_attr *attr,
                               struct floats *field, struct error *err)
{
    field->count = attr->floats.count;
    field->values = arena_copy(&graph->arena, attr->floats.values,
                               attr->floats.count * sizeof(*attr->floats.values));
    return field->values != NULL ? STATUS_OK : reader_no_memory(err);
}

static enum status fill_strings(struct graph *graph, const struct raw_attr *attr,
                                struct strings *field, struct error *err)
{
    struct bytes *values = arena_take_array(&graph->arena, attr->strings.count, sizeof(*values));

    if (values == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < attr->strings.count; i++) {
        struct bytes text = attr->strings.items[i];

        values[i].size = text.size;
        values[i].data = arena_copy_string(&graph->arena, text.data, text.size);
        if (values[i].data == NULL)
            return reader_no_memory(err);
    }
    field->count = attr->strings.count;
    field->values = values;
    return STATUS_OK;
}

static enum status fill_string(struct graph *graph, const struct raw_attr *attr, const char **field,
                               struct error *err)
{
    return proto_text(&graph->arena, attr->s, "its value", field, err);
}

/* The elements are copied: such tensors are small, and the graph's arena outlives its nodes. */
static enum status fill_tensor(struct form *form, const struct raw_attr *attr, struct tensor *field,
                               struct error *err)
{
    struct reader *reader = form->scope->reader;
    struct arena *arena = &form->scope->graph->arena;
    struct constant *constant;
    const struct bytes *texts;
    struct bytes *copies;
    enum status status = STATUS_OK;

    TRY(tensor_read(reader, reader->file, attr->tensor, &constant, NULL, err));
    *field = constant->tensor;
    field->data = arena_copy(arena, field->data, tensor_bytes(field));
    texts = constant->tensor.data;
    copies = (struct bytes *)(uintptr_t)field->data;
    for (int64_t i = 0;
         field->dtype == DTYPE_STRING && copies != NULL && i < shape_count(&field->shape); i++) {
        copies[i].data = arena_copy_string(arena, texts[i].data, texts[i].size);
        if (copies[i].data == NULL)
            status = reader_no_memory(err);
    }
    if (field->data == NULL)
        status = reader_no_memory(err);
    constant_unref(constant);
    return status;
}

static enum status append_captures(struct form *form, const struct scope *inner, struct error *err)
{
    struct reader *reader = form->scope->reader;
    struct value **in, **captured;
    size_t count = 0;

    for (const struct capture *c = inner->captures; c != NULL; c = c->next)
        count++;
    in = arena_take_array(&reader->arena, form->inputs + count, sizeof(struct value *));
    captured = arena_take_array(&reader->arena, count, sizeof(struct value *));
    if (in == NULL || captured == NULL)
        return reader_no_memory(err);
    if (form->inputs > 0)
        memcpy(in, form->in, form->inputs * sizeof(struct value *));
    count = 0;
    for (const struct capture *c = inner->captures; c != NULL; c = c->next) {
        captured[count] = c->inner;
        in[form->inputs + count++] = c->outer;
    }
    form->in = in;
    form->inputs += count;
    if (graph_set_captures(inner->graph, count, captured) != STATUS_OK)
        return reader_no_memory(err);
    return STATUS_OK;
}

static enum status fill_graph(struct form *form, const struct raw_attr *attr, struct graph **field,
                              struct error *err)
{
    struct reader *reader = form->scope->reader;
    struct graph *graph;
    struct scope scope;
    enum status status;

    if (reader->depth >= NESTING_LIMIT)
        return error_set(err, STATUS_INVALID, "sub-graphs are nested deeper than %d",
                         NESTING_LIMIT);
    graph = graph_create();
    if (graph == NULL)
        return reader_no_memory(err);
    graph_adopt(form->scope->graph, graph);
    scope_init(&scope, reader, graph, form->scope, form->scope->opsets);
    reader->depth++;
    status = build_graph(&scope, attr->graph, err);
    reader->depth--;
    if (status == STATUS_OK)
        status = append_captures(form, &scope, err);
    scope_deinit(&scope);
    *field = graph;
    return status;
}

static const struct {
    enum attr_type want;
    enum raw_attr_type found;
} type_pairs[] = {
    {ATTR_INT, RAW_INT},         {ATTR_FLOAT, RAW_FLOAT},   {ATTR_STRING, RAW_STRING},
    {ATTR_ENUM, RAW_STRING},     {ATTR_INTS, RAW_INTS},     {ATTR_FLOATS, RAW_FLOATS},
    {ATTR_STRINGS, RAW_STRINGS}, {ATTR_TENSOR, RAW_TENSOR}, {ATTR_GRAPH, RAW_GRAPH},
};

static enum status check_type(const struct raw_attr *attr, const struct attr_def *def,
                              struct error *err)
{
    for (size_t i = 0; i < sizeof(type_pairs) / sizeof(type_pairs[0]); i++) {
        if (type_pairs[i].want != def->type)
            continue;
        if (type_pairs[i].found != attr->type)
            return error_set(err, STATUS_INVALID, "attribute '%s' is %s, it must be %s", def->name,
                             type_words[attr->type], type_words[type_pairs[i].found]);
    }
    return STATUS_OK;
}

static enum status fill_attr(struct form *form, const struct raw_attr *attr,
                             const struct attr_def *def, void *field, struct error *err)
{
    struct graph *graph = form->scope->graph;

    TRY(check_type(attr, def, err));
    switch (def->type) {
    case ATTR_INT:
        *(int64_t *)field = attr->i;
        return STATUS_OK;
    case ATTR_FLOAT:
        *(float *)field = attr->f;
        return STATUS_OK;
    case ATTR_STRING:
        return fill_string(graph, attr, field, err);
    case ATTR_ENUM:
        return fill_enum(attr, def, field, err);
    case ATTR_INTS:
        return fill_ints(graph, attr, field, err);
    case ATTR_FLOATS:
        return fill_floats(graph, attr, field, err);
    case ATTR_STRINGS:
        return fill_strings(graph, attr, field, err);
    case ATTR_TENSOR:
        return fill_tensor(form, attr, field, err);
    case ATTR_GRAPH:
        return fill_graph(form, attr, field, err);
    case ATTR_END:
        break;
    }
    return STATUS_OK;
}

static bool op_has_attr(const struct op_def *op, struct bytes name)
{
    for (const struct attr_def *def = op->attrs; def != NULL && def->type != ATTR_END; def++)
        if (bytes_equal(name, def->name))
            return true;
    return false;
}

/* In the order of the operator's table, which is the order of captured inputs too. */
enum status attrs_fill(struct form *form, const struct op_def *op, void *attrs, struct error *err)
{
    for (size_t i = 0; i < form->attrs.count; i++)
        if (!op_has_attr(op, form->attrs.items[i].name))
            return error_set(err, STATUS_UNSUPPORTED, "attribute '%.*s' is not supported",
                             text_length(form->attrs.items[i].name),
                             form->attrs.items[i].name.data);
    for (const struct attr_def *def = op->attrs; def != NULL && def->type != ATTR_END; def++) {
        const struct raw_attr *attr = attrs_find(&form->attrs, def->name);
        enum status status;

        if (attr == NULL && def->required)
            return error_set(err, STATUS_INVALID, "attribute '%s' is missing", def->name);
        if (attr == NULL)
            continue;
        status = fill_attr(form, attr, def, (char *)attrs + def->offset, err);
        if (status != STATUS_OK)
            return def->type == ATTR_GRAPH ? error_prefix(err, status, "%s", def->name) : status;
    }
    return STATUS_OK;
}
