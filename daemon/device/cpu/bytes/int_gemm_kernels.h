/* Included by int_gemm_base.c, _avx2.c, _avx512.c (pairs), _avxvnni.c, _vnni.c (quads) and
 * int_gemm_split_avx2.c (split quads). */
#include "device/cpu/bytes/int_gemm.h"
#include "device/cpu/simd.h"

#if defined(__AVX512VNNI__)
#define TABLE int_gemm_ops_vnni
#define FORM  "quads"
enum { STEP = 4, VECTORS = 4 };
#define vi_dot(s, a, b) _mm512_dpbusd_epi32(s, a, b)
#elif defined(__AVXVNNI__)
#define TABLE           int_gemm_ops_avxvnni
#define FORM            "quads"
enum { STEP = 4, VECTORS = 2 };
#define vi_dot(s, a, b) _mm256_dpbusd_avx_epi32(s, a, b)
#elif defined(SPLIT_QUADS)
#define TABLE int_gemm_ops_split_avx2
#define FORM  "split quads"
enum { STEP = 4, VECTORS = 2 };
#define vi_dot(s, a, b)                                                                            \
    _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1)))
#else
#define TABLE SIMD_NAME(int_gemm_ops)
#define FORM  "pairs"
#if defined(__AVX512F__)
enum { STEP = 2, VECTORS = 4 };
#define vi_dot(s, a, b) _mm512_add_epi32(s, _mm512_madd_epi16(a, b))
#elif defined(__AVX2__)
enum { STEP = 2, VECTORS = 2 };
#define vi_dot(s, a, b) _mm256_add_epi32(s, _mm256_madd_epi16(a, b))
#else
enum { STEP = 2, VECTORS = 2 };
#define vi_dot(s, a, b) _mm_add_epi32(s, _mm_madd_epi16(a, b))
#endif
#endif

#if defined(__AVX512F__)
#define vi_load(p)     _mm512_loadu_si512(p)
#define vi_store(p, x) _mm512_storeu_si512(p, x)
#define vi_mul(a, b)   _mm512_mullo_epi32(a, b)
#elif defined(__AVX2__)
#define vi_load(p)     _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define vi_store(p, x) _mm256_storeu_si256((__m256i *)(void *)(p), x)
#define vi_mul(a, b)   _mm256_mullo_epi32(a, b)
#else
#define vi_load(p)     _mm_loadu_si128((const __m128i *)(const void *)(p))
#define vi_store(p, x) _mm_storeu_si128((__m128i *)(void *)(p), x)
#endif

#if defined(__AVX512F__)
#define REGISTER "v"
#else
#define REGISTER "x"
#endif

extern const struct int_gemm_ops TABLE;

/* QUAD: bytes a vector of steps takes for each of its lanes. */
enum { PANEL = VECTORS * VW, QUAD = 4, MOST_ROWS = 12, AHEAD = 8 * PANEL * QUAD };

INLINE void store_some(int32_t *to, vi x, int64_t lanes)
{
    int32_t all[VW];

    if (lanes >= VW) {
        vi_store(to, x);
    } else if (lanes > 0) {
        vi_store(all, x);
        memcpy(to, all, (size_t)lanes * sizeof(*to));
    }
}

/* The low byte of each lane. */
INLINE void store_low_bytes(uint8_t *to, vi x, int64_t lanes)
{
#if defined(__AVX512F__)
    if (lanes > 0)
        _mm512_mask_cvtepi32_storeu_epi8(to, (__mmask16)(lanes >= VW ? 0xffff : (1 << lanes) - 1),
                                         x);
#elif defined(__AVX2__)
    const __m256i low =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i y = _mm256_shuffle_epi8(x, low);
    uint32_t halves[2] = {(uint32_t)_mm256_extract_epi32(y, 0),
                          (uint32_t)_mm256_extract_epi32(y, 4)};

    if (lanes > 0)
        memcpy(to, halves, (size_t)(lanes >= VW ? VW : lanes));
#else
    int32_t all[VW];

    vi_store(all, x);
    for (int64_t i = 0; i < lanes && i < VW; i++)
        to[i] = (uint8_t)all[i];
#endif
}

/* What sums of a strip become bytes with: loaded once, since stores of bytes might change it. */
struct to_bytes {
    vf low, high, scale[VECTORS];
    vi zero;
};

INLINE vi to_bytes(const struct to_bytes *by, vi sum, int v)
{
    /* bounds are whole numbers: cutting off before rounding is the same */
    const vf x = vmin(by->high, vmax(by->low, vmul(vf_convert(sum), by->scale[v])));

    return vi_add(vi_convert(x), by->zero);
}

