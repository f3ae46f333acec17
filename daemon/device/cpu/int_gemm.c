#include "device/cpu/int_gemm.h"

#include <string.h>

extern const struct int_gemm_ops int_gemm_ops_base, int_gemm_ops_avx2, int_gemm_ops_avx512,
    int_gemm_ops_vnni;

const struct int_gemm_ops *int_gemm_ops_for(enum cpu_isa isa)
{
    static const struct int_gemm_ops *const table[CPU_ISA_COUNT] = {
        &int_gemm_ops_base, &int_gemm_ops_avx2, &int_gemm_ops_avx512};

    if (isa == CPU_AVX512 && __builtin_cpu_supports("avx512vnni"))
        return &int_gemm_ops_vnni;
    return table[isa];
}

size_t int_pairs_packed_bytes(int64_t k, int64_t n)
{
    return (size_t)((k + 1) / 2 * 2 * ((n + INT_PANEL - 1) / INT_PANEL * INT_PANEL)) *
           sizeof(int16_t);
}

void int_pairs_pack(int64_t k, int64_t n, const struct int_matrix *b, void *packed)
{
    const int64_t pairs = (k + 1) / 2;
    int16_t *to = packed;

    memset(packed, 0, int_pairs_packed_bytes(k, n));
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) {
            int32_t base =
                b->zero != NULL ? int_byte_at(b->dtype, b->zero, b->zero_per_column ? j : 0) : 0;
            int64_t from = i * b->row_stride + j * b->column_stride;
            int64_t at = ((j / INT_PANEL * pairs + i / 2) * INT_PANEL + j % INT_PANEL) * 2 + i % 2;

            to[at] = (int16_t)(int_byte_at(b->dtype, b->data, from) - base);
        }
}

size_t int_pairs_row_bytes(int64_t k)
{
    return (size_t)((k + 1) / 2 * 2) * sizeof(int16_t);
}

void int_pairs_pack_row(enum dtype dtype, int64_t k, const void *a, int32_t zero, void *row)
{
    int16_t *to = row;

    for (int64_t i = 0; i < k; i++)
        to[i] = (int16_t)(int_byte_at(dtype, a, i) - zero);
    if (k % 2 != 0)
        to[k] = 0;
}
