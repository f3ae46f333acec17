/* Numbers of any type as unsigned keys of the same order: what TopK and Unique compare.
 *
 * Both zeros are one key; every NaN is one key, above infinity. */
#ifndef DEVICE_CPU_ORDER_H
#define DEVICE_CPU_ORDER_H

#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

static inline uint64_t key_of_float(float value)
{
    uint32_t bits;

    value += 0.0f; /* -0 becomes 0 */
    memcpy(&bits, &value, sizeof(bits));
    if (value != value)
        return UINT64_C(0xFFFFFFFF);
    return (bits >> 31) != 0 ? (uint32_t)~bits : bits | UINT32_C(0x80000000);
}

static inline uint64_t key_of_double(double value)
{
    uint64_t bits;

    value += 0.0;
    memcpy(&bits, &value, sizeof(bits));
    if (value != value)
        return UINT64_MAX;
    return (bits >> 63) != 0 ? ~bits : bits | UINT64_C(1) << 63;
}

#define ORDER_LOAD(type, data, i)                                                                  \
    ({                                                                                             \
        type order_value_;                                                                         \
        memcpy(&order_value_, (const char *)(data) + (size_t)(i) * sizeof(type), sizeof(type));    \
        order_value_;                                                                              \
    })

/* Of element `i`; STRING has none. */
static inline __attribute__((always_inline)) uint64_t key_of(enum dtype dtype, const void *data,
                                                             int64_t i)
{
    switch (dtype) {
    case DTYPE_FLOAT:
        return key_of_float(ORDER_LOAD(float, data, i));
    case DTYPE_DOUBLE:
        return key_of_double(ORDER_LOAD(double, data, i));
    case DTYPE_FLOAT16:
        return key_of_float(float_from_half(ORDER_LOAD(uint16_t, data, i)));
    case DTYPE_BFLOAT16:
        return key_of_float(float_from_bfloat16(ORDER_LOAD(uint16_t, data, i)));
    case DTYPE_INT8:
        return (uint64_t)ORDER_LOAD(int8_t, data, i) ^ UINT64_C(1) << 63;
    case DTYPE_INT16:
        return (uint64_t)ORDER_LOAD(int16_t, data, i) ^ UINT64_C(1) << 63;
    case DTYPE_INT32:
        return (uint64_t)ORDER_LOAD(int32_t, data, i) ^ UINT64_C(1) << 63;
    case DTYPE_INT64:
        return (uint64_t)ORDER_LOAD(int64_t, data, i) ^ UINT64_C(1) << 63;
    case DTYPE_UINT16:
        return ORDER_LOAD(uint16_t, data, i);
    case DTYPE_UINT32:
        return ORDER_LOAD(uint32_t, data, i);
    case DTYPE_UINT64:
        return ORDER_LOAD(uint64_t, data, i);
    default:
        return ORDER_LOAD(uint8_t, data, i);
    }
}

#endif
