/* Lists of nodes into a graph: constants, operators, calls of functions, sub-graphs. */
#include "onnx/internal.h"

#include <inttypes.h>
#include <string.h>

/* A node as read, with what the errors about it need. */
struct source {
    const struct raw_node *raw;
    const char *op;
    const char *domain; /* "" for ai.onnx */
    const char *name;
};

enum status reader_no_memory(struct error *err)
{
    return error_set(err, STATUS_NO_MEMORY, "no memory to read the model");
}

static enum status read_domain(struct reader *reader, struct bytes bytes, const char **out_domain,
                               struct error *err)
{
    TRY(proto_text(&reader->arena, bytes, "a domain", out_domain, err));
    if (strcmp(*out_domain, "ai.onnx") == 0)
        *out_domain = "";
    return STATUS_OK;
}

/* Training has its own sentence: it will never be supported. */
static bool is_training_op(const struct form *form)
{
    static const char *const names[] = {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss",
                                        NULL};

    if (strcmp(form->domain, "ai.onnx.preview.training") == 0 ||
        strcmp(form->domain, "ai.onnx.training") == 0)
        return true;
    for (size_t i = 0; form->domain[0] == '\0' && names[i] != NULL; i++)
        if (strcmp(names[i], form->op) == 0)
            return true;
    return false;
}

static bool owns_graphs(const struct op_def *op)
{
    for (const struct attr_def *def = op->attrs; def != NULL && def->type != ATTR_END; def++)
        if (def->type == ATTR_GRAPH)
            return true;
    return false;
}

static enum status check_counts(const struct form *form, const struct op_def *op, struct error *err)
{
    size_t least = (size_t)(op->min_inputs > 0 ? op->min_inputs : op->inputs < 0 ? 0 : op->inputs);

    if (owns_graphs(op)) /* its own inputs are checked by its rule; captured ones follow */
        return STATUS_OK;
    if (op->inputs >= 0 && form->inputs > (size_t)op->inputs)
        return error_set(err, STATUS_UNSUPPORTED, "it has %zu inputs, at most %d are supported",
                         form->inputs, op->inputs);
    if (op->outputs >= 0 && form->outputs > (size_t)op->outputs)
        return error_set(err, STATUS_UNSUPPORTED, "it has %zu outputs, at most %d are supported",
                         form->outputs, op->outputs);
    for (size_t i = 0; i < least; i++)
        if (i >= form->inputs || form->in[i] == NULL)
            return error_set(err, STATUS_INVALID, "input %zu is missing, %zu are required", i,
                             least);
    return STATUS_OK;
}

enum status build_form(struct form *form, struct error *err)
{
    const struct op_def *op = op_find(form->domain, form->op);
    struct graph *graph = form->scope->graph;
    struct node *node;
    void *attrs;

    if (is_training_op(form))
        return error_set(err, STATUS_UNSUPPORTED,
                         "it is a training operator; this program only does inference");
    if (op == NULL || (op->flags & OP_INTERNAL) != 0)
        return error_set(err, STATUS_UNSUPPORTED, "operator %.100s%s%.100s is not supported",
                         form->domain, form->domain[0] == '\0' ? "" : ".", form->op);
    while (form->inputs > 0 && form->in[form->inputs - 1] == NULL)
        form->inputs--;
    /* An operator with any number of outputs may count those that nobody wants (Split). */
    while (op->outputs >= 0 && form->outputs > 0 && form->out[form->outputs - 1] == NULL)
        form->outputs--;
    TRY(check_counts(form, op, err));
    attrs = arena_take(&form->scope->reader->arena, op->attrs_size);
    if (attrs == NULL)
        return reader_no_memory(err);
    op_attrs_default(op, attrs);
    TRY(attrs_fill(form, op, attrs, err));
    node = graph_add_node(graph, NULL, op, form->name, form->inputs, form->outputs);
    if (node == NULL)
        return reader_no_memory(err);
    if (op->attrs_size > 0)
        memcpy(node->attrs, attrs, op->attrs_size);
    for (size_t i = 0; i < form->inputs; i++)
        node_set_input(node, i, form->in[i]);
    for (size_t i = 0; i < form->outputs; i++)
        node_set_output(node, i, form->out[i]);
    guess_types(node);
    form->scope->reader->info.nodes++;
    return STATUS_OK;
}

