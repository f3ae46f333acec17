/* Where: elements of any type, moved as they are. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/pointwise.h"
#include "device/cuda/kernels/rows.h"

static enum status prepare_where(struct kernel_prepare *prepare, struct error *err)
{
    const struct kernel_call *call = &prepare->call;
    struct choose *choose = prepare_state(prepare, sizeof(*choose), err);
    struct walk_strides strides[WALK_OPERANDS];
    struct axes axes;

    if (choose == NULL)
        return STATUS_NO_MEMORY;
    axes_broadcast(&axes, call->out[0], 3, call->in);
    axes_simplify(&axes, 0);
    (void)axes_finish(&axes, &choose->walk, strides);
    memcpy(choose->strides, strides, sizeof(choose->strides));
    choose->bytes = (uint32_t)dtype_bytes(call->out[0]->dtype);
    return STATUS_OK;
}

static enum status enqueue_where(const void *state, const struct kernel_call *call,
                                 const struct kernel_run *run)
{
    struct choose choose = *(const struct choose *)state;

    (void)call;
    choose.out = run->out[0];
    choose.condition = run->in[0];
    choose.a = run->in[1];
    choose.b = run->in[2];
    return cuda_status(cuda_choose(&choose, cuda_stream(run)));
}

const struct kernel kernel_where_pointwise = {
    .name = "cuda:pointwise",
    .flags = KERNEL_STRIDED,
    .layouts = ANY_LAYOUT,
    .refuses = refuse_strings,
    .prepare = prepare_where,
    .enqueue = enqueue_where,
    .release = free,
};
