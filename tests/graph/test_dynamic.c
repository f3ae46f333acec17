/* Products of bytes that are scaled to floats right away become one step. */
#include "graph/byte_passes.h"

#include <stdlib.h>

#include "ops/quantized.h"

struct world {
    struct graph *graph;
    struct value *x;
    struct node *quantizer;
};

static int setup(void **state)
{
    static const int64_t rows[] = {2, 4};
    struct world *world = calloc(1, sizeof(*world));
    struct value *x;

    world->graph = graph_create();
    world->x = x = make_input(world->graph, "x", 2, rows);
    world->quantizer =
        graph_add_node(world->graph, NULL, op_find("", "DynamicQuantizeLinear"), "quantize", 1, 3);
    node_set_input(world->quantizer, 0, x);
    for (size_t i = 0; i < 3; i++)
        node_set_output(world->quantizer, i, graph_add_value(world->graph, ""));
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

/* Cast(MatMulInteger) * (scale of A * scale of B) */
static struct value *scaled(struct world *world, struct value *a_scale)
{
    struct graph *graph = world->graph;
    struct value *b = make_constant(graph, DTYPE_INT8, 2, (const int64_t[]){4, 3}, NULL);
    struct value *product =
        make(graph, "MatMulInteger", world->quantizer->out[0], b, world->quantizer->out[2]);
    struct value *cast = make(graph, "Cast", product, NULL, NULL);
    struct value *scales =
        make(graph, "Mul", a_scale, make_floats(graph, 3, (const float[]){1, 2, 3}), NULL);

    assert_true(node_set_int(cast->producer, "to", DTYPE_FLOAT));
    return make(graph, "Mul", cast, scales, NULL);
}

static void run_on(struct world *world, bool multiplies_bytes, struct value *y)
{
    run_byte_pass(world->graph, &pass_fuse_dynamic, multiplies_bytes, world->x, y);
}

static void a_scaled_product_takes_its_bias(void **state)
{
    struct world *world = *state;
    struct value *bias = make_floats(world->graph, 3, (const float[]){4, 5, 6});
    const struct node *made;

    run_on(world, true,
           make(world->graph, "Add", scaled(world, world->quantizer->out[1]), bias, NULL));
    made = find_op(world->graph, "MatMulIntegerToFloat");
    assert_non_null(made);
    assert_int_equal(count_ops(world->graph, NULL), 2);
    assert_ptr_equal(made->in[MATMUL_FLOAT_A_SCALE], world->quantizer->out[1]);
    assert_ptr_equal(made->in[MATMUL_FLOAT_A_ZERO], world->quantizer->out[2]);
    assert_ptr_equal(made->in[MATMUL_FLOAT_BIAS], bias);
}

static void a_scale_from_elsewhere_is_left(void **state)
{
    struct world *world = *state;

    run_on(world, true, scaled(world, make_number(world->graph, 2)));
    assert_null(find_op(world->graph, "MatMulIntegerToFloat"));
}

static void other_devices_keep_the_steps(void **state)
{
    struct world *world = *state;

    run_on(world, false, scaled(world, world->quantizer->out[1]));
    assert_null(find_op(world->graph, "MatMulIntegerToFloat"));
}

static void the_pass_fails_cleanly_at_every_allocation(void **state)
{
    struct world *world = *state;
    struct value *bias = make_floats(world->graph, 3, (const float[]){4, 5, 6});

    assert_passes_fail_cleanly(
        world->graph, world->x,
        make(world->graph, "Add", scaled(world, world->quantizer->out[1]), bias, NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_scaled_product_takes_its_bias),
        TEST(a_scale_from_elsewhere_is_left),
        TEST(other_devices_keep_the_steps),
        TEST(the_pass_fails_cleanly_at_every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