/* --- ordinary nodes -----------------------------------------------------------------------------
 */

static enum status find_opset(const struct scope *scope, const char *domain, int64_t *out_version,
                              struct error *err)
{
    for (size_t i = 0; i < scope->opsets->count; i++) {
        if (strcmp(scope->opsets->items[i].domain, domain) == 0) {
            *out_version = scope->opsets->items[i].version;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_INVALID, "the model does not import its domain '%.100s'",
                     domain[0] == '\0' ? "ai.onnx" : domain);
}

static enum status resolve_inputs(struct scope *scope, const struct bytes_list *names,
                                  struct value **in, struct error *err)
{
    for (size_t i = 0; i < names->count; i++)
        if (names->items[i].size > 0)
            TRY(scope_resolve(scope, names->items[i], &in[i], err));
    return STATUS_OK;
}

static enum status make_outputs(struct scope *scope, const struct bytes_list *names,
                                struct value **out, struct error *err)
{
    for (size_t i = 0; i < names->count; i++) {
        const char *text;

        if (names->items[i].size == 0)
            continue;
        TRY(proto_text(&scope->reader->arena, names->items[i], "a value's name", &text, err));
        out[i] = graph_add_value(scope->graph, text);
        if (out[i] == NULL)
            return reader_no_memory(err);
        TRY(scope_bind(scope, names->items[i], out[i], err));
    }
    return STATUS_OK;
}

static enum status build_operator(struct scope *scope, const struct source *source,
                                  struct error *err)
{
    const struct raw_node *raw = source->raw;
    struct arena *arena = &scope->reader->arena;
    struct form form = {
        .scope = scope,
        .name = source->name,
        .op = source->op,
        .domain = source->domain,
        .inputs = raw->inputs.count,
        .outputs = raw->outputs.count,
    };

    TRY(find_opset(scope, source->domain, &form.opset, err));
    TRY(attrs_read(scope, &raw->attributes, &form.attrs, err));
    form.in = arena_take_array(arena, form.inputs + FORM_SPARE, sizeof(struct value *));
    form.out = arena_take_array(arena, form.outputs + FORM_SPARE, sizeof(struct value *));
    if (form.in == NULL || form.out == NULL)
        return reader_no_memory(err);
    TRY(resolve_inputs(scope, &raw->inputs, form.in, err));
    TRY(make_outputs(scope, &raw->outputs, form.out, err));
    TRY(upgrade_form(&form, err));
    return build_form(&form, err);
}

/* --- constants ----------------------------------------------------------------------------------
 */

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

static enum status build_constant(struct scope *scope, const struct source *source,
                                  struct error *err)
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

/* --- functions ----------------------------------------------------------------------------------
 */

static struct function *find_function(struct reader *reader, const struct source *source)
{
    for (size_t i = 0; i < reader->functions; i++) {
        struct function *function = &reader->function[i];

        if (strcmp(function->name, source->op) == 0 &&
            strcmp(function->domain, source->domain) == 0 &&
            bytes_equal(source->raw->overload, function->overload))
            return function;
    }
    return NULL;
}

/* What the call gives, then the defaults of what it does not. */
static enum status read_call_attrs(struct scope *outer, struct scope *inner,
                                   const struct function *function, const struct source *source,
                                   struct attr_list *out_attrs, struct error *err)
{
    struct attr_list given, defaults, all = {0};

