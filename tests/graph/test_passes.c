/* Each pass: a graph before, what must be there after, and where it must keep its hands off. */
#include "graph/byte_passes.h"

#include <math.h>
#include <stdlib.h>

#include "ops/matmul.h"

static const int64_t image[] = {1, 2, 4, 4};

struct world {
    struct graph *graph;
    struct value *x;
};

static int setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    world->graph = graph_create();
    world->x = make_input(world->graph, "x", 4, image);
    *state = world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;

    graph_destroy(world->graph);
    free(world);
    return 0;
}

/* --- fold_constants -----------------------------------------------------------------------------
 */

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

/* --- recognise_activation -----------------------------------------------------------------------
 */

static void expect_activation(struct world *world, struct value *y, const char *op)
{
    make_borders(world->graph, world->x, y);
    run_pass(world->graph, &pass_recognise_activation);
    assert_int_equal(count_ops(world->graph, NULL), 1);
    assert_int_equal(count_ops(world->graph, op), 1);
    assert_ptr_equal(find_op(world->graph, op)->in[0], world->x);
}

#define N(number)      make_number(world->graph, number)
#define OP(name, a, b) make(world->graph, name, a, b, NULL)
#define X              world->x

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

/* --- fold_affine --------------------------------------------------------------------------------
 */

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

/* --- move_transposes ----------------------------------------------------------------------------
 */

static const int64_t to_last[] = {0, 2, 3, 1}, to_first[] = {0, 3, 1, 2};

static struct value *transpose(struct world *world, struct value *value, const int64_t *perm)
{
    struct value *out = OP("Transpose", value, NULL);

    make_perm(world->graph, out, 4, perm);
    return out;
}

static void inverse_transposes_cancel_through_elementwise_steps(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *a = transpose(world, X, to_last);
    struct value *bias = make_floats(graph, 2, (float[]){3, 5});
    struct value *y;
    const struct tensor *moved;

    a = make(graph, "Clip", OP("Add", a, bias), N(0), N(6));
    y = transpose(world, a, to_first);
    make_borders(graph, X, OP("Neg", y, NULL));
    run_pass(graph, &pass_move_transposes);
    assert_int_equal(count_ops(graph, "Transpose"), 0);
    moved = &find_op(graph, "Add")->in[1]->constant->tensor;
    assert_int_equal(moved->shape.rank, 4);
    assert_int_equal(moved->shape.dims[1], 2);
    assert_true(tensor_float(moved, 0) == 3 && tensor_float(moved, 1) == 5);
}

static void two_transposed_inputs_share_one_behind(void **state)
{
    struct world *world = *state;
    struct value *a = transpose(world, OP("Relu", X, NULL), to_last);
    struct value *b = transpose(world, OP("Exp", X, NULL), to_last);

    make_borders(world->graph, X, OP("Add", a, b));
    run_pass(world->graph, &pass_move_transposes);
    assert_int_equal(count_ops(world->graph, "Transpose"), 1);
    assert_ptr_equal(world->graph->out[0]->producer, find_op(world->graph, "Transpose"));
}

