/* Attention spelled out, and what only looks like it: before and after. */
#include "graph/match.h"
#include "maker.h"
#include "ops/attention.h"
#include "ops/matmul.h"
#include "support/unit.h"

#define DIMS(...)                                                                                  \
    sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[])                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

enum { BATCH = 2, ROWS = 5, HEADS = 3, SIZE = 4 };

/* What exporters write, piece by piece, so that a test may change one. */
struct spelled {
    struct graph *graph;
    struct value *x[3], *mask, *heads[3], *scores, *softmax, *product, *result;
};

static struct value *step(struct spelled *s, const char *op, struct value *a, struct value *b)
{
    struct value *out = make(s->graph, op, a, b, NULL);

    assert_ok(graph_infer_node(s->graph, out->producer, NULL));
    return out;
}

static struct value *turn(struct spelled *s, struct value *value, const int64_t *perm)
{
    struct value *out = make(s->graph, "Transpose", value, NULL, NULL);

    make_perm(s->graph, out, 4, perm);
    assert_ok(graph_infer_node(s->graph, out->producer, NULL));
    return out;
}

static const int64_t by_heads[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};

static void begin(struct spelled *s)
{
    static const char *const names[] = {"q", "k", "v"};

    s->graph = graph_create();
    for (int i = 0; i < 3; i++) {
        s->x[i] = make_input(s->graph, names[i], DIMS(BATCH, ROWS, HEADS, SIZE));
        s->heads[i] = turn(s, s->x[i], i == 1 ? turned : by_heads);
    }
    s->mask = make_input(s->graph, "mask", DIMS(BATCH, 1, 1, ROWS));
    s->scores = step(s, "MatMul", s->heads[0], s->heads[1]);
}

static void end(struct spelled *s)
{
    s->softmax = step(s, "Softmax", s->scores, NULL);
    s->product = step(s, "MatMul", s->softmax, s->heads[2]);
    s->result = turn(s, s->product, by_heads);
}

/* A device with a kernel for float16 in eights. */
static bool takes(void *arg, const struct attention_attrs *attrs, enum dtype dtype,
                  const struct shape *const *shapes)
{
    (void)arg, (void)attrs;
    return dtype == DTYPE_FLOAT16 && shapes[ATTENTION_Q]->rank == 4;
}

static void run_on(struct spelled *s, struct value *out, bool wanted)
{
    const struct pass_context context = {.fuses_attention = wanted,
                                         .takes_attention = wanted ? takes : NULL};
    struct value *in[] = {s->x[0], s->x[1], s->x[2], s->mask};

    out->name = "y";
    assert_ok(graph_set_inputs(s->graph, 4, in));
    assert_ok(graph_set_outputs(s->graph, 1, &out));
    assert_ok(pass_fuse_attention.run(s->graph, &context, NULL));
    graph_remove_dead(s->graph);
    assert_valid(s->graph);
}

static void assert_axes(const struct attention_axes *axes, int a, int b, int c, int d)
{
    assert_int_equal(axes->axis[0], a);
    assert_int_equal(axes->axis[1], b);
    assert_int_equal(axes->axis[2], c);
    assert_int_equal(axes->axis[3], d);
}

static void attention_becomes_one_step(void **state)
{
    struct spelled s;
    const struct attention_attrs *attrs;
    struct node *node;

    (void)state;
    begin(&s);
    ((struct matmul_attrs *)s.scores->producer->attrs)->has_scale = true;
    ((struct matmul_attrs *)s.scores->producer->attrs)->scale = 0.5f;
    s.scores = step(&s, "Add", s.mask, s.scores);
    end(&s);
    run_on(&s, s.result, true);
    assert_int_equal(count_ops(s.graph, NULL), 1);
    node = find_op(s.graph, "Attention");
    assert_non_null(node);
    assert_int_equal(node->inputs, 4);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(node->in[i], s.x[i]);
    assert_ptr_equal(node->in[ATTENTION_MASK], s.mask);
    attrs = node->attrs;
    assert_true(attrs->scale == 0.5f);
    assert_axes(&attrs->q, 0, 2, 1, 3);
    assert_axes(&attrs->k, 0, 2, 1, 3);
    assert_axes(&attrs->v, 0, 2, 1, 3);
    assert_axes(&attrs->out, 0, 2, 1, 3);
    assert_ok(graph_infer_node(s.graph, node, NULL));
    assert_int_equal(node->out[0]->shape.dims[1], ROWS);
    graph_destroy(s.graph);
}

static void two_masks_are_taken_in(void **state)
{
    struct spelled s;
    struct value *other;
    struct node *node;

    (void)state;
    begin(&s);
    other = make_constant(s.graph, DTYPE_FLOAT, DIMS(HEADS, ROWS, ROWS), NULL);
    s.scores = step(&s, "Add", step(&s, "Add", s.scores, other), s.mask);
    end(&s);
    run_on(&s, s.result, true);
    node = find_op(s.graph, "Attention");
    assert_non_null(node);
    assert_int_equal(node->inputs, 5);
    graph_destroy(s.graph);
}

static void a_device_without_a_kernel_for_it_keeps_the_nodes(void **state)
{
    struct spelled s;

    (void)state;
    begin(&s);
    end(&s);
    run_on(&s, s.result, false);
    assert_null(find_op(s.graph, "Attention"));
    graph_destroy(s.graph);
}