    TRY(attrs_read(outer, &source->raw->attributes, &given, err));
    TRY(attrs_read(inner, &function->raw.attribute_protos, &defaults, err));
    all.items =
        arena_take_array(&outer->reader->arena, given.count + defaults.count, sizeof(*all.items));
    if (all.items == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < given.count; i++)
        all.items[all.count++] = given.items[i];
    for (size_t i = 0; i < defaults.count; i++) {
        bool overridden = false;

        for (size_t k = 0; k < given.count; k++)
            overridden |= bytes_same(given.items[k].name, defaults.items[i].name);
        if (!overridden)
            all.items[all.count++] = defaults.items[i];
    }
    *out_attrs = all;
    return STATUS_OK;
}

static enum status bind_arguments(struct scope *outer, struct scope *inner,
                                  const struct function *function, const struct source *source,
                                  struct error *err)
{
    const struct bytes_list *given = &source->raw->inputs;
    const struct bytes_list *formal = &function->raw.inputs;

    if (given->count > formal->count || source->raw->outputs.count > function->raw.outputs.count)
        return error_set(err, STATUS_INVALID,
                         "the call has %zu inputs and %zu outputs, the function %zu and %zu",
                         given->count, source->raw->outputs.count, formal->count,
                         function->raw.outputs.count);
    for (size_t i = 0; i < formal->count; i++) {
        struct value *value = NULL;

        if (i < given->count && given->items[i].size > 0)
            TRY(scope_resolve(outer, given->items[i], &value, err));
        TRY(scope_bind(inner, formal->items[i], value, err));
    }
    return STATUS_OK;
}

static enum status bind_results(struct scope *outer, struct scope *inner,
                                const struct function *function, const struct source *source,
                                struct error *err)
{
    const struct bytes_list *wanted = &source->raw->outputs;

    for (size_t i = 0; i < wanted->count; i++) {
        struct value *value;

        if (wanted->items[i].size == 0)
            continue;
        TRY(scope_resolve(inner, function->raw.outputs.items[i], &value, err));
        TRY(scope_bind(outer, wanted->items[i], value, err));
    }
    return STATUS_OK;
}

static enum status call_in(struct scope *outer, struct scope *inner, struct function *function,
                           const struct source *source, struct error *err)
{
    struct attr_list call;
    enum status status;

    TRY(read_call_attrs(outer, inner, function, source, &call, err));
    inner->call = &call;
    TRY(bind_arguments(outer, inner, function, source, err));
    function->active = true;
    outer->reader->depth++;
    status = build_nodes(inner, &function->raw.nodes, err);
    outer->reader->depth--;
    function->active = false;
    TRY(status);
    return bind_results(outer, inner, function, source, err);
}

static enum status build_call(struct scope *scope, struct function *function,
                              const struct source *source, struct error *err)
{
    static const struct attr_list no_attrs;
    struct scope inner;
    enum status status;

    if (function->active)
        return error_set(err, STATUS_INVALID, "the function calls itself");
    if (scope->reader->depth >= NESTING_LIMIT)
        return error_set(err, STATUS_INVALID, "calls are nested deeper than %d", NESTING_LIMIT);
    scope_init(&inner, scope->reader, scope->graph, NULL, &function->opsets);
    inner.call = &no_attrs;
    status = call_in(scope, &inner, function, source, err);
    scope_deinit(&inner);
    return status;
}

/* --- lists of nodes -----------------------------------------------------------------------------
 */

/* Functions can multiply: a small file must not become a large graph. */
static enum status check_growth(const struct scope *scope, struct error *err)
{
    const struct reader *reader = scope->reader;
    uint64_t limit = GROWTH_BYTES + GROWTH_FACTOR * reader->readable_bytes;

    if (reader->made_names > NODE_LIMIT)
        return error_set(err, STATUS_UNSUPPORTED, "the model has more than %d nodes", NODE_LIMIT);
    if (reader->arena.total_bytes > limit || scope->graph->arena.total_bytes > limit ||
        reader->info.copied_bytes > limit)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the model grows beyond %" PRIu64 " bytes when its functions are inlined",
                         limit);
    return STATUS_OK;
}

static enum status build_node(struct scope *scope, const struct source *source, struct error *err)
{
    struct function *function = find_function(scope->reader, source);

