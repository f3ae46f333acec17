/* Results made of shapes and numbers: Shape, Range, ConstantOfShape, EyeLike, Reshape. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/cpu/cpu.h"
#include "ops/movement.h"
#include "support/cpu_cases.h"

static void check_eval(const char *op, const void *attrs, size_t inputs, const struct tensor *in,
                       const struct tensor *expected)
{
    const struct tensor *list[4] = {NULL};
    struct tensor out;
    struct error err = {.text = ""};

    for (size_t i = 0; i < inputs; i++)
        list[i] = in[i].dtype == DTYPE_NONE ? NULL : &in[i];
    if (op_tester_eval(tester, NULL, op, attrs, inputs, list, true, 1, &out, &err) != STATUS_OK)
        fail_msg("%s: %s", op, err.text);
    assert_int_equal(out.dtype, expected->dtype);
    assert_true(shape_is_equal(&out.shape, &expected->shape));
    if (tensor_bytes(expected) > 0)
        assert_memory_equal(out.data, expected->data, tensor_bytes(expected));
    free((void *)(uintptr_t)out.data);
}

static void shape_and_size_read_only_the_shape(void **state)
{
    struct tensor in = {DTYPE_FLOAT, SHAPE(2, 3, 4), calloc(24, 4)};

    (void)state;
    check_eval("Shape", NULL, 1, &in,
               &(struct tensor){DTYPE_INT64, SHAPE(3), (int64_t[]){2, 3, 4}});
    check_eval("Shape", &(struct shape_attrs){-2, INT64_MAX}, 1, &in,
               &(struct tensor){DTYPE_INT64, SHAPE(2), (int64_t[]){3, 4}});
    check_eval("Shape", &(struct shape_attrs){-9, -1}, 1, &in,
               &(struct tensor){DTYPE_INT64, SHAPE(2), (int64_t[]){2, 3}});
    check_eval("Shape", &(struct shape_attrs){2, 1}, 1, &in,
               &(struct tensor){DTYPE_INT64, SHAPE(0), NULL});
    check_eval("Size", NULL, 1, &in, &(struct tensor){DTYPE_INT64, SHAPE_SCALAR, (int64_t[]){24}});
    free((void *)(uintptr_t)in.data);
}

static void range_counts_without_overflow(void **state)
{
    struct tensor ints[3] = {{DTYPE_INT64, SHAPE_SCALAR, (int64_t[]){INT64_MAX - 5}},
                             {DTYPE_INT64, SHAPE_SCALAR, (int64_t[]){INT64_MAX}},
                             {DTYPE_INT64, SHAPE_SCALAR, (int64_t[]){3}}};
    struct tensor floats[3] = {{DTYPE_FLOAT, SHAPE_SCALAR, (float[]){1}},
                               {DTYPE_FLOAT, SHAPE_SCALAR, (float[]){-1}},
                               {DTYPE_FLOAT, SHAPE_SCALAR, (float[]){-0.75f}}};
    struct tensor none[3] = {{DTYPE_INT32, SHAPE_SCALAR, (int32_t[]){4}},
                             {DTYPE_INT32, SHAPE_SCALAR, (int32_t[]){0}},
                             {DTYPE_INT32, SHAPE_SCALAR, (int32_t[]){1}}};

    (void)state;
    check_eval("Range", NULL, 3, ints,
               &(struct tensor){DTYPE_INT64, SHAPE(2), (int64_t[]){INT64_MAX - 5, INT64_MAX - 2}});
    check_eval("Range", NULL, 3, floats,
               &(struct tensor){DTYPE_FLOAT, SHAPE(3), (float[]){1, 0.25f, -0.5f}});
    check_eval("Range", NULL, 3, none, &(struct tensor){DTYPE_INT32, SHAPE(0), NULL});
}

static void constants_are_filled(void **state)
{
    struct tensor shape = {DTYPE_INT64, SHAPE(2), (int64_t[]){2, 2}};
    struct constant_of_shape_attrs attrs = {{DTYPE_INT32, SHAPE(1), (int32_t[]){7}}};
    struct constant_attrs ints = {.value_ints = {2, (int64_t[]){5, 6}}, .value_int = INT64_MIN};

    (void)state;
    check_eval("ConstantOfShape", &attrs, 1, &shape,
               &(struct tensor){DTYPE_INT32, SHAPE(2, 2), (int32_t[]){7, 7, 7, 7}});
    check_eval("ConstantOfShape", NULL, 1, &shape,
               &(struct tensor){DTYPE_FLOAT, SHAPE(2, 2), (float[]){0, 0, 0, 0}});
    check_eval("Constant", &ints, 0, NULL,
               &(struct tensor){DTYPE_INT64, SHAPE(2), (int64_t[]){5, 6}});
}

static void eye_like_and_trilu_follow_their_diagonal(void **state)
{
    struct tensor in = {DTYPE_INT32, SHAPE(2, 3), (int32_t[]){1, 2, 3, 4, 5, 6}};
    struct tensor with_k[2] = {in, {DTYPE_INT64, SHAPE_SCALAR, (int64_t[]){1}}};

    (void)state;
    check_eval("EyeLike", &(struct eye_like_attrs){DTYPE_FLOAT, 1}, 1, &in,
               &(struct tensor){DTYPE_FLOAT, SHAPE(2, 3), (float[]){0, 1, 0, 0, 0, 1}});
    check_eval("EyeLike", &(struct eye_like_attrs){0, -1}, 1, &in,
               &(struct tensor){DTYPE_INT32, SHAPE(2, 3), (int32_t[]){0, 0, 0, 1, 0, 0}});
    check_eval("EyeLike", &(struct eye_like_attrs){0, INT64_MIN}, 1, &in,
               &(struct tensor){DTYPE_INT32, SHAPE(2, 3), (int32_t[]){0, 0, 0, 0, 0, 0}});
    check_eval("Trilu", NULL, 1, &in,
               &(struct tensor){DTYPE_INT32, SHAPE(2, 3), (int32_t[]){1, 2, 3, 0, 5, 6}});
    check_eval("Trilu", &(struct trilu_attrs){0}, 2, with_k,
               &(struct tensor){DTYPE_INT32, SHAPE(2, 3), (int32_t[]){1, 2, 0, 4, 5, 6}});
}

static void reshape_solves_the_open_dimension(void **state)
{
    struct tensor in[2] = {{DTYPE_INT32, SHAPE(2, 3), (int32_t[]){1, 2, 3, 4, 5, 6}},
                           {DTYPE_INT64, SHAPE(3), (int64_t[]){0, -1, 1}}};

    (void)state;
    check_eval("Reshape", NULL, 2, in,
               &(struct tensor){DTYPE_INT32, SHAPE(2, 3, 1), (int32_t[]){1, 2, 3, 4, 5, 6}});
    check_eval("Flatten", &(struct flatten_attrs){0}, 1, in,
               &(struct tensor){DTYPE_INT32, SHAPE(1, 6), (int32_t[]){1, 2, 3, 4, 5, 6}});
}

static void reshape_refuses_what_does_not_fit(void **state)
{
    static const double shapes[][3] = {{0, -1, 4}, {-1, -1, 1}, {2, 2, 1}, {-2, 3, 1}, {2, 3, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        op_test_refused(tester, &(struct op_test){.op = "Reshape",
                                                  .inputs = 2,
                                                  .in = {{DTYPE_FLOAT, SHAPE(2, 3)},
                                                         {DTYPE_INT64, SHAPE(3),
                                                          .values = shapes[i], .constant = true}}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shape_and_size_read_only_the_shape),
        cmocka_unit_test(range_counts_without_overflow),
        cmocka_unit_test(constants_are_filled),
        cmocka_unit_test(eye_like_and_trilu_follow_their_diagonal),
        cmocka_unit_test(reshape_solves_the_open_dimension),
        cmocka_unit_test(reshape_refuses_what_does_not_fit),
    };

    return run_cases(tests);
}
