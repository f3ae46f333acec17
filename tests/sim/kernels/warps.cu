#include "warps.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>

/* The fragments by the manual's tables, element by element. */
template <int KIND> __global__ void mma_kernel(void *d, const void *a, const void *b, const void *c)
{
    int group = threadIdx.x / 4;
    int place = threadIdx.x % 4;
    float f[4];
    int n[4];

    if (KIND <= 3)
        for (int i = 0; i < 4; i++)
            f[i] = ((const float *)c)[(group + i / 2 * 8) * 8 + place * 2 + i % 2];
    else
        for (int i = 0; i < 4; i++)
            n[i] = ((const int *)c)[(group + i / 2 * 8) * 8 + place * 2 + i % 2];
    if (KIND == 0 || KIND == 1) {
        const uint16_t *A = (const uint16_t *)a;
        const uint16_t *B = (const uint16_t *)b;
        uint16_t x[8];
        uint16_t y[4];
        for (int i = 0; i < 8; i++) {
            int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            int column = place * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            x[i] = A[row * 16 + column];
        }
        for (int i = 0; i < 4; i++)
            y[i] = B[group * 16 + place * 2 + (i & 1) + (i >= 2 ? 8 : 0)];
        uint32_t ra[4], rb[2];
        for (int i = 0; i < 4; i++)
            ra[i] = x[2 * i] | (uint32_t)x[2 * i + 1] << 16;
        for (int i = 0; i < 2; i++)
            rb[i] = y[2 * i] | (uint32_t)y[2 * i + 1] << 16;
        if (KIND == 0)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])
                : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
        else
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])
                : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    } else if (KIND == 2) {
        const uint16_t *A = (const uint16_t *)a;
        const uint16_t *B = (const uint16_t *)b;
        uint32_t ra[2], rb;
        for (int i = 0; i < 2; i++)
            ra[i] = A[(group + 8 * i) * 8 + place * 2] |
                    (uint32_t)A[(group + 8 * i) * 8 + place * 2 + 1] << 16;
        rb = B[group * 8 + place * 2] | (uint32_t)B[group * 8 + place * 2 + 1] << 16;
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%0,%1,%2,%3};"
            : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])
            : "r"(ra[0]), "r"(ra[1]), "r"(rb));
    } else if (KIND == 3) {
        const uint32_t *A = (const uint32_t *)a;
        const uint32_t *B = (const uint32_t *)b;
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(f[0]), "+f"(f[1]), "+f"(f[2]), "+f"(f[3])
            : "r"(A[group * 8 + place]), "r"(A[(group + 8) * 8 + place]),
              "r"(A[group * 8 + place + 4]), "r"(A[(group + 8) * 8 + place + 4]),
              "r"(B[group * 8 + place]), "r"(B[group * 8 + place + 4]));
    } else if (KIND == 4) {
        const uint32_t *A = (const uint32_t *)a; /* four bytes of a row of 32 */
        const uint32_t *B = (const uint32_t *)b;
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+r"(n[0]), "+r"(n[1]), "+r"(n[2]), "+r"(n[3])
            : "r"(A[group * 8 + place]), "r"(A[(group + 8) * 8 + place]),
              "r"(A[group * 8 + place + 4]), "r"(A[(group + 8) * 8 + place + 4]),
              "r"(B[group * 8 + place]), "r"(B[group * 8 + place + 4]));
    } else {
        const uint32_t *A = (const uint32_t *)a; /* of a row of 16 */
        const uint32_t *B = (const uint32_t *)b;
        asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
            "{%0,%1,%2,%3};"
            : "+r"(n[0]), "+r"(n[1]), "+r"(n[2]), "+r"(n[3])
            : "r"(A[group * 4 + place]), "r"(A[(group + 8) * 4 + place]),
              "r"(B[group * 4 + place]));
    }
    for (int i = 0; i < 4; i++) {
        int at = (group + i / 2 * 8) * 8 + place * 2 + i % 2;
        if (KIND <= 3)
            ((float *)d)[at] = f[i];
        else
            ((int *)d)[at] = n[i];
    }
}

template <bool TRANSPOSED> __global__ void ldmatrix_kernel(float *out, const uint4 *in)
{
    __shared__ __align__(16) uint4 tile[32]; /* 16 rows of 16 halves */
    uint32_t r[4];
    int lane = threadIdx.x;

    tile[lane] = in[lane];
    __syncthreads();
    /* Matrices: rows 0-7 left, rows 8-15 left, rows 0-7 right, rows 8-15 right. */
    uint32_t address = (uint32_t)__cvta_generic_to_shared(
        (const char *)tile + (lane % 16) * 32 + (lane / 16) * 16);
    if (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address));
    for (int m = 0; m < 4; m++)
        for (int half = 0; half < 2; half++) {
            int row = lane / 4 + (m % 2) * 8;
            int column = (lane % 4) * 2 + half + (m / 2) * 8;
            out[row * 16 + column] =
                __half2float(__ushort_as_half((unsigned short)(r[m] >> (16 * half))));
        }
}

__global__ void wmma_kernel(float *d, const half *a, const half *b)
{
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;

    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; i++)
        fc.x[i] *= 2;
    wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
}

