/* Attention spelled out becomes one step, on devices that have a kernel for it:
 *
 *     MatMul(Softmax(MatMul(q, kᵀ) · c + mask), v)  →  Attention(q, k, v, mask)
 *
 * with up to two masks that are added, or that say by Where() which scores stay.  A mask that is
 * constant and a triangle exactly makes the step causal: it need not be read then, and neither need
 * keys that no query sees.  Zeros may stand in for a softmax that is not a number, as PyTorch
 * writes for a query that may look at nothing.  Transpositions that divide heads before it and put
 * them together behind it become the axes by which the step reads and writes.  In 16-bit types
 * where the device says so; the scores, their masks and the softmax may be float32 then, with a
 * Cast before and one behind. Runs when the products have taken in their scale, but no bias or
 * residual yet: those would be the masks.
 */
#include <math.h>

#include "graph/match.h"
#include "graph/narrow.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "ops/softmax.h"

struct finding {
    struct attention_attrs attrs;
    struct value *in[ATTENTION_INPUTS];
    size_t masks;
    enum dtype dtype;  /* of all of it */
    struct node *root; /* makes the result */
};

/* A product of floats without anything else. */
static bool is_product(const struct node *node, enum dtype dtype)
{
    const struct matmul_attrs *attrs = node->attrs;

    return node->op == &op_matmul && node->inputs == 2 && attrs->epilogue.act == ACT_NONE &&
           node->in[MATMUL_A]->dtype == dtype;
}

/* Axes of `value` seen as a matrix, and through the Transpose that only this use needs. */
static void find_axes(const struct graph *graph, struct value *value, bool transposed,
                      struct attention_axes *axes, struct value **out_source)
{
    struct node *before = producer_is(value, "Transpose");
    const struct ints *perm = before != NULL && graph_single_user(graph, value) != NULL
                                  ? node_attr_ints(before, "perm")
                                  : NULL;
    const size_t rank = value->shape.rank;

    for (size_t i = 0; i < rank; i++) {
        size_t seen = transposed && i + 2 >= rank ? 2 * rank - 3 - i : i;

        axes->axis[i] = (uint8_t)(perm != NULL ? perm->values[seen] : (int64_t)seen);
    }
    *out_source = perm != NULL ? before->in[0] : value;
}

/* What a Cast that only this use needs was made of; `value` itself where there is none. */
static struct value *uncast(const struct graph *graph, struct value *value, enum dtype from,
                            enum dtype to)
{
    const struct node *cast = producer_is(value, "Cast");

    return cast != NULL && from != to && node_is_cast(cast, from, to) &&
                   graph_single_user(graph, value) != NULL
               ? cast->in[0]
               : value;
}

static bool find_scores(const struct graph *graph, struct value *value, struct finding *finding);

/* `mask` acts on what `value` is, which is of the shape of all scores. */
static bool find_behind(const struct graph *graph, struct value *value, const struct shape *scores,
                        struct value *mask, struct attention_mask kind, struct finding *finding)
{
    const size_t before = finding->masks;

    if (before == 2 || !shape_is_equal(&value->shape, scores))
        return false;
    finding->in[ATTENTION_MASK + before] = mask;
    finding->attrs.mask[before] = kind;
    finding->masks = before + 1;
    if (find_scores(graph, value, finding))
        return true;
    finding->masks = before;
    return false;
}

/* Where(mask, scores, number), or the other way round. */
static bool find_choice(const struct graph *graph, const struct node *where,
                        struct finding *finding)
{
    const struct shape *shape = &where->out[0]->shape;

    for (size_t side = 1; side <= 2; side++) {
        double fill;

        if (value_number(where->in[3 - side], shape->rank, &fill) && !isnan(fill) &&
            find_behind(graph, where->in[side], shape, where->in[0],
                        (struct attention_mask){.hides = side == 2, .fill = (float)fill}, finding))
            return true;
    }
    return false;
}