#if defined(__AVX2__) && !defined(__AVX512F__)
/* The low bytes of two vectors. */
INLINE void store_two(uint8_t *to, vi a, vi b, int64_t lanes)
{
    const vi order = _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5);
    vi words = _mm256_and_si256(_mm256_packs_epi32(a, b), _mm256_set1_epi16(0xff));
    __m128i bytes = _mm256_castsi256_si128(
        _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, words), order));

    if (lanes >= 2 * VW)
        _mm_storeu_si128((__m128i *)(void *)to, bytes);
    else
        memcpy(to, &bytes, (size_t)lanes);
}
#endif

/* One row of a strip of V vectors, `lanes` of them wanted. */
INLINE void store_row(const int V, const struct to_bytes *by, const vi *sums, int64_t lanes,
                      uint8_t *to)
{
    vi x[NARROWED];

    UNROLL for (int v = 0; v < V; v++) x[v] = to_bytes(by, sums[v], v);
    if (V == NARROWED && lanes >= NARROWED * VW) {
        vi_store_narrowed(to, x);
        return;
    }
#if defined(__AVX2__) && !defined(__AVX512F__)
    if (V == 2) {
        store_two(to, x[0], x[1], lanes);
        return;
    }
#endif
    UNROLL for (int v = 0; v < V; v++) store_low_bytes(to + v * VW, x[v], lanes - v * VW);
}

INLINE void store_bytes(const int R, const int V, const struct int_product *p, int64_t row,
                        int64_t column, vi s[MOST_ROWS][VECTORS])
{
    const int64_t lanes = p->to - column, ldo = p->ldo;
    uint8_t *to = (uint8_t *)p->out + row * ldo + column;
    struct to_bytes by = {.low = vset1(p->range.low - p->range.zero),
                          .high = vset1(p->range.high - p->range.zero),
                          .zero = vi_set1((int32_t)p->range.zero)};

    UNROLL for (int v = 0; v < V; v++) by.scale[v] = vload(p->scale + column + v * VW);
    UNROLL for (int r = 0; r < R; r++) store_row(V, &by, s[r], lanes, to + r * ldo);
}

INLINE vi to_floats(const struct int_product *p, vi sum, int64_t column)
{
    vf x = vmul(vf_convert(sum), vload(p->scale + column));

    /* apart: a fused multiply-add would not be what separate steps give */
    __asm__("" : "+" REGISTER(x));
    return vi_from_f(p->shift == NULL ? x : vadd(x, vload(p->shift + column)));
}

/* Sums or floats of a strip.  Apart from the strips, of which there are many: bytes, whose products
 * are the short ones, are finished there. */
static void finish(const struct int_product *p, int64_t rows, int vectors, int64_t row,
                   int64_t column, const int32_t *sums)
{
    for (int64_t r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++, sums += VW) {
            const int64_t here = column + v * VW;
            vi x = vi_load(sums);

            store_some((int32_t *)p->out + (row + r) * p->ldo + here,
                       p->result == INT_SUMS ? x : to_floats(p, x, here), p->to - here);
        }
}

/* What B's zero points take away: there in quads alone. */
INLINE vi less_zeros(const struct int_product *p, vi sum, int64_t row, int64_t column)
{
#if defined(__AVX2__)
    const int32_t *zeros = p->packed;

    return vi_sub(sum, vi_mul(vi_load(zeros + column), vi_set1(p->row_sums[row])));
#else
    (void)p, (void)row, (void)column;
    return sum;
#endif
}

#if defined(SPLIT_QUADS)
INLINE const struct int_halves *halves_of(const struct int_product *p, int64_t list)
{
    const int64_t quads = (p->shape.length + STEP - 1) / STEP * p->shape.segments;
    const int64_t columns = (p->shape.n + PANEL - 1) / PANEL * PANEL;
    const char *lists =
        (const char *)p->packed + columns * (2 * (int64_t)sizeof(int32_t) + quads * QUAD);

    return (const struct int_halves *)(const void *)(lists +
                                                     (size_t)list * int_halves_bytes(VW, quads));
}
#endif

/* What is fetched into the second cache meanwhile: the panel to come, by the strips of this one. */
struct next {
    const char *at;
    int64_t step; /* bytes for each step of k */
};

