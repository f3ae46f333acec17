/* Attention spelled out becomes one step, on devices that have a kernel for it:
 *
 *     MatMul(Softmax(MatMul(q, kᵀ) · c + mask), v)  →  Attention(q, k, v, mask)
 *
 * with up to two masks.  Transpositions that divide heads before it and put them together behind it
 * become the axes by which the step reads and writes.  In 16-bit types where the device says so;
 * the scores, their masks and the softmax may be float32 then, with a Cast before and one behind.
 * Runs when the products have taken in their scale, but no bias or residual yet: those would be the
 * masks.
 */
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

/* The scores: a product of q and k, with masks added one by one. */
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
    if (node->op != &op_add || node->inputs != 2 || finding->masks == 2)
        return false;
    for (size_t side = 0; side < 2; side++) {
        size_t before = finding->masks;

        finding->in[ATTENTION_MASK + finding->masks++] = node->in[1 - side];
        if (shape_is_equal(&node->in[side]->shape, &value->shape) &&
            find_scores(graph, node->in[side], finding))
            return true;
        finding->masks = before;
    }
    return false;
}

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

static bool softmax_goes_by_keys(const struct node *softmax)
{
    const struct shape *shape = &softmax->out[0]->shape;
    const struct softmax_attrs *attrs = softmax->attrs;

    return shape->rank >= 2 && shape_axis(shape, attrs->axis) == shape->rank - 1;
}

static bool find(const struct graph *graph, struct node *product, struct finding *finding)
{
    const struct matmul_attrs *attrs = product->attrs;
    struct value *parts = uncast(graph, product->in[MATMUL_A], DTYPE_FLOAT, finding->dtype);
    struct node *softmax = producer_is(parts, "Softmax");
    const struct shape *masks[2] = {NULL, NULL}, *expected;
    struct attention_geometry geometry;
    struct shape out;

    if (softmax == NULL || attrs->trans_a || attrs->has_scale ||
        graph_single_user(graph, softmax->out[0]) == NULL || !softmax_goes_by_keys(softmax) ||
        softmax->out[0]->shape.rank != product->in[MATMUL_B]->shape.rank ||
        !find_scores(graph, softmax->in[0], finding) ||
        finding->in[ATTENTION_Q]->shape.rank != softmax->out[0]->shape.rank)
        return false;
    find_axes(graph, product->in[MATMUL_B], attrs->trans_b, &finding->attrs.v,
              &finding->in[ATTENTION_V]);
    find_result(graph, product, finding);
    for (size_t i = 0; i < finding->masks; i++) {
        const enum dtype dtype = finding->in[ATTENTION_MASK + i]->dtype;

        if (dtype != finding->dtype && dtype != DTYPE_FLOAT)
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

    if (finding->dtype == DTYPE_FLOAT)
        return context->fuses_attention;
    for (size_t i = 0; i < ATTENTION_MASK + finding->masks; i++)
        shapes[i] = &finding->in[i]->shape;
    return context->takes_attention != NULL &&
           context->takes_attention(context->attention_arg, &finding->attrs, finding->dtype,
                                    shapes);
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
            !find(graph, node, &finding) || !is_taken(context, &finding))
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
