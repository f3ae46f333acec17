/* Names of a function: registers and memory, block by block. */
#ifndef SLUICE_TESTS_SIM_PTX_SCOPE_H
#define SLUICE_TESTS_SIM_PTX_SCOPE_H

#include "text.h"

/* Declared together: %r<100>, or one name. */
struct range {
    char prefix[96];
    unsigned count; /* 0: `prefix` is the name */
    struct variable *variables;
};

struct scope {
    struct scope *outer; /* NULL: the function's own */
    struct range *ranges;
    size_t range_count;
    struct symbol *symbols;
    size_t symbol_count;
};

void scope_push(struct builder *builder);
void scope_pop(struct builder *builder);
void scope_add_registers(struct builder *builder, enum type type, const char *prefix,
                         unsigned count);
void scope_add_symbol(struct builder *builder, const struct symbol *symbol);
struct variable *scope_variable(struct builder *builder, const char *name);
/* Of the scopes, of the module's shared memory and of its variables; NULL: none. */
const struct symbol *scope_symbol(struct builder *builder, const char *name);

/* Room in local memory (of a thread) and static shared memory (of a block). */
uint64_t local_room(struct builder *builder, size_t bytes, size_t align);
uint64_t shared_room(struct builder *builder, size_t bytes, size_t align);

#endif
