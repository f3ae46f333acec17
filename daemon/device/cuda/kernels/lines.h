/* Kernels over lines: all elements behind one result (reductions), or those that are normalised
 * together (softmax, layer normalisation, running sums).
 *
 * A tensor's axes fall into kept ones, which count the lines, and reduced ones, which count the
 * elements of a line.  A power of two of threads works on a line; how many depends on the line's
 * geometry alone, so that a line's result has the same bits among any others.
 */
#ifndef DEVICE_CUDA_KERNELS_LINES_H
#define DEVICE_CUDA_KERNELS_LINES_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"

struct lines {
    struct walk kept;    /* count: lines */
    struct walk reduced; /* count: elements a line; may be 0 */
    struct walk_strides in_kept, in_reduced;
    struct walk_strides out_kept, out_reduced;
    uint32_t workers; /* threads a line: a power of two, 1 … 256 */
    uint32_t columns; /* 1: neighbouring threads take neighbouring lines, else elements */
    uint32_t type;    /* enum pointwise_type: what is computed in */
    uint32_t in_dtype, out_dtype;
    const void *in;
    void *out;
};

enum reduce_way {
    REDUCE_SUM,
    REDUCE_MEAN,
    REDUCE_L1,
    REDUCE_L2,
    REDUCE_SUM_SQUARE,
    REDUCE_LOG_SUM,
    REDUCE_LOG_SUM_EXP,
    REDUCE_MAX,
    REDUCE_MIN,
    REDUCE_PROD,
    REDUCE_MAX_OF_NUMBERS, /* a NaN is passed over */
    REDUCE_LP              /* (sum |x|^p)^(1/p) */
};

struct reduce {
    struct lines lines;
    uint32_t way;
    uint32_t p;          /* REDUCE_LP */
    int64_t least, most; /* of an integer type: what the maximum and minimum of nothing are */
};

struct arg_reduce {
    struct lines lines; /* out: int64_t */
    uint32_t largest;
    uint32_t last; /* of equal ones */
};

enum line_way { LINE_SOFTMAX, LINE_LOG_SOFTMAX, LINE_HARDMAX, LINE_LP };

struct line_map {
    struct lines lines;
    uint32_t way; /* enum line_way */
    uint32_t p;   /* LINE_LP: 1 or 2 */
};

/* (x - mean) / deviation * scale + bias of each line. */
struct normalize {
    struct lines lines;
    double epsilon;
    uint32_t no_mean;         /* RMS */
    uint32_t epsilon_outside; /* deviation is sqrt(variance) + epsilon, not sqrt(variance + …) */
    const void *scale, *bias; /* NULL: 1, 0 */
    uint32_t scale_dtype, bias_dtype;
    struct walk_strides scale_kept, scale_reduced, bias_kept, bias_reduced;
    void *mean, *deviation; /* one a line: the mean and 1 / deviation; NULL: not wanted */
    uint32_t facts_dtype;
};

struct running_sum {
    struct lines lines;
    uint32_t exclusive, reverse;
};

#ifdef __cplusplus
extern "C" {
#endif
/* Nothing happens where there are no lines. */
cudaError_t cuda_reduce(const struct reduce *reduce, cudaStream_t stream);
cudaError_t cuda_arg_reduce(const struct arg_reduce *reduce, cudaStream_t stream);
cudaError_t cuda_line_map(const struct line_map *map, cudaStream_t stream);
cudaError_t cuda_normalize(const struct normalize *normalize, cudaStream_t stream);
cudaError_t cuda_running_sum(const struct running_sum *sum, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
