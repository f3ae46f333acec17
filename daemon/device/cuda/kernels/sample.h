/* GridSample and RoiAlign: values read between the elements.  Floats, row-major. */
#ifndef DEVICE_CUDA_KERNELS_SAMPLE_H
#define DEVICE_CUDA_KERNELS_SAMPLE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

enum { SAMPLE_AXES = 3 };

enum sample_by { SAMPLE_BY_LINES, SAMPLE_NEAREST, SAMPLE_BY_CUBES };
enum sample_padding { SAMPLE_ZEROS, SAMPLE_BORDER, SAMPLE_REFLECTION };

struct grid_sample {
    int64_t batch, channels, points; /* points: of the output, a channel */
    int64_t places;                  /* input elements a channel */
    int32_t axes;                    /* 1 to SAMPLE_AXES */
    int32_t lengths[SAMPLE_AXES];    /* of the input */
    uint32_t by;                     /* enum sample_by */
    uint32_t padding;                /* enum sample_padding */
    uint32_t align_corners;
    const float *in;
    const float *grid; /* [batch, points, axes], the last axis first */
    float *out;
};

struct roi_align {
    int64_t rois, images, channels, height, width;
    int64_t out_height, out_width;
    int64_t samples;        /* a side of a bin; 0: as many as the bin is long */
    uint32_t half_pixel;    /* regions begin half a pixel earlier */
    uint32_t at_least_one;  /* regions are one pixel long at least */
    uint32_t takes_largest; /* instead of the mean */
    float scale;
    const float *in;
    const float *regions; /* [rois, 4] */
    const int64_t *image; /* of each region */
    float *out;
    uint32_t *fault;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_grid_sample(const struct grid_sample *sample, cudaStream_t stream);
cudaError_t cuda_roi_align(const struct roi_align *align, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
