/* Convolutions of floats in plain loops, and the forms that tests of them go through. */
#ifndef TESTS_DEVICE_CPU_CONV_CASES_H
#define TESTS_DEVICE_CPU_CONV_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/cpu/conv_reference.h"
#include "device/cpu/epilogue.h"
#include "ops/mix_channels.h"

static inline double finish(const struct epilogue *epilogue, double x,
                            const struct test_array *residual, int64_t at)
{
    double r = epilogue->has_residual ? residual->values[at] : 0;

    return epilogue->residual_after ? epilogue_activate(epilogue, x) + r
                                    : epilogue_activate(epilogue, x + r);
}

/* Where channel c comes from; 0 groups: it is not shuffled. */
static inline int64_t came_from(int64_t c, int64_t channels, int64_t groups)
{
    return groups == 0 ? c : shuffled_channel(c, channels, groups);
}

static inline void reference_conv(const struct op_test *test, const struct test_array *in,
                                  struct test_array *out)
{
    const struct conv_attrs *attrs = test->attrs;
    struct conv_geometry g;

    assert_int_equal(conv_resolve(attrs, &in[0].shape, &in[1].shape, &g, NULL), STATUS_OK);
    const int64_t places = window_places(&g.window, true), cells = window_places(&g.window, false);
    const int64_t taps = window_taps(&g.window), per = g.in_channels / g.groups;
    const bool biased = test->inputs > CONV_BIAS && in[CONV_BIAS].dtype != DTYPE_NONE;

    for (int64_t i = 0; i < g.batch * g.out_channels * places; i++) {
        const int64_t o = i / places % g.out_channels, n = i / places / g.out_channels;
        const int64_t filter = came_from(o, g.out_channels, attrs->filter_shuffle);
        const int64_t group = o / (g.out_channels / g.groups);
        double sum = biased ? in[CONV_BIAS].values[filter] : 0;
        struct tap_walk walk;

        tap_walk_start(&walk, &g.window, i % places);
        while (tap_walk_next(&walk))
            for (int64_t c = 0; walk.inside && c < per; c++) {
                const int64_t channel = came_from(group * per + c, g.in_channels, attrs->x_shuffle);

                sum += in[0].values[(n * g.in_channels + channel) * cells + walk.at] *
                       in[1].values[(filter * per + c) * taps + walk.tap];
            }
        out[0].values[i] = finish(&attrs->epilogue, sum, &in[CONV_RESIDUAL], i);
    }
}

struct form { /* one convolution, two-dimensional */
    int64_t n, c, h, w, m, k, stride, pad, dilation, groups;
};

/* Shapes for which oneDNN has only reference code, or nearly: the kernels that are left must be
 * right and none of them oneDNN's plain loops (op_tester looks). */
struct odd_form {
    size_t spatial;
    int64_t c, m, groups;
    int64_t in[3], kernel[3], stride[3], dilation[3], pad[3];
};

