/* Constants folded, what does nothing removed, scales taken into weights: a graph before, what must
 * be there after, and where a pass must keep its hands off. */
#include "graph/image_world.h"

#include "ops/indexing.h"
#include "ops/matmul.h"

/* Stands for the engine: every float becomes 7. */
static enum status fold_to_seven(void *arg, const struct graph *graph, const struct node *node,
                                 struct constant **out, struct error *err)
{
    (void)graph;
    (void)err;
    ++*(unsigned *)arg;
    for (size_t i = 0; i < node->outputs; i++) {
        if (node->out[i] == NULL)
            continue;
        out[i] = constant_allocate(node->out[i]->dtype, &node->out[i]->shape);
        if (out[i] == NULL)
            return STATUS_NO_MEMORY;
        *(float *)(uintptr_t)out[i]->tensor.data = 7;
    }
    return STATUS_OK;
}

static void constant_nodes_are_folded_in_order(void **state)
{
    struct world *world = *state;
    unsigned folded = 0;
    const struct pass_context context = {.fold = fold_to_seven, .fold_arg = &folded};
    struct value *a = make(world->graph, "Neg", make_number(world->graph, 3), NULL, NULL);
    struct value *b = make(world->graph, "Exp", a, NULL, NULL);
    struct value *y = make(world->graph, "Mul", world->x, b, NULL);
    double number;

    make_borders(world->graph, world->x, y);
    assert_ok(pass_fold_constants.run(world->graph, &context, NULL));
    graph_remove_dead(world->graph);
    assert_valid(world->graph);
    assert_int_equal(folded, 2);
    assert_int_equal(count_ops(world->graph, NULL), 1);
    assert_true(value_scalar(find_op(world->graph, "Mul")->in[1], &number));
    assert_true(number == 7);
}

static void constant_nodes_that_make_outputs_are_not_folded(void **state)
{
    struct world *world = *state;
    unsigned folded = 0;
    const struct pass_context context = {.fold = fold_to_seven, .fold_arg = &folded};
    struct value *y = make(world->graph, "Neg", make_number(world->graph, 3), NULL, NULL);

    make_borders(world->graph, world->x, y);
    assert_ok(pass_fold_constants.run(world->graph, &context, NULL));
    assert_int_equal(folded, 0);
    assert_int_equal(count_ops(world->graph, "Neg"), 1);
}

static void folding_stops_at_the_limit(void **state)
{
    struct world *world = *state;
    unsigned folded = 0;
    const struct pass_context context = {
        .fold = fold_to_seven, .fold_arg = &folded, .fold_limit_bytes = 8};
    struct value *large = make_constant(world->graph, DTYPE_FLOAT, 1, &(int64_t){3}, NULL);
    struct value *y =
        make(world->graph, "Mul", world->x, make(world->graph, "Neg", large, NULL, NULL), NULL);

    make_borders(world->graph, world->x, y);
    assert_ok(pass_fold_constants.run(world->graph, &context, NULL));
    assert_int_equal(folded, 0);
}

/* --- remove_noop --------------------------------------------------------------------------------
 */

static void identities_and_products_with_one_are_removed(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *a = make(graph, "Relu", world->x, NULL, NULL);
    struct value *b = make(graph, "Identity", a, NULL, NULL);
    struct value *c = make(graph, "Mul", b, make_number(graph, 1), NULL);
    struct value *y = make(graph, "Concat", c, NULL, NULL);

    make_borders(graph, world->x, y);
    run_pass(graph, &pass_remove_noop);
    assert_int_equal(count_ops(graph, NULL), 1);
    assert_string_equal(graph->out[0]->name, "y");
}

static void an_identity_between_borders_stays(void **state)
{
    struct world *world = *state;

    make_borders(world->graph, world->x, make(world->graph, "Identity", world->x, NULL, NULL));
    run_pass(world->graph, &pass_remove_noop);
    assert_int_equal(count_ops(world->graph, "Identity"), 1);
}

