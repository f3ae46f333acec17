/* Axes of operands, brought into the form that kernels walk. */
#include "device/cuda/kernels/axes.h"

#include <stdlib.h>

#include "op_tester/op_tester.h"
#include "support/unit.h"

/* As the kernels divide. */
static uint32_t divided(const struct walk *walk, uint32_t axis, uint32_t n)
{
    uint32_t high = (uint32_t)((uint64_t)n * walk->multipliers[axis] >> 32);

    return (high + n) >> walk->shifts[axis];
}

static void check_division(int64_t size, uint32_t n)
{
    struct axes axes = {.operands = 1};
    struct walk_strides strides[1];
    struct walk walk;

    axes_add(&axes, size, (const int64_t[]){1});
    assert_true(axes_finish(&axes, &walk, strides));
    assert_int_equal(divided(&walk, 0, n), n / (uint32_t)size);
}

static void division_is_exact_below_2_to_the_31(void **state)
{
    static const uint32_t edges[] = {0, 1, 2, 6, 7, 8, 0x7FFFFFFE, 0x7FFFFFFF};

    (void)state;
    for (int round = 0; round < 20000; round++) {
        int64_t size = test_random_int(1, round % 3 == 0 ? 300 : INT32_MAX);
        uint32_t n = (uint32_t)test_random_int(0, INT32_MAX);
        uint32_t multiple = (uint32_t)((uint64_t)n / (uint64_t)size * (uint64_t)size);

        check_division(size, n);
        check_division(size, multiple);
        check_division(size, multiple > 0 ? multiple - 1 : 0);
    }
    for (int64_t size = 1; size <= 1025; size++)
        for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
            check_division(size, edges[i]);
}

/* Where a walk's element `index` lies in operand `k`. */
static int64_t offset_of(const struct walk *walk, const struct walk_strides *strides, int64_t index)
{
    int64_t offset = 0;

    for (uint32_t axis = walk->rank; axis-- > 0; index /= walk->sizes[axis])
        offset += index % walk->sizes[axis] * strides->of[axis];
    return offset;
}

static void merging_keeps_every_element_in_its_place(void **state)
{
    (void)state;
    for (int round = 0; round < 500; round++) {
        struct axes axes = {.operands = 2}, merged;
        struct walk_strides before[2], after[2];
        struct walk whole, walk;
        int64_t inner = 1;
        struct shape shape = test_random_shape((size_t)test_random_int(0, 5), 1, 4);

        for (size_t i = shape.rank; i-- > 0;)
            inner *= shape.dims[i];
        for (size_t i = 0; i < shape.rank; i++) {
            inner /= shape.dims[i];
            axes_add(&axes, shape.dims[i],
                     (const int64_t[]){inner, test_random_int(0, 1) ? inner : 0});
        }
        if (shape.rank == 0)
            axes_add(&axes, 1, (const int64_t[]){0, 0});
        merged = axes;
        axes_simplify(&merged, -1);
        assert_true(axes_finish(&axes, &whole, before));
        assert_true(axes_finish(&merged, &walk, after));
        assert_int_equal(walk.count, whole.count);
        assert_true(walk.rank <= whole.rank);
        for (int64_t i = 0; i < walk.count; i++)
            for (int k = 0; k < 2; k++)
                assert_int_equal(offset_of(&walk, &after[k], i), offset_of(&whole, &before[k], i));
    }
}

static void axes_of_one_memory_are_one(void **state)
{
    const struct operand operand = {.dtype = DTYPE_FLOAT, .shape = SHAPE(2, 3, 4, 5)};
    const struct operand nhwc = {
        .dtype = DTYPE_FLOAT, .layout = LAYOUT_NHWC, .shape = SHAPE(2, 3, 4, 5)};
    const struct operand *in[] = {&nhwc};
    struct axes axes;

    (void)state;
    axes_broadcast(&axes, &operand, 0, NULL);
    axes_simplify(&axes, 0);
    assert_int_equal(axes.rank, 1);
    assert_int_equal(axes.sizes[0], 120);
    axes_broadcast(&axes, &nhwc, 1, in);
    axes_simplify(&axes, 0);
    assert_int_equal(axes.rank, 1);
    axes_broadcast(&axes, &operand, 1, in);
    axes_simplify(&axes, 0);
    assert_int_equal(axes.rank, 3); /* n, c, places */
}

static void counts_of_2_to_the_31_are_wide(void **state)
{
    struct axes axes = {.operands = 1};
    struct walk_strides strides[1];
    struct walk walk;

    (void)state;
    axes_add(&axes, 1 << 16, (const int64_t[]){1 << 15});
    axes_add(&axes, (1 << 15) - 1, (const int64_t[]){1});
    assert_true(axes_finish(&axes, &walk, strides));
    assert_int_equal(walk.wide, 0);
    axes.sizes[1]++;
    assert_true(axes_finish(&axes, &walk, strides));
    assert_int_equal(walk.wide, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(division_is_exact_below_2_to_the_31),
        cmocka_unit_test(merging_keeps_every_element_in_its_place),
        cmocka_unit_test(axes_of_one_memory_are_one),
        cmocka_unit_test(counts_of_2_to_the_31_are_wide),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
