/* Values between the elements: Resize, GridSample, RoiAlign. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval.h"
#include "ops/indexing.h"
#include "ops/movement.h"
#include "places.h"

static const enum dtype some_types[] = {DTYPE_FLOAT, DTYPE_INT8,  DTYPE_FLOAT16,
                                        DTYPE_INT64, DTYPE_UINT8, DTYPE_DOUBLE};
enum { TYPES = sizeof(some_types) / sizeof(some_types[0]) };

/* ---- Resize: the reference walks each output element through the written rules ---- */

static double source_place(const struct resize_attrs *attrs, double in, double out, double x)
{
    double scale = out / in;

    switch (attrs->coordinate_transformation_mode) {
    case RESIZE_ALIGN_CORNERS:
        return out == 1 ? 0 : x * (in - 1) / (out - 1);
    case RESIZE_ASYMMETRIC:
        return x / scale;
    case RESIZE_PYTORCH_HALF_PIXEL:
        return out > 1 ? (x + 0.5) / scale - 0.5 : 0;
    default:
        return (x + 0.5) / scale - 0.5;
    }
}

static double cubic(double x, double a)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double tap_weight(const struct resize_attrs *attrs, double place, double at)
{
    if (attrs->mode == RESIZE_CUBIC)
        return cubic(place - at, (double)attrs->cubic_coeff_a);
    return fmax(0, 1 - fabs(place - at));
}

static double nearest(const struct resize_attrs *attrs, double place)
{
    switch (attrs->nearest_mode) {
    case RESIZE_ROUND_PREFER_FLOOR:
        return ceil(place - 0.5);
    case RESIZE_ROUND_PREFER_CEIL:
        return floor(place + 0.5);
    case RESIZE_FLOOR:
        return floor(place);
    default:
        return ceil(place);
    }
}

static double edge(double i, int64_t length)
{
    return fmin(fmax(i, 0), (double)length - 1);
}

/* Weighted sum over axis `axis` and those behind it. */
static double resized(const struct resize_attrs *attrs, const struct test_array *in,
                      const struct shape *out, const int64_t *at, size_t axis, int64_t offset)
{
    int64_t length;
    double place, sum = 0, first;

    if (axis == in->shape.rank)
        return in->values[offset];
    length = in->shape.dims[axis];
    place = source_place(attrs, (double)length, (double)out->dims[axis], (double)at[axis]);
    if (attrs->mode == RESIZE_NEAREST)
        return resized(attrs, in, out, at, axis + 1,
                       offset * length + (int64_t)edge(nearest(attrs, place), length));
    if (attrs->mode == RESIZE_LINEAR)
        place = edge(place, length);
    first = floor(place) - 1;
    for (double t = first; t < first + 4; t++) {
        double weight = tap_weight(attrs, place, t);

        if (weight != 0)
            sum += weight * resized(attrs, in, out, at, axis + 1,
                                    offset * length + (int64_t)edge(t, length));
    }
    return sum;
}

static void resize(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[SHAPE_MAX_RANK];

        place_of(&out->shape, i, at);
        out->values[i] = resized(test->attrs, in, &out->shape, at, 0, 0);
    }
}

static void check_resize(const struct resize_attrs *attrs, enum dtype dtype, struct shape shape,
                         const double *sizes)
{
    struct op_test test = {.op = "Resize", .attrs = attrs, .inputs = 4, .reference = resize};

    test.in[0] = (struct op_input){dtype, shape, .low = -4, .high = 4};
    test.in[3] = (struct op_input){DTYPE_INT64, SHAPE((int64_t)shape.rank), .values = sizes,
                                   .constant = true};
    if (dtype == DTYPE_FLOAT || dtype == DTYPE_DOUBLE) {
        test.relative = 2e-5;
        test.absolute = 2e-5;
    }
    op_test_run(tester, &test);
}

static void resize_follows_its_coordinate_rules(void **state)
{
    static const int coordinates[] = {RESIZE_HALF_PIXEL, RESIZE_PYTORCH_HALF_PIXEL,
                                      RESIZE_ALIGN_CORNERS, RESIZE_ASYMMETRIC};

    (void)state;
    for (int mode = RESIZE_NEAREST; mode <= RESIZE_CUBIC; mode++)
        for (size_t c = 0; c < 4; c++)
            for (int round = 0; round < 6; round++) {
                struct shape shape = {.rank = 4, .dims = {2, test_random_int(1, 20)}};
                double sizes[4];
                struct resize_attrs attrs = {
                    .mode = mode,
                    .coordinate_transformation_mode = coordinates[c],
                    .nearest_mode = round % 4,
                    .cubic_coeff_a = -0.75f,
                };

                for (size_t i = 0; i < 2; i++) { /* ratios of powers of two: no rounding at ties */
                    shape.dims[2 + i] = INT64_C(1) << test_random_int(1, 3);
                    sizes[2 + i] = (double)(INT64_C(1) << test_random_int(0, 4));
                    if (attrs.coordinate_transformation_mode == RESIZE_ALIGN_CORNERS &&
                        mode == RESIZE_NEAREST)
                        sizes[2 + i] = (double)(2 * shape.dims[2 + i] - 1);
                }
                sizes[0] = 2;
                sizes[1] = (double)shape.dims[1];
                check_resize(&attrs, mode == RESIZE_NEAREST ? some_types[round] : DTYPE_FLOAT,
                             shape, sizes);
                check_resize(&attrs, DTYPE_DOUBLE, shape, sizes);
            }
}

