/* NonZero, Compress, Unique, NonMaxSuppression: how much comes out depends on the values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "eval.h"
#include "ops/indexing.h"

static uint32_t next_number(uint32_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 17;
    *rng ^= *rng << 5;
    return *rng;
}

static void nonzero_lists_places_axis_by_axis(void **state)
{
    float values[] = {0, 1, -0.0f, NAN, 0, 2};
    struct tensor in = {DTYPE_FLOAT, SHAPE(2, 3), values};
    struct tensor none = {DTYPE_BOOL, SHAPE(2), (uint8_t[]){0, 0}};

    (void)state;
    check_eval("NonZero", NULL, 1, &in, 1,
               &(struct tensor){DTYPE_INT64, SHAPE(2, 3), (int64_t[]){0, 1, 1, 1, 0, 2}});
    check_eval("NonZero", NULL, 1, &none, 1, &(struct tensor){DTYPE_INT64, SHAPE(1, 0), NULL});
}

static void compress_takes_what_the_condition_marks(void **state)
{
    struct tensor in[2] = {{DTYPE_INT32, SHAPE(2, 3), (int32_t[]){1, 2, 3, 4, 5, 6}},
                           {DTYPE_BOOL, SHAPE(2), (uint8_t[]){0, 1}}};
    struct compress_attrs flat = {INT64_MIN};

    (void)state;
    check_eval("Compress", &(struct compress_attrs){1}, 2, in, 1,
               &(struct tensor){DTYPE_INT32, SHAPE(2, 1), (int32_t[]){2, 5}});
    check_eval("Compress", &(struct compress_attrs){0}, 2, in, 1,
               &(struct tensor){DTYPE_INT32, SHAPE(1, 3), (int32_t[]){4, 5, 6}});
    check_eval("Compress", &flat, 2, in, 1,
               &(struct tensor){DTYPE_INT32, SHAPE(1), (int32_t[]){2}});
}

/* Odd sizes, and more than a device looks at in one part. */
static void nonzero_and_compress_keep_the_order_of_long_inputs(void **state)
{
    enum { ROWS = 5, LENGTH = 5003 };
    uint8_t *in = calloc(ROWS, LENGTH), *kept = calloc(ROWS, LENGTH);
    int64_t *places = calloc(2 * ROWS * LENGTH, sizeof(*places));
    struct tensor compress[2] = {{DTYPE_UINT8, SHAPE(ROWS, LENGTH), in},
                                 {DTYPE_BOOL, SHAPE(LENGTH), in + LENGTH}};
    int64_t nonzero = 0, columns = 0;
    uint32_t rng = 11;

    (void)state;
    for (int64_t i = 0; i < (int64_t)ROWS * LENGTH; i++)
        in[i] = (uint8_t)(next_number(&rng) % 3 == 0 ? 1 + i % 200 : 0);
    for (int64_t i = 0; i < (int64_t)ROWS * LENGTH; i++)
        nonzero += in[i] != 0;
    for (int64_t i = 0, at = 0; i < (int64_t)ROWS * LENGTH; i++)
        if (in[i] != 0) {
            places[at] = i / LENGTH;
            places[nonzero + at++] = i % LENGTH;
        }
    for (int64_t k = 0; k < LENGTH; k++)
        columns += in[LENGTH + k] != 0;
    for (int64_t row = 0, at = 0; row < ROWS; row++)
        for (int64_t k = 0; k < LENGTH; k++)
            if (in[LENGTH + k] != 0)
                kept[at++] = in[row * LENGTH + k];
    check_eval("NonZero", NULL, 1, &compress[0], 1,
               &(struct tensor){DTYPE_INT64, SHAPE(2, nonzero), places});
    check_eval("Compress", &(struct compress_attrs){1}, 2, compress, 1,
               &(struct tensor){DTYPE_UINT8, SHAPE(ROWS, columns), kept});
    free(in);
    free(kept);
    free(places);
}

