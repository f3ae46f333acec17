/* Making products out of the operators' geometry; types, epilogue and addresses are the caller's.
 */
#ifndef DEVICE_CUDA_KERNELS_PRODUCT_PLAN_H
#define DEVICE_CUDA_KERNELS_PRODUCT_PLAN_H

#include "device/cuda/kernels/axes.h"
#include "device/cuda/kernels/product.h"
#include "device/kernel.h"
#include "ops/conv.h"
#include "ops/matmul.h"

/* The batch from its axes: operands out, a, b, bias. */
void product_batch(struct product *product, struct axes *axes);
void product_matrices(struct product *product, const struct matmul_geometry *geometry,
                      const struct shape *a, const struct shape *b, bool trans_a, bool trans_b);
/* Input, weights (computed ones have layouts as well) and output.  bias_batch counts output
 * channels. */
struct conv_operands {
    const struct operand *x, *w, *y;
};
void product_conv(struct product *product, const struct conv_operands *operands,
                  const struct conv_geometry *geometry, bool transposed);

#endif
