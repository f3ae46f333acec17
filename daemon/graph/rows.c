/* Each value is of one of three classes:
 *
 *   FREE   constants, and what is computed from them alone
 *   COUNT  what comes from shapes: it may hold the number of rows
 *   DATA   what comes from the contents of inputs
 *
 * COUNT that only says how large something is (the target of a Reshape, the end of a Slice) is how
 * exporters write models; COUNT that meets DATA in arithmetic, picks a branch or is answered may
 * make a row's answer depend on how many there are.
 */
#include "graph/rows.h"

#include <stdlib.h>
#include <string.h>

#include "graph/match.h"
#include "ops/movement.h"

enum class { FREE, COUNT, DATA };
enum { MANY_ROWS = 1 << 24 }; /* more than any batch has: the end of a slice that takes all */

/* Inputs that decide about sizes and places, not about contents: bit i for input i. */
static const struct {
    const char *op;
    unsigned inputs;
} sizes[] = {
    {"Reshape", 1U << 1},  {"Expand", 1U << 1},    {"ConstantOfShape", 1U << 0},
    {"Tile", 1U << 1},     {"Slice", 0x1EU},       {"Pad", 1U << 1 | 1U << 3},
    {"Resize", 0x0EU},     {"Split", 1U << 1},     {"Squeeze", 1U << 1},
    {"TopK", 1U << 1},     {"Unsqueeze", 1U << 1}, {"OneHot", 1U << 1},
    {"CenterCropPad", 2U}, {"MaxUnpool", 1U << 2},
};

static unsigned size_inputs(const struct node *node)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (strcmp(node->op->onnx.name, sizes[i].op) == 0)
            return sizes[i].inputs;
    return 0;
}

static enum class class_of(const enum class *classes, const struct value *value) {
    return value->constant != NULL ? FREE : classes[value->id];
}

/* ---- rows that move ---- */

/* -1 where rank is unknown and the axis counts from the end: it is taken for another than 0. */
static bool is_rows(int64_t axis, const struct value *value)
{
    return axis == 0 || (axis < 0 && value->shape_known && axis + (int64_t)value->shape.rank == 0);
}

/* One of Slice's lists; false when it is no constant.  Left out: `standard` everywhere. */
static bool slice_list(const struct node *node, size_t input, size_t count, int64_t standard,
                       int64_t *list)
{
    size_t found;

    for (size_t i = 0; i < count; i++)
        list[i] = standard;
    return node->inputs <= input || node->in[input] == NULL ||
           (value_ints(node->in[input], SHAPE_MAX_RANK, list, &found) && found == count);
}

/* [0:] of dimension 0, which exporters write down with the rest, takes all rows. */
static bool slices_rows(const struct node *node)
{
    int64_t starts[SHAPE_MAX_RANK], ends[SHAPE_MAX_RANK], axes[SHAPE_MAX_RANK],
        steps[SHAPE_MAX_RANK];
    size_t count;

    if (node->inputs < 4 || node->in[3] == NULL ||
        !value_ints(node->in[3], SHAPE_MAX_RANK, axes, &count))
        return true;
    for (size_t i = 0; i < count; i++)
        if (is_rows(axes[i], node->in[0]))
            return !slice_list(node, 1, count, 0, starts) || starts[i] != 0 ||
                   !slice_list(node, 2, count, 0, ends) || ends[i] < MANY_ROWS ||
                   !slice_list(node, 4, count, 1, steps) || steps[i] != 1;
    return false;
}

static bool pads_rows(const struct node *node)
{
    int64_t pads[2 * SHAPE_MAX_RANK];
    size_t count;

    if ((node->inputs > 3 && node->in[3] != NULL) ||
        !value_ints(node->in[1], 2 * SHAPE_MAX_RANK, pads, &count) || count < 2)
        return true;
    return pads[0] != 0 || pads[count / 2] != 0;
}

bool node_moves_rows(const struct node *node)
{
    if (node->op == &op_slice)
        return slices_rows(node);
    if (node->op == &op_pad)
        return pads_rows(node);
    if (node->op == &op_gather) {
        const struct gather_attrs *attrs = node->attrs;

        return is_rows(attrs->axis, node->in[0]);
    }
    return false;
}

/* ---- the walk ---- */

/* One scale for the whole tensor, out of its contents: with another row it is another. */
static bool scales_together(const struct node *node)
{
    return strcmp(node->op->onnx.name, "DynamicQuantizeLinear") == 0;
}

/* The class of what a node makes; false: doubt. */
static bool classify(const struct node *node, const enum class *classes, enum class *out_class)
{
    unsigned skipped = size_inputs(node);
    bool has_count = false, has_data = false;

    if (node->op == &op_if || scales_together(node))
        return false;
    for (size_t i = 0; i < node->inputs; i++) {
        enum class class = node->in[i] == NULL ? FREE : class_of(classes, node->in[i]);

        if (i < 32 && (skipped >> i & 1U) != 0 && class != DATA)
            continue;
        has_count |= class == COUNT;
        has_data |= class == DATA;
    }
    if (node->op == &op_shape || node->op == &op_size) {
        *out_class = has_data || has_count ? COUNT : FREE;
        return true;
    }
    *out_class = has_data ? DATA : has_count ? COUNT : FREE;
    if (has_data && has_count)
        return false;
    return node->inputs == 0 || node->in[0] == NULL || class_of(classes, node->in[0]) != DATA ||
           !node_moves_rows(node);
}

static bool walk(const struct graph *graph, enum class *classes)
{
    const struct node *node;

    for (size_t i = 0; i < graph->inputs; i++)
        classes[graph->in[i]->id] = DATA;
    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        enum class class;

        if (!classify(node, classes, &class))
            return false;
        for (size_t i = 0; i < node->outputs; i++)
            if (node->out[i] != NULL)
                classes[node->out[i]->id] = class;
    }
    for (size_t i = 0; i < graph->outputs; i++)
        if (class_of(classes, graph->out[i]) == COUNT)
            return false;
    return true;
}

bool graph_may_mix_rows(const struct graph *graph)
{
    enum class *classes = calloc(graph->next_value_id + 1, sizeof(*classes));
    bool certain = classes != NULL && walk(graph, classes);

    free(classes);
    return !certain;
}