static void zeros_of_every_type_are_left_out(void **state)
{
    double doubles[] = {-0.0, 5e-324, INFINITY};
    uint16_t halves[] = {0x8000, 1, 0x7E00}; /* -0, the least, NaN */
    int64_t longs[] = {0, INT64_MIN, -1};
    struct tensor in[] = {{DTYPE_DOUBLE, SHAPE(3), doubles},
                          {DTYPE_FLOAT16, SHAPE(3), halves},
                          {DTYPE_BFLOAT16, SHAPE(3), halves},
                          {DTYPE_INT64, SHAPE(3), longs},
                          {DTYPE_UINT64, SHAPE(3), longs}};

    (void)state;
    for (size_t i = 0; i < sizeof(in) / sizeof(in[0]); i++)
        check_eval("NonZero", NULL, 1, &in[i], 1,
                   &(struct tensor){DTYPE_INT64, SHAPE(1, 2), (int64_t[]){1, 2}});
}

static void unique_sorts_or_keeps_the_first_order(void **state)
{
    struct tensor in = {DTYPE_INT32, SHAPE(6), (int32_t[]){2, 1, 1, 3, 2, 2}};
    struct tensor sorted[4] = {{DTYPE_INT32, SHAPE(3), (int32_t[]){1, 2, 3}},
                               {DTYPE_INT64, SHAPE(3), (int64_t[]){1, 0, 3}},
                               {DTYPE_INT64, SHAPE(6), (int64_t[]){1, 0, 0, 2, 1, 1}},
                               {DTYPE_INT64, SHAPE(3), (int64_t[]){2, 3, 1}}};
    struct tensor first[4] = {{DTYPE_INT32, SHAPE(3), (int32_t[]){2, 1, 3}},
                              {DTYPE_INT64, SHAPE(3), (int64_t[]){0, 1, 3}},
                              {DTYPE_INT64, SHAPE(6), (int64_t[]){0, 1, 1, 2, 0, 0}},
                              {DTYPE_INT64, SHAPE(3), (int64_t[]){3, 2, 1}}};

    (void)state;
    check_eval("Unique", NULL, 1, &in, 4, sorted);
    check_eval("Unique", &(struct unique_attrs){INT64_MIN, 0}, 1, &in, 4, first);
}

static void unique_compares_strings_by_their_bytes(void **state)
{
    struct bytes words[] = {{"b", 1}, {"ab", 2}, {"a", 1}, {"ab", 2}};
    struct tensor in = {DTYPE_STRING, SHAPE(4), words}, out[4];
    const struct bytes *found;

    (void)state;
    assert_int_equal(eval("Unique", NULL, 1, &in, 1, out), STATUS_OK);
    found = out[0].data;
    assert_int_equal(out[0].shape.dims[0], 3);
    assert_int_equal(found[0].size, 1);
    assert_memory_equal(found[1].data, "ab", 2);
    assert_memory_equal(found[2].data, "b", 1);
    free((void *)(uintptr_t)out[0].data);
}

static void suppression_keeps_the_best_of_what_overlaps(void **state)
{
    float boxes[] = {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 0, -0.1f, 1, 0.9f, 0, 10, 1, 11};
    float scores[] = {0.9f, 0.75f, 0.6f, 0.95f};
    struct tensor in[5] = {{DTYPE_FLOAT, SHAPE(1, 4, 4), boxes},
                           {DTYPE_FLOAT, SHAPE(1, 1, 4), scores},
                           {DTYPE_INT64, SHAPE(1), (int64_t[]){3}},
                           {DTYPE_FLOAT, SHAPE(1), (float[]){0.5f}},
                           {DTYPE_FLOAT, SHAPE(1), (float[]){0.7f}}};

    (void)state;
    check_eval("NonMaxSuppression", NULL, 5, in, 1,
               &(struct tensor){DTYPE_INT64, SHAPE(2, 3), (int64_t[]){0, 0, 3, 0, 0, 0}});
    check_eval("NonMaxSuppression", NULL, 2, in, 1,
               &(struct tensor){DTYPE_INT64, SHAPE(0, 3), NULL});
}

