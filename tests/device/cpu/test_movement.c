/* Transpose, Concat, Split, Expand, Tile and Gather. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "device/cpu/places.h"
#include "ops/movement.h"
#include "support/cpu_cases.h"

static const enum dtype every_size[] = {DTYPE_UINT8, DTYPE_FLOAT16, DTYPE_FLOAT, DTYPE_INT64};
enum { SIZES = sizeof(every_size) / sizeof(every_size[0]) };

/* ---- Transpose ---- */

static void transpose(const struct op_test *test, const struct test_array *in,
                      struct test_array *out)
{
    const struct transpose_attrs *attrs = test->attrs;

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[SHAPE_MAX_RANK], from[SHAPE_MAX_RANK];

        place_of(&out->shape, i, at);
        for (size_t axis = 0; axis < out->shape.rank; axis++)
            from[attrs->perm.values[axis]] = at[axis];
        out->values[i] = in->values[offset_of(&in->shape, from)];
    }
}

static void check_transpose(enum dtype dtype, struct shape shape, const int64_t *perm)
{
    struct transpose_attrs attrs = {.perm = {shape.rank, perm}};

    op_test_run(tester, &(struct op_test){.op = "Transpose",
                                          .attrs = &attrs,
                                          .inputs = 1,
                                          .in = {{dtype, shape}},
                                          .reference = transpose});
}

static void shuffle(int64_t *perm, size_t rank)
{
    for (size_t i = 0; i < rank; i++)
        perm[i] = (int64_t)i;
    for (size_t i = rank; i > 1; i--) {
        size_t k = (size_t)test_random_int(0, (int64_t)i - 1);
        int64_t axis = perm[k];

        perm[k] = perm[i - 1];
        perm[i - 1] = axis;
    }
}

static void transpose_puts_every_element_in_its_place(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++)
        for (size_t rank = 1; rank <= 6; rank++) {
            int64_t perm[SHAPE_MAX_RANK];

            shuffle(perm, rank);
            check_transpose(every_size[round % SIZES],
                            test_random_shape(rank, 1, rank < 3 ? 70 : 7), perm);
        }
}

static void transpose_of_large_planes_is_the_same_on_several_threads(void **state)
{
    (void)state;
    check_transpose(DTYPE_FLOAT, (struct shape)SHAPE(517, 389), (const int64_t[]){1, 0});
    check_transpose(DTYPE_UINT8, (struct shape)SHAPE(1, 200, 201, 3),
                    (const int64_t[]){0, 3, 1, 2});
    check_transpose(DTYPE_FLOAT, (struct shape)SHAPE(2, 100, 12, 32),
                    (const int64_t[]){0, 2, 1, 3});
    check_transpose(DTYPE_FLOAT, (struct shape)SHAPE(2, 12, 100, 32),
                    (const int64_t[]){0, 1, 3, 2});
}

static void transpose_without_perm_reverses(void **state)
{
    float data[] = {1, 2, 3, 4, 5, 6};
    struct tensor in = {DTYPE_FLOAT, SHAPE(2, 3), data}, out;
    struct error err;

    (void)state;
    assert_int_equal(op_tester_eval(tester, NULL, "Transpose", NULL, 1,
                                    (const struct tensor *const[]){&in}, false, 1, &out, &err),
                     STATUS_OK);
    assert_int_equal(out.shape.dims[0], 3);
    assert_memory_equal(out.data, ((float[]){1, 4, 2, 5, 3, 6}), sizeof(data));
    free((void *)(uintptr_t)out.data);
}

static void transpose_refuses_a_perm_that_names_an_axis_twice(void **state)
{
    const int64_t perm[] = {0, 0};
    struct transpose_attrs attrs = {.perm = {2, perm}};

    (void)state;
    assert_non_null(
        strstr(op_test_refused(tester, &(struct op_test){.op = "Transpose",
                                                         .attrs = &attrs,
                                                         .inputs = 1,
                                                         .in = {{DTYPE_FLOAT, SHAPE(2, 3)}},
                                                         .reference = transpose}),
               "twice"));
}

/* ---- Concat, Split ---- */

static void concat(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct concat_attrs *attrs = test->attrs;
    size_t axis = shape_axis(&out->shape, attrs->axis);

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[SHAPE_MAX_RANK];
        size_t part = 0;

        place_of(&out->shape, i, at);
        while (at[axis] >= in[part].shape.dims[axis])
            at[axis] -= in[part++].shape.dims[axis];
        out->values[i] = in[part].values[offset_of(&in[part].shape, at)];
    }
}

