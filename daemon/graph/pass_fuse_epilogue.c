/* What happens to a result before it is stored becomes part of the step that makes it:
 *
 *     Relu(Add(Conv(x), r))  →  Conv(x, residual r, relu)
 *     Gelu(MatMul(x, W))     →  MatMul(x, W, gelu)
 *
 * Also where a Squeeze or Reshape lies between the two.  Walks the nodes in order; each takes in
 * what follows it as long as nothing else uses the value in between.  Of two convolutions that are
 * added, the later one takes the earlier one's result.  In 16-bit types only on devices whose
 * kernels take it: what was rounded in between is not any more.
 */
#include "graph/fusion.h"
#include "graph/match.h"
#include "ops/conv.h"
#include "ops/elementwise.h"

/* ---- activations ---- */

static float alpha(const struct node *node)
{
    return ((const struct alpha_attrs *)node->attrs)->alpha;
}

static bool read_scalar(const struct node *node, size_t index, float standard, float *out_value)
{
    const struct value *value = index < node->inputs ? node->in[index] : NULL;

    *out_value = standard;
    if (value == NULL)
        return true;
    if (value->constant == NULL || !dtype_is_float(value->dtype) || value->dtype == DTYPE_DOUBLE ||
        shape_count(&value->shape) != 1)
        return false;
    *out_value = (float)tensor_float(&value->constant->tensor, 0);
    return true;
}

/* Fills act, a and b for a node that is an activation of its first input. */
static bool read_activation(const struct node *node, struct epilogue *epilogue)
{
    static const struct {
        const struct op_def *op;
        enum activation act;
        bool has_alpha;
    } simple[] = {
        {&op_relu, ACT_RELU, false},         {&op_leaky_relu, ACT_LEAKY_RELU, true},
        {&op_sigmoid, ACT_SIGMOID, false},   {&op_tanh, ACT_TANH, false},
        {&op_swish, ACT_SILU, true},         {&op_quick_gelu, ACT_SILU, true},
        {&op_mish, ACT_MISH, false},         {&op_elu, ACT_ELU, true},
        {&op_softplus, ACT_SOFTPLUS, false},
    };

    for (size_t i = 0; i < sizeof(simple) / sizeof(simple[0]); i++) {
        if (node->op != simple[i].op)
            continue;
        epilogue->act = simple[i].act;
        epilogue->a = simple[i].has_alpha ? alpha(node) : 0;
        return true;
    }
    if (node->op == &op_clip) {
        epilogue->act = ACT_CLIP;
        return read_scalar(node, 1, -__FLT_MAX__, &epilogue->a) &&
               read_scalar(node, 2, __FLT_MAX__, &epilogue->b);
    }
    if (node->op == &op_hard_sigmoid || node->op == &op_hard_swish) {
        bool swish = node->op == &op_hard_swish;
        const struct hard_sigmoid_attrs *attrs = node->attrs;

        epilogue->act = swish ? ACT_HARD_SWISH : ACT_HARD_SIGMOID;
        epilogue->a = swish ? 1.0F / 6 : attrs->alpha;
        epilogue->b = swish ? 0.5F : attrs->beta;
        return true;
    }
    if (node->op == &op_gelu) {
        epilogue->act = ((const struct gelu_attrs *)node->attrs)->approximate == GELU_TANH
                            ? ACT_GELU_TANH
                            : ACT_GELU_ERF;
        return true;
    }
    return false;
}

/* ---- fusing ---- */

static bool stands_before(const struct graph *graph, const struct node *first,
                          const struct node *second)
{
    for (const struct list *link = first->link.next; link != &graph->nodes; link = link->next)
        if (link == &second->link)
            return true;
    return false;
}

/* The later of two makers that could both take the other's result does so. */
static bool other_should_fuse(const struct graph *graph, const struct node *node,
                              const struct node *user, const struct value *other)
{
    const struct node *maker = other->producer;

    return maker != NULL && node_epilogue(maker) != NULL && !node_epilogue(maker)->has_residual &&
           graph_single_user(graph, other) == user && stands_before(graph, node, maker);
}

