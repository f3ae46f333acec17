/* A product with a one-hot matrix picks rows: no product, and no matrix.
 *
 *     MatMul(Cast(Equal(ids [...,1], 0 … k-1)), B [k,n])  →  Embedding(ids, B)
 *     MatMul(OneHot(ids, k, [0, 1]), B [k,n])             →  Embedding(ids, B)
 *
 * with the product's scale, bias and activation.  The kernel makes its table with the product's own
 * kernel, once for all plans, so the numbers are the same bits; ids that hit no row give what a row
 * of zeros gives.  Runs after the fusions, when bias and activation have been taken in.
 */
#include "graph/match.h"
#include "ops/embedding.h"

/* The table costs k x k x n to make. */
enum { MOST_ROWS = 2048 };

struct one_hot {
    struct value *ids;
    bool over_last;
    bool wraps;
};

static bool is_id_type(enum dtype dtype)
{
    return dtype == DTYPE_INT32 || dtype == DTYPE_INT64;
}

/* The constant 0 … k-1 along the last dimension. */
static bool counts_up(const struct value *value, int64_t k)
{
    const struct tensor *tensor = value->constant != NULL ? &value->constant->tensor : NULL;
    const struct shape *shape = &value->shape;

    if (tensor == NULL || tensor->data == NULL || shape->rank == 0 ||
        shape->dims[shape->rank - 1] != k || shape_count(shape) != k)
        return false;
    for (int64_t i = 0; i < k; i++)
        if ((tensor->dtype == DTYPE_INT32 ? ((const int32_t *)tensor->data)[i]
                                          : ((const int64_t *)tensor->data)[i]) != i)
            return false;
    return true;
}

/* `result` is `ids` with the last dimension 1 stretched to k, and nothing else. */
static bool stretches_last(const struct shape *ids, const struct shape *result, int64_t k)
{
    if (ids->rank == 0 || ids->rank != result->rank || ids->dims[ids->rank - 1] != 1 ||
        result->dims[result->rank - 1] != k)
        return false;
    for (size_t i = 0; i + 1 < ids->rank; i++)
        if (ids->dims[i] != result->dims[i])
            return false;
    return true;
}

static bool match_equal(const struct value *value, int64_t k, struct one_hot *out)
{
    const struct node *cast = producer_is(value, "Cast");
    const struct node *equal = cast != NULL ? producer_is(cast->in[0], "Equal") : NULL;

    for (size_t side = 0; equal != NULL && side < 2; side++) {
        struct value *ids = equal->in[side];

        if (!is_id_type(ids->dtype) || !counts_up(equal->in[1 - side], k) ||
            !stretches_last(&ids->shape, &equal->out[0]->shape, k))
            continue;
        *out = (struct one_hot){.ids = ids, .over_last = true};
        return true;
    }
    return false;
}

static bool match_one_hot(const struct value *value, int64_t k, struct one_hot *out)
{
    const struct node *node = producer_is(value, "OneHot");
    const struct tensor *values =
        node != NULL && node->in[2]->constant != NULL ? &node->in[2]->constant->tensor : NULL;
    int64_t axis = node != NULL ? node_attr_int(node, "axis", -1) : 0;

    if (values == NULL || values->data == NULL || !is_id_type(node->in[0]->dtype) ||
        value->shape.rank == 0 || (axis != -1 && axis != (int64_t)value->shape.rank - 1) ||
        value->shape.dims[value->shape.rank - 1] != k || tensor_float(values, 0) != 0 ||
        tensor_float(values, 1) != 1)
        return false;
    *out = (struct one_hot){.ids = node->in[0], .wraps = true};
    return true;
}

/* A product of many rows of known numbers and one constant matrix. */
static bool is_table_product(const struct node *node)
{
    const struct matmul_attrs *attrs = node->attrs;
    const struct value *b = node->in[MATMUL_B];

    return !attrs->trans_a && !attrs->epilogue.has_residual && node->out[0] != NULL &&
           node->in[MATMUL_A]->dtype == DTYPE_FLOAT && node->in[MATMUL_A]->shape.rank >= 2 &&
           b->constant != NULL && b->shape.rank == 2 &&
           (!attrs->has_bias || node->in[MATMUL_BIAS]->constant != NULL);
}

static enum status embed(struct graph *graph, struct node *node, struct error *err)
{
    const struct matmul_attrs product = *(const struct matmul_attrs *)node->attrs;
    const struct shape *a = &node->in[MATMUL_A]->shape;
    struct value *in[3] = {NULL, node->in[MATMUL_B],
                           product.has_bias ? node->in[MATMUL_BIAS] : NULL};
    int64_t k = a->dims[a->rank - 1];
    struct one_hot one_hot;
    struct node *made;

    if (k < 1 || k > MOST_ROWS ||
        (!match_equal(node->in[MATMUL_A], k, &one_hot) &&
         !match_one_hot(node->in[MATMUL_A], k, &one_hot)))
        return STATUS_OK;
    in[EMBEDDING_IDS] = one_hot.ids;
    made = node_replace(graph, node, &op_embedding, product.has_bias ? 3 : 2, in);
    if (made == NULL)
        return pass_no_memory(err);
    *(struct embedding_attrs *)made->attrs = (struct embedding_attrs){
        .product = product, .over_last = one_hot.over_last, .wraps = one_hot.wraps};
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    (void)context;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        link = link->next;
        if (node->op == &op_matmul && is_table_product(node))
            TRY(embed(graph, node, err));
    }
    return STATUS_OK;
}

const struct pass pass_embed = {.name = "embed", .stage = PASS_PLAN, .run = run};
