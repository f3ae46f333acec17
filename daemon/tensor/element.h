/* One element of any number type, or BOOL, as a double: for whatever takes every type and need not
 * be fast.  Addresses may be unaligned (constants lie in the model's file as they are). STRING and
 * DTYPE_NONE read as 0 and are not written. */
#ifndef TENSOR_ELEMENT_H
#define TENSOR_ELEMENT_H

#include <string.h>

#include "tensor/dtype.h"

static inline uint16_t element_to_half(double number)
{
    return half_from_float((float)number);
}

static inline uint16_t element_to_bfloat16(double number)
{
    return bfloat16_from_float((float)number);
}

/* EACH(dtype, C type, from element, to element) */
#define ELEMENT_TYPES_(EACH)                                                                       \
    EACH(FLOAT, float, (double), (float))                                                          \
    EACH(DOUBLE, double, (double), (double))                                                       \
    EACH(FLOAT16, uint16_t, (double)float_from_half, element_to_half)                              \
    EACH(BFLOAT16, uint16_t, (double)float_from_bfloat16, element_to_bfloat16)                     \
    EACH(INT8, int8_t, (double), (int8_t))                                                         \
    EACH(UINT8, uint8_t, (double), (uint8_t))                                                      \
    EACH(INT16, int16_t, (double), (int16_t))                                                      \
    EACH(UINT16, uint16_t, (double), (uint16_t))                                                   \
    EACH(INT32, int32_t, (double), (int32_t))                                                      \
    EACH(UINT32, uint32_t, (double), (uint32_t))                                                   \
    EACH(INT64, int64_t, (double), (int64_t))                                                      \
    EACH(UINT64, uint64_t, (double), (uint64_t))                                                   \
    EACH(BOOL, uint8_t, (double), 0 !=)

#define ELEMENT_READ_(name, type, from, to)                                                        \
    case DTYPE_##name: {                                                                           \
        type value;                                                                                \
        memcpy(&value, (const char *)data + index * sizeof(value), sizeof(value));                 \
        return from(value);                                                                        \
    }
#define ELEMENT_WRITE_(name, type, from, to)                                                       \
    case DTYPE_##name: {                                                                           \
        type value = (type)(to(number));                                                           \
        memcpy((char *)data + index * sizeof(value), &value, sizeof(value));                       \
        return;                                                                                    \
    }

static inline double element_read(enum dtype dtype, const void *data, size_t index)
{
    switch (dtype) {
        ELEMENT_TYPES_(ELEMENT_READ_)
    default:
        return 0;
    }
}

/* The number must fit the type. */
static inline void element_write(enum dtype dtype, void *data, size_t index, double number)
{
    switch (dtype) {
        ELEMENT_TYPES_(ELEMENT_WRITE_)
    default:
        return;
    }
}

#endif
