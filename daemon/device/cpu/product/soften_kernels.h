/* Included by soften_base.c, soften_avx2.c and soften_avx512.c.
 *
 * A row is short: 8 to 13 vectors for the usual 128 to 197 keys.  So nothing leaves the vector
 * registers, the folding of lanes neither, and a row is passed twice, for its largest score and for
 * the powers.  The order of a sum depends on the number of keys alone.
 */
#include <math.h>

#include "device/cpu/product/soften.h"
#include "device/cpu/vmath.h"

extern const struct soften_ops SIMD_NAME(soften_ops);

enum { BLOCK = 4096 }; /* keys that are added in float */

/* Scores [i, i + VW) of a row; behind the last key -infinity, which counts for nothing. */
INLINE vf load_scores(const float *scores, int64_t i, int64_t keys)
{
    _Alignas(64) static const float lanes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                 8, 9, 10, 11, 12, 13, 14, 15};

    return i + VW <= keys ? vload(scores + i)
                          : vselect_lt(vload(lanes), vset1((float)(keys - i)), vload(scores + i),
                                       vset1(-INFINITY));
}

static void add_mask(float *scores, const float *mask, int64_t keys)
{
    int64_t i = 0;

    for (; i + VW <= keys; i += VW)
        vstore(scores + i, vadd(vload(scores + i), vload(mask + i)));
    if (i < keys)
        vstore(scores + i, vadd(vload(scores + i), vload_part(mask + i, (size_t)(keys - i))));
}

/* A NaN is passed over: it comes back as the sum. */
INLINE float largest(const float *scores, int64_t keys)
{
    vf a = vset1(-INFINITY), b = a;
    int64_t i = 0;

    for (; i + 2 * VW <= keys; i += 2 * VW) {
        a = vmax(vload(scores + i), a);
        b = vmax(vload(scores + i + VW), b);
    }
    for (; i < keys; i += VW)
        a = vmax(load_scores(scores, i, keys), a);
    return vlargest(vmax(a, b));
}

INLINE vf power(vf score, vf top)
{
    return vexp2_part(vmul(vsub(score, top), vset1(1.44269504f)));
}

/* Returns the sum. */
INLINE double powers(float *scores, int64_t keys, vf top)
{
    double total = 0;

    for (int64_t from = 0; from < keys; from += BLOCK) {
        const int64_t to = keys - from < BLOCK ? keys : from + BLOCK;
        vf a = vzero(), b = vzero();
        int64_t i = from;

        for (; i + 2 * VW <= to; i += 2 * VW) {
            vf p = power(vload(scores + i), top), q = power(vload(scores + i + VW), top);

            vstore(scores + i, p);
            vstore(scores + i + VW, q);
            a = vadd(a, p);
            b = vadd(b, q);
        }
        for (; i < to; i += VW) {
            vf p = power(load_scores(scores, i, keys), top);

            vstore(scores + i, p);
            a = vadd(a, p);
        }
        total += (double)vsum(vadd(a, b));
    }
    return total;
}

static void soften(const struct soften_rows *rows)
{
    for (int64_t r = 0; r < rows->rows; r++) {
        float *scores = rows->scores + r * rows->stride;

        for (size_t m = 0; m < SOFTEN_MASKS && rows->mask[m] != NULL; m++)
            add_mask(scores, rows->mask[m] + r * rows->mask_stride[m], rows->keys);
        rows->factors[r] =
            (float)(1 / powers(scores, rows->keys, vset1(largest(scores, rows->keys))));
    }
}

static void scale(float *y, int64_t stride, int64_t rows, int64_t width, const float *factors)
{
    for (int64_t r = 0; r < rows; r++, y += stride) {
        const vf factor = vset1(factors[r]);
        int64_t i = 0;

        for (; i + VW <= width; i += VW)
            vstore(y + i, vmul(vload(y + i), factor));
        if (i < width)
            vstore_part(y + i, vmul(vload_part(y + i, (size_t)(width - i)), factor),
                        (size_t)(width - i));
    }
}

const struct soften_ops SIMD_NAME(soften_ops) = {.soften = soften, .scale = scale};
