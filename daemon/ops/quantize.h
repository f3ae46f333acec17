/* Attributes of the operators between real and quantised numbers. */
#ifndef OPS_QUANTIZE_H
#define OPS_QUANTIZE_H

#include "ops/op.h"

struct quantize_attrs { /* QuantizeLinear, DequantizeLinear */
    int64_t axis;
    int64_t saturate;     /* only means something for 8-bit floats */
    int64_t block_size;   /* elements of the axis that share a scale; 0: all (per tensor or axis) */
    int64_t output_dtype; /* enum dtype; 0: the zero point's, or the scale's */
    int64_t precision;    /* enum dtype of the division; 0: the scale's */
};

/* How scale and zero point go with the elements of a tensor [outer, count, inner]. */
enum quantize_by { QUANTIZE_TENSOR, QUANTIZE_AXIS, QUANTIZE_BLOCK };
struct quantize_geometry {
    enum quantize_by by;
    int64_t outer, count, inner; /* around the axis; per tensor: all in `inner` */
    int64_t block;               /* elements of the axis with one scale */
};
enum status quantize_geometry(const struct quantize_attrs *attrs, const struct shape *x,
                              const struct shape *scale, struct quantize_geometry *out_geometry,
                              struct error *err);

#endif
