/* Blocks of a MobileNet on the CPU device: one step each has the bits of three, and a lower peak.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/rig.h"
#include "ops/conv.h"

struct form {
    int64_t batch, side, in, expanded, out, kernel, stride, dilation;
    bool clips, adds;
};

static struct value *conv(struct graph *graph, struct value *x, const int64_t dims[4],
                          int64_t groups)
{
    const uint32_t seed = (uint32_t)(dims[0] * 31 + dims[1] * 7 + dims[2]);
    struct value *w = make_floats(graph, shape_make(4, dims), seed);
    struct value *bias = make_floats(graph, shape_make(1, dims), seed + 1);
    struct node *node = NODE(graph, "Conv", x, w, bias);

    set_attr_int(node, "group", groups);
    return node->out[0];
}

static struct value *clip(struct graph *graph, const struct form *form, struct value *x)
{
    float *numbers;
    struct value *low, *high;

    if (!form->clips)
        return APPLY(graph, "HardSwish", x);
    low = make_floats(graph, shape_make(0, NULL), 1);
    high = make_floats(graph, shape_make(0, NULL), 1);
    numbers = (float *)(uintptr_t)low->constant->tensor.data;
    numbers[0] = 0;
    numbers = (float *)(uintptr_t)high->constant->tensor.data;
    numbers[0] = 6;
    return APPLY(graph, "Clip", x, low, high);
}

static struct graph *make_graph(const struct form *form)
{
    struct graph *graph = graph_create();
    struct value *x =
        make_value(graph, "x", DTYPE_FLOAT, SHAPE(form->batch, form->in, form->side, form->side));
    struct value *y = x;
    const int64_t pad = form->kernel / 2 * form->dilation, pads[] = {pad, pad, pad, pad};
    const int64_t strides[] = {form->stride, form->stride};
    const int64_t dilations[] = {form->dilation, form->dilation};
    struct conv_attrs *attrs;

    y = clip(graph, form, conv(graph, y, (int64_t[]){form->expanded, form->in, 1, 1}, 1));
    y = conv(graph, y, (int64_t[]){form->expanded, 1, form->kernel, form->kernel}, form->expanded);
    attrs = y->producer->attrs;
    attrs->window.pads = (struct ints){4, arena_copy(&graph->arena, pads, sizeof(pads))};
    attrs->window.strides = (struct ints){2, arena_copy(&graph->arena, strides, sizeof(strides))};
    attrs->window.dilations =
        (struct ints){2, arena_copy(&graph->arena, dilations, sizeof(dilations))};
    y = conv(graph, clip(graph, form, y), (int64_t[]){form->out, form->expanded, 1, 1}, 1);
    if (form->adds)
        y = APPLY(graph, "Add", y, x);
    set_borders(graph, 1, &x, 1, &y);
    return graph;
}

static size_t places(const struct form *form)
{
    return (size_t)((form->side - 1) / form->stride + 1);
}

/* The result (to be freed), in steps of their own or as one. */
static float *compute(const struct form *form, bool joins, unsigned threads, const float *x,
                      struct plan_facts *facts)
{
    const size_t in = (size_t)(form->batch * form->in * form->side * form->side);
    const size_t out = (size_t)(form->batch * form->out) * places(form) * places(form);
    const struct shape shape = SHAPE(form->batch, form->in, form->side, form->side);
    struct rig rig = {0};
    struct network *network;
    struct plan *plan;
    float *y = calloc(out, sizeof(*y));

    assert_non_null(y);
    rig_open(&rig, "cpu", threads);
    rig.device->fuses_separable = joins && rig.device->fuses_separable;
    network = make_network(&rig, make_graph(form));
    plan = make_plan(network, &shape);
    plan_read(plan, facts);
    assert_ok(run_floats(&rig, plan, x, in, y, out));
    plan_unref(plan);
    network_destroy(network);
    rig_close(&rig);
    return y;
}

