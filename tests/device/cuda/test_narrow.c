/* Precision=fp16 and bf16 on the simulated device: float32 networks in a 16-bit type. */
#include "answer.h"

#include <math.h>

#include "graph/match.h"

enum { SIDE = 6, CHANNELS = 4, IMAGE = CHANNELS * SIDE * SIDE, WIDE = 2048, FEW = 24 };

/* Of the largest element: what the documentation allows (docs/cuda.md). */
static float slack_of(const char *precision)
{
    return strcmp(precision, "fp16") == 0 ? 4e-3F : 3e-2F;
}

/* ---- a step between two convolutions ---- */

typedef struct value *(*make_step)(struct graph *graph, struct value *x);

static struct graph *between(make_step step)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(ROWS, CHANNELS, SIDE, SIDE));
    struct value *h =
        APPLY(graph, "Conv", x, make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), 1));

    h = step(graph, h);
    h = APPLY(graph, "Conv", h, make_floats(graph, SHAPE(2, CHANNELS, 1, 1), 2));
    set_borders(graph, 1, &x, 1, &h);
    return graph;
}

static size_t count_casts(const char *text)
{
    size_t count = 0;

    while ((text = strstr(text, " Cast ")) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* The step runs on the device, in the type, and is as right as the type allows. */
static void step_follows(const char *name, make_step step, size_t casts, const char *precision)
{
    const struct shape shape = SHAPE(ROWS, CHANNELS, SIDE, SIDE);
    float in[ROWS * IMAGE], out[MANY], wanted[MANY], slack;
    char *text = NULL, *ignored = NULL;
    size_t count;

    for (size_t i = 0; i < ROWS * IMAGE; i++)
        in[i] = (float)(i * 31 % 97) / 48 - 1;
    count = answer("cpu", "strict", between(step), in, ROWS * IMAGE, &shape, wanted, &ignored);
    assert_int_equal(answer("cuda", precision, between(step), in, ROWS * IMAGE, &shape, out, &text),
                     count);
    if (strstr(text, "cpu:") != NULL)
        fail_msg("%s in %s runs on the host:\n%s", name, precision, text);
    if (strstr(text, strcmp(precision, "fp16") == 0 ? "float16" : "bfloat16") == NULL)
        fail_msg("the plan says nothing of %s:\n%s", precision, text);
    if (count_casts(text) != casts)
        fail_msg("%s does not follow in %s:\n%s", name, precision, text);
    slack = slack_of(precision) * largest(wanted, count);
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(out[i] - wanted[i]) <= slack))
            fail_msg("%s in %s: element %zu is %g, the CPU says %g in float32", name, precision, i,
                     (double)out[i], (double)wanted[i]);
    free(text);
    free(ignored);
}

static struct value *clip(struct graph *graph, struct value *x)
{
    return APPLY(graph, "Clip", x, make_floats(graph, SHAPE(), 3), make_floats(graph, SHAPE(), 9));
}

static struct value *affine(struct graph *graph, struct value *x)
{
    struct value *var = make_floats(graph, SHAPE(CHANNELS), 7);
    struct value *h;

    for (size_t i = 0; i < CHANNELS; i++)
        ((float *)(uintptr_t)var->constant->tensor.data)[i] = 0.25F + (float)i;
    h = APPLY(graph, "Sigmoid", x);
    return APPLY(graph, "BatchNormalization", h, make_floats(graph, SHAPE(CHANNELS), 4),
                 make_floats(graph, SHAPE(CHANNELS), 5), make_floats(graph, SHAPE(CHANNELS), 6),
                 var);
}

static struct value *layer_norm(struct graph *graph, struct value *x)
{
    return APPLY(graph, "LayerNormalization", x, make_floats(graph, SHAPE(SIDE), 4),
                 make_floats(graph, SHAPE(SIDE), 5));
}

static struct value *rms_norm(struct graph *graph, struct value *x)
{
    return APPLY(graph, "RMSNormalization", x, make_floats(graph, SHAPE(SIDE), 4));
}

static struct value *instance_norm(struct graph *graph, struct value *x)
{
    return APPLY(graph, "InstanceNormalization", x, make_floats(graph, SHAPE(CHANNELS), 4),
                 make_floats(graph, SHAPE(CHANNELS), 5));
}

