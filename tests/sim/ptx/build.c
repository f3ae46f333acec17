/* Operands, constants and instructions of the kernel that is being decoded. */
#include "build.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void refuse(struct builder *builder, const char *format, ...)
{
    int n = snprintf(builder->why, builder->why_bytes, "PTX line %u: ", builder->place.ptx_line);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(builder->why + n, builder->why_bytes - (size_t)n, format, arguments);
    va_end(arguments);
    longjmp(builder->refused, 1);
}

bool modifier(struct statement *statement, const char *name)
{
    for (unsigned i = 0; i < statement->modifier_count; i++) {
        if (statement->used[i] || strcmp(statement->modifiers[i], name) != 0)
            continue;
        statement->used[i] = true;
        return true;
    }
    return false;
}

int modifier_of(struct statement *statement, const char *const *names)
{
    for (int i = 0; names[i] != NULL; i++)
        if (modifier(statement, names[i]))
            return i;
    return -1;
}

enum type type_next(struct statement *statement)
{
    for (unsigned i = 0; i < statement->modifier_count; i++) {
        enum type type = statement->used[i] ? TYPE_NONE : type_of(statement->modifiers[i]);
        if (type == TYPE_NONE)
            continue;
        statement->used[i] = true;
        return type;
    }
    return TYPE_NONE;
}

enum type type_needed(struct builder *builder, struct statement *statement)
{
    enum type type = type_next(statement);

    if (type == TYPE_NONE)
        refuse(builder, "%s has no type that is known", statement->name);
    return type;
}

void need_arguments(struct builder *builder, const struct statement *statement, unsigned least,
                    unsigned most)
{
    if (statement->argument_count < least || statement->argument_count > most)
        refuse(builder, "%s with %u operands", statement->name, statement->argument_count);
}

void *own(struct builder *builder, size_t bytes)
{
    struct ptx_kernel *kernel = builder->kernel;
    void *memory = calloc(1, bytes + 1);

    if (kernel->owned_count == builder->owned_room) {
        builder->owned_room = builder->owned_room * 2 + 64;
        kernel->owned = realloc(kernel->owned, builder->owned_room * sizeof(void *));
    }
    kernel->owned[kernel->owned_count++] = memory;
    return memory;
}

const struct operand *own_list(struct builder *builder, const struct operand *list, size_t count)
{
    struct operand *copy = own(builder, count * sizeof(*copy));

    memcpy(copy, list, count * sizeof(*copy));
    return copy;
}

/* Room for a register in the file: 64-byte steps, so that vectors of the host are aligned. */
static struct operand place_register(struct builder *builder, unsigned bytes)
{
    struct ptx_kernel *kernel = builder->kernel;
    size_t size = bytes == 0 ? 4 : bytes * LANES;
    struct operand operand = {(uint32_t)kernel->file_bytes, kernel->marks++};

    if (size >= 64 && kernel->file_bytes % 64 != 0)
        operand.at = (uint32_t)((kernel->file_bytes + 63) / 64 * 64);
    kernel->file_bytes = operand.at + size;
    return operand;
}

struct operand scratch(struct builder *builder, unsigned bytes)
{
    return place_register(builder, bytes);
}

struct operand carry_register(struct builder *builder)
{
    if (builder->carry.mark == 0)
        builder->carry = place_register(builder, 0);
    return builder->carry;
}

/* Registers get their place at their first use: those used together lie together. */
static struct operand operand_of(struct builder *builder, const struct variable *variable)
{
    struct variable *mutable = (struct variable *)(uintptr_t)variable;

    if (mutable->operand.mark == 0)
        mutable->operand = place_register(builder, variable->bytes);
    return mutable->operand;
}

struct operand constant(struct builder *builder, uint64_t value, unsigned bytes)
{
    struct ptx_kernel *kernel = builder->kernel;

    if (bytes < 8)
        value &= ((uint64_t)1 << (8 * bytes)) - 1;
    for (size_t i = 0; i < kernel->constant_count; i++)
        if (kernel->constants[i].value == value && kernel->constants[i].bytes == bytes)
            return (struct operand){kernel->constants[i].at, 0};
    if (kernel->constant_count == builder->constant_room) {
        builder->constant_room = builder->constant_room * 2 + 64;
        kernel->constants =
            realloc(kernel->constants, builder->constant_room * sizeof(struct constant));
    }
    struct operand operand = place_register(builder, bytes);
    kernel->constants[kernel->constant_count++] = (struct constant){operand.at, bytes, value};
    return (struct operand){operand.at, 0};
}

static struct operand special_operand(struct builder *builder, enum special special)
{
    uint32_t *at = &builder->kernel->special_at[special];

    if (*at == 0)
        *at = place_register(builder, 4).at;
    return (struct operand){*at, 0};
}

struct operand source_wide(struct builder *builder, const struct argument *argument, unsigned bytes,
                           unsigned *out_bytes)
{
    *out_bytes = bytes;
    if (argument->is_address)
        refuse(builder, "an address where a value is expected");
    switch (argument->kind) {
    case ARGUMENT_REGISTER:
        if (argument->variable->bytes < bytes || argument->variable->bytes == 0 ||
            argument->negated)
            refuse(builder, "register %s has %u bytes, %u are read", argument->variable->name,
                   argument->variable->bytes, bytes);
        *out_bytes = argument->variable->bytes;
        return operand_of(builder, argument->variable);
    case ARGUMENT_NUMBER:
        return constant(builder, argument->number, bytes);
    case ARGUMENT_SPECIAL:
        if (bytes != 4 || argument->special >= SPECIALS)
            refuse(builder, "a special register read with %u bytes", bytes);
        return special_operand(builder, argument->special);
    case ARGUMENT_SYMBOL:
        if (argument->symbol->is_dynamic)
            builder->has_dynamic = true;
        return constant(builder, argument->symbol->address + (uint64_t)argument->offset, bytes);
    default:
        refuse(builder, "an operand of a kind that no value has");
    }
}

