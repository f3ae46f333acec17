/* Elements of any number type, read and written as one of four wide types: float (also for the
 * 16-bit floats), double, int64_t (also for narrower integers and BOOL), uint64_t.
 *
 * The type is an argument that all threads share, so its switch costs a branch a group of
 * elements.  Conversions are those of the CPU device: a real number beyond int64 becomes the
 * smallest int64, integers wrap.
 */
#ifndef DEVICE_CUDA_KERNELS_ELEMENT_CUH
#define DEVICE_CUDA_KERNELS_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tensor/dtype.h"

__device__ static inline float real_of(float value)
{
    return value;
}
__device__ static inline double real_of(double value)
{
    return value;
}
__device__ static inline float real_of(__half value)
{
    return __half2float(value);
}
__device__ static inline float real_of(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}

/* Towards zero; defined for every value, NaN included. */
__device__ static inline int64_t whole_of(double value)
{
    return value >= -9223372036854775808.0 && value < 9223372036854775808.0 ? (int64_t)value
                                                                            : INT64_MIN;
}
__device__ static inline uint64_t unsigned_whole_of(double value)
{
    return value >= 9223372036854775808.0 && value < 18446744073709551616.0
               ? (uint64_t)value
               : (uint64_t)whole_of(value);
}

template <class TO> struct convert_to {
    __device__ static TO from(float value)
    {
        return (TO)whole_of((double)value);
    }
    __device__ static TO from(double value)
    {
        return (TO)whole_of(value);
    }
    __device__ static TO from(int64_t value)
    {
        return (TO)value;
    }
    __device__ static TO from(uint64_t value)
    {
        return (TO)value;
    }
};
template <> struct convert_to<uint64_t> {
    __device__ static uint64_t from(double value)
    {
        return unsigned_whole_of(value);
    }
    __device__ static uint64_t from(float value)
    {
        return unsigned_whole_of((double)value);
    }
    __device__ static uint64_t from(int64_t value)
    {
        return (uint64_t)value;
    }
    __device__ static uint64_t from(uint64_t value)
    {
        return value;
    }
};
template <> struct convert_to<bool> {
    template <class FROM> __device__ static bool from(FROM value)
    {
        return value != 0;
    }
};
template <> struct convert_to<float> {
    template <class FROM> __device__ static float from(FROM value)
    {
        return (float)value;
    }
};
template <> struct convert_to<double> {
    template <class FROM> __device__ static double from(FROM value)
    {
        return (double)value;
    }
};
template <> struct convert_to<__half> {
    template <class FROM> __device__ static __half from(FROM value)
    {
        return __float2half_rn((float)value);
    }
    __device__ static __half from(double value)
    {
        return __double2half(value);
    }
};
template <> struct convert_to<__nv_bfloat16> {
    template <class FROM> __device__ static __nv_bfloat16 from(FROM value)
    {
        return __float2bfloat16_rn((float)value);
    }
    __device__ static __nv_bfloat16 from(double value)
    {
        return __double2bfloat16(value);
    }
};

/* CASE(TYPE) for each number type that can be read as T. */
template <class T> struct element_types;

#define ELEMENT_REAL_CASES_(CASE)                                                                  \
    CASE(FLOAT, float)                                                                             \
    CASE(FLOAT16, __half)                                                                          \
    CASE(BFLOAT16, __nv_bfloat16)
#define ELEMENT_INT_CASES_(CASE)                                                                   \
    CASE(INT8, int8_t)                                                                             \
    CASE(UINT8, uint8_t)                                                                           \
    CASE(INT16, int16_t)                                                                           \
    CASE(UINT16, uint16_t)                                                                         \
    CASE(INT32, int32_t)                                                                           \
    CASE(UINT32, uint32_t)                                                                         \
    CASE(INT64, int64_t)                                                                           \
    CASE(UINT64, uint64_t)