static struct value *group_norm(struct graph *graph, struct value *x)
{
    struct node *node = NODE(graph, "GroupNormalization", x, make_floats(graph, SHAPE(CHANNELS), 4),
                             make_floats(graph, SHAPE(CHANNELS), 5));

    set_attr_int(node, "num_groups", 2);
    return node->out[0];
}

static struct value *pooled(struct graph *graph, struct value *x, const char *op)
{
    struct node *node = NODE(graph, op, x);
    static const int64_t sides[] = {2, 2};

    *(struct ints *)node_attr(node, "kernel_shape") = (struct ints){2, sides};
    *(struct ints *)node_attr(node, "strides") = (struct ints){2, sides};
    return node->out[0];
}

static struct value *pools(struct graph *graph, struct value *x)
{
    return APPLY(graph, "Concat", pooled(graph, x, "MaxPool"), pooled(graph, x, "AveragePool"),
                 pooled(graph, x, "MaxPool"));
}

static struct value *movements(struct graph *graph, struct value *x)
{
    struct value *h =
        APPLY(graph, "Pad", x, INTS(graph, 0, 0, 1, 1, 0, 0, 0, 0), make_floats(graph, SHAPE(), 4));

    h = APPLY(graph, "Slice", h, INTS(graph, 0), INTS(graph, SIDE), INTS(graph, 2));
    h = APPLY(graph, "Expand", h, INTS(graph, ROWS, CHANNELS, SIDE, SIDE + 1));
    h = APPLY(graph, "Gather", h, INTS(graph, 1, 2, 0));
    return APPLY(graph, "Tile", APPLY(graph, "Transpose", APPLY(graph, "Transpose", h)),
                 INTS(graph, 1, 1, 1, 2));
}

static struct value *scores(struct graph *graph, struct value *x)
{
    struct value *h = APPLY(graph, "MatMul", x, x);

    return APPLY(graph, "MatMul", APPLY(graph, "Softmax", h), x);
}

static struct value *global(struct graph *graph, struct value *x)
{
    struct value *h =
        APPLY(graph, "Add", APPLY(graph, "GlobalAveragePool", x), APPLY(graph, "GlobalMaxPool", x));

    h = APPLY(graph, "Add", h, APPLY(graph, "ReduceMean", x, INTS(graph, 2, 3)));
    return APPLY(graph, "Mul", x, h);
}

static struct value *resize(struct graph *graph, struct value *x)
{
    struct node *node =
        NODE(graph, "Resize", x, NULL, NULL, INTS(graph, ROWS, CHANNELS, 2 * SIDE, 2 * SIDE));

    return node->out[0];
}

static struct value *chosen(struct graph *graph, struct value *x)
{
    return APPLY(graph, "Where", APPLY(graph, "Greater", x, make_floats(graph, SHAPE(), 4)), x,
                 APPLY(graph, "PRelu", x, make_floats(graph, SHAPE(CHANNELS, 1, 1), 8)));
}

static struct value *activations(struct graph *graph, struct value *x)
{
    static const char *const rows[] = {
        "Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Swish", "Mish", "Gelu", "Elu",
        "Selu", "Celu",      "Tanh",    "Softsign",    "Softplus",  "Erf",   "Abs",  "Neg"};
    struct value *sum = x;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        sum = APPLY(graph,
                    i % 3 == 0   ? "Sub"
                    : i % 3 == 1 ? "Add"
                                 : "Max",
                    sum, APPLY(graph, rows[i], x));
    return APPLY(graph, "Div", sum, make_floats(graph, SHAPE(CHANNELS, 1, 1), 11));
}

