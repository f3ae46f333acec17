/* Pools over windows, and local response normalisation. */
#ifndef DEVICE_CUDA_KERNELS_POOL_H
#define DEVICE_CUDA_KERNELS_POOL_H

#include <cuda_runtime_api.h>

#include "device/cuda/kernels/window.h"

enum pool_way { POOL_OF_MAX, POOL_OF_AVERAGE, POOL_OF_LP };

struct pool {
    struct window_walk window;
    int32_t pad_end[WINDOW_AXES];
    int64_t images, channels, places, taps;
    uint32_t channels_last; /* how the output is walked: channels are neighbours, or places */
    int64_t in_image, out_image, out_channel, out_place; /* elements */
    uint32_t way;                                        /* enum pool_way */
    uint32_t count_padding;                              /* average */
    uint32_t p;                                          /* Lp */
    uint32_t column_major;                               /* of the indices */
    uint32_t type;                                       /* enum pointwise_type */
    uint32_t dtype;
    int64_t least; /* of an integer type: the maximum of nothing */
    const void *in;
    void *out;
    int64_t *indices; /* of the maximum, row-major [N, C, spatial…]; NULL: not wanted */
};

/* x / (bias + alpha / size * sum of squares over the channels around)^beta */
struct response {
    int64_t images, channels, places;
    uint32_t channels_last;
    int64_t size;
    double alpha, beta, bias; /* alpha: divided by size already */
    uint32_t type;
    uint32_t dtype;
    const void *in;
    void *out;
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_pool(const struct pool *pool, cudaStream_t stream);
cudaError_t cuda_response(const struct response *response, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
