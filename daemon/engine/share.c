/* Which values share bytes.
 *
 * Every computed value starts as a set of its own.  Sets are laid into each other where no copy is
 * needed: a view into what it views, a slice into what it is cut from, parts into their
 * concatenation (join.c).  None of this depends on the order of the steps; results over inputs that
 * die do, and come later (place.c).
 *
 * Parts of a batch lie in *rows*: between two rows of a part lie those of its neighbours.  That
 * needs kernels that take a stride (operand.outer_stride), and those that would compute the same
 * without one: bits may not depend on where a value lies.
 */
#include <string.h>

#include "engine/internal.h"

static const struct attr_def *find_attr(const struct op_def *op, const char *name)
{
    for (const struct attr_def *attr = op->attrs; attr != NULL && attr->type != ATTR_END; attr++)
        if (strcmp(attr->name, name) == 0)
            return attr;
    return NULL;
}

static int64_t attr_int(const struct node *node, const char *name)
{
    const struct attr_def *attr = find_attr(node->op, name);

    return attr == NULL ? 0 : *(const int64_t *)((const char *)node->attrs + attr->offset);
}

/* ---- sets ---- */

static uint32_t find_root(const struct making *making, uint32_t id, uint64_t *out_offset)
{
    uint64_t offset = 0;

    while (making->sets[id].parent != id) {
        offset += making->sets[id].offset;
        id = making->sets[id].parent;
    }
    *out_offset = offset;
    return id;
}

struct set *making_root(const struct making *making, const struct value *value,
                        uint64_t *out_offset)
{
    return &making->sets[find_root(making, value->id, out_offset)];
}

bool making_covers(const struct making *making, const struct value *value)
{
    uint64_t offset;
    const struct set *root = making_root(making, value, &offset);

    return offset == 0 && root->bytes == making->sets[value->id].bytes;
}

void making_lay(struct making *making, struct set *child, struct set *root, uint64_t offset)
{
    child->parent = (uint32_t)(root - making->sets);
    child->offset = offset;
}

void making_take_out(struct making *making, struct set *set)
{
    set->parent = (uint32_t)(set - making->sets);
    set->offset = set->pitch = 0;
}

static enum status make_sets(struct making *making)
{
    struct graph *graph = making->graph;
    struct value *value;

    making->sets = arena_take_array(making->arena, graph->next_value_id, sizeof(*making->sets));
    if (making->sets == NULL)
        return STATUS_NO_MEMORY;
    LIST_FOR_EACH (value, &graph->values, struct value, link) {
        struct set *set = &making->sets[value->id];

        set->parent = value->id;
        if (value->constant == NULL && value->shape_known)
            set->bytes = value_bytes(making, value);
        if (making_value_on_host(making, value))
            set->where = IN_HOST;
    }
    for (size_t i = 0; i < graph->inputs; i++) {
        making->sets[graph->in[i]->id].where = IN_INPUT;
        making->sets[graph->in[i]->id].bound = (uint32_t)i;
    }
    for (size_t i = 0; i < graph->outputs; i++) {
        struct set *set = &making->sets[graph->out[i]->id];

        if (i < making->own_outputs) {
            set->where = IN_OUTPUT;
            set->bound = (uint32_t)making->output_of[i];
        }
    }
    return STATUS_OK;
}

int64_t making_stride(const struct making *making, const struct value *value)
{
    uint64_t pitch = 0;

    if (making->sets == NULL || value->constant != NULL)
        return 0;
    for (uint32_t id = value->id;; id = making->sets[id].parent) {
        if (making->sets[id].pitch != 0)
            pitch = making->sets[id].pitch;
        if (making->sets[id].parent == id)
            break;
    }
    return pitch == 0 ? 0 : (int64_t)(pitch / dtype_bytes(value->dtype));
}

/* ---- views and parts ---- */

/* Whether parts along `axis` lie behind each other in memory, and this one's padding is its own. */
static bool is_outermost(const struct making *making, const struct value *whole, size_t axis)
{
    enum layout layout = making_layout(making, whole);

    if (layout == LAYOUT_PLAIN)
        return shape_product(&whole->shape, 0, axis) == 1;
    return layout == LAYOUT_BLOCKED && (axis == 0 || (axis == 1 && whole->shape.dims[0] == 1));
}