static void steps_between_convolutions_are_as_right_as_the_type(void **state)
{
    static const struct {
        const char *name;
        make_step step;
        size_t casts; /* at the borders, and to what stays float32 (a comparison) */
    } rows[] = {
        {"Clip", clip, 2},
        {"BatchNormalization", affine, 2},
        {"LayerNormalization", layer_norm, 2},
        {"RMSNormalization", rms_norm, 2},
        {"InstanceNormalization", instance_norm, 2},
        {"GroupNormalization", group_norm, 2},
        {"MaxPool", pools, 2},
        {"movements", movements, 2},
        {"Softmax", scores, 2},
        {"global pools", global, 2},
        {"Resize", resize, 2},
        {"Where", chosen, 3},
        {"activations", activations, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        step_follows(rows[i].name, rows[i].step, rows[i].casts, "fp16");
        step_follows(rows[i].name, rows[i].step, rows[i].casts, "bf16");
    }
    assert_nothing_left();
}

/* ---- the network around them ---- */

static void weights_take_half_the_memory_and_plans_share_them(void **state)
{
    const struct shape one = SHAPE(1, WIDE), three = SHAPE(3, WIDE);
    uint64_t bytes[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct graph *graph = graph_create();
        struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, WIDE)), *y;
        struct run_rig rig;
        struct plan *second;

        y = APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(WIDE, WIDE), 1));
        set_borders(graph, 1, &x, 1, &y);
        open_as(&rig, "cuda", i == 0 ? "strict" : "fp16", graph, &one);
        second = make_plan(rig.network, &three);
        bytes[i] = network_resident_bytes(rig.network);
        plan_unref(second);
        run_rig_close(&rig);
    }
    assert_true(bytes[0] >= WIDE * WIDE * sizeof(float));
    assert_true(bytes[1] <= bytes[0] / 2 + ((uint64_t)2 << 20)); /* to whole pages */
    assert_nothing_left();
}

static void a_mask_that_float16_cannot_hold_hides_as_it_did(void **state)
{
    const struct shape shape = SHAPE(ROWS, WIDTH);
    float in[ROWS * WIDTH], out[MANY], wanted[MANY];
    char *text[2] = {NULL, NULL};

    (void)state;
    fill_input(in, 0);
    for (size_t i = 0; i < 2; i++) {
        struct graph *graph = graph_create();
        struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(ROWS, WIDTH));
        struct value *mask = make_floats(graph, SHAPE(HIDDEN), 1);
        struct value *h = APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(WIDTH, HIDDEN), 2));

        for (size_t k = 0; k < HIDDEN; k++) /* all of it: no row but the least of its numbers */
            ((float *)(uintptr_t)mask->constant->tensor.data)[k] = -3.4e38F;
        h = APPLY(graph, "Softmax", APPLY(graph, "Add", h, mask));
        h = APPLY(graph, "MatMul", h, make_floats(graph, SHAPE(HIDDEN, CLASSES), 3));
        set_borders(graph, 1, &x, 1, &h);
        (void)answer(i == 0 ? "cpu" : "cuda", i == 0 ? "strict" : "fp16", graph, in, ROWS * WIDTH,
                     &shape, i == 0 ? wanted : out, &text[i]);
        free(text[i]);
    }
    for (size_t i = 0; i < ROWS * CLASSES; i++)
        assert_true(fabsf(out[i] - wanted[i]) <=
                    slack_of("fp16") * largest(wanted, ROWS * CLASSES));
    assert_nothing_left();
}

static size_t count_words(const char *text, const char *words)
{
    size_t count = 0;

    for (text = strstr(text, words); text != NULL; text = strstr(text + 1, words))
        count++;
    return count;
}

/* Conv ─ Relu ─ MaxPool ─ Conv ─ Add(x) ─ Conv */
static struct graph *make_images(void)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(ROWS, CHANNELS, SIDE, SIDE));
    struct value *h =
        APPLY(graph, "Conv", x, make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), 1));
    struct value *side;
    struct node *node;
    static const int64_t threes[] = {3, 3}, ones[] = {1, 1, 1, 1};

    side = APPLY(graph, "Relu", h);
    node = NODE(graph, "MaxPool", side);
    *(struct ints *)node_attr(node, "kernel_shape") = (struct ints){2, threes};
    *(struct ints *)node_attr(node, "pads") = (struct ints){4, ones};
    h = APPLY(graph, "Conv", node->out[0], make_floats(graph, SHAPE(CHANNELS, CHANNELS, 1, 1), 3));
    h = APPLY(graph, "Conv", APPLY(graph, "Add", h, side),
              make_floats(graph, SHAPE(2, CHANNELS, 1, 1), 2));
    set_borders(graph, 1, &x, 1, &h);
    return graph;
}