static void a_reshape_to_the_same_shape_is_removed_in_a_plan(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *a = make(graph, "Relu", world->x, NULL, NULL);
    struct value *b = make(graph, "Reshape", a, make_ints(graph, 4, image), NULL);
    struct value *y = make(graph, "Neg", b, NULL, NULL);
    struct node *node;

    make_borders(graph, world->x, y);
    run_pass(graph, &pass_remove_noop);
    assert_int_equal(count_ops(graph, "Reshape"), 1);
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        assert_ok(graph_infer_node(graph, node, NULL));
    run_pass(graph, &pass_remove_noop_plan);
    assert_int_equal(count_ops(graph, "Reshape"), 0);
}

/* A plan of Relu, Resize and Neg; how many Resizes are left of it. */
static size_t resizes_left(struct world *world, struct value *scales, struct value *sizes, int mode)
{
    static const float crop[] = {0, 0, 0.1f, 0.1f, 1, 1, 0.9f, 0.9f}; /* read where it is one */
    struct graph *graph = world->graph;
    struct value *in[] = {make(graph, "Relu", world->x, NULL, NULL), NULL, scales, sizes};
    struct value *out = graph_add_value(graph, "");
    struct node *node = graph_add_node(graph, NULL, op_find("", "Resize"), "Resize", 4, 1);

    in[1] = make_constant(graph, DTYPE_FLOAT, 1, &(int64_t){8}, crop);

    assert_non_null(node);
    assert_non_null(out);
    op_attrs_default(op_find("", "Resize"), node->attrs);
    ((struct resize_attrs *)node->attrs)->coordinate_transformation_mode = mode;
    for (size_t i = 0; i < 4; i++)
        if (in[i] != NULL)
            node_set_input(node, i, in[i]);
    node_set_output(node, 0, out);
    make_borders(graph, world->x, make(graph, "Neg", out, NULL, NULL));
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        assert_ok(graph_infer_node(graph, node, NULL));
    run_pass(graph, &pass_remove_noop_plan);
    return count_ops(graph, "Resize");
}

static void a_resize_to_the_same_size_is_removed_in_a_plan(void **state)
{
    struct world *world = *state;

    assert_int_equal(resizes_left(world, NULL, make_ints(world->graph, 4, image), 0), 0);
}

static void a_resize_to_another_size_stays(void **state)
{
    static const int64_t twice[] = {1, 2, 8, 4};
    struct world *world = *state;

    assert_int_equal(resizes_left(world, NULL, make_ints(world->graph, 4, twice), 0), 1);
}

static void a_resize_of_a_crop_to_the_same_size_stays(void **state)
{
    struct world *world = *state;
    struct value *sizes = make_ints(world->graph, 4, image);

    assert_int_equal(resizes_left(world, NULL, sizes, RESIZE_TF_CROP_AND_RESIZE), 1);
}

/* 1.1 times 4 places are 4, but not the same. */
static void a_resize_by_a_scale_that_rounds_to_the_same_size_stays(void **state)
{
    static const float scales[] = {1, 1, 1.1f, 1.1f};
    struct world *world = *state;
    struct value *by = make_constant(world->graph, DTYPE_FLOAT, 1, &(int64_t){4}, scales);

    assert_int_equal(resizes_left(world, by, NULL, 0), 1);
}

/* --- merge_duplicates ---------------------------------------------------------------------------
 */

static void equal_nodes_of_equal_inputs_become_one(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *a = make(graph, "Mul", world->x, make_number(graph, 3), NULL);
    struct value *b = make(graph, "Mul", world->x, make_number(graph, 3), NULL);
    struct value *y = make(graph, "Add", make(graph, "Exp", a, NULL, NULL),
                           make(graph, "Exp", b, NULL, NULL), NULL);

    make_borders(graph, world->x, y);
    run_pass(graph, &pass_merge_duplicates);
    assert_int_equal(count_ops(graph, NULL), 3);
    assert_ptr_equal(find_op(graph, "Add")->in[0], find_op(graph, "Add")->in[1]);
}

