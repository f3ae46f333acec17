/* Operators whose result is their input under another shape.  The engine gives both one buffer
 * wherever it can; these copy when it cannot (a graph output, a constant). */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"

static enum status run_copy(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    size_t bytes = (size_t)shape_count(&call->out[0]->shape) * dtype_bytes(call->out[0]->dtype);

    (void)state;
    if (bytes > 0 && run->out[0] != run->in[0])
        memcpy(run->out[0], run->in[0], bytes);
    return STATUS_OK;
}

static enum status prepare_copy(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = 1 << 0;
    return STATUS_OK;
}

#define VIEW_KERNEL(op)                                                                            \
    const struct kernel kernel_##op##_copy = {                                                     \
        .name = "cpu:copy",                                                                        \
        .flags = KERNEL_IN_PLACE | KERNEL_PASSES,                                                  \
        .prepare = prepare_copy,                                                                   \
        .enqueue = run_copy,                                                                       \
    };

VIEW_KERNEL(reshape)
VIEW_KERNEL(flatten)
VIEW_KERNEL(squeeze)
VIEW_KERNEL(unsqueeze)
