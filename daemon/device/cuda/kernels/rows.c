#include "device/cuda/kernels/rows.h"

#include <stdlib.h>

enum status prepare_stateless(struct kernel_prepare *prepare, struct error *err)
{
    (void)err;
    prepare->constants_used = UINT32_MAX;
    return STATUS_OK;
}

void *prepare_state(struct kernel_prepare *prepare, size_t bytes, struct error *err)
{
    prepare->state = calloc(1, bytes);
    prepare->constants_used = UINT32_MAX;
    if (prepare->state == NULL)
        (void)error_set(err, STATUS_NO_MEMORY, "no memory for a kernel's state");
    return prepare->state;
}

const char *refuse_unknown_values(const struct kernel_call *call, uint32_t inputs)
{
    for (size_t i = 0; i < call->inputs && i < 32; i++)
        if ((inputs >> i & 1) != 0 && call->in[i] != NULL && call->in[i]->constant == NULL &&
            shape_count(&call->in[i]->shape) > 0)
            return "an input that decides the shape is not known";
    return NULL;
}

const char *refuse_strings(const struct kernel_call *call)
{
    for (size_t i = 0; i < call->inputs; i++)
        if (call->in[i] != NULL && call->in[i]->dtype == DTYPE_STRING)
            return "strings are on the host";
    for (size_t i = 0; i < call->outputs; i++)
        if (call->out[i] != NULL && call->out[i]->dtype == DTYPE_STRING)
            return "strings are on the host";
    return NULL;
}

uint32_t unit_of(size_t bytes, const void *to, const void *from)
{
    uint32_t unit = UNIT_MAX;

    while (unit > 1 && (bytes | (uintptr_t)to | (uintptr_t)from) % unit != 0)
        unit /= 2;
    return unit;
}