/* The node's result is what its user made from now on; it runs in the user's place, where
 * everything the user needed is there. */
static enum status absorb(struct graph *graph, struct node *node, struct node *user)
{
    struct value *wanted = user->out[0];

    list_remove(&node->link);
    list_insert_before(&user->link, &node->link);
    node_set_output(user, 0, NULL);
    node_set_output(node, 0, wanted);
    graph_remove_node(graph, user);
    return STATUS_OK;
}

static enum status fuse_residual(struct graph *graph, struct node *node, struct node *user,
                                 struct value *other)
{
    struct epilogue *epilogue = node_epilogue(node);
    size_t index = CONV_RESIDUAL; /* the same for all four operators */

    TRY(node_grow_inputs(graph, node, index + 1));
    node_set_input(node, index, other);
    epilogue->has_residual = true;
    epilogue->residual_after = epilogue->act != ACT_NONE;
    return absorb(graph, node, user);
}

static bool can_add(const struct graph *graph, const struct node *node, const struct node *user,
                    const struct value **out_other)
{
    const struct value *made = node->out[0], *other;

    if ((user->op != &op_add && user->op != &op_sum) || user->inputs != 2 ||
        node_epilogue(node)->has_residual || user->in[0] == user->in[1])
        return false;
    other = user->in[0] == made ? user->in[1] : user->in[0];
    *out_other = other;
    return other->constant == NULL && other->shape_known && other->dtype == made->dtype &&
           shape_is_equal(&other->shape, &made->shape) &&
           !other_should_fuse(graph, node, user, other);
}

/* An activation behind a reshaping of the result is taken in over it. */
static bool fuse_behind(struct graph *graph, struct node *node, struct node *reshaping,
                        enum status *out_status)
{
    struct epilogue *epilogue = node_epilogue(node);
    struct epilogue wanted = *epilogue;
    struct node *user = graph_single_user(graph, reshaping->out[0]);

    if (epilogue->act != ACT_NONE || user == NULL || user->in[0] != reshaping->out[0] ||
        user->outputs != 1 || !read_activation(user, &wanted))
        return false;
    *out_status = graph_replace_value(graph, user->out[0], reshaping->out[0]);
    if (*out_status != STATUS_OK)
        return true;
    *epilogue = wanted;
    graph_remove_node(graph, user);
    return true;
}

/* Takes in the node's user; false when it cannot. */
static bool fuse_next(struct graph *graph, struct node *node, enum status *out_status)
{
    struct epilogue *epilogue = node_epilogue(node);
    struct node *user = graph_single_user(graph, node->out[0]);
    struct epilogue wanted = *epilogue;
    const struct value *other;

    *out_status = STATUS_OK;
    if (user == NULL || user->outputs != 1)
        return false;
    if (can_add(graph, node, user, &other)) {
        *out_status =
            fuse_residual(graph, node, user, user->in[0] == other ? user->in[0] : user->in[1]);
        return true;
    }
    if (node_is_reshaping(user) && user->in[0] == node->out[0])
        return fuse_behind(graph, node, user, out_status);
    if (epilogue->act != ACT_NONE || user->in[0] != node->out[0] || !read_activation(user, &wanted))
        return false;
    *epilogue = wanted;
    *out_status = absorb(graph, node, user);
    return true;
}

static bool takes_type(const struct pass_context *context, enum dtype dtype)
{
    return dtype == DTYPE_FLOAT ||
           (context->fuses_narrow && (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16));
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        enum status status = STATUS_OK;

        link = link->next;
        if (node_epilogue(node) == NULL || node->out[0] == NULL || node->out[0]->is_output ||
            !takes_type(context, node->out[0]->dtype))
            continue;
        while (fuse_next(graph, node, &status) && status == STATUS_OK) {
            link = node->link.next;
            if (node->out[0]->is_output)
                break;
        }
        if (status != STATUS_OK)
            return error_set(err, status, "no memory");
    }
    return STATUS_OK;
}

const struct pass pass_fuse_epilogue = {.name = "fuse_epilogue", .stage = PASS_PLAN, .run = run};
