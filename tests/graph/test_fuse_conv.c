/* What a convolution takes in besides bias, activation and residual: cuts, preludes, pools. */
#include "fuse_rig.h"

/* ---- edges that are cut off ---- */

static struct value *integers(struct graph *graph, int64_t a, int64_t b)
{
    struct shape shape = shape_make(1, &(int64_t){2});
    struct constant *made = constant_allocate(DTYPE_INT64, &shape);

    memcpy((void *)(uintptr_t)made->tensor.data, (const int64_t[]){a, b}, 2 * sizeof(a));
    return graph_add_constant(graph, "", made);
}

/* [from, to) of the last axis and all of the one before it but its first `channel`. */
static struct value *sliced(struct graph *graph, struct value *x, int64_t channel, int64_t from,
                            int64_t to)
{
    struct node *node = graph_add_node(graph, NULL, op_find("", "Slice"), "slice", 4, 1);

    node_set_input(node, 0, x);
    node_set_input(node, 1, integers(graph, channel, from));
    node_set_input(node, 2, integers(graph, INT64_MAX, to));
    node_set_input(node, 3, integers(graph, 1, 2));
    node_set_output(node, 0, graph_add_value(graph, ""));
    assert_ok(graph_infer_node(graph, node, NULL));
    return node->out[0];
}

/* Of 20 cells: 24 of Conv (four zeros on either side, three taps two apart), 42 of ConvTranspose
 * (four taps, two apart). */
static struct value *convolved(struct graph *graph, struct value *x, bool transposed)
{
    static const int64_t pads[] = {4, 4}, two[] = {2};
    struct value *y =
        apply(graph, transposed ? "ConvTranspose" : "Conv", x,
              transposed ? constant(graph, DIMS(3, 4, 4)) : constant(graph, DIMS(4, 3, 3)));
    struct node *node = y->producer;

    if (transposed) {
        *(struct ints *)node_attr(node, "strides") = (struct ints){1, two};
    } else {
        *(struct ints *)node_attr(node, "pads") = (struct ints){2, pads};
        *(struct ints *)node_attr(node, "dilations") = (struct ints){1, two};
    }
    assert_ok(graph_infer_node(graph, node, NULL));
    assert_int_equal(y->shape.dims[2], transposed ? 42 : 24);
    return y;
}

static void what_is_cut_off_a_convolution_is_not_computed(void **state)
{
    (void)state;
    for (int transposed = 0; transposed < 2; transposed++) {
        struct graph *graph = graph_create();
        struct value *x = fed(graph, DIMS(1, 3, 20));
        struct value *y = convolved(graph, x, transposed != 0);
        const struct ints *pads;
        struct node *node;

        finish(graph, 1, &x, sliced(graph, y, 0, 1, transposed ? -3 : -4));
        run(graph, &pass_fold_crop);
        node = only(graph);
        pads = node_attr_ints(node, "pads");
        assert_int_equal(pads->count, 2);
        assert_int_equal(pads->values[0], transposed ? 1 : 3);
        assert_int_equal(pads->values[1], transposed ? 3 : 0);
        assert_ok(graph_infer_node(graph, node, NULL));
        assert_int_equal(node->out[0]->shape.dims[2], transposed ? 38 : 19);
        graph_destroy(graph);
    }
}

static void cuts_that_pads_cannot_make_stay(void **state)
{
    static const struct {
        bool transposed;
        int64_t channel, from, to;
    } cases[] = {{false, 0, 5, 24}, {false, 0, 0, -5}, {false, 1, 0, -4}, {true, 0, 4, 42}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct graph *graph = graph_create();
        struct value *x = fed(graph, DIMS(1, 3, 20));
        struct value *y = convolved(graph, x, cases[i].transposed);

        finish(graph, 1, &x, sliced(graph, y, cases[i].channel, cases[i].from, cases[i].to));
        run(graph, &pass_fold_crop);
        assert_int_equal(count(graph, "Slice"), 1);
        graph_destroy(graph);
    }
}

/* BatchNormalization of 8 channels. */
static struct value *normalize(struct graph *graph, struct value *x)
{
    struct node *node =
        graph_add_node(graph, NULL, op_find("", "BatchNormalization"), "norm", 5, 1);

    assert_non_null(node);
    op_attrs_default(node->op, node->attrs);
    node_set_input(node, 0, x);
    for (size_t i = 1; i < 5; i++)
        node_set_input(node, i, constant(graph, DIMS(8)));
    node_set_output(node, 0, graph_add_value(graph, ""));
    assert_ok(graph_infer_node(graph, node, NULL));
    return node->out[0];
}

