/* Real arithmetic between DequantizeLinear and QuantizeLinear becomes steps on bytes. */
#include "graph/byte_passes.h"

#include <stdlib.h>

#include "ops/conv.h"
#include "ops/quantized.h"

struct world {
    struct graph *graph;
    struct value *x, *bytes; /* bytes: the quantised x, scale 0.5, zero point 3 */
};

static struct value *byte_constant(struct graph *graph, enum dtype dtype, uint8_t byte)
{
    return make_constant(graph, dtype, 0, NULL, &byte);
}

static struct value *quantized(struct world *world, struct value *x, double scale, uint8_t zero)
{
    return make(world->graph, "QuantizeLinear", x, make_number(world->graph, scale),
                byte_constant(world->graph, DTYPE_UINT8, zero));
}

static struct value *dequantized(struct world *world, struct value *x, double scale, uint8_t zero)
{
    return make(world->graph, "DequantizeLinear", x, make_number(world->graph, scale),
                byte_constant(world->graph, DTYPE_UINT8, zero));
}

static int setup(void **state)
{
    static const int64_t image[] = {1, 2, 4, 4};
    struct world *world = calloc(1, sizeof(*world));

    world->graph = graph_create();
    world->x = make_input(world->graph, "x", 4, image);
    world->bytes = quantized(world, world->x, 0.5, 3);
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

static void run_on(struct world *world, bool multiplies_bytes, struct value *y)
{
    run_byte_pass(world->graph, &pass_fuse_quantized, multiplies_bytes, world->x, y);
}

/* DQ(W) with a scale for each of three output channels. */
static struct value *weights(struct world *world)
{
    static const int64_t shape[] = {3, 2, 1, 1};
    struct value *w =
        make_constant(world->graph, DTYPE_INT8, 4, shape, (const int8_t[]){1, -2, 3, -4, 5, -6});
    struct value *dq = make(world->graph, "DequantizeLinear", w,
                            make_floats(world->graph, 3, (const float[]){0.25F, 0.5F, 1}), NULL);

    assert_true(node_set_int(dq->producer, "axis", 0));
    return dq;
}

static struct value *bias_of(struct world *world, float first_scale, int32_t first)
{
    struct value *b = make_constant(world->graph, DTYPE_INT32, 1, (const int64_t[]){3},
                                    (const int32_t[]){first, 20, 30});
    struct value *dq =
        make(world->graph, "DequantizeLinear", b,
             make_floats(world->graph, 3, (const float[]){first_scale, 0.25F, 0.5F}), NULL);

    assert_true(node_set_int(dq->producer, "axis", 0));
    return dq;
}

static struct value *conv_with(struct world *world, float first_scale, int32_t first_bias)
{
    return make(world->graph, "Conv", dequantized(world, world->bytes, 0.5, 3), weights(world),
                bias_of(world, first_scale, first_bias));
}

static struct value *conv(struct world *world, float first_scale)
{
    return conv_with(world, first_scale, 10);
}

static void a_convolution_between_bytes_takes_its_bias_and_relu(void **state)
{
    struct world *world = *state;
    struct value *relu = make(world->graph, "Relu", conv(world, 0.125F), NULL, NULL);
    const struct node *made;

    run_on(world, true, quantized(world, relu, 2, 7));
    made = find_op(world->graph, "QLinearConv");
    assert_non_null(made);
    assert_int_equal(count_ops(world->graph, NULL), 2);
    assert_ptr_equal(made->in[QLINEAR_A], world->bytes);
    assert_int_equal(made->in[QLINEAR_B]->dtype, DTYPE_INT8);
    assert_int_equal(made->in[QLINEAR_BIAS]->dtype, DTYPE_INT32);
    assert_int_equal(((const struct conv_attrs *)made->attrs)->epilogue.act, ACT_RELU);
}

static void other_devices_keep_their_floats(void **state)
{
    struct world *world = *state;

    run_on(world, false, quantized(world, conv(world, 0.125F), 2, 7));
    assert_null(find_op(world->graph, "QLinearConv"));
}

static void a_bias_in_another_scale_stays_real(void **state)
{
    struct world *world = *state;

    run_on(world, true, quantized(world, conv(world, 0.126F), 2, 7));
    assert_null(find_op(world->graph, "QLinearConv"));
}

static void a_bias_with_which_sums_could_overflow_stays_real(void **state)
{
    struct world *world = *state;

    run_on(world, true, quantized(world, conv_with(world, 0.125F, INT32_MIN), 2, 7));
    assert_null(find_op(world->graph, "QLinearConv"));
}

static void a_result_that_is_also_read_as_it_is_stays_real(void **state)
{
    struct world *world = *state;
    struct value *made = conv(world, 0.125F);
    struct value *other = make(world->graph, "Neg", made, NULL, NULL);
    struct value *y = quantized(world, made, 2, 7);

    run_on(world, true, make(world->graph, "Concat", other, dequantized(world, y, 2, 7), NULL));
    assert_null(find_op(world->graph, "QLinearConv"));
}

static void sums_and_moves_stay_bytes(void **state)
{
    struct world *world = *state;
    struct value *a = dequantized(world, world->bytes, 0.5, 3);
    struct value *pool = quantized(world, make(world->graph, "Transpose", a, NULL, NULL), 0.5, 3);
    struct value *sum = make(world->graph, "Add", dequantized(world, pool, 0.5, 3),
                             dequantized(world, world->bytes, 0.5, 3), NULL);

    run_on(world, true, quantized(world, sum, 0.75, 1));
    assert_int_equal(count_ops(world->graph, NULL), 3);
    assert_ptr_equal(find_op(world->graph, "Transpose")->in[0], world->bytes);
    assert_non_null(find_op(world->graph, "QLinearAdd"));
}

static void a_sum_of_bytes_without_zero_points_gets_them(void **state)
{
    struct world *world = *state;
    struct value *half = make_number(world->graph, 0.5);
    struct value *bytes = make(world->graph, "QuantizeLinear", world->x, half, NULL);
    struct value *a = make(world->graph, "DequantizeLinear", bytes, half, NULL);
    const struct node *made;

    bytes->dtype = DTYPE_UINT8;
    run_on(world, true, quantized(world, make(world->graph, "Add", a, a, NULL), 1, 3));
    made = find_op(world->graph, "QLinearAdd");
    assert_non_null(made);
    assert_non_null(made->in[QLINEAR_PAIR_A_ZERO]);
    assert_non_null(made->in[QLINEAR_PAIR_B_ZERO]);
}

static void a_move_into_another_scale_is_left(void **state)
{
    struct world *world = *state;
    struct value *a = dequantized(world, world->bytes, 0.5, 3);

    run_on(world, true, quantized(world, make(world->graph, "Transpose", a, NULL, NULL), 0.5, 4));
    assert_non_null(find_op(world->graph, "DequantizeLinear"));
}

static void a_function_of_bytes_is_a_table(void **state)
{
    struct world *world = *state;
    struct value *a = dequantized(world, world->bytes, 0.5, 3);
    const struct node *made;

    run_on(world, true, quantized(world, make(world->graph, "Sigmoid", a, NULL, NULL), 0.01, 0));
    made = find_op(world->graph, "ByteTable");
    assert_non_null(made);
    assert_ptr_equal(made->in[BYTE_TABLE_X], world->bytes);
    /* the table is the same three steps over all bytes, for the constants to be folded */
    assert_true(node_is(made->in[BYTE_TABLE_TABLE]->producer, "QuantizeLinear"));
}

static void what_is_dequantised_and_quantised_alike_is_the_bytes(void **state)
{
    struct world *world = *state;
    struct value *same = quantized(world, dequantized(world, world->bytes, 0.5, 3), 0.5, 3);

    run_on(world, true, dequantized(world, same, 0.5, 3));
    assert_int_equal(count_ops(world->graph, NULL), 2);
    assert_int_equal(count_ops(world->graph, "QuantizeLinear"), 1);
}

static void parts_of_other_scales_are_rescaled_by_tables(void **state)
{
    struct world *world = *state;
    struct value *other = quantized(world, world->x, 0.25, 9);
    struct value *both = make(world->graph, "Concat", dequantized(world, world->bytes, 0.5, 3),
                              dequantized(world, other, 0.25, 9), NULL);
    const struct node *made;

    run_on(world, true, quantized(world, both, 0.5, 3));
    made = find_op(world->graph, "Concat");
    assert_ptr_equal(made->in[0], world->bytes);
    assert_string_equal(made->in[1]->producer->op->onnx.name, "ByteTable");
}

static void the_pass_fails_cleanly_at_every_allocation(void **state)
{
    struct world *world = *state;
    struct value *y = quantized(world, conv(world, 0.125F), 2, 7);
    struct value *table = quantized(
        world, make(world->graph, "Sigmoid", dequantized(world, y, 2, 7), NULL, NULL), 0.01, 0);

    assert_passes_fail_cleanly(world->graph, world->x, dequantized(world, table, 0.01, 0));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_convolution_between_bytes_takes_its_bias_and_relu),
        TEST(other_devices_keep_their_floats),
        TEST(a_bias_in_another_scale_stays_real),
        TEST(a_bias_with_which_sums_could_overflow_stays_real),
        TEST(a_result_that_is_also_read_as_it_is_stays_real),
        TEST(sums_and_moves_stay_bytes),
        TEST(a_sum_of_bytes_without_zero_points_gets_them),
        TEST(a_move_into_another_scale_is_left),
        TEST(a_function_of_bytes_is_a_table),
        TEST(what_is_dequantised_and_quantised_alike_is_the_bytes),
        TEST(parts_of_other_scales_are_rescaled_by_tables),
        TEST(the_pass_fails_cleanly_at_every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
