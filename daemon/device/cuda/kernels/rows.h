/* What the rows (refuses, prepare, enqueue) of all operators share. */
#ifndef DEVICE_CUDA_KERNELS_ROWS_H
#define DEVICE_CUDA_KERNELS_ROWS_H

#include "device/cuda/cuda.h"
#include "device/kernel.h"

/* Layouts of kernels that walk by strides, whatever the layout. */
enum { ANY_LAYOUT = 1 << LAYOUT_PLAIN | 1 << LAYOUT_NHWC };

/* Where kernels note that data was not valid (an index out of range): a word on the device, read
 * when the batch ends, which then fails with STATUS_INVALID. */
static inline uint32_t *run_fault(const struct kernel_run *run)
{
    return (uint32_t *)(uintptr_t)&cuda_lane_of(run->lane)->words->fault;
}
/* Where they note how many there are of what they count; see cuda_lane_found(). */
static inline int64_t *run_found(const struct kernel_run *run)
{
    return (int64_t *)(uintptr_t)&cuda_lane_of(run->lane)->words->found;
}

/* Input `index` of a call; NULL when left out. */
static inline const struct operand *call_input(const struct kernel_call *call, size_t index)
{
    return index < call->inputs ? call->in[index] : NULL;
}
static inline const void *run_input(const struct kernel_call *call, const struct kernel_run *run,
                                    size_t index)
{
    return call_input(call, index) != NULL ? run->in[index] : NULL;
}
static inline const struct operand *call_output(const struct kernel_call *call, size_t index)
{
    return index < call->outputs ? call->out[index] : NULL;
}

/* prepare() of rows that keep no state: every constant is read when they run. */
enum status prepare_stateless(struct kernel_prepare *prepare, struct error *err);
/* Zeroed state of `bytes` as prepare->state, every constant read when it runs; NULL: no memory. */
void *prepare_state(struct kernel_prepare *prepare, size_t bytes, struct error *err);

/* Why inputs whose values decide a shape are not known: bit i of `inputs`; NULL when they are. */
const char *refuse_unknown_values(const struct kernel_call *call, uint32_t inputs);
/* "strings are on the host" when any operand is one. */
const char *refuse_strings(const struct kernel_call *call);
/* The largest unit to move, of 1 to 16 bytes, that divides `bytes` and the addresses. */
enum { UNIT_MAX = 16 };
uint32_t unit_of(size_t bytes, const void *to, const void *from);
static inline bool dtype_is_narrow(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16;
}

#endif
