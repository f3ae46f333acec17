/* Element types: one enum for ONNX, the protocol and the kernels; rows in dtype.def. */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_NONE = 0,
#define DTYPE(name, number, bytes, onnx, oip, triton) DTYPE_##name = number,
#include "tensor/dtype.def"
#undef DTYPE
    DTYPE_COUNT = 17
};

/* Sets of types, for op_def.dtypes: DTYPE_BIT(FLOAT) | … */
#define DTYPE_BIT(name) (UINT32_C(1) << DTYPE_##name)
#define DTYPE_FLOATS                                                                               \
    (DTYPE_BIT(FLOAT) | DTYPE_BIT(DOUBLE) | DTYPE_BIT(FLOAT16) | DTYPE_BIT(BFLOAT16))
#define DTYPE_SIGNED (DTYPE_BIT(INT8) | DTYPE_BIT(INT16) | DTYPE_BIT(INT32) | DTYPE_BIT(INT64))
#define DTYPE_UNSIGNED                                                                             \
    (DTYPE_BIT(UINT8) | DTYPE_BIT(UINT16) | DTYPE_BIT(UINT32) | DTYPE_BIT(UINT64))
#define DTYPE_INTS    (DTYPE_SIGNED | DTYPE_UNSIGNED)
#define DTYPE_NUMBERS (DTYPE_FLOATS | DTYPE_INTS)
#define DTYPE_ANY     (DTYPE_NUMBERS | DTYPE_BIT(BOOL) | DTYPE_BIT(STRING))

/* What a STRING element is in memory: borrowed bytes, not terminated. */
struct bytes {
    const char *data;
    size_t size;
};

bool dtype_is_valid(enum dtype dtype);
size_t dtype_bytes(enum dtype dtype);            /* of one element; 0 for DTYPE_NONE */
const char *dtype_name(enum dtype dtype);        /* ONNX's: "float" */
const char *dtype_oip_name(enum dtype dtype);    /* the protocol's: "FP32" */
const char *dtype_triton_name(enum dtype dtype); /* config.pbtxt's: "TYPE_FP32" */
enum dtype dtype_from_oip_name(const char *name, size_t length); /* DTYPE_NONE when unknown */
bool dtype_is_float(enum dtype dtype);
bool dtype_is_integer(enum dtype dtype); /* BOOL is none */

/* Exact conversions of the 16-bit forms (round to nearest even); the kernels may have faster ones.
 */
float float_from_half(uint16_t half);
uint16_t half_from_float(float value);
float float_from_bfloat16(uint16_t value);
uint16_t bfloat16_from_float(float value);

#endif
