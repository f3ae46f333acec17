/* Which of several algorithms for a product: the fastest, timed once for the whole device.
 *
 * The library's heuristic offers algorithms in the order it thinks best.  When a product is first
 * planned each is run a few times on memory that is borrowed for it, with events around it; the
 * answer is kept by the problem in words: its canonical sizes (see problem.h), types and epilogue.
 * So all plans of all batch sizes have one algorithm, and a row the same bits in each of them; in
 * another process it may be another one.
 *
 * The first one stays where another is not clearly faster, where there is no memory to try them,
 * and where something fails.
 */
#ifndef DEVICE_CUDA_BLAS_CHOOSE_H
#define DEVICE_CUDA_BLAS_CHOOSE_H

#include "device/cuda/blas/problem.h"

enum { LT_CANDIDATES = 8 };

/* Of a device, in struct lt. */
struct lt_choices;
struct lt_choices *lt_choices_create(void); /* NULL: no memory */
void lt_choices_destroy(struct lt_choices *choices);

/* What is tried: `canonical` with its layouts made, and what the heuristic offers for it. */
struct lt_trial {
    struct lt_product canonical;
    cublasLtMatmulHeuristicResult_t offered[LT_CANDIDATES];
    int count; /* ≥ 1 */
};

/* The number of the one to take.  `weights` lends the memory.  Waits for the device, up to about
 * LT_TRIAL_MS, the first time a problem is seen. */
int lt_choose(struct lt_trial *trial, struct weights_cache *weights);

#endif
