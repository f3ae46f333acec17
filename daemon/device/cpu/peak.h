/* What a lane could do at best: between peak.c and the loops, one set an instruction set. */
#ifndef DEVICE_CPU_PEAK_H
#define DEVICE_CPU_PEAK_H

#include <stddef.h>

#include "device/device.h"

struct peak_ops {
    /* Results only so that nothing is left out. */
    float (*multiply)(size_t rounds);
    float (*read_all)(const float *from, size_t count);
    size_t round_flops;
};
extern const struct peak_ops peak_ops_base, peak_ops_avx2, peak_ops_avx512;

/* A device_ops.measure_peaks. */
void peak_measure(struct device_lane *lane, const void *room, size_t bytes,
                  struct device_peaks *out_peaks);

#endif