static void nodes_that_differ_in_an_attribute_stay_apart(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *a = make(graph, "LeakyRelu", world->x, NULL, NULL);
    struct value *b = make(graph, "LeakyRelu", world->x, NULL, NULL);
    struct value *y = make(graph, "Add", a, b, NULL);

    assert_true(node_set_float(b->producer, "alpha", 0.5F));
    make_borders(graph, world->x, y);
    run_pass(graph, &pass_merge_duplicates);
    assert_int_equal(count_ops(graph, "LeakyRelu"), 2);
}

static struct value *conv(struct world *world, struct value *bias)
{
    static const float weights[] = {1, 2, 3, 4}; /* [2,2,1,1] */
    struct value *w =
        make_constant(world->graph, DTYPE_FLOAT, 4, (const int64_t[]){2, 2, 1, 1}, weights);

    return make(world->graph, "Conv", X, w, bias);
}

static void expect_weights(const struct node *node, const double *weights, const double *bias)
{
    for (size_t i = 0; i < 4; i++)
        assert_float_equal(tensor_float(&node->in[1]->constant->tensor, i), weights[i], 1e-6);
    for (size_t i = 0; i < 2; i++)
        assert_float_equal(tensor_float(&node->in[2]->constant->tensor, i), bias[i], 1e-6);
}

static void factors_and_summands_per_channel_go_into_a_convolution(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *scale =
        make_constant(graph, DTYPE_FLOAT, 3, (const int64_t[]){2, 1, 1}, (const float[]){2, 10});
    struct value *shift =
        make_constant(graph, DTYPE_FLOAT, 4, (const int64_t[]){1, 2, 1, 1}, (const float[]){5, 6});
    struct value *y =
        OP("Sub", OP("Mul", conv(world, make_floats(graph, 2, (float[]){1, 1})), scale), shift);

    make_borders(graph, X, y);
    run_pass(graph, &pass_fold_affine);
    assert_int_equal(count_ops(graph, NULL), 1);
    expect_weights(find_op(graph, "Conv"), (double[]){2, 4, 30, 40}, (double[]){-3, 4});
    assert_string_equal(graph->out[0]->name, "y");
}

static void batch_normalization_goes_into_a_convolution(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    const struct op_def *op = op_find("", "BatchNormalization");
    static const float parameters[4][2] = {{2, 3}, {1, -1}, {4, 5}, {3, 8}};
    struct value *out = graph_add_value(graph, "");
    struct node *norm;

    if (op == NULL)
        skip();
    norm = graph_add_node(graph, NULL, op, "norm", 5, 1);
    op_attrs_default(op, norm->attrs);
    assert_true(node_set_float(norm, "epsilon", 1));
    list_remove(&norm->link);
    node_set_input(norm, 0, conv(world, NULL));
    list_append(&graph->nodes, &norm->link);
    for (size_t i = 0; i < 4; i++)
        node_set_input(norm, i + 1, make_floats(graph, 2, parameters[i]));
    node_set_output(norm, 0, out);
    make_borders(graph, X, out);
    run_pass(graph, &pass_fold_affine);
    assert_int_equal(count_ops(graph, NULL), 1);
    /* scale: 2 / 2 and 3 / 3; shift: 1 - 4 and -1 - 5 */
    expect_weights(find_op(graph, "Conv"), (double[]){1, 2, 3, 4}, (double[]){-3, -6});
}

static void a_factor_along_another_axis_stays(void **state)
{
    struct world *world = *state;
    struct value *scale = make_constant(world->graph, DTYPE_FLOAT, 1, &(int64_t){2}, NULL);
    struct value *y = OP("Mul", conv(world, NULL), scale);

    make_borders(world->graph, X, y);
    run_pass(world->graph, &pass_fold_affine);
    assert_int_equal(count_ops(world->graph, NULL), 2);
}

static void a_convolution_used_twice_keeps_its_weights(void **state)
{
    struct world *world = *state;
    struct value *sum = conv(world, NULL);
    struct value *y = OP("Add", OP("Mul", sum, N(2)), sum);

    make_borders(world->graph, X, y);
    run_pass(world->graph, &pass_fold_affine);
    assert_int_equal(count_ops(world->graph, NULL), 3);
}

