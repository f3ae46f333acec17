/* Activations and norms that models spell out: each becomes one node, what only looks like it
 * stays. */
#include "graph/image_world.h"

static void expect_activation(struct world *world, struct value *y, const char *op)
{
    make_borders(world->graph, world->x, y);
    run_pass(world->graph, &pass_recognise_activation);
    assert_int_equal(count_ops(world->graph, NULL), 1);
    assert_int_equal(count_ops(world->graph, op), 1);
    assert_ptr_equal(find_op(world->graph, op)->in[0], world->x);
}

static struct value *erf_part(struct world *world)
{
    return OP("Add", OP("Erf", OP("Div", X, N(1.4142135381698608)), NULL), N(1));
}

static void x_times_sigmoid_is_swish(void **state)
{
    struct world *world = *state;

    expect_activation(world, OP("Mul", OP("Sigmoid", X, NULL), X), "Swish");
    assert_true(node_attr_float(find_op(world->graph, "Swish"), "alpha", 0) == 1);
}

static void quick_gelu_is_swish_with_its_factor(void **state)
{
    struct world *world = *state;

    expect_activation(world, OP("Mul", X, OP("Sigmoid", OP("Mul", N(1.702), X), NULL)), "Swish");
    assert_true(node_attr_float(find_op(world->graph, "Swish"), "alpha", 0) == 1.702F);
}

static void half_x_behind_is_gelu(void **state)
{
    struct world *world = *state;

    expect_activation(world, OP("Mul", OP("Mul", X, erf_part(world)), N(0.5)), "Gelu");
}

static void half_x_before_is_gelu(void **state)
{
    struct world *world = *state;

    expect_activation(world, OP("Mul", OP("Mul", X, N(0.5)), erf_part(world)), "Gelu");
}

static void half_of_the_sum_is_gelu(void **state)
{
    struct world *world = *state;

    expect_activation(world, OP("Mul", X, OP("Mul", erf_part(world), N(0.5))), "Gelu");
}

static void a_sum_of_halves_is_gelu(void **state)
{
    struct world *world = *state;
    struct value *erf = OP("Erf", OP("Mul", X, N(0.70710677)), NULL);

    expect_activation(world, OP("Mul", OP("Add", OP("Mul", erf, N(0.5)), N(0.5)), X), "Gelu");
}

static struct value *tanh_part(struct world *world, struct value *inner)
{
    return OP("Add", OP("Tanh", OP("Mul", inner, N(0.7978845608028654)), NULL), N(1));
}

static void cubes_by_power_are_gelu_tanh(void **state)
{
    struct world *world = *state;
    struct value *inner = OP("Add", X, OP("Mul", OP("Pow", X, N(3)), N(0.044715)));

    expect_activation(world, OP("Mul", OP("Mul", N(0.5), X), tanh_part(world, inner)), "Gelu");
    assert_int_equal(node_attr_int(find_op(world->graph, "Gelu"), "approximate", 0), 1);
}

static void cubes_factored_out_are_gelu_tanh(void **state)
{
    struct world *world = *state;
    struct value *square = OP("Mul", OP("Mul", X, N(0.044715)), X);
    struct value *inner = OP("Mul", X, OP("Add", N(1), square));

    expect_activation(world, OP("Mul", X, OP("Mul", N(0.5), tanh_part(world, inner))), "Gelu");
    assert_int_equal(node_attr_int(find_op(world->graph, "Gelu"), "approximate", 0), 1);
}

static void a_clip_of_six_is_hard_swish(void **state)
{
    struct world *world = *state;
    struct value *clip = make(world->graph, "Clip", OP("Add", X, N(3)), N(0), N(6));

    expect_activation(world, OP("Div", OP("Mul", X, clip), N(6)), "HardSwish");
}

static void a_clip_of_six_by_six_is_hard_sigmoid(void **state)
{
    struct world *world = *state;
    struct value *clip = make(world->graph, "Clip", OP("Add", X, N(3)), N(0), N(6));

    expect_activation(world, OP("Div", clip, N(6)), "HardSigmoid");
    assert_float_equal(node_attr_float(find_op(world->graph, "HardSigmoid"), "alpha", 0), 1.0 / 6,
                       1e-7);
    assert_float_equal(node_attr_float(find_op(world->graph, "HardSigmoid"), "beta", 0), 0.5, 1e-7);
}

static void x_times_hard_sigmoid_of_a_sixth_is_hard_swish(void **state)
{
    struct world *world = *state;
    struct value *hard = OP("HardSigmoid", X, NULL);

    assert_true(node_set_float(hard->producer, "alpha", (float)(1.0 / 6)));
    expect_activation(world, OP("Mul", X, hard), "HardSwish");
}

static void x_times_hard_sigmoid_of_a_fifth_stays(void **state)
{
    struct world *world = *state;

    make_borders(world->graph, X, OP("Mul", X, OP("HardSigmoid", X, NULL)));
    run_pass(world->graph, &pass_recognise_activation);
    assert_int_equal(count_ops(world->graph, "HardSwish"), 0);
}

static void tanh_of_softplus_is_mish(void **state)
{
    struct world *world = *state;

    expect_activation(world, OP("Mul", X, OP("Tanh", OP("Softplus", X, NULL), NULL)), "Mish");
}

static void tanh_of_log_of_one_and_exp_is_mish(void **state)
{
    struct world *world = *state;
    struct value *log = OP("Log", OP("Add", OP("Exp", X, NULL), N(1)), NULL);

    expect_activation(world, OP("Mul", X, OP("Tanh", log, NULL)), "Mish");
}

