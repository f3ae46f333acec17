/* Nodes in an order in which every value is made before it is used.
 *
 * Files ought to be in order already, and then this changes nothing.  A depth-first walk over "who
 * makes what I use", nodes in the order of the file, keeps it so; what it meets again while still
 * open is a cycle.  The names that a node's sub-graphs use count as its own: a name that they only
 * use among themselves has no maker here and is skipped.
 */
#include "onnx/internal.h"

#include <stdlib.h>
#include <string.h>

enum mark { MARK_NEW, MARK_OPEN, MARK_DONE };

struct order {
    struct reader *reader;
    size_t count;
    const struct raw_node *nodes;
    struct names makers; /* output name → its node in `nodes` */
    uint32_t *needs;     /* what each node needs, one after the other */
    size_t needs_count;
    size_t needs_room;
    size_t *first_need;   /* by node, `count` + 1 */
    unsigned char *marks; /* enum mark, by node */
    uint32_t *stack;
    size_t *next_need; /* by stack position: where its walk stands */
    uint32_t *order;
    size_t done;
};

static enum status add_makers(struct order *order, struct error *err)
{
    for (size_t i = 0; i < order->count; i++) {
        const struct bytes_list *outputs = &order->nodes[i].outputs;

        for (size_t k = 0; k < outputs->count; k++) {
            enum status status;

            if (outputs->items[k].size == 0)
                continue;
            status =
                names_add(&order->makers, outputs->items[k], (void *)(uintptr_t)&order->nodes[i]);
            if (status == STATUS_EXISTS)
                return error_set(err, STATUS_INVALID, "two nodes make the value '%.*s'",
                                 (int)(outputs->items[k].size > 200 ? 200 : outputs->items[k].size),
                                 outputs->items[k].data);
            if (status != STATUS_OK)
                return reader_no_memory(err);
        }
    }
    return STATUS_OK;
}

static enum status add_need(struct order *order, struct bytes name, struct error *err)
{
    const struct raw_node *maker = name.size == 0 ? NULL : names_find(&order->makers, name);

    if (maker == NULL)
        return STATUS_OK;
    if (order->needs_count == order->needs_room) {
        size_t room = order->needs_room == 0 ? 64 : order->needs_room * 2;
        uint32_t *grown = realloc(order->needs, room * sizeof(*grown));

        if (grown == NULL)
            return reader_no_memory(err);
        order->needs = grown;
        order->needs_room = room;
    }
    order->needs[order->needs_count++] = (uint32_t)(maker - order->nodes);
    return STATUS_OK;
}

static enum status add_graph_needs(struct order *order, struct bytes graph, size_t depth,
                                   struct error *err);

/* Every name that a node of a sub-graph uses, and those of the sub-graphs in it. */
static enum status add_inner_needs(struct order *order, struct bytes proto, size_t depth,
                                   struct error *err)
{
    struct arena *arena = &order->reader->arena;
    struct raw_node node;

    TRY(proto_read_node(arena, proto, &node, err));
    for (size_t i = 0; i < node.inputs.count; i++)
        TRY(add_need(order, node.inputs.items[i], err));
    for (size_t i = 0; i < node.attributes.count; i++) {
        struct raw_attr attr;

        TRY(proto_read_attr(arena, node.attributes.items[i], &attr, err));
        if (attr.graph.size > 0)
            TRY(add_graph_needs(order, attr.graph, depth + 1, err));
    }
    return STATUS_OK;
}

static enum status add_graph_needs(struct order *order, struct bytes graph, size_t depth,
                                   struct error *err)
{
    struct arena *arena = &order->reader->arena;
    struct raw_graph raw;

