/* Which nodes' kernels may be prepared at once.
 *
 * Two that share a weight go one after the other, in the plan's order: its elements are brought
 * back and dropped for each, and a kernel may look at a packed form that another made.  Scalars and
 * vectors of floats, of which half a model may share one, leave nobody alone: they stay in memory
 * and are only copied.
 */
#include <stdlib.h>

#include "engine/internal.h"

struct use {
    const struct constant *root; /* what its elements come from */
    uint32_t node;
};

/* A group, at the place of its leader. */
struct member {
    uint64_t bytes;       /* of constants */
    uint32_t first, last; /* last: from 1; 0: no group */
};

static bool is_shared_alone(const struct tensor *tensor)
{
    return tensor->shape.rank >= 2 || tensor_bytes(tensor) >= DROP_BYTES_MIN ||
           (!dtype_is_float(tensor->dtype) && shape_count(&tensor->shape) > 1);
}

struct uses {
    size_t count;
    struct use *list; /* NULL: only counted */
};

/* Of the constant, or of all that brings it back. */
static void add_uses(const struct constant *constant, uint32_t node, struct uses *uses)
{
    if (!is_shared_alone(&constant->tensor))
        return;
    for (; constant->origin != NULL && constant->origin->source != NULL;
         constant = constant->origin->source)
        for (size_t i = 0; i < constant->origin->others; i++)
            if (constant->origin->other[i] != constant->origin->source)
                add_uses(constant->origin->other[i], node, uses);
    if (uses->list != NULL)
        uses->list[uses->count] = (struct use){constant, node};
    uses->count++;
}

static void list_uses(const struct making *making, struct uses *uses)
{
    uses->count = 0;
    for (size_t n = 0; n < making->nodes; n++) {
        const struct node *node = making->order[n];

        for (size_t i = 0; !making->placed[n] && i < node->inputs; i++)
            if (node->in[i] != NULL && node->in[i]->constant != NULL)
                add_uses(node->in[i]->constant, (uint32_t)n, uses);
    }
}

static int by_root(const void *left, const void *right)
{
    const struct use *a = left, *b = right;

    if (a->root != b->root)
        return a->root < b->root ? -1 : 1;
    return (a->node > b->node) - (a->node < b->node);
}

/* The first node of a node's group. */
static uint32_t leader(uint32_t *leaders, uint32_t node)
{
    while (leaders[node] != node)
        node = leaders[node] = leaders[leaders[node]];
    return node;
}

static void join(uint32_t *leaders, uint32_t a, uint32_t b)
{
    a = leader(leaders, a);
    b = leader(leaders, b);
    if (a < b)
        leaders[b] = a;
    else
        leaders[a] = b;
}

static enum status join_all(const struct making *making, uint32_t *leaders)
{
    struct uses uses = {0};

    list_uses(making, &uses);
    uses.list = malloc((uses.count + 1) * sizeof(*uses.list));
    if (uses.list == NULL)
        return STATUS_NO_MEMORY;
    list_uses(making, &uses);
    qsort(uses.list, uses.count, sizeof(*uses.list), by_root);
    for (size_t i = 1; i < uses.count; i++)
        if (uses.list[i].root == uses.list[i - 1].root)
            join(leaders, uses.list[i - 1].node, uses.list[i].node);
    free(uses.list);
    return STATUS_OK;
}

static uint64_t weight_bytes(const struct node *node)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] != NULL && node->in[i]->constant != NULL)
            bytes += tensor_bytes(&node->in[i]->constant->tensor);
    return bytes;
}

/* Nodes by group. */
static void line_up(const struct making *making, uint32_t *leaders, struct groups *groups,
                    struct member *members)
{
    for (uint32_t n = 0; n < making->nodes; n++) {
        struct member *leading = &members[leader(leaders, n)];

        if (making->placed[n])
            continue;
        if (leading->last == 0)
            leading->first = n;
        else
            groups->next[leading->last - 1] = n;
        groups->next[n] = GROUP_END;
        leading->last = n + 1;
        leading->bytes += weight_bytes(making->order[n]);
    }
}

static int most_bytes_first(const void *left, const void *right)
{
    const struct member *a = left, *b = right;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

/* Groups by their weight, so that no thread begins a large one when the others are done. */
static void rank(const struct making *making, struct groups *groups, struct member *members)
{
    qsort(members, making->nodes, sizeof(*members), most_bytes_first);
    for (size_t n = 0; n < making->nodes; n++)
        if (members[n].last != 0)
            groups->first[groups->count++] = members[n].first;
}

enum status groups_make(const struct making *making, struct groups *out_groups)
{
    uint32_t *leaders = calloc(3 * making->nodes + 1, sizeof(*leaders));
    struct member *members = calloc(making->nodes + 1, sizeof(*members));
    enum status status = leaders == NULL || members == NULL ? STATUS_NO_MEMORY : STATUS_OK;

    *out_groups = (struct groups){.memory = leaders};
    if (status == STATUS_OK) {
        out_groups->next = leaders + making->nodes;
        out_groups->first = leaders + 2 * making->nodes;
        for (uint32_t n = 0; n < making->nodes; n++)
            leaders[n] = n;
        status = join_all(making, leaders);
    }
    if (status == STATUS_OK) {
        line_up(making, leaders, out_groups, members);
        rank(making, out_groups, members);
    } else {
        groups_free(out_groups);
    }
    free(members);
    return status;
}

void groups_free(struct groups *groups)
{
    free(groups->memory);
    groups->memory = NULL;
}
