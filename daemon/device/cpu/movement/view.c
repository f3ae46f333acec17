/* Operators whose result is their input under another shape.  The engine gives both one buffer
 * wherever it can; these copy when it cannot (a graph output, a constant). */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/move.h"

static enum status run_copy(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    size_t bytes = layout_bytes(call->out[0]->layout, call->device->channel_block,
                                call->out[0]->dtype, &call->out[0]->shape);

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

/* Blocks of channels stay what they are while only what lies behind the channels is reshaped. */
static const char *refuse_view(const struct kernel_call *call)
{
    const struct shape *in = &call->in[0]->shape, *out = &call->out[0]->shape;

    if (call->in[0]->layout == LAYOUT_PLAIN && call->out[0]->layout == LAYOUT_PLAIN)
        return NULL;
    if (call->in[0]->layout != call->out[0]->layout)
        return "another layout than its input's";
    return in->dims[0] != out->dims[0] || in->dims[1] != out->dims[1]
               ? "cuts through blocks of channels"
               : NULL;
}

#define VIEW_KERNEL(op)                                                                            \
    const struct kernel kernel_##op##_copy = {                                                     \
        .name = "cpu:copy",                                                                        \
        .flags = KERNEL_IN_PLACE | KERNEL_PASSES,                                                  \
        .layouts = 1 << LAYOUT_PLAIN | 1 << LAYOUT_BLOCKED,                                        \
        .refuses = refuse_view,                                                                    \
        .prepare = prepare_copy,                                                                   \
        .enqueue = run_copy,                                                                       \
    };

VIEW_KERNEL(reshape)
VIEW_KERNEL(flatten)
VIEW_KERNEL(squeeze)
VIEW_KERNEL(unsqueeze)