/* The scores: a product of q and k, with masks one by one, the last one first. */
static bool find_scores(const struct graph *graph, struct value *value, struct finding *finding)
{
    struct node *node;

    value = uncast(graph, value, finding->dtype, DTYPE_FLOAT);
    node = value->producer;
    if (node == NULL || graph_single_user(graph, value) == NULL)
        return false;
    if (is_product(node, finding->dtype)) {
        const struct matmul_attrs *attrs = node->attrs;

        finding->attrs.scale = attrs->has_scale ? attrs->scale : 1;
        find_axes(graph, node->in[MATMUL_A], attrs->trans_a, &finding->attrs.q,
                  &finding->in[ATTENTION_Q]);
        find_axes(graph, node->in[MATMUL_B], !attrs->trans_b, &finding->attrs.k,
                  &finding->in[ATTENTION_K]);
        return node->in[MATMUL_A]->shape.rank == node->in[MATMUL_B]->shape.rank;
    }
    if (node->op == &op_where)
        return find_choice(graph, node, finding);
    if (node->op != &op_add || node->inputs != 2)
        return false;
    for (size_t side = 0; side < 2; side++)
        if (find_behind(graph, node->in[side], &value->shape, node->in[1 - side],
                        (struct attention_mask){.fill = 0}, finding))
            return true;
    return false;
}

static bool is_choice(const struct finding *finding, size_t mask)
{
    return finding->in[ATTENTION_MASK + mask]->dtype == DTYPE_BOOL;
}

/* Masks were found from the last one on.  In which order numbers are added is all the same. */
static void put_first_mask_first(struct finding *finding)
{
    struct value **in = finding->in + ATTENTION_MASK, *value = in[0];
    struct attention_mask *kinds = finding->attrs.mask, kind = kinds[0];

    if (finding->masks < 2 || (!is_choice(finding, 0) && !is_choice(finding, 1)))
        return;
    in[0] = in[1];
    in[1] = value;
    kinds[0] = kinds[1];
    kinds[1] = kind;
}

/* ---- triangles ---- */

enum sight { SEES, HIDES, NEITHER };

/* What an element of mask `number` makes of a score. */
static enum sight sight_at(const struct finding *finding, size_t number, size_t index)
{
    const struct tensor *mask = &finding->in[ATTENTION_MASK + number]->constant->tensor;
    double added;

    if (mask->dtype == DTYPE_BOOL)
        return (((const uint8_t *)mask->data)[index] != 0) == finding->attrs.mask[number].hides
                   ? HIDES
                   : SEES;
    added = tensor_float(mask, index);
    return added == 0 ? SEES : added == -INFINITY ? HIDES : NEITHER;
}

/* How many keys the row of a mask shows, if these are the first ones and all others are hidden;
 * else -1. */
static int64_t seen_in_row(const struct finding *finding, size_t number, int64_t row, int64_t keys)
{
    const size_t first = (size_t)(row * keys);
    int64_t seen = 0;

    while (seen < keys && sight_at(finding, number, first + (size_t)seen) == SEES)
        seen++;
    for (int64_t key = seen; key < keys; key++)
        if (sight_at(finding, number, first + (size_t)key) != HIDES)
            return -1;
    return seen;
}

static int64_t seen_by(int64_t row, int64_t offset, int64_t keys)
{
    const int64_t seen = row + offset + 1;

    return seen < 0 ? 0 : seen < keys ? seen : keys;
}

/* Whether each query of a constant mask sees one key more than the one before, as far as there are
 * keys; one row at least says by how many they are apart. */
static bool rows_are_triangle(const struct finding *finding, size_t number, int64_t queries,
                              int64_t keys, int64_t *out_offset)
{
    int64_t offset = 0;
    bool found = false;

    for (int64_t row = 0; row < queries; row++) {
        const int64_t seen = seen_in_row(finding, number, row, keys);

        if (seen < 0 || (found && seen != seen_by(row, offset, keys)))
            return false;
        if (found || seen == 0)
            continue;
        if (seen == keys)
            return false; /* of the first rows with keys, none says where the edge is */
        found = true;
        offset = seen - 1 - row;
        if (row > 0 && offset + row != 0)
            return false; /* rows without keys lie above the edge */
    }
    *out_offset = offset;
    return found;
}

