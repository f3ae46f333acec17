#include "scope.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void scope_push(struct builder *builder)
{
    struct scope *scope = own(builder, sizeof(*scope));

    scope->outer = builder->scope;
    builder->scope = scope;
}

void scope_pop(struct builder *builder)
{
    builder->scope = builder->scope->outer;
}

/* Lists grow by copies that the kernel owns: small, and freed with it. */
static void *grown(struct builder *builder, const void *list, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0)
        return (void *)(uintptr_t)list; /* room is a power of two */
    void *copy = own(builder, (count * 2 + 1) * size);
    if (count > 0)
        memcpy(copy, list, count * size);
    return copy;
}

void scope_add_registers(struct builder *builder, enum type type, const char *prefix,
                         unsigned count)
{
    struct scope *scope = builder->scope;
    unsigned all = count == 0 ? 1 : count;
    struct variable *variables = own(builder, all * sizeof(*variables));

    for (unsigned i = 0; i < all; i++) {
        variables[i].type = type;
        variables[i].bytes = type == TYPE_PRED ? 0 : type_bytes(type) == 1 ? 2 : type_bytes(type);
        strncpy(variables[i].name, prefix, sizeof(variables[i].name) - 1);
    }
    scope->ranges = grown(builder, scope->ranges, scope->range_count, sizeof(struct range));
    struct range *range = &scope->ranges[scope->range_count++];
    *range = (struct range){.count = count, .variables = variables};
    strncpy(range->prefix, prefix, sizeof(range->prefix) - 1);
}

void scope_add_symbol(struct builder *builder, const struct symbol *symbol)
{
    struct scope *scope = builder->scope;

    scope->symbols = grown(builder, scope->symbols, scope->symbol_count, sizeof(struct symbol));
    scope->symbols[scope->symbol_count++] = *symbol;
}

/* The variable of a range that has this name, or NULL. */
static struct variable *in_range(const struct range *range, const char *name)
{
    size_t length = strlen(range->prefix);
    char *end;

    if (range->count == 0)
        return strcmp(range->prefix, name) == 0 ? range->variables : NULL;
    if (strncmp(range->prefix, name, length) != 0 || !isdigit((unsigned char)name[length]))
        return NULL;
    unsigned long number = strtoul(name + length, &end, 10);
    if (*end != '\0' || number >= range->count)
        return NULL;
    struct variable *variable = &range->variables[number];
    strncpy(variable->name, name, sizeof(variable->name) - 1);
    return variable;
}

struct variable *scope_variable(struct builder *builder, const char *name)
{
    for (struct scope *scope = builder->scope; scope != NULL; scope = scope->outer)
        for (size_t i = scope->range_count; i > 0; i--) {
            struct variable *variable = in_range(&scope->ranges[i - 1], name);
            if (variable != NULL)
                return variable;
        }
    return NULL;
}

static uint64_t room(size_t *total, size_t bytes, size_t align)
{
    size_t at = (*total + align - 1) / align * align;

    *total = at + bytes;
    return at;
}

uint64_t local_room(struct builder *builder, size_t bytes, size_t align)
{
    return room(&builder->kernel->local_bytes, bytes, align < 8 ? 8 : align);
}

uint64_t shared_room(struct builder *builder, size_t bytes, size_t align)
{
    return room(&builder->kernel->static_shared_bytes, bytes, align < 8 ? 8 : align);
}

/* Shared memory of the module gets its place in the kernel at its first use. */
static const struct symbol *module_shared(struct builder *builder, const char *name)
{
    struct ptx_module *module = builder->module;

    for (size_t i = 0; i < module->shared_count; i++) {
        if (strcmp(module->shared[i].name, name) != 0)
            continue;
        struct scope *outermost = builder->scope;
        while (outermost->outer != NULL)
            outermost = outermost->outer;
        struct symbol symbol = module->shared[i];
        symbol.address = symbol.is_dynamic
                             ? builder->dynamic_base
                             : shared_room(builder, symbol.bytes, module->shared[i].address);
        struct scope *inner = builder->scope;
        builder->scope = outermost;
        scope_add_symbol(builder, &symbol);
        builder->scope = inner;
        return &outermost->symbols[outermost->symbol_count - 1];
    }
    return NULL;
}

const struct symbol *scope_symbol(struct builder *builder, const char *name)
{
    for (struct scope *scope = builder->scope; scope != NULL; scope = scope->outer)
        for (size_t i = scope->symbol_count; i > 0; i--)
            if (strcmp(scope->symbols[i - 1].name, name) == 0)
                return &scope->symbols[i - 1];
    const struct symbol *shared = module_shared(builder, name);
    if (shared != NULL)
        return shared;
    for (size_t i = 0; i < builder->module->variable_count; i++) {
        const struct ptx_variable *variable = &builder->module->variables[i];
        if (strcmp(variable->name, name) != 0)
            continue;
        struct symbol *symbol = own(builder, sizeof(*symbol));
        *symbol = (struct symbol){
            .space = SPACE_GLOBAL, .address = variable->address, .bytes = variable->bytes};
        memcpy(symbol->name, name, strlen(name) + 1);
        return symbol;
    }
    return NULL;
}
