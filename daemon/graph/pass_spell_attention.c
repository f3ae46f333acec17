/* ONNX's Attention in the steps that it is made of:
 *
 *     K, V   behind what was before; heads of Q that share some of K in a dimension of their own
 *     scores = scale Q K^T, capped, and all masks added, -infinity where a key is not seen
 *     result = Softmax(scores) V
 *
 * so that every device computes it, and those that know attention in one step find it again
 * (pass_fuse_attention.c).  The triangle of is_causal is a constant mask, which that pass knows.
 */
#include <math.h>

#include "graph/spell.h"
#include "ops/attend.h"

struct attending {
    struct spelling s;
    const struct pass_context *context;
    struct node *node;
    const struct attend_attrs *attrs;
    struct attend_geometry g;
    bool shares; /* heads of K and V: scores have five dimensions */
    enum dtype dtype;
    struct value *k, *v; /* with those of the past */
};

static struct value *input(const struct attending *a, size_t index)
{
    return index < a->node->inputs ? a->node->in[index] : NULL;
}

static bool is_wanted(const struct attending *a, size_t index)
{
    return index < a->node->outputs && a->node->out[index] != NULL;
}

/* [batch, head, row, column] of an operand. */
static struct value *by_heads(struct attending *a, struct value *value, int64_t heads)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    const int64_t *dims = value->shape.dims;

    if (value->shape.rank == 4)
        return value;
    return spell_transpose(
        &a->s,
        spell_reshape(&a->s, value, 4, (int64_t[]){dims[0], dims[1], heads, dims[2] / heads}),
        perm);
}

/* [batch, heads, sharing, row, column] of one. */
static struct value *by_groups(struct attending *a, struct value *value, int64_t sharing)
{
    static const int64_t perm[] = {0, 2, 3, 1, 4};
    const int64_t heads = a->g.kv_heads;
    const int64_t *dims = value->shape.dims;

    if (value->shape.rank == 4)
        return spell_reshape(&a->s, value, 5,
                             (int64_t[]){dims[0], heads, sharing, dims[2], dims[3]});
    return spell_transpose(
        &a->s,
        spell_reshape(&a->s, value, 5,
                      (int64_t[]){dims[0], dims[1], heads, sharing, dims[2] / heads / sharing}),
        perm);
}

static struct value *divided(struct attending *a, struct value *value, int64_t heads)
{
    return value == NULL ? NULL
           : a->shares   ? by_groups(a, value, heads / a->g.kv_heads)
                         : by_heads(a, value, heads);
}

/* Keys or values with those of the past, where there is one or somebody wants both. */
static struct value *present(struct attending *a, size_t index, size_t past, size_t output)
{
    struct value *value = input(a, index);

    if (input(a, past) == NULL && !is_wanted(a, output))
        return value;
    value = by_heads(a, value, a->g.kv_heads);
    if (input(a, past) != NULL && value != NULL)
        value = spell_with(&a->s, "Concat", "axis", 2, input(a, past), value);
    return value;
}

/* ---- scores ---- */

static struct value *scaled(struct attending *a, struct value *value)
{
    const double scale =
        isnan(a->attrs->scale) ? 1 / sqrt((double)a->g.depth) : (double)a->attrs->scale;

    return value == NULL ? NULL
                         : spell(&a->s, "Mul", value, spell_number(&a->s, a->dtype, scale), NULL);
}

/* The scale is a product's own where it may be one (pass_fuse_scale.c), else it comes first: a
 * product in 16 bits has less range than one that is scaled. */
static struct value *product(struct attending *a)
{
    static const int64_t turned[] = {0, 1, 3, 2}, turned_groups[] = {0, 1, 2, 4, 3};
    const bool scale_behind =
        a->dtype == DTYPE_FLOAT || a->dtype == DTYPE_DOUBLE || a->context->fuses_narrow;
    struct value *q = divided(a, input(a, ATTEND_Q), a->g.q_heads);
    struct value *k = divided(a, a->k, a->g.kv_heads), *scores;

    if (!scale_behind)
        q = scaled(a, q);
    if (q == NULL || k == NULL)
        return NULL;
    scores = spell(&a->s, "MatMul", q,
                   spell_transpose(&a->s, k, a->shares ? turned_groups : turned), NULL);
    return scale_behind ? scaled(a, scores) : scores;
}

