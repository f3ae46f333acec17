#include "device/cpu/bytes/byte_quads.h"

#include <string.h>

#include "device/cpu/bytes/int_gemm.h"

extern const struct byte_quads_ops byte_quads_ops_vnni, byte_quads_ops_avxvnni;

const struct byte_quads_ops *byte_quads_for(enum cpu_isa isa)
{
    if (strcmp(int_gemm_ops_for(isa)->form, "quads") != 0)
        return NULL;
    return isa == CPU_AVX512 ? &byte_quads_ops_vnni : &byte_quads_ops_avxvnni;
}

static int64_t group_begin(const struct byte_quads_ops *ops, int64_t channels, int64_t channel)
{
    int64_t begin = channel / ops->widest * ops->widest, group;

    while (begin + (group = byte_quads_group(ops->widest, channels, begin)) <= channel)
        begin += group;
    return begin;
}

/* Interleaving goes by sixteen channels: four vectors of a group hold the first, second … four of
 * each sixteen. */
int64_t byte_quads_place(const struct byte_quads_ops *ops, int64_t channels, int64_t channel)
{
    const int64_t begin = group_begin(ops, channels, channel), i = channel - begin;
    const int64_t group = byte_quads_group(ops->widest, channels, begin);

    return begin + i % 16 / 4 * (group / 4) + i / 16 * 4 + i % 4;
}

/* [group][column][4 vectors][lanes][row or nothing] */
void byte_quads_pack(const struct byte_quads_ops *ops, int64_t channels, enum dtype dtype,
                     const uint8_t *w, void *packed)
{
    int8_t *quads = packed;
    int32_t *sums = (int32_t *)(uintptr_t)byte_quads_sums(channels, packed);

    memset(packed, 0, byte_quads_bytes(channels));
    for (int64_t c = 0; c < channels; c++) {
        const int64_t begin = group_begin(ops, channels, c);
        const int64_t group = byte_quads_group(ops->widest, channels, begin);
        const int64_t at = byte_quads_place(ops, channels, c);

        for (int64_t t = 0; t < BYTE_QUADS_TAPS; t++) {
            const int8_t difference =
                (int8_t)(w[c * BYTE_QUADS_TAPS + t] ^ (dtype == DTYPE_UINT8 ? 0x80 : 0));

            quads[begin * 12 + t % 3 * group * 4 + (at - begin) * 4 + t / 3] = difference;
            sums[at] += difference;
        }
    }
}
