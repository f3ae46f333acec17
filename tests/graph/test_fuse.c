/* The fusing passes: before and after. */
#include "fuse_rig.h"

/* ---- biases ---- */

static void a_channel_constant_becomes_the_bias_of_a_convolution(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, 3, 8, 8));
    struct value *y = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));
    struct node *node;

    (void)state;
    finish(graph, 1, &x, apply(graph, "Add", constant(graph, DIMS(1, 4, 1, 1)), y));
    run(graph, &pass_fuse_bias);
    node = only(graph);
    assert_ptr_equal(node->op, &op_conv);
    assert_int_equal(node->in[CONV_BIAS]->shape.rank, 1);
    assert_int_equal(node->in[CONV_BIAS]->shape.dims[0], 4);
    graph_destroy(graph);
}

static void a_row_becomes_the_bias_of_a_product(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(2, 5, 8));
    struct value *y = apply(graph, "MatMul", x, constant(graph, DIMS(8, 16)));

    (void)state;
    finish(graph, 1, &x, apply(graph, "Add", y, constant(graph, DIMS(16))));
    run(graph, &pass_fuse_bias);
    assert_true(((struct matmul_attrs *)only(graph)->attrs)->has_bias);
    graph_destroy(graph);
}

static void what_is_no_bias_stays_an_addition(void **state)
{
    const int64_t shapes[][4] = {{1, 1, 8, 8}, {1, 1, 1, 1}, {1, 4, 8, 8}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct graph *graph = graph_create();
        struct value *x = fed(graph, DIMS(1, 3, 8, 8));
        struct value *y = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));

        finish(graph, 1, &x, apply(graph, "Add", y, constant(graph, 4, shapes[i])));
        run(graph, &pass_fuse_bias);
        assert_int_equal(count(graph, "Add"), 1);
        graph_destroy(graph);
    }
}

static void a_sum_that_others_read_keeps_its_addition(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, 3, 8, 8));
    struct value *y = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));
    struct value *sum = apply(graph, "Add", y, constant(graph, DIMS(1, 4, 1, 1)));

    (void)state;
    finish(graph, 1, &x, apply(graph, "Mul", sum, y));
    run(graph, &pass_fuse_bias);
    assert_int_equal(count(graph, "Add"), 1);
    graph_destroy(graph);
}

static void squeeze(struct graph *graph, struct value **value, int64_t axis)
{
    struct shape shape = shape_make(1, &(int64_t){1});
    struct constant *axes = constant_allocate(DTYPE_INT64, &shape);

    assert_non_null(axes);
    *(int64_t *)(uintptr_t)axes->tensor.data = axis;
    *value = apply(graph, "Squeeze", *value, graph_add_constant(graph, "", axes));
}

static void ones_in_front_of_a_row_do_not_matter_in_a_plan(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(2, 5, 8));
    struct value *y = apply(graph, "MatMul", x, constant(graph, DIMS(8, 16)));
    struct value *row = constant(graph, DIMS(1, 1, 16));

    (void)state;
    finish(graph, 1, &x, apply(graph, "Add", y, row));
    run(graph, &pass_fuse_bias_plan);
    assert_ptr_equal(only(graph)->in[MATMUL_BIAS], row); /* the model's own constant */
    graph_destroy(graph);
}

static void a_bias_that_adds_a_dimension_stays(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(5, 8));
    struct value *y = apply(graph, "MatMul", x, constant(graph, DIMS(8, 16)));

    (void)state;
    finish(graph, 1, &x, apply(graph, "Add", y, constant(graph, DIMS(1, 1, 16))));
    run(graph, &pass_fuse_bias_plan);
    assert_int_equal(count(graph, "Add"), 1);
    graph_destroy(graph);
}

static void a_bias_along_another_axis_stays(void **state)
{
    const int64_t shapes[][3] = {{1, 16, 1}, {2, 1, 1}, {1, 1, 1}}; /* of [2,16,16] */

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct graph *graph = graph_create();
        struct value *x = fed(graph, DIMS(2, 16, 8));
        struct value *y = apply(graph, "MatMul", x, constant(graph, DIMS(8, 16)));

        finish(graph, 1, &x, apply(graph, "Add", y, constant(graph, 3, shapes[i])));
        run(graph, &pass_fuse_bias_plan);
        assert_int_equal(count(graph, "Add"), 1);
        graph_destroy(graph);
    }
}

