/* Matrix products in float: C = act(scale A B + bias + residual), row-major.
 *
 * B is packed once (weights) or on the way (gemm_batch).  Every element of C is the sum over k in
 * rising order, started from the bias, whatever m, the batch and the number of threads are: so a
 * row has the same bits alone and among others, packed and unpacked.
 */
#ifndef DEVICE_CPU_GEMM_H
#define DEVICE_CPU_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"

/* A matrix anywhere: element (row, column) is at data[row * row_stride + column * column_stride].
 */
struct gemm_matrix {
    const float *data; /* aligned as a float */
    int64_t row_stride;
    int64_t column_stride;
};

/* ---- B known before ---- */

size_t gemm_packed_bytes(enum cpu_isa isa, int64_t k, int64_t n);
/* Names the packed form for weights_share(). */
enum { GEMM_FORMAT_BYTES = 80 };
void gemm_format(enum cpu_isa isa, int64_t k, int64_t n, bool transposed, float scale,
                 char text[GEMM_FORMAT_BYTES]);
/* n and the columns of zeros behind them that a packed B has: as n of a product they are columns
 * of C like others.  A multiple of at most 16. */
int64_t gemm_columns(enum cpu_isa isa, int64_t n);
/* `packed` is 64-byte aligned. */
void gemm_pack(enum cpu_isa isa, int64_t k, int64_t n, const struct gemm_matrix *b, float scale,
               float *packed);

struct gemm {
    int64_t m, k, n;
    struct gemm_matrix a;
    const float *packed;
    const float *bias;     /* n floats; NULL: none */
    const float *residual; /* NULL: none; never c, which holds unfinished sums */
    int64_t ldr;
    float *c;
    int64_t ldc;
    struct epilogue epilogue;
};

/* Scratch of gemm_run() for so many rows, an A of these strides (no matter where) and threads;
 * 64-byte aligned.  Often none. */
size_t gemm_scratch_bytes(enum cpu_isa isa, int64_t m, const struct gemm_matrix *a,
                          unsigned threads);
void gemm_run(enum cpu_isa isa, const struct gemm *gemm, unsigned threads, void *scratch);
/* The same by the calling thread alone (inside a team, or for small work); scratch for one. */
void gemm_run_single(enum cpu_isa isa, const struct gemm *gemm, void *scratch);

/* ---- many products of computed matrices ---- */

/* Fills a, b, c, bias and residual of product `index`. */
struct gemm_product {
    struct gemm_matrix a, b;
    const float *bias, *residual;
    float *c;
};
typedef void (*gemm_product_fn)(const void *arg, int64_t index, struct gemm_product *out_product);

struct gemm_batch {
    int64_t count, m, k, n;
    int64_t ldr, ldc;
    float scale;
    struct epilogue epilogue;
    gemm_product_fn product;
    const void *arg;
};

size_t gemm_batch_scratch_bytes(enum cpu_isa isa, int64_t m, int64_t k, int64_t n,
                                unsigned threads);
void gemm_batch_run(enum cpu_isa isa, const struct gemm_batch *batch, unsigned threads,
                    void *scratch);

#endif
