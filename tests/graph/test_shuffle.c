/* Shuffles of channels: found, joined with Concat and Split, and folded into convolutions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "graph/maker.h"
#include "ops/conv.h"
#include "ops/mix_channels.h"
#include "ops/movement.h"

#define DIMS(...)                                                                                  \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[])                          \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* A node whose result is inferred. */
static struct value *apply(struct graph *graph, const char *op, struct value *a, struct value *b,
                           struct value *c)
{
    struct value *out = make(graph, op, a, b, c);

    assert_ok(graph_infer_node(graph, out->producer, NULL));
    return out;
}

static struct value *reshape(struct graph *graph, struct value *x, size_t rank, const int64_t *dims)
{
    return apply(graph, "Reshape", x, make_ints(graph, rank, dims), NULL);
}

static struct value *swap(struct graph *graph, struct value *x, const int64_t perm[5])
{
    struct value *out = make(graph, "Transpose", x, NULL, NULL);

    make_perm(graph, out, 5, perm);
    assert_ok(graph_infer_node(graph, out->producer, NULL));
    return out;
}

/* Of [2,C,6,6]. */
static struct value *shuffle(struct graph *graph, struct value *x, int64_t groups)
{
    const int64_t channels = x->shape.dims[1], perm[] = {0, 2, 1, 3, 4};

    x = reshape(graph, x, DIMS(2, groups, channels / groups, 6, 6));
    return reshape(graph, swap(graph, x, perm), DIMS(2, channels, 6, 6));
}

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

static const struct conv_attrs *attrs_of(const struct value *y)
{
    return y->producer->attrs;
}

static void run_both(struct graph *graph)
{
    static const struct pass *const passes[] = {&pass_recognise_shuffle, &pass_fold_shuffle};
    const struct pass_context context = {.fuses_shuffles = true};
    struct error err;

    for (size_t i = 0; i < 2; i++) {
        assert_ok(passes[i]->run(graph, &context, &err));
        graph_remove_dead(graph);
        assert_valid(graph);
    }
}

static const struct ints *order_of(const struct node *node)
{
    return &((const struct mix_channels_attrs *)node->attrs)->from;
}

static void a_shuffle_moves_behind_depthwise_into_the_1x1(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", DIMS(2, 48, 6, 6));
    struct value *first = conv(graph, x, 96, 1, 4);
    struct value *depthwise = conv(graph, shuffle(graph, first, 4), 96, 3, 96);
    struct value *last = conv(graph, depthwise, 64, 1, 4);

    (void)state;
    make_borders(graph, x, last);
    run_both(graph);
    assert_int_equal(count_ops(graph, NULL), 3);
    assert_int_equal(attrs_of(first)->x_shuffle | attrs_of(first)->filter_shuffle, 0);
    assert_ptr_equal(depthwise->producer->in[CONV_X], first);
    assert_int_equal(attrs_of(depthwise)->x_shuffle, 0);
    assert_int_equal(attrs_of(depthwise)->filter_shuffle, 24);
    assert_int_equal(attrs_of(last)->x_shuffle, 4);
    graph_destroy(graph);
}

static void a_shuffle_behind_one_group_orders_its_filters(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", DIMS(2, 24, 6, 6));
    struct value *first = conv(graph, x, 96, 1, 1);
    struct value *last = conv(graph, shuffle(graph, first, 4), 96, 3, 96);

    (void)state;
    make_borders(graph, x, last);
    run_both(graph);
    assert_int_equal(count_ops(graph, NULL), 2);
    assert_int_equal(attrs_of(first)->filter_shuffle, 4);
    assert_int_equal(attrs_of(last)->x_shuffle | attrs_of(last)->filter_shuffle, 0);
    graph_destroy(graph);
}

static void what_cannot_take_a_shuffle_in_leaves_one_step(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct graph *graph = graph_create();
        struct value *x = make_input(graph, "x", DIMS(2, 32, 6, 6));
        struct value *y = shuffle(graph, conv(graph, x, 32, 1, 2), 4);

        switch (i) {
        case 0: /* 3x3: Winograd's */
            y = conv(graph, y, 32, 3, 1);
            break;
        case 1: /* few channels a group */
            y = conv(graph, y, 32, 1, 16);
            break;
        case 2: /* read twice */
            y = apply(graph, "Add", conv(graph, y, 32, 1, 1), y, NULL);
            break;
        default: /* nothing behind the depthwise convolution */
            y = conv(graph, y, 32, 3, 32);
            break;
        }
        make_borders(graph, x, y);
        run_both(graph);
        assert_int_equal(count_ops(graph, "MixChannels"), 1);
        assert_int_equal(count_ops(graph, "Transpose"), 0);
        assert_int_equal(shuffle_groups(order_of(find_op(graph, "MixChannels"))), 4);
        graph_destroy(graph);
    }
}

