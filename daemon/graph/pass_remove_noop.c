/* Nodes that hand on their input as it is.
 *
 *      x ──> Identity ──> y        becomes        x for y
 *
 * In a model's graph by operator alone; in a plan's graph, where shapes are known, also what
 * happens to change nothing: a Reshape to the same shape, a Cast to the same type. */
#include "graph/match.h"

#include <string.h>

#include "ops/indexing.h"

static bool all_equal(const struct value *value, int64_t number)
{
    int64_t ints[4 * SHAPE_MAX_RANK];
    size_t count;

    if (!value_ints(value, sizeof(ints) / sizeof(ints[0]), ints, &count))
        return false;
    for (size_t i = 0; i < count; i++)
        if (ints[i] != number)
            return false;
    return true;
}

static bool is_identity(const struct node *node)
{
    return node_is(node, "Identity");
}

static bool is_single_input(const struct node *node)
{
    static const char *const names[] = {"Concat", "Max", "Mean", "Min", "Sum", NULL};

    for (size_t i = 0; node->inputs == 1 && names[i] != NULL; i++)
        if (node_is(node, names[i]))
            return true;
    return false;
}

static bool is_trivial_transpose(const struct node *node)
{
    const struct ints *perm = node_attr_ints(node, "perm");

    if (!node_is(node, "Transpose") || perm == NULL)
        return false;
    for (size_t i = 0; i < perm->count; i++)
        if (perm->values[i] != (int64_t)i)
            return false;
    return true;
}

static bool is_empty_pad(const struct node *node)
{
    return node_is(node, "Pad") && node->inputs > 1 && all_equal(node->in[1], 0);
}

static bool is_single_tile(const struct node *node)
{
    return node_is(node, "Tile") && node->inputs > 1 && all_equal(node->in[1], 1);
}

/* x * 1 and x / 1 for a scalar of rank 0, which never makes the result larger. */
static bool is_times_one(const struct node *node)
{
    double number;

    return (node_is(node, "Mul") || node_is(node, "Div")) && node->in[1]->shape.rank == 0 &&
           value_scalar(node->in[1], &number) && number == 1;
}

static bool changes_nothing(const struct node *node)
{
    return is_identity(node) || is_single_input(node) || is_trivial_transpose(node) ||
           is_empty_pad(node) || is_single_tile(node) || is_times_one(node);
}

static bool same_type_and_shape(const struct node *node)
{
    const struct value *in = node->in[0], *out = node->out[0];

    return in->dtype == out->dtype && in->shape_known && out->shape_known && !in->shape_bound &&
           !out->shape_bound && shape_is_known(&in->shape) &&
           shape_is_equal(&in->shape, &out->shape);
}

/* To its own size: each place stands for itself, unless places are counted from a crop on.  By
 * `scales` it may be another scale that only rounds to the same size. */
static bool is_resize_to_size(const struct node *node)
{
    const struct resize_attrs *attrs = node->attrs;

    return node_is(node, "Resize") && node->inputs > 3 && node->in[3] != NULL &&
           attrs->keep_aspect_ratio_policy == RESIZE_STRETCH &&
           attrs->coordinate_transformation_mode != RESIZE_TF_CROP_AND_RESIZE;
}

/* With shapes known, these change nothing when they change neither type nor shape. */
static bool is_still(const struct node *node)
{
    static const char *const names[] = {"Cast",    "CastLike", "Expand",    "Flatten",
                                        "Reshape", "Squeeze",  "Unsqueeze", NULL};

    for (size_t i = 0; names[i] != NULL; i++)
        if (node_is(node, names[i]))
            return true;
    if (is_resize_to_size(node))
        return true;
    if (!node_is(node, "Slice"))
        return false;
    return node->inputs < 5 || node->in[4] == NULL || all_equal(node->in[4], 1);
}

static bool has_one_output(const struct node *node)
{
    if (node->inputs == 0 || node->in[0] == NULL || node->outputs == 0 || node->out[0] == NULL)
        return false;
    for (size_t i = 1; i < node->outputs; i++)
        if (node->out[i] != NULL)
            return false;
    return true;
}

static enum status remove_noop(struct graph *graph, enum pass_stage stage)
{
    struct node *node;

    LIST_FOR_EACH (node, &graph->nodes, struct node, link) {
        if (!has_one_output(node) ||
            !(changes_nothing(node) ||
              (stage == PASS_PLAN && is_still(node) && same_type_and_shape(node))))
            continue;
        /* Refused where input and output are both borders: there the node is needed. */
        if (graph_replace_value(graph, node->out[0], node->in[0]) == STATUS_OK)
            graph_remove_node(graph, node);
    }
    return STATUS_OK;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    (void)context;
    (void)err;
    return remove_noop(graph, PASS_MODEL);
}

static enum status run_plan(struct graph *graph, const struct pass_context *context,
                            struct error *err)
{
    (void)context;
    (void)err;
    return remove_noop(graph, PASS_PLAN);
}

const struct pass pass_remove_noop = {.name = "remove_noop", .stage = PASS_MODEL, .run = run};
const struct pass pass_remove_noop_plan = {
    .name = "remove_noop_plan", .stage = PASS_PLAN, .run = run_plan};
