/* One test: its operands, and what must come out. */
#include <math.h>

#include "op_tester/internal.h"

static bool any_outputs_missing(const struct trial *trial)
{
    for (size_t i = 0; i < trial->outputs; i++)
        if (trial->out[i].dtype == DTYPE_NONE)
            return true;
    return false;
}

enum status trial_infer(struct trial *trial, bool all_known, struct error *err)
{
    struct tensor known[OP_TEST_OPERANDS];
    const struct tensor *in[OP_TEST_OPERANDS] = {NULL};
    struct tensor *out[OP_TEST_OPERANDS];
    bool bound[OP_TEST_OPERANDS] = {false};
    struct op_call call = {.attrs = trial->attrs, .inputs = trial->test->inputs, .in = in};

    for (size_t i = 0; i < call.inputs; i++) {
        known[i] = trial->in[i];
        if (!all_known && !trial->test->in[i].constant && (trial->op->value_inputs >> i & 1) == 0)
            known[i].data = NULL;
        in[i] = known[i].dtype == DTYPE_NONE ? NULL : &known[i];
    }
    for (size_t i = 0; i < trial->outputs; i++)
        out[i] = &trial->out[i];
    call.outputs = trial->outputs;
    call.out = out;
    call.out_bound = bound;
    if (in[0] != NULL && trial->op->dtypes != 0 && (trial->op->dtypes >> in[0]->dtype & 1) == 0)
        return error_set(err, STATUS_UNSUPPORTED, "input 0 of type %s is not supported",
                         dtype_name(in[0]->dtype));
    TRY(trial->op->infer(&call, err));
    if (any_outputs_missing(trial))
        return error_set(err, STATUS_INTERNAL, "the rule left an output open");
    return STATUS_OK;
}

static void fill_input(struct tensor *tensor, const struct op_input *input)
{
    bool is_unsigned = (DTYPE_UNSIGNED >> input->dtype & 1) != 0;
    double low = input->low, high = input->high;
    int64_t count = shape_count(&input->shape);

    if (low == 0 && high == 0) {
        low = dtype_is_float(input->dtype) ? -3 : is_unsigned ? 0 : -20;
        high = input->dtype == DTYPE_BOOL ? 2 : dtype_is_float(input->dtype) ? 3 : 21;
        low = input->dtype == DTYPE_BOOL ? 0 : low;
    }
    tensor->dtype = input->dtype;
    tensor->shape = input->shape;
    tensor->data = test_take((size_t)count * dtype_bytes(input->dtype));
    for (int64_t i = 0; i < count; i++) {
        double value = input->values != NULL ? input->values[i] : test_random(low, high);

        if (input->values == NULL && !dtype_is_float(input->dtype))
            value = floor(value);
        test_put(input->dtype, (void *)(uintptr_t)tensor->data, i, value);
    }
}

static void view(const struct tensor *tensor, struct test_array *array)
{
    int64_t count = tensor->dtype == DTYPE_NONE ? 0 : shape_count(&tensor->shape);

    array->dtype = tensor->dtype;
    array->shape = tensor->shape;
    array->values = test_take((size_t)count * sizeof(double));
    if (tensor->data != NULL)
        for (int64_t i = 0; i < count; i++)
            array->values[i] = test_get(tensor->dtype, tensor->data, i);
}

void trial_expect(struct trial *trial)
{
    struct test_array in[OP_TEST_OPERANDS], out[OP_TEST_OPERANDS];

    for (size_t i = 0; i < trial->test->inputs; i++)
        view(&trial->in[i], &in[i]);
    for (size_t i = 0; i < trial->outputs; i++)
        view(&trial->out[i], &out[i]);
    if (trial->test->reference != NULL)
        trial->test->reference(trial->test, in, out);
    else
        for (int64_t i = 0; i < shape_count(&in[0].shape); i++)
            out[0].values[i] = trial->test->scalar(in[0].values[i]);
    for (size_t i = 0; i < trial->outputs; i++) {
        struct tensor *expected = &trial->expected[i];

        *expected = trial->out[i];
        expected->data = test_take(tensor_bytes(expected));
        for (int64_t k = 0; k < shape_count(&expected->shape); k++)
            test_put(expected->dtype, (void *)(uintptr_t)expected->data, k, out[i].values[k]);
        free(out[i].values);
    }
    for (size_t i = 0; i < trial->test->inputs; i++)
        free(in[i].values);
}

enum status trial_init(struct trial *trial, struct op_tester *tester, const struct op_test *test,
                       void *default_attrs, struct error *err)
{
    memset(trial, 0, sizeof(*trial));
    trial->tester = tester;
    trial->test = test;
    trial->outputs = test->outputs > 0 ? test->outputs : 1;
    trial->op = op_find(test->domain, test->op);
    if (trial->op == NULL)
        fail_msg("there is no operator %s", test->op);
    if (test->attrs == NULL)
        op_attrs_default(trial->op, default_attrs);
    trial->attrs = test->attrs != NULL ? test->attrs : default_attrs;
    if (weights_cache_create(tester->devices[0]->memory, NULL, &tester->weights) != STATUS_OK)
        fail_msg("no memory for packed weights");
    trial->seed = test_random_mark();
    for (size_t i = 0; i < test->inputs; i++)
        if (test->in[i].dtype != DTYPE_NONE)
            fill_input(&trial->in[i], &test->in[i]);
    return trial_infer(trial, false, err);
}

void trial_deinit(struct trial *trial)
{
    weights_cache_destroy(trial->tester->weights);
    trial->tester->weights = NULL;
    for (size_t i = 0; i < OP_TEST_OPERANDS; i++) {
        free((void *)(uintptr_t)trial->in[i].data);
        free((void *)(uintptr_t)trial->out[i].data);
        free((void *)(uintptr_t)trial->expected[i].data);
    }
}
