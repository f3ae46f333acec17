/* One element of any number type as a double: for the kernels that take every type and need not be
 * fast.  Addresses may be unaligned (constants lie in the model's file as they are). */
#ifndef DEVICE_CPU_ELEMENT_H
#define DEVICE_CPU_ELEMENT_H

#include <string.h>

#include "tensor/dtype.h"

#define ELEMENT_READ_(type, convert)                                                               \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, (const char *)data + index * sizeof(value), sizeof(value));                 \
        return (double)convert(value);                                                             \
    }
#define ELEMENT_WRITE_(type, convert)                                                              \
    {                                                                                              \
        type value = (type)convert(number);                                                        \
        memcpy((char *)data + index * sizeof(value), &value, sizeof(value));                       \
        return;                                                                                    \
    }

static inline uint16_t element_to_half(double number)
{
    return half_from_float((float)number);
}

static inline uint16_t element_to_bfloat16(double number)
{
    return bfloat16_from_float((float)number);
}

static inline double element_read(enum dtype dtype, const void *data, size_t index)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        ELEMENT_READ_(float, )
    case DTYPE_DOUBLE:
        ELEMENT_READ_(double, )
    case DTYPE_FLOAT16:
        ELEMENT_READ_(uint16_t, float_from_half)
    case DTYPE_BFLOAT16:
        ELEMENT_READ_(uint16_t, float_from_bfloat16)
    case DTYPE_INT8:
        ELEMENT_READ_(int8_t, )
    case DTYPE_UINT8:
        ELEMENT_READ_(uint8_t, )
    case DTYPE_INT32:
        ELEMENT_READ_(int32_t, )
    default:
        return 0;
    }
}

static inline void element_write(enum dtype dtype, void *data, size_t index, double number)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        ELEMENT_WRITE_(float, )
    case DTYPE_DOUBLE:
        ELEMENT_WRITE_(double, )
    case DTYPE_FLOAT16:
        ELEMENT_WRITE_(uint16_t, element_to_half)
    case DTYPE_BFLOAT16:
        ELEMENT_WRITE_(uint16_t, element_to_bfloat16)
    case DTYPE_INT8:
        ELEMENT_WRITE_(int8_t, )
    case DTYPE_UINT8:
        ELEMENT_WRITE_(uint8_t, )
    case DTYPE_INT32:
        ELEMENT_WRITE_(int32_t, )
    default:
        return;
    }
}

#endif
