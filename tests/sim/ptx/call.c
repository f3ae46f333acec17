/* Calls: the called function's body is decoded in place, with its parameters bound to the caller's.
 * There is no stack, so a function that calls itself is refused, and so is a call through a
 * pointer.
 */
#include "scope.h"
#include "statement.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 24, BOUND = 64 };

/* ( a, b, ... ): the symbols named. */
static unsigned names_read(struct builder *builder, struct cursor *cursor,
                           const struct symbol *out[BOUND])
{
    char token[TOKEN_BYTES];
    unsigned count = 0;

    while (!token_take(cursor, ")")) {
        token_next(cursor, token);
        if (strcmp(token, ",") == 0)
            continue;
        if (count == BOUND || token[0] == '\0')
            refuse(builder, "a call with more than %d parameters", BOUND);
        out[count] = scope_symbol(builder, token);
        if (out[count] == NULL || out[count]->space != SPACE_LOCAL)
            refuse(builder, "'%s' as a parameter of a call", token);
        count++;
    }
    return count;
}

/* Gives the called function's names for its parameters the caller's memory. */
static void bind(struct builder *builder, struct cursor list, const struct symbol *const *actual,
                 unsigned count)
{
    struct declaration declaration;
    char token[TOKEN_BYTES];
    unsigned n = 0;

    while (list.at != NULL && list.at < list.end) {
        token_next(&list, token);
        if (token[0] == '\0')
            break;
        if (strcmp(token, ",") == 0)
            continue;
        if (strcmp(token, ".param") != 0 || !declaration_read(&list, &declaration) || n == count)
            refuse(builder, "a call whose parameters are not the function's");
        struct symbol symbol = *actual[n++];
        memcpy(symbol.name, declaration.name, sizeof(symbol.name));
        scope_add_symbol(builder, &symbol);
    }
    if (n != count)
        refuse(builder, "a call whose parameters are not the function's");
}

static void trap_assert(struct warp *warp, const struct op *op, uint32_t mask)
{
    fault(warp, op, mask, PTX_ASSERT, "an assertion failed");
}

static void inline_function(struct builder *builder, const struct function *function,
                            const struct symbol *const *results, unsigned result_count,
                            const struct symbol *const *parameters, unsigned parameter_count)
{
    struct scope *outer = builder->scope;
    unsigned instance = builder->instance;
    struct place place = builder->place;

    if (++builder->depth > DEPTH)
        refuse(builder, "calls of %s are nested more than %d deep", function->name, DEPTH);
    builder->instance = ++builder->instances;
    builder->scope = NULL;
    scope_push(builder);
    bind(builder, function->results, results, result_count);
    bind(builder, function->parameters, parameters, parameter_count);
    body_read(builder, function->body);
    builder->scope = outer;
    builder->instance = instance;
    builder->place = place;
    builder->depth--;
}

void call_read(struct builder *builder, struct statement *statement, struct cursor *cursor)
{
    const struct symbol *results[BOUND];
    const struct symbol *parameters[BOUND];
    unsigned result_count = 0;
    unsigned parameter_count = 0;
    char name[TOKEN_BYTES];

    modifier(statement, "uni");
    if (statement->guard != NULL)
        refuse(builder, "a call under a guard");
    if (token_take(cursor, "(")) {
        result_count = names_read(builder, cursor, results);
        token_take(cursor, ",");
    }
    token_next(cursor, name);
    if (token_take(cursor, ",") && token_take(cursor, "("))
        parameter_count = names_read(builder, cursor, parameters);
    if (!token_take(cursor, ";"))
        refuse(builder, "a call of %s through a pointer", name);
    if (strcmp(name, "__assertfail") == 0) {
        emit(builder, statement, trap_assert);
        return;
    }
    const struct function *function = function_find(builder->module, name);
    if (function == NULL || !function->has_body)
        refuse(builder, "a call of %s, which the module does not have%s", name,
               strcmp(name, "vprintf") == 0 ? " (printf in a kernel)" : "");
    inline_function(builder, function, results, result_count, parameters, parameter_count);
}
