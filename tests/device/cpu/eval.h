/* One evaluation of an operator against what must come out, for tests that know the answer. */
#ifndef TESTS_DEVICE_CPU_EVAL_H
#define TESTS_DEVICE_CPU_EVAL_H

#include <stdlib.h>

#include "support/cpu_cases.h"

enum { OUTPUTS = 4 };

static inline enum status eval(const char *op, const void *attrs, size_t inputs,
                               const struct tensor *in, size_t outputs, struct tensor *out)
{
    const struct tensor *list[8] = {NULL};
    struct error err = {.text = ""};

    for (size_t i = 0; i < inputs; i++)
        list[i] = in[i].dtype == DTYPE_NONE ? NULL : &in[i];
    return op_tester_eval(tester, NULL, op, attrs, inputs, list, true, outputs, out, &err);
}

static inline void check_eval(const char *op, const void *attrs, size_t inputs,
                              const struct tensor *in, size_t outputs,
                              const struct tensor *expected)
{
    struct tensor out[OUTPUTS];

    assert_int_equal(eval(op, attrs, inputs, in, outputs, out), STATUS_OK);
    for (size_t i = 0; i < outputs; i++) {
        if (expected[i].dtype != DTYPE_NONE) {
            assert_int_equal(out[i].dtype, expected[i].dtype);
            assert_true(shape_is_equal(&out[i].shape, &expected[i].shape));
            if (tensor_bytes(&expected[i]) > 0)
                assert_memory_equal(out[i].data, expected[i].data, tensor_bytes(&expected[i]));
        }
        free((void *)(uintptr_t)out[i].data);
    }
}

#endif
