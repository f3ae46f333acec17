#include "device/cpu/product/soften.h"

extern const struct soften_ops soften_ops_base, soften_ops_avx2, soften_ops_avx512;

const struct soften_ops *soften_ops_for(enum cpu_isa isa)
{
    static const struct soften_ops *const table[CPU_ISA_COUNT] = {
        &soften_ops_base, &soften_ops_avx2, &soften_ops_avx512};

    return table[isa];
}