static struct value *capped(struct attending *a, struct value *scores)
{
    struct value *cap;

    if (a->attrs->softcap == 0 || scores == NULL)
        return scores;
    cap = spell_number(&a->s, a->dtype, (double)a->attrs->softcap);
    scores = spell(&a->s, "Div", scores, cap, NULL);
    return scores == NULL
               ? NULL
               : spell(&a->s, "Mul", spell(&a->s, "Tanh", scores, NULL, NULL), cap, NULL);
}

/* Keys beyond its end are hidden. */
static struct value *lengthened(struct attending *a, struct value *mask)
{
    const size_t rank = mask->shape.rank;
    int64_t pads[8] = {0};

    if (mask->shape.dims[rank - 1] >= a->g.keys || mask->shape.dims[rank - 1] == 1)
        return mask;
    pads[2 * rank - 1] = a->g.keys - mask->shape.dims[rank - 1];
    return spell(&a->s, "Pad", mask, spell_ints(&a->s, 2 * rank, pads),
                 mask->dtype == DTYPE_BOOL ? NULL : spell_number(&a->s, mask->dtype, -INFINITY));
}

/* A mask of heads that share is one of groups. */
static struct value *grouped(struct attending *a, struct value *mask)
{
    const struct shape *shape = &mask->shape;
    const size_t rank = shape->rank;
    const int64_t heads = rank >= 3 ? shape->dims[rank - 3] : 1;
    const int64_t dims[] = {rank == 4 ? shape->dims[0] : 1, heads == 1 ? 1 : a->g.kv_heads,
                            heads == 1 ? 1 : heads / a->g.kv_heads, shape->dims[rank - 2],
                            shape->dims[rank - 1]};

    return a->shares && rank > 2 ? spell_reshape(&a->s, mask, 5, dims) : mask;
}

/* A boolean mask as one that is added: what every device has in one step. */
static struct value *as_numbers(struct attending *a, struct value *mask)
{
    return mask == NULL ? NULL
                        : spell(&a->s, "Where", mask, spell_number(&a->s, a->dtype, 0),
                                spell_number(&a->s, a->dtype, -INFINITY));
}

static struct value *added(struct attending *a, struct value *scores, struct value *mask)
{
    return mask == NULL || scores == NULL ? NULL : spell(&a->s, "Add", scores, mask, NULL);
}

static struct value *masked(struct attending *a, struct value *scores)
{
    struct value *mask = input(a, ATTEND_MASK);

    if (mask == NULL)
        return scores;
    mask = lengthened(a, mask);
    if (mask != NULL && mask->dtype == DTYPE_BOOL)
        mask = as_numbers(a, mask);
    return added(a, scores, mask == NULL ? NULL : grouped(a, mask));
}

/* Query i sees the keys of the past and i of its own. */
static struct value *causal(struct attending *a, struct value *scores)
{
    const struct shape shape = shape_make(2, (int64_t[]){a->g.queries, a->g.keys});
    void *elements;
    struct value *mask;

    if (!a->attrs->is_causal)
        return scores;
    mask = spell_constant(&a->s, a->dtype, &shape, &elements);
    for (int64_t i = 0; mask != NULL && i < a->g.queries * a->g.keys; i++)
        spell_put(a->dtype, elements, i,
                  i % a->g.keys <= i / a->g.keys + a->g.past ? 0 : -INFINITY);
    return added(a, scores, mask);
}

/* Each sequence has so many keys. */
static struct value *cut(struct attending *a, struct value *scores)
{
    const struct shape shape = shape_make(1, &a->g.keys);
    const int64_t dims[] = {a->g.batch, 1, 1, 1, 1};
    void *elements;
    struct value *keys, *counts;

    if (input(a, ATTEND_KEYS_THERE) == NULL)
        return scores;
    keys = spell_constant(&a->s, DTYPE_INT64, &shape, &elements);
    for (int64_t i = 0; keys != NULL && i < a->g.keys; i++)
        ((int64_t *)elements)[i] = i;
    counts = spell_reshape(&a->s, input(a, ATTEND_KEYS_THERE), a->shares ? 5 : 4, dims);
    return counts == NULL
               ? NULL
               : added(a, scores, as_numbers(a, spell(&a->s, "Less", keys, counts, NULL)));
}

