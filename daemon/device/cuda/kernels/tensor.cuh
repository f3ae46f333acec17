/* Tensor cores: products of small matrices by a warp, and copies to shared memory that go on while
 * the warp computes.  The only inline PTX of the plug-in.
 *
 * Lane l of a warp belongs to group l / 4 and has place l % 4 in it.  Of 16-bit elements, two a
 * register, it holds
 *
 *     a, 16 rows of 16     [0] row group       columns 2 place, 2 place + 1    [2] the same + 8
 *                          [1] row group + 8   the same                        [3] the same + 8
 *     b, 16 rows of 8      [0] column group    rows 2 place, 2 place + 1       [1] the same + 8
 *     sums, 16 rows of 8   [0], [1] row group, columns 2 place, 2 place + 1    [2], [3] row + 8
 *
 * so what two products gave side by side is `a` of the next one, rounded to 16 bits.
 */
#ifndef DEVICE_CUDA_KERNELS_TENSOR_CUH
#define DEVICE_CUDA_KERNELS_TENSOR_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* The capability from which on there are products of 16 x 16 by 16 x 8, those of bfloat16, and
 * copies that do not wait. */
#define TENSOR_WHOLE 800

__device__ static inline uint32_t tensor_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* sums += a b, of type T. */
template <class T>
__device__ static inline void tensor_multiply(float (&sums)[4], const uint32_t (&a)[4],
                                              const uint32_t (&b)[2]);

template <>
__device__ inline void tensor_multiply<__half>(float (&sums)[4], const uint32_t (&a)[4],
                                               const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= TENSOR_WHOLE
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
#pragma unroll
    for (int half = 0; half < 2; half++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5}, {%6}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}

/* Nobody launches this where it is nothing. */
template <>
__device__ inline void tensor_multiply<__nv_bfloat16>(float (&sums)[4], const uint32_t (&a)[4],
                                                      const uint32_t (&b)[2])
{
#if __CUDA_ARCH__ >= TENSOR_WHOLE
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    (void)sums, (void)a, (void)b;
    __trap();
#endif
}

/* Four matrices of 8 x 8; lane l gives the address of row l % 8 of matrix l / 8, 16 bytes that are
 * aligned so.  Of each the lane gets row `group`, columns 2 place and the next. */
__device__ static inline void tensor_load(uint32_t (&registers)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(tensor_address(row))
                 : "memory");
}

/* The same, turned: column `group`, rows 2 place and the next. */
__device__ static inline void tensor_load_turned(uint32_t (&registers)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(tensor_address(row))
                 : "memory");
}

/* Sixteen bytes from global to shared memory, zeros where `is_there` is false; both addresses are
 * aligned and mapped all the same.  They are there behind copies_wait() of this thread and a
 * barrier. */
__device__ static inline void copy_begin(void *shared, const void *global, bool is_there)
{
#if __CUDA_ARCH__ >= TENSOR_WHOLE
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(tensor_address(shared)), "l"(__cvta_generic_to_global(global)),
                   "r"(is_there ? 16 : 0)
                 : "memory");
#else
    *(uint4 *)shared = is_there ? *(const uint4 *)global : make_uint4(0, 0, 0, 0);
#endif
}

/* Waits for all copies that this thread has begun. */
__device__ static inline void copies_wait()
{
#if __CUDA_ARCH__ >= TENSOR_WHOLE
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}

#endif
