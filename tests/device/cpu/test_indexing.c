/* Operators that find, choose and move elements by index: TopK, gathers and scatters, Einsum. */
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

/* ---- TopK ---- */

static void topk(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct topk_attrs *attrs = test->attrs;
    size_t axis = shape_axis(&in->shape, attrs->axis);
    int64_t length = in->shape.dims[axis], k = out->shape.dims[axis];
    int64_t inner = shape_product(&in->shape, axis + 1, in->shape.rank);

    for (int64_t row = 0; row < shape_count(&in->shape) / length; row++) {
        bool taken[64] = {false};

        for (int64_t i = 0; i < k; i++) {
            int64_t best = -1, to = (row / inner * k + i) * inner + row % inner;

            for (int64_t j = 0; j < length; j++) {
                const double *values = in->values + row / inner * length * inner + row % inner;

                if (!taken[j] &&
                    (best < 0 || (attrs->largest ? values[j * inner] > values[best * inner]
                                                 : values[j * inner] < values[best * inner])))
                    best = j;
            }
            taken[best] = true;
            out[0].values[to] =
                in->values[row / inner * length * inner + best * inner + row % inner];
            out[1].values[to] = (double)best;
        }
    }
}

static void topk_orders_equal_elements_by_index(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 3), 1, 40);
        struct topk_attrs attrs = {test_random_int(-(int64_t)shape.rank, (int64_t)shape.rank - 1),
                                   round % 2, 1};
        double k = (double)test_random_int(1, shape.dims[shape_axis(&shape, attrs.axis)]);

        op_test_run(tester, &(struct op_test){
                                .op = "TopK",
                                .attrs = &attrs,
                                .inputs = 2,
                                .in = {{some_types[round % TYPES], shape, .low = -9, .high = 9},
                                       {DTYPE_INT64, SHAPE(1), .values = &k, .constant = true}},
                                .outputs = 2,
                                .reference = topk});
    }
}

static void topk_puts_nan_on_top_and_both_zeros_alike(void **state)
{
    float values[] = {-0.0f, NAN, 0, INFINITY, -INFINITY};
    struct tensor in[2] = {{DTYPE_FLOAT, SHAPE(5), values},
                           {DTYPE_INT64, SHAPE(1), (int64_t[]){5}}};

    (void)state;
    check_eval(
        "TopK", NULL, 2, in, 2,
        (struct tensor[]){{DTYPE_NONE}, {DTYPE_INT64, SHAPE(5), (int64_t[]){1, 3, 0, 2, 4}}});
}

/* More elements than a device sorts at once, many of them equal. */
static void topk_finds_the_best_of_long_lines(void **state)
{
    enum { LENGTH = 3001, LINES = 2, K = 7 };
    static float in[LENGTH * LINES];
    const struct tensor operands[2] = {{DTYPE_FLOAT, SHAPE(LENGTH, LINES), in},
                                       {DTYPE_INT64, SHAPE(1), (int64_t[]){K}}};

    (void)state;
    for (int64_t i = 0; i < (int64_t)LENGTH * LINES; i++)
        in[i] = (float)(i * 7919 % 1013);
    for (int64_t largest = 0; largest < 2; largest++) {
        float values[K * LINES], sign = largest ? 1 : -1;
        int64_t places[K * LINES];
        struct topk_attrs attrs = {.axis = 0, .largest = largest, .sorted = 1};

        for (int64_t at = 0; at < (int64_t)K * LINES; at++) {
            int64_t line = at % LINES, best = -1;

            for (int64_t i = 0; i < LENGTH; i++) {
                bool is_taken = false;

                for (int64_t k = line; k < at; k += LINES)
                    is_taken = is_taken || places[k] == i;
                if (!is_taken &&
                    (best < 0 || sign * in[i * LINES + line] > sign * in[best * LINES + line]))
                    best = i;
            }
            places[at] = best;
            values[at] = in[best * LINES + line];
        }
        check_eval("TopK", &attrs, 2, operands, 2,
                   (struct tensor[]){{DTYPE_FLOAT, SHAPE(K, LINES), values},
                                     {DTYPE_INT64, SHAPE(K, LINES), places}});
    }
}

