/* One statement of a function: guard, opcode, operands. */
#ifndef SLUICE_TESTS_SIM_PTX_STATEMENT_H
#define SLUICE_TESTS_SIM_PTX_STATEMENT_H

#include "text.h"

/* Takes an opcode apart: name and modifiers. */
void opcode_split(struct builder *builder, const char *word, struct statement *out);
/* Operands up to the ; that ends them. */
void arguments_read(struct builder *builder, struct cursor *cursor, struct statement *statement);
/* @p or @!p, when one is next. */
void guard_read(struct builder *builder, struct cursor *cursor, struct statement *statement);

#endif
