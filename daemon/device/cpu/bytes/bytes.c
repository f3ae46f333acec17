#include "device/cpu/bytes/bytes.h"

extern const struct byte_loops byte_loops_base, byte_loops_avx2, byte_loops_avx512;

const struct byte_loops *byte_loops_for(enum cpu_isa isa)
{
    static const struct byte_loops *const table[CPU_ISA_COUNT] = {
        &byte_loops_base, &byte_loops_avx2, &byte_loops_avx512};

    return table[isa];
}

/* Neither products nor quotients of such scales leave the range of normal floats. */
static bool is_usual(float scale)
{
    return scale > 0x1p-40f && scale < 0x1p40f;
}

/* Sums: with u = 2^-24, the steps and their short form are each within 8 u (|x| + |y|) / y_scale of
 * the true value, where |x| is at most 255 a_scale.  Products: within 4 u of themselves, and no
 * more than 512 of that counts before the ends of the range. */
void byte_pair_complete(struct byte_pair *pair)
{
    const double a = (double)pair->a_scale / (double)pair->y_scale;
    const double b = (double)pair->b_scale / (double)pair->y_scale;

    pair->off = 1; /* always the steps */
    if (!is_usual(pair->a_scale) || !is_usual(pair->b_scale) || !is_usual(pair->y_scale))
        return;
    if (pair->multiplies) {
        pair->a_factor = (float)(a * (double)pair->b_scale);
        pair->b_factor = pair->offset = 0;
        pair->off = 0x1p-12f;
        return;
    }
    pair->a_factor = (float)a;
    pair->b_factor = (float)b;
    pair->offset = (float)-(a * (double)pair->a_zero + b * (double)pair->b_zero);
    pair->off = (float)(0x1p-12 * (a + b));
}

int64_t byte_columns(const struct byte_loops *loops, int64_t channels)
{
    return (channels + loops->channels - 1) / loops->channels * loops->channels;
}

size_t byte_depthwise_bytes(const struct byte_loops *loops, int64_t taps, int64_t channels)
{
    return (size_t)((taps + 1) / 2 * 2 * byte_columns(loops, channels)) * sizeof(int16_t);
}

size_t byte_factor_bytes(const struct byte_loops *loops, int64_t channels)
{
    return (size_t)byte_columns(loops, channels) * (sizeof(int32_t) + sizeof(float));
}

/* Products of pairs come out by halves of 128 bits: of eight channels the first four of each in one
 * vector, the others in the next. */
int64_t byte_factor_place(const struct byte_loops *loops, int64_t channel)
{
    const int64_t within = channel % loops->channels, eight = within / 8, i = within % 8;

    return channel - within + eight * 4 + i % 4 + (i < 4 ? 0 : loops->channels / 2);
}