    TRY(check_growth(scope, err));
    if (function != NULL)
        return build_call(scope, function, source, err);
    if (source->domain[0] == '\0' && strcmp(source->op, "Constant") == 0)
        return build_constant(scope, source, err);
    return build_operator(scope, source, err);
}

static enum status start_node(struct scope *scope, const struct raw_node *raw,
                              struct source *source, struct error *err)
{
    struct reader *reader = scope->reader;

    *source = (struct source){.raw = raw};
    TRY(proto_text(&reader->arena, raw->op, "an operator's name", &source->op, err));
    TRY(read_domain(reader, raw->domain, &source->domain, err));
    TRY(proto_text(&reader->arena, raw->name, "a node's name", &source->name, err));
    reader->made_names++;
    if (source->name[0] == '\0')
        source->name = arena_format(&reader->arena, "%.64s_%zu", source->op, reader->made_names);
    return source->name != NULL ? STATUS_OK : reader_no_memory(err);
}

enum status build_nodes(struct scope *scope, const struct bytes_list *nodes, struct error *err)
{
    struct arena *arena = &scope->reader->arena;
    struct raw_node *raw = arena_take_array(arena, nodes->count, sizeof(*raw));
    uint32_t *order;

    if (raw == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < nodes->count; i++)
        TRY(proto_read_node(arena, nodes->items[i], &raw[i], err));
    TRY(order_nodes(scope->reader, nodes->count, raw, &order, err));
    for (size_t i = 0; i < nodes->count; i++) {
        struct source source;
        enum status status;

        TRY(start_node(scope, &raw[order[i]], &source, err));
        status = build_node(scope, &source, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "node '%.100s' (%.60s)", source.name, source.op);
    }
    return STATUS_OK;
}

/* --- graphs -------------------------------------------------------------------------------------
 */

static enum status bind_constant(struct scope *scope, struct constant *constant, const char *name,
                                 struct error *err)
{
    struct value *value = graph_add_constant(scope->graph, name, constant);

    if (value == NULL)
        return reader_no_memory(err);
    return scope_bind(scope, (struct bytes){name, strlen(name)}, value, err);
}

static enum status build_initializers(struct scope *scope, const struct raw_graph *raw,
                                      struct error *err)
{
    struct reader *reader = scope->reader;
    struct constant *constant;
    const char *name;

    for (size_t i = 0; i < raw->initializers.count; i++) {
        TRY(tensor_read(reader, reader->file, raw->initializers.items[i], &constant, &name, err));
        TRY(bind_constant(scope, constant, name, err));
    }
    for (size_t i = 0; i < raw->sparse_initializers.count; i++) {
        TRY(tensor_read_sparse(reader, raw->sparse_initializers.items[i], &constant, &name, err));
        TRY(bind_constant(scope, constant, name, err));
    }
    return STATUS_OK;
}

/* An input that has an initializer of the same name is a constant with a default nobody overrides.
 */
static enum status check_default(const struct value *facts, const struct value *value,
                                 const char *name, struct error *err)
{
    if (facts->dtype != DTYPE_NONE && facts->dtype != value->dtype)
        return error_set(err, STATUS_INVALID,
                         "input '%.200s' is declared as %s, its initializer is %s", name,
                         dtype_name(facts->dtype), dtype_name(value->dtype));
    return STATUS_OK;
}

static enum status build_inputs(struct scope *scope, const struct raw_graph *raw, struct error *err)
{
    struct value **in =
        arena_take_array(&scope->reader->arena, raw->inputs.count, sizeof(struct value *));
    size_t count = 0;

