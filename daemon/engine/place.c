/* Where values live: which share bytes, when each is alive, at which offset it stands.
 *
 * Every computed value starts as a set of its own.  Sets are laid into each other where no copy is
 * needed: a view into what it views, parts into their concatenation, a result over an input that
 * dies there.  What remains as roots in the arena is packed by the planner, scratch beside it.
 */
#include <string.h>

#include "engine/internal.h"
#include "graph/planner.h"

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

static struct set *root_of(const struct making *making, const struct value *value,
                           uint64_t *out_offset)
{
    return &making->sets[find_root(making, value->id, out_offset)];
}

/* Whether the value is all of its root. */
static bool covers(const struct making *making, const struct value *value)
{
    uint64_t offset;
    const struct set *root = root_of(making, value, &offset);

    return offset == 0 && root->bytes == making->sets[value->id].bytes;
}

/* Lays a root into another set's root. */
static void lay_into(struct making *making, struct set *child, struct set *root, uint64_t offset)
{
    child->parent = (uint32_t)(root - making->sets);
    child->offset = offset;
    if (child->first < root->first)
        root->first = child->first;
    if (child->last > root->last)
        root->last = child->last;
}

/* In an arena, the device's or the host's: not bound by whoever runs the plan. */
static bool is_inner(const struct set *set)
{
    return set->where == IN_ARENA || set->where == IN_HOST;
}

