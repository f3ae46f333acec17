/* A fused step's end, on results that lie in memory: activation, residual, zeroed padding.
 * The kernels that finish tiles in registers or L1 use the same functions of vmath.h. */
#ifndef DEVICE_CPU_EPILOGUE_H
#define DEVICE_CPU_EPILOGUE_H

#include <stddef.h>

#include "device/cpu/cpu.h"

struct epilogue_ops {
    /* y[i] = act(y[i] + residual[i]) or act(y[i]) + residual[i]; residual may be NULL */
    void (*apply)(const struct epilogue *epilogue, float *y, const float *residual, size_t count);
};

const struct epilogue_ops *epilogue_ops_for(enum cpu_isa isa);
/* Activations that are not 0 at 0 leave something in the channels that only pad a blocked result:
 * makes them zero again.  `y` is the data of `out`. */
void epilogue_clear_padding(const struct epilogue *epilogue, float *y, const struct operand *out,
                            size_t block);
/* One number, in double: the reference, and whether act(0) is 0. */
double epilogue_activate(const struct epilogue *epilogue, double x);

#endif
