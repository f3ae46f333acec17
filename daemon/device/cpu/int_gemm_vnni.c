/* Products of bytes by AVX-512 VNNI: unsigned A times signed B, four steps of k an instruction.
 *
 * Signed A and unsigned B are shifted by 128, their zero points with them.  With a, b the shifted
 * bytes, za and zb[j] the shifted zero points:
 *
 *     sum (a - za)(b - zb[j]) = sum a b - zb[j] sum a - za (sum b - k zb[j])
 *
 * Packed B: zb [n], the last bracket [n] (both padded to panels), then [k / 4][PANEL][4] a panel.
 * A packed row: za, sum a, then the bytes.  Everything is exact modulo 2^32. */
#include <immintrin.h>
#include <string.h>

#include "device/cpu/int_gemm.h"

extern const struct int_gemm_ops int_gemm_ops_vnni;

enum { VECTORS = 4, LANES = 16, PANEL = VECTORS * LANES, ROWS = 6, HEAD = 64, SHIFT = 128 };

struct head {
    int32_t zero, sum;
};

static int64_t round_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

static size_t packed_bytes(int64_t k, int64_t n)
{
    return (size_t)round_up(n, PANEL) * (2 * sizeof(int32_t) + (size_t)round_up(k, 4));
}

static void pack(int64_t k, int64_t n, const struct int_matrix *b, void *packed)
{
    const int64_t columns = round_up(n, PANEL), quads = round_up(k, 4) / 4;
    const int32_t shift = b->dtype == DTYPE_UINT8 ? SHIFT : 0;
    int32_t *zeros = packed, *sums = zeros + columns;
    int8_t *to = (int8_t *)(sums + columns);

    memset(packed, 0, packed_bytes(k, n));
    for (int64_t j = 0; j < n; j++) {
        int8_t *column = to + (j / PANEL * quads * PANEL + j % PANEL) * 4;
        int32_t sum = 0;

        if (b->zero != NULL)
            zeros[j] = int_byte_at(b->dtype, b->zero, b->zero_per_column ? j : 0);
        zeros[j] -= shift;
        for (int64_t i = 0; i < k; i++) {
            int32_t byte =
                int_byte_at(b->dtype, b->data, i * b->row_stride + j * b->column_stride) - shift;

            column[i / 4 * PANEL * 4 + i % 4] = (int8_t)byte;
            sum += byte - zeros[j];
        }
        sums[j] = sum;
    }
}

static size_t row_bytes(int64_t k)
{
    return (size_t)(HEAD + round_up(k, 64));
}

static void pack_row(enum dtype dtype, int64_t k, const void *a, int32_t zero, void *row)
{
    const __m512i shift = _mm512_set1_epi8(dtype == DTYPE_INT8 ? (char)SHIFT : 0);
    struct head head = {.zero = zero + (dtype == DTYPE_INT8 ? SHIFT : 0)};
    __m512i sum = _mm512_setzero_si512();

    for (int64_t i = 0; i < k; i += 64) {
        __mmask64 mask = k - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (k - i)) - 1;
        __m512i bytes = _mm512_maskz_loadu_epi8(mask, (const char *)a + i);

        bytes = _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(bytes, shift));
        sum = _mm512_add_epi64(sum, _mm512_sad_epu8(bytes, _mm512_setzero_si512()));
        _mm512_storeu_si512((char *)row + HEAD + i, bytes);
    }
    head.sum = (int32_t)_mm512_reduce_add_epi64(sum);
    memcpy(row, &head, sizeof(head));
}

/* R rows by one panel. */
__attribute__((always_inline)) static inline void strip(const int R, int64_t quads, const char *a,
                                                        size_t lda, const int8_t *b,
                                                        const int32_t *zeros, const int32_t *sums,
                                                        int64_t columns, int32_t *c, int64_t ldc)
{
    __m512i s[ROWS][VECTORS];

#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            s[r][v] = _mm512_setzero_si512();
    for (int64_t q = 0; q < quads; q++, b += 4 * PANEL) {
        __m512i y[VECTORS];

#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            y[v] = _mm512_loadu_si512(b + 4 * LANES * v);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            int32_t quad;
            __m512i x;

            memcpy(&quad, a + (size_t)r * lda + HEAD + 4 * q, sizeof(quad));
            x = _mm512_set1_epi32(quad);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                s[r][v] = _mm512_dpbusd_epi32(s[r][v], x, y[v]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        struct head head;

        memcpy(&head, a + (size_t)r * lda, sizeof(head));
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            const int64_t left = columns - v * LANES;
            const __mmask16 mask = (__mmask16)(left >= LANES ? 0xffff
                                               : left > 0    ? (1 << left) - 1
                                                             : 0);
            __m512i x = s[r][v];

            x = _mm512_sub_epi32(x, _mm512_mullo_epi32(_mm512_loadu_si512(zeros + v * LANES),
                                                       _mm512_set1_epi32(head.sum)));
            x = _mm512_sub_epi32(x, _mm512_mullo_epi32(_mm512_loadu_si512(sums + v * LANES),
                                                       _mm512_set1_epi32(head.zero)));
            _mm512_mask_storeu_epi32(c + r * ldc + v * LANES, mask, x);
        }
    }
}

static void run(int64_t rows, int64_t k, int64_t n, const void *rows_of_a, const void *packed,
                int32_t *c, int64_t ldc)
{
    const int64_t all = round_up(n, PANEL), quads = round_up(k, 4) / 4;
    const int32_t *zeros = packed, *sums = zeros + all;
    const int8_t *b = (const int8_t *)(sums + all);
    const size_t lda = row_bytes(k);

    for (int64_t j = 0; j < n; j += PANEL, b += quads * PANEL * 4)
        for (int64_t i = 0; i < rows; i += ROWS) {
            const char *a = (const char *)rows_of_a + (size_t)i * lda;
            const int64_t columns = n - j < PANEL ? n - j : PANEL;
            int32_t *to = c + i * ldc + j;

            switch (rows - i) {
#define STRIP(R)                                                                                   \
    strip(R, quads, a, lda, b, zeros + j, sums + j, columns, to, ldc);                             \
    break
            case 1:
                STRIP(1);
            case 2:
                STRIP(2);
            case 3:
                STRIP(3);
            case 4:
                STRIP(4);
            case 5:
                STRIP(5);
            default:
                STRIP(6);
            }
        }
}

const struct int_gemm_ops int_gemm_ops_vnni = {.form = "quads",
                                               .packed_bytes = packed_bytes,
                                               .pack = pack,
                                               .row_bytes = row_bytes,
                                               .pack_row = pack_row,
                                               .run = run};