static void a_grouped_transposed_convolution_scales_its_own_channels(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *w = make_constant(graph, DTYPE_FLOAT, 4, (const int64_t[]){2, 1, 1, 1},
                                    (const float[]){1, 1}); /* two groups of one channel each */
    struct value *scale =
        make_constant(graph, DTYPE_FLOAT, 3, (const int64_t[]){2, 1, 1}, (const float[]){3, 7});
    struct value *sum = make(graph, "ConvTranspose", X, w, NULL);
    const struct tensor *made;

    assert_true(node_set_int(sum->producer, "group", 2));
    make_borders(graph, X, OP("Mul", sum, scale));
    run_pass(graph, &pass_fold_affine);
    assert_int_equal(count_ops(graph, NULL), 1);
    made = &find_op(graph, "ConvTranspose")->in[1]->constant->tensor;
    assert_true(tensor_float(made, 0) == 3 && tensor_float(made, 1) == 7);
}

static void gemm_takes_scale_and_keeps_alpha_and_beta_right(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *w =
        make_constant(graph, DTYPE_FLOAT, 2, (const int64_t[]){2, 2}, (const float[]){1, 2, 3, 4});
    struct value *sum = make(graph, "Gemm", X, w, make_floats(graph, 2, (float[]){1, 2}));
    struct value *y = OP("Mul", sum, make_floats(graph, 2, (float[]){10, 100}));

    assert_true(node_set_float(sum->producer, "alpha", 2));
    assert_true(node_set_float(sum->producer, "beta", 3));
    make_borders(graph, X, y);
    run_pass(graph, &pass_fold_affine);
    assert_int_equal(count_ops(graph, NULL), 1);
    expect_weights(find_op(graph, "Gemm"), (double[]){10, 200, 30, 400}, (double[]){30, 600});
    assert_true(node_attr_float(find_op(graph, "Gemm"), "alpha", 0) == 2);
    assert_true(node_attr_float(find_op(graph, "Gemm"), "beta", 0) == 1);
}

static void a_product_and_its_bias_take_the_gain_behind_them(void **state)
{
    static const double scaled[] = {10, 200, 30, 400}, shifted[] = {10, 200};
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *w =
        make_constant(graph, DTYPE_FLOAT, 2, (const int64_t[]){2, 2}, (const float[]){1, 2, 3, 4});
    struct value *sum = OP("Add", make_floats(graph, 2, (float[]){1, 2}), OP("MatMul", X, w));
    const struct node *product, *add;

    make_borders(graph, X, OP("Mul", make_floats(graph, 2, (float[]){10, 100}), sum));
    run_pass(graph, &pass_fold_affine);
    assert_int_equal(count_ops(graph, NULL), 2);
    product = find_op(graph, "MatMul");
    add = find_op(graph, "Add");
    for (size_t i = 0; i < 4; i++)
        assert_true(tensor_float(&product->in[1]->constant->tensor, i) == scaled[i]);
    for (size_t i = 0; i < 2; i++)
        assert_true(tensor_float(&add->in[0]->constant->tensor, i) == shifted[i]);
}

static void a_gain_of_other_columns_or_over_a_used_sum_stays(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *w =
        make_constant(graph, DTYPE_FLOAT, 2, (const int64_t[]){2, 2}, (const float[]){1, 2, 3, 4});
    struct value *column =
        make_constant(graph, DTYPE_FLOAT, 2, (const int64_t[]){2, 1}, (const float[]){5, 6});
    struct value *bias = make_floats(graph, 2, (float[]){1, 2});
    struct value *used = OP("Add", OP("MatMul", X, w), bias);
    struct value *y = OP("Mul", OP("Add", OP("MatMul", X, w), bias), column);

    make_borders(graph, X, OP("Add", OP("Add", OP("Div", N(2), used), OP("Mul", used, N(3))), y));
    run_pass(graph, &pass_fold_affine);
    assert_int_equal(count_ops(graph, "Mul"), 2);
    assert_int_equal(count_ops(graph, "Div"), 1);
}