static struct value *softened(struct attending *a, struct value *scores)
{
    const enum dtype precision = (enum dtype)a->attrs->softmax_precision;
    const bool casts = precision != DTYPE_NONE && precision != a->dtype;

    if (casts && scores != NULL)
        scores = spell_with(&a->s, "Cast", "to", precision, scores, NULL);
    if (scores != NULL)
        scores = spell_with(&a->s, "Softmax", "axis", -1, scores, NULL);
    return casts && scores != NULL ? spell_with(&a->s, "Cast", "to", a->dtype, scores, NULL)
                                   : scores;
}

/* ---- results ---- */

static void put_scores(struct attending *a, int64_t mode, struct value *scores)
{
    const struct attend_geometry *g = &a->g;

    if (mode != a->attrs->qk_matmul_output_mode || !is_wanted(a, ATTEND_SCORES) || scores == NULL)
        return;
    if (a->shares)
        scores =
            spell_reshape(&a->s, scores, 4, (int64_t[]){g->batch, g->q_heads, g->queries, g->keys});
    spell_result(&a->s, ATTEND_SCORES, scores);
}

/* As Q came. */
static struct value *together(struct attending *a, struct value *result)
{
    static const int64_t perm[] = {0, 2, 1, 3}, perm_groups[] = {0, 3, 1, 2, 4};
    const struct attend_geometry *g = &a->g;

    if (result == NULL)
        return NULL;
    if (g->by_rows) {
        result = spell_transpose(&a->s, result, a->shares ? perm_groups : perm);
        return result == NULL
                   ? NULL
                   : spell_reshape(&a->s, result, 3,
                                   (int64_t[]){g->batch, g->queries, g->q_heads * g->width});
    }
    return a->shares ? spell_reshape(&a->s, result, 4,
                                     (int64_t[]){g->batch, g->q_heads, g->queries, g->width})
                     : result;
}

static enum status spell_out(struct attending *a)
{
    struct value *scores, *parts, *v;

    a->k = present(a, ATTEND_K, ATTEND_PAST_K, ATTEND_PRESENT_K);
    a->v = present(a, ATTEND_V, ATTEND_PAST_V, ATTEND_PRESENT_V);
    scores = product(a);
    put_scores(a, ATTEND_RAW, scores);
    scores = capped(a, scores);
    put_scores(a, ATTEND_CAPPED, scores);
    scores = cut(a, causal(a, masked(a, scores)));
    put_scores(a, ATTEND_MASKED, scores);
    parts = softened(a, scores);
    put_scores(a, ATTEND_SOFTENED, parts);
    v = divided(a, a->v, a->g.kv_heads);
    if (a->s.status == STATUS_OK)
        spell_result(&a->s, ATTEND_OUT, together(a, spell(&a->s, "MatMul", parts, v, NULL)));
    spell_result(&a->s, ATTEND_PRESENT_K, a->k);
    spell_result(&a->s, ATTEND_PRESENT_V, a->v);
    return a->s.status;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    for (struct list *link = graph->nodes.next, *next; link != &graph->nodes; link = next) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct attending a = {.s = {.graph = graph, .before = node, .err = err},
                              .context = context,
                              .node = node,
                              .attrs = node->attrs};
        const struct shape *shapes[ATTEND_INPUTS] = {NULL};

        next = link->next;
        if (node->op != &op_attend)
            continue;
        for (size_t i = 0; i < node->inputs; i++)
            shapes[i] = node->in[i] != NULL ? &node->in[i]->shape : NULL;
        TRY(attend_resolve(a.attrs, shapes, &a.g, err));
        a.dtype = node->in[ATTEND_Q]->dtype;
        a.shares = a.g.q_heads != a.g.kv_heads;
        TRY(spell_out(&a));
        graph_remove_node(graph, node);
    }
    return STATUS_OK;
}

const struct pass pass_spell_attention = {
    .name = "spell_attention", .stage = PASS_PLAN, .run = run};
