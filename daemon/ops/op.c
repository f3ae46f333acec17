#include "ops/op.h"

#include <string.h>

static const struct op_def *const table[] = {
#define OP(name) &op_##name,
#include "ops/ops.def"
#undef OP
    NULL,
};

const struct op_def *const *op_table(size_t *out_count)
{
    *out_count = sizeof(table) / sizeof(table[0]) - 1;
    return table;
}

/* ONNX's own domain has two spellings; NULL and "" are the usual one. */
static const char *plain_domain(const char *domain)
{
    return domain == NULL || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

const struct op_def *op_find(const char *domain, const char *onnx_name)
{
    domain = plain_domain(domain);
    for (const struct op_def *const *op = table; *op != NULL; op++)
        if ((*op)->onnx.name != NULL && strcmp((*op)->onnx.name, onnx_name) == 0 &&
            strcmp(plain_domain((*op)->onnx.domain), domain) == 0)
            return *op;
    return NULL;
}

uint64_t op_flops(const struct op_def *op, const struct op_call *call)
{
    if (op->flops != NULL)
        return op->flops(call);
    return (op->flags & OP_ELEMENTWISE) != 0 && (op->flags & OP_VIEW) == 0
               ? op_flops_each_output(call)
               : 0;
}

static void set_default(const struct attr_def *def, char *field)
{
    switch (def->type) {
    case ATTR_INT:
        *(int64_t *)(void *)field = def->default_int;
        break;
    case ATTR_ENUM:
        *(int *)(void *)field = (int)def->default_int;
        break;
    case ATTR_FLOAT:
        *(float *)(void *)field = def->default_float;
        break;
    case ATTR_STRING:
        *(const char **)(void *)field = def->default_text;
        break;
    case ATTR_END:
    case ATTR_INTS:
    case ATTR_FLOATS:
    case ATTR_STRINGS:
    case ATTR_TENSOR:
    case ATTR_GRAPH:
        break;
    }
}

void op_attrs_default(const struct op_def *op, void *attrs)
{
    if (op->attrs_size > 0)
        memset(attrs, 0, op->attrs_size);
    if (op->attrs == NULL)
        return;
    for (const struct attr_def *def = op->attrs; def->type != ATTR_END; def++)
        set_default(def, (char *)attrs + def->offset);
}