__global__ void exchange(unsigned *out, const unsigned *in)
{
    unsigned t = threadIdx.x;
    unsigned v = in[t];
    unsigned lane_lt;

    out[t] = __shfl_up_sync(~0u, v, 3);
    out[32 + t] = __shfl_down_sync(~0u, v, 5, 16);
    out[64 + t] = __shfl_sync(~0u, v, 9);
    out[96 + t] = __shfl_xor_sync(~0u, v, 6);
    out[128 + t] = __ballot_sync(~0u, v & 1);
    out[160 + t] = __match_any_sync(~0u, v & 3);
    out[192 + t] = __reduce_add_sync(~0u, v);
    out[224 + t] = (unsigned)__syncthreads_count(v > 5);
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lane_lt));
    out[256 + t] = lane_lt;
    out[288 + t] = (unsigned)__any_sync(~0u, v == 7);
}

struct sums {
    int i;
    float f;
    double d;
    __half2 h;
    __nv_bfloat162 b;
    int least;
    int most;
    int looped;
};

__global__ void atomics(sums *out, const int *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n)
        return;
    int v = in[i];
    atomicAdd(&out->i, v);
    atomicAdd(&out->f, (float)v);
    atomicAdd(&out->d, (double)v);
    atomicAdd(&out->h, __floats2half2_rn(1, 2));
    atomicAdd(&out->b, __floats2bfloat162_rn(1, 0.5f));
    atomicMin(&out->least, v);
    atomicMax(&out->most, v);
    int old = out->looped;
    int seen;
    do {
        seen = old;
        old = atomicCAS(&out->looped, seen, seen + v);
    } while (old != seen);
}

__device__ __noinline__ float series(float x, int n)
{
    float sum = 0;

    for (int i = 1; i <= n; i++) {
        if (i == 7)
            return sum;
        sum += x / (float)i;
    }
    return sum;
}

__global__ void calls(float *out, const float *in, int n)
{
    int i = threadIdx.x;

    if (i < n)
        out[i] = series(in[i], i % 10) + series(in[i] + 1, 3);
}

__global__ void diverge(int *out, int n)
{
    int t = threadIdx.x;
    int sum = 0;

    if (t >= n)
        return;
    for (int i = 0; i < t; i++) {
        if (i % 7 == 5)
            continue;
        if (i > 20 && t % 3 == 0)
            break;
        switch (i % 5) {
        case 0:
            sum += 1;
            break;
        case 1:
            sum *= 2;
            break;
        case 2:
            sum -= t;
            break;
        default:
            sum ^= i;
        }
        sum &= 0xFFFF;
    }
    out[t] = sum;
}

__constant__ float table[8];
__device__ int counter = 5;

__global__ void variables(float *out, int n)
{
    int i = threadIdx.x;

    if (i < n)
        out[i] = table[i % 8] + (float)counter;
}

struct packed {
    char a;
    int b[3];
    long long c;
    float d;
};

__global__ void parameters(packed p, long long *out, int n)
{
    int i = threadIdx.x;
    long long cells[4];

    for (int k = 0; k < 4; k++)
        cells[k] = p.c / (i + 1 + k) + p.c % (i + 3);
    if (i < n)
        out[i] = cells[i & 3] + p.b[i % 3] + p.a + (long long)p.d;
}

int warps_mma(void *d, const void *a, const void *b, const void *c, int kind)
{
    switch (kind) {
    case 0:
        mma_kernel<0><<<1, 32>>>(d, a, b, c);
        break;
    case 1:
        mma_kernel<1><<<1, 32>>>(d, a, b, c);
        break;
    case 2:
        mma_kernel<2><<<1, 32>>>(d, a, b, c);
        break;
    case 3:
        mma_kernel<3><<<1, 32>>>(d, a, b, c);
        break;
    case 4:
        mma_kernel<4><<<1, 32>>>(d, a, b, c);
        break;
    default:
        mma_kernel<5><<<1, 32>>>(d, a, b, c);
        break;
    }
    return cudaDeviceSynchronize();
}

int warps_ldmatrix(float *out, const void *in, int transposed)
{
    if (transposed)
        ldmatrix_kernel<true><<<1, 32>>>(out, (const uint4 *)in);
    else
        ldmatrix_kernel<false><<<1, 32>>>(out, (const uint4 *)in);
    return cudaDeviceSynchronize();
}

int warps_wmma(float *d, const void *a, const void *b)
{
    wmma_kernel<<<1, 32>>>(d, (const half *)a, (const half *)b);
    return cudaDeviceSynchronize();
}

int warps_exchange(unsigned *out, const unsigned *in)
{
    exchange<<<1, 32>>>(out, in);
    return cudaDeviceSynchronize();
}

int warps_atomics(void *out, const int *in, int n)
{
    atomics<<<(n + 63) / 64, 64>>>((sums *)out, in, n);
    return cudaDeviceSynchronize();
}

int warps_calls(float *out, const float *in, int n)
{
    calls<<<1, n>>>(out, in, n);
    return cudaDeviceSynchronize();
}

int warps_diverge(int *out, int n)
{
    diverge<<<1, 64>>>(out, n);
    return cudaDeviceSynchronize();
}

int warps_variables(float *out, const float *constants, int n)
{
    cudaError_t error = cudaMemcpyToSymbol(table, constants, sizeof(table));

    if (error != cudaSuccess)
        return error;
    variables<<<1, n>>>(out, n);
    return cudaDeviceSynchronize();
}

int warps_parameters(long long *out, int n)
{
    packed p = {3, {10, 20, 30}, 123456789012345LL, 7.5f};

    parameters<<<1, n>>>(p, out, n);
    return cudaDeviceSynchronize();
}
