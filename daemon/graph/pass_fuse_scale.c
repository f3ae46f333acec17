/* A product times or divided by one number is a scaled product:
 *
 *     Div(MatMul(q, k), c)  →  MatMul(q, k) with scale 1 / c
 *
 * as attention has it.  Saves a pass over the scores.
 */
#include <math.h>

#include "graph/match.h"
#include "graph/pass.h"
#include "ops/matmul.h"

/* A float constant of one element that adds no dimension to `other`. */
static bool read_number(const struct value *value, const struct value *other, float *out_number)
{
    if (value->constant == NULL || !dtype_is_float(value->dtype) || value->dtype == DTYPE_DOUBLE ||
        shape_count(&value->shape) != 1 || !other->shape_known ||
        value->shape.rank > other->shape.rank)
        return false;
    *out_number = (float)tensor_float(&value->constant->tensor, 0);
    return true;
}

/* The factor by which the node multiplies in[side]; false when it does something else. */
static bool find_factor(const struct node *node, size_t side, float *out_factor)
{
    float number;

    if (!read_number(node->in[1 - side], node->in[side], &number))
        return false;
    if (node->op == &op_mul)
        *out_factor = number;
    else if (node->op == &op_div && side == 0)
        *out_factor = 1 / number;
    else
        return false;
    return isnormal(*out_factor) != 0;
}

/* In 16-bit types only where a product's own factor is known to be a float32 one. */
static bool takes_type(const struct pass_context *context, enum dtype dtype)
{
    return dtype == DTYPE_FLOAT ||
           (context->fuses_narrow && (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16));
}

static bool can_scale(const struct pass_context *context, const struct node *node)
{
    const struct matmul_attrs *attrs = node != NULL ? node->attrs : NULL;

    return node != NULL && node->op == &op_matmul && !attrs->has_bias && !attrs->has_scale &&
           attrs->epilogue.act == ACT_NONE && !attrs->epilogue.has_residual &&
           takes_type(context, node->in[MATMUL_A]->dtype);
}

static enum status fuse(struct graph *graph, const struct pass_context *context, struct node *node)
{
    for (size_t side = 0; side < 2; side++) {
        struct value *product = node->in[side];
        struct node *matmul = product->producer;
        struct matmul_attrs *attrs;
        float factor;

        if (!can_scale(context, matmul) || graph_single_user(graph, product) != node ||
            !find_factor(node, side, &factor))
            continue;
        attrs = matmul->attrs;
        attrs->has_scale = true;
        attrs->scale = factor;
        return graph_replace_value(graph, node->out[0], product);
    }
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        if ((node->op == &op_mul || node->op == &op_div) && node->inputs == 2 &&
            fuse(graph, context, node) != STATUS_OK)
            return error_set(err, STATUS_NO_MEMORY, "no memory");
    return STATUS_OK;
}

const struct pass pass_fuse_scale = {.name = "fuse_scale", .stage = PASS_PLAN, .run = run};
