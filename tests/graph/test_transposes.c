/* Transposes and reshapes: cancelled, taken into products, or left where others use them. */
#include "graph/image_world.h"

#include "ops/matmul.h"

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
    assert_int_equal(moved->shape.rank, 3); /* no ones in front */
    assert_int_equal(moved->shape.dims[0], 2);
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
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
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