static void bias_and_activation_are_found_behind_a_squeeze(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(2, 3, 8, 1));
    struct value *y = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));
    struct value *bias = constant(graph, DIMS(1, 4, 1));
    struct node *conv = y->producer;

    (void)state;
    squeeze(graph, &y, 3);
    y = apply(graph, "Gelu", apply(graph, "Add", bias, y), NULL);
    finish(graph, 1, &x, y);
    run(graph, &pass_fuse_bias_plan);
    run(graph, &pass_fuse_epilogue);
    assert_int_equal(count(graph, NULL), 2); /* Conv, Squeeze */
    assert_ptr_equal(conv->in[CONV_BIAS], bias);
    assert_int_equal(node_epilogue(conv)->act, ACT_GELU_ERF);
    graph_destroy(graph);
}

static void a_bias_behind_a_squeeze_of_the_channels_stays(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, 3, 4, 4));
    struct value *y = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));

    (void)state;
    squeeze(graph, &y, 0); /* the channels are dimension 0 now; what looks like them are rows */
    finish(graph, 1, &x, apply(graph, "Add", y, constant(graph, DIMS(1, 4, 1))));
    run(graph, &pass_fuse_bias_plan);
    assert_int_equal(count(graph, "Add"), 1);
    graph_destroy(graph);
}

/* ---- rows picked by one-hot matrices ---- */

static struct value *numbers(struct graph *graph, int64_t count_of, int64_t from)
{
    struct shape shape = shape_make(3, (int64_t[]){1, 1, count_of});
    struct constant *made = constant_allocate(DTYPE_INT32, &shape);

    assert_non_null(made);
    for (int64_t i = 0; i < count_of; i++)
        ((int32_t *)(uintptr_t)made->tensor.data)[i] = (int32_t)(from + i);
    return graph_add_constant(graph, "", made);
}

/* MatMul(Cast(Equal(ids, from … from + 5)), [6,4]) */
static struct graph *one_hot_product(const struct shape *ids_shape, int64_t from)
{
    struct graph *graph = graph_create();
    struct value *ids = fed(graph, ids_shape->rank, ids_shape->dims), *equal, *cast;
    struct node *node;

    ids->dtype = DTYPE_INT32;
    equal = apply(graph, "Equal", ids, numbers(graph, 6, from));
    node = graph_add_node(graph, NULL, op_find("", "Cast"), "cast", 1, 1);
    op_attrs_default(node->op, node->attrs);
    assert_true(node_set_int(node, "to", 1));
    node_set_input(node, 0, equal);
    node_set_output(node, 0, graph_add_value(graph, ""));
    assert_ok(graph_infer_node(graph, node, NULL));
    cast = node->out[0];
    finish(graph, 1, &ids, apply(graph, "MatMul", cast, constant(graph, DIMS(6, 4))));
    return graph;
}

static void a_product_with_a_one_hot_matrix_picks_rows(void **state)
{
    const struct shape ids = shape_make(3, (int64_t[]){2, 5, 1});
    struct graph *graph = one_hot_product(&ids, 0);
    struct shape before = graph->out[0]->shape;

    (void)state;
    run(graph, &pass_embed);
    assert_ptr_equal(only(graph)->op, &op_embedding);
    assert_ptr_equal(only(graph)->in[EMBEDDING_IDS], graph->in[0]);
    assert_ok(graph_infer_node(graph, only(graph), NULL));
    assert_true(shape_is_equal(&graph->out[0]->shape, &before));
    graph_destroy(graph);
}

static void what_only_looks_like_one_hot_stays_a_product(void **state)
{
    const struct shape ids = shape_make(3, (int64_t[]){2, 5, 1});
    const struct shape whole = shape_make(3, (int64_t[]){2, 5, 6}); /* compared one by one */
    const struct shape less = shape_make(2, (int64_t[]){5, 1});     /* a dimension is added */
    struct graph *graphs[] = {one_hot_product(&ids, 1), one_hot_product(&whole, 0),
                              one_hot_product(&less, 0)};

    (void)state;
    for (size_t i = 0; i < sizeof(graphs) / sizeof(graphs[0]); i++) {
        run(graphs[i], &pass_embed);
        assert_int_equal(count(graphs[i], "MatMul"), 1);
        graph_destroy(graphs[i]);
    }
}