static void concat_joins_parts_along_any_axis(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 5), 1, 9);
        struct concat_attrs attrs = {
            test_random_int(-(int64_t)shape.rank, (int64_t)shape.rank - 1)};
        struct op_test test = {.op = "Concat", .attrs = &attrs, .reference = concat};

        test.inputs = (size_t)test_random_int(1, 5);
        for (size_t i = 0; i < test.inputs; i++) {
            test.in[i].dtype = every_size[round % SIZES];
            test.in[i].shape = shape;
            test.in[i].shape.dims[shape_axis(&shape, attrs.axis)] = test_random_int(0, 9);
        }
        op_test_run(tester, &test);
    }
}

static void concat_of_whole_blocks_of_channels_stays_blocked(void **state)
{
    struct concat_attrs attrs = {1};

    (void)state;
    op_test_run(tester, &(struct op_test){.op = "Concat",
                                          .attrs = &attrs,
                                          .inputs = 3,
                                          .in = {{DTYPE_FLOAT, SHAPE(2, 16, 5, 3)},
                                                 {DTYPE_FLOAT, SHAPE(2, 32, 5, 3)},
                                                 {DTYPE_FLOAT, SHAPE(2, 21, 5, 3)}},
                                          .reference = concat});
}

static void split(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct split_attrs *attrs = test->attrs;
    size_t axis = shape_axis(&in->shape, attrs->axis);

    for (int64_t i = 0; i < shape_count(&in->shape); i++) {
        int64_t at[SHAPE_MAX_RANK];
        size_t part = 0;

        place_of(&in->shape, i, at);
        while (at[axis] >= out[part].shape.dims[axis])
            at[axis] -= out[part++].shape.dims[axis];
        out[part].values[offset_of(&out[part].shape, at)] = in->values[i];
    }
}

static void split_into_equal_parts_leaves_the_last_smaller(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 5), 1, 19);
        struct split_attrs attrs = {test_random_int(-(int64_t)shape.rank, (int64_t)shape.rank - 1),
                                    test_random_int(1, 4)};

        op_test_run(tester, &(struct op_test){.op = "Split",
                                              .attrs = &attrs,
                                              .inputs = 1,
                                              .in = {{every_size[round % SIZES], shape}},
                                              .outputs = (size_t)attrs.num_outputs,
                                              .reference = split});
    }
}

static void split_by_given_lengths_cuts_blocked_channels(void **state)
{
    struct split_attrs attrs = {1, 0};

    (void)state;
    op_test_run(tester,
                &(struct op_test){.op = "Split",
                                  .attrs = &attrs,
                                  .inputs = 2,
                                  .in = {{DTYPE_FLOAT, SHAPE(2, 69, 3, 5)},
                                         {DTYPE_INT64, SHAPE(3), .values = (double[]){16, 32, 21},
                                          .constant = true}},
                                  .outputs = 3,
                                  .reference = split});
}

static void split_refuses_lengths_that_do_not_add_up(void **state)
{
    struct split_attrs attrs = {0, 0};

    (void)state;
    op_test_refused(
        tester, &(struct op_test){
                    .op = "Split",
                    .attrs = &attrs,
                    .inputs = 2,
                    .in = {{DTYPE_FLOAT, SHAPE(6)},
                           {DTYPE_INT64, SHAPE(2), .values = (double[]){2, 3}, .constant = true}},
                    .outputs = 2,
                    .reference = split});
}

/* ---- Expand, Tile ---- */

/* Element of the input at the place taken modulo its lengths, aligned at the last axis. */
static void repeat(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    size_t missing = out->shape.rank - in->shape.rank;

    (void)test;
    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[SHAPE_MAX_RANK];

        place_of(&out->shape, i, at);
        for (size_t axis = 0; axis < in->shape.rank; axis++)
            at[axis] = at[axis + missing] % in->shape.dims[axis];
        out->values[i] = in->values[offset_of(&in->shape, at)];
    }
}

