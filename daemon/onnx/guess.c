#include "onnx/internal.h"

#include <string.h>

/* Operators whose output 0 has not the type of input 0: a fixed one, or that of another input. */
static const struct {
    const char *op;
    enum dtype dtype; /* DTYPE_NONE: that of `input` */
    size_t input;
} types[] = {
    {"Shape", DTYPE_INT64, 0},
    {"Size", DTYPE_INT64, 0},
    {"ArgMax", DTYPE_INT64, 0},
    {"ArgMin", DTYPE_INT64, 0},
    {"NonZero", DTYPE_INT64, 0},
    {"NonMaxSuppression", DTYPE_INT64, 0},
    {"Equal", DTYPE_BOOL, 0},
    {"Greater", DTYPE_BOOL, 0},
    {"GreaterOrEqual", DTYPE_BOOL, 0},
    {"Less", DTYPE_BOOL, 0},
    {"LessOrEqual", DTYPE_BOOL, 0},
    {"IsNaN", DTYPE_BOOL, 0},
    {"IsInf", DTYPE_BOOL, 0},
    {"CastLike", DTYPE_NONE, 1},
    {"Where", DTYPE_NONE, 1},
    {"OneHot", DTYPE_NONE, 2},
    {"DequantizeLinear", DTYPE_NONE, 1},
};

/* Operators that name a type in an attribute. */
static enum dtype type_from_attrs(const struct node *node)
{
    const struct attr_def *def = node->op->attrs;

    for (; def != NULL && def->type != ATTR_END; def++) {
        const void *field = (const char *)node->attrs + def->offset;

        if (def->type == ATTR_INT &&
            (strcmp(def->name, "to") == 0 || strcmp(def->name, "dtype") == 0)) {
            int64_t type = *(const int64_t *)field;

            return type > 0 && type < DTYPE_COUNT ? (enum dtype)type : DTYPE_NONE;
        }
        if (def->type == ATTR_TENSOR && strcmp(node->op->onnx.name, "ConstantOfShape") == 0)
            return ((const struct tensor *)field)->dtype == DTYPE_NONE
                       ? DTYPE_FLOAT
                       : ((const struct tensor *)field)->dtype;
    }
    return DTYPE_NONE;
}

static enum dtype type_of_output(const struct node *node)
{
    enum dtype dtype = type_from_attrs(node);
    size_t input = 0;

    if (dtype != DTYPE_NONE)
        return dtype;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(types[i].op, node->op->onnx.name) != 0)
            continue;
        if (types[i].dtype != DTYPE_NONE)
            return types[i].dtype;
        input = types[i].input;
    }
    return input < node->inputs && node->in[input] != NULL ? node->in[input]->dtype : DTYPE_NONE;
}

void guess_types(struct node *node)
{
    enum dtype dtype = type_of_output(node);
    bool same = strcmp(node->op->onnx.name, "Split") == 0;

    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL && (i == 0 || same))
            node->out[i]->dtype = dtype;
}
