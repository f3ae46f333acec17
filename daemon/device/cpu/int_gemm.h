/* Products of small integers: C = A B in 32 bits, A and B as 16-bit differences to their zero
 * points.
 *
 * Two steps of k at a time, as the multiply-add instructions want them: B is packed as
 * [k / 2][n, padded to panels][2]. */
#ifndef DEVICE_CPU_INT_GEMM_H
#define DEVICE_CPU_INT_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"

enum { INT_PANEL = 32 }; /* columns */

size_t int_gemm_packed_bytes(int64_t k, int64_t n);
/* b is [k][n] of `dtype` (INT8 or UINT8); zero: one number or one for each column, of the same
 * type; NULL: zero. */
void int_gemm_pack(enum dtype dtype, int64_t k, int64_t n, const void *b, const void *zero,
                   bool zero_per_column, int16_t *packed);
/* One row of A as pairs, room for k + 1 rounded up to 2. */
void int_gemm_pack_row(enum dtype dtype, int64_t k, const void *a, int32_t zero, int16_t *row);

struct int_gemm_ops {
    /* c[rows][n] (ldc apart) = rows of pairs (lda apart, in numbers) times packed */
    void (*run)(int64_t rows, int64_t k, int64_t n, const int16_t *a, int64_t lda,
                const int16_t *packed, int32_t *c, int64_t ldc);
};

const struct int_gemm_ops *int_gemm_ops_for(enum cpu_isa isa);

#endif
