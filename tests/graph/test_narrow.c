/* Float32 steps in a 16-bit type: before and after. */
#include "maker.h"

#include <math.h>

#include "ops/conv.h"
#include "ops/matmul.h"

/* As the engine runs them: the model's passes, then the shapes, then the plan's. */
static void narrow(struct graph *graph, enum dtype to)
{
    const struct pass_context context = {.narrow = to};
    struct error err;
    struct node *node;

    assert_ok(pass_narrow_weights.run(graph, &context, &err));
    graph_remove_dead(graph);
    LIST_FOR_EACH (node, &graph->nodes, struct node, link)
        assert_ok(graph_infer_node(graph, node, &err));
    assert_ok(pass_narrow.run(graph, &context, &err));
    graph_remove_dead(graph);
    assert_valid(graph);
}

static struct value *weights(struct graph *graph, float first, float second)
{
    const float numbers[] = {first, second, 0.125F, -2};

    return make_constant(graph, DTYPE_FLOAT, 2, (int64_t[]){2, 2}, numbers);
}

static struct value *rows(struct graph *graph)
{
    return make_input(graph, "x", 2, (int64_t[]){3, 2});
}

static void a_product_computes_between_two_casts(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *w = weights(graph, 1, 0.333333333F);
    const struct node *node;

    (void)state;
    make_borders(graph, x, make(graph, "MatMul", x, w, NULL));
    narrow(graph, DTYPE_FLOAT16);
    node = find_op(graph, "MatMul");
    assert_int_equal(count_ops(graph, "Cast"), 2);
    assert_int_equal(node->in[0]->dtype, DTYPE_FLOAT16);
    assert_int_equal(node->in[1]->dtype, DTYPE_FLOAT16);
    assert_int_equal(node->out[0]->dtype, DTYPE_FLOAT16);
    assert_int_equal(graph->out[0]->dtype, DTYPE_FLOAT);
    assert_string_equal(graph->out[0]->name, "y");
    assert_int_equal(((const uint16_t *)node->in[1]->constant->tensor.data)[1],
                     half_from_float(0.333333333F));
    graph_destroy(graph);
}

static void an_activation_is_taken_in_where_the_device_does_so_in_16_bits(void **state)
{
    (void)state;
    for (unsigned wanted = 0; wanted < 2; wanted++) {
        const struct pass_context context = {.fuses_narrow = wanted != 0};
        struct graph *graph = graph_create();
        struct value *x = rows(graph);
        struct value *h = make(graph, "MatMul", x, weights(graph, 1, 2), NULL);

        h = make(graph, "Relu", h, NULL, NULL);
        make_borders(graph, x, make(graph, "MatMul", h, weights(graph, 1, 2), NULL));
        narrow(graph, DTYPE_BFLOAT16);
        assert_int_equal(count_ops(graph, "Relu"), 1);
        assert_ok(pass_fuse_epilogue.run(graph, &context, NULL));
        assert_valid(graph);
        assert_int_equal(count_ops(graph, "Relu"), wanted ? 0 : 1);
        assert_int_equal(find_op(graph, "MatMul")->out[0]->dtype, DTYPE_BFLOAT16);
        graph_destroy(graph);
    }
}

static void narrowed_weights_come_back_after_they_left_memory(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *w = weights(graph, 1, 3);
    struct constant *constant;

    (void)state;
    make_borders(graph, x, make(graph, "MatMul", x, w, NULL));
    narrow(graph, DTYPE_BFLOAT16);
    constant = find_op(graph, "MatMul")->in[1]->constant;
    constant_drop(constant);
    assert_null(constant->tensor.data);
    assert_ok(constant_restore(constant));
    assert_int_equal(((const uint16_t *)constant->tensor.data)[1], bfloat16_from_float(3));
    graph_destroy(graph);
}

