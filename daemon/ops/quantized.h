/* Products of quantised numbers: MatMulInteger, ConvInteger, QLinearMatMul, QLinearConv,
 * MatMulIntegerToFloat. */
#ifndef OPS_QUANTIZED_H
#define OPS_QUANTIZED_H

#include "ops/conv.h"
#include "ops/matmul.h"

/* Inputs; scales are of a float type, zero points have the type of what they belong to. */
enum { MATMUL_INTEGER_A, MATMUL_INTEGER_B, MATMUL_INTEGER_A_ZERO, MATMUL_INTEGER_B_ZERO };
enum { CONV_INTEGER_X, CONV_INTEGER_W, CONV_INTEGER_X_ZERO, CONV_INTEGER_W_ZERO };
enum {
    QLINEAR_A,
    QLINEAR_A_SCALE,
    QLINEAR_A_ZERO,
    QLINEAR_B, /* the weights of a convolution */
    QLINEAR_B_SCALE,
    QLINEAR_B_ZERO,
    QLINEAR_Y_SCALE,
    QLINEAR_Y_ZERO,
    QLINEAR_BIAS /* int32 or none; of a product with has_bias only */
};
enum {
    MATMUL_FLOAT_A,
    MATMUL_FLOAT_B,
    MATMUL_FLOAT_A_SCALE,
    MATMUL_FLOAT_B_SCALE,
    MATMUL_FLOAT_A_ZERO,
    MATMUL_FLOAT_B_ZERO,
    MATMUL_FLOAT_BIAS
};

/* QLinearAdd and QLinearMul, of com.microsoft; zero points may be left out. */
enum {
    QLINEAR_PAIR_A,
    QLINEAR_PAIR_A_SCALE,
    QLINEAR_PAIR_A_ZERO,
    QLINEAR_PAIR_B,
    QLINEAR_PAIR_B_SCALE,
    QLINEAR_PAIR_B_ZERO,
    QLINEAR_PAIR_Y_SCALE,
    QLINEAR_PAIR_Y_ZERO
};
struct qlinear_pair_attrs {
    struct epilogue epilogue; /* set by passes: what quantized_matmul_attrs allows */
};
/* QLinearGlobalAveragePool, of com.microsoft. */
enum {
    QLINEAR_POOL_X,
    QLINEAR_POOL_X_SCALE,
    QLINEAR_POOL_X_ZERO,
    QLINEAR_POOL_Y_SCALE,
    QLINEAR_POOL_Y_ZERO
};
struct qlinear_pool_attrs {
    int64_t channels_last;
};
/* ByteTable: y[i] = table[the bits of x[i]]; made by passes only. */
enum { BYTE_TABLE_X, BYTE_TABLE_TABLE };

/* Of all products of matrices; set by passes.  Convolutions have conv_attrs, whose epilogue may be
 * an activation that only cuts off (ReLU, Clip): applied to the real number before it is rounded.
 */
struct quantized_matmul_attrs {
    bool trans_b;
    bool has_bias; /* QLinearMatMul: in[QLINEAR_BIAS] */
    struct epilogue epilogue;
};

/* Input `index` is of int8 or uint8; else STATUS_INVALID, and its type in *err. */
enum status quantized_check_bytes(const struct op_call *call, size_t index, struct error *err);

#endif
