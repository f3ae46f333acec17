/* Convolutions and products with constant weights in a 16-bit type, on devices that want it:
 *
 *     Conv(x, W)  →  Cast(Conv(Cast(x), W'))        W' = W in the 16-bit type
 *
 * Once a model, so that all plans share one W'.  What lies between two such steps follows when a
 * plan is made (pass_narrow.c).  Left in float32: weights that do not fit, products that are a
 * choice of rows (pass_embed.c), and what reads dequantised values.
 */
#include "graph/match.h"
#include "graph/narrow.h"
#include "ops/conv.h"
#include "ops/gemm.h"
#include "ops/matmul.h"

static bool is_product(const struct node *node)
{
    return node->op == &op_conv || node->op == &op_conv_transpose || node->op == &op_matmul ||
           node->op == &op_gemm;
}

static bool picks_rows(const struct value *value)
{
    const struct node *cast = producer_is(value, "Cast");

    return producer_is(value, "OneHot") != NULL ||
           (cast != NULL && producer_is(cast->in[0], "Equal") != NULL);
}

/* Some operand is constant, and all that are fit. */
static bool may_narrow(const struct narrowing *narrowing, const struct node *node)
{
    size_t constants = 0;

    if (!is_product(node) || node->out[0] == NULL)
        return false;
    for (size_t i = 0; i < node->inputs; i++) {
        const struct value *value = node->in[i];

        if (value == NULL)
            continue;
        if (picks_rows(value) || producer_is(value, "DequantizeLinear") != NULL ||
            (value->dtype != DTYPE_FLOAT && value->dtype != DTYPE_NONE))
            return false;
        if (value->constant == NULL)
            continue;
        if (!narrowing_fits(narrowing, value->constant, i < 2))
            return false;
        constants += i < 2;
    }
    return constants == 1;
}

static enum status narrow(struct narrowing *narrowing, struct node *node)
{
    for (size_t i = 0; i < node->inputs; i++) {
        struct value *twin;

        if (node->in[i] == NULL)
            continue;
        TRY(narrowing_input(narrowing, node, node->in[i], &twin));
        node_set_input(node, i, twin);
    }
    return narrowing_output(narrowing, node, 0);
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;
    struct narrowing narrowing;

    if (context->narrow == DTYPE_NONE)
        return STATUS_OK;
    if (narrowing_init(&narrowing, graph, context->narrow) != STATUS_OK)
        return pass_no_memory(err);
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        link = link->next;
        if (may_narrow(&narrowing, node) && narrow(&narrowing, node) != STATUS_OK)
            return pass_no_memory(err);
    }
    return STATUS_OK;
}

const struct pass pass_narrow_weights = {.name = "narrow_weights", .stage = PASS_MODEL, .run = run};
