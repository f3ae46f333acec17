/* Depthwise convolutions and the 1x1 around them as one step, band by band. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/conv_reference.h"
#include "device/cpu/epilogue.h"
#include "ops/separable_conv.h"
#include "support/cpu_cases.h"

/* One convolution in double, with its activation. */
static void convolve(const struct conv_attrs *attrs, const struct test_array *x,
                     const struct test_array *w, const struct test_array *bias,
                     const double *residual, struct test_array *y)
{
    const struct epilogue *epilogue = &attrs->epilogue;
    struct conv_geometry g;

    assert_int_equal(conv_resolve(attrs, &x->shape, &w->shape, &g, NULL), STATUS_OK);
    y->shape = conv_output_shape(&g);
    if (y->values == NULL)
        y->values = calloc((size_t)shape_count(&y->shape), sizeof(double));
    assert_non_null(y->values);
    const int64_t places = window_places(&g.window, true), cells = window_places(&g.window, false);
    const int64_t taps = window_taps(&g.window), per = g.in_channels / g.groups;

    for (int64_t i = 0; i < g.batch * g.out_channels * places; i++) {
        const int64_t o = i / places % g.out_channels, n = i / places / g.out_channels;
        const int64_t first = o / (g.out_channels / g.groups) * per;
        double sum = bias->dtype != DTYPE_NONE ? bias->values[o] : 0;
        struct tap_walk walk;

        tap_walk_start(&walk, &g.window, i % places);
        while (tap_walk_next(&walk))
            for (int64_t c = 0; walk.inside && c < per; c++)
                sum += x->values[(n * g.in_channels + first + c) * cells + walk.at] *
                       w->values[(o * per + c) * taps + walk.tap];
        if (residual != NULL && !epilogue->residual_after)
            sum += residual[i];
        sum = epilogue_activate(epilogue, sum);
        y->values[i] = residual != NULL && epilogue->residual_after ? sum + residual[i] : sum;
    }
}

static void reference(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    const struct separable_conv_attrs *attrs = test->attrs;
    struct test_array expanded = {.dtype = DTYPE_FLOAT}, filtered = {.dtype = DTYPE_FLOAT};
    const struct test_array *x = &in[SEPARABLE_X];

    if (in[SEPARABLE_EXPAND].dtype != DTYPE_NONE) {
        convolve(&attrs->expand, x, &in[SEPARABLE_EXPAND], &in[SEPARABLE_EXPAND + 1], NULL,
                 &expanded);
        x = &expanded;
    }
    convolve(&attrs->depthwise, x, &in[SEPARABLE_DEPTHWISE], &in[SEPARABLE_DEPTHWISE + 1], NULL,
             &filtered);
    convolve(&attrs->project, &filtered, &in[SEPARABLE_PROJECT], &in[SEPARABLE_PROJECT + 1],
             attrs->project.epilogue.has_residual ? in[SEPARABLE_RESIDUAL].values : NULL, out);
    free(expanded.values);
    free(filtered.values);
}

struct form {
    int64_t n, c, h, w, filters, m; /* images, channels, rows, columns; channels in between, out */
    int64_t k[2], stride[2], dilation, pad[4];
    bool expands;
};

/* What else there is to a step. */
struct extras {
    struct epilogue expand, depthwise, project;
    bool bias;
};

static bool is_baseline(void)
{
    const char *isa = getenv("SLUICE_CPU");

    return isa != NULL && strcmp(isa, "baseline") == 0;
}

static struct op_input weights(int64_t m, int64_t c, int64_t h, int64_t w)
{
    return (struct op_input){DTYPE_FLOAT, SHAPE(m, c, h, w), .constant = true, .low = -0.5,
                             .high = 0.5};
}

