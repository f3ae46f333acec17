/* Loops over one row or over columns: reductions, softmax, normalisation.  Part of loops_kernels.h.
 *
 * In which order a row is summed depends on its length alone: vectors of a block in four
 * accumulators, the lanes folded in halves, the blocks in double. */

enum { ROW_BLOCK = 4096 };

INLINE vf vload_filled(const float *p, size_t n, float fill)
{
    float lanes[VW];

    for (size_t i = 0; i < VW; i++)
        lanes[i] = i < n ? p[i] : fill;
    return vload(lanes);
}

/* A whole vector or its first n elements. */
INLINE vf vload_upto(const float *p, size_t n)
{
    return n == VW ? vload(p) : vload_part(p, n);
}
INLINE void vstore_upto(float *p, vf x, size_t n)
{
    if (n == VW)
        vstore(p, x);
    else
        vstore_part(p, x, n);
}

#define ADD_vectors(a, x) vadd(a, x)
#define MUL_vectors(a, x) vmul(a, x)
#define MAX_vectors(a, x) vselect_nan(x, x, vmax(x, a)) /* a NaN stays */
#define MIN_vectors(a, x) vselect_nan(x, x, vmin(x, a))
#define ADD_numbers(a, x) ((a) + (x))
#define MUL_numbers(a, x) ((a) * (x))
#define MAX_numbers(a, x) ((a) > (x) || isnan(a) ? (a) : (x))
#define MIN_numbers(a, x) ((a) < (x) || isnan(a) ? (a) : (x))
#define ADD_nothing       0.0f
#define MUL_nothing       1.0f
#define MAX_nothing       (-INFINITY)
#define MIN_nothing       INFINITY

