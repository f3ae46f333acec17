/* The loops of loops.h for one instruction set; included by loops_base.c, _avx2.c and _avx512.c. */
#include <math.h>

#include "device/cpu/loops.h"
#include "device/cpu/vmath.h"

/* The last elements go through the same vector code, so that an element's place in its row, which
 * the batch shifts, does not show in its bits. */
#define LOOP(name, ns, on_vectors, on_doubles)                                                     \
    INLINE vf on_vector_##name(vf x, vf a, vf b)                                                   \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)b;                                                                                   \
        return on_vectors;                                                                         \
    }                                                                                              \
    static void loop_##name(const float *x, float *y, size_t count, float a, float b)              \
    {                                                                                              \
        vf va = vset1(a), vb = vset1(b);                                                           \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + VW <= count; i += VW)                                                           \
            vstore(y + i, on_vector_##name(vload(x + i), va, vb));                                 \
        if (i < count)                                                                             \
            vstore_part(y + i, on_vector_##name(vload_part(x + i, count - i), va, vb), count - i); \
    }
#include "device/cpu/elements/unary_loops.def"
#undef LOOP

/* x^y by the C library; the powers that models are full of are said exactly. */
INLINE vf vpow(vf x, vf y)
{
    float bases[VW], powers[VW];
    bool squares = true;

    vstore(bases, x);
    vstore(powers, y);
    for (int i = 0; i < VW; i++)
        squares = squares && powers[i] == 2.0f;
    if (squares)
        return vmul(x, x);
    for (int i = 0; i < VW; i++)
        bases[i] = powers[i] == 2.0f ? bases[i] * bases[i] : powf(bases[i], powers[i]);
    return vload(bases);
}

INLINE vf vfmod(vf x, vf y)
{
    float a[VW], b[VW];

    vstore(a, x);
    vstore(b, y);
    for (int i = 0; i < VW; i++)
        a[i] = fmodf(a[i], b[i]);
    return vload(a);
}

/* One operand of a tile row: a vector from place i on, or one element for all. */
INLINE vf tile_load(const float *p, ptrdiff_t column_stride, size_t i)
{
    return column_stride != 0 ? vload(p + i) : vset1(*p);
}
INLINE vf tile_load_part(const float *p, ptrdiff_t column_stride, size_t i, size_t n)
{
    return column_stride != 0 ? vload_part(p + i, n) : vset1(*p);
}

/* Short rows of a tile share vectors. */
INLINE void gather_rows(const float *from, ptrdiff_t row_stride, ptrdiff_t column_stride,
                        size_t rows, size_t columns, float *lanes)
{
    for (size_t r = 0; r < rows; r++, from += row_stride)
        for (size_t i = 0; i < columns; i++)
            *lanes++ = from[(ptrdiff_t)i * column_stride];
}
INLINE void scatter_rows(const float *lanes, size_t rows, size_t columns, float *to,
                         ptrdiff_t row_stride)
{
    for (size_t r = 0; r < rows; r++, to += row_stride)
        for (size_t i = 0; i < columns; i++)
            to[i] = *lanes++;
}

#define LOOP(name, ns, on_vectors, on_doubles)                                                     \
    INLINE vf on_vectors_##name(vf x, vf y)                                                        \
    {                                                                                              \
        return on_vectors;                                                                         \
    }                                                                                              \
    INLINE void pair_row_##name(const float *a, ptrdiff_t sa, const float *b, ptrdiff_t sb,        \
                                float *c, size_t count)                                            \
    {                                                                                              \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + VW <= count; i += VW)                                                           \
            vstore(c + i, on_vectors_##name(tile_load(a, sa, i), tile_load(b, sb, i)));            \
        if (i < count)                                                                             \
            vstore_part(c + i,                                                                     \
                        on_vectors_##name(tile_load_part(a, sa, i, count - i),                     \
                                          tile_load_part(b, sb, i, count - i)),                    \
                        count - i);                                                                \
    }                                                                                              \
    static void short_rows_##name(const struct tile *tile, const float *a, const float *b,         \
                                  float *c)                                                        \
    {                                                                                              \
        const size_t columns = tile->columns, most = VW / columns;                                 \
        const ptrdiff_t ra = tile->row_strides[0], rb = tile->row_strides[1];                      \
        const ptrdiff_t sa = tile->column_strides[0], sb = tile->column_strides[1];                \
        float x[VW] = {0}, y[VW] = {0};                                                            \
                                                                                                   \
        for (size_t r = 0, rows; r < tile->rows; r += rows) {                                      \
            rows = tile->rows - r < most ? tile->rows - r : most;                                  \
            gather_rows(a + (ptrdiff_t)r * ra, ra, sa, rows, columns, x);                          \
            gather_rows(b + (ptrdiff_t)r * rb, rb, sb, rows, columns, y);                          \
            vstore(x, on_vectors_##name(vload(x), vload(y)));                                      \
            scatter_rows(x, rows, columns, c + (ptrdiff_t)r * tile->out_row_stride,                \
                         tile->out_row_stride);                                                    \
        }                                                                                          \
    }                                                                                              \
    static void tile_##name(void *arg, const struct tile *tile, const void *const *in, void *out)  \
    {                                                                                              \
        const float *a = in[0], *b = in[1];                                                        \
        float *c = out;                                                                            \
        ptrdiff_t sa = tile->column_strides[0], sb = tile->column_strides[1];                      \
                                                                                                   \
        (void)arg;                                                                                 \
        if (tile->rows > 1 && tile->columns <= VW / 2) {                                           \
            short_rows_##name(tile, a, b, c);                                                      \
            return;                                                                                \
        }                                                                                          \
        for (size_t r = 0; r < tile->rows; r++) {                                                  \
            if (sa == 1 && sb == 1)                                                                \
                pair_row_##name(a, 1, b, 1, c, tile->columns);                                     \
            else if (sa == 1)                                                                      \
                pair_row_##name(a, 1, b, 0, c, tile->columns);                                     \
            else                                                                                   \
                pair_row_##name(a, 0, b, sb, c, tile->columns);                                    \
            a += tile->row_strides[0];                                                             \
            b += tile->row_strides[1];                                                             \
            c += tile->out_row_stride;                                                             \
        }                                                                                          \
    }
#include "device/cpu/elements/binary_loops.def"
#undef LOOP

#include "device/cpu/rows_kernels.h"

#if defined(__F16C__)
static void from_half(const uint16_t *x, float *y, size_t count)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
    for (; i < count; i++)
        y[i] = float_from_half(x[i]);
}

