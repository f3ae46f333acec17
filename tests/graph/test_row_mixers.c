/* Which nodes are known to work across the rows of a batch, and which are known not to. */
#include "graph/maker.h"
#include "graph/rows.h"

/* x is [rows, 3, 4]. */
struct world {
    struct graph *graph;
    struct value *x;
};

static int setup(void **state)
{
    static struct world world;

    world.graph = graph_create();
    assert_non_null(world.graph);
    world.x = make_input(world.graph, "x", 3, (int64_t[]){SHAPE_UNKNOWN, 3, 4});
    assert_ok(graph_set_inputs(world.graph, 1, &world.x));
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;

    graph_destroy(world->graph);
    return 0;
}

static const char *mixer(struct world *world, struct value *y)
{
    const struct node *found;

    assert_ok(graph_set_outputs(world->graph, 1, &y));
    found = graph_find_row_mixer(world->graph);
    return found != NULL ? found->op->onnx.name : "none";
}

#define N(op, a, b)         make(world->graph, op, a, b, NULL)
#define LIST(...)           make_ints(world->graph, COUNT(__VA_ARGS__), (int64_t[]){__VA_ARGS__})
#define COUNT(...)          (sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define expect_mixer(op, y) assert_string_equal(mixer(world, y), op)
#define expect_no_mixer(y)  assert_string_equal(mixer(world, y), "none")

/* `value` with another integer attribute. */
static struct value *with(struct value *value, const char *attribute, int64_t number)
{
    assert_true(node_set_int(value->producer, attribute, number));
    return value;
}

static struct value *turned(struct world *world, struct value *x, size_t count, const int64_t *perm)
{
    struct value *y = N("Transpose", x, NULL);

    make_perm(world->graph, y, count, perm);
    return y;
}

static struct value *table(struct world *world, int64_t rows, int64_t columns)
{
    return make_constant(world->graph, DTYPE_FLOAT, 2, (int64_t[]){rows, columns}, NULL);
}

static void sums_over_rows_are_found(void **state)
{
    struct world *world = *state;

    expect_mixer("ReduceMean", N("ReduceMean", world->x, LIST(0)));
    expect_mixer("ReduceMax", N("ReduceMax", world->x, LIST(1, -3)));
    expect_mixer("ReduceSum", N("ReduceSum", world->x, NULL));
    expect_mixer("ArgMax", with(N("ArgMax", world->x, NULL), "axis", 0));
    expect_mixer("CumSum", N("CumSum", world->x, LIST(0)));
    expect_mixer("TopK", with(N("TopK", world->x, LIST(1)), "axis", 0));
    expect_mixer("Softmax", with(N("Softmax", world->x, NULL), "axis", -3));
    expect_mixer("LayerNormalization",
                 with(N("LayerNormalization", world->x, table(world, 3, 4)), "axis", 0));
    expect_mixer("MeanVarianceNormalization", N("MeanVarianceNormalization", world->x, NULL));
    expect_mixer("DynamicQuantizeLinear", N("DynamicQuantizeLinear", world->x, NULL));
}

static void sums_within_rows_are_left_alone(void **state)
{
    struct world *world = *state;

    expect_no_mixer(N("ReduceMean", world->x, LIST(1, 2)));
    expect_no_mixer(with(N("ArgMax", world->x, NULL), "axis", 1));
    expect_no_mixer(N("CumSum", world->x, LIST(1)));
    expect_no_mixer(N("TopK", world->x, LIST(1)));
    expect_no_mixer(with(N("Softmax", world->x, NULL), "axis", 1));
    expect_no_mixer(N("LayerNormalization", world->x, table(world, 1, 4)));
}

static void what_no_output_needs_does_not_count(void **state)
{
    struct world *world = *state;

    (void)N("ReduceMean", world->x, LIST(0));
    expect_no_mixer(N("Relu", world->x, NULL));
}

static void a_sum_is_found_behind_what_moves_rows(void **state)
{
    struct world *world = *state;
    struct value *last = turned(world, world->x, 3, (int64_t[]){1, 2, 0});     /* [3, 4, rows] */
    struct value *pooled = with(N("ReduceMax", last, LIST(0)), "keepdims", 0); /* [4, rows] */
    struct value *wider = N("Unsqueeze", pooled, LIST(0, 2));                  /* [1, 4, 1, rows] */
    struct value *back = N("Squeeze", wider, LIST(0, 2));

    expect_mixer("Softmax", N("Softmax", last, NULL));
    expect_mixer("ReduceMax", N("ReduceMax", pooled, LIST(1)));
    expect_no_mixer(N("ReduceMax", pooled, LIST(0)));
    expect_mixer("Softmax", N("Softmax", wider, NULL));
    expect_no_mixer(with(N("Softmax", wider, NULL), "axis", 2));
    expect_mixer("Softmax", N("Softmax", N("Relu", back, NULL), NULL));
}