static void run(const struct form *form, const struct extras *extras)
{
    int64_t strides[] = {form->stride[0], form->stride[1]}, pads[4];
    int64_t dilations[] = {form->dilation, form->dilation};
    const int64_t filters = form->expands ? form->filters : form->c;
    const struct separable_conv_attrs attrs = {
        .expand = {.group = 1, .epilogue = extras->expand},
        .depthwise = {.window = {.strides = {2, strides},
                                 .pads = {4, memcpy(pads, form->pad, sizeof(pads))},
                                 .dilations = {2, dilations}},
                      .group = filters,
                      .epilogue = extras->depthwise},
        .project = {.group = 1, .epilogue = extras->project}};
    struct op_test test = {
        .op = "SeparableConv",
        .domain = "sluice",
        .attrs = &attrs,
        .inputs = extras->project.has_residual ? SEPARABLE_RESIDUAL + 1 : SEPARABLE_RESIDUAL,
        .reference = reference,
        .relative = 2e-5,
        .absolute = 2e-4,
        .rows = true,
        .any_kernel = is_baseline(), /* nobody asks for it there */
    };
    struct conv_geometry g;
    struct shape y;

    test.in[SEPARABLE_X] = (struct op_input){DTYPE_FLOAT, SHAPE(form->n, form->c, form->h, form->w),
                                             .low = -1, .high = 1};
    if (form->expands)
        test.in[SEPARABLE_EXPAND] = weights(filters, form->c, 1, 1);
    test.in[SEPARABLE_DEPTHWISE] = weights(filters, 1, form->k[0], form->k[1]);
    test.in[SEPARABLE_PROJECT] = weights(form->m, filters, 1, 1);
    if (extras->bias) {
        const struct op_input bias = {DTYPE_FLOAT, SHAPE(filters), .constant = true};

        test.in[SEPARABLE_DEPTHWISE + 1] = bias;
        test.in[SEPARABLE_PROJECT + 1] = bias;
        test.in[SEPARABLE_PROJECT + 1].shape.dims[0] = form->m;
        if (form->expands)
            test.in[SEPARABLE_EXPAND + 1] = bias;
    }
    y = (struct shape)SHAPE(form->n, filters, form->h, form->w);
    assert_int_equal(
        conv_resolve(&attrs.depthwise, &y, &test.in[SEPARABLE_DEPTHWISE].shape, &g, NULL),
        STATUS_OK);
    y = conv_output_shape(&g);
    y.dims[1] = form->m;
    test.in[SEPARABLE_RESIDUAL] = (struct op_input){DTYPE_FLOAT, y};
    op_test_run(tester, &test);
}

static const struct extras bare = {.bias = false};
static const struct extras mobile = {.expand = {.act = ACT_CLIP, .b = 6},
                                     .depthwise = {.act = ACT_CLIP, .b = 6},
                                     .project = {.has_residual = true},
                                     .bias = true};
/* Activations that pass over rows, and a residual behind one. */
static const struct extras swish = {
    .expand = {.act = ACT_HARD_SWISH, .a = 1.0F / 6, .b = 0.5F},
    .depthwise = {.act = ACT_SILU, .a = 1},
    .project = {.act = ACT_SIGMOID, .has_residual = true, .residual_after = true},
    .bias = true};
static const struct extras relu = {.expand = {.act = ACT_RELU},
                                   .depthwise = {.act = ACT_LEAKY_RELU, .a = 0.1F},
                                   .project = {.act = ACT_RELU, .has_residual = true},
                                   .bias = false};

static void run_all(const struct form *forms, size_t count)
{
    const struct extras *const extras[] = {&bare, &mobile, &swish, &relu};

    for (size_t i = 0; i < count; i++) {
        struct form form = forms[i];

        for (int expands = 0; expands < 2; expands++) {
            form.expands = expands != 0;
            run(&form, extras[(2 * i + (size_t)expands) % 4]);
            run(&form, extras[(2 * i + (size_t)expands + 1) % 4]);
        }
    }
}

static void blocks_of_odd_sizes_are_right(void **state)
{
    static const struct form forms[] = {
        {2, 16, 14, 14, 48, 24, {3, 3}, {1, 1}, 1, {1, 1, 1, 1}, true},
        {1, 24, 15, 13, 40, 33, {3, 3}, {2, 2}, 1, {1, 1, 1, 1}, true},
        {3, 17, 9, 7, 35, 19, {5, 5}, {1, 1}, 1, {2, 2, 2, 2}, true},
        {2, 9, 11, 19, 27, 9, {5, 5}, {2, 2}, 1, {2, 2, 2, 2}, true},
        {1, 40, 12, 12, 70, 50, {3, 3}, {1, 1}, 2, {2, 2, 2, 2}, true},
        {1, 33, 10, 30, 65, 31, {7, 7}, {1, 1}, 1, {3, 3, 3, 3}, true},
        {2, 20, 8, 31, 52, 20, {3, 5}, {2, 1}, 1, {1, 2, 1, 2}, true},
        {1, 16, 1, 40, 32, 16, {3, 3}, {1, 1}, 1, {1, 1, 1, 1}, true},
        {1, 16, 40, 1, 32, 16, {3, 3}, {1, 1}, 1, {1, 1, 1, 1}, true},
        {1, 12, 21, 20, 29, 14, {3, 3}, {3, 3}, 1, {0, 0, 0, 0}, true},
    };

    (void)state;
    run_all(forms, sizeof(forms) / sizeof(forms[0]));
}

