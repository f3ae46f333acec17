/* Kernels of a warp's own instructions and of matrices, for numbers. */
#ifndef SLUICE_TESTS_SIM_WARPS_H
#define SLUICE_TESTS_SIM_WARPS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* d = a b + c by mma.sync; a row by row, b column by column (that is: b[n][k]).  kind 0: f16
 * m16n8k16, 1: bf16 m16n8k16, 2: f16 m16n8k8, 3: tf32 m16n8k8, 4: s8 m16n8k32, 5: u8 m16n8k16 (16 x
 * 8 x k). */
int warps_mma(void *d, const void *a, const void *b, const void *c, int kind);
/* 16 x 16 halves through ldmatrix.x4 (trans: transposed within each 8 x 8) and mma with the unit
 * matrix: out is the matrix as floats. */
int warps_ldmatrix(float *out, const void *in, int transposed);
/* 16 x 16 x 16 by wmma, a and b row by row. */
int warps_wmma(float *d, const void *a, const void *b);
/* out[32 w + lane] for one warp and w = 0 ..: up 3, down 5 of 16, idx 9, xor 6, ballot of odd,
 * match_any of v & 3, reduce_add, syncthreads_count(v > 5), lanemask_lt, any(v == 7). */
int warps_exchange(unsigned *out, const unsigned *in);
/* Adds n values to one of each kind: int, float, double, half2, bfloat162, min, max, cas loop. */
int warps_atomics(void *out, const int *in, int n);
/* out[i] = recursive-free calls of a function that is not inlined. */
int warps_calls(float *out, const float *in, int n);
/* Loops with breaks, a switch and early returns that differ by lane. */
int warps_diverge(int *out, int n);
/* __constant__ and __device__ variables: out[i] = in_constant[i % 8] + counter. */
int warps_variables(float *out, const float *constants, int n);
/* Struct of parameters by value, local arrays, 64-bit division. */
int warps_parameters(long long *out, int n);

#ifdef __cplusplus
}
#endif
#endif
