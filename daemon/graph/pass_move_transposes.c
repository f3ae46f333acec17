/* Transposes move behind element-wise steps until they meet their inverse, and both are gone.
 *
 *      T ──> Relu ──> T⁻¹        becomes  Relu
 *      T(a) + T(b)               becomes  T(a + b)
 *      T(a) + constant           becomes  T(a + T⁻¹(constant))
 *
 * What an exporter from channels-last leaves behind (TensorFlow's) is mostly this. */
#include "graph/match.h"

#include <string.h>

enum { CONSTANT_BYTES = 1 << 20 }; /* larger ones are not copied for this */

/* The permutation of a Transpose that names it; false when it is not known. */
static bool read_perm(const struct node *node, struct ints *out_perm)
{
    const struct ints *perm = node_attr_ints(node, "perm");

    if (!node_is(node, "Transpose") || perm == NULL || perm->count > SHAPE_MAX_RANK ||
        perm->count == 0)
        return false;
    for (size_t i = 0; i < perm->count; i++)
        if (perm->values[i] < 0 || perm->values[i] >= (int64_t)perm->count)
            return false; /* the operator's rule will refuse it */
    *out_perm = *perm;
    return true;
}

static bool same_perm(const struct ints *a, const struct ints *b)
{
    return a->count == b->count && memcmp(a->values, b->values, a->count * sizeof(int64_t)) == 0;
}

static enum status set_perm(struct graph *graph, struct node *node, size_t count,
                            const int64_t *values)
{
    int64_t *copy = arena_copy(&graph->arena, values, count * sizeof(*values));

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    *(struct ints *)node_attr(node, "perm") = (struct ints){count, copy};
    return STATUS_OK;
}

/* --- two in a row -------------------------------------------------------------------------------
 */

/* y[i] = t[second[i]], t[j] = x[first[j]]: y[i] = x[first[second[i]]]. */
static enum status join(struct graph *graph, struct node *node)
{
    struct node *before = producer_is(node->in[0], "Transpose");
    int64_t joined[SHAPE_MAX_RANK];
    struct ints first, second;

    if (before == NULL || !read_perm(before, &first) || !read_perm(node, &second) ||
        first.count != second.count)
        return STATUS_OK;
    for (size_t i = 0; i < first.count; i++)
        joined[i] = first.values[second.values[i]];
    TRY(set_perm(graph, node, first.count, joined));
    node_set_input(node, 0, before->in[0]);
    return STATUS_OK;
}

static bool is_trivial(const struct ints *perm)
{
    for (size_t i = 0; i < perm->count; i++)
        if (perm->values[i] != (int64_t)i)
            return false;
    return true;
}

/* --- behind an element-wise step ----------------------------------------------------------------
 */

/* An input that can be read before the transpose as well. */
enum side { SIDE_NO, SIDE_TRANSPOSED, SIDE_SCALAR, SIDE_CONSTANT };

static enum side side_of(const struct graph *graph, const struct value *value,
                         const struct ints *perm)
{
    struct ints other;

    if (value == NULL)
        return SIDE_SCALAR;
    if (value->constant != NULL) {
        const struct tensor *tensor = &value->constant->tensor;

        if (tensor->shape.rank == 0 ||
            (tensor->shape.rank == 1 && shape_count(&tensor->shape) == 1))
            return SIDE_SCALAR;
        return tensor->shape.rank <= perm->count && tensor->dtype != DTYPE_STRING &&
                       tensor_bytes(tensor) <= CONSTANT_BYTES
                   ? SIDE_CONSTANT
                   : SIDE_NO;
    }
    if (value->producer != NULL && read_perm(value->producer, &other) && same_perm(&other, perm) &&
        graph_single_user(graph, value) != NULL)
        return SIDE_TRANSPOSED;
    return SIDE_NO;
}

/* Element-wise steps whose other inputs are numbers for all elements (Clip's bounds, slopes). */
static bool may_move(const struct graph *graph, const struct node *node, struct ints *out_perm)
{
    bool found = false;

    if (!node_is_elementwise(node) || node->outputs != 1 || node->out[0] == NULL ||
        node_attr(node, "axis") != NULL)
        return false;
    for (size_t i = 0; i < node->inputs && !found; i++)
        found = node->in[i] != NULL && node->in[i]->producer != NULL &&
                read_perm(node->in[i]->producer, out_perm);
    if (!found)
        return false;
    for (size_t i = 0; i < node->inputs; i++)
        if (side_of(graph, node->in[i], out_perm) == SIDE_NO)
            return false;
    return true;
}