/* Where each thread of a device is a fiber under ThreadSanitizer: fewer. */
#ifdef __SANITIZE_THREAD__
enum { MANY_BOXES = 300, MANY_CLASSES = 11 };
#else
enum { MANY_BOXES = 700, MANY_CLASSES = 401 };
#endif

/* Corners are small integers: areas and their sums are exact. */
static double overlap_of(const float *a, const float *b)
{
    double height =
        fmin(fmax(a[0], a[2]), fmax(b[0], b[2])) - fmax(fmin(a[0], a[2]), fmin(b[0], b[2]));
    double width =
        fmin(fmax(a[1], a[3]), fmax(b[1], b[3])) - fmax(fmin(a[1], a[3]), fmin(b[1], b[3]));
    double both = fabs((double)(a[2] - a[0]) * (double)(a[3] - a[1])) +
                  fabs((double)(b[2] - b[0]) * (double)(b[3] - b[1]));

    return height <= 0 || width <= 0 ? 0 : height * width / (both - height * width);
}

/* One class: the best that is left, again and again. */
static int64_t suppress(const float *boxes, const float *scores, int64_t count, int64_t most,
                        double overlap, double least, int64_t *kept)
{
    int64_t found = 0;
    bool *gone = calloc((size_t)count, 1);

    while (found < most) {
        int64_t best = -1;

        for (int64_t i = 0; i < count; i++)
            if (!gone[i] && (double)scores[i] > least && (best < 0 || scores[i] > scores[best]))
                best = i;
        if (best < 0)
            break;
        kept[found++] = best;
        for (int64_t i = 0; i < count; i++)
            gone[i] = gone[i] || i == best || overlap_of(boxes + 4 * i, boxes + 4 * best) > overlap;
    }
    free(gone);
    return found;
}

/* Many boxes with many equal scores, some of them NaN. */
static void suppression_agrees_with_the_plain_way(void **state)
{
    enum { IMAGES = 2, CLASSES = 3, BOXES = MANY_BOXES };
    static float boxes[IMAGES * BOXES * 4], scores[IMAGES * CLASSES * BOXES];
    static int64_t expected[IMAGES * CLASSES * BOXES * 3];
    static const int64_t limits[] = {1, 40, BOXES + 9};
    uint32_t rng = 5;

    (void)state;
    for (size_t i = 0; i < sizeof(boxes) / sizeof(boxes[0]); i++)
        boxes[i] = (float)(next_number(&rng) % 48);
    for (size_t i = 0; i < sizeof(scores) / sizeof(scores[0]); i++)
        scores[i] = next_number(&rng) % 50 == 0 ? NAN : (float)(next_number(&rng) % 64) / 32 - 0.5F;
    for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
        int64_t most = limits[l], found = 0, kept[BOXES];
        struct tensor in[5] = {{DTYPE_FLOAT, SHAPE(IMAGES, BOXES, 4), boxes},
                               {DTYPE_FLOAT, SHAPE(IMAGES, CLASSES, BOXES), scores},
                               {DTYPE_INT64, SHAPE(1), &most},
                               {DTYPE_FLOAT, SHAPE(1), (float[]){0.3125F}},
                               {DTYPE_FLOAT, SHAPE(1), (float[]){-0.25F}}};

        for (int64_t line = 0; line < (int64_t)IMAGES * CLASSES; line++) {
            int64_t count = suppress(boxes + line / CLASSES * BOXES * 4, scores + line * BOXES,
                                     BOXES, most, 0.3125, -0.25, kept);

            for (int64_t i = 0; i < count; i++, found++) {
                expected[3 * found] = line / CLASSES;
                expected[3 * found + 1] = line % CLASSES;
                expected[3 * found + 2] = kept[i];
            }
        }
        check_eval("NonMaxSuppression", NULL, 5, in, 1,
                   &(struct tensor){DTYPE_INT64, SHAPE(found, 3), expected});
    }
}

