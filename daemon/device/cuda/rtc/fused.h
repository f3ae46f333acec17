/* One kernel for one program: the steps of a pointwise program compiled at run time.
 *
 * A program is first run by the interpreter (kernels/pointwise.cu).  Meanwhile a kernel for its
 * steps, types, number of axes and alignment (`vector`) is made in the background: found on disk,
 * or compiled by NVRTC and kept there.  Sizes, strides and addresses stay arguments, so that all
 * shapes share it.  It computes by the interpreter's own text (kernels/pointwise.cuh): the bits are
 * the same, and it does not matter which of the two served a batch.
 *
 *     waiting ──made──> ready        waiting ──refused──> refused: the interpreter for good
 *
 * Ownership: who takes one gives it back by fused_drop(), with nothing of it running; those with
 * the same steps share one. Threads:   any.
 */
#ifndef DEVICE_CUDA_RTC_FUSED_H
#define DEVICE_CUDA_RTC_FUSED_H

#include "device/cuda/cuda.h"
#include "device/cuda/kernels/pointwise.h"

struct fused;

/* Asks for the program's kernel; it counts for runs with the same `vector` of all operands.  NULL:
 * there will be none, `*out_why` says why in borrowed words; the interpreter does it. */
struct fused *fused_take(struct cuda_device *cuda, const struct pointwise *program,
                         const char **out_why);
void fused_drop(struct fused *fused); /* NULL is fine */
/* The kernel, once it is there; NULL until then, and for NULL. */
const void *fused_kernel(const struct fused *fused);
/* "sm_90 by nvrtc", "interpreter, …". */
void fused_describe(const struct fused *fused, char *text, size_t room);

/* The program's text for NVRTC, for the caller to free; NULL: no memory. */
char *fused_source(const struct pointwise *program);

#endif
