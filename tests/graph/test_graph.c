#include "graph/maker.h"

#include <stdlib.h>

#include "support/fail_alloc.h"

static const int64_t two_three[] = {2, 3};

/* x ──> Relu ──> a ──> Add(a, Sigmoid(a)) ──> y */
static struct graph *diamond(void)
{
    struct graph *graph = graph_create();
    struct value *x, *a, *y;

    assert_non_null(graph);
    x = make_input(graph, "x", 2, two_three);
    a = make(graph, "Relu", x, NULL, NULL);
    y = make(graph, "Add", a, make(graph, "Sigmoid", a, NULL, NULL), NULL);
    make_borders(graph, x, y);
    return graph;
}

static void users_are_counted_by_use(void **state)
{
    struct graph *graph = diamond();

    (void)state;
    assert_valid(graph);
    assert_int_equal(find_op(graph, "Relu")->out[0]->users, 2);
    assert_int_equal(graph->out[0]->users, 1);
    assert_true(graph->out[0]->is_output);
    graph_destroy(graph);
}

static void single_user_is_none_for_shared_values_and_outputs(void **state)
{
    struct graph *graph = diamond();

    (void)state;
    assert_null(graph_single_user(graph, find_op(graph, "Relu")->out[0]));
    assert_null(graph_single_user(graph, graph->out[0]));
    assert_ptr_equal(graph_single_user(graph, find_op(graph, "Sigmoid")->out[0]),
                     find_op(graph, "Add"));
    graph_destroy(graph);
}

static void replacing_an_output_moves_its_name_and_declaration(void **state)
{
    struct graph *graph = diamond();
    struct value *a = find_op(graph, "Relu")->out[0];

    (void)state;
    graph->out[0]->shape = shape_make(2, two_three);
    graph->out[0]->shape_known = true;
    assert_ok(graph_replace_value(graph, graph->out[0], a));
    assert_ptr_equal(graph->out[0], a);
    assert_string_equal(a->name, "y");
    assert_true(a->shape_known);
    graph_remove_dead(graph);
    assert_valid(graph);
    assert_int_equal(count_ops(graph, NULL), 1);
    graph_destroy(graph);
}

static void replacing_an_output_by_a_border_is_refused(void **state)
{
    struct graph *graph = diamond();
    struct value *number = make_number(graph, 1);

    (void)state;
    assert_int_equal(graph_replace_value(graph, graph->out[0], graph->in[0]), STATUS_PRECONDITION);
    assert_int_equal(graph_replace_value(graph, graph->out[0], number), STATUS_PRECONDITION);
    assert_valid(graph);
    assert_int_equal(count_ops(graph, NULL), 3);
    graph_destroy(graph);
}

static void dead_chains_and_constants_are_removed(void **state)
{
    struct graph *graph = diamond();
    struct value *dead = make(graph, "Mul", graph->in[0], make_number(graph, 2), NULL);

    (void)state;
    (void)make(graph, "Relu", dead, NULL, NULL);
    graph_remove_dead(graph);
    assert_valid(graph);
    assert_int_equal(count_ops(graph, NULL), 3);
    graph_destroy(graph);
}

static void clone_is_equal_and_shares_constants(void **state)
{
    struct graph *graph = diamond(), *copy;
    struct value *number = make_number(graph, 2), *y;

    (void)state;
    y = make(graph, "Mul", graph->out[0], number, NULL);
    (void)y;
    copy = graph_clone(graph);
    assert_non_null(copy);
    assert_valid(copy);
    assert_int_equal(count_ops(copy, NULL), 4);
    assert_int_equal(copy->next_value_id, graph->next_value_id);
    assert_ptr_not_equal(copy->out[0], graph->out[0]);
    assert_int_equal(copy->out[0]->id, graph->out[0]->id);
    assert_int_equal(atomic_load(&number->constant->references), 2);
    graph_destroy(copy);
    assert_int_equal(atomic_load(&number->constant->references), 1);
    graph_destroy(graph);
}

static enum status clone_it(void *arg)
{
    struct graph *copy = graph_clone(arg);

