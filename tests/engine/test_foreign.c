/* Which inputs and outputs of a plan may lie in memory that others write to. */
#include "engine/rig.h"

/* The plan of a graph with these borders; shapes are known. */
static struct plan *plan_of(struct rig *rig, struct graph *graph, size_t inputs, struct value **in,
                            size_t outputs, struct value **out, struct network **out_network)
{
    struct shape shapes[4];

    for (size_t i = 0; i < inputs; i++)
        shapes[i] = in[i]->shape;
    set_borders(graph, inputs, in, outputs, out);
    *out_network = make_network(rig, graph);
    return make_plan(*out_network, shapes);
}

static void expect(struct rig *rig, struct graph *graph, size_t inputs, struct value **in,
                   size_t outputs, struct value **out, unsigned in_mask, unsigned out_mask)
{
    struct network *network;
    struct plan *plan = plan_of(rig, graph, inputs, in, outputs, out, &network);

    for (size_t i = 0; i < inputs; i++)
        assert_int_equal((in_mask >> i & 1) != 0, plan_takes_foreign_input(plan, i));
    for (size_t i = 0; i < outputs; i++)
        assert_int_equal((out_mask >> i & 1) != 0, plan_takes_foreign_output(plan, i));
    plan_unref(plan);
    network_destroy(network);
}

static void arithmetic_may_be_fed_by_others(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[] = {make_value(graph, "a", DTYPE_FLOAT, SHAPE(4, 3)),
                          make_value(graph, "b", DTYPE_FLOAT, SHAPE(4, 3))};
    struct value *out[] = {APPLY(graph, "Add", in[0], in[1]), APPLY(graph, "Mul", in[0], in[1])};

    expect(*state, graph, 2, in, 2, out, 3, 3);
}

static void products_may_be_fed_by_others(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[] = {make_value(graph, "a", DTYPE_FLOAT, SHAPE(4, 32))};
    struct value *wide = APPLY(graph, "MatMul", in[0], make_floats(graph, SHAPE(32, 8), 1));
    struct value *out[] = {APPLY(graph, "Softmax", APPLY(graph, "Relu", wide))};

    expect(*state, graph, 1, in, 1, out, 1, 1);
}

static void indices_are_looked_at_twice(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[] = {make_value(graph, "table", DTYPE_FLOAT, SHAPE(4, 3)),
                          make_value(graph, "which", DTYPE_INT64, SHAPE(5))};
    struct value *out[] = {APPLY(graph, "Gather", in[0], in[1])};

    expect(*state, graph, 2, in, 1, out, 0, 0);
}

static void integers_may_be_added_but_not_divided(void **state)
{
    for (unsigned divides = 0; divides < 2; divides++) {
        struct graph *graph = graph_create();
        struct value *in[] = {make_value(graph, "a", DTYPE_INT32, SHAPE(8)),
                              make_value(graph, "b", DTYPE_INT32, SHAPE(8))};
        struct value *out[] = {APPLY(graph, divides ? "Div" : "Add", in[0], in[1])};

        expect(*state, graph, 2, in, 1, out, divides ? 0 : 3, divides ? 0 : 1);
    }
}

static void what_is_read_through_a_view_counts(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[] = {make_value(graph, "a", DTYPE_INT64, SHAPE(2, 2)),
                          make_value(graph, "b", DTYPE_FLOAT, SHAPE(2, 2))};
    struct value *flat = APPLY(graph, "Reshape", in[0], INTS(graph, 4));
    struct value *row = APPLY(graph, "Reshape", in[1], INTS(graph, 4));
    struct value *out[] = {APPLY(graph, "Gather", make_floats(graph, SHAPE(8), 1), flat),
                           APPLY(graph, "Neg", row)};

    expect(*state, graph, 2, in, 2, out, 2, 2);
}

static void an_output_that_is_an_index_too_is_ours(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[] = {make_value(graph, "a", DTYPE_INT64, SHAPE(4))};
    struct value *sum = APPLY(graph, "Add", in[0], INTS(graph, 1, 1, 1, 1));
    struct value *out[] = {sum, APPLY(graph, "Gather", make_floats(graph, SHAPE(8), 1), sum)};

    expect(*state, graph, 1, in, 2, out, 1, 0);
}

static void counts_and_what_lies_behind_a_cut_are_ours(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[] = {make_value(graph, "a", DTYPE_FLOAT, SHAPE(2, 4))};
    struct value *out[] = {APPLY(graph, "NonZero", in[0])};

    expect(*state, graph, 1, in, 1, out, 0, 0);
}

static void truth_values_are_ours(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[] = {make_value(graph, "a", DTYPE_FLOAT, SHAPE(4)),
                          make_value(graph, "b", DTYPE_BOOL, SHAPE(4))};
    struct value *cast = NODE(graph, "Cast", in[1])->out[0];
    struct value *out[] = {APPLY(graph, "Greater", in[0], make_floats(graph, SHAPE(4), 1)), cast};

    set_attr_int(cast->producer, "to", 1); /* ONNX's FLOAT */
    expect(*state, graph, 2, in, 2, out, 0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_may_be_fed_by_others),
        cmocka_unit_test(products_may_be_fed_by_others),
        cmocka_unit_test(indices_are_looked_at_twice),
        cmocka_unit_test(integers_may_be_added_but_not_divided),
        cmocka_unit_test(what_is_read_through_a_view_counts),
        cmocka_unit_test(an_output_that_is_an_index_too_is_ours),
        cmocka_unit_test(counts_and_what_lies_behind_a_cut_are_ours),
        cmocka_unit_test(truth_values_are_ours),
    };

    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