/* --- fold_pad -----------------------------------------------------------------------------------
 */

static void zeros_around_become_the_convolutions_padding(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    const int64_t pads[] = {0, 0, 1, 2, 0, 0, 3, 4};
    const struct ints *got;

    X = make(graph, "Pad", X, make_ints(graph, 8, pads), NULL);
    struct value *y = conv(world, NULL);

    make_borders(graph, X->producer->in[0], y);
    run_pass(graph, &pass_fold_pad);
    assert_int_equal(count_ops(graph, NULL), 1);
    got = node_attr_ints(find_op(graph, "Conv"), "pads");
    assert_int_equal(got->count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(got->values[i], i + 1);
}

static void padding_with_another_number_stays(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    const int64_t pads[] = {0, 0, 1, 1, 0, 0, 1, 1};

    X = make(graph, "Pad", X, make_ints(graph, 8, pads), make_number(graph, -1));
    struct value *y = conv(world, NULL);

    make_borders(graph, X->producer->in[0], y);
    run_pass(graph, &pass_fold_pad);
    assert_int_equal(count_ops(graph, "Pad"), 1);
}

/* --- all ----------------------------------------------------------------------------------------
 */

/* Stands for the engine where a copy of the elements would do harm. */
static void weights_that_are_shared_stay_shared(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    unsigned folded = 0;
    const struct pass_context context = {.fold = fold_to_seven, .fold_arg = &folded};
    struct value *w = make_constant(graph, DTYPE_FLOAT, 2, (const int64_t[]){4, 4}, NULL);
    struct value *a = OP("MatMul", X, OP("Identity", w, NULL));
    struct value *b = OP("MatMul", a, OP("Identity", w, NULL));
    struct node *node;

    make_borders(graph, X, b);
    assert_ok(pass_run_all(graph, PASS_MODEL, &context, NULL));
    assert_int_equal(folded, 0);
    assert_int_equal(count_ops(graph, NULL), 2);
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        assert_ptr_equal(node->in[1], w);
}

static void passes_fail_cleanly_at_every_allocation(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *sum = OP("Mul", conv(world, NULL), N(2));
    struct value *a = transpose(world, OP("Mul", sum, OP("Sigmoid", sum, NULL)), to_last);
    struct value *b = OP("Add", a, make_floats(graph, 2, (float[]){3, 5}));

    assert_passes_fail_cleanly(graph, X, transpose(world, b, to_first));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(constant_nodes_are_folded_in_order),
        TEST(constant_nodes_that_make_outputs_are_not_folded),
        TEST(folding_stops_at_the_limit),
        TEST(identities_and_products_with_one_are_removed),
        TEST(an_identity_between_borders_stays),
        TEST(a_reshape_to_the_same_shape_is_removed_in_a_plan),
        TEST(a_resize_to_the_same_size_is_removed_in_a_plan),
        TEST(a_resize_to_another_size_stays),
        TEST(a_resize_of_a_crop_to_the_same_size_stays),
        TEST(a_resize_by_a_scale_that_rounds_to_the_same_size_stays),
        TEST(equal_nodes_of_equal_inputs_become_one),
        TEST(nodes_that_differ_in_an_attribute_stay_apart),
        TEST(factors_and_summands_per_channel_go_into_a_convolution),
        TEST(batch_normalization_goes_into_a_convolution),
        TEST(a_factor_along_another_axis_stays),
        TEST(a_convolution_used_twice_keeps_its_weights),
        TEST(a_grouped_transposed_convolution_scales_its_own_channels),
        TEST(gemm_takes_scale_and_keeps_alpha_and_beta_right),
        TEST(a_product_and_its_bias_take_the_gain_behind_them),
        TEST(a_gain_of_other_columns_or_over_a_used_sum_stays),
        TEST(zeros_around_become_the_convolutions_padding),
        TEST(padding_with_another_number_stays),
        TEST(weights_that_are_shared_stay_shared),
        TEST(passes_fail_cleanly_at_every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
