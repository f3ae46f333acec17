/* Depthwise convolutions and the 1x1 around them: which become one step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "graph/maker.h"
#include "ops/separable_conv.h"

/* What a block is made of; changed a little by each test. */
struct block {
    int64_t batch, side;               /* images, and their rows and columns */
    int64_t in, expanded, out;         /* channels; expanded 0: no 1x1 in front */
    int64_t stride, groups;            /* of the depthwise convolution; 0: one for each channel */
    int64_t pointwise;                 /* kernel of what is behind it */
    struct epilogue expand, depthwise; /* of these two */
    bool adds, watched;                /* x to the result; what is expanded is used elsewhere */
};

static const struct block usual = {
    .batch = 2, .side = 56, .in = 24, .expanded = 144, .out = 24, .stride = 1, .pointwise = 1};

static struct value *conv(struct graph *graph, struct value *x, int64_t out, int64_t kernel,
                          int64_t groups)
{
    const int64_t dims[] = {out, x->shape.dims[1] / groups, kernel, kernel}, pad = kernel / 2;
    const int64_t pads[] = {pad, pad, pad, pad};
    struct value *w = make_constant(graph, DTYPE_FLOAT, 4, dims, NULL);
    struct value *y = make(graph, "Conv", x, w, NULL);
    struct conv_attrs *attrs = y->producer->attrs;

    attrs->group = groups;
    attrs->window.pads = (struct ints){4, arena_copy(&graph->arena, pads, sizeof(pads))};
    assert_ok(graph_infer_node(graph, y->producer, NULL));
    return y;
}

static struct conv_attrs *attrs_of(const struct value *y)
{
    return y->producer->attrs;
}

static void set_stride(struct graph *graph, struct value *y, int64_t stride)
{
    const int64_t strides[] = {stride, stride};

    attrs_of(y)->window.strides =
        (struct ints){2, arena_copy(&graph->arena, strides, sizeof(strides))};
    assert_ok(graph_infer_node(graph, y->producer, NULL));
}

/* The block's graph after the pass. */
static struct graph *fused(const struct block *block)
{
    const int64_t dims[] = {block->batch, block->in, block->side, block->side};
    const struct pass_context context = {.fuses_separable = true};
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", 4, dims), *y = x, *outs[2];
    struct error err;

    if (block->expanded > 0) {
        y = conv(graph, y, block->expanded, 1, 1);
        attrs_of(y)->epilogue = block->expand;
    }
    outs[1] = y;
    y = conv(graph, y, y->shape.dims[1], 3, block->groups > 0 ? block->groups : y->shape.dims[1]);
    attrs_of(y)->epilogue = block->depthwise;
    set_stride(graph, y, block->stride);
    y = conv(graph, y, block->out, block->pointwise, 1);
    if (block->adds) {
        assert_ok(node_grow_inputs(graph, y->producer, CONV_RESIDUAL + 1));
        node_set_input(y->producer, CONV_RESIDUAL, x);
        attrs_of(y)->epilogue.has_residual = true;
    }
    outs[0] = y;
    y->name = "y";
    assert_ok(graph_set_inputs(graph, 1, &x));
    assert_ok(graph_set_outputs(graph, block->watched ? 2 : 1, outs));
    assert_ok(pass_fuse_separable.run(graph, &context, &err));
    graph_remove_dead(graph);
    assert_valid(graph);
    return graph;
}

static void expect(const struct block *block, size_t nodes, bool joined)
{
    struct graph *graph = fused(block);

    assert_int_equal(count_ops(graph, NULL), nodes);
    assert_int_equal(count_ops(graph, "SeparableConv"), joined);
    graph_destroy(graph);
}