static void a_moved_matrix_constant_is_turned_round(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *m = make_constant(graph, DTYPE_FLOAT, 4, (const int64_t[]){1, 2, 3, 2},
                                    (const float[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    const struct tensor *moved;

    X = make_input(graph, "x2", 4, (const int64_t[]){1, 2, 2, 3});
    make_borders(graph, X, OP("Mul", transpose(world, X, to_last), m));
    run_pass(graph, &pass_move_transposes);
    moved = &find_op(graph, "Mul")->in[1]->constant->tensor;
    /* moved[0][c][h][w] = m[0][h][w][c] */
    for (size_t c = 0; c < 2; c++)
        for (size_t h = 0; h < 2; h++)
            for (size_t w = 0; w < 3; w++)
                assert_true(tensor_float(moved, (c * 2 + h) * 3 + w) ==
                            (double)((h * 3 + w) * 2 + c));
}

static void transposes_in_a_row_become_one(void **state)
{
    struct world *world = *state;
    struct value *y = transpose(world, transpose(world, X, to_last), to_last);
    const struct ints *perm;

    make_borders(world->graph, X, y);
    run_pass(world->graph, &pass_move_transposes);
    assert_int_equal(count_ops(world->graph, NULL), 1);
    perm = node_attr_ints(world->graph->out[0]->producer, "perm");
    for (int i = 0; i < 4; i++)
        assert_int_equal(perm->values[i], to_last[to_last[i]]);
}

/* --- fold_matmul --------------------------------------------------------------------------------
 */

static const int64_t heads_first[] = {0, 2, 1, 3}, heads_turned[] = {0, 2, 3, 1};

static void scores_of_attention_are_one_step(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *q = OP("Relu", X, NULL), *k = OP("Exp", X, NULL), *product;
    const struct matmul_attrs *attrs;
    const struct ints *perm;

    product = OP("MatMul", OP("Mul", q, N(0.5)), transpose(world, k, heads_turned));
    make_borders(graph, X, OP("Div", product, N(4)));
    run_pass(graph, &pass_fold_matmul);
    assert_int_equal(count_ops(graph, NULL), 4);
    attrs = find_op(graph, "MatMul")->attrs;
    assert_true(attrs->trans_b && !attrs->trans_a);
    assert_true(attrs->has_scale && attrs->scale == 0.125F);
    perm = node_attr_ints(find_op(graph, "Transpose"), "perm");
    assert_memory_equal(perm->values, heads_first, sizeof(heads_first));
    assert_ptr_equal(graph->out[0]->producer, find_op(graph, "MatMul"));
}

static void an_exchange_of_the_last_two_needs_no_transpose(void **state)
{
    struct world *world = *state;
    struct value *turned = transpose(world, OP("Relu", X, NULL), (const int64_t[]){0, 1, 3, 2});

    make_borders(world->graph, X, OP("MatMul", turned, X));
    run_pass(world->graph, &pass_fold_matmul);
    assert_int_equal(count_ops(world->graph, "Transpose"), 0);
    assert_true(((struct matmul_attrs *)find_op(world->graph, "MatMul")->attrs)->trans_a);
}

static void transposes_that_others_use_stay(void **state)
{
    struct world *world = *state;
    struct value *turned = transpose(world, X, (const int64_t[]){0, 1, 3, 2});

    make_borders(world->graph, X, OP("Add", OP("MatMul", X, turned), turned));
    run_pass(world->graph, &pass_fold_matmul);
    assert_int_equal(count_ops(world->graph, "Transpose"), 1);
    assert_false(((struct matmul_attrs *)find_op(world->graph, "MatMul")->attrs)->trans_b);
}

static void heads_that_stay_whole_keep_their_transpose(void **state)
{
    struct world *world = *state;
    struct value *heads = transpose(world, OP("Relu", X, NULL), heads_first);

    make_borders(world->graph, X, OP("MatMul", X, heads));
    run_pass(world->graph, &pass_fold_matmul);
    assert_false(((struct matmul_attrs *)find_op(world->graph, "MatMul")->attrs)->trans_b);
    assert_memory_equal(node_attr_ints(find_op(world->graph, "Transpose"), "perm")->values,
                        heads_first, sizeof(heads_first));
}

/* --- merge_reshapes -----------------------------------------------------------------------------
 */

static void the_last_reshape_counts(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *flat = OP("Flatten", X, NULL);
    struct value *y = OP("Reshape", flat, make_ints(graph, 2, (int64_t[]){4, -1}));

    make_borders(graph, X, y);
    run_pass(graph, &pass_merge_reshapes);
    assert_int_equal(count_ops(graph, NULL), 1);
}

static void a_zero_in_the_shape_needs_the_one_before(void **state)
{
    struct world *world = *state;
    struct graph *graph = world->graph;
    struct value *flat = OP("Flatten", X, NULL);
    struct value *y = OP("Reshape", flat, make_ints(graph, 2, (int64_t[]){0, -1}));

    make_borders(graph, X, y);
    run_pass(graph, &pass_merge_reshapes);
    assert_int_equal(count_ops(graph, NULL), 2);
}

/* --- recognise_norm -----------------------------------------------------------------------------
 */

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
        TEST(equal_nodes_of_equal_inputs_become_one),
        TEST(nodes_that_differ_in_an_attribute_stay_apart),
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
        TEST(factors_and_summands_per_channel_go_into_a_convolution),
        TEST(batch_normalization_goes_into_a_convolution),
        TEST(a_factor_along_another_axis_stays),
        TEST(a_convolution_used_twice_keeps_its_weights),
        TEST(a_grouped_transposed_convolution_scales_its_own_channels),
        TEST(gemm_takes_scale_and_keeps_alpha_and_beta_right),
        TEST(zeros_around_become_the_convolutions_padding),
        TEST(padding_with_another_number_stays),
        TEST(inverse_transposes_cancel_through_elementwise_steps),
        TEST(two_transposed_inputs_share_one_behind),
        TEST(a_moved_matrix_constant_is_turned_round),
        TEST(transposes_in_a_row_become_one),
        TEST(scores_of_attention_are_one_step),
        TEST(an_exchange_of_the_last_two_needs_no_transpose),
        TEST(transposes_that_others_use_stay),
        TEST(heads_that_stay_whole_keep_their_transpose),
        TEST(the_last_reshape_counts),
        TEST(a_zero_in_the_shape_needs_the_one_before),
        TEST(layer_normalization_spelled_out_is_one_node),
        TEST(a_norm_over_an_inner_axis_stays),
        TEST(root_mean_square_spelled_out_is_one_node),
        TEST(weights_that_are_shared_stay_shared),
        TEST(passes_fail_cleanly_at_every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