static void to_half(const float *x, uint16_t *y, size_t count)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < count; i++)
        y[i] = half_from_float(x[i]);
}
#else
static void from_half(const uint16_t *x, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = float_from_half(x[i]);
}

static void to_half(const float *x, uint16_t *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        y[i] = half_from_float(x[i]);
}
#endif

const struct loops SIMD_NAME(loops) = {
    .unary =
        {
#define LOOP(name, ns, on_vectors, on_doubles) [UNARY_##name] = loop_##name,
#include "device/cpu/elements/unary_loops.def"
#undef LOOP
        },
    .binary =
        {
#define LOOP(name, ns, on_vectors, on_doubles) [BINARY_##name] = tile_##name,
#include "device/cpu/elements/binary_loops.def"
#undef LOOP
        },
    .row =
        {
#define REDUCE(name, mapped, combine, neutral) [REDUCE_##name] = row_##name,
#include "device/cpu/lines/reduce_loops.def"
#undef REDUCE
        },
    .columns =
        {
#define REDUCE(name, mapped, combine, neutral) [REDUCE_##name] = columns_##name,
#include "device/cpu/lines/reduce_loops.def"
#undef REDUCE
        },
    .exp_row = exp_row,
    .softmax_columns = softmax_columns,
    .normalize_row = normalize_row,
    .affine_row = affine_row,
    .affine_columns = affine_columns,
    .weigh = weigh,
    .stretch = stretch,
    .float_from_half = from_half,
    .half_from_float = to_half,
    .quantize_bytes = quantize_bytes,
    .requantize_bytes = requantize_bytes,
};