static bool is_triangle(const struct finding *finding, size_t number, int64_t *out_offset)
{
    const struct value *mask = finding->in[ATTENTION_MASK + number];
    const struct shape *shape = &mask->shape;
    const size_t rank = shape->rank;
    bool brought, is_one;

    if (mask->constant == NULL || rank < 2 || shape->dims[rank - 2] < 2 ||
        shape_count(shape) != shape->dims[rank - 2] * shape->dims[rank - 1])
        return false;
    brought = mask->constant->tensor.data == NULL;
    if (constant_restore(mask->constant) != STATUS_OK)
        return false;
    is_one = rows_are_triangle(finding, number, shape->dims[rank - 2], shape->dims[rank - 1],
                               out_offset);
    if (brought)
        constant_drop(mask->constant);
    return is_one;
}

/* A triangle that hides by -infinity may act at any place, others only behind all else. */
static bool make_causal(struct finding *finding)
{
    struct attention_attrs *attrs = &finding->attrs;

    for (size_t i = finding->masks; i-- > 0;) {
        const float fill = is_choice(finding, i) ? attrs->mask[i].fill : -INFINITY;

        if ((fill > -INFINITY && i + 1 < finding->masks) ||
            !is_triangle(finding, i, &attrs->causal_offset))
            continue;
        attrs->is_causal = true;
        attrs->causal_fill = fill;
        for (size_t k = i; k + 1 < finding->masks; k++) {
            finding->in[ATTENTION_MASK + k] = finding->in[ATTENTION_MASK + k + 1];
            attrs->mask[k] = attrs->mask[k + 1];
        }
        finding->in[ATTENTION_MASK + --finding->masks] = NULL;
        attrs->mask[finding->masks] = (struct attention_mask){.fill = 0};
        return true;
    }
    return false;
}

/* ---- the step ---- */

/* What puts the heads together again is part of the step, if it leaves rows whole. */
static void find_result(const struct graph *graph, struct node *product, struct finding *finding)
{
    const size_t rank = product->out[0]->shape.rank;
    struct node *user = graph_single_user(graph, product->out[0]);
    const struct ints *perm =
        user != NULL && node_is(user, "Transpose") ? node_attr_ints(user, "perm") : NULL;

    finding->root = product;
    for (size_t i = 0; i < rank; i++)
        finding->attrs.out.axis[i] = (uint8_t)i;
    if (perm == NULL || perm->values[rank - 1] != (int64_t)rank - 1)
        return;
    finding->root = user;
    for (size_t i = 0; i < rank; i++)
        finding->attrs.out.axis[perm->values[i]] = (uint8_t)i;
}

/* p of Where(IsNaN(p), 0, p) if nothing else uses what lies between; else `value` itself. */
static struct value *unguarded(const struct graph *graph, struct value *value)
{
    const struct node *where = producer_is(value, "Where"), *is_nan;
    double number;

    if (where == NULL || graph_single_user(graph, value) == NULL ||
        !value_number(where->in[1], value->shape.rank, &number) || number != 0)
        return value;
    is_nan = producer_is(where->in[0], "IsNaN");
    return is_nan != NULL && is_nan->in[0] == where->in[2] && where->in[2]->users == 2 &&
                   graph_single_user(graph, where->in[0]) != NULL
               ? where->in[2]
               : value;
}

static bool softmax_goes_by_keys(const struct node *softmax)
{
    const struct shape *shape = &softmax->out[0]->shape;
    const struct softmax_attrs *attrs = softmax->attrs;

    return shape->rank >= 2 && shape_axis(shape, attrs->axis) == shape->rank - 1;
}