static void use_at(struct making *making, const struct value *value, uint32_t step)
{
    struct set *set = &making->sets[value->id];

    if (step < set->first)
        set->first = step;
    if (step > set->last)
        set->last = step;
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
        set->first = UINT32_MAX;
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
        use_at(making, graph->out[i], (uint32_t)making->nodes); /* alive to the end */
    }
    for (size_t n = 0; n < making->nodes; n++) {
        const struct node *node = making->order[n];

        for (size_t i = 0; i < node->inputs; i++)
            if (node->in[i] != NULL && node->in[i]->constant == NULL)
                use_at(making, node->in[i], (uint32_t)n);
        for (size_t i = 0; i < node->outputs; i++)
            if (node->out[i] != NULL)
                use_at(making, node->out[i], (uint32_t)n);
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

/* Bytes in front of element `start` of the axis; false when that is inside a block of channels. */
static bool part_offset(const struct making *making, const struct value *whole, size_t axis,
                        int64_t start, uint64_t *out_offset)
{
    struct shape before = whole->shape;
    unsigned block = making->network->device->channel_block;
    enum layout layout = making_layout(making, whole);

    if (layout == LAYOUT_BLOCKED && axis == 1 && start % block != 0)
        return false;
    before.dims[axis] = start;
    *out_offset = start == 0 ? 0 : layout_bytes(layout, block, whole->dtype, &before);
    return true;
}

static bool same_layout(const struct making *making, const struct value *a, const struct value *b)
{
    return making_layout(making, a) == making_layout(making, b);
}

/* Lays `part` at an offset of `whole`, whose producer or border came first. */
static bool lay_part(struct making *making, struct value *part, struct value *whole,
                     uint64_t offset)
{
    struct set *set = &making->sets[part->id];
    uint64_t whole_offset;
    struct set *root = root_of(making, whole, &whole_offset);

    if (part->shape_bound || whole->constant != NULL || !same_layout(making, part, whole) ||
        making_value_on_host(making, part) != making_value_on_host(making, whole))
        return false;
    if (is_inner(set)) {
        lay_into(making, set, root, whole_offset + offset);
        return true;
    }
    /* An output of the graph: the whole may be made right there. */
    if (set->where != IN_OUTPUT || root->where != IN_ARENA || whole_offset != 0 || offset != 0 ||
        root->bytes != set->bytes)
        return false;
    lay_into(making, root, set, 0);
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

        if (out == NULL || !is_inner(&making->sets[out->id]) ||
            making_value_on_host(making, out) != making_value_on_host(making, in) ||
            !same_layout(making, in, out) || !part_offset(making, in, axis, start, &offset))
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
        root = root_of(making, in, &offset);
        if (!is_inner(root) || !covers(making, in) ||
            making_value_on_host(making, out) != making_value_on_host(making, in) ||
            !same_layout(making, in, out) || !part_offset(making, out, axis, start, &offset))
            return false;
        for (size_t k = 0; k < i; k++)
            if (root_of(making, node->in[k], &offset) == root)
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
        lay_into(making, root_of(making, node->in[i], &ignored), &making->sets[out->id], offset);
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

/* ---- results over dead inputs ---- */

static bool is_dead_after(const struct making *making, const struct node *node, size_t index,
                          uint32_t step)
{
    const struct value *in = node->in[index];
    uint64_t offset;
    const struct set *root;

    if (in == NULL || in->constant != NULL || !covers(making, in))
        return false;
    root = root_of(making, in, &offset);
    if (!is_inner(root) || root->last != step)
        return false;
    for (size_t i = 0; i < node->inputs; i++)
        if (i != index && node->in[i] != NULL && node->in[i]->constant == NULL &&
            root_of(making, node->in[i], &offset) == root)
            return false;
    return true;
}

static bool try_over(struct making *making, struct node *node, size_t index, uint32_t step)
{
    struct value *in = node->in[index], *out = node->out[0];
    uint64_t out_offset, ignored;

    if (out == NULL || out->shape_bound || !is_dead_after(making, node, index, step) ||
        making_value_on_host(making, in) != making_value_on_host(making, out) ||
        making->sets[in->id].bytes != making->sets[out->id].bytes ||
        !same_layout(making, in, out) ||
        shape_count(&in->shape) != shape_count(&out->shape)) /* padding makes up for channels */
        return false;
    /* Counted from the root of the result: it may be a part of something larger already. */
    {
        struct set *root = root_of(making, out, &out_offset);

        lay_into(making, root_of(making, in, &ignored), root, out_offset);
    }
    return true;
}

static void place_in_place(struct making *making)
{
    for (size_t n = 0; n < making->nodes; n++) {
        struct node *node = making->order[n];
        const struct kernel *kernel = making->choices[n].kernel;
        uint32_t step = (uint32_t)n;

        if (kernel == NULL || node->inputs == 0 || node->outputs != 1)
            continue;
        if ((kernel->flags & KERNEL_IN_PLACE_LAST) != 0 && node_residual_index(node) != SIZE_MAX &&
            try_over(making, node, node_residual_index(node), step))
            continue;
        if ((kernel->flags & KERNEL_IN_PLACE) != 0 && try_over(making, node, 0, step))
            continue;
        if ((kernel->flags & KERNEL_IN_PLACE_1) != 0 && node->inputs > 1)
            (void)try_over(making, node, 1, step);
    }
}

/* ---- the arena ---- */

static uint32_t heaviest_step(const struct plan_buffer *buffers, size_t count, size_t steps)
{
    uint64_t best = 0;
    uint32_t best_step = 0;

    for (uint32_t step = 0; step < steps; step++) {
        uint64_t sum = 0;

        for (size_t i = 0; i < count; i++)
            if (buffers[i].first <= step && step <= buffers[i].last)
                sum += buffers[i].bytes;
        if (sum > best) {
            best = sum;
            best_step = step;
        }
    }
    return best_step;
}

/* Bytes of the arena for something of this size, the guard behind it included. */
static uint64_t guarded(const struct making *making, uint64_t bytes)
{
    return round_up(bytes) + (guards_apply(making->network->device) ? GUARD_BYTES : 0);
}

/* What the buffers alive at the step would take without alignment. */
static uint64_t requested_at(const struct making *making, uint32_t step)
{
    uint64_t bytes = step < making->nodes ? making->choices[step].prepare.scratch_bytes : 0;

    for (uint32_t id = 0; id < making->graph->next_value_id; id++) {
        const struct set *set = &making->sets[id];

        if (set->parent == id && set->where == IN_ARENA && set->first <= step && step <= set->last)
            bytes += set->bytes;
    }
    return bytes;
}

/* Whether the set is a buffer of its own there. */
static bool is_packed(const struct set *set, uint32_t id, enum where where)
{
    return set->parent == id && set->where == where && set->first <= set->last && set->bytes > 0;
}

static bool has_scratch(const struct making *making, size_t n, enum where where)
{
    return making->choices[n].prepare.scratch_bytes > 0 &&
           making_on_host(making, making->order[n]) == (where == IN_HOST);
}

static size_t collect(struct making *making, enum where where, struct plan_buffer *buffers)
{
    size_t count = 0;

    for (uint32_t id = 0; id < making->graph->next_value_id; id++) {
        const struct set *set = &making->sets[id];

        if (is_packed(set, id, where))
            buffers[count++] = (struct plan_buffer){
                .bytes = guarded(making, set->bytes), .first = set->first, .last = set->last};
    }
    for (size_t n = 0; n < making->nodes; n++)
        if (has_scratch(making, n, where))
            buffers[count++] = (struct plan_buffer){
                .bytes = guarded(making, making->choices[n].prepare.scratch_bytes),
                .first = (uint32_t)n,
                .last = (uint32_t)n};
    return count;
}

static void distribute(struct making *making, enum where where, const struct plan_buffer *buffers)
{
    size_t count = 0;

    for (uint32_t id = 0; id < making->graph->next_value_id; id++) {
        struct set *set = &making->sets[id];

        if (is_packed(set, id, where))
            set->arena_offset = buffers[count++].offset;
    }
    for (size_t n = 0; n < making->nodes; n++)
        if (has_scratch(making, n, where))
            making->scratch_offsets[n] = buffers[count++].offset;
}

/* The highest end of what lives on behind the cut. */
static uint64_t carried_end(const struct making *making)
{
    uint64_t end = 0;

    for (size_t i = making->own_outputs; i < making->graph->outputs; i++) {
        uint64_t offset;
        const struct set *root = root_of(making, making->graph->out[i], &offset);

        if (root->where == IN_ARENA && root->arena_offset + round_up(root->bytes) > end)
            end = root->arena_offset + round_up(root->bytes);
    }
    return end;
}

/* What steps on the host work with has an arena of its own. */
static enum status place_on_host(struct making *making, struct plan_buffer *buffers)
{
    size_t count = collect(making, IN_HOST, buffers);
    struct planner_result packed;

    if (count == 0)
        return STATUS_OK;
    TRY(planner_plan(buffers, count, NULL, &packed));
    making->plan->host_bytes = packed.peak_bytes;
    distribute(making, IN_HOST, buffers);
    return STATUS_OK;
}

enum status making_place(struct making *making, struct error *err)
{
    struct plan *plan = making->plan;
    struct planner_result packed;
    struct plan_buffer *buffers;
    size_t count;

    place_in_place(making);
    buffers = arena_take_array(making->arena, making->graph->next_value_id + making->nodes,
                               sizeof(*buffers));
    making->scratch_offsets =
        arena_take_array(making->arena, making->nodes, sizeof(*making->scratch_offsets));
    if (buffers == NULL || making->scratch_offsets == NULL)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    if (place_on_host(making, buffers) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    count = collect(making, IN_ARENA, buffers);
    if (planner_plan(buffers, count, NULL, &packed) != STATUS_OK)
        return error_set(err, STATUS_NO_MEMORY, "no memory to plan");
    plan->peak_bytes = packed.peak_bytes;
    plan->lower_bound_bytes = packed.lower_bound_bytes;
    distribute(making, IN_ARENA, buffers);
    plan->carried_bytes = carried_end(making);
    plan->peak_node = heaviest_step(buffers, count, making->nodes + 1);
    plan->requested_bytes = requested_at(making, plan->peak_node);
    return STATUS_OK;
}

struct slot making_slot(const struct making *making, const struct value *value)
{
    uint64_t offset;
    const struct set *root;

    if (value == NULL)
        return (struct slot){.base = BASE_NONE};
    if (value->constant != NULL)
        return (struct slot){.base = BASE_ABSOLUTE,
                             .offset = (int64_t)(intptr_t)value->constant->tensor.data};
    root = root_of(making, value, &offset);
    switch (root->where) {
    case IN_ARENA:
        return (struct slot){.base = BASE_ARENA, .offset = (int64_t)(root->arena_offset + offset)};
    case IN_HOST:
        return (struct slot){.base = BASE_HOST, .offset = (int64_t)(root->arena_offset + offset)};
    case IN_INPUT:
        return (struct slot){.base = BASE_FIRST_BOUND + root->bound, .offset = (int64_t)offset};
    case IN_OUTPUT:
        break;
    }
    return (struct slot){.base = (uint32_t)(BASE_FIRST_BOUND + making->graph->inputs + root->bound),
                         .offset = (int64_t)offset};
}

struct slot making_guard(const struct making *making, const struct value *value)
{
    uint64_t offset;
    const struct set *root;
    uint32_t base = BASE_ARENA;

    if (value == NULL || value->constant != NULL || !guards_apply(making->network->device))
        return (struct slot){.base = BASE_NONE};
    root = root_of(making, value, &offset);
    if (root->where == IN_INPUT || root->bytes == 0)
        return (struct slot){.base = BASE_NONE};
    if (root->where == IN_OUTPUT)
        base = (uint32_t)(BASE_FIRST_BOUND + making->graph->inputs + root->bound);
    offset = root->where == IN_ARENA ? root->arena_offset : 0;
    return (struct slot){.base = base, .offset = (int64_t)(offset + round_up(root->bytes))};
}
