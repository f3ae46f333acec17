/* Which values share bytes.
 *
 * Every computed value starts as a set of its own.  Sets are laid into each other where no copy is
 * needed: a view into what it views, parts into their concatenation.  None of this depends on the
 * order of the steps; results over inputs that die do, and come later (place.c).
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

/* ---- views and parts ---- */

/* Whether parts along `axis` lie behind each other in memory, and this one's padding is its own. */
static bool is_outermost(const struct making *making, const struct value *whole, size_t axis)
{
    enum layout layout = making_layout(making, whole);

    if (layout == LAYOUT_PLAIN)
        return shape_product(&whole->shape, 0, axis) == 1;
    return layout == LAYOUT_BLOCKED && (axis == 0 || (axis == 1 && whole->shape.dims[0] == 1));
}

/* Bytes in front of element `start` of the axis; false when that is inside a block of channels, or
 * where the device's kernels do not want a value to begin. */
static bool part_offset(const struct making *making, const struct value *whole, size_t axis,
                        int64_t start, uint64_t *out_offset)
{
    struct shape before = whole->shape;
    unsigned block = making->network->device->channel_block;
    unsigned alignment = making->network->device->view_alignment;
    enum layout layout = making_layout(making, whole);

    if (layout == LAYOUT_BLOCKED && axis == 1 && start % block != 0)
        return false;
    before.dims[axis] = start;
    *out_offset = start == 0 ? 0 : layout_bytes(layout, block, whole->dtype, &before);
    return alignment == 0 || *out_offset % alignment == 0;
}

bool making_same_layout(const struct making *making, const struct value *a, const struct value *b)
{
    return making_layout(making, a) == making_layout(making, b);
}

/* Lays `part` at an offset of `whole`, whose producer or border came first. */
static bool lay_part(struct making *making, struct value *part, struct value *whole,
                     uint64_t offset)
{
    struct set *set = &making->sets[part->id];
    uint64_t whole_offset;
    struct set *root = making_root(making, whole, &whole_offset);

    if (part->shape_bound || whole->constant != NULL || !making_same_layout(making, part, whole) ||
        making_value_on_host(making, part) != making_value_on_host(making, whole))
        return false;
    if (set_is_inner(set)) {
        making_lay(making, set, root, whole_offset + offset);
        return true;
    }
    /* An output of the graph: the whole may be made right there. */
    if (set->where != IN_OUTPUT || root->where != IN_ARENA || whole_offset != 0 || offset != 0 ||
        root->bytes != set->bytes)
        return false;
    making_lay(making, root, set, 0);
    return true;
}

static bool share_view(struct making *making, struct node *node)
{
    return node->in[0] != NULL && node->out[0] != NULL && node->in[0]->constant == NULL &&
           making->sets[node->in[0]->id].bytes == making->sets[node->out[0]->id].bytes &&
           lay_part(making, node->out[0], node->in[0], 0);
}

/* One axis cut, step one, everything before it of length one. */
static bool share_slice(struct making *making, struct node *node)
{
    struct value *in = node->in[0], *out = node->out[0];
    const struct value *starts = node->in[1], *axes = node->inputs > 3 ? node->in[3] : NULL;
    const struct value *steps = node->inputs > 4 ? node->in[4] : NULL;
    int64_t first[SHAPE_MAX_RANK], named[SHAPE_MAX_RANK], by[SHAPE_MAX_RANK];
    size_t count, named_count, by_count, axis = 0;
    uint64_t offset;
    struct tensor none = {.dtype = DTYPE_NONE};

    while (axis < in->shape.rank && in->shape.dims[axis] == out->shape.dims[axis])
        axis++;
    if (axis == in->shape.rank || in->constant != NULL || starts->constant == NULL ||
        axes == NULL || axes->constant == NULL || !is_outermost(making, in, axis) ||
        shape_count(&out->shape) == 0)
        return false;
    for (size_t i = axis + 1; i < in->shape.rank; i++)
        if (in->shape.dims[i] != out->shape.dims[i])
            return false;
    none = starts->constant->tensor;
    if (op_read_ints(&none, "starts", SHAPE_MAX_RANK, first, &count, NULL) != STATUS_OK ||
        op_read_ints(&axes->constant->tensor, "axes", SHAPE_MAX_RANK, named, &named_count, NULL) !=
            STATUS_OK)
        return false;
    if (steps != NULL) {
        if (steps->constant == NULL ||
            op_read_ints(&steps->constant->tensor, "steps", SHAPE_MAX_RANK, by, &by_count, NULL) !=
                STATUS_OK)
            return false;
        for (size_t i = 0; i < by_count; i++)
            if (by[i] != 1)
                return false;
    }
    for (size_t i = 0; i < named_count && i < count; i++) {
        int64_t start = first[i];

        if (!shape_has_axis(&in->shape, named[i]) || shape_axis(&in->shape, named[i]) != axis)
            continue;
        if (start < 0)
            start += in->shape.dims[axis];
        if (start < 0)
            start = 0;
        return part_offset(making, in, axis, start, &offset) && lay_part(making, out, in, offset);
    }
    return false;
}

