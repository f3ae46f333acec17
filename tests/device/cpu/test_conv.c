/* Convolutions of every kernel, layout and instruction set against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "device/cpu/conv_cases.h"
#include "device/cpu/cpu.h"
#include "support/cpu_cases.h"

static struct op_test make_test(const struct form *form, struct conv_attrs *attrs,
                                int64_t numbers[8])
{
    numbers[0] = numbers[1] = form->stride;
    numbers[2] = numbers[3] = numbers[4] = numbers[5] = form->pad;
    numbers[6] = numbers[7] = form->dilation;
    attrs->window.strides = (struct ints){2, numbers};
    attrs->window.pads = (struct ints){4, numbers + 2};
    attrs->window.dilations = (struct ints){2, numbers + 6};
    attrs->group = form->groups;
    return (struct op_test){
        .op = "Conv",
        .attrs = attrs,
        .inputs = 3,
        .in = {{DTYPE_FLOAT, SHAPE(form->n, form->c, form->h, form->w), .low = -1, .high = 1},
               {DTYPE_FLOAT, SHAPE(form->m, form->c / form->groups, form->k, form->k),
                .constant = true, .low = -1, .high = 1},
               {DTYPE_FLOAT, SHAPE(form->m), .constant = true}},
        .reference = reference_conv,
        .relative = 1e-5,
        .absolute = 1.5e-4,
        .rows = true,
    };
}

static void convolutions_of_odd_shapes_are_right(void **state)
{
    static const struct form forms[] = {
        {2, 3, 17, 13, 20, 3, 2, 1, 1, 1},   {1, 3, 23, 23, 16, 7, 2, 3, 1, 1},
        {3, 16, 9, 11, 32, 1, 1, 0, 1, 1},   {2, 40, 7, 7, 24, 1, 2, 0, 1, 1},
        {2, 17, 8, 9, 35, 3, 1, 1, 1, 1},    {2, 32, 14, 15, 48, 3, 1, 1, 1, 1},
        {3, 64, 7, 7, 64, 3, 1, 1, 1, 1},    {1, 64, 30, 17, 80, 3, 1, 0, 1, 1},
        {2, 16, 13, 13, 16, 3, 1, 2, 2, 1},  {2, 24, 10, 9, 24, 3, 1, 1, 1, 24},
        {1, 32, 15, 16, 32, 3, 2, 1, 1, 32}, {2, 19, 9, 9, 19, 5, 2, 2, 1, 19},
        {2, 24, 6, 7, 48, 1, 1, 0, 1, 4},    {2, 112, 7, 5, 136, 1, 1, 0, 1, 4},
        {1, 64, 9, 9, 64, 3, 1, 1, 1, 2},    {2, 12, 8, 8, 24, 3, 1, 1, 1, 3},
        {1, 32, 1, 1, 64, 3, 1, 1, 1, 1},    {1, 8, 20, 6, 1, 5, 1, 2, 1, 1},
        {2, 96, 28, 28, 32, 3, 1, 1, 1, 1},  {1, 128, 12, 12, 33, 1, 1, 0, 1, 1},
        {2, 16, 11, 12, 32, 1, 1, 0, 1, 16}, {2, 48, 11, 40, 48, 3, 1, 1, 1, 48},
        {5, 72, 5, 5, 90, 1, 1, 0, 1, 1},    {3, 200, 31, 30, 40, 1, 1, 0, 1, 1},
        {3, 130, 4, 5, 100, 3, 2, 1, 1, 1},  {9, 40, 3, 3, 24, 5, 1, 2, 1, 1},
        {2, 4, 37, 35, 20, 5, 3, 2, 1, 1},   {1, 7, 12, 50, 40, 3, 1, 2, 2, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        struct conv_attrs attrs = {0};
        int64_t numbers[8];
        struct op_test test = make_test(&forms[i], &attrs, numbers);

        op_test_run(tester, &test);
        test.inputs = 2;
        attrs.epilogue.act = ACT_RELU;
        op_test_run(tester, &test);
    }
}

static struct op_test odd_test(const struct odd_form *f, int64_t batch,
                               const struct conv_attrs *attrs)
{
    return (struct op_test){
        .op = "Conv",
        .attrs = attrs,
        .inputs = 3,
        .in = {{DTYPE_FLOAT, odd_shape(f, batch, f->c, f->in), .low = -1, .high = 1},
               {DTYPE_FLOAT, odd_shape(f, f->m, f->c / f->groups, f->kernel), .constant = true,
                .low = -1, .high = 1},
               {DTYPE_FLOAT, SHAPE(f->m), .constant = true}},
        .reference = reference_conv,
        .relative = 1e-5,
        .absolute = 3e-4,
        .rows = true,
    };
}

static void no_geometry_falls_to_reference_code(void **state)
{
    static const int64_t batches[] = {1, 3, 8};

    (void)state;
    for (size_t i = 0; i < 3 * (size_t)ODD_FORMS; i += CONV_STEP) {
        const struct odd_form *f = &odd_forms[i / 3];
        struct odd_numbers numbers;
        struct conv_attrs attrs = {.window = odd_window(f, &numbers), .group = f->groups};
        struct op_test test = odd_test(f, batches[i % 3], &attrs);

        attrs.epilogue.act = i % 2 == 0 ? ACT_NONE : ACT_RELU;
        op_test_run(tester, &test);
    }
}

/* Taps far apart: lines and columns of which each tap meets a part, or none of them anything; a tap
 * that never meets a cell, one line, windows that are not square, paddings that are not alike. */