/* R rows from `row` on by V vectors of columns from `column` on; b: their place in the panel. */
INLINE void strip(const int R, const int V, const struct int_product *p, int64_t row,
                  int64_t column, const char *b, struct next *next)
{
    const int64_t steps = (p->shape.length + STEP - 1) / STEP, next_step = next->step;
    const char *ahead = next->at;
    vi s[MOST_ROWS][VECTORS];

    UNROLL for (int r = 0; r < R; r++)
    {
        UNROLL for (int v = 0; v < V; v++) s[r][v] = vi_load(p->start + column + v * VW);
    }
    for (int64_t g = 0; g < p->shape.segments; g++) {
        const char *a[MOST_ROWS];

        UNROLL for (int r = 0; r < R; r++) a[r] = p->row[row + r] + p->offsets[g];
        for (int64_t q = 0; q < steps; q++, b += PANEL * QUAD) {
            vi y[VECTORS];

            UNROLL for (int v = 0; v < V; v++) _mm_prefetch(b + AHEAD + v * VW * QUAD, _MM_HINT_T0);
            if (V > 1) { /* one vector of columns: loads are what there is too much of */
                _mm_prefetch(ahead, _MM_HINT_T1);
                ahead += next_step;
            }
            UNROLL for (int v = 0; v < V; v++) y[v] = vi_load(b + v * VW * QUAD);
            UNROLL for (int r = 0; r < R; r++)
            {
                int32_t bits;
                vi x;

                memcpy(&bits, a[r] + q * QUAD, sizeof(bits));
                x = vi_set1(bits);
                UNROLL for (int v = 0; v < V; v++) s[r][v] = vi_dot(s[r][v], x, y[v]);
            }
        }
    }
    next->at = ahead;
#if defined(SPLIT_QUADS)
    UNROLL for (int v = 0; v < V; v++)
    {
        const struct int_halves *halves = halves_of(p, column / VW + v);
        const char *seconds = (const char *)(halves->at + steps * p->shape.segments);

        for (int64_t i = 0; i < halves->count; i++, seconds += VW * QUAD) {
            const int64_t at = p->offsets[halves->at[i].segment] + halves->at[i].quad * QUAD;
            const vi y = vi_load(seconds);

            UNROLL for (int r = 0; r < R; r++)
            {
                int32_t bits;

                memcpy(&bits, p->row[row + r] + at, sizeof(bits));
                s[r][v] = vi_dot(s[r][v], vi_set1(bits), y);
            }
        }
    }
#endif
    if (p->row_sums != NULL)
        UNROLL for (int r = 0; r < R; r++)
        {
            UNROLL for (int v = 0; v < V; v++) s[r][v] =
                less_zeros(p, s[r][v], row + r, column + v * VW);
        }
    if (p->result == INT_BYTES) {
        store_bytes(R, V, p, row, column, s);
    } else {
        int32_t sums[MOST_ROWS * VECTORS * VW];

        UNROLL for (int r = 0; r < R; r++)
        {
            UNROLL for (int v = 0; v < V; v++) vi_store(sums + (r * V + v) * VW, s[r][v]);
        }
        finish(p, R, V, row, column, sums);
    }
}

/* All rows by V vectors: as many rows at a time as registers hold sums. */
#define STRIPS(V, MOST)                                                                            \
    static void strips_##V(const struct int_product *p, int64_t column, const char *b,             \
                           const char *to_come)                                                    \
    {                                                                                              \
        struct next next = {to_come, PANEL * QUAD * MOST / (p->rows + MOST)};                      \
        int64_t row = 0;                                                                           \
                                                                                                   \
        for (; row + MOST <= p->rows; row += MOST)                                                 \
            strip(MOST, V, p, row, column, b, &next);                                              \
        for (; row + 4 <= p->rows; row += 4)                                                       \
            strip(4, V, p, row, column, b, &next);                                                 \
        for (; row + 2 <= p->rows; row += 2)                                                       \
            strip(2, V, p, row, column, b, &next);                                                 \
        for (; row < p->rows; row++)                                                               \
            strip(1, V, p, row, column, b, &next);                                                 \
    }

#if defined(__AVX512F__)
STRIPS(1, 12)
STRIPS(2, 8)
STRIPS(3, 6)
STRIPS(4, 6)
#elif defined(SPLIT_QUADS)
STRIPS(1, 8)
STRIPS(2, 5)
#elif defined(__AVX2__)
STRIPS(1, 8)
STRIPS(2, 6)
#else
STRIPS(1, 6)
STRIPS(2, 4)
#endif

static void run(const struct int_product *p)
{
    const int64_t steps = (p->shape.length + STEP - 1) / STEP * p->shape.segments;
    const int64_t columns = (p->shape.n + PANEL - 1) / PANEL * PANEL;
    const char *panels = (const char *)p->packed + 2 * columns * (int64_t)sizeof(int32_t);

    for (int64_t j = p->from; j < p->to; j += PANEL) {
        const char *b = panels + j * steps * QUAD, *next = b + PANEL * steps * QUAD;

        switch ((p->to - j + VW - 1) / VW) {
        case 1:
            strips_1(p, j, b, next);
            break;
#if defined(__AVX512F__)
        case 2:
            strips_2(p, j, b, next);
            break;
        case 3:
            strips_3(p, j, b, next);
            break;
        default:
            strips_4(p, j, b, next);
            break;
#else
        default:
            strips_2(p, j, b, next);
            break;
#endif
        }
    }
}

const struct int_gemm_ops TABLE = {.form = FORM,
                                   .panel = PANEL,
                                   .step = STEP,
                                   .element_bytes = QUAD / STEP,
#if defined(SPLIT_QUADS)
                                   .list = VW,
#endif
                                   .run = run};
