/* TopK. */
#include "device/cuda/kernels/topk.h"

#include "device/cuda/kernels/rows.h"
#include "ops/indexing.h"

/* A block reads a line about twelve times for each TOPK_SORTED of the best.  Beyond so many
 * elements read the host's sort is the better way. */
#define MOST_READ  (INT64_C(1) << 28)
#define TIMES_READ 12

static int64_t k_of(const struct kernel_call *call)
{
    const struct topk_attrs *attrs = call->attrs;
    const struct operand *out = call->out[0] != NULL ? call->out[0] : call->out[1];

    return out->shape.dims[shape_axis(&out->shape, attrs->axis)];
}

static const char *refuse_topk(const struct kernel_call *call)
{
    const struct topk_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    int64_t length = in->dims[shape_axis(in, attrs->axis)];

    if (length > TOPK_SORTED && length > MOST_READ / TIMES_READ / (k_of(call) / TOPK_SORTED + 1))
        return "too long a line for so many";
    return refuse_strings(call);
}

static enum status run_topk(const void *state, const struct kernel_call *call,
                            const struct kernel_run *run)
{
    const struct topk_attrs *attrs = call->attrs;
    const struct shape *in = &call->in[0]->shape;
    size_t axis = shape_axis(in, attrs->axis);
    const struct topk topk = {.outer = shape_product(in, 0, axis),
                              .length = in->dims[axis],
                              .inner = shape_product(in, axis + 1, in->rank),
                              .k = k_of(call),
                              .smallest = !attrs->largest,
                              .dtype = call->in[0]->dtype,
                              .in = run->in[0],
                              .values = call_output(call, 0) != NULL ? run->out[0] : NULL,
                              .indices = call_output(call, 1) != NULL ? run->out[1] : NULL};

    (void)state;
    return cuda_status(cuda_topk(&topk, cuda_stream(run)));
}

const struct kernel kernel_topk_lines = {
    .name = "cuda:lines",
    .refuses = refuse_topk,
    .prepare = prepare_stateless,
    .enqueue = run_topk,
};
