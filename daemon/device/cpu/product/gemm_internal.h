/* Between gemm.c, which divides the work, and gemm_kernels.h, which does it. */
#ifndef DEVICE_CPU_GEMM_INTERNAL_H
#define DEVICE_CPU_GEMM_INTERNAL_H

#include "device/cpu/product/gemm.h"

struct gemm_ops {
    int64_t rows;       /* of the micro-kernel */
    int64_t panel;      /* columns of a full panel */
    int64_t vector;     /* the last panel is as many vectors wide as it needs */
    int64_t block_rows; /* rows of A copied at a time */
    size_t row_floats;  /* room for each of them */
    bool (*copies)(const struct gemm_matrix *a); /* false: reads A where it lies */
    void (*pack)(int64_t k, int64_t n, const struct gemm_matrix *b, float scale, float *packed);
    /* Rows [row, row + rows) by panels [first, last); copy: room for `rows` where A is copied. */
    void (*run)(const struct gemm *gemm, int64_t row, int64_t rows, int64_t first, int64_t last,
                float *copy);
};

const struct gemm_ops *gemm_ops_for(enum cpu_isa isa);

#endif
