/* A pool that became part of the convolution before it gives the bits of both by themselves. */
#include <math.h>

#include "engine/rig.h"
#include "ops/conv.h"
#include "ops/pool.h"

enum { SIDE = 75, CHANNELS = 3, FILTERS = 20, BATCH = 3 };

static const int64_t twos[] = {2, 2}, threes[] = {3, 3}, ones[] = {1, 1, 1, 1};

/* A first layer; somebody else reads its own result too, or not: then it is none. */
static struct graph *stem(const char *pool_name, bool both, int64_t batch)
{
    struct graph *graph = graph_create();
    struct value *x = make_value(graph, "x", DTYPE_FLOAT, SHAPE(batch, CHANNELS, SIDE, SIDE)),
                 *between, *out[2];
    struct node *conv =
        NODE(graph, "Conv", x, make_floats(graph, SHAPE(FILTERS, CHANNELS, 3, 3), 7),
             make_floats(graph, SHAPE(FILTERS), 8));
    struct node *pool;

    ((struct conv_attrs *)conv->attrs)->window.strides = (struct ints){2, twos};
    between = APPLY(graph, "Relu", conv->out[0]);
    out[1] = APPLY(graph, "GlobalAveragePool", between);
    pool = NODE(graph, pool_name, between);
    ((struct pool_attrs *)pool->attrs)->window =
        (struct window_attrs){.kernel_shape = {2, threes}, .strides = {2, twos}, .pads = {4, ones}};
    out[0] = pool->out[0];
    set_borders(graph, 1, &x, both ? 2 : 1, out);
    return graph;
}

enum { POOLED = 19 }; /* cells along a side of the result */

static size_t run_stem(unsigned threads, const char *pool, bool both, int64_t batch, const float *x,
                       float *pooled)
{
    static float means[BATCH * FILTERS];
    const struct shape shape = SHAPE(batch, CHANNELS, SIDE, SIDE);
    const struct run_buffer input = {(void *)(uintptr_t)x,
                                     (size_t)shape_count(&shape) * sizeof(float)};
    struct run_buffer output[2] = {
        {pooled, (size_t)batch * FILTERS * POOLED * POOLED * sizeof(float)},
        {means, (size_t)batch * FILTERS * sizeof(float)}};
    struct shape shapes[2];
    struct error err = {.text = ""};
    struct plan_facts facts;
    struct model model;
    struct rig rig = {0};

    rig_open(&rig, "cpu", threads);
    model = make_model(&rig, stem(pool, both, batch), &shape);
    plan_read(model.plan, &facts);
    if (plan_run(model.plan,
                 &(struct run){.lane = rig.lane,
                               .arena = rig.arena,
                               .inputs = 1,
                               .in = &input,
                               .outputs = both ? 2 : 1,
                               .out = output,
                               .out_shapes = shapes},
                 &err) != STATUS_OK)
        fail_msg("%s", err.text);
    drop_model(&model);
    rig_close(&rig);
    return facts.peak_bytes;
}

static void compare(const char *pool, bool with_nan)
{
    static float x[BATCH * CHANNELS * SIDE * SIDE], apart[BATCH * FILTERS * POOLED * POOLED];
    static float joined[BATCH * FILTERS * POOLED * POOLED];
    const size_t row = CHANNELS * SIDE * SIDE, row_out = FILTERS * POOLED * POOLED;

    for (size_t i = 0; i < BATCH * row; i++)
        x[i] = (float)((i * 2654435761U) >> 16 & 1023) / 512.0F - 1.0F;
    for (size_t i = 11; with_nan && i < BATCH * row; i += 97)
        x[i] = i % 2 == 0 ? NAN : INFINITY;
    (void)run_stem(1, pool, true, BATCH, x, apart);
    for (unsigned threads = 1; threads <= 3; threads++) {
        (void)run_stem(threads, pool, false, BATCH, x, joined);
        assert_memory_equal(joined, apart, sizeof(apart));
    }
    for (size_t i = 0; i < BATCH; i++) {
        (void)run_stem(2, pool, false, 1, x + i * row, joined);
        assert_memory_equal(joined, apart + i * row_out, row_out * sizeof(float));
    }
}

static void on_each_isa(const char *pool, bool with_nan)
{
    static const char *const caps[] = {"avx512", "avx2", "baseline"};

    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        setenv("SLUICE_CPU", caps[i], 1);
        compare(pool, with_nan);
    }
    unsetenv("SLUICE_CPU");
}

static void a_joined_maximum_has_the_bits_of_two_steps(void **state)
{
    (void)state;
    on_each_isa("MaxPool", false);
}

static void a_joined_mean_has_the_bits_of_two_steps(void **state)
{
    (void)state;
    on_each_isa("AveragePool", false);
}

static void a_joined_maximum_passes_over_nan_like_two_steps(void **state)
{
    (void)state;
    on_each_isa("MaxPool", true);
}

static void what_is_pooled_at_once_is_in_no_plan(void **state)
{
    static float x[BATCH * CHANNELS * SIDE * SIDE], y[BATCH * FILTERS * POOLED * POOLED];
    size_t apart, joined;

    (void)state;
    setenv("SLUICE_CPU", "avx2", 1);
    apart = run_stem(1, "MaxPool", true, BATCH, x, y);
    joined = run_stem(1, "MaxPool", false, BATCH, x, y);
    unsetenv("SLUICE_CPU");
    assert_true(joined < apart);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_joined_maximum_has_the_bits_of_two_steps),
        cmocka_unit_test(a_joined_mean_has_the_bits_of_two_steps),
        cmocka_unit_test(a_joined_maximum_passes_over_nan_like_two_steps),
        cmocka_unit_test(what_is_pooled_at_once_is_in_no_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
