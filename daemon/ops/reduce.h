/* Attributes of reductions, and which dimensions they reduce. */
#ifndef OPS_REDUCE_H
#define OPS_REDUCE_H

#include "ops/op.h"

struct reduce_attrs {
    int64_t keepdims;
    int64_t noop_with_empty_axes;
};

struct arg_attrs { /* ArgMax, ArgMin */
    int64_t axis;
    int64_t keepdims;
    int64_t select_last_index;
};

struct cumsum_attrs {
    int64_t exclusive;
    int64_t reverse;
};

/* Marks the reduced dimensions of a tensor of `rank`.  `axes` is the operator's second input, its
 * value known, or NULL.  STATUS_INVALID: an axis outside the rank, or twice. */
enum status reduce_axes(const struct reduce_attrs *attrs, const struct tensor *axes, size_t rank,
                        bool out_reduced[SHAPE_MAX_RANK], struct error *err);

#endif