/* A place with its value, largest first, then by place. */
struct ranked {
    double value;
    int64_t place;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* More results, too: of few values, so that equal ones stand on both sides of every bound; of as
 * many as there are; and of one. */
static void topk_ranks_long_lines(void **state)
{
    enum { LENGTH = 4999 };
    static const enum dtype types[] = {DTYPE_INT8, DTYPE_FLOAT, DTYPE_INT64, DTYPE_DOUBLE};
    static const int64_t ks[] = {1, 2047, 2048, 2049, LENGTH};
    static double in[LENGTH], values[LENGTH];
    static int64_t places[LENGTH];
    static struct ranked ranked[LENGTH];

    (void)state;
    for (int64_t way = 0; way < 8; way++) {
        const enum dtype dtype = types[way / 2];
        const int64_t kinds = dtype == DTYPE_INT8 ? 5 : way == 5 ? 1 : 3001;
        const struct topk_attrs attrs = {.axis = 0, .largest = way % 2, .sorted = 1};

        for (int64_t i = 0; i < LENGTH; i++) {
            test_put(dtype, in, i, (double)(i * 7919 % kinds - kinds / 2));
            ranked[i] = (struct ranked){test_get(dtype, in, i) * (attrs.largest ? 1 : -1), i};
        }
        qsort(ranked, LENGTH, sizeof(ranked[0]), by_rank);
        for (int64_t i = 0; i < LENGTH; i++) {
            places[i] = ranked[i].place;
            test_put(dtype, values, i, test_get(dtype, in, places[i]));
        }
        for (size_t k = 0; k < sizeof(ks) / sizeof(ks[0]); k++) {
            int64_t count = ks[k];
            const struct tensor operands[2] = {{dtype, SHAPE(LENGTH), in},
                                               {DTYPE_INT64, SHAPE(1), &count}};

            check_eval("TopK", &attrs, 2, operands, 2,
                       (struct tensor[]){{dtype, SHAPE(count), values},
                                         {DTYPE_INT64, SHAPE(count), places}});
        }
    }
}

static void topk_refuses_more_than_there_are(void **state)
{
    (void)state;
    op_test_refused(tester, &(struct op_test){.op = "TopK",
                                              .inputs = 2,
                                              .in = {{DTYPE_FLOAT, SHAPE(3)},
                                                     {DTYPE_INT64, SHAPE(1),
                                                      .values = (double[]){4}, .constant = true}},
                                              .outputs = 2,
                                              .reference = topk});
}

/* ---- gathering and scattering by element ---- */

static void gather_elements(const struct op_test *test, const struct test_array *in,
                            struct test_array *out)
{
    const struct axis_attrs *attrs = test->attrs;
    size_t axis = shape_axis(&in->shape, attrs->axis);

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[SHAPE_MAX_RANK], index = (int64_t)in[1].values[i];

        place_of(&out->shape, i, at);
        at[axis] = index < 0 ? index + in->shape.dims[axis] : index;
        out->values[i] = in->values[offset_of(&in->shape, at)];
    }
}

static void gather_elements_reads_at_any_axis(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 4), 1, 6);
        struct shape picked = shape;
        struct axis_attrs attrs = {test_random_int(-(int64_t)shape.rank, (int64_t)shape.rank - 1)};
        size_t axis = shape_axis(&shape, attrs.axis);
        double indices[6 * 6 * 6 * 9];

        for (size_t i = 0; i < shape.rank; i++)
            picked.dims[i] = i == axis ? test_random_int(1, 9) : test_random_int(1, shape.dims[i]);
        for (int64_t i = 0; i < shape_count(&picked); i++)
            indices[i] = (double)test_random_int(-shape.dims[axis], shape.dims[axis] - 1);
        op_test_run(tester, &(struct op_test){.op = "GatherElements",
                                              .attrs = &attrs,
                                              .inputs = 2,
                                              .in = {{some_types[round % TYPES], shape},
                                                     {round % 2 ? DTYPE_INT64 : DTYPE_INT32, picked,
                                                      .values = indices}},
                                              .reference = gather_elements});
    }
}

