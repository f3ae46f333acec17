/* Products of bytes: C = (A - its zero point) (B - its zero points) in 32 bits, exact.
 *
 * Two ways.  Pairs: 16-bit differences, two steps of k at a time, on every machine.  Quads: the
 * bytes themselves, unsigned times signed, four steps at a time (AVX-512 VNNI); what the zero
 * points take away is taken from the sums, whose parts are packed with them. */
#ifndef DEVICE_CPU_INT_GEMM_H
#define DEVICE_CPU_INT_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"

/* B [k][n] as it lies: element (i, j) at i * row_stride + j * column_stride. */
struct int_matrix {
    enum dtype dtype; /* INT8 or UINT8 */
    const void *data;
    int64_t row_stride, column_stride;
    const void *zero; /* one number or one for each column, of the same type; NULL: zero */
    bool zero_per_column;
};

struct int_gemm_ops {
    const char *form; /* for formats and notes: "pairs", "quads" */
    size_t (*packed_bytes)(int64_t k, int64_t n);
    void (*pack)(int64_t k, int64_t n, const struct int_matrix *b, void *packed);
    size_t (*row_bytes)(int64_t k); /* from one packed row of A to the next */
    void (*pack_row)(enum dtype dtype, int64_t k, const void *a, int32_t zero, void *row);
    /* c[rows][n] (ldc apart) = packed rows times packed B */
    void (*run)(int64_t rows, int64_t k, int64_t n, const void *rows_of_a, const void *packed,
                int32_t *c, int64_t ldc);
};

const struct int_gemm_ops *int_gemm_ops_for(enum cpu_isa isa);

/* Parts of the tables: pairs are packed alike on every machine. */
enum { INT_PANEL = 32 }; /* columns */
size_t int_pairs_packed_bytes(int64_t k, int64_t n);
void int_pairs_pack(int64_t k, int64_t n, const struct int_matrix *b, void *packed);
size_t int_pairs_row_bytes(int64_t k);
void int_pairs_pack_row(enum dtype dtype, int64_t k, const void *a, int32_t zero, void *row);

static inline int32_t int_byte_at(enum dtype dtype, const void *data, int64_t index)
{
    return dtype == DTYPE_INT8 ? ((const int8_t *)data)[index] : ((const uint8_t *)data)[index];
}

#endif