static void a_weight_that_two_products_share_is_narrowed_once(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *w = weights(graph, 1, 3);

    (void)state;
    make_borders(graph, x, make(graph, "MatMul", make(graph, "MatMul", x, w, NULL), w, NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(count_ops(graph, "Cast"), 2);
    assert_ptr_equal(graph->out[0]->producer->in[0]->producer->in[1],
                     find_op(graph, "MatMul")->in[1]);
    graph_destroy(graph);
}

static void what_lies_between_two_products_follows(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *h = make(graph, "MatMul", x, weights(graph, 1, 2), NULL);

    (void)state;
    h = make(graph, "Add", h, make_floats(graph, 2, (float[]){0.1F, 2}), NULL);
    h = make(graph, "Sigmoid", h, NULL, NULL);
    make_borders(graph, x, make(graph, "MatMul", h, weights(graph, 2, 1), NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(count_ops(graph, "Cast"), 2);
    assert_int_equal(find_op(graph, "Add")->in[1]->dtype, DTYPE_FLOAT16);
    assert_int_equal(find_op(graph, "Sigmoid")->out[0]->dtype, DTYPE_FLOAT16);
    graph_destroy(graph);
}

static void what_leads_to_an_output_alone_stays_float32(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *h = make(graph, "MatMul", x, weights(graph, 1, 2), NULL);

    (void)state;
    make_borders(graph, x, make(graph, "Softmax", make(graph, "Relu", h, NULL, NULL), NULL, NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(find_op(graph, "Relu")->in[0]->dtype, DTYPE_FLOAT);
    assert_int_equal(find_op(graph, "Softmax")->out[0]->dtype, DTYPE_FLOAT);
    graph_destroy(graph);
}

/* MatMul ─ Mul with `number` ─ MatMul: whether the number let the Mul follow. */
static bool follows_with(double number, enum dtype to)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *h = make(graph, "MatMul", x, weights(graph, 1, 2), NULL);
    bool follows;

    h = make(graph, "Add", h, make_number(graph, number), NULL);
    make_borders(graph, x, make(graph, "MatMul", h, weights(graph, 2, 1), NULL));
    narrow(graph, to);
    follows = find_op(graph, "Add")->out[0]->dtype == to;
    graph_destroy(graph);
    return follows;
}

static void a_constant_beyond_float16_keeps_its_step_in_float32(void **state)
{
    (void)state;
    assert_true(follows_with(-65504, DTYPE_FLOAT16));
    assert_false(follows_with(-3e38, DTYPE_FLOAT16));
    assert_true(follows_with(-3e38, DTYPE_BFLOAT16));
    assert_true(follows_with(-INFINITY, DTYPE_FLOAT16));
}

static size_t narrow_products(float first, float second, enum dtype to)
{
    struct graph *graph = graph_create();
    const float tiny[] = {first, second, 0, second};
    struct value *x = rows(graph);
    struct value *w = make_constant(graph, DTYPE_FLOAT, 2, (int64_t[]){2, 2}, tiny);
    size_t casts;

    make_borders(graph, x, make(graph, "MatMul", x, w, NULL));
    narrow(graph, to);
    casts = count_ops(graph, "Cast");
    graph_destroy(graph);
    return casts / 2;
}

static void weights_that_float16_cannot_hold_stay(void **state)
{
    (void)state;
    assert_int_equal(narrow_products(70000, 1, DTYPE_FLOAT16), 0);
    assert_int_equal(narrow_products(70000, 1, DTYPE_BFLOAT16), 1);
    assert_int_equal(narrow_products(1e-7F, 1e-6F, DTYPE_FLOAT16), 0);
    assert_int_equal(narrow_products(1e-7F, 1, DTYPE_FLOAT16), 1);
}

static void products_of_computed_matrices_and_their_softmax_are_narrowed(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", 3, (int64_t[]){2, 4, 4});
    struct value *scores = make(graph, "MatMul", x, x, NULL);

    (void)state;
    make_borders(graph, x,
                 make(graph, "MatMul", make(graph, "Softmax", scores, NULL, NULL), x, NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(count_ops(graph, "Cast"), 2); /* of x, once, and of the output */
    assert_int_equal(find_op(graph, "Softmax")->out[0]->dtype, DTYPE_FLOAT16);
    graph_destroy(graph);
}

static void squares_and_what_meets_float32_stay(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *h = make(graph, "MatMul", x, weights(graph, 1, 2), NULL);

    (void)state;
    h = make(graph, "Add", make(graph, "Mul", h, h, NULL), make(graph, "Exp", x, NULL, NULL), NULL);
    make_borders(graph, x, make(graph, "MatMul", h, weights(graph, 2, 1), NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(find_op(graph, "Mul")->out[0]->dtype, DTYPE_FLOAT);
    assert_int_equal(find_op(graph, "Add")->out[0]->dtype, DTYPE_FLOAT);
    graph_destroy(graph);
}

static void a_split_is_narrowed_as_a_whole(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph), *h = make(graph, "MatMul", x, weights(graph, 1, 2), NULL);
    struct node *split = graph_add_node(graph, NULL, op_find("", "Split"), "Split", 1, 2);
    struct value *joined;

    (void)state;
    op_attrs_default(split->op, split->attrs);
    assert_true(node_set_int(split, "axis", 1));
    node_set_input(split, 0, h);
    for (size_t i = 0; i < 2; i++)
        node_set_output(split, i, graph_add_value(graph, ""));
    joined = make(graph, "Concat", split->out[1], split->out[0], NULL);
    assert_true(node_set_int(joined->producer, "axis", 1));
    make_borders(graph, x, make(graph, "MatMul", joined, weights(graph, 2, 1), NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(count_ops(graph, "Cast"), 2);
    assert_int_equal(split->out[0]->dtype, DTYPE_FLOAT16);
    assert_int_equal(split->out[1]->dtype, DTYPE_FLOAT16);
    graph_destroy(graph);
}

static void models_of_another_type_stay_as_they_are(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = rows(graph);
    const double numbers[] = {1, 2, 3, 4};
    struct value *w = make_constant(graph, DTYPE_DOUBLE, 2, (int64_t[]){2, 2}, numbers);

    (void)state;
    x->dtype = DTYPE_DOUBLE;
    make_borders(graph, x, make(graph, "MatMul", make(graph, "MatMul", x, w, NULL), w, NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(count_ops(graph, NULL), 2);
    graph_destroy(graph);
}

static void products_that_pick_rows_stay(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "ids", 1, (int64_t[]){3});
    struct value *hot;

    (void)state;
    x->dtype = DTYPE_INT64;
    hot = make(graph, "OneHot", x, make_ints(graph, 1, (int64_t[]){2}),
               make_floats(graph, 2, (float[]){0, 1}));
    make_borders(graph, x, make(graph, "MatMul", hot, weights(graph, 1, 2), NULL));
    narrow(graph, DTYPE_FLOAT16);
    assert_int_equal(count_ops(graph, "Cast"), 0);
    graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_computes_between_two_casts),
        cmocka_unit_test(an_activation_is_taken_in_where_the_device_does_so_in_16_bits),
        cmocka_unit_test(narrowed_weights_come_back_after_they_left_memory),
        cmocka_unit_test(a_weight_that_two_products_share_is_narrowed_once),
        cmocka_unit_test(what_lies_between_two_products_follows),
        cmocka_unit_test(what_leads_to_an_output_alone_stays_float32),
        cmocka_unit_test(a_constant_beyond_float16_keeps_its_step_in_float32),
        cmocka_unit_test(weights_that_float16_cannot_hold_stay),
        cmocka_unit_test(products_of_computed_matrices_and_their_softmax_are_narrowed),
        cmocka_unit_test(squares_and_what_meets_float32_stay),
        cmocka_unit_test(a_split_is_narrowed_as_a_whole),
        cmocka_unit_test(models_of_another_type_stay_as_they_are),
        cmocka_unit_test(products_that_pick_rows_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
