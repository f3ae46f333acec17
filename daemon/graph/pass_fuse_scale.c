/* A product times or divided by one number is a scaled product, and so is one of an operand that
 * was:
 *
 *     Div(MatMul(q, k), c)                   →  MatMul(q, k) with scale 1 / c
 *     MatMul(Mul(q, c), Transpose(k / d))    →  MatMul(q, Transpose(k)) with scale c / d
 *
 * as attention has it.  Saves a pass over the scores, or over q and k.
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

static bool is_scaling(const struct node *node)
{
    return node != NULL && (node->op == &op_mul || node->op == &op_div) && node->inputs == 2;
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

    return node != NULL && node->op == &op_matmul && !attrs->has_bias &&
           attrs->epilogue.act == ACT_NONE && !attrs->epilogue.has_residual &&
           takes_type(context, node->in[MATMUL_A]->dtype);
}

/* False, and nothing changed, where both factors together are too large or too small. */
static bool scale(struct matmul_attrs *attrs, float factor)
{
    const float whole = attrs->has_scale ? attrs->scale * factor : factor;

    if (!isnormal(whole))
        return false;
    attrs->has_scale = true;
    attrs->scale = whole;
    return true;
}

/* Takes the factor out of an operand of the product, also from before a Transpose. */
static void fuse_before(const struct graph *graph, struct node *matmul, size_t operand)
{
    struct node *user = matmul, *transpose = producer_is(matmul->in[operand], "Transpose"),
                *scaling;
    size_t index = operand;
    float factor;

    if (transpose != NULL && graph_single_user(graph, matmul->in[operand]) != NULL) {
        user = transpose;
        index = 0;
    }
    scaling = user->in[index]->producer;
    if (!is_scaling(scaling) || graph_single_user(graph, user->in[index]) == NULL)
        return;
    for (size_t side = 0; side < 2; side++)
        if (find_factor(scaling, side, &factor) && scale(matmul->attrs, factor)) {
            node_set_input(user, index, scaling->in[side]);
            return;
        }
}

static enum status fuse_behind(struct graph *graph, const struct pass_context *context,
                               struct node *node)
{
    for (size_t side = 0; side < 2; side++) {
        struct value *product = node->in[side];
        struct node *matmul = product->producer;
        float factor;

        if (!can_scale(context, matmul) || graph_single_user(graph, product) != node ||
            !find_factor(node, side, &factor) || !scale(matmul->attrs, factor))
            continue;
        return graph_replace_value(graph, node->out[0], product);
    }
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        if (is_scaling(node) && fuse_behind(graph, context, node) != STATUS_OK)
            return error_set(err, STATUS_NO_MEMORY, "no memory");
        for (size_t i = 0; i < 2 && can_scale(context, node) && node->inputs == 2; i++)
            fuse_before(graph, node, i);
    }
    return STATUS_OK;
}

const struct pass pass_fuse_scale = {.name = "fuse_scale", .stage = PASS_PLAN, .run = run};