static const struct odd_form spread_forms[] = {
    {2, 40, 35, 1, {16, 16}, {3, 3}, {1, 1}, {12, 12}, {12, 12}},
    {2, 24, 20, 1, {16, 15}, {3, 3}, {1, 1}, {24, 24}, {24, 24}},
    {2, 16, 48, 1, {9, 17}, {3, 5}, {1, 1}, {7, 3}, {7, 6}},
    {2, 19, 33, 1, {13, 40}, {5, 3}, {1, 1}, {4, 30}, {8, 30}},
    {1, 24, 40, 1, {50}, {3}, {1}, {32}, {32}},
    {1, 17, 16, 1, {64}, {5}, {1}, {24}, {48}},
    {2, 32, 32, 1, {1, 30}, {1, 3}, {1, 1}, {1, 25}, {0, 25}},
    {2, 400, 40, 1, {8, 8}, {3, 3}, {1, 1}, {6, 6}, {6, 6}}, /* a tap's weights in several chunks */
    {2, 16, 16, 1, {12, 12}, {3, 3}, {1, 1}, {9, 9}, {16, 16}}, /* places that meet no cell */
};

static void taps_that_meet_only_padding_are_left_out_rightly(void **state)
{
    enum { FORMS = sizeof(spread_forms) / sizeof(spread_forms[0]), WAYS = 4 };

    (void)state;
    for (size_t i = 0; i < FORMS * WAYS; i += CONV_STEP) {
        const struct odd_form *f = &spread_forms[i / WAYS];
        struct odd_numbers numbers;
        struct conv_attrs attrs = {.window = odd_window(f, &numbers), .group = 1};
        struct op_test test = odd_test(f, i % WAYS == 1 ? 3 : 1, &attrs);
        struct conv_geometry g;

        if (i / WAYS % 2 == 1 && f->spatial == 1) /* causal: all of it before the first cell */
            numbers.pads[0] += numbers.pads[1], numbers.pads[1] = 0;
        assert_int_equal(conv_resolve(&attrs, &test.in[0].shape, &test.in[1].shape, &g, NULL),
                         STATUS_OK);
        attrs.epilogue.act = i % WAYS == 0 ? ACT_NONE : i % WAYS == 2 ? ACT_SILU : ACT_RELU;
        attrs.epilogue.has_residual = i % WAYS >= 2;
        attrs.epilogue.residual_after = i % WAYS == 3;
        if (attrs.epilogue.has_residual) {
            test.inputs = 4;
            test.in[CONV_RESIDUAL] = (struct op_input){DTYPE_FLOAT, conv_output_shape(&g)};
        }
        op_test_run(tester, &test);
    }
}