/* ---- residuals and activations ---- */

static void a_residual_and_an_activation_are_taken_in(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[2] = {fed(graph, DIMS(1, 3, 8, 8)), fed(graph, DIMS(1, 4, 8, 8))};
    struct value *y = apply(graph, "Conv", in[0], constant(graph, DIMS(4, 3, 1, 1)));
    const struct epilogue *epilogue;

    (void)state;
    finish(graph, 2, in, apply(graph, "Relu", apply(graph, "Add", y, in[1]), NULL));
    run(graph, &pass_fuse_epilogue);
    epilogue = node_epilogue(only(graph));
    assert_int_equal(epilogue->act, ACT_RELU);
    assert_true(epilogue->has_residual);
    assert_false(epilogue->residual_after);
    assert_ptr_equal(only(graph)->in[CONV_RESIDUAL], in[1]);
    graph_destroy(graph);
}

static void a_residual_behind_an_activation_says_so(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[2] = {fed(graph, DIMS(2, 8)), fed(graph, DIMS(2, 4))};
    struct value *y = apply(graph, "MatMul", in[0], constant(graph, DIMS(8, 4)));

    (void)state;
    finish(graph, 2, in, apply(graph, "Add", in[1], apply(graph, "Gelu", y, NULL)));
    run(graph, &pass_fuse_epilogue);
    assert_int_equal(node_epilogue(only(graph))->act, ACT_GELU_ERF);
    assert_true(node_epilogue(only(graph))->residual_after);
    graph_destroy(graph);
}

static void of_two_convolutions_the_later_takes_the_other(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, 3, 8, 8));
    struct value *a = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));
    struct value *b = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));
    const struct node *first, *second;

    (void)state;
    finish(graph, 1, &x, apply(graph, "Add", a, b));
    run(graph, &pass_fuse_epilogue);
    assert_int_equal(count(graph, NULL), 2);
    first = LIST_FIRST(&graph->nodes, struct node, link);
    second = CONTAINER_OF(first->link.next, struct node, link);
    assert_false(node_epilogue(first)->has_residual);
    assert_true(node_epilogue(second)->has_residual);
    assert_ptr_equal(second->in[CONV_RESIDUAL], first->out[0]);
    graph_destroy(graph);
}

static void a_residual_made_later_is_waited_for(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[2] = {fed(graph, DIMS(1, 3, 8, 8)), fed(graph, DIMS(1, 4, 8, 8))};
    struct value *y = apply(graph, "Conv", in[0], constant(graph, DIMS(4, 3, 1, 1)));
    struct value *later = apply(graph, "Exp", in[1], NULL);

    (void)state;
    finish(graph, 2, in, apply(graph, "Add", y, later));
    run(graph, &pass_fuse_epilogue); /* valid: the convolution stands behind Exp now */
    assert_int_equal(count(graph, NULL), 2);
    assert_int_equal(count(graph, "Add"), 0);
    graph_destroy(graph);
}

static void a_broadcast_addition_is_no_residual(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[2] = {fed(graph, DIMS(1, 3, 8, 8)), fed(graph, DIMS(1, 4, 1, 1))};
    struct value *y = apply(graph, "Conv", in[0], constant(graph, DIMS(4, 3, 1, 1)));

    (void)state;
    finish(graph, 2, in, apply(graph, "Add", y, in[1]));
    run(graph, &pass_fuse_epilogue);
    assert_int_equal(count(graph, "Add"), 1);
    graph_destroy(graph);
}

static void a_value_added_to_itself_is_no_residual(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, 3, 8, 8));
    struct value *y = apply(graph, "Conv", x, constant(graph, DIMS(4, 3, 1, 1)));

    (void)state;
    finish(graph, 1, &x, apply(graph, "Add", y, y));
    run(graph, &pass_fuse_epilogue);
    assert_int_equal(count(graph, "Add"), 1);
    graph_destroy(graph);
}

