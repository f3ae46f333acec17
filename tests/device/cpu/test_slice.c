/* Slice and Pad. */
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

/* ---- Slice ---- */

struct slice_case {
    double starts[SHAPE_MAX_RANK], ends[SHAPE_MAX_RANK], axes[SHAPE_MAX_RANK],
        steps[SHAPE_MAX_RANK];
};

static int64_t slice_start(int64_t start, int64_t length, int64_t step)
{
    if (start < 0)
        start += length;
    if (step > 0)
        return start < 0 ? 0 : start > length ? length : start;
    return start < 0 ? 0 : start >= length ? length - 1 : start;
}

static void slice(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct slice_case *values = test->arg;

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[SHAPE_MAX_RANK];

        place_of(&out->shape, i, at);
        for (size_t k = 0; k < (size_t)in[1].shape.dims[0]; k++) {
            size_t axis = (size_t)values->axes[k];

            at[axis] = slice_start((int64_t)values->starts[k], in->shape.dims[axis],
                                   (int64_t)values->steps[k]) +
                       at[axis] * (int64_t)values->steps[k];
        }
        out->values[i] = in->values[offset_of(&in->shape, at)];
    }
}

static void slice_clamps_its_borders_by_direction(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 5), 1, 20);
        int64_t count = test_random_int(1, (int64_t)shape.rank);
        struct slice_case values;
        struct op_input list = {DTYPE_INT64, SHAPE(count), .constant = true};
        struct op_test test = {.op = "Slice", .inputs = 5, .reference = slice, .arg = &values};

        for (int64_t i = 0; i < count; i++) {
            values.axes[i] = (double)i;
            values.starts[i] = (double)test_random_int(-25, 25);
            values.ends[i] = (double)test_random_int(-25, 25);
            do
                values.steps[i] = (double)test_random_int(-4, 4);
            while (values.steps[i] == 0);
        }
        test.in[0] = (struct op_input){every_size[round % SIZES], shape};
        for (int i = 1; i < 5; i++)
            test.in[i] = list;
        test.in[1].values = values.starts;
        test.in[2].values = values.ends;
        test.in[3].values = values.axes;
        test.in[4].values = values.steps;
        op_test_run(tester, &test);
    }
}

static void slice_takes_blocks_of_channels_and_extreme_borders(void **state)
{
    static const struct slice_case cases[] = {
        {{16, -0x1p60}, {0x1p62, 0x1p60}, {1, 2}, {1, 2}},
        {{5, -1}, {-0x1p60, -0x1p60}, {1, 2}, {-0x1p63, -0x1p63}}, /* one element each */
        {{0, 0}, {0x1p60, 0x1p62}, {1, 2}, {-0x1p63, 1}},          /* none */
    };

    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        struct op_test test = {.op = "Slice", .inputs = 5, .reference = slice, .arg = &cases[c]};

        test.in[0] = (struct op_input){DTYPE_FLOAT, SHAPE(2, 37, 6, 3)};
        for (int i = 1; i < 5; i++)
            test.in[i] = (struct op_input){DTYPE_INT64, SHAPE(2), .constant = true};
        test.in[1].values = cases[c].starts;
        test.in[2].values = cases[c].ends;
        test.in[3].values = cases[c].axes;
        test.in[4].values = cases[c].steps;
        op_test_run(tester, &test);
    }
}

/* ---- Pad ---- */

struct pad_case {
    enum pad_mode mode;
    double pads[2 * SHAPE_MAX_RANK];
};

static int64_t pad_source(enum pad_mode mode, int64_t i, int64_t length)
{
    while (i < 0 || i >= length) {
        if (mode == PAD_EDGE || length == 1)
            i = i < 0 ? 0 : length - 1;
        else if (mode == PAD_WRAP)
            i += i < 0 ? length : -length;
        else
            i = i < 0 ? -i : 2 * (length - 1) - i;
    }
    return i;
}

static void pad(const struct op_test *test, const struct test_array *in, struct test_array *out)
{
    const struct pad_case *values = test->arg;
    size_t rank = in->shape.rank;

    for (int64_t i = 0; i < shape_count(&out->shape); i++) {
        int64_t at[SHAPE_MAX_RANK];
        bool outside = false;

        place_of(&out->shape, i, at);
        for (size_t axis = 0; axis < rank; axis++) {
            int64_t cut = values->pads[axis] < 0 ? -(int64_t)values->pads[axis] : 0;
            int64_t cut_after =
                values->pads[axis + rank] < 0 ? -(int64_t)values->pads[axis + rank] : 0;
            int64_t kept = in->shape.dims[axis] - cut - cut_after;

            at[axis] -= (int64_t)values->pads[axis] + cut;
            outside |= at[axis] < 0 || at[axis] >= kept;
            if (values->mode != PAD_CONSTANT)
                at[axis] = pad_source(values->mode, at[axis], kept);
            at[axis] += cut;
        }
        out->values[i] = outside && values->mode == PAD_CONSTANT
                             ? (test->inputs > 2 ? in[2].values[0] : 0)
                             : in->values[offset_of(&in->shape, at)];
    }
}

static void pad_knows_all_modes_and_negative_amounts(void **state)
{
    static const double three = 3;

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct shape shape = test_random_shape((size_t)test_random_int(1, 5), 3, 9);
        struct pad_case values = {.mode = (enum pad_mode)(round % 4)};
        struct pad_attrs attrs = {.mode = (int)values.mode};
        enum dtype dtype = every_size[round / 4 % SIZES];
        struct op_test test = {
            .op = "Pad", .attrs = &attrs, .inputs = 2, .reference = pad, .arg = &values};

        for (size_t i = 0; i < 2 * shape.rank; i++)
            values.pads[i] = (double)test_random_int(-1, 6) * (double)test_random_int(0, 1);
        test.in[0] = (struct op_input){dtype, shape};
        test.in[1] = (struct op_input){DTYPE_INT64, SHAPE(2 * (int64_t)shape.rank),
                                       .values = values.pads, .constant = true};
        if (values.mode == PAD_CONSTANT && test_random_int(0, 1)) {
            test.inputs = 3;
            test.in[2] = (struct op_input){dtype, SHAPE_SCALAR, .values = &three, .constant = true};
        }
        op_test_run(tester, &test);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slice_clamps_its_borders_by_direction),
        cmocka_unit_test(slice_takes_blocks_of_channels_and_extreme_borders),
        cmocka_unit_test(pad_knows_all_modes_and_negative_amounts),
    };

    return run_cases(tests);
}