/* Rows of one strip and of several, with edges of every kind; planes small enough to be copied. */
static const struct odd_form depthwise_forms[] = {
    {2, 16, 16, 16, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 24, 24, 24, {14, 29}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 40, 40, 40, {20, 61}, {5, 5}, {1, 1}, {1, 1}, {2, 2}},
    {2, 16, 16, 16, {13, 90}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 8, 8, 8, {21, 33}, {3, 5}, {3, 3}, {1, 1}, {1, 2}},
    {2, 32, 32, 32, {30, 17}, {3, 3}, {1, 1}, {3, 3}, {3, 3}},
    {2, 48, 48, 48, {9, 4}, {7, 7}, {1, 1}, {1, 1}, {3, 3}},  /* wider than the map */
    {2, 16, 16, 16, {6, 40}, {3, 3}, {1, 2}, {1, 1}, {0, 4}}, /* places that meet no cell */
    {2, 20, 20, 20, {4, 5}, {2, 2}, {2, 2}, {1, 1}, {0, 0}},
    {1, 32, 32, 32, {70}, {9}, {1}, {1}, {4}},
};

static void depthwise_convolutions_are_right(void **state)
{
    enum { FORMS = sizeof(depthwise_forms) / sizeof(depthwise_forms[0]) };

    (void)state;
    for (size_t i = 0; i < 4 * (size_t)FORMS; i += CONV_STEP) {
        const struct odd_form *f = &depthwise_forms[i / 4];
        struct odd_numbers numbers;
        struct conv_attrs attrs = {.window = odd_window(f, &numbers), .group = f->groups};
        struct op_test test = odd_test(f, 1 + (int64_t)i % 3, &attrs);
        struct conv_geometry g;

        assert_int_equal(conv_resolve(&attrs, &test.in[0].shape, &test.in[1].shape, &g, NULL),
                         STATUS_OK);
        attrs.epilogue.act = i % 2 == 0 ? ACT_RELU : ACT_HARD_SIGMOID;
        attrs.epilogue.a = 0.25f;
        attrs.epilogue.b = 0.5f;
        attrs.epilogue.has_residual = i % 4 > 1;
        attrs.epilogue.residual_after = i % 4 == 3;
        test.in[CONV_RESIDUAL] = (struct op_input){DTYPE_FLOAT, conv_output_shape(&g)};
        test.inputs = attrs.epilogue.has_residual ? 4 : 3;
        op_test_run(tester, &test);
    }
}

