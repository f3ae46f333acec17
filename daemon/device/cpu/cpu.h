/* The CPU device: one host memory source, lanes of OpenMP threads, kernels from kernels.def.
 *
 * Kernels that gain from wide vectors exist once per instruction set: the code stands in a header
 * (gemm_kernels.h) that thin files include, x_base.c, x_avx2.c and x_avx512.c, each compiled with
 * its own flags (cmake/folder.cmake).  The device picks one set when it opens, so that kernels only
 * look at cpu_isa_of().  SLUICE_CPU=avx2 or =baseline caps the choice.
 */
#ifndef DEVICE_CPU_CPU_H
#define DEVICE_CPU_CPU_H

#include "device/kernel.h"

enum cpu_isa { CPU_BASELINE, CPU_AVX2, CPU_AVX512, CPU_ISA_COUNT };

extern const struct device_ops device_cpu_ops;

const char *cpu_isa_name(enum cpu_isa isa); /* "baseline", "avx2", "avx512" */
enum cpu_isa cpu_isa_of(const struct device *device);
/* Precision=strict: no algorithm whose error grows beyond that of plain summation. */
bool cpu_is_strict(const struct device *device);

#define KERNEL(operator, variant) extern const struct kernel kernel_##operator##_##variant;
#include "device/cpu/kernels.def"
#undef KERNEL

#endif