/* The same of a single row, which is what lies behind dimension 0. */
static bool is_outermost_of_row(const struct making *making, const struct value *whole, size_t axis)
{
    enum layout layout = making_layout(making, whole);

    if (making->shares_least || !making->network->device->spreads_rows || axis == 0 ||
        whole->dtype == DTYPE_STRING || shape_count(&whole->shape) == 0)
        return false;
    if (layout == LAYOUT_PLAIN)
        return shape_product(&whole->shape, 1, axis) == 1;
    return layout == LAYOUT_BLOCKED && axis == 1;
}

bool making_spot(const struct making *making, const struct value *whole, size_t axis, int64_t start,
                 struct spot *out_spot)
{
    struct shape before = whole->shape;
    unsigned block = making->network->device->channel_block;
    unsigned alignment = making->network->device->view_alignment;
    enum layout layout = making_layout(making, whole);

    *out_spot = (struct spot){.rows = 1};
    if (!is_outermost(making, whole, axis)) {
        if (!is_outermost_of_row(making, whole, axis))
            return false;
        out_spot->rows = (uint64_t)whole->shape.dims[0];
        out_spot->pitch = value_bytes(making, whole) / out_spot->rows;
        before.dims[0] = 1;
    }
    if (layout == LAYOUT_BLOCKED && axis == 1 && start % block != 0)
        return false;
    before.dims[axis] = start;
    out_spot->offset = start == 0 ? 0 : layout_bytes(layout, block, whole->dtype, &before);
    return alignment == 0 || out_spot->offset % alignment == 0;
}

bool making_same_layout(const struct making *making, const struct value *a, const struct value *b)
{
    return making_layout(making, a) == making_layout(making, b);
}

static bool keeps_rows(const struct value *part, const struct value *whole)
{
    return part->shape.rank > 0 && whole->shape.rank > 0 &&
           part->shape.dims[0] == whole->shape.dims[0] &&
           shape_count(&part->shape) == shape_count(&whole->shape);
}

/* Lays what the node makes into what it reads; its users must take the strides that come of it. */
static enum status lay_inner(struct making *making, const struct node *node, struct value *part,
                             struct value *whole, const struct spot *spot, bool *out_laid)
{
    struct set *set = &making->sets[part->id];
    const int64_t whole_stride = making_stride(making, whole);
    uint64_t whole_offset;
    struct set *root = making_root(making, whole, &whole_offset);

    *out_laid = whole_stride == 0 || spot->pitch != 0 || keeps_rows(part, whole);
    if (!*out_laid)
        return STATUS_OK;
    making_lay(making, set, root, whole_offset + spot->offset);
    set->pitch =
        whole_stride != 0 ? (uint64_t)whole_stride * dtype_bytes(whole->dtype) : spot->pitch;
    if (set->pitch == 0) {
        root->is_rigid = root->is_rigid || !keeps_rows(part, whole);
        return STATUS_OK;
    }
    TRY(making_may_spread(making, node, part, out_laid));
    if (!*out_laid)
        making_take_out(making, set);
    return STATUS_OK;
}

/* Lays `part` at a spot of `whole`, whose producer or border came first. */
static enum status lay_part(struct making *making, const struct node *node, struct value *part,
                            struct value *whole, const struct spot *spot, bool *out_laid)
{
    struct set *set = &making->sets[part->id];
    uint64_t whole_offset;
    struct set *root = making_root(making, whole, &whole_offset);

    *out_laid = false;
    if (part->shape_bound || whole->constant != NULL || !making_same_layout(making, part, whole) ||
        making_value_on_host(making, part) != making_value_on_host(making, whole))
        return STATUS_OK;
    if (set_is_inner(set))
        return lay_inner(making, node, part, whole, spot, out_laid);
    /* An output of the graph: the whole may be made right there. */
    if (set->where != IN_OUTPUT || root->where != IN_ARENA || whole_offset != 0 ||
        spot->offset != 0 || root->bytes != set->bytes || making_stride(making, whole) != 0)
        return STATUS_OK;
    making_lay(making, root, set, 0);
    *out_laid = true;
    return STATUS_OK;
}

static enum status share_view(struct making *making, struct node *node, bool *out_shared)
{
    const struct spot all = {.rows = 1};

    if (node->in[0] == NULL || node->out[0] == NULL || node->in[0]->constant != NULL ||
        making->sets[node->in[0]->id].bytes != making->sets[node->out[0]->id].bytes)
        return STATUS_OK;
    return lay_part(making, node, node->out[0], node->in[0], &all, out_shared);
}