static void a_block_is_one_step(void **state)
{
    struct block block = usual;
    struct graph *graph;
    const struct node *node;

    (void)state;
    block.expand = (struct epilogue){.act = ACT_CLIP, .a = 0, .b = 6};
    block.adds = true;
    graph = fused(&block);
    assert_int_equal(count_ops(graph, NULL), 1);
    node = find_op(graph, "SeparableConv");
    assert_non_null(node);
    assert_int_equal(node->inputs, SEPARABLE_RESIDUAL + 1);
    assert_ptr_equal(node->in[SEPARABLE_RESIDUAL], graph->in[0]);
    assert_ptr_equal(node->in[SEPARABLE_X], graph->in[0]);
    assert_int_equal(node->in[SEPARABLE_EXPAND]->shape.dims[0], 144);
    assert_int_equal(((const struct separable_conv_attrs *)node->attrs)->expand.epilogue.act,
                     ACT_CLIP);
    assert_ok(graph_infer_node(graph, (struct node *)(uintptr_t)node, NULL));
    assert_int_equal(graph->out[0]->shape.dims[1], 24);
    graph_destroy(graph);
}

static void no_1x1_in_front_is_fine(void **state)
{
    struct block block = usual;
    struct graph *graph;

    (void)state;
    block.in = 96;
    block.expanded = 0;
    block.side = 112;
    graph = fused(&block);
    assert_int_equal(count_ops(graph, NULL), 1);
    assert_null(find_op(graph, "SeparableConv")->in[SEPARABLE_EXPAND]);
    graph_destroy(graph);
}

/* A row is computed alike in every batch. */
static void one_image_decides_and_not_the_batch(void **state)
{
    struct block block = usual;

    (void)state;
    block.side = 14;
    block.batch = 64;
    expect(&block, 3, false);
    block.side = 56;
    block.batch = 1;
    expect(&block, 1, true);
}

/* The 1x1 in front stays a step where it makes what others use too, or zeros are not kept. */
static void what_cannot_be_joined_stays_apart(void **state)
{
    struct block block = usual;

    (void)state;
    block.side = 112;
    block.watched = true;
    expect(&block, 2, true);
    block.watched = false;
    block.expand = (struct epilogue){.act = ACT_SIGMOID};
    expect(&block, 2, true);
    block.expand = (struct epilogue){.act = ACT_CLIP, .a = 1, .b = 6};
    expect(&block, 2, true);
    block.expand.act = ACT_NONE;
    block.depthwise.act = ACT_SOFTPLUS;
    expect(&block, 3, false);
    block.depthwise.act = ACT_NONE;
    block.groups = 72;
    expect(&block, 3, false);
    block.groups = 0;
    block.pointwise = 3;
    expect(&block, 3, false);
    block.pointwise = 1;
    block.out = 8;
    expect(&block, 3, false);
}

/* x and the result are in memory at once in one step, but not in two or three. */
static void a_higher_peak_is_not_worth_it(void **state)
{
    struct block block = usual;

    (void)state;
    block.side = 112;
    block.expanded = 0;
    block.in = 64;
    block.out = 64;
    expect(&block, 2, false);
    block.out = 32;
    expect(&block, 1, true);
    block.stride = 2;
    expect(&block, 2, false);
    block.stride = 1;
    block.expanded = 64;
    block.out = 64;
    expect(&block, 3, false);
    block.out = 32; /* the last two alone */
    expect(&block, 2, true);
}

static void devices_that_do_not_ask_keep_three_steps(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", 4, (int64_t[]){1, 24, 112, 112});
    struct value *y = conv(graph, conv(graph, x, 24, 3, 24), 24, 1, 1);

    (void)state;
    make_borders(graph, x, y);
    run_pass(graph, &pass_fuse_separable);
    assert_int_equal(count_ops(graph, NULL), 2);
    graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_is_one_step),
        cmocka_unit_test(no_1x1_in_front_is_fine),
        cmocka_unit_test(one_image_decides_and_not_the_batch),
        cmocka_unit_test(what_cannot_be_joined_stays_apart),
        cmocka_unit_test(a_higher_peak_is_not_worth_it),
        cmocka_unit_test(devices_that_do_not_ask_keep_three_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
