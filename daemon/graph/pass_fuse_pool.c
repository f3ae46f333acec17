/* A pool behind a convolution becomes part of it:
 *
 *     MaxPool(Conv(x, w))  →  ConvPool(x, w)
 *
 * The convolution's result, of which the pool keeps a quarter, is then made a few rows at a time
 * and pooled while it is in a cache.  Only where the device says that it wants this, and only
 * behind convolutions that are computed row by row: those of 1x1 are not, and the 3x3 of stride 1
 * that are left to Winograd.
 */
#include "graph/match.h"
#include "ops/conv_pool.h"

enum {
    FEW_IN = 8,             /* channels of a first layer, at most: no Winograd */
    FEWEST_OUT = 9,         /* with less, other kernels are better */
    FEWER_AT_LEAST = 2,     /* elements that a pool makes one of */
    KEPT_BYTES = 512 << 10, /* of rows that wait to be pooled, … */
    KEPT_CHANNELS = 32,     /* … of so many channels */
    WORTH = 10 /* products in the time that an element's way to memory and back takes */
};

static int64_t number(const struct ints *list, size_t index)
{
    return index < list->count ? list->values[index] : 1;
}

static bool is_constant_or_none(const struct node *node, size_t index)
{
    return node->inputs <= index || node->in[index] == NULL || node->in[index]->constant != NULL;
}

/* A convolution of floats in two dimensions with constant weights, bare of all but an activation,
 * and computed row by row. */
static bool is_by_rows(const struct node *node)
{
    const struct conv_attrs *attrs = node->attrs;
    const struct value *w;
    int64_t taps;

    if (node->op != &op_conv)
        return false;
    w = node->in[CONV_W];
    if (conv_has_more(node->op, attrs) || attrs->epilogue.has_residual || attrs->group != 1 ||
        w->dtype != DTYPE_FLOAT || w->constant == NULL || w->shape.rank != 4 ||
        !is_constant_or_none(node, CONV_BIAS) || w->shape.dims[0] < FEWEST_OUT)
        return false;
    taps = w->shape.dims[2] * w->shape.dims[3];
    if (w->shape.dims[1] <= FEW_IN)
        return true;
    return taps != 1 &&
           (w->shape.dims[2] != 3 || w->shape.dims[3] != 3 ||
            number(&attrs->window.strides, 0) != 1 || number(&attrs->window.strides, 1) != 1 ||
            number(&attrs->window.dilations, 0) != 1 || number(&attrs->window.dilations, 1) != 1);
}

/* Whether what is not written and read again is worth more than what is computed twice.  The rows
 * that the windows of two neighbouring rows share are computed for both where a tile ends: by
 * guess, tiles are what KEPT_BYTES have room for, and no more than half an image, for threads. */
static bool pays(const struct node *pool, const struct node *conv)
{
    const struct shape *x = &pool->in[0]->shape, *filters = &conv->in[CONV_W]->shape;
    int64_t shared, rows, most;
    struct window w;

    if (pool_resolve(pool->attrs, x, &w, NULL) != STATUS_OK || w.spatial != 2 || w.in[1] < 2)
        return false;
    shared = (w.kernel[0] - 1) * w.dilation[0] + 1 - w.stride[0];
    rows = KEPT_BYTES / (KEPT_CHANNELS * (int64_t)sizeof(float)) / w.in[1];
    most = (w.in[0] + 1) / 2;
    rows = rows < most ? rows : most;
    return FEWER_AT_LEAST * shape_count(&pool->out[0]->shape) <= shape_count(x) &&
           (shared <= 0 || shared * shape_product(filters, 1, filters->rank) <= WORTH * rows);
}

static bool is_pool(const struct node *node)
{
    return node->op == &op_average_pool ||
           (node->op == &op_max_pool && (node->outputs < 2 || node->out[1] == NULL));
}

static enum status fuse(struct graph *graph, struct node *pool)
{
    struct node *conv = pool->in[0]->producer, *fused;
    struct value *in[CONV_RESIDUAL] = {NULL};
    struct conv_pool_attrs attrs = {.average = pool->op == &op_average_pool};

    if (conv == NULL || graph_single_user(graph, pool->in[0]) != pool || !is_by_rows(conv) ||
        !pays(pool, conv))
        return STATUS_OK;
    attrs.conv = *(const struct conv_attrs *)conv->attrs;
    attrs.pool = *(const struct pool_attrs *)pool->attrs;
    for (size_t i = 0; i < CONV_RESIDUAL && i < conv->inputs; i++)
        in[i] = conv->in[i];
    fused = node_replace(graph, pool, &op_conv_pool, CONV_RESIDUAL, in);
    if (fused == NULL)
        return STATUS_NO_MEMORY;
    *(struct conv_pool_attrs *)fused->attrs = attrs;
    graph_remove_node(graph, conv);
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    if (!context->fuses_pools)
        return STATUS_OK;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        link = link->next;
        if (is_pool(node) && fuse(graph, node) != STATUS_OK)
            return pass_no_memory(err);
    }
    return STATUS_OK;
}

const struct pass pass_fuse_pool = {.name = "fuse_pool", .stage = PASS_PLAN, .run = run};
