/* Quantised networks on the simulated device: steps on bytes, and the CPU's answers to the bit. */
#include "answer.h"

#include "graph/match.h"

enum { SIDE = 9, CHANNELS = 16, OUTPUTS = 24, WIDE = 128, IMAGE = CHANNELS * SIDE * SIDE };

static struct value *number(struct graph *graph, float scale)
{
    struct value *value = make_floats(graph, SHAPE(), 1);

    ((float *)(uintptr_t)value->constant->tensor.data)[0] = scale;
    return value;
}

static struct value *bytes(struct graph *graph, enum dtype dtype, struct shape shape, uint32_t seed)
{
    struct constant *constant = constant_allocate(dtype, &shape);
    uint8_t *data;

    assert_non_null(constant);
    data = (uint8_t *)(uintptr_t)constant->tensor.data;
    for (int64_t i = 0; i < shape_count(&shape); i++) {
        seed = seed * 1664525U + 1013904223U;
        data[i] = (uint8_t)(seed >> 24);
    }
    return graph_add_constant(graph, "", constant);
}

static struct value *zero(struct graph *graph, enum dtype dtype, uint8_t byte)
{
    struct value *value = bytes(graph, dtype, SHAPE(), 1);

    *(uint8_t *)(uintptr_t)value->constant->tensor.data = byte;
    return value;
}

/* To bytes and back, which is where passes find steps on bytes. */
static struct value *through(struct graph *graph, struct value *x, enum dtype dtype, float scale,
                             uint8_t at)
{
    struct value *q =
        APPLY(graph, "QuantizeLinear", x, number(graph, scale), zero(graph, dtype, at));

    return APPLY(graph, "DequantizeLinear", q, number(graph, scale), zero(graph, dtype, at));
}

static struct value *weights(struct graph *graph, enum dtype dtype, struct shape shape,
                             uint32_t seed)
{
    return APPLY(graph, "DequantizeLinear", bytes(graph, dtype, shape, seed), number(graph, 0.01F),
                 zero(graph, dtype, dtype == DTYPE_UINT8 ? 121 : 0));
}

static struct value *convolved(struct graph *graph, struct value *x, enum dtype dtype,
                               struct shape w, int64_t pad, int64_t group, uint32_t seed)
{
    static const int64_t none[] = {0, 0, 0, 0}, one[] = {1, 1, 1, 1};
    struct node *node = NODE(graph, "Conv", x, weights(graph, dtype, w, seed));

    set_attr_int(node, "group", group);
    *(struct ints *)node_attr(node, "pads") = (struct ints){4, pad != 0 ? one : none};
    return node->out[0];
}

/* All kinds of steps on bytes: plain, wide and depthwise convolutions, one of them with a ReLU, a
 * residual, a table, a pool, an average and a product. */
static struct graph *make_quantised(enum dtype x_type, enum dtype w_type)
{
    const uint8_t at = x_type == DTYPE_UINT8 ? 128 : 3;
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(ROWS, CHANNELS, SIDE, SIDE));
    struct value *a = through(graph, x, x_type, 0.02F, at), *b, *y;

    a = convolved(graph, a, w_type, SHAPE(CHANNELS, CHANNELS, 3, 3), 1, 1, 5);
    a = through(graph, APPLY(graph, "Relu", a), x_type, 0.05F, at);
    b = convolved(graph, a, w_type, SHAPE(CHANNELS, 1, 3, 3), 1, CHANNELS, 6);
    b = through(graph, b, x_type, 0.1F, at);
    b = convolved(graph, b, w_type, SHAPE(CHANNELS, CHANNELS, 1, 1), 0, 1, 7);
    b = through(graph, b, x_type, 0.2F, at);
    b = through(graph, APPLY(graph, "Add", a, b), x_type, 0.2F, at);
    b = through(graph, APPLY(graph, "Sigmoid", b), x_type, 0.01F, 0);
    b = through(graph, APPLY(graph, "GlobalAveragePool", b), x_type, 0.01F, 0);
    b = through(graph, APPLY(graph, "Reshape", b, INTS(graph, ROWS, CHANNELS)), x_type, 0.01F, 0);
    y = APPLY(graph, "MatMul", b, weights(graph, w_type, SHAPE(CHANNELS, OUTPUTS), 8));
    y = through(graph, y, x_type, 0.05F, at);
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void expect_step(const char *text, const char *words)
{
    if (strstr(text, words) == NULL)
        fail_msg("the plan has no '%s':\n%s", words, text);
}

