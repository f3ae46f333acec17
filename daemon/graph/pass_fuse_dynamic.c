/* A product of bytes that is scaled to floats right away is one step:
 *
 *     Mul(Cast(MatMulInteger(a, B, za, zb)), Mul(sa, sb))  →  MatMulIntegerToFloat(a, B, sa, sb …)
 *     Add(that, bias [n])                                  →  the same with a bias
 *
 * where a, sa and za are what one DynamicQuantizeLinear made.  The numbers are those of the
 * separate steps to the last bit: the sum, made a float, times the product of both scales, plus the
 * bias. Only on devices that have kernels for products of bytes.
 */
#include "graph/match.h"
#include "ops/quantized.h"

static struct value *input(const struct node *node, size_t index)
{
    return index < node->inputs ? node->in[index] : NULL;
}

/* The constant B's columns; 0 when it is something else. */
static int64_t columns(const struct node *product)
{
    const struct value *b = product->in[MATMUL_INTEGER_B];

    return b->constant != NULL && b->shape.rank == 2 ? b->shape.dims[1] : 0;
}

/* One number, or one for each column. */
static bool is_scale_of_b(const struct value *value, int64_t n)
{
    return value->constant != NULL && value->dtype == DTYPE_FLOAT && value->shape.rank <= 1 &&
           (shape_count(&value->shape) == 1 || shape_count(&value->shape) == n);
}

/* Fills the inputs of the new step from scales = Mul(sa, sb), either way around. */
static bool read_scales(const struct node *product, const struct node *scales, struct value **in)
{
    const struct node *quantizer =
        producer_is(product->in[MATMUL_INTEGER_A], "DynamicQuantizeLinear");

    if (quantizer == NULL || quantizer->outputs < 3 || quantizer->out[1] == NULL ||
        product->in[MATMUL_INTEGER_A] != quantizer->out[0] ||
        input(product, MATMUL_INTEGER_A_ZERO) != quantizer->out[2])
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (scales->in[i] != quantizer->out[1] ||
            !is_scale_of_b(scales->in[1 - i], columns(product)))
            continue;
        in[MATMUL_FLOAT_A_SCALE] = scales->in[i];
        in[MATMUL_FLOAT_B_SCALE] = scales->in[1 - i];
        return true;
    }
    return false;
}

/* Mul(Cast(MatMulInteger), Mul(sa, sb)), either way around; fills all inputs but the bias. */
static bool match_scaled(const struct graph *graph, const struct node *mul, struct value **in)
{
    for (size_t i = 0; node_is(mul, "Mul") && i < 2; i++) {
        const struct node *cast = producer_is(mul->in[i], "Cast");
        const struct node *scales = producer_is(mul->in[1 - i], "Mul");
        const struct node *product =
            cast != NULL ? producer_is(cast->in[0], "MatMulInteger") : NULL;

        if (product == NULL || scales == NULL || columns(product) == 0 ||
            node_attr_int(cast, "to", 0) != DTYPE_FLOAT ||
            graph_single_user(graph, cast->out[0]) != mul ||
            graph_single_user(graph, product->out[0]) != cast || !read_scales(product, scales, in))
            continue;
        in[MATMUL_FLOAT_A] = product->in[MATMUL_INTEGER_A];
        in[MATMUL_FLOAT_B] = product->in[MATMUL_INTEGER_B];
        in[MATMUL_FLOAT_A_ZERO] = product->in[MATMUL_INTEGER_A_ZERO];
        in[MATMUL_FLOAT_B_ZERO] = input(product, MATMUL_INTEGER_B_ZERO);
        return true;
    }
    return false;
}

static enum status replace(struct graph *graph, struct node *root, size_t inputs, struct value **in,
                           struct error *err)
{
    return node_replace(graph, root, &op_matmul_integer_to_float, inputs, in) != NULL
               ? STATUS_OK
               : pass_no_memory(err);
}

/* The constant that is added to every row of a product without a bias. */
static bool match_bias(const struct graph *graph, const struct node *add, struct value **in)
{
    for (size_t i = 0; node_is(add, "Add") && i < 2; i++) {
        const struct node *made = add->in[i]->producer;
        struct value *bias = add->in[1 - i];

        if (made == NULL || made->op != &op_matmul_integer_to_float ||
            input(made, MATMUL_FLOAT_BIAS) != NULL ||
            graph_single_user(graph, made->out[0]) != add || bias->constant == NULL ||
            bias->dtype != DTYPE_FLOAT || bias->shape.rank != 1 ||
            bias->shape.dims[0] != made->in[MATMUL_FLOAT_B]->shape.dims[1])
            continue;
        for (size_t k = 0; k < MATMUL_FLOAT_BIAS; k++)
            in[k] = input(made, k);
        in[MATMUL_FLOAT_BIAS] = bias;
        return true;
    }
    return false;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    while (context->multiplies_bytes && link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct value *in[MATMUL_FLOAT_BIAS + 1] = {NULL};

        link = link->next;
        if (match_scaled(graph, node, in))
            TRY(replace(graph, node, MATMUL_FLOAT_BIAS, in, err));
        else if (match_bias(graph, node, in))
            TRY(replace(graph, node, MATMUL_FLOAT_BIAS + 1, in, err));
    }
    return STATUS_OK;
}

const struct pass pass_fuse_dynamic = {.name = "fuse_dynamic", .stage = PASS_MODEL, .run = run};