static void images_lie_channels_last_between_convolutions_in_16_bits(void **state)
{
    static const struct {
        const char *precision;
        size_t last; /* steps at least; 0: none */
    } rows[] = {{"strict", 0}, {"tf32", 0}, {"fp16", 4}, {"bf16", 4}};
    const struct shape shape = SHAPE(ROWS, CHANNELS, SIDE, SIDE);
    float in[ROWS * IMAGE], out[MANY], wanted[MANY];
    char *text = NULL;
    size_t count;

    (void)state;
    for (size_t i = 0; i < ROWS * IMAGE; i++)
        in[i] = (float)(i * 31 % 97) / 48 - 1;
    count = answer("cpu", "strict", make_images(), in, ROWS * IMAGE, &shape, wanted, &text);
    free(text);
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        (void)answer("cuda", rows[k].precision, make_images(), in, ROWS * IMAGE, &shape, out,
                     &text);
        if (count_words(text, " nhwc") < rows[k].last ||
            (rows[k].last == 0 && count_words(text, " nhwc") > 0) ||
            count_words(text, " Relu ") + count_words(text, " Add ") > 0)
            fail_msg("%s:\n%s", rows[k].precision, text);
        for (size_t i = 0; i < count; i++)
            assert_true(fabsf(out[i] - wanted[i]) <= 3e-2F * largest(wanted, count));
        free(text);
    }
    assert_nothing_left();
}

/* Products of 3 and 5 columns, side by side: alone in a batch the second could lie in the result.
 */
static void parts_at_odd_places_are_copied_and_keep_their_bits(void **state)
{
    float in[ROWS * FEW], alone[MANY], together[MANY];
    const struct shape shapes[] = {SHAPE(1, FEW), SHAPE(ROWS, FEW)};

    (void)state;
    for (size_t i = 0; i < ROWS * FEW; i++)
        in[i] = (float)(i * 31 % 97) / 48 - 1;
    for (size_t i = 0; i < 2; i++) {
        struct graph *graph = graph_create();
        struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, FEW)), *y;
        struct node *node =
            NODE(graph, "Concat", APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(FEW, 3), 1)),
                 APPLY(graph, "MatMul", x, make_floats(graph, SHAPE(FEW, 5), 2)));
        char *text = NULL;

        set_attr_int(node, "axis", 1);
        y = APPLY(graph, "Softmax", node->out[0]);
        set_borders(graph, 1, &x, 1, &y);
        (void)answer("cuda", "strict", graph, in, (size_t)(i == 0 ? 1 : ROWS) * FEW, &shapes[i],
                     i == 0 ? alone : together, &text);
        if (strstr(text, "cuda:strided") == NULL)
            fail_msg("nothing is copied:\n%s", text);
        free(text);
    }
    assert_memory_equal(alone, together, 8 * sizeof(float));
    assert_nothing_left();
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    float in[ROWS * IMAGE], alone[MANY], together[MANY];
    const struct shape shapes[] = {SHAPE(1, CHANNELS, SIDE, SIDE),
                                   SHAPE(ROWS, CHANNELS, SIDE, SIDE)};

    (void)state;
    for (size_t i = 0; i < ROWS * IMAGE; i++)
        in[i] = (float)(i * 31 % 97) / 48 - 1;
    for (size_t i = 0; i < 2; i++) {
        struct graph *graph = graph_create();
        struct value *x =
            make_value(graph, "x", DTYPE_FLOAT, SHAPE(SHAPE_UNKNOWN, CHANNELS, SIDE, SIDE));
        struct value *h =
            APPLY(graph, "Conv", x, make_floats(graph, SHAPE(CHANNELS, CHANNELS, 3, 3), 1));
        char *text = NULL;

        h = APPLY(graph, "Conv", APPLY(graph, "Relu", h),
                  make_floats(graph, SHAPE(2, CHANNELS, 1, 1), 2));
        set_borders(graph, 1, &x, 1, &h);
        (void)answer("cuda", "fp16", graph, in, (i == 0 ? 1 : ROWS) * IMAGE, &shapes[i],
                     i == 0 ? alone : together, &text);
        free(text);
    }
    assert_memory_equal(alone, together, 2 * (SIDE - 2) * (SIDE - 2) * sizeof(float));
    assert_nothing_left();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(steps_between_convolutions_are_as_right_as_the_type, clean_slate),
        cmocka_unit_test_setup(weights_take_half_the_memory_and_plans_share_them, clean_slate),
        cmocka_unit_test_setup(a_mask_that_float16_cannot_hold_hides_as_it_did, clean_slate),
        cmocka_unit_test_setup(images_lie_channels_last_between_convolutions_in_16_bits,
                               clean_slate),
        cmocka_unit_test_setup(parts_at_odd_places_are_copied_and_keep_their_bits, clean_slate),
        cmocka_unit_test_setup(a_row_has_the_same_bits_in_any_batch, clean_slate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
