/* ONNX's RotaryEmbedding in the steps that it is made of: pairs of columns are turned,
 *
 *     a' = cos a - sin b
 *     b' = sin a + cos b
 *
 * a and b from the two halves of the columns that are turned, or next to each other.
 */
#include "graph/spell.h"
#include "ops/attend.h"

struct turning {
    struct spelling s;
    struct node *node;
    struct rotary_geometry g;
    bool interleaved;
};

/* cos or sin, as rows of X see it. */
static struct value *factors(struct turning *t, size_t index)
{
    const struct rotary_geometry *g = &t->g;
    struct value *cache = t->node->in[index];

    if (t->node->inputs > ROTARY_POSITIONS && t->node->in[ROTARY_POSITIONS] != NULL)
        cache = spell(&t->s, "Gather", cache, t->node->in[ROTARY_POSITIONS], NULL);
    if (cache == NULL)
        return NULL;
    return spell_reshape(
        &t->s, cache, 4,
        (int64_t[]){g->batch, g->by_rows ? g->rows : 1, g->by_rows ? 1 : g->rows, g->turned / 2});
}

/* One of the two columns of each pair, times one of the factors and the other, and their sum. */
static struct value *turned(struct turning *t, const char *join, struct value *a,
                            struct value *by_a, struct value *b, struct value *by_b)
{
    if (a == NULL || b == NULL || by_a == NULL || by_b == NULL)
        return NULL;
    a = spell(&t->s, "Mul", by_a, a, NULL);
    b = spell(&t->s, "Mul", by_b, b, NULL);
    return a == NULL || b == NULL ? NULL : spell(&t->s, join, a, b, NULL);
}

/* Pairs together again. */
static struct value *joined(struct turning *t, struct value *a, struct value *b)
{
    int64_t dims[5];
    struct value *both;

    if (a == NULL || b == NULL)
        return NULL;
    if (!t->interleaved)
        return spell_with(&t->s, "Concat", "axis", -1, a, b);
    for (size_t i = 0; i < 4; i++)
        dims[i] = a->shape.dims[i];
    dims[4] = 1;
    a = spell_reshape(&t->s, a, 5, dims);
    b = spell_reshape(&t->s, b, 5, dims);
    both = a == NULL || b == NULL ? NULL : spell_with(&t->s, "Concat", "axis", -1, a, b);
    dims[3] = t->g.turned;
    return both == NULL ? NULL : spell_reshape(&t->s, both, 4, dims);
}

static enum status spell_out(struct turning *t)
{
    const struct rotary_geometry *g = &t->g;
    const int64_t half = g->turned / 2;
    struct value *x = t->node->in[ROTARY_X], *cos = factors(t, ROTARY_COS);
    struct value *sin = factors(t, ROTARY_SIN), *a, *b, *out;

    if (g->by_rows)
        x = spell_reshape(&t->s, x, 4, (int64_t[]){g->batch, g->rows, g->heads, g->columns});
    if (x == NULL)
        return t->s.status;
    a = t->interleaved ? spell_columns(&t->s, x, 0, g->turned, 2)
                       : spell_columns(&t->s, x, 0, half, 1);
    b = t->interleaved ? spell_columns(&t->s, x, 1, g->turned, 2)
                       : spell_columns(&t->s, x, half, g->turned, 1);
    out = joined(t, turned(t, "Sub", a, cos, b, sin), turned(t, "Add", a, sin, b, cos));
    if (out != NULL && g->turned < g->columns)
        out = spell_with(&t->s, "Concat", "axis", -1, out,
                         spell_columns(&t->s, x, g->turned, g->columns, 1));
    if (out != NULL && g->by_rows)
        out = spell_reshape(&t->s, out, 3, (int64_t[]){g->batch, g->rows, g->heads * g->columns});
    spell_result(&t->s, 0, out);
    return t->s.status;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    (void)context;
    for (struct list *link = graph->nodes.next, *next; link != &graph->nodes; link = next) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct turning t = {.s = {.graph = graph, .before = node, .err = err}, .node = node};
        const struct rotary_attrs *attrs = node->attrs;
        const struct shape *shapes[ROTARY_INPUTS] = {NULL};

        next = link->next;
        if (node->op != &op_rotary_embedding)
            continue;
        for (size_t i = 0; i < node->inputs; i++)
            shapes[i] = node->in[i] != NULL ? &node->in[i]->shape : NULL;
        TRY(rotary_resolve(attrs, shapes, &t.g, err));
        t.interleaved = attrs->interleaved != 0;
        TRY(spell_out(&t));
        graph_remove_node(graph, node);
    }
    return STATUS_OK;
}

const struct pass pass_spell_rotary = {.name = "spell_rotary", .stage = PASS_PLAN, .run = run};