#ifndef OP_TEST_ONE_ISA
/* A channel's bias is one: in the input it would spread over Winograd's tiles. */
static void specials_are_the_formulas_behind_every_activation(void **state)
{
    static const struct odd_form forms[] = {
        {2, 16, 32, 1, {14, 15}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        {2, 16, 20, 1, {9, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
        {2, 16, 16, 1, {6, 7}, {1, 1}, {1, 1}, {1, 1}, {0, 0}},
        {2, 3, 16, 1, {12, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
        {2, 16, 2, 1, {8, 33}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        {2, 16, 16, 16, {9, 20}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        {2, 32, 32, 2, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
        {2, 12, 24, 3, {6, 6}, {1, 1}, {1, 1}, {1, 1}, {0, 0}},
        {3, 16, 16, 1, {4, 5, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    };
    static double biases[32] = {
        0.5, (double)NAN, -(double)INFINITY, (double)INFINITY, -1e30, 1e30, -87.5, -200};

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (int act = 0; act < ACT_COUNT; act++) {
            struct odd_numbers numbers;
            struct conv_attrs attrs = {.window = odd_window(&forms[i], &numbers),
                                       .group = forms[i].groups};
            struct op_test test = odd_test(&forms[i], 2, &attrs);
            attrs.epilogue.act = (enum activation)act;
            attrs.epilogue.a = 0.25f;
            attrs.epilogue.b = 0.5f;
            test.in[CONV_BIAS].values = biases;
            op_test_run(tester, &test);
        }
}
#endif

static void few_channels_are_right_in_plain_layout(void **state)
{
    enum { FORMS = sizeof(few_forms) / sizeof(few_forms[0]) };
    static const int64_t batches[] = {1, 2};

    (void)state;
    for (size_t i = 0; i < 4 * (size_t)FORMS; i += CONV_STEP) {
        const struct odd_form *f = &few_forms[i / 4];
        struct odd_numbers numbers;
        struct conv_attrs attrs = {.window = odd_window(f, &numbers), .group = f->groups};
        struct op_test test = odd_test(f, batches[i % 2], &attrs);
        struct conv_geometry g;

        assert_int_equal(conv_resolve(&attrs, &test.in[0].shape, &test.in[1].shape, &g, NULL),
                         STATUS_OK);
        attrs.epilogue.act = i % 2 == 0 ? ACT_NONE : ACT_GELU_ERF;
        attrs.epilogue.has_residual = i / 2 % 2 == 1;
        attrs.epilogue.residual_after = i % 4 == 3;
        test.in[CONV_RESIDUAL] = (struct op_input){DTYPE_FLOAT, conv_output_shape(&g)};
        test.inputs = attrs.epilogue.has_residual ? 4 : 3;
        op_test_run(tester, &test);
    }
}

static void every_activation_and_residual_is_right(void **state)
{
    static const struct form forms[] = {{2, 16, 6, 7, 20, 3, 1, 1, 1, 1},
                                        {1, 24, 8, 8, 32, 1, 1, 0, 1, 1},
                                        {2, 32, 7, 7, 32, 3, 1, 1, 1, 32},
                                        {2, 24, 5, 6, 24, 1, 1, 0, 1, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (int code = 0; code < ACT_COUNT * 3; code++) {
            struct conv_attrs attrs = {0};
            int64_t numbers[8];
            struct op_test test = make_test(&forms[i], &attrs, numbers);
            struct conv_geometry g;

            attrs.epilogue.act = (enum activation)(code / 3);
            attrs.epilogue.a = attrs.epilogue.act == ACT_CLIP ? -0.5f : 0.25f;
            attrs.epilogue.b = attrs.epilogue.act == ACT_CLIP ? 2 : 0.5f;
            attrs.epilogue.has_residual = code % 3 > 0;
            attrs.epilogue.residual_after = code % 3 == 2;
            assert_int_equal(conv_resolve(&attrs, &test.in[0].shape, &test.in[1].shape, &g, NULL),
                             STATUS_OK);
            if (attrs.epilogue.has_residual) {
                test.inputs = 4;
                test.in[CONV_RESIDUAL] = (struct op_input){DTYPE_FLOAT, conv_output_shape(&g)};
                if (code % 2 == 0)
                    test.in[CONV_BIAS].dtype = DTYPE_NONE;
            }
            op_test_run(tester, &test);
        }
}

/* What the convolution itself reads: its input normalized and clamped from below. */
static void reference_prelude(const struct op_test *test, const struct test_array *in,
                              struct test_array *out)
{
    const struct conv_attrs *attrs = test->attrs;
    const struct test_array *c = in + CONV_PRELUDE; /* scale, B, mean, var */
    const int64_t channels = in[0].shape.dims[1], count = shape_count(&in[0].shape);
    const int64_t cells = shape_product(&in[0].shape, 2, in[0].shape.rank);
    double *values = malloc((size_t)count * sizeof(*values));
    struct test_array changed[CONV_PRELUDE];

    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = i / cells % channels;
        double x = (in[0].values[i] - c[2].values[k]) * c[0].values[k] /
                       sqrt(c[3].values[k] + (double)attrs->prelude_epsilon) +
                   c[1].values[k];

        values[i] = x > (double)attrs->prelude_low ? x : (double)attrs->prelude_low;
    }
    for (size_t i = 0; i < CONV_PRELUDE; i++)
        changed[i] = in[i];
    changed[0].values = values;
    reference_conv(test, changed, out);
    free(values);
}

static void convolutions_behind_a_normalization_are_right(void **state)
{
    static const struct form forms[] = {
        {2, 40, 7, 9, 24, 1, 1, 0, 1, 1},   {3, 33, 13, 11, 50, 1, 2, 0, 1, 1},
        {2, 16, 14, 14, 16, 3, 2, 1, 1, 1}, {1, 20, 11, 12, 35, 5, 1, 2, 1, 1},
        {9, 200, 3, 3, 40, 1, 1, 0, 1, 1},  {1, 256, 40, 28, 64, 1, 1, 0, 1, 1},
    };

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++) {
        struct conv_attrs attrs = {.has_prelude = true, .prelude_epsilon = 1e-3f};
        int64_t numbers[8];
        struct op_test test = make_test(&forms[i / 2], &attrs, numbers);
        struct conv_geometry g;

        assert_int_equal(conv_resolve(&attrs, &test.in[0].shape, &test.in[1].shape, &g, NULL),
                         STATUS_OK);
        test.reference = reference_prelude;
        test.any_kernel = true; /* the baseline has none */
        test.inputs = CONV_PRELUDE + CONV_PRELUDE_INPUTS;
        for (size_t k = CONV_PRELUDE; k < test.inputs; k++)
            test.in[k] = (struct op_input){DTYPE_FLOAT, SHAPE(forms[i / 2].c), .constant = true,
                                           .low = 0.5, .high = 1.5};
        attrs.prelude_low = i % 2 == 0 ? 0 : -INFINITY;
        if (i % 2 == 0) {
            attrs.epilogue.act = ACT_RELU;
        } else {
            attrs.epilogue.has_residual = true;
            test.in[CONV_RESIDUAL] = (struct op_input){DTYPE_FLOAT, conv_output_shape(&g)};
        }
        op_test_run(tester, &test);
    }
}

static void one_and_three_dimensions_are_right(void **state)
{
    struct conv_attrs attrs = {.group = 1};
    int64_t pads[] = {1, 2, 0, 1, 1, 2}, strides[] = {2, 1, 2};
    struct op_test test = {
        .op = "Conv",
        .attrs = &attrs,
        .inputs = 2,
        .in = {{DTYPE_FLOAT, SHAPE(2, 5, 19)}, {DTYPE_FLOAT, SHAPE(18, 5, 4), .constant = true}},
        .reference = reference_conv,
        .relative = 1e-5,
        .absolute = 1.5e-4,
        .rows = true};

    (void)state;
    attrs.window.pads = (struct ints){2, pads};
    op_test_run(tester, &test);
    attrs.window.strides = (struct ints){1, strides};
    op_test_run(tester, &test);
    attrs.window.auto_pad = AUTO_PAD_SAME_LOWER;
    op_test_run(tester, &test);
    attrs.window = (struct window_attrs){.pads = {6, pads}, .strides = {3, strides}};
    test.in[0].shape = (struct shape)SHAPE(1, 4, 6, 7, 9);
    test.in[1].shape = (struct shape)SHAPE(17, 4, 3, 2, 3);
    op_test_run(tester, &test);
}

static void columns_of_one_cell_are_right(void **state)
{
    static const int64_t ones[] = {1, 1, 1};
    int64_t pads[] = {2, 0, 1, 0}, deep[] = {1, 0, 0, 1, 0, 0}, strides[] = {2, 3};
    struct conv_attrs attrs = {.group = 1};
    struct op_test test = {.op = "Conv",
                           .attrs = &attrs,
                           .inputs = 3,
                           .in = {{DTYPE_FLOAT, SHAPE(2, 20, 37, 1)},
                                  {DTYPE_FLOAT, SHAPE(33, 20, 5, 1), .constant = true},
                                  {DTYPE_FLOAT, SHAPE(33), .constant = true}},
                           .reference = reference_conv,
                           .relative = 1e-5,
                           .absolute = 1.5e-4,
                           .rows = true};

    (void)state;
    for (size_t group = 0; group < 2; group++) { /* blocked, then plain: 5 channels a group */
        attrs.group = group == 0 ? 1 : 4;
        test.in[1].shape.dims[0] = test.in[2].shape.dims[0] = group == 0 ? 33 : 36;
        test.in[1].shape.dims[1] = 20 / attrs.group;
        attrs.window = (struct window_attrs){0};
        op_test_run(tester, &test);
        attrs.window = (struct window_attrs){.pads = {4, pads}, .strides = {2, strides}};
        op_test_run(tester, &test);
    }
    attrs = (struct conv_attrs){.group = 1, .window = {.pads = {6, deep}, .strides = {3, ones}}};
    test.in[0].shape = (struct shape)SHAPE(2, 20, 9, 1, 1);
    test.in[1].shape = (struct shape)SHAPE(33, 20, 3, 1, 1);
    test.in[2].shape.dims[0] = 33;
    op_test_run(tester, &test);
}

static void computed_weights_and_other_types_are_right(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_DOUBLE, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    static const struct form form = {2, 6, 7, 6, 4, 3, 2, 1, 1, 2};

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct conv_attrs attrs = {0};
        int64_t numbers[8];
        struct op_test test = make_test(&form, &attrs, numbers);

        for (size_t k = 0; k < 3; k++) {
            test.in[k].dtype = types[i];
            test.in[k].constant = false;
        }
        test.relative = types[i] == DTYPE_FLOAT ? 1e-5 : 0;
        test.absolute = types[i] == DTYPE_FLOAT ? 2e-5 : 0;
        test.rows = false;
        op_test_run(tester, &test);
    }
}

static void copy_input(const struct op_test *test, const struct test_array *in,
                       struct test_array *out)
{
    (void)test;
    for (int64_t i = 0; i < shape_count(&in[0].shape); i++)
        out[0].values[i] = in[0].values[i];
}

static void expect_reorders(enum dtype type, struct shape shape)
{
    const struct op_test test = {.op = "Reorder",
                                 .domain = "sluice",
                                 .inputs = 1,
                                 .in = {{type, shape}},
                                 .reference = copy_input,
                                 .rows = true};

    op_test_run(tester, &test);
}

static void reorders_keep_every_element(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT, DTYPE_INT64, DTYPE_UINT8, DTYPE_FLOAT16};

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        struct shape shape = test_random_shape(3 + i % 3, 1, 37);

        shape.dims[0] = 2;
        expect_reorders(types[i % 4], shape);
    }
}

/* Three channels of bytes have code of their own. */
static void pictures_keep_every_element(void **state)
{
    (void)state;
    for (int64_t width = 15; width < 20; width++)
        expect_reorders(DTYPE_UINT8, (struct shape){4, {2, 3, 7, width}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_of_odd_shapes_are_right),
        cmocka_unit_test(no_geometry_falls_to_reference_code),
        cmocka_unit_test(taps_that_meet_only_padding_are_left_out_rightly),
        cmocka_unit_test(depthwise_convolutions_are_right),
#ifndef OP_TEST_ONE_ISA
        cmocka_unit_test(specials_are_the_formulas_behind_every_activation),
#endif
        cmocka_unit_test(few_channels_are_right_in_plain_layout),
        cmocka_unit_test(every_activation_and_residual_is_right),
        cmocka_unit_test(convolutions_behind_a_normalization_are_right),
        cmocka_unit_test(one_and_three_dimensions_are_right),
        cmocka_unit_test(columns_of_one_cell_are_right),
        cmocka_unit_test(computed_weights_and_other_types_are_right),
        cmocka_unit_test(reorders_keep_every_element),
        cmocka_unit_test(pictures_keep_every_element),
    };

    return run_cases_on_each_isa(tests);
}