static void a_quantised_network_runs_in_bytes_with_the_answers_of_the_cpu(void **state)
{
    const struct shape shape = SHAPE(ROWS, CHANNELS, SIDE, SIDE);
    float in[ROWS * IMAGE], out[MANY], wanted[MANY];

    (void)state;
    for (size_t i = 0; i < ROWS * IMAGE; i++)
        in[i] = (float)(i * 37 % 101) / 40 - 1;
    for (int code = 0; code < 4; code++) {
        const enum dtype x = code & 1 ? DTYPE_INT8 : DTYPE_UINT8;
        const enum dtype w = code & 2 ? DTYPE_INT8 : DTYPE_UINT8;
        char *text = NULL, *ignored = NULL;
        size_t count = answer("cpu", "strict", make_quantised(x, w), in, ROWS * IMAGE, &shape,
                              wanted, &ignored);

        assert_int_equal(
            answer("cuda", "strict", make_quantised(x, w), in, ROWS * IMAGE, &shape, out, &text),
            count);
        if (strstr(text, "cpu:") != NULL)
            fail_msg("something runs on the host:\n%s", text);
        expect_step(text, "QLinearConv");
        expect_step(text, "QLinearMatMul");
        expect_step(text, "QLinearAdd");
        expect_step(text, "ByteTable");
        expect_step(text, "QLinearGlobalAveragePool");
        expect_step(text, "cuda:cublaslt");
        expect_step(text, "int8 algo");
        assert_true(largest(wanted, count) > 0);
        for (size_t i = 0; i < count; i++)
            if (memcmp(&out[i], &wanted[i], sizeof(float)) != 0)
                fail_msg("element %zu is %g, the CPU says %g:\n%s", i, (double)out[i],
                         (double)wanted[i], text);
        free(text);
        free(ignored);
    }
}

/* With channels last, by the image around it. */
static struct graph *make_deep(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(1, CHANNELS, SIDE, SIDE));
    struct value *a = through(graph, x, DTYPE_INT8, 0.02F, 0);

    a = convolved(graph, a, DTYPE_INT8, SHAPE(WIDE, CHANNELS, 3, 3), 1, 1, 5);
    a = through(graph, APPLY(graph, "Relu", a), DTYPE_INT8, 0.05F, 0);
    a = convolved(graph, a, DTYPE_INT8, SHAPE(WIDE, 1, 3, 3), 1, WIDE, 6);
    a = through(graph, APPLY(graph, "Relu", a), DTYPE_INT8, 0.1F, 0);
    a = convolved(graph, a, DTYPE_INT8, SHAPE(CHANNELS, WIDE, 3, 3), 1, 1, 7);
    a = through(graph, a, DTYPE_INT8, 2, 0);
    set_borders(graph, 1, &x, 1, &a);
    return graph;
}

/* A warp that reads one byte of each of 32 places takes 32 sectors of 32 bytes for it. */
static void depthwise_convolutions_read_bytes_that_lie_side_by_side(void **state)
{
    const struct shape shape = SHAPE(1, CHANNELS, SIDE, SIDE);
    float in[IMAGE], out[MANY], wanted[MANY];
    char *text = NULL, *ignored = NULL;
    uint64_t accesses, sectors;
    size_t count;

    (void)state;
    for (size_t i = 0; i < IMAGE; i++)
        in[i] = (float)(i * 37 % 101) / 40 - 1;
    count = answer("cpu", "strict", make_deep(), in, IMAGE, &shape, wanted, &ignored);
    sim_watch_sectors("quantized_thin_kernel");
    assert_int_equal(answer("cuda", "strict", make_deep(), in, IMAGE, &shape, out, &text), count);
    sectors = sim_sectors(&accesses);
    sim_watch_sectors(NULL);
    expect_step(text, "cuda:integers");
    assert_memory_equal(out, wanted, count * sizeof(float));
    assert_true(accesses > 0);
    print_message("%.2f sectors of 32 bytes an access of a warp\n",
                  (double)sectors / (double)accesses);
    assert_true(sectors < 8 * accesses);
    free(text);
    free(ignored);
}