    if (copy == NULL)
        return STATUS_NO_MEMORY;
    graph_destroy(copy);
    return STATUS_OK;
}

static void clone_fails_cleanly_at_every_allocation(void **state)
{
    struct graph *graph = diamond();

    (void)state;
    assert_true(fail_each_alloc(clone_it, graph) > 2);
    assert_valid(graph);
    graph_destroy(graph);
}

static void grown_inputs_keep_the_old_ones(void **state)
{
    struct graph *graph = diamond();
    struct node *add = find_op(graph, "Add");
    struct value *first = add->in[0];

    (void)state;
    assert_ok(node_grow_inputs(graph, add, 4));
    assert_int_equal(add->inputs, 4);
    assert_ptr_equal(add->in[0], first);
    assert_null(add->in[3]);
    assert_valid(graph);
    graph_destroy(graph);
}

static void inference_names_the_node_and_the_reason(void **state)
{
    struct graph *graph = graph_create();
    struct value *a = make_input(graph, "a", 2, two_three);
    struct value *b = make_input(graph, "b", 1, &(int64_t){7});
    struct value *sum = make(graph, "Add", a, b, NULL);
    struct error err;

    (void)state;
    assert_int_equal(graph_infer_node(graph, sum->producer, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "node 'Add' (Add)"));
    assert_false(sum->shape_known);
    graph_destroy(graph);
}

static void inference_waits_for_shapes_and_values(void **state)
{
    struct graph *graph = graph_create();
    struct value *x = make_input(graph, "x", 2, (int64_t[]){-1, 3});
    struct value *shape = make_input(graph, "shape", 1, &(int64_t){2});
    struct value *relu = make(graph, "Relu", x, NULL, NULL);
    struct value *reshaped = make(graph, "Reshape", x, shape, NULL);
    struct error err;

    (void)state;
    shape->dtype = DTYPE_INT64;
    assert_int_equal(graph_infer_node(graph, relu->producer, &err), STATUS_PRECONDITION);
    x->shape.dims[0] = 2;
    assert_ok(graph_infer_node(graph, relu->producer, &err));
    assert_int_equal(relu->shape.dims[0], 2);
    assert_int_equal(graph_infer_node(graph, reshaped->producer, &err), STATUS_PRECONDITION);
    assert_non_null(strstr(err.text, "decides a shape"));
    graph_destroy(graph);
}

static void validity_sees_wrong_order_and_wrong_counts(void **state)
{
    struct graph *graph = diamond();
    struct node *relu = find_op(graph, "Relu");
    const char *reason = "";

    (void)state;
    relu->out[0]->users++;
    assert_false(graph_is_valid(graph, &reason));
    relu->out[0]->users--;
    assert_true(graph_is_valid(graph, &reason));
    list_remove(&relu->link);
    list_append(&graph->nodes, &relu->link);
    assert_false(graph_is_valid(graph, &reason));
    assert_non_null(strstr(reason, "no earlier node"));
    graph_destroy(graph);
}

static void children_go_with_their_graph(void **state)
{
    struct graph *graph = diamond(), *child = diamond();

    (void)state;
    graph_adopt(graph, child);
    assert_ptr_equal(graph->children, child);
    graph_destroy(graph); /* a leak of the child would be seen by the sanitizer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_are_counted_by_use),
        cmocka_unit_test(single_user_is_none_for_shared_values_and_outputs),
        cmocka_unit_test(replacing_an_output_moves_its_name_and_declaration),
        cmocka_unit_test(replacing_an_output_by_a_border_is_refused),
        cmocka_unit_test(dead_chains_and_constants_are_removed),
        cmocka_unit_test(clone_is_equal_and_shares_constants),
        cmocka_unit_test(clone_fails_cleanly_at_every_allocation),
        cmocka_unit_test(grown_inputs_keep_the_old_ones),
        cmocka_unit_test(inference_names_the_node_and_the_reason),
        cmocka_unit_test(inference_waits_for_shapes_and_values),
        cmocka_unit_test(validity_sees_wrong_order_and_wrong_counts),
        cmocka_unit_test(children_go_with_their_graph),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
