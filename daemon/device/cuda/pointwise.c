/* Element by element, operands of one shape. */
#include <stdlib.h>

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/pointwise.h"

static const char *refuses(const struct kernel_call *call)
{
    for (size_t i = 0; i < call->inputs; i++) {
        if (call->in[i]->dtype != DTYPE_FLOAT)
            return "not float";
        if (!shape_is_equal(&call->in[i]->shape, &call->out[0]->shape))
            return "broadcast";
    }
    return NULL;
}

static enum status prepare(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = 3;
    return STATUS_OK;
}

static enum status enqueue(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    const struct pointwise args = {.function = call->op == &op_add ? POINTWISE_ADD : POINTWISE_RELU,
                                   .count = shape_count(&call->out[0]->shape),
                                   .a = run->in[0],
                                   .b = call->inputs > 1 ? run->in[1] : NULL,
                                   .out = run->out[0]};

    (void)state;
    return args.count == 0 ? STATUS_OK : cuda_status(cuda_pointwise(&args, cuda_stream(run)));
}

#define ROW(operator)                                                                              \
    const struct kernel kernel_##operator##_pointwise = {.name = "cuda:pointwise",                 \
                                                         .flags = KERNEL_IN_PLACE,                 \
                                                         .refuses = refuses,                       \
                                                         .prepare = prepare,                       \
                                                         .enqueue = enqueue};
ROW(relu)
ROW(add)