static void a_normalization_and_relu_before_a_convolution_become_its_prelude(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(2, 8, 5, 5));
    struct value *y = apply(graph, "Relu", normalize(graph, x), NULL);
    const struct conv_attrs *attrs;
    struct node *conv;

    (void)state;
    finish(graph, 1, &x, apply(graph, "Conv", y, constant(graph, DIMS(16, 8, 1, 1))));
    run(graph, &pass_fuse_prelude);
    conv = only(graph);
    attrs = conv->attrs;
    assert_string_equal(conv->op->onnx.name, "Conv");
    assert_true(attrs->has_prelude);
    assert_true(attrs->prelude_low == 0);
    assert_ptr_equal(conv->in[CONV_X], x);
    assert_int_equal(conv->inputs, CONV_PRELUDE + CONV_PRELUDE_INPUTS);
    assert_null(conv->in[CONV_RESIDUAL]);
    assert_ok(graph_infer_node(graph, conv, NULL));
    graph_destroy(graph);
}

static void what_others_read_or_winograd_computes_gets_no_prelude(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct graph *graph = graph_create();
        struct value *x = fed(graph, DIMS(2, 8, 5, 5));
        struct value *y = apply(graph, "Relu", normalize(graph, x), NULL), *z;

        if (i == 0) { /* y is read twice */
            z = apply(graph, "Conv", y, constant(graph, DIMS(8, 8, 1, 1)));
            z = apply(graph, "Add", z, y);
        } else {
            z = apply(graph, "Conv", y, constant(graph, DIMS(8, 8, 3, 3)));
        }
        finish(graph, 1, &x, z);
        run(graph, &pass_fuse_prelude);
        assert_int_equal(count(graph, "BatchNormalization"), 1);
        graph_destroy(graph);
    }
}

/* ---- pools behind convolutions ---- */

static struct value *pooled(struct graph *graph, struct value *x, int64_t filters, int64_t channels,
                            int64_t kernel)
{
    static const int64_t twos[] = {2, 2};
    struct value *between =
        apply(graph, "Conv", x, constant(graph, DIMS(filters, channels, kernel, kernel)));
    struct node *pool = graph_add_node(graph, NULL, &op_max_pool, "pool", 1, 1);

    ((struct pool_attrs *)pool->attrs)->window =
        (struct window_attrs){.kernel_shape = {2, twos}, .strides = {2, twos}};
    node_set_input(pool, 0, between);
    node_set_output(pool, 0, graph_add_value(graph, ""));
    assert_ok(graph_infer_node(graph, pool, NULL));
    return pool->out[0];
}

static void a_pool_becomes_part_of_the_convolution_before_it(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, 3, 12, 12));
    struct node *node;

    (void)state;
    finish(graph, 1, &x, pooled(graph, x, 16, 3, 3));
    run(graph, &pass_fuse_pool);
    node = only(graph);
    assert_ptr_equal(node->op, &op_conv_pool);
    assert_false(((const struct conv_pool_attrs *)node->attrs)->average);
    assert_int_equal(node->out[0]->shape.dims[3], 5);
    graph_destroy(graph);
}

static void a_pool_stays_where_it_is(int64_t filters, int64_t channels, int64_t kernel, bool shared)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, channels, 12, 12));
    struct value *y = pooled(graph, x, filters, channels, kernel);

    assert_ok(graph_set_inputs(graph, 1, &x));
    assert_ok(graph_set_outputs(graph, shared ? 2 : 1, (struct value *[]){y, y->producer->in[0]}));
    run(graph, &pass_fuse_pool);
    assert_int_equal(count(graph, "MaxPool"), 1);
    assert_int_equal(count(graph, "Conv"), 1);
    graph_destroy(graph);
}

static void a_pool_stays_behind_what_others_read_or_is_not_made_by_rows(void **state)
{
    (void)state;
    a_pool_stays_where_it_is(16, 3, 3, true);
    a_pool_stays_where_it_is(4, 3, 3, false);   /* few results */
    a_pool_stays_where_it_is(16, 64, 1, false); /* pixels of all rows in one line */
    a_pool_stays_where_it_is(16, 64, 3, false); /* Winograd's */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_cut_off_a_convolution_is_not_computed),
        cmocka_unit_test(cuts_that_pads_cannot_make_stay),
        cmocka_unit_test(a_normalization_and_relu_before_a_convolution_become_its_prelude),
        cmocka_unit_test(what_others_read_or_winograd_computes_gets_no_prelude),
        cmocka_unit_test(a_pool_becomes_part_of_the_convolution_before_it),
        cmocka_unit_test(a_pool_stays_behind_what_others_read_or_is_not_made_by_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