/* Windows that lie in the padding altogether, reach over it, or step over rows. */
static void windows_around_the_edges_are_right(void **state)
{
    static const struct form forms[] = {
        {1, 16, 6, 6, 32, 16, {3, 3}, {1, 1}, 1, {4, 3, 5, 4}, true},
        {2, 18, 5, 9, 20, 11, {2, 2}, {3, 3}, 1, {0, 1, 1, 0}, true},
        {1, 10, 7, 7, 24, 12, {3, 3}, {1, 1}, 4, {4, 4, 4, 4}, true},
        {1, 16, 13, 5, 33, 17, {1, 1}, {2, 2}, 1, {0, 0, 0, 0}, true},
        {1, 16, 3, 3, 32, 16, {5, 5}, {1, 1}, 1, {4, 4, 4, 4}, true},
        {1, 11, 12, 12, 16, 24, {3, 3}, {1, 2}, 3, {0, 3, 6, 0}, true},
    };

    (void)state;
    run_all(forms, sizeof(forms) / sizeof(forms[0]));
}

/* Scratch that does not hold an image: several bands, of which rows are kept. */
static void images_of_several_bands_are_right(void **state)
{
    static const struct form forms[] = {
        {1, 24, 37, 61, 112, 24, {3, 3}, {1, 1}, 1, {1, 1, 1, 1}, true},
        {2, 16, 61, 57, 96, 24, {3, 3}, {2, 2}, 1, {1, 1, 1, 1}, true},
        {1, 80, 43, 40, 100, 80, {5, 5}, {1, 1}, 1, {2, 2, 2, 2}, true},
        {1, 90, 40, 45, 96, 33, {3, 3}, {3, 3}, 1, {1, 1, 1, 1}, true},
        {1, 66, 50, 41, 70, 40, {3, 3}, {1, 1}, 3, {3, 3, 3, 3}, true},
    };

    (void)state;
    run_all(forms, sizeof(forms) / sizeof(forms[0]));
}

/* So many channels that weights are passed in several chunks. */
static void many_channels_are_right(void **state)
{
    static const struct form forms[] = {
        {2, 200, 7, 7, 410, 200, {3, 3}, {1, 1}, 1, {1, 1, 1, 1}, true},
        {1, 260, 6, 5, 520, 130, {5, 5}, {2, 2}, 1, {2, 2, 2, 2}, true},
    };

    (void)state;
    run_all(forms, sizeof(forms) / sizeof(forms[0]));
}

static void a_residual_inside_of_the_step_is_refused(void **state)
{
    const struct separable_conv_attrs attrs = {
        .depthwise = {.group = 16, .epilogue = {.has_residual = true}}, .project = {.group = 1}};
    const struct op_test test = {.op = "SeparableConv",
                                 .domain = "sluice",
                                 .attrs = &attrs,
                                 .inputs = SEPARABLE_RESIDUAL,
                                 .in = {[SEPARABLE_X] = {DTYPE_FLOAT, SHAPE(1, 16, 4, 4)},
                                        [SEPARABLE_DEPTHWISE] = {DTYPE_FLOAT, SHAPE(16, 1, 1, 1)},
                                        [SEPARABLE_PROJECT] = {DTYPE_FLOAT, SHAPE(16, 16, 1, 1)}}};

    (void)state;
    assert_non_null(strstr(op_test_refused(tester, &test), "a residual inside"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_odd_sizes_are_right),
        cmocka_unit_test(windows_around_the_edges_are_right),
        cmocka_unit_test(images_of_several_bands_are_right),
        cmocka_unit_test(many_channels_are_right),
        cmocka_unit_test(a_residual_inside_of_the_step_is_refused),
    };

    return run_cases_on_each_isa(tests);
}
