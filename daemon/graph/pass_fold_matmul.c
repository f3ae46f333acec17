/* What stands around a matrix product and its kernels do on the way.
 *
 *      MatMul(Transpose(a), b)       becomes   MatMul(a, b) that reads a transposed
 *      MatMul(q, Transpose(k)) / 8   becomes   one step: the scores of attention
 *
 * Only an exchange of the last two dimensions can be read on the way.  A permutation that does more
 * (heads of attention) keeps the rest of it, if that leaves rows of memory whole. */
#include "graph/match.h"
#include "ops/matmul.h"

#include <math.h>
#include <string.h>

/* --- transposed operands ------------------------------------------------------------------------
 */

static bool is_trivial(const int64_t *perm, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (perm[i] != (int64_t)i)
            return false;
    return true;
}

/* The permutation without the exchange of its last two; false when there is nothing to gain. */
static bool without_exchange(const struct node *transpose, int64_t perm[SHAPE_MAX_RANK],
                             size_t *out_count)
{
    const struct ints *old = node_attr_ints(transpose, "perm");
    size_t count = old == NULL ? 0 : old->count;

    if (count < 2 || count > SHAPE_MAX_RANK)
        return false;
    memcpy(perm, old->values, count * sizeof(*perm));
    perm[count - 1] = old->values[count - 2];
    perm[count - 2] = old->values[count - 1];
    *out_count = count;
    return is_trivial(perm, count) || perm[count - 1] == (int64_t)count - 1;
}

static enum status fold_transpose(struct graph *graph, struct node *node, size_t index,
                                  bool *transposed)
{
    struct node *transpose = producer_is(node->in[index], "Transpose");
    int64_t perm[SHAPE_MAX_RANK], *copy;
    size_t count;

    if (transpose == NULL || graph_single_user(graph, node->in[index]) == NULL ||
        !without_exchange(transpose, perm, &count))
        return STATUS_OK;
    if (is_trivial(perm, count)) {
        node_set_input(node, index, transpose->in[0]);
    } else {
        copy = arena_copy(&graph->arena, perm, count * sizeof(*perm));
        if (copy == NULL)
            return STATUS_NO_MEMORY;
        *(struct ints *)node_attr(transpose, "perm") = (struct ints){count, copy};
    }
    *transposed = !*transposed;
    return STATUS_OK;
}

/* --- factors ------------------------------------------------------------------------------------
 */

/* A product or quotient with one number: the other operand's place and the factor. */
static bool read_factor(const struct node *node, size_t *out_index, double *out_factor)
{
    double number;

    if (!node_is(node, "Mul") && !node_is(node, "Div"))
        return false;
    for (size_t i = 0; i < 2; i++) {
        const struct value *factor = node->in[1 - i];

        if ((i == 1 && node_is(node, "Div")) || factor->dtype != DTYPE_FLOAT ||
            !value_scalar(factor, &number) || number == 0)
            continue;
        *out_index = i;
        *out_factor = node_is(node, "Div") ? 1 / number : number;
        return isfinite(*out_factor);
    }
    return false;
}

static void scale(struct matmul_attrs *attrs, double factor)
{
    attrs->scale = (float)((attrs->has_scale ? (double)attrs->scale : 1) * factor);
    attrs->has_scale = true;
}

/* A number by which an operand was multiplied may as well multiply the product. */
static void fold_factor_before(struct graph *graph, struct node *node, size_t index)
{
    struct node *before = node->in[index]->producer;
    size_t operand;
    double factor;

    if (before == NULL || graph_single_user(graph, node->in[index]) == NULL ||
        !read_factor(before, &operand, &factor))
        return;
    scale(node->attrs, factor);
    node_set_input(node, index, before->in[operand]);
}

static void fold_factor_behind(struct graph *graph, struct node *node)
{
    struct node *next = graph_single_user(graph, node->out[0]);
    struct value *out;
    size_t operand;
    double factor;

    if (next == NULL || !read_factor(next, &operand, &factor) || next->in[operand] != node->out[0])
        return;
    out = next->out[0];
    scale(node->attrs, factor);
    graph_remove_node(graph, next);
    node_set_output(node, 0, out);
}

/* --- the pass -----------------------------------------------------------------------------------
 */

static enum status fold(struct graph *graph, struct node *node)
{
    struct matmul_attrs *attrs = node->attrs;

    fold_factor_behind(graph, node);
    fold_factor_before(graph, node, MATMUL_A);
    fold_factor_before(graph, node, MATMUL_B);
    /* With constant B the packed kernel reads A row by row: there a transposed A gains nothing. */
    if (node->in[MATMUL_B]->constant == NULL) {
        TRY(fold_transpose(graph, node, MATMUL_A, &attrs->trans_a));
        TRY(fold_transpose(graph, node, MATMUL_B, &attrs->trans_b));
    }
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    (void)context;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        if (node->op == &op_matmul && node->inputs == 2 && node->out[0] != NULL &&
            fold(graph, node) != STATUS_OK)
            return pass_no_memory(err);
        link = node->link.next;
    }
    return STATUS_OK;
}

const struct pass pass_fold_matmul = {.name = "fold_matmul", .stage = PASS_MODEL, .run = run};
