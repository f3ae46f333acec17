#include "device/cpu/bytes.h"

extern const struct byte_loops byte_loops_base, byte_loops_avx2, byte_loops_avx512;

const struct byte_loops *byte_loops_for(enum cpu_isa isa)
{
    static const struct byte_loops *const table[CPU_ISA_COUNT] = {
        &byte_loops_base, &byte_loops_avx2, &byte_loops_avx512};

    return table[isa];
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
