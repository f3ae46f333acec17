/* What came out against what must. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "op_tester/internal.h"

static double standard_relative(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        return 4e-6;
    case DTYPE_DOUBLE:
        return 1e-12;
    case DTYPE_FLOAT16:
        return 2e-3;
    case DTYPE_BFLOAT16:
        return 1.6e-2;
    default:
        return 0;
    }
}

static bool is_close(const struct op_test *test, enum dtype dtype, double found, double expected)
{
    bool standard = test->relative == 0 && test->absolute == 0;
    double relative = standard ? standard_relative(dtype) : test->relative;
    double absolute = standard ? relative / 4 : test->absolute;

    if (isnan(expected) || isinf(expected))
        return isnan(expected) ? isnan(found) != 0 : found == expected;
    return fabs(found - expected) <= absolute + relative * fabs(expected);
}

void trial_failed(const struct trial *trial, const char *what)
{
    char shapes[OP_TEST_OPERANDS * SHAPE_TEXT_BYTES] = "", one[SHAPE_TEXT_BYTES];

    for (size_t i = 0; i < trial->test->inputs; i++)
        if (trial->in[i].dtype != DTYPE_NONE) {
            strcat(shapes, " ");
            strcat(shapes, dtype_name(trial->in[i].dtype));
            strcat(shapes, shape_format(&trial->in[i].shape, one));
        }
    fail_msg("%s%s, kernel %s, layout %d, OP_TEST_SEED=0x%" PRIx64 ": %s", trial->test->op, shapes,
             trial->kernel->name, (int)trial->layout, trial->seed, what);
}

static void compare(const struct trial *trial, size_t index, const struct tensor *found)
{
    const struct tensor *expected = &trial->expected[index];

    for (int64_t i = 0; i < shape_count(&expected->shape); i++) {
        double a = test_get(found->dtype, found->data, i);
        double b = test_get(expected->dtype, expected->data, i);
        char what[160];

        if (is_close(trial->test, found->dtype, a, b))
            continue;
        snprintf(what, sizeof(what), "output %zu, element %" PRId64 ": found %.9g, expected %.9g",
                 index, i, a, b);
        trial_failed(trial, what);
    }
}

void check_outputs(const struct trial *trial, const struct stage *stage, unsigned block)
{
    for (size_t i = 0; i < trial->outputs; i++) {
        struct tensor plain = trial->out[i];
        enum layout layout = stage->out[i]->layout;

        if (!shape_is_equal(&stage->out_shapes[i], &trial->out[i].shape))
            plain.shape = stage->out_shapes[i];
        plain.data = test_take(tensor_bytes(&plain));
        if (layout == LAYOUT_PLAIN)
            memcpy((void *)(uintptr_t)plain.data, stage->out_data[i], tensor_bytes(&plain));
        else
            repack(layout, block, &plain, stage->out_data[i], true);
        compare(trial, i, &plain);
        if (layout == LAYOUT_BLOCKED && !padding_is_zero(block, &plain, stage->out_data[i]))
            trial_failed(trial, "the padding is not zero");
        free((void *)(uintptr_t)plain.data);
    }
}

void expect_same_bits(const struct trial *trial, const struct stage *first, int team, enum way way,
                      const char *what)
{
    struct stage other;

    stage_init(&other, trial, team);
    if (stage_run(&other, trial->tester, trial->kernel, team, way, NULL) != STATUS_OK)
        trial_failed(trial, what);
    for (size_t i = 0; i < trial->outputs; i++)
        if (memcmp(first->out_data[i], other.out_data[i], first->out_bytes[i]) != 0)
            trial_failed(trial, what);
    stage_deinit(&other);
}

static size_t row_bytes(const struct operand *operand, unsigned block)
{
    struct shape shape = operand->shape;

    shape.dims[0] = 1;
    return packed_elements(operand->layout, block, &shape) * dtype_bytes(operand->dtype);
}

/* Whether an operand has a row for each row of the output; constants and vectors have not. */
static bool has_rows(const struct operand *operand, int64_t rows)
{
    return operand != NULL && operand->constant == NULL && operand->shape.rank >= 2 &&
           operand->shape.dims[0] == rows;
}

void expect_same_row(const struct trial *trial, const struct stage *first)
{
    const int64_t rows = trial->out[0].shape.dims[0];
    unsigned block = trial->tester->devices[0]->channel_block;
    struct stage alone;

    stage_init(&alone, trial, 0);
    for (size_t i = 0; i < trial->test->inputs; i++)
        if (has_rows(alone.in[i], rows)) {
            size_t bytes = row_bytes(alone.in[i], block);

            memmove(alone.in_data[i], (char *)alone.in_data[i] + (size_t)(rows - 1) * bytes, bytes);
            alone.operands[i].shape.dims[0] = 1;
        }
    for (size_t i = 0; i < trial->outputs; i++)
        alone.operands[OP_TEST_OPERANDS + i].shape.dims[0] = 1;
    if (trial->kernel->refuses != NULL && trial->kernel->refuses(&alone.call) != NULL)
        trial_failed(trial, "it refuses one row of what it takes");
    if (stage_run(&alone, trial->tester, trial->kernel, 0, APART, NULL) != STATUS_OK)
        trial_failed(trial, "one row alone fails");
    for (size_t i = 0; i < trial->outputs; i++) {
        size_t bytes = row_bytes(first->out[i], block);

        if (memcmp((char *)first->out_data[i] + (size_t)(rows - 1) * bytes, alone.out_data[i],
                   bytes) != 0)
            trial_failed(trial, "one row alone gives other bits than among others");
    }
    stage_deinit(&alone);
}