static const struct odd_form odd_forms[] = {
    {2, 8, 8, 1, {40, 60}, {3, 39}, {1, 1}, {1, 1}, {1, 19}},     /* wider than it unrolls */
    {1, 1, 48, 1, {872}, {256}, {32}, {1}, {0}},                  /* few channels, long taps */
    {1, 1, 400, 1, {872}, {256}, {32}, {1}, {0}},                 /* one line, shared by panels */
    {1, 16, 32, 1, {61}, {3}, {1}, {17}, {17}},                   /* far apart */
    {2, 16, 16, 1, {33, 35}, {3, 3}, {1, 1}, {16, 16}, {16, 16}}, /* … in two dimensions */
    {2, 24, 36, 3, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},      /* groups across blocks */
    {2, 20, 20, 20, {13, 12}, {3, 3}, {1, 1}, {2, 2}, {2, 2}},    /* depthwise, not a block */
    {2, 16, 16, 16, {40, 21}, {31, 3}, {1, 1}, {1, 1}, {15, 1}},  /* depthwise, long */
    {1, 32, 32, 32, {50}, {9}, {1}, {1}, {4}},                    /* depthwise, 1-D */
    {2, 16, 16, 1, {20, 21}, {2, 1}, {5, 4}, {1, 1}, {0, 0}},     /* strides over cells */
    {2, 32, 16, 1, {9, 8}, {1, 1}, {3, 3}, {1, 1}, {2, 1}},       /* … into the padding */
    {2, 16, 16, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {2, 2}},       /* more padding than is read */
    {2, 16, 32, 1, {4, 4}, {7, 7}, {1, 1}, {1, 1}, {3, 3}},       /* larger than the map */
    {3, 16, 16, 16, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {3, 4, 20, 1, {6, 7, 9}, {3, 1, 5}, {2, 1, 3}, {1, 2, 1}, {1, 0, 2}},
    {2, 16, 64, 16, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, /* depth multiplier */
};

enum { ODD_FORMS = sizeof(odd_forms) / sizeof(odd_forms[0]) };

struct odd_numbers {
    int64_t strides[3], dilations[3], pads[6];
};

static inline struct window_attrs odd_window(const struct odd_form *f, struct odd_numbers *n)
{
    for (size_t i = 0; i < f->spatial; i++) {
        n->strides[i] = f->stride[i];
        n->dilations[i] = f->dilation[i];
        n->pads[i] = n->pads[f->spatial + i] = f->pad[i];
    }
    return (struct window_attrs){.strides = {f->spatial, n->strides},
                                 .dilations = {f->spatial, n->dilations},
                                 .pads = {2 * f->spatial, n->pads}};
}

static inline struct shape odd_shape(const struct odd_form *f, int64_t first, int64_t second,
                                     const int64_t *rest)
{
    struct shape shape = {f->spatial + 2, {first, second}};

    for (size_t i = 0; i < f->spatial; i++)
        shape.dims[2 + i] = rest[i];
    return shape;
}

/* Few output channels, or channels that fit no block: plain layout, vectors of pixels. */
static const struct odd_form few_forms[] = {
    {2, 8, 8, 1, {7, 40}, {3, 39}, {1, 1}, {1, 1}, {1, 19}},
    {2, 33, 1, 1, {23, 88}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 5, 2, 1, {37, 35}, {5, 5}, {3, 3}, {1, 1}, {2, 2}},
    {2, 7, 3, 1, {12, 50}, {3, 3}, {1, 2}, {2, 2}, {2, 2}},
    {2, 16, 4, 1, {8, 160}, {2, 2}, {2, 2}, {1, 1}, {0, 0}},
    {2, 40, 6, 1, {31, 30}, {1, 1}, {1, 1}, {1, 1}, {0, 0}},
    {2, 200, 5, 1, {9, 70}, {7, 1}, {1, 1}, {1, 1}, {3, 0}}, /* tiles of few rows */
    {1, 1, 1, 1, {900}, {256}, {2}, {1}, {0}},
    {1, 3, 7, 1, {700}, {5}, {4}, {3}, {6}},
    {2, 6, 36, 6, {11, 33}, {3, 3}, {2, 1}, {1, 1}, {1, 1}}, /* groups */
    {2, 20, 20, 20, {13, 31}, {3, 3}, {1, 1}, {2, 2}, {2, 2}},
    {2, 18, 20, 2, {9, 16}, {3, 2}, {3, 3}, {1, 1}, {1, 1}}, /* taps between the phases */
    {2, 4, 4, 1, {30, 47}, {2, 3}, {3, 4}, {1, 1}, {0, 0}},  /* places without taps */
    {2, 24, 40, 1, {9, 17}, {2, 2}, {2, 2}, {1, 1}, {0, 0}},
    {2, 70, 33, 1, {5, 16}, {4, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 17, 50, 1, {5, 20}, {3, 3}, {3, 2}, {2, 3}, {2, 1}},
    {2, 130, 20, 1, {6, 9}, {1, 3}, {2, 4}, {1, 1}, {0, 0}},
};

/* Under AddressSanitizer the naive reference takes minutes: one batch a form there.  Where kernels
 * are interpreted, a few forms are enough: they have no library under them. */
#ifdef OP_TEST_IS_SLOW
enum { CONV_STEP = 101, CONV_TRANSPOSE_STEP = 37 };
#elif defined(__SANITIZE_ADDRESS__)
enum { CONV_STEP = 3, CONV_TRANSPOSE_STEP = 2 };
#else
enum { CONV_STEP = 1, CONV_TRANSPOSE_STEP = 1 };
#endif

#endif
