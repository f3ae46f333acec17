/* The constants of a model: which of them are in memory in their own form, and booked for it.
 *
 * Packed forms live in the weights cache; the elements themselves are resident, and booked, while a
 * step reads them, or always when they cannot come back.  When the network leaves the device
 * nothing is booked any more: what cannot come back stays in host memory with the graph.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/internal.h"

struct held {
    struct constant *constant;
    bool booked;
    bool in_branch; /* of a sub-graph: perhaps nobody ever runs it */
};

static int by_address(const void *left, const void *right)
{
    const struct constant *a = ((const struct held *)left)->constant;
    const struct constant *b = ((const struct held *)right)->constant;

    return (a > b) - (a < b);
}

static size_t count_constants(const struct graph *graph)
{
    const struct value *value;
    size_t count = 0;

    LIST_FOR_EACH (value, &graph->values, const struct value, link)
        count += value->constant != NULL;
    for (const struct graph *child = graph->children; child != NULL; child = child->next_child)
        count += count_constants(child);
    return count;
}

static void list_constants(struct network *network, const struct graph *graph, bool in_branch)
{
    const struct value *value;

    LIST_FOR_EACH (value, &graph->values, const struct value, link)
        if (value->constant != NULL)
            network->held[network->held_count++] =
                (struct held){.constant = value->constant, .in_branch = in_branch};
    for (const struct graph *child = graph->children; child != NULL; child = child->next_child)
        list_constants(network, child, true);
}

static void drop_doubles(struct network *network)
{
    size_t kept = 0;

    qsort(network->held, network->held_count, sizeof(*network->held), by_address);
    for (size_t i = 0; i < network->held_count; i++)
        if (kept == 0 || network->held[kept - 1].constant != network->held[i].constant)
            network->held[kept++] = network->held[i];
    network->held_count = kept;
}

static struct ledger_piece piece_of(const struct held *held)
{
    size_t bytes = tensor_bytes(&held->constant->tensor);

    return (struct ledger_piece){
        .bytes = bytes, .requested = bytes, .address = (uintptr_t)held->constant->tensor.data};
}

/* Elements lie in host memory; where that is not the device's they take none of its budget. */
static bool is_of_device(const struct network *network)
{
    return network->device->ops->host_memory;
}

static enum status book(struct network *network, struct held *held)
{
    const struct ledger_piece piece = piece_of(held);

    if (held->booked)
        return STATUS_OK;
    if (is_of_device(network))
        TRY(ledger_add_at(network->account, &piece));
    held->booked = true;
    network->held_bytes += piece.bytes;
    return STATUS_OK;
}

/* Not small ones, nor shapes and indices: rules and passes look at their values. */
static bool can_drop(const struct constant *constant)
{
    return constant->origin != NULL && dtype_bytes(constant->tensor.dtype) <= sizeof(float) &&
           constant->tensor.dtype != DTYPE_INT32 &&
           tensor_bytes(&constant->tensor) >= DROP_BYTES_MIN;
}

enum status held_list(struct network *network)
{
    size_t count = count_constants(network->programs->graph);

    network->held = calloc(count + 1, sizeof(*network->held));
    if (network->held == NULL)
        return STATUS_NO_MEMORY;
    list_constants(network, network->programs->graph, false);
    drop_doubles(network);
    return STATUS_OK;
}

enum status held_book(struct network *network)
{
    for (size_t i = 0; i < network->held_count; i++)
        if (!can_drop(network->held[i].constant))
            TRY(book(network, &network->held[i]));
    return STATUS_OK;
}

void held_drop_rest(struct network *network)
{
    for (size_t i = 0; !network->has_settled && i < network->held_count; i++)
        network_drop(network, network->held[i].constant);
    network->has_settled = true;
}

void held_unbook(struct network *network)
{
    for (size_t i = 0; i < network->held_count; i++) {
        const struct ledger_piece piece = piece_of(&network->held[i]);

        if (network->held[i].booked && is_of_device(network))
            ledger_sub_at(network->account, &piece);
        network->held[i].booked = false;
        network_drop(network, network->held[i].constant);
    }
    network->held_bytes = 0;
    for (size_t i = 0; i < network->kept_count; i++)
        constant_unref(network->kept[i]);
    network->kept_count = 0;
}

enum status network_check_file(const struct network *network, struct error *err)
{
    for (size_t i = 0; i < network->held_count; i++)
        if (constant_check(network->held[i].constant) != STATUS_OK)
            return making_constant_lost(STATUS_PRECONDITION, err);
    return STATUS_OK;
}

uint64_t network_constant_bytes(const struct network *network)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < network->held_count; i++)
        if (!network->held[i].in_branch)
            bytes += tensor_bytes(&network->held[i].constant->tensor);
    return bytes;
}

size_t held_host_bytes(const struct network *network)
{
    size_t bytes = 0;

    for (size_t i = 0; i < network->held_count; i++)
        if (network->held[i].constant->tensor.data != NULL)
            bytes += tensor_bytes(&network->held[i].constant->tensor);
    return bytes;
}

void held_forget(struct network *network)
{
    free(network->held);
    free(network->kept);
    network->held = NULL;
    network->kept = NULL;
    network->held_count = network->kept_count = network->kept_room = 0;
}

static struct held *find_held(const struct network *network, struct constant *constant)
{
    const struct held key = {.constant = constant};

    return network->held == NULL ? NULL
                                 : bsearch(&key, network->held, network->held_count,
                                           sizeof(*network->held), by_address);
}

bool network_owns(const struct network *network, struct constant *constant)
{
    return find_held(network, constant) != NULL;
}

enum status network_hold(struct network *network, struct constant *constant)
{
    struct held *held = find_held(network, constant);

    return held == NULL ? STATUS_OK : book(network, held);
}

enum status network_reserve(struct network *network, size_t constants)
{
    size_t room = network->kept_count + constants;
    struct constant **grown;

    if (room <= network->kept_room)
        return STATUS_OK;
    room += room / 2;
    grown = realloc(network->kept, room * sizeof(*grown));
    if (grown == NULL)
        return STATUS_NO_MEMORY;
    network->kept = grown;
    network->kept_room = room;
    return STATUS_OK;
}

void network_keep(struct network *network, struct constant *constant)
{
    if (find_held(network, constant) != NULL)
        return;
    for (size_t i = 0; i < network->kept_count; i++)
        if (network->kept[i] == constant)
            return;
    network->kept[network->kept_count++] = constant_ref(constant);
}

void network_drop(struct network *network, struct constant *constant)
{
    const struct held *held = find_held(network, constant);

    if (held != NULL && !held->booked && can_drop(constant))
        constant_drop(constant);
}
