/* Loops that do nothing but what is measured. */
#include "device/cpu/peak.h"

#include "device/cpu/simd.h"

enum { CHAINS = 12 }; /* more than two units finish in the time of one */

/* Every loop over the chains is unrolled, or the compiler keeps them in memory. */
#define EACH_CHAIN UNROLL for (int i = 0; i < CHAINS; i++)

static float fold(const vf *sums)
{
    vf sum = vzero();

    for (int i = 0; i < CHAINS; i++)
        sum = vadd(sum, sums[i]);
    return vsum(sum);
}

/* `rounds` products and sums in each chain, all of them on registers. */
static float multiply(size_t rounds)
{
    vf sums[CHAINS], kept[CHAINS], factor = vset1(0.999F), term = vset1(1e-3F);

    EACH_CHAIN sums[i] = vset1((float)i);
    for (size_t n = 0; n < rounds; n++) {
        EACH_CHAIN vmac(sums[i], factor, term);
    }
    EACH_CHAIN kept[i] = sums[i];
    return fold(kept);
}

static float read_all(const float *from, size_t count)
{
    vf sums[CHAINS], kept[CHAINS];

    EACH_CHAIN sums[i] = vzero();
    for (size_t at = 0; at + CHAINS * VW <= count; at += CHAINS * VW) {
        EACH_CHAIN sums[i] = vadd(sums[i], vload(from + at + (size_t)i * VW));
    }
    EACH_CHAIN kept[i] = sums[i];
    return fold(kept);
}

const struct peak_ops SIMD_NAME(peak_ops) = {
    .multiply = multiply, .read_all = read_all, .round_flops = 2 * CHAINS * VW};