/* ---- scales ---- */

static struct value *number(struct graph *graph, float value)
{
    struct value *made = constant(graph, 0, NULL);

    memcpy((void *)(uintptr_t)made->constant->tensor.data, &value, sizeof(value));
    return made;
}

static void a_product_divided_by_a_number_is_scaled(void **state)
{
    static const char *const ops[] = {"Div", "Mul", "Mul"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct graph *graph = graph_create();
        struct value *in[2] = {fed(graph, DIMS(2, 5, 8)), fed(graph, DIMS(2, 8, 5))};
        struct value *y = apply(graph, "MatMul", in[0], in[1]), *c = number(graph, 4);
        const struct matmul_attrs *attrs;

        finish(graph, 2, in, i == 2 ? apply(graph, ops[i], c, y) : apply(graph, ops[i], y, c));
        run(graph, &pass_fuse_scale);
        attrs = only(graph)->attrs;
        assert_true(attrs->has_scale);
        assert_true(attrs->scale == (i == 0 ? 0.25f : 4));
        graph_destroy(graph);
    }
}

static void an_operand_times_a_number_scales_the_product(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) { /* in front of a Transpose, too */
        struct graph *graph = graph_create();
        struct value *in[2] = {fed(graph, DIMS(8, 8)), fed(graph, DIMS(8, 8))};
        struct value *a = apply(graph, "Mul", number(graph, 0.5f), in[0]);
        struct value *b = apply(graph, "Div", in[1], number(graph, 4));
        struct value *y =
            apply(graph, "MatMul", a, i == 0 ? b : apply(graph, "Transpose", b, NULL));
        const struct matmul_attrs *attrs = y->producer->attrs;

        finish(graph, 2, in, apply(graph, "Mul", y, number(graph, 3)));
        run(graph, &pass_fuse_scale);
        assert_int_equal(count(graph, NULL), i + 1);
        assert_true(attrs->has_scale);
        assert_true(attrs->scale == 0.375f);
        graph_destroy(graph);
    }
}

static void an_operand_that_others_read_keeps_its_factor(void **state)
{
    struct graph *graph = graph_create();
    struct value *in[2] = {fed(graph, DIMS(2, 5, 5)), fed(graph, DIMS(2, 5, 5))};
    struct value *a = apply(graph, "Mul", number(graph, 0.5f), in[0]);

    (void)state;
    finish(graph, 2, in, apply(graph, "Add", a, apply(graph, "MatMul", a, in[1])));
    run(graph, &pass_fuse_scale);
    assert_int_equal(count(graph, "Mul"), 1);
    graph_destroy(graph);
}

static void what_is_no_scale_stays(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) { /* a divided number, zero, a row */
        struct graph *graph = graph_create();
        struct value *in[2] = {fed(graph, DIMS(2, 5, 8)), fed(graph, DIMS(2, 8, 5))};
        struct value *y = apply(graph, "MatMul", in[0], in[1]);
        struct value *c = i == 2 ? constant(graph, DIMS(5)) : number(graph, i == 0 ? 4 : 0);

        finish(graph, 2, in, i == 0 ? apply(graph, "Div", c, y) : apply(graph, "Mul", y, c));
        run(graph, &pass_fuse_scale);
        assert_int_equal(count(graph, NULL), 2);
        graph_destroy(graph);
    }
}

static void element_wise_nodes_in_a_row_become_a_chain(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(2, 3, 4)), *row = fed(graph, DIMS(4));
    struct value *sum = apply(graph, "Add", x, row);
    struct value *out = apply(graph, "Sub", row, apply(graph, "Tanh", sum, NULL));
    const struct node *node;
    const struct chain_attrs *attrs;

    (void)state;
    finish(graph, 2, (struct value *const[]){x, row}, out);
    run(graph, &pass_fuse_chain);
    assert_int_equal(count(graph, NULL), 1);
    node = only(graph);
    assert_string_equal(node->op->name, "chain");
    attrs = node->attrs;
    assert_int_equal(node->inputs, 2);
    assert_ptr_equal(node->in[0], x);
    assert_ptr_equal(node->in[1], row);
    assert_int_equal(attrs->count, 3);
    assert_ptr_equal(attrs->links[0].op, &op_add);
    assert_int_equal(attrs->links[0].operand, 1);
    assert_int_equal(attrs->links[1].operand, CHAIN_ALONE);
    assert_true(attrs->links[2].turned);
    assert_int_equal(attrs->links[2].operand, 1);
    graph_destroy(graph);
}