/* COUNT elements at offsets; values beyond `valid` are left as they are. */
template <int COUNT, class T, class E>
__device__ static inline void elements_gather_(const E *data, const int64_t (&offsets)[COUNT],
                                               int valid, T (&values)[COUNT])
{
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        if (k < valid)
            values[k] = (T)real_of(data[offsets[k]]);
}
template <int COUNT, class T, class E>
__device__ static inline void elements_gather_whole_(const E *data, const int64_t (&offsets)[COUNT],
                                                     int valid, T (&values)[COUNT])
{
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        if (k < valid)
            values[k] = (T)data[offsets[k]];
}

#define ELEMENT_GATHER_(name, type)                                                                \
    case DTYPE_##name:                                                                             \
        elements_gather_<COUNT>((const type *)data, offsets, valid, values);                       \
        break;
#define ELEMENT_GATHER_WHOLE_(name, type)                                                          \
    case DTYPE_##name:                                                                             \
        elements_gather_whole_<COUNT>((const type *)data, offsets, valid, values);                 \
        break;

template <int COUNT>
__device__ static inline void elements_load(uint32_t dtype, const void *data,
                                            const int64_t (&offsets)[COUNT], int valid,
                                            float (&values)[COUNT])
{
    switch (dtype) {
        ELEMENT_REAL_CASES_(ELEMENT_GATHER_)
    default:
        break;
    }
}
template <int COUNT>
__device__ static inline void elements_load(uint32_t dtype, const void *data,
                                            const int64_t (&offsets)[COUNT], int valid,
                                            double (&values)[COUNT])
{
    switch (dtype) {
        ELEMENT_REAL_CASES_(ELEMENT_GATHER_)
        ELEMENT_GATHER_(DOUBLE, double)
        ELEMENT_INT_CASES_(ELEMENT_GATHER_WHOLE_)
    default:
        break;
    }
}
template <int COUNT>
__device__ static inline void elements_load(uint32_t dtype, const void *data,
                                            const int64_t (&offsets)[COUNT], int valid,
                                            int64_t (&values)[COUNT])
{
    switch (dtype) {
        ELEMENT_INT_CASES_(ELEMENT_GATHER_WHOLE_)
    case DTYPE_BOOL: /* any byte but zero is true */
        elements_gather_whole_<COUNT>((const uint8_t *)data, offsets, valid, values);
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            values[k] = values[k] != 0;
        break;
    default:
        break;
    }
}
template <int COUNT>
__device__ static inline void elements_load(uint32_t dtype, const void *data,
                                            const int64_t (&offsets)[COUNT], int valid,
                                            uint64_t (&values)[COUNT])
{
    (void)dtype;
    elements_gather_whole_<COUNT>((const uint64_t *)data, offsets, valid, values);
}

#define ELEMENT_SCATTER_(name, type)                                                               \
    case DTYPE_##name:                                                                             \
        _Pragma("unroll") for (int k = 0; k < COUNT; k++) if (k < valid)(                          \
            (type *)data)[offsets[k]] = convert_to<type>::from(values[k]);                         \
        break;

template <int COUNT, class T>
__device__ static inline void elements_store(uint32_t dtype, void *data,
                                             const int64_t (&offsets)[COUNT], int valid,
                                             const T (&values)[COUNT])
{
    switch (dtype) {
        ELEMENT_REAL_CASES_(ELEMENT_SCATTER_)
        ELEMENT_SCATTER_(DOUBLE, double)
        ELEMENT_INT_CASES_(ELEMENT_SCATTER_)
        ELEMENT_SCATTER_(BOOL, bool)
    default:
        break;
    }
}

/* One element. */
template <class T>
__device__ static inline T element_load(uint32_t dtype, const void *data, int64_t index)
{
    const int64_t offsets[1] = {index};
    T values[1] = {0};

    elements_load<1>(dtype, data, offsets, 1, values);
    return values[0];
}
template <class T>
__device__ static inline void element_store(uint32_t dtype, void *data, int64_t index, T value)
{
    const int64_t offsets[1] = {index};
    const T values[1] = {value};

    elements_store<1>(dtype, data, offsets, 1, values);
}

/* An index of type INT32 or INT64. */
__device__ static inline int64_t index_load(uint32_t dtype, const void *data, int64_t i)
{
    return dtype == DTYPE_INT32 ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i];
}

#endif
