#include "arms.h"

#include <string.h>

op_fn *arm_find(const struct arm *arms, const char *name, enum type type)
{
    for (; arms->name != NULL; arms++)
        if (arms->type == type && strcmp(arms->name, name) == 0)
            return arms->fn;
    return NULL;
}

struct op *emit_operands(struct builder *builder, struct statement *statement, op_fn *fn,
                         unsigned d, unsigned a, unsigned b, unsigned c)
{
    const unsigned bytes[] = {a, b, c};
    struct operand sources[3] = {{0}};
    unsigned count = 0;

    while (count < 3 && bytes[count] != 0)
        count++;
    need_arguments(builder, statement, count + 1, count + 1);
    for (unsigned i = 0; i < count; i++)
        sources[i] = source(builder, &statement->arguments[i + 1], bytes[i]);
    struct operand result = destination(builder, &statement->arguments[0], d);
    struct op *op = emit(builder, statement, fn);
    op->d = result;
    op->a = sources[0];
    op->b = sources[1];
    op->c = sources[2];
    return op;
}
