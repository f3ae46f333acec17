/* Model-local functions: a call is replaced by the nodes of the body, in a scope of its own. */
#include <string.h>

#include "onnx/internal.h"

struct function *find_function(struct reader *reader, const struct source *source)
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

enum status build_call(struct scope *scope, struct function *function, const struct source *source,
                       struct error *err)
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