#define REDUCE(name, mapped, combine, neutral)                                                     \
    INLINE vf mapped_##name(vf x, vf s)                                                            \
    {                                                                                              \
        (void)s;                                                                                   \
        return mapped;                                                                             \
    }                                                                                              \
    static float block_##name(const float *x, size_t count, float shift)                           \
    {                                                                                              \
        vf s = vset1(shift), a[4];                                                                 \
        float lanes[VW];                                                                           \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (int k = 0; k < 4; k++)                                                                \
            a[k] = vset1(combine##_nothing);                                                       \
        for (; i + 4 * VW <= count; i += 4 * VW)                                                   \
            UNROLL for (int k = 0; k < 4; k++) a[k] =                                              \
                combine##_vectors(a[k], mapped_##name(vload(x + i + (size_t)k * VW), s));          \
        for (; i + VW <= count; i += VW)                                                           \
            a[0] = combine##_vectors(a[0], mapped_##name(vload(x + i), s));                        \
        if (i < count)                                                                             \
            a[1] = combine##_vectors(a[1],                                                         \
                                     mapped_##name(vload_filled(x + i, count - i, neutral), s));   \
        a[0] = combine##_vectors(a[0], a[1]);                                                      \
        a[2] = combine##_vectors(a[2], a[3]);                                                      \
        vstore(lanes, combine##_vectors(a[0], a[2]));                                              \
        for (int half = VW / 2; half > 0; half /= 2)                                               \
            for (int k = 0; k < half; k++)                                                         \
                lanes[k] = combine##_numbers(lanes[k], lanes[k + half]);                           \
        return lanes[0];                                                                           \
    }                                                                                              \
    static double row_##name(const float *x, size_t count, float shift)                            \
    {                                                                                              \
        double total = (double)combine##_nothing;                                                  \
                                                                                                   \
        for (size_t i = 0; i < count; i += ROW_BLOCK) {                                            \
            size_t n = count - i < ROW_BLOCK ? count - i : ROW_BLOCK;                              \
            double part = (double)block_##name(x + i, n, shift);                                   \
                                                                                                   \
            total = combine##_numbers(total, part);                                                \
        }                                                                                          \
        return total;                                                                              \
    }                                                                                              \
    static void columns_##name(const float *x, float *total, size_t count, const float *shifts)    \
    {                                                                                              \
        size_t i = 0;                                                                              \
                                                                                                   \
        for (; i + VW <= count; i += VW) {                                                         \
            vf s = shifts != NULL ? vload(shifts + i) : vzero();                                   \
                                                                                                   \
            vstore(total + i,                                                                      \
                   combine##_vectors(vload(total + i), mapped_##name(vload(x + i), s)));           \
        }                                                                                          \
        if (i < count) {                                                                           \
            size_t n = count - i;                                                                  \
            vf s = shifts != NULL ? vload_part(shifts + i, n) : vzero();                           \
                                                                                                   \
            vstore_part(total + i,                                                                 \
                        combine##_vectors(vload_part(total + i, n),                                \
                                          mapped_##name(vload_part(x + i, n), s)),                 \
                        n);                                                                        \
        }                                                                                          \
    }
#include "device/cpu/lines/reduce_loops.def"
#undef REDUCE

/* y = e^(x - shift) with the largest x as shift; the sum is returned. */
static double exp_row(const float *x, float *y, size_t count, float shift)
{
    double total = 0;
    vf s = vset1(shift);

    for (size_t from = 0; from < count; from += ROW_BLOCK) {
        size_t to = count - from < ROW_BLOCK ? count : from + ROW_BLOCK, i = from;
        vf a = vzero(), b = vzero();

        for (; i + 2 * VW <= to; i += 2 * VW) {
            vf p = vexp_part(vsub(vload(x + i), s)), q = vexp_part(vsub(vload(x + i + VW), s));

            vstore(y + i, p);
            vstore(y + i + VW, q);
            a = vadd(a, p);
            b = vadd(b, q);
        }
        for (; i + VW <= to; i += VW) {
            vf p = vexp_part(vsub(vload(x + i), s));

            vstore(y + i, p);
            a = vadd(a, p);
        }
        if (i < to) {
            vf p = vexp_part(vsub(vload_filled(x + i, to - i, -INFINITY), s));

            vstore_part(y + i, p, to - i);
            b = vadd(b, p);
        }
        total += (double)vsum(vadd(a, b));
    }
    return total;
}

/* Softmax down `count` rows that are `stride` apart, for columns that lie together. */
static void softmax_columns(const float *x, float *y, size_t count, size_t stride, size_t columns,
                            bool logarithm)
{
    for (size_t c = 0; c < columns; c += VW) {
        size_t n = columns - c < VW ? columns - c : VW;
        vf top = vset1(-INFINITY), sum = vzero();

        for (size_t i = 0; i < count; i++) {
            vf v = vload_upto(x + i * stride + c, n);

            top = MAX_vectors(top, v);
        }
        for (size_t i = 0; i < count; i++) {
            vf v = vexp_part(vsub(vload_upto(x + i * stride + c, n), top));

            sum = vadd(sum, v);
            if (!logarithm)
                vstore_upto(y + i * stride + c, v, n);
        }
        if (logarithm)
            sum = vadd(top, vlog(sum));
        for (size_t i = 0; i < count; i++) {
            vf v = vload_upto((logarithm ? x : y) + i * stride + c, n);

            vstore_upto(y + i * stride + c, logarithm ? vsub(v, sum) : vdiv(v, sum), n);
        }
    }
}

/* y = (x - mean) * factor, times scale, plus bias; either may be NULL. */
static void normalize_row(const float *x, float *y, size_t count, float mean, float factor,
                          const float *scale, const float *bias)
{
    vf m = vset1(mean), f = vset1(factor);

    for (size_t i = 0; i < count; i += VW) {
        size_t n = count - i < VW ? count - i : VW;
        vf v = vmul(vsub(vload_upto(x + i, n), m), f);

        if (scale != NULL)
            v = vmul(v, vload_upto(scale + i, n));
        if (bias != NULL)
            v = vadd(v, vload_upto(bias + i, n));
        vstore_upto(y + i, v, n);
    }
}

/* y = (x - mean) * factor + bias */
static void affine_row(const float *x, float *y, size_t count, float mean, float factor, float bias)
{
    vf m = vset1(mean), f = vset1(factor), b = vset1(bias);

    for (size_t i = 0; i < count; i += VW) {
        size_t n = count - i < VW ? count - i : VW;

        vstore_upto(y + i, vfma(vsub(vload_upto(x + i, n), m), f, b), n);
    }
}

/* y = x * scale + shift for `rows` rows, each element of a row with a scale and shift of its own.
 */
static void affine_columns(const float *x, float *y, size_t rows, size_t columns,
                           const float *scale, const float *shift)
{
    for (size_t r = 0; r < rows; r++, x += columns, y += columns) {
        size_t i = 0;

        for (; i + VW <= columns; i += VW)
            vstore(y + i, vfma(vload(x + i), vload(scale + i), vload(shift + i)));
        if (i < columns) {
            size_t n = columns - i;

            vstore_part(
                y + i,
                vfma(vload_part(x + i, n), vload_part(scale + i, n), vload_part(shift + i, n)), n);
        }
    }
}

/* ---- to bytes ---- */

/* The low bytes of whole numbers. */
INLINE void store_bytes(uint8_t *y, vi numbers, size_t count)
{
#if defined(__AVX512F__)
    _mm512_mask_cvtepi32_storeu_epi8(y, (__mmask16)((1u << count) - 1), numbers);
#else
    float bits[VW];
    uint32_t number;

    vstore(bits, vf_from_i(numbers));
    for (size_t i = 0; i < count; i++) {
        memcpy(&number, &bits[i], sizeof(number));
        y[i] = (uint8_t)number;
    }
#endif
}

/* round(x / scale) + zero within the range; of NaN the zero point. */
INLINE vi quantised(vf x, float scale, const struct byte_range *range)
{
    const vf z = vset1(range->zero);
    vf v = vadd(vround(vdiv(x, vset1(scale))), z);

    return vi_convert(vselect_nan(v, z, vmin(vset1(range->high), vmax(vset1(range->low), v))));
}

/* The same by a product, which is off by 2^-14 at most where it is not cut off (bounds are whole
 * numbers: before rounding is the same); false where a lane is so near to a half that the quotient
 * decides, or is NaN. */
INLINE bool quantise_nearly(vf x, float inverse, const struct byte_range *range, vi *out)
{
    const vf low = vset1(range->low - range->zero), high = vset1(range->high - range->zero);
    const vf q = vmin(high, vmax(low, vmul(x, vset1(inverse))));
    const vi whole = vi_convert(q);

    *out = vi_add(whole, vi_set1((int32_t)range->zero));
    return all_below(vabs(vsub(q, vf_convert(whole))), vset1(0.5f - 0x1p-14f));
}

static void quantize_bytes(const float *x, uint8_t *y, size_t count, float scale,
                           const struct byte_range *range)
{
    const struct byte_range own = *range; /* stores of bytes might change any other */
    const float inverse = 1 / scale;
    const bool has_inverse = scale > 1e-30f && scale < 1e30f;
    size_t i = 0;

    for (; i + NARROWED * VW <= count && has_inverse; i += NARROWED * VW) {
        bool is_sure = true;
        vi bytes[NARROWED];

        UNROLL for (size_t v = 0; v < NARROWED; v++) is_sure &=
            quantise_nearly(vload(x + i + v * VW), inverse, &own, &bytes[v]);
        if (!is_sure)
            UNROLL for (size_t v = 0; v < NARROWED; v++) bytes[v] =
                quantised(vload(x + i + v * VW), scale, &own);
        vi_store_narrowed(y + i, bytes);
    }
    for (; i < count; i += VW) {
        size_t n = count - i < VW ? count - i : VW;

        store_bytes(y + i, quantised(vload_upto(x + i, n), scale, &own), n);
    }
}

/* y = saturate(round((x + bias) * scale) + zero), a bias and a scale for each. */
static void requantize_bytes(const int32_t *x, uint8_t *y, size_t count, const int32_t *bias,
                             const float *scale, const struct byte_range *range)
{
    vf z = vset1(range->zero), low = vset1(range->low), high = vset1(range->high);

    for (size_t i = 0; i < count; i += VW) {
        size_t n = count - i < VW ? count - i : VW;
        vi sum = vi_add(vi_from_f(vload_upto((const float *)(const void *)(x + i), n)),
                        vi_from_f(vload_upto((const float *)(const void *)(bias + i), n)));
        vf v = vadd(vround(vmul(vf_convert(sum), vload_upto(scale + i, n))), z);

        store_bytes(y + i, vi_convert(vmin(high, vmax(low, v))), n);
    }
}

/* ---- resizing ---- */

static void weigh(const float *x, float weight, float *y, size_t count, bool added)
{
    const vf w = vset1(weight);
    size_t i = 0;

    if (added)
        for (; i + VW <= count; i += VW)
            vstore(y + i, vfma(w, vload(x + i), vload(y + i)));
    else
        for (; i + VW <= count; i += VW)
            vstore(y + i, vmul(w, vload(x + i)));
    if (i < count) {
        const vf last = vload_part(x + i, count - i);

        vstore_part(y + i, added ? vfma(w, last, vload_part(y + i, count - i)) : vmul(w, last),
                    count - i);
    }
}

INLINE vf stretch_vector(const float *x, const int32_t *index, const float *weight,
                         const size_t taps, size_t columns)
{
    vf sum = vmul(vset1(weight[0]), vload(x + index[0] * (int64_t)columns));

    UNROLL for (size_t t = 1; t < taps; t++) sum =
        vfma(vset1(weight[t]), vload(x + index[t] * (int64_t)columns), sum);
    return sum;
}

/* One column, or the last ones. */
INLINE void stretch_columns(const float *x, const int32_t *index, const float *weight,
                            const size_t taps, size_t from, size_t columns, float *y)
{
    for (size_t k = from; k < columns; k++) {
        float sum = weight[0] * x[index[0] * (int64_t)columns + (int64_t)k];

        UNROLL for (size_t t = 1; t < taps; t++) sum +=
            weight[t] * x[index[t] * (int64_t)columns + (int64_t)k];
        y[k] = sum;
    }
}

INLINE void stretch_taps(const float *x, const int32_t *index, const float *weight,
                         const size_t taps, size_t places, const size_t columns, float *y)
{
    for (size_t i = 0; i < places; i++, index += taps, weight += taps, y += columns) {
        size_t k = 0;

        for (; k + VW <= columns; k += VW)
            vstore(y + k, stretch_vector(x + k, index, weight, taps, columns));
        stretch_columns(x, index, weight, taps, k, columns, y);
    }
}

static void stretch(const float *x, const int32_t *index, const float *weight, size_t taps,
                    size_t places, size_t columns, float *y)
{
    if (taps == 2 && columns == 1)
        stretch_taps(x, index, weight, 2, places, 1, y);
    else if (taps == 2)
        stretch_taps(x, index, weight, 2, places, columns, y);
    else if (taps == 4)
        stretch_taps(x, index, weight, 4, places, columns, y);
    else
        stretch_taps(x, index, weight, taps, places, columns, y);
}
