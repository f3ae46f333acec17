/* Kernels that compute on floats run on 16-bit floats too: operands are widened into scratch,
 * results narrowed out of it.
 */
#ifndef DEVICE_CPU_WIDE_H
#define DEVICE_CPU_WIDE_H

#include "device/cpu/loops.h"

static inline bool dtype_is_narrow(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16;
}

enum { WIDE_OPERANDS = 8 };

/* Scratch that the 16-bit operands need; 0 when there are none.  Layouts with padding included. */
size_t wide_scratch_bytes(const struct kernel_call *call);
/* Fills in and out with the operands as they are, or in scratch as floats (inputs widened).  Left
 * out operands stay NULL. */
void wide_open(const struct kernel_call *call, const struct kernel_run *run, const void **in,
               void **out);
/* Narrows the results. */
void wide_close(const struct kernel_call *call, const struct kernel_run *run, void *const *out);

#endif