/* t[i0,i1,…] of shape `tensor`, with ones put in front up to the permutation's rank, moved so that
 * transposing it by `perm` gives the old one.  Ones in front are left out again: what it meets has
 * the permutation's rank. */
static struct constant *untransposed(struct constant *source, const struct ints *perm)
{
    const struct tensor *tensor = &source->tensor;
    size_t rank = perm->count, lead = rank - tensor->shape.rank;
    struct shape old = {.rank = rank}, made = {.rank = rank}, kept;
    int64_t steps[SHAPE_MAX_RANK], at[SHAPE_MAX_RANK] = {0};
    size_t element = dtype_bytes(tensor->dtype);
    struct constant *constant;
    const char *from;
    char *to;

    for (size_t i = 0; i < rank; i++)
        old.dims[i] = i < lead ? 1 : tensor->shape.dims[i - lead];
    for (size_t i = 0; i < rank; i++)
        made.dims[perm->values[i]] = old.dims[i];
    /* steps[d]: elements from one index of the new dimension d to the next, in the old order */
    for (size_t i = 0; i < rank; i++)
        steps[perm->values[i]] = shape_product(&old, i + 1, rank);
    for (lead = 0; lead < rank && made.dims[lead] == 1;)
        lead++;
    kept = shape_make(rank - lead, made.dims + lead);
    constant =
        constant_restore(source) == STATUS_OK ? constant_allocate(tensor->dtype, &kept) : NULL;
    if (constant == NULL)
        return NULL;
    from = tensor->data;
    to = (char *)(uintptr_t)constant->tensor.data;
    for (int64_t n = shape_count(&made), place = 0; n > 0; n--, to += element) {
        memcpy(to, from + (size_t)place * element, element);
        for (size_t d = rank; d-- > 0;) {
            place += steps[d];
            if (++at[d] < made.dims[d])
                break;
            place -= steps[d] * made.dims[d];
            at[d] = 0;
        }
    }
    return constant;
}

static enum status move_input(struct graph *graph, struct node *node, size_t index,
                              const struct ints *perm)
{
    struct value *value = node->in[index];
    struct constant *constant;

    switch (side_of(graph, value, perm)) {
    case SIDE_TRANSPOSED:
        node_set_input(node, index, value->producer->in[0]);
        return STATUS_OK;
    case SIDE_CONSTANT:
        constant = untransposed(value->constant, perm);
        value = constant == NULL ? NULL : graph_add_constant(graph, "", constant);
        if (value == NULL)
            return STATUS_NO_MEMORY;
        node_set_input(node, index, value);
        return STATUS_OK;
    case SIDE_SCALAR:
    case SIDE_NO:
        break;
    }
    return STATUS_OK;
}

/* step(T(x)) → T(step(x)): the step takes x, a new Transpose behind it makes the step's result. */
static enum status move(struct graph *graph, struct node *node, const struct ints *perm)
{
    struct node *after = CONTAINER_OF(node->link.next, struct node, link);
    struct value *inner = graph_add_value(graph, ""), *out = node->out[0];
    struct node *transpose = graph_add_node(graph, node->link.next == &graph->nodes ? NULL : after,
                                            op_find("", "Transpose"), node->name, 1, 1);

    if (inner == NULL || transpose == NULL)
        return STATUS_NO_MEMORY;
    op_attrs_default(transpose->op, transpose->attrs);
    TRY(set_perm(graph, transpose, perm->count, perm->values));
    for (size_t i = 0; i < node->inputs; i++)
        TRY(move_input(graph, node, i, perm));
    inner->dtype = out->dtype;
    node_set_output(node, 0, inner);
    node_set_input(transpose, 0, inner);
    node_set_output(transpose, 0, out);
    return STATUS_OK;
}

static enum status step(struct graph *graph, struct node *node)
{
    struct ints perm;

    if (node_is(node, "Transpose")) {
        TRY(join(graph, node));
        if (read_perm(node, &perm) && is_trivial(&perm) &&
            graph_replace_value(graph, node->out[0], node->in[0]) == STATUS_OK)
            graph_remove_node(graph, node);
        return STATUS_OK;
    }
    return may_move(graph, node, &perm) ? move(graph, node, &perm) : STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    (void)context;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct list *before = link->prev;

        if (step(graph, node) != STATUS_OK)
            return pass_no_memory(err);
        /* A removed node has left the list; a moved Transpose follows and is looked at next. */
        link = before->next == link ? link->next : before->next;
    }
    return STATUS_OK;
}

const struct pass pass_move_transposes = {
    .name = "move_transposes", .stage = PASS_MODEL, .run = run};
