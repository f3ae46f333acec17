/* NonMaxSuppression: of each class of each image the boxes that no better box overlaps too much. */
#ifndef DEVICE_CUDA_KERNELS_NMS_H
#define DEVICE_CUDA_KERNELS_NMS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

/* Each block at work has room for the candidates of one class of one image. */
enum { NMS_BLOCKS = 1024, NMS_THREADS = 256 };

struct nms {
    int64_t images, classes, boxes;
    int64_t room;    /* boxes of a class that there is room for */
    int64_t slots;   /* candidates of a block: the boxes, rounded up to NMS_THREADS */
    uint32_t blocks; /* at a time, at most NMS_BLOCKS */
    uint32_t centered;
    const float *box_data;   /* [images, boxes, 4] */
    const float *score_data; /* [images, classes, boxes] */
    const int64_t *most;     /* kept of a class; NULL: none */
    const float *overlap;    /* NULL: 0 */
    const float *least;      /* scores are above it; NULL: whatever they are */
    uint64_t *candidates;    /* scratch: `slots` for each of `blocks` */
    int64_t *counts;         /* scratch: images * classes + 1 */
    int32_t *kept;           /* scratch: images * classes * room */
    int64_t *out;            /* [found, 3]: image, class, box */
    int64_t *found;          /* out; page-locked */
};

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t cuda_nms(const struct nms *nms, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
