/* Elements picked and placed by index, and those that are made out of nothing but a few numbers.
 *
 * Indices are INT32 or INT64 and count from the end when negative.  One that is out of range raises
 * the lane's fault word: the batch fails with STATUS_INVALID when it ends. */
#ifndef DEVICE_CUDA_KERNELS_INDEXED_H
#define DEVICE_CUDA_KERNELS_INDEXED_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "device/cuda/kernels/walk.h"

/* Gather: to[o][p][s] = from[o][index[p]][s]. */
struct gather {
    int64_t outer, picks, length; /* length: of the gathered axis */
    int64_t slice;                /* units behind the axis */
    uint32_t bytes;               /* a unit: 1, 2, 4, 8 or 16 */
    uint32_t index_dtype;
    void *to;
    const void *from;
    const void *indices;
    uint32_t *fault;
};

/* GatherElements: each element of the output has an index of its own along one axis. */
struct gather_elements {
    struct walk walk;         /* over the output and the indices, row-major */
    struct walk_strides from; /* of the input; 0 in the axis */
    int64_t length, stride;   /* of the axis in the input */
    uint32_t bytes;
    uint32_t index_dtype;
    void *to;
    const void *from_data;
    const void *indices;
    uint32_t *fault;
};

enum { INDEX_DEPTH = 8 };

/* Index tuples of `depth` numbers, as GatherND and ScatterND have them: where a slice begins. */
struct index_tuples {
    uint32_t depth;
    uint32_t from_start_only; /* 1: a negative index is out of range */
    int64_t lengths[INDEX_DEPTH];
    int64_t strides[INDEX_DEPTH]; /* units */
    const int64_t *indices;
};

struct gather_nd {
    struct index_tuples tuples;
    int64_t batches, picks; /* picks: of one batch */
    int64_t batch_stride;   /* units of the input */
    int64_t slice;
    uint32_t bytes;
    void *to;
    const void *from;
    uint32_t *fault;
};

enum scatter_how {
    SCATTER_BY_LAST, /* of several updates of one place the last one stays */
    SCATTER_BY_ADD,
    SCATTER_BY_MUL,
    SCATTER_BY_MAX,
    SCATTER_BY_MIN
};

/* Updates of a tensor in place, in their order.  Update u of line l goes to the slice at
 *
 *     line_to(l) + target(u)        and comes from        line_from(l) + u * update_step
 *
 * Updates of different lines never meet; those of one line are made one after the other by one
 * thread, or, where the last one stays, all at once after the last one of each place is found. */
struct scatter {
    struct walk lines;
    struct walk_strides line_to, line_from, line_index; /* elements; line_index: of the indices */
    int64_t updates;                                    /* a line */
    int64_t update_step, index_step;
    struct index_tuples tuples; /* elements; depth 1 and its index in index_dtype for elements */
    uint32_t index_dtype;
    uint32_t how;   /* enum scatter_how */
    uint32_t type;  /* enum pointwise_type */
    uint32_t dtype; /* of data and updates */
    uint32_t bytes; /* an element */
    void *to;
    const void *from;
    const void *indices;
    int32_t
        *last; /* scratch: one an element of `to`, of the last update that it gets; NULL: none */
    int64_t count; /* elements of `to` */
    uint32_t *fault;
};

struct one_hot {
    int64_t outer, depth, inner;
    uint32_t index_dtype;
    uint32_t bytes;
    void *to;
    const void *indices;
    const void *values; /* off, on */
};

struct reverse_sequence {
    int64_t times, batches;
    int64_t slice; /* units */
    uint32_t time_first;
    uint32_t bytes;
    void *to;
    const void *from;
    const int64_t *lengths; /* one a batch */
    uint32_t *fault;
};

/* Range: start + i * step. */
struct sequence {
    int64_t count;
    uint32_t dtype;
    void *to;
    const void *start, *step; /* one element each, on the device */
};

/* EyeLike and Trilu: what of a matrix stays. */
struct triangle {
    int64_t count; /* elements of all matrices */
    int64_t rows, columns;
    int64_t k;             /* the diagonal, where k_data is NULL */
    const int64_t *k_data; /* on the device */
    uint32_t how;          /* enum triangle_how */
    uint32_t bytes;
    uint32_t dtype; /* TRIANGLE_EYE */
    void *to;
    const void *from;
};
enum triangle_how { TRIANGLE_UPPER, TRIANGLE_LOWER, TRIANGLE_EYE };

/* Rows of a matrix by number: out[i][j] = act(scale * b[id[i]][j] + bias[j]); an id that is no row
 * counts as a row of zeros. */
struct embedding {
    int64_t count, rows, columns;
    int64_t row_step, column_step; /* of b */
    uint32_t index_dtype;
    uint32_t wraps; /* negative ids count from the end */
    uint32_t dtype;
    double scale;
    uint32_t act;
    float act_a, act_b;
    void *to;
    const void *ids, *b;
    const void *bias; /* NULL: none */
};

#ifdef __cplusplus
extern "C" {
#endif
/* Nothing happens where there is nothing to write. */
cudaError_t cuda_gather(const struct gather *gather, cudaStream_t stream);
cudaError_t cuda_gather_elements(const struct gather_elements *gather, cudaStream_t stream);
cudaError_t cuda_gather_nd(const struct gather_nd *gather, cudaStream_t stream);
cudaError_t cuda_scatter(const struct scatter *scatter, cudaStream_t stream);
cudaError_t cuda_one_hot(const struct one_hot *one_hot, cudaStream_t stream);
cudaError_t cuda_reverse_sequence(const struct reverse_sequence *reverse, cudaStream_t stream);
cudaError_t cuda_sequence(const struct sequence *sequence, cudaStream_t stream);
cudaError_t cuda_triangle(const struct triangle *triangle, cudaStream_t stream);
cudaError_t cuda_embedding(const struct embedding *embedding, cudaStream_t stream);
#ifdef __cplusplus
}
#endif

#endif
