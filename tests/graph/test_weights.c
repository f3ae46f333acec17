/* Weights that the model keeps as bytes are not made floats before they are used. */
#include "graph/byte_passes.h"

#include <stdlib.h>

#include "ops/gemm.h"
#include "ops/matmul_bytes.h"

static const int64_t matrix[] = {64, 96}, ids_shape[] = {2, 3};

struct world {
    struct graph *graph;
    struct value *x, *q;
};

static int setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    world->graph = graph_create();
    world->x = make_input(world->graph, "x", 2, (const int64_t[]){2, 64});
    world->q = make_constant(world->graph, DTYPE_INT8, 2, matrix, NULL);
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
    run_byte_pass(world->graph, &pass_fuse_weights, multiplies_bytes, world->x, y);
}

/* Mul(Cast(q), scale) with a scale of these dimensions. */
static struct value *scaled(struct world *world, int64_t rows, int64_t columns)
{
    const int64_t dims[] = {rows, columns};
    struct value *cast = make(world->graph, "Cast", world->q, NULL, NULL);

    assert_true(node_set_int(cast->producer, "to", DTYPE_FLOAT));
    return make(world->graph, "Mul", cast, make_constant(world->graph, DTYPE_FLOAT, 2, dims, NULL),
                NULL);
}

static void a_product_reads_the_bytes(void **state)
{
    struct world *world = *state;
    const struct node *made;

    run_on(world, true, make(world->graph, "MatMul", world->x, scaled(world, 1, 96), NULL));
    made = find_op(world->graph, "MatMulBytes");
    assert_non_null(made);
    assert_int_equal(count_ops(world->graph, NULL), 1);
    assert_ptr_equal(made->in[MATMUL_B], world->q);
    assert_non_null(made->in[MATMUL_BYTES_SCALE]);
}

static void scales_of_rows_are_not_for_a_product(void **state)
{
    struct world *world = *state;

    run_on(world, true, make(world->graph, "MatMul", world->x, scaled(world, 64, 1), NULL));
    assert_null(find_op(world->graph, "MatMulBytes"));
}

static void other_devices_get_floats(void **state)
{
    struct world *world = *state;

    run_on(world, false, make(world->graph, "MatMul", world->x, scaled(world, 1, 96), NULL));
    assert_null(find_op(world->graph, "MatMulBytes"));
}

static void gemm_takes_its_bias_and_turned_weights_along(void **state)
{
    struct world *world = *state;
    struct value *x = make_input(world->graph, "a", 2, (const int64_t[]){2, 96});
    struct value *dq =
        make(world->graph, "DequantizeLinear", world->q, make_number(world->graph, 0.5), NULL);
    struct value *bias = make_constant(world->graph, DTYPE_FLOAT, 1, (const int64_t[]){64}, NULL);
    struct value *y = make(world->graph, "Gemm", x, dq, bias);
    const struct node *made;

    ((struct gemm_attrs *)y->producer->attrs)->transB = 1;
    world->x = x;
    run_on(world, true, y);
    made = find_op(world->graph, "MatMulBytes");
    assert_non_null(made);
    assert_ptr_equal(made->in[MATMUL_BIAS], bias);
    assert_true(((const struct matmul_attrs *)made->attrs)->trans_b);
}

static void rows_are_picked_before_they_become_floats(void **state)
{
    struct world *world = *state;
    struct value *ids = make_constant(world->graph, DTYPE_INT64, 2, ids_shape, NULL);
    const struct node *mul;

    run_on(world, true,
           make(world->graph, "Add", make(world->graph, "Gather", scaled(world, 64, 1), ids, NULL),
                world->x, NULL));
    mul = find_op(world->graph, "Mul");
    assert_int_equal(count_ops(world->graph, "Gather"), 2);
    assert_true(node_is(mul->in[0]->producer, "Cast"));
    assert_ptr_equal(mul->in[0]->producer->in[0]->producer->in[0], world->q);
}

static void the_pass_fails_cleanly_at_every_allocation(void **state)
{
    struct world *world = *state;
    struct value *ids = make_constant(world->graph, DTYPE_INT64, 2, ids_shape, NULL);
    struct value *rows = make(world->graph, "Gather", scaled(world, 64, 1), ids, NULL);
    struct value *y = make(world->graph, "MatMul", world->x, scaled(world, 1, 96), NULL);

    assert_passes_fail_cleanly(world->graph, world->x, make(world->graph, "Add", rows, y, NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_product_reads_the_bytes),
        TEST(scales_of_rows_are_not_for_a_product),
        TEST(other_devices_get_floats),
        TEST(gemm_takes_its_bias_and_turned_weights_along),
        TEST(rows_are_picked_before_they_become_floats),
        TEST(the_pass_fails_cleanly_at_every_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
