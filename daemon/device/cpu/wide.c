#include "device/cpu/wide.h"

#include "device/cpu/flat.h"

enum { ALIGNMENT = 64 };

static size_t room_of(const struct operand *operand, const struct device *device)
{
    size_t bytes;

    if (operand == NULL || !dtype_is_narrow(operand->dtype))
        return 0;
    bytes = operand_elements(operand, device) * sizeof(float);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t wide_scratch_bytes(const struct kernel_call *call)
{
    size_t bytes = 0;

    for (size_t i = 0; i < call->inputs; i++)
        bytes += room_of(call->in[i], call->device);
    for (size_t i = 0; i < call->outputs; i++)
        bytes += room_of(call->out[i], call->device);
    return bytes;
}

void wide_open(const struct kernel_call *call, const struct kernel_run *run, const void **in,
               void **out)
{
    char *scratch = run->scratch;

    for (size_t i = 0; i < call->inputs; i++) {
        size_t room = room_of(call->in[i], call->device);

        in[i] = call->in[i] == NULL ? NULL : run->in[i];
        if (room == 0 || run->in[i] == NULL)
            continue;
        widen(loops_for(call->device), call->in[i]->dtype, run->in[i], (float *)(void *)scratch,
              operand_elements(call->in[i], call->device));
        in[i] = scratch;
        scratch += room;
    }
    for (size_t i = 0; i < call->outputs; i++) {
        size_t room = room_of(call->out[i], call->device);

        out[i] = call->out[i] == NULL ? NULL : room > 0 ? (void *)scratch : run->out[i];
        scratch += room;
    }
}

void wide_close(const struct kernel_call *call, const struct kernel_run *run, void *const *out)
{
    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL && out[i] != run->out[i])
            narrow(loops_for(call->device), call->out[i]->dtype, out[i], run->out[i],
                   operand_elements(call->out[i], call->device));
}