static void fill(float *x, size_t count, bool specials)
{
    uint32_t seed = 12345;

    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525U + 1013904223U;
        x[i] = (float)(seed >> 8) / 8388608.0F - 1;
    }
    if (specials) {
        x[count / 3] = NAN;
        x[count / 2] = INFINITY;
        x[count - 1] = -INFINITY;
    }
}

static bool is_baseline(void)
{
    const char *isa = getenv("SLUICE_CPU");

    return isa != NULL && strcmp(isa, "baseline") == 0;
}

/* Not a number on both sides is the same: which one it is, is up to the order of operands. */
static void expect_same(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof(a[i])) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("element %zu is %a in one step, %a in three", i, (double)a[i], (double)b[i]);
}

static void expect_same_bits(const struct form *form, unsigned threads, bool specials)
{
    const size_t in = (size_t)(form->batch * form->in * form->side * form->side);
    const size_t out = (size_t)(form->batch * form->out) * places(form) * places(form);
    struct plan_facts three, one;
    float *x = calloc(in, sizeof(*x)), *apart, *joined;

    assert_non_null(x);
    fill(x, in, specials);
    apart = compute(form, false, 1, x, &three);
    joined = compute(form, true, threads, x, &one);
    expect_same(joined, apart, out);
    if (is_baseline()) {
        assert_int_equal(one.steps, three.steps);
    } else {
        assert_int_equal(one.steps + 2, three.steps);
        assert_true(one.peak_bytes < three.peak_bytes);
    }
    free(joined);
    free(apart);
    free(x);
}

static void one_step_has_the_bits_of_three(void **state)
{
    static const struct form forms[] = {
        {1, 56, 24, 96, 24, 3, 1, 1, true, true},   {2, 57, 16, 100, 24, 3, 2, 1, true, false},
        {3, 33, 40, 240, 40, 5, 1, 1, false, true}, {1, 47, 19, 120, 33, 5, 2, 1, false, false},
        {2, 41, 32, 130, 32, 3, 1, 2, true, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (unsigned threads = 1; threads <= 3; threads += 2)
            expect_same_bits(&forms[i], threads, false);
}

static void what_is_not_a_number_comes_out_where_it_did(void **state)
{
    static const struct form forms[] = {{1, 40, 24, 144, 24, 3, 1, 1, true, true},
                                        {2, 44, 18, 150, 30, 3, 2, 1, false, false}};

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        expect_same_bits(&forms[i], 1, true);
}

/* x is the residual, and rows of it are read after others were written. */
static void an_image_has_the_same_bits_in_every_batch(void **state)
{
    struct form form = {3, 45, 24, 120, 24, 3, 1, 1, true, true};
    const size_t in = (size_t)(form.in * form.side * form.side);
    const size_t out = (size_t)form.out * places(&form) * places(&form);
    struct plan_facts facts;
    float *x = calloc(3 * in, sizeof(*x)), *all, *alone;

    (void)state;
    assert_non_null(x);
    fill(x, 3 * in, false);
    all = compute(&form, true, 3, x, &facts);
    form.batch = 1;
    for (size_t i = 0; i < 3; i++) {
        alone = compute(&form, true, 2, x + i * in, &facts);
        assert_memory_equal(alone, all + i * out, out * sizeof(*alone));
        free(alone);
    }
    free(all);
    free(x);
}

static int open_as_found(void **state)
{
    (void)state;
    setenv("GOMP_SPINCOUNT", "3000", 0); /* short work is shared, whenever its turn comes */
    return 0;
}

static int open_avx2(void **state)
{
    setenv("SLUICE_CPU", "avx2", 1);
    return open_as_found(state);
}

static int open_baseline(void **state)
{
    setenv("SLUICE_CPU", "baseline", 1);
    return open_as_found(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_step_has_the_bits_of_three),
        cmocka_unit_test(what_is_not_a_number_comes_out_where_it_did),
        cmocka_unit_test(an_image_has_the_same_bits_in_every_batch),
    };

    return cmocka_run_group_tests_name("the best instruction set", tests, open_as_found, NULL) +
           cmocka_run_group_tests_name("avx2", tests, open_avx2, NULL) +
           cmocka_run_group_tests_name("baseline", tests, open_baseline, NULL);
}