/* Convolutions that are worth turning an image for. */
static struct graph *make_wide(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(1, CHANNELS, SIDE, SIDE));
    struct value *a = through(graph, x, DTYPE_INT8, 0.02F, 0);

    a = convolved(graph, a, DTYPE_INT8, SHAPE(WIDE, CHANNELS, 3, 3), 1, 1, 5);
    a = through(graph, APPLY(graph, "Relu", a), DTYPE_INT8, 0.05F, 0);
    a = convolved(graph, a, DTYPE_INT8, SHAPE(WIDE, WIDE, 1, 1), 0, 1, 6);
    a = through(graph, APPLY(graph, "Relu", a), DTYPE_INT8, 0.3F, 0);
    a = convolved(graph, a, DTYPE_INT8, SHAPE(CHANNELS, WIDE, 3, 3), 1, 1, 7);
    a = through(graph, a, DTYPE_INT8, 2, 0);
    set_borders(graph, 1, &x, 1, &a);
    return graph;
}

static void wide_convolutions_of_bytes_have_their_channels_last(void **state)
{
    const struct shape shape = SHAPE(1, CHANNELS, SIDE, SIDE);
    float in[IMAGE], out[MANY], wanted[MANY];
    char *text = NULL, *ignored = NULL;
    size_t count;

    (void)state;
    for (size_t i = 0; i < IMAGE; i++)
        in[i] = (float)(i * 37 % 101) / 40 - 1;
    count = answer("cpu", "strict", make_wide(), in, IMAGE, &shape, wanted, &ignored);
    assert_int_equal(answer("cuda", "strict", make_wide(), in, IMAGE, &shape, out, &text), count);
    expect_step(text, "nhwc");
    expect_step(text, "Reorder");
    assert_true(largest(wanted, count) > 0);
    assert_memory_equal(out, wanted, count * sizeof(float));
    free(text);
    free(ignored);
}

/* MatMulInteger of numbers that are quantised as they come, scaled to floats. */
static struct graph *make_dynamic(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(ROWS, WIDTH));
    struct node *quantize =
        graph_add_node(graph, NULL, op_find("", "DynamicQuantizeLinear"), "dynamic", 1, 3);
    struct value *product, *cast, *y;

    node_set_input(quantize, 0, x);
    for (size_t i = 0; i < 3; i++)
        node_set_output(quantize, i, graph_add_value(graph, ""));
    product = APPLY(graph, "MatMulInteger", quantize->out[0],
                    bytes(graph, DTYPE_INT8, SHAPE(WIDTH, HIDDEN), 3), quantize->out[2],
                    zero(graph, DTYPE_INT8, 0));
    cast = APPLY(graph, "Cast", product);
    set_attr_int(cast->producer, "to", DTYPE_FLOAT);
    y = APPLY(graph, "Mul", cast,
              APPLY(graph, "Mul", quantize->out[1], make_floats(graph, SHAPE(HIDDEN), 4)));
    y = APPLY(graph, "Add", y, make_floats(graph, SHAPE(HIDDEN), 5));
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static void numbers_quantised_as_they_come_are_multiplied_in_bytes(void **state)
{
    const struct shape shape = SHAPE(ROWS, WIDTH);
    float in[ROWS * WIDTH], out[MANY], wanted[MANY];
    char *text = NULL, *ignored = NULL;
    size_t count;

    (void)state;
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        in[i] = (float)(i * 37 % 101) / 40 - 1;
    count = answer("cpu", "strict", make_dynamic(), in, ROWS * WIDTH, &shape, wanted, &ignored);
    assert_int_equal(answer("cuda", "strict", make_dynamic(), in, ROWS * WIDTH, &shape, out, &text),
                     count);
    expect_step(text, "MatMulIntegerToFloat");
    expect_step(text, "int8 algo");
    assert_memory_equal(out, wanted, count * sizeof(float));
    free(text);
    free(ignored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depthwise_convolutions_read_bytes_that_lie_side_by_side),
        cmocka_unit_test(a_quantised_network_runs_in_bytes_with_the_answers_of_the_cpu),
        cmocka_unit_test(wide_convolutions_of_bytes_have_their_channels_last),
        cmocka_unit_test(numbers_quantised_as_they_come_are_multiplied_in_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
