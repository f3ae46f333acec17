/* A graph as a whole: its inputs, initializers, nodes and outputs. */
#include <string.h>

#include "onnx/internal.h"

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

        TRY(port_read(scope->reader, raw->inputs.items[i], &name, &facts, NULL, err));
        value = names_find(&scope->values, (struct bytes){name, strlen(name)});
        if (value != NULL && value->constant != NULL) {
            TRY(check_default(&facts, value, name, err));
            continue;
        }
        if (!facts.shape_known && scope->parent == NULL)
            return error_set(err, STATUS_UNSUPPORTED,
                             "input '%.200s' has no shape: its number of dimensions must be known",
                             name);
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
    bool is_tensor;

    TRY(port_read(scope->reader, proto, &name, &facts, &is_tensor, err));
    TRY(scope_resolve(scope, (struct bytes){name, strlen(name)}, &value, err));
    if (value == NULL)
        return error_set(err, STATUS_INVALID, "output '%.200s' is an input that was left out",
                         name);
    if (!is_tensor && !zip_map_declare(scope->reader, value, &facts))
        return port_refuse(name, err);
    if (facts.dtype == DTYPE_NONE)
        facts.dtype = value->dtype; /* a guess: each plan compares it with what it finds */
    if (facts.dtype == DTYPE_NONE && scope->parent == NULL)
        return error_set(err, STATUS_UNSUPPORTED, "output '%.200s' has no element type", name);
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
    TRY(build_outputs(scope, &raw, err));
    return zip_map_check(reader, err);
}
