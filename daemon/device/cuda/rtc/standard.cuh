/* Code that NVRTC compiles on a user's machine finds this in the place of the standard headers and
 * of CUDA's: only its library is there, no toolkit.  As much of them as device/cuda/kernels/ uses.
 *
 * Conversions of 16-bit floats are the instructions that CUDA's headers use, or before the
 * architectures that have them the same roundings.  The only inline PTX of the plug-in.
 * Mathematics, and the types of launchers' prototypes, NVRTC knows by itself.
 */
#ifndef DEVICE_CUDA_RTC_STANDARD_CUH
#define DEVICE_CUDA_RTC_STANDARD_CUH

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef uint64_t uintptr_t;

#define INT64_MAX   9223372036854775807LL
#define INT64_MIN   (-INT64_MAX - 1)
#define UINT32_C(x) x##u
#define INFINITY    __int_as_float(0x7f800000)

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};

__device__ static inline __half __ushort_as_half(uint16_t bits)
{
    return __half{bits};
}
__device__ static inline uint16_t __half_as_ushort(__half value)
{
    return value.bits;
}
__device__ static inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

__device__ static inline float __half2float(__half value)
{
    float wide;

    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
}
__device__ static inline __half __float2half_rn(float value)
{
    __half narrow;

    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
    return narrow;
}
__device__ static inline __half __double2half(double value)
{
    __half narrow;

    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(narrow.bits) : "d"(value));
    return narrow;
}

__device__ static inline float __bfloat162float(__nv_bfloat16 value)
{
    return __uint_as_float((uint32_t)value.bits << 16);
}
__device__ static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    __nv_bfloat16 narrow;

#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
#else
    const uint32_t bits = __float_as_uint(value);

    narrow.bits = (bits & 0x7fffffffu) > 0x7f800000u
                      ? (uint16_t)0x7fff
                      : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
#endif
    return narrow;
}
/* By way of a float that remembers in its last bit that it is not exact: rounded once. */
__device__ static inline __nv_bfloat16 __double2bfloat16(double value)
{
    const float cut = __double2float_rz(value);
    const uint32_t inexact = (double)cut != value && value == value;

    return __float2bfloat16_rn(__uint_as_float(__float_as_uint(cut) | inexact));
}

#endif
