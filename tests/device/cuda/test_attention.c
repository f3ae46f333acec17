/* Attention spelled out on the simulated device: one step in float32, and with a mask in 16 bits.
 */
#include "answer.h"

#include <float.h>

#include "graph/match.h"

enum { TOKENS = 10, HEADS = 2, DEPTH = 8, FEATURES = HEADS * DEPTH, INPUT = TOKENS * FEATURES };

/* [rows, tokens, features] to [rows, heads, tokens, depth], or with the last two turned. */
static struct value *divided(struct graph *graph, struct value *x, bool turned)
{
    static const int64_t by_heads[] = {0, 2, 1, 3}, by_depth[] = {0, 2, 3, 1};
    struct value *h = APPLY(graph, "Reshape", x, INTS(graph, 0, TOKENS, HEADS, DEPTH));
    struct node *node = NODE(graph, "Transpose", h);

    *(struct ints *)node_attr(node, "perm") = (struct ints){4, turned ? by_depth : by_heads};
    return node->out[0];
}

/* As exporters write it: heads divided, scores scaled and masked, heads put together again. */
static struct graph *make_attention(int64_t rows)
{
    static const int64_t by_tokens[] = {0, 2, 1, 3};
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(rows, TOKENS, FEATURES));
    struct value *mask = make_floats(graph, SHAPE(1, 1, 1, TOKENS), 5), *projected[3], *h;
    struct node *node;

    ((float *)(uintptr_t)mask->constant->tensor.data)[TOKENS - 1] = -3.4e38F;
    for (unsigned i = 0; i < 3; i++)
        projected[i] =
            APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(FEATURES, FEATURES), i + 1));
    h = APPLY(graph, "MatMul", divided(graph, projected[0], false),
              divided(graph, projected[1], true));
    h = APPLY(graph, "Add", APPLY(graph, "Mul", h, make_floats(graph, SHAPE(), 4)), mask);
    h = APPLY(graph, "MatMul", APPLY(graph, "Softmax", h), divided(graph, projected[2], false));
    node = NODE(graph, "Transpose", h);
    *(struct ints *)node_attr(node, "perm") = (struct ints){4, by_tokens};
    h = APPLY(graph, "Reshape", node->out[0], INTS(graph, 0, TOKENS, FEATURES));
    set_borders(graph, 1, &x, 1, &h);
    return graph;
}

static void fill(float *in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        in[i] = (float)(i * 31 % 97) / 48 - 1;
}

/* The mask is -3.4e38 somewhere, which float16 cannot hold. */
static const struct way {
    const char *precision, *kernel;
    float slack;
} ways[] = {{"strict", "cuda:blocked", 2e-6F},
            {"fp16", "cuda:tensor", 4e-3F},
            {"bf16", "cuda:tensor", 3e-2F}};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* In all precisions one step of the device, with `note`, and the CPU's answer. */
static void assert_one_step(struct graph *(*make)(int64_t rows), const char *note)
{
    const struct shape shape = SHAPE(ROWS, TOKENS, FEATURES);
    float in[ROWS * INPUT], out[MANY], wanted[MANY];
    char *text = NULL;
    size_t count;

    fill(in, ROWS * INPUT);
    count = answer("cpu", "strict", make(ROWS), in, ROWS * INPUT, &shape, wanted, &text);
    free(text);
    for (size_t w = 0; w < WAYS; w++) {
        assert_int_equal(
            answer("cuda", ways[w].precision, make(ROWS), in, ROWS * INPUT, &shape, out, &text),
            count);
        if (strstr(text, ways[w].kernel) == NULL || strstr(text, "Softmax") != NULL ||
            strstr(text, "cpu:") != NULL || strstr(text, note) == NULL)
            fail_msg("in %s it is not one step of the device:\n%s", ways[w].precision, text);
        for (size_t i = 0; i < count; i++)
            if (!(fabsf(out[i] - wanted[i]) <= ways[w].slack * largest(wanted, count)))
                fail_msg("%s: element %zu is %g, the CPU says %g", ways[w].precision, i,
                         (double)out[i], (double)wanted[i]);
        free(text);
    }
    assert_nothing_left();
}

static void it_is_one_step_that_answers_what_the_cpu_does(void **state)
{
    (void)state;
    assert_one_step(make_attention, "64 queries");
}

