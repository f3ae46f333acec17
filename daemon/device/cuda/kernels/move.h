/* Copies between two strided places: what Transpose, Concat, Split, Slice, Expand, Tile and changes
 * of layout are.  Elements go as units of 1 to 16 bytes, whatever their type. */
#ifndef DEVICE_CUDA_KERNELS_MOVE_H
#define DEVICE_CUDA_KERNELS_MOVE_H

#include <cuda_runtime_api.h>

#include "device/cuda/kernels/walk.h"

struct move {
    /* Plain: over all units.  Tiled: over the planes, of rows x columns units each, that are
     * turned through shared memory because the source has its neighbours along the rows. */
    struct walk walk;
    struct walk_strides to, from; /* units */
    void *to_data;
    const void *from_data;
    uint32_t bytes; /* a unit: 1, 2, 4, 8 or 16 */
    uint32_t tiled;
    int64_t rows, columns;
    int64_t row_to;      /* from row to row; columns of the destination are neighbours */
    int64_t column_from; /* from column to column; rows of the source are neighbours */
};

enum pad_how { PAD_BY_VALUE, PAD_BY_REFLECTION, PAD_BY_EDGE, PAD_BY_WRAPPING };

/* Each element of the output from its place in the input, or the value where there is none. */
struct pad {
    struct walk walk; /* over the output, axes not merged */
    struct walk_strides to, from;
    int64_t before[WALK_RANK]; /* elements put before the kept part of an axis, ≥ 0 */
    int64_t kept[WALK_RANK];
    uint32_t how;   /* enum pad_how */
    uint32_t bytes; /* 1, 2, 4 or 8 */
    void *to_data;
    const void *from_data; /* where the kept part begins */
    const void *value;     /* one element on the device; NULL: zero */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Nothing happens where there is nothing to move. */
cudaError_t cuda_move(const struct move *move, cudaStream_t stream);
cudaError_t cuda_pad(const struct pad *pad, cudaStream_t stream);
/* Loads the code of one of these kernels, as the first launch would: where there is none for the
 * current device, or PTX that its driver cannot compile, the error of every launch to come. */
cudaError_t cuda_load_code(void);
#ifdef __cplusplus
}
#endif

#endif