static void resize_takes_any_number_of_axes(void **state)
{
    struct resize_attrs attrs = {.mode = RESIZE_LINEAR, .cubic_coeff_a = -0.75f};

    (void)state;
    check_resize(&attrs, DTYPE_FLOAT, (struct shape)SHAPE(2, 3, 4, 5, 6),
                 (double[]){2, 3, 8, 10, 3});
    check_resize(&attrs, DTYPE_FLOAT, (struct shape)SHAPE(3, 7), (double[]){5, 7});
    check_resize(&attrs, DTYPE_FLOAT16, (struct shape)SHAPE(1, 2, 8), (double[]){1, 2, 16});
    attrs.mode = RESIZE_NEAREST;
    check_resize(&attrs, DTYPE_INT64, (struct shape)SHAPE(2, 16, 9), (double[]){2, 16, 18});
}

static void resize_refuses_what_it_cannot_do_rightly(void **state)
{
    struct resize_attrs attrs = {.antialias = 1, .mode = RESIZE_LINEAR};
    struct op_test test = {.op = "Resize", .attrs = &attrs, .inputs = 4, .reference = resize};

    (void)state;
    test.in[0] = (struct op_input){DTYPE_FLOAT, SHAPE(1, 1, 4)};
    test.in[3] =
        (struct op_input){DTYPE_INT64, SHAPE(3), .values = (double[]){1, 1, 2}, .constant = true};
    assert_non_null(strstr(op_test_refused(tester, &test), "antialias"));
    attrs.antialias = 0;
    test.in[0].dtype = DTYPE_INT32;
    assert_non_null(strstr(op_test_refused(tester, &test), "linear"));
}

/* ---- values between the elements ---- */

static void grid_sample_reads_zeros_outside(void **state)
{
    float x[] = {1, 2, 3, 4};
    float grid[] = {-1, -1, 1, 1, 0, 0, 9, 9, NAN, 0};
    struct grid_sample_attrs attrs = {.mode = GRID_LINEAR, .align_corners = 1};
    struct tensor in[2] = {{DTYPE_FLOAT, SHAPE(1, 1, 2, 2), x},
                           {DTYPE_FLOAT, SHAPE(1, 1, 5, 2), grid}};

    (void)state;
    check_eval("GridSample", &attrs, 2, in, 1,
               &(struct tensor){DTYPE_FLOAT, SHAPE(1, 1, 1, 5), (float[]){1, 4, 2.5f, 0, 0}});
}

static void grid_sample_repeats_the_border(void **state)
{
    float x[] = {1, 2, 3, 4, 5, 6};
    float grid[] = {-3, -3, 3, 3, 0, 5, 1, 0};
    struct grid_sample_attrs attrs = {
        .mode = GRID_LINEAR, .padding_mode = GRID_BORDER, .align_corners = 1};
    struct tensor in[2] = {{DTYPE_FLOAT, SHAPE(1, 1, 2, 3), x},
                           {DTYPE_FLOAT, SHAPE(1, 1, 4, 2), grid}};

    (void)state;
    check_eval("GridSample", &attrs, 2, in, 1,
               &(struct tensor){DTYPE_FLOAT, SHAPE(1, 1, 1, 4), (float[]){1, 6, 5, 4.5f}});
}

/* Planes of one number each, wider than high. */
static void roi_align_reads_the_plane_of_its_region(void **state)
{
    enum { IMAGES = 2, CHANNELS = 3, HEIGHT = 4, WIDTH = 7 };
    float x[IMAGES * CHANNELS * HEIGHT * WIDTH], rois[] = {1, 1, 5, 3, 0, 0, 6, 2};
    struct roi_align_attrs attrs = {
        .output_height = 1, .output_width = 1, .sampling_ratio = 2, .spatial_scale = 1};
    struct tensor in[3] = {{DTYPE_FLOAT, SHAPE(IMAGES, CHANNELS, HEIGHT, WIDTH), x},
                           {DTYPE_FLOAT, SHAPE(2, 4), rois},
                           {DTYPE_INT64, SHAPE(2), (int64_t[]){1, 0}}};

    (void)state;
    for (int i = 0; i < IMAGES * CHANNELS * HEIGHT * WIDTH; i++)
        x[i] = (float)(i / (HEIGHT * WIDTH));
    check_eval("RoiAlign", &attrs, 3, in, 1,
               &(struct tensor){DTYPE_FLOAT, SHAPE(2, 3, 1, 1), (float[]){3, 4, 5, 0, 1, 2}});
}

static void roi_align_fails_on_regions_that_are_none(void **state)
{
    float x[4] = {0}, rois[] = {0, 0, 1e30f, 1}, fine[] = {0, 0, 1, 1};
    struct tensor in[3] = {{DTYPE_FLOAT, SHAPE(1, 1, 2, 2), x},
                           {DTYPE_FLOAT, SHAPE(1, 4), rois},
                           {DTYPE_INT64, SHAPE(1), (int64_t[]){0}}};
    struct tensor out[1];

    (void)state;
    assert_int_equal(eval("RoiAlign", NULL, 3, in, 1, out), STATUS_INVALID);
    in[1].data = fine;
    in[2].data = (int64_t[]){1};
    assert_int_equal(eval("RoiAlign", NULL, 3, in, 1, out), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resize_follows_its_coordinate_rules),
        cmocka_unit_test(resize_takes_any_number_of_axes),
        cmocka_unit_test(resize_refuses_what_it_cannot_do_rightly),
        cmocka_unit_test(grid_sample_reads_zeros_outside),
        cmocka_unit_test(grid_sample_repeats_the_border),
        cmocka_unit_test(roi_align_reads_the_plane_of_its_region),
        cmocka_unit_test(roi_align_fails_on_regions_that_are_none),
    };

    return run_cases(tests);
}
