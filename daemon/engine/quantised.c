/* Precision=int8: whether a model is one that was quantised. */
#include "engine/internal.h"

/* Products with weights: what they are in floats and in bytes. */
static const struct op_def *const in_floats[] = {
    &op_conv,         &op_conv_transpose, &op_matmul, &op_gemm,
    &op_matmul_bytes, &op_lstm,           &op_gru,    &op_rnn};
static const struct op_def *const in_bytes[] = {
    &op_qlinear_conv,   &op_qlinear_matmul,          &op_conv_integer,
    &op_matmul_integer, &op_matmul_integer_to_float, &op_dynamic_quantize_lstm};

struct products {
    size_t floats, bytes;
};

static bool is_one_of(const struct op_def *op, const struct op_def *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == op)
            return true;
    return false;
}

static void count_products(const struct graph *graph, struct products *products)
{
    const struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, const struct node, link) {
        bool has_weights = node->inputs > 1 && node->in[1] != NULL && node->in[1]->constant != NULL;

        products->bytes += is_one_of(node->op, in_bytes, sizeof(in_bytes) / sizeof(in_bytes[0]));
        products->floats +=
            has_weights && is_one_of(node->op, in_floats, sizeof(in_floats) / sizeof(in_floats[0]));
    }
    for (const struct graph *child = graph->children; child != NULL; child = child->next_child)
        count_products(child, products);
}

enum status network_check_quantised(const struct network *network, const struct graph *graph,
                                    struct error *err)
{
    struct products products = {0};

    if (!network->device->demands_bytes)
        return STATUS_OK;
    count_products(graph, &products);
    if (products.bytes > 0 || products.floats == 0)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "Precision=int8 takes models that are quantised (QDQ, QOperator): the %zu "
                     "products of this one have weights for floats",
                     products.floats);
}
