#include "onnx/internal.h"

#include <string.h>

void scope_init(struct scope *scope, struct reader *reader, struct graph *graph,
                struct scope *parent, const struct opsets *opsets)
{
    *scope = (struct scope){
        .reader = reader,
        .graph = graph,
        .parent = parent,
        .opsets = opsets,
        .call = parent == NULL ? NULL : parent->call,
    };
    scope->last_capture = &scope->captures;
    names_init(&scope->values, reader->seed);
}

void scope_deinit(struct scope *scope)
{
    names_deinit(&scope->values);
}

/* What a name stands for when the call left the optional input out. */
static struct value left_out;

enum status scope_bind(struct scope *scope, struct bytes name, struct value *value,
                       struct error *err)
{
    const char *text;
    enum status status;

    TRY(proto_text(&scope->reader->arena, name, "a value's name", &text, err));
    if (name.size == 0)
        return error_set(err, STATUS_INVALID, "a value has an empty name");
    status = names_add(&scope->values, (struct bytes){text, name.size},
                       value == NULL ? &left_out : value);
    if (status == STATUS_EXISTS)
        return error_set(err, STATUS_INVALID, "two values have the name '%.200s'", text);
    return status == STATUS_OK ? STATUS_OK : reader_no_memory(err);
}

/* A value of the graph around, made usable inside this one. */
static enum status take_from_outside(struct scope *scope, struct value *outer,
                                     struct value **out_value, struct error *err)
{
    struct graph *graph = scope->graph;
    struct capture *capture;
    struct value *inner;

    if (outer == NULL || outer->constant != NULL) {
        inner = outer;
        if (outer != NULL)
            inner = graph_add_constant(graph, outer->name, constant_ref(outer->constant));
        if (outer != NULL && inner == NULL)
            return reader_no_memory(err);
        *out_value = inner;
        return STATUS_OK;
    }
    inner = graph_add_value(graph, outer->name);
    capture = arena_take(&scope->reader->arena, sizeof(*capture));
    if (inner == NULL || capture == NULL)
        return reader_no_memory(err);
    inner->is_input = true;
    *capture = (struct capture){.inner = inner, .outer = outer};
    *scope->last_capture = capture;
    scope->last_capture = &capture->next;
    *out_value = inner;
    return STATUS_OK;
}

/* The deepest scope outwards that knows the name is looked for first, then the value is handed
 * inwards scope by scope.  Recursion is bounded by the nesting limit. */
enum status scope_resolve(struct scope *scope, struct bytes name, struct value **out_value,
                          struct error *err)
{
    struct value *value = names_find(&scope->values, name);

    if (value != NULL) {
        *out_value = value == &left_out ? NULL : value;
        return STATUS_OK;
    }
    if (scope->parent == NULL)
        return error_set(err, STATUS_INVALID, "nothing makes the value '%.*s'",
                         (int)(name.size > 200 ? 200 : name.size), name.data);
    TRY(scope_resolve(scope->parent, name, &value, err));
    TRY(take_from_outside(scope, value, &value, err));
    TRY(scope_bind(scope, name, value, err));
    *out_value = value;
    return STATUS_OK;
}
