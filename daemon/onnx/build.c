/* Lists of nodes into a graph: operators here, constants in constant.c, calls in call.c. */
#include "onnx/internal.h"

#include <inttypes.h>
#include <string.h>

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