static void a_transposition_that_divides_rows_stays_behind(void **state)
{
    struct spelled s;

    (void)state;
    begin(&s);
    end(&s);
    run_on(&s, turn(&s, s.product, (const int64_t[]){0, 1, 3, 2}), true);
    assert_int_equal(count_ops(s.graph, "Attention"), 1);
    assert_int_equal(count_ops(s.graph, "Transpose"), 1);
    graph_destroy(s.graph);
}

static void a_transposed_value_that_others_read_is_read_as_it_is(void **state)
{
    struct spelled s;
    struct value *out;
    struct node *node;

    (void)state;
    begin(&s);
    end(&s);
    out = step(&s, "Add", s.product, s.heads[2]);
    run_on(&s, out, true);
    node = find_op(s.graph, "Attention");
    assert_non_null(node);
    assert_ptr_equal(node->in[ATTENTION_V], s.heads[2]);
    assert_axes(&((const struct attention_attrs *)node->attrs)->v, 0, 1, 2, 3);
    assert_axes(&((const struct attention_attrs *)node->attrs)->out, 0, 1, 2, 3);
    graph_destroy(s.graph);
}

static void weights_that_others_read_stay(void **state)
{
    struct spelled s;

    (void)state;
    begin(&s);
    end(&s);
    run_on(&s, step(&s, "MatMul", s.softmax, s.product), true);
    assert_null(find_op(s.graph, "Attention"));
    graph_destroy(s.graph);
}

static struct value *cast(struct spelled *s, struct value *value, enum dtype to)
{
    struct value *out = make(s->graph, "Cast", value, NULL, NULL);

    assert_true(node_set_int(out->producer, "to", to));
    assert_ok(graph_infer_node(s->graph, out->producer, NULL));
    return out;
}

/* As a float32 model becomes in float16, with a mask that this cannot hold; `stops_at` 1, 2:
 * another reads what the first Cast makes, or the softmax. */
static struct node *narrow_attention(struct spelled *s, int stops_at)
{
    static const char *const names[] = {"q", "k", "v"};
    struct value *scores, *product;

    s->graph = graph_create();
    for (int i = 0; i < 3; i++) {
        s->x[i] = make_input(s->graph, names[i], DIMS(BATCH, ROWS, HEADS, SIZE));
        s->x[i]->dtype = DTYPE_FLOAT16;
        s->heads[i] = turn(s, s->x[i], i == 1 ? turned : by_heads);
    }
    s->mask = make_input(s->graph, "mask", DIMS(BATCH, 1, 1, ROWS));
    scores = cast(s, step(s, "MatMul", s->heads[0], s->heads[1]), DTYPE_FLOAT);
    s->scores = step(s, "Add", scores, s->mask);
    s->softmax = step(s, "Softmax", s->scores, NULL);
    product = step(s, "MatMul", cast(s, s->softmax, DTYPE_FLOAT16), s->heads[2]);
    if (stops_at != 0) {
        scores = cast(s, stops_at == 1 ? scores : s->softmax, DTYPE_FLOAT16);
        product = step(s, "MatMul", scores, product);
    }
    run_on(s, product, true);
    return find_op(s->graph, "Attention");
}

static void a_softmax_in_float32_between_16_bits_is_taken_in(void **state)
{
    struct spelled s;
    const struct node *node = narrow_attention(&s, 0);

    (void)state;
    assert_non_null(node);
    assert_int_equal(node->inputs, 4);
    assert_ptr_equal(node->in[ATTENTION_Q], s.x[0]);
    assert_ptr_equal(node->in[ATTENTION_MASK], s.mask);
    assert_int_equal(node->out[0]->dtype, DTYPE_FLOAT16);
    assert_null(find_op(s.graph, "Cast"));
    graph_destroy(s.graph);
    for (int stop = 1; stop <= 2; stop++) {
        assert_null(narrow_attention(&s, stop));
        graph_destroy(s.graph);
    }
}

static void softmax_along_another_axis_stays(void **state)
{
    struct spelled s;

    (void)state;
    begin(&s);
    end(&s);
    assert_true(node_set_int(s.softmax->producer, "axis", 2));
    run_on(&s, s.result, true);
    assert_null(find_op(s.graph, "Attention"));
    graph_destroy(s.graph);
}

static void masks_that_are_not_by_key_or_that_enlarge_stay(void **state)
{
    static const int64_t shapes[][5] = {
        {1, HEADS, ROWS, 1}, {1, 1, 1, 1}, {2, BATCH, HEADS, 1, ROWS}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct spelled s;
        struct value *mask;

        begin(&s);
        mask = make_constant(s.graph, DTYPE_FLOAT, i == 2 ? 5 : 4, shapes[i], NULL);
        s.scores = step(&s, "Add", s.scores, mask);
        s.softmax = step(&s, "Softmax", s.scores, NULL);
        run_on(&s, step(&s, "MatMul", s.softmax, s.heads[2]), true);
        assert_null(find_op(s.graph, "Attention"));
        graph_destroy(s.graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_becomes_one_step),
        cmocka_unit_test(two_masks_are_taken_in),
        cmocka_unit_test(a_device_without_a_kernel_for_it_keeps_the_nodes),
        cmocka_unit_test(a_transposition_that_divides_rows_stays_behind),
        cmocka_unit_test(a_transposed_value_that_others_read_is_read_as_it_is),
        cmocka_unit_test(weights_that_others_read_stay),
        cmocka_unit_test(a_softmax_in_float32_between_16_bits_is_taken_in),
        cmocka_unit_test(softmax_along_another_axis_stays),
        cmocka_unit_test(masks_that_are_not_by_key_or_that_enlarge_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