static void scatter_reduces_duplicates_in_order(void **state)
{
    float data[] = {1, 2, 3, 4}, updates[] = {5, 6, 7};
    int64_t indices[] = {1, -3, 0}, pairs[] = {1, 1, 3};
    struct tensor in[3] = {{DTYPE_FLOAT, SHAPE(4), data},
                           {DTYPE_INT64, SHAPE(3), indices},
                           {DTYPE_FLOAT, SHAPE(3), updates}};
    struct tensor nd[3] = {in[0], {DTYPE_INT64, SHAPE(3, 1), pairs}, in[2]};
    static const float expected[SCATTER_MIN + 1][4] = {
        {7, 6, 3, 4}, {8, 13, 3, 4}, {7, 60, 3, 4}, {7, 6, 3, 4}, {1, 2, 3, 4}};
    static const float expected_nd[SCATTER_MIN + 1][4] = {
        {1, 6, 3, 7}, {1, 13, 3, 11}, {1, 60, 3, 28}, {1, 6, 3, 7}, {1, 2, 3, 4}};

    (void)state;
    for (int r = SCATTER_NONE; r <= SCATTER_MIN; r++) {
        struct scatter_attrs attrs = {0, r};

        check_eval("ScatterElements", &attrs, 3, in, 1,
                   &(struct tensor){DTYPE_FLOAT, SHAPE(4), expected[r]});
        check_eval("ScatterND", &attrs, 3, nd, 1,
                   &(struct tensor){DTYPE_FLOAT, SHAPE(4), expected_nd[r]});
    }
}

static void scatter_reduces_along_the_first_axis(void **state)
{
    float data[] = {1, 2, 3, 4, 5, 6}, updates[] = {10, 20, 30, 40, 50, 60};
    struct tensor in[3] = {{DTYPE_FLOAT, SHAPE(3, 2), data},
                           {DTYPE_INT64, SHAPE(3, 2), (int64_t[]){0, 1, 0, 2, 2, 2}},
                           {DTYPE_FLOAT, SHAPE(3, 2), updates}};
    struct scatter_attrs attrs = {0, SCATTER_ADD};

    (void)state;
    check_eval("ScatterElements", &attrs, 3, in, 1,
               &(struct tensor){DTYPE_FLOAT, SHAPE(3, 2), (float[]){41, 2, 3, 24, 55, 106}});
}

static void an_index_outside_fails_the_request(void **state)
{
    float data[4] = {0};
    int64_t index[] = {4}, low[] = {-5};
    struct tensor in[3] = {{DTYPE_FLOAT, SHAPE(4), data},
                           {DTYPE_INT64, SHAPE(1), index},
                           {DTYPE_FLOAT, SHAPE(1), data}};
    struct tensor out[1];

    (void)state;
    assert_int_equal(eval("GatherElements", NULL, 2, in, 1, out), STATUS_INVALID);
    assert_int_equal(eval("GatherND", NULL, 2, in, 1, out), STATUS_INVALID);
    assert_int_equal(eval("ScatterElements", NULL, 3, in, 1, out), STATUS_INVALID);
    in[1].data = low;
    assert_int_equal(eval("GatherElements", NULL, 2, in, 1, out), STATUS_INVALID);
    in[1].shape = (struct shape)SHAPE(1, 1);
    assert_int_equal(eval("ScatterND", NULL, 3, in, 1, out), STATUS_INVALID);
}

static void one_hot_leaves_out_what_is_outside(void **state)
{
    struct tensor in[3] = {{DTYPE_INT64, SHAPE(4), (int64_t[]){0, -1, 3, -4}},
                           {DTYPE_INT64, SHAPE_SCALAR, (int64_t[]){3}},
                           {DTYPE_INT32, SHAPE(2), (int32_t[]){8, 9}}};
    struct tensor floats[3] = {{DTYPE_FLOAT, SHAPE(2), (float[]){2.0f, NAN}}, in[1], in[2]};

    (void)state;
    check_eval("OneHot", NULL, 3, in, 1,
               &(struct tensor){DTYPE_INT32, SHAPE(4, 3),
                                (int32_t[]){9, 8, 8, 8, 8, 9, 8, 8, 8, 8, 8, 8}});
    check_eval("OneHot", &(struct axis_attrs){0}, 3, floats, 1,
               &(struct tensor){DTYPE_INT32, SHAPE(3, 2), (int32_t[]){8, 8, 8, 8, 9, 8}});
}

/* ---- depth and space ---- */

static void depth_to_space(const struct op_test *test, const struct test_array *in,
                           struct test_array *out)
{
    const struct space_depth_attrs *attrs = test->attrs;
    int64_t size = attrs->blocksize, channels = out->shape.dims[1];

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[4], cell;