/* 0.5 x (1 + Erf(x / root 2)) with the 1 written as [1,1,1]; x has two dimensions. */
static void a_number_of_more_dimensions_than_x_stays(void **state)
{
    struct world *world = *state;
    const float one = 1;
    struct value *number = make_constant(world->graph, DTYPE_FLOAT, 3, (int64_t[]){1, 1, 1}, &one);
    struct value *erf = OP("Erf", OP("Div", X, N(1.4142135381698608)), NULL);

    make_borders(world->graph, world->x, OP("Mul", OP("Mul", X, OP("Add", erf, number)), N(0.5)));
    world->x->shape.rank = 2;
    run_pass(world->graph, &pass_recognise_activation_plan);
    assert_int_equal(count_ops(world->graph, "Gelu"), 0);
    world->x->shape = shape_make(3, (int64_t[]){2, 3, 4});
    run_pass(world->graph, &pass_recognise_activation);
    assert_int_equal(count_ops(world->graph, "Gelu"), 0);
    run_pass(world->graph, &pass_recognise_activation_plan);
    assert_int_equal(count_ops(world->graph, "Gelu"), 1);
}

static void a_gelu_with_another_constant_stays(void **state)
{
    struct world *world = *state;
    struct value *erf = OP("Erf", OP("Mul", X, N(0.7)), NULL);

    make_borders(world->graph, X, OP("Mul", OP("Mul", X, N(0.5)), OP("Add", erf, N(1))));
    run_pass(world->graph, &pass_recognise_activation);
    assert_int_equal(count_ops(world->graph, "Gelu"), 0);
    assert_int_equal(count_ops(world->graph, NULL), 5);
}

static void a_sigmoid_used_elsewhere_stays(void **state)
{
    struct world *world = *state;
    struct value *gate = OP("Sigmoid", X, NULL);
    struct value *y = OP("Add", OP("Mul", X, gate), gate);

    make_borders(world->graph, X, y);
    run_pass(world->graph, &pass_recognise_activation);
    assert_int_equal(count_ops(world->graph, "Swish"), 0);
}

static struct value *mean(struct world *world, struct value *value, int64_t axis)
{
    return OP("ReduceMean", value, make_ints(world->graph, 1, &axis));
}

static struct value *layer_norm(struct world *world, int64_t axis)
{
    static const float ones[4] = {1, 1, 1, 1};
    struct value *d = OP("Sub", X, mean(world, X, axis));
    struct value *variance = mean(world, OP("Pow", d, N(2)), axis);
    struct value *root = OP("Sqrt", OP("Add", variance, N(1e-5)), NULL);
    struct value *scaled = OP("Mul", OP("Div", d, root), make_floats(world->graph, 4, ones));

    return OP("Add", scaled, make_floats(world->graph, 4, ones));
}

static bool has_norms(void)
{
    return op_find("", "ReduceMean") != NULL && op_find("", "LayerNormalization") != NULL &&
           op_find("", "RMSNormalization") != NULL;
}

static void layer_normalization_spelled_out_is_one_node(void **state)
{
    struct world *world = *state;
    struct node *node;

    if (!has_norms())
        skip();
    make_borders(world->graph, X, layer_norm(world, -1));
    run_pass(world->graph, &pass_recognise_norm);
    assert_int_equal(count_ops(world->graph, NULL), 1);
    node = find_op(world->graph, "LayerNormalization");
    assert_non_null(node);
    assert_ptr_equal(node->in[0], X);
    assert_int_equal(node->inputs, 3);
    assert_int_equal(node_attr_int(node, "axis", 0), -1);
    assert_float_equal(node_attr_float(node, "epsilon", 0), 1e-5, 1e-10);
}

static void a_norm_over_an_inner_axis_stays(void **state)
{
    struct world *world = *state;

    if (!has_norms())
        skip();
    make_borders(world->graph, X, layer_norm(world, 2));
    run_pass(world->graph, &pass_recognise_norm);
    assert_int_equal(count_ops(world->graph, "LayerNormalization"), 0);
}

static void root_mean_square_spelled_out_is_one_node(void **state)
{
    struct world *world = *state;
    static const float ones[4] = {1, 1, 1, 1};
    struct value *root, *y;

    if (!has_norms())
        skip();
    root = OP("Sqrt", OP("Add", mean(world, OP("Mul", X, X), -1), N(1e-6)), NULL);
    y = OP("Mul", make_floats(world->graph, 4, ones), OP("Mul", X, OP("Reciprocal", root, NULL)));
    make_borders(world->graph, X, y);
    run_pass(world->graph, &pass_recognise_norm);
    assert_int_equal(count_ops(world->graph, NULL), 1);
    assert_int_equal(count_ops(world->graph, "RMSNormalization"), 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(x_times_sigmoid_is_swish),
        TEST(quick_gelu_is_swish_with_its_factor),
        TEST(half_x_behind_is_gelu),
        TEST(half_x_before_is_gelu),
        TEST(half_of_the_sum_is_gelu),
        TEST(a_sum_of_halves_is_gelu),
        TEST(cubes_by_power_are_gelu_tanh),
        TEST(cubes_factored_out_are_gelu_tanh),
        TEST(a_clip_of_six_is_hard_swish),
        TEST(a_clip_of_six_by_six_is_hard_sigmoid),
        TEST(x_times_hard_sigmoid_of_a_sixth_is_hard_swish),
        TEST(x_times_hard_sigmoid_of_a_fifth_stays),
        TEST(tanh_of_softplus_is_mish),
        TEST(tanh_of_log_of_one_and_exp_is_mish),
        TEST(a_number_of_more_dimensions_than_x_stays),
        TEST(a_gelu_with_another_constant_stays),
        TEST(a_sigmoid_used_elsewhere_stays),
        TEST(layer_normalization_spelled_out_is_one_node),
        TEST(a_norm_over_an_inner_axis_stays),
        TEST(root_mean_square_spelled_out_is_one_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