static bool find(const struct graph *graph, struct node *product, struct finding *finding)
{
    const struct matmul_attrs *attrs = product->attrs;
    struct value *guarded = uncast(graph, product->in[MATMUL_A], DTYPE_FLOAT, finding->dtype);
    struct value *parts = unguarded(graph, guarded);
    struct node *softmax = producer_is(parts, "Softmax");
    const struct shape *masks[2] = {NULL, NULL}, *expected;
    struct attention_geometry geometry;
    struct shape out;

    if (softmax == NULL || attrs->trans_a || attrs->has_scale ||
        (parts == guarded && graph_single_user(graph, parts) == NULL) ||
        !softmax_goes_by_keys(softmax) ||
        softmax->out[0]->shape.rank != product->in[MATMUL_B]->shape.rank ||
        !find_scores(graph, softmax->in[0], finding) ||
        finding->in[ATTENTION_Q]->shape.rank != softmax->out[0]->shape.rank)
        return false;
    finding->attrs.zeroes_nan = parts != guarded;
    find_axes(graph, product->in[MATMUL_B], attrs->trans_b, &finding->attrs.v,
              &finding->in[ATTENTION_V]);
    find_result(graph, product, finding);
    put_first_mask_first(finding);
    for (size_t i = 0; i < finding->masks; i++) {
        const enum dtype dtype = finding->in[ATTENTION_MASK + i]->dtype;

        if (dtype != finding->dtype && dtype != DTYPE_FLOAT && dtype != DTYPE_BOOL)
            return false;
        masks[i] = &finding->in[ATTENTION_MASK + i]->shape;
    }
    if (attention_resolve(&finding->attrs, &finding->in[ATTENTION_Q]->shape,
                          &finding->in[ATTENTION_K]->shape, &finding->in[ATTENTION_V]->shape, masks,
                          &geometry, NULL) != STATUS_OK)
        return false;
    out = attention_output_shape(&finding->attrs, &geometry);
    expected = &finding->root->out[0]->shape;
    return shape_is_equal(&out, expected) && shape_count(expected) > 0;
}

/* Whether the device has a kernel for it. */
static bool is_taken(const struct pass_context *context, const struct finding *finding)
{
    const struct shape *shapes[ATTENTION_INPUTS] = {NULL};
    bool adds = !finding->attrs.is_causal;

    if (finding->attrs.zeroes_nan && !context->guards_attention)
        return false;
    for (size_t i = 0; i < finding->masks; i++)
        adds = adds && !is_choice(finding, i);
    if (finding->dtype == DTYPE_FLOAT && adds)
        return context->fuses_attention;
    for (size_t i = 0; i < ATTENTION_MASK + finding->masks; i++)
        shapes[i] = &finding->in[i]->shape;
    return context->takes_attention != NULL &&
           context->takes_attention(context->attention_arg, &finding->attrs, finding->dtype,
                                    shapes);
}

/* Causal if it can be, else by its masks. */
static bool settle(const struct pass_context *context, struct finding *finding)
{
    const struct finding masked = *finding;

    if (make_causal(finding) && is_taken(context, finding))
        return true;
    *finding = masked;
    return is_taken(context, finding);
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link), *made;
        struct finding finding = {
            .dtype = node->inputs > 0 && node->in[0] != NULL ? node->in[0]->dtype : DTYPE_NONE};

        link = link->next;
        if (!dtype_is_float(finding.dtype) || !is_product(node, finding.dtype) ||
            !find(graph, node, &finding) || !settle(context, &finding))
            continue;
        if (link == &finding.root->link)
            link = link->next;
        made = node_replace(graph, finding.root, &op_attention, ATTENTION_MASK + finding.masks,
                            finding.in);
        if (made == NULL)
            return pass_no_memory(err);
        *(struct attention_attrs *)made->attrs = finding.attrs;
    }
    return STATUS_OK;
}

const struct pass pass_fuse_attention = {.name = "fuse_attention", .stage = PASS_PLAN, .run = run};