        place_of(&out->shape, i, at);
        cell = at[2] % size * size + at[3] % size;
        at[1] = attrs->mode == DEPTH_DCR ? cell * channels + at[1] : at[1] * size * size + cell;
        at[2] /= size;
        at[3] /= size;
        out->values[i] = in->values[offset_of(&in->shape, at)];
    }
}

static void depth_becomes_space_in_both_modes(void **state)
{
    (void)state;
    for (int mode = DEPTH_DCR; mode <= DEPTH_CRD; mode++)
        for (int64_t size = 1; size <= 3; size++) {
            struct space_depth_attrs attrs = {size, mode};

            op_test_run(tester,
                        &(struct op_test){.op = "DepthToSpace",
                                          .attrs = &attrs,
                                          .inputs = 1,
                                          .in = {{DTYPE_FLOAT, SHAPE(2, 3 * size * size, 4, 5)}},
                                          .reference = depth_to_space});
        }
}

/* ---- Einsum ---- */

static void check_einsum(const char *equation, const struct tensor *in, size_t inputs,
                         const struct tensor *expected)
{
    struct einsum_attrs attrs = {equation};

    check_eval("Einsum", &attrs, inputs, in, 1, expected);
}

static void einsum_multiplies_turns_and_sums(void **state)
{
    float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 0, 1, 3}; /* [2,3] and [3,2] */
    struct tensor in[2] = {{DTYPE_FLOAT, SHAPE(2, 3), a}, {DTYPE_FLOAT, SHAPE(3, 2), b}};
    struct tensor square = {DTYPE_FLOAT, SHAPE(2, 2), (float[]){8, 9, 20, 18}};
    struct tensor turned = {DTYPE_FLOAT, SHAPE(2, 2), (float[]){8, 20, 9, 18}};

    (void)state;
    check_einsum("ij,jk->ik", in, 2, &square);
    check_einsum("ij,jk->ki", in, 2, &turned);
    check_einsum("ij,jk", in, 2, &square);
    check_einsum("...ij, ...jk -> ...ik", in, 2, &square);
    check_einsum("ij->ji", in, 1,
                 &(struct tensor){DTYPE_FLOAT, SHAPE(3, 2), (float[]){1, 4, 2, 5, 3, 6}});
    check_einsum("ij->", in, 1, &(struct tensor){DTYPE_FLOAT, SHAPE_SCALAR, (float[]){21}});
    check_einsum("ii->i", &square, 1, &(struct tensor){DTYPE_FLOAT, SHAPE(2), (float[]){8, 18}});
}

static void einsum_refuses_equations_that_do_not_fit(void **state)
{
    static const char *const equations[] = {"ij,jk->il", "ij,jk->ii", "ijk,jk->i", "ij->i",
                                            "ij,ij",     "i?,jk->ik", "ij,jk->ik,"};

    (void)state;
    for (size_t i = 0; i < sizeof(equations) / sizeof(equations[0]); i++) {
        struct einsum_attrs attrs = {equations[i]};

        op_test_refused(tester, &(struct op_test){
                                    .op = "Einsum",
                                    .attrs = &attrs,
                                    .inputs = 2,
                                    .in = {{DTYPE_FLOAT, SHAPE(2, 3)}, {DTYPE_FLOAT, SHAPE(3, 2)}},
                                    .reference = topk});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_orders_equal_elements_by_index),
        cmocka_unit_test(topk_puts_nan_on_top_and_both_zeros_alike),
        cmocka_unit_test(topk_finds_the_best_of_long_lines),
        cmocka_unit_test(topk_ranks_long_lines),
        cmocka_unit_test(topk_refuses_more_than_there_are),
        cmocka_unit_test(gather_elements_reads_at_any_axis),
        cmocka_unit_test(scatter_reduces_duplicates_in_order),
        cmocka_unit_test(scatter_reduces_along_the_first_axis),
        cmocka_unit_test(an_index_outside_fails_the_request),
        cmocka_unit_test(one_hot_leaves_out_what_is_outside),
        cmocka_unit_test(depth_becomes_space_in_both_modes),
        cmocka_unit_test(einsum_multiplies_turns_and_sums),
        cmocka_unit_test(einsum_refuses_equations_that_do_not_fit),
    };

    return run_cases(tests);
}