    if (depth > NESTING_LIMIT)
        return error_set(err, STATUS_INVALID, "sub-graphs are nested deeper than %d",
                         NESTING_LIMIT);
    TRY(proto_read_graph(arena, graph, &raw, err));
    for (size_t i = 0; i < raw.nodes.count; i++)
        TRY(add_inner_needs(order, raw.nodes.items[i], depth, err));
    for (size_t i = 0; i < raw.outputs.count; i++) {
        struct raw_port port;

        TRY(proto_read_port(arena, raw.outputs.items[i], &port, err));
        TRY(add_need(order, port.name, err));
    }
    return STATUS_OK;
}

static enum status add_node_needs(struct order *order, const struct raw_node *node,
                                  struct error *err)
{
    for (size_t i = 0; i < node->inputs.count; i++)
        TRY(add_need(order, node->inputs.items[i], err));
    for (size_t i = 0; i < node->attributes.count; i++) {
        struct raw_attr attr;

        TRY(proto_read_attr(&order->reader->arena, node->attributes.items[i], &attr, err));
        if (attr.graph.size > 0)
            TRY(add_graph_needs(order, attr.graph, 1, err));
    }
    return STATUS_OK;
}

static enum status cycle(const struct order *order, uint32_t node, struct error *err)
{
    const struct bytes_list *outputs = &order->nodes[node].outputs;
    struct bytes name = outputs->count > 0 ? outputs->items[0] : (struct bytes){"", 0};

    return error_set(err, STATUS_INVALID, "the nodes form a cycle through the value '%.*s'",
                     (int)(name.size > 200 ? 200 : name.size), name.data);
}

/* Walks from one node to all it needs, without recursion: files may be long chains. */
static enum status visit(struct order *order, uint32_t start, struct error *err)
{
    size_t depth = 0;

    if (order->marks[start] == MARK_DONE)
        return STATUS_OK;
    order->stack[0] = start;
    order->next_need[0] = order->first_need[start];
    order->marks[start] = MARK_OPEN;
    for (;;) {
        uint32_t node = order->stack[depth], need;

        if (order->next_need[depth] == order->first_need[node + 1]) {
            order->marks[node] = MARK_DONE;
            order->order[order->done++] = node;
            if (depth-- == 0)
                return STATUS_OK;
            continue;
        }
        need = order->needs[order->next_need[depth]++];
        if (order->marks[need] == MARK_OPEN)
            return cycle(order, need, err);
        if (order->marks[need] == MARK_DONE)
            continue;
        depth++;
        order->stack[depth] = need;
        order->next_need[depth] = order->first_need[need];
        order->marks[need] = MARK_OPEN;
    }
}

static enum status sort(struct order *order, struct error *err)
{
    TRY(add_makers(order, err));
    for (size_t i = 0; i < order->count; i++) {
        order->first_need[i] = order->needs_count;
        TRY(add_node_needs(order, &order->nodes[i], err));
    }
    order->first_need[order->count] = order->needs_count;
    for (size_t i = 0; i < order->count; i++)
        TRY(visit(order, (uint32_t)i, err));
    return STATUS_OK;
}

enum status order_nodes(struct reader *reader, size_t count, const struct raw_node *nodes,
                        uint32_t **out_order, struct error *err)
{
    struct arena *arena = &reader->arena;
    struct order order = {.reader = reader, .count = count, .nodes = nodes};
    enum status status;

    order.first_need = arena_take_array(arena, count + 1, sizeof(*order.first_need));
    order.marks = arena_take_array(arena, count, sizeof(*order.marks));
    order.stack = arena_take_array(arena, count, sizeof(*order.stack));
    order.next_need = arena_take_array(arena, count, sizeof(*order.next_need));
    order.order = arena_take_array(arena, count, sizeof(*order.order));
    if (order.first_need == NULL || order.marks == NULL || order.stack == NULL ||
        order.next_need == NULL || order.order == NULL)
        return reader_no_memory(err);
    names_init(&order.makers, reader->seed);
    status = sort(&order, err);
    names_deinit(&order.makers);
    free(order.needs);
    if (status == STATUS_OK)
        *out_order = order.order;
    return status;
}