static bool can_split(const struct making *making, const struct node *node, size_t axis)
{
    const struct value *in = node->in[0];
    int64_t start = 0;
    uint64_t offset;

    if (in->constant != NULL || !is_outermost(making, in, axis))
        return false;
    for (size_t i = 0; i < node->outputs; i++) {
        const struct value *out = node->out[i];

        if (out == NULL || !set_is_inner(&making->sets[out->id]) ||
            making_value_on_host(making, out) != making_value_on_host(making, in) ||
            !making_same_layout(making, in, out) || !part_offset(making, in, axis, start, &offset))
            return false;
        start += out->shape.dims[axis];
    }
    return true;
}

static bool share_split(struct making *making, struct node *node)
{
    struct value *in = node->in[0];
    size_t axis = shape_axis(&in->shape, attr_int(node, "axis"));
    int64_t start = 0;

    if (!can_split(making, node, axis))
        return false;
    for (size_t i = 0; i < node->outputs; i++) {
        uint64_t offset;

        (void)part_offset(making, in, axis, start, &offset);
        (void)lay_part(making, node->out[i], in, offset);
        start += node->out[i]->shape.dims[axis];
    }
    return true;
}

static bool can_concat(const struct making *making, const struct node *node, size_t axis)
{
    const struct value *out = node->out[0];
    int64_t start = 0;
    uint64_t offset;

    if (!is_outermost(making, out, axis))
        return false;
    for (size_t i = 0; i < node->inputs; i++) {
        const struct value *in = node->in[i];
        const struct set *root;

        if (in == NULL || in->constant != NULL || in->shape_bound)
            return false;
        root = making_root(making, in, &offset);
        if (!set_is_inner(root) || !making_covers(making, in) ||
            making_value_on_host(making, out) != making_value_on_host(making, in) ||
            !making_same_layout(making, in, out) || !part_offset(making, out, axis, start, &offset))
            return false;
        for (size_t k = 0; k < i; k++)
            if (making_root(making, node->in[k], &offset) == root)
                return false;
        start += in->shape.dims[axis];
    }
    return true;
}

static bool share_concat(struct making *making, struct node *node)
{
    struct value *out = node->out[0];
    size_t axis = shape_axis(&out->shape, attr_int(node, "axis"));
    int64_t start = 0;

    if (!can_concat(making, node, axis))
        return false;
    for (size_t i = 0; i < node->inputs; i++) {
        uint64_t offset, ignored;

        (void)part_offset(making, out, axis, start, &offset);
        making_lay(making, making_root(making, node->in[i], &ignored), &making->sets[out->id],
                   offset);
        start += node->in[i]->shape.dims[axis];
    }
    return true;
}

static bool share(struct making *making, struct node *node)
{
    if ((node->op->flags & OP_VIEW) != 0)
        return share_view(making, node);
    if (node->op == &op_slice)
        return share_slice(making, node);
    if (node->op == &op_split)
        return share_split(making, node);
    if (node->op == &op_concat)
        return share_concat(making, node);
    return false;
}

enum status making_share(struct making *making, struct error *err)
{
    making->placed = arena_take_array(making->arena, making->nodes, sizeof(*making->placed));
    if (making->placed == NULL || make_sets(making) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    for (size_t n = 0; n < making->nodes; n++)
        making->placed[n] = share(making, making->order[n]);
    return STATUS_OK;
}
