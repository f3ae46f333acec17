/* Conv and its kin, as kernels and passes see them.
 *
 * Inputs of conv and conv_transpose: X [N,C,spatial…], W, bias [M] or none, residual or none.  A
 * residual is always input CONV_RESIDUAL and only there when epilogue.has_residual says so.  A conv
 * with a prelude reads X as max(prelude_low, batch normalization of X), padded with zeros only
 * then; its inputs from CONV_PRELUDE on are BatchNormalization's constant scale, B, mean and var
 * [C]. */
#ifndef OPS_CONV_H
#define OPS_CONV_H

#include "ops/epilogue.h"
#include "ops/window.h"

enum { CONV_X, CONV_W, CONV_BIAS, CONV_RESIDUAL, CONV_PRELUDE };
enum { CONV_PRELUDE_INPUTS = 4 };

struct conv_attrs {
    struct window_attrs window;
    int64_t group;
    struct epilogue epilogue; /* set by passes */
    bool has_prelude;         /* … by the pass fuse_prelude, where the device wants it */
    float prelude_epsilon;
    float prelude_low; /* 0: ReLU; minus infinity: none */
    /* Set by the pass fold_shuffle, where the device wants it; 0: none.  Groups of shuffles
     * (ops/mix_channels.h): what is read as channel c of X is channel shuffled_channel(c) of it,
     * and the filter and bias of result channel c are number shuffled_channel(c). */
    int64_t x_shuffle;
    int64_t filter_shuffle; /* only with one group, or one filter a group */
};

struct conv_transpose_attrs {
    struct window_attrs window;
    int64_t group;
    struct ints output_padding;
    struct ints output_shape;
    struct epilogue epilogue; /* set by passes */
};

/* Numbers of one call; shapes as infer accepted them. */
struct conv_geometry {
    int64_t batch, in_channels, out_channels, groups;
    struct window window;
};
MUST_CHECK enum status conv_resolve(const struct conv_attrs *attrs, const struct shape *x,
                                    const struct shape *w, struct conv_geometry *out_geometry,
                                    struct error *err);
MUST_CHECK enum status conv_transpose_resolve(const struct conv_transpose_attrs *attrs,
                                              const struct shape *x, const struct shape *w,
                                              struct conv_geometry *out_geometry,
                                              struct error *err);
/* Of filters of shape `w`, one for each of `elements` (of the output; transposed: of the input). */
uint64_t conv_flops(const struct shape *w, const struct shape *elements);
/* Only kernels that know of preludes may take such a step; `op` may be conv's kin. */
static inline bool conv_has_prelude(const struct op_def *op, const void *attrs)
{
    return op == &op_conv && ((const struct conv_attrs *)attrs)->has_prelude;
}
/* … of those and of shuffles. */
static inline bool conv_has_more(const struct op_def *op, const void *attrs)
{
    return op == &op_conv && (((const struct conv_attrs *)attrs)->has_prelude ||
                              ((const struct conv_attrs *)attrs)->x_shuffle != 0 ||
                              ((const struct conv_attrs *)attrs)->filter_shuffle != 0);
}
/* [N, M, out…] */
struct shape conv_output_shape(const struct conv_geometry *geometry);

/* Checks input `index` of a fused step: there exactly when `has_residual`, of out's type and shape.
 */
MUST_CHECK enum status epilogue_check(const struct op_call *call, bool has_residual, size_t index,
                                      struct error *err);

#endif