static void products_mix_rows_where_they_sum_over_them_or_cross_them(void **state)
{
    struct world *world = *state;
    struct value *flat = N("Flatten", world->x, NULL); /* [rows, 12] */
    struct value *other = turned(world, flat, 2, (int64_t[]){1, 0});

    expect_no_mixer(N("MatMul", world->x, table(world, 4, 5)));
    expect_no_mixer(N("MatMul", flat, table(world, 12, 5)));
    expect_no_mixer(N("MatMul", world->x, turned(world, world->x, 3, (int64_t[]){0, 2, 1})));
    expect_mixer("MatMul", N("MatMul", flat, other));
    expect_mixer("MatMul", N("MatMul", other, flat));
    expect_mixer("MatMul", N("MatMul", table(world, 5, 7), flat));
    expect_no_mixer(N("Gemm", flat, table(world, 12, 5)));
    expect_mixer("Gemm", N("Gemm", other, table(world, 7, 5)));
    expect_no_mixer(with(N("Gemm", other, table(world, 12, 5)), "transA", 1));
}

static void rows_against_rows_are_found(void **state)
{
    struct world *world = *state;
    struct value *numbers = with(N("ReduceMax", world->x, LIST(1, 2)), "keepdims", 0); /* [rows] */
    struct value *column = N("Unsqueeze", numbers, LIST(1)),
                 *row = N("Unsqueeze", numbers, LIST(0));

    expect_mixer("Sub", N("Sub", column, row));
    expect_no_mixer(N("Sub", column, N("Relu", column, NULL)));
    expect_no_mixer(N("Sub", N("Unsqueeze", column, LIST(2)), world->x));
}

static void a_reshape_to_the_number_of_rows_keeps_them(void **state)
{
    struct world *world = *state;
    struct value *shape = N("Shape", world->x, NULL);
    struct value *count =
        N("Unsqueeze",
          N("Gather", shape, make_constant(world->graph, DTYPE_INT64, 0, NULL, &(int64_t){0})),
          LIST(0));
    struct value *flat = N("Reshape", world->x, N("Concat", count, LIST(-1)));

    expect_mixer("ReduceMax", N("ReduceMax", flat, LIST(0)));
    expect_no_mixer(N("ReduceMax", flat, LIST(1)));
    expect_mixer("ReduceMax", N("ReduceMax", N("Reshape", world->x, LIST(-1, 4)), LIST(0)));
    expect_mixer("ReduceMax", N("ReduceMax", N("Reshape", world->x, LIST(0, 2, 6)), LIST(0)));
}

/* Here rows and running them decide. */
static void behind_a_reshape_that_may_split_rows_nothing_is_said(void **state)
{
    struct world *world = *state;

    expect_no_mixer(N("ReduceMax", N("Reshape", world->x, LIST(1, -1)), LIST(0)));
    expect_no_mixer(N("ReduceMax", N("Concat", world->x, world->x), LIST(0)));
}

static void words_that_are_looked_up_keep_their_rows(void **state)
{
    struct world *world = *state;
    struct value *words = N("Gather", table(world, 10, 8), world->x); /* [rows, 3, 4, 8] */

    expect_mixer("ReduceMax", N("ReduceMax", words, LIST(0)));
    expect_no_mixer(N("ReduceMax", words, LIST(1, 2, 3)));
    expect_no_mixer(with(N("Gather", world->x, LIST(0, 2)), "axis", 1));
    expect_mixer("Gather", with(N("Gather", world->x, N("Relu", world->x, NULL)), "axis", 1));
}

static void a_recurrence_over_rows_is_found(void **state)
{
    struct world *world = *state;
    struct value *weights = make_constant(world->graph, DTYPE_FLOAT, 3, (int64_t[]){1, 3, 4}, NULL);
    struct value *r = make_constant(world->graph, DTYPE_FLOAT, 3, (int64_t[]){1, 3, 1}, NULL);
    struct value *in_time = turned(world, world->x, 3, (int64_t[]){1, 0, 2});

    expect_mixer("GRU", make(world->graph, "GRU", world->x, weights, r));
    expect_no_mixer(make(world->graph, "GRU", in_time, weights, r));
    expect_mixer("ReduceMax",
                 N("ReduceMax", make(world->graph, "GRU", in_time, weights, r), LIST(2)));
}

static void attention_to_other_sequences_is_found(void **state)
{
    struct world *world = *state;
    struct value *x = world->x, *k = turned(world, x, 3, (int64_t[]){1, 0, 2});

    expect_mixer("Attention", make(world->graph, "Attention", x, k, x));
    expect_no_mixer(make(world->graph, "Attention", x, x, x));
    expect_mixer("RotaryEmbedding", make(world->graph, "RotaryEmbedding", x, k, k));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(sums_over_rows_are_found),
        TEST(sums_within_rows_are_left_alone),
        TEST(what_no_output_needs_does_not_count),
        TEST(a_sum_is_found_behind_what_moves_rows),
        TEST(products_mix_rows_where_they_sum_over_them_or_cross_them),
        TEST(rows_against_rows_are_found),
        TEST(a_reshape_to_the_number_of_rows_keeps_them),
        TEST(behind_a_reshape_that_may_split_rows_nothing_is_said),
        TEST(words_that_are_looked_up_keep_their_rows),
        TEST(a_recurrence_over_rows_is_found),
        TEST(attention_to_other_sequences_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