    if (in == NULL)
        return reader_no_memory(err);
    for (size_t i = 0; i < raw->inputs.count; i++) {
        struct value facts, *value;
        const char *name;

        TRY(port_read(scope->reader, raw->inputs.items[i], &name, &facts, err));
        value = names_find(&scope->values, (struct bytes){name, strlen(name)});
        if (value != NULL && value->constant != NULL) {
            TRY(check_default(&facts, value, name, err));
            continue;
        }
        value = graph_add_value(scope->graph, name);
        if (value == NULL)
            return reader_no_memory(err);
        value->dtype = facts.dtype;
        value->shape = facts.shape;
        value->shape_known = facts.shape_known;
        TRY(scope_bind(scope, (struct bytes){name, strlen(name)}, value, err));
        in[count++] = value;
    }
    return graph_set_inputs(scope->graph, count, in) == STATUS_OK ? STATUS_OK
                                                                  : reader_no_memory(err);
}

/* A graph output always has a node that makes it, and no two outputs share a value. */
static enum status separate_output(struct scope *scope, const char *name, struct value **value,
                                   struct value *const *earlier, size_t count, struct error *err)
{
    struct form form = {.scope = scope, .op = "Identity", .domain = "", .inputs = 1, .outputs = 1};
    struct value *source = *value, *copy;
    bool shared = source->producer == NULL;

    for (size_t i = 0; i < count; i++)
        shared |= earlier[i] == source;
    if (!shared)
        return STATUS_OK;
    copy = graph_add_value(scope->graph, name);
    form.name = arena_format(&scope->reader->arena, "output %s", name);
    if (copy == NULL || form.name == NULL)
        return reader_no_memory(err);
    form.in = &source;
    form.out = &copy;
    TRY(build_form(&form, err));
    *value = copy;
    return STATUS_OK;
}

static enum status build_output(struct scope *scope, struct bytes proto, struct value **out,
                                size_t index, struct error *err)
{
    struct value facts, *value;
    const char *name;

    TRY(port_read(scope->reader, proto, &name, &facts, err));
    TRY(scope_resolve(scope, (struct bytes){name, strlen(name)}, &value, err));
    if (value == NULL)
        return error_set(err, STATUS_INVALID, "output '%.200s' is an input that was left out",
                         name);
    TRY(separate_output(scope, name, &value, out, index, err));
    value->name = arena_copy_string(&scope->graph->arena, name, strlen(name));
    if (value->name == NULL)
        return reader_no_memory(err);
    value->dtype = facts.dtype;
    value->shape = facts.shape;
    value->shape_known = facts.shape_known;
    out[index] = value;
    return STATUS_OK;
}

static enum status build_outputs(struct scope *scope, const struct raw_graph *raw,
                                 struct error *err)
{
    struct value **out =
        arena_take_array(&scope->reader->arena, raw->outputs.count, sizeof(struct value *));
    struct names seen;
    enum status status = STATUS_OK;

    if (out == NULL)
        return reader_no_memory(err);
    names_init(&seen, scope->reader->seed);
    for (size_t i = 0; status == STATUS_OK && i < raw->outputs.count; i++) {
        status = build_output(scope, raw->outputs.items[i], out, i, err);
        if (status != STATUS_OK)
            break;
        status = names_add(&seen, (struct bytes){out[i]->name, strlen(out[i]->name)}, out[i]);
        if (status == STATUS_EXISTS)
            status =
                error_set(err, STATUS_INVALID, "two outputs have the name '%.200s'", out[i]->name);
        else if (status != STATUS_OK)
            status = reader_no_memory(err);
    }
    names_deinit(&seen);
    TRY(status);
    return graph_set_outputs(scope->graph, raw->outputs.count, out) == STATUS_OK
               ? STATUS_OK
               : reader_no_memory(err);
}

enum status build_graph(struct scope *scope, struct bytes proto, struct error *err)
{
    struct reader *reader = scope->reader;
    struct raw_graph raw;
    const char *name;

    TRY(proto_read_graph(&reader->arena, proto, &raw, err));
    TRY(proto_text(&scope->graph->arena, raw.name, "the graph's name", &name, err));
    scope->graph->name = name;
    TRY(build_initializers(scope, &raw, err));
    TRY(build_inputs(scope, &raw, err));
    TRY(build_nodes(scope, &raw.nodes, err));
    return build_outputs(scope, &raw, err);
}
