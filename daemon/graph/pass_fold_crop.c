/* What is cut off the edges of a convolution's result need not be computed:
 *
 *     Slice(Conv(x), from, to)           →  Conv(x) with smaller pads
 *     Slice(ConvTranspose(x), from, to)  →  ConvTranspose(x) with larger pads
 *
 * as causal convolutions (padded on both sides, cut behind) and decoders of sound are written. What
 * follows the Slice then follows the convolution, and may become part of it.
 */
#include "graph/match.h"
#include "ops/conv.h"
#include "ops/movement.h"

/* What a Slice takes of the spatial axes, in steps of one; false when it takes more or less. */
static bool read_ranges(const struct node *slice, struct slice_range ranges[SHAPE_MAX_RANK])
{
    const struct shape *shape = &slice->in[0]->shape;
    const struct tensor *in[5] = {NULL};
    struct tensor data = {.dtype = slice->in[0]->dtype, .shape = *shape};

    in[0] = &data;
    for (size_t i = 1; i < slice->inputs; i++) {
        if (slice->in[i] == NULL)
            continue;
        if (slice->in[i]->constant == NULL)
            return false;
        in[i] = &slice->in[i]->constant->tensor;
    }
    if (slice->inputs < 3 || slice_ranges(in, ranges, NULL) != STATUS_OK)
        return false;
    for (size_t i = 0; i < shape->rank; i++)
        if (ranges[i].step != 1 || ranges[i].count < 1 ||
            (i < 2 && ranges[i].count != shape->dims[i]))
            return false;
    return true;
}

/* Pads that leave out what the ranges do, begins then ends; false when there are none. */
static bool find_pads(const struct window *window, bool transposed,
                      const struct slice_range *ranges, int64_t *pads)
{
    for (size_t i = 0; i < window->spatial; i++) {
        const int64_t before = ranges[2 + i].start;
        const int64_t after = window->out[i] - before - ranges[2 + i].count;
        const int64_t extent = (window->kernel[i] - 1) * window->dilation[i] + 1;
        const int64_t step = transposed ? 1 : -window->stride[i];

        pads[i] = window->pad_begin[i] + step * before;
        pads[window->spatial + i] = window->pad_end[i] + step * after;
        if (pads[i] < 0 || pads[window->spatial + i] < 0 ||
            (transposed && (pads[i] >= extent || pads[window->spatial + i] >= extent)))
            return false;
    }
    return true;
}

/* The windows of a convolution that takes pads as they come. */
static bool resolve(const struct node *node, struct window *out_window)
{
    const struct shape *x = &node->in[CONV_X]->shape, *w = &node->in[CONV_W]->shape;
    struct conv_geometry geometry;
    enum status status;

    if (node->op == &op_conv) {
        status = conv_resolve(node->attrs, x, w, &geometry, NULL);
    } else {
        const struct conv_transpose_attrs *attrs = node->attrs;

        if (attrs->window.auto_pad != AUTO_PAD_NOTSET || attrs->output_shape.count > 0)
            return false;
        status = conv_transpose_resolve(attrs, x, w, &geometry, NULL);
    }
    *out_window = geometry.window;
    return status == STATUS_OK;
}

static enum status crop(struct graph *graph, struct node *conv)
{
    struct window_attrs *attrs = conv->attrs; /* both operators' attributes begin with it */
    struct node *slice = graph_single_user(graph, conv->out[0]);
    struct slice_range ranges[SHAPE_MAX_RANK];
    int64_t pads[2 * WINDOW_MAX_RANK], *kept;
    struct window window;
    struct value *out;

    if (!node_is(slice, "Slice") || slice->in[0] != conv->out[0] || !read_ranges(slice, ranges) ||
        !resolve(conv, &window) || !find_pads(&window, conv->op != &op_conv, ranges, pads))
        return STATUS_OK;
    kept = arena_copy(&graph->arena, pads, 2 * window.spatial * sizeof(*pads));
    if (kept == NULL)
        return STATUS_NO_MEMORY;
    attrs->pads = (struct ints){2 * window.spatial, kept};
    attrs->auto_pad = AUTO_PAD_NOTSET;
    out = slice->out[0];
    graph_remove_node(graph, slice);
    node_set_output(conv, 0, out);
    return STATUS_OK;
}

/* Not yet joined with what stands around it. */
static bool is_convolution(const struct node *node)
{
    return (node->op == &op_conv || node->op == &op_conv_transpose) && node->inputs <= 3 &&
           node->out[0] != NULL;
}

static enum status run(struct graph *graph, const struct pass_context *context, struct error *err)
{
    struct list *link = graph->nodes.next;

    (void)context;
    while (link != &graph->nodes) {
        struct node *node = CONTAINER_OF(link, struct node, link);

        if (is_convolution(node) && crop(graph, node) != STATUS_OK)
            return pass_no_memory(err);
        link = node->link.next;
    }
    return STATUS_OK;
}

const struct pass pass_fold_crop = {.name = "fold_crop", .stage = PASS_PLAN, .run = run};