/* Where(true below the diagonal, scores, the least float), as exporters write a causal mask. */
static struct graph *make_chosen(int64_t rows, bool causal)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(rows, TOKENS, FEATURES));
    const struct shape square = SHAPE(1, 1, TOKENS, TOKENS);
    struct constant *sees = constant_allocate(DTYPE_BOOL, &square);
    struct value *fill_value = make_floats(graph, SHAPE(), 5), *h;
    static const int64_t by_tokens[] = {0, 2, 1, 3};
    struct value *projected[3];
    struct node *node;

    *(float *)(uintptr_t)fill_value->constant->tensor.data = -FLT_MAX;
    for (int i = 0; i < TOKENS * TOKENS; i++)
        ((bool *)(uintptr_t)sees->tensor.data)[i] =
            causal ? i % TOKENS <= i / TOKENS : i % 3 != 0 || i % TOKENS == 1;
    for (unsigned i = 0; i < 3; i++)
        projected[i] =
            APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(FEATURES, FEATURES), i + 1));
    h = APPLY(graph, "MatMul", divided(graph, projected[0], false),
              divided(graph, projected[1], true));
    h = APPLY(graph, "Where", graph_add_constant(graph, "", sees), h, fill_value);
    h = APPLY(graph, "MatMul", APPLY(graph, "Softmax", h), divided(graph, projected[2], false));
    node = NODE(graph, "Transpose", h);
    *(struct ints *)node_attr(node, "perm") = (struct ints){4, by_tokens};
    h = APPLY(graph, "Reshape", node->out[0], INTS(graph, 0, TOKENS, FEATURES));
    set_borders(graph, 1, &x, 1, &h);
    return graph;
}

static struct graph *make_chosen_anyhow(int64_t rows)
{
    return make_chosen(rows, false);
}

static struct graph *make_chosen_triangle(int64_t rows)
{
    return make_chosen(rows, true);
}

static void scores_that_a_boolean_mask_chooses_are_one_step(void **state)
{
    (void)state;
    assert_one_step(make_chosen_anyhow, "64 queries");
    assert_one_step(make_chosen_triangle, ", causal");
}

/* The operator of ONNX, causal; heads of keys and values are shared by two. */
static struct graph *make_operator(int64_t rows)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(rows, TOKENS, FEATURES)), *in[3];
    struct node *node;

    for (unsigned i = 0; i < 3; i++)
        in[i] = APPLY(graph, "MatMul", x,
                      make_floats(graph, SHAPE(FEATURES, i == 0 ? FEATURES : DEPTH), i + 1));
    node = NODE(graph, "Attention", in[0], in[1], in[2]);
    set_attr_int(node, "is_causal", 1);
    set_attr_int(node, "q_num_heads", HEADS);
    set_attr_int(node, "kv_num_heads", 1);
    set_borders(graph, 1, &x, 1, &node->out[0]);
    return graph;
}

static void the_operator_of_onnx_is_one_step(void **state)
{
    (void)state;
    assert_one_step(make_operator, ", causal");
}

static void products_of_tf32_stay_apart(void **state)
{
    const struct shape shape = SHAPE(1, TOKENS, FEATURES);
    float in[INPUT], out[MANY];
    char *text = NULL;

    (void)state;
    fill(in, INPUT);
    (void)answer("cuda", "tf32", make_attention(1), in, INPUT, &shape, out, &text);
    if (strstr(text, "Softmax") == NULL || strstr(text, "Attention") != NULL)
        fail_msg("it is one step:\n%s", text);
    free(text);
    assert_nothing_left();
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    const struct shape shapes[] = {SHAPE(1, TOKENS, FEATURES), SHAPE(ROWS, TOKENS, FEATURES)};
    float in[ROWS * INPUT], answers[2][MANY];

    (void)state;
    fill(in, ROWS * INPUT);
    for (size_t w = 0; w < WAYS; w++) {
        for (size_t i = 0; i < 2; i++) {
            const int64_t rows = shapes[i].dims[0];
            char *text = NULL;

            (void)answer("cuda", ways[w].precision, make_attention(rows), in, (size_t)rows * INPUT,
                         &shapes[i], answers[i], &text);
            free(text);
        }
        assert_memory_equal(answers[0], answers[1], INPUT * sizeof(float));
    }
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_is_one_step_that_answers_what_the_cpu_does, clean_slate),
        cmocka_unit_test_setup(scores_that_a_boolean_mask_chooses_are_one_step, clean_slate),
        cmocka_unit_test_setup(the_operator_of_onnx_is_one_step, clean_slate),
        cmocka_unit_test_setup(products_of_tf32_stay_apart, clean_slate),
        cmocka_unit_test_setup(a_row_has_the_same_bits_in_any_batch, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