static struct value *split_in_two(struct graph *graph, struct value *x, struct value **out_second)
{
    const int64_t half = x->shape.dims[1] / 2;
    struct node *node = graph_add_node(graph, NULL, op_find("", "Split"), "split", 2, 2);

    assert_non_null(node);
    op_attrs_default(node->op, node->attrs);
    ((struct split_attrs *)node->attrs)->axis = 1;
    node_set_input(node, 0, x);
    node_set_input(node, 1, make_ints(graph, DIMS(half, half)));
    node_set_output(node, 0, graph_add_value(graph, ""));
    node_set_output(node, 1, *out_second = graph_add_value(graph, ""));
    assert_ok(graph_infer_node(graph, node, NULL));
    return node->out[0];
}

static void concat_shuffle_and_split_become_one_step_a_part(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", DIMS(2, 10, 6, 6)), *second;
    struct value *whole = make(graph, "Concat", x, conv(graph, x, 10, 1, 1), NULL), *y;
    const struct node *node;

    (void)state;
    ((struct concat_attrs *)whole->producer->attrs)->axis = 1;
    assert_ok(graph_infer_node(graph, whole->producer, NULL));
    y = split_in_two(graph, shuffle(graph, whole, 2), &second);
    make_borders(graph, x, apply(graph, "Sub", y, second, NULL));
    run_both(graph);
    assert_int_equal(count_ops(graph, "MixChannels"), 2);
    assert_int_equal(count_ops(graph, NULL), 4);
    node = graph->out[0]->producer->in[1]->producer;
    assert_int_equal(node->inputs, 2);
    assert_int_equal(order_of(node)->count, 10);
    for (int64_t c = 0; c < 10; c++)
        assert_int_equal(order_of(node)->values[c], shuffled_channel(10 + c, 20, 2));
    graph_destroy(graph);
}

static void slices_of_a_shuffle_are_parts_too(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", DIMS(2, 12, 6, 6));
    struct value *mixed = shuffle(graph, x, 3), *y;
    struct node *node = graph_add_node(graph, NULL, op_find("", "Slice"), "slice", 4, 1);

    (void)state;
    assert_non_null(node);
    node_set_input(node, 0, mixed);
    node_set_input(node, 1, make_ints(graph, DIMS(4)));
    node_set_input(node, 2, make_ints(graph, DIMS(9)));
    node_set_input(node, 3, make_ints(graph, DIMS(1)));
    node_set_output(node, 0, y = graph_add_value(graph, ""));
    assert_ok(graph_infer_node(graph, node, NULL));
    make_borders(graph, x, y);
    run_both(graph);
    assert_int_equal(count_ops(graph, NULL), 1);
    node = graph->out[0]->producer;
    assert_string_equal(node->op->onnx.name, "MixChannels");
    assert_int_equal(order_of(node)->count, 5);
    assert_int_equal(order_of(node)->values[0], shuffled_channel(4, 12, 3));
    graph_destroy(graph);
}

static void other_transpositions_stay(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct graph *graph = graph_create();
        struct value *x = make_input(graph, "x", DIMS(2, 36, 6, 6)), *y;
        const int64_t swapped[] = {0, 2, 1, 3, 4}, turned[] = {0, 2, 1, 4, 3};

        /* Spatial axes turned; rows cut instead of channels; another shape behind. */
        y = reshape(graph, x, 5,
                    i == 1 ? (const int64_t[]){2, 6, 3, 12, 6} : (const int64_t[]){2, 4, 9, 6, 6});
        y = swap(graph, y, i == 0 ? turned : swapped);
        y = reshape(graph, y, 4,
                    i == 2 ? (const int64_t[]){2, 36, 9, 4} : (const int64_t[]){2, 36, 6, 6});
        make_borders(graph, x, y);
        run_both(graph);
        assert_int_equal(count_ops(graph, "MixChannels"), 0);
        assert_int_equal(count_ops(graph, "Transpose"), 1);
        graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shuffle_moves_behind_depthwise_into_the_1x1),
        cmocka_unit_test(a_shuffle_behind_one_group_orders_its_filters),
        cmocka_unit_test(what_cannot_take_a_shuffle_in_leaves_one_step),
        cmocka_unit_test(concat_shuffle_and_split_become_one_step_a_part),
        cmocka_unit_test(slices_of_a_shuffle_are_parts_too),
        cmocka_unit_test(other_transpositions_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