/* More classes of images than a device works on at a time. */
static void suppression_of_many_classes_keeps_their_order(void **state)
{
    enum { IMAGES = 3, CLASSES = MANY_CLASSES, BOXES = 2 };
    static const float boxes[IMAGES * BOXES * 4] = {0, 0, 1, 1, 5, 5, 6, 6, 0, 0, 1, 1,
                                                    5, 5, 6, 6, 0, 0, 1, 1, 5, 5, 6, 6};
    static float scores[IMAGES * CLASSES * BOXES];
    static int64_t expected[IMAGES * CLASSES * BOXES * 3];
    struct tensor in[5] = {{DTYPE_FLOAT, SHAPE(IMAGES, BOXES, 4), boxes},
                           {DTYPE_FLOAT, SHAPE(IMAGES, CLASSES, BOXES), scores},
                           {DTYPE_INT64, SHAPE(1), (int64_t[]){BOXES}},
                           {DTYPE_FLOAT, SHAPE(1), (float[]){0.5f}},
                           {DTYPE_FLOAT, SHAPE(1), (float[]){0.5f}}};
    int64_t found = 0;

    (void)state;
    for (int64_t i = 0; i < (int64_t)IMAGES * CLASSES * BOXES; i++) {
        scores[i] = i % 3 == 0 ? 0.25f : 1 - (float)(i % BOXES) / 8;
        if (i % 3 == 0)
            continue;
        expected[3 * found] = i / BOXES / CLASSES;
        expected[3 * found + 1] = i / BOXES % CLASSES;
        expected[3 * found++ + 2] = i % BOXES;
    }
    check_eval("NonMaxSuppression", NULL, 5, in, 1,
               &(struct tensor){DTYPE_INT64, SHAPE(found, 3), expected});
}

static void suppression_takes_centers_and_sizes_too(void **state)
{
    float boxes[] = {0.5f, 0.5f, 1, 1, 0.5f, 0.6f, 1, 1, 0.5f, 10.5f, 1, 1, 0.5f, 10.6f, 1, 1};
    float scores[] = {0.9f, 0.95f, -0.0f, 0.0f};
    struct tensor in[4] = {{DTYPE_FLOAT, SHAPE(1, 4, 4), boxes},
                           {DTYPE_FLOAT, SHAPE(1, 1, 4), scores},
                           {DTYPE_INT64, SHAPE(1), (int64_t[]){4}},
                           {DTYPE_FLOAT, SHAPE(1), (float[]){0.5f}}};
    struct nms_attrs attrs = {.center_point_box = 1};

    (void)state;
    check_eval("NonMaxSuppression", &attrs, 4, in, 1,
               &(struct tensor){DTYPE_INT64, SHAPE(2, 3), (int64_t[]){0, 0, 1, 0, 0, 2}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonzero_lists_places_axis_by_axis),
        cmocka_unit_test(compress_takes_what_the_condition_marks),
        cmocka_unit_test(nonzero_and_compress_keep_the_order_of_long_inputs),
        cmocka_unit_test(zeros_of_every_type_are_left_out),
        cmocka_unit_test(unique_sorts_or_keeps_the_first_order),
        cmocka_unit_test(unique_compares_strings_by_their_bytes),
        cmocka_unit_test(suppression_keeps_the_best_of_what_overlaps),
        cmocka_unit_test(suppression_agrees_with_the_plain_way),
        cmocka_unit_test(suppression_of_many_classes_keeps_their_order),
        cmocka_unit_test(suppression_takes_centers_and_sizes_too),
    };

    return run_cases(tests);
}
