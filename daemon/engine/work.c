/* How much a node has to do, roughly: in bytes moved, arithmetic counted by how much of it is done
 * in the time that moves one byte.  Prices layouts, and shares of time where nothing was measured.
 */
#include "engine/internal.h"

enum { FLOPS_PER_BYTE = 8 };

static uint64_t bytes_of(const struct value *value)
{
    return (uint64_t)shape_count(&value->shape) * dtype_bytes(value->dtype);
}

/* Multiplications and additions for one element of the result. */
static uint64_t flops_each(const struct node *node)
{
    const struct value *left = node->in[0], *right = node->inputs > 1 ? node->in[1] : NULL;

    if (node_epilogue(node) == NULL || left == NULL || right == NULL)
        return 0;
    if (right->shape.rank >= 3 && right->shape.dims[0] > 0 && right->constant != NULL)
        return 2 * (uint64_t)(shape_count(&right->shape) / right->shape.dims[0]);
    return left->shape.rank > 0 ? 2 * (uint64_t)left->shape.dims[left->shape.rank - 1] : 0;
}

uint64_t node_work(const struct node *node)
{
    uint64_t work = 0;

    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL)
            work += bytes_of(node->in[i]);
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] != NULL)
            work += bytes_of(node->out[i]);
    if (node->outputs > 0 && node->out[0] != NULL)
        work += (uint64_t)shape_count(&node->out[0]->shape) * flops_each(node) / FLOPS_PER_BYTE;
    return work;
}
