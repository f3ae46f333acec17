/* Attributes of the operators that move elements without changing them, and the arithmetic of
 * indices that their rules and every device's kernels share. */
#ifndef OPS_MOVEMENT_H
#define OPS_MOVEMENT_H

#include "ops/op.h"

/* One of them is given; the reader turns most Constant nodes into constants before anyone asks. */
struct constant_attrs {
    struct tensor value;
    float value_float;
    struct floats value_floats;
    int64_t value_int;
    struct ints value_ints;
    const char *value_string;
    struct strings value_strings;
};

struct constant_of_shape_attrs {
    struct tensor value; /* one element; DTYPE_NONE: a float zero */
};

struct shape_attrs {
    int64_t start;
    int64_t end; /* INT64_MAX: to the last */
};

struct reshape_attrs {
    int64_t allowzero; /* 1: a zero in the shape is a zero, not "as in the input" */
};

struct flatten_attrs {
    int64_t axis;
};

struct transpose_attrs {
    struct ints perm; /* NULL: axes in reverse */
};

struct concat_attrs {
    int64_t axis;
};

struct split_attrs {
    int64_t axis;
    int64_t num_outputs; /* 0: not given */
};

struct gather_attrs {
    int64_t axis;
};

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };

struct pad_attrs {
    int mode; /* enum pad_mode */
};

struct eye_like_attrs {
    int64_t dtype; /* 0: that of the input */
    int64_t k;
};

struct trilu_attrs {
    int64_t upper;
};

struct space_depth_attrs {
    int64_t blocksize;
    int mode; /* enum depth_mode; space_to_depth has none */
};
enum depth_mode { DEPTH_DCR, DEPTH_CRD };

/* The axes of Transpose in full: out_axes[i] is the input's axis that becomes axis i. */
MUST_CHECK enum status transpose_axes(const struct transpose_attrs *attrs, const struct shape *in,
                                      size_t out_axes[SHAPE_MAX_RANK], struct error *err);

/* Element start + i * step of each axis is element i of the slice. */
struct slice_range {
    int64_t start;
    int64_t step;
    int64_t count;
};
/* in: data, starts, ends, axes (may be NULL), steps (may be NULL); all but data with known
 * elements. */
MUST_CHECK enum status slice_ranges(const struct tensor *const in[5],
                                    struct slice_range out_ranges[SHAPE_MAX_RANK],
                                    struct error *err);

/* Elements put before and behind each axis; negative: taken away.
 * in: data, pads, value (unused, may be NULL), axes (may be NULL). */
MUST_CHECK enum status pad_amounts(const struct tensor *const in[4],
                                   int64_t out_before[SHAPE_MAX_RANK],
                                   int64_t out_after[SHAPE_MAX_RANK], struct error *err);

/* Lengths of the `outputs` parts of Split along an axis of `length`; `sizes` may be NULL. */
MUST_CHECK enum status split_lengths(const struct split_attrs *attrs, int64_t length,
                                     const struct tensor *sizes, size_t outputs,
                                     int64_t *out_lengths, struct error *err);

#endif
