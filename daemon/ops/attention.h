/* Attention as one step: softmax(scale Q K^T, masked) V, for each leading index (sequence and
 * head). Made by a pass (graph/pass_fuse_attention.c), for devices that have a kernel for it: in
 * float32 with masks that are added all of them, else what the device says it takes
 * (device_ops.takes_attention).
 */
#ifndef OPS_ATTENTION_H
#define OPS_ATTENTION_H

#include "ops/op.h"

/* Masks are broadcast to [lead…, queries, keys] and have all keys.  They act one after the other: a
 * mask of numbers is added to the scores, of the others' type or float32 (one of -3e38 has no place
 * in float16); a boolean one says which scores stay, the others become `fill`. */
enum { ATTENTION_Q, ATTENTION_K, ATTENTION_V, ATTENTION_MASK, ATTENTION_MASK_2, ATTENTION_INPUTS };

/* Where the axes of a matrix [lead…, row, column] are found: its axis i is axis[i] of the operand.
 * So a transposition before or behind costs nothing. */
struct attention_axes {
    uint8_t axis[SHAPE_MAX_RANK];
};

struct attention_mask {
    bool hides; /* a boolean mask: true is `fill`; else false is */
    float fill;
};

struct attention_attrs {
    float scale;
    /* A query whose softmax is not a number, as when masks of -inf leave it no key, takes zeros for
     * it: softmax is followed by Where(IsNaN(p), 0, p).  Only where device.guards_attention. */
    bool zeroes_nan;
    struct attention_mask mask[2]; /* of boolean masks */
    /* Behind the masks: query i sees the keys 0 to i + offset; scores of all others are `fill`. */
    bool is_causal;
    int64_t causal_offset;
    float causal_fill;
    /* Seen so, Q is [lead…, queries, depth], K [lead…, keys, depth], V [lead…, keys, width] and the
     * result [lead…, queries, width], its last axis last.  All have the same rank; leading
     * dimensions are broadcast. */
    struct attention_axes q, k, v, out;
};

struct attention_geometry {
    size_t rank;       /* of Q, K, V and the result */
    struct shape lead; /* rank - 2 dimensions */
    int64_t heads;     /* their product */
    int64_t queries, keys, depth, width;
};
/* Checks shapes and axes of Q, K, V and the masks (mask[i] NULL: none). */
MUST_CHECK enum status attention_resolve(const struct attention_attrs *attrs, const struct shape *q,
                                         const struct shape *k, const struct shape *v,
                                         const struct shape *const mask[2],
                                         struct attention_geometry *out_geometry,
                                         struct error *err);
/* An operand as [lead…, row, column]: elements from one index to the next; 0 where it is broadcast.
 */
struct attention_view {
    int64_t lead[SHAPE_MAX_RANK];
    int64_t row, column;
};
/* Of a dense operand of this shape, and of a mask for scores of `rank` dimensions. */
struct attention_view attention_view(const struct shape *shape, const struct attention_axes *axes);
struct attention_view attention_mask_view(const struct shape *mask, size_t rank);
/* A shape as its axes see it, and back. */
struct shape attention_seen(const struct shape *shape, const struct attention_axes *axes);
struct shape attention_output_shape(const struct attention_attrs *attrs,
                                    const struct attention_geometry *geometry);

#endif