/* One axis cut, step one, everything before it of length one. */
static enum status share_slice(struct making *making, struct node *node, bool *out_shared)
{
    struct value *in = node->in[0], *out = node->out[0];
    const struct value *starts = node->in[1], *axes = node->inputs > 3 ? node->in[3] : NULL;
    const struct value *steps = node->inputs > 4 ? node->in[4] : NULL;
    int64_t first[SHAPE_MAX_RANK], named[SHAPE_MAX_RANK], by[SHAPE_MAX_RANK];
    size_t count, named_count, by_count, axis = 0;
    struct spot spot;
    struct tensor none = {.dtype = DTYPE_NONE};

    while (axis < in->shape.rank && in->shape.dims[axis] == out->shape.dims[axis])
        axis++;
    if (axis == in->shape.rank || in->constant != NULL || starts->constant == NULL ||
        axes == NULL || axes->constant == NULL || !making_spot(making, in, axis, 0, &spot) ||
        shape_count(&out->shape) == 0)
        return STATUS_OK;
    for (size_t i = axis + 1; i < in->shape.rank; i++)
        if (in->shape.dims[i] != out->shape.dims[i])
            return STATUS_OK;
    none = starts->constant->tensor;
    if (op_read_ints(&none, "starts", SHAPE_MAX_RANK, first, &count, NULL) != STATUS_OK ||
        op_read_ints(&axes->constant->tensor, "axes", SHAPE_MAX_RANK, named, &named_count, NULL) !=
            STATUS_OK)
        return STATUS_OK;
    if (steps != NULL) {
        if (steps->constant == NULL ||
            op_read_ints(&steps->constant->tensor, "steps", SHAPE_MAX_RANK, by, &by_count, NULL) !=
                STATUS_OK)
            return STATUS_OK;
        for (size_t i = 0; i < by_count; i++)
            if (by[i] != 1)
                return STATUS_OK;
    }
    for (size_t i = 0; i < named_count && i < count; i++) {
        int64_t start = first[i];

        if (!shape_has_axis(&in->shape, named[i]) || shape_axis(&in->shape, named[i]) != axis)
            continue;
        if (start < 0)
            start += in->shape.dims[axis];
        if (start < 0)
            start = 0;
        return making_spot(making, in, axis, start, &spot)
                   ? lay_part(making, node, out, in, &spot, out_shared)
                   : STATUS_OK;
    }
    return STATUS_OK;
}

static bool can_split(const struct making *making, const struct node *node, size_t axis)
{
    const struct value *in = node->in[0];
    int64_t start = 0;
    struct spot spot;

    if (in->constant != NULL)
        return false;
    for (size_t i = 0; i < node->outputs; i++) {
        const struct value *out = node->out[i];

        if (out == NULL || !set_is_inner(&making->sets[out->id]) ||
            making_value_on_host(making, out) != making_value_on_host(making, in) ||
            !making_same_layout(making, in, out) || !making_spot(making, in, axis, start, &spot))
            return false;
        start += out->shape.dims[axis];
    }
    return true;
}

static enum status share_split(struct making *making, struct node *node, bool *out_shared)
{
    struct value *in = node->in[0];
    size_t axis = shape_axis(&in->shape, attr_int(node, "axis")), laid = 0;
    int64_t start = 0;

    if (!can_split(making, node, axis))
        return STATUS_OK;
    for (*out_shared = true; *out_shared && laid < node->outputs; laid += *out_shared) {
        struct spot spot;

        (void)making_spot(making, in, axis, start, &spot);
        TRY(lay_part(making, node, node->out[laid], in, &spot, out_shared));
        start += node->out[laid]->shape.dims[axis];
    }
    while (!*out_shared && laid-- > 0)
        making_take_out(making, &making->sets[node->out[laid]->id]);
    return STATUS_OK;
}

static enum status share(struct making *making, struct node *node, bool *out_shared)
{
    if ((node->op->flags & OP_VIEW) != 0)
        return share_view(making, node, out_shared);
    if (node->op == &op_slice)
        return share_slice(making, node, out_shared);
    if (node->op == &op_split)
        return share_split(making, node, out_shared);
    if (node->op == &op_concat)
        return making_join(making, node, shape_axis(&node->out[0]->shape, attr_int(node, "axis")),
                           out_shared);
    return STATUS_OK;
}

enum status making_share(struct making *making, struct error *err)
{
    making->placed = arena_take_array(making->arena, making->nodes, sizeof(*making->placed));
    if (making->placed == NULL || make_sets(making) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    for (size_t n = 0; n < making->nodes; n++)
        if (share(making, making->order[n], &making->placed[n]) != STATUS_OK)
            return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    return STATUS_OK;
}
