/* A product with a one-hot matrix and the table that stands for it: the same bits. */
#include <math.h>

#include "rig.h"

enum { K = 257, N = 70, IDS = 40 };

static struct value *ids_constant(struct graph *graph)
{
    struct shape shape = SHAPE(1, 1, K);
    struct constant *constant = constant_allocate(DTYPE_INT32, &shape);

    assert_non_null(constant);
    for (int32_t i = 0; i < K; i++)
        ((int32_t *)(uintptr_t)constant->tensor.data)[i] = i;
    return graph_add_constant(graph, "", constant);
}

/* Gelu(MatMul(one hot, W) + bias); `one_hot` makes the first matrix of `in`. */
static struct graph *make_graph(struct value *(*one_hot)(struct graph *graph, struct value *in),
                                enum dtype dtype, struct shape shape)
{
    struct graph *graph = graph_create();
    struct value *in = make_value(graph, "x", dtype, shape), *y;

    y = APPLY(graph, "MatMul", one_hot(graph, in), make_floats(graph, SHAPE(K, N), 7));
    y = APPLY(graph, "Add", y, make_floats(graph, SHAPE(1, 1, N), 8));
    y = APPLY(graph, "Gelu", y);
    set_borders(graph, 1, &in, 1, &y);
    return graph;
}

static struct value *given(struct graph *graph, struct value *in)
{
    (void)graph;
    return in;
}

static struct value *by_equal(struct graph *graph, struct value *in)
{
    struct node *cast = NODE(graph, "Cast", APPLY(graph, "Equal", in, ids_constant(graph)));

    set_attr_int(cast, "to", 1);
    return cast->out[0];
}

static struct value *by_one_hot(struct graph *graph, struct value *in)
{
    struct value *depth = INTS(graph, K), *values = make_floats(graph, SHAPE(2), 1);
    float *pair = (float *)(uintptr_t)values->constant->tensor.data;

    pair[0] = 0;
    pair[1] = 1;
    return APPLY(graph, "OneHot", in, depth, values);
}

static void run_bytes(struct rig *rig, struct network *network, struct shape shape, const void *in,
                      size_t bytes, float *out, size_t steps)
{
    struct plan *plan = make_plan(network, &shape);
    const struct run_buffer input = {(void *)(uintptr_t)in, bytes};
    struct run_buffer output = {out, IDS * N * sizeof(*out)};
    struct shape out_shape;
    struct run run = {.lane = rig->lane,
                      .arena = rig->arena,
                      .inputs = 1,
                      .in = &input,
                      .outputs = 1,
                      .out = &output,
                      .out_shapes = &out_shape};

    assert_int_equal(count_steps(plan), steps);
    assert_ok(plan_run(plan, &run, NULL));
    plan_unref(plan);
}

/* Ids inside, at both ends and outside. */
static void choose_ids(int32_t *ids)
{
    const int32_t special[] = {0, K - 1, K, -1, -K, -K - 1, INT32_MAX, INT32_MIN, 3, 3};

    for (int i = 0; i < IDS; i++)
        ids[i] = i < 10 ? special[i] : i * 6;
}

static void expect_bits(const int32_t *ids, bool wraps,
                        struct value *(*one_hot)(struct graph *graph, struct value *in),
                        struct shape shape)
{
    struct rig rig;
    struct network *product, *table;
    float *matrix = calloc((size_t)IDS * K, sizeof(*matrix));
    float *want = calloc((size_t)IDS * N, sizeof(*want)),
          *got = calloc((size_t)IDS * N, sizeof(*got));

    rig_open(&rig, "cpu", 1);
    for (int i = 0; i < IDS; i++) {
        int64_t id = ids[i] < 0 && wraps ? (int64_t)ids[i] + K : ids[i];

        if (id >= 0 && id < K)
            matrix[i * K + id] = 1;
    }
    product = make_network(&rig, make_graph(given, DTYPE_FLOAT, SHAPE(1, IDS, K)));
    run_bytes(&rig, product, SHAPE(1, IDS, K), matrix, (size_t)IDS * K * sizeof(float), want, 1);
    table = make_network(&rig, make_graph(one_hot, DTYPE_INT32, shape));
    for (int again = 0; again < 2; again++) /* the second plan finds the table made */
        run_bytes(&rig, table, shape, ids, IDS * sizeof(*ids), got, 1);
    assert_memory_equal(want, got, IDS * N * sizeof(float));
    network_destroy(product);
    network_destroy(table);
    rig_close(&rig);
    free(matrix);
    free(want);
    free(got);
}

static void a_table_gives_the_bits_of_the_product(void **state)
{
    int32_t ids[IDS];

    (void)state;
    choose_ids(ids);
    expect_bits(ids, false, by_equal, SHAPE(1, IDS, 1));
}

static void negative_ids_count_from_the_end_in_one_hot(void **state)
{
    int32_t ids[IDS];

    (void)state;
    choose_ids(ids);
    expect_bits(ids, true, by_one_hot, SHAPE(1, IDS));
}

static void plans_of_all_sizes_share_one_table(void **state)
{
    struct rig rig;
    struct network *network;
    size_t before;

    (void)state;
    rig_open(&rig, "cpu", 1);
    network = make_network(&rig, make_graph(by_equal, DTYPE_INT32, SHAPE(SHAPE_UNKNOWN, IDS, 1)));
    plan_unref(make_plan(network, (struct shape[]){SHAPE(1, IDS, 1)}));
    before = network_resident_bytes(network);
    for (int64_t rows = 2; rows < 10; rows++) /* more than the cache keeps */
        plan_unref(make_plan(network, (struct shape[]){SHAPE(rows, IDS, 1)}));
    assert_int_equal(network_resident_bytes(network), before);
    network_destroy(network);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_gives_the_bits_of_the_product),
        cmocka_unit_test(negative_ids_count_from_the_end_in_one_hot),
        cmocka_unit_test(plans_of_all_sizes_share_one_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
