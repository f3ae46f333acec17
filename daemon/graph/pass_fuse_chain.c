/* Element-wise operators that follow each other become one step, on devices that want it:
 *
 *     Tanh(Mul(Add(x, b), s))  →  Chain(x, b, s)
 *     Mul(x, Sigmoid(x))       →  Chain(x)
 *
 * A link has the shape of the chain's result and is used by the next one only.  What is read twice
 * is one input.  Runs last: whatever a convolution or product can take in is taken in before.
 */
#include <string.h>

#include "graph/match.h"
#include "ops/chain.h"

/* A chain that is being found: its nodes in order, and what it reads. */
struct finding {
    size_t count;
    struct node *nodes[CHAIN_LINKS];
    size_t inputs;
    struct value *in[CHAIN_INPUTS];
    struct chain_attrs attrs;
};

static bool is_link(const struct node *node)
{
    const struct value *out = node->out[0];

    if (!chain_takes(node->op) || node->op->attrs_size > CHAIN_ATTRS_BYTES || node->inputs < 1 ||
        node->inputs > 2 || node->outputs != 1 || out == NULL || !out->shape_known ||
        !dtype_is_float(out->dtype))
        return false;
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] == NULL || node->in[i]->dtype != out->dtype)
            return false;
    return true;
}

/* The number of `value` among the chain's inputs; CHAIN_ALONE: there is no room for it. */
static uint8_t input_number(struct finding *finding, struct value *value)
{
    for (size_t i = 0; i < finding->inputs; i++)
        if (finding->in[i] == value)
            return (uint8_t)i;
    if (finding->inputs == CHAIN_INPUTS)
        return CHAIN_ALONE;
    finding->in[finding->inputs] = value;
    return (uint8_t)finding->inputs++;
}

/* Adds a node that reads the result so far as its input `place`. */
static bool add_link(struct finding *finding, struct node *node, size_t place)
{
    struct chain_link link = {.op = node->op, .operand = CHAIN_ALONE, .turned = place == 1};

    if (finding->count == CHAIN_LINKS)
        return false;
    if (node->inputs == 2) {
        link.operand = input_number(finding, node->in[1 - place]);
        if (link.operand == CHAIN_ALONE)
            return false;
    }
    if (node->attrs != NULL)
        memcpy(link.attrs, node->attrs, node->op->attrs_size);
    finding->attrs.links[finding->attrs.count++] = link;
    finding->nodes[finding->count++] = node;
    return true;
}

/* The next link behind the last one; NULL where the chain ends. */
static struct node *next_link(const struct graph *graph, const struct finding *finding)
{
    const struct value *made = finding->nodes[finding->count - 1]->out[0];
    struct node *user = graph_single_user(graph, made);

    if (user == NULL || !is_link(user) || !shape_is_equal(&user->out[0]->shape, &made->shape))
        return NULL;
    return user;
}

static bool is_linked(const struct finding *finding, const struct node *node)
{
    for (size_t i = 0; i < finding->count; i++)
        if (finding->nodes[i] == node)
            return true;
    return false;
}

static void find_chain(const struct graph *graph, struct node *first, struct finding *finding)
{
    struct node *next;

    finding->in[finding->inputs++] = first->in[0];
    if (!add_link(finding, first, 0))
        return;
    while ((next = next_link(graph, finding)) != NULL) {
        size_t place = next->in[0] == finding->nodes[finding->count - 1]->out[0] ? 0 : 1;

        if (!add_link(finding, next, place))
            break;
    }
}

/* Puts the chain in the place of its last node: there all that it reads has been made. */
static enum status make_chain(struct graph *graph, const struct finding *finding, struct error *err)
{
    struct node *last = finding->nodes[finding->count - 1];
    struct node *made = node_replace(graph, last, &op_chain, finding->inputs, finding->in);

    if (made == NULL)
        return pass_no_memory(err);
    *(struct chain_attrs *)made->attrs = finding->attrs;
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    if (!context->fuses_chains)
        return STATUS_OK;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);
        struct finding finding = {.count = 0};

        link = link->next;
        if (!is_link(node))
            continue;
        find_chain(graph, node, &finding);
        if (finding.count < 2)
            continue;
        while (link != &graph->nodes && is_linked(&finding, CONTAINER_OF(link, struct node, link)))
            link = link->next;
        TRY(make_chain(graph, &finding, err));
        for (size_t i = finding.count - 1; i-- > 0;)
            graph_remove_node(graph, finding.nodes[i]);
    }
    return STATUS_OK;
}

const struct pass pass_fuse_chain = {.name = "fuse_chain", .stage = PASS_PLAN, .run = run};
