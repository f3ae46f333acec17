/* Attributes of the operators that pick, place and order elements by index, of Resize and its kin,
 * and the arithmetic that their rules share with kernels. */
#ifndef OPS_INDEXING_H
#define OPS_INDEXING_H

#include "ops/op.h"

struct axis_attrs {
    int64_t axis;
}; /* gather_elements, one_hot */

struct gather_nd_attrs {
    int64_t batch_dims;
};

enum scatter_reduction { SCATTER_NONE, SCATTER_ADD, SCATTER_MUL, SCATTER_MAX, SCATTER_MIN };

struct scatter_attrs {
    int64_t axis;  /* scatter_elements only */
    int reduction; /* enum scatter_reduction */
};

struct topk_attrs {
    int64_t axis;
    int64_t largest;
    int64_t sorted;
};

struct compress_attrs {
    int64_t axis; /* INT64_MIN: not given, the input counts as flat */
};

struct unique_attrs {
    int64_t axis; /* INT64_MIN: not given */
    int64_t sorted;
};

struct nms_attrs {
    int64_t center_point_box;
};

struct reverse_sequence_attrs {
    int64_t batch_axis;
    int64_t time_axis;
};

enum roi_align_coordinates { ROI_HALF_PIXEL, ROI_OUTPUT_HALF_PIXEL };
enum roi_align_mode { ROI_AVG, ROI_MAX };

struct roi_align_attrs {
    int coordinate_transformation_mode; /* enum roi_align_coordinates */
    int mode;                           /* enum roi_align_mode */
    int64_t output_height;
    int64_t output_width;
    int64_t sampling_ratio; /* 0: adaptive */
    float spatial_scale;
};

enum grid_mode { GRID_LINEAR, GRID_NEAREST, GRID_CUBIC, GRID_MODES };
enum grid_padding { GRID_ZEROS, GRID_BORDER, GRID_REFLECTION };

struct grid_sample_attrs {
    int mode; /* modulo GRID_MODES: enum grid_mode; each has an old and a new name */
    int padding_mode;
    int64_t align_corners;
};

struct einsum_attrs {
    const char *equation;
};

/* An equation with its ellipsis spelled out: labels are small numbers, each with its length. */
enum { EINSUM_MAX_LABELS = 24, EINSUM_MAX_INPUTS = 8 };
struct einsum_plan {
    size_t labels;
    int64_t lengths[EINSUM_MAX_LABELS];
    size_t in_ranks[EINSUM_MAX_INPUTS];
    unsigned char in[EINSUM_MAX_INPUTS][SHAPE_MAX_RANK]; /* label of each axis */
    size_t out_rank;
    unsigned char out[SHAPE_MAX_RANK];
};
MUST_CHECK enum status einsum_parse(const struct einsum_attrs *attrs, size_t inputs,
                                    const struct shape *const *in, struct einsum_plan *out_plan,
                                    struct error *err);

struct center_crop_pad_attrs {
    struct ints axes;
};

struct col2im_attrs {
    struct ints dilations;
    struct ints pads;
    struct ints strides;
};

struct max_unpool_attrs {
    struct ints kernel_shape;
    struct ints pads;
    struct ints strides;
};

enum resize_mode { RESIZE_NEAREST, RESIZE_LINEAR, RESIZE_CUBIC };
enum resize_coordinates {
    RESIZE_HALF_PIXEL,
    RESIZE_HALF_PIXEL_SYMMETRIC,
    RESIZE_PYTORCH_HALF_PIXEL,
    RESIZE_ALIGN_CORNERS,
    RESIZE_ASYMMETRIC,
    RESIZE_TF_CROP_AND_RESIZE,
};
enum resize_nearest {
    RESIZE_ROUND_PREFER_FLOOR,
    RESIZE_ROUND_PREFER_CEIL,
    RESIZE_FLOOR,
    RESIZE_CEIL,
};
enum resize_aspect { RESIZE_STRETCH, RESIZE_NOT_LARGER, RESIZE_NOT_SMALLER };

struct resize_attrs {
    int64_t antialias;
    struct ints axes;
    int coordinate_transformation_mode; /* enum resize_coordinates */
    float cubic_coeff_a;
    int64_t exclude_outside;
    float extrapolation_value;
    int keep_aspect_ratio_policy; /* enum resize_aspect */
    int mode;                     /* enum resize_mode */
    int nearest_mode;             /* enum resize_nearest */
};

/* How one axis is resized.  Numbers are floats, as in every runtime that models were tried on. */
struct resize_axis {
    int64_t in;
    int64_t out;
    float scale;
    float roi_start; /* 0 and 1 but with tf_crop_and_resize */
    float roi_end;
};
/* in: X, roi, scales, sizes; NULL: left out. */
MUST_CHECK enum status resize_axes(const struct resize_attrs *attrs,
                                   const struct tensor *const in[4],
                                   struct resize_axis out_axes[SHAPE_MAX_RANK], struct error *err);
/* The place in the input, in elements, that element `x` of the output stands for. */
float resize_source(const struct resize_axis *axis, enum resize_coordinates coordinates, int64_t x);

/* Places kept of the axes of CenterCropPad: in [in_start, in_start + kept) goes to out_start. */
struct center_range {
    int64_t in_start;
    int64_t out_start;
    int64_t kept;
    int64_t out;
};
MUST_CHECK enum status center_ranges(const struct center_crop_pad_attrs *attrs,
                                     const struct shape *in, const struct tensor *sizes,
                                     struct center_range out_ranges[SHAPE_MAX_RANK],
                                     struct error *err);

#endif
