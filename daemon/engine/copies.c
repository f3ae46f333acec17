/* Kernels that every device has: they only copy. */
#include <string.h>

#include "engine/internal.h"

static size_t bytes_of(const struct kernel_call *call)
{
    const struct operand *out = call->out[0];

    return layout_bytes(out->layout, call->device->channel_block, out->dtype, &out->shape);
}

static enum status prepare_copy(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = 1;
    return STATUS_OK;
}

static enum status copy(const void *state, const struct kernel_call *call,
                        const struct kernel_run *run)
{
    (void)state;
    if (bytes_of(call) > 0 && run->out[0] != run->in[0])
        memcpy(run->out[0], run->in[0], bytes_of(call));
    return STATUS_OK;
}

const struct kernel kernel_engine_copy = {
    .name = "engine:copy", .prepare = prepare_copy, .enqueue = copy};

static enum status move(const void *state, const struct kernel_call *call,
                        const struct kernel_run *run)
{
    (void)state;
    if (run->out[0] == run->in[0])
        return STATUS_OK;
    return run->lane->device->ops->copy(run->lane, run->out[0], run->in[0], bytes_of(call));
}

const struct kernel kernel_engine_move = {
    .name = "engine:copy", .prepare = prepare_copy, .enqueue = move};

static enum status to_device(const void *state, const struct kernel_call *call,
                             const struct kernel_run *run)
{
    (void)state;
    return run->lane->device->ops->copy_in(run->lane, run->out[0], run->in[0], bytes_of(call));
}

const struct kernel kernel_engine_to_device = {.name = "engine:to device", .enqueue = to_device};

static enum status to_host(const void *state, const struct kernel_call *call,
                           const struct kernel_run *run)
{
    (void)state;
    return run->lane->device->ops->copy_out(run->lane, run->out[0], run->in[0], bytes_of(call));
}

const struct kernel kernel_engine_to_host = {.name = "engine:to host", .enqueue = to_host};