struct operand source(struct builder *builder, const struct argument *argument, unsigned bytes)
{
    unsigned own_bytes;
    struct operand operand = source_wide(builder, argument, bytes, &own_bytes);

    if (own_bytes != bytes)
        refuse(builder, "register %s has %u bytes, %u are read", argument->variable->name,
               own_bytes, bytes);
    return operand;
}

struct operand source_predicate(struct builder *builder, const struct argument *argument,
                                bool *out_negated)
{
    if (argument->kind == ARGUMENT_NUMBER) { /* 0 is false, -1 and 1 are true */
        *out_negated = argument->number == 0;
        struct operand all = constant(builder, UINT32_MAX, 4);
        return all;
    }
    if (argument->kind != ARGUMENT_REGISTER || argument->variable->bytes != 0)
        refuse(builder, "a predicate is expected");
    *out_negated = argument->negated;
    return operand_of(builder, argument->variable);
}

struct operand destination_wide(struct builder *builder, const struct argument *argument,
                                unsigned bytes, unsigned *out_bytes)
{
    *out_bytes = bytes;
    if (argument->kind == ARGUMENT_SINK)
        return scratch(builder, bytes);
    if (argument->kind != ARGUMENT_REGISTER || argument->is_address ||
        argument->variable->bytes < bytes || argument->variable->bytes == 0)
        refuse(builder, "no register of %u bytes as the result", bytes);
    *out_bytes = argument->variable->bytes;
    return operand_of(builder, argument->variable);
}

struct operand destination(struct builder *builder, const struct argument *argument, unsigned bytes)
{
    unsigned own_bytes;
    struct operand operand = destination_wide(builder, argument, bytes, &own_bytes);

    if (own_bytes != bytes)
        refuse(builder, "register %s has %u bytes, %u are written", argument->variable->name,
               own_bytes, bytes);
    return operand;
}

struct operand destination_predicate(struct builder *builder, const struct argument *argument)
{
    if (argument->kind == ARGUMENT_SINK)
        return scratch(builder, 0);
    if (argument->kind != ARGUMENT_REGISTER || argument->variable->bytes != 0)
        refuse(builder, "no predicate as the result");
    return operand_of(builder, argument->variable);
}

struct op *emit(struct builder *builder, const struct statement *statement, op_fn *fn)
{
    struct ptx_kernel *kernel = builder->kernel;

    if (kernel->op_count == builder->op_room) {
        builder->op_room = builder->op_room * 2 + 256;
        kernel->ops = realloc(kernel->ops, builder->op_room * sizeof(struct op));
    }
    struct op *op = &kernel->ops[kernel->op_count++];
    *op = (struct op){.fn = fn, .place = builder->place};
    if (statement != NULL && statement->guard != NULL) {
        op->guarded = true;
        op->guard_not = statement->guard_not;
        op->guard = operand_of(builder, statement->guard);
    }
    return op;
}

enum space space_of(struct builder *builder, struct statement *statement)
{
    static const char *const names[] = {"global",       "const",       "shared",
                                        "shared::cta",  "local",       "param",
                                        "param::entry", "param::func", NULL};
    static const enum space spaces[] = {SPACE_GLOBAL, SPACE_GLOBAL, SPACE_SHARED, SPACE_SHARED,
                                        SPACE_LOCAL,  SPACE_PARAM,  SPACE_PARAM,  SPACE_PARAM};
    int i = modifier_of(statement, names);

    (void)builder;
    return i < 0 ? SPACE_GENERIC : spaces[i];
}

void address_of(struct builder *builder, struct op *op, const struct argument *argument,
                enum space space)
{
    size_t index = (size_t)(op - builder->kernel->ops);
    struct operand base;
    bool wide = true;
    int64_t offset = argument->offset;

    if (!argument->is_address)
        refuse(builder, "an address in brackets is expected");
    if (argument->kind == ARGUMENT_REGISTER) {
        wide = argument->variable->bytes == 8;
        base = source(
            builder,
            argument->variable->bytes >= 4
                ? &(struct argument){.kind = ARGUMENT_REGISTER, .variable = argument->variable}
                : argument,
            wide ? 8 : 4);
    } else if (argument->kind == ARGUMENT_SYMBOL) {
        if (space == SPACE_PARAM || space == SPACE_GENERIC)
            space = argument->symbol->space; /* parameters of calls lie in local memory */
        else if (space != argument->symbol->space)
            refuse(builder, "%s lies in another space", argument->symbol->name);
        offset += (int64_t)argument->symbol->address;
        if (argument->symbol->is_dynamic)
            builder->has_dynamic = true;
        base = constant(builder, 0, 8);
    } else if (argument->kind == ARGUMENT_NUMBER) {
        offset += (int64_t)argument->number;
        base = constant(builder, 0, 8);
    } else {
        refuse(builder, "an address of a kind that is not known");
    }
    op = &builder->kernel->ops[index];
    op->a = base;
    op->wide_address = wide;
    op->offset = offset;
    op->space = (uint8_t)space;
    op->slot = builder->kernel->slots++;
}
