/* Concatenations whose parts are made where they belong.
 *
 * What is laid into the concatenation is a whole set: a part that is all of its set, or
 * neighbouring parts that together are (an earlier concatenation that this one continues, all the
 * pieces of a Split).  In a batch the rows of a set move apart, with all that lies in it; so
 * everybody who makes or uses one of these values has to take strides.  One who does not keeps all
 * parts out.
 */
#include <string.h>

#include "engine/internal.h"

/* ---- who takes strides ---- */

static bool touches(const struct node *node, const struct value *value)
{
    for (size_t i = 0; i < node->inputs; i++)
        if (node->in[i] == value)
            return true;
    for (size_t i = 0; i < node->outputs; i++)
        if (node->out[i] == value)
            return true;
    return false;
}

/* What leaves the graph, or goes on to the plan behind a cut, leaves it dense. */
static bool leaves(const struct graph *graph, const struct value *value)
{
    for (size_t i = 0; i < graph->outputs; i++)
        if (graph->out[i] == value)
            return true;
    return false;
}

enum status making_may_spread(struct making *making, const struct node *maker,
                              const struct value *value, bool *out_may)
{
    *out_may = !leaves(making->graph, value);
    for (size_t n = 0; *out_may && n < making->nodes; n++) {
        const struct node *node = making->order[n];

        if (node != maker && !making->placed[n] && touches(node, value))
            TRY(making_takes_strides(making, node, out_may));
    }
    making->shares_more = making->shares_more || *out_may;
    return STATUS_OK;
}

/* ---- which sets ---- */

struct unit {
    struct set *root;
    struct spot spot;
};

struct joining {
    struct making *making;
    struct node *node;
    size_t axis;
    struct unit *units; /* room for one an input */
    size_t count;
};

static bool may_be_part(const struct joining *joining, const struct value *in)
{
    const struct making *making = joining->making;
    const struct value *out = joining->node->out[0];

    return in != NULL && in->constant == NULL && !in->shape_bound &&
           making_value_on_host(making, out) == making_value_on_host(making, in) &&
           making_same_layout(making, in, out);
}

static bool is_new(const struct joining *joining, const struct set *root)
{
    for (size_t i = 0; i < joining->count; i++)
        if (joining->units[i].root == root)
            return false;
    return root != &joining->making->sets[joining->node->out[0]->id];
}

/* Dense, all of the unit, or rows that are parts of the unit's. */
static bool lies_as_its_unit(const struct making *making, const struct value *in,
                             const struct unit *unit)
{
    const uint64_t pitch = (uint64_t)making_stride(making, in) * dtype_bytes(in->dtype);

    if (making_covers(making, in))
        return true;
    return !making->shares_least &&
           pitch == (unit->spot.pitch == 0 ? 0 : unit->root->bytes / unit->spot.rows);
}

/* The set that begins with input *io_input and ends with the one before what *io_input becomes. */
static bool find_unit(struct joining *joining, size_t *io_input, int64_t *io_start)
{
    const struct making *making = joining->making;
    const struct node *node = joining->node;
    struct unit *unit = &joining->units[joining->count];
    uint64_t taken = 0, all = 1;

    for (unit->root = NULL; taken < all; (*io_input)++) {
        const struct value *in = *io_input < node->inputs ? node->in[*io_input] : NULL;
        struct spot spot;
        struct set *root;
        uint64_t offset;

        if (!may_be_part(joining, in) ||
            !making_spot(making, node->out[0], joining->axis, *io_start, &spot))
            return false;
        root = making_root(making, in, &offset);
        if (unit->root == NULL) {
            if (!set_is_inner(root) || !is_new(joining, root) ||
                (spot.pitch != 0 && root->is_rigid))
                return false;
            *unit = (struct unit){.root = root, .spot = spot};
            all = root->bytes / spot.rows;
        }
        if (root != unit->root || offset != taken || spot.offset != unit->spot.offset + taken ||
            !lies_as_its_unit(making, in, unit))
            return false;
        taken += making->sets[in->id].bytes / spot.rows;
        *io_start += in->shape.dims[joining->axis];
    }
    joining->count++;
    return taken == all;
}

static bool find_units(struct joining *joining)
{
    int64_t start = 0;

    for (size_t input = 0; input < joining->node->inputs;)
        if (!find_unit(joining, &input, &start))
            return false;
    return true;
}

/* ---- the join ---- */

/* Values in the units that are dense until now: their users do not take strides yet. */
static enum status list_dense(const struct joining *joining, const struct value ***out_list,
                              size_t *out_count)
{
    const struct making *making = joining->making;
    const struct value **list =
        arena_take_array(making->arena, making->graph->next_value_id, sizeof(*list));
    const struct value *value;
    size_t count = 0;

    if (list == NULL)
        return STATUS_NO_MEMORY;
    LIST_FOR_EACH (value, &making->graph->values, struct value, link) {
        uint64_t ignored;
        const struct set *root;

        if (value->constant != NULL || making_stride(making, value) != 0)
            continue;
        root = making_root(making, value, &ignored);
        for (size_t i = 0; i < joining->count; i++)
            if (joining->units[i].root == root && joining->units[i].spot.pitch != 0)
                list[count++] = value;
    }
    *out_list = list;
    *out_count = count;
    return STATUS_OK;
}

static void lay(const struct joining *joining)
{
    struct making *making = joining->making;
    struct set *whole = &making->sets[joining->node->out[0]->id];

    for (size_t i = 0; i < joining->count; i++) {
        const struct unit *unit = &joining->units[i];

        making_lay(making, unit->root, whole, unit->spot.offset);
        unit->root->pitch = unit->spot.pitch;
    }
}

enum status making_join(struct making *making, struct node *node, size_t axis, bool *out_joined)
{
    struct joining joining = {.making = making, .node = node, .axis = axis};
    const struct value **dense;
    size_t count;

    *out_joined = false;
    joining.units = arena_take_array(making->arena, node->inputs + 1, sizeof(*joining.units));
    if (joining.units == NULL)
        return STATUS_NO_MEMORY;
    if (!find_units(&joining))
        return STATUS_OK;
    TRY(list_dense(&joining, &dense, &count));
    lay(&joining);
    *out_joined = true;
    for (size_t i = 0; *out_joined && i < count; i++)
        TRY(making_may_spread(making, node, dense[i], out_joined));
    for (size_t i = 0; !*out_joined && i < joining.count; i++)
        making_take_out(making, joining.units[i].root);
    if (*out_joined) {
        making->shares_more = making->shares_more || joining.count < node->inputs;
        making->sets[node->out[0]->id].is_rigid = joining.units[0].spot.pitch == 0;
    }
    return STATUS_OK;
}