static void a_chain_reads_what_it_began_with_again(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(2, 8));
    struct value *out = apply(graph, "Mul", x, apply(graph, "Sigmoid", x, NULL));
    const struct node *node;

    (void)state;
    finish(graph, 1, &x, out);
    run(graph, &pass_fuse_chain);
    node = only(graph);
    assert_string_equal(node->op->name, "chain");
    assert_int_equal(node->inputs, 1);
    assert_int_equal(((const struct chain_attrs *)node->attrs)->links[1].operand, 0);
    graph_destroy(graph);
}

static void what_others_read_or_what_grows_ends_a_chain(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(1, 8)), *y = fed(graph, DIMS(5, 8));
    struct value *read_twice = apply(graph, "Exp", x, NULL);
    struct value *grown = apply(graph, "Add", apply(graph, "Neg", read_twice, NULL), y);
    struct value *out = apply(graph, "Mul", grown, apply(graph, "Abs", read_twice, NULL));

    (void)state;
    finish(graph, 2, (struct value *const[]){x, y}, out);
    run(graph, &pass_fuse_chain);
    assert_int_equal(count(graph, "Chain"), 1); /* Add and Mul */
    assert_int_equal(count(graph, "Exp"), 1);
    assert_int_equal(count(graph, "Neg"), 1);
    assert_int_equal(count(graph, "Abs"), 1);
    graph_destroy(graph);
}

static void long_rows_become_several_chains(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = fed(graph, DIMS(4, 4)), *out = x;

    (void)state;
    for (int i = 0; i < 2 * CHAIN_LINKS; i++)
        out = apply(graph, i % 2 ? "Relu" : "Neg", out, NULL);
    finish(graph, 1, &x, out);
    run(graph, &pass_fuse_chain);
    assert_int_equal(count(graph, "Chain"), 2);
    assert_int_equal(count(graph, NULL), 2);
    graph_destroy(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_divided_by_a_number_is_scaled),
        cmocka_unit_test(an_operand_times_a_number_scales_the_product),
        cmocka_unit_test(an_operand_that_others_read_keeps_its_factor),
        cmocka_unit_test(what_is_no_scale_stays),
        cmocka_unit_test(a_channel_constant_becomes_the_bias_of_a_convolution),
        cmocka_unit_test(a_row_becomes_the_bias_of_a_product),
        cmocka_unit_test(what_is_no_bias_stays_an_addition),
        cmocka_unit_test(a_sum_that_others_read_keeps_its_addition),
        cmocka_unit_test(ones_in_front_of_a_row_do_not_matter_in_a_plan),
        cmocka_unit_test(a_bias_that_adds_a_dimension_stays),
        cmocka_unit_test(a_bias_along_another_axis_stays),
        cmocka_unit_test(bias_and_activation_are_found_behind_a_squeeze),
        cmocka_unit_test(a_bias_behind_a_squeeze_of_the_channels_stays),
        cmocka_unit_test(a_product_with_a_one_hot_matrix_picks_rows),
        cmocka_unit_test(what_only_looks_like_one_hot_stays_a_product),
        cmocka_unit_test(a_residual_and_an_activation_are_taken_in),
        cmocka_unit_test(a_residual_behind_an_activation_says_so),
        cmocka_unit_test(of_two_convolutions_the_later_takes_the_other),
        cmocka_unit_test(a_residual_made_later_is_waited_for),
        cmocka_unit_test(a_broadcast_addition_is_no_residual),
        cmocka_unit_test(a_value_added_to_itself_is_no_residual),
        cmocka_unit_test(element_wise_nodes_in_a_row_become_a_chain),
        cmocka_unit_test(a_chain_reads_what_it_began_with_again),
        cmocka_unit_test(what_others_read_or_what_grows_ends_a_chain),
        cmocka_unit_test(long_rows_become_several_chains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
