#include "device/cpu/int_gemm.h"

#include <string.h>

extern const struct int_gemm_ops int_gemm_ops_base, int_gemm_ops_avx2, int_gemm_ops_avx512;

const struct int_gemm_ops *int_gemm_ops_for(enum cpu_isa isa)
{
    static const struct int_gemm_ops *const table[CPU_ISA_COUNT] = {
        &int_gemm_ops_base, &int_gemm_ops_avx2, &int_gemm_ops_avx512};

    return table[isa];
}

static int32_t byte_at(enum dtype dtype, const void *data, int64_t index)
{
    return dtype == DTYPE_INT8 ? ((const int8_t *)data)[index] : ((const uint8_t *)data)[index];
}

size_t int_gemm_packed_bytes(int64_t k, int64_t n)
{
    return (size_t)((k + 1) / 2 * 2 * ((n + INT_PANEL - 1) / INT_PANEL * INT_PANEL)) *
           sizeof(int16_t);
}

void int_gemm_pack(enum dtype dtype, int64_t k, int64_t n, const void *b, const void *zero,
                   bool zero_per_column, int16_t *packed)
{
    const int64_t pairs = (k + 1) / 2;

    memset(packed, 0, int_gemm_packed_bytes(k, n));
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) {
            int32_t base = zero != NULL ? byte_at(dtype, zero, zero_per_column ? j : 0) : 0;
            int64_t at = ((j / INT_PANEL * pairs + i / 2) * INT_PANEL + j % INT_PANEL) * 2 + i % 2;

            packed[at] = (int16_t)(byte_at(dtype, b, i * n + j) - base);
        }
}

void int_gemm_pack_row(enum dtype dtype, int64_t k, const void *a, int32_t zero, int16_t *row)
{
    for (int64_t i = 0; i < k; i++)
        row[i] = (int16_t)(byte_at(dtype, a, i) - zero);
    if (k % 2 != 0)
        row[k] = 0;
}
