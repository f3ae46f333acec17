#include "graph/spell.h"

static struct value *fail(struct spelling *s, enum status status)
{
    s->status = status == STATUS_NO_MEMORY ? pass_no_memory(s->err) : status;
    return NULL;
}

/* Puts the node in, with `out` as its output or a new one; attributes are the defaults. */
static struct node *add(struct spelling *s, const char *name, size_t inputs,
                        struct value *const *in)
{
    const struct op_def *op = op_find("", name);
    struct node *node = NULL;
    struct value *out = NULL;

    if (s->status != STATUS_OK)
        return NULL;
    out = graph_add_value(s->graph, "");
    if (out != NULL)
        node = graph_add_node(s->graph, s->before, op, s->before->name, inputs, 1);
    if (node == NULL) {
        (void)fail(s, STATUS_NO_MEMORY);
        return NULL;
    }
    op_attrs_default(op, node->attrs);
    for (size_t i = 0; i < inputs; i++)
        node_set_input(node, i, in[i]);
    node_set_output(node, 0, out);
    return node;
}

static struct value *infer(struct spelling *s, struct node *node)
{
    const enum status status = node != NULL ? graph_infer_node(s->graph, node, s->err) : s->status;

    return status == STATUS_OK ? node->out[0] : fail(s, status);
}

static struct node *begin(struct spelling *s, const char *op, struct value *a, struct value *b,
                          struct value *c)
{
    struct value *const in[SPELL_INPUTS] = {a, b, c};

    return add(s, op, c != NULL ? 3 : b != NULL ? 2 : 1, in);
}

struct value *spell(struct spelling *s, const char *op, struct value *a, struct value *b,
                    struct value *c)
{
    return infer(s, begin(s, op, a, b, c));
}

struct value *spell_with(struct spelling *s, const char *op, const char *attribute, int64_t number,
                         struct value *a, struct value *b)
{
    struct node *node = begin(s, op, a, b, NULL);

    if (node != NULL)
        (void)node_set_int(node, attribute, number);
    return infer(s, node);
}

struct value *spell_transpose(struct spelling *s, struct value *value, const int64_t *perm)
{
    struct node *node = begin(s, "Transpose", value, NULL, NULL);
    const size_t rank = node != NULL ? value->shape.rank : 0;
    const int64_t *copy =
        node != NULL ? arena_copy(&s->graph->arena, perm, rank * sizeof(*perm)) : NULL;

    if (node == NULL)
        return NULL;
    if (copy == NULL)
        return fail(s, STATUS_NO_MEMORY);
    *(struct ints *)node_attr(node, "perm") = (struct ints){rank, copy};
    return infer(s, node);
}

struct value *spell_reshape(struct spelling *s, struct value *value, size_t rank,
                            const int64_t *dims)
{
    return spell_with(s, "Reshape", "allowzero", 1, value, spell_ints(s, rank, dims));
}

struct value *spell_columns(struct spelling *s, struct value *value, int64_t from, int64_t to,
                            int64_t step)
{
    struct value *in[] = {value, spell_ints(s, 1, &from), spell_ints(s, 1, &to),
                          spell_ints(s, 1, &(int64_t){-1}), spell_ints(s, 1, &step)};

    return infer(s, add(s, "Slice", sizeof(in) / sizeof(in[0]), in));
}

struct value *spell_constant(struct spelling *s, enum dtype dtype, const struct shape *shape,
                             void **out_elements)
{
    struct constant *constant = s->status == STATUS_OK ? constant_allocate(dtype, shape) : NULL;
    struct value *value = constant != NULL ? graph_add_constant(s->graph, "", constant) : NULL;

    if (s->status != STATUS_OK)
        return NULL;
    if (value == NULL)
        return fail(s, STATUS_NO_MEMORY);
    *out_elements = (void *)(uintptr_t)constant->tensor.data;
    return value;
}

struct value *spell_ints(struct spelling *s, size_t count, const int64_t *ints)
{
    const struct shape shape = shape_make(1, &(int64_t){(int64_t)count});
    void *elements;
    struct value *value = spell_constant(s, DTYPE_INT64, &shape, &elements);

    for (size_t i = 0; value != NULL && i < count; i++)
        ((int64_t *)elements)[i] = ints[i];
    return value;
}

void spell_put(enum dtype dtype, void *elements, int64_t index, double number)
{
    switch (dtype) {
    case DTYPE_DOUBLE:
        ((double *)elements)[index] = number;
        break;
    case DTYPE_FLOAT16:
        ((uint16_t *)elements)[index] = half_from_float((float)number);
        break;
    case DTYPE_BFLOAT16:
        ((uint16_t *)elements)[index] = bfloat16_from_float((float)number);
        break;
    default:
        ((float *)elements)[index] = (float)number;
    }
}

struct value *spell_number(struct spelling *s, enum dtype dtype, double number)
{
    const struct shape shape = {.rank = 0};
    void *element;
    struct value *value = spell_constant(s, dtype, &shape, &element);

    if (value != NULL)
        spell_put(dtype, element, 0, number);
    return value;
}

void spell_result(struct spelling *s, size_t index, struct value *value)
{
    struct value *old = index < s->before->outputs ? s->before->out[index] : NULL;
    struct node *node;
    enum status status;

    if (s->status != STATUS_OK || old == NULL)
        return;
    status = graph_replace_value(s->graph, old, value);
    if (status != STATUS_PRECONDITION) {
        s->status = status;
        return;
    }
    node = begin(s, "Identity", value, NULL, NULL); /* two names for one value */
    if (node == NULL)
        return;
    node_set_output(s->before, index, NULL);
    node_set_output(node, 0, old);
    (void)infer(s, node);
}
