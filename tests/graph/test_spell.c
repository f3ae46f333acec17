/* ONNX's Attention and RotaryEmbedding in the steps that they are made of.  That the numbers are
 * right is shown by ONNX's own tests (tests/conformance). */
#include <math.h>

#include "graph/match.h"
#include "maker.h"
#include "ops/attend.h"

#define DIMS(...)                                                                                  \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[])                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

struct world {
    struct graph *graph;
    struct value *in[4];
    size_t inputs;
    struct node *node;
};

static struct value *feed(struct world *w, size_t rank, const int64_t *dims)
{
    static const char *const names[] = {"a", "b", "c", "d"};

    w->in[w->inputs] = make_input(w->graph, names[w->inputs], rank, dims);
    return w->in[w->inputs++];
}

static struct node *begin(struct world *w, const char *op)
{
    w->node = make(w->graph, op, w->in[0], w->in[1], w->in[2])->producer;
    w->node->out[0]->name = "y";
    assert_ok(graph_set_inputs(w->graph, w->inputs, w->in));
    return w->node;
}

static void spell_out(struct world *w, const struct pass *pass)
{
    const struct pass_context context = {.fuses_narrow = true};

    assert_ok(graph_infer_node(w->graph, w->node, NULL));
    assert_ok(graph_set_outputs(w->graph, 1, &w->node->out[0]));
    assert_ok(pass->run(w->graph, &context, NULL));
    graph_remove_dead(w->graph);
    assert_valid(w->graph);
}

static void assert_shape(const struct world *w, size_t rank, const int64_t *dims)
{
    const struct shape expected = shape_make(rank, dims);

    assert_true(shape_is_equal(&w->graph->out[0]->shape, &expected));
    assert_string_equal(w->graph->out[0]->name, "y");
}

static void heads_of_four_dimensions_need_no_movement(void **state)
{
    struct world w = {.graph = graph_create()};

    (void)state;
    (void)feed(&w, DIMS(2, 3, 5, 8));
    (void)feed(&w, DIMS(2, 3, 7, 8));
    (void)feed(&w, DIMS(2, 3, 7, 6));
    (void)begin(&w, "Attention");
    spell_out(&w, &pass_spell_attention);
    assert_shape(&w, DIMS(2, 3, 5, 6));
    assert_int_equal(count_ops(w.graph, "MatMul"), 2);
    assert_int_equal(count_ops(w.graph, "Transpose"), 1);
    assert_int_equal(count_ops(w.graph, NULL), 5); /* scale, Softmax */
    graph_destroy(w.graph);
}

static void shared_heads_that_lie_by_rows_have_a_dimension_of_their_own(void **state)
{
    struct world w = {.graph = graph_create()};
    struct node *node;

    (void)state;
    (void)feed(&w, DIMS(2, 5, 6 * 8));
    (void)feed(&w, DIMS(2, 7, 2 * 8));
    (void)feed(&w, DIMS(2, 7, 2 * 4));
    node = begin(&w, "Attention");
    assert_true(node_set_int(node, "q_num_heads", 6));
    assert_true(node_set_int(node, "kv_num_heads", 2));
    assert_true(node_set_int(node, "is_causal", 1));
    spell_out(&w, &pass_spell_attention);
    assert_shape(&w, DIMS(2, 5, 6 * 4));
    node = find_op(w.graph, "Add");
    assert_non_null(node);
    assert_int_equal(node->out[0]->shape.rank, 5);
    assert_int_equal(node->out[0]->shape.dims[1], 2);
    assert_int_equal(node->out[0]->shape.dims[2], 3);
    assert_non_null(node->in[1]->constant);
    for (int i = 0; i < 5 * 7; i++)
        assert_true(((const float *)node->in[1]->constant->tensor.data)[i] ==
                    (i % 7 <= i / 7 ? 0.0F : -INFINITY));
    graph_destroy(w.graph);
}

static void operands_that_do_not_fit_are_refused(void **state)
{
    static const struct {
        size_t rank;
        int64_t k[4], v[4];
        const char *why;
    } cases[] = {
        {4, {2, 3, 7, 9}, {2, 3, 7, 6}, "do not fit"},
        {4, {2, 2, 7, 8}, {2, 2, 7, 6}, "do not fit"},
        {4, {2, 3, 7, 8}, {2, 3, 6, 6}, "do not fit"},
        {4, {2, 3, 0, 8}, {2, 3, 0, 6}, "no keys"},
        {3, {2, 7, 8}, {2, 7, 8}, "rank"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w = {.graph = graph_create()};
        struct error err;

        (void)feed(&w, DIMS(2, 3, 5, 8));
        (void)feed(&w, cases[i].rank, cases[i].k);
        (void)feed(&w, cases[i].rank, cases[i].v);
        (void)begin(&w, "Attention");
        assert_int_equal(graph_infer_node(w.graph, w.node, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, cases[i].why));
        graph_destroy(w.graph);
    }
}

static void pairs_of_columns_are_turned(void **state)
{
    (void)state;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        struct world w = {.graph = graph_create()};
        struct node *node;

        (void)feed(&w, DIMS(2, 5, 3 * 8));
        (void)feed(&w, DIMS(2, 5, 3));
        (void)feed(&w, DIMS(2, 5, 3));
        node = begin(&w, "RotaryEmbedding");
        assert_true(node_set_int(node, "num_heads", 3));
        assert_true(node_set_int(node, "rotary_embedding_dim", 6));
        assert_true(node_set_int(node, "interleaved", interleaved));
        spell_out(&w, &pass_spell_rotary);
        assert_shape(&w, DIMS(2, 5, 3 * 8));
        assert_int_equal(count_ops(w.graph, "Mul"), 4);
        assert_int_equal(count_ops(w.graph, "Concat"), 2);
        graph_destroy(w.graph);
    }
}

static void caches_and_columns_that_do_not_fit_are_refused(void **state)
{
    static const int64_t turned[] = {5, 10, -2};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct world w = {.graph = graph_create()};
        struct error err;

        (void)feed(&w, DIMS(2, 3, 5, 8));
        (void)feed(&w, DIMS(2, 5, i == 3 ? 3 : 4));
        (void)feed(&w, DIMS(2, 5, 4));
        (void)begin(&w, "RotaryEmbedding");
        if (i < 3)
            assert_true(node_set_int(w.node, "rotary_embedding_dim", turned[i]));
        assert_int_equal(graph_infer_node(w.graph, w.node, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, i < 3 ? "columns to turn" : "cache"));
        graph_destroy(w.graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_four_dimensions_need_no_movement),
        cmocka_unit_test(shared_heads_that_lie_by_rows_have_a_dimension_of_their_own),
        cmocka_unit_test(operands_that_do_not_fit_are_refused),
        cmocka_unit_test(pairs_of_columns_are_turned),
        cmocka_unit_test(caches_and_columns_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
