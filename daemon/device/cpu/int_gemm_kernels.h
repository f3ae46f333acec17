/* Included by int_gemm_base.c, int_gemm_avx2.c and int_gemm_avx512.c. */
#include "device/cpu/int_gemm.h"
#include "device/cpu/simd.h"

extern const struct int_gemm_ops SIMD_NAME(int_gemm_ops);

#if defined(__AVX512F__)
#define vi_load(p)     _mm512_loadu_si512(p)
#define vi_store(p, x) _mm512_storeu_si512(p, x)
#define vi_zero()      _mm512_setzero_si512()
#define vi_madd(a, b)  _mm512_madd_epi16(a, b)
#elif defined(__AVX2__)
#define vi_load(p)     _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define vi_store(p, x) _mm256_storeu_si256((__m256i *)(void *)(p), x)
#define vi_zero()      _mm256_setzero_si256()
#define vi_madd(a, b)  _mm256_madd_epi16(a, b)
#else
#define vi_load(p)     _mm_loadu_si128((const __m128i *)(const void *)(p))
#define vi_store(p, x) _mm_storeu_si128((__m128i *)(void *)(p), x)
#define vi_zero()      _mm_setzero_si128()
#define vi_madd(a, b)  _mm_madd_epi16(a, b)
#endif

enum { ROWS = 4, VECTORS = 2, COLUMNS = VECTORS * VW };

/* R rows by two vectors of columns of one panel. */
INLINE void strip(const int R, int64_t pairs, const int16_t *a, int64_t lda, const int16_t *b,
                  int32_t out[ROWS][COLUMNS])
{
    vi s[ROWS][VECTORS];

    UNROLL for (int r = 0; r < R; r++) s[r][0] = s[r][1] = vi_zero();
    for (int64_t i = 0; i < pairs; i++, b += 2 * INT_PANEL) {
        vi b0 = vi_load(b), b1 = vi_load(b + 2 * VW);

        UNROLL for (int r = 0; r < R; r++)
        {
            int32_t pair;
            vi x;

            memcpy(&pair, a + r * lda + 2 * i, sizeof(pair));
            x = vi_set1(pair);
            s[r][0] = vi_add(s[r][0], vi_madd(x, b0));
            s[r][1] = vi_add(s[r][1], vi_madd(x, b1));
        }
    }
    UNROLL for (int r = 0; r < R; r++)
    {
        vi_store(out[r], s[r][0]);
        vi_store(out[r] + VW, s[r][1]);
    }
}

static void rows_of_strip(int64_t rows, int64_t pairs, const int16_t *a, int64_t lda,
                          const int16_t *b, int32_t out[ROWS][COLUMNS])
{
    switch (rows) {
    case 1:
        strip(1, pairs, a, lda, b, out);
        break;
    case 2:
        strip(2, pairs, a, lda, b, out);
        break;
    case 3:
        strip(3, pairs, a, lda, b, out);
        break;
    default:
        strip(4, pairs, a, lda, b, out);
        break;
    }
}

static void run(int64_t rows, int64_t k, int64_t n, const void *rows_of_a, const void *packed_b,
                int32_t *c, int64_t ldc)
{
    const int16_t *a = rows_of_a, *packed = packed_b;
    const int64_t lda = (k + 1) / 2 * 2;
    const int64_t pairs = (k + 1) / 2;
    int32_t out[ROWS][COLUMNS];

    for (int64_t j = 0; j < n; j += COLUMNS) {
        const int16_t *b = packed + j / INT_PANEL * pairs * INT_PANEL * 2 + j % INT_PANEL * 2;
        int64_t columns = n - j < COLUMNS ? n - j : COLUMNS;

        for (int64_t i = 0; i < rows; i += ROWS) {
            int64_t some = rows - i < ROWS ? rows - i : ROWS;

            rows_of_strip(some, pairs, a + i * lda, lda, b, out);
            for (int64_t r = 0; r < some; r++)
                memcpy(c + (i + r) * ldc + j, out[r], (size_t)columns * sizeof(int32_t));
        }
    }
}

const struct int_gemm_ops SIMD_NAME(int_gemm_ops) = {.form = "pairs",
                                                     .packed_bytes = int_pairs_packed_bytes,
                                                     .pack = int_pairs_pack,
                                                     .row_bytes = int_pairs_row_bytes,
                                                     .pack_row = int_pairs_pack_row,
                                                     .run = run};
