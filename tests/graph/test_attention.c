/* Attention spelled out, and what only looks like it: before and after. */
#include <math.h>

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

/* Whether the device takes masks that choose, and triangles, in float32 too. */
static bool chooses;

/* A device with a kernel for float16 in eights. */
static bool takes(void *arg, const struct attention_attrs *attrs, enum dtype dtype,
                  const struct shape *const *shapes)
{
    (void)arg, (void)attrs;
    return (dtype == DTYPE_FLOAT16 || chooses) && shapes[ATTENTION_Q]->rank == 4;
}

static void run_on(struct spelled *s, struct value *out, bool wanted)
{
    const struct pass_context context = {.fuses_attention = wanted,
                                         .guards_attention = wanted,
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

/* The scores of `begin` and what PyTorch writes behind a softmax that may be of nothing but -inf;
 * `differs` 1: another number than zero, 2: others read the softmax, 3: its elements where it is a
 * number. */
static struct node *guarded_attention(struct spelled *s, int differs)
{
    struct value *is_nan, *out, *other = make_constant(s->graph, DTYPE_FLOAT, DIMS(1), NULL);

    *(float *)(uintptr_t)other->constant->tensor.data = differs == 1 ? 1 : 0;
    s->softmax = step(s, "Softmax", s->scores, NULL);
    is_nan = step(s, "IsNaN", s->softmax, NULL);
    out = differs == 3 ? make(s->graph, "Where", is_nan, s->softmax, other)
                       : make(s->graph, "Where", is_nan, other, s->softmax);
    assert_ok(graph_infer_node(s->graph, out->producer, NULL));
    s->product = step(s, "MatMul", out, s->heads[2]);
    s->result = turn(s, s->product, by_heads);
    if (differs == 2)
        s->result = step(s, "MatMul", s->softmax, s->product);
    run_on(s, s->result, true);
    return find_op(s->graph, "Attention");
}

static void zeros_for_a_softmax_of_nothing_are_taken_in(void **state)
{
    struct spelled s;
    const struct node *node;

    (void)state;
    begin(&s);
    node = guarded_attention(&s, 0);
    assert_non_null(node);
    assert_true(((const struct attention_attrs *)node->attrs)->zeroes_nan);
    assert_int_equal(count_ops(s.graph, NULL), 1);
    graph_destroy(s.graph);
    for (int differs = 1; differs <= 3; differs++) {
        begin(&s);
        assert_null(guarded_attention(&s, differs));
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

/* Where(chosen, scores, fill), or the other way round. */
static struct value *choose(struct spelled *s, struct value *chosen, bool hides, float fill)
{
    struct value *number = make_number(s->graph, (double)fill);
    struct value *out =
        make(s->graph, "Where", chosen, hides ? number : s->scores, hides ? s->scores : number);

    assert_ok(graph_infer_node(s->graph, out->producer, NULL));
    return out;
}

static struct value *bits(struct spelled *s, const uint8_t *data)
{
    return make_constant(s->graph, DTYPE_BOOL, DIMS(ROWS, ROWS), data);
}

static void a_choice_of_scores_is_a_mask(void **state)
{
    (void)state;
    for (int hides = 0; hides < 2; hides++) {
        static const uint8_t data[ROWS * ROWS] = {1, 0, 1};
        const struct attention_attrs *attrs;
        struct spelled s;
        struct value *chosen;
        struct node *node;

        begin(&s);
        chosen = bits(&s, data);
        s.scores = choose(&s, chosen, hides == 1, -7);
        s.scores = step(&s, "Add", s.scores, s.mask);
        end(&s);
        chooses = true;
        run_on(&s, s.result, true);
        chooses = false;
        node = find_op(s.graph, "Attention");
        assert_non_null(node);
        assert_int_equal(count_ops(s.graph, NULL), 1);
        assert_int_equal(node->inputs, 5);
        assert_ptr_equal(node->in[ATTENTION_MASK], chosen); /* it acts first */
        assert_ptr_equal(node->in[ATTENTION_MASK_2], s.mask);
        attrs = node->attrs;
        assert_int_equal(attrs->mask[0].hides, hides == 1);
        assert_true(attrs->mask[0].fill == -7);
        assert_false(attrs->is_causal);
        assert_ok(graph_infer_node(s.graph, node, NULL));
        graph_destroy(s.graph);
    }
}

static void a_choice_stays_where_no_kernel_takes_it(void **state)
{
    static const uint8_t data[ROWS * ROWS] = {1, 0, 1};
    struct spelled s;

    (void)state;
    begin(&s);
    s.scores = choose(&s, bits(&s, data), false, -INFINITY);
    end(&s);
    run_on(&s, s.result, true);
    assert_null(find_op(s.graph, "Attention"));
    assert_int_equal(count_ops(s.graph, "Where"), 1);
    graph_destroy(s.graph);
}

/* Runs the pass over scores with a constant mask, of floats that are added where `fill` is NAN;
 * sees[row] keys are seen, in front.  Element `odd`, if there is one, is turned round. */
static void assert_causal(const int *sees, int odd, float fill, bool mask_behind, bool expected,
                          int offset)
{
    float added[ROWS * ROWS];
    uint8_t kept[ROWS * ROWS];
    struct spelled s;
    struct node *node;
    const struct attention_attrs *attrs;

    for (int i = 0; i < ROWS * ROWS; i++) {
        kept[i] = (i % ROWS < sees[i / ROWS]) != (i == odd);
        added[i] = kept[i] ? 0 : -INFINITY;
    }
    begin(&s);
    s.scores = isnan(fill)
                   ? step(&s, "Add", s.scores,
                          make_constant(s.graph, DTYPE_FLOAT, DIMS(1, 1, ROWS, ROWS), added))
                   : choose(&s, bits(&s, kept), false, fill);
    if (mask_behind)
        s.scores = step(&s, "Add", s.scores, s.mask);
    end(&s);
    chooses = true;
    run_on(&s, s.result, true);
    chooses = false;
    node = find_op(s.graph, "Attention");
    assert_non_null(node);
    attrs = node->attrs;
    assert_int_equal(attrs->is_causal, expected);
    assert_int_equal(node->inputs, 3 + mask_behind + !expected);
    if (expected) {
        assert_int_equal(attrs->causal_offset, offset);
        assert_true(attrs->causal_fill == (isnan(fill) ? -INFINITY : fill));
        if (mask_behind)
            assert_ptr_equal(node->in[ATTENTION_MASK], s.mask);
    }
    assert_ok(graph_infer_node(s.graph, node, NULL));
    graph_destroy(s.graph);
}

static void a_triangle_makes_it_causal_and_nothing_else_does(void **state)
{
    static const float fills[] = {NAN, -INFINITY, -1e9F};
    static const int square[] = {1, 2, 3, 4, 5}, before[] = {3, 4, 5, 5, 5},
                     behind[] = {0, 0, 1, 2, 3}, all[] = {5, 5, 5, 5, 5}, none[] = {0, 0, 0, 0, 0},
                     jump[] = {1, 2, 4, 5, 5}, late[] = {0, 2, 3, 4, 5}, flat[] = {2, 2, 2, 2, 2};

    (void)state;
    for (int i = 0; i < 3; i++) {
        const float fill = fills[i];

        assert_causal(square, -1, fill, false, true, 0);
        assert_causal(before, -1, fill, false, true, 2);
        assert_causal(behind, -1, fill, false, true, -2);
        assert_causal(square, -1, fill, true, i < 2, 0); /* a number that is added to counts */
        assert_causal(all, -1, fill, false, false, 0);
        assert_causal(none, -1, fill, false, false, 0);
        assert_causal(jump, -1, fill, false, false, 0);
        assert_causal(late, -1, fill, false, false, 0);
        assert_causal(flat, -1, fill, false, false, 0);
        for (int odd = 0; odd < ROWS * ROWS; odd++)
            assert_causal(square, odd, fill, false, false, 0);
    }
}

static void a_triangle_stays_a_mask_where_no_kernel_is_causal(void **state)
{
    float added[ROWS * ROWS];
    struct spelled s;
    struct node *node;

    (void)state;
    for (int i = 0; i < ROWS * ROWS; i++)
        added[i] = i % ROWS <= i / ROWS ? 0 : -INFINITY;
    begin(&s);
    s.scores =
        step(&s, "Add", s.scores, make_constant(s.graph, DTYPE_FLOAT, DIMS(ROWS, ROWS), added));
    end(&s);
    run_on(&s, s.result, true);
    node = find_op(s.graph, "Attention");
    assert_non_null(node);
    assert_int_equal(node->inputs, 4);
    assert_false(((const struct attention_attrs *)node->attrs)->is_causal);
    graph_destroy(s.graph);
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
        cmocka_unit_test(zeros_for_a_softmax_of_nothing_are_taken_in),
        cmocka_unit_test(softmax_along_another_axis_stays),
        cmocka_unit_test(masks_that_are_not_by_key_or_that_enlarge_stay),
        cmocka_unit_test(a_choice_of_scores_is_a_mask),
        cmocka_unit_test(a_choice_stays_where_no_kernel_takes_it),
        cmocka_unit_test(a_triangle_makes_it_causal_and_nothing_else_does),
        cmocka_unit_test(a_triangle_stays_a_mask_where_no_kernel_is_causal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