static void expand_and_tile_repeat_elements(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 4), 1, 5);
        double wanted[SHAPE_MAX_RANK], repeats[SHAPE_MAX_RANK];
        struct shape open = shape;

        for (size_t i = 0; i < shape.rank; i++) {
            repeats[i] = (double)test_random_int(0, 3);
            wanted[i] = test_random_int(0, 1) ? 1 : (double)shape.dims[i];
            if (test_random_int(0, 2) == 0) {
                open.dims[i] = 1;
                wanted[i] = (double)test_random_int(1, 9);
            }
        }
        op_test_run(tester, &(struct op_test){.op = "Tile",
                                              .inputs = 2,
                                              .in = {{every_size[round % SIZES], shape},
                                                     {DTYPE_INT64, SHAPE((int64_t)shape.rank),
                                                      .values = repeats, .constant = true}},
                                              .reference = repeat});
        op_test_run(tester, &(struct op_test){.op = "Expand",
                                              .inputs = 2,
                                              .in = {{every_size[round % SIZES], open},
                                                     {DTYPE_INT64, SHAPE((int64_t)shape.rank),
                                                      .values = wanted, .constant = true}},
                                              .reference = repeat});
    }
}

/* ---- Gather ---- */

static void gather(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct gather_attrs *attrs = test->attrs;
    size_t axis = shape_axis(&in->shape, attrs->axis);
    int64_t inner = shape_product(&in->shape, axis + 1, in->shape.rank);
    int64_t picks = shape_count(&in[1].shape), length = in->shape.dims[axis];

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t index = (int64_t)in[1].values[i / inner % picks];

        out->values[i] =
            in->values[(i / inner / picks * length + (index + length) % length) * inner +
                       i % inner];
    }
}

static void gather_picks_slices_by_index(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 4), 1, 7);
        struct gather_attrs attrs = {
            test_random_int(-(int64_t)shape.rank, (int64_t)shape.rank - 1)};
        int64_t length = shape.dims[shape_axis(&shape, attrs.axis)];
        double indices[36];

        for (int i = 0; i < 36; i++)
            indices[i] = (double)test_random_int(-length, length - 1);
        op_test_run(tester, &(struct op_test){
                                .op = "Gather",
                                .attrs = &attrs,
                                .inputs = 2,
                                .in = {{every_size[round % SIZES], shape},
                                       {round % 2 ? DTYPE_INT64 : DTYPE_INT32,
                                        test_random_shape((size_t)test_random_int(0, 2), 1, 6),
                                        .values = indices, .constant = round % 3 == 0}},
                                .reference = gather});
    }
}

static void gather_of_an_index_outside_fails_the_request(void **state)
{
    float data[6] = {0};
    int64_t index[] = {0, 3};
    struct tensor in[2] = {{DTYPE_FLOAT, SHAPE(3, 2), data}, {DTYPE_INT64, SHAPE(2), index}}, out;
    struct error err;

    (void)state;
    assert_int_equal(op_tester_eval(tester, NULL, "Gather", NULL, 2,
                                    (const struct tensor *const[]){&in[0], &in[1]}, false, 1, &out,
                                    &err),
                     STATUS_INVALID);
}

/* ---- strings move as well ---- */

static void strings_move_like_any_element(void **state)
{
    struct bytes data[] = {{"a", 1}, {"bb", 2}, {"", 0}, {"dddd", 4}, {"e", 1}, {"f", 1}};
    struct tensor in = {DTYPE_STRING, SHAPE(2, 3), data}, out;
    const struct bytes *found;
    struct error err;

    (void)state;
    assert_int_equal(op_tester_eval(tester, NULL, "Transpose", NULL, 1,
                                    (const struct tensor *const[]){&in}, false, 1, &out, &err),
                     STATUS_OK);
    found = out.data;
    assert_ptr_equal(found[1].data, data[3].data);
    assert_int_equal(found[1].size, 4);
    assert_ptr_equal(found[4].data, data[2].data);
    free((void *)(uintptr_t)out.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transpose_puts_every_element_in_its_place),
        cmocka_unit_test(transpose_of_large_planes_is_the_same_on_several_threads),
        cmocka_unit_test(transpose_without_perm_reverses),
        cmocka_unit_test(transpose_refuses_a_perm_that_names_an_axis_twice),
        cmocka_unit_test(concat_joins_parts_along_any_axis),
        cmocka_unit_test(concat_of_whole_blocks_of_channels_stays_blocked),
        cmocka_unit_test(split_into_equal_parts_leaves_the_last_smaller),
        cmocka_unit_test(split_by_given_lengths_cuts_blocked_channels),
        cmocka_unit_test(split_refuses_lengths_that_do_not_add_up),
        cmocka_unit_test(expand_and_tile_repeat_elements),
        cmocka_unit_test(gather_picks_slices_by_index),
        cmocka_unit_test(gather_of_an_index_outside_fails_the_request),
        cmocka_unit_test(strings_move_like_any_element),
    };

    return run_cases(tests);
}
