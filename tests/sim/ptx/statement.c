#include "statement.h"

#include "scope.h"

#include <string.h>

void opcode_split(struct builder *builder, const char *word, struct statement *out)
{
    const char *dot = strchr(word, '.');
    size_t length = dot != NULL ? (size_t)(dot - word) : strlen(word);

    if (length >= sizeof(out->name))
        refuse(builder, "'%s' is no instruction", word);
    memcpy(out->name, word, length);
    while (dot != NULL) {
        const char *from = dot + 1;
        dot = strchr(from, '.');
        length = dot != NULL ? (size_t)(dot - from) : strlen(from);
        if (out->modifier_count == MODIFIERS || length >= MODIFIER_BYTES)
            refuse(builder, "'%s' has too many modifiers", word);
        memcpy(out->modifiers[out->modifier_count++], from, length);
    }
}

static const struct {
    const char *name;
    enum special special;
} specials[] = {
    {"%tid.x", SPECIAL_TID_X},
    {"%tid.y", SPECIAL_TID_Y},
    {"%tid.z", SPECIAL_TID_Z},
    {"%ntid.x", SPECIAL_NTID_X},
    {"%ntid.y", SPECIAL_NTID_Y},
    {"%ntid.z", SPECIAL_NTID_Z},
    {"%ctaid.x", SPECIAL_CTAID_X},
    {"%ctaid.y", SPECIAL_CTAID_Y},
    {"%ctaid.z", SPECIAL_CTAID_Z},
    {"%nctaid.x", SPECIAL_NCTAID_X},
    {"%nctaid.y", SPECIAL_NCTAID_Y},
    {"%nctaid.z", SPECIAL_NCTAID_Z},
    {"%laneid", SPECIAL_LANEID},
    {"%warpid", SPECIAL_WARPID},
    {"%nwarpid", SPECIAL_NWARPID},
    {"%lanemask_eq", SPECIAL_LANEMASK_EQ},
    {"%lanemask_le", SPECIAL_LANEMASK_LE},
    {"%lanemask_lt", SPECIAL_LANEMASK_LT},
    {"%lanemask_ge", SPECIAL_LANEMASK_GE},
    {"%lanemask_gt", SPECIAL_LANEMASK_GT},
    {"%smid", SPECIAL_SMID},
    {"%dynamic_smem_size", SPECIAL_DYNAMIC_SHARED},
    {"%total_smem_size", SPECIAL_TOTAL_SHARED},
    {"%clock", SPECIAL_CLOCK},
    {"%clock64", SPECIAL_CLOCK64},
    {"%globaltimer", SPECIAL_CLOCK64},
};

/* What a name stands for. */
static void name_resolve(struct builder *builder, const char *name, struct argument *out)
{
    out->variable = scope_variable(builder, name);
    if (out->variable != NULL) {
        out->kind = ARGUMENT_REGISTER;
        return;
    }
    for (size_t i = 0; i < sizeof(specials) / sizeof(specials[0]); i++)
        if (strcmp(specials[i].name, name) == 0) {
            out->kind = ARGUMENT_SPECIAL;
            out->special = specials[i].special;
            return;
        }
    if (strcmp(name, "WARP_SZ") == 0) {
        out->kind = ARGUMENT_NUMBER;
        out->number = LANES;
        return;
    }
    if (strcmp(name, "_") == 0) {
        out->kind = ARGUMENT_SINK;
        return;
    }
    out->symbol = scope_symbol(builder, name);
    if (out->symbol != NULL) {
        out->kind = ARGUMENT_SYMBOL;
        return;
    }
    if (name[0] == '%')
        refuse(builder, "register %s is declared nowhere and none of the special ones known", name);
    out->kind = ARGUMENT_LABEL;
    memcpy(builder->statement.text, name, strlen(name) + 1);
    out->text = builder->statement.text;
}

static void argument_read(struct builder *builder, struct cursor *cursor, struct argument *out);

static void vector_read(struct builder *builder, struct cursor *cursor, struct argument *out)
{
    struct statement *statement = &builder->statement;

    out->kind = ARGUMENT_VECTOR;
    out->items = &statement->items[statement->item_count];
    while (!token_take(cursor, "}")) {
        if (statement->item_count == ITEMS)
            refuse(builder, "vectors of more than %d elements", ITEMS);
        statement->item_count++;
        argument_read(builder, cursor, &out->items[out->count++]);
        token_take(cursor, ",");
    }
}

/* + n, + -n or - n behind an address or symbol. */
static int64_t offset_read(struct builder *builder, struct cursor *cursor)
{
    char token[TOKEN_BYTES];
    uint64_t value;
    bool is_float;
    bool negative = false;

    if (token_take(cursor, "-"))
        negative = true;
    else if (!token_take(cursor, "+"))
        return 0;
    if (token_take(cursor, "-"))
        negative = !negative;
    token_next(cursor, token);
    if (!number_of(token, &value, &is_float) || is_float)
        refuse(builder, "'%s' as the offset of an address", token);
    return negative ? -(int64_t)value : (int64_t)value;
}

static void argument_read(struct builder *builder, struct cursor *cursor, struct argument *out)
{
    char token[TOKEN_BYTES];
    bool minus = false;

    *out = (struct argument){0};
    token_next(cursor, token);
    if (strcmp(token, "{") == 0) {
        vector_read(builder, cursor, out);
        return;
    }
    if (strcmp(token, "[") == 0) {
        argument_read(builder, cursor, out);
        out->is_address = true;
        if (!token_take(cursor, "]"))
            refuse(builder, "%s with an address of a form that is not known",
                   builder->statement.name);
        return;
    }
    if (strcmp(token, "!") == 0) {
        out->negated = true;
        token_next(cursor, token);
    }
    while (strcmp(token, "-") == 0) {
        minus = !minus;
        token_next(cursor, token);
    }
    if (number_of(token, &out->number, &out->is_float)) {
        out->kind = ARGUMENT_NUMBER;
        if (minus)
            out->number = 0 - out->number;
        return;
    }
    name_resolve(builder, token, out);
    if (token_take(cursor, "|")) {
        struct argument second = {0};
        token_next(cursor, token);
        name_resolve(builder, token, &second);
        out->second = second.variable;
    }
    out->offset = offset_read(builder, cursor);
}

void arguments_read(struct builder *builder, struct cursor *cursor, struct statement *statement)
{
    while (!token_take(cursor, ";")) {
        if (statement->argument_count == ARGUMENTS || cursor->at >= cursor->end)
            refuse(builder, "%s with more operands than any instruction has", statement->name);
        argument_read(builder, cursor, &statement->arguments[statement->argument_count++]);
        token_take(cursor, ",");
    }
}

void guard_read(struct builder *builder, struct cursor *cursor, struct statement *statement)
{
    char token[TOKEN_BYTES];

    if (!token_take(cursor, "@"))
        return;
    statement->guard_not = token_take(cursor, "!");
    token_next(cursor, token);
    statement->guard = scope_variable(builder, token);
    if (statement->guard == NULL || statement->guard->bytes != 0)
        refuse(builder, "guard '%s' is no predicate", token);
}
